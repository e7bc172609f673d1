"""Accesses of threads, as memory's hooks report them: each is checked against the shadow of its bytes (shadow.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmulator.codegen.lang import Native, native, unrolled
from mmulator.codegen.ops import (
    advance,
    all_lanes,
    bits_mask,
    cast_ptr,
    elements_at,
    funnel_left,
    funnel_right,
    gather,
    iota,
    leading_zeros,
    load,
    mask_bits,
    masked_load,
    masked_store,
    select,
    shuffle,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import boolean, ptr, ptr_to, u32, u64
from mmulator.native.hooks.events import PROXY_SHIFT, SCOPES, Access, Order, Proxy, by
from mmulator.native.hooks.events import SCOPE_SHIFT as ORDER_SCOPE
from mmulator.native.state import COPIES, LANES, Queue, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.sanitizer.order.clocks import agent_of, copies_agent_of, now
from mmulator.sanitizer.shadow.before import known_lanes, surely_known, together
from mmulator.sanitizer.shadow.judgement import settle_doubts
from mmulator.sanitizer.shadow.readers import joined, read_by_itself
from mmulator.sanitizer.shadow.records import (
    ATOMIC,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST_KEY,
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
    Record,
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
    area_of,
    cells_of,
    granule_of,
    is_quiet,
    is_watched,
    touch,
)

U32, U64 = u32.vec(32), u64.vec(32)
LATER = int(Access.LATER)
MADE = by(Access.WRITE, Proxy.MBARRIER)  # an mbarrier is made or ended: a generic write of its bytes
WITHIN = (1 << RANK_SHIFT) - 1
PATTERN_STRIDE = 179  # between a warp's patterns and the next one's


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
def rotated(lanes: Any, by: int) -> Any:
    """Macro: in each lane what is `by` lanes further."""
    return shuffle(lanes, None, [(n + by) % LANES for n in range(LANES)])


@native
def learn_pattern(p: ptr_to(Pattern), mask: u32, far: ptr_to(u32), bytes: u32, site: u32) -> None:
    places = load(U32, far)
    p.site = site + 1
    p.mask = mask
    p.bytes = bytes
    store(places, p.far)
    first = trailing_zeros(mask)
    if (mask_bits(places != (iota(U32) - first) * bytes) & mask) == 0:
        p.leaders = mask
        p.lanes = 1
        p.row = (32 - first - leading_zeros(mask)) * bytes
        store(U32(u32(1)), p.shapes)
        return
    p.row = 0
    store(U32(u32(1)), p.shapes)
    shared = u32(0)  # lanes whose address another lane has too
    for turn in unrolled(1, LANES // 2 + 1):
        alike = mask_bits(places == rotated(places, turn)) & mask & funnel_right(mask, mask, u32(turn))
        shared = shared | alike | funnel_left(alike, alike, u32(turn))
    leaders = mask & ~shared
    shape = u32(leaders != 0)
    alike = 1
    left = shared
    while left != 0:
        lane = trailing_zeros(left)
        same = mask_bits(places == far[lane]) & left
        left = left & ~same
        leaders = leaders | (1 << lane)
        p.shapes[lane] = same >> lane
        if shape == 0:
            shape = same >> lane
        if shape != same >> lane:
            alike = 0
    p.leaders = leaders
    p.lanes = shape * alike


@native
def each_place(a: ptr_to(Actor), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, since: u32) -> None:
    """Check and record the places of lanes, one after another."""
    places = load(U64, at)
    left = mask
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
    if ((a.flags | r.flags) & STEADY) != 0:
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


def flags_of(from_: Any, entries: Any) -> Any:
    """Macro: pointers to the flags of the records of entries."""
    return advance(elements_at(from_.field("records"), U64(entries >> LANE_BITS)), Record.offset["flags"])


def agreeing(flags: Any) -> Any:
    """Macro: of which accesses, by their flags, it is enough that another one is strong for all blocks."""
    return ((flags & (STRONG | STEADY)) == STRONG) & (scope_of(flags) >= SCOPES["gpu"]) & (kind_of(flags) < PROXY_FROM)


def scope_of(flags: Any) -> Any:
    """Macro: the scope of a strong access."""
    return (flags >> SCOPE_SHIFT) & SCOPE_MASK


@native
def cells_fine(a: ptr_to(Actor), cells: ptr_to(u64), leaders: u32) -> boolean:
    """Whether no place must be checked separately; if so, the cells of all places are changed."""
    of_leaders = bits_mask(leaders)
    found = masked_load(U64, cells, of_leaders, U64(u64(0)))
    each = stack(u64, 32)
    store(found, each)  # another worker may change the cells meanwhile
    lanes = iota(U32)
    last = U32(found)
    readers = U32(found >> 32)
    weak = U32(u32(0))
    left = leaders & mask_bits(last != 0)
    if (a.flags & (STRONG | STEADY)) == STRONG and scope_of(a.flags) >= SCOPES["gpu"]:
        left = left & ~mask_bits(agreeing(gather(U32, flags_of(a.store, last), bits_mask(left))))
    while left != 0:
        number = u32(each[trailing_zeros(left)]) >> LANE_BITS
        same = mask_bits((last >> LANE_BITS) == number) & left
        left = left & ~same
        r = a.store.records + number
        if (r.flags & STRONG) == 0:
            weak = select(bits_mask(same), U32(1), weak)
        if ((a.flags | r.flags) & STEADY) == 0 and surely_known(a, r, number):
            continue
        if not all_fine(a, number, u32((mask_bits((last & LANE_MASK) != lanes) & same) == 0)):
            return False
    left = leaders & mask_bits(readers != 0)
    of = readers & LANE_MASK
    keys = (readers & ~u32(LANE_MASK)) | ((lanes - of) & LANE_MASK)
    new = lanes | (a.record << LANE_BITS)
    if (a.flags & WRITE) != 0:
        more = u32(a.store.foreign == 0)
        while left != 0 and more != 0:  # in shared memory a list is fine whatever lanes it is relative to, or not even so
            list = u32(each[trailing_zeros(left)] >> 32) >> LANE_BITS
            same = mask_bits((readers >> LANE_BITS) == list) & left
            more = u32(list_fine(a, list, u32((mask_bits(of != lanes) & same) == 0)))
            left = left & ~(same * more)
        while left != 0:
            first = trailing_zeros(left)
            one = u32(each[first] >> 32)
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
        masked_store((U64(kept) << 32) | U64(new), cells, of_leaders)
        return True
    while left != 0:
        first = trailing_zeros(left)
        one = u32(each[first] >> 32)
        shift = (first - one) & LANE_MASK
        same = mask_bits(keys == ((one & ~u32(LANE_MASK)) | shift)) & left
        left = left & ~same
        both = joined(a, one >> LANE_BITS, shift)
        new = select(bits_mask(same), ((of + u32(both >> 32)) & LANE_MASK) | (u32(both) << LANE_BITS), new)
    masked_store((U64(new) << 32) | U64(last), cells, of_leaders)
    return True


@native
def all_at_once(a: ptr_to(Actor), p: ptr_to(Pattern), leaders: u32, at: ptr_to(u64), base: u64, bytes: u32) -> boolean:
    """Whether the access of leaders, and of the lanes with their addresses, could be checked and recorded at once; False if each
    place must be checked separately.
    """
    s = a.races
    cells = s.cells
    sheets = s.sheets
    ahead = u64(0)
    from_ = u64(0)
    end = u64(s.stride) * SHEET
    start = at[trailing_zeros(a.mask)] | base
    if a.store.foreign == 0:
        ahead = ((start >> RANK_SHIFT) & 0xFF) * u64(s.stride)
        from_ = (start & ~u64(WITHIN)) + SHARED_BASE
    else:
        area = area_of(s.launch, s, start, a.site)
        if u64(area) == 0:
            return False
        cells = area.cells
        sheets = area.sheets
        from_ = area.base
        end = area.start + area.size - area.base
    need = trailing_zeros(bytes | (1 << COARSEST))
    if need == 3:
        need = u32(2)
    place = start - from_
    if p.row != 0 and (place & (SHEET - 1)) + u64(p.row) <= SHEET and place < end and end - place >= u64(p.row):
        number = (place >> SHEET_BITS) + ahead
        granule = sheets[number] - 1
        if granule > need:
            granule = granule_of(cells, sheets, number, u32(place) & (SHEET - 1), bytes, a.store.foreign)
        if bytes >> granule == 1:
            cell = cells_of(number, granule) + ((place & (SHEET - 1)) >> u64(granule))
            return cells_fine(a, cells + (cell - u64(trailing_zeros(leaders))), leaders)
    places = (load(U64, at) | base) - from_
    if (mask_bits(places > end - u64(bytes)) & leaders) != 0:
        return False
    m = bits_mask(leaders)
    numbers = (places >> SHEET_BITS) + ahead
    modes = gather(U32, elements_at(sheets, numbers), m)
    rough = mask_bits((modes - 1) > need) & leaders
    if rough != 0:
        while rough != 0:
            lane = trailing_zeros(rough)
            number = numbers[lane]
            granule_of(cells, sheets, number, u32(places[lane]) & (SHEET - 1), bytes, a.store.foreign)
            rough = rough & ~mask_bits(numbers == number)
        modes = gather(U32, elements_at(sheets, numbers), m)
    mode = modes[trailing_zeros(leaders)]
    if (mode - 1) > need or (mask_bits(modes != mode) & leaders) != 0:
        return False
    granule = mode - 1
    within = (places & (SHEET - 1)) >> U64(granule)
    where = elements_at(cells, cells_of(numbers, granule) + within)
    count = bytes >> granule
    found = stack(u64, 32)
    for _ in range(count):
        store(gather(U64, where, m), found)
        if not cells_fine(a, found, leaders):
            return False
        left = leaders
        pointers = stack(ptr, 32)
        store(where, pointers)
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            one = cast_ptr(u64, pointers[lane])
            one[0] = found[lane]
        where = advance(where, 8)
    return True


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
    s = races_of(w.cta.cluster)
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
                if is_quiet(area, access & (WRITE | ATOMIC)):
                    return
    a = stack(Actor)
    since = thread_acts(w, s, mask, space - 1, access, site, a)
    if (mask_bits((addresses >> RANK_SHIFT) != (at[first] >> RANK_SHIFT)) & mask) == 0 and bytes <= 16:
        far = select(bits_mask(mask), U32(addresses) - u32(at[first]), U32(u32(0)))
        p = s.patterns + ((site + w.index * PATTERN_STRIDE) & s.pattern_mask)
        known = u32(p.site == site + 1 and p.mask == mask and p.bytes == bytes)
        if known != 0:
            known = u32(all_lanes(load(U32, p.far) == far))
        if known == 0:
            distances = stack(u32, 32)
            store(far, distances)
            learn_pattern(p, mask, distances, bytes, site)
        left = p.leaders
        while left != 0:  # once for all places that as many lanes share in the same way
            lane = trailing_zeros(left)
            shape = p.shapes[lane]
            alike = left
            if p.lanes == 0:
                alike = mask_bits(load(U32, p.shapes) == shape) & left
            as_lanes(a, lane, shape << lane, since)
            if a.record == 0 or not all_at_once(a, p, alike, at, base, bytes):
                break
            mask = mask & ~shared_by(alike, shape)
            left = left & ~alike
    each_place(a, mask, at, base, bytes, since)


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
def race_operand(w: ptr_to(Warp), at: u64, site: u32) -> None:
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
    "operand_read": race_operand,
    "lanes_exit": race_met, "warp_met": race_met, "barrier_arrived": race_arrived, "cluster_begins": begin_races,
}  # fmt: skip
