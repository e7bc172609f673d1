"""Release and acquire through locations in memory (PTX ISA 9.1, Memory Consistency Model: Release and Acquire Patterns), and
through the phases of mbarriers.

Stores and atomic operations with release semantics, or behind a fence, release to a location; it is recorded from its first
release on. A store begins it anew, an atomic operation continues it (a release sequence). A sum whose answer nothing reads
acquires nothing: whatever it does, it may do before the others that release there, unless something else orders them, and then
that order is enough. So no order rests on which of several sums came first, and sums are no choices (ptx/program/choices.py).

Scopes matter if a cluster has several CTAs: only threads of a CTA acquire what was released in scope of that CTA.

Each phase of an mbarrier collects releases, and threads that wait for it acquire them. An mbarrier is an agent, whose clock is
the phase, starting at 1. Asynchronous operations that complete in a phase happen before the end of a successful wait for this
or a later phase.
"""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, load, mask_bits, null, stack, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.runtime.native.hooks.events import LOADS, SCOPE_MASK, SCOPE_SHIFT, SCOPES, STORES, SUM, Order
from mmulator.runtime.native.state import ACCOUNTS, Cluster, Warp
from mmulator.sanitizer.order.clocks import fenced_lanes, new_agent, note_seen, note_write, release_fenced
from mmulator.sanitizer.order.views import (
    ACQUIRED,
    ACQUIRED_WIDE,
    ALL,
    KNOWN,
    NO_AGENT,
    NOTHING,
    PLANES,
    PROXIES,
    RELEASED,
    RELEASED_WIDE,
    Collector,
    Orders,
    StrongWrite,
    acquire_behind,
    clear_collector,
    copied_view,
    drop_id,
    entries_of,
    forget_seen,
    knower_of,
    merged_views,
    orders_of,
    release_lanes,
    use_fences,
)
from mmulator.sanitizer.order.world import has_world, hear_world, overwrite_world, tell_world

U64 = u64.vec(32)
# A location, by its address (0: free entry). owner: rank + 1 of the CTA whose releases are in the first views; the second views
# have releases in a wider scope. write: the last strong write of a release.
Location = Struct("Location", [("at", u64), ("owner", u32), ("views", u32, 2 * PLANES), ("write", StrongWrite)])
LOCATIONS = 4096
_FULL = LOCATIONS * 3 // 4
_ANY = 0xFFFFFFFF  # of several CTAs
_SPREAD = 0x9E3779B97F4A7C15
_CTA, _GPU = SCOPES["cta"], SCOPES["gpu"]


@native
def location_at(o: ptr_to(Orders), at: u64, make: boolean) -> ptr_to(Location):
    """The entry of an address; if there is none, a new one or null."""
    table = cast_ptr(Location, o.locations)
    n = u32((at * _SPREAD) >> 52)
    for _ in range(u32(LOCATIONS)):
        entry = table + n
        if entry.at == at:
            return entry
        if entry.at == 0:
            if not make:
                return cast_ptr(Location, null(u8))
            if o.location_count >= _FULL:
                o.launch.forgotten = o.launch.forgotten + 1
                return cast_ptr(Location, null(u8))
            o.location_count = o.location_count + 1
            entry.at = at
            return entry
        n = (n + 1) & (LOCATIONS - 1)
    return cast_ptr(Location, null(u8))


@native
def overwrite_location(o: ptr_to(Orders), at: u64) -> None:
    """Handle a store to a location: earlier releases there can no longer be acquired."""
    entry = location_at(o, at, False)
    if u64(entry) != 0:
        entry.owner = 0
        entry.write.clock = 0
        for p in unrolled(2 * PLANES):
            drop_id(o, entry.views[p], 1)
            entry.views[p] = NOTHING


@native
def publish_location(o: ptr_to(Orders), w: ptr_to(Warp), at: u64, c: ptr_to(Collector), first: u32, site: u32) -> None:
    """Release a collector to an address. first: 0 for scope of the CTA, PLANES for a wider scope."""
    rank = w.cta.rank
    entry = location_at(o, at, True)
    if u64(entry) == 0:
        return
    if entry.owner == 0:
        entry.owner = rank + 1
    elif entry.owner != rank + 1:
        entry.owner = _ANY
    note_write(w, entry.write, u32(first != 0), site)
    for p in range(o.planes):
        both = merged_views(o, entry.views[first + p], c.views[p])
        drop_id(o, entry.views[first + p], 1)
        entry.views[first + p] = both


