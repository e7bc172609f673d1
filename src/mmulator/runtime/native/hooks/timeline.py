"""Times of what happens in a launch, as entries of a log: the instrument of `trace=` (observation/record/trace.py).

Time is counted in steps: PTX instructions of the warps of a cluster, as blocks of code begin.
"""

from enum import IntEnum

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import cast_ptr, null, trailing_zeros
from mmulator.base.codegen.types import Struct, i32, ptr, ptr_to, u8, u32, u64
from mmulator.runtime.native.asynchrony.pending import queue
from mmulator.runtime.native.hooks.events import entry, reserve
from mmulator.runtime.native.state import COPIES, WGMMA, Cluster, Cta, Log, Transfer, Warp

NOBODY = 0xFFFFFFFF  # in place of a warp


class Happened(IntEnum):
    """The kind of an entry, and its `value`."""

    RUN = 0  # a warp has its turn
    RESUME = 1  # lanes that waited begin a block; the block
    WAIT = 2  # lanes wait at the start of a block; the block
    SLEEP = 3  # these lanes sleep at an mbarrier; its address on the host
    ARRIVE = 4  # at an mbarrier; its address on the host
    OVER = 5  # the phase of an mbarrier; its address. site: 1 + the number of the transfer that completed it, or 0
    BARRIER = 6  # lanes arrive at bar; number, and from bit 32 on the operation
    BARRIER_OVER = 7
    CLUSTER = 8  # lanes arrive at barrier.cluster
    CLUSTER_OVER = 9
    ISSUE = 10  # a bulk operation; its number
    DONE = 11
    COPIES = 12  # a group of cp.async is closed; number of copies so far
    COPIES_DONE = 13  # number of copies that are complete
    WGMMA = 14
    WGMMA_DONE = 15


TimelineEntry = Struct("TimelineEntry", [
    ("time", u64), ("value", u64), ("cluster", u64), ("order", u32), ("resident", u32), ("kind", u32), ("cta", u32),
    ("warp", u32), ("mask", u32), ("site", u32),
])  # fmt: skip

WARPS = 512  # of a cluster, at most
# Of a resident cluster. left: entries that it may still write. clusters, most: clusters that are recorded, entries of each.
# running: warp of the last entry RUN. mover: 1 + number of the transfer that moves. waiting: for each warp the lanes that wait.
Timeline = Struct("Timeline", [
    ("log", ptr_to(Log)), ("time", u64), ("left", u32), ("most", u32), ("clusters", u64), ("resident", u32), ("mover", u32),
    ("running", ptr), ("waiting", u32, WARPS),
])  # fmt: skip


@native
def write_event(cluster: ptr_to(Cluster), time: u64, kind: u32, cta: u32, warp: u32, mask: u32, site: u32, value: u64) -> None:
    t = cast_ptr(Timeline, cluster.timeline)
    if t.left != 0:
        reserve(t.log, 1)
        e = cast_ptr(TimelineEntry, entry(t.log))
        e.time = time
        e.value = value
        e.cluster = cluster.number
        e.order = t.most - t.left
        e.resident = t.resident
        e.kind = kind
        e.cta = cta
        e.warp = warp
        e.mask = mask
        e.site = site
        t.left = t.left - 1


@native
def write_now(w: ptr_to(Warp), kind: u32, mask: u32, site: u32, value: u64) -> None:
    """An entry of a warp, now."""
    cluster = w.cta.cluster
    write_event(cluster, cast_ptr(Timeline, cluster.timeline).time, kind, w.cta.linear, w.index, mask, site, value)


@native
def place_in_cluster(w: ptr_to(Warp)) -> u32:
    """The number of a warp in its cluster."""
    return w.cta.rank * w.cta.launch.warps + w.index


@native
def lanes_wait(w: ptr_to(Warp), mask: u32) -> None:
    t = cast_ptr(Timeline, w.cta.cluster.timeline)
    place = place_in_cluster(w)
    t.waiting[place] = t.waiting[place] | mask


@native
def note_cluster(cluster: ptr_to(Cluster)) -> None:
    t = cast_ptr(Timeline, cluster.timeline)
    t.time = 0
    t.mover = 0
    t.running = null(u8)
    t.left = 0
    if cluster.number < t.clusters:
        t.left = t.most
    for i in range(u32(WARPS)):
        t.waiting[i] = 0


