"""Views (vector clocks): a counted pool of them, and collectors that join them (clocks.py)."""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import (
    bits_mask,
    cast_ptr,
    copy_bytes,
    load,
    mask_bits,
    maximum,
    popcount,
    reduce_or,
    select,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.state import WGMMA, Warp
from mmulator.sanitizer.state import SanitizedLaunch, of_cluster

U32 = u32.vec(32)
# Planes of the views of a lane: KNOWN for actions that happen before; the next three with a fence.proxy.async between, for
# shared memory, for global memory, for reads of shared memory; RELEASED and RELEASED_WIDE with a fence of memory between, of
# any scope or wider than the CTA; ACQUIRED and ACQUIRED_WIDE for actions that will happen before after such a fence, because
# relaxed loads have seen them; UNSAID for actions of which other blocks said by an arrival without a scope that they are over,
# which is true of reads, and not of writes that go beyond the block.
PLANES = 9
KNOWN, FENCED, FENCED_GLOBAL, FENCED_READS, RELEASED, RELEASED_WIDE, ACQUIRED, ACQUIRED_WIDE, UNSAID = range(PLANES)
PROXIES = 4  # planes about proxies: the first ones
FENCES = 8  # these and those about fences
ISSUES = WGMMA.room
NOTHING, ALL, FIRST = 0, 1, 2  # fixed views, and the first other
NO_AGENT = 0xFFFFFFFF

# The views of 32 lanes, plane after plane.
# views: the view of each lane.
# own, copied: clock up to which the lane's own actions, and its own cp.async, are in the plane; for KNOWN `own` is the warp's
#     clock.
Knowledge = Struct("Knowledge", [("views", u32, PLANES * 32), ("own", u32, PLANES * 32), ("copied", u32, PLANES * 32)])

# The last strong write of a release to a location: its cluster, agent of lane 0 of its warp, clock (0: none) and site, and
# whether its scope is wider than a CTA.
StrongWrite = Struct("StrongWrite", [("cluster", u32), ("warp", u32), ("clock", u32), ("site", u32), ("wide", u32)])
# Such a write whose value lanes have loaded from an address; since: their clock then.
Observation = Struct("Observation", [("at", u64), ("write", StrongWrite), ("lanes", u32), ("since", u32)])
OBSERVATIONS = 4  # that a warp keeps
SPARE_AGENTS = 256  # of a cluster, besides those of its threads

MEETINGS = 8  # that a warp keeps
# The clock and views of a warp's lanes.
# first: agent of lane 0.
# order: semantics of the current operation on mbarriers.
# shown: views made for other agents.
# inits: lanes that have initialised an mbarrier since their last fence.mbarrier_init.
# stranger: each lane's foreign agent + 1 (world.py).
# seen, seen_count: the last writes that lanes have observed, and how many.
# together, together_lanes, together_count: clocks at which all lanes that had not exited were at one instruction that takes a
#     whole warp, the last ones; these lanes; and how many (checks/phases.py).
WarpClocks = Struct("WarpClocks", [
    ("clock", u32), ("first", u32), ("order", u32), ("inits", u32), ("shown", u32, PROXIES), ("now", Knowledge),
    ("stranger", u32, 32), ("seen", Observation, OBSERVATIONS), ("seen_count", u32),
    ("together", u32, MEETINGS), ("together_lanes", u32, MEETINGS), ("together_count", u32),
])  # fmt: skip

# Views that are being joined, for example at a barrier. views: may be changed. seen: the view joined last, held.
Collector = Struct("Collector", [("views", u32, PLANES), ("seen", u32, PLANES)])

# The clocks and views of a resident cluster.
# threads: number of agents that are threads.
# copies: whether each thread has a second agent for its cp.async.
# stride: entries of a view. bound: entries in use.
# planes: planes in use so far, 1, PROXIES, FENCES or all. least: planes in use from the start.
# capacity, fresh, free: number of views; views from `fresh` on were never used; list of free ones.
Orders = Struct("Orders", [
    ("threads", u32), ("copies", u32), ("base", u32), ("next_agent", u32), ("bound", u32), ("stride", u32),
    ("planes", u32), ("least", u32),
    ("capacity", u32), ("fresh", u32), ("free_count", u32),
    ("pool", ptr_to(u32)), ("counts", ptr_to(u32)), ("free", ptr_to(u32)), ("knowers", ptr_to(WarpClocks)),
    ("barriers", ptr_to(Collector)), ("barrier_count", u32),  # of all CTAs
    ("gone", ptr_to(Collector)),  # actions of exited threads of each CTA
    ("meeting", Collector), ("met", u32, PLANES),  # barrier.cluster: collected in this generation, and views of the last
    ("issues", ptr_to(Collector)),  # views of each warp at the issue of each of its last ISSUES wgmma; or null
    ("phasers", ptr), ("phaser_count", u32),  # locations.py
    ("locations", ptr), ("location_count", u32),  # locations.py
    ("strangers", ptr), ("stranger_count", u32), ("all_strangers", u32),  # world.py
    ("everything", u32, PLANES),  # ALL
    ("launch", ptr_to(SanitizedLaunch)),
])  # fmt: skip


def orders_of(cluster: Any) -> Any:
    """Macro: the clocks and views of a cluster."""
    return cast_ptr(Orders, of_cluster(cluster).field("orders"))


def entries_of(o: Any, id: Any) -> Any:
    """Macro: the entries of a view."""
    return o.field("pool") + u64(id) * u64(o.field("stride"))


def plane_of(lanes: Any, plane: Any) -> Any:
    """Macro: the 32 lanes' numbers of one plane."""
    return lanes + plane * 32


@native(inline=True)
def knower_of(o: ptr_to(Orders), w: ptr_to(Warp)) -> ptr_to(WarpClocks):
    return o.knowers + warp_number(w)


@native(inline=True)
def use_fences(o: ptr_to(Orders)) -> None:
    """Note that the planes about fences are in use."""
    if o.planes < FENCES:
        o.planes = FENCES


# views ----------------------------------------------------------------------------------------------------------------
@native(inline=True)
def hold_id(o: ptr_to(Orders), id: u32, count: u32) -> None:
    o.counts[id] = o.counts[id] + count


@native(inline=True)
def drop_id(o: ptr_to(Orders), id: u32, count: u32) -> None:
    if id >= FIRST:
        left = o.counts[id] - count
        o.counts[id] = left
        if left == 0:
            o.free[o.free_count] = id
            o.free_count = o.free_count + 1


@native
def take_view(o: ptr_to(Orders)) -> u32:
    """A free view, held once, to be filled; ALL if the pool is empty."""
    if o.free_count != 0:
        o.free_count = o.free_count - 1
        id = o.free[o.free_count]
        o.counts[id] = 1
        return id
    if o.fresh < o.capacity:
        id = o.fresh
        o.fresh = id + 1
        o.counts[id] = 1
        return id
    o.launch.forgotten = o.launch.forgotten + 1
    return ALL


@native
def copied_view(o: ptr_to(Orders), id: u32) -> u32:
    """A new copy of a view, to be changed."""
    if id == ALL:
        return id
    made = take_view(o)
    if made != ALL:
        copy_bytes(entries_of(o, made), entries_of(o, id), u64(o.bound) * 4)
    return made


@native
def join_into_view(o: ptr_to(Orders), into: u32, id: u32) -> None:
    """Join view `id` into view `into`, which may be changed; neither is ALL."""
    to = entries_of(o, into)
    source = entries_of(o, id)
    for i in range(o.bound >> 5):
        at = i << 5
        store(maximum(load(U32, to, at), load(U32, source, at)), to, at)


@native
def merged_views(o: ptr_to(Orders), a: u32, b: u32) -> u32:
    """The join of two views: one of them if it contains the other, or a new view. Held once for the caller."""
    if a == b or b == NOTHING or a == ALL:
        hold_id(o, a, 1)
        return a
    if a == NOTHING or b == ALL:
        hold_id(o, b, 1)
        return b
    one = entries_of(o, a)
    other = entries_of(o, b)
    less = U32(u32(0))
    more = U32(u32(0))
    for i in range(o.bound >> 5):
        at = i << 5
        x = load(U32, one, at)
        y = load(U32, other, at)
        top = maximum(x, y)
        less = less | (top ^ x)
        more = more | (top ^ y)
    if reduce_or(less) == 0:
        hold_id(o, a, 1)
        return a
    if reduce_or(more) == 0:
        hold_id(o, b, 1)
        return b
    made = copied_view(o, a)
    if made != ALL:
        join_into_view(o, made, b)
    return made


@native
def give_view(o: ptr_to(Orders), ids: ptr_to(u32), mask: u32, id: u32) -> None:
    """Set the view of lanes."""
    old = load(U32, ids)
    change = mask_bits(old != id) & mask
    if change == 0:
        return
    hold_id(o, id, popcount(change))
    left = change
    while left != 0:
        before = old[trailing_zeros(left)]
        same = mask_bits(old == before) & left
        left = left & ~same
        drop_id(o, before, popcount(same))
    store(select(bits_mask(change), U32(id), old), ids)


@native
def join_lanes(o: ptr_to(Orders), ids: ptr_to(u32), mask: u32, id: u32) -> None:
    """Join a view into the views of lanes."""
    if id == NOTHING:
        return
    old = load(U32, ids)
    left = mask & mask_bits(old != id)
    while left != 0:
        before = old[trailing_zeros(left)]
        same = mask_bits(old == before) & left
        left = left & ~same
        made = merged_views(o, before, id)
        give_view(o, ids, same, made)
        drop_id(o, made, 1)


# collecting -----------------------------------------------------------------------------------------------------------
@native
def raise_entries(o: ptr_to(Orders), id: u32, first: u32, clocks: ptr_to(u32), mask: u32) -> None:
    """Raise the clocks of 32 agents in a view that may be changed."""
    to = entries_of(o, id) + first
    store(maximum(load(U32, to), select(bits_mask(mask), load(U32, clocks), U32(u32(0)))), to)


@native
def collect_plane(
    o: ptr_to(Orders), view: ptr_to(u32), seen: ptr_to(u32), first: u32, ids: ptr_to(u32), own: ptr_to(u32), done: ptr_to(u32),
    mask: u32,
) -> None:
    """Join the views of lanes, and their own actions, into a view that may be changed.

    o: orders of the cluster.
    view: number of the view; 0 if there is none yet.
    seen: number of the view that was joined last.
    first: agent of lane 0.
    ids: views of the lanes.
    own, done: clocks of the lanes' own actions, and of their completed cp.async.
    mask: the lanes.
    """
    have = load(U32, ids)
    left = mask
    while left != 0:
        id = have[trailing_zeros(left)]
        same = mask_bits(have == id) & left
        left = left & ~same
        if id != NOTHING and id != seen[0] and view[0] != ALL:
            if view[0] == NOTHING:
                view[0] = copied_view(o, id)
            elif id == ALL:
                drop_id(o, view[0], 1)
                view[0] = ALL
            else:
                join_into_view(o, view[0], id)
            hold_id(o, id, 1)
            drop_id(o, seen[0], 1)
            seen[0] = id
    did = select(bits_mask(mask), load(U32, own) | load(U32, done), U32(u32(0)))
    if reduce_or(did) == 0:
        return
    if view[0] == NOTHING:
        view[0] = copied_view(o, NOTHING)
    if view[0] != ALL:
        raise_entries(o, view[0], first, own, mask)
        if o.copies != 0:
            raise_entries(o, view[0], o.threads + first, done, mask)


@native
def collect_all(o: ptr_to(Orders), c: ptr_to(Collector), first: u32, of: ptr_to(Knowledge), mask: u32) -> None:
    """Join the views of lanes, in all planes, into a collector."""
    for p in range(o.planes):
        ids = plane_of(of.views, p)
        collect_plane(o, c.views + p, c.seen + p, first, ids, plane_of(of.own, p), plane_of(of.copied, p), mask)


@native
def release_lanes(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, c: ptr_to(Collector)) -> None:
    """Release the lanes' views and actions so far to a collector; their next actions come later."""
    store(U32(k.clock), k.now.own)
    collect_all(o, c, k.first, k.now, mask)
    k.clock = k.clock + 1


@native
def raise_own(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, plane: u32) -> boolean:
    """Whether the lanes share one view that no other lane has, so that raising their own clocks in it is enough; if so, this is
    done.
    """
    at = plane * 32
    ids = load(U32, k.now.views, at)
    id = ids[trailing_zeros(mask)]
    if id < FIRST or o.counts[id] != popcount(mask) or (mask_bits(ids == id) & mask) != mask:
        return False
    raise_entries(o, id, k.first, k.now.own + at, mask)
    if o.copies != 0:
        raise_entries(o, id, o.threads + k.first, k.now.copied + at, mask)
    return True


@native
def forget_seen(o: ptr_to(Orders), c: ptr_to(Collector)) -> None:
    """End a collection: the collector's views no longer change."""
    for p in range(o.planes):
        drop_id(o, c.seen[p], 1)
        c.seen[p] = NOTHING


@native
def clear_collector(o: ptr_to(Orders), c: ptr_to(Collector)) -> None:
    """Empty a collector."""
    forget_seen(o, c)
    for p in range(o.planes):
        drop_id(o, c.views[p], 1)
        c.views[p] = NOTHING


@native
def collect_views(o: ptr_to(Orders), c: ptr_to(Collector), views: ptr_to(u32)) -> None:
    """Join views of all planes into a collector."""
    for p in range(o.planes):
        both = merged_views(o, c.views[p], views[p])
        drop_id(o, c.views[p], 1)
        if o.counts[both] > 1 and both >= FIRST:  # it must be its own to be changed
            one = both
            both = copied_view(o, one)
            drop_id(o, one, 1)
        c.views[p] = both


@native
def acquire_views(o: ptr_to(Orders), lanes: ptr_to(u32), mask: u32, views: ptr_to(u32)) -> None:
    """Join views of all planes into those of lanes."""
    for p in range(o.planes):
        join_lanes(o, plane_of(lanes, p), mask, views[p])


@native
def acquire_behind(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, views: ptr_to(u32), plane: u32) -> None:
    """Join views into those of lanes; the part for KNOWN goes to `plane`: KNOWN itself, or ACQUIRED and others for what was
    only seen.
    """
    join_lanes(o, plane_of(k.now.views, plane), mask, views[KNOWN])
    for p in range(o.planes):
        if p != KNOWN and (plane == KNOWN or p < PROXIES):
            join_lanes(o, plane_of(k.now.views, p), mask, views[p])
