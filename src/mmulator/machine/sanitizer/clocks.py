"""Who knows of what: clocks and views, which all topics ask whether one thing comes before another.

Agents of a cluster are its threads (warp of the cluster * 32 + lane), then what is asynchronous: the cp.async of each thread,
mbarriers, whatever asks for an agent (`new_agent`). A warp has a clock, which ticks when some of its lanes release something. A
view says for each agent up to which clock what it did comes before. Views are immutable and counted; lanes hold their numbers:

    knows(w, lane, agent, clock)         what comes before what the lane does now
    knows_fenced, knows_fenced_global    the same, and a fence.proxy.async lies on the path, for shared (global) memory
    view(w, lane), view_fenced(...)      all of it as a view, for what happens later on behalf of the lane: hold_view, drop_view

What a thread does itself it knows by program order; its view has no entry of it. What was before its last fence.proxy.async it
knows as fenced (`own`). Where there is no room (views, agents) everything counts as known: ALL.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import (
    bits_mask,
    cast_ptr,
    copy_bytes,
    fill_bytes,
    load,
    mask_bits,
    maximum,
    popcount,
    reduce_or,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import Struct, ptr, ptr_to, u32, u64
from mmulator.machine.sanitizer.found import of_cluster, of_launch
from mmulator.machine.sanitizer.state import SanitizedLaunch
from mmulator.machine.state import WGMMA, Cluster, Warp

U32 = u32.vec(32)
# Planes of what lanes know: what comes before; with a fence.proxy.async between, for shared, for global memory; with a fence of
# memory between, of any scope, of more than the CTA; what will come before behind such a fence, since relaxed loads have seen it.
PLANES = 7
KNOWN, FENCED, FENCED_GLOBAL, RELEASED, RELEASED_WIDE, ACQUIRED, ACQUIRED_WIDE = range(PLANES)
PROXIES = 3  # the first ones
ISSUES = WGMMA.room
NOTHING, ALL, FIRST = 0, 1, 2  # views that always are, and the first other
NO_AGENT = 0xFFFFFFFF

# What lanes know, a plane after the other. views: of each lane. own, copied: up to which clock what the lane did, and its own
# cp.async, are in the plane; of KNOWN `own` is the warp's clock when it is asked for.
Knowledge = Struct("Knowledge", [("views", u32, PLANES * 32), ("own", u32, PLANES * 32), ("copied", u32, PLANES * 32)])

# Of a warp. first: its first agent. order: of the operation on mbarriers under way. shown: views made for others. stranger: each
# lane's entry among the cluster's, + 1 (world.py).
Knower = Struct("Knower", [
    ("clock", u32), ("first", u32), ("order", u32), ("shown", u32, PROXIES), ("now", Knowledge), ("stranger", u32, 32),
])  # fmt: skip

# Views that are being collected, at a barrier. views: mutable. seen: the last view that was joined, held.
Collector = Struct("Collector", [("views", u32, PLANES), ("seen", u32, PLANES)])

# Of a resident cluster. stride: entries of a view. bound: those in use. threads: agents that are threads. copies: whether each
# thread has a second agent for its cp.async. planes: those in use so far, 1, PROXIES or all; least: from the start. capacity,
# fresh, free: views; those from `fresh` on were never used.
Orders = Struct("Orders", [
    ("threads", u32), ("copies", u32), ("base", u32), ("next_agent", u32), ("bound", u32), ("stride", u32),
    ("planes", u32), ("least", u32),
    ("capacity", u32), ("fresh", u32), ("free_count", u32),
    ("pool", ptr_to(u32)), ("counts", ptr_to(u32)), ("free", ptr_to(u32)), ("knowers", ptr_to(Knower)),
    ("barriers", ptr_to(Collector)), ("barrier_count", u32),  # of all CTAs
    ("gone", ptr_to(Collector)),  # what exited threads of each CTA did
    ("meeting", Collector), ("met", u32, PLANES),  # barrier.cluster: of this generation, and the views of the last
    ("issues", ptr_to(Collector)),  # what each warp knew and did when it issued each of its last ISSUES wgmma; or null
    ("phasers", ptr), ("phaser_count", u32),  # phases.py
    ("locations", ptr), ("location_count", u32),  # locations.py
    ("strangers", ptr), ("stranger_count", u32), ("all_strangers", u32),  # world.py
    ("everything", u32, PLANES),  # ALL
    ("launch", ptr_to(SanitizedLaunch)),
])  # fmt: skip


def orders_of(cluster: Any) -> Any:
    """Macro: the orders of a cluster."""
    return cast_ptr(Orders, of_cluster(cluster).field("orders"))


def entries_of(o: Any, id: Any) -> Any:
    """Macro: the entries of a view."""
    return o.field("pool") + u64(id) * u64(o.field("stride"))


def plane_of(lanes: Any, plane: Any) -> Any:
    """Macro: numbers of 32 lanes, of one plane."""
    return lanes + plane * 32


@native(inline=True)
def knower_of(o: ptr_to(Orders), w: ptr_to(Warp)) -> ptr_to(Knower):
    return o.knowers + (u64(w) - u64(w.cta.cluster.warps)) // Warp.size


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
    """A view to be filled, held once; ALL if there is none."""
    if o.free_count != 0:
        o.free_count = o.free_count - 1
        id = o.free[o.free_count]
        o.counts[id] = u32(1)
        return id
    if o.fresh < o.capacity:
        id = o.fresh
        o.fresh = id + 1
        o.counts[id] = u32(1)
        return id
    o.launch.forgotten = o.launch.forgotten + 1
    return u32(ALL)


@native
def copied_view(o: ptr_to(Orders), id: u32) -> u32:
    """A new view like another, to be changed."""
    if id == ALL:
        return id
    made = take_view(o)
    if made != ALL:
        copy_bytes(entries_of(o, made), entries_of(o, id), u64(o.bound) * 4)
    return made


@native
def join_into_view(o: ptr_to(Orders), into: u32, id: u32) -> None:
    """A view that may be changed learns what another has; neither is ALL."""
    to = entries_of(o, into)
    source = entries_of(o, id)
    for i in range(o.bound >> 5):
        at = i << 5
        store(maximum(load(U32, to, at), load(U32, source, at)), to, at)


@native
def merged_views(o: ptr_to(Orders), a: u32, b: u32) -> u32:
    """What either has: one of the two, if it has all, or a new view. Held once for the caller."""
    if a == b or b == NOTHING or a == ALL:
        hold_id(o, a, u32(1))
        return a
    if a == NOTHING or b == ALL:
        hold_id(o, b, u32(1))
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
        hold_id(o, a, u32(1))
        return a
    if reduce_or(more) == 0:
        hold_id(o, b, u32(1))
        return b
    made = copied_view(o, a)
    if made != ALL:
        join_into_view(o, made, b)
    return made


@native
def give_view(o: ptr_to(Orders), ids: ptr_to(u32), mask: u32, id: u32) -> None:
    """Lanes have a view now, whatever they had before."""
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
    """Lanes learn what a view has."""
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
        drop_id(o, made, u32(1))


# collecting -----------------------------------------------------------------------------------------------------------
@native
def raise_entries(o: ptr_to(Orders), id: u32, first: u32, clocks: ptr_to(u32), mask: u32) -> None:
    """A view that may be changed learns clocks of 32 agents."""
    to = entries_of(o, id) + first
    store(maximum(load(U32, to), select(bits_mask(mask), load(U32, clocks), U32(u32(0)))), to)


@native
def collect_plane(
    o: ptr_to(Orders), view: ptr_to(u32), seen: ptr_to(u32), first: u32, ids: ptr_to(u32), own: ptr_to(u32), done: ptr_to(u32),
    mask: u32,
) -> None:
    """Into a view that may be changed (0: there is none yet) what lanes know, and what they have done."""
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
                drop_id(o, view[0], u32(1))
                view[0] = u32(ALL)
            else:
                join_into_view(o, view[0], id)
            hold_id(o, id, u32(1))
            drop_id(o, seen[0], u32(1))
            seen[0] = id
    did = select(bits_mask(mask), load(U32, own) | load(U32, done), U32(u32(0)))
    if reduce_or(did) == 0:
        return
    if view[0] == NOTHING:
        view[0] = copied_view(o, u32(NOTHING))
    if view[0] != ALL:
        raise_entries(o, view[0], first, own, mask)
        if o.copies != 0:
            raise_entries(o, view[0], o.threads + first, done, mask)


@native
def collect_all(o: ptr_to(Orders), c: ptr_to(Collector), first: u32, of: ptr_to(Knowledge), mask: u32) -> None:
    """The same of all planes."""
    for p in range(o.planes):
        ids = plane_of(of.views, p)
        collect_plane(o, c.views + p, c.seen + p, first, ids, plane_of(of.own, p), plane_of(of.copied, p), mask)


@native
def release_lanes(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, c: ptr_to(Collector)) -> None:
    """What lanes know and did up to here goes into a collector; what they do now comes later."""
    store(U32(k.clock), k.now.own)
    collect_all(o, c, k.first, k.now, mask)
    k.clock = k.clock + 1


@native
def raise_own(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, plane: u32) -> u32:
    """Lanes that have one view to themselves learn in it what each did, if that is all that there is to learn: 1."""
    at = plane * 32
    ids = load(U32, k.now.views, at)
    id = ids[trailing_zeros(mask)]
    if id < FIRST or o.counts[id] != popcount(mask) or (mask_bits(ids == id) & mask) != mask:
        return u32(0)
    raise_entries(o, id, k.first, k.now.own + at, mask)
    if o.copies != 0:
        raise_entries(o, id, o.threads + k.first, k.now.copied + at, mask)
    return u32(1)


@native
def forget_seen(o: ptr_to(Orders), c: ptr_to(Collector)) -> None:
    """No more is collected here: its views do not change from now on."""
    for p in range(o.planes):
        drop_id(o, c.seen[p], u32(1))
        c.seen[p] = u32(NOTHING)


@native
def clear_collector(o: ptr_to(Orders), c: ptr_to(Collector)) -> None:
    """A collector as new."""
    forget_seen(o, c)
    for p in range(o.planes):
        drop_id(o, c.views[p], u32(1))
        c.views[p] = u32(NOTHING)


@native
def collect_views(o: ptr_to(Orders), c: ptr_to(Collector), views: ptr_to(u32)) -> None:
    """Views of all planes go into a collector."""
    for p in range(o.planes):
        both = merged_views(o, c.views[p], views[p])
        drop_id(o, c.views[p], u32(1))
        if o.counts[both] > 1 and both >= FIRST:  # it must be its own to be changed
            one = both
            both = copied_view(o, one)
            drop_id(o, one, u32(1))
        c.views[p] = both


@native
def acquire_views(o: ptr_to(Orders), lanes: ptr_to(u32), mask: u32, views: ptr_to(u32)) -> None:
    """Lanes (their views, of all planes) learn views of all planes."""
    for p in range(o.planes):
        join_lanes(o, plane_of(lanes, p), mask, views[p])


@native
def acquire_behind(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, views: ptr_to(u32), plane: u32) -> None:
    """The same, of which what is known goes to a plane: KNOWN, or ACQUIRED, ... of what was only seen."""
    join_lanes(o, plane_of(k.now.views, plane), mask, views[KNOWN])
    for p in range(o.planes):
        if p != KNOWN and (plane == KNOWN or p < PROXIES):
            join_lanes(o, plane_of(k.now.views, p), mask, views[p])


# fences ---------------------------------------------------------------------------------------------------------------
@native
def fence_plane(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, plane: u32) -> None:
    """What lanes know and did up to here is in a plane, too; the warp's clock must tick behind it."""
    at = plane * 32
    m = bits_mask(mask)
    ids = load(U32, k.now.views)
    left = mask
    while left != 0:
        id = ids[trailing_zeros(left)]
        same = mask_bits(ids == id) & left
        left = left & ~same
        give_view(o, k.now.views + at, same, id)
    store(select(m, U32(k.clock), load(U32, k.now.own, at)), k.now.own, at)
    store(select(m, load(U32, k.now.copied), load(U32, k.now.copied, at)), k.now.copied, at)


