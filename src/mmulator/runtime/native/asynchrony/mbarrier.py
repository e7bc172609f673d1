"""The 64 bits of an mbarrier, as on a chip in shared memory (PTX ISA 9.1, mbarrier), and the lanes that wait for its phases.

matrix/numerics/mbarrier.py describes the bits. Counts of arrivals are stored as their difference from 2^20.
"""

from enum import IntFlag

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_of, cast_ptr, leading_zeros, popcount, stack, store, trailing_zeros
from mmulator.base.codegen.types import boolean, i32, ptr, ptr_to, u32, u64
from mmulator.matrix.numerics.mbarrier import BYTES, COUNT, EXPECTED, LAYOUT, MOST, MOST_V1, PENDING, PENDING_BYTES, PHASE
from mmulator.runtime.native.asynchrony.accounts import book, close_account, is_gone, is_mbarrier, is_written_over, open_account
from mmulator.runtime.native.asynchrony.waiting import set_pcs, sleep_at, wake_at
from mmulator.runtime.native.hooks.blocks import block_again, mbarrier_asked, mbarrier_slept
from mmulator.runtime.native.hooks.events import mbarrier_arrived, mbarrier_gone, mbarrier_made, mbarrier_over, mbarrier_waited
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.state import RESCHEDULE, Cluster, FaultKind, Warp
from mmulator.runtime.native.threads.chance import hash_choice

U64 = u64.vec(32)
ALIGNMENT = 8
_COUNT, _BYTES = (1 << COUNT) - 1, (1 << BYTES) - 1
_SIGN = 1 << (BYTES - 1)


class Does(IntFlag):
    """The action of a lane's operation: its constant flags."""

    ARRIVES = 1
    DROPS = 2  # its arrivals are expected in no later phase
    STAYS = 4  # noComplete
    EXPECTS = 8
    COMPLETES = 16
    TOGETHER = 32  # arrivals of an instruction's lanes at one mbarrier reach it as one number


# the word -----------------------------------------------------------------------------------------------------------
@native
def pending_arrivals(word: u64) -> u64:
    return (0 - (word >> PENDING)) & _COUNT


@native
def awaited_bytes(word: u64) -> u64:
    """The tx-count, in BYTES bits."""
    return (0 - (word >> PENDING_BYTES)) & _BYTES


@native
def beyond(word: u64, bytes: u64) -> boolean:
    """Whether the tx-count would leave its range, -(2^20-1) to 2^20-1, after `bytes` are subtracted (a negative
    number adds).
    """
    signed = (awaited_bytes(word) ^ _SIGN) - _SIGN
    return signed - bytes + MOST > 2 * MOST


@native
def change(cluster: ptr_to(Cluster), barrier: ptr_to(u64), arrivals: u64, bytes: u64, dropped: u64) -> u32:
    """Subtract arrivals and bytes from those that the phase awaits, and dropped arrivals from those of later phases. Returns 1
    if that completes the phase: the next one begins, and lanes that sleep at the mbarrier look again.
    """
    word = barrier[0]
    left = pending_arrivals(word) - arrivals
    awaited = (awaited_bytes(word) - bytes) & _BYTES
    phase = word >> PHASE
    expected = ((word >> EXPECTED) + dropped) & _COUNT
    pending = (0 - left) & _COUNT
    flips = left == 0 and awaited == 0
    if flips:
        pending = expected
        phase = phase ^ 1
    counts = (expected << EXPECTED) | (pending << PENDING) | (((0 - awaited) & _BYTES) << PENDING_BYTES)
    barrier[0] = counts | (phase << PHASE) | (word & LAYOUT)
    if flips:
        mbarrier_over(cluster, u64(barrier))
        cluster.flips = cluster.flips + 1
        cluster.patience = 0
        wake_at(cluster, u64(barrier))
    return u32(flips)


@native
def complete_part(cluster: ptr_to(Cluster), barrier: ptr_to(u64), arrivals: u64, bytes: u64) -> u32:
    """Complete arrivals and bytes of a phase, by an operation that drops nothing. Returns 1 if the next phase begins."""
    return change(cluster, barrier, arrivals, bytes, 0)


