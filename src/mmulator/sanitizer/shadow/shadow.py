"""Shadow memory: for each byte the last write, and the reads since.

Memory is cut into sheets of SHEET bytes. A sheet has a granule of 16, 4, 2 or 1 bytes, which becomes finer when an access does
not cover whole granules. Each granule has a cell of 8 bytes with the last write (an entry: records.py) and the readers since:
none, one, or a list. A sheet has cells for each granule size in separate pages, of which one set is in use, and most sheets
never touch the others; so no lock is needed if several workers access a sheet: a late write to cells that are no longer in use
is lost. GROUP sheets have their coarsest cells side by side.

    act_async  prepares an Actor for an asynchronous operation that accesses memory now
    touch      checks and records an actor's access to bytes: unordered accesses are reported (`conflict`)

A list of readers has those that happen before no later reader, as in FastTrack. For global memory few are kept: more of them
would find no other conflict, only report it at another place. Lists are immutable and give lanes relative to a lane of the
cell, so that cells which lanes read side by side share a list.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import (
    atomic_rmw,
    cast_ptr,
    compare_exchange,
    fill_bytes,
    keep_order,
    minimum,
    null,
    select,
    trailing_zeros,
)
from mmulator.base.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.state import Warp
from mmulator.sanitizer.shadow import records as rec
from mmulator.sanitizer.shadow.before import check_access, keeps_atomics
from mmulator.sanitizer.shadow.readers import behind, check_readers, read_by_itself, was_read, with_reader
from mmulator.sanitizer.state import of_launch

SHEET_BITS = 11
SHEET = 1 << SHEET_BITS
SHEET_CELLS = 2 * SHEET  # of all granules
COARSEST = 4  # log2
GROUP_BITS = 6
_PAGE = 512  # cells
GROUP = 1 << GROUP_BITS
_WITHIN = (1 << RANK_SHIFT) - 1


def cells_of(number: Any, granule: Any) -> Any:
    """Macro: the first cell of a sheet (or of sheets, a vector) for this granule (as a power of two)."""
    group, inside = (number >> GROUP_BITS) * (GROUP * SHEET_CELLS), number & (GROUP - 1)
    finer = inside * (SHEET_CELLS - _PAGE) + ((GROUP - 1) * _PAGE + u64(u32(SHEET) >> granule))
    return group + select(granule == COARSEST, inside * (SHEET >> COARSEST), finer)


# cells ----------------------------------------------------------------------------------------------------------------
@native(inline=True)
def visit(a: ptr_to(rec.Actor), cells: ptr_to(u64), count: u32, granule: u32, at: u64) -> None:
    """Check and record the actor's access to the bytes of these cells. granule: of the cells. at: the address of the first."""
    a.granule = granule
    writes = a.flags & rec.WRITE
    before = u64(0)
    after = u64(0)
    for i in range(count):
        cell = cells[i]
        if cell == before and i != 0:
            cells[i] = after
            continue
        last = u32(cell)
        readers = u32(cell >> 32)
        number = last >> rec.LANE_BITS
        a.kept = 0
        a.run = cells + i
        a.run_at = at + u64(i << granule)
        a.run_cells = count - i
        if number != 0 and number != a.fine:
            a.reread = was_read(a.store, readers)
            check_access(a, last, 1)
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
                        number = rec.record_of(a, a.shape, a.read_site)
                        new = u64((number << rec.LANE_BITS) | a.lane)
                check_readers(a, last, readers)
            if a.kept == 0 and cell != 0 and of_launch(a.cluster).certifies != 0:
                rec.forget_past(a, u32(new) >> rec.LANE_BITS, last, readers)
            new = new | (u64(behind(a, last, readers)) << 32)
        else:
            if readers != 0 and number != 0 and keeps_atomics(a, number):
                check_readers(a, last, readers)
            if a.entry != 0 and readers != a.entry:
                new = (u64(with_reader(a, readers)) << 32) | u64(last)
        if new != cell:
            cells[i] = new
        before = cell
        after = new


FILLING = 0xFFFFFFFF  # of a sheet whose cells another worker clears


@native
def granule_of(cells: ptr_to(u64), sheets: ptr_to(u32), number: u64, place: u32, bytes: u32, foreign: u32) -> u32:
    """The granule of a sheet (a power of two), after refining it for an access at a place. The cells of a new sheet are cleared.

    cells: cells of all sheets.
    sheets: for each sheet 1 + its granule, or 0 if it is empty.
    number: of the sheet.
    place, bytes: the access, in the sheet.
    foreign: whether other workers access the sheet too.
    """
    need = trailing_zeros(place | bytes | (1 << COARSEST))
    if need == 3:
        need = u32(2)
    sheet = sheets + number
    mode = sheet[0]
    keep_order("acquire")
    if mode - 1 <= need:
        return mode - 1
    to = cells + cells_of(number, need)
    if foreign != 0 and (mode == 0 or mode == FILLING):
        mode = compare_exchange(sheet, u32(0), u32(FILLING))
        while mode == FILLING:
            mode = atomic_rmw("or", sheet, u32(0))
        if mode - 1 <= need:
            return mode - 1
    if mode == 0:
        fill_bytes(to, 0, u64(8 * SHEET) >> u64(need))
    else:
        source = cells + cells_of(number, mode - 1)
        more = mode - 1 - need
        for i in range(u32(SHEET) >> need):
            to[i] = source[i >> more]
    atomic_rmw("xchg", sheet, need + 1)
    return need


