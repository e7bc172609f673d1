"""Tensor maps that a kernel changes: the fences between the change and a copy, and changes while a copy uses the map.

A use of a map is recorded in the shadow as an access to its 128 bytes of a special kind (Kind.MAP). Its conflicts with writes
are checked here. No thread ever acquires the end of such a use, so that every later write is checked too.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_of, cast_ptr, trailing_zeros
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.hooks.events import SPACE_GLOBAL, Fence
from mmulator.native.state import Warp
from mmulator.rules.proxies import MAP_FENCE_MISSING, MAP_IN_FLIGHT
from mmulator.sanitizer.checks.proxy_state import MAP_FENCES, MAP_USES, MapFence, MapUse, note_fence, proxies_of
from mmulator.sanitizer.found import find_against
from mmulator.sanitizer.order.clocks import agent_of, hold_view, now, view
from mmulator.sanitizer.order.issues import issue_knows, note_fenced
from mmulator.sanitizer.order.views import KNOWN, NO_AGENT, Orders, entries_of, orders_of
from mmulator.sanitizer.shadow.records import Record

MAP_BYTES = 128
_FENCE, _FLIGHT = MAP_FENCE_MISSING.number, MAP_IN_FLIGHT.number
UNORDERED, NO_RELEASE, NO_ACQUIRE = range(3)  # what is missing, in a finding's first word
_ALL = -MAP_BYTES & 0xFFFFFFFFFFFFFFFF


@native
def map_fenced(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    """Record fence.proxy.tensormap, with everything that happens before it."""
    if kind == Fence.ASYNC and (spaces == 0 or (spaces & SPACE_GLOBAL) != 0):
        note_fenced(w.cta.cluster)
    if kind != Fence.TENSORMAP_RELEASE and kind != Fence.TENSORMAP_ACQUIRE:
        return
    cluster = w.cta.cluster
    p = proxies_of(cluster)
    first = agent_of(w, 0)
    left = mask
    if kind == Fence.TENSORMAP_RELEASE:
        clock = now(w)
        knew = view(w, trailing_zeros(mask))
        hold_view(cluster, knew)
        p.released_count = note_fence(
            cluster, cast_ptr(MapFence, p.released), p.released_count, 0, first, mask, clock, knew
        )
        return
    while left != 0:
        lane = trailing_zeros(left)
        same = u32(0)
        for other in bits_of(left):
            if at[other] == at[lane]:
                same = same | (1 << other)
        left = left & ~same
        clock = now(w)
        knew = view(w, lane)
        hold_view(cluster, knew)
        p.acquired_count = note_fence(
            cluster, cast_ptr(MapFence, p.acquired), p.acquired_count, at[lane] & _ALL, first, same, clock, knew
        )


@native
def map_released(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """Record that tensormap.cp_fenceproxy has written a map; it includes a release."""
    cluster = w.cta.cluster
    p = proxies_of(cluster)
    clock = now(w)
    knew = view(w, lane)
    hold_view(cluster, knew)
    p.released_count = note_fence(
        cluster, cast_ptr(MapFence, p.released), p.released_count, 0, agent_of(w, 0), 1 << lane, clock, knew
    )


@native
def fence_known(w: ptr_to(Warp), lanes: u32, f: ptr_to(MapFence)) -> boolean:
    """Whether a fence, by any of its lanes, happens before the current action of lanes of a warp."""
    for lane in bits_of(f.lanes):
        if issue_knows(w, lanes, f.agent + lane, f.clock, KNOWN) != 0:
            return True
    return False


@native
def fence_knew(o: ptr_to(Orders), f: ptr_to(MapFence), agent: u32, clock: u32) -> boolean:
    """Whether an agent's action at a clock happens before a fence. Actions of the fence's whole warp count, because maps are
    published by whole warps.
    """
    if (agent & ~u32(31)) == f.agent:
        return clock <= f.clock
    return entries_of(o, f.view)[agent] >= clock


@native
def was_released(w: ptr_to(Warp), acquired: ptr_to(MapFence), agent: u32, clock: u32) -> boolean:
    """Whether a release follows an agent's action and happens before the acquiring lanes' action."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    p = proxies_of(cluster)
    if p.released_count > MAP_FENCES:
        return True
    fences = cast_ptr(MapFence, p.released)
    for n in range(MAP_FENCES):
        if u32(n) < p.released_count:
            r = fences + n
            if fence_knew(o, r, agent, clock):
                for lane in bits_of(r.lanes):
                    if fence_knew(o, acquired, r.agent + lane, r.clock):
                        return True
    return False