@native
def complete_for(w: ptr_to(Warp), lane: u32, site: u32, barrier: ptr_to(u64), arrivals: u64, bytes: u64) -> None:
    """Complete arrivals or bytes at the mbarrier of an asynchronous operation that a lane issued.

    w, lane, site: the issuing lane and instruction.
    barrier: the mbarrier.
    arrivals, bytes: what is complete.
    """
    word = barrier[0]
    cluster = w.cta.cluster
    if is_gone(cluster, u64(barrier)):
        fault(w, FaultKind.NO_MBARRIER, site, lane, u64(barrier), 0)
    elif is_written_over(cluster, u64(barrier), word):
        fault(w, FaultKind.MBARRIER_STORED, site, lane, u64(barrier), 0)
    elif arrivals > pending_arrivals(word):
        fault(w, FaultKind.MBARRIER_ARRIVALS, site, lane, u64(barrier), u32(arrivals))
    elif beyond(word, bytes):
        fault(w, FaultKind.MBARRIER_BYTES, site, lane, u64(barrier), u32(bytes))
    else:
        flips = complete_part(cluster, barrier, arrivals, bytes)
        book(w, lane, barrier, site, arrivals, 0, bytes, flips)


@native
def must_be_intact(w: ptr_to(Warp), lane: u32, barrier: ptr_to(u64), site: u32) -> boolean:
    """Whether there is an mbarrier whose word was not overwritten; if not, a fault is recorded."""
    if not must_be_mbarrier(w, lane, u64(barrier), site):
        return False
    if not is_written_over(w.cta.cluster, u64(barrier), barrier[0]):
        return True
    fault(w, FaultKind.MBARRIER_STORED, site, lane, u64(barrier), 0)
    return False


@native
def must_be_mbarrier(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> boolean:
    """Whether an mbarrier was initialised at a host address and not invalidated; if not, a fault is recorded."""
    if is_mbarrier(w.cta.cluster, barrier) != 0:
        return True
    fault(w, FaultKind.NO_MBARRIER, site, lane, barrier, 0)
    return False


@native
def expect_arrivals(w: ptr_to(Warp), lane: u32, site: u32, barrier: ptr_to(u64), count: u32) -> None:
    """Let the phase also await a number of lanes' operations; each counts as a byte."""
    if not must_be_mbarrier(w, lane, u64(barrier), site):
        return
    bytes = 0 - u64(count)
    if beyond(barrier[0], bytes):
        fault(w, FaultKind.MBARRIER_BYTES, site, lane, u64(barrier), count)
        return
    mbarrier_arrived(w, u32(1) << lane, u64(barrier), u64(0), u64(count), u64(0), site)
    flips = complete_part(w.cta.cluster, barrier, 0, bytes)
    book(w, lane, barrier, site, 0, u64(count), 0, flips)


# operations of lanes ------------------------------------------------------------------------------------------------
@native
def init(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counts: ptr_to(u32), layout: u32, site: u32) -> None:
    """Execute mbarrier.init: the first phase of a barrier with a number of arrivals. layout: 0 or 1."""
    most = u64(MOST)
    if layout != 0:
        most = MOST_V1
    for lane in bits_of(mask):
        count = u64(counts[lane])
        if count == 0 or count > most:
            fault(w, FaultKind.MBARRIER_RANGE, site, lane, u64(host[lane]), u32(count))
            return
        mbarrier_made(w, lane, u64(host[lane]), count, site)
        pending = (0 - count) & _COUNT
        cast_ptr(u64, host[lane])[0] = (pending << EXPECTED) | (pending << PENDING) | u64(layout)
        open_account(w, lane, u64(host[lane]), cast_ptr(u64, host[lane])[0], site)


@native
def inval(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), site: u32) -> None:
    """Execute mbarrier.inval: the word stays."""
    for lane in bits_of(mask):
        if not must_be_mbarrier(w, lane, u64(host[lane]), site):
            return
        mbarrier_gone(w, lane, u64(host[lane]), site)
        close_account(w, lane, u64(host[lane]), site)


@native
def layouts(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), layout: u32, site: u32) -> u32:
    """Mask of the lanes whose mbarrier has a layout: mbarrier.check_layout."""
    found = u32(0)
    for lane in bits_of(mask):
        if not must_be_intact(w, lane, cast_ptr(u64, host[lane]), site):
            return found
        if (u32(cast_ptr(u64, host[lane])[0]) & LAYOUT) == layout:
            found = found | (1 << lane)
    return found


