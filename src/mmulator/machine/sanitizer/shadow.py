"""The shadow of memory: of each byte who wrote it last, and who has read it since.

Memory is cut into sheets of SHEET bytes. A sheet has a granule of 16, 4, 2 or 1 bytes, which gets finer when an access does not
cover whole granules; of each granule a cell of 8 bytes says the last write (an entry: records.py) and the readers since: none, one,
or a list. So a sheet takes 8 bytes for each of its bytes at most; of most no more than its first page is ever touched.

    act_async  an asynchronous operation is who accesses memory now: fills an Actor
    touch      the actor accesses bytes: what nothing orders with it is told (`conflict`), then it is written down

A list of readers has those that no later reader is known to come after, as FastTrack has it. Of global memory few are kept: more
than those would find no other conflict, but a report of it at another place. Cells of global memory are changed under a lock of
their sheet.
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import (
    cast_ptr,
    fill_bytes,
    load,
    mask_bits,
    minimum,
    null,
    popcount,
    trailing_zeros,
)
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.machine.runtime.atomic import atomic_rmw, compare_exchange
from mmulator.machine.runtime.windows import shared_of
from mmulator.machine.sanitizer.clocks import FENCED as CLOCKS_FENCED
from mmulator.machine.sanitizer.clocks import KNOWN as CLOCKS_KNOWN
from mmulator.machine.sanitizer.clocks import U32, agent_of, entries_of, knower_of, knows, now, one_view, orders_of
from mmulator.machine.sanitizer.conflicts import async_conflict, async_found
from mmulator.machine.sanitizer.issues import issue_knows
from mmulator.machine.sanitizer.judgement import conflict
from mmulator.machine.sanitizer.records import (
    ATOMIC,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST,
    MANY,
    PER_LANE,
    PROXY_FROM,
    READ,
    SCOPE_MASK,
    SCOPE_SHIFT,
    STRONG,
    VERDICTS,
    WRITE,
    Actor,
    Area,
    Kind,
    LaunchRaces,
    Node,
    Races,
    Record,
    Store,
    Verdict,
    enough,
    free_node,
    kind_of,
    new_node,
    races_of,
    record_of,
)
from mmulator.machine.sanitizer.world import knows_foreign
from mmulator.machine.state import Cluster, Cta, Warp
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT

SHEET_BITS = 11
SHEET = 1 << SHEET_BITS
LOCK = 1 << 31  # of a sheet, whose lowest bits are 1 + log2(granule), 0: nothing is known of it
_WITHIN = (1 << RANK_SHIFT) - 1
UNORDERED, KNOWN, FENCED = range(3)  # how an access comes before the actor's: not, it does, through a proxy fence


# what comes before ----------------------------------------------------------------------------------------------------
@native
def lanes_known(w: ptr_to(Warp), lane: u32, base: u32, clock: u32) -> u32:
    """Of 32 agents from `base` on, which have their clock in what a lane knows."""
    o = orders_of(w.cta.cluster)
    k = knower_of(o, w)
    found = mask_bits(load(U32, entries_of(o, k.now.views[lane]), base) >= clock)
    if base == k.first:
        found = found | (u32(1) << lane)
    elif knows(w, lane, base + lane, clock) != 0:
        found = found | (u32(1) << lane)
    return found


@native
def asked(a: ptr_to(Actor), r: ptr_to(Record), number: u32, want: u32) -> u32:
    """1 if what lanes of a record did comes before what the actor, a lane of a warp, does now. What is found is kept."""
    w = a.w
    lane = a.lane
    me = u32(1) << lane
    key = number * 2 + a.store.foreign
    v = a.races.verdicts + ((agent_of(w, u32(0)) >> LANE_BITS) * VERDICTS + (number & (VERDICTS - 1)))
    if v.key == key and (v.observers & me) != 0 and (v.lanes & want) == want:
        return u32(1)
    base = r.agent
    known = u32(0)
    if (r.flags & PER_LANE) != 0:
        known = lanes_known(w, lane, base, r.clock)
        if base == agent_of(w, u32(0)):
            known = known & ~me
            want = want & ~me
    elif knows(w, lane, base, r.clock) != 0:
        known = ~u32(0)
    if (known & want) != want:
        if v.key != key:
            v.key = key
            v.observers = u32(0)
            v.lanes = u32(0)
        v.refused = now(w)
        return u32(0)
    same = w.live
    if one_view(w, same) == 0 or (r.flags >> KIND_SHIFT) != 0:
        same = me
    v.key = key
    v.observers = same
    v.lanes = known
    v.refused = u32(0)
    return u32(1)


@native
def level_of(a: ptr_to(Actor), r: ptr_to(Record), number: u32, want: u32) -> u32:
    """How what lanes of a record did comes before what the actor does."""
    cluster = a.cluster
    if a.store.foreign != 0:
        if r.cluster != u32(cluster.number):
            if kind_of(a.flags) == int(Kind.MAP):
                return u32(UNORDERED)  # other fences count
            if a.asynchronous != 0:
                return u32(FENCED)
            left = want
            while left != 0:
                lane = trailing_zeros(left)
                left = left & (left - 1)
                agent = r.agent
                if (r.flags & PER_LANE) != 0:
                    agent = agent + lane
                else:
                    left = u32(0)
                if knows_foreign(a.w, a.lane, r.cluster, agent, r.clock) == 0:
                    return u32(UNORDERED)
            return u32(KNOWN)
    if a.asynchronous == 0:
        return asked(a, r, number, want)
    if kind_of(a.flags) == int(Kind.MAP):
        return u32(UNORDERED)
    found = u32(FENCED)
    plane = u32(CLOCKS_FENCED) + a.store.foreign
    left = want
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        agent = r.agent
        if (r.flags & PER_LANE) != 0:
            agent = agent + lane
        else:
            left = u32(0)
        if issue_knows(a.w, a.issuers, agent, r.clock, plane) == 0:
            found = minimum(found, u32(KNOWN))
            if issue_knows(a.w, a.issuers, agent, r.clock, u32(CLOCKS_KNOWN)) == 0:
                return u32(UNORDERED)
    return found


def lanes_of(r: Any, entry: Any) -> Any:
    """Macro: the lanes of an entry."""
    from mmulator.codegen.ops import select

    return select((r.field("flags") & MANY) != 0, r.field("lanes"), u32(1) << (entry & LANE_MASK))


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
    r = a.store.records + number
    lanes = lanes_of(r, item)
    if number == a.record:
        return  # lanes of one instruction
    if r.agent == a.agent and (lanes & ~a.lanes) == 0 and (a.flags >> KIND_SHIFT) == 0:
        if a.store.foreign == 0 or r.cluster == u32(a.cluster.number):
            return  # program order
    level = level_of(a, r, number, lanes)
    if level == FENCED:
        return
    kind = kind_of(r.flags)
    if (a.flags & r.flags & ATOMIC) != 0 and (a.asynchronous != 0 or kind >= PROXY_FROM):
        return
    if a.asynchronous != 0:
        if level == UNORDERED or (wrote != 0 and kind < PROXY_FROM):
            async_found(a.w, a.lane, a.at, u32(a.bytes), a.flags, a.site, r, item & LANE_MASK, level)
        return
    if level == KNOWN or together(a, r) != 0:
        return
    if kind >= PROXY_FROM:
        async_conflict(a.w, a.lane, a.at, u32(a.bytes), (a.flags & WRITE) >> 1, a.site, r)
    else:
        conflict(a, r, item & LANE_MASK, lanes, wrote)


# readers --------------------------------------------------------------------------------------------------------------
@native
def replaced(a: ptr_to(Actor), item: u32) -> u32:
    """1 if whoever comes after the actor's read comes after this one, too, which so need not be kept."""
    number = item >> LANE_BITS
    r = a.store.records + number
    if (a.flags & ~r.flags & STRONG) != 0:
        return u32(0)
    lanes = lanes_of(r, item)
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return u32(0)
    if r.agent == a.agent and r.clock <= a.clock and (lanes & ~a.lanes) == 0:
        return u32(1)
    if a.asynchronous == 0:
        v = a.races.verdicts + ((agent_of(a.w, u32(0)) >> LANE_BITS) * VERDICTS + (number & (VERDICTS - 1)))
        if v.key == number * 2 + a.store.foreign and v.refused == now(a.w):
            return u32(0)
    return u32(level_of(a, r, number, lanes) != UNORDERED)


