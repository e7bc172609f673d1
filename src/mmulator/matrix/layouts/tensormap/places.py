"""The model of a tensor copy: for each element of a box, its byte in shared memory and its byte of the tensor.

Plain integers in NumPy arrays; dimension 0 is the innermost, as in PTX. Tiled Mode, im2col mode, Interleave layout,
Swizzling Modes (PTX ISA 9.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, shown
from mmulator.matrix.layouts.tensormap.encoded import Encoded

Index = NDArray[np.int64]
OUTSIDE = -1
GRANULE = 16  # bytes that a store writes at once
# The modes of the instructions, by how they walk.
MODES = ("tile", "tile::gather4", "tile::scatter4", "im2col", "im2col_no_offs", "im2col::w", "im2col::w::128")
WIDE, HALO_EVERY = 128, 32  # pixels of im2col::w::128, and after how many of them a halo comes


@dataclass(frozen=True)
class Places:
    """The units of a box, in the order in which the box lies in shared memory (outermost first).

    shared: address of the first byte of each unit in shared memory.
    memory: offset of its first byte from the map's address; OUTSIDE if it is out of bounds.
    size: bytes of a unit in memory.
    coordinates: of the unit's first element in the tensor, dimension 0 first; these arrays broadcast to the shape of the
        others.

    A unit is an element, or sixteen elements of a type of less than a byte.
    """

    shared: Index
    memory: Index
    size: int
    coordinates: tuple[Index, ...]

    @property
    def inside(self) -> NDArray[np.bool_]:
        return self.memory != OUTSIDE


def places(
    m: Encoded,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    *,
    shared: int = 0,
    mode: str | None = None,
    store: bool = False,
) -> Places:
    """The places of all units that a copy of a box reads and writes.

    m: the tensor map.
    coordinates: as in the instruction, dimension 0 first; for gather4 and scatter4 the column and four rows.
    offsets: (W, H, D) for im2col; (wHalo, wOffset) for im2col::w and ::w::128.
    shared: address of the box in shared memory.
    mode: one of MODES; None for `tile`, or `im2col` with or without offsets, as the map is.
    store: whether the copy writes the tensor.

    Raises OperandError for a wrong number of coordinates or offsets.
    """
    mode = mode or (("im2col" if offsets else "im2col_no_offs") if m.im2col else "tile")
    _check(m, coordinates, offsets, mode)
    walk = _WALKS[mode]
    where = walk(m, coordinates, offsets, mode)
    inside = np.ones((), bool)
    row = _whole(m) if store and not m.slice else m.sizes[0]
    for at, size in zip(where, (row, *m.sizes[1:])):
        inside = inside & (at >= 0) & (at < size)
    memory = np.where(inside, _memory(m, where), OUTSIDE)
    shape = memory.shape
    number = np.arange(memory.size, dtype=np.int64)
    across = shape[-1] * shape[-2] if m.slice else shape[-1]
    linear = number // across * m.pitch + number % across * m.type.shared
    return Places(m.mode(shared + linear.reshape(shape)), memory, m.type.memory, tuple(where))


def _check(m: Encoded, coordinates: Sequence[int], offsets: Sequence[int], mode: str) -> None:
    if mode not in MODES:
        raise OperandError(f"mode is {shown(mode)}: no such mode", hint=f"known: {', '.join(MODES)}")
    offset_count = m.rank - 2 if mode == "im2col" else 2 if mode.startswith("im2col::") else 0
    wanted = (("coordinates", coordinates, 5 if mode.endswith("4") else m.rank), ("offsets", offsets, offset_count))
    for what, given, count in wanted:
        if len(given) != count:
            raise OperandError(f"{len(given)} {what} where {mode} of a tensor of rank {m.rank} takes {count}")


def _memory(m: Encoded, where: Sequence[Index]) -> Index:
    """Offset of the first byte of units at coordinates. If the map is interleaved, a last axis has the elements of a slice."""
    along, *others = where
    offset = along * m.type.bits // 8
    if m.slice:
        offset = along * m.slice + np.arange(0, m.slice, m.type.memory)
    for at, stride in zip(others, m.strides):
        offset = offset + at * stride
    return offset


def _whole(m: Encoded) -> int:
    """Elements of a row for stores: rounded up, because stores write all 16 bytes if one of them belongs to the tensor."""
    return -(-m.type.bytes_of(m.sizes[0]) // GRANULE) * GRANULE * 8 // m.type.bits


def _axes(*counts: int) -> list[Index]:
    """An index along each axis that counts from 0; the first argument is the innermost axis, and the arrays broadcast."""
    axes = np.ix_(*(np.arange(count, dtype=np.int64) for count in reversed(counts)))
    return [np.asarray(axis) for axis in reversed(axes)]


def _tile(m: Encoded, coordinates: Sequence[int], _: Sequence[int], __: str) -> list[Index]:
    row, *others = m.loaded
    steps = (m.element_strides[0] if m.slice else m.type.elements, *m.element_strides[1:])
    axes = _axes(*((1,) if m.slice else ()), row // m.type.elements, *others)[bool(m.slice) :]
    return [first + axis * step for first, axis, step in zip(coordinates, axes, steps)]


def _gather4(m: Encoded, coordinates: Sequence[int], _: Sequence[int], __: str) -> list[Index]:
    column, *rows = coordinates
    along, which = _axes(m.loaded[0] // m.type.elements, 4)
    return [column + along * m.type.elements, np.asarray(rows, np.int64)[which]]


def _im2col(m: Encoded, coordinates: Sequence[int], offsets: Sequence[int], _: str) -> list[Index]:
    """Coordinates of a box in im2col mode: a filter's corner moves through the bounding box along W first, then H, D and the
    images.
    """
    first = 0 if m.slice else 1  # the dimension W
    corner, pixels = list(coordinates), np.zeros((m.pixels, m.rank), np.int64)
    for pixel in range(m.pixels):
        pixels[pixel] = corner
        for n, (lower, upper) in enumerate(zip(m.lower, m.upper), first):
            corner[n] += m.element_strides[n]
            if corner[n] <= m.sizes[n] - 1 + upper:
                break
            corner[n] = lower
        else:
            corner[-1] += m.element_strides[-1]
    pixels[:, first : first + len(offsets)] += np.asarray(offsets, np.int64)
    return _columns(m, pixels)


def _columns(m: Encoded, pixels: Index) -> list[Index]:
    """Coordinates of pixels [pixels, dimensions] and of the channels that are copied of each pixel."""
    where = [pixels[:, n, None] for n in range(m.rank)]
    if m.slice:
        return [at[..., None] for at in where]
    where[0] = where[0] + np.arange(0, m.channels, m.type.elements)
    return where


def _wide(m: Encoded, coordinates: Sequence[int], offsets: Sequence[int], mode: str) -> list[Index]:
    """Coordinates of a box in im2col::w mode: along W and the images, with `halo` more pixels at the end (::w::128: after every
    32). Not measured.
    """
    halo, offset = offsets
    every, count = (HALO_EVERY, WIDE) if mode == "im2col::w::128" else (m.pixels, m.pixels)
    corner, found = list(coordinates), []
    for pixel in range(count):
        last = pixel % every == every - 1
        for step in range(1 + halo * last):
            found.append([corner[0], corner[1] + offset + step * m.element_strides[1], *corner[2:]])
        corner[1] += m.element_strides[1]
        if corner[1] > m.sizes[1] - 1 + m.upper[0]:
            corner[1] = m.lower[0]
            corner[-1] += m.element_strides[-1]
    return _columns(m, np.asarray(found, np.int64).reshape(len(found), m.rank))


_WALKS = {
    "tile": _tile, "tile::gather4": _gather4, "tile::scatter4": _gather4, "im2col": _im2col, "im2col_no_offs": _im2col,
    "im2col::w": _wide, "im2col::w::128": _wide,
}  # fmt: skip
