"""wgmma: the operations that a warpgroup has issued, their computation, groups and waits.

A wgmma is computed into a tile at some time between its issue and the wait that covers it; its result reaches the registers at
that wait. The arithmetic is that of the numerics twin: `pack_a` and `pack_b` decode operands once, `dot` multiplies.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, load, minimum, stack, store
from mmulator.base.codegen.types import boolean, i32, i64, ptr, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.pending import choice, complete, covered, make_room, queue
from mmulator.runtime.native.asynchrony.waiting import wait_for_lanes, wake_warpgroup
from mmulator.runtime.native.hooks.events import READ, WRITE, registers, wgmma_issued, wgmma_waited
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.operands import warps_missing
from mmulator.runtime.native.matrix.wgmma_operands import WARPS, a_registers, accumulator_in, accumulator_out, operation
from mmulator.runtime.native.matrix.wgmma_products import begin_product, multiply, pack_step, packs_of
from mmulator.runtime.native.state import (
    FULL,
    RESCHEDULE,
    WGMMA,
    WGMMA_STEPS,
    Completes,
    FaultKind,
    Queue,
    Tile,
    Warp,
    Warpgroup,
    WgmmaTable,
)


@native(inline=True)
def frame_of(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> ptr:
    """Pointer to the registers of a frame, for an access to those in these slots."""
    registers(w, frame, slots, count, access, site)
    return w.regs + frame


def first_of(w: Any) -> Any:
    """Macro: the first warp of the warpgroup."""
    return cast_ptr(Warp, w.field("cta").field("warps")) + (w.field("index") & ~u32(3))


@native
def missing(first: ptr_to(Warp), number: u64, w: ptr_to(Warp), site: u32) -> boolean:
    """Whether a warp that has not issued operation `number` can no longer issue it as a whole; if so, a fault is recorded."""
    for i in range(u32(WARPS)):
        other = first + i
        if other.live != FULL and queue(other, WGMMA).issued <= number:
            warps_missing(w, site)
            fault(w, FaultKind.WGMMA_LANES, site, 0, number, 0)
            return True
    return False


@native
def enter_warpgroup(w: ptr_to(Warp), count: u32, site: u32) -> u32:
    """1 if the warp may issue `count` operations; 0 if it must wait for the others of its warpgroup, or has a fault.

    Checked first: that there are four warps, and that all their threads can take part.
    """
    cta = w.cta
    if cta.fault != 0:
        return 0
    q = queue(w, WGMMA)
    if (w.index | 3) >= cta.launch.warps:
        fault(w, FaultKind.WGMMA_LANES, site, 0, q.issued, 0)
        return 0
    if missing(first_of(w), q.issued, w, site):
        return 0
    return make_room(w, q, count)


@native
def tile_memory(tile: ptr_to(Tile), first: ptr_to(Warp)) -> ptr:
    """Memory of the accumulators of a tile."""
    cta = first.cta
    return cta.tile_memory + ((u64(tile) - u64(cta.tiles)) // Tile.size) * cta.launch.tile_bytes


@native
def retire(tile: ptr_to(Tile), first: ptr_to(Warp), warp: u32) -> None:
    """Write the tile's result to the registers of one warp, which are then up to date."""
    table = tile.table
    quarter = 16 * u64(table.n) * u64(table.d_bits) // 8
    regs = frame_of(first + warp, tile.frame[warp], table.d_slots, table.d_words, WRITE, tile.site)
    accumulator_out(table, regs, tile_memory(tile, first) + u64(warp) * quarter)
    tile.live = tile.live & ~(1 << warp)


@native
def hand_over(group: ptr_to(Warpgroup), table: ptr_to(WgmmaTable), first: ptr_to(Warp), number: u64) -> None:
    """Bring registers that operation `number` reads up to date, if other tiles hold newer values of them.

    Accumulators in flight may overlap, change their shape, or be the A of a later operation: the order of the operations
    decides, register by register. So tiles in flight never share a register: the older tile first writes its result to the
    registers.
    """
    for i in range(u32(WARPS)):
        bit = 1 << i
        op = operation(first + i, number)
        frame = op.frame
        for r in range(table.a_rival_count):
            source = group.tiles + table.a_rivals[r]
            if (source.live & bit) != 0 and source.frame[i] == frame:
                retire(source, first, i)
                a_registers(table, frame_of(first + i, frame, table.a_slots, 4, READ, op.site), op.a)
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
def differs(first: ptr_to(Warp), number: u64) -> u32:
    """Index of a warp whose operation `number` differs from that of the first warp; WARPS if all are equal."""
    op = operation(first, number)
    for i in range(u32(WARPS)):
        mine = operation(first + i, number)
        if u64(mine.table) != u64(op.table) or mine.b_desc != op.b_desc or mine.a_desc != op.a_desc or mine.scale_d != op.scale_d:
            return i
    return WARPS


@native
def goes_on(first: ptr_to(Warp), number: u64, next: u64) -> boolean:
    """Whether operation `next` can be computed as one product with operation `number` before it: it adds to the same
    accumulator, and no further registers must be brought up to date for it.
    """
    if differs(first, next) != WARPS:
        return False
    op = operation(first, number)
    more = operation(first, next)
    table = op.table
    then = more.table
    if more.scale_d == 0 or then.tile != table.tile or then.dot != table.dot or then.flags != table.flags or then.k != table.k:
        return False
    if then.a_rival_count != 0 or then.unfenced != 0:
        return False
    for i in range(u32(WARPS)):
        if operation(first + i, next).frame != operation(first + i, number).frame:
            return False
    return True


