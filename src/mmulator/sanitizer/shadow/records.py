"""Records of accesses to memory: the cells of the shadow (shadow.py) name them by number.

An access is an entry: a record's number, and a lane (ENTRY bits). A record is made once for each warp, instruction and clock,
so that a loop without synchronisation makes no further one. There are two stores of records, one of a resident cluster for its
shared memory, one of the launch for global memory; a store also has the nodes of the lists of readers.
"""

from enum import IntEnum
from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import atomic_rmw, cast_ptr, fill_bytes, keep_order, select
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.runtime.native.hooks.events import Access
from mmulator.runtime.native.state import Cluster, Warp
from mmulator.sanitizer.state import Doubt, doubt, of_cluster, of_launch


class AccessKind(IntEnum):
    """The originator of an access: a thread (generic), or an asynchronous operation."""

    GENERIC = 0
    COPY = 1  # cp.async, which is asynchronous and generic
    BULK = 2  # from here on through the asynchronous proxy
    TENSOR = 3
    WGMMA = 4
    STORE = 5  # st.async, red.async
    MAP = 6  # a copy uses a tensor map
    MMA = 7  # tcgen05.mma or tcgen05.cp


# Flags of a record: Access.READ, WRITE and ATOMIC, then these.
READ, WRITE, ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
STRONG = 8
SCOPE_SHIFT, SCOPE_MASK = 4, 7  # scope of a strong access: runtime/native/hooks/events.py, SCOPES
MANY = 1 << 7  # several lanes access the same bytes with one instruction
PER_LANE = 1 << 8  # the agent is that of lane 0; lane l has agent + l
STEADY = 1 << 9  # a read of memory that must not change while the kernel runs
BEYOND = 1 << 10  # memory of another block, or global memory
WHOLE = 1 << 11  # an instruction of the whole warp, whose parts may overlap
KIND_SHIFT, KIND_MASK = 12, 15
PATTERN_SHIFT, PATTERN_MASK = 16, 7  # swizzle of a tensor copy to shared memory (checks/proxy_operands.py)
SIZE_SHIFT, SIZE_MASK = 19, 7  # of a strong access: log2 of the bytes of an element
UNASKED = 1 << 22  # an atomic operation whose place among others shows nowhere (SUM of runtime/native/hooks/events.py)
PROXY_FROM = int(AccessKind.BULK)

LANE_BITS = 5
LANE_MASK = (1 << LANE_BITS) - 1
LIST = 1 << 31  # set if the readers of a cell are a node and a lane; otherwise they are an entry
LIST_KEY = LIST >> LANE_BITS  # LIST, after the lane is shifted out
CROWD = 8  # writes of one value by several blocks that a cell remembers; a node of record 0 stands for others, and for readers
PAST, MIXED = 64, 0xFFFFFFFF  # what a write may make cells forget, at most, and more than that
MOST = 1 << 26  # records, nodes: a number and a lane have 31 bits

# An access of a warp's instruction.
# agent, clock: of sanitizer/order/clocks.py.
# cluster, cta, warp: number of the cluster in the grid, linear number of the CTA in the grid, warp of the CTA.
# lanes: for MANY the lanes that access the same bytes, relative to the first, which is the entry's lane.
# all: all lanes of the instruction.
# since: for a cp.async the warp's clock at its issue; for a write to global memory 1 + the site at which its thread had read
#     the bytes, or 0; for an asynchronous write its number, and below that its lane (LANE_BITS), so that each has a record.
# over: for a write, where a launch is certified, what it made the cells forget: 0 for nothing, a node of a list of writes and
#     readers without their lanes, or MIXED. over_last, over_readers: the newest of them.
# cut, passed: of an atomic operation, where a launch is certified: the list of those before it had no room for all; a store came
#     after it, so that later atomic operations may not have seen it.
Record = Struct("Record", [
    ("agent", u32), ("clock", u32), ("cluster", u32), ("site", u32), ("flags", u32), ("lanes", u32), ("cta", u32), ("warp", u32),
    ("all", u32), ("since", u32), ("cut", u32), ("passed", u32), ("over", u32), ("over_last", u32), ("over_readers", u32),
])  # fmt: skip
# A node of a list of readers, which many cells share: a record and a lane, relative to the lane in the cell; and the next node,
# or 0. Lists are immutable.
Node = Struct("Node", [("entry", u32), ("next", u32)])

