"""bar and barrier (PTX ISA 9.1, Parallel Synchronization and Communication Instructions: bar)."""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_mask, cast_ptr, load, mask_bits, popcount, select, trailing_zeros
from mmulator.base.codegen.types import boolean, i32, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.waiting import partial_warp, set_pcs
from mmulator.runtime.native.hooks.events import barrier_arrived, barrier_over
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.state import NUM_BARRIERS, RESCHEDULE, Barrier, Cta, FaultKind, Warp

U32 = u32.vec(32)

SYNC, ARRIVE, RED_POPC, RED_AND, RED_OR = range(5)
ALIGNED = 8  # added to these


@native
def release_if_complete(cta: ptr_to(Cta), id: u32) -> boolean:
    """Whether barrier `id` is complete now; if so, the lanes of arrived warps continue."""
    bar = cast_ptr(Barrier, cta.barriers) + id
    need = bar.count
    if need == 0:
        need = cta.live_threads
    if bar.arrived == 0 or bar.arrived < need:
        return False
    bar.arrived = 0
    bar.came = 0
    cta.open_barriers = cta.open_barriers & ~(1 << id)
    barrier_over(cta, id)
    warps = cast_ptr(Warp, cta.warps)
    for i in range(cta.launch.warps):
        w = warps + i
        if w.bar_came[id] != 0:
            bar.came = bar.came + popcount(w.bar_came[id])
            cta.open_barriers = cta.open_barriers | (1 << id)
        else:
            lanes = w.bar_lanes[id]
            w.at_barrier = w.at_barrier & ~lanes
            if bar.red != 0:
                w.used = 1
                w.bar_result = select(bits_mask(lanes), U32(bar.pending), w.bar_result)
            w.bar_lanes[id] = 0
    return True


@native
def arrive_together(w: ptr_to(Warp), id: u32) -> None:
    """Let a warp arrive at a barrier with a count, when all its lanes that have not exited are there; it counts 32."""
    came = w.bar_came[id]
    if came != 0 and (w.live & ~came) == 0:
        bar = cast_ptr(Barrier, w.cta.barriers) + id
        bar.arrived = bar.arrived + 32
        w.bar_came[id] = 0


@native
def barrier(w: ptr_to(Warp), mask: u32, id: u32, count: u32, op: u32, pred: u32, next: i32, site: u32) -> i32:
    """Execute bar/barrier for `count` threads (0: all live threads).

    w, mask, site: the warp, lanes and instruction.
    id: number of the barrier.
    count: number of threads.
    op: SYNC, ARRIVE or a reduction.
    pred: mask of predicates.
    next: the next block.
    """
    cta = w.cta
    if id >= NUM_BARRIERS or (count & 31) != 0:
        fault(w, FaultKind.BAD_BARRIER, site, trailing_zeros(mask), u64(id), count)
        return RESCHEDULE
    if (op & ALIGNED) != 0:
        elsewhere = w.at_barrier & mask_bits(w.lane_pc != next)
        if elsewhere != 0:
            return partial_warp(w, mask, 0, site)
    op = op & ~u32(ALIGNED)
    bar = cast_ptr(Barrier, cta.barriers) + id
    if bar.came == 0:
        bar.count = count
        bar.red = 0
        bar.pending = 0
        if op == RED_AND:
            bar.pending = 1
    elif count != bar.count:
        fault(w, FaultKind.BARRIER_COUNTS, site, trailing_zeros(mask), u64(id) | (u64(bar.count) << 32), count)
        return RESCHEDULE
    barrier_arrived(w, mask, id, op, site)
    cta.open_barriers = cta.open_barriers | (1 << id)
    bar.came = bar.came + popcount(mask)
    if op >= RED_POPC:
        bar.red = 1
    voted = pred & mask
    if op == RED_POPC:
        bar.pending = bar.pending + popcount(voted)
    if op == RED_AND and voted != mask:
        bar.pending = 0
    if op == RED_OR and voted != 0:
        bar.pending = 1
    if op != ARRIVE:
        w.at_barrier = w.at_barrier | mask
        w.bar_lanes[id] = w.bar_lanes[id] | mask
        set_pcs(w, mask, next)
    if count == 0:
        bar.arrived = bar.arrived + popcount(mask)
    else:
        w.bar_came[id] = w.bar_came[id] | mask
        arrive_together(w, id)
    if release_if_complete(cta, id) or op == ARRIVE:
        return next
    return RESCHEDULE


@native
def barrier_named(
    w: ptr_to(Warp), mask: u32, ids: ptr_to(u32), counts: ptr_to(u32), op: u32, pred: u32, next: i32, site: u32
) -> i32:
    """`barrier` with number and count in registers, which must be equal in lanes that arrive together."""
    lane = trailing_zeros(mask)
    other = mask & mask_bits((load(U32, ids) != ids[lane]) | (load(U32, counts) != counts[lane]))
    if other != 0:
        fault(w, FaultKind.BARRIER_LANES, site, trailing_zeros(other), u64(ids[lane]), lane)
        return RESCHEDULE
    return barrier(w, mask, ids[lane], counts[lane], op, pred, next, site)
