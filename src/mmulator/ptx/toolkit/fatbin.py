"""Fat binaries: what nvcc makes of a source for several targets, PTX and machine code, each packed or not.

A fat binary is a header (magic, version, size of the header, size of all entries) and its entries, each a header and its bytes.
They are read through a function, so that files and memory are read alike, and nothing is read that is not needed.
"""

import io
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mmulator.base.codegen.locks import remaining
from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.isa.targets import TARGETS, Target

MAGIC, WRAPPER = 0xBA55ED50, 0x466243B1
LARGEST = 1 << 28  # bytes of a PTX text, unpacked
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQI8xI8xQ8xQ")  # kind, version, header, size, packed size, number of the target, flags, unpacked size
_SHORTEST = 64  # bytes of an entry's header
_KINDS = {1: "PTX", 2: "machine code", 8: "LTO-IR"}
DEVICE_RUNTIME = "_cuda_device_runtime_cu_"  # in names of libcudadevrt, whatever its release
_LZ4, _ZSTD, _OF_CHIP, _OF_FAMILY = 0x2000, 0x8000, 0x100000, 0x200000

Read = Callable[[int, int], bytes]  # so many bytes from an offset; fewer where there are no more


@dataclass(frozen=True)
class FatEntry:
    """An entry of a fat binary.

    kind: `PTX`, `machine code` or `LTO-IR`. target: what it is for. read, at, size: where its bytes are. flags: how they are
    packed. unpacked: bytes without packing.
    """

    kind: str
    target: Target
    read: Read
    at: int
    size: int
    flags: int
    unpacked: int

    def data(self) -> bytes:
        """The bytes, unpacked. Raises MmulatorError for damaged ones."""
        packed = self.flags & (_LZ4 | _ZSTD)
        size = self.unpacked if packed else self.size
        if max(size, self.size) > LARGEST:
            most = max(size, self.size)
            raise MmulatorError(f"the {self.kind} for {self.target} has {most} bytes, and at most {LARGEST} are unpacked")
        found = self.read(self.at, self.size)
        if len(found) < self.size:
            raise _damaged(f"the {self.kind} for {self.target} ends behind {len(found)} of {self.size} bytes")
        try:
            return (unzstd if packed & _ZSTD else unlz4)(found, size) if packed else found
        except MmulatorError as error:
            raise type(error)(f"the {self.kind} for {self.target}: {error.message}", hint=error.hint) from None

    def text(self) -> str:
        """The PTX. Raises MmulatorError for damaged bytes."""
        return self.data().partition(b"\0")[0].decode(errors="replace")


def reader(data: bytes, start: int = 0) -> Read:
    """The function that reads from bytes. start: offset of the fat binary in them."""
    return lambda at, size: data[start + at : start + at + size]


def entries(read: Read) -> tuple[FatEntry, ...]:
    """The entries of a fat binary. Raises MmulatorError for a damaged one."""
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size:
        raise _damaged(f"it ends in its header of {_HEADER.size} bytes")
    magic, _, header, size = _HEADER.unpack(head)
    if magic != MAGIC or header < _HEADER.size:
        raise _damaged(f"its header is {head.hex(' ')}")
    found: list[FatEntry] = []
    at, end = header, header + size
    while at < end:
        where = f"entry {len(found) + 1}, at byte {at},"
        piece = read(at, _SHORTEST)
        if len(piece) < _SHORTEST or at + _SHORTEST > end:
            raise _damaged(f"{where} ends in its header")
        kind, _, header, size, packed_size, number, flags, unpacked = _ENTRY.unpack(piece)
        used = packed_size if flags & (_LZ4 | _ZSTD) else size
        if header < _SHORTEST or at + header + size > end or used > size:
            raise _damaged(f"{where} has a header of {header} bytes and {size} of content, of {end - at} that are left")
        target = Target(number, "a" if flags & _OF_CHIP else "f" if flags & _OF_FAMILY else "")
        found.append(FatEntry(_KINDS.get(kind, f"content of kind {kind}"), target, read, at + header, used, flags, unpacked))
        at += header + size
    return tuple(found)


def size_of(read: Read) -> int:
    """Bytes of a fat binary with its header, as that says."""
    return sum(_HEADER.unpack(read(0, _HEADER.size))[2:])


def is_device_runtime(found: Sequence[FatEntry]) -> bool:
    """Whether a fat binary is that of libcudadevrt, which nvcc links to kernels that launch kernels."""
    return bool(found) and DEVICE_RUNTIME.encode() in found[0].data()


