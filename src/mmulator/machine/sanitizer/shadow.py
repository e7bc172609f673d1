"""The shadow of memory: of each byte who wrote it last, and who has read it since.

Memory is cut into sheets of SHEET bytes. A sheet has a granule of 16, 4, 2 or 1 bytes, which gets finer when an access does not
cover whole granules; of each granule a cell of 8 bytes says the last write (an entry: records.py) and the readers since: none,
one, or a list. A sheet has cells of each granule in pages of their own, of which those of one are used, and most sheets never
touch another; so no lock is needed where several workers access one: what comes late to cells that are no longer used is lost.

    act_async  an asynchronous operation is who accesses memory now: fills an Actor
    touch      the actor accesses bytes: what nothing orders with it is told (`conflict`), then it is written down

A list of readers has those that no later reader is known to come after, as FastTrack has it. Of global memory few are kept: more
than those would find no other conflict, but a report of it at another place. Lists do not change and say lanes relative to a lane
of the cell, so that cells which lanes read one beside the other have the same list.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, fill_bytes, funnel_left, load, mask_bits, minimum, null, trailing_zeros
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.machine.runtime.atomic import atomic_rmw
from mmulator.machine.sanitizer import clocks
from mmulator.machine.sanitizer.clocks import U32, agent_of, entries_of, knower_of, knows, now, orders_of
from mmulator.machine.sanitizer.conflicts import async_conflict, async_found
from mmulator.machine.sanitizer.issues import has_fenced, issue_knows_foreign
from mmulator.machine.sanitizer.judgement import conflict
from mmulator.machine.sanitizer.records import (
    ATOMIC,
    JOINS,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST,
    LIST_KEY,
    PER_LANE,
    PROXY_FROM,
    SCOPE_MASK,
    SCOPE_SHIFT,
    STRONG,
    VERDICTS,
    WRITE,
    Actor,
    Area,
    Kind,
    LaunchRaces,
    Races,
    Record,
    Store,
    Verdict,
    enough,
    kind_of,
    new_node,
    races_of,
    record_of,
)
from mmulator.machine.sanitizer.world import knows_foreign, view_knows_foreign
from mmulator.machine.state import Warp
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT

SHEET_BITS = 11
SHEET = 1 << SHEET_BITS
SHEET_CELLS = 2 * SHEET  # of all granules
COARSEST = 4  # log2
_WITHIN = (1 << RANK_SHIFT) - 1
UNORDERED, KNOWN, FENCED = range(3)  # how an access comes before the actor's: not, it does, through a proxy fence


def cells_from(granule: Any) -> Any:
    """Macro: the first cell of a sheet's for this granule (as a power of two)."""
    from mmulator.codegen.ops import select

    return select(granule == COARSEST, u64(granule) & 0, u64(u32(SHEET) >> granule))


def turned(lanes: Any, lane: Any) -> Any:
    """Macro: lanes relative to lane 0 as lanes relative to another."""
    return funnel_left(lanes, lanes, lane)


# what comes before ----------------------------------------------------------------------------------------------------
@native(inline=True)
def verdict_of(a: ptr_to(Actor), number: u32) -> ptr_to(Verdict):
    return a.races.verdicts + ((agent_of(a.w, u32(0)) >> LANE_BITS) * VERDICTS + (number & (VERDICTS - 1)))


