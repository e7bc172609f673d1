"""Kernel arguments: Python values to the bytes of the parameter memory, arrays to windows of device memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.errors import LaunchError, shown
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHIFT
from mmulator.ptx.program.image import slots_for
from mmulator.ptx.symbols import Declared, Parameter, parameter_bytes, parameter_offsets
from mmulator.runtime.launch.regions import NONE, Regions, kept, pointer
from mmulator.runtime.launch.regions import Region as Region
from mmulator.runtime.launch.values import MAP_BYTES, host_array, host_value, map_memory, tensor_maps
from mmulator.runtime.launch.values import Aggregate as Aggregate

if TYPE_CHECKING:
    from mmulator.matrix.layouts.tensormap import TensorMap

_ADDRESS = struct.Struct("<Q")


@dataclass
class Arguments:
    """params: the parameter memory. buffers: one for each different array. values: the arguments, arrays as NumPy's.
    regions: other memory that the kernel may touch. maps: (number of a buffer of tensor maps, offset in it, number of the buffer
    whose address stands there). in_variables: variables of the module that are tensor maps of such arrays.

    offsets: of each parameter in `params`. pointers: (offset in `params`, number of the buffer whose address stands there).
    arrays: gives what a door knows of arrays in this memory (observation/record/names.py).
    """

    params: np.ndarray
    offsets: Sequence[int] = ()
    buffers: list[Region] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    pointers: list[tuple[int, int]] = field(default_factory=list)
    regions: Regions = NONE
    maps: list[tuple[int, int, int]] = field(default_factory=list)
    in_variables: list[str] = field(default_factory=list)
    arrays: Callable[[], Sequence[Any]] = list

    @classmethod
    def of_arrays(cls, arrays: Sequence[np.ndarray], first_slot: int = FIRST_GLOBAL_SLOT) -> Arguments:
        """Arguments of a kernel whose parameters are all pointers. first_slot: that of a module without .global variables."""
        result = cls(np.zeros(8 * len(arrays), np.uint8), range(0, 8 * len(arrays), 8), values=list(arrays))
        pool = _Pool(first_slot, result)
        for number, array in enumerate(arrays):
            pool.place(array, 8 * number, f"argument {number}")
        return result


class Signature:
    """The parameters of a kernel, and where they lie."""

    def __init__(self, function: Declared) -> None:
        self.function, self.params = function, function.params
        self.offsets = parameter_offsets(self.params)
        self.bytes = parameter_bytes(self.params)
        self.where = [f"argument {number} ({p.name})" for number, p in enumerate(self.params)]
        self.pointer = [p.bits == 64 and not p.shape and not p.type.startswith("f") for p in self.params]

    def pack(
        self, args: Sequence[Any], first_slot: int, variables: Iterable[tuple[str, np.ndarray, Sequence[TensorMap]]] = (),
        memory: Regions = NONE,
    ) -> Arguments:  # fmt: skip
        """Check and lay out the arguments of a launch, and write the module's variables that are tensor maps.

        args: one for each parameter.
        first_slot: where the first window of an array lies.
        variables: name, memory and maps of each variable.
        memory: arrays at addresses of their own.

        Raises LaunchError naming the argument and what is wrong.
        """
        params = self.params
        if len(args) != len(params):
            raise self._count(args)
        result = Arguments(np.zeros(self.bytes, np.uint8), self.offsets, regions=memory)
        pool = _Pool(first_slot, result)
        for p, value, at, where, is_pointer in zip(params, args, self.offsets, self.where, self.pointer):
            value = host_value(value, p, where)
            result.values.append(value)
            if isinstance(value, np.ndarray) and not (p.shape and value.dtype == np.uint8) and value.ndim > 0:
                if not is_pointer:
                    raise LaunchError(
                        f"{where} is .{p.type}, not a pointer: it cannot take an array of {value.dtype}{value.shape}"
                    )
                pool.place(value, at, where)
                continue
            if maps := tensor_maps(value):
                if not is_pointer:
                    raise LaunchError(
                        f"{where} is .{p.type}: it cannot take a tensor map",
                        hint="a map goes by value, .param .align 64 .b8 map[128], or as a pointer, .param .u64 map",
                    )
                pool.place_maps(maps, at, where)
                continue
            aggregate = isinstance(value, Aggregate)
            data = _aggregate_bytes(value, p, where) if aggregate else scalar_bytes(value, p, where)
            pool.bytes[at : at + len(data)] = data
            for offset, array in value.pointers.items() if aggregate else ():
                place = f"{where}, pointer at byte {offset}"
                pool.place(host_array(array, place), at + offset, place)
        for name, cell, maps in variables:
            pool.write_maps(maps, cell, f"variable {name}")
            result.in_variables.append(name)
        return result

    def _count(self, args: Sequence[Any]) -> LaunchError:
        params = self.params
        wanted = ", ".join(f".{p.type}" + ("[]" if p.shape else "") for p in params)
        return LaunchError(
            f"{self.function.name} takes {len(params)} argument{'s' * (len(params) != 1)} ({wanted or 'none'}), not {len(args)}",
            hint="Triton adds two scratch pointers at the end; pass 0 for them" if _lacks_scratch(params, args) else None,
        )


def _lacks_scratch(params: Sequence[Parameter], args: Sequence[Any]) -> bool:
    """Whether two arguments are missing where a kernel of Triton has its scratch pointers."""
    return len(args) == len(params) - 2 and all(p.is_pointer and not p.shape for p in params[-2:])


class _Pool:
    """Windows for arrays: one for each different memory. bytes: of the parameter memory."""

    def __init__(self, first_slot: int, arguments: Arguments) -> None:
        self.slot, self.arguments = first_slot, arguments
        self.bytes = memoryview(arguments.params)  # type: ignore[arg-type]
        self.known: dict[tuple[int, int], int] = {}

    def place(self, array: np.ndarray, at: int, where: str) -> None:
        """The address of an array goes into the parameter memory at byte `at`."""
        placed = self.arguments.regions
        fixed = next((r for r in placed if r.host == pointer(array) and r.size == array.nbytes), None) if placed else None
        if fixed is not None:
            _ADDRESS.pack_into(self.bytes, at, fixed.start)
            return
        number = self.window(array, where)
        _ADDRESS.pack_into(self.bytes, at, self.arguments.buffers[number].start)
        self.arguments.pointers.append((at, number))

    def place_maps(self, maps: Sequence[TensorMap], at: int, where: str) -> None:
        """Place tensor maps, one after the other, in memory of their own."""
        memory = np.zeros(MAP_BYTES * len(maps), np.uint8)
        self.place(memory, at, where)
        own = len(self.arguments.buffers) - 1
        numbers = self.write_maps(maps, memory, where)
        self.arguments.maps += [(own, n * MAP_BYTES, number) for n, number in enumerate(numbers)]

    def write_maps(self, maps: Sequence[TensorMap], memory: np.ndarray, where: str) -> list[int]:
        """Tensor maps as bytes, one after the other; the numbers of their arrays' buffers."""
        raw, numbers = memory.reshape(-1).view(np.uint8), []
        for n, tensor_map in enumerate(maps):
            number = self.window(map_memory(tensor_map, where), f"the array of {where}" + f"[{n}]" * (len(maps) > 1))
            data = tensor_map.encode(self.arguments.buffers[number].start)
            raw[n * MAP_BYTES : (n + 1) * MAP_BYTES] = np.frombuffer(data, np.uint8)
            numbers.append(number)
        return numbers

    def window(self, array: np.ndarray, where: str) -> int:
        """The number of an array's buffer."""
        _check_array(array, where)
        buffers = self.arguments.buffers
        host, size = pointer(array), array.nbytes
        number = self.known.setdefault((host, size), len(buffers))
        if number == len(buffers):
            buffers.append(Region(self.slot << SLOT_SHIFT, size, where, owner=(array, kept(array)), host=host))
            self.slot += slots_for(size)
        return number


