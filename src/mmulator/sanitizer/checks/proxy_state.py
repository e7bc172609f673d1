"""The records of a cluster's asynchronous operations besides those in the shadow (records.py)."""

from typing import Any

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import cast_ptr, fill_bytes
from mmulator.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.native.asynchrony.accounts import warp_number
from mmulator.native.state import Cluster, Cta, Warp
from mmulator.sanitizer.found import of_cluster
from mmulator.sanitizer.order.clocks import agent_of, drop_view, new_agent
from mmulator.sanitizer.order.views import Collector, knower_of, orders_of
from mmulator.sanitizer.shadow.records import Met

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
