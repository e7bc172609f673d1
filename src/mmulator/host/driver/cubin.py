"""Facts of a cubin about its kernels, as NVIDIA's assembler allocated them: registers, local memory, threads.

A cubin is an ELF file; its sections `.nv.info` (of all kernels) and `.nv.info.NAME` (of one) are lists of attributes (a byte of
format, a byte of kind, 16 bits of length, then the value), as `cuobjdump -elf` shows them.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_THREADS, _REQUIRED_THREADS, _FRAME, _MIN_STACK, _REGISTERS = 0x05, 0x10, 0x11, 0x12, 0x2F  # EIATTR_MAX_THREADS, ...
_SIZED = 4  # the format of attributes with a length


@dataclass
class CubinResources:
    """The resources of a kernel.

    registers: of a thread. frame: bytes of local memory of a thread. stack: the same, with those of the functions it calls.
    threads: the most of a block.
    """

    registers: int = 0
    frame: int = 0
    stack: int = 0
    threads: int = 1024


def resources(cubin: bytes) -> dict[str, CubinResources]:
    """The resources of each kernel by name; nothing for a file that is damaged or no cubin."""
    try:
        return _read(cubin)
    except (struct.error, ArithmeticError, LookupError, ValueError):
        return {}


def _read(elf: bytes) -> dict[str, CubinResources]:
    start, size, number, names = *struct.unpack_from("<Q", elf, 40), *struct.unpack_from("<3H", elf, 58)
    rows = [struct.unpack_from("<IIQQQQII", elf, start + n * size) for n in range(number)]
    contents = [elf[row[4] : row[4] + row[5]] for row in rows]
    titles = {_string(contents[names], row[0]): n for n, row in enumerate(rows)}
    found = {title[6:]: CubinResources(rows[n][7] >> 24) for title, n in titles.items() if title.startswith(".text.")}
    for title, n in titles.items():
        for kind, value in _attributes(contents[n]) if title.startswith(".nv.info.") else ():
            if kind in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) == 12:
                found.setdefault(title[9:], CubinResources()).threads = math.prod(struct.unpack("<3I", value))
    symbols = titles[".symtab"]
    for kind, value in _attributes(contents[titles[".nv.info"]]) if ".nv.info" in titles else ():
        if len(value) == 8:
            symbol, given = struct.unpack("<2I", value)
            name = _string(contents[rows[symbols][6]], struct.unpack_from("<I", contents[symbols], symbol * 24)[0])
            kernel = found.setdefault(name, CubinResources())
            kernel.registers = given if kind == _REGISTERS else kernel.registers
            kernel.frame = given if kind == _FRAME else kernel.frame
            kernel.stack = max(kernel.stack, given) if kind in (_FRAME, _MIN_STACK) else kernel.stack
    return found


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield kind, info[at : at + size]
            at += size


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
