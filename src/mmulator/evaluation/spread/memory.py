"""The memory of a launch in one row of bytes: the arrays of its arguments and the variables of its module.

Windows of a kernel's addresses lead there; arrays that overlap are one piece, so that a byte has one place whoever names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.runtime.launch.arena import bytes_at, pointer
from mmulator.runtime.launch.regions import Region
from mmulator.sanitizer.diagnostics.touched import Runs, put, within

ALIGN = 64  # bytes: a piece begins as far behind a multiple of this as it does on the caller's host


@dataclass(frozen=True)
class Memory:
    """The bytes of a launch in one row.

    size: bytes of the row.
    pieces: host memory that lies together, uint8 arrays; firsts: where each begins in the row.
    variables, arguments: (memory as kernels know it, its first byte in the row) of the module's variables and of arrays.
    """

    size: int
    pieces: list[np.ndarray]
    firsts: list[int]
    variables: list[tuple[Region, int]]
    arguments: list[tuple[Region, int]]

    @classmethod
    def of(cls, variables: Sequence[Region], arguments: Sequence[Region]) -> Memory:
        pieces: list[np.ndarray] = []
        firsts: list[int] = []
        places: dict[int, int] = {}  # of host addresses in the row
        at = end = 0
        for b in sorted((*variables, *arguments), key=lambda b: (b.host, -b.size)):
            if not pieces or b.host >= end:
                at = -(-at // ALIGN) * ALIGN + b.host % ALIGN
                pieces.append(bytes_at(b.host, 0))
                firsts.append(at)
                begin, end = b.host, b.host
            end = max(end, b.host + b.size)
            pieces[-1] = bytes_at(begin, end - begin)
            places[b.host] = firsts[-1] + b.host - begin
            at = firsts[-1] + end - begin
        windows = [
            [(Region(b.start, b.size, b.label, b.writable), places[b.host]) for b in own] for own in (variables, arguments)
        ]
        return cls(at, pieces, firsts, *windows)

    @property
    def windows(self) -> list[tuple[Region, int]]:
        return [*self.variables, *self.arguments]

    def copy(self) -> np.ndarray:
        """The row, on this host."""
        room = np.empty(self.size + ALIGN, np.uint8)
        skip = -pointer(room) % ALIGN
        row = room[skip : skip + self.size]
        for piece, first in zip(self.pieces, self.firsts):
            row[first : first + len(piece)] = piece
        return row

    def store(self, runs: Runs, data: np.ndarray) -> None:
        """Bytes of the row, to where they are on the caller's host."""
        for piece, first in zip(self.pieces, self.firsts):
            own, bytes = within(runs, data, first, first + len(piece))
            put(piece, own, bytes)

    def describe(self, byte: int) -> str:
        """A byte of the row as a kernel knows it."""
        w, first = next((w, first) for w, first in self.windows if first <= byte < first + w.size)
        offset = byte - first
        return f"byte {offset} of {w.label}, address 0x{w.start + offset:x}"


@dataclass(frozen=True)
class Traces:
    """Memory that one range of clusters touched. owner: the range's number."""

    owner: int
    read: Runs
    written: Runs


@dataclass(frozen=True)
class Conflict:
    """A byte that `first` and `second` write, or that `second` reads and `first` writes."""

    byte: int
    first: int
    second: int
    both_write: bool


def conflict(traces: Sequence[Traces]) -> Conflict | None:
    """The lowest byte that two ranges write, or else the lowest that one writes and another reads."""
    runs = np.concatenate([t.written for t in traces], dtype=np.int64) if traces else np.zeros((0, 2), np.int64)
    owners = np.repeat([t.owner for t in traces], [len(t.written) for t in traces])
    order = np.lexsort((owners, runs[:, 0]))
    (begin, end), owners = runs[order].T, owners[order]
    twice = np.flatnonzero(begin[1:] < end[:-1])  # if any two overlap, two neighbours do
    if len(twice):
        n = int(twice[0])
        first, second = sorted((int(owners[n]), int(owners[n + 1])))
        return Conflict(int(begin[n + 1]), first, second, True)
    found = [c for t in traces for c in [_read(t, begin, end, owners)] if c is not None]
    return min(found, key=lambda c: (c.byte, c.second), default=None)


def _read(trace: Traces, begin: np.ndarray, end: np.ndarray, owners: np.ndarray) -> Conflict | None:
    """The lowest byte that it reads and another has written. begin, end, owners: of what is written, in order."""
    foreign = owners != trace.owner
    begin, end, owners = begin[foreign], end[foreign], owners[foreign]
    low = np.searchsorted(end, trace.read[:, 0], "right")  # the first that ends behind the beginning
    met = np.flatnonzero(np.searchsorted(begin, trace.read[:, 1], "left") > low)
    if not len(met):
        return None
    n = int(met[0])
    other = int(low[n])
    return Conflict(max(int(trace.read[n, 0]), int(begin[other])), int(owners[other]), trace.owner, False)
