"""Happens-before between clusters: through locations of global memory, in scope of the GPU or wider.

A *snapshot* is a copy of a view, in a pool for all clusters; a *row* has a snapshot of each cluster. A release to a location
makes a row there. A thread that acquires it becomes a *foreign agent*: an agent of its cluster with a row of its own, into
which the location's row is joined. A thread whose view includes this agent, by barriers and so on, is ordered after everything
in the row. So what a thread acquires after others may have heard of its agent, or in another way (relaxed, together with other
lanes), is another agent's. Where a launch is not certified and few agents are left, it is not: who synchronised with a first
acquisition, and not with a later one, counts as if it had with both.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import (
    address,
    atomic_rmw,
    cast_ptr,
    copy_bytes,
    fill_bytes,
    load,
    mask_bits,
    maximum,
    null,
    reduce_or,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.runtime.native.state import Cluster, Warp
from mmulator.sanitizer.order.clocks import learn_plane, new_agent, note_seen, note_write
from mmulator.sanitizer.order.views import (
    ALL,
    FIRST,
    NO_AGENT,
    NOTHING,
    SPARE_AGENTS,
    U32,
    Orders,
    StrongWrite,
    drop_id,
    entries_of,
    join_lanes,
    knower_of,
    orders_of,
    take_view,
)
from mmulator.sanitizer.state import SanitizedLaunch, of_launch

# A location of global memory, by its generic address (0: free entry). version: number of releases to it.
# write: the last strong write of a release.
Place = Struct("Place", [("at", u64), ("row", u32), ("version", u32), ("write", StrongWrite)])
PLACES = 1 << 14
_FULL = PLACES * 3 // 4
_SPREAD = 0x9E3779B97F4A7C15

# The happens-before record of a launch.
# clusters: clusters of the grid. stride: entries of a snapshot.
# capacity, fresh, free: number of snapshots (counted); those from `fresh` on were never used; list of free ones. Rows likewise.
World = Struct("World", [
    ("lock", u32), ("clusters", u32), ("stride", u32), ("place_count", u32),
    ("capacity", u32), ("fresh", u32), ("free_count", u32), ("row_capacity", u32), ("row_fresh", u32), ("row_free_count", u32),
    ("free", ptr_to(u32)), ("counts", ptr_to(u32)), ("snapshots", ptr_to(u32)),
    ("row_free", ptr_to(u32)), ("rows", ptr_to(u32)), ("places", ptr_to(Place)),
])  # fmt: skip

# An agent of a cluster that has acquired releases of other clusters. place, version: its last acquisition. lanes, plane, since:
# which lanes acquired, in which plane, and the clock of their warp (0: none yet).
ForeignAgent = Struct("ForeignAgent", [
    ("agent", u32), ("row", u32), ("place", u64), ("version", u32), ("lanes", u32), ("plane", u32), ("since", u32),
])  # fmt: skip
RESERVE = SPARE_AGENTS // 2  # agents that are kept for mbarriers where the launch is not certified


def world_of(cluster: Any) -> Any:
    """Macro: the world of a launch, or null for a grid of one cluster."""
    return cast_ptr(World, of_launch(cluster).field("orders"))


@native(inline=True)
def has_world(cluster: ptr_to(Cluster)) -> u32:
    """1 if something was released to other clusters."""
    world = world_of(cluster)
    if u64(world) == 0:
        return 0
    return world.place_count


@native
def lock_world(world: ptr_to(World)) -> None:
    one = u32(1)
    while atomic_rmw("xchg", address(world.lock), one) != 0:
        pass


@native
def unlock_world(world: ptr_to(World)) -> None:
    zero = u32(0)
    atomic_rmw("xchg", address(world.lock), zero)


# snapshots and rows ---------------------------------------------------------------------------------------------------
def snapshot_at(world: Any, id: Any) -> Any:
    """Macro: the entries of a snapshot."""
    return world.field("snapshots") + u64(id) * u64(world.field("stride"))


def row_at(world: Any, id: Any) -> Any:
    """Macro: the snapshots of a row."""
    return world.field("rows") + u64(id) * u64(world.field("clusters"))


@native
def drop_snapshot(world: ptr_to(World), id: u32) -> None:
    if id >= FIRST:
        left = world.counts[id] - 1
        world.counts[id] = left
        if left == 0:
            world.free[world.free_count] = id
            world.free_count = world.free_count + 1


@native
def take_snapshot(launch: ptr_to(SanitizedLaunch), world: ptr_to(World)) -> u32:
    """A free snapshot, to be filled, or ALL."""
    id = u32(ALL)
    if world.free_count != 0:
        world.free_count = world.free_count - 1
        id = world.free[world.free_count]
    elif world.fresh < world.capacity:
        id = world.fresh
        world.fresh = id + 1
    else:
        launch.forgotten = launch.forgotten + 1
        return id
    world.counts[id] = 1
    return id


@native
def new_row(launch: ptr_to(SanitizedLaunch), world: ptr_to(World)) -> u32:
    """An empty row, or ALL."""
    if world.row_free_count != 0:
        world.row_free_count = world.row_free_count - 1
        return world.row_free[world.row_free_count]
    if world.row_fresh < world.row_capacity:
        world.row_fresh = world.row_fresh + 1
        return world.row_fresh - 1
    launch.forgotten = launch.forgotten + 1
    return ALL


@native
def drop_row(world: ptr_to(World), id: u32) -> None:
    if id >= FIRST:
        row = row_at(world, id)
        for i in range(world.clusters):
            drop_snapshot(world, row[i])
            row[i] = NOTHING
        world.row_free[world.row_free_count] = id
        world.row_free_count = world.row_free_count + 1


@native
def join_snapshot(launch: ptr_to(SanitizedLaunch), world: ptr_to(World), row: ptr_to(u32), at: u32, id: u32) -> None:
    """Join snapshot `id` into a cluster's snapshot of a row; the caller has held `id` for the row.

    launch, world: state of the launch.
    row: the row.
    at: number of the cluster.
    id: the snapshot.
    """
    old = row[at]
    if old == NOTHING or id == ALL:
        drop_snapshot(world, old)
        row[at] = id
        return
    if old == ALL:
        drop_snapshot(world, id)
        return
    one = snapshot_at(world, old)
    other = snapshot_at(world, id)
    less = U32(u32(0))
    more = U32(u32(0))
    for i in range(world.stride >> 5):
        n = i << 5
        x = load(U32, one, n)
        y = load(U32, other, n)
        top = maximum(x, y)
        less = less | (top ^ x)
        more = more | (top ^ y)
    if reduce_or(less) == 0:
        drop_snapshot(world, id)
        return
    made = id
    if reduce_or(more) != 0:
        made = take_snapshot(launch, world)
        if made != ALL:
            to = snapshot_at(world, made)
            for i in range(world.stride >> 5):
                n = i << 5
                store(maximum(load(U32, one, n), load(U32, other, n)), to, n)
        drop_snapshot(world, id)
    drop_snapshot(world, old)
    row[at] = made


@native
def join_rows(launch: ptr_to(SanitizedLaunch), world: ptr_to(World), into: u32, id: u32) -> u32:
    """Join a row into another; returns the changed row, or ALL."""
    if into == ALL or id == NOTHING or into == id:
        return into
    if id == ALL:
        drop_row(world, into)
        return id
    to = row_at(world, into)
    row = row_at(world, id)
    for i in range(world.clusters):
        one = row[i]
        if one != NOTHING and one != to[i]:
            if one >= FIRST:
                world.counts[one] = world.counts[one] + 1
            join_snapshot(launch, world, to, i, one)
    return into


# locations ------------------------------------------------------------------------------------------------------------
@native
def place_at(world: ptr_to(World), at: u64, make: boolean) -> ptr_to(Place):
    """The entry of an address; if there is none, a new one or null."""
    n = u32((at * _SPREAD) >> 50)
    for _ in range(u32(PLACES)):
        entry = world.places + n
        if entry.at == at:
            return entry
        if entry.at == 0:
            if not make or world.place_count >= _FULL:
                return cast_ptr(Place, null(u8))
            world.place_count = world.place_count + 1
            entry.at = at
            return entry
        n = (n + 1) & (PLACES - 1)
    return cast_ptr(Place, null(u8))


@native
def overwrite_world(cluster: ptr_to(Cluster), at: u64) -> None:
    """Handle a store to a location: earlier releases there can no longer be acquired."""
    world = world_of(cluster)
    if u64(world) == 0:
        return
    if world.place_count == 0:
        return
    lock_world(world)
    entry = place_at(world, at, False)
    if u64(entry) != 0:
        drop_row(world, entry.row)
        entry.row = NOTHING
        entry.version = entry.version + 1
        entry.write.clock = 0
    unlock_world(world)


@native
def tell_world(w: ptr_to(Warp), at: u64, id: u32, site: u32) -> None:
    """Release a view to an address, in scope of the GPU."""
    cluster = w.cta.cluster
    world = world_of(cluster)
    if u64(world) == 0:
        return
    launch = of_launch(cluster)
    o = orders_of(cluster)
    lock_world(world)
    entry = place_at(world, at, True)
    if u64(entry) == 0:
        launch.forgotten = launch.forgotten + 1
        unlock_world(world)
        return
    if entry.row == NOTHING:
        entry.row = new_row(launch, world)
    if id == ALL:
        drop_row(world, entry.row)
        entry.row = ALL
    if entry.row != ALL:
        made = take_snapshot(launch, world)
        if made != ALL:
            to = snapshot_at(world, made)
            copy_bytes(to, entries_of(o, id), u64(o.bound) * 4)
            fill_bytes(to + o.bound, 0, u64(o.stride - o.bound) * 4)
        join_snapshot(launch, world, row_at(world, entry.row), u32(cluster.number), made)
        strangers = cast_ptr(ForeignAgent, o.strangers)
        for i in range(o.stranger_count):
            s = strangers + i
            if entries_of(o, id)[s.agent] != 0:
                entry.row = join_rows(launch, world, entry.row, s.row)
    entry.version = entry.version + 1
    note_write(w, entry.write, u32(1), site)
    unlock_world(world)


@native
def says_no_more(world: ptr_to(World), row: u32, id: u32) -> boolean:
    """Whether row `id` has nothing that `row` has not."""
    if row == ALL or row == id:
        return True
    if row == NOTHING or id == ALL:
        return False
    for i in range(world.clusters):
        one = row_at(world, id)[i]
        if one != NOTHING and one != row_at(world, row)[i]:
            return False
    return True


@native
def stranger_of(w: ptr_to(Warp), lane: u32) -> ptr_to(ForeignAgent):
    """The newest foreign agent of a lane, known or new; null if there is no agent left."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    k = knower_of(o, w)
    strangers = cast_ptr(ForeignAgent, o.strangers)
    if k.stranger[lane] == 0:
        agent = new_agent(cluster)
        if agent == NO_AGENT:
            return cast_ptr(ForeignAgent, null(u8))
        s = strangers + o.stranger_count
        o.stranger_count = o.stranger_count + 1
        k.stranger[lane] = o.stranger_count
        s.agent = agent
        s.row = NOTHING
        s.place = 0
        s.since = 0
    return strangers + (k.stranger[lane] - 1)


