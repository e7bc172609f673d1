"""Bulk operations: issued by a lane and carried out later, at unspecified times and in unspecified order, possibly in parts.

A cluster has one table of them (state.py, Transfer). A transfer is done in units (rows, or whatever its kind counts), by the
kind's function among the cluster's movers. The seed decides whether it is done at once, in part, or not at all; under seed 0,
what completes an mbarrier is not done at once, since other warps of a chip run meanwhile. The rest is done when its lane waits
for its bulk group, when the table is full, when no lane of the cluster can continue otherwise, after some turns, or when the
cluster ends. A transfer that completes an mbarrier does so part by part. A store reads shared memory as late as it may: when it
is carried out, or when its lane waits until it was read; its bytes may then wait elsewhere until they are
written. To issue:

    t = new_transfer(w, lane, TransferKind..., site)
    fill t.units, source, source_bytes, target, payload; t.completes = GROUP, or heard_at(t, barrier, ranks)
    start(t)
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, cycles, null
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Builder, Value
from mmulator.base.errors import InternalError
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.asynchrony.maps import Box
from mmulator.runtime.native.asynchrony.mbarrier import complete_for
from mmulator.runtime.native.hooks.blocks import transfer_over
from mmulator.runtime.native.hooks.events import PayloadShape, bulk_waited, transfer_issued, transfer_moves
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.matrix.tensor_state import TensorTable
from mmulator.runtime.native.memory.windows import WITHIN, shared_of
from mmulator.runtime.native.state import (
    PAYLOAD,
    STAGING,
    TRANSFERS,
    Cluster,
    Completes,
    Cta,
    FaultKind,
    Stop,
    Transfer,
    TransferState,
    Warp,
)
from mmulator.runtime.native.threads.chance import hash_choice

LONG = 1 << 24  # cycles of the host, some milliseconds
AGE = 3  # one in 2^AGE rounds of the warps carries out a transfer for which no lane waits
# Streams of chance: of transfers, by their numbers, and of the cluster, by how far it is.
_TRANSFER, _CLUSTER = 1 << 52, 1 << 53


def call_mover(function: Any, w: Any, t: Any, first: Any, end: Any) -> Value:
    """Macro: do some units of a transfer; returns the number of bytes that are then complete."""
    return Builder.current().call_pointer(function, u64, [w, t, first, end])


def chance(cluster: Any, t: Any) -> Any:
    """Macro: the seed's random number for a transfer; it depends only on the cluster and on the transfer's number there."""
    return hash_choice(cluster.field("launch").field("seed"), cluster.field("number"), t.field("number") + _TRANSFER)


def moment(cluster: Any) -> Any:
    """Macro: the seed's random number for a moment of a cluster, given by its issues, completions and turns."""
    at = (cluster.field("newest") << 20) + (cluster.field("rounds") << 9) + u64(cluster.field("under_way"))
    return hash_choice(cluster.field("launch").field("seed"), cluster.field("number"), at + _CLUSTER)


def entry(cluster: Any, place: Any) -> Any:
    """Macro: a transfer under way, by its place among them."""
    return cast_ptr(Transfer, cluster.field("transfers")) + u32(cluster.field("order")[place])


@native
def no_transfers(cluster: ptr_to(Cluster)) -> None:
    """Reset the table for a new cluster; the previous one may have ended with a fault."""
    while cluster.under_way != 0:
        cluster.under_way = cluster.under_way - 1
        entry(cluster, cluster.under_way).state = TransferState.FREE
    cluster.newest = 0
    cluster.staging_used = 0
    cluster.staged = 0
    if u64(cluster.transfers) != 0:
        for i in range(u32(TRANSFERS)):
            cluster.order[i] = u8(i)


@native(inline=True)
def look_up_soon(cluster: ptr_to(Cluster)) -> None:
    """Let the running warp pause behind its block after some time, so that the worker checks the clock: transfers may be long,
    and a block of code may have many. The warp continues as if it had not paused. Checked at every 64th transfer, each of a
    megabyte at most.
    """
    if (cluster.newest & 63) != 0:
        return
    now = cycles()
    if now - cluster.since > LONG:
        cluster.since = now
        cast_ptr(Warp, cluster.runner).tired = 1


