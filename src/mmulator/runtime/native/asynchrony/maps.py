"""The 128 bytes of a tensor map, read when a copy is issued: the description of its box, or the reason why it cannot be used.

Tensor-map, Tiled Mode, im2col mode, Interleave layout, Swizzling Modes (PTX ISA 9.1). A map is memory of a program: maps that
CUDA's driver refuses to encode are refused here, before any computation with their numbers.
"""

from enum import IntEnum
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, load, maximum, select, stack, store, trailing_zeros
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.matrix.layouts.tensormap import fields
from mmulator.matrix.layouts.tensormap.modes import SWIZZLES
from mmulator.matrix.layouts.tensormap.places import GRANULE, HALO_EVERY, WIDE
from mmulator.matrix.layouts.tensormap.rules import (
    MOST_ADDRESS,
    MOST_BOX,
    MOST_BYTES,
    MOST_PIXELS,
    PADDED_ROW,
    PADDED_SWIZZLES,
    SLICED_RANK,
)
from mmulator.matrix.layouts.tensormap.types import BY_NUMBER, TYPES
from mmulator.ptx.program.addresses import RANK_SHIFT
from mmulator.runtime.native.hooks.events import READ, WRITE, map_published
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.locate import locate_global, locate_shared_cta
from mmulator.runtime.native.memory.windows import SPACES
from mmulator.runtime.native.state import FaultKind, Warp

RANKS = fields.MOST_RANK
PADDED = 16  # bytes of shared memory of sixteen elements with padding
UNIT_BITS = 4  # a unit of small elements has 2^4
NO_WIDTH = 1 << 16  # of rows that are not swizzled
MOST_ROW = MOST_BOX * PADDED  # bytes of a row
MOST_SPAN = 1 << RANK_SHIFT  # bytes of the shared memory of a CTA, as far as an address goes
FLOATS = sum(1 << kind.code for kind in TYPES if kind.is_float)
ATOMICITIES = 1 << fields.ATOMICITY.bits
PADDED_MODES = sum(1 << SWIZZLES[name].mode * ATOMICITIES + SWIZZLES[name].atomicity for name in PADDED_SWIZZLES)


class Mode(IntEnum):
    """The elements of the tensor that a copy takes."""

    TILE = 0
    ROWS = 1  # tile::gather4, tile::scatter4
    IM2COL = 2
    IM2COL_W = 3
    IM2COL_W_128 = 4


MODES = {
    "tile": Mode.TILE, "tile::gather4": Mode.ROWS, "tile::scatter4": Mode.ROWS, "im2col": Mode.IM2COL,
    "im2col_no_offs": Mode.IM2COL, "im2col::w": Mode.IM2COL_W, "im2col::w::128": Mode.IM2COL_W_128,
}  # fmt: skip


class MapFault(IntEnum):
    """The reason why an instruction cannot use a map."""

    ALIGNMENT = 1  # the map's own address
    ZEROS = 2
    FIELD = 3  # a field has a number that means nothing: element type, swizzle, interleave
    RANK = 4
    MODE = 5  # an im2col map for a tile copy, or a tiled map for an im2col copy
    REFUSED = 6  # CUDA's driver would not encode it: matrix/layouts/tensormap/rules.py
    SPAN = 7  # the box is larger than the shared memory that an address can name
    OPERATION = 10  # a reduction that elements of this type do not have
    COORDINATE = 11  # the first one leads to a byte that is no multiple of 16
    NEGATIVE = 13  # a coordinate, of a store
    CORNER = 14  # the first pixel of im2col, outside of the bounding box


# A box of a tensor that is being copied; a transfer's payload. Bytes along dimension 0 count from the box's first element;
# those from `low` to `high` belong to the tensor. index, at: number of the next row along each dimension, and its coordinate.
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


def read(words: Any, field: fields.StoredField) -> Value:
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
    """Set the bytes of a type's unit, and return the number of its elements; 0 if no type has this code."""
    for kind in TYPES:
        if code == kind.code:
            box.unit = kind.memory
            box.shared_unit = PADDED if kind.padded else kind.memory
            return kind.elements
    return 0


@native
def take_swizzle(box: ptr_to(Box), mode: u32, atomicity: u32) -> u32:
    """Set the address bits of a swizzle, and return the greatest number of bytes of a row; 0 if there is no such mode."""
    box.swizzle = 0
    box.shift = 0
    box.swizzle_low = 0
    box.shift_low = 0
    for s in SWIZZLES.values():
        if mode == s.mode and atomicity == s.atomicity:
            for n, (to, _, bits) in enumerate(s.exchanges):
                if n == 0:
                    box.swizzle = (1 << bits) - 1
                    box.shift = to
                else:
                    box.swizzle_low = (1 << bits) - 1
                    box.shift_low = to
            return s.width if s.width != 0 else NO_WIDTH
    return 0


