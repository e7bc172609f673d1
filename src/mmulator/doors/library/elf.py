"""A shared library made without a compiler: functions that jump through a table of addresses, which Python fills.

The dynamic loader needs little of a library (System V ABI, gABI chapters 4 and 5): a header, segments, a dynamic section
with symbols, strings and a hash table; the linker also reads sections. Three kinds of functions are exported:

- plain: a jump through the function's slot of the table. While the slot is empty, the library is made ready first (boot.py).
- noted: functions that give something back. Destructors call them, also while an exception of Python is on its way, when no
  Python may run. They write two arguments into a ring and return success; Python looks there before every other call.
- logged: functions that compilers call before `main`, to register kernels and variables. While their slot is empty they write
  six arguments into a log and return the first. Python reads the log when the library is made ready.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmulator.doors.library import boot
from mmulator.doors.library.machines import ROOM, MachineCode

TABLE, COUNT, RING, ENDED = "mmulator_table", "mmulator_count", "mmulator_ring", "mmulator_ended"
LOGGED, LOG, STATE = "mmulator_logged", "mmulator_log", "mmulator_state"
ENTRIES_OF_RING, ENTRY = 1 << 16, 32  # an entry: the number of the function, from 1 on, and two arguments
ENTRIES_OF_LOG, LOG_ENTRY = 1 << 16, 64  # an entry: the number of the function, from 1 on, and six arguments
_HEADER, _SEGMENT, _SYMBOL, _SECTION, _RELOCATION, _STEP = 64, 56, 24, 64, 24, 32
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
_DT_STRSZ, _DT_SYMENT, _DT_SONAME = 10, 11, 14
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_FUNCTION, _OBJECT = 0x12, 0x11  # global symbols
_IMPORTS = ("dlopen", "dlsym")
_LIBRARIES = ("libdl.so.2", "libc.so.6")


@dataclass(frozen=True)
class Exports:
    """The names that a library exports, and what starts Python for it.

    soname: the name of the library.
    plain, noted, logged: names of the three kinds of functions. The table has slots for `plain`, `logged` and `texts`, in this
        order.
    texts: names of plain functions that return a text, also where Python cannot be started.
    version: the symbol version of all names but `guests`, "" for none.
    guests: those of `plain` that another library has, too, and that are found here first.
    strings: the values of `boot.UNSAID`: without them the library cannot start Python, and Python has to fill the table itself.
    """

    soname: str
    plain: Sequence[str]
    noted: Sequence[str] = ()
    logged: Sequence[str] = ()
    texts: Sequence[str] = ()
    version: str = ""
    guests: Sequence[str] = ()
    strings: Mapping[str, str] | None = None


def library(exports: Exports, host: MachineCode) -> bytes:
    """The bytes of a shared library for a processor.

    The library also exports ENDED, a function that returns CUDA_ERROR_DEINITIALIZED, and the places that Python reads and writes.
    """
    plain, noted, logged, texts_of = exports.plain, exports.noted, exports.logged, exports.texts
    slots = len(plain) + len(logged) + len(texts_of)
    names = [*plain, *logged, *texts_of, *noted, ENDED, TABLE, COUNT, RING, LOGGED, LOG, STATE]
    strings, places = _strings([exports.soname, *_LIBRARIES, *_IMPORTS, *names, *([exports.version] if exports.version else [])])
    native, entry = boot.code(host.TRIPLE, host.CPU)
    symbols = 1 + len(_IMPORTS) + len(names)
    # read-only and executable: header, segments, symbols, strings, hash, versions, relocations, code
    symtab = _HEADER + 4 * _SEGMENT
    strtab = symtab + _SYMBOL * symbols
    hashtab = _up(strtab + len(strings), 8)
    buckets = _hash_table([*_IMPORTS, *names])
    versym = _up(hashtab + len(buckets), 8)
    verdef = _up(versym + (2 * symbols if exports.version else 0), 8)
    rela = _up(verdef + (2 * 28 if exports.version else 0), 8)
    code = _up(rela + _RELOCATION * len(_IMPORTS), 64)
    common = code + _STEP * (slots + len(noted) + 3)
    native_at = common + 256
    end = native_at + len(native)
    # then, on pages of its own, what is written: table, counters, the struct that native code reads, its strings, dynamic section
    table = _up(end, host.PAGE)
    count = table + 8 * slots
    door = count + 16
    words = {name: value.encode() + b"\0" for name, value in {**boot.UNSAID, **boot.NAMES, **(exports.strings or {})}.items()}
    words |= {name: words[name].ljust(ROOM, b"\0") for name in boot.UNSAID}
    texts, at = {}, door + boot.Door.size
    for name in boot.STRINGS:
        texts[name] = at
        at += len(words[name])
    dynamic = _up(at, 16)
    entries = [*((_NEEDED, places[n]) for n in _LIBRARIES), (_DT_SONAME, places[exports.soname]), (_DT_HASH, hashtab),
               (_DT_SYMTAB, symtab), (_DT_SYMENT, _SYMBOL), (_DT_STRTAB, strtab), (_DT_STRSZ, len(strings)),
               (_DT_RELA, rela), (_DT_RELASZ, _RELOCATION * len(_IMPORTS)), (_DT_RELAENT, _RELOCATION)]  # fmt: skip
    if exports.version:
        entries += [(_DT_VERSYM, versym), (_DT_VERDEF, verdef), (_DT_VERDEFNUM, 2)]
    entries.append((0, 0))
    total = dynamic + 16 * len(entries)
    ring = _up(total, 64)  # zeros that the file does not have
    log = ring + ENTRY * ENTRIES_OF_RING

    image = bytearray(total)
    segments = [
        (_LOAD, _READ | _EXECUTE, 0, end, end, host.PAGE),
        (_LOAD, _READ | _WRITE, table, total - table, log + LOG_ENTRY * ENTRIES_OF_LOG - table, host.PAGE),
        (_DYNAMIC, _READ | _WRITE, dynamic, total - dynamic, total - dynamic, 8),
        (_STACK, _READ | _WRITE, 0, 0, 0, 16),
    ]
    for n, (kind, flags, start, size, room, align) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, _HEADER + n * _SEGMENT, kind, flags, start, start, start, size, room, align)

    where: list[tuple[int, int, int]] = []  # kind, address, size: of each name
    start, keep, note = common, common + 96, common + 176
    for n in range(slots):
        at = code + _STEP * n
        _write(image, at, host.stub(at, n, table + 8 * n, keep if len(plain) <= n < len(plain) + len(logged) else start))
        where.append((_FUNCTION, at, _STEP))
    for n in range(len(noted)):
        at = code + _STEP * (slots + n)
        _write(image, at, host.numbered(at, n + 1, note))
        where.append((_FUNCTION, at, _STEP))
    ended, failed, failed_text = (common - n * _STEP for n in (3, 2, 1))
    _write(image, ended, host.returns(4))
    _write(image, failed, host.returns(3))
    _write(image, failed_text, host.returns_place(failed_text, texts["failed_says"]))
    where += [(_FUNCTION, ended, _STEP), (_OBJECT, table, 8 * slots), (_OBJECT, count, 8)]
    where += [(_OBJECT, ring, ENTRY * ENTRIES_OF_RING), (_OBJECT, count + 8, 8), (_OBJECT, log, LOG_ENTRY * ENTRIES_OF_LOG)]
    where.append((_OBJECT, door + boot.Door.offset["state"], 4))
    _write(image, start, host.start(start, table, door, native_at + entry))
    _write(image, keep, host.keep(keep, count + 8, log, ENTRIES_OF_LOG, len(plain), start))
    _write(image, note, host.note(note, count, ring))
    _write(image, native_at, native)

    values = {"slots": slots, "table": door - table, "failed": door - failed, "texts": len(texts_of),
              "failed_text": door - failed_text, **{name: at - door for name, at in texts.items()}}
    for name, value in values.items():
        struct.pack_into("<I" if name in ("slots", "texts") else "<Q", image, door + boot.Door.offset[name], value)
    for name, at in texts.items():
        _write(image, at, words[name])
    for n, name in enumerate(_IMPORTS):
        struct.pack_into("<IBBHQQ", image, symtab + _SYMBOL * (1 + n), places[name], _FUNCTION, 0, 0, 0, 0)
        at = door + boot.Door.offset[name]
        struct.pack_into("<QQq", image, rela + _RELOCATION * n, at, (1 + n) << 32 | host.ADDRESS_OF_SYMBOL, 0)
    for n, (name, (kind, at, size)) in enumerate(zip(names, where), 1 + len(_IMPORTS)):
        struct.pack_into("<IBBHQQ", image, symtab + _SYMBOL * n, places[name], kind, 0, 1, at, size)
    _write(image, strtab, strings)
    _write(image, hashtab, buckets)
    if exports.version:
        versioned = {*names[:slots]} - {*exports.guests}
        kinds = [0, *(1 for _ in _IMPORTS), *(2 if name in versioned else 1 for name in names)]
        struct.pack_into(f"<{symbols}H", image, versym, *kinds)
        for n, (flags, name) in enumerate(((1, exports.soname), (0, exports.version))):
            head = struct.pack("<4HIII", 1, flags, n + 1, 1, _hash(name), 20, 28 if n == 0 else 0)
            _write(image, verdef + 28 * n, head + struct.pack("<II", places[name], 0))
    for n, pair in enumerate(entries):
        struct.pack_into("<QQ", image, dynamic + 16 * n, *pair)
    sections = [
        (".dynsym", 11, _READ, symtab, _SYMBOL * symbols, 2, 1, _SYMBOL), (".dynstr", 3, _READ, strtab, len(strings), 0, 0, 0),
        (".hash", 5, _READ, hashtab, len(buckets), 1, 0, 4),
        *([(".gnu.version", 0x6FFFFFFF, _READ, versym, 2 * symbols, 1, 0, 2),
           (".gnu.version_d", 0x6FFFFFFD, _READ, verdef, 56, 2, 2, 0)] if exports.version else []),
        (".text", 1, _READ | _EXECUTE, code, end - code, 0, 0, 0), (".data", 1, _READ | _WRITE, table, dynamic - table, 0, 0, 0),
        (".dynamic", 6, _READ | _WRITE, dynamic, total - dynamic, 2, 0, 16),
    ]  # fmt: skip
    return _with_sections(image, sections, host.MACHINE)


_SHF = {_READ: 2, _READ | _EXECUTE: 6, _READ | _WRITE: 3}  # flags of a section, by those of its segment


def _with_sections(image: bytearray, sections: Sequence[tuple[str, int, int, int, int, int, int, int]], machine: int) -> bytes:
    """The library with its header and a table of sections behind it, which linkers read."""
    titles, places = _strings([*(s[0] for s in sections), ".shstrtab"])
    names_at = len(image)
    headers = _up(names_at + len(titles), 8)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    number = len(sections) + 2
    image[:_HEADER] = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, _HEADER, headers, 0, _HEADER, _SEGMENT, 4, _SECTION, number,
        number - 1,
    )  # fmt: skip
    out = bytearray(image) + titles + bytes(headers - names_at - len(titles)) + bytes(_SECTION)
    for title, kind, access, at, size, link, info, entry in sections:
        out += struct.pack("<IIQQQQIIQQ", places[title], kind, _SHF[access], at, at, size, link, info, 8, entry)
    return bytes(out + struct.pack("<IIQQQQIIQQ", places[".shstrtab"], 3, 0, 0, names_at, len(titles), 0, 0, 1, 0))


# tables of the dynamic loader -----------------------------------------------------------------------------------------
def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _write(image: bytearray, at: int, data: bytes) -> None:
    image[at : at + len(data)] = data


def _strings(words: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    text = bytearray(b"\0")
    places: dict[str, int] = {}
    for word in words:
        if word not in places:
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
