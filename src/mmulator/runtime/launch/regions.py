"""Memory of the host that kernels see at its own addresses, as drivers have it (host/driver/memory.py).

Of an allocation it may be followed which bytes have been written since it was made; the use of others is a finding
(base/rules/values.py). Data enters at a door's functions for memory (doors/libcuda/memory.py): they have a `Written` beside each
allocation, and mark what the host copies and fills. With the region it comes to a launch, where native code reads the marks
of what a kernel loads and makes those of what it stores (sanitizer/checks/unwritten.py). It leaves as a finding where a value
is used that nobody has written, and as marks, which stay with the allocation from launch to launch.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHIFT
from mmulator.runtime.native.state import BY_HOST, BY_KERNEL, WORD, Window

BELOW, FROM = 1 << SLOT_SHIFT, FIRST_GLOBAL_SLOT << SLOT_SHIFT  # regions end below the one, or begin from the other on
NULL, NEAR = 4096, 1 << 20  # the null page; bytes around a region that are said to be its
FREED: deque[tuple[range, str, Callable[[], str]]] = deque(maxlen=1024)  # its addresses, its name, and who says where
_START = attrgetter("start")
_at, _view = ctypes.addressof, ctypes.c_char.from_buffer
def room_behind(size: int) -> int:
    """Bytes up to the end of the last word: the `room` of memory whose allocator rounds up."""
    return -size % WORD


def pointer(array: np.ndarray) -> int:
    """Where an array's first byte is."""
    try:
        return _at(_view(array))  # type: ignore[arg-type]  # many times faster than NumPy's own answer
    except (TypeError, ValueError, BufferError):  # empty, read-only, or of a dtype that is no buffer's
        return int(array.ctypes.data)


def kept(array: np.ndarray) -> object:
    """A reference that keeps an array's memory in place: NumPy does not resize an array that has a weak reference."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return weakref.ref(array)


@dataclass(slots=True)
class Region:
    """A piece of device memory: bytes with an address and a name.

    start: the address that kernels know it by: the host's own, or the first of a window (buffers of `Arguments`).
    size: bytes.
    label: how messages name it.
    writable: whether kernels may store to it.
    room: bytes behind its end, up to a multiple of 4, that its allocator gave out with it and to nobody else: an atomic operation
        on the word around its last bytes may reach there.
    owner: what keeps the bytes where they are.
    host: address of the bytes on the host during a launch: `start`, an array's, or a copy's (arena.py).
    written: which of its bytes have been written, where that is followed (`Written`).
    """

    start: int
    size: int
    label: str
    writable: bool = True
    room: int = 0
    owner: Any = None
    host: int = -1
    written: Written | None = None

    def __post_init__(self) -> None:
        if self.host < 0:
            self.host = self.start

    @classmethod
    def of(cls, start: int, array: np.ndarray, label: str, writable: bool = True) -> Region:
        """The bytes of a contiguous array, which kernels know by another address."""
        return cls(start, array.nbytes, label, writable, owner=array, host=pointer(array))

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def words(self) -> tuple[int, int, int, int]:
        """The region's row of the table that native code reads."""
        return self.host, self.start, self.size, self.writable | self.room << 32


class Regions(tuple[Region, ...]):
    """Regions in the order of their addresses, none of which overlaps another. table: as native code reads them, at `address`.
    lowest: where the first begins that is not below 4 GiB. given: as what a launch was given some of them, for messages. owners:
    what keeps the memory, for as long as a launch has it.

    Raises LaunchError for a region where kernels have shared, local or other memory.
    """

    table: np.ndarray
    address: int
    lowest: int
    given: Sequence[Region]
    owners: Sequence[Any]

    def __new__(cls, regions: Iterable[Region] = ()) -> Regions:
        made = super().__new__(cls, regions)
        made.lowest, made.given, made.owners = 1 << 64, (), ()
        words = [0, 0, 0, 0]  # the first is empty, at 0
        for r in made:
            if r.start >= FROM:
                made.lowest = min(made.lowest, r.start)
            elif r.start + r.size > BELOW:
                raise LaunchError(f"{r.label} lies at 0x{r.start:x}, where kernels have shared and local memory")
            words += r.words
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
        made.table, made.address, made.given, made.owners = table, pointer(table), (), ()
        return made

    def has(self, piece: Region) -> bool:
        """Whether all of a piece of memory is in one of the regions."""
        number = bisect_right(self, piece.start, key=_START) - 1
        return not piece.size or (number >= 0 and piece.end <= self[number].end)

    def near(self, address: int) -> bool:
        """Whether an address below 4 GiB is meant for a region there, and is no offset and no null pointer."""
        return NULL <= address < BELOW and any(r.start - NEAR <= address < r.end + NEAR for r in self)

    def for_launch(self, given: Sequence[Region], held: Sequence[Any] = ()) -> Regions:
        """These regions for one launch. given: those that the launch was given. held: more owners to keep alive."""
        if not given and not held:
            return self
        made = tuple.__new__(Regions, self)
        made.table, made.address, made.lowest, made.given = self.table, self.address, self.lowest, given
        made.owners = (self.owners, held)
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
        room = max(last.room if last.end == last.start + size else 0, r.room if r.end == last.start + size else 0)
        if (size, room) != (last.size, last.room) or (r.writable and not last.writable):
            found[-1] = Region(last.start, size, last.label, last.writable or r.writable, room)
    return Regions(found)


