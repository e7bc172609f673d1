"""Bulk operations: issued by a lane, carried out when and in which order nobody can say, some of their bytes before others.

A cluster has one table of them (state.py, Transfer). A transfer is done in units (rows, or whatever its kind counts), by the
kind's function among the cluster's movers. It is complete at once, half of it at once, or not at all, as the seed has it; the
rest when its lane waits for its bulk group, when the table is full, when no lane of the cluster can go on otherwise, or after
some turns; when the cluster ends. What completes an mbarrier does so unit by unit. A store reads shared memory as late as it may:
when it is carried out, or when its lane waits until it was read. To issue:

    t = new_transfer(w, lane, TransferKind..., site)
    fill t.completes, barriers, offset, units, source, payload
    start(t)
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, copy_bytes, null, trailing_zeros
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.chance import hash_choice
from mmulator.machine.runtime.mbarrier import complete_for
from mmulator.machine.state import STAGING, TRANSFERS, Cluster, Completes, Cta, Stop, Transfer, TransferState, Warp

AGE = 3  # one in 2^AGE rounds of the warps carries out a transfer that nobody waits for


def call_mover(function: Any, w: Any, t: Any, first: Any, end: Any) -> Value:
    """Macro: do some units of a transfer; how many bytes that completes."""
    return Builder.current().call_pointer(function, u64, [w, t, first, end])


def chance(cluster: Any, t: Any) -> Any:
    """Macro: what the seed has for a transfer: it depends on the cluster and on its number there, on nothing else."""
    return hash_choice(cluster.field("launch").field("seed"), cluster.field("number"), t.field("number") + (1 << 52))


# doing --------------------------------------------------------------------------------------------------------------
@native
def hear(cluster: ptr_to(Cluster), t: ptr_to(Transfer), bytes: u64) -> None:
    """The mbarriers of a transfer hear of bytes: at the same place in the shared memory of each CTA that it goes to."""
    left = t.barriers
    ctas = cast_ptr(Cta, cluster.ctas)
    while left != 0:
        rank = trailing_zeros(left)
        left = left & (left - 1)
        barrier = cast_ptr(u64, (ctas + rank).shared + t.offset)
        complete_for(cast_ptr(Warp, t.warp), t.lane, t.site, barrier, u64(0), bytes)


@native
def advance(t: ptr_to(Transfer), end: u32) -> None:
    """Do the units of a transfer before `end`."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    first = t.done
    if w.cta.fault != 0 or first >= end:
        return
    bytes = call_mover(cluster.movers[t.kind], w, t, first, end)
    t.done = end
    cluster.patience = u32(0)
    if end == t.units:
        t.state = u32(TransferState.FREE)
        cluster.under_way = cluster.under_way - 1
        if cluster.under_way == 0:
            cluster.staging_used = u64(0)
    if t.completes == Completes.BYTES and bytes != 0 and w.cta.fault == 0:
        hear(cluster, t, bytes)


@native
def oldest(cluster: ptr_to(Cluster)) -> ptr_to(Transfer):
    """Of those under way, of which there is one."""
    table = cast_ptr(Transfer, cluster.transfers)
    found = table
    number = ~u64(0)
    for i in range(u32(TRANSFERS)):
        t = table + i
        if t.state == TransferState.UNDER_WAY and t.number < number:
            found = t
            number = t.number
    return found


@native
def any_awaited(cluster: ptr_to(Cluster)) -> ptr_to(Transfer):
    """One under way that completes an mbarrier, whichever the seed says; or null."""
    table = cast_ptr(Transfer, cluster.transfers)
    found = cast_ptr(Transfer, null(u8))
    best = ~u64(0)
    for i in range(u32(TRANSFERS)):
        t = table + i
        if t.state == TransferState.UNDER_WAY and t.completes == Completes.BYTES:
            value = chance(cluster, t)
            if value <= best:
                found = t
                best = value
    return found


@native
def transfer_for_sleepers(cluster: ptr_to(Cluster)) -> u32:
    """No lane of the cluster can go on: carry out what completes mbarriers until the phase of one is over. BUDGET if there was
    something to do, FAULT, or BLOCKED."""
    flips = cluster.flips
    found = u32(Stop.BLOCKED)
    while cluster.under_way != 0 and cluster.flips == flips:
        t = any_awaited(cluster)
        if u64(t) == 0:
            return found
        advance(t, t.units)
        if cast_ptr(Warp, t.warp).cta.fault != 0:
            return u32(Stop.FAULT)
        found = u32(Stop.BUDGET)
    return found


