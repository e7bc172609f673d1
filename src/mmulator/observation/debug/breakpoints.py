"""Breakpoints: where a launch stops by itself, as a user says it, and what that is in a launch: the instructions of a line of the
program or of the PTX, and the lines of an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from mmulator.base.demangle import base_name, demangle
from mmulator.base.errors import LaunchError, shown
from mmulator.base.rules.choice import chosen
from mmulator.observation.debug.expressions import Expression, expression
from mmulator.observation.debug.machine import function_names
from mmulator.observation.debug.stops import DebugError
from mmulator.observation.record.names import question
from mmulator.ptx.program.dwarf import visible

if TYPE_CHECKING:
    from mmulator.base.location import Location
    from mmulator.runtime.compiled import CompiledKernel

LINE, KERNEL, WATCH, MBARRIER, RULE = "line", "kernel", "watch", "mbarrier", "rule"
PLACES = "FILE:LINE, LINE, ptx:LINE, a kernel or function, *SITE"
_SHARED = re.compile(r"shared\s+(?P<place>[^:]+?)(?::(?P<type>\w+))?")
_PLACE = re.compile(r"(?P<name>[A-Za-z_.$][\w.$]*)?\s*(?:\[(?P<index>\d+)\]|\+?\s*(?P<offset>0[xX][0-9a-fA-F]+|\d+))?")


@dataclass
class Breakpoint:
    """One place, element, mbarrier or rule at which launches stop.

    number: as people call it, from 1 on.
    kind: `line`, `kernel`, `watch`, `mbarrier` or `rule`.
    place: as typed: `gemm.cu:31`, `ptx:120`, `gemm`; `C[3,5]`; an mbarrier's address or variable; a rule.
    condition: an expression over the lane, such as `tid.x == 3 && %r5 > 7`, or "".
    enabled: whether it stops.
    temporary: it is deleted when it has stopped once.
    hits: how often it stopped.
    ignore: how many more times it does not stop.
    sites: numbers of the instructions that it stands for in the launch at hand.
    line: of the program or the PTX, where the breakpoint stands; 0 if it is on no line.
    once: it is the kernel's beginning, where the launch stops once, and not each warp.
    problem: why it stands for nothing in the launch at hand, or "".
    """

    number: int
    kind: str
    place: str
    condition: str = ""
    enabled: bool = True
    temporary: bool = False
    hits: int = 0
    ignore: int = 0
    sites: tuple[int, ...] = ()
    line: int = 0
    once: bool = False
    problem: str = ""

    @property
    def test(self) -> Expression | None:
        """The condition, read."""
        return expression(self.condition) if self.condition else None

    def bind(self, kernel: CompiledKernel, name: str) -> None:
        """Find its instructions in the kernel of a launch. name: the kernel's, as people write it."""
        self.sites, self.line, self.problem, self.once = (), 0, "", False
        if self.kind == LINE:
            self._bind_line(kernel)
        elif self.kind == KERNEL:
            self._bind_function(kernel, name)
        if self.test is not None and self.sites:
            known = {r for f in kernel.frames.values() for r in f.slots}
            first = kernel.executed[self.sites[0]].span.start
            known |= {n for f in kernel.program.functions.values() for n in visible(f.function, first)}
            missing = [r for r in self.test.registers if r not in known]
            if missing:
                self.sites, self.problem = (), f"the kernel has no register {missing[0]}"

    def _bind_line(self, kernel: CompiledKernel) -> None:
        lines = lines_of(kernel)
        file, _, number = self.place.rpartition(":")
        if self.place.startswith("*"):
            site = int(self.place[1:], 0)
            self.sites = (site,) if site < len(lines.ptx) else ()
            self.line = lines.ptx[site] if self.sites else 0
            self.problem = "" if self.sites else f"the kernel has {len(lines.ptx)} instructions"
        elif file == "ptx" or PurePath(file).name == PurePath(kernel.program.module.source.name).name:
            found, self.line = lines.at_ptx(int(number))
            self.sites = tuple(found)
        else:
            found, self.line = lines.at(file, int(number))
            self.sites = tuple(found)
        if not self.sites and not self.problem:
            self.problem = f"this kernel has no code at or behind {self.place}"

    def _bind_function(self, kernel: CompiledKernel, name: str) -> None:
        entry = kernel.program.entry.function.name
        for function in kernel.program.functions:
            known = name if function == entry else demangle(function)
            if self.place in (function, known, base_name(function), known.partition("(")[0]):
                lines = lines_of(kernel)
                first = next((n for n in lines.order if lines.functions[n] == function), None)
                self.sites = tuple(lines.twins(first)) if first is not None else ()
                self.line = lines.ptx[self.sites[0]] if self.sites else 0
                self.once = function == entry
                return
        self.problem = f"this kernel is {name}"