@native
def know_own(o: ptr_to(Orders), world: ptr_to(World), lanes: ptr_to(u32), mask: u32, id: u32) -> None:
    """Join into lanes' views what other clusters have acquired from the lanes' own cluster."""
    made = take_view(o)
    if made != ALL:
        copy_bytes(entries_of(o, made), snapshot_at(world, id), u64(o.bound) * 4)
    join_lanes(o, lanes, mask, made)
    drop_id(o, made, 1)


@native
def hear_world(w: ptr_to(Warp), mask: u32, at: u64, plane: u32) -> None:
    """Let lanes acquire, in a plane, what other clusters released to an address."""
    cluster = w.cta.cluster
    world = world_of(cluster)
    if u64(world) == 0:
        return
    if world.place_count == 0:
        return
    launch = of_launch(cluster)
    o = orders_of(cluster)
    lanes = knower_of(o, w).now.views + plane * 32
    lock_world(world)
    entry = place_at(world, at, False)
    if u64(entry) == 0:
        if world.place_count >= _FULL:
            o.all_strangers = 1
    elif entry.row != NOTHING:
        note_seen(w, mask, at, entry.write)
        k = knower_of(o, w)
        first = trailing_zeros(mask)
        s = stranger_of(w, first)
        before = u32(NOTHING)
        if u64(s) != 0 and (launch.certifies != 0 or o.next_agent + RESERVE < o.stride):
            alike = s.lanes == mask and s.plane == plane
            if s.since != 0 and not (alike and (s.since == k.clock or says_no_more(world, s.row, entry.row))):
                if alike:
                    before = s.row
                k.stranger[first] = 0
                s = stranger_of(w, first)
        if u64(s) == 0:
            o.all_strangers = 1
        else:
            s.lanes = mask
            s.plane = plane
            if s.place != at or s.version != entry.version or s.row == NOTHING:
                s.place = at
                s.version = entry.version
                s.since = k.clock
                if s.row == NOTHING:
                    s.row = join_rows(launch, world, new_row(launch, world), before)
                s.row = join_rows(launch, world, s.row, entry.row)
                if entry.row >= FIRST:
                    own = row_at(world, entry.row)[cluster.number]
                    if own >= FIRST:
                        know_own(o, world, lanes, mask, own)
            learn_plane(o, lanes, mask, s.agent, 1)
    unlock_world(world)