@native
def know_acquired(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, plane: u32) -> None:
    """What relaxed loads of lanes have seen, they know now."""
    at = plane * 32
    ids = load(U32, k.now.views, at)
    left = mask & mask_bits(ids != NOTHING)
    while left != 0:
        id = ids[trailing_zeros(left)]
        same = mask_bits(ids == id) & left
        left = left & ~same
        join_lanes(o, k.now.views, same, id)
        give_view(o, k.now.views + at, same, u32(NOTHING))


@native
def release_fenced(o: ptr_to(Orders), c: ptr_to(Collector), k: ptr_to(Knower), mask: u32, plane: u32) -> None:
    """A relaxed store or arrival: what lanes know and did before their last fences, of RELEASED or RELEASED_WIDE, goes into a
    collector."""
    at = plane * 32
    collect_plane(o, c.views, c.seen, k.first, k.now.views + at, k.now.own + at, k.now.copied + at, mask)
    for p in unrolled(1, PROXIES):
        ids = plane_of(k.now.views, p)
        collect_plane(o, c.views + p, c.seen + p, k.first, ids, plane_of(k.now.own, p), plane_of(k.now.copied, p), mask)


@native(inline=True)
def fenced_lanes(o: ptr_to(Orders), k: ptr_to(Knower), mask: u32, plane: u32) -> u32:
    """Lanes of a mask that have something in a plane: a fence lies behind them, or they know of one."""
    if o.planes <= plane:
        return u32(0)
    at = plane * 32
    return mask & mask_bits((load(U32, k.now.views, at) | load(U32, k.now.own, at)) != 0)


