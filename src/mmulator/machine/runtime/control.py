"""Warps and blocks: choosing lanes, divergence and reconvergence, barriers, calls, exit.

Lanes of a warp run together while they are at the same block of the same frame. When they part, the deepest frame goes
first and in it the lowest block number, so that lanes meet again at the earliest point where they can; every now and then
another group gets a turn, which is the forward progress that sm_70 and later promise to each thread.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import (
    bits_mask,
    cast_ptr,
    load,
    mask_bits,
    popcount,
    reduce_max,
    reduce_min,
    select,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.windows import local_place
from mmulator.machine.state import (
    FULL,
    NUM_BARRIERS,
    Barrier,
    Code,
    Cta,
    FaultKind,
    Stop,
    Warp,
)
from mmulator.program.addresses import HEADER_LOCAL, HEADER_RETURN_FRAME, HEADER_RETURN_PC, SLOT_FUNCTION

I32, U32 = i32.vec(32), u32.vec(32)
RESCHEDULE = int(Code.RESCHEDULE)
TURN = 64  # diverged choices between two turns for another group

SYNC, ARRIVE, RED_POPC, RED_AND, RED_OR = range(5)
ALIGNED = 8  # added to these


def call_block(code: Value, w: Value, regs: Value, mask: Value) -> Value:
    """Macro: run a block function."""
    return Builder.current().call_pointer(ptr(code), i32, [w, regs, mask])


@native
def set_pcs(w: ptr_to(Warp), mask: u32, pc: i32) -> None:
    w.lane_pc = select(bits_mask(mask), I32(pc), w.lane_pc)


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
    counts = cta.counts
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
def wait_for_lanes(w: ptr_to(Warp), mask: u32, pc: i32) -> i32:
    """Lanes at the start of block `pc` whose partners are elsewhere: it will run again, and counts then."""
    counts = w.cta.counts
    counts[pc] = counts[pc] - 1
    w.waiting = w.waiting | mask
    set_pcs(w, mask, pc)
    return i32(RESCHEDULE)


@native
def wait_for_partners(w: ptr_to(Warp), mask: u32, pc: i32) -> i32:
    """The same, when the partners are lanes of this warp: nobody else can let these go on."""
    w.held = w.held | mask
    return wait_for_lanes(w, mask, pc)


@native
def wait_for_members(w: ptr_to(Warp), mask: u32, members: u32, pc: i32, next: i32) -> i32:
    """At a bar.warp.sync. If the others wait at one too, wherever it is, with the same mask, all go on."""
    missing = members & w.live & ~mask
    come = w.held & mask_bits((w.lane_pc == w.sync_pc) & (w.sync_members == members))
    if (missing & ~come) != 0:
        m = bits_mask(mask)
        w.sync_pc = select(m, I32(pc), w.sync_pc)
        w.sync_next = select(m, I32(next), w.sync_next)
        w.sync_members = select(m, U32(members), w.sync_members)
        return wait_for_partners(w, mask, pc)
    counts = w.cta.counts
    left = missing
    while left != 0:
        at = w.lane_pc[trailing_zeros(left)]
        counts[at] = counts[at] + 1
        left = left & ~mask_bits(w.lane_pc == at)
    w.lane_pc = select(bits_mask(missing), w.sync_next, w.lane_pc)
    w.waiting = w.waiting & ~missing
    w.held = w.held & ~missing
    return next


@native
def partial_warp(w: ptr_to(Warp), here: u32, off: u32, site: u32) -> i32:
    """The fault of an instruction for whole warps: lanes that execute it, and lanes for which its predicate is false."""
    fault(w, FaultKind.PARTIAL_WARP, site, trailing_zeros(here), u64(here) | (u64(off) << 32), u32(0))
    return i32(RESCHEDULE)


@native
def wait_for_warp(w: ptr_to(Warp), mask: u32, pc: i32, site: u32) -> i32:
    """Part of a warp is at an instruction for whole warps. The others may come, unless some are gone for good."""
    if w.live != FULL:
        return partial_warp(w, mask, u32(0), site)
    return wait_for_partners(w, mask, pc)


@native
def guard_warp(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32, site: u32) -> i32:
    """A guarded instruction for whole warps, on whose predicate lanes disagree: a fault if all of them are here."""
    if mask == w.live:
        return partial_warp(w, taken, mask & ~taken, site)
    return branch(w, mask, taken, target, next)


@native
def branch(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32) -> i32:
    """Lanes part: write where each goes."""
    m = bits_mask(mask)
    w.lane_pc = select(m, select(bits_mask(taken), I32(target), I32(next)), w.lane_pc)
    return i32(RESCHEDULE)


@native
def branch_indexed(w: ptr_to(Warp), mask: u32, index: ptr_to(u32), table: ptr_to(i32), n: u32, site: u32) -> i32:
    """brx.idx: each lane its own target."""
    left = mask
    pcs = address(w.lane_pc)  # noqa: F821
    out = cast_ptr(i32, pcs)
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        at = index[lane]
        if at >= n:
            fault(w, FaultKind.BAD_BRANCH, site, lane, u64(at), n)
        else:
            out[lane] = table[at]
    return i32(RESCHEDULE)


# barriers -----------------------------------------------------------------------------------------------------------
@native
def release_if_complete(cta: ptr_to(Cta), id: u32) -> u32:
    """1 if barrier `id` completed now: the lanes of warps that arrived may go on."""
    bar = cast_ptr(Barrier, cta.barriers) + id
    need = bar.count
    if need == 0:
        need = cta.live_threads
    if bar.arrived == 0 or bar.arrived < need:
        return u32(0)
    bar.arrived = 0
    bar.came = 0
    warps = cast_ptr(Warp, cta.warps)
    for i in range(cta.launch.warps):
        w = warps + i
        if w.bar_came[id] != 0:
            bar.came = bar.came + popcount(w.bar_came[id])
        else:
            lanes = w.bar_lanes[id]
            w.at_barrier = w.at_barrier & ~lanes
            if bar.red != 0:
                w.bar_result = select(bits_mask(lanes), U32(bar.pending), w.bar_result)
            w.bar_lanes[id] = 0
    return u32(1)


@native
def arrive_together(w: ptr_to(Warp), id: u32) -> None:
    """At a barrier with a count a warp arrives when all its lanes that have not exited are there; it counts 32."""
    came = w.bar_came[id]
    if came != 0 and (w.live & ~came) == 0:
        bar = cast_ptr(Barrier, w.cta.barriers) + id
        bar.arrived = bar.arrived + 32
        w.bar_came[id] = 0


@native
def barrier(w: ptr_to(Warp), mask: u32, id: u32, count: u32, op: u32, pred: u32, next: i32, site: u32) -> i32:
    """bar/barrier: `count` threads (0: all that live)."""
    cta = w.cta
    if id >= NUM_BARRIERS or (count & 31) != 0:
        fault(w, FaultKind.BAD_BARRIER, site, trailing_zeros(mask), u64(id), count)
        return i32(RESCHEDULE)
    if (op & ALIGNED) != 0:
        elsewhere = w.at_barrier & mask_bits(w.lane_pc != next)
        if elsewhere != 0:
            return partial_warp(w, mask, u32(0), site)
    op = op & ~u32(ALIGNED)
    bar = cast_ptr(Barrier, cta.barriers) + id
    if bar.came == 0:
        bar.count = count
        bar.red = u32(0)
        bar.pending = u32(0)
        if op == RED_AND:
            bar.pending = u32(1)
    elif count != bar.count:
        fault(w, FaultKind.BARRIER_COUNTS, site, trailing_zeros(mask), u64(id) | (u64(bar.count) << 32), count)
        return i32(RESCHEDULE)
    bar.came = bar.came + popcount(mask)
    if op >= RED_POPC:
        bar.red = u32(1)
    voted = pred & mask
    if op == RED_POPC:
        bar.pending = bar.pending + popcount(voted)
    if op == RED_AND and voted != mask:
        bar.pending = u32(0)
    if op == RED_OR and voted != 0:
        bar.pending = u32(1)
    if op != ARRIVE:
        w.at_barrier = w.at_barrier | mask
        w.bar_lanes[id] = w.bar_lanes[id] | mask
        set_pcs(w, mask, next)
    if count == 0:
        bar.arrived = bar.arrived + popcount(mask)
    else:
        w.bar_came[id] = w.bar_came[id] | mask
        arrive_together(w, id)
    if release_if_complete(cta, id) != 0 or op == ARRIVE:
        return next
    return i32(RESCHEDULE)


@native
def wake_warpgroup(w: ptr_to(Warp)) -> None:
    """Warps that wait for this one at a wgmma look again."""
    cta = w.cta
    warps = cast_ptr(Warp, cta.warps)
    for i in range(w.index & ~u32(3), (w.index | 3) + 1):
        if i < cta.launch.warps:
            other = warps + i
            other.waiting = u32(0)


@native
def barrier_named(
    w: ptr_to(Warp), mask: u32, ids: ptr_to(u32), counts: ptr_to(u32), op: u32, pred: u32, next: i32, site: u32
) -> i32:
    """The same with barrier and count in registers, which lanes that come together must agree on."""
    lane = trailing_zeros(mask)
    other = mask & mask_bits((load(U32, ids) != ids[lane]) | (load(U32, counts) != counts[lane]))
    if other != 0:
        fault(w, FaultKind.BARRIER_LANES, site, trailing_zeros(other), u64(ids[lane]), lane)
        return i32(RESCHEDULE)
    return barrier(w, mask, ids[lane], counts[lane], op, pred, next, site)


@native
def exit_lanes(w: ptr_to(Warp), mask: u32) -> i32:
    cta = w.cta
    w.live = w.live & ~mask
    w.held = u32(0)
    w.waiting = u32(0)  # who waited for these lanes looks again
    if cta.launch.tiles != 0:
        wake_warpgroup(w)
    cta.live_threads = cta.live_threads - popcount(mask)
    for id in range(u32(NUM_BARRIERS)):
        arrive_together(w, id)
        release_if_complete(cta, id)
    return i32(RESCHEDULE)


# calls --------------------------------------------------------------------------------------------------------------
@native
def call_function(
    w: ptr_to(Warp), mask: u32, targets: ptr_to(i32), next: i32, caller: u32, local_bytes: u32, site: u32
) -> i32:
    """Enter functions: each lane of `mask` its own target. Functions go by their number in `launch.callees`.

    A frame lies where its function's frames lie; one level on if the caller can be called by it, since then the lane may be
    in that function already.
    """
    launch = w.cta.launch
    own = launch.callees + caller
    from_ = w.frame
    local = load(U32, w.regs + from_ + HEADER_LOCAL) + local_bytes
    too_deep = u64(reduce_max(select(bits_mask(mask), local, 0))) >= launch.local_bytes
    goals = load(I32, targets)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        number = targets[lane]
        some = mask_bits(goals == number) & left
        left = left & ~some
        if number < 0:
            fault(w, FaultKind.BAD_CALL, site, lane, u64(0), u32(0))
            return i32(RESCHEDULE)
        callee = launch.callees + number
        frame = callee.offset
        if callee.cycle == own.cycle:
            frame = frame + (from_ - own.offset) + callee.stride
        if too_deep or frame >= callee.end:
            fault(w, FaultKind.STACK_OVERFLOW, site, lane, u64(frame), u32(0))
            return i32(RESCHEDULE)
        m = bits_mask(some)
        new = w.regs + frame
        store(select(m, I32(next), load(I32, new + HEADER_RETURN_PC)), new + HEADER_RETURN_PC)
        store(select(m, U32(from_), load(U32, new + HEADER_RETURN_FRAME)), new + HEADER_RETURN_FRAME)
        store(select(m, local, load(U32, new + HEADER_LOCAL)), new + HEADER_LOCAL)
        w.lane_frame = select(m, U32(frame), w.lane_frame)
        w.lane_pc = select(m, I32(callee.entry), w.lane_pc)
    return i32(RESCHEDULE)


@native
def find_functions(w: ptr_to(Warp), mask: u32, addresses: ptr_to(u64), targets: ptr_to(i32)) -> None:
    """Function addresses of an indirect call to the kernel's functions, -1 for what is none that a pointer can reach."""
    launch = w.cta.launch
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        at = addresses[lane]
        number = at & 0xFFFFFFFF
        found = i32(-1)
        if (at >> 32) == SLOT_FUNCTION and number < launch.function_count:
            found = launch.functions[number]
        targets[lane] = found


