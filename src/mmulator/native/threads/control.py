"""Control flow: branches, and the exit of lanes (PTX ISA 9.1, Control Flow Instructions)."""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import address, bits_mask, bits_of, cast_ptr, popcount, select
from mmulator.codegen.types import i32, ptr_to, u32, u64
from mmulator.native.asynchrony.waiting import partial_warp, wake_warpgroup
from mmulator.native.hooks.events import lanes_exit
from mmulator.native.hooks.faults import fault
from mmulator.native.state import RESCHEDULE, Barrier, FaultKind, Warp
from mmulator.native.threads.barrier import arrive_together, release_if_complete
from mmulator.native.threads.cluster import leave_cluster

I32 = i32.vec(32)


@native
def guard_warp(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32, site: u32) -> i32:
    """Handle a guarded instruction for whole warps on whose predicate lanes disagree: a fault if all of them are here."""
    if mask == w.live:
        return partial_warp(w, taken, mask & ~taken, site)
    return branch(w, mask, taken, target, next)


@native
def branch(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32) -> i32:
    """Record the targets of lanes that part."""
    m = bits_mask(mask)
    w.lane_pc = select(m, select(bits_mask(taken), I32(target), I32(next)), w.lane_pc)
    return RESCHEDULE


@native
def branch_indexed(w: ptr_to(Warp), mask: u32, index: ptr_to(u32), table: ptr_to(i32), n: u32, site: u32) -> i32:
    """Execute brx.idx: each lane has its own target."""
    pcs = address(w.lane_pc)
    out = cast_ptr(i32, pcs)
    for lane in bits_of(mask):
        at = index[lane]
        if at >= n:
            fault(w, FaultKind.BAD_BRANCH, site, lane, u64(at), n)
        else:
            out[lane] = table[at]
    return RESCHEDULE


@native
def exit_lanes(w: ptr_to(Warp), mask: u32, site: u32) -> i32:
    cta = w.cta
    lanes_exit(w, mask, site)
    w.live = w.live & ~mask
    w.held = 0
    w.waiting = 0  # wake lanes that waited for these
    if cta.launch.tiles != 0:
        wake_warpgroup(w)
    cta.live_threads = cta.live_threads - popcount(mask)
    bars = cast_ptr(Barrier, cta.barriers)
    for id in bits_of(cta.open_barriers):
        if (w.bar_came[id] | bars[id].arrived) != 0:  # somebody is at it
            arrive_together(w, id)
            release_if_complete(cta, id)
    if cta.cluster.arrived != 0:  # at barrier.cluster
        leave_cluster(w, mask)
    return RESCHEDULE
