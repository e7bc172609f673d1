"""Tiles in shared memory that products read through matrix descriptors: whether a descriptor leads to the elements meant.

The tile was copied from a matrix in device memory. The descriptor's first element, and those beside it, say which way its rows
and columns run there. What a descriptor with a wrong stride or swizzle reads is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmulator.launch.tensor_tables import unpacking
from mmulator.layouts import MatrixDescriptor, operand_addresses
from mmulator.layouts.descriptors import SharedDescriptor
from mmulator.layouts.instruction_descriptor import Variant
from mmulator.record.addresses import operands_of
from mmulator.record.memory import last_write
from mmulator.record.names import DeviceNames
from mmulator.record.products import ProductElement, described
from mmulator.record.tensor.products import element_places
from mmulator.record.trail import Trail, TrailStep

Index = NDArray[np.int64]


@dataclass(frozen=True)
class TileRead:
    """A matrix in shared memory as a product reads it.

    descriptor: leads to it.
    across: whether M or N is contiguous in it.
    at: address of each element [row of A or column of B, k].
    line: the row or column that is read.
    before: number of the step before which it is read.
    """

    descriptor: MatrixDescriptor | SharedDescriptor
    across: bool
    at: Index
    line: int
    before: int


def astray(trail: Trail, names: object, step: TrailStep, product: ProductElement, side: str) -> str:
    """A sentence about a descriptor that leads to other elements than its matrix has; "" where none is known to.

    trail, step: the steps, and that which issued the product.
    names: of device memory.
    product: the product.
    side: a or b.
    """
    tile = _tile(trail, step, product, side)
    if tile is None or not isinstance(names, DeviceNames) or min(tile.at.shape) < 2:
        return ""
    first, down, beside = (_copied(trail, names, tile, *at) for at in ((0, 0), (1, 0), (0, 1)))
    if first is None or down is None or beside is None:
        return ""
    by_line, by_k = down[1] - first[1], beside[1] - first[1]
    if any(way.sum() != 1 or abs(way).sum() != 1 for way in (by_line, by_k)) or (by_line == by_k).all():
        if len(first[1]) != 2 or "tensorMap" not in operands_of(trail.instruction(first[0])):
            return ""
        down_by, beside_by = by_line, by_k
        by_line, by_k = np.eye(2, dtype=np.int64)[:: -1 if tile.across else 1]  # bytes beside each other stay so in a box
        if not down_by @ by_k and not beside_by @ by_line:  # the box takes every second row, or so
            return ""
    for k in range(tile.at.shape[1]):
        found = _copied(trail, names, tile, tile.line, k)
        if found is None or found[0] is not first[0] or found[2] != first[2]:
            continue
        away = found[1] - first[1]
        line, along = int(away @ by_line), int(away @ by_k)
        if (line, along) != (tile.line, k):
            d, what = tile.descriptor, "row" if along == k else "element"
            meant, led = (tile.line, line) if along == k else ([tile.line, k], [line, along])
            return (
                f"{what} {meant} of the tile was meant: the descriptor ({d.mode.name} swizzle, leading offset "
                f"{d.leading_byte_offset}, stride {d.stride_byte_offset}) leads to {what} {led}"
            )
    return ""


def _copied(trail: Trail, names: DeviceNames, tile: TileRead, line: int, k: int) -> tuple[TrailStep, Index, str] | None:
    """(the step that copied an element of a tile, its index in the matrix of device memory, that matrix), if all are known."""
    found = last_write(trail, tile.before, int(tile.at[line, k]))
    if found is None or found.source is None or trail.instruction(found.step).form["mode"] not in ("", "tile"):
        return None  # rows of gather4 and pixels of im2col are where they like
    array = names.at(found.source)
    return None if array is None or len(array.shape) < 2 else (found.step, np.array(array.index(found.source)[0]), array.name)


def _tile(trail: Trail, step: TrailStep, product: ProductElement, side: str) -> TileRead | None:
    """The tile of A or B, if it is in shared memory."""
    form = trail.instruction(step).form
    bits, own = (product.a_type.bits, product.row) if side == "a" else (product.b_type.bits, product.column)
    op = next((op for op in trail.pipe.operations if op.step is step and op.table is not None), None)
    read = described(trail, step, side)
    if op is not None and op.table is not None and not (side == "a" and op.work["in_cells"]):
        d = Variant.of_number(int(op.table["mode"])).decode(int(op.table["word"]))
        lines, kind, across = (d.m, d.atype, d.transpose_a) if side == "a" else (d.n, d.btype, d.transpose_b)
        lines, word, before = lines // len(op.ctas), int(op.work[side]), op.time
        part, own = divmod(own, lines)
        descriptor: MatrixDescriptor | SharedDescriptor = SharedDescriptor.decode(word)
        cta = op.ctas[part]
        at, _ = element_places(word, lines, len(product.positions), bits, unpacking(d.kind, kind)[0], across)
    elif op is None and read is not None:
        (word, across, (before, _)), cta = read, step.place.cta
        descriptor = MatrixDescriptor.decode(word)
        at = operand_addresses(descriptor, form.m if side == "a" else form.n, len(product.positions), bits, across)
    else:
        return None
    return TileRead(descriptor, across, at + step.place.window(cta), own, before)
