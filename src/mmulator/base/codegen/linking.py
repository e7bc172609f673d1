"""Object code of LLVM (ELF for x86-64 and aarch64) placed in memory and linked by symbol.

LLVM has a linker of its own, but LLVM takes longer to load than all else of a start from stored code. The code model of a
just-in-time compiler is the large one: every reference is an address of 64 bits, whatever the distance. Calls of aarch64 are the
exception: a call that leads further than its instruction reaches goes through an island, a jump behind the code.

A wheel has the code for x86-64 `flattened`: the bytes as they lie in memory, and what is to be written into them. That is read in
a fifth of the time that ELF's tables take; a wheel's files have two thirds of the bytes.

The address of a function with a `gate` stays when better code takes its place: it is that of a jump to where a word says.
"""

import ctypes
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, partial
from typing import Any

from mmulator.base.errors import InternalError

_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_NOBITS, _RELA, _SYMTAB, _UNWIND = 8, 4, 2, 0x70000001  # kinds of sections; nothing unwinds our code
_WRITABLE, _ALLOCATED = 1, 2  # flags of sections
_LOCAL = 0  # binding of a symbol
_ISLAND = struct.Struct("<IIQ")  # ldr x16, [the address behind the next instruction]; br x16; the address
_TO_X16, _BY_X16 = 0x58000050, 0xD61F0200
_REACH = 1 << 27  # bytes: of a call of aarch64


def _address(image: bytearray, at: int, value: int, base: int) -> None:
    struct.pack_into("<Q", image, at, value)


def _distance(image: bytearray, at: int, value: int, base: int) -> None:
    struct.pack_into("<q", image, at, value - base - at)


def _put(image: bytearray, at: int, field: int, mask: int) -> None:
    """Write a field of an instruction of aarch64, where it lies in the word."""
    (word,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, word & ~mask | field & mask)


def _quarter(number: int, image: bytearray, at: int, value: int, base: int) -> None:
    """16 bits of an address in a movz or movk, number 0 the lowest."""
    _put(image, at, value >> 16 * number << 5, 0xFFFF << 5)


def _call(image: bytearray, at: int, value: int, base: int) -> None:
    """The distance in a bl or b, in words."""
    _put(image, at, (value - base - at) >> 2, 0x03FFFFFF)


def _page(image: bytearray, at: int, value: int, base: int) -> None:
    """The distance in an adrp, in pages of 4096 bytes: two low bits and 19 others."""
    pages = (value >> 12) - (base + at >> 12)
    _put(image, at, (pages & 3) << 29 | pages >> 2 << 5, 3 << 29 | 0x7FFFF << 5)


def _within(shift: int, image: bytearray, at: int, value: int, base: int) -> None:
    """The place in a page, in units of 1 << shift bytes."""
    _put(image, at, (value & 0xFFF) >> shift << 10, 0xFFF << 10)


