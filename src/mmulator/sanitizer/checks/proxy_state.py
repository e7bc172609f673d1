"""The records of a cluster's asynchronous operations besides those in the shadow (records.py), and tensor maps that a kernel
changes: the fences between the change and a copy, and changes while a copy uses the map.

A use of a map is recorded in the shadow as an access to its 128 bytes of a special kind (AccessKind.MAP). Its conflicts with
writes are checked here. No thread ever acquires the end of such a use, so that every later write is checked too.
"""

from typing import Any

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, fill_bytes, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.base.rules.proxies import MAP_FENCE_MISSING, MAP_IN_FLIGHT
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.hooks.events import SPACE_GLOBAL, Fence
from mmulator.runtime.native.state import Cluster, Cta, Warp
from mmulator.sanitizer.order.clocks import agent_of, drop_view, hold_view, issue_knows, new_agent, now, view
from mmulator.sanitizer.order.views import KNOWN, NO_AGENT, Collector, Orders, entries_of, knower_of, orders_of
from mmulator.sanitizer.order.world import note_fenced
from mmulator.sanitizer.shadow.records import Met, Record
from mmulator.sanitizer.state import find_against, of_cluster, say

# An issue, by agent and clock of its end: the issuing thread and its warp's clock; for a wgmma the first thread of the
# warpgroup and the clocks of its warps (0: not yet). Only the newest ISSUES are kept.
Issue = Struct("Issue", [("agent", u32), ("clock", u32), ("site", u32), ("issuer", u32), ("since", u32, 4)])
ISSUES = 2048
# An mbarrier that is an agent: its generic address, and its clock in its first phase.
Named = Struct("Named", [("agent", u32), ("first", u32), ("at", u64)])
NAMES = 512
# The bulk groups of a thread: agents + 1 (0: none yet) of the reads and of the writes of its groups, whose clock is the group's
# number + 1.
# pending: clock of its newest group that reads shared memory, by the instruction `site`.
BulkLane = Struct("BulkLane", [("reads", u32), ("writes", u32), ("pending", u32), ("site", u32)])
# A use of a tensor map. load, phase: agent (NO_AGENT for a store) and clock of the mbarrier. reads, group: agent and clock of
# the thread's bulk group. Either end is enough.
MapUse = Struct("MapUse", [
    ("map", u64), ("load", u32), ("phase", u32), ("reads", u32), ("group", u32), ("issuer", u32), ("site", u32), ("cta", u32),
    ("warp", u32), ("lanes", u32),
])  # fmt: skip
MAP_USES = 64
# A fence.proxy.tensormap: its map (0 for a release, which covers all), its lanes and clock, and its view (held).
MapFence = Struct("MapFence", [("map", u64), ("agent", u32), ("lanes", u32), ("clock", u32), ("view", u32)])
MAP_FENCES = 64  # older fences are forgotten, and maps that they may cover are not checked

# A committed group of wgmma of a warpgroup: the number behind its last operation, the warps that have committed it, and their
# joined views.
Gathered = Struct("Gathered", [("end", u64), ("warps", u32), ("all", Collector)])
GATHERED = 16  # of a warpgroup
METS = 8  # operations of a warpgroup for which the writers of B are recorded

# The records of a resident cluster.
# groups: agent + 1 of each warpgroup, whose clock is an operation's number + 1.
# map: the map of the copy that is being issued, or 0. maps: an agent whose end is never acquired, for uses of maps.
# agent, clock: of the end of the operation that is being issued.
# noted: whether there are names or issues.
# store: the store of a box that is being issued, or null. replica: 1 if another store writes the same, 2 if not, 0 if unknown.
Proxies = Struct("Proxies", [
    ("groups", ptr_to(u32)), ("gathered", ptr_to(Gathered)), ("met", ptr_to(Met)),
    ("lanes", ptr_to(BulkLane)), ("group_count", u32), ("group_stride", u32), ("lane_count", u32),
    ("map", u64), ("maps", u32), ("use_count", u32), ("acquired_count", u32), ("released_count", u32), ("agent", u32),
    ("told", u64), ("told_site", u32), ("clock", u32), ("noted", u32), ("store", ptr), ("replica", u32),
    ("uses", MapUse, MAP_USES),
    ("acquired", MapFence, MAP_FENCES), ("released", MapFence, MAP_FENCES),
    ("names", Named, NAMES), ("issues", Issue, ISSUES),
])  # fmt: skip


def proxies_of(cluster: Any) -> Any:
    """Macro: the records of a cluster's asynchronous operations."""
    return cast_ptr(Proxies, of_cluster(cluster).field("proxies"))


@native
def forget_proxies(cluster: ptr_to(Cluster)) -> None:
    """Reset the records for a new cluster."""
    p = proxies_of(cluster)
    fill_bytes(p.groups, 0, u64(p.group_count) * 4)
    fill_bytes(p.gathered, 0, u64(p.group_count) * (GATHERED * Gathered.size))
    for n in range(p.group_count * METS):
        (p.met + n).operation = 0
    fill_bytes(p.lanes, 0, u64(p.lane_count) * BulkLane.size)
    p.map = 0
    p.told = 0
    p.maps = 0
    p.use_count = 0
    p.acquired_count = 0
    p.released_count = 0
    if p.noted != 0:
        fill_bytes(cast_ptr(Named, p.names), 0, NAMES * Named.size)
        fill_bytes(cast_ptr(Issue, p.issues), 0, ISSUES * Issue.size)
        p.noted = 0


