"""Findings of a run of pytest: those of a test as its failure, those of all tests as lines at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmulator.findings import WIDTH, Finding, by_severity, counted, grouped, paragraph
from mmulator.findings import paragraphs as all_paragraphs


def paragraphs(findings: Sequence[Finding]) -> Iterator[str]:
    """The first in short, and each of them."""
    first = grouped(findings)[0][0]
    yield f"{first.rule} at {first.source or first.location}" + (f"; in all {counted(findings)}" if len(findings) > 1 else "")
    for lines in all_paragraphs(findings, WIDTH):
        yield from ("", *lines)


@dataclass
class Findings:
    """Of all tests, other processes' too. rows: by rule and places. launches: that were looked at."""

    rows: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    launches: int = 0

    def count(self, test: str, launches: int, findings: Sequence[Finding]) -> None:
        """What the launches of one test have."""
        self.launches += launches
        for f in findings:
            text = paragraph([f], None)[0]
            row = self.rows.setdefault(f.key, {"key": f.key, "severity": f.severity, "text": text, "tests": []})
            row["tests"].append(test)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """What `as_list` of another process gave."""
        for row in rows:
            self.launches += row.get("launches", 0)
            if "key" in row:
                found = self.rows.setdefault(tuple(row["key"]), {**row, "tests": []})
                found["tests"] += row["tests"]

    def as_list(self) -> list[dict[str, Any]]:
        return [{"launches": self.launches}, *({**row, "key": list(row["key"])} for row in self.rows.values())]

    def lines(self) -> Iterator[str]:
        """None where nothing was looked at."""
        if not self.launches:
            return
        head = by_severity([row["severity"] for row in self.rows.values()])
        yield f"sanitizer: {head} in {self.launches:,} launch{'es' * (self.launches != 1)}"
        for row in sorted(self.rows.values(), key=lambda row: row["severity"] != "error"):
            tests = row["tests"]
            more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
            yield f"  {row['text']}"
            yield f"    {tests[0]}{more}"
