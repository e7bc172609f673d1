"""The memory of a launch in one row of bytes: the arrays of its arguments and the variables of its module.

Windows of a kernel's addresses lead there; arrays that overlap are one piece, so that a byte has one place whoever names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.diagnostics.touched import Runs, put, within
from mmulator.launch.arena import bytes_at, pointer
from mmulator.launch.regions import Region

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
