"""barrier.cluster and clusterlaunchcontrol (PTX ISA 9.1, Parallel Synchronization and Communication Instructions).

The barrier counts threads: it is complete when all threads of the cluster that have not exited have arrived. A thread that has
arrived remembers the generation of the barrier, and its wait ends when that generation is complete.
"""

from functools import cache

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import (
    address,
    atomic_rmw,
    bits_mask,
    bits_of,
    cast_ptr,
    compare_exchange,
    mask_bits,
    minimum,
    popcount,
    select,
    stack,
    trailing_zeros,
)
from mmulator.base.codegen.types import i32, ptr_to, u32, u64
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.bulk import hold_own, targets
from mmulator.runtime.native.asynchrony.mbarrier import ALIGNMENT
from mmulator.runtime.native.asynchrony.transfers import heard_at, new_transfer, payload_of, start
from mmulator.runtime.native.asynchrony.waiting import wait_for_lanes, wake
from mmulator.runtime.native.hooks.blocks import work_asked
from mmulator.runtime.native.hooks.events import (
    WRITE,
    PayloadShape,
    Proxy,
    accessed_one,
    by,
    cluster_arrived,
    cluster_over,
    cluster_waited,
    transfer_filled,
)
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, WITHIN, shared_of
from mmulator.runtime.native.state import RESCHEDULE, Cluster, Cta, FaultKind, Launch, Transfer, TransferKind, Warp

U32 = u32.vec(32)
ARRIVE, WAIT = range(2)  # what was wrong, in fault_bytes


