"""The effect of a tensor copy on bytes: the model against which compiled copies are tested."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.places import Places
from mmulator.matrix.layouts.tensormap.types import TensorType

Bytes = NDArray[np.uint8]
_NAN = 0x7FF7  # 16 bits, repeated through wider elements: the special NaN of out-of-bounds elements
_TF32 = 13  # bits of f32's mantissa that tf32 lacks


def fill(m: Encoded) -> Bytes:
    """The bytes of a unit that is out of bounds."""
    pattern = _NAN if m.oob_fill == "nan" else 0
    return np.frombuffer(pattern.to_bytes(2, "little") * -(-m.type.memory // 2), np.uint8)[: m.type.memory].copy()


def converted(kind: TensorType, units: Bytes) -> Bytes:
    """Units [n, bytes] as a load writes them to shared memory: tf32 is rounded to nearest, ties to even."""
    if not kind.name.startswith("tf32"):
        return units
    bits = np.ascontiguousarray(units).view("<u4").astype(np.uint64)
    magnitude = bits & 0x7FFFFFFF
    half = (1 << _TF32 - 1) - 1 + (bits >> _TF32 & 1)
    rounded = (bits + half) >> _TF32 << _TF32 & 0xFFFFFFFF
    rounded = np.where(magnitude > 0x7F800000, 0x7FFFE000, np.where(magnitude == 0x7F800000, bits, rounded))
    return rounded.astype("<u4").view(np.uint8)


def load(m: Encoded, where: Places, memory: Bytes, shared: Bytes, base: int = 0) -> None:
    """Copy a box to shared memory.

    m: the tensor map.
    where: the box's `places`.
    memory: bytes from the map's address on.
    shared: bytes from address `base` on.
    base: address of the first byte of `shared`.
    """
    inside = where.inside.reshape(-1)
    at = where.memory.reshape(-1)[inside, None] + np.arange(where.size)
    units = np.empty((inside.size, where.size), np.uint8)
    units[inside] = converted(m.type, memory[at])
    units[~inside] = fill(m)
    shared[where.shared.reshape(-1, 1) - base + np.arange(where.size)] = units


def store(where: Places, memory: Bytes, shared: Bytes, base: int = 0) -> None:
    """Copy a box from shared memory.

    where: the box's `places(store=True)`.
    memory: bytes from the map's address on.
    shared: bytes from address `base` on.
    base: address of the first byte of `shared`.
    """
    inside = where.inside.reshape(-1)
    source = where.shared.reshape(-1)[inside, None] - base + np.arange(where.size)
    memory[where.memory.reshape(-1)[inside, None] + np.arange(where.size)] = shared[source]


def moved(where: Places) -> NDArray[Any]:
    """Offsets of all bytes of memory that a copy touches, ascending."""
    at = where.memory.reshape(-1)[where.inside.reshape(-1), None] + np.arange(where.size)
    return np.unique(at)
