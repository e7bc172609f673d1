"""Findings of a program and of the processes that it starts, put together: each process adds lines to one file.

`mmulator exec` names the file in MMULATOR_FINDINGS, and reads it when the program is over.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmulator import files
from mmulator.demangle import demangle
from mmulator.errors import LaunchError, MmulatorError
from mmulator.findings import Finding, group_key, grouped
from mmulator.refusals import RefusedWork
from mmulator.sarif import results

Row = dict[str, Any]


def rows_of(findings: Sequence[Finding], kernel: str) -> Iterable[Row]:
    """JSON rows of findings that are told as one."""
    for group in grouped(findings):
        (result,) = results(group)
        key = [kernel, *group_key(group[0])]
        yield {"key": key, "kernel": kernel, "result": result, "findings": [f.as_dict() for f in group]}


class Gathering:
    """A reader of launches that adds what is new to the file."""

    def __init__(self, path: str) -> None:
        self.path, self.seen, self.process = path, set[str](), os.getpid()

    def __call__(
        self, kernel: str, findings: tuple[Finding, ...], error: MmulatorError | None = None, launches: int = 1
    ) -> None:
        self.add(rows_of(findings, demangle(kernel)), launches)

    def add(self, rows: Iterable[Row], launches: int) -> None:
        """launches: that were looked at besides."""
        new = []
        for row in rows:
            key = "\0".join(map(str, row["key"]))
            if key not in self.seen:
                self.seen.add(key)
                new.append(row)
        self._append([{"launches": launches}, *new])

    def refused(self, refusals: Iterable[RefusedWork]) -> None:
        """Add what is known of refusals; the last row of a process about a reason counts."""
        self._append([{"process": os.getpid(), "refused": refusal.as_dict()} for refusal in refusals])

    def explained(self, answer: Row) -> None:
        """Add an answer of --why."""
        self._append([{"explained": answer}])

    def stopped(self) -> None:
        """Note that a launch was stopped for what it had made (errors.NotFinite)."""
        self._append([{"stopped": True}])

    def _append(self, rows: list[Row]) -> None:
        files.append(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode(), LaunchError)


def read(path: str | Path) -> tuple[int, list[Row], list[Row], list[Row], bool]:
    """(launches that were looked at, what they have, each once, what was refused, answers of --why, whether one was stopped)."""
    stopped, launches, found, refused = False, 0, dict[str, Row](), dict[tuple[int, str], Row]()
    explained: list[Row] = []
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the process was killed as it wrote
                continue
            stopped |= "stopped" in row
            launches += row.get("launches", 0)
            if "key" in row:
                found.setdefault("\0".join(map(str, row["key"])), row)
            if "refused" in row:
                refused[row["process"], row["refused"]["why"]] = row["refused"]
            if "explained" in row:
                explained.append(row["explained"])
    return launches, [*found.values()], [*refused.values()], explained, stopped