@native(inline=True)
def touch_piece(
    a: ptr_to(rec.Actor), cells: ptr_to(u64), sheets: ptr_to(u32), number: u64, place: u32, bytes: u32, at: u64
) -> None:
    """Check and record an access to bytes of one sheet, from a place in it on. at: their address."""
    granule = sheets[number] - 1
    keep_order("acquire")
    if granule != COARSEST or ((place | bytes) & ((1 << COARSEST) - 1)) != 0:
        granule = granule_of(cells, sheets, number, place, bytes, a.store.foreign)
    visit(a, cells + cells_of(number, granule) + (place >> granule), bytes >> granule, granule, at)


@native
def area_of(launch: ptr_to(rec.LaunchRaces), s: ptr_to(rec.Races), at: u64, site: u32) -> ptr_to(rec.Area):
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
        return cast_ptr(rec.Area, null(u8))
    return found


@native(inline=True)
def is_quiet(area: ptr_to(rec.Area), writes: u32) -> boolean:
    """Whether an access to an area is not recorded."""
    if u64(area) == 0:
        return True
    if area.quiet != 0 and writes != 0:
        area.quiet = 0
    return area.quiet != 0


@native
def touch(a: ptr_to(rec.Actor), at: u64, bytes: u64) -> None:
    """Check and record the actor's access to bytes from a generic address on; number and address are arbitrary."""
    s = a.races
    slot = at >> SLOT_SHIFT
    cells = s.cells
    sheets = s.sheets
    place = u64(0)
    a.at = at
    a.bytes = bytes
    if slot == SLOT_SHARED:
        if (at & _WITHIN) < SHARED_BASE:  # the system's
            return
        rank = u32((at >> RANK_SHIFT) & 0xFF)
        place = (at & _WITHIN) - SHARED_BASE + u64(rank * s.stride) * SHEET
    else:
        area = area_of(s.launch, s, at, a.site)
        if is_quiet(area, a.flags & rec.WRITE):
            return
        cells = area.cells
        sheets = area.sheets
        place = at - area.base
        bytes = minimum(bytes, area.start + area.size - at)
    left = bytes
    while left != 0:
        number = place >> SHEET_BITS
        inside = u32(place) & (SHEET - 1)
        count = minimum(left, u64(SHEET - inside))
        touch_piece(a, cells, sheets, number, inside, u32(count), at + (bytes - left))
        place = place + count
        left = left - count


@native
def put_by(w: ptr_to(Warp), place: u32) -> u32:
    """1 + the AccessKind of the last write to an address of the CTA's shared window; 0 if it is unknown."""
    s = rec.races_of(w.cta.cluster)
    if u64(s) == 0 or place < SHARED_BASE:
        return 0
    at = u64(place - SHARED_BASE)
    if at >= u64(s.stride) * SHEET:
        return 0
    at = at + u64(w.cta.rank * s.stride) * SHEET
    number = at >> SHEET_BITS
    mode = s.sheets[number]
    if mode == 0:
        return 0
    cell = (s.cells + cells_of(number, mode - 1))[(u32(at) & (SHEET - 1)) >> (mode - 1)]
    record = u32(cell) >> rec.LANE_BITS
    if record == 0:
        return 0
    return 1 + u32(rec.kind_of((cast_ptr(rec.Store, s).records + record).flags))


# actors ---------------------------------------------------------------------------------------------------------------
@native(inline=True)
def is_watched(at: u64) -> u32:
    """1 for shared memory of the kernel, 2 for global memory, 0 for any other."""
    slot = at >> SLOT_SHIFT
    if slot == SLOT_SHARED:
        return u32((at & _WITHIN) >= SHARED_BASE)
    if slot >= FIRST_GLOBAL_SLOT or slot == 0:
        return 2
    return 0


@native
def act_async(
    w: ptr_to(Warp), lane: u32, lanes: u32, site: u32, access: u32, kind: u32, agent: u32, clock: u32, global_: u32,
    out: ptr_to(rec.Actor),
) -> None:
    """Prepare an actor for an asynchronous operation that lanes issue now and that may access memory from now on.

    w, site: the warp and instruction.
    lane: the lane that findings name.
    lanes: the issuing lanes.
    access: READ, WRITE and ATOMIC.
    kind: an AccessKind.
    agent, clock: agent and clock of its end.
    global_: whether it accesses global memory.
    out: the actor.
    """
    cluster = w.cta.cluster
    s = rec.races_of(cluster)
    out.w = w
    out.cluster = cluster
    out.races = s
    out.store = cast_ptr(rec.Store, s) + global_
    out.lane = lane
    out.lanes = 1
    out.site = site
    out.flags = access | (kind << rec.KIND_SHIFT)
    out.agent = agent
    out.clock = clock
    out.asynchronous = 1
    out.issuers = lanes
    out.met = null(u8)
    out.plain = 0
    if global_ == 0:
        rec.enough(s, w)
    out.mask = 1
    out.shape = 1
    out.seen = 0
    out.told = 0
    out.fine = 0
    out.noted = 0
    out.pattern = 0
    out.alike = 0
    out.unlike = 0
    since = u32(0)
    if (access & rec.WRITE) != 0:
        since = (u32(cluster.newest + 1) << rec.LANE_BITS) | lane
    out.record = rec.record_of(out, 1, since)
    out.entry = (out.record << rec.LANE_BITS) | lane
    if out.record == 0:
        out.entry = 0
