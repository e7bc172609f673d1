"""The bytes that a launch read and wrote, as runs: an array [n, 2] of first bytes and of the bytes behind the last, sorted,
with a gap between any two runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.regions import BELOW, FROM
from mmulator.runtime.native.state import Touched as Row

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.launch.grid import Grid

Runs = NDArray[np.int64]
PIECE = 1 << 17  # bytes of a map that are unpacked at once
LONG = 64  # bytes of a run from which on slices are cheaper than indices
BATCH = 1 << 20  # indices that are made at once


class Touched(Observer):
    """The observer that notes each byte that a launch reads or writes, on one thread of the host."""

    alone = True

    def __init__(self, windows: Sequence[tuple[int, int, int]], size: int) -> None:
        """windows: (address, bytes, first) of each piece of memory, where `first` is the number of its first byte among `size`
        bytes; pieces may share bytes.
        """
        slots = max(((start + max(n, 1) - 1 >> SLOT_SHIFT) + 1 for start, n, _ in windows), default=0)
        self.rows = np.zeros(slots, Row.numpy_dtype())
        self.read, self.written = (blank(-(-size // 64) + 1, np.dtype(np.uint64)) for _ in range(2))
        for start, n, first in windows:
            if n and not BELOW <= start < FROM:
                own = self.rows[start >> SLOT_SHIFT : (start + n - 1 >> SLOT_SHIFT) + 1]
                own["start"], own["first"], own["read"], own["written"] = start, first, pointer(self.read), pointer(self.written)

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.touched import TOUCHED

        return TOUCHED

    def begin(self, grid: Grid) -> None:
        grid.launch["touched"], grid.launch["touched_slots"] = pointer(self.rows), len(self.rows)


def runs_of(bits: np.ndarray) -> Runs:
    """The runs of ones in a bitmap. bits: a bit for each byte, in words of 64 bits."""
    raw = bits.view(np.uint8)
    edges, before = [], 0
    for at in range(0, len(raw), PIECE):
        piece = raw[at : at + PIECE]
        low, high = int(piece.min()), int(piece.max())
        if low == high and low in (0, 255):
            now = np.array([low & 1], np.uint8)
        else:
            now = np.unpackbits(piece, bitorder="little")
        edges.append(np.flatnonzero(np.diff(now, prepend=np.uint8(before))) + 8 * at)
        before = int(now[-1])
    if before:
        edges.append(np.array([8 * len(raw)]))
    found: Runs = np.concatenate(edges, dtype=np.int64).reshape(-1, 2) if edges else np.zeros((0, 2), np.int64)
    return found


def _indices(runs: Runs) -> Iterator[np.ndarray]:
    """Indices of all bytes in the runs, in order, in batches."""
    lengths = runs[:, 1] - runs[:, 0]
    ends = np.cumsum(lengths)
    first = 0
    while first < len(runs):
        start = int(ends[first] - lengths[first])
        last = max(first + 1, int(np.searchsorted(ends, start + BATCH, "right")))
        own = lengths[first:last]
        yield np.arange(int(own.sum())) + np.repeat(runs[first:last, 0] - (ends[first:last] - own - start), own)
        first = last


def _slices(runs: Runs) -> Iterator[slice]:
    yield from (slice(begin, end) for begin, end in runs.tolist())


def places(runs: Runs) -> Iterator[slice | np.ndarray]:
    """Slices or index arrays that select the bytes of the runs from an array, in order."""
    few = int((runs[:, 1] - runs[:, 0]).sum()) >= LONG * len(runs)
    return _slices(runs) if few else _indices(runs)


def taken(memory: np.ndarray, runs: Runs) -> np.ndarray:
    """The bytes of the runs, copied from `memory` into one array."""
    parts = [memory[at] for at in places(runs)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def put(memory: np.ndarray, runs: Runs, data: np.ndarray) -> None:
    """Write the bytes of `data` into the runs of `memory`; the opposite of `taken`."""
    done = 0
    for at in places(runs):
        count = at.stop - at.start if isinstance(at, slice) else len(at)
        memory[at] = data[done : done + count]
        done += count


def within(runs: Runs, data: np.ndarray, begin: int, end: int) -> tuple[Runs, np.ndarray]:
    """The parts of the runs between bytes `begin` and `end`, counted from `begin`, and their data."""
    ends = np.cumsum(runs[:, 1] - runs[:, 0])
    low, high = int(np.searchsorted(runs[:, 1], begin, "right")), int(np.searchsorted(runs[:, 0], end, "left"))
    if low >= high:
        return np.zeros((0, 2), np.int64), data[:0]
    own = np.clip(runs[low:high], begin, end)
    at = int(ends[low] - (runs[low, 1] - own[0, 0]))
    return own - begin, data[at : at + int((own[:, 1] - own[:, 0]).sum())]
