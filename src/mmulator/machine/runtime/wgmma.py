"""wgmma of the machine: what a warpgroup has issued, computing it, groups and waits.

A wgmma computes somewhere between its issue and the wait that covers it, into a tile; its result reaches the registers at
that wait. The arithmetic is the numerics twin's: `pack_a` and `pack_b` decode operands once, `dot` multiplies.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, load, store
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u16, u32, u64
from mmulator.machine.runtime.events import READ, WRITE, wgmma_issued, wgmma_waited
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.hooks_operands import warps_missing
from mmulator.machine.runtime.pending import complete, covered, entry, issue, make_room, queue
from mmulator.machine.runtime.registers import frame_of
from mmulator.machine.runtime.waiting import wait_for_lanes, wake_warpgroup
from mmulator.machine.runtime.wgmma_operands import a_fragment, a_registers, accumulator_in, accumulator_out, operand_bytes
from mmulator.machine.state import FULL, RESCHEDULE, WGMMA, Completes, FaultKind, Tile, Warp, Warpgroup, WgmmaTable
from mmulator.twin.product import IndexTable, call_dot, call_pack, dense_indices, has_mixed, mixed_dot
from mmulator.twin.shared import transpose16, unpack_bits

WARPS = 4  # of a warpgroup


def operation(w: Any, number: Any) -> Any:
    """Macro: where a warp keeps what it issued as operation `number`."""
    return entry(w, WGMMA, number)


def first_of(w: Any) -> Any:
    """Macro: the first warp of the warpgroup."""
    return cast_ptr(Warp, w.field("cta").field("warps")) + (w.field("index") & ~u32(3))


@native
def missing(first: ptr_to(Warp), number: u64, w: ptr_to(Warp), site: u32) -> u32:
    """1 and a fault if a warp that has not issued operation `number` can never do so as a whole."""
    for i in range(u32(WARPS)):
        other = first + i
        if other.live != FULL and queue(other, WGMMA).issued <= number:
            warps_missing(w, site)
            fault(w, FaultKind.WGMMA_LANES, site, u32(0), number, u32(0))
            return u32(1)
    return u32(0)


@native
def enter_warpgroup(w: ptr_to(Warp), count: u32, site: u32) -> u32:
    """1 if the warp may issue `count` operations, 0 if it must wait for the others of its warpgroup, or has faulted.

    Checked before everything else here: that there are four warps, and that all their threads can take part.
    """
    cta = w.cta
    if cta.fault != 0:
        return u32(0)
    q = queue(w, WGMMA)
    if (w.index | 3) >= cta.launch.warps:
        fault(w, FaultKind.WGMMA_LANES, site, u32(0), q.issued, u32(0))
        return u32(0)
    if missing(first_of(w), q.issued, w, site) != 0:
        return u32(0)
    return make_room(w, q, count)


@native
def tile_memory(tile: ptr_to(Tile), first: ptr_to(Warp)) -> ptr:
    """Where the accumulators of a tile lie."""
    cta = first.cta
    return cta.tile_memory + ((u64(tile) - u64(cta.tiles)) // Tile.size) * cta.launch.tile_bytes


@native
def retire(tile: ptr_to(Tile), first: ptr_to(Warp), warp: u32) -> None:
    """The tile's result into the registers of one warp, which are ahead of it no longer."""
    table = tile.table
    quarter = 16 * u64(table.n) * u64(table.d_bits) // 8
    regs = frame_of(first + warp, tile.frame[warp], table.d_slots, table.d_words, WRITE, tile.site)
    accumulator_out(table, regs, tile_memory(tile, first) + u64(warp) * quarter)
    tile.live = tile.live & ~(u32(1) << warp)


@native
def hand_over(group: ptr_to(Warpgroup), table: ptr_to(WgmmaTable), first: ptr_to(Warp), number: u64) -> None:
    """Bring together what operation `number` reads from registers, where other tiles hold some of them.

    Accumulators in flight may overlap, change their shape, or be the A of a later operation: what counts is the order of
    the operations, register by register. So tiles in flight never share a register: the older one gives its result to the
    registers first.
    """
    for i in range(u32(WARPS)):
        bit = u32(1) << i
        op = operation(first + i, number)
        frame = op.frame
        for r in range(table.a_rival_count):
            source = group.tiles + table.a_rivals[r]
            if (source.live & bit) != 0 and source.frame[i] == frame:
                retire(source, first, i)
                a_registers(table, frame_of(first + i, frame, table.a_slots, u32(4), READ, op.site), op.a)
        own = group.tiles + table.tile
        if (own.live & bit) != 0 and own.frame[i] != frame:
            retire(own, first, i)
        if table.unfenced != 0 and op.scale_d != 0 and (own.live & bit) == 0:
            quarter = 16 * u64(table.n) * u64(table.d_bits) // 8
            regs = frame_of(first + i, frame, table.d_slots, table.d_words, READ, op.site)
            accumulator_in(table, regs, tile_memory(own, first) + u64(i) * quarter)
            own.frame[i] = frame
            own.live = own.live | bit
        for r in range(table.rival_count):
            rival = group.tiles + table.rivals[r]
            if (rival.live & bit) != 0 and rival.frame[i] == frame:
                retire(rival, first, i)


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


