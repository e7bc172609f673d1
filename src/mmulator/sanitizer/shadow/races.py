"""Accesses of threads, as memory's hooks report them: each is checked against the shadow of its bytes (shadow.py).

Lanes of one store or cp.async that write different bytes to one place are found here, too: the result is not specified. Lanes
that store one sum of a butterfly of shuffles may differ in its rounding (ptx/program/butterflies.py).
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import (
    all_lanes,
    bits_mask,
    bits_of,
    cast_ptr,
    copy_bytes,
    iota,
    load,
    mask_bits,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.base.rules.races import LANES_DIFFER, MATRIX_ROWS
from mmulator.ptx.program.addresses import RANK_SHIFT
from mmulator.runtime.native.asynchrony.pending import entry, queue
from mmulator.runtime.native.hooks.events import PROXY_SHIFT, SUM, Access, Order, Proxy, by
from mmulator.runtime.native.hooks.events import SCOPE_SHIFT as ORDER_SCOPE
from mmulator.runtime.native.hooks.events import SIZE_SHIFT as ORDER_SIZE
from mmulator.runtime.native.memory.rows import CHUNK
from mmulator.runtime.native.memory.windows import SHARED
from mmulator.runtime.native.state import COPIES, LANES, Queue, Warp
from mmulator.sanitizer.order.clocks import agent_of, copies_agent_of, now
from mmulator.sanitizer.shadow import records as rec
from mmulator.sanitizer.shadow.at_once import LONGEST, all_at_once, learn_pattern, pattern_of
from mmulator.sanitizer.shadow.judgement import settle_doubts, value_moved
from mmulator.sanitizer.shadow.shadow import area_of, is_quiet, is_watched, touch
from mmulator.sanitizer.state import Doubt, doubt, find, say

U32, U64 = u32.vec(32), u64.vec(32)
LATER = int(Access.LATER)
MADE = by(Access.WRITE, Proxy.MBARRIER)  # an mbarrier is made or ended: a generic write of its bytes


@native
def thread_acts(
    w: ptr_to(Warp), s: ptr_to(rec.Races), mask: u32, at: u64, global_: u32, access: u32, site: u32, a: ptr_to(rec.Actor)
) -> u32:
    """Prepare an actor for an access of a warp's lanes, or of their cp.async. Returns the clock of the issue for cp.async,
    otherwise 0.

    w, mask, site: the warp, lanes and instruction.
    s: the shadow.
    at: the address of the first lane.
    global_: whether it accesses global memory.
    access: read, write and flags.
    a: the actor.
    """
    cluster = w.cta.cluster
    a.w = w
    a.cluster = cluster
    a.races = s
    a.store = cast_ptr(rec.Store, s) + global_
    a.site = site
    a.asynchronous = 0
    a.agent = agent_of(w, 0)
    a.clock = now(w)
    a.mask = mask
    a.read_site = 0
    a.fine = 0
    flags = (access & (rec.READ | rec.WRITE | rec.ATOMIC)) | rec.PER_LANE | (s.launch.flags[site] & rec.WHOLE)
    a.plain = u32((access & (rec.WRITE | rec.ATOMIC | LATER)) == rec.WRITE)
    if (s.order & Order.STRONG) != 0:
        flags = flags | rec.STRONG | (((s.order >> ORDER_SCOPE) & rec.SCOPE_MASK) << rec.SCOPE_SHIFT)
        flags = flags | (((s.order >> ORDER_SIZE) & rec.SIZE_MASK) << rec.SIZE_SHIFT)
        flags = flags | (u32((s.order & SUM) != 0) * rec.UNASKED)
    since = u32(0)
    if (access & LATER) != 0:
        flags = flags | (int(rec.AccessKind.COPY) << rec.KIND_SHIFT)
        since = a.clock
        a.agent = copies_agent_of(w, 0)
        a.clock = u32((cast_ptr(Queue, w.queues) + COPIES.queue).issued) + 1
    if global_ == 0:
        rec.enough(s, w)
        if u32((at >> RANK_SHIFT) & 0xFF) != w.cta.rank:
            flags = flags | rec.BEYOND
    else:
        flags = flags | s.launch.flags[site] | rec.BEYOND
    a.flags = flags
    return since


@native
def as_lanes(a: ptr_to(rec.Actor), lane: u32, lanes: u32, since: u32) -> None:
    """Set the actor to lanes that access the same bytes; `lane` is the first of them."""
    a.lane = lane
    a.lanes = lanes
    a.shape = lanes >> lane
    a.record = rec.record_of(a, a.shape, since)
    if (a.flags & rec.STRONG) != 0 and (a.flags & (rec.WRITE | rec.ATOMIC)) != 0 and (lanes & (lanes - 1)) != 0:
        rec.meet(a, a.store.records + a.record)
    a.entry = (a.record << rec.LANE_BITS) | lane
    if a.record == 0:
        a.entry = 0


@native
def each_place(a: ptr_to(rec.Actor), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, since: u32) -> None:
    """Check and record the places of lanes, one after another."""
    places = load(U64, at)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        same = mask_bits(places == at[lane]) & left
        left = left & ~same
        as_lanes(a, lane, same, since)
        touch(a, at[lane] | base, u64(bytes))


@native
def atomics_at_once(a: ptr_to(rec.Actor), p: ptr_to(rec.Pattern), at: ptr_to(u64), base: u64, bytes: u32, since: u32) -> boolean:
    """Whether an atomic operation at places that different numbers of lanes share could be checked and recorded at once."""
    entries = stack(u32, 32)
    records = U32(u32(0))
    left = p.leaders
    while left != 0:
        lane = trailing_zeros(left)
        shape = p.shapes[lane]
        alike = mask_bits(load(U32, p.shapes) == shape) & left
        left = left & ~alike
        as_lanes(a, lane, shape << lane, since)
        if a.record == 0:
            return False
        records = select(bits_mask(alike), U32(a.record), records)
    store(iota(U32) | (records << rec.LANE_BITS), entries)
    a.shape = 0
    return all_at_once(a, p, p.leaders, entries, at, base, bytes)


@native(inline=True)
def shared_by(leaders: u32, shape: u32) -> u32:
    """The lanes with the leaders' addresses: for each leader `shape`, relative to it."""
    lanes = u32(0)
    while shape != 0:
        lanes = lanes | (leaders << trailing_zeros(shape))
        shape = shape & (shape - 1)
    return lanes


