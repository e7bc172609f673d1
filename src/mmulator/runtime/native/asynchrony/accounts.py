"""Records of each mbarrier besides its word: who initialised it, who arrived last, how many bytes came.

A cluster has a table of them by their host address. With these records, an operation on memory that holds no mbarrier is
detected, and a report of a deadlock names the missing threads.
"""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, null
from mmulator.base.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.runtime.native.state import ACCOUNTS, Account, Cluster, Warp, Who

SPREAD = 0x9E3779B97F4A7C15


@native
def entry_of(cluster: ptr_to(Cluster), barrier: u64) -> ptr_to(Account):
    """The entry of an mbarrier, or the free entry that it would get; null if the table is full or absent."""
    table = cast_ptr(Account, cluster.accounts)
    if u64(table) == 0:
        return table
    at = u32((barrier * SPREAD) >> 55)
    for _ in range(u32(ACCOUNTS)):
        entry = table + at
        if entry.at == barrier or entry.at == 0:
            return entry
        at = (at + 1) & (ACCOUNTS - 1)
    return cast_ptr(Account, null(u8))


@native
def forget_mbarriers(cluster: ptr_to(Cluster)) -> None:
    """Reset the table for a new cluster."""
    if cluster.account_count != 0:
        fill_bytes(cluster.accounts, 0, Account.size * ACCOUNTS)
        cluster.account_count = 0


@native
def account_of(cluster: ptr_to(Cluster), barrier: u64) -> ptr_to(Account):
    """The record of an mbarrier, or null."""
    entry = entry_of(cluster, barrier)
    if u64(entry) != 0:
        if entry.at == 0:
            return cast_ptr(Account, null(u8))
    return entry


@native
def is_mbarrier(cluster: ptr_to(Cluster), barrier: u64) -> u32:
    """1 if an mbarrier was initialised there, or the full table cannot tell."""
    entry = account_of(cluster, barrier)
    if u64(entry) == 0:
        return u32(cluster.account_count == ACCOUNTS)
    return entry.valid


@native
def is_gone(cluster: ptr_to(Cluster), barrier: u64) -> boolean:
    """Whether an mbarrier that was there has been invalidated."""
    entry = account_of(cluster, barrier)
    if u64(entry) == 0:
        return False
    return entry.valid == 0


@native
def is_written_over(cluster: ptr_to(Cluster), barrier: u64, word: u64) -> boolean:
    """Whether the word of an mbarrier differs from the result of its operations."""
    entry = account_of(cluster, barrier)
    if u64(entry) == 0:
        return False
    return entry.valid != 0 and entry.word != word


@native(inline=True)
def warp_number(w: ptr_to(Warp)) -> u32:
    """Number of a warp within its cluster."""
    return u32((u64(w) - u64(w.cta.cluster.warps)) // Warp.size)


@native
def note_who(who: ptr_to(Who), w: ptr_to(Warp), lane: u32, site: u32, phase: u32) -> None:
    who.site = site + 1
    who.warp = warp_number(w)
    who.lane = lane
    who.phase = phase


@native
def open_account(w: ptr_to(Warp), lane: u32, barrier: u64, word: u64, site: u32) -> None:
    """Record an mbarrier.init."""
    cluster = w.cta.cluster
    entry = entry_of(cluster, barrier)
    if u64(entry) == 0:
        return
    if entry.at == 0:
        entry.at = barrier
        cluster.account_count = cluster.account_count + 1
    entry.valid = 1
    entry.word = word
    entry.phase = 0
    entry.arrived.site = 0
    entry.asked.site = 0
    entry.brought.site = 0
    entry.expected = 0
    entry.came = 0
    note_who(entry.made, w, lane, site, 0)


@native
def close_account(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> None:
    """Record an mbarrier.inval."""
    entry = account_of(w.cta.cluster, barrier)
    if u64(entry) != 0:
        entry.valid = 0
        note_who(entry.ended, w, lane, site, entry.phase)


@native
def book(
    w: ptr_to(Warp), lane: u32, barrier: ptr_to(u64), site: u32, arrivals: u64, expected: u64, came: u64, flips: u32
) -> None:
    """Record an operation on an mbarrier, after it has changed the word.

    w, lane, site: the lane and instruction.
    barrier: the mbarrier.
    arrivals: number of arrivals.
    expected: bytes that are now expected.
    came: bytes that have come.
    flips: whether the phase is complete.
    """
    entry = account_of(w.cta.cluster, u64(barrier))
    if u64(entry) == 0:
        return
    entry.word = barrier[0]
    if arrivals != 0:
        note_who(entry.arrived, w, lane, site, entry.phase)
    if expected != 0:
        note_who(entry.asked, w, lane, site, entry.phase)
        entry.expected = entry.expected + expected
    if came != 0:
        note_who(entry.brought, w, lane, site, entry.phase)
        entry.came = entry.came + came
    if flips != 0:
        entry.phase = entry.phase + 1
        entry.expected = 0
        entry.came = 0
