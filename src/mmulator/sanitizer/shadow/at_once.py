"""Accesses of a warp whose lanes are checked and recorded together (races.py): which lanes have the same address, in patterns
that are cached by instruction, and the cells of all addresses as vectors.
"""

from typing import Any

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import (
    advance,
    bits_mask,
    bits_of,
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
from mmulator.base.codegen.types import boolean, ptr, ptr_to, u32, u64
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.hooks.events import SCOPES
from mmulator.runtime.native.state import FULL, LANES, Warp
from mmulator.sanitizer.shadow.before import are_rewrites, is_link, known_lanes, surely_known, together
from mmulator.sanitizer.shadow.judgement import SIZES
from mmulator.sanitizer.shadow.readers import joined, read_by_itself
from mmulator.sanitizer.shadow.records import (
    ATOMIC,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST_KEY,
    PROXY_FROM,
    SCOPE_MASK,
    SCOPE_SHIFT,
    STEADY,
    STRONG,
    WHOLE,
    WRITE,
    Actor,
    Pattern,
    Races,
    Record,
    forget_past,
    kind_of,
    may_meet,
    record_of,
)
from mmulator.sanitizer.shadow.shadow import COARSEST, SHEET, SHEET_BITS, area_of, cells_of, granule_of
from mmulator.sanitizer.state import of_launch

U32, U64 = u32.vec(32), u64.vec(32)
WITHIN = (1 << RANK_SHIFT) - 1
LONGEST = 16  # bytes of an access that is taken at once


# which lanes have the same address ------------------------------------------------------------------------------------
PATTERN_STRIDE = 179  # between a warp's patterns and the next one's


@native(inline=True)
def pattern_of(s: ptr_to(Races), w: ptr_to(Warp), site: u32) -> ptr_to(Pattern):
    """Where the pattern of a warp's instruction is, or another one that shares the place."""
    return s.patterns + ((site + w.index * PATTERN_STRIDE) & s.pattern_mask)


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
    alike = u32(1)
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
            alike = u32(0)
    p.leaders = leaders
    p.lanes = shape * alike


# all lanes at once ----------------------------------------------------------------------------------------------------
@native
def all_fine(a: ptr_to(Actor), number: u32, own: u32) -> boolean:
    """Whether the accesses of all lanes of a record happen before those of all lanes of the actor, or are compatible. own:
    whether each lane only meets its own access.
    """
    if number == a.record and ((a.flags & WHOLE) != 0 or (own != 0 and (a.shape == 1 or not are_rewrites(a)))):
        return True
    r = a.store.records + number
    if number == 0 or ((a.flags | r.flags) & STEADY) != 0:
        return False
    if r.cut != 0 and (a.flags & ATOMIC) == 0:
        return False
    if own != 0 and r.agent == a.agent and r.lanes == 1 and a.shape == 1 and (a.flags >> KIND_SHIFT) == 0:
        if a.store.foreign == 0 or r.cluster == u32(a.cluster.number):
            return True
    if together(a, r) != 0 and may_meet(a):
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


@native(inline=True)
def join_readers(a: ptr_to(Actor), cells: ptr_to(u64), leaders: u32, entries: ptr_to(u32)) -> None:
    """Replace the leaders' entries by the readers of their cells with these entries added."""
    readers = U32(load(U64, cells) >> 32)
    lanes = iota(U32)
    of = readers & LANE_MASK
    keys = (readers & ~u32(LANE_MASK)) | ((lanes - of) & LANE_MASK)
    new = load(U32, entries)
    left = leaders & mask_bits(readers != 0)
    while left != 0:
        first = trailing_zeros(left)
        one = readers[first]
        shift = (first - one) & LANE_MASK
        same = mask_bits(keys == ((one & ~u32(LANE_MASK)) | shift)) & left
        left = left & ~same
        both = joined(a, one >> LANE_BITS, shift)
        new = select(bits_mask(same), ((of + u32(both >> 32)) & LANE_MASK) | (u32(both) << LANE_BITS), new)
    store(new, entries)


@native
def cells_fine(a: ptr_to(Actor), cells: ptr_to(u64), leaders: u32, entries: ptr_to(u32)) -> boolean:
    """Whether no place must be checked separately; if so, the cells of all places are changed. entries: the leaders' entries."""
    of_leaders = bits_mask(leaders)
    found = masked_load(U64, cells, of_leaders, U64(u64(0)))
    each = stack(u64, 32)
    store(found, each)  # another worker may change the cells meanwhile
    lanes = iota(U32)
    last = U32(found)
    readers = U32(found >> 32)
    weak = U32(u32(0))
    left = leaders & mask_bits(last != 0)
    if (a.flags & (STRONG | STEADY)) == STRONG and scope_of(a.flags) >= SCOPES["gpu"] and may_meet(a):
        flags = gather(U32, flags_of(a.store, last), bits_mask(left))
        left = left & ~mask_bits(agreeing(flags) & (((flags ^ a.flags) & SIZES) == 0))
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
    new = load(U32, entries)
    if a.shape == 0 and left != 0:
        return False
    entries_now = stack(u32, 32)
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
            if a.store.foreign != 0 and a.plain != 0:
                a.lane = first
                site = read_by_itself(a, one)
                if site != 0:
                    number = record_of(a, a.shape, site)
                    if number != 0:
                        new = select(bits_mask(same), lanes | (number << LANE_BITS), new)
        kept = U32(u32(0))
        if (a.flags & STRONG) != 0:
            kept = select(readers != 0, readers, select(weak != 0, last, kept))
        if (a.flags & (STRONG | ATOMIC)) != 0 and of_launch(a.cluster).certifies != 0:
            if (mask_bits(readers != 0) & leaders) != 0 and not is_link(a, a.store.records + a.record):
                return False
        if (a.flags & ATOMIC) != 0 and of_launch(a.cluster).certifies != 0:
            if (mask_bits(weak != 0) & leaders) != 0:
                return False
            store(new, entries_now)
            join_readers(a, each, leaders, entries_now)
            kept = load(U32, entries_now)
        if of_launch(a.cluster).certifies != 0:
            left = leaders & mask_bits((last | readers) != 0)
            store(new, entries_now)
            for leader in bits_of(left):
                forget_past(a, entries_now[leader] >> LANE_BITS, u32(each[leader]), u32(each[leader] >> 32))
        masked_store((U64(kept) << 32) | U64(new), cells, of_leaders)
        return True
    if left != 0 and of_launch(a.cluster).certifies != 0:
        flags = gather(U32, flags_of(a.store, last), bits_mask(left & mask_bits(last != 0)))
        atomics = left & mask_bits(last != 0) & mask_bits((flags & ATOMIC) != 0)
        while atomics != 0:
            list = u32(each[trailing_zeros(atomics)] >> 32) >> LANE_BITS
            atomics = atomics & ~mask_bits((readers >> LANE_BITS) == list)
            if not list_fine(a, list, 0):
                return False
    store(new, entries_now)
    join_readers(a, each, leaders, entries_now)
    new = load(U32, entries_now)
    masked_store((U64(new) << 32) | U64(last), cells, of_leaders)
    return True


@native
def all_at_once(
    a: ptr_to(Actor), p: ptr_to(Pattern), leaders: u32, entries: ptr_to(u32), at: ptr_to(u64), base: u64, bytes: u32
) -> boolean:
    """Whether the access of leaders, and of the lanes with their addresses, could be checked and recorded at once; False if each
    place must be checked separately.

    a: the actor. Its `shape` is 0 if leaders have different ones.
    p: the pattern of its addresses.
    leaders, entries: the leaders, and their entries.
    at, base, bytes: the access.
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
            return cells_fine(a, cells + (cell - u64(trailing_zeros(leaders))), leaders, entries)
    places = (load(U64, at) | base) - from_
    if (mask_bits(places > end - u64(bytes)) & leaders) != 0:
        return False
    m = bits_mask(leaders)
    numbers = (places >> SHEET_BITS) + ahead
    first = trailing_zeros(leaders)
    number = (((at[first] | base) - from_) >> SHEET_BITS) + ahead
    mode = sheets[number]
    if (mode - 1) > need or (mask_bits(numbers != number) & leaders) != 0:
        modes = gather(U32, elements_at(sheets, numbers), m)
        rough = mask_bits((modes - 1) > need) & leaders
        while rough != 0:
            number = numbers[trailing_zeros(rough)]
            granule_of(cells, sheets, number, u32(places[trailing_zeros(rough)]) & (SHEET - 1), bytes, a.store.foreign)
            rough = rough & ~mask_bits(numbers == number)
        modes = gather(U32, elements_at(sheets, numbers), m)
        mode = modes[first]
        if (mode - 1) > need or (mask_bits(modes != mode) & leaders) != 0:
            return False
    granule = mode - 1
    within = (places & (SHEET - 1)) >> U64(granule)
    first_cells = elements_at(cells, cells_of(numbers, granule) + within)
    count = bytes >> granule
    found = stack(u64, LONGEST * LANES)
    where = first_cells
    for n in range(count):  # all are checked before one is changed: who takes place by place finds them as they were
        store(gather(U64, where, m), found, n * LANES)
        if not cells_fine(a, found + n * LANES, leaders, entries):
            return False
        where = advance(where, 8)
    where = first_cells
    pointers = stack(ptr, 32)
    for n in range(count):
        store(where, pointers)
        left = leaders
        if left == FULL:
            left = 0
            for i in unrolled(LANES):
                cast_ptr(u64, pointers[i])[0] = found[n * LANES + i]
        for lane in bits_of(left):
            one = cast_ptr(u64, pointers[lane])
            one[0] = found[n * LANES + lane]
        where = advance(where, 8)
    return True