# doing --------------------------------------------------------------------------------------------------------------
@native
def hear(cluster: ptr_to(Cluster), t: ptr_to(Transfer), bytes: u64) -> None:
    """Complete bytes at the mbarriers of a transfer: at the same place in the shared memory of each destination CTA."""
    for rank in bits_of(t.barriers):
        barrier = cast_ptr(u64, shared_of(cluster, rank) + t.offset)
        complete_for(cast_ptr(Warp, t.warp), t.lane, t.site, barrier, 0, bytes)


@native
def is_over(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> None:
    """Free the entry of a complete transfer; it is swapped with the last one under way."""
    transfer_over(t)
    place = t.place
    last = cluster.under_way - 1
    number = cluster.order[place]
    cluster.order[place] = cluster.order[last]
    entry(cluster, place).place = place
    cluster.order[last] = number
    cluster.under_way = last
    t.state = TransferState.FREE
    if t.staged != 0:
        cluster.staged = cluster.staged - 1
        if cluster.staged == 0:
            cluster.staging_used = 0


@native
def gone(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> boolean:
    """Whether a transfer goes to the shared memory of another CTA whose threads have all exited without waiting for it; if so,
    a fault is recorded.
    """
    w = cast_ptr(Warp, t.warp)
    for rank in bits_of(t.barriers & ~(1 << w.cta.rank)):
        if (cast_ptr(Cta, cluster.ctas) + rank).live_threads == 0:
            fault(w, FaultKind.CTA_EXITED, t.site, t.lane, (u64(rank) << RANK_SHIFT) + SHARED_BASE + t.offset, 8)
            return True
    return False


@native
def do_units(t: ptr_to(Transfer), end: u32) -> None:
    """Do the units of a transfer before `end`."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    first = t.done
    if w.cta.fault != 0 or first >= end:
        return
    if gone(cluster, t):
        return
    transfer_moves(t, u32(1))
    bytes = call_mover(cluster.movers[t.kind], w, t, first, end)
    transfer_moves(t, u32(0))
    t.done = end
    cluster.patience = 0
    if end == t.units:
        is_over(cluster, t)
    if t.completes == Completes.BYTES and bytes != 0 and w.cta.fault == 0:
        hear(cluster, t, bytes)


@native
def first_of_lane(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> ptr_to(Transfer):
    """The oldest transfer under way that was issued by the lane of `t` and also completes a bulk group."""
    found = t
    for place in range(cluster.under_way):
        o = entry(cluster, place)
        if o.completes == Completes.GROUP and u64(o.warp) == u64(t.warp) and o.lane == t.lane and o.number < found.number:
            found = o
    return found


@native
def faulty(cluster: ptr_to(Cluster)) -> boolean:
    """Whether a CTA of the cluster has a fault: a transfer may fail in a CTA other than the one that carries it out."""
    for rank in range(cluster.cta_count):
        if (cast_ptr(Cta, cluster.ctas) + rank).fault != 0:
            return True
    return False


@native
def first_of_pipe(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> ptr_to(Transfer):
    """The oldest transfer under way of the pipe of `t`."""
    found = t
    for place in range(cluster.under_way):
        o = entry(cluster, place)
        if o.pipe == t.pipe and o.number < found.number:
            found = o
    return found


@native
def next_of_pipe(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> ptr_to(Transfer):
    """The transfer under way that was issued to the pipe of `t` behind it; null if there is none."""
    found = cast_ptr(Transfer, null(u8))
    least = ~u64(0)
    for place in range(cluster.under_way):
        o = entry(cluster, place)
        if o.pipe == t.pipe and o.number > t.number and o.number < least:
            found = o
            least = o.number
    return found


@native
def commits_of_pipe(w: ptr_to(Warp), pipe: u32) -> None:
    """Carry out the commits of a pipe that nothing is before, as an idle chip does soon: who does not wait for one (Triton's
    kernels for the last) may invalidate its mbarrier later. pipe: 0 for none.
    """
    cluster = w.cta.cluster
    if pipe == 0:
        return
    for _ in range(u32(TRANSFERS)):
        found = cluster.under_way
        for place in range(cluster.under_way):
            o = entry(cluster, place)
            if o.pipe == pipe and o.completes == Completes.BYTES and u64(first_of_pipe(cluster, o)) == u64(o):
                found = place
        if found == cluster.under_way or faulty(cluster):
            return
        do_units(entry(cluster, found), entry(cluster, found).units)


@native
def advance(t: ptr_to(Transfer), end: u32) -> None:
    """Do the units of a transfer before `end`. Under seed 0 the stores of one lane stay in order, as on an idle chip: older
    ones are done first.
    """
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    if t.pipe != 0:
        before = first_of_pipe(cluster, t)
        while u64(before) != u64(t) and not faulty(cluster):
            do_units(before, before.units)
            before = first_of_pipe(cluster, t)
    if t.completes == Completes.GROUP and cluster.launch.seed == 0:
        older = first_of_lane(cluster, t)
        while u64(older) != u64(t) and w.cta.fault == 0:
            do_units(older, older.units)
            older = first_of_lane(cluster, t)
    pipe = t.pipe
    do_units(t, end)
    if pipe != 0 and cluster.launch.seed == 0:
        commits_of_pipe(w, pipe)


@native
def any_awaited(cluster: ptr_to(Cluster)) -> ptr_to(Transfer):
    """A transfer under way that completes an mbarrier, chosen by the seed; or null."""
    count = cluster.under_way
    begin = u32(moment(cluster) >> 32) % count
    for i in range(count):
        place = begin + i
        if place >= count:
            place = place - count
        t = entry(cluster, place)
        if t.completes == Completes.BYTES:
            return t
    return cast_ptr(Transfer, null(u8))


@native
def transfer_for_sleepers(cluster: ptr_to(Cluster)) -> u32:
    """When no lane of the cluster can continue, carry out transfers that complete mbarriers, until a phase is complete. Returns
    BUDGET if there was something to do, FAULT, or BLOCKED.
    """
    flips = cluster.flips
    found = u32(Stop.BLOCKED)
    while cluster.under_way != 0 and cluster.flips == flips:
        t = any_awaited(cluster)
        if u64(t) == 0:
            return found
        advance(t, t.units)
        if faulty(cluster):
            return Stop.FAULT
        found = Stop.BUDGET
    return found


@native
def grow_old(cluster: ptr_to(Cluster)) -> u32:
    """After a round of the warps, sometimes carry out a transfer for which no lane waits. Returns FAULT or BUDGET."""
    cluster.rounds = cluster.rounds + 1
    if cluster.under_way != 0:
        what = moment(cluster)
        if (what & ((1 << AGE) - 1)) == 0:
            t = entry(cluster, u32(what >> 32) % cluster.under_way)
            advance(t, t.units)
    if faulty(cluster):
        return Stop.FAULT
    return Stop.BUDGET


@native
def finish_transfers(cluster: ptr_to(Cluster)) -> u32:
    """Carry out all transfers at the cluster's end. Returns FAULT or EXITED."""
    while cluster.under_way != 0 and not faulty(cluster):
        t = entry(cluster, u32(moment(cluster) >> 32) % cluster.under_way)
        advance(t, t.units)
    if faulty(cluster):
        return Stop.FAULT
    return Stop.EXITED


# issue --------------------------------------------------------------------------------------------------------------
@native
def new_transfer(w: ptr_to(Warp), lane: u32, kind: u32, site: u32) -> ptr_to(Transfer):
    """A free entry of the table, which counts from `start` on. If the table is full, one transfer is carried out first; after a
    fault nothing is done, and an entry is returned that will not be started.
    """
    cluster = w.cta.cluster
    if cluster.under_way == TRANSFERS:
        t = entry(cluster, u32(moment(cluster) >> 32) & (TRANSFERS - 1))
        advance(t, t.units)
    place = cluster.under_way
    if place == TRANSFERS:
        place = 0
    found = entry(cluster, place)
    found.kind = kind
    found.warp = cast_ptr(u8, w)
    found.lane = lane
    found.site = site
    found.done = 0
    found.staged = 0
    found.pipe = 0
    found.barriers = 0
    found.source_bytes = 0
    return found


@native
def start(t: ptr_to(Transfer)) -> None:
    """Start a transfer that is filled in; all of it, a part or nothing is done now."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    if w.cta.fault != 0 or cluster.under_way == TRANSFERS:
        return
    t.number = cluster.newest
    cluster.newest = cluster.newest + 1
    if t.completes == Completes.GROUP:
        t.group = w.bulk_groups[t.lane]
    transfer_issued(t)
    if t.units == 0:
        return
    t.state = TransferState.UNDER_WAY
    t.place = cluster.under_way
    cluster.under_way = cluster.under_way + 1
    what = chance(cluster, t)
    if cluster.launch.seed == 0 and t.completes != Completes.GROUP:
        commits_of_pipe(w, t.pipe)
    elif (what & 7) < 2:
        advance(t, t.units)
    elif (what & 7) < 4 and t.units > 1:
        advance(t, 1 + u32(what >> 32) % (t.units - 1))
    look_up_soon(cluster)


@native
def heard_at(t: ptr_to(Transfer), barrier: u64, ranks: u32) -> None:
    """Let a transfer complete the mbarriers at one place, an address of the shared window, in some CTAs."""
    t.completes = Completes.BYTES
    t.barriers = ranks
    t.offset = (barrier & WITHIN) - SHARED_BASE


# bulk async-groups: of each lane ------------------------------------------------------------------------------------
@native
def commit_bulk(w: ptr_to(Warp), mask: u32) -> None:
    """Commit for each lane its transfers since the last commit as a group."""
    w.used = 1
    for lane in bits_of(mask):
        w.bulk_groups[lane] = w.bulk_groups[lane] + 1


@native
def stage(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> None:
    """Read the shared memory of a transfer now; if there is no room for the bytes, they are also written."""
    if cluster.staging_used + t.source_bytes > STAGING:
        advance(t, t.units)
        return
    room = cluster.staging + cluster.staging_used
    cluster.staging_used = cluster.staging_used + ((t.source_bytes + 63) // 64 * 64)
    copy_bytes(room, t.source, t.source_bytes)
    t.source = room
    t.staged = 1
    cluster.staged = cluster.staged + 1


@native
def wait_bulk(w: ptr_to(Warp), mask: u32, pending: u64, read: u32, site: u32) -> None:
    """Complete all but the newest `pending` groups of each lane; with `read`, only their reading, except under seed 0."""
    cluster = w.cta.cluster
    seed = cluster.launch.seed
    place = cluster.under_way
    while place != 0:  # from the last: where one is over, one comes from behind it
        place = place - 1
        t = entry(cluster, place)
        if place < cluster.under_way and t.completes == Completes.GROUP and u64(t.warp) == u64(w):
            if ((mask >> t.lane) & 1) != 0 and t.group + pending < w.bulk_groups[t.lane]:
                late = read != 0 and seed != 0 and t.source_bytes != 0 and (chance(cluster, t) & 16) != 0
                if not late:
                    advance(t, t.units)
                elif t.staged == 0:
                    stage(cluster, t)
    bulk_waited(w, mask, pending, read, site)


# payloads ------------------------------------------------------------------------------------------------------------
# to, from_: addresses, as observers know them. kept: bits of the bytes of 16 that are copied. begin, end: bytes of the source
# there that need not be in memory; whole: 1 if they are.
BulkCopy = Struct("BulkCopy", [
    ("to", u64), ("from_", u64), ("bytes", u64), ("kept", u64), ("begin", u64), ("end", u64), ("whole", u64),
])  # fmt: skip
AsyncStore = Struct("AsyncStore", [("to", u64), ("bytes", u64), ("value", u64, PAYLOAD - 2)])  # of st.async and red.async
Response = Struct("Response", [("to", u64)])  # of clusterlaunchcontrol.try_cancel; an address of the shared window
# tcgen05.mma, cp and shift. mode: rows of tcgen05.cp. a: a matrix descriptor, or with in_cells an address in tensor memory.
# moved_up: 1 for .ashift. zeros: a zero-column mask descriptor.
TensorWork = Struct("TensorWork", [
    ("table", ptr_to(TensorTable)), ("a", u64), ("b", u64), ("d", u32), ("mode", u32), ("pair", u32), ("in_cells", u32),
    ("metadata", u32), ("scale_a", u32), ("scale_b", u32), ("adds", u32), ("divides", u32), ("lanes_off", u32, 8),
    ("moved_up", u32), ("padding", u32), ("zeros", u64),
])  # fmt: skip

PAYLOADS = {
    PayloadShape.BOX: Box, PayloadShape.PLAIN: BulkCopy, PayloadShape.WORDS: AsyncStore, PayloadShape.RESPONSE: Response,
    PayloadShape.TENSOR: TensorWork,
}
if max(payload.size for payload in PAYLOADS.values()) > PAYLOAD * 8:
    raise InternalError(f"a transfer has room for {PAYLOAD * 8} bytes")


def payload_of(transfer: Any, shape: PayloadShape) -> Any:
    """Macro: the payload of a transfer whose bytes have a shape."""
    return cast_ptr(PAYLOADS[shape], transfer.field_address("payload"))
