"""The memory of a launch in one row of bytes: the arrays of its arguments and the variables of its module.

Windows of a kernel's addresses lead there; arrays that overlap are one piece, so that a byte has one place whoever names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.diagnostics.touched import Runs, put, within
from mmulator.launch.arena import bytes_at, pointer
from mmulator.launch.arguments import Buffer

ALIGN = 64  # bytes: a piece begins as far behind a multiple of this as it does on the caller's host


@dataclass(frozen=True)
class Window:
    """start: its generic address. first: its first byte in the row."""

    start: int
    size: int
    label: str
    writable: bool
    first: int


@dataclass(frozen=True)
class Memory:
    """size: of the row. pieces: host memory that lies together; firsts: where each begins in the row. windows: of the module's
    variables, and the arguments'."""

    size: int
    pieces: list[np.ndarray]
    firsts: list[int]
    variables: list[Window]
    arguments: list[Window]

    @classmethod
    def of(cls, variables: Sequence[Buffer], arguments: Sequence[Buffer]) -> Memory:
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
        windows = [[Window(b.start, b.size, b.label, b.writable, places[b.host]) for b in own] for own in (variables, arguments)]
        return cls(at, pieces, firsts, *windows)

    @property
    def windows(self) -> list[Window]:
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
        w = next(w for w in self.windows if w.first <= byte < w.first + w.size)
        offset = byte - w.first
        return f"byte {offset} of {w.label}, address 0x{w.start + offset:x}"