def apart(regions: Iterable[Region]) -> Regions:
    """Regions in the order of their addresses. Raises LaunchError where two overlap."""
    found = sorted((r for r in regions if r.size), key=_START)
    for r, s in pairwise(found):
        if r.end > s.start:
            raise LaunchError(f"{r.label} at 0x{r.start:x} has {r.size} bytes, and {s.label} begins at 0x{s.start:x}")
    return Regions(found)


def freed(address: int, live: Iterable[Region] = ()) -> str:
    """Memory that was freed in words: `byte 0 of device memory, whose 4096 bytes were freed by main at a.cu:8`; "" for others.

    live: memory that may have taken its place: then an address beyond it is beyond that memory.
    """
    for where, label, place in reversed(FREED):
        if address in where and not any(m.start < where.stop and where.start < m.start + m.size for m in live):
            by = place()
            return f"byte {address - where.start} of {label}, whose {len(where)} bytes were freed" + (f" by {by}" if by else "")
    return ""


WINDOW = Window.numpy_dtype()
NONE = Regions()


class Written:
    """Bytes of one allocation that have been written. marks: a byte for each of its bytes: 0: nobody has written it, BY_HOST,
    BY_KERNEL; None: all of them have values, and nothing is followed any more."""

    def __init__(self, marks: np.ndarray) -> None:
        """marks: zeros, that cost nothing until they are touched (arena.py: blank)."""
        self.marks: np.ndarray | None = marks
        self._whole = False

    def forget(self) -> None:
        """All bytes have values from now on: somebody may have written them whom nobody saw."""
        self.marks = None

    def mark(self, at: int, size: int) -> None:
        """The host has written bytes, from one on."""
        if self.marks is not None:
            self.marks[at : at + size] = BY_HOST

    def of(self, at: int, size: int) -> np.ndarray | None:
        """The marks of some bytes, as they are now; None: all have values."""
        return self.marks[at : at + size].copy() if self.marks is not None else None

    def take(self, at: int, marks: np.ndarray) -> None:
        """Bytes were copied to here, with their marks."""
        if self.marks is not None:
            self.marks[at : at + len(marks)] = marks
            self._whole = False

    def doubted(self) -> np.ndarray | None:
        """The marks for a launch that may take values away; None: those of all bytes, and nobody asks later."""
        self._whole = False
        return self.marks

    @property
    def whole(self) -> bool:
        """Whether all bytes have values."""
        if self.marks is not None and not self._whole:
            self._whole = bool(self.marks.view(np.bool_).all())
        return self.marks is None or self._whole


class Unfilled(Written):
    """Bytes of memory that its allocator filled with a word, 8 bytes that programs do not write: where the word still is nobody
    has written. The marks are made anew for each launch, since the host writes when nobody looks."""

    def __init__(self, memory: np.ndarray, word: int) -> None:
        super().__init__(np.zeros(0, np.uint8))
        self._bytes, self._word = memory, word

    def doubted(self) -> np.ndarray | None:
        return None if self.whole else self.marks

    @property
    def whole(self) -> bool:
        words = self._bytes[: self._bytes.size & -8].view(np.uint64) != self._word
        if not (whole := bool(words.all())):
            self.marks = np.full(self._bytes.size, BY_KERNEL, np.uint8)
            self.marks[: 8 * words.size].reshape(-1, 8)[~words] = 0
        return whole