@native
def with_reader(a: ptr_to(Actor), readers: u32) -> u32:
    """Readers of a cell, and the actor."""
    store = a.store
    left = readers
    kept = u32(0)  # in their order, so that a list that does not change is not made anew
    last = u32(0)
    count = u32(0)
    nodes = store.nodes
    while left != 0:
        entry = left
        next = u32(0)
        if (left & LIST) != 0:
            node = nodes + (left & ~u32(LIST))
            entry = node.entry
            next = node.next
        if entry == a.entry:
            return readers
        left = next
        count = count + 1
    if count == 1:
        if replaced(a, readers) != 0:
            return a.entry
        return new_node(a.races, store, a.entry, readers)
    left = readers
    count = u32(0)
    while left != 0:
        entry = left
        next = u32(0)
        whole = left
        if (left & LIST) != 0:
            node = nodes + (left & ~u32(LIST))
            entry = node.entry
            next = node.next
        left = next
        if replaced(a, entry) != 0:
            if (whole & LIST) != 0:
                free_node(store, whole)
            elif last != 0:  # the last of all, and the node before it becomes the last
                holder = nodes + (last & ~u32(LIST))
                holder.next = u32(0)
        else:
            count = count + 1
            if (whole & LIST) != 0:
                if last != 0:
                    holder = nodes + (last & ~u32(LIST))
                    holder.next = whole
                else:
                    kept = whole
                last = whole
                node = nodes + (whole & ~u32(LIST))
                node.next = u32(0)
            elif last != 0:
                holder = nodes + (last & ~u32(LIST))
                holder.next = whole
            else:
                kept = whole
    if kept == 0:
        return a.entry
    if count >= store.most:
        return kept
    return new_node(a.races, store, a.entry, kept)


