"""Lanes that wait: for others of their warp, for other warps, or for pending operations; and the functions that wake them."""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_mask, bits_of, cast_ptr, mask_bits, select, trailing_zeros
from mmulator.base.codegen.types import boolean, i32, ptr_to, u8, u32, u64
from mmulator.runtime.native.hooks.blocks import block_again, block_begins
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.state import FULL, RESCHEDULE, Cluster, FaultKind, Stop, Warp

I32, U32 = i32.vec(32), u32.vec(32)


@native(inline=True)
def set_pcs(w: ptr_to(Warp), mask: u32, pc: i32) -> None:
    w.lane_pc = select(bits_mask(mask), I32(pc), w.lane_pc)


@native
def fall_asleep(w: ptr_to(Warp), mask: u32) -> None:
    """Let lanes at a nanosleep run after the others."""
    w.asleep = w.asleep | mask


@native
def wait_for_lanes(w: ptr_to(Warp), mask: u32, pc: i32) -> i32:
    """Let lanes at the start of block `pc` wait for their partners; the block runs again, and counts then."""
    counts = w.cta.cluster.counts
    counts[pc] = counts[pc] - 1
    block_again(w, mask, pc, mask)
    w.waiting = w.waiting | mask
    set_pcs(w, mask, pc)
    return RESCHEDULE


@native
def wait_for_partners(w: ptr_to(Warp), mask: u32, pc: i32) -> i32:
    """Let lanes sleep that wait for other lanes of their own warp; only these can release them."""
    w.held = w.held | mask
    return wait_for_lanes(w, mask, pc)


@native
def wait_for_members(w: ptr_to(Warp), mask: u32, members: u32, pc: i32, next: i32) -> i32:
    """Let lanes wait at a bar.warp.sync. If all other members wait at one with the same mask, at any instruction, all
    continue.
    """
    missing = members & w.live & ~mask
    come = w.held & mask_bits((w.lane_pc == w.sync_pc) & (w.sync_members == members))
    if (missing & ~come) != 0:
        m = bits_mask(mask)
        w.sync_pc = select(m, I32(pc), w.sync_pc)
        w.sync_next = select(m, I32(next), w.sync_next)
        w.used = 1
        w.sync_members = select(m, U32(members), w.sync_members)
        return wait_for_partners(w, mask, pc)
    counts = w.cta.cluster.counts
    left = missing
    while left != 0:
        at = w.lane_pc[trailing_zeros(left)]
        counts[at] = counts[at] + 1
        here = left & mask_bits(w.lane_pc == at)
        block_begins(w, here, at, 1)
        left = left & ~here
    w.lane_pc = select(bits_mask(missing), w.sync_next, w.lane_pc)
    w.waiting = w.waiting & ~missing
    w.held = w.held & ~missing
    return next


@native
def partial_warp(w: ptr_to(Warp), here: u32, off: u32, site: u32) -> i32:
    """Record the fault of an instruction for whole warps. here: lanes that execute it. off: lanes whose predicate is false."""
    fault(w, FaultKind.PARTIAL_WARP, site, trailing_zeros(here), u64(here) | (u64(off) << 32), 0)
    return RESCHEDULE


@native
def wait_for_warp(w: ptr_to(Warp), mask: u32, pc: i32, site: u32) -> i32:
    """Let a part of a warp wait at an instruction for whole warps. The other lanes may still arrive, unless some
    have exited.
    """
    if w.live != FULL:
        return partial_warp(w, mask, 0, site)
    return wait_for_partners(w, mask, pc)


@native
def wake_warpgroup(w: ptr_to(Warp)) -> None:
    """Wake the warps that wait for this one at a wgmma."""
    cta = w.cta
    warps = cast_ptr(Warp, cta.warps)
    for i in range(w.index & ~u32(3), (w.index | 3) + 1):
        if i < cta.launch.warps:
            other = warps + i
            other.waiting = 0


# at an mbarrier -------------------------------------------------------------------------------------------------------
SEVERAL = 1  # in place of an address


