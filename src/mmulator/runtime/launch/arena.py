"""Where the memory of a launch lies on the host: the arrays themselves, copies of them, or pages between pages that trap.

With `MMULATOR_GUARD` set to `left` or `right` every window and every table of a launch is a copy that begins (ends) where a
page begins (ends) that nobody may touch. An access that goes round the checks by a single byte then ends the process:
a mode for tests, on Linux and macOS.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.codegen import loading
from mmulator.base.codegen.locks import Lock, TimeUp, time_limit
from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.runtime.launch.regions import Region
from mmulator.runtime.launch.regions import pointer as pointer

GUARD = "MMULATOR_GUARD"
EDGES = ("left", "right")
STRING = 4096  # bytes of a string that are read
LARGEST = 16  # bytes of an atomic operation


def bytes_at(address: int, size: int) -> np.ndarray:
    """Host memory as bytes; whoever owns it must live as long."""
    if not size:
        return np.zeros(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


def guarded(size: int, align: int, edge: str, past: int = 0) -> np.ndarray:
    """Zeroed bytes at the left or right edge of pages of their own, as far as the alignment allows: `past` bytes past it."""
    page = mmap.PAGESIZE
    room = -(-max(size + past, 1) // page) * page
    pages = mmap.mmap(-1, room + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for place in (base, base + page + room):
        if protect(ctypes.c_void_p(place), ctypes.c_size_t(page), 0):
            raise MmulatorError(f"{GUARD}: mprotect failed: {os.strerror(ctypes.get_errno())}")
    start = past + (page if edge == "left" else page + (room - size - past) // align * align)
    return np.frombuffer(pages, np.uint8)[start : start + size]


PEEK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


@cache
def _peek() -> Callable[[int, int, int, int, int], int]:
    from mmulator.runtime.native.memory.windows import peek

    return PEEK(loading.address(peek))


def read(warp: int, lane: int, address: int, size: int) -> bytes:
    """Up to `size` bytes at a generic address of a lane, as far as there is memory. warp: where its struct is."""
    room = ctypes.create_string_buffer(size)
    there = _peek()(warp, lane, address, size, ctypes.addressof(room))
    return room.raw[:there]


def read_string(warp: int, lane: int, address: int) -> str:
    """A C string at such an address."""
    return read(warp, lane, address, STRING).partition(b"\0")[0].decode("utf-8", "replace")


@dataclass(frozen=True)
class Heap:
    """The allocator of the memory of a launch. edge: of the pages that trap, or "" for ordinary memory."""

    edge: str = ""

    @classmethod
    def from_environment(cls) -> Heap:
        edge = os.environ.get(GUARD, "")
        if edge and (edge not in EDGES or not hasattr(os, "fork")):
            raise MmulatorError(f"{GUARD} is {edge!r}", hint="set it to left or right, on Linux or macOS, or not at all")
        return cls(edge)

    def bytes(self, size: int, align: int = 64, past: int = 0) -> np.ndarray:
        """Zeroed bytes that begin `past` bytes past a multiple of `align`."""
        if self.edge:
            return guarded(size, align, self.edge, past)
        memory = np.zeros(size + align + past, np.uint8)
        skip = -pointer(memory) % align + past
        return memory[skip : skip + size]

    def hold(self, array: np.ndarray) -> np.ndarray:
        """An array as it is, or a copy between pages that trap."""
        if not self.edge:
            return array
        copy = self.bytes(array.nbytes, 8)
        copy[:] = bytes_at(pointer(array), array.nbytes)
        return copy.view(array.dtype).reshape(array.shape)


_NO_ACCESS, _NO_SWAP, _FIXED = 0, 0x4000, 0x10  # PROT_NONE, MAP_NORESERVE, MAP_FIXED


def reserve(size: int, at: int = 0) -> int:
    """The first of `size` addresses of this process at which there is no memory, and where none will be. Raises MemoryError.

    at: reserve these addresses, which the caller has; what was mapped there is gone.
    """
    return _mapped(at, size, _NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_SWAP, -1, 0)


def lay(at: int, size: int, file: int, offset: int) -> None:
    """Map bytes of a file to addresses that are reserved. Raises MemoryError."""
    _mapped(at, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, offset)


def release(at: int, size: int) -> None:
    """Give back addresses that were reserved."""
    ctypes.CDLL(None).munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))


def _mapped(at: int, size: int, protection: int, flags: int, file: int, offset: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = libc.mmap(at or None, size, protection, flags | (_FIXED if at else 0), file, offset)
    if found in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"no {size} addresses are free in this process (ulimit -v)")
    return int(found)


_copying = Lock()


class Placement:
    """The host memory of the buffers of a launch: their arrays', or copies that `begin` fills and `finish` writes back.

    An atomic operation of the host wants an address that is a multiple of its size, as PTX does of the kernel's address. So
    an array that begins elsewhere (a view from some byte on) is copied if the kernel has such operations; arrays
    that overlap are copied together. Launches on copies go one after the other, and write back what they changed:
    others may have arrays in the same memory.
    """

    def __init__(self, buffers: Sequence[Region], regions: Sequence[Region], align: int, heap: Heap) -> None:
        self.copies: list[tuple[np.ndarray, np.ndarray, bool]] = []
        self._before: list[np.ndarray] | None = None
        for group in _overlapping([*buffers, *regions]):
            if heap.edge or any(b.host % align for b in group if b.host != b.start):
                self._copy(group, align, heap)

    def _copy(self, group: list[Region], align: int, heap: Heap) -> None:
        low, high = group[0].host, max(b.host + b.size for b in group)
        # the copy begins at a multiple, or where a region's own addresses say that its bytes begin
        shown = any(b.host == b.start for b in group)
        past = low % LARGEST if shown else 0
        for b in group[1:]:
            if b.host != b.start and (past + b.host - low) % align:
                raise LaunchError(
                    f"{group[0].label} and {b.label} overlap and begin {b.host - low} bytes apart: atomic operations of "
                    f"{align} bytes, which the kernel has, need both to begin at a multiple of that",
                    hint="pass one of them as a copy: x.copy()",
                )
        original, copy = bytes_at(low, high - low), heap.bytes(high - low, LARGEST if shown else align, past)
        self.copies.append((original, copy, any(b.writable for b in group)))
        for b in group:
            b.host += pointer(copy) - low

    def begin(self, timeout: float | None) -> None:
        """Fill the copies. From now on, until `finish`, no other launch works on copies. Raises LaunchError if one does so for
        longer than the time limit."""
        if not self.copies:
            return
        try:
            with time_limit(timeout):
                _copying.__enter__()
        except TimeUp:
            raise LaunchError(f"other launches on copies of arrays took all of {timeout:g} s; nothing was run") from None
        self._before = []
        for original, copy, _ in self.copies:
            before = original.copy()
            copy[:] = before
            self._before.append(before)  # an interruption leaves only whole copies to be written back

    def finish(self) -> None:
        """Bring what the kernel stored to the arrays."""
        if self._before is None:
            return
        try:
            for (original, copy, writable), before in zip(self.copies, self._before):
                if writable:
                    np.copyto(original, copy, where=copy != before)
        finally:
            self._before = None
            _copying.__exit__()


def _overlapping(buffers: Sequence[Region]) -> Iterator[list[Region]]:
    """Buffers in the order of their memory, those together that share some."""
    group: list[Region] = []
    end = 0
    for b in sorted(buffers, key=lambda b: b.host):
        if group and b.host >= end:
            yield group
            group = []
        group.append(b)
        end = max(end, b.host + b.size)
    if group:
        yield group


IN_PLACE = Placement((), (), 1, Heap())


def placed(buffers: Sequence[Region], regions: Sequence[Region], align: int, heap: Heap) -> Placement:
    """Where a launch has its buffers: where they are, for all but a few. Regions are where they say."""
    if not heap.edge and (align == 1 or not any(b.host % align for b in buffers)):
        return IN_PLACE
    return Placement(buffers, regions, align, heap)


class Arena:
    """Zeroed memory cut into named parts."""

    def __init__(self, parts: dict[str, tuple[int, int]], heap: Heap) -> None:
        """parts: bytes and alignment of each."""
        if heap.edge:
            self.parts = {name: heap.bytes(*part) for name, part in parts.items()}
            self.address = {name: pointer(part) for name, part in self.parts.items()}
            return
        starts = [0, *itertools.accumulate(-(-size // 64) * 64 for size, _ in parts.values())]
        memory = heap.bytes(starts[-1])
        base = pointer(memory)
        self.parts = {name: memory[at : at + size] for (name, (size, _)), at in zip(parts.items(), starts)}
        self.address = {name: base + at for name, at in zip(parts, starts)}

    def at(self, name: str) -> int:
        return self.address[name]

    def view(self, name: str, dtype: Any) -> np.ndarray:
        return self.parts[name].view(dtype)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def spans(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """(address, bytes) of parts, those that lie side by side together."""
        found: list[tuple[int, int]] = []
        for name in names:
            at, size = self.address[name], self.parts[name].nbytes
            if found and 0 <= at - sum(found[-1]) < 64:
                first, _ = found.pop()
                at, size = first, at + size - first
            if size:
                found.append((at, size))
        return found
