"""Stores to watched memory: an instrument that records them."""

from mmulator.codegen.lang import Instrument, native
from mmulator.codegen.ops import address, atomic_rmw, bits_of, cast_ptr
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.hooks.events import WRITE, Access, entry, reserve
from mmulator.native.memory.windows import peek
from mmulator.native.state import Cluster, Warp, WatchEntry

KIND = WRITE | int(Access.LATER)  # later writes are to shared memory, which is not watched


@native
def settle(w: ptr_to(Warp)) -> None:
    """Complete the recorded entries with the stored values: the stores have been done, and nothing after them."""
    log = w.cta.cluster.watch_log
    while log.open != log.count:
        e = cast_ptr(WatchEntry, log.entries) + log.open
        x = w.cta.launch.watches + e.watch
        peek(w, u32(0), x.start, x.end - x.start, address(e.value))
        log.open = log.open + 1


@native
def note(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32) -> None:
    """Record every watched element that a store of one lane hits."""
    launch = w.cta.launch
    for i in range(launch.watch_count):
        x = launch.watches + i
        if at < x.end and at + u64(bytes) > x.start:
            e = cast_ptr(WatchEntry, entry(w.cta.cluster.watch_log))
            e.order = atomic_rmw("add", address(launch.seen), u64(1))
            e.cta = w.cta.linear
            e.thread = w.index * 32 + lane
            e.site = site
            e.watch = i
            e.value = u64(0)


@native
def watch_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    settle(w)
    if (access & KIND) == WRITE:
        reserve(w.cta.cluster.watch_log, w.cta.launch.watch_count)
        note(w, lane, at, bytes, site)


@native
def watch_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    settle(w)
    if (access & KIND) == WRITE:
        reserve(w.cta.cluster.watch_log, w.cta.launch.watch_count * 32)
        for lane in bits_of(mask):
            note(w, lane, at[lane] | base, bytes, site)


@native
def settle_cluster(cluster: ptr_to(Cluster)) -> None:
    """Complete the recorded entries when a worker leaves a cluster."""
    settle(cast_ptr(Warp, cluster.warps))


WATCH = Instrument("watch", {"accessed": watch_lanes, "accessed_one": watch_one})