@native
def load_tile(first: ptr_to(Warp), number: u64, tile: ptr_to(Tile)) -> None:
    """Load the accumulator of operation `number`, unless the tile holds newer values than the registers."""
    op = operation(first, number)
    table = op.table
    memory = tile_memory(tile, first)
    quarter = 16 * i64(table.n) * i64(table.d_bits) // 8
    for i in range(u32(WARPS)):
        frame = operation(first + i, number).frame
        if op.scale_d != 0 and ((tile.live >> i) & 1) == 0:
            regs = frame_of(first + i, frame, table.d_slots, table.d_words, READ, op.site)
            accumulator_in(table, regs, memory + i64(i) * quarter)
        tile.frame[i] = frame


@native
def compute(group: ptr_to(Warpgroup), first: ptr_to(Warp), number: u64, end: u64) -> u32:
    """Compute operation `number` of a warpgroup into its tile, together with as many of the next operations as are one product
    with it; all warps have issued those before `end`. Returns their number; a fault may have been recorded.
    """
    op = operation(first, number)
    table = op.table
    wrong = differs(first, number)
    if wrong != WARPS:
        fault(first + wrong, FaultKind.WGMMA_MISMATCH, operation(first + wrong, number).site, 0, number, 0)
        return 1
    tile = group.tiles + table.tile
    hand_over(group, table, first, number)
    memory = tile_memory(tile, first)
    count = u32(1)
    at_a = stack(ptr, WGMMA_STEPS)
    at_b = stack(ptr, WGMMA_STEPS)
    begin_product(first)
    if not pack_step(first, number, 0, at_a, at_b):
        return count
    load_tile(first, number, tile)
    more = boolean(True)
    while more:
        more = False
        if count < WGMMA_STEPS and number + u64(count) < end:
            more = goes_on(first, number, number + u64(count))
        if more:
            if not pack_step(first, number + u64(count), count, at_a, at_b):
                return count
            count = count + 1
    multiply(first, number, count, at_a, at_b, memory)
    last = operation(first, number + u64(count) - 1)
    tile.live = 15
    tile.last = number + u64(count) - 1
    tile.table = last.table
    tile.site = last.site
    return count


@native
def carry_out_wgmma(w: ptr_to(Warp), number: u64, end: u64) -> u32:
    """Carry out operations of the four warps from `number` on, in the queues of all. Returns their number, 0 if a warp has not
    issued them. Shared memory does not change meanwhile.
    """
    first = first_of(w)
    limit = end
    for i in range(u32(WARPS)):
        limit = minimum(limit, queue(first + i, WGMMA).issued)
    if limit <= number:
        return 0
    group = cast_ptr(Warpgroup, w.cta.warpgroups) + (w.index >> 2)
    packs = packs_of(first)
    packs.moment = packs.moment + 1
    at = number
    while at < limit and w.cta.fault == 0:
        at = at + u64(compute(group, first, at, limit))
        if w.cta.fault == 0:
            for i in range(u32(WARPS)):
                queue(first + i, WGMMA).done = at
    return u32(at - number)


@native
def carry_out_due(w: ptr_to(Warp), q: ptr_to(Queue)) -> None:
    """Carry out the operations that the seed chose to complete now."""
    due = q.due
    q.due = 0
    complete(w, q, due)


@native
def wgmma_issue(
    w: ptr_to(Warp), table: ptr_to(WgmmaTable), a_desc: u64, b_desc: u64, scale_d: u32, metadata: ptr_to(u32), more: u32,
    site: u32,
) -> None:  # fmt: skip
    """Issue an operation by one warp; it can be carried out when the fourth warp has issued it.

    w, site: the warp and instruction.
    table: table of the instruction.
    a_desc, b_desc: descriptors.
    scale_d: mask of lanes.
    metadata: words of the metadata.
    more: whether another operation follows, and nothing in between shows whether this one was carried out.

    enter_warpgroup has admitted the warp: there is room in its queue, and all lanes are here.
    """
    cta = w.cta
    q = queue(w, WGMMA)
    if scale_d != 0 and scale_d != FULL:
        carry_out_due(w, q)
        fault(w, FaultKind.WGMMA_SCALE, site, 0, u64(scale_d), 0)
    if cta.fault != 0:
        return
    if table.a_rival_count != 0:  # what came before may write the registers that are read now
        carry_out_due(w, q)
        if cta.fault != 0:
            return
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
        a_registers(table, frame_of(w, op.frame, table.a_slots, 4, READ, site), op.a)
    wgmma_issued(w, number, site)
    w.used = 1
    q.issued = number + 1
    if (choice(w, q, q.issued) & (WGMMA.odds - 1)) == 0:
        q.due = q.issued
    if more == 0 or table.rival_count != 0 or table.a_rival_count != 0:
        carry_out_due(w, q)
    first = first_of(w)
    for i in range(u32(WARPS)):
        if queue(first + i, WGMMA).issued <= number:
            return
    wake_warpgroup(w)


@native
def wgmma_wait(w: ptr_to(Warp), mask: u32, pending: u64, here: i32, next: i32, site: u32) -> i32:
    """Execute wait_group: all but the newest `pending` groups are computed, and their results are in the registers."""
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
        return RESCHEDULE
    warp = w.index & 3
    group = cast_ptr(Warpgroup, cta.warpgroups) + (w.index >> 2)
    for t in range(cta.launch.tiles):
        tile = group.tiles + t
        if ((tile.live >> warp) & 1) != 0 and tile.last < end:
            retire(tile, first, warp)
    w.retired = end
    wgmma_waited(w, mask, end, site)
    return next
