"""The bytes that a launch reads and writes: an instrument that sets a bit for each.

Such a launch runs on one thread of the host, so bits of a word are set without atomic operations.
"""

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import address, any_lane, atomic_rmw, bits_mask, bits_of, cast_ptr, iota, load, trailing_zeros
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.runtime.native.hooks.events import READ, WRITE, Access, entry, reserve
from mmulator.runtime.native.memory.windows import peek
from mmulator.runtime.native.state import Cluster, Warp, WatchEntry

LANE, U64 = u32.vec(32), u64.vec(32)
ALL = 0xFFFFFFFFFFFFFFFF


@native
def set_bits(words: ptr_to(u64), begin: u64, count: u64) -> None:
    """Set bits from `begin` on; at least one."""
    end = begin + count - 1
    first = begin >> 6
    last = end >> 6
    low = u64(ALL) << (begin & 63)
    high = u64(ALL) >> (63 - (end & 63))
    if first == last:
        words[first] = words[first] | (low & high)
    else:
        words[first] = words[first] | low
        at = first + 1
        while at < last:
            words[at] = u64(ALL)
            at = at + 1
        words[last] = words[last] | high


@native
def touch_bytes(w: ptr_to(Warp), at: u64, bytes: u64, access: u32) -> None:
    """Record contiguous bytes from a generic address on."""
    launch = w.cta.launch
    slot = at >> SLOT_SHIFT
    if slot < launch.touched_slots and bytes != 0:
        row = launch.touched + slot
        if u64(row.read) != 0:
            begin = at - row.start + row.first
            if (access & READ) != 0:
                set_bits(row.read, begin, bytes)
            if (access & WRITE) != 0:
                set_bits(row.written, begin, bytes)


@native
def touch_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    touch_bytes(w, at, u64(bytes), access)


@native
def touch_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    if base == 0 and mask != 0:  # shared memory, parameters and the like have theirs there
        lane = trailing_zeros(mask)
        first = at[lane]
        a = load(U64, at)
        live = bits_mask(mask)
        ahead = U64(iota(LANE)) - u64(lane)
        run = mask >> lane
        if (run & (run + 1)) == 0 and any_lane((a != ahead * u64(bytes) + first) & live) == 0:
            count = trailing_zeros(~u64(run))
            touch_bytes(w, first, count * u64(bytes), access)
        elif any_lane((a != first) & live) == 0:
            touch_bytes(w, first, u64(bytes), access)
        else:
            for lane in bits_of(mask):
                touch_bytes(w, at[lane], u64(bytes), access)


TOUCHED = Instrument("touched", {"accessed": touch_lanes, "accessed_one": touch_one})


# watched memory ------------------------------------------------------------------------------------------------------
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