class Breakpoints:
    """All breakpoints of a program, from launch to launch. A change counts from the next command of a session on.

    file: the file that a line without a file is in; `ptx` for the PTX.
    changes: how many there have been.
    """

    def __init__(self) -> None:
        self.items: list[Breakpoint] = []
        self.file = "ptx"
        self.changes = 0
        self._number = 0

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(self.items)

    def __getitem__(self, number: int) -> Breakpoint:
        """A breakpoint by its number. Raises DebugError if there is none."""
        for item in self.items:
            if item.number == number:
                return item
        raise DebugError(f"there is no breakpoint {number}")

    def _add(self, kind: str, place: str, condition: str = "", temporary: bool = False) -> Breakpoint:
        if condition:
            expression(condition)
        self._number += 1
        made = Breakpoint(self._number, kind, place, condition, temporary=temporary)
        self.items.append(made)
        self.changes += 1
        return made

    def add(self, place: str, condition: str = "", temporary: bool = False) -> Breakpoint:
        """A breakpoint at a line or a kernel: `file:line`, `line` of the file in focus, `ptx:line`, a kernel's name, `*SITE`.

        Raises DebugError for what is no place.
        """
        place = place.strip()
        file, _, number = place.rpartition(":")
        if place.isdigit():
            return self._add(LINE, f"{self.file}:{place}", condition, temporary)
        if (file and number.isdigit()) or re.fullmatch(r"\*(0x[0-9a-fA-F]+|\d+)", place):
            return self._add(LINE, place, condition, temporary)
        if not place or place[0].isdigit():
            raise DebugError(f"{shown(place)} is no place for a breakpoint", hint=PLACES)
        return self._add(KERNEL, place, condition, temporary)

    def watch(self, element: str, condition: str = "") -> Breakpoint:
        """A watchpoint on an element (`C[3,5]`, `KERNEL:C[3,5]`, `0x7f00:f32`), or on shared memory of each block
        (`shared 0x400:b32`, `shared tile+16`). Raises DebugError.
        """
        element = element.strip()
        if not _SHARED.fullmatch(element):
            question_of(element)
        return self._add(WATCH, element, condition)

    def mbarrier(self, place: str) -> Breakpoint:
        """A stop when a phase of an mbarrier is completed, in any block: an address in shared memory, or a shared variable
        (`bars+8`, `full[1]`). Raises DebugError.
        """
        place = place.strip()
        if not place or not _PLACE.fullmatch(place):
            raise DebugError(f"{shown(place)} is no mbarrier", hint="an address such as 0x400, or a variable: full[1], bars+8")
        return self._add(MBARRIER, place)

    def rule(self, name: str) -> Breakpoint:
        """A stop where the sanitizer finds a rule broken: `races`, `wgmma-*`, `all`. Raises DebugError."""
        try:
            chosen("" if name == "all" else name)
        except ValueError as error:
            raise DebugError(str(error)) from None
        return self._add(RULE, name)

    def delete(self, number: int) -> None:
        """Raises DebugError if there is no such breakpoint."""
        self.items.remove(self[number])
        self.changes += 1

    def enable(self, number: int, enabled: bool = True) -> None:
        """Raises DebugError if there is no such breakpoint."""
        self[number].enabled = enabled
        self.changes += 1

    def change(self, number: int, condition: str) -> None:
        """Another condition, or none. Raises DebugError."""
        if condition:
            expression(condition)
        self[number].condition = condition
        self.changes += 1

    @property
    def sanitized(self) -> bool:
        """Whether some want the sanitizer."""
        return any(b.kind == RULE and b.enabled for b in self.items)


def question_of(element: str) -> object:
    """An element as typed. Raises DebugError."""
    try:
        return question(element)
    except LaunchError as error:
        raise DebugError(error.message.removeprefix("why: "), hint=error.hint) from None


