"""Registers and local memory of a cubin's kernels, as NVIDIA's assembler allocated them.

A cubin is an ELF file; its section `.nv.info` is a list of attributes (a byte of format, a byte of kind, 16 bits of length,
then a symbol and a number), as `cuobjdump -elf` shows them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_REGISTERS, _FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
_VALUE = 4  # the format of attributes with a length


@dataclass
class CubinResources:
    """Resources of a kernel. registers: of a thread. frame: bytes of local memory of a thread."""

    registers: int = 0
    frame: int = 0


def resources(cubin: bytes) -> dict[str, CubinResources]:
    """Resources of each kernel by name; empty for a file that cannot be read."""
    try:
        return _read(cubin)
    except (struct.error, IndexError, StopIteration, UnicodeDecodeError):
        return {}


def _read(data: bytes) -> dict[str, CubinResources]:
    sections, size, number, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<3H", data, 58)
    table = [struct.unpack_from("<IIQQQQIIQQ", data, sections + n * size) for n in range(number)]

    def content(n: int) -> bytes:
        return data[table[n][4] : table[n][4] + table[n][5]]

    labels = content(names)
    titles = {_string(labels, row[0]): n for n, row in enumerate(table)}
    symbols = content(titles[".symtab"])
    strings = content(table[titles[".symtab"]][6])
    found: dict[str, CubinResources] = {}
    for kind, symbol, value in _attributes(content(titles[".nv.info"])) if ".nv.info" in titles else ():
        name = _string(strings, struct.unpack_from("<I", symbols, symbol * 24)[0])
        kernel = found.setdefault(name, CubinResources())
        if kind == _REGISTERS:
            kernel.registers = value
        elif kind == _FRAME:
            kernel.frame = value
    return found


def _attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    at = 0
    while at + 4 <= len(info):
        form, kind, size = info[at], info[at + 1], struct.unpack_from("<H", info, at + 2)[0]
        if form == _VALUE:
            if size == 8:
                yield kind, *struct.unpack_from("<II", info, at + 4)
            at += 4 + size
        else:
            at += 4


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
