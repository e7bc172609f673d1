"""barrier.cluster (PTX ISA 9.1, Parallel Synchronization and Communication Instructions: barrier.cluster).

It counts threads: it is complete when all threads of the cluster that have not exited have arrived. A thread that arrived
remembers of which generation of the barrier, and its wait is over when that is complete.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_mask, cast_ptr, mask_bits, popcount, select, trailing_zeros
from mmulator.codegen.types import i32, ptr_to, u32, u64
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.waiting import wait_for_lanes, wake
from mmulator.machine.state import RESCHEDULE, Cluster, Cta, FaultKind, Warp

U32 = u32.vec(32)
ARRIVE, WAIT = range(2)  # what was wrong, in fault_bytes


@native
def live_threads(cluster: ptr_to(Cluster)) -> u32:
    """Threads of the cluster that have not exited."""
    ctas = cast_ptr(Cta, cluster.ctas)
    total = u32(0)
    for rank in range(cluster.cta_count):
        total = total + (ctas + rank).live_threads
    return total


@native
def complete_if_all(cluster: ptr_to(Cluster)) -> None:
    """If all have arrived, who waits goes on."""
    if cluster.arrived != 0 and cluster.arrived == live_threads(cluster):
        cluster.arrived = u32(0)
        cluster.generation = cluster.generation + 1
        wake(cluster)


@native
def cluster_arrive(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """barrier.cluster.arrive. Once, until the thread has waited."""
    cluster = w.cta.cluster
    again = w.cluster_came & mask
    if again != 0:
        fault(w, FaultKind.CLUSTER_BARRIER, site, trailing_zeros(again), u64(0), u32(ARRIVE))
        return
    w.cluster_came = w.cluster_came | mask
    w.cluster_generation = select(bits_mask(mask), U32(cluster.generation), w.cluster_generation)
    cluster.arrived = cluster.arrived + popcount(mask)
    complete_if_all(cluster)


@native
def cluster_wait(w: ptr_to(Warp), mask: u32, here: i32, next: i32, site: u32) -> i32:
    """barrier.cluster.wait, at the start of block `here`, which runs again when the barrier is complete."""
    cluster = w.cta.cluster
    never = mask & ~w.cluster_came
    if never != 0:
        fault(w, FaultKind.CLUSTER_BARRIER, site, trailing_zeros(never), u64(0), u32(WAIT))
        return i32(RESCHEDULE)
    if (mask_bits(w.cluster_generation == cluster.generation) & mask) != 0:
        return wait_for_lanes(w, mask, here)
    w.cluster_came = w.cluster_came & ~mask
    return next


@native
def leave_cluster(w: ptr_to(Warp), mask: u32) -> None:
    """Lanes exit: nobody waits for them, and those that had arrived do not count any more."""
    cluster = w.cta.cluster
    counted = w.cluster_came & mask & mask_bits(w.cluster_generation == cluster.generation)
    cluster.arrived = cluster.arrived - popcount(counted)
    complete_if_all(cluster)