def shared_place(text: str, kernel: CompiledKernel) -> int:
    """Address in a block's shared memory of `0x400`, `bars+8` or `full[1]` (of 8 bytes each). Raises DebugError."""
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        raise DebugError(f"{shown(text)} is no place in shared memory", hint="0x400, bars+8, full[1]")
    index, offset = found["index"], found["offset"]
    more = 8 * int(index) if index else int(offset, 0) if offset else 0
    if found["name"] is None:
        return more
    for name, address in kernel.shared.addresses.items():
        if found["name"] in (name, base_name(name), base_name(name).rpartition("::")[2]):
            return address + more
    known = ", ".join(base_name(name) for name in kernel.shared.addresses) or "none"
    raise DebugError(f"the kernel has no shared variable {found['name']}", hint=f"variables: {known}; or an address: 0x400")


def shared_watch(text: str, kernel: CompiledKernel) -> tuple[int, str] | None:
    """(address in shared memory, PTX type) of `shared 0x400:b32`; None for another element. Raises DebugError."""
    found = _SHARED.fullmatch(text.strip())
    return (shared_place(found["place"], kernel), found["type"] or "b32") if found else None


Line = tuple[str, int]


class SiteLines:
    """The lines of a kernel's instructions.

    order: sites in the order of the text.
    chains: for each site the lines (file, line) that it belongs to, the kernel's own first, the innermost inlined function's
        last; () where the PTX does not say.
    ptx: for each site its line of the PTX.
    has_source: whether the PTX says lines of a program at all.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        spans = [ins.span for ins in kernel.sites]
        self.order = sorted(range(len(spans)), key=lambda n: spans[n].start)
        self.locations: list[Location | None] = [span.location for span in spans]
        self.chains = [chain_of(at) for at in self.locations]
        self.ptx = [span.line for span in spans]
        self.has_source = any(self.chains)
        self.functions = function_names(kernel)
        self._twins: dict[object, list[int]] = {}  # an instruction may have several sites
        for n, ins in enumerate(kernel.sites):
            self._twins.setdefault(ins, []).append(n)
        self._sites = kernel.sites
        self._known: dict[int, np.ndarray] = {}

    def keys(self, depth: int) -> np.ndarray:
        """A number for each site that two have in common if they are on one line, looked at from a function so many calls deep
        (inlined calls below it belong to the line that calls); -1 for no line. depth 0: each line of the innermost function.
        """
        if depth not in self._known:
            numbers: dict[object, int] = {}
            out = []
            for n, chain in enumerate(self.chains):
                if self.has_source:
                    key: object = (self.functions[n], chain[:depth] if depth else chain) if chain else None
                else:
                    key = self.functions[n], self.ptx[n]
                out.append(-1 if key is None else numbers.setdefault(key, len(numbers)))
            self._known[depth] = np.array(out, np.int64)
        return self._known[depth]

    def files(self) -> list[str]:
        """Files of the program that lines are in."""
        return list(dict.fromkeys(file for chain in self.chains for file, _ in chain))

    def at(self, file: str, line: int) -> tuple[list[int], int]:
        """Sites at which a line of the program begins, and its number: that of the next line with code. file: its name, or the
        end of its path. ([], 0) if there is none.
        """
        wanted = PurePath(file).parts
        lines = [{number for name, number in chain if PurePath(name).parts[-len(wanted) :] == wanted} for chain in self.chains]
        there = sorted({number for found in lines for number in found if number >= line})
        if not there:
            return [], 0
        return self._begins([there[0] in found for found in lines]), there[0]

    def at_ptx(self, line: int) -> tuple[list[int], int]:
        """Sites of a line of the PTX, or of the next line with an instruction."""
        there = sorted({number for number in self.ptx if number >= line})
        return ([n for n in self.order if self.ptx[n] == there[0]], there[0]) if there else ([], 0)

    def twins(self, site: int) -> list[int]:
        """All sites of the instruction of a site."""
        return self._twins[self._sites[site]]

    def _begins(self, on: Sequence[bool]) -> list[int]:
        """The sites on a line before which, in the text, stands one that is on another line."""
        found, before = [], False
        for n in self.order:
            if on[n] and not before:
                found += self.twins(n)
            before = on[n] or (before and not self.chains[n])
        return found


def chain_of(location: Location | None) -> tuple[Line, ...]:
    """The lines of a location, the outermost call first."""
    return tuple((at.file, at.line) for at in location.chain)[::-1] if location is not None else ()


def lines_of(kernel: CompiledKernel) -> SiteLines:
    """The lines of a kernel's instructions, found out once."""
    return kernel.once(SiteLines)
