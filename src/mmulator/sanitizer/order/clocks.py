"""Happens-before: vector clocks (views), which all topics query.

Agents of a cluster are its threads (warp of the cluster * 32 + lane), then asynchronous agents: the cp.async of each thread,
mbarriers, and agents that a topic requests (`new_agent`). A warp has a clock, which ticks when some of its lanes release. A
view is a vector clock: for each agent, the clock up to which its actions happen before. Views are immutable and counted; lanes
hold their numbers:

    knows(w, lane, agent, clock)         whether an action happens before the lane's next action
    knows_fenced(w, lane, agent, clock)  and a fence.proxy.async for shared memory lies on the path
    view(w, lane)                        the view itself, for a later action on behalf of the lane: hold_view, drop_view

A thread's own actions happen before by program order; its view has no entry for them. Own actions before its last
fence.proxy.async are fenced (`own`). If the pool of views or agents is full, everything counts as ordered: ALL.
"""

from typing import Any

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import (
    bits_mask,
    bits_of,
    cast_ptr,
    fill_bytes,
    load,
    mask_bits,
    maximum,
    popcount,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import boolean, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.state import Cluster, Warp
from mmulator.sanitizer.order.views import (
    ALL,
    FENCED,
    FIRST,
    ISSUES,
    KNOWN,
    NO_AGENT,
    NOTHING,
    OBSERVATIONS,
    PLANES,
    PROXIES,
    U32,
    UNSAID,
    Collector,
    Observation,
    Orders,
    StrongWrite,
    WarpClocks,
    collect_plane,
    copied_view,
    drop_id,
    entries_of,
    give_view,
    hold_id,
    join_lanes,
    knower_of,
    orders_of,
    plane_of,
)
from mmulator.sanitizer.state import of_launch


# fences ---------------------------------------------------------------------------------------------------------------
@native
def fence_plane(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, plane: u32) -> None:
    """Copy the lanes' knowledge, including their own actions so far, to a plane; the warp's clock must tick afterwards."""
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
def know_acquired(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, plane: u32) -> None:
    """Acquire what relaxed loads of lanes have seen."""
    at = plane * 32
    ids = load(U32, k.now.views, at)
    left = mask & mask_bits(ids != NOTHING)
    while left != 0:
        id = ids[trailing_zeros(left)]
        same = mask_bits(ids == id) & left
        left = left & ~same
        join_lanes(o, k.now.views, same, id)
        give_view(o, k.now.views + at, same, NOTHING)


@native
def release_fenced(o: ptr_to(Orders), c: ptr_to(Collector), k: ptr_to(WarpClocks), mask: u32, plane: u32) -> None:
    """Release to a collector, by a relaxed store or arrival, what happened before the lanes' last fences, of RELEASED or
    RELEASED_WIDE.
    """
    at = plane * 32
    collect_plane(o, c.views, c.seen, k.first, k.now.views + at, k.now.own + at, k.now.copied + at, mask)
    for p in unrolled(1, PROXIES):
        ids = plane_of(k.now.views, p)
        collect_plane(o, c.views + p, c.seen + p, k.first, ids, plane_of(k.now.own, p), plane_of(k.now.copied, p), mask)


@native(inline=True)
def fenced_lanes(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, plane: u32) -> u32:
    """Mask of lanes with an entry in a plane: they executed a fence, or acquired one."""
    if o.planes <= plane:
        return 0
    at = plane * 32
    return mask & mask_bits((load(U32, k.now.views, at) | load(U32, k.now.own, at)) != 0)


# observed writes ------------------------------------------------------------------------------------------------------
@native
def note_write(w: ptr_to(Warp), out: ptr_to(StrongWrite), wide: u32, site: u32) -> None:
    """Record the strong write of a release, which comes next."""
    k = knower_of(orders_of(w.cta.cluster), w)
    out.cluster = u32(w.cta.cluster.number)
    out.warp = k.first
    out.clock = k.clock
    out.site = site
    out.wide = wide


@native(inline=True)
def is_write(a: ptr_to(StrongWrite), cluster: u32, warp: u32, clock: u32, site: u32) -> boolean:
    return a.clock == clock and a.warp == warp and a.site == site and a.cluster == cluster


@native
def note_seen(w: ptr_to(Warp), lanes: u32, at: u64, write: ptr_to(StrongWrite)) -> None:
    """Record that lanes have loaded the value of a write, if there is one."""
    if write.clock == 0:
        return
    k = knower_of(orders_of(w.cta.cluster), w)
    seen = cast_ptr(Observation, k.seen)
    for n in range(u32(OBSERVATIONS)):
        s = seen + n
        if s.at == at and (lanes & ~s.lanes) == 0 and is_write(s.write, write.cluster, write.warp, write.clock, write.site):
            return
    s = seen + (k.seen_count & (OBSERVATIONS - 1))
    k.seen_count = k.seen_count + 1
    s.at = at
    note = s.write
    note.cluster = write.cluster
    note.warp = write.warp
    note.clock = write.clock
    note.site = write.site
    s.lanes = lanes
    s.since = k.clock


@native
def has_seen(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, cluster: u32, warp: u32, clock: u32, site: u32) -> boolean:
    """Whether a strong write to some of these bytes was observed by a load that happens before a lane's next action (PTX ISA 9.1,
    Causality Order, observation). The write is named as in StrongWrite.
    """
    o = orders_of(w.cta.cluster)
    for i in range(w.cta.cluster.warp_count):
        k = o.knowers + i
        for n in range(u32(OBSERVATIONS)):
            s = cast_ptr(Observation, k.seen) + n
            if s.at - at < bytes and is_write(s.write, cluster, warp, clock, site):
                for other in bits_of(s.lanes):
                    if knows(w, lane, k.first + other, s.since) != 0:
                        return True
    return False


# what others ask ------------------------------------------------------------------------------------------------------
@native(inline=True)
def now(w: ptr_to(Warp)) -> u32:
    """The warp's clock, which starts at 1."""
    return knower_of(orders_of(w.cta.cluster), w).clock


@native(inline=True)
def agent_of(w: ptr_to(Warp), lane: u32) -> u32:
    return warp_number(w) * 32 + lane


@native(inline=True)
def copies_agent_of(w: ptr_to(Warp), lane: u32) -> u32:
    """The agent of a lane's cp.async; the clock of an operation is its number in the warp's queue + 1."""
    return orders_of(w.cta.cluster).threads + agent_of(w, lane)


@native(inline=True)
def knows(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if an agent's action at a clock, which writes nothing beyond its block, happens before the lane's next action."""
    o = orders_of(w.cta.cluster)
    found = knows_all(w, lane, agent, clock)
    if o.planes > UNSAID and found == 0:
        found = u32(entries_of(o, knower_of(o, w).now.views[UNSAID * 32 + lane])[agent] >= clock)
    return found


@native(inline=True)
def knows_all(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if an agent's action at a clock happens before the lane's next action, also if it writes beyond its block."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    if agent == k.first + lane or agent >= o.stride:
        return 1
    found = u32(entries_of(o, k.now.views[lane])[agent] >= clock)
    if o.copies != 0 and agent == o.threads + k.first + lane:
        found = found | u32(k.now.copied[lane] >= clock)
    return found


@native(inline=True)
def knows_in_plane(w: ptr_to(Warp), plane: u32, lane: u32, agent: u32, clock: u32) -> u32:
    """1 if an agent's action at a clock happens before a lane's next action with the fence of a plane between them."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    at = plane * 32 + lane
    if agent >= o.stride:
        return 1
    found = u32(entries_of(o, k.now.views[at])[agent] >= clock)
    if agent == k.first + lane:
        found = found | u32(k.now.own[at] >= clock)
    if o.copies != 0 and agent == o.threads + k.first + lane:
        found = found | u32(k.now.copied[at] >= clock)
    return found


@native(inline=True)
def knows_fenced(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> u32:
    """1 if an action happens before, with a fence.proxy.async for shared memory between."""
    return knows_in_plane(w, FENCED, lane, agent, clock)


# of an operation that lanes of a warp issue together: an order for one of the lanes is enough
@native
def issue_knows(w: ptr_to(Warp), lanes: u32, agent: u32, clock: u32, plane: u32) -> u32:
    """1 if an agent's action at a clock happens before the joint issue of some lanes. plane: as in clocks.py."""
    o = orders_of(w.cta.cluster)
    if agent >= o.stride:
        return 1
    k = knower_of(o, w)
    own = agent - k.first
    if own < 32:
        if ((lanes >> own) & 1) != 0:
            if plane == KNOWN:
                return 1
            if plane_of_lane(k.now.own, plane, own) >= clock:
                return 1
    if o.copies != 0:
        copied = own - o.threads
        if copied < 32:
            if ((lanes >> copied) & 1) != 0:
                if plane_of_lane(k.now.copied, plane, copied) >= clock:
                    return 1
    return u32(latest_in(w, lanes, agent, plane) >= clock)


def plane_of_lane(numbers: Any, plane: Any, lane: Any) -> Any:
    """Macro: a lane's number in a plane."""
    return numbers[plane * 32 + lane]


@native
def latest_in(w: ptr_to(Warp), lanes: u32, agent: u32, plane: u32) -> u32:
    """Greatest clock of an agent in the views of the lanes; the agent is not one of the lanes."""
    o = orders_of(w.cta.cluster)
    ids = load(U32, knower_of(o, w).now.views, plane * 32)
    found = u32(0)
    left = lanes
    while left != 0:
        id = ids[trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        found = maximum(found, entries_of(o, id)[agent])
    if plane == KNOWN and o.planes > UNSAID:
        found = maximum(found, latest_in(w, lanes, agent, UNSAID))
    return found


@native
def shown_view(w: ptr_to(Warp), plane: u32, lane: u32) -> u32:
    """The view of a lane in a plane, including its own actions so far. A caller that keeps it must hold it before the next such
    call.
    """
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    at = plane * 32
    made = stack(u32)
    seen = stack(u32)
    made[0] = NOTHING
    seen[0] = NOTHING
    store(U32(k.clock), k.now.own)
    one = u32(1)
    collect_plane(o, made, seen, k.first, k.now.views + at, k.now.own + at, k.now.copied + at, one << lane)
    if plane == KNOWN:
        if o.planes > UNSAID:  # what acts for the lane later passes it on as all else
            far = UNSAID * 32
            collect_plane(o, made, seen, k.first, k.now.views + far, k.now.own + far, k.now.copied + far, one << lane)
        k.clock = k.clock + 1
    drop_id(o, seen[0], 1)
    drop_id(o, k.shown[plane], 1)
    k.shown[plane] = made[0]
    return made[0]


@native
def view(w: ptr_to(Warp), lane: u32) -> u32:
    return shown_view(w, KNOWN, lane)


@native(inline=True)
def hold_view(cluster: ptr_to(Cluster), id: u32) -> None:
    hold_id(orders_of(cluster), id, 1)


@native(inline=True)
def drop_view(cluster: ptr_to(Cluster), id: u32) -> None:
    drop_id(orders_of(cluster), id, 1)


@native
def new_agent(cluster: ptr_to(Cluster)) -> u32:
    """A new agent, of which no view has an entry; NO_AGENT if none is left."""
    o = orders_of(cluster)
    agent = o.next_agent
    if agent == o.stride:
        o.launch.forgotten = o.launch.forgotten + 1
        return NO_AGENT
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
        if before != NOTHING and o.counts[before] == popcount(same):  # no other lane has it
            entries_of(o, before)[agent] = clock
        else:
            made = copied_view(o, before)
            if made != ALL:
                entries_of(o, made)[agent] = clock
            give_view(o, ids, same, made)
            drop_id(o, made, 1)


@native
def learn(w: ptr_to(Warp), mask: u32, agent: u32, clock: u32) -> None:
    """Acquire an asynchronous agent's clock; the end of its operation implies the fence between the proxies."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    if o.planes < PROXIES:
        o.planes = PROXIES
    if agent < o.stride:
        for p in unrolled(PROXIES):
            learn_plane(o, plane_of(k.now.views, p), mask, agent, clock)


# beginning ------------------------------------------------------------------------------------------------------------
@native
def forget_all(cluster: ptr_to(Cluster)) -> None:
    """Reset clocks and views for a new cluster."""
    o = orders_of(cluster)
    o.launch = of_launch(cluster)
    o.fresh = FIRST
    o.free_count = 0
    o.next_agent = o.base
    o.planes = o.least
    fill_bytes(o.barriers, 0, u64(o.barrier_count) * Collector.size)
    fill_bytes(o.gone, 0, u64(cluster.cta_count) * Collector.size)
    fill_bytes(o.meeting, 0, Collector.size + 4 * PLANES)
    if u64(o.issues) != 0:
        fill_bytes(o.issues, 0, u64(cluster.warp_count) * (ISSUES * Collector.size))
    for p in unrolled(PLANES):
        o.everything[p] = ALL
    for i in range(cluster.warp_count):
        k = o.knowers + i
        fill_bytes(k, 0, WarpClocks.size)
        k.clock = 1
        k.first = i * 32