@native
def lanes_at(host: ptr_to(ptr), mask: u32, barrier: u64) -> u32:
    """Mask of the lanes whose mbarrier is at this host address."""
    same = u32(0)
    for lane in bits_of(mask):
        if u64(host[lane]) == barrier:
            same = same | (1 << lane)
    return same


@native
def arrivals_at(host: ptr_to(ptr), mask: u32, barrier: u64, counts: ptr_to(u32)) -> u64:
    """Number of arrivals of these lanes at an mbarrier. host: addresses of the lanes' mbarriers."""
    total = u64(0)
    for lane in bits_of(lanes_at(host, mask, barrier)):
        total = total + u64(counts[lane])
    return total


@native
def state_for(host: ptr_to(ptr), states: ptr_to(u64), mask: u32, lane: u32, word: u64) -> u64:
    """The state that an arriving lane receives: the upper half of the word. As on a chip, it is the word before the first lane
    that arrives with the same instruction in the same phase.
    """
    earlier = mask & ((u32(1) << lane) - 1)
    while earlier != 0:
        other = 31 - leading_zeros(earlier)
        earlier = earlier & ~(u32(1) << other)
        if u64(host[other]) == u64(host[lane]):
            if (states[other] ^ word) >> PHASE == 0:
                return states[other]
            earlier = 0
    return word >> 32 << 32


@native
def number_states(mask: u32, host: ptr_to(ptr), counts: ptr_to(u32), states: ptr_to(u64)) -> None:
    """Change the states of arrive.noComplete as a chip does: each lane has the arrivals of the lanes before it, and in the
    lower half the mask of arriving lanes.
    """
    for lane in bits_of(mask):
        same = lanes_at(host, mask, u64(host[lane]))
        before = u64(popcount(same & ((1 << lane) - 1))) * u64(counts[lane])
        states[lane] = (states[lane] + (before << PENDING)) | u64(same)


@native
def arrive_as_one(
    w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counts: ptr_to(u32), sizes: ptr_to(u32), does: u32, states: ptr_to(u64),
    site: u32,
) -> boolean:
    """Execute the arrivals of lanes at one mbarrier in one step, if only the last can complete the phase. Returns False, and
    does nothing, for other arrivals.

    w, mask, site: the warp, lanes and instruction.
    host: addresses of the lanes' mbarriers.
    counts: arrivals.
    sizes: bytes.
    does: Does.
    states: the results.
    """
    last = 31 - leading_zeros(mask)
    barrier = cast_ptr(u64, host[last])
    word = barrier[0]
    arrivals = u64(0)
    size = u64(0)
    for lane in bits_of(mask):
        if u64(host[lane]) != u64(barrier) or counts[lane] == 0 or sizes[lane] > MOST:
            return False
        arrivals = arrivals + u64(counts[lane])
        size = size + u64(sizes[lane])
    if arrivals > pending_arrivals(word) or beyond(word, 0 - size):
        return False
    if is_mbarrier(w.cta.cluster, u64(barrier)) == 0:
        return False
    if is_written_over(w.cta.cluster, u64(barrier), word):
        return False
    store(U64(word >> 32 << 32), states)
    dropped = u64(0)
    if (does & Does.DROPS) != 0:
        dropped = arrivals
    mbarrier_arrived(w, mask, u64(barrier), arrivals, size, u64(0), site)
    flips = change(w.cta.cluster, barrier, arrivals, 0 - size, dropped)
    book(w, last, barrier, site, arrivals, size, 0, flips)
    return True