@native
def grow_old(cluster: ptr_to(Cluster)) -> u32:
    """A round of the warps is over: now and then a transfer is carried out that nobody waits for. FAULT or BUDGET."""
    cluster.rounds = cluster.rounds + 1
    if (hash_choice(cluster.launch.seed, cluster.number, cluster.rounds) & ((1 << AGE) - 1)) == 0:
        t = oldest(cluster)
        advance(t, t.units)
        if cast_ptr(Warp, t.warp).cta.fault != 0:
            return u32(Stop.FAULT)
    return u32(Stop.BUDGET)


@native
def finish_transfers(cluster: ptr_to(Cluster)) -> u32:
    """The cluster is over. FAULT or EXITED."""
    while cluster.under_way != 0:
        t = oldest(cluster)
        advance(t, t.units)
        if cast_ptr(Warp, t.warp).cta.fault != 0:
            return u32(Stop.FAULT)
    return u32(Stop.EXITED)


# issue --------------------------------------------------------------------------------------------------------------
@native
def new_transfer(w: ptr_to(Warp), lane: u32, kind: u32, site: u32) -> ptr_to(Transfer):
    """A free entry of the table. It counts when it is started."""
    cluster = w.cta.cluster
    table = cast_ptr(Transfer, cluster.transfers)
    if cluster.under_way == TRANSFERS:
        t = oldest(cluster)
        advance(t, t.units)
    at = u32(cluster.newest) & (TRANSFERS - 1)
    while (table + at).state != TransferState.FREE:
        at = (at + 1) & (TRANSFERS - 1)
    found = table + at
    found.kind = kind
    found.warp = cast_ptr(u8, w)
    found.lane = lane
    found.site = site
    found.done = u32(0)
    found.staged = u32(0)
    found.barriers = u32(0)
    found.source_bytes = u64(0)
    return found


@native
def start(t: ptr_to(Transfer)) -> None:
    """A transfer that is filled in is under way; all of it, half of it or nothing is done now."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    if w.cta.fault != 0:
        return
    t.number = cluster.newest
    cluster.newest = cluster.newest + 1
    cluster.under_way = cluster.under_way + 1
    t.state = u32(TransferState.UNDER_WAY)
    if t.completes == Completes.GROUP:
        t.group = w.bulk_groups[t.lane]
    what = chance(cluster, t) & 7
    if t.units == 0 or what < 2:
        advance(t, t.units)
        if t.units == 0:
            t.state = u32(TransferState.FREE)
            cluster.under_way = cluster.under_way - 1
    elif what < 4:
        advance(t, t.units // 2)


# bulk async-groups: of each lane ------------------------------------------------------------------------------------
@native
def commit_bulk(w: ptr_to(Warp), mask: u32) -> None:
    """A new group for each lane, of what it issued since its last one."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        w.bulk_groups[lane] = w.bulk_groups[lane] + 1


@native
def stage(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> None:
    """What a transfer reads of shared memory is read now; if there is no room for it, it is written, too."""
    if cluster.staging_used + t.source_bytes > STAGING:
        advance(t, t.units)
        return
    room = cluster.staging + cluster.staging_used
    cluster.staging_used = cluster.staging_used + ((t.source_bytes + 63) // 64 * 64)
    copy_bytes(room, t.source, t.source_bytes)
    t.source = room
    t.staged = u32(1)


@native
def wait_bulk(w: ptr_to(Warp), mask: u32, pending: u64, read: u32) -> None:
    """All but the newest `pending` groups of each lane are complete; with `read`, they have read what they read."""
    cluster = w.cta.cluster
    if cluster.under_way == 0:
        return
    table = cast_ptr(Transfer, cluster.transfers)
    for i in range(u32(TRANSFERS)):
        t = table + i
        if t.state == TransferState.UNDER_WAY and t.completes == Completes.GROUP and u64(t.warp) == u64(w):
            if ((mask >> t.lane) & 1) != 0 and t.group + pending < w.bulk_groups[t.lane]:
                late = read != 0 and (chance(cluster, t) & 16) != 0
                if late and t.staged == 0 and t.source_bytes != 0:
                    stage(cluster, t)
                elif not late:
                    advance(t, t.units)
