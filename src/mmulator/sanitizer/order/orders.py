"""The effect of each synchronising event on happens-before (clocks.py): PTX ISA 9.1, Memory Consistency Model.

Threads that have exited count as arrived at every later barrier, as on chips.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_mask, cast_ptr, load, maximum, select, stack, store, trailing_zeros
from mmulator.base.codegen.types import ptr, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.mbarrier import lanes_at
from mmulator.runtime.native.hooks.events import (
    SAID,
    SCOPE_MASK,
    SCOPE_SHIFT,
    SCOPES,
    SPACE_CLUSTER,
    SPACE_CTA,
    SPACE_GLOBAL,
    Fence,
    Order,
)
from mmulator.runtime.native.matrix.wgmma import WARPS
from mmulator.runtime.native.state import COPIES, NUM_BARRIERS, Barrier, Cluster, Cta, Queue, Warp
from mmulator.sanitizer.order.clocks import fence_plane, fenced_lanes, forget_all, know_acquired, release_fenced
from mmulator.sanitizer.order.locations import first_phase, forget_locations, forget_phases, next_phase, order_ordered, phaser_of
from mmulator.sanitizer.order.views import (
    ACQUIRED,
    ACQUIRED_WIDE,
    ALL,
    FENCED,
    FENCED_GLOBAL,
    FENCED_READS,
    FENCES,
    ISSUES,
    KNOWN,
    NOTHING,
    PLANES,
    PROXIES,
    RELEASED,
    RELEASED_WIDE,
    U32,
    UNSAID,
    Collector,
    Orders,
    WarpClocks,
    acquire_behind,
    acquire_views,
    clear_collector,
    collect_plane,
    collect_views,
    drop_id,
    forget_seen,
    give_view,
    knower_of,
    orders_of,
    plane_of,
    raise_entries,
    raise_own,
    release_lanes,
    use_fences,
)
from mmulator.sanitizer.order.world import forget_strangers
from mmulator.sanitizer.state import Doubt, doubt

_CTA, _GPU = SCOPES["cta"], SCOPES["gpu"]


# a warp, a block ------------------------------------------------------------------------------------------------------
@native
def order_warp(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Handle bar.warp.sync: all lanes release and acquire."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    view = stack(u32)
    seen = stack(u32)
    store(U32(k.clock), k.now.own)
    for p in range(o.planes):
        if not raise_own(o, k, mask, p):
            ids = plane_of(k.now.views, p)
            view[0] = NOTHING
            seen[0] = NOTHING
            collect_plane(o, view, seen, k.first, ids, plane_of(k.now.own, p), plane_of(k.now.copied, p), mask)
            give_view(o, ids, mask, view[0])
            drop_id(o, view[0], 1)
            drop_id(o, seen[0], 1)
    k.clock = k.clock + 1


@native(inline=True)
def barrier_at(o: ptr_to(Orders), cta: ptr_to(Cta), id: u32) -> ptr_to(Collector):
    return o.barriers + (cta.rank * NUM_BARRIERS + id)


@native
def order_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    """Handle bar and barrier: the lanes release, for arrive too."""
    o = orders_of(w.cta.cluster)
    release_lanes(o, knower_of(o, w), mask, barrier_at(o, w.cta, id))


@native
def count_gone(o: ptr_to(Orders), cta: ptr_to(Cta), c: ptr_to(Collector)) -> None:
    """Let a barrier wait for what threads of a CTA that have exited did."""
    gone = o.gone + cta.rank
    collect_views(o, c, gone.views)
    if gone.views[KNOWN] != NOTHING:
        doubt(cast_ptr(Warp, cta.warps), Doubt.EXITED, 0, 0, 0, 0, 0, 0, 0, 0)


@native
def order_over(cta: ptr_to(Cta), id: u32) -> None:
    """Handle the completion of a barrier: waiting lanes acquire what all lanes released. Lanes that arrived but are counted
    later, with the rest of their warp, have also released for the next completion.
    """
    o = orders_of(cta.cluster)
    c = barrier_at(o, cta, id)
    bar = cast_ptr(Barrier, cta.barriers) + id
    if bar.count == 0:
        count_gone(o, cta, c)
    forget_seen(o, c)
    warps = cast_ptr(Warp, cta.warps)
    again = u32(0)
    for i in range(cta.launch.warps):
        w = warps + i
        again = again | w.bar_came[id]
        lanes = w.bar_lanes[id]
        if w.bar_came[id] == 0 and lanes != 0:
            k = knower_of(o, w)
            for p in range(o.planes):
                give_view(o, plane_of(k.now.views, p), lanes, c.views[p])
    clear_collector(o, c)
    if again != 0:
        for i in range(cta.launch.warps):
            w = warps + i
            if w.bar_came[id] != 0:
                release_lanes(o, knower_of(o, w), w.bar_came[id], c)


@native
def order_exit(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    o = orders_of(w.cta.cluster)
    release_lanes(o, knower_of(o, w), mask, o.gone + w.cta.rank)


@native
def release_behind(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, c: ptr_to(Collector), order: u32, plane: u32) -> None:
    """Release to a collector at an arrival; a relaxed arrival releases what happened before the last fence, of RELEASED or
    RELEASED_WIDE.

    o, k: orders and clocks of the warp.
    mask: the lanes.
    c: the collector.
    order: semantics of the arrival.
    plane: the plane of the fence.
    """
    if (order & Order.RELEASE) != 0:
        release_lanes(o, k, mask, c)
    else:
        lanes = fenced_lanes(o, k, mask, plane)
        if lanes != 0:
            release_fenced(o, c, k, lanes, plane)


@native
def release_unsaid(o: ptr_to(Orders), k: ptr_to(WarpClocks), mask: u32, c: ptr_to(Collector)) -> None:
    """Release to a collector at an arrival at another block's mbarrier that says no scope, and so has its own block's: ptxas puts
    no fence before it, so that only what a fence of a wider scope precedes goes along, and that all reads are over.
    """
    o.planes = PLANES
    lanes = fenced_lanes(o, k, mask, RELEASED_WIDE)
    if lanes != 0:
        release_fenced(o, c, k, lanes, RELEASED_WIDE)
    store(U32(k.clock), k.now.own)
    collect_plane(o, c.views + UNSAID, c.seen + UNSAID, k.first, k.now.views, k.now.own, k.now.copied, mask)
    for p in unrolled(1, PLANES):
        if p < PROXIES or p == UNSAID:
            ids = plane_of(k.now.views, p)
            collect_plane(o, c.views + p, c.seen + p, k.first, ids, plane_of(k.now.own, p), plane_of(k.now.copied, p), mask)
    k.clock = k.clock + 1


# the cluster ----------------------------------------------------------------------------------------------------------
@native
def order_cluster_arrived(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """Handle an arrival at the cluster's barrier. A relaxed arrival after a fence of scope .cta releases nothing to other CTAs;
    in a cluster of one CTA any fence is enough.
    """
    o = orders_of(w.cta.cluster)
    plane = u32(RELEASED)
    if w.cta.cluster.cta_count > 1:
        plane = RELEASED_WIDE
    release_behind(o, knower_of(o, w), mask, o.meeting, order, plane)


@native
def order_cluster_over(cluster: ptr_to(Cluster)) -> None:
    o = orders_of(cluster)
    c = o.meeting
    for rank in range(cluster.cta_count):
        count_gone(o, cast_ptr(Cta, cluster.ctas) + rank, c)
    forget_seen(o, c)
    for p in range(o.planes):
        drop_id(o, o.met[p], 1)
        o.met[p] = c.views[p]
        c.views[p] = NOTHING


@native
def order_cluster_waited(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    o = orders_of(w.cta.cluster)
    if (order & Order.ACQUIRE) != 0:
        acquire_views(o, knower_of(o, w).now.views, mask, o.met)


# fences ---------------------------------------------------------------------------------------------------------------
@native
def order_fenced(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    scope = (order >> SCOPE_SHIFT) & SCOPE_MASK
    far = scope > _CTA or kind == Fence.MBARRIER_INIT  # whose scope is the cluster's
    wide = far and (scope >= _GPU or w.cta.cluster.cta_count > 1)
    if kind == Fence.ASYNC or kind == Fence.GENERIC_ACQUIRE or kind == Fence.GENERIC_RELEASE:
        if o.planes < PROXIES:
            o.planes = PROXIES
        if spaces == 0 or (spaces & (SPACE_CTA | SPACE_CLUSTER)) != 0:
            fence_plane(o, k, mask, FENCED)
        if spaces == 0 or (spaces & SPACE_GLOBAL) != 0:
            fence_plane(o, k, mask, FENCED_GLOBAL)
    if kind == Fence.GENERIC_READS:
        if o.planes < PROXIES:
            o.planes = PROXIES
        fence_plane(o, k, mask, FENCED_READS)
    if kind == Fence.MEMORY and (order & Order.ACQUIRE) != 0 and o.planes >= FENCES:
        know_acquired(o, k, mask, ACQUIRED)
        if wide:
            know_acquired(o, k, mask, ACQUIRED_WIDE)
    released = mask
    if kind == Fence.MBARRIER_INIT:  # one that covers no mbarrier.init orders nothing
        if (mask & k.inits) == 0:
            released = 0
        k.inits = k.inits & ~mask
    elif kind != Fence.MEMORY or (order & Order.RELEASE) == 0:
        released = 0
    if released != 0:
        use_fences(o)
        fence_plane(o, k, released, RELEASED)
        if wide:
            fence_plane(o, k, released, RELEASED_WIDE)
    k.clock = k.clock + 1


# mbarriers ------------------------------------------------------------------------------------------------------------
@native
def order_of_mbarrier(w: ptr_to(Warp), order: u32, site: u32) -> None:
    knower_of(orders_of(w.cta.cluster), w).order = order


@native
def order_made(w: ptr_to(Warp), lane: u32, barrier: u64, count: u64, site: u32) -> None:
    first_phase(w.cta.cluster, barrier)
    k = knower_of(orders_of(w.cta.cluster), w)
    k.inits = k.inits | (1 << lane)


@native
def order_mbarrier_arrived(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    if arrivals != 0 or came != 0:  # complete_tx: a relaxed operation, as an arrival may be
        entry = phaser_of(w.cta.cluster, barrier)
        if u64(entry) != 0:
            if barrier - u64(w.cta.shared) < u64(w.cta.launch.shared_bytes):
                release_behind(o, k, mask, entry.collecting, k.order, RELEASED)
            elif ((k.order >> SCOPE_SHIFT) & SCOPE_MASK) != _CTA:  # no other thread can wait there
                entry.is_far = 1
                if (k.order & (SAID | Order.RELEASE)) == Order.RELEASE:
                    release_unsaid(o, k, mask, entry.far)
                else:
                    release_behind(o, k, mask, entry.far, k.order, RELEASED_WIDE)


@native
def order_mbarrier_over(cluster: ptr_to(Cluster), barrier: u64) -> None:
    next_phase(cluster, barrier)


@native
def order_mbarrier_waited(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    cluster = w.cta.cluster
    o = orders_of(cluster)
    k = knower_of(o, w)
    plane = u32(KNOWN)
    far_plane = u32(KNOWN)
    if (k.order & Order.ACQUIRE) == 0:
        plane = ACQUIRED
        far_plane = ACQUIRED_WIDE
        use_fences(o)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        barrier = u64(host[lane])
        same = lanes_at(host, left, barrier)
        parity = (parities >> lane) & 1
        if parity != 0:
            same = same & parities
        else:
            same = same & ~parities
        left = left & ~same
        entry = phaser_of(cluster, barrier)
        if u64(entry) != 0:
            acquire_behind(o, k, same, entry.done + parity * PLANES, plane)
            if entry.is_far != 0 and ((k.order >> SCOPE_SHIFT) & SCOPE_MASK) != _CTA:
                acquire_behind(o, k, same, entry.far_done + parity * PLANES, far_plane)
                if (k.order & SAID) == 0:
                    doubt(w, Doubt.UNSAID_WAIT, site, same, 0, 0, 0, 0, 0, 0)
        else:
            acquire_behind(o, k, same, o.everything, plane)


# cp.async -------------------------------------------------------------------------------------------------------------
@native
def order_copies_waited(w: ptr_to(Warp), mask: u32, end: u64) -> None:
    """Let each lane acquire its own copies."""
    k = knower_of(orders_of(w.cta.cluster), w)
    done = load(U32, k.now.copied)
    store(select(bits_mask(mask), maximum(done, U32(end)), done), k.now.copied)


@native
def order_copy_signals(w: ptr_to(Warp), mask: u32, barrier: u64, counted: u32, site: u32) -> None:
    """Release to the mbarrier's phase the lanes' actions and their copies so far."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    k = knower_of(o, w)
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0:
        return
    c = entry.collecting
    release_lanes(o, k, mask, c)
    issued = stack(u32, 32)
    store(U32((cast_ptr(Queue, w.queues) + COPIES.queue).issued), issued)
    if c.views[KNOWN] != ALL:
        raise_entries(o, c.views[KNOWN], o.threads + k.first, issued, mask)


