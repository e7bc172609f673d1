"""Cubins, machine code of a GPU, with the PTX that they were made from behind their last byte.

So caches and pickles of other libraries keep both together, and tools that read cubins still can.
"""

import struct

ELF = b"\x7fELF"
MARK = b"\nMMULATOR PTX\n"
_MACHINE, _NEW = 190, 0x41  # number of CUDA among machines; of files whose flags have the target in their second byte


def with_ptx(cubin: bytes, ptx: str | bytes) -> bytes:
    """A cubin with its PTX behind it."""
    data = ptx.encode() if isinstance(ptx, str) else ptx
    return cubin + MARK + data.rstrip(b"\0") + b"\0"


def ptx_within(data: bytes) -> str | None:
    """The PTX behind a cubin, or None."""
    at = data.rfind(MARK)
    return data[at + len(MARK) :].rstrip(b"\0").decode(errors="replace") if at >= 0 else None


def elf_size(header: bytes) -> int:
    """Size in bytes of an ELF file, from its first 64: up to the end of its tables of segments and of sections, which stand
    last.
    """
    program, sections = struct.unpack_from("<QQ", header, 32)
    program_size, programs, section_size, number = struct.unpack_from("<HHHH", header, 54)
    return max(sections + section_size * number, program + program_size * programs, 64)


def number_of(data: bytes) -> int | None:
    """The number of a cubin's target, 90 for sm_90a; None for another file."""
    if len(data) < 64 or not data.startswith(ELF) or int.from_bytes(data[18:20], "little") != _MACHINE:
        return None
    flags = int.from_bytes(data[48:52], "little")
    return flags >> 8 & 255 if data[7] == _NEW else flags & 255