@native
def copy_local(w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), size: u32, site: u32) -> None:
    """Parameters of a call: `size` bytes of each lane's local memory to another place in it, by offset."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        given = local_place(w, lane, source[lane], size, READ, site)
        taken = local_place(w, lane, target[lane], size, WRITE, site)
        if u64(given) == 0 or u64(taken) == 0:
            return
        for at in range(u64(size)):
            taken[at] = given[at]


def call_print(function: Value, *args: Value) -> Value:
    """Macro: the host function that prints; 1 + the lane that cannot, or 0."""
    return Builder.current().call_pointer(ptr(function), u32, args)


@native
def device_print(
    w: ptr_to(Warp), mask: u32, formats: ptr_to(u64), values: ptr_to(u64), results: ptr_to(u32), site: u32
) -> None:
    """vprintf: each lane's format and argument buffer, by generic address."""
    if w.cta.fault == 0:
        failed = call_print(w.cta.launch.print, w, mask, formats, values, results)
        if failed != 0:
            fault(w, FaultKind.PRINT, site, failed - 1, u64(0), u32(0))


@native
def return_lanes(w: ptr_to(Warp), regs: ptr, mask: u32) -> i32:
    m = bits_mask(mask)
    w.lane_pc = select(m, load(I32, regs + HEADER_RETURN_PC), w.lane_pc)
    w.lane_frame = select(m, load(U32, regs + HEADER_RETURN_FRAME), w.lane_frame)
    return i32(RESCHEDULE)


