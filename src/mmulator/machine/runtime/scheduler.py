"""Warps and clusters: which lanes run next, and whose turn it is.

Lanes of a warp run together while they are at the same block of the same frame. When they part, the deepest frame goes
first and in it the lowest block number, so that lanes meet again at the earliest point where they can; every now and then
another group gets a turn, which is the forward progress that sm_70 and later promise to each thread.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import (
    bits_mask,
    cast_ptr,
    copy_bytes,
    fill_bytes,
    mask_bits,
    minimum,
    reduce_max,
    reduce_min,
    select,
    stack,
    trailing_zeros,
)
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime import floats
from mmulator.machine.runtime.accounts import forget_mbarriers
from mmulator.machine.runtime.chance import hash_choice
from mmulator.machine.runtime.cluster import NO_CLUSTER, first_cta, next_cluster
from mmulator.machine.runtime.events import cluster_begins, cluster_ends, cluster_finished, round_over
from mmulator.machine.runtime.pending import complete_for_sleepers
from mmulator.machine.runtime.standstill import end_waits
from mmulator.machine.runtime.sums import settled
from mmulator.machine.runtime.transfers import finish_transfers, grow_old, no_transfers, transfer_for_sleepers
from mmulator.machine.runtime.waiting import set_pcs
from mmulator.machine.state import Cluster, Cta, Stop, Warp

TURN = 64  # diverged choices between two turns for another group
SLICE = 2048  # blocks of code that a warp runs before the next has its turn
GOLDEN = 0x9E3779B1


def call_block(code: Value, w: Value, regs: Value, mask: Value) -> Value:
    """Macro: run a block function."""
    return Builder.current().call_pointer(ptr(code), i32, [w, regs, mask])


@native
def pick(w: ptr_to(Warp)) -> u32:
    """The lanes to run next, 0 if none can; sets w.pc and w.frame."""
    ready = w.live & ~(w.waiting | w.at_barrier)
    if ready == 0:
        return u32(0)
    frames = w.lane_frame
    pcs = w.lane_pc
    turns = w.turns + 1
    w.turns = turns
    first = trailing_zeros(ready)
    frame = cast_ptr(u32, address(w.lane_frame))[first]  # noqa: F821
    pc = cast_ptr(i32, address(w.lane_pc))[first]  # noqa: F821
    here = mask_bits((pcs == pc) & (frames == frame))
    if (ready & ~here) != 0:
        m = bits_mask(ready)
        frame = reduce_max(select(m, frames, 0))
        pc = reduce_min(select(m & (frames == frame), pcs, 0x7FFFFFFF))
        if (turns & (TURN - 1)) == 0:
            lane = (turns // TURN) & 31
            if ((ready >> lane) & 1) != 0:
                frame = frames[lane]
                pc = pcs[lane]
        here = mask_bits((pcs == pc) & (frames == frame))
    w.pc = pc
    w.frame = frame
    return here & w.live & ~w.at_barrier


@native
def run_warp(w: ptr_to(Warp), turn: i64) -> i32:
    """Run until the warp exits, blocks, sleeps, faults or has used so many blocks of code; or all that its cluster has left: then
    it goes on later as if it had not stopped. The cluster knows how much of both remains."""
    cta = w.cta
    cluster = cta.cluster
    code = cta.launch.code
    counts = cluster.counts
    stop = cta.launch.stop
    budget = minimum(turn, cluster.left)
    left = budget
    result = i32(Stop.BUDGET)
    together = u32(0)
    while left > 0:
        group = pick(w)
        together = u32(0)
        if group == 0:
            result = i32(Stop.BLOCKED)
            if w.live == 0:
                result = i32(Stop.EXITED)
            break
        w.waiting = w.waiting & ~group
        w.held = w.held & ~group
        pc = w.pc
        regs = w.regs + w.frame
        if group == w.live:
            while pc >= 0 and left > 0 and cta.fault == 0 and stop[0] == 0 and w.asleep == 0:
                pause = select(left > 16, left - 16, i64(0))
                while pc >= 0 and left > pause and cta.fault == 0 and w.asleep == 0:
                    counts[pc] = counts[pc] + 1
                    pc = call_block(code[pc], w, regs, group)
                    left -= 1
            together = u32(pc >= 0)
        else:
            counts[pc] = counts[pc] + 1
            pc = call_block(code[pc], w, regs, group)
            left -= 1
        if cta.fault != 0:
            result = i32(Stop.FAULT)
            break
        if pc >= 0:
            set_pcs(w, group, pc)
        if stop[0] != 0:
            result = i32(Stop.INTERRUPTED)
            break
        if w.asleep != 0:
            awake = w.live & ~(w.waiting | w.at_barrier | w.asleep)
            w.asleep = u32(0)
            w.turns = w.turns | (TURN - 1)  # another group is next
            if awake == 0 and w.live != 0:
                result = i32(Stop.ASLEEP)
                break
    cluster.left = cluster.left - (budget - left)
    cluster.rest = turn - (budget - left)
    if result == Stop.BUDGET and cluster.rest > 0:
        w.turns = w.turns - together  # `pick` will say the same again
    return result


@native
def renew(cluster: ptr_to(Cluster)) -> None:
    """The memory of a cluster as it was when it was new."""
    for i in range(cluster.span_count):
        span = cluster.spans + i
        if u64(span.fresh) == 0:
            fill_bytes(span.at, 0, span.bytes)
        else:
            copy_bytes(span.at, span.fresh, span.bytes)


@native
def begin_cluster(cluster: ptr_to(Cluster)) -> None:
    """Memory as new, whose turn is first, and where the CTAs of the cluster are in the grid, by rank (x fastest)."""
    if cluster.stale != 0:
        renew(cluster)
    cluster.stale = u32(1)
    cluster.turn = u32(0)
    cluster.rest = i64(0)
    cluster.running = u32(0)
    cluster.asleep = u32(0)
    cluster.done = u32(0)
    cluster.next_warp = u32(0)
    cluster.patience = u32(0)
    cluster.stalled = u32(0)
    forget_mbarriers(cluster)
    cluster.arrived = u32(0)
    cluster.generation = u32(0)
    cluster.rounds = u64(0)
    cluster.turns = u64(0)
    no_transfers(cluster)
    if cluster.seeded != 0:
        warps = u64(cluster.warp_count)
        first = cluster.number % warps * (u64(GOLDEN) % warps) + u64(cluster.seed)
        cluster.next_warp = u32(first % warps)
    launch = cluster.launch
    c = launch.cluster
    ctas = cast_ptr(Cta, cluster.ctas)
    corner = stack(u32, 3)
    first_cta(launch, cluster.number, corner)
    for rank in range(cluster.cta_count):
        cta = ctas + rank
        cta.ctaid[0] = corner[0] + rank % c[0]
        cta.ctaid[1] = corner[1] + rank // c[0] % c[1]
        cta.ctaid[2] = corner[2] + rank // (c[0] * c[1])
        cta.linear = cta.ctaid[0] + launch.nctaid[0] * (cta.ctaid[1] + launch.nctaid[1] * cta.ctaid[2])
    cluster.begun = u32(1)
    cluster_begins(cluster)


@native
def run_cluster(cluster: ptr_to(Cluster)) -> i32:
    """Run the cluster's warps in turn, each for a slice; back when nothing is left of its budget, or when it is over.

    It goes on where it stopped: what a warp does depends on the turns, never on when the worker looked up.
    """
    if cluster.begun == 0:
        begin_cluster(cluster)
    launch = cluster.launch
    warps = cast_ptr(Warp, cluster.warps)
    n = cluster.warp_count
    while True:
        while cluster.turn < n:
            if cluster.left <= 0:
                return i32(Stop.BUDGET)
            at = cluster.turn + cluster.next_warp
            if at >= n:
                at = at - n
            w = warps + at
            if w.live == 0:
                cluster.rest = i64(0)
                cluster.turn = cluster.turn + 1
                cluster.done = cluster.done + 1
                continue
            if cluster.rest == 0:
                cluster.rest = i64(SLICE)
                if launch.slice != 0:
                    cluster.rest = i64(1 + hash_choice(launch.seed, cluster.number, cluster.turns) % launch.slice)
                    cluster.turns = cluster.turns + 1
                cluster.left = cluster.left - 1
            result = run_warp(w, cluster.rest)
            if result == Stop.FAULT:
                return i32(Stop.FAULT)
            if launch.stop[0] != 0:
                return i32(Stop.INTERRUPTED)
            if result == Stop.BUDGET and cluster.rest > 0:
                return i32(Stop.BUDGET)
            cluster.rest = i64(0)
            cluster.turn = cluster.turn + 1
            if result == Stop.EXITED:
                cluster.done = cluster.done + 1
            if result == Stop.BUDGET:
                cluster.running = cluster.running + 1
            if result == Stop.ASLEEP:
                cluster.asleep = cluster.asleep + 1
            if result == Stop.BLOCKED and w.held == w.live:
                return i32(Stop.BLOCKED)  # its lanes wait for each other, for ever
        if cluster.done == n:
            cluster_ends(cluster)
            if cluster.newest != 0:
                return i32(finish_transfers(cluster))
            return i32(Stop.EXITED)
        resting = u32(cluster.running == 0 and cluster.asleep != 0)
        if cluster.running == 0 and stuck(cluster) != 0:
            found = help_sleepers(cluster)
            if found == Stop.ASLEEP:
                resting = u32(1)  # perhaps another cluster does something that these wait for
            elif found != Stop.BUDGET:
                return i32(found)
        elif cluster.newest != 0:
            if grow_old(cluster) == Stop.FAULT:
                return i32(Stop.FAULT)
        round_over(cluster)
        if cluster.stalled != 0:
            return i32(Stop.BLOCKED)
        cluster.turn = u32(0)
        cluster.running = u32(0)
        cluster.asleep = u32(0)
        cluster.done = u32(0)
        if resting != 0:
            return i32(Stop.ASLEEP)


@native
def help_sleepers(cluster: ptr_to(Cluster)) -> u32:
    """No lane of the cluster can go on by itself. BUDGET if something that is pending could be completed, of which one may have
    waited, or if waits for mbarriers end early; ASLEEP if others should have their turn, too; FAULT; BLOCKED for a deadlock."""
    flips = cluster.flips
    found = complete_for_sleepers(cluster)
    if found == Stop.BLOCKED or (found == Stop.BUDGET and cluster.flips == flips):
        more = transfer_for_sleepers(cluster)
        if more != Stop.BLOCKED:
            found = more
    if found == Stop.BLOCKED:
        return end_waits(cluster)
    return found


@native
def run_row(cluster: ptr_to(Cluster)) -> i32:
    """Run the cluster that is here, and then others in the same memory, as long as some have not begun."""
    while True:
        if cluster.begun == 0:
            if cluster.launch.stop[0] != 0:
                return i32(Stop.INTERRUPTED)
            number = next_cluster(cluster.launch)
            if number == u64(NO_CLUSTER):
                return i32(Stop.EXITED)
            cluster.number = number
        result = run_cluster(cluster)
        if result != Stop.EXITED:
            return result
        cluster_finished(cluster)
        cluster.begun = u32(0)
        cluster.finished = cluster.finished + 1
        if cluster.single != 0:
            return i32(Stop.EXITED)
        if cluster.left <= 0:
            return i32(Stop.BUDGET)


@native
def run_clusters(cluster: ptr_to(Cluster), budget: i64) -> i32:
    """The same; back after about `budget` blocks of code, or when they are over. `begun` then says whether cluster `number` is
    half-done."""
    cluster.left = budget
    environment = stack(u64, 2)
    floats.enter(environment)
    result = run_row(cluster)
    settled(cluster)
    floats.leave(environment)
    return result


@native
def stuck(cluster: ptr_to(Cluster)) -> u32:
    """1 if no lane of the cluster can go on by itself."""
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        if (w.live & ~(w.waiting | w.at_barrier)) != 0:
            return u32(0)
    return u32(1)
