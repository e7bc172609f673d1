"""Arguments of a launch as Triton passes them, converted to the bytes of the parameter memory and the regions that kernels may
use.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any

from mmulator.base.errors import InternalError, LaunchError, UnsupportedError, shown
from mmulator.base.interop import named_dtype
from mmulator.doors.triton import descriptors
from mmulator.doors.triton.arrays import ArrayPointer, stand_in
from mmulator.doors.triton.descriptors import DescriptorSlot, Map, Meta, Path, PendingDescriptor
from mmulator.doors.triton.versions import Interface
from mmulator.host.driver import Region
from mmulator.matrix.layouts.tensormap.fields import BYTES as MAP_BYTES
from mmulator.observation.record.names import DeviceArray
from mmulator.observation.record.values import dtype_of
from mmulator.ptx.symbols import Parameter
from mmulator.runtime.launch.regions import room_behind

Regions = dict[int, Region]  # by their first byte
Convert = Callable[[Any, Regions], Any]
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q", MAP_BYTES: f"{MAP_BYTES}s"}  # by bytes; Triton declares a half as two bytes


_ELEMENTS = {  # PTX types of Triton's element types
    "fp64": "f64", "fp32": "f32", "fp16": "f16", "bf16": "bf16", "fp8e4nv": "e4m3", "fp8e5": "e5m2", "i1": "u8",
    **{f"{x}{bits}": f"{y}{bits}" for x, y in (("i", "s"), ("u", "u")) for bits in (8, 16, 32, 64)},
}  # fmt: skip
_DOOR, _modules = "mmulator.doors.torch", sys.modules


# pointers -------------------------------------------------------------------------------------------------------------
def torch_door() -> Any:
    """The door of torch, if it is open: then tensors that say cuda are in this machine's memory, and those that say cpu are no
    GPU's.
    The module is looked up, not imported: its import imports torch.
    """
    door = _modules.get(_DOOR)
    return door if door is not None and door.installed() else None


def address_of(value: Any, label: str, number: int, regions: Regions) -> int:
    """The address that an argument stands for. Raises LaunchError.

    value: the argument.
    label: its name, for messages.
    number: of the parameter.
    regions: receives the memory that the address lies in.
    """
    if type(value) is ArrayPointer:
        if value.size:
            _give(Region(value.start, value.size, label, value.writable, value.room, value.owner), regions)
        return value.address
    try:
        memory, offset = value.untyped_storage(), value.storage_offset()  # most others are tensors
    except AttributeError:
        return _address_of_other(value, label, number, regions)
    start: int = memory.data_ptr()
    if _DOOR in _modules or not value.is_cpu:
        _check_device(value, label, number, torch_door(), start)
    if not start:
        return 0
    size: int = memory.nbytes()
    room = room_behind(size) if size & 3 and memory.resizable() else 0  # torch's own blocks are whole words
    made = Region(start, size, label, True, room, memory)
    if regions.setdefault(start, made) is not made:
        _give(made, regions)
    return start + offset * value.element_size() if offset else start


def _address_of_other(value: Any, label: str, number: int, regions: Regions) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFFFFFFFFFFFFFFFF
    base = getattr(value, "base", None)
    if base is not None and hasattr(base, "data_ptr"):  # triton.reinterpret
        return address_of(base, label, number, regions)
    if not hasattr(value, "data_ptr"):
        other = stand_in(value)
        if isinstance(other, ArrayPointer):
            return _address_of_other(other, label, number, regions)
        raise LaunchError(f"{label} is of type {type(value).__name__}: a pointer wants a tensor, an array, an address or None")
    address, size = int(value.data_ptr()), getattr(value, "nbytes", 0)
    if hasattr(value, "untyped_storage"):  # an object of a program for a part of a tensor's memory
        memory = value.untyped_storage()
        _give(Region(memory.data_ptr(), memory.nbytes(), label, owner=memory), regions)
    elif isinstance(size, int) and size:
        _give(Region(address, size, label, owner=value), regions)
    return address


def _give(region: Region, regions: Regions) -> None:
    known = regions.setdefault(region.start, region)
    if known is not region and known.label != region.label:
        longer, other = (known, region) if known.size > region.size else (region, known)
        regions[region.start] = Region(
            region.start, longer.size, f"{known.label} and {region.label}", region.writable or known.writable, longer.room,
            (longer.owner, other.owner),
        )  # fmt: skip


def _check_device(value: Any, label: str, number: int, door: Any, address: int) -> None:
    if value.is_cpu if door is None else value.is_cuda:
        return
    where = str(value.device)
    if where == "meta":
        raise LaunchError(f"{label} is a meta tensor, which has no memory")
    if door is not None and where == "cpu":
        if address and not value.is_pinned():
            raise LaunchError(
                f"Pointer argument (at {number}) cannot be accessed from Triton (cpu tensor?)",
                hint=f"{label} is on the CPU: move it, with .cuda()",
            )
        return
    raise LaunchError(
        f"{label} is a tensor on {where}, a real device, and the kernel runs on this machine's processor",
        hint="pass x.cpu(), or let Triton use the GPU: unset TRITON_DEFAULT_BACKEND",
    )


# scalars --------------------------------------------------------------------------------------------------------------
def _integer(label: str, bits: int, signed: bool) -> Convert:
    """Converter of integers, as in Triton's launcher: any that fits 64 bits, of which the lower ones are passed."""
    low, high = (-(1 << 63), 1 << 63) if signed else (0, 1 << 64)
    mask = (1 << bits) - 1

    def convert(value: Any, regions: Regions) -> int:
        try:
            number = index(value)
        except TypeError:
            raise LaunchError(f"{label} wants an integer, not {shown(value)} of type {type(value).__name__}") from None
        if not low <= number < high:
            raise LaunchError(f"{label}: {shown(number)} does not fit {'a signed' if signed else 'an unsigned'} 64-bit integer")
        return number & mask

    return convert