MEMO = 1024  # recent records, found by their content: numbers, and above them hashes of the contents
# A cached addition to a list of readers: list and entry (relative), the resulting list or record, and the shift of its lane.
Join = Struct("Join", [("list", u32), ("entry", u32), ("made", u32), ("shift", u32)])
JOINS = 1024
# A store of records and nodes, from 1 on; those from `next` to `end` are free.
# foreign: whether it is for global memory, which other clusters access too.
# most: greatest number of readers that are kept.
# met: whether accesses have met (meet).
# renewed: number of times that all records became free again.
Store = Struct("Store", [
    ("records", ptr_to(Record)), ("nodes", ptr_to(Node)), ("memo", ptr_to(u64)), ("joins", ptr_to(Join)),
    ("next", u32), ("end", u32), ("node_next", u32), ("node_end", u32),
    ("foreign", u32), ("most", u32), ("met", u32), ("renewed", u64),
])  # fmt: skip

VERDICTS = 64  # of a warp
# A cached result: the lanes of a record (key: its number and store) whose accesses happen before those of all `observers`.
# asked: the warp's clock then.
Verdict = Struct("Verdict", [("key", u32), ("observers", u32), ("lanes", u32), ("asked", u32)])

PATTERNS = 1024  # at most
# A cached result for an instruction (site + 1): which of its lanes had the same address.
# far: distance of each address from that of the first lane, in bytes.
# leaders: the lowest lane of each address.
# lanes: the lanes of one address, relative to its leader; 0 if they differ between addresses.
# row: bytes from the first lane's to the end of the last one's, if lane after lane has the next ones; otherwise 0.
# shapes: for each leader `lanes` of its address.
Pattern = Struct("Pattern", [
    ("site", u32), ("mask", u32), ("bytes", u32), ("leaders", u32), ("lanes", u32), ("row", u32), ("far", u32, 32),
    ("shapes", u32, 32),
])  # fmt: skip

# The shadow of a piece of global memory. base: address of its first sheet. quiet: nobody has written there, and by its text the
# kernel will not, so reads are not recorded.
Area = Struct("Area", [
    ("base", u64), ("start", u64), ("size", u64), ("cells", ptr_to(u64)), ("sheets", ptr_to(u32)), ("quiet", u64),
])  # fmt: skip

# The shadow of a launch's global memory: areas by slot, then by address.
# taken, nodes_taken: records and nodes that clusters have taken.
# operands, flags, sums, unread: numbers of each site (sanitizer/diagnostics/findings/shadows.py).
LaunchRaces = Struct("LaunchRaces", [
    ("areas", ptr_to(Area)), ("slots", u64), ("regions", ptr_to(Area)), ("region_count", u64),
    ("taken", u32), ("room", u32), ("nodes_taken", u32), ("node_room", u32),
    ("records", ptr_to(Record)), ("nodes", ptr_to(Node)), ("operands", ptr_to(u32)),
    ("flags", ptr_to(u32)), ("sums", ptr_to(u32)), ("unread", ptr_to(u32)),
])  # fmt: skip

# What a load of a warp has read (ptx/program/undefined.py). unread, raced: lanes of which no instruction has read it since; those
# of them for which another thread may have written it. site: the load's.
Loaded = Struct("LoadedValue", [("unread", u32), ("raced", u32), ("site", u32)])
DOUBTS = 64
# A write that is a race if it changes the bytes.
PendingWrite = Struct("PendingWrite", [
    ("w", ptr_to(Warp)), ("lane", u32), ("bytes", u32), ("rule", u32), ("site", u32), ("lanes", u32), ("at", u64),
    ("other_site", u32), ("other_cta", u32), ("other_warp", u32), ("other_lanes", u32), ("over", u32), ("word", u64),
    ("before", u64, 2), ("from_", u64), ("part", u32),
])  # fmt: skip

# The shadow of a resident cluster. stride: sheets of a CTA. pattern_mask: number of patterns - 1. order: semantics and scope of
# the current access (runtime/native/hooks/events.py). loaded, loads: `loads` entries for each warp.
Races = Struct("Races", [
    ("shared", Store), ("global_", Store), ("launch", ptr_to(LaunchRaces)),
    ("cells", ptr_to(u64)), ("sheets", ptr_to(u32)), ("stride", u32), ("sheet_count", u32),
    ("verdicts", ptr_to(Verdict)), ("patterns", ptr_to(Pattern)), ("pattern_mask", u32), ("order", u32), ("doubt_count", u32),
    ("hints", u32, 32), ("doubts", PendingWrite, DOUBTS),
    ("loaded", ptr_to(Loaded)), ("loads", u32),
])  # fmt: skip

