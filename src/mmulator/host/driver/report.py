"""Launches as a user sees them: a few lines for each, or lines of JSON, and a table of kernels as the process ends."""

from __future__ import annotations

import json
import os
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mmulator.base.demangle import demangle
from mmulator.base.errors import LaunchError
from mmulator.base.schemas import document
from mmulator.base.tables import short, text_table
from mmulator.host.driver.inquiries import ProcessRecord, say
from mmulator.host.report import Report

WIDTH = 80
_OURS = "mmulator: "
_NAME = 16  # characters of a kernel's name that are left of a long one
_CLASSES = 5  # of instructions that are named


# figures ------------------------------------------------------------------------------------------------------------
def elided(name: str, room: int) -> str:
    """A name without some of its middle, if it is longer than there is room. Names of kernels differ at their ends, mostly."""
    room = max(room, _NAME)
    head = (room - 3) // 3
    return name if len(name) <= room else f"{name[:head]}...{name[head + 3 - room :]}"


# one launch ---------------------------------------------------------------------------------------------------------
def block(report: Report) -> str:
    """The lines of a kernel's first launch."""
    executed = ", ".join(f"{name} {short(n)}" for name, n in list(report.instructions.items())[:_CLASSES])
    rest = report.total_instructions - sum(list(report.instructions.values())[:_CLASSES])
    executed += f", others {short(rest)}" if rest else ""
    lines = [f"instructions of warps: {short(report.total_instructions)} ({executed})", *report.costs]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join([_line(report.head, report), *(t for line in lines for t in _wrapped(line))])


def again(report: Report, number: int) -> str:
    """The line of a later one."""
    head = report.head.rpartition(",")[0]
    return _line(f"{head}: launch {number:,}, {report.seconds['run']:.3f} s", report, one=True)


def _line(text: str, report: Report, one: bool = False) -> str:
    """A line that begins with the kernel's name. one: the name is cut so that there is no second line, if it can be."""
    name = demangle(report.kernel)
    rest = text.removeprefix(name)
    room = WIDTH - len(_OURS) - len(rest) if one else WIDTH - len(_OURS)
    return "\n".join(_wrapped(f"{_OURS}{elided(name, room)}{rest}", ""))


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)


# all launches -------------------------------------------------------------------------------------------------------
@dataclass
class KernelTotals:
    """Costs of a kernel's launches: seconds, warp instructions, multiply-accumulates."""

    launches: int = 0
    run: float = 0.0
    compile: float = 0.0
    instructions: int = 0
    macs: int = 0

    def add(self, other: KernelTotals) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Totals:
    """Totals of a process, or of several. kernels: by (name, device)."""

    kernels: dict[tuple[str, str], KernelTotals] = field(default_factory=dict)

    def count(self, report: Report) -> int:
        """One more; how many launches of its kernel there were."""
        s = report.seconds
        kernel = self.kernels.setdefault((demangle(report.kernel), report.device), KernelTotals())
        # what is parsed once is in the report of each launch
        kernel.add(
            KernelTotals(1, s["run"], s["compile"] + s["parse"] * (not kernel.launches), report.total_instructions, report.macs)
        )
        return kernel.launches

    def add(self, others: Iterable[Mapping[str, Any]]) -> None:
        """Totals from the `as_list` of another process."""
        for row in others:
            values = dict(row)
            self.kernels.setdefault((values.pop("kernel"), values.pop("device")), KernelTotals()).add(KernelTotals(**values))

    def as_list(self) -> list[dict[str, Any]]:
        return [{"kernel": name, "device": device, **vars(kernel)} for (name, device), kernel in self.kernels.items()]

    def whole(self) -> KernelTotals:
        """Totals of all kernels."""
        whole = KernelTotals()
        for kernel in self.kernels.values():
            whole.add(kernel)
        return whole

    def head(self) -> str:
        """`12 launches of 3 kernels on sm_90: 4.2 s, of which 1.1 s compiling`."""
        whole = self.whole()
        if not whole.launches:
            return "no launches"
        devices = ", ".join(sorted({device for _, device in self.kernels}))
        names = {name for name, _ in self.kernels}
        return (
            f"{whole.launches:,} launch{'es' * (whole.launches != 1)} of {len(names):,} kernel{'s' * (len(names) != 1)} on "
            f"{devices}: {whole.run + whole.compile:.1f} s, of which {whole.compile:.1f} s compiling"
        )

    def table(self) -> list[str]:
        """Lines: the kernels that took longest first."""
        rows = []
        several = len({device for _, device in self.kernels}) > 1
        shown = Counter(elided(name, 26) for name in {name for name, _ in self.kernels})
        for (name, device), k in sorted(self.kernels.items(), key=lambda item: -(item[1].run + item[1].compile)):
            name = name if shown[elided(name, 26)] > 1 else elided(name, 26)
            name += f" on {device}" if several else ""
            macs = short(k.macs) if k.macs else ""
            rows.append((name, f"{k.launches:,}", f"{k.run:.3f}", f"{k.compile:.3f}", short(k.instructions), macs))
        head, *lines = _right([_COLUMNS, *rows])
        return text_table(head, lines)


_COLUMNS = ("kernel", "launches", "run, s", "compile, s", "instructions", "MACs")


def _right(rows: list[tuple[str, ...]]) -> list[list[str]]:
    """Rows whose figures end in one column; the first is the head."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [[cell if n == 0 else cell.rjust(widths[n]) for n, cell in enumerate(row)] for row in rows]


# where it goes ------------------------------------------------------------------------------------------------------
class ReportScreen(ProcessRecord):
    """Lines on standard error, and the table as the process ends."""

    def clear(self) -> None:
        self.totals = Totals()

    def __call__(self, report: Report) -> None:
        with self:
            number = self.totals.count(report)
        say(block(report) if number == 1 else again(report, number))

    def finish(self) -> None:
        if self.totals.kernels:
            say("\n".join([f"mmulator: {self.totals.head()}", *(f"  {line}" for line in self.totals.table())]))


class Lines:
    """A JSON object a launch at the end of a file, which other processes may be writing to as well."""

    def __init__(self, path: str) -> None:
        try:
            self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise LaunchError(f"MMULATOR_REPORT: cannot write {path}: {error.strerror}") from None
        self.path, self.count, self.lock = path, 0, threading.Lock()

    def __call__(self, report: Report) -> None:
        with self.lock:
            self.count += 1
            number = self.count
        row = {"process": os.getpid(), "launch": number, "finished": round(time.time(), 6), "name": demangle(report.kernel)}
        data = json.dumps(document("report", row | report.as_dict(profile=False)), separators=(",", ":")).encode() + b"\n"
        try:
            while data:  # all at once but where the disk is full
                data = data[os.write(self.file, data) :]
        except OSError as error:
            raise LaunchError(f"MMULATOR_REPORT: cannot write {self.path}: {error.strerror}") from None


@cache
def listener(wanted: str) -> Callable[[Report], None]:
    """The listener that `Settings.report` asks for. Raises LaunchError if a file cannot be written."""
    return ReportScreen() if wanted == "1" else Lines(wanted)
