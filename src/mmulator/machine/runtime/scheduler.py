"""Warps and clusters: which lanes run next, and whose turn it is.

Lanes of a warp run together while they are at the same block of the same frame. When they part, the deepest frame goes
first and in it the lowest block number, so that lanes meet again at the earliest point where they can; every now and then
another group gets a turn, which is the forward progress that sm_70 and later promise to each thread.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_mask, cast_ptr, mask_bits, reduce_max, reduce_min, select
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.pending import complete_for_sleepers
from mmulator.machine.runtime.waiting import set_pcs
from mmulator.machine.state import Cluster, Cta, Stop, Warp

TURN = 64  # diverged choices between two turns for another group
SLICE = 2048  # blocks of code that a warp runs before the next has its turn


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
    m = bits_mask(ready)
    frame = reduce_max(select(m, frames, 0))
    pc = reduce_min(select(m & (frames == frame), pcs, 0x7FFFFFFF))
    turns = w.turns + 1
    w.turns = turns
    if (turns & (TURN - 1)) == 0:
        lane = (turns // TURN) & 31
        if ((ready >> lane) & 1) != 0:
            frame = frames[lane]
            pc = pcs[lane]
    w.pc = pc
    w.frame = frame
    return mask_bits((pcs == pc) & (frames == frame)) & w.live & ~w.at_barrier


@native
def run_warp(w: ptr_to(Warp), budget: i64) -> i32:
    """Run until the warp exits, blocks, faults or has used its budget of blocks."""
    cta = w.cta
    code = cta.launch.code
    counts = cta.cluster.counts
    stop = cta.launch.stop
    left = budget
    while True:
        group = pick(w)
        if group == 0:
            if w.live == 0:
                return i32(Stop.EXITED)
            return i32(Stop.BLOCKED)
        w.waiting = w.waiting & ~group
        w.held = w.held & ~group
        pc = w.pc
        regs = w.regs + w.frame
        if group == w.live:
            while pc >= 0 and left > 0 and cta.fault == 0 and stop[0] == 0:
                pause = select(left > 16, left - 16, i64(0))
                while pc >= 0 and left > pause and cta.fault == 0:
                    counts[pc] = counts[pc] + 1
                    pc = call_block(code[pc], w, regs, group)
                    left -= 1
        else:
            counts[pc] = counts[pc] + 1
            pc = call_block(code[pc], w, regs, group)
            left -= 1
        if cta.fault != 0:
            return i32(Stop.FAULT)
        if pc >= 0:
            set_pcs(w, group, pc)
        if stop[0] != 0:
            return i32(Stop.INTERRUPTED)
        if left <= 0:
            return i32(Stop.BUDGET)


@native
def begin_cluster(cluster: ptr_to(Cluster)) -> None:
    """Where the CTAs of the cluster are in the grid, by rank (x fastest)."""
    launch = cluster.launch
    c = launch.cluster
    ctas = cast_ptr(Cta, cluster.ctas)
    across = u64(launch.nctaid[0] // c[0])
    down = u64(launch.nctaid[1] // c[1])
    x = u32(cluster.number % across) * c[0]
    y = u32(cluster.number // across % down) * c[1]
    z = u32(cluster.number // (across * down)) * c[2]
    for rank in range(cluster.cta_count):
        cta = ctas + rank
        cta.ctaid[0] = x + rank % c[0]
        cta.ctaid[1] = y + rank // c[0] % c[1]
        cta.ctaid[2] = z + rank // (c[0] * c[1])
        cta.linear = cta.ctaid[0] + launch.nctaid[0] * (cta.ctaid[1] + launch.nctaid[1] * cta.ctaid[2])
    cluster.begun = u32(1)


@native
def run_cluster(cluster: ptr_to(Cluster), slices: i64) -> i32:
    """Run the cluster's warps in turn, each for a slice; back after `slices` rounds, or when it is over."""
    if cluster.begun == 0:
        begin_cluster(cluster)
    launch = cluster.launch
    warps = cast_ptr(Warp, cluster.warps)
    n = cluster.warp_count
    for _ in range(slices):
        running = u32(0)
        done = u32(0)
        for j in range(n):
            at = j + cluster.next_warp
            if at >= n:
                at = at - n
            w = warps + at
            if w.live == 0:
                done += 1
                continue
            result = run_warp(w, i64(SLICE))
            if result == Stop.FAULT:
                return i32(Stop.FAULT)
            if launch.stop[0] != 0:
                return i32(Stop.INTERRUPTED)
            if result == Stop.EXITED:
                done += 1
            if result == Stop.BUDGET:
                running += 1
            if result == Stop.BLOCKED and w.held == w.live:
                return i32(Stop.BLOCKED)  # its lanes wait for each other, for ever
        if done == n:
            return i32(Stop.EXITED)
        if running == 0 and asleep(cluster) != 0:
            found = complete_for_sleepers(cluster)
            if found != Stop.BUDGET:
                return i32(found)
    return i32(Stop.BUDGET)


@native
def asleep(cluster: ptr_to(Cluster)) -> u32:
    """1 if no lane of the cluster can go on by itself."""
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        if (w.live & ~(w.waiting | w.at_barrier)) != 0:
            return u32(0)
    return u32(1)