def chosen(found: Iterable[FatEntry], device: str) -> FatEntry | None:
    """The PTX that CUDA's driver takes for a device (`sm_90`): the device's own, or its family's, or the highest general one that
    is not above the device; None for none.
    """
    fit = [e for e in found if e.kind == "PTX" and e.target.runs_on(device)]
    return max(fit, key=lambda e: (("", "f", "a").index(e.target.suffix), e.target.number), default=None)


def missing(found: Sequence[FatEntry], device: str, name: str = "the fat binary") -> UnsupportedError:
    """The error for entries among which is no PTX for a device. name: whose entries they are."""
    kinds: dict[str, list[str]] = {}
    for entry in found:
        kinds.setdefault(entry.kind, []).append(str(entry.target))
    held = " and ".join(f"{kind} for {', '.join(dict.fromkeys(targets))}" for kind, targets in kinds.items())
    fit = [e.target for e in found if e.target.runs_on(device)]
    other = "PTX" in kinds
    return UnsupportedError(
        f"{name} has no PTX that runs on {device}, but {held or 'nothing at all'}",
        rule="PTX runs on its own chip, and on later ones where its target has no suffix" if other else
        "machine code and LTO-IR run on a GPU alone; nvcc keeps the PTX where code= names compute_NN",
        hint=f"{'ask for another device, or ' * other}compile with {keeping(max(fit, default=own_target(device)))}",
    )  # fmt: skip


def own_target(device: str) -> Target:
    """The target that has all instructions of a device: sm_90a of sm_90."""
    number = int(device[3:])
    own = Target(number, "a")
    return own if own in TARGETS else Target(number)


def keeping(target: Target) -> str:
    """The flag of nvcc that keeps the PTX for a target beside its machine code."""
    number = str(target).removeprefix("sm_")
    return f"-gencode arch=compute_{number},code=[compute_{number},sm_{number}]"


def _damaged(what: str) -> MmulatorError:
    return MmulatorError(f"the fat binary is damaged: {what}")


_LEAST = 4  # bytes of a repetition of LZ4
_PIECE = 1 << 20
_LOOK = 4096  # packed bytes after which the time limit is looked at


def unzstd(packed: bytes, size: int) -> bytes:
    """The `size` bytes that a zstd frame holds. Raises MmulatorError for a damaged frame, or one that holds another number."""
    stream, failure = _zstd_stream(packed)
    found = bytearray()
    try:
        while len(found) <= size and (piece := stream.read(min(_PIECE, size + 1 - len(found)))):
            remaining()
            found += piece
    except (failure, EOFError) as error:
        raise MmulatorError(f"a zstd frame is damaged: {error}") from None
    return _whole(found, size)


def _zstd_stream(packed: bytes) -> tuple[Any, type[Exception]]:
    """(a file of the unpacked bytes, the error of reading it)."""
    try:
        zstd: Any = import_module("compression.zstd")  # Python 3.14
        return zstd.ZstdFile(io.BytesIO(packed)), zstd.ZstdError
    except ImportError:
        pass
    try:
        zstd = import_module("zstandard")
    except ImportError:
        raise UnsupportedError("packed with zstd, which this Python cannot read", hint="pip install zstandard") from None
    return zstd.ZstdDecompressor().stream_reader(io.BytesIO(packed)), zstd.ZstdError


def unlz4(packed: bytes, size: int) -> bytes:
    """The `size` bytes that a block of LZ4 holds. Raises MmulatorError for a damaged block, or one that holds another number."""
    out, at, look = bytearray(), 0, 0
    try:
        while at < len(packed):
            if at >= look:
                remaining()
                look = at + _LOOK
            token = packed[at]
            count, at = _count(packed, at + 1, token >> 4)
            out += packed[at : at + count]
            at += count
            if at == len(packed):  # the last sequence has no repetition
                break
            back = packed[at] | packed[at + 1] << 8
            count, at = _count(packed, at + 2, token & 15)
            start, count = len(out) - back, count + _LEAST
            if not back or start < 0 or at > len(packed) or len(out) + count > size:
                raise IndexError
            while count > 0:  # what is repeated may begin in the repetition
                piece = out[start : start + count]
                out += piece
                count -= len(piece)
    except IndexError:
        raise MmulatorError("a block of LZ4 is damaged") from None
    return _whole(out, size)


def _count(packed: bytes, at: int, count: int) -> tuple[int, int]:
    """(a length, the position of the byte after it) in LZ4: bytes after a 15 are added to it, up to the first that is not 255."""
    if count == 15:
        while packed[at] == 255:
            count, at = count + 255, at + 1
        count, at = count + packed[at], at + 1
    return count, at


def _whole(found: bytearray, size: int) -> bytes:
    if len(found) != size:
        held = "more" if len(found) > size else f"{len(found)} bytes"
        raise MmulatorError(f"{size} bytes are announced, and {held} come out of it")
    return bytes(found)
