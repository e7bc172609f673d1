"""Who accessed memory, and when: records that the cells of the shadow (shadow.py) name by their numbers.

An access is an entry: a record's number, and a lane (ENTRY bits). A record is made once for each warp, instruction and clock, so
that a loop without synchronisation makes no further one. Memory has two stores of them, one of a resident cluster for its shared
memory, one of the launch for global memory; a store also has the nodes of the lists of readers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import atomic_rmw, cast_ptr, fill_bytes
from mmulator.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.native.hooks.events import Access
from mmulator.native.state import Cluster, Warp
from mmulator.sanitizer.found import of_cluster, of_launch


class AccessKind(IntEnum):
    """By what an access is made: a generic one by a thread, or by something asynchronous."""

    GENERIC = 0
    COPY = 1  # cp.async, which is asynchronous and generic
    BULK = 2  # from here on through the asynchronous proxy
    TENSOR = 3
    WGMMA = 4
    STORE = 5  # st.async, red.async
    MAP = 6  # a copy uses a tensor map


# Flags of a record: Access.READ, WRITE and ATOMIC, then these.
READ, WRITE, ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
STRONG = 8
SCOPE_SHIFT, SCOPE_MASK = 4, 7  # of what is strong: native/hooks/events.py, SCOPES
MANY = 1 << 7  # several lanes access the same bytes with one instruction
PER_LANE = 1 << 8  # the agent is that of lane 0; lane l's is l more
STEADY = 1 << 9  # a read of what nobody may write while the kernel runs
KIND_SHIFT, KIND_MASK = 12, 15
PATTERN_SHIFT, PATTERN_MASK = 16, 7  # of a tensor copy that writes shared memory: its swizzle (swizzles.py)
PROXY_FROM = int(AccessKind.BULK)

LANE_BITS = 5
LANE_MASK = (1 << LANE_BITS) - 1
LIST = 1 << 31  # of what a cell says of its readers: a node and a lane; else an entry
LIST_KEY = LIST >> LANE_BITS  # the same, of what is left without the lane
MOST = 1 << 26  # records, nodes: the number of one and a lane are 31 bits

# agent, clock: of sanitizer/order/clocks.py. cluster: its number in the grid. lanes: of MANY those that access the same bytes, as
# if the first were lane 0, which the entry's is. all: of the instruction. since: of a cp.async, the warp's clock at its issue; of
# a write to global memory, 1 + the site at which its thread had read the bytes, or 0. cta: linear number in the grid; warp: of
# the CTA.
Record = Struct("Record", [
    ("agent", u32), ("clock", u32), ("cluster", u32), ("site", u32), ("flags", u32), ("lanes", u32), ("cta", u32), ("warp", u32),
    ("all", u32), ("since", u32),
])  # fmt: skip
# Of a list of readers, which many cells have alike: a record and a lane, relative to the lane that the cell says; the node
# behind, 0 for none. Lists do not change.
Node = Struct("Node", [("entry", u32), ("next", u32)])

MEMO = 1024  # records that are found again by what they say
# A list and an entry that joins it (relative), and what that makes: a list or record, and how much further its lane is.
Join = Struct("Join", [("list", u32), ("entry", u32), ("made", u32), ("shift", u32)])
JOINS = 1024
# Records and nodes, from 1 on: those from `next` to `end` are free. foreign: of global memory, which other clusters access, too.
# most: readers that are kept. renewed: how often all were free again.
Store = Struct("Store", [
    ("records", ptr_to(Record)), ("nodes", ptr_to(Node)), ("memo", ptr_to(u32)), ("joins", ptr_to(Join)),
    ("next", u32), ("end", u32), ("node_next", u32), ("node_end", u32),
    ("foreign", u32), ("most", u32), ("renewed", u64),
])  # fmt: skip

VERDICTS = 64  # of a warp
# Which lanes of a record (key: its number, and which store) are known to all `observers` of the warp. asked: the warp's clock
# then.
Verdict = Struct("Verdict", [("key", u32), ("observers", u32), ("lanes", u32), ("asked", u32)])

PATTERNS = 64
# Which lanes of an instruction (site + 1) had the same address last: `far` in bytes from that of the first lane. leaders: the
# lowest lane of each address; lanes: those of one address, as if its leader were lane 0, or 0: not all alike. row: they lie one
# behind another.
Pattern = Struct("Pattern", [
    ("site", u32), ("mask", u32), ("bytes", u32), ("leaders", u32), ("lanes", u32), ("row", u32), ("far", u32, 32),
])  # fmt: skip

# A piece of global memory: its shadow. base: of its first sheet.
Area = Struct("Area", [("base", u64), ("start", u64), ("size", u64), ("cells", ptr_to(u64)), ("sheets", ptr_to(u32))])

# Of the launch: areas by slots, then by address. taken: records and nodes that clusters have. operands: of each site, a number
# for the address operand, the same where the text is, and whether a compiler's copies may be accessed there; steady: STEADY where
# an instruction reads so (shadows.py); sums: of a store, in which bits lanes may differ that store one sum.
LaunchRaces = Struct("LaunchRaces", [
    ("areas", ptr_to(Area)), ("slots", u64), ("regions", ptr_to(Area)), ("region_count", u64),
    ("taken", u32), ("room", u32), ("nodes_taken", u32), ("node_room", u32),
    ("records", ptr_to(Record)), ("nodes", ptr_to(Node)), ("operands", ptr_to(u32)),
    ("steady", ptr_to(u32)), ("sums", ptr_to(u32)),
])  # fmt: skip

DOUBTS = 64
# A write that races, if it changes the bytes.
PendingWrite = Struct("PendingWrite", [
    ("w", ptr_to(Warp)), ("lane", u32), ("bytes", u32), ("rule", u32), ("site", u32), ("lanes", u32), ("at", u64),
    ("other_site", u32), ("other_cta", u32), ("other_warp", u32), ("other_lanes", u32), ("word", u64), ("before", u64, 2),
])  # fmt: skip

# Of a resident cluster. stride: sheets of a CTA. order: semantics and scope of the access under way (native/hooks/events.py).
Races = Struct("Races", [
    ("shared", Store), ("global_", Store), ("launch", ptr_to(LaunchRaces)),
    ("cells", ptr_to(u64)), ("sheets", ptr_to(u32)), ("stride", u32), ("sheet_count", u32),
    ("verdicts", ptr_to(Verdict)), ("patterns", ptr_to(Pattern)), ("order", u32), ("doubt_count", u32),
    ("hints", u32, 32), ("doubts", PendingWrite, DOUBTS),
])  # fmt: skip

# Who accesses memory now. lane: whose knowledge counts. flags, agent, clock: of its record. asynchronous: it is an operation that
# the lanes of `issuers` issue together. record, entry: 0 if there was no room. plain: it writes now, perhaps what is there
# already. again: the bytes that it meets were written before. read_site: of a write to global memory, as `since` of its record.
# mask: lanes of the instruction; lanes: of them those that access these bytes, whose first is `lane`; shape: the same as if that
# were lane 0. seen: of asynchronous ones, the record that was asked for last, and which of its lanes are known (with a proxy
# fence between); told: the record that a conflict was found with last; fine: one that need not be looked at; reread: what was
# written was read since; noted: the record of which a note was made last. pattern: how the actor takes a tile to be swizzled, or
# 0; alike: it has met what was brought so; unlike: a record that brought it otherwise, how, and where.
Actor = Struct("Actor", [
    ("w", ptr_to(Warp)), ("races", ptr_to(Races)), ("store", ptr_to(Store)), ("cluster", ptr_to(Cluster)),
    ("lane", u32), ("lanes", u32), ("site", u32), ("flags", u32), ("agent", u32), ("clock", u32),
    ("asynchronous", u32), ("issuers", u32), ("record", u32), ("entry", u32), ("plain", u32), ("again", u32),
    ("mask", u32), ("shape", u32), ("read_site", u32), ("seen", u32), ("seen_known", u32),
    ("seen_fenced", u32), ("told", u32), ("fine", u32), ("reread", u32), ("noted", u32),
    ("pattern", u32), ("alike", u32), ("unlike", u32), ("unlike_pattern", u32), ("unlike_at", u64),
    ("at", u64), ("bytes", u64), ("met", ptr),
])  # fmt: skip

MET = 48
# The writes that an asynchronous actor has met (Actor.met, or null): records, which lanes, and where first; of more than MET not
# all. operation, site, renewed: whose they are, and how often the store had been renewed by then. parts: warps that have read
# their part of A; alike, unlike, ...: as of an Actor, of all of them.
Met = Struct("Met", [
    ("operation", u64), ("renewed", u64), ("site", u32), ("count", u32), ("records", u32, MET), ("lanes", u32, MET),
    ("at", u64, MET),
    ("parts", u32), ("alike", u32), ("unlike", u32), ("unlike_pattern", u32), ("unlike_at", u64),
])  # fmt: skip


def races_of(cluster: Any) -> Any:
    """Macro: the shadow of a cluster, or null."""
    return cast_ptr(Races, of_cluster(cluster).field("races"))


def launch_races(cluster: Any) -> Any:
    """Macro: the shadow of the launch's global memory."""
    return cast_ptr(LaunchRaces, of_launch(cluster).field("races"))


