"""Machine code of a kernel's blocks: quickly at first, and better while it runs if it runs for long.

Bits are the same either way: LLVM's passes are, and what comes behind them only picks instructions and registers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from mmulator.codegen.engine import Objects, Piece, afterwards
from mmulator.codegen.lang import Native
from mmulator.codegen.loading import ensure, symbols
from mmulator.codegen.locks import remaining

GROUP = 160  # PTX instructions compiled together
LEVEL = 1
QUICK = True
LONG = 0.25  # seconds of running, in all launches together, from which on better code pays


def groups(sizes: list[int]) -> Iterator[range]:
    """Blocks, by their instructions, in groups that are compiled together."""
    first = weight = 0
    for n, size in enumerate(sizes):
        if n > first and weight + size > GROUP:
            yield range(first, n)
            first, weight = n, 0
        weight += size
    if first < len(sizes):
        yield range(first, len(sizes))


class BlockCode:
    """table: address of each block's function, which native code reads at every block that it goes to; so an entry may change
    while the kernel runs. cached: nothing was compiled."""

    def __init__(self, blocks: int) -> None:
        self.table = np.zeros(blocks, np.uint64)
        self.cached = True
        self._pieces: list[tuple[Piece, range]] = []
        self._kept: list[Objects] = []  # all that was ever in the table
        self._linked: dict[str, int] = {}
        self._improver = 0  # the process in which better code is on its way
        self._seconds = 0.0

    def take(self, text: str, group: range) -> None:
        """LLVM text of a group of blocks. Raises TimeUp (codegen/locks.py)."""
        remaining()
        piece = Piece(text, LEVEL, QUICK)
        self._pieces.append((piece, group))
        self.cached &= piece.cached

    def load(self, natives: Iterable[Native], done: Callable[[int], object]) -> None:
        """Wait for all of it. natives: what it may call. done: called with the number of blocks that are compiled."""
        natives = list(natives)
        codes = []
        for piece, group in self._pieces:
            codes.append(piece.code())
            done(group.stop)
        ensure(natives)
        self._linked = symbols(f.name for f in natives)
        self._enter(codes)
        if not any(piece.quick for piece, _ in self._pieces):
            self._pieces.clear()

    def _enter(self, codes: list[bytes]) -> None:
        objects = Objects(LEVEL)
        objects.add(codes, self._linked)
        self._kept.append(objects)
        for n in range(len(self.table)):
            self.table[n] = objects.address(f"block{n}")  # 8 bytes at once

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        for piece, _ in self._pieces:
            piece.give_up()

    # better code ----------------------------------------------------------------------------------------------------
    @property
    def patience(self) -> float:
        """Seconds of running after which `improve` should be called."""
        return max(0.0, LONG - self._seconds) if self._pieces else float("inf")

    def ran(self, seconds: float) -> None:
        """It ran for so long."""
        self._seconds += seconds
        if self._pieces and self._seconds >= LONG:
            self.improve()

    def improve(self) -> None:
        """Have better code made beside what runs; it takes the place of this when it is there."""
        if self._pieces and self._improver != os.getpid():
            self._improver = os.getpid()
            self._next([], list(self._pieces))

    def _next(self, codes: list[bytes], rest: list[tuple[Piece, range]]) -> None:
        def work() -> bytes:
            piece = rest[0][0]
            codes.append(Piece.now(piece.text, piece.level) if piece.quick else piece.code())
            if rest[1:]:
                self._next(codes, rest[1:])
            else:
                self._enter(codes)
                self._pieces.clear()
            return b""

        afterwards(work)
