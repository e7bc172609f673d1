"""Machine code of aarch64 for the functions of a shared library (elf.py). Places are distances from the begin of the library.

A program passes arguments in x0 to x7, and in x8 the address of a struct that is returned. A call may change x9 to x12, x16 and
x17; w17 has the number of a function. No instruction is used that Armv8.0 lacks.
"""

import struct

MACHINE, ADDRESS_OF_SYMBOL = 183, 257  # EM_AARCH64, R_AARCH64_ABS64
PAGE = 1 << 16  # the largest page that Linux has there
TRIPLE, CPU = "aarch64-unknown-linux-gnu", "generic"
_RET = 0xD65F03C0


def stub(at: int, number: int, slot: int, otherwise: int) -> bytes:
    """A function: jump to what the slot has; while it is empty, to `otherwise` with the number of the slot in w17."""
    page, low = _page(at, 16, slot), slot & 0xFFF
    code = _code(page, 0xF9400210 | low // 8 << 10, 0xB4000050, 0xD61F0200)  # ldr x16, [x16, low]; cbz x16, +8; br x16
    return code + numbered(at + len(code), number, otherwise)


def numbered(at: int, number: int, to: int) -> bytes:
    """Jump with a number in w17."""
    return _code(_move(17, number), _branch(at + 4, to))


def returns(number: int) -> bytes:
    return _code(_move(0, number), _RET)


def returns_place(at: int, place: int) -> bytes:
    return _code(*_place(at, 0, place), _RET)


def start(at: int, table: int, door: int, function: int) -> bytes:
    """Keep the arguments, call `boot`, and jump to what the slot w17 has then."""
    pairs = [(n, n + 1, 16 + 8 * n) for n in (0, 2, 4, 6)] + [(8, 17, 80)]
    code = _code(0xA9BA7BFD, 0x910003FD)  # stp x29, x30, [sp, -96]!; mov x29, sp
    code += _code(*(0xA90003E0 | to // 8 << 15 | b << 10 | a for a, b, to in pairs))  # stp xa, xb, [sp, to]
    code += _code(*_place(at + len(code), 0, door))
    code += _code(_branch(at + len(code), function) | 1 << 31)  # bl
    code += _code(*(0xA94003E0 | to // 8 << 15 | b << 10 | a for a, b, to in pairs))  # ldp xa, xb, [sp, to]
    code += _code(0xA8C67BFD)  # ldp x29, x30, [sp], 96
    code += _code(*_place(at + len(code), 16, table))
    return code + _code(0xF8715A10, 0xD61F0200)  # ldr x16, [x16, w17, uxtw 3]; br x16


def keep(at: int, count: int, log: int, room: int, first: int, full: int) -> bytes:
    """Write a call into the log: last the number of the function, from 1 behind `first` slots. A full log goes to `full`."""
    code = _counted(at, count)
    code += _code(0xF140015F | room >> 12 << 10)  # cmp x10, room, a multiple of 4096
    code += _code(0x54000002 | _far(at + len(code), full, 19) << 5)  # b.hs full
    code += _code(*_place(at + len(code), 11, log), 0x8B0A196A)  # add x10, x11, x10, lsl 6
    code += _code(0xA9008540, 0xA9018D42, 0xA9029544)  # stp x0, x1, [x10, 8]; x2, x3, 24; x4, x5, 40
    code += _code(_move(12, first - 1), 0x4B0C0231)  # sub w17, w17, w12
    return code + _code(0xC89FFD51, _RET)  # stlr x17, [x10]


def note(at: int, count: int, ring: int) -> bytes:
    """The code that notes a call: function w17, arguments x0 and x1. The number is written last: then the entry is whole."""
    code = _counted(at, count)
    code += _code(0x53003D4A)  # uxth w10, w10
    code += _code(*_place(at + len(code), 11, ring), 0x8B0A156A)  # add x10, x11, x10, lsl 5
    return code + _code(0xA9008540, 0xC89FFD51) + returns(0)  # stp x0, x1, [x10, 8]; stlr x17, [x10]


def _counted(at: int, count: int) -> bytes:
    """x10: what a counter was; one is added."""
    again = 0x35000000 | _far(12, 0, 19) << 5 | 12  # cbnz w12
    # ldxr x10, [x9]; add x11, x10, 1; stxr w12, x11, [x9]
    return _code(*_place(at, 9, count), 0xC85F7D2A, 0x9100054B, 0xC80C7D2B, again)


def _code(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _far(at: int, to: int, bits: int) -> int:
    """A distance in instructions, as so many bits."""
    return (to - at) // 4 & (1 << bits) - 1


def _branch(at: int, to: int) -> int:
    return 0x14000000 | _far(at, to, 26)


def _move(register: int, number: int) -> int:
    return 0x52800000 | number << 5 | register  # movz


def _page(at: int, register: int, place: int) -> int:
    """The address of the 4096 bytes around a place, as the processor counts them."""
    pages = (place >> 12) - (at >> 12)
    return 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register  # adrp


def _place(at: int, register: int, place: int) -> tuple[int, int]:
    """The address of a place: adrp, add."""
    return _page(at, register, place), 0x91000000 | (place & 0xFFF) << 10 | register << 5 | register
