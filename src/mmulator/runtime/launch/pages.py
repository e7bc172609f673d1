"""Large zeroed memory of which what is never touched costs nothing, from mappings that earlier launches gave back.

To map a page costs ten times more than to clear it. So a mapping of which nobody has a part any more is cleared, where it was
touched, and used again.
"""

import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np

_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # address space alone, of which pages are there when they are touched
_LARGE = 1 << 18  # bytes: from here on pages of its own are cheaper
_SHARED, _SLAB = 1 << 23, 1 << 26  # bytes of what has part of a mapping, and of such a mapping
_MOST = 1 << 28  # touched bytes of all mappings that are kept
_LARGEST = 1 << 34  # bytes of such a mapping
_THERE = np.uint64(62)  # of an entry of the page map: bits 62 and 63 say that the page is in swap or memory
_IDLE = 2  # references to an array that a variable holds and nothing else


class _Slab:
    """A mapping that is given out from its start on, and from the start again when all parts are gone."""

    def __init__(self) -> None:
        self.memory, self.used = np.frombuffer(_mapped(_SLAB), np.uint8), 0

    def take(self, size: int) -> np.ndarray | None:
        """A part; None if there is no room."""
        if self.used and sys.getrefcount(self.memory) == _IDLE:
            touched = _cleared(self.memory[: self.used])
            if touched is None or touched > _MOST >> 4:
                return None
            self.used = 0
        if self.used + size > _SLAB:
            return None
        begin, self.used = self.used, self.used + size
        return self.memory[begin : begin + size]


_kept: dict[int, list[tuple[mmap.mmap, int]]] = {}  # by size mappings that are zeros, each with its touched bytes
_left: dict[int, list[tuple[mmap.mmap, int, int]]] = {}  # those that are not, each with the number of its uses, too
_slabs: list[_Slab] = []  # who takes a part takes the slab from this list meanwhile


def untouched(size: int) -> np.ndarray | None:
    """Zeros that take no memory until they are touched, as bytes; None if there is not even the address space."""
    try:
        return _shared(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE) if size <= _SHARED else _own(_rounded(size))
    except (AttributeError, OSError, ValueError):
        _forget()
    try:
        return np.zeros(max(size, 1), np.uint8)
    except MemoryError:
        return None


def stale(size: int) -> np.ndarray | None:
    """Bytes like those of `untouched`, but not zeros: they are as an earlier launch left them."""
    size = _rounded(size)
    try:
        pages, touched, uses = _left[size].pop()
    except LookupError:
        try:
            pages, touched, uses = _mapped(size), 0, 0
        except (AttributeError, OSError, ValueError):
            return untouched(size)
    memory = np.frombuffer(pages, np.uint8)
    weakref.finalize(memory, _leave, pages, touched, uses + 1).atexit = False
    return memory


def blank(count: int, dtype: np.dtype) -> np.ndarray:
    """Zeros for a launch, of which what is never touched costs nothing. numpy asks for huge pages where an array is large, and to
    touch a byte of one clears all of it."""
    size = count * dtype.itemsize
    memory = untouched(size) if size >= _LARGE else None
    return memory[:size].view(dtype) if memory is not None else np.zeros(count, dtype)


def _shared(size: int) -> np.ndarray:
    """Part of a mapping."""
    try:
        slab = _slabs.pop()
    except IndexError:
        slab = _Slab()
    part = slab.take(size)
    if part is None:
        slab = _Slab()
        part = slab.take(size)
    _slabs.append(slab)
    assert part is not None
    return part


def _own(size: int) -> np.ndarray:
    """A mapping of this size, which is kept when its array is gone."""
    try:
        pages = _kept[size].pop()[0]
    except LookupError:
        pages = _mapped(size)
    memory = np.frombuffer(pages, np.uint8)
    weakref.finalize(memory, _given_back, pages).atexit = False
    return memory


def _given_back(pages: mmap.mmap) -> None:
    """Clear a mapping and keep it, unless it is too large. Where there is no room, all others make room."""
    touched = _cleared(np.frombuffer(pages, np.uint8)) if len(pages) <= _LARGEST else None
    if touched is not None:
        _make_room(touched)
        _kept.setdefault(len(pages), []).append((pages, touched))


def _leave(pages: mmap.mmap, touched: int, uses: int) -> None:
    """Keep a mapping as it is, as `_given_back`. Its touched bytes are counted at some uses, since that takes time."""
    if uses & (uses - 1) == 0:
        found = _touched(np.frombuffer(pages, np.uint8)) if len(pages) <= _LARGEST else None
        if found is None:
            return
        touched = len(found) * mmap.PAGESIZE
    _make_room(touched)
    _left.setdefault(len(pages), []).append((pages, touched, uses))


def _make_room(size: int) -> None:
    if kept_bytes() > _MOST - size:
        _forget()


def _forget() -> None:
    _kept.clear()
    _left.clear()


def kept_bytes() -> int:
    """The touched bytes of all mappings that are kept."""
    pools: list[list[Any]] = [*_kept.values(), *_left.values()]
    return sum(mapping[1] for mappings in pools for mapping in list(mappings))


def _cleared(memory: np.ndarray) -> int | None:
    """Clear whole pages where they were touched: the number of bytes that were; None if that is not known, or too much."""
    touched = _touched(memory)
    if touched is not None:
        memory.reshape(-1, mmap.PAGESIZE)[touched] = 0
    return None if touched is None else len(touched) * mmap.PAGESIZE


def _touched(memory: np.ndarray) -> np.ndarray | None:
    """The numbers of pages that were touched; None if they are not known, or too many."""
    try:
        table = os.open("/proc/self/pagemap", os.O_RDONLY)
        try:
            entries = os.pread(table, memory.nbytes // mmap.PAGESIZE * 8, memory.ctypes.data // mmap.PAGESIZE * 8)
        finally:
            os.close(table)
    except OSError:
        return None
    touched = np.flatnonzero(np.frombuffer(entries, np.uint64) >> _THERE)
    known = len(entries) * mmap.PAGESIZE == memory.nbytes * 8 and len(touched) * mmap.PAGESIZE <= _MOST
    return touched if known else None


def _rounded(size: int) -> int:
    """A size that few sizes share, at most an eighth more: launches of other shapes use what was mapped for one."""
    step = max(mmap.PAGESIZE, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


def _mapped(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return pages