@native
def refused(box: ptr_to(Box), words: ptr_to(u32), rank: u32, interleave: u32, width: u32) -> u32:
    """1 if CUDA's driver does not encode such a map: the native counterpart of `refusals` in matrix/layouts/tensormap/rules.py,
    for what the fields of a map can hold; tests/laws/test_tensor_maps.py compares the two.

    box: with its type, sizes, steps, strides and address.
    words: the map.
    rank: rank of the tensor.
    interleave: code of the interleave mode.
    width: greatest number of bytes of a row under the swizzle.
    """
    if rank < SLICED_RANK and (interleave != 0 or read(words, fields.IM2COL) != 0):
        return 1
    padded = box.shared_unit != box.unit
    low = u64(GRANULE - 1)
    if padded or interleave == 2:
        low = 2 * GRANULE - 1
    places = box.address
    for k in unrolled(1, RANKS):
        places = places | u64(box.stride[k])
    wrong = (places & low) != 0 or (box.address >> (MOST_ADDRESS.bit_length() - 1)) != 0
    bits = box.unit * 8 >> select(box.elements == 1, 0, u32(UNIT_BITS))
    row = u32(read(words, fields.BOX_DIM[0]))
    count = u64(row)
    if read(words, fields.IM2COL) != 0:
        pixels = u64(read(words, fields.PIXELS))
        wrong = wrong or pixels > MOST_PIXELS
        count = count * pixels
        first = select(interleave == 0, 1, u32(0))  # interleaved, the driver looks at dimensions 0, 1, 2 for W, H, D
        for known in fields.LOWER:
            if rank == known:
                for k in unrolled(known - 2):
                    upper = i32(box.size[first + k] + read(words, fields.UPPER[known][k]))  # it adds in 32 bits
                    wrong = wrong or i64(upper) <= read(words, fields.LOWER[known][k])
    else:
        count = 1
        for k in unrolled(RANKS):
            if k < rank:
                along = u32(read(words, fields.BOX_DIM[k]))
                if box.step[k] != 1:
                    along = along // u32(box.step[k])
                count = count * u64(along)
    wrong = wrong or (count * u64(bits) >> 3) > MOST_BYTES
    wrong = wrong or (row * bits & (8 * GRANULE - 1)) != 0
    if interleave == 0:
        units = row >> select(box.elements == 1, 0, u32(UNIT_BITS))
        wrong = wrong or units * box.shared_unit > width
    code = u32(read(words, fields.ELEMENT_TYPE))
    wrong = wrong or (read(words, fields.FILL_NAN) != 0 and (u32(FLOATS) >> code & 1) == 0)
    if box.elements != 1:
        wrong = wrong or interleave != 0
        wrong = wrong or (box.size[0] & select(padded, PADDED_ROW - 1, i64(1))) != 0
    if padded:
        swizzle = u32(read(words, fields.SWIZZLE)) * ATOMICITIES + u32(read(words, fields.ATOMICITY))
        wrong = wrong or row != PADDED_ROW or (u32(PADDED_MODES) >> swizzle & 1) == 0
    return u32(wrong)


@native
def take_map(box: ptr_to(Box), words: ptr_to(u32), rank: u32, mode: u32) -> u32:
    """Fill in a box from the words of its map, except its coordinates. Returns 0, or the reason for refusing the map
    (MapFault). For any words, a box that is filled in has rows of 16 to MOST_ROW bytes, and no more rows than fit into
    MOST_SPAN bytes.
    """
    if (words[0] | words[1] | words[2] | words[8]) == 0:
        return MapFault.ZEROS
    box.elements = take_type(box, u32(read(words, fields.ELEMENT_TYPE)))
    width = take_swizzle(box, u32(read(words, fields.SWIZZLE)), u32(read(words, fields.ATOMICITY)))
    interleave = u32(read(words, fields.INTERLEAVE))
    if box.elements == 0 or width == 0 or interleave > 2:
        return MapFault.FIELD
    if u32(read(words, fields.RANK)) != rank:
        return MapFault.RANK
    if (read(words, fields.IM2COL) != 0) != (mode >= Mode.IM2COL):
        return MapFault.MODE
    box.address = read(words, fields.GLOBAL_ADDRESS)
    box.mode = mode
    box.type = u32(read(words, fields.ELEMENT_TYPE))
    box.nan = u32(read(words, fields.FILL_NAN))
    box.inner = 0
    for k in unrolled(RANKS):
        there = k < rank
        box.size[k] = read(words, fields.GLOBAL_DIM[k]) if there else 1
        box.step[k] = read(words, fields.ELEMENT_STRIDE[k]) if there else 1
        box.count[k] = u32(read(words, fields.BOX_DIM[k])) if there else 1
        if box.step[k] != 1:
            box.count[k] = (box.count[k] + u32(box.step[k]) - 1) // u32(box.step[k])
        box.stride[k] = 0
        box.index[k] = 0
        if k != 0:
            box.stride[k] = read(words, fields.GLOBAL_STRIDE[k - 1]) if there else 0
    if refused(box, words, rank, interleave, width) != 0:
        return MapFault.REFUSED
    rows = u64(1)
    if interleave != 0:  # a row is one unit
        box.elements = 1
        box.unit = 8 << (interleave & 3)
        box.shared_unit = box.unit
        box.count[rank - 2] = 1  # of slices of channels there is one
        box.stride[0] = i64(box.unit)
        box.row = box.unit
        box.memory_row = box.unit
        box.pitch = box.row
        rows = u64(box.count[0])
    else:
        box.count[0] = u32(read(words, fields.BOX_DIM[0])) // box.elements
        box.row = box.count[0] * box.shared_unit
        box.memory_row = box.count[0] * box.unit
        box.pitch = maximum(box.row, width & (NO_WIDTH - 1))
    if mode == Mode.TILE:
        for k in unrolled(1, RANKS):
            rows = rows * u64(box.count[k])
    elif mode == Mode.ROWS:
        rows = 4
    else:
        rows = bounding_box(box, words, rank)
    box.rows = u32(rows)
    if rows * u64(box.pitch) > MOST_SPAN:
        return MapFault.SPAN
    return 0


