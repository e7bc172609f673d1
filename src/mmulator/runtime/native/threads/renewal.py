"""Reset of a cluster's memory, as if nothing had run in it: shared memory, registers, the state of its CTAs and warps."""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, stack
from mmulator.base.codegen.types import Struct, i32, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.runtime.native.asynchrony.accounts import forget_mbarriers
from mmulator.runtime.native.asynchrony.transfers import no_transfers
from mmulator.runtime.native.state import KINDS, STACK_BYTES, Cluster, Cta, Queue, Warp
from mmulator.runtime.native.threads.cluster import first_cta

GOLDEN = 0x9E3779B1
I32, U32 = i32.vec(32), u32.vec(32)


def zero(where: Value, struct: Struct, first: str, end: str = "") -> None:
    """Macro: clear the fields of a struct from `first` to before `end`, or to its end."""
    at = struct.offset[first]
    fill_bytes(cast_ptr(u8, where) + at, 0, (struct.offset[end] if end else struct.size) - at)


@native
def renew(cluster: ptr_to(Cluster)) -> None:
    """Reset the memory of a cluster."""
    for i in range(cluster.span_count):
        span = cluster.spans + i
        fill_bytes(span.at, 0, span.bytes)
    launch = cluster.launch
    ctas = cast_ptr(Cta, cluster.ctas)
    for i in range(cluster.cta_count):
        cta = ctas + i
        zero(cta, Cta, "register_pool")
        cta.live_threads = launch.threads
    warps = cast_ptr(Warp, cluster.warps)
    entry = I32(launch.entry)
    for i in range(cluster.warp_count):
        w = warps + i
        zero(w, Warp, "lane_frame", "used")
        w.lane_pc = entry
        w.live = w.lanes
        w.registers = launch.registers
        if w.used != 0:
            zero(w, Warp, "used", "stack")
            w.stack = U32(STACK_BYTES)
            for n in range(len(KINDS)):
                zero(w.queues + n, Queue, "issued")


@native
def begin_cluster(cluster: ptr_to(Cluster)) -> None:
    """Reset the memory, choose the warp with the first turn, and compute the places of the cluster's CTAs in the grid, by rank
    (x fastest).
    """
    renew(cluster)
    cluster.rest = 0
    zero(cluster, Cluster, "next_warp", "hints")
    if cluster.account_count != 0:
        forget_mbarriers(cluster)
    no_transfers(cluster)
    if cluster.seeded != 0:
        warps = u64(cluster.warp_count)
        first = cluster.number % warps * (u64(GOLDEN) % warps) + u64(cluster.seed)
        cluster.next_warp = u32(first % warps)
    launch = cluster.launch
    c = launch.cluster
    ctas = cast_ptr(Cta, cluster.ctas)
    corner = stack(u32, 3)
    first_cta(launch, cluster.number, corner)
    for rank in range(cluster.cta_count):
        cta = ctas + rank
        cta.ctaid[0] = corner[0]
        cta.ctaid[1] = corner[1]
        cta.ctaid[2] = corner[2]
        if rank != 0:
            cta.ctaid[0] = corner[0] + rank % c[0]
            cta.ctaid[1] = corner[1] + rank // c[0] % c[1]
            cta.ctaid[2] = corner[2] + rank // (c[0] * c[1])
        cta.linear = cta.ctaid[0] + launch.nctaid[0] * (cta.ctaid[1] + launch.nctaid[1] * cta.ctaid[2])
    cluster.begun = 1
