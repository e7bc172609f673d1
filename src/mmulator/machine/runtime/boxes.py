"""What a tensor copy does, from its tensor map: the 128 bytes are read when the instruction is issued.

Tensor-map, Tiled Mode, im2col mode, Interleave layout, Swizzling Modes (PTX ISA 9.1). The same as `places` of
layouts/tensormap says element by element, as rows: runs of bytes that lie together, but for a swizzle, in shared memory.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import cast_ptr, copy_bytes, maximum, minimum, stack
from mmulator.codegen.types import Struct, i32, i64, ptr_to, u32, u64
from mmulator.codegen.values import Value
from mmulator.layouts.tensormap import fields
from mmulator.layouts.tensormap.modes import SWIZZLES
from mmulator.layouts.tensormap.places import GRANULE, HALO_EVERY, WIDE
from mmulator.layouts.tensormap.types import TYPES
from mmulator.machine.runtime.events import READ, Proxy, by, map_used
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.locate import reach
from mmulator.machine.state import FaultKind, Warp

RANKS = fields.MOST_RANK
READS = by(READ, Proxy.TENSORMAP)
PADDED = 16  # bytes of shared memory of sixteen elements with padding
NO_WIDTH = 1 << 16  # of rows that are not swizzled
FAR = 50  # bits: a tensor that goes on for 2^62 bytes is nowhere


class Mode(IntEnum):
    """Which elements of the tensor a copy takes."""

    TILE = 0
    ROWS = 1  # tile::gather4, tile::scatter4
    IM2COL = 2
    IM2COL_W = 3
    IM2COL_W_128 = 4


MODES = {
    "tile": Mode.TILE, "tile::gather4": Mode.ROWS, "tile::scatter4": Mode.ROWS, "im2col": Mode.IM2COL,
    "im2col_no_offs": Mode.IM2COL, "im2col::w": Mode.IM2COL_W, "im2col::w::128": Mode.IM2COL_W_128,
}  # fmt: skip


class Wrong(IntEnum):
    """Why an instruction cannot use a map."""

    ALIGNMENT = 1  # the map's own address
    ZEROS = 2
    TYPE = 3
    RANK = 4
    MODE = 5  # im2col, and the instruction copies a tile, or the other way round
    SWIZZLE = 6
    INTERLEAVE = 7
    ROW = 8  # of the box, longer than the swizzle is wide
    ADDRESS = 9  # of the tensor, no multiple of 16
    OPERATION = 10  # a reduction that elements of this type do not have
    COORDINATE = 11  # the first one leads to a byte that is no multiple of 16
    GRANULE = 12  # the bytes of a row are no multiple of 16
    NEGATIVE = 13  # a coordinate, of a store
    CORNER = 14  # the first pixel of im2col, outside of the bounding box


# A box of a tensor on its way; a transfer's payload. Bytes along dimension 0 count from the box's first element, of which
# those from `low` to `high` are the tensor's. index, at: of the next row: how manieth along each dimension, and its coordinate.
Box = Struct("Box", [
    ("address", u64),  # of the tensor's element 0, ...
    ("first", u64),  # bytes from there to the first byte that the copy touches
    ("place", u64),  # bytes from the beginning of a CTA's shared memory to the box
    ("inner", i64),  # bytes from element 0, ... to the first of a row
    ("rows", u32), ("row", u32), ("memory_row", u32),  # how many; bytes of one in shared memory, and in the tensor
    ("pitch", u32),  # bytes of shared memory from row to row: swizzled rows are as long as the swizzle is wide
    ("low", u32), ("high", u32),
    ("unit", u32), ("shared_unit", u32), ("elements", u32),  # bytes of a unit in the tensor and in shared memory; its elements
    ("mode", u32), ("type", u32), ("targets", u32),  # Mode; code in the map; ranks of the CTAs that get the box
    ("whole", u32),  # no element is out of bounds
    ("nan", u32),
    ("swizzle", u32), ("swizzle_low", u32),  # masks: bits of the address that are XORed with the number of its line of 128 bytes
    ("shift", u32), ("shift_low", u32),  # left by so many bits
    ("count", u32, RANKS), ("index", u32, RANKS),
    ("step", i64, RANKS), ("at", i64, RANKS), ("size", i64, RANKS), ("stride", i64, RANKS),
    ("lower", i64, 3), ("upper", i64, 3),  # im2col: of W, H, D, first and behind the last; ROWS: those that come next
    ("spatial", u32), ("walked", u32), ("images", u32),  # im2col: the first of so many dimensions (W, H, D) that are walked
    # through, and that of the images, which follow
    ("every", u32), ("halo", u32), ("last", i64),  # im2col::w: pixels between halos, of a halo; where the halo began
])  # fmt: skip


def read(words: Any, field: fields.Field) -> Value:
    """Macro: a number of a map (i64)."""
    stored: Any = None
    for p in field.parts:
        part = u64((words[p.word] >> p.shift) & p.mask) << p.low
        stored = part if stored is None else stored | part
    value = i64(stored)
    if field.signed:
        value = (value << (64 - field.bits)) >> (64 - field.bits)
    if field.less:
        value = value + field.less
    return value * field.unit if field.unit != 1 else value


# reading a map ------------------------------------------------------------------------------------------------------
@native
def take_type(box: ptr_to(Box), code: u32) -> u32:
    """The bytes of a type's unit, and how many elements it has; 0 if no type has this code."""
    for kind in TYPES:
        if code == kind.code:
            box.unit = u32(kind.memory)
            box.shared_unit = u32(PADDED if kind.padded else kind.memory)
            return u32(kind.elements)
    return u32(0)


