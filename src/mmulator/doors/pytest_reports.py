"""The end of a run of pytest: findings, a test's as its failure and those of all as lines; profiles of the tests' kernels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mmulator.base.files import write
from mmulator.base.findings import WIDTH, Finding, by_severity, counted, group_key, grouped, paragraph
from mmulator.base.findings import paragraphs as all_paragraphs
from mmulator.observation.record.launches.profiles import Profiles
from mmulator.observation.record.profile.data import added_up, unreached
from mmulator.observation.record.profile.launch import LaunchProfile
from mmulator.observation.record.profile.views import FORMATS, never, written
from mmulator.sanitizer.sarif import Baseline, results


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
    verdicts: of the certificates of launches, where they were asked for.
    """

    rows: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    launches: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)

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
            self.verdicts += row.get("verdicts", ())
            if "key" in row:
                found = self.rows.setdefault(tuple(row["key"]), {**row, "tests": []})
                found["tests"] += row["tests"]

    def as_list(self) -> list[dict[str, Any]]:
        rows = ({**row, "key": list(row["key"])} for row in self.rows.values())
        return [{"launches": self.launches, "refused": self.refused, "verdicts": self.verdicts}, *rows]

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
        if self.verdicts:
            from mmulator.host.driver.certificates import summary

            yield f"certificates: {summary(self.verdicts)}"


class Coverage:
    """Profiles of all launches. file: where they are written, or None."""

    def __init__(self, file: str | None) -> None:
        if file is not None and Path(file).suffix not in FORMATS:
            raise pytest.UsageError(f"--mmulator-profile-to {file}: the name ends in one of {', '.join(FORMATS)}")
        self.file = file
        self.profiles, self.others = Profiles("1"), list[LaunchProfile]()
        self.profiles.tells = False

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add what `as_list` of another process gave."""
        self.others += map(LaunchProfile.of, rows)

    def as_list(self) -> list[dict[str, Any]]:
        return [p.as_dict() for p in self.profiles.profiles()]

    def lines(self) -> Iterator[str]:
        """Lines for the end of the run. Writes the file, too."""
        found = added_up([*self.profiles.profiles(), *self.others])
        if self.file is not None:
            write(self.file, written(found, self.file))
        missed = unreached(found)
        lines, ways = missed.known - len(missed.lines), missed.ways - len(missed.branches)
        yield (
            f"profile: {len(found)} kernel{'s' * (len(found) != 1)}: {lines:,} of {missed.known:,} lines reached, "
            f"{ways:,} of {missed.ways:,} ways of branches"
        )
        yield from never(missed)