@native
def hear_location(o: ptr_to(Orders), w: ptr_to(Warp), mask: u32, at: u64, order: u32) -> None:
    """Let lanes acquire what was released to an address, in scope of their CTA or wider; after a relaxed load only behind a
    fence.
    """
    k = knower_of(o, w)
    rank = w.cta.rank
    plane = u32(KNOWN)
    wide_plane = u32(KNOWN)
    if (order & Order.ACQUIRE) == 0:
        plane = ACQUIRED
        wide_plane = ACQUIRED_WIDE
        use_fences(o)
    entry = location_at(o, at, False)
    if u64(entry) != 0:
        far = ((order >> SCOPE_SHIFT) & SCOPE_MASK) > _CTA
        write = entry.write
        if write.warp // (w.cta.launch.warps * 32) == rank or (far and write.wide != 0):
            note_seen(w, mask, at, write)
        if entry.owner == rank + 1 or entry.owner == _ANY:
            acquire_behind(o, k, mask, entry.views, plane)
        if far:
            acquire_behind(o, k, mask, entry.views + PLANES, wide_plane)
    elif o.location_count >= _FULL:
        acquire_behind(o, k, mask, o.everything, plane)


@native
def order_stored(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, site: u32) -> None:
    """Handle a strong store or atomic operation before it happens."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    k = knower_of(o, w)
    scope = (order >> SCOPE_SHIFT) & SCOPE_MASK
    releases = (order & Order.RELEASE) != 0
    lanes = mask
    if not releases:
        lanes = fenced_lanes(o, k, mask, RELEASED)
    if lanes == 0 and ((order & LOADS) != 0 or (o.location_count == 0 and has_world(cluster) == 0)):
        return
    if not releases and lanes != 0 and o.launch.certifies != 0:
        k.clock = k.clock + 1  # so that who has seen a store has not seen the next one of this instruction
    addresses = load(U64, at) | base
    c = cast_ptr(Collector, stack(u32, 2 * PLANES))
    for p in unrolled(2 * PLANES):
        c.views[p] = NOTHING
    left = mask
    while left != 0:
        address = addresses[trailing_zeros(left)]
        same = mask_bits(addresses == address) & left
        left = left & ~same
        if (order & LOADS) == 0:
            overwrite_location(o, address)
            overwrite_world(cluster, address)
        same = same & lanes
        if same != 0:
            if releases:
                release_lanes(o, k, same, c)
            else:
                release_fenced(o, c, k, same, RELEASED)
            publish_location(o, w, address, c, 0, site)
            if not releases and scope > _CTA:
                clear_collector(o, c)
                release_fenced(o, c, k, same, RELEASED_WIDE)
            if scope > _CTA:
                publish_location(o, w, address, c, PLANES, site)
            if scope >= _GPU:
                tell_world(w, address, c.views[KNOWN], site)
            clear_collector(o, c)


@native
def order_loaded(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32) -> None:
    """Handle a strong load or atomic operation after it happened."""
    o = orders_of(w.cta.cluster)
    if o.location_count == 0 and has_world(w.cta.cluster) == 0:
        return
    addresses = load(U64, at) | base
    left = mask
    while left != 0:
        address = addresses[trailing_zeros(left)]
        same = mask_bits(addresses == address) & left
        left = left & ~same
        if o.location_count != 0:
            hear_location(o, w, same, address, order)
        if ((order >> SCOPE_SHIFT) & SCOPE_MASK) >= _GPU:
            plane = u32(KNOWN)
            if (order & Order.ACQUIRE) == 0:
                plane = ACQUIRED_WIDE
                use_fences(o)
            hear_world(w, same, address, plane)


@native
def order_ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    if done == 0:
        if (order & STORES) != 0:
            order_stored(w, mask, at, base, order, site)
    elif (order & (LOADS | SUM)) == LOADS:
        order_loaded(w, mask, at, base, order)


@native
def forget_locations(o: ptr_to(Orders)) -> None:
    """Reset the locations for a new cluster."""
    if o.location_count != 0:
        fill_bytes(o.locations, 0, Location.size * LOCATIONS)
        o.location_count = 0


# phases of mbarriers --------------------------------------------------------------------------------------------------
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