@native
def take_swizzle(box: ptr_to(Box), mode: u32, atomicity: u32) -> u32:
    """How the address bits of a swizzle go together: the most bytes of a row, or 0 if there is no such mode."""
    box.swizzle = u32(0)
    box.shift = u32(0)
    box.swizzle_low = u32(0)
    box.shift_low = u32(0)
    for s in SWIZZLES.values():
        if mode == s.mode and atomicity == s.atomicity:
            for n, (to, _, bits) in enumerate(s.exchanges):
                if n == 0:
                    box.swizzle = u32((1 << bits) - 1)
                    box.shift = u32(to)
                else:
                    box.swizzle_low = u32((1 << bits) - 1)
                    box.shift_low = u32(to)
            return u32(s.width if s.width != 0 else NO_WIDTH)
    return u32(0)


@native
def take_map(box: ptr_to(Box), words: ptr_to(u32), rank: u32, mode: u32) -> u32:
    """Fill in a box from the words of its map, all but its coordinates: 0, or what is wrong (Wrong)."""
    if (words[0] | words[1] | words[2] | words[8]) == 0:
        return u32(Wrong.ZEROS)
    elements = take_type(box, u32(read(words, fields.ELEMENT_TYPE)))
    box.elements = elements
    if elements == 0:
        return u32(Wrong.TYPE)
    if u32(read(words, fields.RANK)) != rank:
        return u32(Wrong.RANK)
    if (read(words, fields.IM2COL) != 0) != (mode >= Mode.IM2COL):
        return u32(Wrong.MODE)
    width = take_swizzle(box, u32(read(words, fields.SWIZZLE)), u32(read(words, fields.ATOMICITY)))
    if width == 0:
        return u32(Wrong.SWIZZLE)
    interleave = read(words, fields.INTERLEAVE)
    if interleave > 2 or (interleave != 0 and rank < 3):
        return u32(Wrong.INTERLEAVE)
    if interleave != 0:
        box.elements = u32(1)
        box.unit = u32(8) << u32(interleave)
        box.shared_unit = box.unit
    box.address = u64(read(words, fields.GLOBAL_ADDRESS))
    if (box.address & ((GRANULE - 1) | (u64(interleave & 2) << 3))) != 0:
        return u32(Wrong.ADDRESS)
    box.mode = mode
    box.type = u32(read(words, fields.ELEMENT_TYPE))
    box.nan = u32(read(words, fields.FILL_NAN))
    box.inner = i64(0)
    for k in unrolled(RANKS):
        there = u32(k) < rank
        box.size[k] = read(words, fields.GLOBAL_DIM[k]) if there else i64(1)
        box.step[k] = read(words, fields.ELEMENT_STRIDE[k]) if there else i64(1)
        box.count[k] = u32(read(words, fields.BOX_DIM[k])) if there else u32(1)
        if box.step[k] != 1:
            box.count[k] = (box.count[k] + u32(box.step[k]) - 1) // u32(box.step[k])
        box.stride[k] = i64(0)
        box.index[k] = u32(0)
        if k != 0:
            box.stride[k] = read(words, fields.GLOBAL_STRIDE[k - 1]) if there else i64(0)
    if interleave != 0:  # a row is one unit
        box.count[rank - 2] = u32(1)  # of slices of channels there is one
        box.stride[0] = i64(box.unit)
        box.row = box.unit
        box.memory_row = box.unit
    else:
        box.count[0] = u32(read(words, fields.BOX_DIM[0])) // box.elements
        box.row = box.count[0] * box.shared_unit
        box.memory_row = box.count[0] * box.unit
        if (box.row & (GRANULE - 1)) != 0:
            return u32(Wrong.GRANULE)
    box.pitch = box.row
    if interleave == 0:
        box.pitch = maximum(box.row, width & (NO_WIDTH - 1))
    box.rows = box.count[1] * box.count[2] * box.count[3] * box.count[4]
    if mode == Mode.ROWS:
        box.rows = u32(4)
    if mode >= Mode.IM2COL:
        bounding_box(box, words, rank)
    if box.row > width:
        return u32(Wrong.ROW)
    return u32(0)


