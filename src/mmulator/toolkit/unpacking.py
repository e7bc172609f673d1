"""Unpacking of what nvcc packs into fat binaries: zstd, and LZ4 in blocks. It takes time in proportion to the bytes that come
out, and ends at the thread's time limit with TimeUp."""

import io
from importlib import import_module
from typing import Any

from mmulator.codegen.locks import remaining
from mmulator.errors import MmulatorError, UnsupportedError

_LEAST = 4  # bytes of a repetition of LZ4
_PIECE = 1 << 20
_LOOK = 4096  # packed bytes after which the time limit is looked at


def unzstd(packed: bytes, size: int) -> bytes:
    """The `size` bytes that a zstd frame holds. Raises MmulatorError for a damaged frame, or one that holds another number."""
    stream, failure = _zstd_stream(packed)
    found = bytearray()
    try:
        while len(found) <= size and (piece := stream.read(min(_PIECE, size + 1 - len(found)))):
            remaining()
            found += piece
    except (failure, EOFError) as error:
        raise MmulatorError(f"a zstd frame is damaged: {error}") from None
    return _whole(found, size)


def _zstd_stream(packed: bytes) -> tuple[Any, type[Exception]]:
    """(a file of the unpacked bytes, the error of reading it)."""
    try:
        zstd: Any = import_module("compression.zstd")  # Python 3.14
        return zstd.ZstdFile(io.BytesIO(packed)), zstd.ZstdError
    except ImportError:
        pass
    try:
        zstd = import_module("zstandard")
    except ImportError:
        raise UnsupportedError("packed with zstd, which this Python cannot read", hint="pip install zstandard") from None
    return zstd.ZstdDecompressor().stream_reader(io.BytesIO(packed)), zstd.ZstdError


def unlz4(packed: bytes, size: int) -> bytes:
    """The `size` bytes that a block of LZ4 holds. Raises MmulatorError for a damaged block, or one that holds another number."""
    out, at, look = bytearray(), 0, 0
    try:
        while at < len(packed):
            if at >= look:
                remaining()
                look = at + _LOOK
            token = packed[at]
            count, at = _count(packed, at + 1, token >> 4)
            out += packed[at : at + count]
            at += count
            if at == len(packed):  # the last sequence has no repetition
                break
            back = packed[at] | packed[at + 1] << 8
            count, at = _count(packed, at + 2, token & 15)
            start, count = len(out) - back, count + _LEAST
            if not back or start < 0 or at > len(packed) or len(out) + count > size:
                raise IndexError
            while count > 0:  # what is repeated may begin in the repetition
                piece = out[start : start + count]
                out += piece
                count -= len(piece)
    except IndexError:
        raise MmulatorError("a block of LZ4 is damaged") from None
    return _whole(out, size)


def _count(packed: bytes, at: int, count: int) -> tuple[int, int]:
    """(a length, where it ends): 15 goes on in the following bytes, up to the first that is not 255."""
    if count == 15:
        while packed[at] == 255:
            count, at = count + 255, at + 1
        count, at = count + packed[at], at + 1
    return count, at


def _whole(found: bytearray, size: int) -> bytes:
    if len(found) != size:
        held = "more" if len(found) > size else f"{len(found)} bytes"
        raise MmulatorError(f"{size} bytes are announced, and {held} come out of it")
    return bytes(found)
