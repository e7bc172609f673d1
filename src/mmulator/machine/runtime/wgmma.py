"""wgmma of the machine: what a warpgroup has issued, computing it, groups and waits.

A wgmma computes somewhere between its issue and the wait that covers it, into a tile; its result reaches the registers at
that wait. The arithmetic is the numerics twin's: `pack_a` and `pack_b` decode operands once, `dot` multiplies.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, load, store
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u16, u32, u64
from mmulator.machine.runtime.control import RESCHEDULE, wait_for_lanes
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.memory import hash_choice
from mmulator.machine.runtime.registers import frame_of
from mmulator.machine.runtime.wgmma_operands import a_fragment, a_registers, accumulator_in, accumulator_out, operand_bytes
from mmulator.machine.state import FULL, WGMMA_GROUPS, WGMMA_QUEUE, FaultKind, Group, Tile, Warp, WgmmaSite
from mmulator.twin.product import IndexTable, call_dot, call_pack, dense_indices, has_mixed, mixed_dot
from mmulator.twin.shared import transpose16, unpack_bits

WARPS = 4  # of a warpgroup


def operation(w: Any, number: Any) -> Any:
    """Macro: where a warp keeps what it issued as operation `number`."""
    return w.field("ops") + (number & (WGMMA_QUEUE - 1))


@native
def missing(w: ptr_to(Warp), first: ptr_to(Warp), number: u64, place: u32) -> u32:
    """1 and a fault if a warp that has not issued operation `number` can never do so as a whole."""
    for i in range(u32(WARPS)):
        other = first + i
        if other.live != FULL and other.issued <= number:
            fault(w, FaultKind.WGMMA_LANES, place, u32(0), number, u32(0))
            return u32(1)
    return u32(0)


@native
def enter_warpgroup(w: ptr_to(Warp), count: u32, place: u32) -> u32:
    """1 if the warp may issue `count` operations, 0 if it must wait for the others of its warpgroup, or has faulted.

    Checked before everything else here: that there are four warps, and that all their threads can take part.
    """
    cta = w.cta
    if cta.fault != 0:
        return u32(0)
    if (w.index | 3) >= cta.launch.warps:
        fault(w, FaultKind.WGMMA_LANES, place, u32(0), w.issued, u32(0))
        return u32(0)
    warps = cast_ptr(Warp, cta.warps)
    group = cast_ptr(Group, cta.groups) + (w.index >> 2)
    first = warps + group.first_warp
    if missing(w, first, w.issued, place) != 0:
        return u32(0)
    end = w.issued + u64(count)
    if end > group.executed + WGMMA_QUEUE:
        return execute_until(group, warps, end - WGMMA_QUEUE)
    return u32(1)


@native
def tile_memory(tile: ptr_to(Tile), first: ptr_to(Warp)) -> ptr:
    """Where the accumulators of a tile lie."""
    cta = first.cta
    return cta.tile_memory + ((u64(tile) - u64(cta.tiles)) // Tile.size) * cta.launch.tile_bytes


@native
def retire(tile: ptr_to(Tile), first: ptr_to(Warp), warp: u32) -> None:
    """The tile's result into the registers of one warp, which are ahead of it no longer."""
    site = tile.site
    quarter = 16 * u64(site.n) * u64(site.d_bits) // 8
    regs = frame_of(first + warp, tile.frame[warp], site.d_slots, site.d_words, WRITE, tile.place)
    accumulator_out(site, regs, tile_memory(tile, first) + u64(warp) * quarter)
    tile.live = tile.live & ~(u32(1) << warp)


@native
def hand_over(group: ptr_to(Group), site: ptr_to(WgmmaSite), first: ptr_to(Warp), number: u64) -> None:
    """Bring together what operation `number` reads from registers, where other tiles hold some of them.

    Accumulators in flight may overlap, change their shape, or be the A of a later operation: what counts is the order of
    the operations, register by register. So tiles in flight never share a register: the older one gives its result to the
    registers first.
    """
    for i in range(u32(WARPS)):
        bit = u32(1) << i
        op = operation(first + i, number)
        frame = op.frame
        for r in range(site.a_rival_count):
            source = group.tiles + site.a_rivals[r]
            if (source.live & bit) != 0 and source.frame[i] == frame:
                retire(source, first, i)
                a_registers(site, frame_of(first + i, frame, site.a_slots, u32(4), READ, op.place), op.a)
        own = group.tiles + site.tile
        if (own.live & bit) != 0 and own.frame[i] != frame:
            retire(own, first, i)
        if site.unfenced != 0 and op.scale_d != 0 and (own.live & bit) == 0:
            quarter = 16 * u64(site.n) * u64(site.d_bits) // 8
            regs = frame_of(first + i, frame, site.d_slots, site.d_words, READ, op.place)
            accumulator_in(site, regs, tile_memory(own, first) + u64(i) * quarter)
            own.frame[i] = frame
            own.live = own.live | bit
        for r in range(site.rival_count):
            rival = group.tiles + site.rivals[r]
            if (rival.live & bit) != 0 and rival.frame[i] == frame:
                retire(rival, first, i)


