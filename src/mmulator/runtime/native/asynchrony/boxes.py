"""The rows of a tensor's box: runs of bytes that are contiguous, except for a swizzle, in shared memory.

Tensor-map, Tiled Mode, im2col mode, Interleave layout (PTX ISA 9.1). The native counterpart of `places` in
matrix/layouts/tensormap, which works element by element, for a map that maps.py has read.
"""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import cast_ptr, copy_bytes, maximum, minimum, stack
from mmulator.base.codegen.types import boolean, i32, i64, ptr_to, u32, u64
from mmulator.matrix.layouts.tensormap import fields
from mmulator.matrix.layouts.tensormap.places import GRANULE
from mmulator.runtime.native.asynchrony.maps import RANKS, Box, MapFault, Mode, take_map
from mmulator.runtime.native.hooks.events import READ, Proxy, by, map_used
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.locate import reach
from mmulator.runtime.native.state import FaultKind, Warp

READS = by(READ, Proxy.TENSORMAP)
FAR = 50  # bits: no tensor has 2^62 bytes


# where a copy begins ------------------------------------------------------------------------------------------------
@native
def along_row(box: ptr_to(Box)) -> boolean:
    """Find the bytes of a row that belong to the tensor; from here on dimension 0 is within the row, except for interleaved
    units. Returns False if the row does not begin at a multiple of 16 bytes.
    """
    box.inner = 0
    box.low = 0
    box.high = box.memory_row
    if box.stride[0] != 0:
        return True
    first = box.at[0]
    elements = i64(box.elements)
    count = i64(box.count[0])
    low = maximum(0 - first, 0)
    high = maximum(box.size[0] - first, 0)
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
    box.at[0] = 0
    box.size[0] = 1
    box.count[0] = 1
    return (box.inner & (GRANULE - 1)) == 0


@native
def whole_granules(box: ptr_to(Box)) -> None:
    """Extend rows for a store, which writes all 16 bytes if one of them belongs to the tensor."""
    elements = i64(box.elements)
    bytes = (box.size[0] * i64(box.unit) // elements + (GRANULE - 1)) // GRANULE * GRANULE
    box.size[0] = bytes * elements // i64(box.unit)


@native
def begin_box(
    w: ptr_to(Warp), lane: u32, at: u64, coordinates: ptr_to(u32), more: ptr_to(u32), rank: u32, mode: u32, stores: boolean,
    box: ptr_to(Box), site: u32,
) -> boolean:  # fmt: skip
    """Read the map at a generic address for a copy of a box. Returns False, with a fault, if the map or the box is refused.

    w, lane, site: the lane and instruction.
    at: address of the map.
    coordinates: coordinates of the box, 32 lanes each.
    more: for im2col the offsets, for im2col::w halo and offset, 32 lanes each.
    rank, mode: of the instruction.
    stores: whether the copy is a store.
    box: the result.
    """
    if (at & (fields.ALIGNMENT - 1)) != 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, MapFault.ALIGNMENT)
        return False
    words = cast_ptr(u32, reach(w, lane, at, fields.BYTES, READS, site))
    if u64(words) == 0:
        return False
    map_used(w, lane, at, site)
    wrong = take_map(box, words, rank, mode)
    if wrong != 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, wrong)
        return False
    if stores:
        whole_granules(box)
    lowest = i64(0)
    for k in unrolled(RANKS):
        box.at[k] = i64(i32(coordinates[k * 32 + lane])) if k < rank else 0
        lowest = minimum(lowest, box.at[k])
    if stores and lowest < 0:
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, MapFault.NEGATIVE)
        return False
    if mode == Mode.IM2COL:
        for k in unrolled(3):
            if k < rank - 2:
                n = box.spatial + k
                outside = box.at[n] < box.lower[k] or box.at[n] >= box.upper[k]
                if stores:
                    outside = outside or box.lower[k] < 0 or box.upper[k] > box.size[n]
                if outside:
                    fault(w, FaultKind.TENSOR_MAP, site, lane, at, MapFault.CORNER)
                    return False
    if mode == Mode.ROWS:
        for k in unrolled(3):
            box.lower[k] = i64(i32(coordinates[(k + 2) * 32 + lane]))
    if mode == Mode.IM2COL and not stores:
        for k in unrolled(3):
            offset = i64(more[k * 32 + lane] & 0xFFFF) if k < rank - 2 else 0
            n = box.spatial + k
            if k < rank - 2:
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
    if not along_row(box):
        fault(w, FaultKind.TENSOR_MAP, site, lane, at, MapFault.COORDINATE)
        return False
    return True