_CALLS = frozenset((282, 283))  # R_AARCH64_JUMP26, R_AARCH64_CALL26
# How an address is written, by the machine of the ELF header and the kind of the relocation.
_WRITES: dict[int, dict[int, Callable[[bytearray, int, int, int], None]]] = {
    (_X86_64 := 62): {1: _address},  # R_X86_64_64
    # R_AARCH64_ABS64; PREL64, of tables for unwinding; MOVW_UABS_G0 to G3, with and without a check of the bits above; calls;
    # ADR_PREL_PG_HI21; ADD_ABS_LO12_NC, and those of loads and stores of 8 to 128 bits
    (_AARCH64 := 183): {
        257: _address, 260: _distance, **{kind: partial(_quarter, (kind - 263) // 2) for kind in range(263, 270)},
        **dict.fromkeys(_CALLS, _call),
        275: _page, **{kind: partial(_within, shift) for kind, shift in {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}.items()},
    },
}  # fmt: skip
HERE = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
"""Whether this machine has such object code."""


class Linked:
    """Machine code in memory: pieces of object code that are linked to each other by symbol."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._words: dict[str, Any] = {}  # where the functions with gates begin

    def add(self, codes: Iterable[bytes], symbols: dict[str, int] | None = None, gated: Collection[str] = ()) -> None:
        """Add pieces of object code. One that defines a function with a gate is this function's code from then on.

        codes: the pieces.
        symbols: addresses of external symbols to which they refer.
        gated: those of their functions that get gates.
        """
        image, pieces = bytearray(), [_Flat(code) if code[:4] == _FLAT else _ObjectFile(code) for code in codes]
        for piece in pieces:
            piece.place(image)
        base = _mapped(len(image))
        weakref.finalize(self, _unmap, _libc().munmap, base, len(image)).atexit = False
        for name, (gate, word) in zip(gated, _gates(len(gated))):
            self._places[name], self._words[name] = gate, word
        defined = {name: at for piece in pieces for name, at in piece.defined(base).items()}
        self._places.update({name: at for name, at in defined.items() if name not in self._words})
        known = {**symbols, **self._places} if symbols else self._places
        for piece in pieces:
            piece.link(image, base, known)
        ctypes.memmove(base, bytes(image), len(image))
        if _libc().mprotect(base, len(image), mmap.PROT_READ | mmap.PROT_EXEC):
            raise InternalError("memory of machine code cannot be made executable")
        _seen_by_the_cpu(base, len(image))
        for name in self._words.keys() & defined.keys():
            self._words[name].value = defined[name]  # 8 bytes at once

    def address(self, name: str) -> int:
        """The address of a function."""
        found = self.find(name)
        if not found:
            raise InternalError(f"the machine code has no function {name}")
        return found

    def find(self, name: str) -> int:
        """The address of a function; 0 if there is none."""
        return self._places.get(name, 0)


def _gates(count: int) -> Iterator[tuple[int, Any]]:
    """Addresses of jumps of 8 bytes, each with the word that says where it leads: as far behind it as all of them are long."""
    size = -(-8 * count // mmap.PAGESIZE) * mmap.PAGESIZE
    if count:
        at = _mapped(2 * size)
        x86 = b"\xff\x25" + struct.pack("<ixx", size - 6)  # jmp [rip + size - 6]
        jump = x86 if platform.machine() == "x86_64" else struct.pack("<II", _TO_X16 & ~(0x7FFFF << 5) | size // 4 << 5, _BY_X16)
        ctypes.memmove(at, jump * count, 8 * count)
        if _libc().mprotect(at, size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise InternalError("memory of machine code cannot be made executable")
        _seen_by_the_cpu(at, size)
        yield from ((at + 8 * n, ctypes.c_uint64.from_address(at + size + 8 * n)) for n in range(count))


class _ObjectFile:
    """A piece of object code: its sections, and where in an image they are placed."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        (first,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
        self.sections = [_SECTION.unpack_from(code, first + _SECTION.size * n) for n in range(count)]
        self.at: dict[int, int] = {}  # offsets in the image, by number of the section
        self.islands: dict[int, int] = {}  # offsets in the image, by number of the symbol
        self.writes = _WRITES.get(struct.unpack_from("<H", code, 18)[0], {})
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
        if self.writes is _WRITES[_AARCH64]:
            far = dict.fromkeys(n for _, kind, n, _ in self.references() if kind in _CALLS and self.symbols[n][2] not in self.at)
            image += bytes(-len(image) % _ISLAND.size)
            self.islands = {number: len(image) + _ISLAND.size * n for n, number in enumerate(far)}
            image += bytes(_ISLAND.size * len(far))

    def defined(self, base: int) -> dict[str, int]:
        """Addresses of the symbols that other pieces see, by name. base: of the image."""
        return {
            name: base + self.at[section] + value
            for name, binding, section, value in self.symbols if section in self.at and binding != _LOCAL
        }  # fmt: skip

    def link(self, image: bytearray, base: int, known: dict[str, int]) -> None:
        """Write the addresses that the image refers to. known: addresses of symbols."""
        for at, kind, number, addend in self.references():
            write = self.writes.get(kind)
            if write is None:
                raise InternalError(f"machine code with a relocation of kind {kind}")
            name, _, section, value = self.symbols[number]
            own = base + self.at[section] + value if section in self.at else known.get(name) or _of_process(name)
            if number in self.islands and not -_REACH <= own + addend - base - at < _REACH:
                _ISLAND.pack_into(image, self.islands[number], _TO_X16, _BY_X16, own)
                own = base + self.islands[number]
            write(image, at, own + addend, base)

    def references(self) -> Iterator[tuple[int, int, int, int]]:
        """(offset in the image, kind, number of the symbol, addend) of each relocation."""
        for _, kind, _, _, offset, size, _, target, *_ in self.sections:
            if kind == _RELA and target in self.at:
                for place, info, addend in _RELOCATION.iter_unpack(self.code[offset : offset + size]):
                    yield self.at[target] + place, info & 0xFFFFFFFF, info >> 32, addend


_FLAT = b"flat"  # where an ELF file has 7f 45 4c 46
_FLAT_HEAD = struct.Struct("<4sHHHHII")  # that, alignment, numbers of names, own and other references, bytes of names and image
_OWN, _OTHER = struct.Struct("<Ii"), struct.Struct("<IHxxq")  # where; where it leads in the image; number of a name, and addend


def flattened(code: bytes) -> bytes:
    """Object code for x86-64 without ELF's tables, as `Linked.add` takes it, too; other code unchanged.

    After the head: the names, those that it defines first; where these lie; references in the image; others; the image.
    """
    if code[:4] != b"\x7fELF" or struct.unpack_from("<H", code, 18)[0] != _X86_64:
        return code
    piece, image = _ObjectFile(code), bytearray()
    piece.place(image)
    defined = piece.defined(0)
    others = {name: n for n, name in enumerate(defined)}
    own, other = [], []
    for at, kind, number, addend in piece.references():
        if _WRITES[_X86_64].get(kind) is not _address:
            return code  # which is refused when it is linked
        name, _, section, value = piece.symbols[number]
        if section in piece.at:
            own.append(_OWN.pack(at, piece.at[section] + value + addend))
        else:
            other.append(_OTHER.pack(at, others.setdefault(name, len(others)), addend))
    names = "\0".join(others).encode()
    alignment = max([section[8] for n, section in enumerate(piece.sections) if n in piece.at], default=1)
    places = struct.pack(f"<{len(defined)}I", *defined.values())
    head = _FLAT_HEAD.pack(_FLAT, alignment, len(defined), len(own), len(other), len(names), len(image))
    return b"".join((head, names, places, *own, *other, image))


class _Flat:
    """A piece of flattened code."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        _, self.alignment, self.count, self.own, self.other, size, self.size = _FLAT_HEAD.unpack_from(code)
        self.places = _FLAT_HEAD.size + size
        self.names = code[_FLAT_HEAD.size : self.places].decode().split("\0")

    def place(self, image: bytearray) -> None:
        """Add the code to an image."""
        image += bytes(-len(image) % self.alignment)
        self.at = len(image)
        image += self.code[len(self.code) - self.size :]

    def defined(self, base: int) -> dict[str, int]:
        """Addresses of the symbols that other pieces see, by name. base: of the image."""
        base += self.at
        return {name: base + at for name, at in zip(self.names, struct.unpack_from(f"<{self.count}I", self.code, self.places))}

    def link(self, image: bytearray, base: int, known: dict[str, int]) -> None:
        """Write the addresses to which the code refers into the image. known: those of symbols, by name."""
        if not self.own and not self.other:
            return
        code, here, start = self.code, self.at, self.places + 4 * self.count
        others = start + _OWN.size * self.own
        for at, to in _OWN.iter_unpack(code[start:others]):
            _address(image, here + at, base + here + to, base)
        for at, number, addend in _OTHER.iter_unpack(code[others : others + _OTHER.size * self.other]):
            name = self.names[number]
            _address(image, here + at, (known.get(name) or _of_process(name)) + addend, base)


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


@cache
def _synchronise() -> Any:
    """The function that makes new code known to the instruction caches, where the processor does not do so itself."""
    if platform.machine() == "x86_64":
        return None
    function = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return function


def _seen_by_the_cpu(base: int, size: int) -> None:
    if (synchronise := _synchronise()) is not None:
        synchronise(base, base + size)


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
