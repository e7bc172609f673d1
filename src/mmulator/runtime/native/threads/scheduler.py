"""The scheduler of warps and clusters: it chooses which lanes run next, and which warp has the next turn.

Lanes of a warp run together while they are at the same block of the same frame. When they part, the deepest frame runs first
and in it the lowest block number, so that lanes meet again at the earliest possible point; from time to time another group has
a turn, which is the forward progress that sm_70 and later guarantee to each thread.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import (
    address,
    bits_mask,
    cast_ptr,
    cycles,
    mask_bits,
    minimum,
    reduce_max,
    reduce_min,
    select,
    stack,
    trailing_zeros,
)
from mmulator.base.codegen.stencils import ROOM
from mmulator.base.codegen.types import boolean, i32, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Builder, Value
from mmulator.runtime.native.asynchrony.pending import complete_for_sleepers
from mmulator.runtime.native.asynchrony.transfers import finish_transfers, grow_old, transfer_for_sleepers
from mmulator.runtime.native.asynchrony.waiting import end_waits, set_pcs
from mmulator.runtime.native.hooks.events import cluster_begins, cluster_ends, cluster_finished, round_over
from mmulator.runtime.native.memory.sums import settled
from mmulator.runtime.native.state import Cluster, Stop, Warp
from mmulator.runtime.native.threads import floats
from mmulator.runtime.native.threads.chance import hash_choice
from mmulator.runtime.native.threads.cluster import NO_CLUSTER, begin_next
from mmulator.runtime.native.threads.renewal import begin_cluster
from mmulator.runtime.native.threads.turns import ask, whose_turn

TURN = 64  # diverged choices between two turns for another group
SLICE = 2048  # blocks of code that a warp runs before the next has its turn
STOP_BITS = 3  # of a Stop
GOES_ON = -1


def call_block(code: Value, w: Value, regs: Value, mask: Value, pc: Value) -> Value:
    """Macro: run a block function."""
    return Builder.current().call_pointer(ptr(code), i32, [w, regs, mask, pc])


def begin_records(w: Value, regs: Value, mask: Value, room: Value, first: Value) -> Value:
    """Macro: run a block's records; each stencil calls that of the next record.

    w, regs, mask: parameters of the block's function.
    room: memory for its values.
    first: the first record.
    """
    return Builder.current().call_pointer(cast_ptr(ptr, first)[0], i32, [w, regs, mask, room, first])


@native
def run_records(w: ptr_to(Warp), regs: ptr, mask: u32, pc: i32) -> i32:
    """The function of each block that is joined from stencils (base/codegen/stencils.py)."""
    return begin_records(w, regs, mask, stack(u8, ROOM), w.cta.launch.records[pc])


@native
def part(w: ptr_to(Warp), ready: u32) -> u32:
    """Mask of the lanes that run next, among lanes at different places: the deepest frame, the lowest block. Sets w.pc and
    w.frame.
    """
    frames = w.lane_frame
    pcs = w.lane_pc
    turns = w.turns
    m = bits_mask(ready)
    frame = reduce_max(select(m, frames, 0))
    pc = reduce_min(select(m & (frames == frame), pcs, 0x7FFFFFFF))
    if (turns & (TURN - 1)) == 0:
        lane = (turns // TURN) & 31
        if ((ready >> lane) & 1) != 0:
            frame = frames[lane]
            pc = pcs[lane]
    w.pc = pc
    w.frame = frame
    return mask_bits((pcs == pc) & (frames == frame)) & w.live & ~w.at_barrier


@native(inline=True)
def pick(w: ptr_to(Warp)) -> u32:
    """Mask of the lanes that run next, 0 if none can; sets w.pc and w.frame."""
    ready = w.live & ~(w.waiting | w.at_barrier)
    if ready == 0:
        return 0
    w.turns = w.turns + 1
    first = trailing_zeros(ready)
    pc = cast_ptr(i32, address(w.lane_pc))[first]
    frame = cast_ptr(u32, address(w.lane_frame))[first]
    here = mask_bits((w.lane_pc == pc) & (w.lane_frame == frame))
    if (ready & ~here) != 0:
        return part(w, ready)
    w.pc = pc
    w.frame = frame
    return here & w.live & ~w.at_barrier


def pauses(w: Any) -> Value:
    """Macro: whether lanes have reached a nanosleep or the worker must check the clock, by a cheap test."""
    return cast_ptr(u64, w.field_address("asleep"))[0]


@native(inline=True)
def run_warp(w: ptr_to(Warp), turn: i64, most: i64) -> i64:
    """Run until the warp exits, blocks, sleeps, faults or has used `turn` blocks of code; or `most`, the rest of its cluster's
    budget: then it continues later as if it had not stopped. Returns the number of blocks, and in the lowest bits the reason
    for stopping.
    """
    cta = w.cta
    code = cta.launch.code
    counts = cta.cluster.counts
    stop = cta.launch.stop
    budget = minimum(turn, most)
    left = budget
    cta.cluster.runner = cast_ptr(u8, w)
    result = i32(Stop.BUDGET)
    together = u32(0)
    while left > 0:
        group = pick(w)
        together = 0
        if group == 0:
            result = Stop.BLOCKED
            if w.live == 0:
                result = Stop.EXITED
            break
        group = whose_turn(w, group)
        w.waiting = w.waiting & ~group
        w.held = w.held & ~group
        pc = w.pc
        regs = w.regs + w.frame
        if group == w.live:
            while pc >= 0 and left > 0 and cta.fault == 0 and stop[0] == 0 and pauses(w) == 0:
                pause = select(left > 16, left - 16, 0)
                while pc >= 0 and left > pause and cta.fault == 0 and pauses(w) == 0:
                    counts[pc] = counts[pc] + 1
                    pc = call_block(code[pc], w, regs, group, pc)
                    left -= 1
            together = u32(pc >= 0)
        else:
            counts[pc] = counts[pc] + 1
            pc = call_block(code[pc], w, regs, group, pc)
            left -= 1
        if cta.fault != 0:
            result = Stop.FAULT
            break
        if pc >= 0:
            set_pcs(w, group, pc)
        if stop[0] != 0:
            result = Stop.INTERRUPTED
            break
        if w.asleep != 0:
            awake = w.live & ~(w.waiting | w.at_barrier | w.asleep)
            w.asleep = 0
            w.turns = w.turns | (TURN - 1)  # another group is next
            if awake == 0 and w.live != 0:
                result = Stop.ASLEEP
                break
        elif w.tired != 0:
            w.tired = 0
            break
    ran = budget - left
    if result == Stop.BUDGET and ran < turn:
        w.turns = w.turns - together  # `pick` will say the same again
    return (ran << STOP_BITS) + i64(result)


@native
def run_cluster(cluster: ptr_to(Cluster)) -> i32:
    """Run the cluster's warps in turn, each for a slice, until its budget is used up or it ends.

    A later call continues where this one stopped: the actions of a warp depend on the turns, never on the time when the worker
    checks the clock. The position is kept in registers of the host until then.
    """
    if cluster.begun == 0:
        begin_cluster(cluster)
        cluster_begins(cluster)
    launch = cluster.launch
    stop = launch.stop
    warps = cast_ptr(Warp, cluster.warps)
    n = cluster.warp_count
    first = cluster.next_warp
    left = cluster.left
    rest = cluster.rest
    turn = cluster.turn
    running = cluster.running
    asleep = cluster.asleep
    done = cluster.done
    ended = i32(GOES_ON)
    while ended == GOES_ON:
        while turn < n:
            if left <= 0:
                ended = Stop.BUDGET
                break
            at = turn + first
            if at >= n:
                at = at - n
            w = warps + at
            if w.live == 0:
                rest = 0
                turn += 1
                done += 1
                continue
            if rest == 0:
                rest = SLICE
                if launch.slice != 0:
                    rest = i64(1 + hash_choice(launch.seed, cluster.number, cluster.turns) % launch.slice)
                    cluster.turns = cluster.turns + 1
                left -= 1
            ran = run_warp(w, rest, left)
            result = i32(ran & ((1 << STOP_BITS) - 1))
            left -= ran >> STOP_BITS
            rest -= ran >> STOP_BITS
            if result == Stop.FAULT:
                ended = Stop.FAULT
                break
            if stop[0] != 0:
                ended = Stop.INTERRUPTED
                break
            if result == Stop.BUDGET and rest > 0:
                ended = Stop.BUDGET
                break
            rest = 0
            turn += 1
            if result == Stop.EXITED:
                done += 1
            if result == Stop.BUDGET:
                running += 1
            if result == Stop.ASLEEP:
                asleep += 1
            if result == Stop.BLOCKED and w.held == w.live:
                ended = Stop.BLOCKED  # its lanes wait for each other, for ever
                break
        if ended != GOES_ON:
            break
        if done == n:
            cluster_ends(cluster)
            ended = Stop.EXITED
            if cluster.newest != 0:
                ended = i32(finish_transfers(cluster))
            break
        resting = running == 0 and asleep != 0
        helpless = boolean(False)
        if running == 0:
            helpless = stuck(cluster)
        if helpless:
            found = i32(help_sleepers(cluster))
            if found == Stop.ASLEEP:
                resting = True  # perhaps another cluster does something that these wait for
            elif found != Stop.BUDGET:
                ended = found
                break
        elif cluster.newest != 0:
            if grow_old(cluster) == Stop.FAULT:
                ended = Stop.FAULT
                break
        round_over(cluster)
        if cluster.stalled != 0:
            ended = Stop.BLOCKED
            break
        turn = 0
        running = 0
        asleep = 0
        done = 0
        if resting:
            ended = Stop.ASLEEP
    cluster.left = left
    cluster.rest = rest
    cluster.turn = turn
    cluster.running = running
    cluster.asleep = asleep
    cluster.done = done
    return ended


@native
def help_sleepers(cluster: ptr_to(Cluster)) -> u32:
    """Act when no lane of the cluster can continue. Returns BUDGET if a pending operation was completed, or waits for mbarriers
    ended early; ASLEEP if other clusters should run first; FAULT; BLOCKED for a deadlock.
    """
    flips = cluster.flips
    found = complete_for_sleepers(cluster)
    if found == Stop.BLOCKED or (found == Stop.BUDGET and cluster.flips == flips):
        more = transfer_for_sleepers(cluster)
        if more != Stop.BLOCKED:
            found = more
    if found == Stop.BLOCKED:
        found = ask(cluster)
    if found == Stop.BLOCKED:
        return end_waits(cluster)
    return found


@native
def run_row(cluster: ptr_to(Cluster)) -> i32:
    """Run the cluster that is here, and then others in the same memory, as long as some have not begun."""
    while True:
        if cluster.begun == 0:
            if cluster.launch.stop[0] != 0:
                return Stop.INTERRUPTED
            number = begin_next(cluster)
            if number == NO_CLUSTER:
                return Stop.EXITED
            cluster.number = number
        result = run_cluster(cluster)
        if result != Stop.EXITED:
            return result
        cluster_finished(cluster)
        cluster.begun = 0
        cluster.finished = cluster.finished + 1
        if cluster.single != 0:
            return Stop.EXITED
        if cluster.left <= 0:
            return Stop.BUDGET


@native
def run_clusters(cluster: ptr_to(Cluster), budget: i64) -> i32:
    """Run clusters for about `budget` blocks of code, or until they end. Afterwards `begun` tells whether cluster `number` is
    unfinished.
    """
    cluster.left = budget
    cluster.since = cycles()
    environment = stack(u64, 2)
    floats.enter(environment)
    result = run_row(cluster)
    settled(cluster)
    floats.leave(environment)
    return result


@native
def stuck(cluster: ptr_to(Cluster)) -> boolean:
    """Whether no lane of the cluster can continue."""
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        if (w.live & ~(w.waiting | w.at_barrier)) != 0:
            return False
    return True