# the rows of a box, one after the other -----------------------------------------------------------------------------
@native(inline=True)
def inside_beyond(box: ptr_to(Box)) -> u32:
    """1 if the next row is within the bounds of all dimensions except dimension 1, and has bytes of the tensor."""
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
    """Offset of the first byte of the next row from the tensor's element 0."""
    offset = box.inner
    for k in unrolled(RANKS):
        offset = offset + box.at[k] * box.stride[k]
    return offset


@native
def next_pixel(box: ptr_to(Box)) -> None:
    """Move on to the next pixel. im2col: along W, H, D of the bounding box, then to the next image. im2col::w: along W alone,
    with its halo.
    """
    if box.every != 0:
        box.index[0] = box.index[0] + 1
        if box.index[0] >= box.every and box.halo != 0:
            if box.index[0] == box.every:
                box.last = box.at[1]
            if box.index[0] < box.every + box.halo:
                box.at[1] = box.at[1] + box.step[1]
                return
            box.at[1] = box.last
            box.index[0] = 0
    for k in unrolled(3):
        if k < box.walked:
            n = box.spatial + k
            box.at[n] = box.at[n] + box.step[n]
            if box.at[n] < box.upper[k]:
                return
            box.at[n] = box.lower[k]
    for k in unrolled(2, RANKS):
        if k == box.images:
            box.at[k] = box.at[k] + box.step[k]


@native(inline=True)
def run_of_rows(box: ptr_to(Box), most: u32) -> u32:
    """Number of rows, from the next one on, that differ only in their place along dimension 1, each by one step."""
    if box.mode != Mode.TILE or box.count[0] != 1:
        return 1
    return minimum(most, box.count[1] - box.index[1])


@native
def next_row(box: ptr_to(Box), passed: u32) -> None:
    """Move on behind a run of rows."""
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
        if k >= first:
            box.index[k] = box.index[k] + by
            box.at[k] = box.at[k] + i64(by) * box.step[k]
            if box.index[k] < box.count[k]:
                return
            box.at[k] = box.at[k] - i64(box.count[k]) * box.step[k]
            box.index[k] = 0
            by = 1


# what a copy touches of the tensor ----------------------------------------------------------------------------------
@native
def clip_dimension(box: ptr_to(Box), k: u32, first: ptr_to(i64), last: ptr_to(i64)) -> u32:
    """Add to `first` and `last` the bytes to the first and the last coordinate in bounds along a dimension of a tile; returns 0
    if no coordinate is in bounds.
    """
    at = box.at[k]
    step = box.step[k]
    skipped = maximum(0 - at, 0)
    final = minimum(i64(box.count[k]) - 1, box.size[k] - 1 - at)
    if step != 1:
        skipped = (skipped + step - 1) // step
        final = minimum(i64(box.count[k]) - 1, (box.size[k] - 1 - at) // step)
    if at >= box.size[k] or skipped > final:
        box.whole = 0
        return 0
    if skipped != 0 or final != i64(box.count[k]) - 1:
        box.whole = 0
    first[0] = first[0] + (at + skipped * step) * box.stride[k]
    last[0] = last[0] + (at + final * step) * box.stride[k]
    return 1


@native
def extent_of_box(box: ptr_to(Box), first: ptr_to(i64), last: ptr_to(i64)) -> u32:
    """Compute the range of bytes that a copy touches, relative to the tensor's element 0. Returns 0 if it touches none, 2 if
    the range exceeds all memory, otherwise 1.
    """
    for k in unrolled(RANKS):
        if ((box.size[k] >> 12) * box.stride[k]) >= (1 << FAR):
            return 2
    box.whole = u32(box.low == 0 and box.high == box.memory_row)
    found = u32(box.low != box.high)
    first[0] = box.inner + i64(box.low)
    last[0] = box.inner + i64(box.high)
    if box.mode == Mode.TILE:
        for k in unrolled(RANKS):
            found = found & clip_dimension(box, k, first, last)
        return found
    if found == 0:
        return 0
    copy = stack(Box)
    copy_bytes(copy, box, Box.size)
    found = 0
    for _ in range(box.rows):
        if row_inside(copy) != 0:
            begin = i64(row_offset(copy)) + i64(box.low)
            end = begin + i64(box.high - box.low)
            first[0] = minimum(first[0], begin) if found != 0 else begin
            last[0] = maximum(last[0], end) if found != 0 else end
            found = 1
        else:
            box.whole = 0
        next_row(copy, 1)
    return found
