"""What programs hand to the driver to load, and the PTX that is in it.

An image is PTX, or a cubin that a door made: behind the last byte of the cubin stands the PTX that it was made from. So
caches and pickles of other libraries keep both together, and tools that read cubins still can.
"""

from __future__ import annotations

import ctypes
import struct

from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.errors import UnsupportedError

MARK = b"\nMMULATOR PTX\n"
_ELF, _FATBIN, _WRAPPER = b"\x7fELF", 0xBA55ED50, 0x466243B1


def with_ptx(cubin: bytes, ptx: str | bytes) -> bytes:
    """A cubin that knows its PTX."""
    data = ptx.encode() if isinstance(ptx, str) else ptx
    return cubin + MARK + data.rstrip(b"\0") + b"\0"


def ptx_within(data: bytes) -> str | None:
    """The PTX of a cubin that knows it, or None."""
    at = data.rfind(MARK)
    return data[at + len(MARK) :].rstrip(b"\0").decode() if at >= 0 else None


def elf_size(header: bytes) -> int:
    """Bytes of an ELF file, by its first 64: up to the end of its tables of segments and of sections, which stand last."""
    program, sections = struct.unpack_from("<QQ", header, 32)
    program_size, programs, section_size, number = struct.unpack_from("<HHHH", header, 54)
    return max(sections + section_size * number, program + program_size * programs, 64)


def ptx_at(address: int) -> tuple[str, bytes]:
    """The PTX of the image at an address, and the cubin that it comes with, if it does. Raises Refused."""
    if not address:
        raise Refused(Code.INVALID_VALUE)
    head = ctypes.string_at(address, 4)
    if head == _ELF:
        size = elf_size(ctypes.string_at(address, 64))
        if ctypes.string_at(address + size, len(MARK)) == MARK:
            return ctypes.string_at(address + size + len(MARK)).decode(), ctypes.string_at(address, size)
        raise Refused(Code.NO_BINARY_FOR_GPU, UnsupportedError(
            "a cubin without its PTX cannot be run: it is machine code of a GPU", hint="compile to PTX"))  # fmt: skip
    if int.from_bytes(head, "little") in (_FATBIN, _WRAPPER):
        raise Refused(Code.NO_BINARY_FOR_GPU, UnsupportedError("a fatbin is not read yet", hint="load the PTX that is in it"))
    try:
        found = ctypes.string_at(address).decode()
    except UnicodeDecodeError:
        found = ""
    if ".version" not in found:
        raise Refused(Code.INVALID_IMAGE, UnsupportedError("this image is neither PTX nor a cubin"))
    return found, b""
