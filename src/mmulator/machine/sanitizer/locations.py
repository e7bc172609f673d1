"""What was released to a location in memory: a store or atomic operation with release semantics, or behind a fence; and who
acquires it there (PTX ISA 9.1, Memory Consistency Model: Release and Acquire Patterns).

A location is known from its first release on. A store begins it anew, an atomic operation goes on (a release sequence). Scopes
matter where a cluster has several CTAs: what was released in scope of one CTA, only its threads acquire.
"""

from __future__ import annotations

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import bits_mask, cast_ptr, fill_bytes, load, mask_bits, null, select, stack, store, trailing_zeros
from mmulator.codegen.types import Struct, ptr_to, u8, u32, u64
from mmulator.machine.runtime.events import LOADS, SCOPE_MASK, SCOPE_SHIFT, SCOPES, STORES, Order
from mmulator.machine.sanitizer.clocks import (
    ALL,
    NOTHING,
    PLANES,
    U32,
    Collector,
    Knower,
    Orders,
    acquire_views,
    clear_collector,
    collect_all,
    drop_id,
    give_view,
    join_lanes,
    knower_of,
    merged_views,
    orders_of,
    plane_of,
    release_lanes,
)
from mmulator.machine.sanitizer.world import has_world, hear_world, overwrite_world, tell_world
from mmulator.machine.state import Warp

U64 = u64.vec(32)
# An address (0: free). owner: rank + 1 of the CTA whose releases the first views have; the second: those in a wider scope.
Location = Struct("Location", [("at", u64), ("owner", u32), ("views", u32, 2 * PLANES)])
LOCATIONS = 4096
_FULL = LOCATIONS * 3 // 4
_ANY = 0xFFFFFFFF  # of several CTAs
_SPREAD = 0x9E3779B97F4A7C15
_CTA, _GPU = SCOPES["cta"], SCOPES["gpu"]


@native
def location_at(o: ptr_to(Orders), at: u64, make: u32) -> ptr_to(Location):
    """The entry of an address; if there is none, a new one or null."""
    table = cast_ptr(Location, o.locations)
    n = u32((at * _SPREAD) >> 52)
    for _ in range(u32(LOCATIONS)):
        entry = table + n
        if entry.at == at:
            return entry
        if entry.at == 0:
            if make == 0:
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
    """A store: what was released there before cannot be acquired any more."""
    entry = location_at(o, at, u32(0))
    if u64(entry) != 0:
        entry.owner = u32(0)
        for p in unrolled(2 * PLANES):
            drop_id(o, entry.views[p], u32(1))
            entry.views[p] = u32(NOTHING)


@native
def publish_location(o: ptr_to(Orders), rank: u32, at: u64, c: ptr_to(Collector), wide: u32) -> None:
    """What was collected is released to an address; wide: not only to the CTA."""
    entry = location_at(o, at, u32(1))
    if u64(entry) == 0:
        return
    if entry.owner == 0:
        entry.owner = rank + 1
    elif entry.owner != rank + 1:
        entry.owner = u32(_ANY)
    for p in unrolled(2 * PLANES):
        if p < PLANES or wide != 0:
            both = merged_views(o, entry.views[p], c.views[p % PLANES])
            drop_id(o, entry.views[p], u32(1))
            entry.views[p] = both


@native
def hear_location(
    o: ptr_to(Orders), rank: u32, at: u64, lanes: ptr_to(u32), wide_lanes: ptr_to(u32), mask: u32, scope: u32
) -> None:
    """Views of lanes learn what was released to an address: in scope of the CTA, and in a wider one."""
    entry = location_at(o, at, u32(0))
    if u64(entry) != 0:
        if entry.owner == rank + 1 or entry.owner == u32(_ANY):
            acquire_views(o, lanes, mask, entry.views)
        if scope > _CTA:
            acquire_views(o, wide_lanes, mask, entry.views + PLANES)
    elif o.location_count >= _FULL:
        for p in unrolled(PLANES):
            join_lanes(o, plane_of(lanes, p), mask, u32(ALL))


