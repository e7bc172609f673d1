"""Products of wgmma one by one: operands out of shared memory and registers, packed, multiplied into a tile. Sparse A and single
bits; what can be done together is in wgmma_packs.py."""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, load, store
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u16, u32, u64
from mmulator.machine.runtime.wgmma_operands import WARPS, a_fragment, operand_bytes, operation
from mmulator.machine.state import Warp
from mmulator.twin.product import IndexTable, call_dot, call_pack, dense_indices, has_mixed, mixed_dot
from mmulator.twin.shared import transpose16, unpack_bits


@native
def read_a(first: ptr_to(Warp), number: u64, raw: ptr, other: ptr) -> u32:
    """A as plain rows at `raw`; 0 after a fault."""
    op = operation(first, number)
    table = op.table
    k = i64(table.k)
    if table.sparse != 0:
        k = k // 2
    row_bytes = k * i64(table.element_bits) // 8
    if table.a_in_registers != 0:
        for i in range(u32(WARPS)):
            a_fragment(operation(first + i, number).a, row_bytes, raw + i64(i) * 16 * row_bytes)
        return u32(1)
    if table.mn_major_a != 0:
        ok = operand_bytes(first, op.a_desc, k, i64(128), u32(1), op.site, other)
        if ok != 0:
            transpose16(cast_ptr(u16, other), k, i64(64), cast_ptr(u16, raw))
        return ok
    return operand_bytes(first, op.a_desc, i64(64), row_bytes, u32(0), op.site, raw)


@native
def pack_operands(first: ptr_to(Warp), number: u64, packed_a: ptr, packed_b: ptr) -> u32:
    """A and B decoded; raw B stays at the start of the scratch memory. 0 after a fault."""
    op = operation(first, number)
    table = op.table
    n = i64(table.n)
    k = i64(table.k)
    bits = i64(table.element_bits)
    raw = first.cta.scratch
    other = raw + i64(table.raw_bytes)
    if read_a(first, number, raw, other) == 0:
        return u32(0)
    if bits == 1:
        unpack_bits(raw, 64 * k, other)
        call_pack(table.pack_a, other, k, i64(64), k, packed_a)
    else:
        ka = k
        if table.sparse != 0:
            ka = k // 2
        call_pack(table.pack_a, raw, ka, i64(64), k, packed_a)
    if table.mn_major_b != 0:
        if operand_bytes(first, op.b_desc, k, n * 2, u32(1), op.site, raw) == 0:
            return u32(0)
        call_pack(table.pack_b_rows, raw, n, n, k, packed_b)
        return u32(1)
    if operand_bytes(first, op.b_desc, n, k * bits // 8, u32(0), op.site, raw) == 0:
        return u32(0)
    if bits == 1:
        unpack_bits(raw, n * k, other)
        call_pack(table.pack_b, other, k, n, k, packed_b)
    else:
        call_pack(table.pack_b, raw, k, n, k, packed_b)
    return u32(1)


@native
def multiply(first: ptr_to(Warp), number: u64, packed_a: ptr, packed_b: ptr, memory: ptr) -> None:
    """The product of packed operands, added to the tile at `memory`."""
    op = operation(first, number)
    table = op.table
    n = i64(table.n)
    k = i64(table.k)
    raw = first.cta.scratch
    other = raw + i64(table.raw_bytes)
    flags = i64(table.flags)
    if op.scale_d == 0:
        flags = flags | 1
    if table.sparse == 0:
        call_dot(table.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags)
        return
    metadata = cast_ptr(u32, other)
    for i in range(u32(WARPS)):
        store(load(u32.vec(32), operation(first + i, number).meta), metadata + 32 * i)
    chosen = cast_ptr(i32, other + 512)
    places = cast_ptr(IndexTable, table.places)
    if places.drop != 0 and has_mixed(places, metadata) != 0:
        own = cast_ptr(u16, other + (512 + 128 * k))
        words = cast_ptr(u32, memory)
        mixed_dot(table.pack_b, table.dot, places, metadata, packed_a, i64(table.a_row), cast_ptr(u16, raw), own, packed_b,
                  chosen, words, words, i64(64), n, k, flags)  # fmt: skip
    else:
        dense_indices(places, metadata, chosen)
        call_dot(table.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags, chosen)