@native
def race_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    s = rec.races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if mask == 0 or ((access >> PROXY_SHIFT) != 0 and access != MADE):
        return
    first = trailing_zeros(mask)
    space = is_watched(at[first] | base)
    if space == 0:
        return
    addresses = load(U64, at)
    if space == 2:
        area = area_of(s.launch, s, at[first] | base, site)
        if u64(area) != 0:
            if (mask_bits(((addresses | base) - area.start) >= area.size) & mask) == 0:
                if is_quiet(area, access & (rec.WRITE | rec.ATOMIC)):
                    return
    a = stack(rec.Actor)
    since = thread_acts(w, s, mask, at[first] | base, space - 1, access, site, a)
    if (mask_bits((addresses >> RANK_SHIFT) != (at[first] >> RANK_SHIFT)) & mask) == 0 and bytes <= LONGEST:
        far = select(bits_mask(mask), U32(addresses) - u32(at[first]), U32(u32(0)))
        p = pattern_of(s, w, site)
        known = u32(p.site == site + 1 and p.mask == mask and p.bytes == bytes)
        if known != 0:
            known = u32(all_lanes(load(U32, p.far) == far))
        if known == 0:
            distances = stack(u32, 32)
            store(far, distances)
            learn_pattern(p, mask, distances, bytes, site)
        if p.lanes == 0 and (access & rec.ATOMIC) != 0:
            if atomics_at_once(a, p, at, base, bytes, since):
                return
        entries = stack(u32, 32)
        left = p.leaders
        while left != 0:  # once for all places that as many lanes share in the same way
            lane = trailing_zeros(left)
            shape = p.shapes[lane]
            alike = left
            if p.lanes == 0:
                alike = mask_bits(load(U32, p.shapes) == shape) & left
            as_lanes(a, lane, shape << lane, since)
            store(iota(U32) | (a.record << rec.LANE_BITS), entries)
            if a.record == 0 or not all_at_once(a, p, alike, entries, at, base, bytes):
                break
            mask = mask & ~shared_by(alike, shape)
            left = left & ~alike
    each_place(a, mask, at, base, bytes, since)


