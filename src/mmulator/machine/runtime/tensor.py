"""Matrix instructions of the machine: fragments to matrices and back, operands in shared memory, the asynchronous proxy.

The arithmetic is the numerics twin's: `pack_a` and `pack_b` decode operands once, `dot` multiplies. What is here moves data
and keeps the order that the specification gives: a wgmma computes somewhere between its issue and the wait that covers it,
and its result reaches the registers at that wait.
"""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import cast_ptr, load, shuffle, store
from mmulator.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.control import RESCHEDULE, fault, wait_for_lanes
from mmulator.machine.runtime.memory import hash_choice, locate_function, range_
from mmulator.machine.state import (
    SHARED_BASE,
    WGMMA_QUEUE,
    FaultKind,
    Group,
    Tile,
    Warp,
    WgmmaSite,
)
from mmulator.multiply.native import CONTAINER, IndexTable, call_dot, call_pack, dense_indices, has_mixed, mixed_dot

# wmma.load and wmma.store -------------------------------------------------------------------------------------------
WmmaSite = Struct("WmmaSite", [
    ("places", i64),  # elements of a fragment over all lanes
    ("major", ptr_to(i32)), ("minor", ptr_to(i32)),  # of each place: line of the leading dimension, position in it
])  # fmt: skip


@cache
def wmma_load_function(space: str, bits: int) -> Native:
    """wmma.load: place i of the fragment receives element [major[i]][minor[i]] at p + (major * stride + minor) * size."""
    ty, locate = CONTAINER[bits], locate_function(space)
    per = max(1, 8 // bits)

    def wmma_load(w: ptr_to(Warp), site: ptr_to(WmmaSite), p: u64, stride: i64, registers: ptr, number: u32) -> None:
        out = cast_ptr(ty, registers)
        for i in range(site.places):
            at = i64(site.major[i]) * stride + i64(site.minor[i])
            if bits >= 8:
                host = locate(w, u32(0), p + u64(at * (bits // 8)), u32(bits // 8), u32(0), number)
                if host == 0:
                    return
                out[i] = cast_ptr(ty, ptr(host))[0]
            else:
                host = locate(w, u32(0), p + u64(at // per), u32(1), u32(0), number)
                if host == 0:
                    return
                value = (ptr(host)[0] >> u8((at % per) * bits)) & ((1 << bits) - 1)
                shift = u8((i % per) * bits)
                old = u8(0)
                if (i % per) != 0:
                    old = registers[i // per]
                registers[i // per] = old | (value << shift)

    return Native(wmma_load, f"wmma_load_{space}_{bits}")


@cache
def wmma_store_function(space: str, bits: int) -> Native:
    ty, locate = CONTAINER[bits], locate_function(space)

    def wmma_store(w: ptr_to(Warp), site: ptr_to(WmmaSite), p: u64, stride: i64, registers: ptr, number: u32) -> None:
        source = cast_ptr(ty, registers)
        for i in range(site.places):
            at = i64(site.major[i]) * stride + i64(site.minor[i])
            host = locate(w, u32(0), p + u64(at * (bits // 8)), u32(bits // 8), u32(1), number)
            if host == 0:
                return
            cast_ptr(ty, ptr(host))[0] = source[i]

    return Native(wmma_store, f"wmma_store_{space}_{bits}")


# Lanes of two vectors in turn: x0 y0 x1 y1 ...
INTERLEAVED = [lane + 32 * which for lane in range(32) for which in (0, 1)]


# wgmma --------------------------------------------------------------------------------------------------------------
@native
def operand_bytes(
    w: ptr_to(Warp), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, number: u32, out: ptr
) -> u32:
    """A matrix of shared memory as plain rows: `lines` rows of `line_bytes` bytes, 16 bytes at a time.

    K-major: a line is a row (m or n) along k. MN-major: a line is one k along m or n. 0 after a fault.
    """
    cta = w.cta
    start = (desc & 0x3FFF) << 4
    leading = i64(((desc >> 16) & 0x3FFF) << 4)
    stride = i64(((desc >> 32) & 0x3FFF) << 4)
    base = (desc >> 49) & 7
    mode = desc >> 62
    span = i64(16)
    mask = u64(0)
    if mode == 1:
        span = i64(128)
        mask = u64(7)
    if mode == 2:
        span = i64(64)
        mask = u64(3)
    if mode == 3:
        span = i64(32)
        mask = u64(1)
    end = u64(cta.launch.shared_bytes)
    target = out
    for line in range(lines):
        for at in range(i64(0), line_bytes, 16):
            offset = i64(0)
            if mn_major == 0:
                if mode == 0:
                    offset = (line % 8) * 16 + (line // 8) * stride + (at // 16) * leading
                else:
                    offset = (line % 8) * span + (line // 8) * stride + (at // span) * leading + at % span
            else:
                if mode == 0:
                    offset = (at // 16) * stride + (line % 8) * 16 + (line // 8) * leading
                else:
                    offset = at % span + (at // span) * leading + (line % 8) * span + (line // 8) * stride
            x = start + u64(offset)
            x = x ^ ((((x >> 7) - base) & mask) << 4)
            place = x - SHARED_BASE
            if place + 16 > end or place > end:
                fault(w, FaultKind.WGMMA_ADDRESS, number, u32(0), x, u32(16))
                return u32(0)
            store(load(u8.vec(16), cta.shared + place), target)
            target = target + 16
    return u32(1)


@native
def transpose16(source: ptr_to(u16), rows: i64, columns: i64, out: ptr_to(u16)) -> None:
    for r in range(rows):
        for c in range(columns):
            out[c * rows + r] = source[r * columns + c]


@native
def unpack_bits(source: ptr, count: i64, out: ptr) -> None:
    """b1: one byte for each bit."""
    for i in range(count):
        out[i] = (source[i // 8] >> u8(i % 8)) & 1


@native
def accumulator_in(site: ptr_to(WgmmaSite), regs: ptr, tile: ptr) -> None:
    """D registers of one warp into 16 rows of the tile (row-major, n columns of 32 or 16 bits)."""
    n = i64(site.n)
    if site.d_bits == 32:
        for j in range(i64(site.d_words) // 2):
            x = load(u32.vec(32), regs + i64(site.d_slots[2 * j]))
            y = load(u32.vec(32), regs + i64(site.d_slots[2 * j + 1]))
            both = shuffle(x, y, INTERLEAVED)
            at = cast_ptr(u32, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            for g in range_(8):
                store(shuffle(both, None, [8 * g + c for c in range_(8)]), at + g * n)
    else:
        for j in range(i64(site.d_words)):
            packed = load(u32.vec(32), regs + i64(site.d_slots[j]))
            row = cast_ptr(u16, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            for g in range_(8):
                store(shuffle(packed, None, [4 * g + c for c in range_(4)]), row + g * n)


@native
def accumulator_out(site: ptr_to(WgmmaSite), regs: ptr, tile: ptr) -> None:
    """16 rows of the tile into the D registers of one warp."""
    n = i64(site.n)
    if site.d_bits == 32:
        for j in range(i64(site.d_words) // 2):
            at = cast_ptr(u32, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            x = cast_ptr(u32, regs + i64(site.d_slots[2 * j]))
            y = cast_ptr(u32, regs + i64(site.d_slots[2 * j + 1]))
            for g in range_(8):
                row = load(u32.vec(8), at + g * n)
                store(shuffle(row, None, [0, 2, 4, 6]), x + 4 * g)
                store(shuffle(row, None, [1, 3, 5, 7]), y + 4 * g)
    else:
        for j in range(i64(site.d_words)):
            half = cast_ptr(u16, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            packed = cast_ptr(u32, regs + i64(site.d_slots[j]))
            for g in range_(8):
                store(load(u32.vec(4), half + g * n), packed + 4 * g)


@native
def a_fragment(site: ptr_to(WgmmaSite), regs: ptr, row_bytes: i64, out: ptr) -> None:
    """A registers of one warp as 16 rows: register r holds 16 bytes of rows g + 8 (r % 2) from byte 16 (r / 2)."""
    for r in range_(4):
        x = cast_ptr(u32, regs + i64(site.a_slots[r]))
        for g in range_(8):
            row = out + (row_bytes * (g + 8 * (r % 2)) + 16 * (r // 2))
            store(load(u32.vec(4), x + 4 * g), row)


@native
def execute_wgmma(group: ptr_to(Group), warps: ptr_to(Warp), number: u64) -> None:
    """Compute operation `number` of a warpgroup into its tile."""
    first = warps + group.first_warp
    cta = first.cta
    op = first.ops + (number & (WGMMA_QUEUE - 1))
    site = op.site
    n = i64(site.n)
    k = i64(site.k)
    bits = i64(site.element_bits)
    row_bytes = k * bits // 8
    ka = k
    if site.sparse != 0:
        ka = k // 2
    a_bytes = ka * bits // 8
    scratch = cta.scratch
    raw = scratch
    other = scratch + i64(site.raw_bytes)
    packed_a = other + i64(site.raw_bytes)
    packed_b = packed_a + i64(site.a_bytes)
    for i in range(u32(4)):
        mine = (first + i).ops + (number & (WGMMA_QUEUE - 1))
        if u64(mine.site) != u64(site) or mine.b_desc != op.b_desc or mine.a_desc != op.a_desc or mine.scale_d != op.scale_d:
            fault(first + i, FaultKind.WGMMA_MISMATCH, site.site, u32(0), u64(0), u32(0))
            return
    # A
    if site.a_in_registers != 0:
        for i in range(u32(4)):
            w = first + i
            mine = w.ops + (number & (WGMMA_QUEUE - 1))
            a_fragment(site, w.regs + mine.frame, a_bytes, raw + i64(i) * 16 * a_bytes)
    elif site.mn_major_a != 0:
        if operand_bytes(first, op.a_desc, ka, i64(128), u32(1), site.site, other) == 0:
            return
        transpose16(cast_ptr(u16, other), ka, i64(64), cast_ptr(u16, raw))
    else:
        if operand_bytes(first, op.a_desc, i64(64), a_bytes, u32(0), site.site, raw) == 0:
            return
    if bits == 1:
        unpack_bits(raw, 64 * k, other)
        call_pack(site.pack_a, other, k, i64(64), k, packed_a)
    else:
        call_pack(site.pack_a, raw, ka, i64(64), k, packed_a)
    # B
    if site.mn_major_b != 0:
        if operand_bytes(first, op.b_desc, k, n * 2, u32(1), site.site, raw) == 0:
            return
        call_pack(site.pack_b_rows, raw, n, n, k, packed_b)
    else:
        if operand_bytes(first, op.b_desc, n, row_bytes, u32(0), site.site, raw) == 0:
            return
        if bits == 1:
            unpack_bits(raw, n * k, other)
            call_pack(site.pack_b, other, k, n, k, packed_b)
        else:
            call_pack(site.pack_b, raw, k, n, k, packed_b)
    # D
    tiles = group.tiles
    tile = tiles + site.tile
    index = (u64(tile) - u64(cta.tiles)) // Tile.size
    memory = cta.tile_memory + index * cta.launch.tile_bytes
    quarter = 16 * n * i64(site.d_bits) // 8
    flags = i64(site.flags)
    if op.scale_d == 0:
        flags = flags | 1
    for i in range(u32(4)):
        if op.scale_d != 0 and ((tile.live >> i) & 1) == 0:
            w = first + i
            mine = w.ops + (number & (WGMMA_QUEUE - 1))
            accumulator_in(site, w.regs + mine.frame, memory + i64(i) * quarter)
    if site.sparse != 0:
        metadata = cast_ptr(u32, other)
        for i in range(u32(4)):
            mine = (first + i).ops + (number & (WGMMA_QUEUE - 1))
            store(load(u32.vec(32), mine.meta), metadata + 32 * i)
        chosen = cast_ptr(i32, other + 512)
        table = cast_ptr(IndexTable, site.places)
        if table.drop != 0 and has_mixed(table, metadata) != 0:
            own = cast_ptr(u16, other + (512 + 128 * k))
            tile_words = cast_ptr(u32, memory)
            mixed_dot(site.pack_b, site.dot, table, metadata, packed_a, i64(site.a_row), cast_ptr(u16, raw), own, packed_b,
                      chosen, tile_words, tile_words, i64(64), n, k, flags)  # fmt: skip
        else:
            dense_indices(table, metadata, chosen)
            call_dot(site.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags, chosen)
    else:
        call_dot(site.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags)
    tile.live = u32(15)
    tile.last = number
    tile.site = site
    for i in range(u32(4)):
        mine = (first + i).ops + (number & (WGMMA_QUEUE - 1))
        tile.frame[i] = mine.frame


@native
def execute_until(group: ptr_to(Group), warps: ptr_to(Warp), end: u64) -> u32:
    """Execute operations before `end` that all four warps have issued; 1 if that is all of them."""
    while group.executed < end:
        first = warps + group.first_warp
        number = group.executed
        for i in range(u32(4)):
            if (first + i).issued <= number:
                return u32(0)
        execute_wgmma(group, warps, number)
        if first.cta.fault != 0:
            return u32(1)
        group.executed = number + 1
    return u32(1)


@native
def wgmma_issue(
    w: ptr_to(Warp), site: ptr_to(WgmmaSite), a_desc: u64, b_desc: u64, scale_d: u32, metadata: ptr_to(u32)
) -> None:
    """One warp issues an operation; when the fourth has, the seed decides whether it computes at once."""
    cta = w.cta
    if cta.fault != 0:
        return
    warps = cast_ptr(Warp, cta.warps)
    group = cast_ptr(Group, cta.groups) + (w.index >> 2)
    number = w.issued
    first = warps + group.first_warp
    if number - group.executed >= WGMMA_QUEUE - 1:
        if execute_until(group, warps, group.executed + 1) == 0:
            fault(w, FaultKind.WGMMA_MISMATCH, site.site, u32(0), u64(0), u32(0))
            return
    op = w.ops + (number & (WGMMA_QUEUE - 1))
    op.site = site
    op.a_desc = a_desc
    op.b_desc = b_desc
    op.scale_d = scale_d
    op.frame = u64(w.frame)
    if site.sparse != 0:
        store(load(u32.vec(32), metadata), op.meta)
    w.issued = number + 1
    ready = u32(1)
    for i in range(u32(4)):
        if (first + i).issued <= number:
            ready = u32(0)
    if ready != 0:
        for i in range(u32(4)):
            other = first + i
            other.waiting = u32(0)
        chance = hash_choice(cta.launch.seed, u64(cta.linear) * 8 + u64(w.index >> 2), number + 0x10000)
        if (chance & 1) != 0:
            execute_until(group, warps, number + 1)


@native
def wgmma_commit(w: ptr_to(Warp)) -> None:
    w.group_end[w.committed & 63] = w.issued
    w.committed = w.committed + 1


@native
def wgmma_wait(w: ptr_to(Warp), mask: u32, pending: u64, here: i32, next: i32) -> i32:
    """wait_group: all but the newest `pending` groups are computed, and their results are in the registers."""
    cta = w.cta
    if pending >= w.committed or pending > 62:
        return next
    end = w.group_end[(w.committed - pending - 1) & 63]
    if end <= w.retired:
        return next
    warps = cast_ptr(Warp, cta.warps)
    group = cast_ptr(Group, cta.groups) + (w.index >> 2)
    if execute_until(group, warps, end) == 0:
        return wait_for_lanes(w, mask, here)
    if cta.fault != 0:
        return i32(RESCHEDULE)
    bit = u32(1) << (w.index & 3)
    for t in range(cta.launch.tiles):
        tile = group.tiles + t
        if (tile.live & bit) != 0 and tile.last < end:
            site = tile.site
            memory = cta.tile_memory + ((u64(tile) - u64(cta.tiles)) // Tile.size) * cta.launch.tile_bytes
            quarter = 16 * u64(site.n) * u64(site.d_bits) // 8
            accumulator_out(site, w.regs + tile.frame[w.index & 3], memory + u64(w.index & 3) * quarter)
            tile.live = tile.live & ~bit
    w.retired = end
    return next