@native
def bounding_box(box: ptr_to(Box), words: ptr_to(u32), rank: u32) -> None:
    """What im2col walks through."""
    box.rows = u32(read(words, fields.PIXELS))
    box.images = rank - 1
    box.walked = rank - 2
    box.spatial = u32(box.stride[0] == 0)  # interleaved, the channels are dimension rank - 2
    box.every = u32(0)
    box.halo = u32(0)
    for known in fields.LOWER:
        if rank == known:
            for k in unrolled(known - 2):
                box.lower[k] = read(words, fields.LOWER[known][k])
                box.upper[k] = box.size[box.spatial + k] + read(words, fields.UPPER[known][k])
    if box.mode == Mode.IM2COL_W_128:
        box.rows = u32(WIDE)
    if box.mode > Mode.IM2COL:
        box.walked = u32(1)
        box.every = box.rows
    if box.mode == Mode.IM2COL_W_128:
        box.every = u32(HALO_EVERY)


@native
def along_row(box: ptr_to(Box)) -> u32:
    """Which bytes of a row are the tensor's; from here on dimension 0 is within the row, but for interleaved units. 0 if the row
    begins within 16 bytes."""
    box.inner = i64(0)
    box.low = u32(0)
    box.high = box.memory_row
    if box.stride[0] != 0:
        if box.mode == Mode.TILE:
            box.rows = box.rows * box.count[0]
        return u32(1)
    first = box.at[0]
    elements = i64(box.elements)
    count = i64(box.count[0])
    low = maximum(i64(0) - first, i64(0))
    high = maximum(box.size[0] - first, i64(0))
    if elements != 1:
        low = (low + elements - 1) // elements
        high = (high + elements - 1) // elements
    low = minimum(low, count)
    high = minimum(maximum(high, low), count)
    box.low = u32(low) * box.unit
    box.high = u32(high) * box.unit
    box.inner = first * i64(box.unit)
    if elements != 1:
        box.inner = box.inner // elements
    box.at[0] = i64(0)
    box.size[0] = i64(1)
    box.count[0] = u32(1)
    return u32((box.inner & (GRANULE - 1)) == 0)