def kind_of(flags: Any) -> Any:
    """Macro: the AccessKind."""
    return (flags >> KIND_SHIFT) & KIND_MASK


CHUNK, NODE_CHUNK = 1024, 4096  # of the launch's, that a cluster takes at once


@native
def more_records(s: ptr_to(Races), store: ptr_to(Store)) -> boolean:
    """Whether a store has records again."""
    if store.foreign == 0:
        return False
    launch = s.launch
    if launch.taken >= launch.room:
        return False
    first = atomic_rmw("add", _taken(launch), u32(CHUNK))
    if first + CHUNK > launch.room:
        return False
    store.next = first + 1
    store.end = first + 1 + CHUNK
    return True


def _taken(launch: Any) -> Any:
    return launch.field_address("taken")


def _nodes_taken(launch: Any) -> Any:
    return launch.field_address("nodes_taken")


@native
def forget_one(cluster: ptr_to(Cluster)) -> None:
    """There was no room to remember something: what it races with later is not found, which a note says."""
    launch = of_launch(cluster)
    launch.forgotten = launch.forgotten + 1


@native
def record_of(a: ptr_to(Actor), lanes: u32, since: u32) -> u32:
    """The record of an actor, known or new; 0 if there is no room."""
    store = a.store
    agent = a.agent
    clock = a.clock
    site = a.site
    flags = a.flags
    cluster = u32(a.cluster.number)
    spread = (agent * 0x9E3779B1) ^ (site * 0x85EBCA6B) ^ (lanes * 0xC2B2AE35) ^ (flags * 0x27D4EB2F) ^ (clock * 0x165667B1)
    slot = store.memo + ((spread >> 16) & (MEMO - 1))
    number = slot[0]
    if number != 0:
        r = store.records + number
        if r.agent == agent and r.clock == clock and r.site == site and r.flags == flags and r.lanes == lanes:
            if r.cluster == cluster and r.since == since:
                r.all = r.all | a.mask
                return number
    if store.next == store.end:
        if not more_records(a.races, store):
            forget_one(a.cluster)
            return 0
    number = store.next
    store.next = number + 1
    new = store.records + number
    new.agent = agent
    new.clock = clock
    new.cluster = cluster
    new.site = site
    new.flags = flags
    new.lanes = lanes
    new.cta = a.w.cta.linear
    new.warp = a.w.index
    new.all = a.mask
    new.since = since
    slot[0] = number
    return number