# wgmma ----------------------------------------------------------------------------------------------------------------
@native(inline=True)
def issue_at(o: ptr_to(Orders), w: ptr_to(Warp), number: u64) -> ptr_to(Collector):
    return o.issues + (knower_of(o, w).first // 32 * ISSUES + (u32(number) & (ISSUES - 1)))


@native
def order_wgmma_issued(w: ptr_to(Warp), number: u64, site: u32) -> None:
    """Handle the issue of a wgmma by a warp: everything that happens before the four issues also happens before the operation's
    end, as on chips.
    """
    o = orders_of(w.cta.cluster)
    c = issue_at(o, w, number)
    clear_collector(o, c)
    release_lanes(o, knower_of(o, w), w.live, c)
    forget_seen(o, c)


@native
def order_wgmma_waited(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    o = orders_of(w.cta.cluster)
    if end == 0:
        return
    first = cast_ptr(Warp, w.cta.warps) + (w.index & ~u32(3))
    for i in range(u32(WARPS)):
        if (w.index & ~u32(3)) + i < w.cta.launch.warps:
            acquire_views(o, knower_of(o, w).now.views, mask, issue_at(o, first + i, end - 1).views)


# the beginning --------------------------------------------------------------------------------------------------------
@native
def order_begins(cluster: ptr_to(Cluster)) -> None:
    forget_phases(orders_of(cluster))
    forget_locations(orders_of(cluster))
    forget_strangers(cluster)
    forget_all(cluster)


HOOKS: Mapping[str, Native] = {
    "warp_met": order_warp, "barrier_arrived": order_arrived, "barrier_over": order_over, "lanes_exit": order_exit,
    "cluster_arrived": order_cluster_arrived, "cluster_over": order_cluster_over, "cluster_waited": order_cluster_waited,
    "fenced": order_fenced, "ordered": order_ordered, "mbarrier_order": order_of_mbarrier, "mbarrier_made": order_made,
    "mbarrier_arrived": order_mbarrier_arrived, "mbarrier_over": order_mbarrier_over, "mbarrier_waited": order_mbarrier_waited,
    "wgmma_issued": order_wgmma_issued, "wgmma_waited": order_wgmma_waited,
    "copies_waited": order_copies_waited, "copy_signals": order_copy_signals, "cluster_begins": order_begins,
}  # fmt: skip
