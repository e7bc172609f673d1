"""Operands of wgmma in the numerics twin's packed format, kept for reuse: the two halves of a tile share B, and in attention Q
is used as A repeatedly.

A pack depends only on the bytes from which it was made, and which it keeps. It is reused for an operand with equal bytes, which
are read and compared each time; so writes to shared memory need not be tracked. The memory belongs to the worker
(launch/resident.py).
"""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import any_lane, cast_ptr, copy_bytes, load, null
from mmulator.codegen.types import boolean, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.native.matrix.wgmma_operands import operand_bytes
from mmulator.native.state import A_PACKS, B_PACKS, Pack, Packs, Warp, WgmmaTable
from mmulator.twin.product import call_pack
from mmulator.twin.shared import transpose16, unpack_bits

LINE = u64.vec(8)


def packs_of(first: Any) -> Any:
    """Macro: the packs of the worker that runs a warp."""
    return cast_ptr(Packs, first.field("cta").field("cluster").field("packs"))


def place_of(packs: Any, name: str) -> Any:
    """Macro: the address of a field."""
    return packs.field_address(name)


@native
def same_bytes(a: ptr, b: ptr, bytes: i64) -> boolean:
    """Whether two ranges of bytes are equal. bytes: a multiple of 16."""
    whole = bytes // 64 * 64
    for at in range(0, whole, 64):
        if any_lane(load(LINE, a + at) != load(LINE, b + at)):
            return False
    for at in range(whole, bytes, 16):
        if any_lane(load(u64.vec(2), a + at) != load(u64.vec(2), b + at)):
            return False
    return True


@native
def find_pack(entries: ptr_to(Pack), count: u32, next: ptr_to(u32), desc: u64, function: u64, shape: u64, use: u64) -> u32:
    """The slot of the last pack of such a matrix; or the next slot that this product does not use, cleared.

    entries, count: the slots.
    next: where to begin the search for a free slot.
    desc: matrix descriptor.
    function: what packs it.
    shape: shape of the matrix.
    use: number of the product.
    """
    for n in range(count):
        e = entries + n
        if e.desc == desc and e.function == function and e.shape == shape:
            return n
    at = next[0]
    while (entries + at).use == use:
        at = (at + 1) % count
    next[0] = (at + 1) % count
    e = entries + at
    e.desc = desc
    e.function = 0
    e.shape = shape
    return at


@native
def packed_operand(
    first: ptr_to(Warp), table: ptr_to(WgmmaTable), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, site: u32,
    function: u64, rows: i64, of_b: boolean,
) -> ptr:  # fmt: skip
    """The pack of a matrix in shared memory; null after a fault.

    first: first warp of the warpgroup.
    table: table of the instruction.
    desc: matrix descriptor.
    lines, line_bytes: number and bytes of lines.
    mn_major: whether M or N is contiguous.
    site: the instruction.
    function: what packs it.
    rows: rows of A, or columns of B.
    of_b: whether it is B.
    """
    packs = packs_of(first)
    bytes = lines * line_bytes
    shape = u64(bytes) * 2 + u64(mn_major)
    e = cast_ptr(Pack, packs.a)
    own = null(u8)
    packed = null(u8)
    if not of_b:
        slot = u64(find_pack(e, A_PACKS, place_of(packs, "next_a"), desc, function, shape, packs.use))
        own = packs.a_slots + slot * packs.a_bytes
        packed = own + packs.a_raw
        e = e + slot
    else:
        e = cast_ptr(Pack, packs.b)
        other = u64(find_pack(e, B_PACKS, place_of(packs, "next_b"), desc, function, shape, packs.use))
        own = packs.b_slots + other * packs.b_bytes
        packed = own + packs.b_raw
        e = e + other
    e.use = packs.use
    if e.function == function:
        if e.moment == packs.moment and table.watched == 0:
            return packed
        raw = first.cta.scratch + table.scratch.plain
        if operand_bytes(first, desc, lines, line_bytes, mn_major, site, raw) == 0:
            return null(u8)
        e.moment = packs.moment
        if same_bytes(own, raw, bytes):
            return packed
        copy_bytes(own, raw, bytes)
    elif operand_bytes(first, desc, lines, line_bytes, mn_major, site, own) == 0:
        return null(u8)
    e.function = function
    e.moment = packs.moment
    k = i64(table.k)
    columns = bytes * 8 // (rows * i64(table.element_bits))  # k, or half of it
    room = first.cta.scratch + table.scratch.unpacked
    if table.element_bits == 1:
        unpack_bits(own, rows * k, room)
        call_pack(function, room, k, rows, k, packed)
    elif mn_major == 0:
        call_pack(function, own, columns, rows, k, packed)
    elif of_b:
        call_pack(function, own, rows, rows, k, packed)
    else:
        transpose16(cast_ptr(u16, own), columns, rows, cast_ptr(u16, room))
        call_pack(function, room, columns, rows, k, packed)
    return packed


@native
def begin_product(first: ptr_to(Warp)) -> None:
    packs = packs_of(first)
    packs.use = packs.use + 1