@native
def known_lanes(a: ptr_to(Actor), r: ptr_to(Record), number: u32) -> u32:
    """Which lanes of a record all lanes of the actor's instruction know of, by what they have learned. It is kept: later they
    know more, or the clock has ticked."""
    w = a.w
    store = a.store
    key = number * 2 + store.foreign
    v = verdict_of(a, number)
    if v.key == key and (a.mask & ~v.observers) == 0:
        if (r.all & ~v.lanes) == 0 or v.asked == now(w):
            return v.lanes
    cluster = a.cluster
    o = orders_of(cluster)
    if r.flags >> KIND_SHIFT == 0 and store.foreign == 0:
        writer = o.knowers + (r.agent >> LANE_BITS)
        if writer.clock == r.clock:
            return u32(0)  # its warp has released nothing since
    k = knower_of(o, w)
    ids = load(U32, k.now.views)
    left = a.mask
    known = ~u32(0)
    while left != 0:
        id = k.now.views[trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        if store.foreign != 0 and r.cluster != u32(cluster.number):
            lanes = r.all & known
            while lanes != 0:
                lane = trailing_zeros(lanes)
                lanes = lanes & (lanes - 1)
                agent = r.agent
                if (r.flags & PER_LANE) != 0:
                    agent = agent + lane
                if view_knows_foreign(cluster, id, r.cluster, agent, r.clock) == 0:
                    known = known & ~(u32(1) << lane)
        elif (r.flags & PER_LANE) != 0:
            known = known & mask_bits(load(U32, entries_of(o, id), r.agent) >= r.clock)
        elif r.agent < o.stride:
            if entries_of(o, id)[r.agent] < r.clock:
                known = u32(0)
    v.key = key
    v.observers = a.mask
    v.lanes = known
    v.asked = now(w)
    return known


@native
def knows_exactly(a: ptr_to(Actor), r: ptr_to(Record), number: u32, lanes: u32) -> u32:
    """1 if what lanes of a record did comes before what the actor's lanes do now."""
    left = lanes & ~known_lanes(a, r, number)
    foreign = u32(0)
    if a.store.foreign != 0:
        foreign = u32(r.cluster != u32(a.cluster.number))
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        agent = r.agent
        if (r.flags & PER_LANE) != 0:
            agent = agent + lane
        actors = a.lanes
        while actors != 0:
            one = trailing_zeros(actors)
            actors = actors & (actors - 1)
            if foreign != 0:
                if knows_foreign(a.w, one, r.cluster, agent, r.clock) == 0:
                    return u32(0)
            elif knows(a.w, one, agent, r.clock) == 0:
                return u32(0)
    return u32(1)


@native
def issue_lanes(a: ptr_to(Actor), r: ptr_to(Record), plane: u32) -> u32:
    """Which lanes of a record one of the lanes that issue an operation knows of, in a plane."""
    o = orders_of(a.cluster)
    k = knower_of(o, a.w)
    ids = load(U32, k.now.views, plane * 32)
    known = u32(0)
    left = a.issuers
    while left != 0:
        id = k.now.views[plane * 32 + trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        if r.agent >= o.stride:
            known = ~u32(0)
        elif (r.flags & PER_LANE) != 0:
            known = known | mask_bits(load(U32, entries_of(o, id), r.agent) >= r.clock)
        elif entries_of(o, id)[r.agent] >= r.clock:
            known = ~u32(0)
    if (r.flags & PER_LANE) != 0:
        if r.agent == k.first:
            if plane == clocks.KNOWN:
                known = known | a.issuers
            else:
                known = known | (a.issuers & mask_bits(load(U32, k.now.own, plane * 32) >= r.clock))
        if o.copies != 0 and r.agent == k.first + o.threads:
            known = known | (a.issuers & mask_bits(load(U32, k.now.copied, plane * 32) >= r.clock))
    return known


@native
def issue_level(a: ptr_to(Actor), r: ptr_to(Record), number: u32, lanes: u32) -> u32:
    """How what lanes of a record did comes before what an asynchronous actor does."""
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            if kind_of(a.flags) == int(Kind.MAP):
                return u32(UNORDERED)  # other fences count
            if issue_knows_foreign(a.w, a.issuers, r.cluster, r.agent, lanes, r.clock, u32(clocks.KNOWN)) == 0:
                return u32(UNORDERED)
            if has_fenced(a.cluster, r.cluster) != 0:
                return u32(FENCED)
            plane = u32(clocks.FENCED_GLOBAL)
            return KNOWN + issue_knows_foreign(a.w, a.issuers, r.cluster, r.agent, lanes, r.clock, plane)
    if kind_of(a.flags) == int(Kind.MAP):
        return u32(UNORDERED)
    if a.seen != number:
        a.seen = number
        a.seen_known = issue_lanes(a, r, u32(clocks.KNOWN))
        a.seen_fenced = issue_lanes(a, r, u32(clocks.FENCED) + a.store.foreign)
        if (r.all & ~a.seen_fenced) == 0:
            a.fine = number
    if (lanes & ~a.seen_fenced) == 0:
        return u32(FENCED)
    if (lanes & ~a.seen_known) == 0:
        return u32(KNOWN)
    return u32(UNORDERED)


@native
def together(a: ptr_to(Actor), r: ptr_to(Record)) -> u32:
    """1 if two accesses are strong and the scope of each has the other in it."""
    if (a.flags & r.flags & STRONG) == 0:
        return u32(0)
    scope = minimum((a.flags >> SCOPE_SHIFT) & SCOPE_MASK, (r.flags >> SCOPE_SHIFT) & SCOPE_MASK)
    if r.cta == a.w.cta.linear:
        return u32(1)
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return u32(scope >= 3)
    return u32(scope >= 2)


@native
def check_access(a: ptr_to(Actor), item: u32, wrote: u32) -> None:
    """The actor meets an access that its own conflicts with: a write, or a read."""
    number = item >> LANE_BITS
    if number == a.record:
        return  # lanes of one instruction
    r = a.store.records + number
    lanes = turned(r.lanes, item & LANE_MASK)
    kind = kind_of(r.flags)
    if a.asynchronous != 0:
        level = issue_level(a, r, number, lanes)
        if level == FENCED:
            return
        if (a.flags & r.flags & ATOMIC) != 0:
            return
        if number != a.told and (level == UNORDERED or (wrote != 0 and kind < PROXY_FROM)):
            a.told = number
            a.fine = number
            async_found(a.w, a.lane, a.at, u32(a.bytes), a.flags, a.site, r, item & LANE_MASK, level)
        return
    if together(a, r) != 0:
        return
    if knows_exactly(a, r, number, lanes) != 0:
        return
    if kind < PROXY_FROM:
        conflict(a, r, item & LANE_MASK, lanes, wrote)
    elif (a.flags & r.flags & ATOMIC) == 0:
        async_conflict(a.w, a.lane, a.at, u32(a.bytes), (a.flags & WRITE) >> 1, a.site, r)


# readers --------------------------------------------------------------------------------------------------------------
@native
def replaced(a: ptr_to(Actor), number: u32, turn: u32, shift: u32) -> u32:
    """1 if whoever comes after the actor's read comes after one of a list, too, which so need not be kept. turn, shift: the lanes
    of the one and of the actor's, both relative to the cell's."""
    r = a.store.records + number
    if (a.flags & ~r.flags & STRONG) != 0:
        return u32(0)
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return u32(0)
    if r.agent == a.agent and r.clock <= a.clock:
        if (turned(r.lanes, turn) & ~turned(a.shape, shift)) == 0:
            return u32(1)
    if a.asynchronous == 0:
        return u32((r.all & ~known_lanes(a, r, number)) == 0)
    return u32(issue_level(a, r, number, r.all) != UNORDERED)


@native
def joined(a: ptr_to(Actor), list: u32, shift: u32) -> u64:
    """A list that the actor's read joins, whose lane is `shift` further than the cell's: the new one, and above it how much
    further its own is. A list: what a cell says of its readers, without the lane."""
    store = a.store
    item = (a.record << LANE_BITS) | shift
    spread = (list * 0x9E3779B1) ^ (item * 0x85EBCA6B)
    memo = store.joins + ((spread >> 16) & (JOINS - 1))
    if memo.list == list and memo.entry == item:
        return u64(memo.made) | (u64(memo.shift) << 32)
    memo.list = list
    memo.entry = item
    memo.shift = u32(0)
    memo.made = list
    left = list & ~u32(LIST_KEY)
    if list < LIST_KEY:  # one alone
        if list == a.record and shift == 0:
            return u64(list)
        if replaced(a, list, u32(0), shift) != 0:
            memo.made = a.record
            memo.shift = shift
            return u64(a.record) | (u64(shift) << 32)
        last = new_node(a.races, store, list << LANE_BITS, u32(0))
        if last != 0:
            first = new_node(a.races, store, item, last)
            if first != 0:
                memo.made = first | LIST_KEY
        return u64(memo.made)
    count = u32(0)
    dropped = u32(0)
    while left != 0:
        node = store.nodes + left
        if node.entry == item:
            return u64(list)
        if replaced(a, node.entry >> LANE_BITS, node.entry & LANE_MASK, shift) != 0:
            dropped = dropped + 1
        else:
            count = count + 1
        left = node.next
    if count == 0:
        memo.made = a.record
        memo.shift = shift
        return u64(a.record) | (u64(shift) << 32)
    if dropped == 0 and count < store.most:
        first = new_node(a.races, store, item, list & ~u32(LIST_KEY))
        if first != 0:
            memo.made = first | LIST_KEY
        return u64(memo.made)
    made = u32(0)
    left = list & ~u32(LIST_KEY)
    while left != 0:
        node = store.nodes + left
        full = node.next == 0 and count >= store.most  # the oldest
        if replaced(a, node.entry >> LANE_BITS, node.entry & LANE_MASK, shift) == 0 and not full:
            made = new_node(a.races, store, node.entry, made)
        left = node.next
    first = new_node(a.races, store, item, made)
    if first != 0:
        memo.made = first | LIST_KEY
    return u64(memo.made)


@native
def with_reader(a: ptr_to(Actor), readers: u32) -> u32:
    """Readers of a cell, and the actor."""
    if readers == 0:
        return a.entry
    lane = readers & LANE_MASK
    both = joined(a, readers >> LANE_BITS, (a.lane - lane) & LANE_MASK)
    return (u32(both) << LANE_BITS) | ((lane + u32(both >> 32)) & LANE_MASK)


@native
def check_readers(a: ptr_to(Actor), readers: u32) -> None:
    """A write meets all who have read since the last one, and a weak write that strong ones came behind."""
    if (readers & LIST) == 0:
        r = a.store.records + (readers >> LANE_BITS)
        check_access(a, readers, r.flags & WRITE)
        return
    lane = readers & LANE_MASK
    left = (readers & ~u32(LIST)) >> LANE_BITS
    while left != 0:
        node = a.store.nodes + left
        r = a.store.records + (node.entry >> LANE_BITS)
        check_access(a, (node.entry & ~u32(LANE_MASK)) | ((node.entry + lane) & LANE_MASK), r.flags & WRITE)
        left = node.next


@native
def read_by_itself(a: ptr_to(Actor), readers: u32) -> u32:
    """1 + the site at which the actor's own thread is the last to have read what it overwrites; 0 if it has not."""
    lane = readers & LANE_MASK
    left = (readers & ~u32(LIST)) >> LANE_BITS
    item = readers
    if (readers & LIST) != 0:
        node = (a.store.nodes + left).entry
        item = (node & ~u32(LANE_MASK)) | ((node + lane) & LANE_MASK)
    while left != 0:
        r = a.store.records + (item >> LANE_BITS)
        if r.agent == a.agent and r.cluster == u32(a.cluster.number):
            if ((turned(r.lanes, item & LANE_MASK) >> a.lane) & 1) != 0:
                return r.site + 1
        if (readers & LIST) == 0:
            return u32(0)
        left = (a.store.nodes + left).next
        if left != 0:
            node = (a.store.nodes + left).entry
            item = (node & ~u32(LANE_MASK)) | ((node + lane) & LANE_MASK)
    return u32(0)


@native(inline=True)
def behind(a: ptr_to(Actor), last: u32, readers: u32) -> u32:
    """What a cell says of its readers after a write: nobody. After a strong one those before, since others that are strong may
    come from threads which do not know of them; and the last write, if it was weak."""
    if (a.flags & STRONG) == 0:
        return u32(0)
    if readers == 0 and last != 0:
        if ((a.store.records + (last >> LANE_BITS)).flags & STRONG) == 0:
            return last
    return readers


# cells ----------------------------------------------------------------------------------------------------------------
@native
def visit(a: ptr_to(Actor), cells: ptr_to(u64), count: u32) -> None:
    """The actor accesses what these cells stand for: judged, and written down."""
    writes = u32(a.flags & WRITE)
    before = u64(0)
    after = u64(0)
    for i in range(count):
        cell = cells[i]
        if cell == before and i != 0:
            cells[i] = after
            continue
        last = u32(cell)
        readers = u32(cell >> 32)
        number = last >> LANE_BITS
        if number != 0 and number != a.fine:
            check_access(a, last, u32(1))
        new = cell
        if writes != 0:
            new = u64(last)
            if a.entry != 0:
                new = u64(a.entry)
            if readers != 0:
                a.again = u32(last != 0)
                if a.store.foreign != 0 and a.plain != 0:
                    a.read_site = read_by_itself(a, readers)
                    if a.read_site != 0 and a.entry != 0:
                        number = record_of(a, a.shape, a.read_site)
                        new = u64((number << LANE_BITS) | a.lane)
                check_readers(a, readers)
            new = new | (u64(behind(a, last, readers)) << 32)
        elif a.entry != 0 and readers != a.entry:
            new = (u64(with_reader(a, readers)) << 32) | u64(last)
        if new != cell:
            cells[i] = new
        before = cell
        after = new


@native
def granule_of(cells: ptr_to(u64), sheet: ptr_to(u32), place: u32, bytes: u32, fresh: u32) -> u32:
    """The granule of a sheet (a power of two) after it is made as fine as an access at a place of it needs. Of a sheet: 1 + that,
    or 0: nothing is known of it. fresh: its cells are zeros then."""
    need = trailing_zeros(place | bytes | (1 << COARSEST))
    if need == 3:
        need = u32(2)
    mode = sheet[0]
    if mode - 1 <= need:
        return mode - 1
    to = cells + cells_from(need)
    if mode == 0:
        if fresh == 0:
            fill_bytes(to, 0, u64(8 * SHEET) >> u64(need))
    else:
        source = cells + cells_from(mode - 1)
        more = mode - 1 - need
        for i in range(u32(SHEET) >> need):
            to[i] = source[i >> more]
    atomic_rmw("xchg", sheet, need + 1)
    return need


@native
def touch_piece(a: ptr_to(Actor), cells: ptr_to(u64), sheet: ptr_to(u32), place: u32, bytes: u32) -> None:
    """Bytes of one sheet, from a place in it on."""
    granule = granule_of(cells, sheet, place, bytes, a.store.foreign)
    visit(a, cells + cells_from(granule) + u64(place >> granule), bytes >> granule)


@native
def area_of(launch: ptr_to(LaunchRaces), s: ptr_to(Races), at: u64, site: u32) -> ptr_to(Area):
    """The shadow of global memory at an address; null if it has none."""
    slot = at >> SLOT_SHIFT
    found = launch.areas
    if slot >= launch.slots or slot == 0:
        hint = s.hints[site & 31]
        found = launch.regions + hint
        if at - found.start >= found.size:
            low = u64(0)
            high = launch.region_count
            while high - low > 1:
                middle = (low + high) >> 1
                if (launch.regions + middle).start <= at:
                    low = middle
                else:
                    high = middle
            s.hints[site & 31] = u32(low)
            found = launch.regions + low
    else:
        found = launch.areas + slot
    if at - found.start >= found.size or u64(found.cells) == 0:
        return cast_ptr(Area, null(u8))
    return found


@native
def touch(a: ptr_to(Actor), at: u64, bytes: u64) -> None:
    """The actor accesses bytes from a generic address on, which are there: any number at any address."""
    s = a.races
    slot = at >> SLOT_SHIFT
    cells = s.cells
    sheets = s.sheets
    place = u64(0)
    a.at = at
    a.bytes = bytes
    if slot == SLOT_SHARED:
        rank = u32((at >> RANK_SHIFT) & 0xFF)
        place = (at & _WITHIN) - SHARED_BASE + u64(rank * s.stride) * SHEET
    else:
        area = area_of(s.launch, s, at, a.site)
        if u64(area) == 0:
            return
        cells = area.cells
        sheets = area.sheets
        place = at - area.base
        bytes = minimum(bytes, area.start + area.size - at)
    left = bytes
    while left != 0:
        number = place >> SHEET_BITS
        inside = u32(place) & (SHEET - 1)
        count = minimum(left, u64(u32(SHEET) - inside))
        touch_piece(a, cells + number * SHEET_CELLS, sheets + number, inside, u32(count))
        place = place + count
        left = left - count


# actors ---------------------------------------------------------------------------------------------------------------
@native(inline=True)
def is_watched(at: u64) -> u32:
    """1 for shared memory, 2 for global memory, 0 for any other."""
    slot = at >> SLOT_SHIFT
    if slot == SLOT_SHARED:
        return u32(1)
    if slot >= FIRST_GLOBAL_SLOT or slot == 0:
        return u32(2)
    return u32(0)


@native
def act_async(
    w: ptr_to(Warp), lane: u32, lanes: u32, site: u32, access: u32, kind: u32, agent: u32, clock: u32, global_: u32,
    out: ptr_to(Actor),
) -> None:
    """An asynchronous operation that lanes issue now (lane: who is named) accesses shared (global_: global) memory from now on,
    and others hear of its end by an agent and its clock. access: of READ, WRITE and ATOMIC; kind: a Kind."""
    cluster = w.cta.cluster
    s = races_of(cluster)
    out.w = w
    out.cluster = cluster
    out.races = s
    out.store = cast_ptr(Store, s) + global_
    out.lane = lane
    out.lanes = u32(1)
    out.site = site
    out.flags = access | (kind << KIND_SHIFT)
    out.agent = agent
    out.clock = clock
    out.asynchronous = u32(1)
    out.issuers = lanes
    out.plain = u32(0)
    if global_ == 0:
        enough(s, w)
    out.mask = u32(1)
    out.shape = u32(1)
    out.seen = u32(0)
    out.told = u32(0)
    out.fine = u32(0)
    out.record = record_of(out, u32(1), u32(0))
    out.entry = (out.record << LANE_BITS) | lane
    if out.record == 0:
        out.entry = u32(0)