@native
def order_stored(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32) -> None:
    """Before a strong store or atomic operation."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    k = knower_of(o, w)
    scope = (order >> SCOPE_SHIFT) & SCOPE_MASK
    lanes = mask
    if (order & Order.RELEASE) == 0:
        lanes = mask & k.has_released
    if lanes == 0 and ((order & LOADS) != 0 or (o.location_count == 0 and has_world(cluster) == 0)):
        return
    addresses = load(U64, at) | base
    c = cast_ptr(Collector, stack(u32, 2 * PLANES))
    for p in unrolled(2 * PLANES):
        c.views[p] = u32(NOTHING)
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
            wide = scope
            if (order & Order.RELEASE) != 0:
                release_lanes(o, k, same, c)
            else:
                collect_all(o, c, k.first, k.released, same)
                if (k.released_gpu & same) == 0 and wide > _CTA:
                    wide = u32(_GPU - 1)
                if (k.released_wide & same) == 0:
                    wide = u32(_CTA)
            publish_location(o, w.cta.rank, address, c, u32(wide > _CTA))
            if wide >= _GPU:
                tell_world(cluster, address, c.views[0])
            clear_collector(o, c)


@native
def order_loaded(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32) -> None:
    """Behind a strong load or atomic operation."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    scope = (order >> SCOPE_SHIFT) & SCOPE_MASK
    if o.location_count == 0 and has_world(w.cta.cluster) == 0:
        return
    addresses = load(U64, at) | base
    left = mask
    while left != 0:
        address = addresses[trailing_zeros(left)]
        same = mask_bits(addresses == address) & left
        left = left & ~same
        lanes = k.now.views
        wide_lanes = k.now.views
        far_lanes = k.now.views
        if (order & Order.ACQUIRE) == 0:
            k.has_acquired = k.has_acquired | same
            lanes = k.acquired
            wide_lanes = k.acquired_wide
            far_lanes = k.acquired_gpu
        if o.location_count != 0:
            hear_location(o, w.cta.rank, address, lanes, wide_lanes, same, scope)
        if scope >= _GPU:
            hear_world(w, same, address, far_lanes)


@native
def order_ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    if done == 0:
        if (order & STORES) != 0:
            order_stored(w, mask, at, base, order)
    elif (order & LOADS) != 0:
        order_loaded(w, mask, at, base, order)


# fences ---------------------------------------------------------------------------------------------------------------
@native
def fence_acquires(o: ptr_to(Orders), lanes: ptr_to(u32), acquired: ptr_to(u32), mask: u32) -> None:
    """What relaxed loads of lanes have seen, they know now."""
    for p in unrolled(PLANES):
        ids = load(U32, acquired, p * 32)
        left = mask & mask_bits(ids != NOTHING)
        while left != 0:
            id = ids[trailing_zeros(left)]
            same = mask_bits(ids == id) & left
            left = left & ~same
            join_lanes(o, plane_of(lanes, p), same, id)
            give_view(o, plane_of(acquired, p), same, u32(NOTHING))


@native
def fence_releases(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32) -> None:
    """What lanes know and did up to here is what a strong store behind the fence releases."""
    store(U32(k.clock), k.now.own)
    m = bits_mask(mask)
    for p in unrolled(PLANES):
        ids = load(U32, k.now.views, p * 32)
        left = mask
        while left != 0:
            id = ids[trailing_zeros(left)]
            same = mask_bits(ids == id) & left
            left = left & ~same
            give_view(o, plane_of(k.released.views, p), same, id)
        store(select(m, load(U32, k.now.own, p * 32), load(U32, k.released.own, p * 32)), k.released.own, p * 32)
        done = select(m, load(U32, k.now.copied, p * 32), load(U32, k.released.copied, p * 32))
        store(done, k.released.copied, p * 32)
    k.clock = k.clock + 1
    k.has_released = k.has_released | mask


@native
def fence_memory(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, order: u32) -> None:
    """fence, membar."""
    scope = (order >> SCOPE_SHIFT) & SCOPE_MASK
    got = mask & k.has_acquired
    if (order & Order.ACQUIRE) != 0 and got != 0:
        fence_acquires(o, k.now.views, k.acquired, got)
        if scope > _CTA:
            fence_acquires(o, k.now.views, k.acquired_wide, got)
        if scope >= _GPU:
            fence_acquires(o, k.now.views, k.acquired_gpu, got)
            k.has_acquired = k.has_acquired & ~mask
    if (order & Order.RELEASE) != 0:
        fence_releases(o, k, mask)
        if scope > _CTA:
            k.released_wide = k.released_wide | mask
        if scope >= _GPU:
            k.released_gpu = k.released_gpu | mask


@native
def forget_locations(o: ptr_to(Orders)) -> None:
    """A cluster begins."""
    if o.location_count != 0:
        fill_bytes(o.locations, 0, Location.size * LOCATIONS)
        o.location_count = u32(0)