# The current access.
# lane: the lane whose view decides. mask: lanes of the instruction. lanes: lanes that access these bytes, the first of which is
#     `lane`; shape: `lanes` relative to it.
# flags, agent, clock: of its record. record, entry: numbers; 0 if there was no room.
# asynchronous: whether it is an operation that the lanes of `issuers` issue together.
# plain: whether it writes now, possibly the value that is already there. again: whether the bytes were written before.
# read_site: for a write to global memory, as `since` of its record.
# seen, seen_known, seen_fenced: for asynchronous ones, the last checked record, and which of its lanes are ordered before (with
#     a proxy fence between).
# told: record of the last reported conflict. fine: a record without conflict. reread: whether written bytes were read since.
#     noted: last record that was noted.
# pattern: the swizzle with which it reads a tile, or 0. alike: whether a part had this swizzle. unlike, unlike_pattern,
#     unlike_at: a record with another swizzle, and its place. rows: of a product, as `rows_between`.
# kept: whether the last write stays beside the actor's, which nothing orders and which may have its value. past: whether that
#     write has overwritten what may come after the actor.
Actor = Struct("Actor", [
    ("w", ptr_to(Warp)), ("races", ptr_to(Races)), ("store", ptr_to(Store)), ("cluster", ptr_to(Cluster)),
    ("lane", u32), ("lanes", u32), ("site", u32), ("flags", u32), ("agent", u32), ("clock", u32),
    ("asynchronous", u32), ("issuers", u32), ("record", u32), ("entry", u32), ("plain", u32), ("again", u32),
    ("mask", u32), ("shape", u32), ("read_site", u32), ("seen", u32), ("seen_known", u32),
    ("seen_fenced", u32), ("told", u32), ("fine", u32), ("reread", u32), ("noted", u32),
    ("pattern", u32), ("alike", u32), ("unlike", u32), ("unlike_pattern", u32), ("unlike_at", u64),
    ("at", u64), ("bytes", u64), ("met", ptr), ("rows", u32), ("kept", u32), ("past", u32),
    ("run", ptr_to(u64)), ("run_at", u64), ("run_cells", u32), ("granule", u32),
])  # fmt: skip

MET = 48
# Writes whose bytes an asynchronous actor accesses (Actor.met, or null): records, their lanes and first addresses; at most MET.
# operation, site, renewed: the operation, and `renewed` of the store at that time.
# parts: number of warps that have read their part of A. alike, unlike, ...: as in Actor, for all of them.
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
    """Macro: the Kind in the flags of a record."""
    return (flags >> KIND_SHIFT) & KIND_MASK


CHUNK, NODE_CHUNK = 1024, 4096  # records and nodes of the launch that a cluster takes at once


@native
def more_records(s: ptr_to(Races), store: ptr_to(Store)) -> boolean:
    """Whether a store has free records again."""
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
    fill_bytes(store.records + store.next, 0, u64(CHUNK) * Record.size)  # those without a clock are none
    return True


def _taken(launch: Any) -> Any:
    return launch.field_address("taken")


def _nodes_taken(launch: Any) -> Any:
    return launch.field_address("nodes_taken")


@native
def forget_one(cluster: ptr_to(Cluster)) -> None:
    """Count an access that could not be recorded; a note tells the user that races with it are not found."""
    launch = of_launch(cluster)
    launch.forgotten = launch.forgotten + 1


@native
def forget_reader(a: ptr_to(Actor)) -> None:
    """Note that a list of readers lacks one. Of atomic operations that matters only to who comes later (before.py)."""
    if (a.flags & ATOMIC) != 0 and a.record != 0:
        (a.store.records + a.record).cut = 1
        return
    doubt(a.w, Doubt.MANY_READERS, a.site, a.lanes, 0, 0, 0, 0, 0, 0)


@native(inline=True)
def may_meet(a: ptr_to(Actor)) -> boolean:
    """Whether it need not be noted that accesses meet as below."""
    return (of_launch(a.cluster).certifies == 0) | (a.store.met != 0)