# blocks -------------------------------------------------------------------------------------------------------------
@native
def run_cta(cta: ptr_to(Cta), slices: i64) -> i32:
    """Run the block's warps in turn, each for a slice; back after `slices` rounds, or when it is over."""
    launch = cta.launch
    warps = cast_ptr(Warp, cta.warps)
    n = launch.warps
    for _ in range(slices):
        running = u32(0)
        done = u32(0)
        for j in range(n):
            at = j + cta.next_warp
            if at >= n:
                at = at - n
            w = warps + at
            if w.live == 0:
                done += 1
                continue
            result = run_warp(w, i64(2048))
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
        cta.slices = cta.slices + 1
        if done == n:
            return i32(Stop.EXITED)
        if running == 0 and not_progressing(cta) != 0:
            return i32(Stop.BLOCKED)
    return i32(Stop.BUDGET)


@native
def not_progressing(cta: ptr_to(Cta)) -> u32:
    """1 if no lane of the block can run any more."""
    warps = cast_ptr(Warp, cta.warps)
    for i in range(cta.launch.warps):
        w = warps + i
        if (w.live & ~(w.waiting | w.at_barrier)) != 0:
            return u32(0)
    return u32(1)


CONTROL = [
    fault, set_pcs, pick, run_warp, wait_for_lanes, branch, branch_indexed, barrier, exit_lanes, call_function, find_functions,
    return_lanes, run_cta,
]  # fmt: skip