@native
def map_used_by(w: ptr_to(Warp), lane: u32, at: u64, site: u32, record: ptr_to(Record), agent: u32, others: u32) -> None:
    """Check a copy's use of a map whose bytes a record's access wrote in this launch.

    w, lane, site: the issuing lane and instruction.
    at: address of the map.
    record: the write.
    agent: the writing agent.
    others: lanes of the record.
    """
    cluster = w.cta.cluster
    o = orders_of(cluster)
    p = proxies_of(cluster)
    lanes = 1 << lane
    foreign = record.cluster != u32(cluster.number)
    if p.acquired_count > MAP_FENCES:
        return
    missing = u32(NO_ACQUIRE)
    fences = cast_ptr(MapFence, p.acquired)
    for n in range(MAP_FENCES):
        if u32(n) < p.acquired_count:
            f = fences + n
            if f.map == (at & _ALL):
                if fence_known(w, lanes, f):
                    if foreign:
                        return  # the releasing thread is in another cluster
                    if agent >= o.stride:
                        return
                    if fence_knew(o, f, agent, record.clock):
                        if was_released(w, f, agent, record.clock):
                            return
                        missing = NO_RELEASE
    if not foreign:
        if issue_knows(w, lanes, agent, record.clock, KNOWN) == 0:
            missing = UNORDERED
    entry = find_against(
        w, _FENCE, site, lanes, p.map, MAP_BYTES, record.site + 1, record.cta, record.warp, others
    )
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = u64(missing)


@native
def note_use(w: ptr_to(Warp), lane: u32, load: u32, phase: u32, reads: u32, group: u32, site: u32) -> None:
    """Record the use of the map at `p.map` by a copy; it replaces the last use by this thread with this mbarrier.

    w, lane, site: the issuing lane and instruction.
    load, phase: agent and clock of the mbarrier that signals a load's end; NO_AGENT for a store.
    reads, group: agent and clock of the bulk group's reads.
    """
    p = proxies_of(w.cta.cluster)
    issuer = agent_of(w, lane)
    uses = cast_ptr(MapUse, p.uses)
    found = uses + (p.use_count & (MAP_USES - 1))
    fresh = u32(1)
    for n in range(MAP_USES):
        if u32(n) < p.use_count:
            u = uses + n
            if u.map == p.map and u.issuer == issuer and u.load == load:
                found = u
                fresh = 0
    p.use_count = p.use_count + fresh
    found.map = p.map
    found.load = load
    found.phase = phase
    found.reads = reads
    found.group = group
    found.issuer = issuer
    found.site = site
    found.cta = w.cta.linear
    found.warp = w.index
    found.lanes = 1 << lane


@native
def map_written(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32) -> None:
    """Check a write to a map that copies have used: each must be complete, or must have signalled that it has read the map."""
    p = proxies_of(w.cta.cluster)
    lanes = 1 << lane
    uses = cast_ptr(MapUse, p.uses)
    for n in range(MAP_USES):
        if u32(n) < p.use_count:
            u = uses + n
            if u.map < at + u64(bytes) and at < u.map + MAP_BYTES:
                over = issue_knows(w, lanes, u.reads, u.group, KNOWN)
                if u.load != NO_AGENT:
                    over = over | issue_knows(w, lanes, u.load, u.phase, KNOWN)
                if over == 0:
                    find_against(w, _FLIGHT, site, lanes, u.map, MAP_BYTES, u.site + 1, u.cta, u.warp, u.lanes)