@native
def meet(a: ptr_to(Actor), r: ptr_to(Record)) -> None:
    """Note, once for a store, that nothing orders an access and the actor, and that they are no race since both are strong."""
    if a.store.met == 0:
        a.store.met = 1
        doubt(a.w, Doubt.MET, a.site, a.lanes, u64(a.store.foreign), 0, r.site + 1, r.cta, r.warp, r.all)


@native
def record_of(a: ptr_to(Actor), lanes: u32, since: u32) -> u32:
    """The record of an actor, known or new; 0 if the store is full."""
    store = a.store
    agent = a.agent
    clock = a.clock
    site = a.site
    flags = a.flags
    cluster = u32(a.cluster.number)
    spread = (agent * 0x9E3779B1) ^ (site * 0x85EBCA6B) ^ (lanes * 0xC2B2AE35) ^ (flags * 0x27D4EB2F) ^ (clock * 0x165667B1)
    slot = store.memo + ((spread >> 16) & (MEMO - 1))
    number = u32(slot[0])
    if number != 0 and u32(slot[0] >> 32) == spread:
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
    new.over = 0
    new.over_last = 0
    new.over_readers = 0
    new.cut = 0
    new.passed = 0
    keep_order("release")
    slot[0] = u64(number) | (u64(spread) << 32)
    return number


@native
def new_node(s: ptr_to(Races), store: ptr_to(Store), item: u32, next: u32) -> u32:
    """A new node in front of a list; 0 if the store is full."""
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
    keep_order("release")
    return number


@native
def forget_past(a: ptr_to(Actor), number: u32, last: u32, readers: u32) -> None:
    """Note in a write's record what it makes a cell forget. last, readers: of the cell."""
    r = a.store.records + number
    if r.over == MIXED or (r.over_last == last >> LANE_BITS and r.over_readers == readers >> LANE_BITS):
        return
    r.over_last = last >> LANE_BITS
    r.over_readers = readers >> LANE_BITS
    forget_key(a, r, r.over_last)
    forget_key(a, r, r.over_readers)


@native
def forget_key(a: ptr_to(Actor), r: ptr_to(Record), key: u32) -> None:
    """Add an access, or a list of readers, to what a write has made cells forget. key: its entry without the lane, or 0."""
    count = u32(0)
    left = r.over
    if key == 0 or left == MIXED:
        return
    while left != 0:
        node = a.store.nodes + left
        if node.entry == key:
            return
        count = count + 1
        left = node.next
    made = u32(0)
    if count < PAST:
        made = new_node(a.races, a.store, key, r.over)
    r.over = select(made != 0, made, u32(MIXED))


@native
def forget_shared(s: ptr_to(Races), cluster: ptr_to(Cluster)) -> None:
    """Forget all accesses to shared memory, and free all records and nodes."""
    store = cast_ptr(Store, s)
    fill_bytes(s.sheets, 0, u64(s.sheet_count) * 4)
    fill_bytes(store.memo, 0, MEMO * 8)
    fill_bytes(store.joins, 0, JOINS * Join.size)
    fill_bytes(s.verdicts, 0, u64(cluster.warp_count) * (VERDICTS * Verdict.size))
    store.next = 1
    store.node_next = 1
    store.renewed = store.renewed + 1


NEAR = 4096  # records and nodes that stay in the processor's caches


@native
def begin_races(cluster: ptr_to(Cluster)) -> None:
    """Reset the shadow of shared memory for a new cluster."""
    s = races_of(cluster)
    launch = launch_races(cluster)
    store = cast_ptr(Store, s)
    fill_bytes(s.sheets, 0, u64(s.sheet_count) * 4)
    if store.next > NEAR or store.node_next > NEAR:
        forget_shared(s, cluster)  # while there is nothing to lose
    fill_bytes(s.verdicts, 0, u64(cluster.warp_count) * (VERDICTS * Verdict.size))  # of what the cluster before knew
    s.order = 0
    s.doubt_count = 0
    store.met = 0
    s.global_.met = 0
    s.launch = launch
    s.global_.records = launch.records
    s.global_.nodes = launch.nodes


SPARE = 1024  # nodes that one instruction may take


@native(inline=True)
def enough(s: ptr_to(Races), w: ptr_to(Warp)) -> None:
    """Before an access to shared memory, ensure that there is room; if there is none, everything is forgotten."""
    store = cast_ptr(Store, s)
    if store.next + 64 > store.end or store.node_next + SPARE > store.node_end:
        forget_shared(s, w.cta.cluster)
        forget_one(w.cta.cluster)
