"""Values that a caller may pass for a parameter, brought to a few kinds: NumPy arrays, numbers, bytes, aggregates."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.errors import LaunchError, shown
from mmulator.base.interop import readable, writable
from mmulator.isa.types import MAP_ALIGNMENT
from mmulator.isa.types import MAP_BYTES as MAP_BYTES
from mmulator.ptx.symbols import Parameter

if TYPE_CHECKING:
    from mmulator.matrix.layouts.tensormap import TensorMap


@dataclass(frozen=True)
class Aggregate:
    """A struct argument that holds pointers: its bytes, and the arrays whose addresses go into it, by byte offset."""

    data: bytes
    pointers: Mapping[int, Any] = field(default_factory=dict)
    align: int = 8


def struct(*fields: Any, pointers: Mapping[int, Any] | None = None, pack: bool = False) -> Aggregate:
    """A struct that a kernel takes by value, laid out as C does: `mm.struct(A, np.int32(256), np.float32(0.5))`.

    fields: in order. An array (or None) is a pointer to it; a tensor map is its 128 bytes; NumPy scalars, ctypes values and
    structures, bytes and nested structs are themselves. Python's own numbers have no size and are refused. pack: without
    padding (`#pragma pack(1)`). pointers: arrays whose addresses go into the bytes, by offset; for a struct that is given as
    bytes.
    """
    data = bytearray()
    places: dict[int, Any] = {}
    largest = 1
    for number, value in enumerate(fields):
        part, inside, align = _field(value, f"field {number} of the struct")
        align = 1 if pack else align
        largest = max(largest, align)
        data += bytes(-len(data) % align)
        places.update({len(data) + offset: array for offset, array in inside.items()})
        data += part
    data += bytes(-len(data) % largest)
    if not isinstance(pointers, Mapping | None):
        raise LaunchError(f"pointers of a struct are arrays by byte offset, {{0: x}}, not {type(pointers).__name__}")
    for offset, array in (pointers or {}).items():
        if not isinstance(offset, int) or not 0 <= offset <= len(data) - 8:
            raise LaunchError(f"a pointer at byte {shown(offset)} does not fit into a struct of {len(data)} bytes")
        places[offset] = host_array(array, f"pointer at byte {offset}")
    return Aggregate(bytes(data), places, largest)


def _field(value: Any, where: str) -> tuple[bytes, Mapping[int, Any], int]:
    """Bytes of a field, arrays whose addresses go into them, alignment."""
    if value is None:
        return bytes(8), {}, 8
    if is_map(value):
        value = map_bytes(value, where)
    if isinstance(value, Aggregate):
        return value.data, value.pointers, value.align
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), {}, 1
    if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._SimpleCData):
        return bytes(value), {}, ctypes.alignment(value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.tobytes(), {}, value.dtype.alignment
    if isinstance(value, bool | int | float):
        raise LaunchError(
            f"{where}: {shown(value)} has no size", hint="say which: np.int32(...), np.int64(...), np.float32(...), np.uint8(...)"
        )
    return bytes(8), {0: host_array(value, where)}, 8


def is_map(value: Any) -> bool:
    """Whether a value is a tensor map; then somebody has loaded what knows of them."""
    known = sys.modules.get("mmulator.matrix.layouts.tensormap.tensor_map")
    return known is not None and isinstance(value, getattr(known, "TensorMap", ()))


def map_memory(value: TensorMap, where: str) -> np.ndarray:
    """The memory that the array of a tensor map lies in, from its first byte to its last."""
    array = value.array
    if array is None:
        raise LaunchError(
            f"{where}: a tensor map that was decoded has an address, 0x{value.address:x}, and no array",
            hint="mm.TensorMap.tiled(array, ...) makes one that knows its array",
        )
    if array.flags.c_contiguous:
        return host_array(array, where)
    if not array.flags.writeable:
        raise LaunchError(f"{where}: the array is read-only, and kernels update their buffers in place", hint="pass a copy")
    low, high = np.lib.array_utils.byte_bounds(array)
    return np.frombuffer(memoryview((ctypes.c_uint8 * (high - low)).from_address(low)), np.uint8)


def map_bytes(value: TensorMap, where: str) -> Aggregate:
    """A tensor map by value: its array's address is its first word."""
    memory = map_memory(value, where)
    return Aggregate(value.encode(0), {0: memory}, MAP_ALIGNMENT)


def host_array(value: Any, where: str) -> np.ndarray:
    """An array for the device to read and write, on the caller's memory."""
    array = writable(value, where, LaunchError)
    if array is None:
        raise LaunchError(f"{where} is a pointer: pass an array, not {type(value).__name__}", hint=_array_hint(value))
    return array


def tensor_maps(value: Any) -> Sequence[TensorMap]:
    """A tensor map, or a list of them, in global memory; none if it is something else."""
    if is_map(value):
        return (value,)
    if isinstance(value, list | tuple) and value and all(is_map(v) for v in value):
        return value
    return ()


def _array_hint(value: Any) -> str | None:
    if isinstance(value, list | tuple | range):
        return "a kernel updates arrays in place: x = np.array(values, np.float32), then pass x"
    return None


_SCALARS = (bool, int, float, Aggregate, np.generic)  # a tuple: `isinstance` of a union takes four times as long


def host_value(value: Any, p: Parameter, where: str) -> Any:
    """An argument as a NumPy array, a number, bytes, an Aggregate or None. Raises LaunchError for what cannot be one."""
    if value is None or isinstance(value, _SCALARS):
        return _scalar_bits(value, p) if isinstance(value, np.generic) else value
    if p.shape and is_map(value):
        return map_bytes(value, where)
    if p.shape:
        return _struct_bytes(value, p, where)
    pointer = p.bits == 64 and not p.type.startswith("f")
    if isinstance(value, np.ndarray):
        return value
    if pointer and tensor_maps(value):
        return value
    if isinstance(value, list | tuple | range | str | dict | set):
        wanted = "an integer or an array" if pointer else "a number"
        raise LaunchError(f"{where} is .{p.type}: pass {wanted}, not {type(value).__name__}", hint=_array_hint(value))
    array = writable(value, where, LaunchError) if pointer else readable(value, where, LaunchError)
    if array is not None:
        return array.reshape(array.shape or 1) if pointer else array if array.ndim else array[()]
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    for convert in (operator.index, float):
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return value


def _scalar_bits(value: np.generic, p: Parameter) -> Any:
    """A NumPy scalar for a parameter of plain bits, such as np.float16 for .b16: its own."""
    if p.type[0] == "b" and not p.shape and value.dtype.itemsize * 8 == p.bits and value.dtype.kind not in "iub":
        return int.from_bytes(value.tobytes(), "little")
    return value


def _struct_bytes(value: Any, p: Parameter, where: str) -> Any:
    if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._SimpleCData | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray) and (value.dtype.fields is not None or value.dtype == np.uint8):
        return value.tobytes()
    if isinstance(value, list | tuple) and len(value) > 0:
        raise LaunchError(
            f"{where} is a struct of {p.size} bytes: it cannot take a {type(value).__name__}",
            hint="mm.struct(...) lays fields out as C does: mm.struct(array, np.int32(5))",
        )
    return value
