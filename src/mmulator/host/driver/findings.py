"""Findings as a user of a program that launches through a door sees them: each once, when its launch is over, and a last line.

Those of a program and of the processes that it starts are put together: each process adds lines to one file, which `mmulator
exec` names in MMULATOR_FINDINGS, and reads when the program is over.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmulator.base import files
from mmulator.base.demangle import demangle
from mmulator.base.errors import ExecutionFault, LaunchError, MmulatorError
from mmulator.base.findings import WIDTH, Finding, counted, group_key, grouped, paragraphs
from mmulator.base.names import shorter
from mmulator.base.refusals import GATHERED, RefusedWork, number, register
from mmulator.host.driver.inquiries import ProcessRecord, say
from mmulator.sanitizer.sarif import Baseline, results

if TYPE_CHECKING:
    from mmulator.host.certificate import Certificate
    from mmulator.host.report import Report

_NAME = 160  # characters of a kernel's name

places: list[Callable[[], Callable[[], str]]] = []  # notes a call of a program of C++; that says from which line it came


_noted: set[str] = set()


def note(text: str) -> None:
    """Say something once on standard error that is no finding: what has no effect here, or what is not known."""
    if text not in _noted:
        _noted.add(text)
        print(f"mmulator: note: {text}", file=sys.stderr)


def caller() -> Callable[[], str]:
    """A function that says, when it is asked, from which line a program of C++ has called now; "" where that is not known."""
    return places[0]() if places else str


def launched() -> str:
    """The place of the launch that runs, as the end of a kernel's name; "" where it is not known."""
    found = caller()()
    return f", launched by {found}" if found else ""


class Told(ProcessRecord):
    """Paragraphs on standard error, and what it comes to as the process ends.

    launches: that were looked at.
    cut: of them not as a whole.
    held: notes that were not asked for.
    certificates: verdicts on launches, where they were asked for.
    orders: the order of the program's operations.
    library: calls of NVIDIA's and torch's libraries; "": those of one result, as the library says; others by name.
    """

    orders: Any = None

    def __init__(self, known: Baseline | None = None) -> None:
        self.known = known
        super().__init__()

    def clear(self) -> None:
        self.launches = self.cut = 0
        self.held: dict[tuple[str, ...], Finding] = {}
        self.found: dict[tuple[str, ...], Finding] = {}
        self.certificates: list[str] = []
        self.library = Counter[str]()
        self.said = set[str]()

    def called(self, name: str = "") -> None:
        """Count a call of a library. name: its name, where the library does not promise one result."""
        with self:
            self.library[name] += 1

    def certified(self, kernel: str, certificate: Certificate | None) -> None:
        """Count a certificate; of one that is none, and of what is needed, each kernel's is told once."""
        if certificate is None:
            return
        from mmulator.host.driver.certificates import CERTIFIED, told

        with self:
            self.certificates.append(certificate.verdict)
            text = told(kernel, certificate)
            new = (certificate.verdict != CERTIFIED or certificate.needed is not None) and text not in self.said
            self.said.add(text)
        if new:
            say(f"mmulator: {text}{launched()}")

    def heard(self, report: Report) -> None:
        """Count what is not told of a launch."""
        with self.lock:
            self.cut += bool(report.refused)
            self.held |= {(report.kernel, *group_key(f)): f for f in report.held}
        self.certified(report.kernel, report.certificate)

    def __call__(self, kernel: str, findings: tuple[Finding, ...], error: MmulatorError | None = None, launches: int = 1) -> None:
        with self:
            self.launches += launches
            new = [f for f in findings if (kernel, *group_key(f)) not in self.found]
            new = new if self.known is None else self.known.new(new)
            self.found |= {(kernel, *group_key(f)): f for f in reversed(new)}
            same = next((f for f in findings if error and f.span == error.span and (kernel, *group_key(f)) in self.found), None)
        if error is not None and same is not None:
            error.told = same.rule
        self.certified(kernel, ended(error))
        for lines in paragraphs(new, WIDTH):
            name = shorter(demangle(kernel), _NAME)
            say("\n".join([f"mmulator: {name}{launched() if launches else ''}:", *lines, ""]))

    def finish(self) -> None:
        more = self.orders.unchecked() if self.orders is not None else []
        if self.library and self.orders is not None and self.orders.driver.settings.certify:
            more.insert(0, told_library(self.library))
            if (file := gathering()) is not None:
                file.library(self.library)
        if self.launches or self.found or more:
            held = f"{number(len(self.held), 'note')}: --strict" if self.held else ""
            cut = f"{number(self.cut, 'launch', 'es')} not looked at as a whole: findings had no room" if self.cut else ""
            head = f"{counted([*self.found.values()])}, in {number(self.launches, 'launch', 'es')}"
            certificates = ""
            if self.certificates:
                from mmulator.host.driver.certificates import summary

                certificates = "certificates: " + summary(self.certificates)
            say("mmulator: " + "; ".join(part for part in (head, certificates, held, cut, *more, register.line()) if part))


