"""Release and acquire through locations in memory (PTX ISA 9.1, Memory Consistency Model: Release and Acquire Patterns): stores
and atomic operations with release semantics, or behind a fence, and the threads that acquire there.

A location is recorded from its first release on. A store begins it anew, an atomic operation continues it (a release sequence).
Scopes matter if a cluster has several CTAs: only threads of a CTA acquire what was released in scope of that CTA.
"""

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import cast_ptr, fill_bytes, load, mask_bits, null, stack, trailing_zeros
from mmulator.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.native.hooks.events import LOADS, SCOPE_MASK, SCOPE_SHIFT, SCOPES, STORES, Order
from mmulator.native.state import Warp
from mmulator.sanitizer.order.clocks import fenced_lanes, note_seen, note_write, release_fenced
from mmulator.sanitizer.order.views import (
    ACQUIRED,
    ACQUIRED_WIDE,
    KNOWN,
    NOTHING,
    PLANES,
    RELEASED,
    RELEASED_WIDE,
    Collector,
    Orders,
    StrongWrite,
    acquire_behind,
    clear_collector,
    drop_id,
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
    elif (order & LOADS) != 0:
        order_loaded(w, mask, at, base, order)


@native
def forget_locations(o: ptr_to(Orders)) -> None:
    """Reset the locations for a new cluster."""
    if o.location_count != 0:
        fill_bytes(o.locations, 0, Location.size * LOCATIONS)
        o.location_count = 0