@native
def bounding_box(box: ptr_to(Box), words: ptr_to(u32), rank: u32) -> u64:
    """Set up the box through which an im2col copy moves: its pixels, without halos."""
    pixels = u64(read(words, fields.PIXELS))
    box.images = rank - 1
    box.walked = rank - 2
    box.spatial = u32(box.stride[0] == 0)  # interleaved, the channels are dimension rank - 2
    box.every = 0
    box.halo = 0
    for known in fields.LOWER:
        if rank == known:
            for k in unrolled(known - 2):
                box.lower[k] = read(words, fields.LOWER[known][k])
                box.upper[k] = box.size[box.spatial + k] + read(words, fields.UPPER[known][k])
    if box.mode == Mode.IM2COL_W_128:
        pixels = WIDE
    if box.mode > Mode.IM2COL:
        box.walked = 1
        box.every = u32(pixels)
    if box.mode == Mode.IM2COL_W_128:
        box.every = HALO_EVERY
    return pixels


# maps made by a kernel -----------------------------------------------------------------------------------------------
U64 = u64.vec(32)
BYTES, ALIGNMENT = fields.BYTES, fields.ALIGNMENT
LINE = 128  # what cp_fenceproxy wants


@cache
def replace_function(space: str, field: str, ordinal: int) -> Native:
    """A function for tensormap.replace of a field, for each lane in its own map: values[lane] is the operand `new_val`.

    space: one of SPACES. The bit for rounding to tf32 is set, and never cleared.
    """
    translate = SPACES[space]
    f = fields.REPLACE[field][ordinal]
    # of each part, and the bits that are cleared before its own are set
    parts = [(p, 0 if field == "elemtype" and p is not f.parts[0] else p.mask << p.shift) for p in f.parts]

    def replace(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), values: ptr_to(u64), site: u32) -> None:
        host, rest = stack(ptr, 32), stack(ptr, 32)
        second = stack(u64, 32)
        store(load(U64, at) + ALIGNMENT, second)
        left = translate(w, mask, at, ALIGNMENT, READ | WRITE, site, host)
        left = translate(w, left, second, ALIGNMENT, READ | WRITE, site, rest)
        for lane in bits_of(left):
            words = cast_ptr(u32, host[lane])  # the halves of a map lie together
            stored = values[lane] // f.unit - f.less
            for part, cleared in parts:
                bits = (u32(stored >> part.low) & part.mask) << part.shift
                words[part.word] = (words[part.word] & ~u32(cleared)) | bits

    return Native(replace, f"replace_{space}_{field}_{ordinal}")


def element_code(number: int) -> int:
    """The code in a map for an element type's number in tensormap.replace."""
    return BY_NUMBER[number].code


@native
def copy_map(w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), site: u32) -> None:
    """Execute tensormap.cp_fenceproxy: a warp copies a map from shared to global memory."""
    lane = trailing_zeros(mask)
    if ((to[lane] | at[lane]) & (LINE - 1)) != 0:
        wrong = to[lane]
        if (at[lane] & (LINE - 1)) != 0:
            wrong = at[lane]
        fault(w, FaultKind.MISALIGNED, site, lane, wrong, LINE)
    source = locate_shared_cta(w, lane, at[lane], BYTES, READ, site)
    target = locate_global(w, lane, to[lane], BYTES, WRITE, site)
    if w.cta.fault == 0:
        copy_bytes(target, source, BYTES)
        map_published(w, lane, to[lane], site)
