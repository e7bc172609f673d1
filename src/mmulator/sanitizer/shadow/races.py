"""Accesses of threads, as memory's hooks report them: each is checked against the shadow of its bytes (shadow.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import (
    advance,
    all_lanes,
    bits_mask,
    cast_ptr,
    elements_at,
    gather,
    iota,
    load,
    mask_bits,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import boolean, ptr, ptr_to, u32, u64
from mmulator.native.hooks.events import PROXY_SHIFT, Access, Order, Proxy, by
from mmulator.native.hooks.events import SCOPE_SHIFT as ORDER_SCOPE
from mmulator.native.state import COPIES, FULL, Queue, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.sanitizer.order.clocks import agent_of, copies_agent_of, now
from mmulator.sanitizer.shadow.before import known_lanes, together
from mmulator.sanitizer.shadow.judgement import settle_doubts
from mmulator.sanitizer.shadow.readers import joined, read_by_itself
from mmulator.sanitizer.shadow.records import (
    ATOMIC,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST_KEY,
    PATTERNS,
    PER_LANE,
    PROXY_FROM,
    READ,
    SCOPE_MASK,
    SCOPE_SHIFT,
    STEADY,
    STRONG,
    WRITE,
    AccessKind,
    Actor,
    Pattern,
    Races,
    Store,
    begin_races,
    enough,
    kind_of,
    races_of,
    record_of,
)
from mmulator.sanitizer.shadow.shadow import (
    COARSEST,
    SHEET,
    SHEET_BITS,
    SHEET_CELLS,
    area_of,
    cells_from,
    is_watched,
    touch,
)

U32, U64 = u32.vec(32), u64.vec(32)
LATER = int(Access.LATER)
MADE = by(Access.WRITE, Proxy.MBARRIER)  # an mbarrier is made or ended: a generic write of its bytes
WITHIN = (1 << RANK_SHIFT) - 1


@native
def thread_acts(w: ptr_to(Warp), s: ptr_to(Races), mask: u32, global_: u32, access: u32, site: u32, a: ptr_to(Actor)) -> u32:
    """Prepare an actor for an access of a warp's lanes, or of their cp.async. Returns the clock of the issue for cp.async,
    otherwise 0.

    w, mask, site: the warp, lanes and instruction.
    s: the shadow.
    global_: whether it accesses global memory.
    access: read, write and flags.
    a: the actor.
    """
    cluster = w.cta.cluster
    a.w = w
    a.cluster = cluster
    a.races = s
    a.store = cast_ptr(Store, s) + global_
    a.site = site
    a.asynchronous = 0
    a.agent = agent_of(w, 0)
    a.clock = now(w)
    a.mask = mask
    a.read_site = 0
    a.fine = 0
    flags = (access & (READ | WRITE | ATOMIC)) | PER_LANE
    a.plain = u32((access & (WRITE | ATOMIC | LATER)) == WRITE)
    if (s.order & Order.STRONG) != 0:
        flags = flags | STRONG | (((s.order >> ORDER_SCOPE) & SCOPE_MASK) << SCOPE_SHIFT)
    since = u32(0)
    if (access & LATER) != 0:
        flags = flags | (int(AccessKind.COPY) << KIND_SHIFT)
        since = a.clock
        a.agent = copies_agent_of(w, 0)
        a.clock = u32((cast_ptr(Queue, w.queues) + COPIES.queue).issued) + 1
    if global_ == 0:
        enough(s, w)
    else:
        flags = flags | s.launch.steady[site]
    a.flags = flags
    return since


@native
def as_lanes(a: ptr_to(Actor), lane: u32, lanes: u32, since: u32) -> None:
    """Set the actor to lanes that access the same bytes; `lane` is the first of them."""
    a.lane = lane
    a.lanes = lanes
    a.shape = lanes >> lane
    a.record = record_of(a, a.shape, since)
    a.entry = (a.record << LANE_BITS) | lane
    if a.record == 0:
        a.entry = 0


# which lanes have the same address ------------------------------------------------------------------------------------
@native
def learn_pattern(p: ptr_to(Pattern), mask: u32, far: ptr_to(u32), bytes: u32, site: u32) -> None:
    places = load(U32, far)
    p.site = site + 1
    p.mask = mask
    p.bytes = bytes
    store(places, p.far)
    leaders = u32(0)
    shape = u32(0)
    alike = u32(1)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        same = mask_bits(places == far[lane]) & left
        left = left & ~same
        leaders = leaders | (1 << lane)
        if shape == 0:
            shape = same >> lane
        if shape != same >> lane:
            alike = 0
    p.leaders = leaders
    p.lanes = shape * alike
    p.row = u32(mask == FULL and all_lanes(places == iota(U32) * bytes))


@native
def each_place(a: ptr_to(Actor), at: ptr_to(u64), base: u64, bytes: u32, since: u32) -> None:
    """Check and record one place after another."""
    places = load(U64, at)
    left = a.mask
    while left != 0:
        lane = trailing_zeros(left)
        same = mask_bits(places == at[lane]) & left
        left = left & ~same
        as_lanes(a, lane, same, since)
        touch(a, at[lane] | base, u64(bytes))


# all lanes at once ----------------------------------------------------------------------------------------------------
@native
def all_fine(a: ptr_to(Actor), number: u32, own: u32) -> boolean:
    """Whether the accesses of all lanes of a record happen before those of all lanes of the actor, or are compatible. own:
    whether each lane only meets its own access.
    """
    if number == a.record:
        return True
    r = a.store.records + number
    if kind_of(r.flags) >= PROXY_FROM or ((a.flags | r.flags) & STEADY) != 0:
        return False
    if own != 0 and r.agent == a.agent and r.lanes == 1 and a.shape == 1 and (a.flags >> KIND_SHIFT) == 0:
        if a.store.foreign == 0 or r.cluster == u32(a.cluster.number):
            return True
    if together(a, r) != 0:
        return True
    return (r.all & ~known_lanes(a, r, number)) == 0


@native
def list_fine(a: ptr_to(Actor), list: u32, own: u32) -> boolean:
    """Whether all readers of a list happen before the actor. own: 1 if a reader may be the lane itself."""
    if list < LIST_KEY:
        return all_fine(a, list, own)
    left = list & ~u32(LIST_KEY)
    while left != 0:
        node = a.store.nodes + left
        if not all_fine(a, node.entry >> LANE_BITS, own & u32((node.entry & LANE_MASK) == 0)):
            return False
        left = node.next
    return True


@native
def cells_fine(a: ptr_to(Actor), cells: ptr_to(u64), leaders: u32, out: ptr_to(u64)) -> boolean:
    """Compute the cells of all places after the access. False if some place must be checked separately."""
    found = load(U64, cells)
    lanes = iota(U32)
    last = U32(found)
    readers = U32(found >> 32)
    weak = U32(u32(0))
    left = leaders & mask_bits(last != 0)
    while left != 0:
        number = u32(cells[trailing_zeros(left)]) >> LANE_BITS
        same = mask_bits((last >> LANE_BITS) == number) & left
        left = left & ~same
        if ((a.store.records + number).flags & STRONG) == 0:
            weak = select(bits_mask(same), U32(1), weak)
        if not all_fine(a, number, u32((mask_bits((last & LANE_MASK) != lanes) & same) == 0)):
            return False
    left = leaders & mask_bits(readers != 0)
    of = readers & LANE_MASK
    keys = (readers & ~u32(LANE_MASK)) | ((lanes - of) & LANE_MASK)
    new = lanes | (a.record << LANE_BITS)
    if (a.flags & WRITE) != 0:
        while left != 0:
            first = trailing_zeros(left)
            one = u32(cells[first] >> 32)
            shift = (first - one) & LANE_MASK
            same = mask_bits(keys == ((one & ~u32(LANE_MASK)) | shift)) & left
            left = left & ~same
            if not list_fine(a, one >> LANE_BITS, u32(shift == 0)):
                return False
            if a.store.foreign != 0:
                a.lane = first
                site = read_by_itself(a, one)
                if site != 0:
                    number = record_of(a, a.shape, site)
                    if number != 0:
                        new = select(bits_mask(same), lanes | (number << LANE_BITS), new)
        kept = U32(u32(0))
        if (a.flags & STRONG) != 0:
            kept = select(readers != 0, readers, select(weak != 0, last, kept))
        store((U64(kept) << 32) | U64(new), out)
        return True
    while left != 0:
        first = trailing_zeros(left)
        one = u32(cells[first] >> 32)
        shift = (first - one) & LANE_MASK
        same = mask_bits(keys == ((one & ~u32(LANE_MASK)) | shift)) & left
        left = left & ~same
        both = joined(a, one >> LANE_BITS, shift)
        new = select(bits_mask(same), ((of + u32(both >> 32)) & LANE_MASK) | (u32(both) << LANE_BITS), new)
    store((U64(new) << 32) | U64(last), out)
    return True


@native
def all_at_once(a: ptr_to(Actor), p: ptr_to(Pattern), at: ptr_to(u64), base: u64, bytes: u32) -> boolean:
    """Whether the lanes' access could be checked and recorded at once; False if each place must be checked separately."""
    s = a.races
    first = trailing_zeros(a.mask)
    cells = s.cells
    sheets = s.sheets
    from_ = u64(0)
    end = u64(s.sheet_count) * SHEET
    start = at[first] | base
    if a.store.foreign == 0:
        rank = u32((start >> RANK_SHIFT) & 0xFF)
        from_ = (start & ~u64(WITHIN)) + SHARED_BASE
        cells = cells + u64(rank * s.stride) * SHEET_CELLS
        sheets = sheets + rank * s.stride
        end = u64(s.stride) * SHEET
    else:
        area = area_of(s.launch, s, start, a.site)
        if u64(area) == 0:
            return False
        cells = area.cells
        sheets = area.sheets
        from_ = area.base
        end = area.start + area.size - area.base
    places = (load(U64, at) | base) - from_
    if (mask_bits(places > end - u64(bytes)) & p.leaders) != 0:
        return False
    m = bits_mask(p.leaders)
    numbers = places >> SHEET_BITS
    modes = gather(U32, elements_at(sheets, numbers), m)
    mode = sheets[(start - from_) >> SHEET_BITS]
    need = trailing_zeros(bytes | (1 << COARSEST))
    if need == 3:
        need = u32(2)
    if mode == 0 or (mode - 1) > need or (mask_bits(modes != mode) & p.leaders) != 0:
        return False
    granule = mode - 1
    within = (places & (SHEET - 1)) >> U64(granule)
    where = elements_at(cells, numbers * SHEET_CELLS + within + cells_from(granule))
    count = bytes >> granule
    found = stack(u64, 32)
    made = stack(u64, 32)
    for _ in range(count):
        store(gather(U64, where, m), found)
        if not cells_fine(a, found, p.leaders, made):
            return False
        if p.row != 0 and count == 1 and ((u32(start - from_) & (SHEET - 1)) + (bytes << LANE_BITS)) <= SHEET:
            place = u32(start - from_) & (SHEET - 1)
            number = (start - from_) >> SHEET_BITS
            store(load(U64, made), cells + (number * SHEET_CELLS + cells_from(granule) + u64(place >> granule)))
        else:
            left = p.leaders
            pointers = stack(ptr, 32)
            store(where, pointers)
            while left != 0:
                lane = trailing_zeros(left)
                left = left & (left - 1)
                one = cast_ptr(u64, pointers[lane])
                one[0] = made[lane]
            where = advance(where, 8)
    return True