def told_library(calls: Counter[str]) -> str:
    """The words about calls that no certificate covers: `2 library calls not checked (one result by the library's word)`."""
    others = ", ".join(name for name in sorted(calls) if name)
    word = ["one result by the library's word"] * bool(calls[""]) + [f"no single result is promised of {others}"] * bool(others)
    return f"{number(calls.total(), 'library call')} not checked ({'; '.join(word)})"


def ended(error: MmulatorError | None) -> Certificate | None:
    """The certificate of a launch that an error has ended."""
    found: Certificate | None = error.__dict__.get("certificate") if error is not None else None
    return found


def after_fault() -> None:
    """Say what to do next, where the process of `exec` ends by a fault."""
    last = getattr(sys, "last_value", None)
    if sys.orig_argv and not any(isinstance(e, ExecutionFault) for e in (last, getattr(last, "__cause__", None))):
        return  # a program of Python that has handled it
    say("mmulator: next: `exec --sanitize` says what went wrong before the fault, and `mmulator debug` stops there")


def pass_on(*refusals: RefusedWork) -> None:
    """Tell the process that waits for the program what is known of refusals; of all if none is named."""
    if (file := gathering()) is not None:
        file.refused(refusals or register.refused.values())


def finish_refused(line: str) -> None:
    """Write the last line about work that was refused, unless that of the sanitizer has it."""
    if not (reader.cache_info().currsize and reader().launches):
        say(f"mmulator: {line}")


@cache
def reader() -> Told:
    """One a process."""
    return Told(baseline())


@cache
def baseline() -> Baseline | None:
    """The findings of the earlier SARIF file that MMULATOR_BASELINE names. Raises LaunchError for another file."""
    path = os.environ.get("MMULATOR_BASELINE")
    return Baseline.read(path) if path else None


@cache
def gathering() -> Gathering | None:
    """The file to which this process adds its findings; None if nobody reads them."""
    path = os.environ.get(GATHERED)
    return Gathering(path) if path else None


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

    def __call__(self, kernel: str, findings: tuple[Finding, ...], error: MmulatorError | None = None, launches: int = 1) -> None:
        self.add(rows_of(findings, demangle(kernel)), launches)
        self.certified(kernel, ended(error))

    def heard(self, report: Report) -> None:
        """Add the certificate of a launch."""
        self.certified(report.kernel, report.certificate)

    def certified(self, kernel: str, certificate: Certificate | None) -> None:
        if certificate is not None:
            self._append([{"certificate": {"kernel": demangle(kernel)} | certificate.as_dict()}])

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

    def products(self, row: Row) -> None:
        """Add how many products of a library have its bits (host/driver/products.py)."""
        self._append([{"products": row}])

    def library(self, calls: Counter[str]) -> None:
        """Add the calls of libraries, which have no certificate."""
        self._append([{"library": calls}])

    def stopped(self) -> None:
        """Note that a launch was stopped for what it had made (errors.NotFinite)."""
        self._append([{"stopped": True}])

    def _append(self, rows: list[Row]) -> None:
        files.append(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode(), LaunchError)


@dataclass
class Gathered:
    """The rows that the processes of a program have added to the file.

    launches: that were looked at.
    found: rows of findings, each once.
    refused: what was refused.
    explained: answers of --why.
    stopped: whether a launch was stopped for what it had made.
    certificates: of launches.
    products: of NVIDIA's libraries, by process.
    library: calls of libraries in a program that is certified, as of Told.
    """

    launches: int = 0
    found: list[Row] = field(default_factory=list)
    refused: list[Row] = field(default_factory=list)
    explained: list[Row] = field(default_factory=list)
    stopped: bool = False
    certificates: list[Row] = field(default_factory=list)
    products: list[Row] = field(default_factory=list)
    library: Counter[str] = field(default_factory=Counter)


def read(path: str | Path) -> Gathered:
    """The rows of the file, by what they are."""
    gathered, found, refused = Gathered(), dict[str, Row](), dict[tuple[int, str], Row]()
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the process was killed as it wrote
                continue
            gathered.stopped |= "stopped" in row
            gathered.launches += row.get("launches", 0)
            if "key" in row:
                found.setdefault("\0".join(map(str, row["key"])), row)
            if "refused" in row:
                refused[row["process"], row["refused"]["why"]] = row["refused"]
            if "explained" in row:
                gathered.explained.append(row["explained"])
            if "certificate" in row:
                gathered.certificates.append(row["certificate"])
            gathered.library.update(row.get("library", {}))
            if "products" in row:
                gathered.products.append(row["products"])
    gathered.found, gathered.refused = [*found.values()], [*refused.values()]
    return gathered