@native
def note_block(w: ptr_to(Warp), mask: u32, block: i32, size: u32) -> None:
    t = cast_ptr(Timeline, w.cta.cluster.timeline)
    if t.left != 0:
        if u64(t.running) != u64(w):
            t.running = cast_ptr(u8, w)
            write_now(w, u32(Happened.RUN), mask, 0, 0)
        t.time = t.time + u64(size)
        place = place_in_cluster(w)
        waited = t.waiting[place] & mask
        if waited != 0:
            t.waiting[place] = t.waiting[place] & ~mask
            write_event(
                w.cta.cluster, t.time - u64(size), u32(Happened.RESUME), w.cta.linear, w.index, waited, 0, u64(u32(block))
            )


@native
def note_again(w: ptr_to(Warp), mask: u32, block: i32, left: u32) -> None:
    write_now(w, u32(Happened.WAIT), left, 0, u64(u32(block)))
    lanes_wait(w, left)


@native
def note_slept(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    write_now(w, u32(Happened.SLEEP), mask, site, u64(host[trailing_zeros(mask)]))


@native
def note_arrived(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    cast_ptr(Timeline, w.cta.cluster.timeline).mover = 0
    write_now(w, u32(Happened.ARRIVE), mask, site, barrier)


@native
def note_over(cluster: ptr_to(Cluster), barrier: u64) -> None:
    t = cast_ptr(Timeline, cluster.timeline)
    write_event(cluster, t.time, u32(Happened.OVER), 0, u32(NOBODY), 0, t.mover, barrier)


@native
def note_barrier(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    write_now(w, u32(Happened.BARRIER), mask, site, u64(id) | (u64(op) << 32))
    if op != 1:
        lanes_wait(w, mask)


@native
def note_barrier_over(cta: ptr_to(Cta), id: u32) -> None:
    t = cast_ptr(Timeline, cta.cluster.timeline)
    write_event(cta.cluster, t.time, u32(Happened.BARRIER_OVER), cta.linear, u32(NOBODY), 0, 0, u64(id))


@native
def note_cluster_arrived(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    write_now(w, u32(Happened.CLUSTER), mask, site, 0)


@native
def note_cluster_over(cluster: ptr_to(Cluster)) -> None:
    t = cast_ptr(Timeline, cluster.timeline)
    write_event(cluster, t.time, u32(Happened.CLUSTER_OVER), 0, u32(NOBODY), 0, 0, 0)


@native
def note_issued(t: ptr_to(Transfer)) -> None:
    w = cast_ptr(Warp, t.warp)
    write_now(w, u32(Happened.ISSUE), u32(1) << t.lane, t.site, t.number)
    if t.units == 0:
        write_now(w, u32(Happened.DONE), u32(1) << t.lane, t.site, t.number)


@native
def note_moves(t: ptr_to(Transfer), moves: u32) -> None:
    cast_ptr(Timeline, cast_ptr(Warp, t.warp).cta.cluster.timeline).mover = u32(t.number) + 1


@native
def note_done(t: ptr_to(Transfer)) -> None:
    write_now(cast_ptr(Warp, t.warp), u32(Happened.DONE), u32(1) << t.lane, t.site, t.number)


@native
def note_copies(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    write_now(w, u32(Happened.COPIES), mask, site, queue(w, COPIES).issued)


@native
def note_copies_done(w: ptr_to(Warp), mask: u32, end: u64) -> None:
    write_now(w, u32(Happened.COPIES_DONE), mask, 0, end)


@native
def note_wgmma(w: ptr_to(Warp), site: u32) -> None:
    write_now(w, u32(Happened.WGMMA), 0, site, queue(w, WGMMA).issued)


@native
def note_wgmma_done(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    write_now(w, u32(Happened.WGMMA_DONE), mask, site, end)


TIMELINE = Instrument("timeline", {
    "cluster_begins": note_cluster, "block_begins": note_block, "block_again": note_again, "mbarrier_slept": note_slept,
    "mbarrier_arrived": note_arrived, "mbarrier_over": note_over, "barrier_arrived": note_barrier,
    "barrier_over": note_barrier_over, "cluster_arrived": note_cluster_arrived, "cluster_over": note_cluster_over,
    "transfer_issued": note_issued, "transfer_moves": note_moves, "transfer_over": note_done, "group_closed": note_copies,
    "copies_waited": note_copies_done, "wgmma_committed": note_wgmma, "wgmma_waited": note_wgmma_done,
})  # fmt: skip