@native
def warp_of(cluster: ptr_to(Cluster), cta: u32, warp: u32) -> ptr_to(Warp):
    """The warp of a CTA, by the CTA's linear number in the grid; for another cluster's CTA the first warp of this cluster."""
    ctas = cast_ptr(Cta, cluster.ctas)
    for rank in range(cluster.cta_count):
        if (ctas + rank).linear == cta:
            return cast_ptr(Warp, (ctas + rank).warps) + warp
    return cast_ptr(Warp, cluster.warps)


@native(inline=True)
def group_number(w: ptr_to(Warp)) -> u32:
    """Number of a warp's warpgroup within the cluster."""
    return w.cta.rank * proxies_of(w.cta.cluster).group_stride + (w.index >> 2)


@native
def group_agent(w: ptr_to(Warp)) -> u32:
    """The agent of a warp's warpgroup."""
    p = proxies_of(w.cta.cluster)
    at = group_number(w)
    if p.groups[at] == 0:
        p.groups[at] = new_agent(w.cta.cluster) + 1
    return p.groups[at] - 1


@native
def bulk_lane(w: ptr_to(Warp), lane: u32) -> ptr_to(BulkLane):
    """The bulk groups of a thread and their agents."""
    cluster = w.cta.cluster
    l = proxies_of(cluster).lanes + (warp_number(w) * 32 + lane)
    if l.reads == 0:
        l.reads = new_agent(cluster) + 1
        l.writes = new_agent(cluster) + 1
    return l


@native(inline=True)
def slot_of_issue(cluster: ptr_to(Cluster), agent: u32, clock: u32, site: u32) -> ptr_to(Issue):
    """The slot of a hash table for an issue."""
    return cast_ptr(Issue, proxies_of(cluster).issues) + issue_slot(agent, clock, site)


@native(inline=True)
def is_issue(slot: ptr_to(Issue), agent: u32, clock: u32, site: u32) -> boolean:
    """Whether a slot holds this issue."""
    return slot.agent == agent + 1 and slot.clock == clock and slot.site == site


@native
def note_issue(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32, site: u32, part: u32) -> None:
    """Record that a lane issues an operation that ends at an agent's clock, or that its warp issues a part of a wgmma. Later
    actions of the warp have a later clock.

    w, lane, site: the issuing lane and instruction.
    agent, clock: agent and clock of the operation's end.
    part: number of the warp's part of a wgmma; 0 for other operations.
    """
    cluster = w.cta.cluster
    proxies_of(cluster).noted = 1
    slot = slot_of_issue(cluster, agent, clock, site)
    if not is_issue(slot, agent, clock, site):
        slot.agent = agent + 1
        slot.clock = clock
        slot.site = site
        slot.issuer = agent_of(w, lane) - part * 32
        for i in unrolled(4):
            slot.since[i] = 0
    k = knower_of(orders_of(cluster), w)
    k.clock = k.clock + 1
    slot.since[part] = k.clock


@native(inline=True)
def issue_slot(agent: u32, clock: u32, site: u32) -> u32:
    return (((agent * 0x9E3779B1) ^ (clock * 0x85EBCA6B) ^ (site * 0xC2B2AE35)) >> 16) & (ISSUES - 1)


@native
def name_of(cluster: ptr_to(Cluster), agent: u32) -> ptr_to(Named):
    """The entry of an mbarrier by its agent (stored + 1), if it is known."""
    return cast_ptr(Named, proxies_of(cluster).names) + (agent & (NAMES - 1))


@native
def note_fence(
    cluster: ptr_to(Cluster), fences: ptr_to(MapFence), count: u32, map: u64, agent: u32, lanes: u32, clock: u32, view: u32
) -> u32:
    """Record a fence of tensor maps in place of the last one of this map by this warp, or of the oldest; its view is held.
    Returns the number of fences so far.

    cluster: the cluster.
    fences, count: the records and their number.
    map: address of the map; 0 for all maps.
    agent, lanes: first agent and lanes of the warp.
    clock, view: clock and view of the fence.
    """
    place = count & (MAP_FENCES - 1)
    total = count + 1
    if map != 0:
        for n in range(u32(MAP_FENCES)):
            if n < count and (fences + n).map == map and (fences + n).agent == agent:
                place = n
                total = count
    f = fences + place
    if place < count:
        drop_view(cluster, f.view)
    f.map = map
    f.agent = agent
    f.lanes = lanes
    f.clock = clock
    f.view = view
    return total


# tensor maps ----------------------------------------------------------------------------------------------------------
MAP_BYTES = 128
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
        p.released_count = note_fence(cluster, cast_ptr(MapFence, p.released), p.released_count, 0, first, mask, clock, knew)
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
    entry = find_against(w, MAP_FENCE_MISSING, site, lanes, p.map, MAP_BYTES, record.site + 1, record.cta, record.warp, others)
    say(entry, u64(missing), 0, 0, 0)


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
                    find_against(w, MAP_IN_FLIGHT, site, lanes, u.map, MAP_BYTES, u.site + 1, u.cta, u.warp, u.lanes)
