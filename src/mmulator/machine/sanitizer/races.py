"""Accesses of threads, as the door to memory tells them: each meets what the shadow knows of its bytes (shadow.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import (
    all_lanes,
    bits_mask,
    cast_ptr,
    iota,
    load,
    mask_bits,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.codegen.values import Value
from mmulator.machine.runtime.events import PROXY_SHIFT, SCOPE_SHIFT as ORDER_SCOPE, Access, Order
from mmulator.machine.sanitizer.clocks import agent_of, copies_agent_of, now
from mmulator.machine.sanitizer.judgement import settle_doubts
from mmulator.machine.sanitizer.records import (
    ATOMIC,
    KIND_SHIFT,
    LANE_BITS,
    MANY,
    PER_LANE,
    READ,
    SCOPE_SHIFT,
    STRONG,
    WRITE,
    Actor,
    Kind,
    Races,
    Store,
    begin_races,
    enough,
    races_of,
    record_of,
)
from mmulator.machine.sanitizer.shadow import is_watched, touch
from mmulator.machine.state import COPIES, FULL, Cluster, Cta, Queue, Warp

U64 = u64.vec(32)
LATER = int(Access.LATER)


@native
def thread_acts(w: ptr_to(Warp), s: ptr_to(Races), global_: u32, access: u32, site: u32, a: ptr_to(Actor)) -> None:
    """Lanes of a warp, or their cp.async, are about to access shared (global_: global) memory."""
    cluster = w.cta.cluster
    a.w = w
    a.cluster = cluster
    a.races = s
    a.store = cast_ptr(Store, s) + global_
    a.site = site
    a.asynchronous = u32(0)
    a.agent = agent_of(w, u32(0))
    a.clock = now(w)
    flags = (access & (READ | WRITE | ATOMIC)) | PER_LANE
    a.plain = u32((access & (WRITE | ATOMIC | LATER)) == WRITE)
    if (s.order & Order.STRONG) != 0:
        flags = flags | STRONG | ((s.order >> ORDER_SCOPE) << SCOPE_SHIFT)
    if (access & LATER) != 0:
        flags = flags | (int(Kind.COPY) << KIND_SHIFT)
        a.agent = copies_agent_of(w, u32(0))
        a.clock = u32((cast_ptr(Queue, w.queues) + COPIES.queue).issued) + 1
    a.flags = flags
    if global_ == 0:
        enough(s, w)
    issued = u32(0)
    if (access & LATER) != 0:
        issued = now(w)
    a.record = record_of(s, a.store, cluster, w, a.agent, a.clock, site, flags, issued)


@native(inline=True)
def as_lane(a: ptr_to(Actor), lane: u32) -> None:
    """The actor is one lane."""
    a.lane = lane
    a.lanes = u32(1) << lane
    a.entry = (a.record << LANE_BITS) | lane
    if a.record == 0:
        a.entry = u32(0)


@native
def as_many(a: ptr_to(Actor), lanes: u32) -> None:
    """The actor is several lanes that read the same bytes."""
    lane = trailing_zeros(lanes)
    a.lane = lane
    a.lanes = lanes
    number = record_of(a.races, a.store, a.cluster, a.w, a.agent, a.clock, a.site, a.flags | MANY, lanes)
    a.entry = (number << LANE_BITS) | lane
    if number == 0:
        a.entry = u32(0)


@native
def each_lane(a: ptr_to(Actor), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        as_lane(a, lane)
        touch(a, at[lane] | base, u64(bytes))


@native
def each_place(a: ptr_to(Actor), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    """The same of reads, where lanes may have one address."""
    places = load(U64, at)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        same = mask_bits(places == at[lane]) & left
        left = left & ~same
        if (same & (same - 1)) == 0:
            as_lane(a, lane)
        else:
            as_many(a, same)
        touch(a, at[lane] | base, u64(bytes))


@native
def race_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if mask == 0 or (access >> PROXY_SHIFT) != 0:
        return
    first = trailing_zeros(mask)
    space = is_watched(at[first] | base)
    if space == 0:
        return
    a = stack(Actor)
    thread_acts(w, s, space - 1, access, site, a)
    if (access & WRITE) != 0:
        each_lane(a, mask, at, base, bytes)
    else:
        each_place(a, mask, at, base, bytes)


@native
def race_lane(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if (access >> PROXY_SHIFT) != 0:
        return
    space = is_watched(at)
    if space == 0:
        return
    a = stack(Actor)
    thread_acts(w, s, space - 1, access, site, a)
    as_lane(a, lane)
    touch(a, at, u64(bytes))


@native
def race_ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    """What is accessed from here on is strong, or weak again."""
    s = races_of(w.cta.cluster)
    s.order = order
    if done != 0:
        s.order = u32(0)


@native
def race_completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_met(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


HOOKS: Mapping[str, Native] = {
    "accessed": race_lanes, "accessed_one": race_lane, "ordered": race_ordered, "completed": race_completed,
    "lanes_exit": race_met, "warp_met": race_met, "barrier_arrived": race_arrived, "cluster_begins": begin_races,
}  # fmt: skip
