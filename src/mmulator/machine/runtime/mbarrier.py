"""The 64 bits of an mbarrier, as a chip has them in shared memory (PTX ISA 9.1, mbarrier).

Counts of arrivals are kept as what 2^20 exceeds them by, so that an arrival is an addition and the phase is over when it carries.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, trailing_zeros
from mmulator.codegen.types import i32, ptr, ptr_to, u32, u64
from mmulator.machine.runtime.chance import hash_choice
from mmulator.machine.runtime.waiting import set_pcs, sleep_at, wake_at
from mmulator.machine.state import RESCHEDULE, Cluster, Warp

COUNT, BYTES = 20, 22  # bits
EXPECTED, PENDING_BYTES, PENDING, PHASE = 1, 21, 43, 63  # the first bit of each
ALIGNMENT = 8


@native
def complete_part(cluster: ptr_to(Cluster), barrier: ptr_to(u64), arrivals: u64, bytes: u64) -> u32:
    """Arrivals that are no longer awaited in this phase, and bytes. With the last of both the next phase begins: 1, and who
    sleeps at this mbarrier looks again."""
    word = barrier[0]
    mask = u64((1 << COUNT) - 1)
    left = ((u64(0) - (word >> PENDING)) & mask) - arrivals
    awaited = ((word >> PENDING_BYTES) - bytes) & ((1 << BYTES) - 1)
    phase = word >> PHASE
    expected = (word >> EXPECTED) & mask
    pending = (u64(0) - left) & mask
    flips = left == 0 and awaited == 0
    if flips:
        pending = expected
        phase = phase ^ 1
    barrier[0] = (word & 1) | (expected << EXPECTED) | (awaited << PENDING_BYTES) | (pending << PENDING) | (phase << PHASE)
    if flips:
        cluster.flips = cluster.flips + 1
        cluster.patience = u32(0)
        wake_at(cluster, u64(barrier))
    return u32(flips)


# operations of lanes ------------------------------------------------------------------------------------------------
@native
def init(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counts: ptr_to(u32)) -> None:
    """mbarrier.init: the first phase of a barrier of so many arrivals."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        pending = (u64(0) - u64(counts[lane])) & ((1 << COUNT) - 1)
        cast_ptr(u64, host[lane])[0] = (pending << EXPECTED) | (pending << PENDING)


@native
def arrive(
    w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counts: ptr_to(u32), expected: ptr_to(u32), states: ptr_to(u64)
) -> None:
    """mbarrier.arrive and arrive.expect_tx, lane after lane: states[l] = the word as it was."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        barrier = cast_ptr(u64, host[lane])
        states[lane] = barrier[0] >> PENDING_BYTES << PENDING_BYTES
        complete_part(w.cta.cluster, barrier, u64(counts[lane]), u64(0) - u64(expected[lane]))


# waiting ------------------------------------------------------------------------------------------------------------
@native
def over(barrier: ptr_to(u64), parity: u32) -> u32:
    """1 if the phase of this parity is complete: the current one has the other."""
    return u32(u32(barrier[0] >> PHASE) != parity)


@native
def wait_at(
    w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, here: i32, next: i32, done: ptr_to(u32)
) -> i32:
    """test_wait and try_wait: lanes whose phase is complete go on, `done` says which. The others sleep until it is; now and then,
    as the seed says, and when nobody else can go on, they hear that it is not.

    A thread that polls sleeps, too: nothing but the phase can change what it hears. host: where the mbarriers of the lanes are.
    """
    found = u32(0)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        if over(cast_ptr(u64, host[lane]), (parities >> lane) & 1) != 0:
            found = found | (u32(1) << lane)
    done[0] = found
    go = found | (w.timed_out & mask)
    w.timed_out = w.timed_out & ~mask
    w.napping = w.napping & ~mask
    w.polls = w.polls + 1
    if go == 0:
        cta = w.cta
        chance = hash_choice(cta.launch.seed, u64(cta.linear) * 64 + u64(w.index), w.polls + (1 << 56))
        if (chance & 3) == 0:
            go = mask
    if go == mask:
        return next
    counts = w.cta.cluster.counts
    counts[here] = counts[here] - u64(go == 0)  # who sleeps comes here again
    left = mask & ~go
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        sleep_at(w, u32(1) << lane, u64(host[lane]), here)
    set_pcs(w, go, next)
    return i32(RESCHEDULE)
