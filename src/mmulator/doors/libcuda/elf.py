"""A shared library without a compiler: functions that jump through a table of addresses, which Python fills.

The dynamic loader wants little of a library (System V ABI, gABI chapters 4 and 5): a header, two segments, a dynamic
section with symbols, strings and a hash table. Each function is one jump through its slot of the table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

PAGE = 0x10000  # the largest of any Linux
TABLE, ENDED, DONE = "mmulator_table", "mmulator_ended", "mmulator_done"
MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_GLOBAL_FUNCTION, _GLOBAL_OBJECT = 0x12, 0x11


def library(soname: str, functions: Sequence[str], machine: str) -> bytes:
    """The bytes of a library that exports `functions`, TABLE, a pointer for each, and two that need no Python: ENDED
    returns CUDA_ERROR_DEINITIALIZED, DONE success. machine: one of MACHINES."""
    jump, step, constants = _CODE[machine]
    names = [*functions, ENDED, DONE, TABLE]
    strings, places = _strings([soname, *names])
    # read-only and executable: header, segments, symbols, strings, hash, code; then, on a page of its own, what is written
    at = _HEADER + 4 * _SEGMENT
    symtab = at
    strtab = symtab + _SYMBOL * (len(names) + 1)
    hashtab = -(-(strtab + len(strings)) // 8) * 8
    buckets = _hash_table(names)
    code = -(-(hashtab + len(buckets)) // 64) * 64
    end = code + step * (len(functions) + 2)
    table = -(-end // PAGE) * PAGE
    dynamic = table + 8 * len(functions)
    entries = [(_DT_SONAME, places[soname]), (_DT_HASH, hashtab), (_DT_SYMTAB, symtab), (_DT_SYMENT, _SYMBOL),
               (_DT_STRTAB, strtab), (_DT_STRSZ, len(strings)), (0, 0)]  # fmt: skip
    total = dynamic + 16 * len(entries)

    image = bytearray(total)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, MACHINES[machine], 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 4, 64, 0, 0)
    image[: len(head)] = head
    segments = [
        (_LOAD, _READ | _EXECUTE, 0, end, PAGE),
        (_LOAD, _READ | _WRITE, table, total - table, PAGE),
        (_DYNAMIC, _READ | _WRITE, dynamic, total - dynamic, 8),
        (_STACK, _READ | _WRITE, 0, 0, 16),
    ]
    for n, (kind, flags, start, size, align) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, _HEADER + n * _SEGMENT, kind, flags, start, start, start, size, size, align)
    for n, name in enumerate(functions):
        _symbol(image, symtab, n + 1, places[name], _GLOBAL_FUNCTION, code + step * n, step)
        image[code + step * n : code + step * n + step] = jump(code + step * n, table + 8 * n)
    for n, (name, body) in enumerate(zip((ENDED, DONE), constants), len(functions)):
        _symbol(image, symtab, n + 1, places[name], _GLOBAL_FUNCTION, code + step * n, step)
        image[code + step * n : code + step * n + step] = body
    _symbol(image, symtab, len(names), places[TABLE], _GLOBAL_OBJECT, table, 8 * len(functions))
    image[strtab : strtab + len(strings)] = strings
    image[hashtab : hashtab + len(buckets)] = buckets
    for n, entry in enumerate(entries):
        struct.pack_into("<QQ", image, dynamic + 16 * n, *entry)
    return bytes(image)


def _symbol(image: bytearray, table: int, number: int, name: int, info: int, value: int, size: int) -> None:
    struct.pack_into("<IBBHQQ", image, table + _SYMBOL * number, name, info, 0, 1, value, size)


def _strings(words: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    text = bytearray(b"\0")
    places = {}
    for word in words:
        places[word] = len(text)
        text += word.encode() + b"\0"
    return bytes(text), places


def _hash(name: str) -> int:
    """Of the gABI, chapter 5."""
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        h = (h ^ (h & 0xF0000000) >> 24) & 0x0FFFFFFF
    return h


def _hash_table(names: Sequence[str]) -> bytes:
    count = len(names)
    heads, links = [0] * count, [0] * (count + 1)
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % count
        links[number], heads[bucket] = heads[bucket], number
    return struct.pack(f"<{2 + count + count + 1}I", count, count + 1, *heads, *links)


def _jump_x86(at: int, slot: int) -> bytes:
    """jmp *slot(%rip)"""
    return b"\xff\x25" + struct.pack("<i", slot - (at + 6)) + b"\xcc\xcc"


def _jump_arm(at: int, slot: int) -> bytes:
    """adrp x16, slot; ldr x16, [x16, slot % 4096]; br x16"""
    pages = (slot // 4096 - at // 4096) & 0x1FFFFF
    adrp = 0x90000010 | (pages & 3) << 29 | pages >> 2 << 5
    ldr = 0xF9400210 | (slot % 4096 // 8) << 10
    return struct.pack("<4I", adrp, ldr, 0xD61F0200, 0xD503201F)


_RETURN = (0xD65F03C0, 0xD503201F, 0xD503201F)  # ret; nop; nop
# A jump through a slot, its bytes, and `return 4` and `return 0`.
_CODE: dict[str, tuple[Callable[[int, int], bytes], int, tuple[bytes, bytes]]] = {
    "x86_64": (_jump_x86, 8, (b"\xb8\x04\0\0\0\xc3\xcc\xcc", b"\x31\xc0\xc3\xcc\xcc\xcc\xcc\xcc")),
    "aarch64": (_jump_arm, 16, (struct.pack("<4I", 0x52800080, *_RETURN), struct.pack("<4I", 0x52800000, *_RETURN))),
}