@native
def act(
    w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counts: ptr_to(u32), sizes: ptr_to(u32), does: u32, states: ptr_to(u64),
    site: u32,
) -> None:
    """Execute arrive, arrive_drop, expect_tx or complete_tx, lane after lane.

    w, mask, site: the warp, lanes and instruction.
    host: addresses of the lanes' mbarriers.
    counts: arrivals.
    sizes: bytes.
    does: Does.
    states: the state that each lane receives.
    """
    cluster = w.cta.cluster
    left = mask
    if (mask & (mask - 1)) != 0 and (does & (Does.ARRIVES | Does.STAYS)) == Does.ARRIVES:
        if arrive_as_one(w, mask, host, counts, sizes, does, states, site):
            return
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        barrier = cast_ptr(u64, host[lane])
        if not must_be_intact(w, lane, barrier, site):
            return
        word = barrier[0]
        states[lane] = state_for(host, states, mask, lane, word)
        arrivals = u64(0)
        pending = pending_arrivals(word)
        if (does & Does.ARRIVES) != 0:
            arrivals = u64(counts[lane])
            come = arrivals
            if (does & Does.TOGETHER) != 0 and left != 0:
                come = come + arrivals_at(host, left, u64(barrier), counts)
            if arrivals == 0 or come > pending:
                fault(w, FaultKind.MBARRIER_ARRIVALS, site, lane, u64(barrier), u32(come) if arrivals != 0 else 0)
                return
        size = u64(sizes[lane])
        bytes = size
        if (does & Does.EXPECTS) != 0:
            bytes = 0 - size
        if size > MOST or beyond(word, bytes):
            fault(w, FaultKind.MBARRIER_BYTES, site, lane, u64(barrier), u32(size))
            return
        awaited = (awaited_bytes(word) - bytes) & _BYTES
        if (does & Does.STAYS) != 0 and arrivals == pending and awaited == 0:
            fault(w, FaultKind.MBARRIER_COMPLETES, site, lane, u64(barrier), u32(arrivals))
            return
        dropped = u64(0)
        if (does & Does.DROPS) != 0:
            dropped = arrivals
        expected = u64(0)
        if (does & Does.EXPECTS) != 0:
            expected = size
        mbarrier_arrived(w, u32(1) << lane, u64(barrier), arrivals, expected, size - expected, site)
        flips = change(cluster, barrier, arrivals, bytes, dropped)
        book(w, lane, barrier, site, arrivals, expected, size - expected, flips)
    if (does & Does.STAYS) != 0:
        number_states(mask, host, counts, states)


# waiting ------------------------------------------------------------------------------------------------------------
@native
def over(barrier: ptr_to(u64), parity: u32) -> boolean:
    """Whether the phase of this parity is complete: the current phase has the other parity."""
    return u32(barrier[0] >> PHASE) != parity


@native
def wait_at(
    w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, suspends: boolean, here: i32, next: i32, done: ptr_to(u32),
    site: u32,
) -> i32:
    """Execute test_wait or try_wait: lanes whose phase is complete continue. The other lanes sleep until it is complete; now
    and then, as the seed decides, and when no other lane can continue, they receive the answer that it is not.

    w, mask, site: the warp, lanes and instruction.
    host: addresses of the lanes' mbarriers.
    parities: mask of the parities.
    suspends: whether the instruction may suspend threads (try_wait): a phase that was completed while they slept is complete for
        them even if a later one is over by now.
    here, next: this block and the next.
    done: mask of the lanes whose phase is complete.

    A thread that polls also sleeps: only the phase can change the answer.
    """
    found = u32(0)
    for lane in bits_of(mask):
        if not must_be_intact(w, lane, cast_ptr(u64, host[lane]), site):
            return RESCHEDULE
        if (suspends and ((w.granted >> lane) & 1) != 0) or over(cast_ptr(u64, host[lane]), (parities >> lane) & 1):
            found = found | (1 << lane)
    refused = stack(u32, 1)
    refused[0] = 0
    mbarrier_asked(w, mask, host, parities, refused, site)
    if refused[0] != 0:
        done[0] = 0
        return next
    done[0] = found
    if found != 0:
        mbarrier_waited(w, found, host, parities, site)
    go = found | (w.timed_out & mask)
    w.timed_out = w.timed_out & ~mask
    w.granted = w.granted & ~mask
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
    counts[here] = counts[here] - u64(go == 0)  # sleeping lanes come here again
    block_again(w, mask, here, mask & ~go)
    mbarrier_slept(w, mask & ~go, host, parities, site)
    w.naps_for = (w.naps_for & ~mask) | (parities & mask)
    left = mask & ~go
    while left != 0:
        barrier = u64(host[trailing_zeros(left)])
        same = lanes_at(host, left, barrier)
        left = left & ~same
        sleep_at(w, same, barrier, here)
    set_pcs(w, go, next)
    return RESCHEDULE