@native
def forget_strangers(cluster: ptr_to(Cluster)) -> None:
    """Reset the foreign agents for a new cluster."""
    o = orders_of(cluster)
    o.all_strangers = 0
    if o.stranger_count == 0:
        return
    world = world_of(cluster)
    lock_world(world)
    strangers = cast_ptr(ForeignAgent, o.strangers)
    for i in range(o.stranger_count):
        drop_row(world, (strangers + i).row)
    o.stranger_count = 0
    unlock_world(world)


# what others ask ------------------------------------------------------------------------------------------------------
@native
def view_knows_foreign(cluster: ptr_to(Cluster), id: u32, number: u32, agent: u32, clock: u32) -> boolean:
    """Whether the action of another cluster's agent (by its number) at a clock happens before the point where a view
    was taken.
    """
    o = orders_of(cluster)
    world = world_of(cluster)
    if id == ALL or agent >= o.stride or o.all_strangers != 0 or u64(world) == 0:
        return True
    view = entries_of(o, id)
    strangers = cast_ptr(ForeignAgent, o.strangers)
    for i in range(o.stranger_count):
        s = strangers + i
        if view[s.agent] != 0 and s.row != NOTHING:
            if s.row == ALL:
                return True
            snapshot = row_at(world, s.row)[number]
            if snapshot == ALL:
                return True
            if snapshot_at(world, snapshot)[agent] >= clock and snapshot != NOTHING:
                return True
    return False


