"""A shared library made without a compiler: functions that jump through a table of addresses, which Python fills.

The dynamic loader needs little of a library (System V ABI, gABI chapters 4 and 5): a header, segments, a dynamic section
with symbols, strings and a hash table. Each function is one jump through its slot of the table.

Functions that give something back are called by destructors, also while an exception of Python is on its way, when no Python
may run. These note their arguments in a ring, and return success; Python looks there before every other call.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

PAGE = 4096
MACHINES = {"x86_64": 62}
TABLE, COUNT, RING, ENDED = "mmulator_table", "mmulator_count", "mmulator_ring", "mmulator_ended"
ENTRIES_OF_RING, ENTRY = 1 << 16, 32  # an entry: the number of the function, from 1 on, and two arguments
_HEADER, _SEGMENT, _SYMBOL, _STEP = 64, 56, 24, 16
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_FUNCTION, _OBJECT = 0x12, 0x11  # global symbols


def library(soname: str, functions: Sequence[str], noted: Sequence[str], machine: str) -> bytes:
    """The bytes of a shared library.

    soname: its name.
    functions: exported functions that jump through TABLE, which has a pointer for each.
    noted: functions that write their arguments into RING and add one to COUNT.
    machine: one of MACHINES.

    The library also exports ENDED, a function that returns CUDA_ERROR_DEINITIALIZED.
    """
    names = [*functions, *noted, ENDED, TABLE, COUNT, RING]
    strings, places = _strings([soname, *names])
    # read-only and executable: header, segments, symbols, strings, hash, code; then, on pages of its own, what is written
    symtab = _HEADER + 4 * _SEGMENT
    strtab = symtab + _SYMBOL * (len(names) + 1)
    hashtab = _up(strtab + len(strings), 8)
    buckets = _hash_table(names)
    code = _up(hashtab + len(buckets), 64)
    note = code + _STEP * (len(functions) + len(noted) + 1)
    end = note + 64
    table = _up(end, PAGE)
    count = table + 8 * len(functions)
    dynamic = count + 8
    entries = [(_DT_SONAME, places[soname]), (_DT_HASH, hashtab), (_DT_SYMTAB, symtab), (_DT_SYMENT, _SYMBOL),
               (_DT_STRTAB, strtab), (_DT_STRSZ, len(strings)), (0, 0)]  # fmt: skip
    total = dynamic + 16 * len(entries)
    ring = _up(total, 64)  # zeros that the file does not have

    image = bytearray(total)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, MACHINES[machine], 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 4, 64, 0, 0)
    image[: len(head)] = head
    segments = [
        (_LOAD, _READ | _EXECUTE, 0, end, end, PAGE),
        (_LOAD, _READ | _WRITE, table, total - table, ring + ENTRY * ENTRIES_OF_RING - table, PAGE),
        (_DYNAMIC, _READ | _WRITE, dynamic, total - dynamic, total - dynamic, 8),
        (_STACK, _READ | _WRITE, 0, 0, 0, 16),
    ]
    for n, (kind, flags, start, size, room, align) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, _HEADER + n * _SEGMENT, kind, flags, start, start, start, size, room, align)

    where: list[tuple[int, int, int]] = []  # kind, address, size: of each name
    for n in range(len(functions)):
        at = code + _STEP * n
        _write(image, at, b"\xff\x25" + struct.pack("<i", table + 8 * n - (at + 6)))  # jmp *slot(%rip)
        where.append((_FUNCTION, at, _STEP))
    for n in range(len(noted)):
        at = code + _STEP * (len(functions) + n)
        _write(image, at, b"\xb8" + struct.pack("<I", n + 1) + b"\xe9" + struct.pack("<i", note - (at + 10)))  # mov $n, %eax; jmp
        where.append((_FUNCTION, at, _STEP))
    at = note - _STEP
    _write(image, at, b"\xb8\x04\0\0\0\xc3")  # mov $4, %eax; ret
    where += [(_FUNCTION, at, _STEP), (_OBJECT, table, 8 * len(functions)), (_OBJECT, count, 8)]
    where.append((_OBJECT, ring, ENTRY * ENTRIES_OF_RING))
    _write(image, note, _note(note, count, ring))
    for n, (name, (kind, at, size)) in enumerate(zip(names, where), 1):
        struct.pack_into("<IBBHQQ", image, symtab + _SYMBOL * n, places[name], kind, 0, 1, at, size)
    _write(image, strtab, strings)
    _write(image, hashtab, buckets)
    for n, entry in enumerate(entries):
        struct.pack_into("<QQ", image, dynamic + 16 * n, *entry)
    return bytes(image)


def _note(at: int, count: int, ring: int) -> bytes:
    """The code that notes a call: function %eax, arguments %rdi and %rsi. The number is written last: then the entry is whole."""
    code = b"\xb9\x01\0\0\0"  # mov $1, %ecx
    code += b"\xf0\x48\x0f\xc1\x0d" + struct.pack("<i", count - (at + len(code) + 9))  # lock xadd %rcx, count(%rip)
    code += b"\x0f\xb7\xc9"  # movzwl %cx, %ecx
    code += b"\x48\xc1\xe1\x05"  # shl $5, %rcx
    code += b"\x48\x8d\x15" + struct.pack("<i", ring - (at + len(code) + 7))  # lea ring(%rip), %rdx
    code += b"\x48\x01\xca"  # add %rcx, %rdx
    code += b"\x48\x89\x7a\x08\x48\x89\x72\x10"  # mov %rdi, 8(%rdx); mov %rsi, 16(%rdx)
    code += b"\x48\x89\x02"  # mov %rax, (%rdx)
    return code + b"\x31\xc0\xc3"  # xor %eax, %eax; ret


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _write(image: bytearray, at: int, data: bytes) -> None:
    image[at : at + len(data)] = data


def _strings(words: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    text = bytearray(b"\0")
    places = {}
    for word in words:
        places[word] = len(text)
        text += word.encode() + b"\0"
    return bytes(text), places


def _hash(name: str) -> int:
    """The hash of a symbol's name (gABI, chapter 5)."""
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