@native
def race_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if mask == 0 or ((access >> PROXY_SHIFT) != 0 and access != MADE):
        return
    first = trailing_zeros(mask)
    space = is_watched(at[first] | base)
    if space == 0:
        return
    a = stack(Actor)
    since = thread_acts(w, s, mask, space - 1, access, site, a)
    addresses = load(U64, at)
    if (mask_bits((addresses >> RANK_SHIFT) != (at[first] >> RANK_SHIFT)) & mask) == 0 and bytes <= 16:
        far = select(bits_mask(mask), U32(addresses) - u32(at[first]), U32(u32(0)))
        p = s.patterns + (site & (PATTERNS - 1))
        known = u32(p.site == site + 1 and p.mask == mask and p.bytes == bytes)
        if known != 0:
            known = u32(all_lanes(load(U32, p.far) == far))
        if known == 0:
            distances = stack(u32, 32)
            store(far, distances)
            learn_pattern(p, mask, distances, bytes, site)
        if p.lanes != 0:
            as_lanes(a, first, p.lanes << first, since)
            if a.record != 0:
                if all_at_once(a, p, at, base, bytes):
                    return
    each_place(a, at, base, bytes, since)


@native
def race_lane(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)
    if (access >> PROXY_SHIFT) != 0 and access != MADE:
        return
    space = is_watched(at)
    if space == 0:
        return
    a = stack(Actor)
    one = u32(1)
    as_lanes(a, lane, one << lane, thread_acts(w, s, one << lane, space - 1, access, site, a))
    touch(a, at, u64(bytes))


@native
def race_ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    """Set whether the following accesses are strong or weak."""
    s = races_of(w.cta.cluster)
    s.order = order
    if done != 0:
        s.order = 0


@native
def race_completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_met(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


@native
def race_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    s = races_of(w.cta.cluster)
    if s.doubt_count != 0:
        settle_doubts(s)


HOOKS: Mapping[str, Native] = {
    "accessed": race_lanes, "accessed_one": race_lane, "ordered": race_ordered, "completed": race_completed,
    "lanes_exit": race_met, "warp_met": race_met, "barrier_arrived": race_arrived, "cluster_begins": begin_races,
}  # fmt: skip