@native
def knows_foreign(w: ptr_to(Warp), lane: u32, number: u32, agent: u32, clock: u32) -> boolean:
    """Whether the action of another cluster's agent at a clock happens before a lane's next action."""
    cluster = w.cta.cluster
    return view_knows_foreign(cluster, knower_of(orders_of(cluster), w).now.views[lane], number, agent, clock)


@native
def issue_knows_foreign(w: ptr_to(Warp), lanes: u32, number: u32, agent: u32, others: u32, clock: u32, plane: u32) -> u32:
    """1 if an action in another cluster, by the first of `others` (lanes from an agent on), happens before the lanes' issue."""
    cluster = w.cta.cluster
    ids = load(U32, knower_of(orders_of(cluster), w).now.views, plane * 32)
    left = lanes
    while left != 0:
        id = ids[trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        if view_knows_foreign(cluster, id, number, agent + trailing_zeros(others), clock):
            return 1
    return 0


@native
def has_fenced(cluster: ptr_to(Cluster), number: u32) -> u32:
    """1 if a cluster has executed a fence.proxy.async for global memory, possibly after its writes."""
    fenced = cast_ptr(u8, of_launch(cluster).proxies)
    return u32(fenced[number])


@native
def note_fenced(cluster: ptr_to(Cluster)) -> None:
    fenced = cast_ptr(u8, of_launch(cluster).proxies)
    fenced[cluster.number] = 1
