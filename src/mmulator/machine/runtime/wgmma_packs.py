"""Operands of wgmma as the numerics twin packs them, kept: B of one half of a tile is B of the other, Q of attention is A again.

A pack is a function of the bytes that it was made of, which it keeps: it is taken again where an operand has the same bytes,
after they were read and compared. So nobody needs to know who has written to shared memory since. The memory is the
worker's (launch/packs.py). Operations that add to one accumulator, the k-steps of a tile, are one product of packs.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import any_lane, cast_ptr, copy_bytes, load, null
from mmulator.codegen.types import i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.wgmma_operands import WARPS, a_fragment, operand_bytes, operation
from mmulator.machine.state import A_PACKS, B_PACKS, Pack, Packs, Warp, WgmmaTable
from mmulator.twin.product import call_dot, call_pack, call_steps
from mmulator.twin.shared import transpose16

LINE = u64.vec(8)


def packs_of(first: Any) -> Any:
    """Macro: those of the worker that runs a warp."""
    return cast_ptr(Packs, first.field("cta").field("cluster").field("packs"))


def place_of(packs: Any, name: str) -> Any:
    """Macro: where a field is."""
    return packs.field_address(name)


@native
def same_bytes(a: ptr, b: ptr, bytes: i64) -> u32:
    """1 if they are alike. bytes: a multiple of 16."""
    whole = bytes // 64 * 64
    for at in range(i64(0), whole, 64):
        if any_lane(load(LINE, a + at) != load(LINE, b + at)):
            return u32(0)
    for at in range(whole, bytes, 16):
        if any_lane(load(u64.vec(2), a + at) != load(u64.vec(2), b + at)):
            return u32(0)
    return u32(1)


@native
def find_pack(entries: ptr_to(Pack), count: u32, next: ptr_to(u32), desc: u64, function: u64, shape: u64, use: u64) -> u32:
    """The slot of what was last packed of such a matrix; or the next one that this product does not use, made free."""
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
    e.function = u64(0)
    e.shape = shape
    return at


@native
def packed_operand(
    first: ptr_to(Warp), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, site: u32, function: u64, rows: i64, k: i64,
    of_b: u32,
) -> ptr:  # fmt: skip
    """The pack of a matrix in shared memory; null after a fault. rows: of A, or columns of B. function: what packs it."""
    packs = packs_of(first)
    raw = first.cta.scratch
    if operand_bytes(first, desc, lines, line_bytes, mn_major, site, raw) == 0:
        return null(u8)
    bytes = lines * line_bytes
    shape = u64(bytes) * 2 + u64(mn_major)
    entries = cast_ptr(Pack, packs.a)
    own = null(u8)
    packed = null(u8)
    if of_b == 0:
        slot = u64(find_pack(entries, u32(A_PACKS), place_of(packs, "next_a"), desc, function, shape, packs.use))
        own = packs.a_slots + slot * packs.a_bytes
        packed = own + packs.a_raw
        entries = entries + slot
    else:
        entries = cast_ptr(Pack, packs.b)
        other = u64(find_pack(entries, u32(B_PACKS), place_of(packs, "next_b"), desc, function, shape, packs.use))
        own = packs.b_slots + other * packs.b_bytes
        packed = own + packs.b_raw
        entries = entries + other
    entries.use = packs.use
    if entries.function == function:
        if same_bytes(own, raw, bytes) != 0:
            return packed
    entries.function = function
    copy_bytes(own, raw, bytes)
    if mn_major == 0:
        call_pack(function, raw, k, rows, k, packed)
    elif of_b != 0:
        call_pack(function, raw, rows, rows, k, packed)
    else:
        other_room = raw + bytes
        transpose16(cast_ptr(u16, raw), k, rows, cast_ptr(u16, other_room))
        call_pack(function, other_room, k, rows, k, packed)
    return packed


@native
def begin_product(first: ptr_to(Warp)) -> None:
    packs = packs_of(first)
    packs.use = packs.use + 1


@native
def pack_step(first: ptr_to(Warp), number: u64, step: u32, at_a: ptr_to(ptr), at_b: ptr_to(ptr)) -> u32:
    """The operands of operation `number`, which is step `step` of a product; 0 after a fault."""
    op = operation(first, number)
    table = op.table
    n = i64(table.n)
    k = i64(table.k)
    line = k * i64(table.element_bits) // 8
    if table.a_in_registers != 0:
        packs = packs_of(first)
        raw = first.cta.scratch
        for i in range(u32(WARPS)):
            a_fragment(operation(first + i, number).a, line, raw + i64(i) * 16 * line)
        packed = packs.registers + u64(step) * packs.a_bytes
        call_pack(table.pack_a, raw, k, i64(64), k, packed)
        at_a[step] = packed
    elif table.mn_major_a != 0:
        at_a[step] = packed_operand(first, op.a_desc, k, i64(128), u32(1), op.site, table.pack_a, i64(64), k, u32(0))
    else:
        at_a[step] = packed_operand(first, op.a_desc, i64(64), line, u32(0), op.site, table.pack_a, i64(64), k, u32(0))
    if u64(at_a[step]) == 0:
        return u32(0)
    if table.mn_major_b != 0:
        at_b[step] = packed_operand(first, op.b_desc, k, n * 2, u32(1), op.site, table.pack_b_rows, n, k, u32(1))
    else:
        at_b[step] = packed_operand(first, op.b_desc, n, line, u32(0), op.site, table.pack_b, n, k, u32(1))
    return u32(u64(at_b[step]) != 0)


@native
def multiply_steps(
    table: ptr_to(WgmmaTable), scale_d: u32, count: u32, at_a: ptr_to(ptr), at_b: ptr_to(ptr), memory: ptr
) -> None:
    """The products of so many packs, one after the other, added to the tile at `memory`, or instead of it if scale_d is 0."""
    n = i64(table.n)
    flags = i64(table.flags)
    if scale_d == 0:
        flags = flags | 1
    if count > 1 and table.dot_steps != 0:
        call_steps(table.dot_steps, count, at_a, at_b, memory, n, memory, n, i64(64), n, flags)
        return
    for step in range(count):
        call_dot(table.dot, at_a[step], at_b[step], memory, n, memory, n, i64(64), n, i64(table.k), flags)
        flags = i64(table.flags)