@native
def sleep_at(w: ptr_to(Warp), mask: u32, barrier: u64, pc: i32) -> None:
    """Let lanes at block `pc` sleep until the phase of an mbarrier (at a host address) is complete, or their time is over."""
    if (w.waiting & ~mask) == 0 or w.awaits == barrier:
        w.awaits = barrier
    else:
        w.awaits = SEVERAL
    w.waiting = w.waiting | mask
    w.napping = w.napping | mask
    for lane in bits_of(mask):
        w.naps_at[lane] = barrier
    set_pcs(w, mask, pc)


@native
def wake_at(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """Wake all lanes that sleep at an mbarrier whose phase is now complete. A chip resumes them because of that, and their wait
    succeeds even if later phases are over before they run again.
    """
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        if w.awaits == barrier or w.awaits == SEVERAL:
            for lane in bits_of(w.waiting & w.napping):
                if w.naps_at[lane] == barrier:
                    w.waiting = w.waiting & ~(1 << lane)
                    w.granted = w.granted | (1 << lane)


@native
def time_out(cluster: ptr_to(Cluster)) -> boolean:
    """End waits for mbarriers early, as a chip does after some time, when no lane can continue. Returns False if no
    lane waits.
    """
    warps = cast_ptr(Warp, cluster.warps)
    found = boolean(False)
    for i in range(cluster.warp_count):
        w = warps + i
        lanes = w.napping & w.waiting
        if lanes != 0:
            w.timed_out = w.timed_out | lanes
            w.waiting = w.waiting & ~lanes
            found = True
    return found


@native
def wake(cluster: ptr_to(Cluster)) -> None:
    """Wake all waiting lanes."""
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        (warps + i).waiting = 0


# standstill ----------------------------------------------------------------------------------------------------------
PATIENCE = 1 << 20  # tries of threads that look at memory which other clusters may write
QUIET = 16  # what a try counts of those that do not
PLACES = Warp.offset["lane_pc"]  # where lanes are: program counters and frames
PLACE_WORDS = (Warp.offset["live"] - PLACES) // 8
MIX = 0x9E3779B97F4A7C15


def mixed(value: Any, more: Any) -> Any:
    """Macro: a step of a hash."""
    x = (value ^ more) * MIX
    return x ^ (x >> 29)


@native
def hash_words(value: u64, words: ptr_to(u64), count: u64) -> u64:
    """A hash of words, from the hash of what is before them."""
    for i in range(count):
        value = mixed(value, words[i])
    return value


@native
def state_of_lanes(cluster: ptr_to(Cluster)) -> u64:
    """A hash of all registers, and of the places of all lanes."""
    warps = cast_ptr(Warp, cluster.warps)
    value = u64(0)
    size = cluster.launch.frame_bytes
    for i in range(cluster.warp_count):
        w = warps + i
        value = mixed(value, u64(w.live) | (u64(w.at_barrier) << 32))
        value = hash_words(value, cast_ptr(u64, cast_ptr(u8, w) + PLACES), PLACE_WORDS)
        value = hash_words(value, cast_ptr(u64, w.regs), size // 8)
    return value


@native
def accesses(cluster: ptr_to(Cluster)) -> u64:
    """Number of executed blocks of code that access memory."""
    launch = cluster.launch
    total = u64(0)
    for i in range(launch.noisy_count):
        total = total + cluster.counts[launch.noisy[i]]
    return total


@native
def end_waits(cluster: ptr_to(Cluster)) -> u32:
    """End waits early. Returns BUDGET if some ended, ASLEEP if other clusters should run first, BLOCKED if it is useless."""
    if cluster.patience == 0:
        cluster.tries = 0
    noise = accesses(cluster)
    state = state_of_lanes(cluster)
    tries = cluster.tries
    if tries != 0 and state == cluster.print and noise == cluster.noise:
        return Stop.BLOCKED
    if (tries & (tries - 1)) == 0:  # compare with this one, until there were twice as many
        cluster.print = state
        cluster.noise = noise
    alone = noise == cluster.heard or cluster.others == 0  # no other thread can change the memory that these lanes read
    cluster.patience = cluster.patience + select(alone, QUIET, u32(1))
    cluster.heard = noise
    cluster.tries = tries + 1
    if cluster.patience > PATIENCE:
        return Stop.BLOCKED
    if not time_out(cluster):
        return Stop.BLOCKED
    if alone:
        return Stop.BUDGET
    return Stop.ASLEEP