def _check_array(value: np.ndarray, where: str) -> None:
    if not value.flags.c_contiguous:
        raise LaunchError(f"{where}: the array is not contiguous", hint="pass np.ascontiguousarray(x)")
    if not value.flags.writeable:
        raise LaunchError(
            f"{where}: the array is read-only, and kernels update their buffers in place", hint="pass a copy: x.copy()"
        )
    if not value.dtype.isnative:
        raise LaunchError(f"{where}: the array is big-endian, a GPU is not", hint="pass x.astype(x.dtype.newbyteorder('='))")
    if value.dtype.hasobject:
        raise LaunchError(f"{where}: an array of Python objects has no bytes to work on")


def _aggregate_bytes(value: Aggregate, p: Parameter, where: str) -> bytes:
    if len(value.data) != p.size:
        raise LaunchError(f"{where} has {p.size} bytes, not {len(value.data)}")
    for offset in value.pointers:
        if not 0 <= offset <= p.size - 8:
            raise LaunchError(f"{where}: a pointer at byte {offset} does not fit into {p.size} bytes")
    return value.data


def scalar_bytes(value: Any, p: Parameter, where: str) -> bytes:
    """Bytes of a scalar or aggregate argument."""
    if p.shape:
        data = value.tobytes() if isinstance(value, np.ndarray | np.generic) else value
        if not isinstance(data, bytes | bytearray) or len(data) != p.size:
            got = len(data) if isinstance(data, bytes | bytearray) else type(value).__name__
            raise LaunchError(
                f"{where} is an aggregate of {p.size} bytes: pass bytes of that length, not {got}",
                hint="mm.struct(...) of its fields makes them; on the command line i32,f32:1,0.5 or hex:01000000...",
            )
        return bytes(data)
    if value is None:
        if p.bits != 64 or p.type == "f64":
            raise LaunchError(f"{where} is .{p.type}, not a pointer: None is the null pointer", hint="pass 0 for a zero")
        value = 0
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item() if value.dtype.kind in "biufc" or value.dtype.kind == "V" else value
    if p.type in ("f32", "f64"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LaunchError(f"{where} is .{p.type}: pass a number, not {type(value).__name__}")
        try:
            return struct.pack("<f" if p.type == "f32" else "<d", value)
        except (OverflowError, struct.error):
            raise LaunchError(f"{where}: {shown(value)} does not fit .{p.type}") from None
    if isinstance(value, float) and p.type[0] == "b" and p.bits in (32, 64):
        try:
            return struct.pack("<f" if p.bits == 32 else "<d", value)
        except OverflowError:
            raise LaunchError(f"{where}: {value} does not fit an f32") from None
    if not isinstance(value, int):
        pointer = " or an array" if p.bits == 64 else ""
        raise LaunchError(f"{where} is .{p.type}: pass an integer{pointer}, not {type(value).__name__}")
    if not -(1 << (p.bits - 1)) <= value < 1 << p.bits:
        raise LaunchError(f"{where}: {shown(value)} does not fit .{p.type}")
    return (value & ((1 << p.bits) - 1)).to_bytes(p.size, "little")