@native
def first_cta(launch: ptr_to(Launch), number: u64, place: ptr_to(u32)) -> None:
    """Place of the first CTA of a cluster in the grid: x, y, z. number: of the cluster, x fastest."""
    c = launch.cluster
    place[0] = u32(number) * c[0]
    place[1] = 0
    place[2] = 0
    if (number + 1) * u64(c[0]) <= u64(launch.nctaid[0]):  # in the first row: mostly there is no other, and divisions take long
        return
    across = u64(launch.nctaid[0] // c[0])
    down = u64(launch.nctaid[1] // c[1])
    place[0] = u32(number % across) * c[0]
    place[1] = u32(number // across % down) * c[1]
    place[2] = u32(number // (across * down)) * c[2]


@native
def live_threads(cluster: ptr_to(Cluster)) -> u32:
    """Number of threads of the cluster that have not exited."""
    ctas = cast_ptr(Cta, cluster.ctas)
    total = u32(0)
    for rank in range(cluster.cta_count):
        total = total + (ctas + rank).live_threads
    return total


@native
def complete_if_all(cluster: ptr_to(Cluster)) -> None:
    """If all threads have arrived, complete the barrier, so that waiting lanes continue."""
    if cluster.arrived != 0 and cluster.arrived == live_threads(cluster):
        cluster.arrived = 0
        cluster_over(cluster)
        cluster.generation = cluster.generation + 1
        wake(cluster)


@native
def cluster_arrive(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """Execute barrier.cluster.arrive: once, until the thread has waited."""
    cluster = w.cta.cluster
    again = w.cluster_came & mask
    if again != 0:
        fault(w, FaultKind.CLUSTER_BARRIER, site, trailing_zeros(again), 0, ARRIVE)
        return
    cluster_arrived(w, mask, order, site)
    w.cluster_came = w.cluster_came | mask
    w.cluster_generation = select(bits_mask(mask), U32(cluster.generation), w.cluster_generation)
    cluster.arrived = cluster.arrived + popcount(mask)
    complete_if_all(cluster)


@native
def cluster_wait(w: ptr_to(Warp), mask: u32, order: u32, here: i32, next: i32, site: u32) -> i32:
    """Execute barrier.cluster.wait, at the start of block `here`, which runs again when the barrier is complete."""
    cluster = w.cta.cluster
    never = mask & ~w.cluster_came
    if never != 0:
        fault(w, FaultKind.CLUSTER_BARRIER, site, trailing_zeros(never), 0, WAIT)
        return RESCHEDULE
    if (mask_bits(w.cluster_generation == cluster.generation) & mask) != 0:
        return wait_for_lanes(w, mask, here)
    w.cluster_came = w.cluster_came & ~mask
    cluster_waited(w, mask, order, site)
    return next


@native
def leave_cluster(w: ptr_to(Warp), mask: u32) -> None:
    """Handle the exit of lanes: the barrier no longer waits for them, and their arrivals no longer count."""
    cluster = w.cta.cluster
    counted = w.cluster_came & mask & mask_bits(w.cluster_generation == cluster.generation)
    cluster.arrived = cluster.arrived - popcount(counted)
    complete_if_all(cluster)


# clusters that have not begun ---------------------------------------------------------------------------------------
RESPONSE = 16  # bytes
NO_CLUSTER = 0xFFFFFFFFFFFFFFFF  # is left
WRITES = by(WRITE, Proxy.ASYNC)


@native
def next_cluster(launch: ptr_to(Launch)) -> u64:
    """Take the next cluster of the launch that has not been taken: its number, or NO_CLUSTER."""
    line = launch.line
    at = atomic_rmw("add", address(line.next), u64(1))
    if at >= line.clusters:
        return NO_CLUSTER
    if at < line.first:
        return line.order[at]
    if at >= line.last:
        return line.order[line.first + at - line.last]
    return at


@native
def begin_next(cluster: ptr_to(Cluster)) -> u64:
    """Begin the next cluster in this cluster's memory. A worker may take several at once: fewer as fewer are left, so that all
    workers end together.
    """
    launch = cluster.launch
    share = cluster.share
    if u64(share) == 0:
        return next_cluster(launch)
    number = share.next
    if number < share.end:
        share.next = number + 1
        return number
    line = launch.line
    at = line.next
    count = u64(2)
    while count > 1:
        count = 0
        if at >= line.first and at < line.last:
            count = minimum(share.most, (line.last - at) // (2 * share.workers))
        if count > 1:
            found = compare_exchange(address(line.next), at, at + count)
            if found == at:
                share.next = at + 1
                share.end = at + count
                return at
            at = found
    return next_cluster(launch)


@native
def move_cancel(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Cancel a cluster that has not begun, if there is one, and write the place of its first CTA in the grid, or "none", to
    each target CTA.
    """
    launch = w.cta.launch
    number = u64(NO_CLUSTER)
    refused = stack(u32, 1)
    refused[0] = 0
    work_asked(w, t.lane, refused)
    if refused[0] == 0:
        number = next_cluster(launch)
    low = u64(0)
    high = u64(0)
    if number != NO_CLUSTER:
        cluster = w.cta.cluster
        cluster.finished = cluster.finished + 1
        corner = stack(u32, 3)
        first_cta(launch, number, corner)
        low = u64(corner[0]) | (u64(corner[1]) << 32) | (u64(corner[2]) << 48)
        high = 1
    for rank in bits_of(t.barriers):
        at = payload_of(t, PayloadShape.RESPONSE).to & WITHIN
        accessed_one(w, t.lane, at | (u64(rank) << RANK_SHIFT) | SHARED, u32(RESPONSE), WRITES, t.site)
        response = cast_ptr(u64, shared_of(w.cta.cluster, rank) + (at - SHARED_BASE))
        response[0] = low
        response[1] = high
    return RESPONSE


@cache
def cancel_function(generic: bool, multicast: bool) -> Native:
    """A function for clusterlaunchcontrol.try_cancel: each lane requests, and the mbarrier at barriers[lane] receives 16 bytes;
    for a multicast the mbarrier at its place in each CTA of the cluster. to, barriers: generic addresses, or those of the
    shared window.
    """

    def cancel(w: ptr_to(Warp), mask: u32, to: ptr_to(u64), barriers: ptr_to(u64), site: u32) -> None:
        for lane in bits_of(mask):
            response = to[lane]
            barrier = barriers[lane]
            if generic:
                if (response >> SLOT_SHIFT) != SLOT_SHARED or (barrier >> SLOT_SHIFT) != SLOT_SHARED:
                    fault(w, FaultKind.NOT_SHARED, site, lane, response, u32(RESPONSE))
                response = response & OFFSET_MASK
                barrier = barrier & OFFSET_MASK
            if (response & (RESPONSE - 1)) != 0:
                fault(w, FaultKind.MISALIGNED, site, lane, response, u32(RESPONSE))
            hold_own(w, lane, response, u64(RESPONSE), site)
            hold_own(w, lane, barrier, u64(ALIGNMENT), site)  # in this CTA, as the response
            reached = u32(1) << w.cta.rank
            if multicast:
                reached = (u32(1) << w.cta.cluster.cta_count) - 1
            targets(w, lane, response, u64(RESPONSE), barrier, reached, site)
            if w.cta.fault == 0:
                t = new_transfer(w, lane, u32(TransferKind.CANCEL), site)
                heard_at(t, barrier, reached)
                t.units = u32(1)
                payload_of(t, PayloadShape.RESPONSE).to = response
                transfer_filled(t, u32(PayloadShape.RESPONSE))
                start(t)

    return Native(cancel, f"try_cancel{'_generic' if generic else ''}{'_multicast' if multicast else ''}")
