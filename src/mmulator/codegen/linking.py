"""Object code of LLVM (ELF for x86-64) placed in memory and linked by symbol.

LLVM has a linker of its own, but LLVM takes longer to load than all else of a start from stored code. The code model of a
just-in-time compiler is the large one: every reference is an address of 64 bits, whatever the distance.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from mmulator.errors import InternalError

HERE = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether this machine has such object code."""
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_NOBITS, _RELA, _SYMTAB, _UNWIND = 8, 4, 2, 0x70000001  # kinds of sections; nothing unwinds our code
_WRITABLE, _ALLOCATED = 1, 2  # flags of sections
_ADDRESS = 1  # R_X86_64_64
_LOCAL = 0  # binding of a symbol


class Linked:
    """Machine code in memory: pieces of object code that are linked to each other by symbol."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add(self, codes: Iterable[bytes], symbols: dict[str, int] | None = None) -> None:
        """Add pieces of object code. symbols: addresses of external symbols to which they refer."""
        image, pieces = bytearray(), [_ObjectFile(code) for code in codes]
        for piece in pieces:
            piece.place(image)
        base = _mapped(len(image))
        weakref.finalize(self, _unmap, _libc().munmap, base, len(image)).atexit = False
        for piece in pieces:
            self._places |= piece.defined(base)
        known = {**(symbols or {}), **self._places}
        for piece in pieces:
            for at, value in piece.references(base, known):
                struct.pack_into("<Q", image, at, value)
        ctypes.memmove(base, bytes(image), len(image))
        if _libc().mprotect(base, len(image), mmap.PROT_READ | mmap.PROT_EXEC):
            raise InternalError("memory of machine code cannot be made executable")

    def address(self, name: str) -> int:
        """The address of a function."""
        found = self.find(name)
        if not found:
            raise InternalError(f"the machine code has no function {name}")
        return found

    def find(self, name: str) -> int:
        """The address of a function; 0 if there is none."""
        return self._places.get(name, 0)


class _ObjectFile:
    """A piece of object code: its sections, and where in an image they are placed."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        (first,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
        self.sections = [_SECTION.unpack_from(code, first + _SECTION.size * n) for n in range(count)]
        self.at: dict[int, int] = {}  # offsets in the image, by number of the section
        self.symbols: list[tuple[str, int, int, int]] = []  # name, binding, section, value
        for _, kind, _, _, offset, size, link, *_ in self.sections:
            if kind == _SYMTAB:
                names = self.sections[link][4]
                self.symbols = [
                    (code[names + name : code.index(b"\0", names + name)].decode(), info >> 4, section, value)
                    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(code[offset : offset + size])
                ]

    def place(self, image: bytearray) -> None:
        """Add the sections to an image."""
        for number, (_, kind, flags, _, offset, size, _, _, alignment, _) in enumerate(self.sections):
            if flags & _ALLOCATED and kind != _UNWIND:
                if flags & _WRITABLE or kind == _NOBITS:
                    raise InternalError("machine code with variables")
                image += bytes(-len(image) % max(alignment, 1))
                self.at[number] = len(image)
                image += self.code[offset : offset + size]

    def defined(self, base: int) -> dict[str, int]:
        """Addresses of the symbols that other pieces see, by name. base: of the image."""
        return {
            name: base + self.at[section] + value
            for name, binding, section, value in self.symbols if section in self.at and binding != _LOCAL
        }  # fmt: skip

    def references(self, base: int, known: dict[str, int]) -> Iterator[tuple[int, int]]:
        """(offset in the image, the address that belongs there). known: addresses of symbols."""
        for _, kind, _, _, offset, size, _, target, *_ in self.sections:
            if kind == _RELA and target in self.at:
                for place, info, addend in _RELOCATION.iter_unpack(self.code[offset : offset + size]):
                    name, _, section, value = self.symbols[info >> 32]
                    if info & 0xFFFFFFFF != _ADDRESS:
                        raise InternalError(f"machine code with a relocation of kind {info & 0xFFFFFFFF}")
                    own = base + self.at[section] + value if section in self.at else known.get(name) or _of_process(name)
                    yield self.at[target] + place, own + addend


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def _unmap(munmap: Any, base: int, size: int, ending: Callable[[], bool] = sys.is_finalizing) -> None:
    """Give memory back, unless Python is ending: native threads of a program may be in it until the process has gone."""
    if not ending():
        munmap(base, size)


def _mapped(size: int) -> int:
    """The address of new memory that may be written."""
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    at = _libc().mmap(None, max(size, 1), mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise InternalError(f"no memory for {size} bytes of machine code")
    return int(at)


@cache
def _of_process(name: str) -> int:
    """The address of a function of C's library, such as memset."""
    try:
        found = ctypes.cast(getattr(_libc(), name), ctypes.c_void_p).value
    except AttributeError:
        raise InternalError(f"machine code calls {name}, which nobody has") from None
    return found or 0