def f32(value: float) -> bytes:
    """Bytes of a double cast to float as C does."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


# The bits of a scalar. A bf16 is the upper half of the f32: Triton's launcher does not round.
_FLOATS: dict[str, Callable[[float], bytes]] = {
    "fp16": lambda v: struct.pack("<e", v), "bf16": lambda v: f32(v)[2:], "fp32": f32, "f32": f32,
    "fp64": lambda v: struct.pack("<d", v),
}  # fmt: skip


def _float(label: str, ty: str) -> Convert:
    pack = _FLOATS[ty]

    def convert(value: Any, regions: Regions) -> int:
        try:
            return int.from_bytes(pack(float(value)), "little")
        except (TypeError, ValueError):
            raise LaunchError(f"{label} wants a number, not {shown(value)} of type {type(value).__name__}") from None
        except OverflowError:
            raise LaunchError(f"{label}: {shown(value)} does not fit {ty}") from None

    return convert


# plans ----------------------------------------------------------------------------------------------------------------
def slots(signature: dict[Any, Any], version: Interface, maps: Sequence[Meta] | None) -> Iterator[DescriptorSlot]:
    """The parameters of a kernel with a signature of Triton's. Raises UnsupportedError.

    maps: the compiler's notes about each tensor descriptor, in the order of the signature; None where the compiler takes
        descriptors
    apart.
    """
    metas = iter(maps or ())

    def of(ty: Any, label: str, path: Path) -> Iterator[DescriptorSlot]:
        if isinstance(ty, tuple):
            for n, item in enumerate(ty):  # a named tuple and a plain one share a compiled kernel
                yield from of(item, f"{label}, item {n}", (*path, n))
        elif ty.startswith("tensordesc"):
            yield from descriptors.slots(ty, label, path, version, next(metas, None))
        elif ty != "constexpr":
            yield DescriptorSlot(ty, label, path)

    for n, (name, ty) in enumerate(signature.items()):
        yield from of(ty, f"argument {n} ({name})" if isinstance(name, str) else f"argument {n}", (n,))


class Packer:
    """Converts the arguments of one kernel to bytes. slots: its parameters. scratch: pointers behind them that the compiler
    added.
    """

    def __init__(
        self, kernel: str, wanted: Sequence[DescriptorSlot], params: Sequence[Parameter], offsets: Sequence[int], size: int
    ) -> None:
        self.scratch = len(params) - len(wanted)
        if not 0 <= self.scratch <= 2:
            raise InternalError(f"{kernel} has {len(params)} parameters where Triton's signature has {len(wanted)}")
        self.flat = all(len(s.path) == 1 and s.part is None for s in wanted)
        self.indices = [s.path[0] for s in wanted]
        self.wanted = wanted
        self.converts = [_convert(s, n, p) for n, (s, p) in enumerate(zip(wanted, params))]
        self.struct = struct.Struct(_format(params, offsets, size))

    def pack(self, args: Sequence[Any], scratch: Sequence[Any]) -> tuple[bytes, list[Region]]:
        """(parameter memory, regions). Raises LaunchError.

        args: as Triton passes them, constants among them.
        scratch: buffers for the pointers at the end.
        """
        regions: Regions = {}
        values = [args[n] for n in self.indices] if self.flat else [_at(args, s) for s in self.wanted]
        words = [convert(value, regions) for convert, value in zip(self.converts, values)]
        for n, name in zip(range(self.scratch), ("global scratch memory", "profile scratch memory")):
            words.append(address_of(scratch[n], name, len(words), regions) if scratch[n] is not None else 0)
        return self.struct.pack(*words), list(regions.values())


    def arrays(self, args: Sequence[Any]) -> list[DeviceArray]:
        """The tensors and arrays among the arguments, by their names. args: as Triton passes them."""
        found = []
        for slot in self.wanted:
            value = _at(args, slot)
            base = getattr(value, "base", None)
            value = base if base is not None and hasattr(base, "data_ptr") else value
            if slot.ty[:1] in "*n" and hasattr(value, "data_ptr") and hasattr(value, "stride"):  # pointers and nvTmaDesc
                own = str(value.dtype).rpartition(".")[2]
                dtype = dtype_of(_ELEMENTS.get(slot.ty[1:], "u8")) if slot.ty[0] == "*" else named_dtype(own)
                size = value.element_size()
                shape, strides = tuple(value.shape), tuple(n * size for n in value.stride())
                reach = size + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0
                contiguous = () if value.is_contiguous() else strides
                name = slot.label.rpartition("(")[2].rstrip(")")
                found.append(DeviceArray(name, int(value.data_ptr()), reach, shape, size, dtype, contiguous))
        return found


def _at(args: Sequence[Any], slot: DescriptorSlot) -> Any:
    value: Any = args
    for n in slot.path:
        value = value[n]
    return slot.part(value) if slot.part else value


def _convert(slot: DescriptorSlot, number: int, param: Parameter) -> Convert:
    ty, label = slot.ty, slot.label
    if ty == "nvTmaDesc":
        return lambda value, regions: _map(value, label, number, regions)
    if ty[0] == "*":
        return lambda value, regions: address_of(value, label, number, regions)
    if ty in _FLOATS:
        return _float(label, ty)
    if ty[0] in "iu" and ty[1:].isdigit():
        return _integer(label, 8 * param.size, signed=ty[0] == "i")
    raise UnsupportedError(f"{label} is of Triton's type {ty}, which is not supported")


def _map(value: Any, label: str, number: int, regions: Regions) -> bytes:
    """The bytes of a tensor map. The memory that it describes may be used.

    value: the argument.
    label: its name, for messages.
    number: of the parameter.
    regions: receives that memory.
    """
    if isinstance(value, PendingDescriptor):
        return value.encode(address_of(value.base, f"{label}, base", number, regions), label)
    if isinstance(value, Map):
        return value.data
    try:  # what programs for old versions of Triton make: memory of the host that CUDA's driver has filled
        return ctypes.string_at(int(value.tma_desc_cpu_ptr()), MAP_BYTES)
    except AttributeError:
        raise LaunchError(f"{label} is of type {type(value).__name__}: a tensor map is wanted") from None


def _format(params: Sequence[Parameter], offsets: Sequence[int], size: int) -> str:
    """Format for `struct` of all parameters at their offsets: tensor maps as bytes, others as unsigned integers."""
    out, at = "<", 0
    for p, offset in zip(params, offsets):
        if p.size not in _CODES:
            raise UnsupportedError(f"parameter {p.name} has {p.size} bytes, which no argument of Triton's has")
        out += "x" * (offset - at) + _CODES[p.size]
        at = offset + p.size
    return out + "x" * (size - at)
