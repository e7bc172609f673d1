"""The observer that notes which bytes of global memory a sanitized launch uses, as runs (diagnostics/touched.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.regions import BELOW, FROM
from mmulator.sanitizer.checks.footprint import CHUNK_SHIFT, DEPENDENT_LAUNCH, FOOTPRINT, Footprint, Stretch
from mmulator.sanitizer.diagnostics.touched import Runs
from mmulator.sanitizer.state import SanitizedLaunch

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.launch.grid import Grid

CHUNK = 1 << CHUNK_SHIFT  # bytes of memory
_WORDS = CHUNK // 64  # of a bitmap
NONE: Runs = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Used:
    """The bytes that an operation uses, as runs of addresses: by plain reads, by plain writes, and by strong operations."""

    read: Runs = field(default_factory=lambda: NONE)
    written: Runs = field(default_factory=lambda: NONE)
    strong: Runs = field(default_factory=lambda: NONE)

    @property
    def count(self) -> int:
        """The number of all runs."""
        return len(self.read) + len(self.written) + len(self.strong)


class Bitmaps:
    """Bitmaps over stretches of addresses, which launch after launch uses. Between two uses they are empty."""

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        """pieces: (address, bytes) of each piece of memory, in the order of their addresses."""
        slots = max(((start + n - 1 >> SLOT_SHIFT) + 1 for start, n in pieces), default=0)
        self.rows = np.zeros(slots, Stretch.numpy_dtype())
        self.stretches: list[tuple[int, int, int]] = []  # address, bytes, number of the first byte
        for start, n in pieces:
            if BELOW <= start < FROM or not n:
                continue
            if self.stretches and start >> SLOT_SHIFT <= (sum(self.stretches[-1][:2]) - 1) >> SLOT_SHIFT:
                begin, _, first = self.stretches.pop()
            else:
                begin, first = start, self.size
            self.stretches.append((begin, start + n - begin, first))
        for start, n, first in self.stretches:
            own = self.rows[start >> SLOT_SHIFT : (start + n - 1 >> SLOT_SHIFT) + 1]
            own["start"], own["first"] = start, first
        chunks = self.size // CHUNK
        self.marks = blank(chunks, np.dtype(np.uint8))
        self.read, self.written, self.strong, self.others_read, self.others_written = (
            blank(chunks * _WORDS, np.dtype(np.uint64)) for _ in range(5)
        )

    @property
    def size(self) -> int:
        """Bytes of all stretches, each rounded up to chunks, with one chunk between."""
        return sum(-(-n // CHUNK) + 1 for _, n, _ in self.stretches) * CHUNK

    def taken(self) -> Used:
        """The bytes that the launch has used; the bitmaps are empty then."""
        marked = np.flatnonzero(self.marks)
        found = []
        for bits in (self.read, self.written, self.strong):
            chunks = bits.reshape(-1, _WORDS)
            words = chunks[marked].ravel()
            there = np.flatnonzero(words)
            runs = runs_of_words(marked[there // _WORDS] * _WORDS + there % _WORDS, words[there])
            chunks[marked] = 0
            found.append(self._addresses(runs) if len(runs) else NONE)
        self.marks[marked] = 0
        return Used(*found)

    def _addresses(self, runs: Runs) -> Runs:
        """Runs of numbers of bytes as runs of addresses."""
        firsts = np.array([first for _, _, first in self.stretches])
        starts = np.array([start for start, _, _ in self.stretches])
        at = np.searchsorted(firsts, runs[:, 0], "right") - 1
        return runs + (starts - firsts)[at][:, None]

    def put(self, bits: np.ndarray, runs: Runs, value: bool) -> None:
        """Set or clear the bits of runs of addresses; those of other memory are left out."""
        for start, n, first in self.stretches:
            own = runs[(runs[:, 1] > start) & (runs[:, 0] < start + n)]
            for begin, end in (np.clip(own, start, start + n) - start + first).tolist():
                low, high = begin // 8, -(-end // 8)
                piece = np.unpackbits(bits.view(np.uint8)[low:high], bitorder="little")
                piece[begin - 8 * low : end - 8 * low] = value
                bits.view(np.uint8)[low:high] = np.packbits(piece, bitorder="little")


def runs_of_words(numbers: np.ndarray, words: np.ndarray) -> Runs:
    """The runs of ones in words of a bitmap that are not 0. numbers: of the words, rising."""
    whole = words == ~np.uint64(0)
    first = numbers[whole]
    cuts = np.flatnonzero(np.diff(first, prepend=-2) != 1)
    full = np.stack([first[cuts], first[np.append(cuts[1:], len(first)) - 1] + 1], 1) * 64 if len(first) else NONE
    if not whole.all():
        bits = np.unpackbits(words[~whole].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        edges = np.diff(np.pad(bits, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        (row, begin), (_, end) = np.nonzero(edges == 1), np.nonzero(edges == -1)
        full = np.concatenate([full, np.stack([begin, end], 1) + numbers[~whole][row][:, None] * 64])
    return together(full)


def together(runs: Runs) -> Runs:
    """Runs in any order as runs in theirs, with a gap between any two."""
    if len(runs) < 2:
        return runs
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    ends = np.maximum.accumulate(runs[:, 1])
    first = np.flatnonzero(np.concatenate([[True], runs[1:, 0] > ends[:-1]]))
    return np.stack([runs[first, 0], ends[np.append(first[1:], len(runs)) - 1]], 1)


class FootprintObserver(Observer):
    """Notes what a launch uses. Comes after the sanitizer's observer, in whose struct it has its place."""

    alone = True

    def __init__(self, bitmaps: Bitmaps, others: Sequence[Used] | None = None) -> None:
        """others: what the launches in front of a dependent launch use; None: the launch depends on none."""
        self.bitmaps, self.others = bitmaps, others
        self.state = np.zeros(1, Footprint.numpy_dtype())
        for name in ("read", "written", "strong", "marks", "others_read", "others_written"):
            self.state[name] = pointer(getattr(bitmaps, name))
        self.state["stretches"], self.state["slots"] = pointer(bitmaps.rows), len(bitmaps.rows)

    @property
    def instrument(self) -> Instrument:
        return FOOTPRINT if self.others is None else DEPENDENT_LAUNCH

    def begin(self, grid: Grid) -> None:
        at = int(grid.launch["sanitizer"][0]) + SanitizedLaunch.offset["footprint"]
        ctypes.c_uint64.from_address(at).value = pointer(self.state)
        self._show(True)

    def _show(self, value: bool) -> None:
        for used in self.others or ():
            for runs in (used.read, used.strong):
                self.bitmaps.put(self.bitmaps.others_read, runs, value)
            for runs in (used.written, used.strong):
                self.bitmaps.put(self.bitmaps.others_written, runs, value)

    def over(self) -> Used:
        """The bytes that the launch used, once it is over, however it ended."""
        self._show(False)
        return self.bitmaps.taken()

    @property
    def waited(self) -> bool:
        """Whether griddepcontrol.wait was executed, in a dependent launch."""
        return bool(self.state["waited"][0])
