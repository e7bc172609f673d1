"""Products of wgmma: the packed operands are multiplied into a tile. Operations that add to one accumulator, the k-steps of a
tile, are one product.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import any_lane, cast_ptr, copy_bytes, load, null, store
from mmulator.base.codegen.types import boolean, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.matrix.twin.product import IndexTable, call_dot, call_pack, call_steps, dense_indices, has_mixed, mixed_dot
from mmulator.matrix.twin.shared import transpose16, unpack_bits
from mmulator.runtime.native.hooks.events import wgmma_reads
from mmulator.runtime.native.matrix.wgmma_operands import WARPS, a_fragment, operand_bytes, operation
from mmulator.runtime.native.state import A_PACKS, B_PACKS, INDICES, Pack, Packs, Warp, WgmmaTable


@native
def pack_registers(first: ptr_to(Warp), number: u64, step: u32) -> ptr:
    """The pack of A of operation `number`, from registers."""
    table = operation(first, number).table
    packs = packs_of(first)
    raw = first.cta.scratch + table.scratch.plain
    k = i64(table.k)
    ka = k
    if table.sparse != 0:
        ka = k // 2
    line = ka * i64(table.element_bits) // 8
    for i in range(u32(WARPS)):
        a_fragment(operation(first + i, number).a, line, raw + i64(i) * 16 * line)
    packed = packs.registers + u64(step) * packs.a_bytes
    if table.element_bits == 1:
        bits = first.cta.scratch + table.scratch.unpacked
        unpack_bits(raw, 64 * k, bits)
        call_pack(table.pack_a, bits, k, 64, k, packed)
    else:
        call_pack(table.pack_a, raw, ka, 64, k, packed)
    return packed


@native
def pack_step(first: ptr_to(Warp), number: u64, step: u32, at_a: ptr_to(ptr), at_b: ptr_to(ptr)) -> boolean:
    """Pack the operands of operation `number`, which is step `step` of a product. Returns False after a fault."""
    op = operation(first, number)
    table = op.table
    n = i64(table.n)
    k = i64(table.k)
    line = k * i64(table.element_bits) // 8
    wgmma_reads(first, number, op.site)
    if table.a_in_registers != 0:
        at_a[step] = pack_registers(first, number, step)
    elif table.mn_major_a != 0:
        columns = k
        if table.sparse != 0:
            columns = k // 2
        at_a[step] = packed_operand(first, table, op.a_desc, columns, 128, 1, op.site, table.pack_a, 64, False)
    else:
        own = line
        if table.sparse != 0:
            own = line // 2
        at_a[step] = packed_operand(first, table, op.a_desc, 64, own, 0, op.site, table.pack_a, 64, False)
    if u64(at_a[step]) == 0:
        return False
    if table.mn_major_b != 0:
        at_b[step] = packed_operand(first, table, op.b_desc, k, n * 2, 1, op.site, table.pack_b_rows, n, True)
    else:
        at_b[step] = packed_operand(first, table, op.b_desc, n, line, 0, op.site, table.pack_b, n, True)
    return u64(at_b[step]) != 0


@native
def multiply_sparse(first: ptr_to(Warp), number: u64, step: u32, a: ptr, b: ptr, memory: ptr, flags: i64) -> None:
    """Add the product of a sparse A to the tile at `memory`.

    first, number, step: the operation.
    a, b: packs; b is in its slot.
    memory: the tile.
    flags: of the twin.
    """
    table = operation(first, number).table
    packs = packs_of(first)
    n = i64(table.n)
    k = i64(table.k)
    room = first.cta.scratch
    metadata = cast_ptr(u32, room + table.scratch.metadata)
    for i in range(u32(WARPS)):
        store(load(u32.vec(32), operation(first + i, number).meta), metadata + 32 * i)
    chosen = packs.indices + step * INDICES
    places = cast_ptr(IndexTable, table.places)
    if places.drop != 0 and has_mixed(places, metadata) != 0:
        raw = cast_ptr(u16, b + (0 - packs.b_raw))
        own = cast_ptr(u16, room + table.scratch.own)
        again = room + table.scratch.packed
        words = cast_ptr(u32, memory)
        mixed_dot(table.pack_b, table.dot, places, metadata, a, i64(table.a_row), raw, own, again, chosen, words, words,
                  64, n, k, flags)  # fmt: skip
    else:
        dense_indices(places, metadata, chosen)
        call_dot(table.dot, a, b, memory, n, memory, n, 64, n, k, flags, chosen)


@native
def multiply(first: ptr_to(Warp), number: u64, count: u32, at_a: ptr_to(ptr), at_b: ptr_to(ptr), memory: ptr) -> None:
    """Compute the products of `count` operations in sequence, added to the tile at `memory` or replacing it.

    first, number, count: the operations.
    at_a, at_b: packs of each.
    memory: the tile.
    """
    op = operation(first, number)
    table = op.table
    n = i64(table.n)
    flags = i64(table.flags)
    if op.scale_d == 0:
        flags = flags | 1
    if count > 1 and table.dot_steps != 0:
        call_steps(table.dot_steps, count, at_a, at_b, memory, n, memory, n, 64, n, flags)
        return
    for step in range(count):
        if table.sparse != 0:
            multiply_sparse(first, number + u64(step), step, at_a[step], at_b[step], memory, flags)
        else:
            call_dot(table.dot, at_a[step], at_b[step], memory, n, memory, n, 64, n, i64(table.k), flags)
        flags = i64(table.flags)


# packs, which are kept -----------------------------------------------------------------------------------------------
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