@native
def compute(group: ptr_to(Warpgroup), first: ptr_to(Warp), number: u64) -> None:
    """Operation `number` of a warpgroup, all of whose warps have issued it, into its tile."""
    op = operation(first, number)
    table = op.table
    for i in range(u32(WARPS)):
        mine = operation(first + i, number)
        if u64(mine.table) != u64(table) or mine.b_desc != op.b_desc or mine.a_desc != op.a_desc or mine.scale_d != op.scale_d:
            fault(first + i, FaultKind.WGMMA_MISMATCH, mine.site, u32(0), number, u32(0))
            return
    tile = group.tiles + table.tile
    hand_over(group, table, first, number)
    packed_a = first.cta.scratch + 2 * i64(table.raw_bytes)
    packed_b = packed_a + i64(table.a_bytes)
    if pack_operands(first, number, packed_a, packed_b) == 0:
        return
    memory = tile_memory(tile, first)
    quarter = 16 * i64(table.n) * i64(table.d_bits) // 8
    for i in range(u32(WARPS)):
        frame = operation(first + i, number).frame
        if op.scale_d != 0 and ((tile.live >> i) & 1) == 0:
            regs = frame_of(first + i, frame, table.d_slots, table.d_words, READ, op.site)
            accumulator_in(table, regs, memory + i64(i) * quarter)
        tile.frame[i] = frame
    multiply(first, number, packed_a, packed_b, memory)
    tile.live = u32(15)
    tile.last = number
    tile.table = table
    tile.site = op.site


@native
def carry_out_wgmma(w: ptr_to(Warp), number: u64) -> u32:
    """One operation of the four warps together: it is done in the queues of all. 0 if some have not issued it."""
    first = first_of(w)
    for i in range(u32(WARPS)):
        if queue(first + i, WGMMA).issued <= number:
            return u32(0)
    compute(cast_ptr(Warpgroup, w.cta.warpgroups) + (w.index >> 2), first, number)
    if w.cta.fault == 0:
        for i in range(u32(WARPS)):
            queue(first + i, WGMMA).done = number + 1
    return u32(1)


@native
def wgmma_issue(
    w: ptr_to(Warp), table: ptr_to(WgmmaTable), a_desc: u64, b_desc: u64, scale_d: u32, metadata: ptr_to(u32), site: u32
) -> None:
    """One warp issues an operation, which can be carried out when the fourth has.

    enter_warpgroup has let the warp in: there is room in its queue, and all lanes are here. scale_d: a bit for each.
    """
    cta = w.cta
    if scale_d != 0 and scale_d != FULL:
        fault(w, FaultKind.WGMMA_SCALE, site, u32(0), u64(scale_d), u32(0))
    if cta.fault != 0:
        return
    q = queue(w, WGMMA)
    number = q.issued
    op = operation(w, number)
    op.operation.completes = Completes.GROUP
    op.table = table
    op.a_desc = a_desc
    op.b_desc = b_desc
    op.scale_d = scale_d & 1
    op.frame = u64(w.frame)
    op.site = site
    if table.sparse != 0:
        store(load(u32.vec(32), metadata), op.meta)
    if table.a_in_registers != 0:
        a_registers(table, frame_of(w, op.frame, table.a_slots, u32(4), READ, site), op.a)
    wgmma_issued(w, number, site)
    issue(w, q, u32(WGMMA.odds))
    first = first_of(w)
    for i in range(u32(WARPS)):
        if queue(first + i, WGMMA).issued <= number:
            return
    wake_warpgroup(w)


@native
def wgmma_wait(w: ptr_to(Warp), mask: u32, pending: u64, here: i32, next: i32, site: u32) -> i32:
    """wait_group: all but the newest `pending` groups are computed, and their results are in the registers."""
    cta = w.cta
    q = queue(w, WGMMA)
    end = covered(q, pending)
    if end <= w.retired:
        wgmma_waited(w, mask, end, site)
        return next
    first = first_of(w)
    if complete(w, q, end) == 0:
        missing(first, q.done, w, operation(w, q.done).site)
        return wait_for_lanes(w, mask, here)
    if cta.fault != 0:
        return i32(RESCHEDULE)
    warp = w.index & 3
    group = cast_ptr(Warpgroup, cta.warpgroups) + (w.index >> 2)
    for t in range(cta.launch.tiles):
        tile = group.tiles + t
        if ((tile.live >> warp) & 1) != 0 and tile.last < end:
            retire(tile, first, warp)
    w.retired = end
    wgmma_waited(w, mask, end, site)
    return next