@native
def race_lane(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    s = rec.races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if (access >> PROXY_SHIFT) != 0 and access != MADE:
        return
    space = is_watched(at)
    if space == 0:
        return
    a = stack(rec.Actor)
    one = u32(1)
    as_lanes(a, lane, one << lane, thread_acts(w, s, one << lane, at, space - 1, access, site, a))
    touch(a, at, u64(bytes))


@native
def race_ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    """Set whether the following accesses are strong or weak."""
    s = rec.races_of(w.cta.cluster)
    s.order = order
    if done != 0:
        s.order = 0


@native
def race_completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    s = rec.races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_met(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    s = rec.races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    s = rec.races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


HOOKS: Mapping[str, Native] = {
    "accessed": race_lanes, "accessed_one": race_lane, "ordered": race_ordered, "completed": race_completed,
    "lanes_exit": race_met, "warp_met": race_met, "barrier_arrived": race_arrived, "cluster_begins": rec.begin_races,
    "value_moves": value_moved,
}  # fmt: skip


# lanes of one store ---------------------------------------------------------------------------------------------------


@native(inline=True)
def are_apart(w: ptr_to(Warp), mask: u32, bytes: u32, site: u32) -> boolean:
    """Whether lanes are known to have an address of their own each."""
    s = rec.races_of(w.cta.cluster)
    if u64(s) == 0:
        return False
    p = pattern_of(s, w, site)
    return (p.site == site + 1) & (p.mask == mask) & (p.bytes == bytes) & (p.leaders == mask)


@native
def judge_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, image: ptr_to(u8), rows: u32, site: u32
) -> None:
    if not are_apart(w, mask, bytes, site):
        compare_lanes(w, mask, at, base, bytes, image, rows, site)


@native
def compare_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, image: ptr_to(u8), rows: u32, site: u32
) -> None:
    """Compare what lanes of one instruction write to one place; parameters as those of the hook."""
    s = rec.races_of(w.cta.cluster)
    if w.cta.fault != 0 or mask == 0 or is_watched(at[trailing_zeros(mask)] | base) == 0:
        return
    alike = u32(0)
    if u64(s) != 0 and rows == 0:
        alike = s.launch.sums[site]
    places = load(U64, at)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        same = left & mask_bits(places == at[lane])
        left = left & ~same
        for other in bits_of(same & same - 1):
            differ = u32(0)
            for n in range(bytes):
                differ = differ | u32(image[lane * bytes + n] ^ image[other * bytes + n])
            if differ != 0 and ((lane ^ other) & ~alike) != 0:
                entry = find(w, select(rows != 0, MATRIX_ROWS, u32(LANES_DIFFER)), site, same, at[lane] | base, bytes)
                say(entry, u64(lane) | (u64(other) << 32), 0, 0, 0)
                return
            if differ == 0:
                doubt(w, Doubt.EQUAL_LANES, site, same, at[lane] | base, bytes, 0, 0, 0, 0)
            else:
                doubt(w, Doubt.SUM_OF_LANES, site, same, at[lane] | base, bytes, 0, 0, 0, 0)


@native
def judge_copies(
    w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Compare what the lanes of a cp.async bring, as it is now; the copy itself comes later."""
    if w.cta.fault != 0 or mask == 0:
        return
    places = load(U64, target)  # the pattern of this site may be that of the sources
    shared = u32(0)
    left = mask
    while left != 0:
        same = left & mask_bits(places == target[trailing_zeros(left)])
        left = left & ~same
        shared = shared | (same & (same - 1))
    if shared == 0:
        return
    e = entry(w, COPIES, queue(w, COPIES).issued - 1)
    image = cast_ptr(u8, stack(u8.vec(CHUNK), LANES))
    for lane in bits_of(mask):
        store(u8.vec(CHUNK)(0), image + lane * bytes, 0, 1)
        copy_bytes(image + lane * bytes, e.source[lane], u32(e.valid[lane]))
    compare_lanes(w, mask, target, u64(SHARED), bytes, image, 0, site)


LANE_HOOKS = {"lanes_stored": judge_lanes, "lanes_moved": judge_copies}