@native
def new_node(s: ptr_to(Races), store: ptr_to(Store), item: u32, next: u32) -> u32:
    """A node in front of a list; 0 if there is no room."""
    if store.node_next == store.node_end and store.foreign != 0:
        launch = s.launch
        if launch.nodes_taken < launch.node_room:
            first = atomic_rmw("add", _nodes_taken(launch), u32(NODE_CHUNK))
            if first + NODE_CHUNK <= launch.node_room:
                store.node_next = first + 1
                store.node_end = first + 1 + NODE_CHUNK
    if store.node_next == store.node_end:
        return 0
    number = store.node_next
    store.node_next = number + 1
    node = store.nodes + number
    node.entry = item
    node.next = next
    return number


@native
def forget_shared(s: ptr_to(Races), cluster: ptr_to(Cluster)) -> None:
    """Nothing is known of shared memory, and all records and nodes are free."""
    store = cast_ptr(Store, s)
    fill_bytes(s.sheets, 0, u64(s.sheet_count) * 4)
    fill_bytes(store.memo, 0, MEMO * 4)
    fill_bytes(store.joins, 0, JOINS * Join.size)
    fill_bytes(s.verdicts, 0, u64(cluster.warp_count) * (VERDICTS * Verdict.size))
    store.next = 1
    store.node_next = 1
    store.renewed = store.renewed + 1


@native
def begin_races(cluster: ptr_to(Cluster)) -> None:
    """A cluster begins: nobody has accessed its shared memory."""
    s = races_of(cluster)
    launch = launch_races(cluster)
    store = cast_ptr(Store, s)
    fill_bytes(s.sheets, 0, u64(s.sheet_count) * 4)
    if store.next * 2 > store.end or store.node_next * 2 > store.node_end:
        forget_shared(s, cluster)  # while there is nothing to lose
    s.order = 0
    s.doubt_count = 0
    s.launch = launch
    s.global_.records = launch.records
    s.global_.nodes = launch.nodes


SPARE = 1024  # nodes that one instruction may take


@native(inline=True)
def enough(s: ptr_to(Races), w: ptr_to(Warp)) -> None:
    """Before an access to shared memory: there is room, or all is forgotten."""
    store = cast_ptr(Store, s)
    if store.next + 64 > store.end or store.node_next + SPARE > store.node_end:
        forget_shared(s, w.cta.cluster)
        forget_one(w.cta.cluster)
