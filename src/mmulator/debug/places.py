"""Lines of a kernel: the instructions of a line of the program or of the PTX, and the lines of an instruction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from mmulator.debug.machine import function_names

if TYPE_CHECKING:
    from mmulator.compiler.compiled import CompiledKernel
    from mmulator.location import Location

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