# what others ask ------------------------------------------------------------------------------------------------------
@native(inline=True)
def now(w: ptr_to(Warp)) -> u32:
    """The warp's clock, from 1."""
    return knower_of(orders_of(w.cta.cluster), w).clock


@native(inline=True)
def agent_of(w: ptr_to(Warp), lane: u32) -> u32:
    return u32((u64(w) - u64(w.cta.cluster.warps)) // Warp.size) * 32 + lane


@native(inline=True)
def copies_agent_of(w: ptr_to(Warp), lane: u32) -> u32:
    """The agent of a lane's cp.async; the clock of an operation is its number in the warp's queue + 1."""
    return orders_of(w.cta.cluster).threads + agent_of(w, lane)


@native(inline=True)
def knows(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if what an agent did at its clock comes before what a lane does now."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    if agent == k.first + lane or agent >= o.stride:
        return u32(1)
    found = u32(entries_of(o, k.now.views[lane])[agent] >= clock)
    if o.copies != 0 and agent == o.threads + k.first + lane:
        found = found | u32(k.now.copied[lane] >= clock)
    return found


@native(inline=True)
def knows_in_plane(w: ptr_to(Warp), plane: u32, lane: u32, agent: u32, clock: u32) -> u32:
    """The same of a plane that is fenced."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    at = plane * 32 + lane
    if agent >= o.stride:
        return u32(1)
    found = u32(entries_of(o, k.now.views[at])[agent] >= clock)
    if agent == k.first + lane:
        found = found | u32(k.now.own[at] >= clock)
    if o.copies != 0 and agent == o.threads + k.first + lane:
        found = found | u32(k.now.copied[at] >= clock)
    return found


@native(inline=True)
def knows_fenced(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if it comes before, and a fence.proxy.async for shared memory lies between."""
    return knows_in_plane(w, u32(FENCED), lane, agent, clock)


@native(inline=True)
def knows_fenced_global(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if it comes before, and a fence.proxy.async for global memory lies between."""
    return knows_in_plane(w, u32(FENCED_GLOBAL), lane, agent, clock)


@native(inline=True)
def one_view(w: ptr_to(Warp), mask: u32) -> u32:
    """1 if all lanes of a mask know the same of other threads, and of other threads' copies."""
    k = knower_of(orders_of(w.cta.cluster), w)
    ids = load(U32, k.now.views)
    return u32((mask_bits(ids != k.now.views[trailing_zeros(mask)]) & mask) == 0)


@native
def shown_view(w: ptr_to(Warp), plane: u32, lane: u32) -> u32:
    """What a lane knows and did up to here, as a view of a plane. Whoever keeps it holds it before the next such call."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    at = plane * 32
    made = stack(u32)
    seen = stack(u32)
    made[0] = u32(NOTHING)
    seen[0] = u32(NOTHING)
    store(U32(k.clock), k.now.own)
    one = u32(1)
    collect_plane(o, made, seen, k.first, k.now.views + at, k.now.own + at, k.now.copied + at, one << lane)
    if plane == KNOWN:
        k.clock = k.clock + 1
    drop_id(o, seen[0], u32(1))
    drop_id(o, k.shown[plane], u32(1))
    k.shown[plane] = made[0]
    return made[0]


@native
def view(w: ptr_to(Warp), lane: u32) -> u32:
    return shown_view(w, u32(KNOWN), lane)


@native
def view_fenced(w: ptr_to(Warp), lane: u32) -> u32:
    return shown_view(w, u32(FENCED), lane)


@native
def view_fenced_global(w: ptr_to(Warp), lane: u32) -> u32:
    return shown_view(w, u32(FENCED_GLOBAL), lane)


@native(inline=True)
def hold_view(cluster: ptr_to(Cluster), id: u32) -> None:
    hold_id(orders_of(cluster), id, u32(1))


@native(inline=True)
def drop_view(cluster: ptr_to(Cluster), id: u32) -> None:
    drop_id(orders_of(cluster), id, u32(1))


@native(inline=True)
def view_knows(cluster: ptr_to(Cluster), id: u32, agent: u32, clock: u32) -> u32:
    """1 if what an agent did at its clock comes before what a view was taken of, which has the lane's own part in it."""
    o = orders_of(cluster)
    if agent >= o.stride:
        return u32(1)
    return u32(entries_of(o, id)[agent] >= clock)


@native
def new_agent(cluster: ptr_to(Cluster)) -> u32:
    """An agent that nobody knows anything of; NO_AGENT if none is left."""
    o = orders_of(cluster)
    agent = o.next_agent
    if agent == o.stride:
        o.launch.forgotten = o.launch.forgotten + 1
        return u32(NO_AGENT)
    o.next_agent = agent + 1
    if agent == o.bound:
        o.bound = agent + 32
    return agent


@native
def learn_plane(o: ptr_to(Orders), ids: ptr_to(u32), mask: u32, agent: u32, clock: u32) -> None:
    old = load(U32, ids)
    left = mask
    while left != 0:
        before = old[trailing_zeros(left)]
        same = mask_bits(old == before) & left
        left = left & ~same
        if entries_of(o, before)[agent] >= clock:
            continue
        if before != NOTHING and o.counts[before] == popcount(same):  # nobody else has it
            entries_of(o, before)[agent] = clock
        else:
            made = copied_view(o, before)
            if made != ALL:
                entries_of(o, made)[agent] = clock
            give_view(o, ids, same, made)
            drop_id(o, made, u32(1))


@native
def learn(w: ptr_to(Warp), mask: u32, agent: u32, clock: u32) -> None:
    """Lanes know that an asynchronous agent has got so far; its end implies the fence between the proxies."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    if o.planes < PROXIES:
        o.planes = u32(PROXIES)
    if agent < o.stride:
        for p in unrolled(PROXIES):
            learn_plane(o, plane_of(k.now.views, p), mask, agent, clock)


# beginning ------------------------------------------------------------------------------------------------------------
@native
def forget_all(cluster: ptr_to(Cluster)) -> None:
    """A cluster begins: nobody knows anything."""
    o = orders_of(cluster)
    o.launch = of_launch(cluster)
    o.fresh = u32(FIRST)
    o.free_count = u32(0)
    o.next_agent = o.base
    o.planes = o.least
    fill_bytes(o.barriers, 0, u64(o.barrier_count) * Collector.size)
    fill_bytes(o.gone, 0, u64(cluster.cta_count) * Collector.size)
    fill_bytes(o.meeting, 0, Collector.size + 4 * PLANES)
    if u64(o.issues) != 0:
        fill_bytes(o.issues, 0, u64(cluster.warp_count) * (ISSUES * Collector.size))
    for p in unrolled(PLANES):
        o.everything[p] = u32(ALL)
    for i in range(cluster.warp_count):
        k = o.knowers + i
        fill_bytes(k, 0, Knower.size)
        k.clock = u32(1)
        k.first = i * 32
