"""Registers, spills and threads of a cubin's kernel. A cubin is ELF, with NVIDIA's sections `.text.NAME` and `.nv.info.NAME`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAX_THREADS, _REQUIRED_THREADS, _FRAME, _MIN_STACK, _REGISTERS = 0x05, 0x10, 0x11, 0x12, 0x2F  # attributes of .nv.info
_SIZED = 4  # a format of attributes: a length and bytes follow
REGISTERS = 65536  # of a multiprocessor


class KernelResources(NamedTuple):
    """registers of a thread, spills in words of a thread, max_threads of a block."""

    registers: int
    spills: int
    max_threads: int


def resources(cubin: bytes, name: str) -> KernelResources:
    """Resources of a kernel of a cubin; (0, 0, 1024), which says nothing, for bytes that are no ELF file."""
    if cubin[:4] != b"\x7fELF":
        return KernelResources(0, 0, 1024)
    registers, stack, threads = 0, 0, 1024
    for section, info, data in _sections(cubin):
        if section == f".text.{name}":
            registers = registers or info >> 24
        elif section == f".nv.info.{name}":
            for attribute, value in _attributes(data):
                if attribute in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) == 12:
                    x, y, z = struct.unpack("<3I", value)
                    threads = x * y * z
        elif section == ".nv.info":
            for attribute, value in _attributes(data):
                if len(value) == 8:  # a symbol and a number; of Triton's cubins the only kernel
                    number = struct.unpack("<2I", value)[1]
                    registers = number if attribute == _REGISTERS else registers
                    stack = max(stack, number) if attribute in (_FRAME, _MIN_STACK) else stack
    fit = REGISTERS // (-(-registers // 8) * 8 * 32) * 32 if registers else 1024
    return KernelResources(registers, stack // 4, min(threads, fit, 1024))


def _sections(elf: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(name, info, bytes) of each section."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<3H", elf, 0x3A)
    rows = [struct.unpack_from("<IIQQQQII", elf, start + n * size) for n in range(count)]
    text = rows[names][4]
    for name, kind, _, _, offset, length, _, info in rows:
        end = elf.index(b"\0", text + name)
        yield elf[text + name : end].decode("utf-8", "replace"), info, b"" if kind == 8 else elf[offset : offset + length]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            yield attribute, data[at : at + length]
            at += length
