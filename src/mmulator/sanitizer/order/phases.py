"""Happens-before through the phases of an mbarrier: each phase collects releases, and threads that wait for it acquire them.

An mbarrier is an agent, whose clock is the phase, starting at 1. Asynchronous operations that complete in a phase happen before
the end of a successful wait for this or a later phase.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, fill_bytes, null
from mmulator.codegen.types import Struct, ptr_to, u8, u32, u64
from mmulator.native.state import ACCOUNTS, Cluster
from mmulator.sanitizer.order.clocks import new_agent
from mmulator.sanitizer.order.views import (
    ALL,
    NO_AGENT,
    NOTHING,
    PLANES,
    PROXIES,
    Collector,
    Orders,
    clear_collector,
    copied_view,
    drop_id,
    entries_of,
    forget_seen,
    merged_views,
    orders_of,
)

# The happens-before record of an mbarrier.
# at: its host address (0: free entry).
# phase: phases completed since it was initialised. clock: clock of the current phase.
# done: views of the last complete phase of either parity.
# is_far, far, far_done: releases by threads of other CTAs, which waits in scope of the CTA do not acquire.
Phaser = Struct("Phaser", [
    ("at", u64), ("agent", u32), ("clock", u32), ("phase", u32), ("is_far", u32),
    ("collecting", Collector), ("done", u32, 2 * PLANES), ("far", Collector), ("far_done", u32, 2 * PLANES),
])  # fmt: skip
PHASERS = 2 * ACCOUNTS
_SPREAD = 0x9E3779B97F4A7C15


@native
def phaser_of(cluster: ptr_to(Cluster), barrier: u64) -> ptr_to(Phaser):
    """The entry of an mbarrier, known or new; null if the table is full."""
    o = orders_of(cluster)
    table = cast_ptr(Phaser, o.phasers)
    at = u32((barrier * _SPREAD) >> 54)
    for _ in range(u32(PHASERS)):
        entry = table + at
        if entry.at == barrier:
            return entry
        if entry.at == 0:
            if o.phaser_count >= ACCOUNTS:
                o.launch.forgotten = o.launch.forgotten + 1
                return cast_ptr(Phaser, null(u8))
            o.phaser_count = o.phaser_count + 1
            entry.at = barrier
            entry.agent = new_agent(cluster)
            entry.clock = 1
            return entry
        at = (at + 1) & (PHASERS - 1)
    return cast_ptr(Phaser, null(u8))


@native
def mbarrier_agent(cluster: ptr_to(Cluster), barrier: u64) -> u32:
    """The agent of an mbarrier, by its host address; NO_AGENT if there is none."""
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0:
        return NO_AGENT
    return entry.agent


@native
def mbarrier_phase(cluster: ptr_to(Cluster), barrier: u64) -> u32:
    """The mbarrier's clock in the phase that is not complete."""
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0:
        return 1
    return entry.clock


@native
def close_phase(o: ptr_to(Orders), at: ptr_to(Phaser), c: ptr_to(Collector), done: ptr_to(u32)) -> None:
    """Join the collected releases, the previous phase's views and the agent's clock into the views of the phase."""
    forget_seen(o, c)
    to = done + (at.phase & 1) * PLANES
    before = done + (PLANES - (at.phase & 1) * PLANES)
    for p in range(o.planes):
        made = merged_views(o, c.views[p], before[p])
        if p < PROXIES and at.agent != NO_AGENT and made != ALL:
            if made != c.views[p] or made == NOTHING or o.counts[made] != 2:  # it is not only its own
                one = made
                made = copied_view(o, one)
                drop_id(o, one, 1)
            if made != ALL:
                entries_of(o, made)[at.agent] = at.clock
        drop_id(o, c.views[p], 1)
        c.views[p] = NOTHING
        drop_id(o, to[p], 1)
        to[p] = made


@native
def next_phase(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """Handle the completion of a phase."""
    o = orders_of(cluster)
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0:
        return
    close_phase(o, entry, entry.collecting, entry.done)
    if entry.is_far != 0:
        close_phase(o, entry, entry.far, entry.far_done)
    entry.phase = entry.phase + 1
    entry.clock = entry.clock + 1


@native
def first_phase(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """Handle mbarrier.init: nothing was released yet."""
    o = orders_of(cluster)
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0:
        return
    clear_collector(o, entry.collecting)
    clear_collector(o, entry.far)
    for p in range(2 * PLANES):
        drop_id(o, entry.done[p], 1)
        entry.done[p] = NOTHING
        drop_id(o, entry.far_done[p], 1)
        entry.far_done[p] = NOTHING
    entry.phase = 0
    entry.clock = entry.clock + 1


@native
def forget_phases(o: ptr_to(Orders)) -> None:
    """Reset the phases for a new cluster."""
    if o.phaser_count != 0:
        fill_bytes(o.phasers, 0, Phaser.size * PHASERS)
        o.phaser_count = 0