@native
def whole_granules(box: ptr_to(Box)) -> None:
    """A store writes all 16 bytes of which one is the tensor's."""
    elements = i64(box.elements)
    bytes = (box.size[0] * i64(box.unit) // elements + (GRANULE - 1)) // GRANULE * GRANULE
    box.size[0] = bytes * elements // i64(box.unit)


@native
def begin_box(
    w: ptr_to(Warp), lane: u32, at: u64, coordinates: ptr_to(u32), more: ptr_to(u32), rank: u32, mode: u32, stores: u32,
    box: ptr_to(Box), site: u32,
) -> u32:  # fmt: skip
    """Read the map at a generic address for a copy of the box at these coordinates: 1, or 0 and a fault.

    coordinates, more: 32 lanes of each; more: of im2col the offsets, of im2col::w halo and offset.
    """
    if (at & (fields.ALIGNMENT - 1)) != 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, u32(Wrong.ALIGNMENT))
        return u32(0)
    words = cast_ptr(u32, reach(w, lane, at, u64(fields.BYTES), READS, site))
    if u64(words) == 0:
        return u32(0)
    map_used(w, lane, at, site)
    wrong = take_map(box, words, rank, mode)
    if wrong != 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, wrong)
        return u32(0)
    if stores != 0:
        whole_granules(box)
    lowest = i64(0)
    for k in unrolled(RANKS):
        box.at[k] = i64(i32(coordinates[k * 32 + lane])) if u32(k) < rank else i64(0)
        lowest = minimum(lowest, box.at[k])
    if stores != 0 and lowest < 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, u32(Wrong.NEGATIVE))
        return u32(0)
    if mode == Mode.IM2COL:
        for k in unrolled(3):
            if u32(k) < rank - 2:
                n = box.spatial + k
                outside = box.at[n] < box.lower[k] or box.at[n] >= box.upper[k]
                if stores != 0:
                    outside = outside or box.lower[k] < 0 or box.upper[k] > box.size[n]
                if outside:
                    fault(w, FaultKind.TENSOR_MAP, site, lane, at, u32(Wrong.CORNER))
                    return u32(0)
    if mode == Mode.ROWS:
        for k in unrolled(3):
            box.lower[k] = i64(i32(coordinates[(k + 2) * 32 + lane]))
    if mode == Mode.IM2COL and stores == 0:
        for k in unrolled(3):
            offset = i64(more[k * 32 + lane] & 0xFFFF) if u32(k) < rank - 2 else i64(0)
            n = box.spatial + k
            if u32(k) < rank - 2:
                box.at[n] = box.at[n] + offset
            box.lower[k] = box.lower[k] + offset
            box.upper[k] = box.upper[k] + offset
    if mode > Mode.IM2COL:
        box.halo = more[lane] & 0xFFFF
        offset = i64(more[32 + lane] & 0xFFFF)
        box.at[1] = box.at[1] + offset
        box.lower[0] = box.lower[0] + offset
        box.upper[0] = box.upper[0] + offset
        box.rows = box.rows + box.rows // box.every * box.halo
    if along_row(box) == 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, u32(Wrong.COORDINATE))
        return u32(0)
    return u32(1)


# the rows of a box, one after the other -----------------------------------------------------------------------------
@native(inline=True)
def inside_beyond(box: ptr_to(Box)) -> u32:
    """1 if the next row is within the bounds of all dimensions but dimension 1, and has bytes of the tensor."""
    inside = (u64(box.at[0]) < u64(box.size[0])) & (box.low != box.high)
    for k in unrolled(2, RANKS):
        inside = inside & (u64(box.at[k]) < u64(box.size[k]))
    return u32(inside)


@native(inline=True)
def row_inside(box: ptr_to(Box)) -> u32:
    """1 if the next row is within the bounds of all dimensions."""
    return inside_beyond(box) & u32(u64(box.at[1]) < u64(box.size[1]))


@native(inline=True)
def row_offset(box: ptr_to(Box)) -> u64:
    """Bytes from the tensor's element 0, ... to the first of the next row."""
    offset = box.inner
    for k in unrolled(RANKS):
        offset = offset + box.at[k] * box.stride[k]
    return u64(offset)


