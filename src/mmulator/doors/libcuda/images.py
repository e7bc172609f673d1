"""Images that programs give to the driver to load, and the PTX in them.

An image is PTX, or a cubin that a door made: behind the last byte of the cubin stands the PTX that it was made from. So
caches and pickles of other libraries keep both together, and tools that read cubins still can.
"""

from __future__ import annotations

import struct

from mmulator.doors.libcuda import caller
from mmulator.doors.libcuda.abi import Refused, get_bytes, text
from mmulator.doors.libcuda.codes import Code
from mmulator.errors import UnsupportedError

MARK = b"\nMMULATOR PTX\n"
_ELF, _FATBIN, _WRAPPER = b"\x7fELF", 0xBA55ED50, 0x466243B1


def with_ptx(cubin: bytes, ptx: str | bytes) -> bytes:
    """A cubin with its PTX behind it."""
    data = ptx.encode() if isinstance(ptx, str) else ptx
    return cubin + MARK + data.rstrip(b"\0") + b"\0"


def ptx_within(data: bytes) -> str | None:
    """The PTX behind a cubin, or None."""
    at = data.rfind(MARK)
    return data[at + len(MARK) :].rstrip(b"\0").decode() if at >= 0 else None


def elf_size(header: bytes) -> int:
    """Size in bytes of an ELF file, from its first 64: up to the end of its tables of segments and of sections, which stand
    last.
    """
    program, sections = struct.unpack_from("<QQ", header, 32)
    program_size, programs, section_size, number = struct.unpack_from("<HHHH", header, 54)
    return max(sections + section_size * number, program + program_size * programs, 64)


def ptx_at(address: int) -> tuple[str, bytes]:
    """(PTX of the image at an address, the cubin before it or nothing). Raises Refused."""
    if not address:
        raise Refused(Code.INVALID_VALUE)
    head = get_bytes(address, 4)
    if head == _ELF:
        size = elf_size(get_bytes(address, 64))
        if caller.read(address + size, len(MARK)) == MARK:  # whatever the header says: there may be nothing at all
            return text(address + size + len(MARK)), get_bytes(address, size)
        raise Refused(Code.NO_BINARY_FOR_GPU, UnsupportedError(
            "a cubin without its PTX cannot be run: it is machine code of a GPU", hint="compile to PTX"))  # fmt: skip
    if int.from_bytes(head, "little") == _WRAPPER:
        at = int.from_bytes(get_bytes(address + 8, 8), "little")
        hs, size = struct.unpack_from("<HQ", get_bytes(at, 16), 6)
        p, end = at + hs, at + hs + size
        while p < end:
            e = get_bytes(p, 64)
            kind, = struct.unpack_from("<H", e, 0); h, = struct.unpack_from("<I", e, 4); sz, = struct.unpack_from("<Q", e, 8); cs, = struct.unpack_from("<I", e, 16)
            flags, = struct.unpack_from("<Q", e, 40); full, = struct.unpack_from("<Q", e, 56)
            if kind == 1:
                d = get_bytes(p + h, sz)
                if flags & 0x8000:
                    import zstandard
                    d = zstandard.ZstdDecompressor().decompress(d[:cs or None], full)
                return d.rstrip(b"\0").decode(), b""
            p += h + sz
    if int.from_bytes(head, "little") in (_FATBIN, _WRAPPER):
        raise Refused(Code.NO_BINARY_FOR_GPU, UnsupportedError("a fatbin is not read yet", hint="load the PTX that is in it"))
    found = text(address)
    if ".version" not in found:
        raise Refused(Code.INVALID_IMAGE, UnsupportedError("this image is neither PTX nor a cubin"))
    return found, b""
