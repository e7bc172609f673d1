"""The caller's memory, read and written without a signal: an address without memory is an answer (process_vm_readv(2))."""

import ctypes
import errno
import mmap
import os
import threading
from functools import cache
from typing import Any

_LONGEST = 1 << 30  # bytes of a string
_PIECE = 1 << 16
_FEW = 64


class _Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@cache
def _system(name: str) -> Any:
    """process_vm_readv or process_vm_writev; None where the system has none, or forbids it for the own process."""
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    call.restype, own = ctypes.c_ssize_t, ctypes.create_string_buffer(1)
    piece = _Piece(ctypes.addressof(own), 1)
    return call if call(os.getpid(), ctypes.byref(piece), 1, ctypes.byref(piece), 1, 0) == 1 else None


def _moved(name: str, own: int, address: int, size: int) -> int | None:
    """Number of bytes that were moved, up to the first that is not there; None where the system cannot tell."""
    call = _system(name)
    if call is None:
        return None
    mine, theirs = _Piece(own, size), _Piece(address, size)
    done = call(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    if done >= 0:
        return int(done)
    return 0 if ctypes.get_errno() in (errno.EFAULT, errno.EINVAL) else None


class _FewBytes(threading.local):
    """A few bytes of each thread on their way to or from the caller's memory, with what the system is told of both places."""

    def __init__(self) -> None:
        self.bytes = ctypes.create_string_buffer(_FEW)
        self.mine, self.theirs = _Piece(ctypes.addressof(self.bytes), 0), _Piece(0, 0)
        self.places = ctypes.byref(self.mine), 1, ctypes.byref(self.theirs), 1, 0

    def moved(self, name: str, address: int, size: int) -> bool:
        """Whether all of the bytes were moved. name: of the system's function."""
        call = _system(name)
        if call is None:
            return False
        self.mine.size = self.theirs.size = size
        self.theirs.base = address
        return int(call(os.getpid(), *self.places)) == size


_room = _FewBytes()


def read(address: int, size: int) -> bytes:
    """Up to `size` bytes, as far as memory goes."""
    if not size or not address or address + size > 1 << 64:
        return b""
    if size <= _FEW and _room.moved("process_vm_readv", address, size):
        return _room.bytes.raw[:size]
    room = ctypes.create_string_buffer(size)
    done = _moved("process_vm_readv", ctypes.addressof(room), address, size)
    return ctypes.string_at(address, size) if done is None else room.raw[:done]


def string(address: int) -> bytes | None:
    """The bytes of a C string; None if memory ends before its 0."""
    found = b""
    while len(found) < _LONGEST:
        at = address + len(found)
        wanted = (mmap.PAGESIZE if not found else _PIECE) - at % mmap.PAGESIZE
        if _system("process_vm_readv") is None:
            return ctypes.string_at(address)
        piece = read(at, wanted)
        head, end, _ = piece.partition(b"\0")
        found += head
        if end:
            return found
        if len(piece) < wanted:
            return None
    return None


def write(address: int, data: bytes) -> bool:
    """Write bytes; returns whether all could be written."""
    if len(data) <= _FEW:
        ctypes.memmove(_room.bytes, data, len(data))
        if _room.moved("process_vm_writev", address, len(data)):
            return True
    held = ctypes.create_string_buffer(data, len(data))
    done = _moved("process_vm_writev", ctypes.addressof(held), address, len(data))
    if done is None:
        ctypes.memmove(address, data, len(data))
    return done is None or done == len(data)