@native
def check_readers(a: ptr_to(Actor), readers: u32) -> None:
    """A write meets all who have read since the last one; their list is over."""
    store = a.store
    left = readers
    while left != 0:
        entry = left
        next = u32(0)
        if (left & LIST) != 0:
            node = store.nodes + (left & ~u32(LIST))
            entry = node.entry
            next = node.next
            free_node(store, left)
        check_access(a, entry, u32(0))
        left = next


@native
def copied_list(s: ptr_to(Races), store: ptr_to(Store), readers: u32) -> u32:
    """The same readers for another cell. Of what there is no room for, nothing is known."""
    if (readers & LIST) == 0:
        return readers
    node = store.nodes + (readers & ~u32(LIST))
    entry = node.entry
    left = node.next
    made = entry
    while left != 0:
        further = left
        next = u32(0)
        if (left & LIST) != 0:
            other = store.nodes + (left & ~u32(LIST))
            further = other.entry
            next = other.next
        made = new_node(s, store, further, made)
        left = next
    return made


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
        if last != 0 and last != a.entry:
            check_access(a, last, u32(1))
        new = cell
        if writes != 0:
            if readers != 0:
                a.again = u32(last != 0)
                check_readers(a, readers)
            if a.entry != 0:
                new = u64(a.entry)
            else:
                new = u64(last)
        elif a.entry != 0 and readers != a.entry:
            if readers == 0:
                readers = a.entry
            else:
                readers = with_reader(a, readers)
            new = (u64(readers) << 32) | u64(last)
        cells[i] = new
        before = cell
        after = new
        if ((cell | new) >> 63) != 0:  # a list is of one cell alone
            before = new
            after = new
            if (new >> 63) != 0:
                before = ~u64(0)


@native
def make_finer(s: ptr_to(Races), store: ptr_to(Store), cells: ptr_to(u64), granule: u32, finer: u32) -> None:
    """The cells of a sheet for granules of another size (both as powers of two): from the last on, in place."""
    times = u32(1) << (granule - finer)
    i = u32(SHEET) >> granule
    while i != 0:
        i = i - 1
        cell = cells[i]
        j = times
        while j != 0:
            j = j - 1
            one = cell
            if j != 0:
                one = (u64(copied_list(s, store, u32(cell >> 32))) << 32) | u64(u32(cell))
            cells[i * times + j] = one


@native
def granule_of(s: ptr_to(Races), store: ptr_to(Store), cells: ptr_to(u64), sheet: ptr_to(u32), place: u32, bytes: u32) -> u32:
    """The granule of a sheet (a power of two) after it is made as fine as an access at a place of it needs."""
    need = trailing_zeros(place | bytes | 16)
    if need == 3:
        need = u32(2)
    mode = sheet[0] & ~u32(LOCK)
    if mode == 0:
        if store.foreign == 0:
            fill_bytes(cells, 0, u64(8 * SHEET) >> u64(need))
        sheet[0] = (sheet[0] & LOCK) | (need + 1)
        return need
    if mode - 1 <= need:
        return mode - 1
    make_finer(s, store, cells, mode - 1, need)
    sheet[0] = (sheet[0] & LOCK) | (need + 1)
    return need


@native
def lock(sheet: ptr_to(u32)) -> None:
    while (atomic_rmw("or", sheet, u32(LOCK)) & LOCK) != 0:
        pass


@native
def touch_piece(a: ptr_to(Actor), cells: ptr_to(u64), sheet: ptr_to(u32), place: u32, bytes: u32) -> None:
    """Bytes of one sheet, from a place in it on."""
    store = a.store
    if store.locked != 0:
        lock(sheet)
    granule = granule_of(a.races, store, cells, sheet, place, bytes)
    visit(a, cells + (place >> granule), bytes >> granule)
    if store.locked != 0:
        atomic_rmw("and", sheet, ~u32(LOCK))


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
        touch_piece(a, cells + number * SHEET, sheets + number, inside, u32(count))
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
    """An asynchronous operation that lanes issue now (lane: who is named) accesses shared (global_: global) memory from now on, and
    others hear of its end by an agent and its clock. access: of READ, WRITE and ATOMIC; kind: a Kind."""
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
    out.record = record_of(s, out.store, cluster, w, agent, clock, site, out.flags, u32(0))
    out.entry = (out.record << LANE_BITS) | lane
    if out.record == 0:
        out.entry = u32(0)