@native
def read_a(first: ptr_to(Warp), number: u64, raw: ptr, other: ptr) -> u32:
    """A as plain rows at `raw`; 0 after a fault."""
    op = operation(first, number)
    site = op.site
    k = i64(site.k)
    if site.sparse != 0:
        k = k // 2
    row_bytes = k * i64(site.element_bits) // 8
    if site.a_in_registers != 0:
        for i in range(u32(WARPS)):
            a_fragment(operation(first + i, number).a, row_bytes, raw + i64(i) * 16 * row_bytes)
        return u32(1)
    if site.mn_major_a != 0:
        ok = operand_bytes(first, op.a_desc, k, i64(128), u32(1), op.place, other)
        if ok != 0:
            transpose16(cast_ptr(u16, other), k, i64(64), cast_ptr(u16, raw))
        return ok
    return operand_bytes(first, op.a_desc, i64(64), row_bytes, u32(0), op.place, raw)


@native
def pack_operands(first: ptr_to(Warp), number: u64, packed_a: ptr, packed_b: ptr) -> u32:
    """A and B decoded; raw B stays at the start of the scratch memory. 0 after a fault."""
    op = operation(first, number)
    site = op.site
    n = i64(site.n)
    k = i64(site.k)
    bits = i64(site.element_bits)
    raw = first.cta.scratch
    other = raw + i64(site.raw_bytes)
    if read_a(first, number, raw, other) == 0:
        return u32(0)
    if bits == 1:
        unpack_bits(raw, 64 * k, other)
        call_pack(site.pack_a, other, k, i64(64), k, packed_a)
    else:
        ka = k
        if site.sparse != 0:
            ka = k // 2
        call_pack(site.pack_a, raw, ka, i64(64), k, packed_a)
    if site.mn_major_b != 0:
        if operand_bytes(first, op.b_desc, k, n * 2, u32(1), op.place, raw) == 0:
            return u32(0)
        call_pack(site.pack_b_rows, raw, n, n, k, packed_b)
        return u32(1)
    if operand_bytes(first, op.b_desc, n, k * bits // 8, u32(0), op.place, raw) == 0:
        return u32(0)
    if bits == 1:
        unpack_bits(raw, n * k, other)
        call_pack(site.pack_b, other, k, n, k, packed_b)
    else:
        call_pack(site.pack_b, raw, k, n, k, packed_b)
    return u32(1)


@native
def multiply(first: ptr_to(Warp), number: u64, packed_a: ptr, packed_b: ptr, memory: ptr) -> None:
    """The product of packed operands, added to the tile at `memory`."""
    op = operation(first, number)
    site = op.site
    n = i64(site.n)
    k = i64(site.k)
    raw = first.cta.scratch
    other = raw + i64(site.raw_bytes)
    flags = i64(site.flags)
    if op.scale_d == 0:
        flags = flags | 1
    if site.sparse == 0:
        call_dot(site.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags)
        return
    metadata = cast_ptr(u32, other)
    for i in range(u32(WARPS)):
        store(load(u32.vec(32), operation(first + i, number).meta), metadata + 32 * i)
    chosen = cast_ptr(i32, other + 512)
    table = cast_ptr(IndexTable, site.places)
    if table.drop != 0 and has_mixed(table, metadata) != 0:
        own = cast_ptr(u16, other + (512 + 128 * k))
        words = cast_ptr(u32, memory)
        mixed_dot(site.pack_b, site.dot, table, metadata, packed_a, i64(site.a_row), cast_ptr(u16, raw), own, packed_b,
                  chosen, words, words, i64(64), n, k, flags)  # fmt: skip
    else:
        dense_indices(table, metadata, chosen)
        call_dot(site.dot, packed_a, packed_b, memory, n, memory, n, i64(64), n, k, flags, chosen)


@native
def execute_wgmma(group: ptr_to(Group), warps: ptr_to(Warp), number: u64) -> None:
    """Compute operation `number` of a warpgroup into its tile."""
    first = warps + group.first_warp
    op = operation(first, number)
    site = op.site
    for i in range(u32(WARPS)):
        mine = operation(first + i, number)
        if u64(mine.site) != u64(site) or mine.b_desc != op.b_desc or mine.a_desc != op.a_desc or mine.scale_d != op.scale_d:
            fault(first + i, FaultKind.WGMMA_MISMATCH, mine.place, u32(0), number, u32(0))
            return
    tile = group.tiles + site.tile
    hand_over(group, site, first, number)
    packed_a = first.cta.scratch + 2 * i64(site.raw_bytes)
    packed_b = packed_a + i64(site.a_bytes)
    if pack_operands(first, number, packed_a, packed_b) == 0:
        return
    memory = tile_memory(tile, first)
    quarter = 16 * i64(site.n) * i64(site.d_bits) // 8
    for i in range(u32(WARPS)):
        frame = operation(first + i, number).frame
        if op.scale_d != 0 and ((tile.live >> i) & 1) == 0:
            regs = frame_of(first + i, frame, site.d_slots, site.d_words, READ, op.place)
            accumulator_in(site, regs, memory + i64(i) * quarter)
        tile.frame[i] = frame
    multiply(first, number, packed_a, packed_b, memory)
    tile.live = u32(15)
    tile.last = number
    tile.site = site
    tile.place = op.place


@native
def execute_until(group: ptr_to(Group), warps: ptr_to(Warp), end: u64) -> u32:
    """Execute operations before `end` that all four warps have issued; 1 if that is all of them."""
    first = warps + group.first_warp
    while group.executed < end:
        number = group.executed
        for i in range(u32(WARPS)):
            if (first + i).issued <= number:
                return u32(0)
        execute_wgmma(group, warps, number)
        if first.cta.fault != 0:
            return u32(1)
        group.executed = number + 1
    return u32(1)


@native
def wgmma_issue(
    w: ptr_to(Warp), site: ptr_to(WgmmaSite), a_desc: u64, b_desc: u64, scale_d: u32, metadata: ptr_to(u32), place: u32
) -> None:
    """One warp issues an operation; when the fourth has, the seed decides whether it computes at once.

    enter_warpgroup has let the warp in: there is room in its queue, and all lanes are here. scale_d: a bit for each.
    """
    cta = w.cta
    if scale_d != 0 and scale_d != FULL:
        fault(w, FaultKind.WGMMA_SCALE, place, u32(0), u64(scale_d), u32(0))
    if cta.fault != 0:
        return
    warps = cast_ptr(Warp, cta.warps)
    group = cast_ptr(Group, cta.groups) + (w.index >> 2)
    number = w.issued
    first = warps + group.first_warp
    op = operation(w, number)
    op.site = site
    op.a_desc = a_desc
    op.b_desc = b_desc
    op.scale_d = scale_d & 1
    op.frame = u64(w.frame)
    op.place = place
    if site.sparse != 0:
        store(load(u32.vec(32), metadata), op.meta)
    if site.a_in_registers != 0:
        a_registers(site, frame_of(w, op.frame, site.a_slots, u32(4), READ, place), op.a)
    w.issued = number + 1
    ready = u32(1)
    for i in range(u32(WARPS)):
        if (first + i).issued <= number:
            ready = u32(0)
    if ready != 0:
        for i in range(u32(WARPS)):
            other = first + i
            other.waiting = u32(0)
        chance = hash_choice(cta.launch.seed, u64(cta.linear) * 8 + u64(w.index >> 2), number + 0x10000)
        if (chance & 1) != 0:
            execute_until(group, warps, number + 1)


@native
def wgmma_commit(w: ptr_to(Warp)) -> None:
    """A new group of all that was issued since the last commit. Empty groups are counted, and leave no entry."""
    tail = w.group_tail
    before = u64(0)
    if tail != 0:
        newest = w.groups + ((tail - 1) & (WGMMA_GROUPS - 1))
        before = newest.end
    if w.issued > before:
        entry = w.groups + (tail & (WGMMA_GROUPS - 1))
        entry.number = w.committed
        entry.end = w.issued
        w.group_tail = tail + 1
    w.committed = w.committed + 1


@native
def group_end(w: ptr_to(Warp), pending: u64) -> u64:
    """How many operations are in all but the newest `pending` groups.

    The newest WGMMA_GROUPS groups that are not empty are known; for older ones, what the oldest known covers: more is
    complete then than was asked for, as may be on a chip.
    """
    if pending >= w.committed:
        return u64(0)
    wanted = w.committed - pending - 1
    at = w.group_tail
    oldest = u64(0)
    if at > WGMMA_GROUPS:
        oldest = at - WGMMA_GROUPS
    found = u64(0)
    while at > oldest:
        at = at - 1
        entry = w.groups + (at & (WGMMA_GROUPS - 1))
        if entry.number <= wanted or (at == oldest and oldest != 0):
            found = entry.end
            break
    return found


@native
def wgmma_wait(w: ptr_to(Warp), mask: u32, pending: u64, here: i32, next: i32) -> i32:
    """wait_group: all but the newest `pending` groups are computed, and their results are in the registers."""
    cta = w.cta
    end = group_end(w, pending)
    if end <= w.retired:
        return next
    warps = cast_ptr(Warp, cta.warps)
    group = cast_ptr(Group, cta.groups) + (w.index >> 2)
    first = warps + group.first_warp
    if execute_until(group, warps, end) == 0:
        missing(w, first, group.executed, operation(w, group.executed).place)
        return wait_for_lanes(w, mask, here)
    if cta.fault != 0:
        return i32(RESCHEDULE)
    warp = w.index & 3
    for t in range(cta.launch.tiles):
        tile = group.tiles + t
        if ((tile.live >> warp) & 1) != 0 and tile.last < end:
            retire(tile, first, warp)
    w.retired = end
    return next
