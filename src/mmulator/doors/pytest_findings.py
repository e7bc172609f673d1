"""Findings of a run of pytest: a test's as its failure, those of all tests as lines at the end."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmulator.findings import WIDTH, Finding, by_severity, counted, group_key, grouped, paragraph
from mmulator.findings import paragraphs as all_paragraphs
from mmulator.sarif import Baseline, results


def paragraphs(findings: Sequence[Finding]) -> Iterator[str]:
    """A summary of the findings, then each of them."""
    first = grouped(findings)[0][0]
    yield f"{first.rule} at {first.source or first.location}" + (f"; in all {counted(findings)}" if len(findings) > 1 else "")
    for lines in all_paragraphs(findings, WIDTH):
        yield from ("", *lines)


@dataclass
class Findings:
    """Findings of all tests, in other processes too.

    rows: one for findings that are told as one; `result` is the SARIF result.
    launches: number of sanitized launches.
    refused: work that tests did not handle, as `RefusedWork.as_dict` has it.
    """

    rows: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    launches: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)

    def count(self, test: str, launches: int, findings: Sequence[Finding], known: Baseline | None = None) -> None:
        """Add the findings of one test's launches. known: findings of an earlier run, which get no line."""
        self.launches += launches
        new = {id(f) for f in (findings if known is None else known.new(findings))}
        for group in grouped(findings):
            key = group_key(group[0])
            (result,) = results(group)
            row = self.rows.setdefault(key, {
                "key": key, "severity": group[0].severity, "text": paragraph(group, None)[0], "tests": [], "result": result,
                "new": id(group[0]) in new, "findings": [f.as_dict() for f in group],
            })  # fmt: skip
            row["tests"].append(test)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add what `as_list` of another process returned."""
        for row in rows:
            self.launches += row.get("launches", 0)
            self.refused += row.get("refused", ())
            if "key" in row:
                found = self.rows.setdefault(tuple(row["key"]), {**row, "tests": []})
                found["tests"] += row["tests"]

    def as_list(self) -> list[dict[str, Any]]:
        rows = ({**row, "key": list(row["key"])} for row in self.rows.values())
        return [{"launches": self.launches, "refused": self.refused}, *rows]

    def lines(self) -> Iterator[str]:
        """Lines for the end of the run; none without a sanitized launch."""
        if not self.launches:
            return
        rows = [row for row in self.rows.values() if row["new"]]
        known = f", {len(self.rows) - len(rows)} known by the baseline" if len(rows) < len(self.rows) else ""
        head = by_severity([row["severity"] for row in rows])
        yield f"sanitizer: {head}{known} in {self.launches:,} launch{'es' * (self.launches != 1)}"
        for row in sorted(rows, key=lambda row: row["severity"] != "error"):
            tests = row["tests"]
            more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
            yield f"  {row['text']}"
            yield f"    {tests[0]}{more}"