@native
def next_pixel(box: ptr_to(Box)) -> None:
    """im2col: along W, H, D of the bounding box, then to the next image. im2col::w: along W alone, with its halo."""
    if box.every != 0:
        box.index[0] = box.index[0] + 1
        if box.index[0] >= box.every and box.halo != 0:
            if box.index[0] == box.every:
                box.last = box.at[1]
            if box.index[0] < box.every + box.halo:
                box.at[1] = box.at[1] + box.step[1]
                return
            box.at[1] = box.last
            box.index[0] = u32(0)
    for k in unrolled(3):
        if u32(k) < box.walked:
            n = box.spatial + k
            box.at[n] = box.at[n] + box.step[n]
            if box.at[n] < box.upper[k]:
                return
            box.at[n] = box.lower[k]
    for k in unrolled(2, RANKS):
        if u32(k) == box.images:
            box.at[k] = box.at[k] + box.step[k]


@native(inline=True)
def run_of_rows(box: ptr_to(Box), most: u32) -> u32:
    """How many rows from the next one on differ in nothing but their place along dimension 1, by a step of it."""
    if box.mode != Mode.TILE or box.count[0] != 1:
        return u32(1)
    return minimum(most, box.count[1] - box.index[1])


@native
def next_row(box: ptr_to(Box), passed: u32) -> None:
    """Behind a run of rows."""
    if box.mode >= Mode.IM2COL:
        next_pixel(box)
        return
    if box.mode == Mode.ROWS:
        box.at[1] = box.lower[0]
        box.lower[0] = box.lower[1]
        box.lower[1] = box.lower[2]
        return
    first = u32(box.count[0] == 1)
    by = passed
    for k in unrolled(RANKS):
        if u32(k) >= first:
            box.index[k] = box.index[k] + by
            box.at[k] = box.at[k] + i64(by) * box.step[k]
            if box.index[k] < box.count[k]:
                return
            box.at[k] = box.at[k] - i64(box.count[k]) * box.step[k]
            box.index[k] = u32(0)
            by = u32(1)


# what a copy touches of the tensor ----------------------------------------------------------------------------------
@native
def clip_dimension(box: ptr_to(Box), k: u32, first: ptr_to(i64), last: ptr_to(i64)) -> u32:
    """Add the bytes to the first and the last coordinate along a dimension of a tile that are in bounds: 0 if there is none."""
    at = box.at[k]
    step = box.step[k]
    skipped = maximum(i64(0) - at, i64(0))
    final = minimum(i64(box.count[k]) - 1, box.size[k] - 1 - at)
    if step != 1:
        skipped = (skipped + step - 1) // step
        final = minimum(i64(box.count[k]) - 1, (box.size[k] - 1 - at) // step)
    if at >= box.size[k] or skipped > final:
        box.whole = u32(0)
        return u32(0)
    if skipped != 0 or final != i64(box.count[k]) - 1:
        box.whole = u32(0)
    first[0] = first[0] + (at + skipped * step) * box.stride[k]
    last[0] = last[0] + (at + final * step) * box.stride[k]
    return u32(1)


@native
def extent_of_box(box: ptr_to(Box), first: ptr_to(i64), last: ptr_to(i64)) -> u32:
    """Bytes from the tensor's element 0, ... to the first that a copy touches, and to what is behind the last: 0 if it touches
    none, 2 if they are beyond all memory."""
    for k in unrolled(RANKS):
        if ((box.size[k] >> 12) * box.stride[k]) >= (1 << FAR):
            return u32(2)
    box.whole = u32(box.low == 0 and box.high == box.memory_row)
    found = u32(box.low != box.high)
    first[0] = box.inner + i64(box.low)
    last[0] = box.inner + i64(box.high)
    if box.mode == Mode.TILE:
        for k in unrolled(RANKS):
            found = found & clip_dimension(box, u32(k), first, last)
        return found
    if found == 0:
        return u32(0)
    copy = stack(Box)
    copy_bytes(copy, box, Box.size)
    found = u32(0)
    for _ in range(box.rows):
        if row_inside(copy) != 0:
            begin = i64(row_offset(copy)) + i64(box.low)
            end = begin + i64(box.high - box.low)
            first[0] = minimum(first[0], begin) if found != 0 else begin
            last[0] = maximum(last[0], end) if found != 0 else end
            found = u32(1)
        else:
            box.whole = u32(0)
        next_row(copy, u32(1))
    return found
