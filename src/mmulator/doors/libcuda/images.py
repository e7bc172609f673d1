"""Images that programs give to the driver to load, and the PTX in them.

An image is PTX, a fat binary, or a cubin with its PTX behind it.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.doors.libcuda import caller
from mmulator.doors.libcuda.abi import Refused, get, get_bytes, text
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import state
from mmulator.ptx.toolkit import fatbin
from mmulator.ptx.toolkit.cubin import ELF, MARK, elf_size, number_of
from mmulator.ptx.toolkit.joining import join

elsewhere: list[Callable[[bytes], str | None]] = []  # of compilers that keep PTX apart: the PTX of a cubin
_LINKED = 2  # version of a wrapper with a list of what was linked


def ptx_at(address: int) -> tuple[str, bytes]:
    """(PTX of the image at an address, the cubin before it or nothing). Raises Refused."""
    if not address:
        raise Refused(Code.INVALID_VALUE)
    head = get_bytes(address, 4)
    magic = int.from_bytes(head, "little")
    if magic in (fatbin.MAGIC, fatbin.WRAPPER):
        try:
            return _ptx_of_fatbins(list(_fatbins(address, magic)), state().driver.device.name), b""
        except UnsupportedError as error:
            raise Refused(Code.NO_BINARY_FOR_GPU, error) from None
        except MmulatorError as error:
            raise Refused(Code.INVALID_IMAGE, error) from None
    if head == ELF:
        size = elf_size(get_bytes(address, 64))
        if caller.read(address + size, len(MARK)) == MARK:  # whatever the header says: there may be nothing at all
            return text(address + size + len(MARK)), get_bytes(address, size)
        if elsewhere and (ptx := _kept(cubin := caller.read(address, size))):
            return ptx, cubin
        raise Refused(Code.NO_BINARY_FOR_GPU, _without_ptx(number_of(get_bytes(address, 64))))
    found = text(address)
    if ".version" not in found:
        raise Refused(Code.INVALID_IMAGE, UnsupportedError("this image is neither PTX nor a cubin"))
    return found, b""


def _kept(cubin: bytes) -> str | None:
    """The PTX of a cubin that its compiler keeps apart, or None."""
    return next((ptx for find in elsewhere if (ptx := find(cubin))), None)


def _without_ptx(number: int | None) -> UnsupportedError:
    what = "a cubin without its PTX cannot be run: it is machine code of " + (f"sm_{number}" if number else "a GPU")
    hint = f"compile with {fatbin.keeping(fatbin.own_target(f'sm_{number}'))}" if number else "compile to PTX"
    return UnsupportedError(what, hint=hint)


def _fatbins(address: int, magic: int) -> Iterator[int]:
    """Addresses of the fat binaries of an image: itself, or that of a wrapper and, of a program linked with -rdc=true, those that
    were linked.
    """
    if magic == fatbin.MAGIC:
        yield address
        return
    _, version, at, linked = struct.unpack("<IIQQ", get_bytes(address, 24))
    yield at
    while version == _LINKED and linked and (at := get(linked)):
        yield at
        linked += 8


def _ptx_of_fatbins(addresses: Sequence[int], device: str) -> str:
    """The PTX of the first fat binary, or, if that has none, of all others, linked. The device runtime is left out: what it
    defines is not modelled, and a kernel that calls it is refused by the name of the function.
    """
    found = [fatbin.entries(partial(_read_from, address)) for address in addresses]
    first, *others = found
    if own := fatbin.chosen(first, device):
        return own.text()
    for entry in first if elsewhere else ():
        if entry.kind == "machine code" and (ptx := _kept(entry.data())):
            return ptx
    best = [fatbin.chosen(entries, device) for entries in others if not fatbin.is_device_runtime(entries)]
    if not best or None in best:
        raise fatbin.missing([e for entries in found for e in entries], device)
    return join([entry.text() for entry in best if entry])


def _read_from(address: int, at: int, size: int) -> bytes:
    return caller.read(address + at, size)
