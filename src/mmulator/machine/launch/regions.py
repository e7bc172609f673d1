"""Memory of the host that kernels see at its own addresses, as drivers have it (driver/memory.py)."""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from mmulator.errors import LaunchError
from mmulator.machine.state import Window
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHIFT

BELOW, FROM = 1 << SLOT_SHIFT, FIRST_GLOBAL_SLOT << SLOT_SHIFT  # regions end below the one, or begin from the other on
NULL, NEAR = 4096, 1 << 20  # the null page; bytes around a region that are said to be its
_START = attrgetter("start")
_at, _view = ctypes.addressof, ctypes.c_char.from_buffer


def pointer(array: np.ndarray) -> int:
    """Where an array's first byte is."""
    try:
        return _at(_view(array))  # type: ignore[arg-type]  # many times faster than NumPy's own answer
    except (TypeError, ValueError, BufferError):  # empty, read-only, or of a dtype that is no buffer's
        return int(array.ctypes.data)


@dataclass(slots=True)
class Region:
    """A piece of memory of the host. host: where its bytes are during a launch: there, or in a copy (arena.py)."""

    start: int
    size: int
    label: str
    writable: bool = True
    host: int = 0

    def __post_init__(self) -> None:
        self.host = self.start

    @property
    def end(self) -> int:
        return self.start + self.size


class Regions(tuple[Region, ...]):
    """Regions in the order of their addresses, none of which overlaps another. table: as native code reads them, at `address`.
    lowest: where the first begins that is not below 4 GiB. given: as what a launch was given some of them, for messages.

    Raises LaunchError for a region where kernels have shared, local or other memory.
    """

    table: np.ndarray
    address: int
    lowest: int
    given: Sequence[Region]

    def __new__(cls, regions: Iterable[Region] = ()) -> Regions:
        made = super().__new__(cls, regions)
        made.lowest, made.given = 1 << 64, ()
        words = [0, 0, 0, 0]  # the first is empty, at 0
        for r in made:
            if r.start >= FROM:
                made.lowest = min(made.lowest, r.start)
            elif r.start + r.size > BELOW:
                raise LaunchError(f"{r.label} lies at 0x{r.start:x}, where kernels have shared and local memory")
            words += (r.host, r.start, r.size, r.writable)
        made.table = np.frombuffer(bytearray(struct.pack(f"<{len(words)}Q", *words)), WINDOW)
        made.address = pointer(made.table)
        return made

    @classmethod
    def of(cls, regions: Sequence[Region], table: np.ndarray) -> Regions:
        """Regions of which there is a table already. Raises LaunchError as `Regions` does."""
        made = tuple.__new__(cls, regions)
        first = bisect_left(regions, FROM, key=_START)
        if first and (last := regions[first - 1]).end > BELOW:
            raise LaunchError(f"{last.label} lies at 0x{last.start:x}, where kernels have shared and local memory")
        made.lowest = regions[first].start if first < len(regions) else 1 << 64
        made.table, made.address, made.given = table, pointer(table), ()
        return made

    def has(self, piece: Region) -> bool:
        """Whether all of a piece of memory is in one of the regions."""
        number = bisect_right(self, piece.start, key=_START) - 1
        return not piece.size or (number >= 0 and piece.end <= self[number].end)

    def near(self, address: int) -> bool:
        """Whether an address below 4 GiB is meant for a region there, and is no offset and no null pointer."""
        return NULL <= address < BELOW and any(r.start - NEAR <= address < r.end + NEAR for r in self)

    def for_launch(self, given: Sequence[Region]) -> Regions:
        """The same memory, of which a launch was given these."""
        made = tuple.__new__(Regions, self)
        made.table, made.address, made.lowest, made.given = self.table, self.address, self.lowest, given
        return made


def merged(regions: Iterable[Region]) -> Regions:
    """Where regions overlap (views of one memory) they are one, by the label of the one that begins first."""
    found: list[Region] = []
    for r in sorted((r for r in regions if r.size), key=_START):
        last = found[-1] if found else None
        if last is None or r.start >= last.start + last.size:
            found.append(r)
            continue
        size = max(last.size, r.start + r.size - last.start)
        if size != last.size or (r.writable and not last.writable):
            found[-1] = Region(last.start, size, last.label, last.writable or r.writable)
    return Regions(found)


WINDOW = Window.numpy_dtype()
NONE = Regions()
