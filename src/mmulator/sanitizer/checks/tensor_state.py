"""Records of accesses to tensor memory, and the question what is missing between two of them (tensor_memory.py); who holds
columns, and what is under way where they end.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, fill_bytes, null, select, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.base.rules import tensor_memory as rules
from mmulator.ptx.program.read_loads import FIRST
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.matrix.tensor_state import TENSOR_COLUMNS, TENSOR_UNIT
from mmulator.runtime.native.state import FULL, Cluster, Cta, Transfer, Warp
from mmulator.sanitizer.order.clocks import knows
from mmulator.sanitizer.order.views import entries_of, orders_of
from mmulator.sanitizer.state import Doubt, Found, doubt, find, find_against, of_cluster, of_launch, say

QUARTERS, LOADERS, UNITS = 4, 4, TENSOR_COLUMNS // TENSOR_UNIT
LANE = 16  # lowest bit of the lane in an address
READ, WRITE, ADD = 1, 2, 4  # what an operation does to cells; ADD: it needs what is there
# Keys of what operations do to cells; those of accumulators begin at PRODUCT. FACTORS: scale factors and metadata.
ITSELF, COPIED, ROWS_COPIED, SHIFTED, OPERAND, FACTORS, PRODUCT = 0, 1, 2, 3, 4, 5, 6  # ITSELF: of a finding alone
PLACES = 4
WAITED, AFTER, BEFORE, OTHERS, READ_BEFORE = 0, 1, 2, 3, 4  # words[1] of a finding: which part of an order is missing

# An access to cells. by: 1 + number of the warp, or of the thread that issued it; 0 for none.
# number: of the load or store of the warp, or of the operation of the thread. clock: of the warp. rows: mask of its lanes.
Touch = Struct("TensorTouch", [("by", u32), ("number", u32), ("clock", u32), ("site", u32), ("rows", u32)])
# The cells of a quarter in a column. written: lanes that were written.
# stored, loaded: the last tcgen05.st; the last tcgen05.ld of each warpgroup.
# made, key: the last operation that writes there, and what it computes. used: the last one that reads.
Cells = Struct("TensorCells", [
    ("written", u32), ("key", u32), ("stored", Touch), ("loaded", Touch, LOADERS), ("made", Touch), ("used", Touch),
])  # fmt: skip
# The loads and stores of a warp: how many, how many it has waited for, and agents + 1.
Mover = Struct("TensorMover", [("count", u32, 2), ("done", u32, 2), ("agent", u32, 2)])
# The operations and commits of a thread: agent + 1, how many, how many were committed, how many are before its last
# tcgen05.fence::before_thread_sync or tcgen05.commit, and where the last one is.
Issuer = Struct("TensorIssuer", [("agent", u32), ("issued", u32), ("committed", u32), ("fenced", u32), ("site", u32)])
# The allocations of a CTA, by their first unit: the instruction and the warp. least: the smallest so far, at `least_site`.
# at, places: where addresses of columns lie in shared memory, the last ones, and how many there were.
# met: how many with its peer; column, columns: of the last two of these.
Held = Struct("TensorHeld", [
    ("site", u32, UNITS), ("warp", u32, UNITS), ("least", u32), ("least_site", u32), ("met", u32), ("column", u32, 2),
    ("columns", u32, 2), ("met_site", u32, 2), ("at", u64, PLACES), ("places", u32),
])  # fmt: skip
# The state of a resident cluster. after: view of each thread at its last tcgen05.fence::after_thread_sync. read: of each site
# if it is a load, the signals before which all its values have gone to memory (ptx/program/read_loads.py).
TensorChecks = Struct("TensorChecks", [
    ("cells", ptr_to(Cells)), ("movers", ptr_to(Mover)), ("issuers", ptr_to(Issuer)), ("held", ptr_to(Held)),
    ("after", ptr_to(u32)), ("read", ptr_to(u8)),
])  # fmt: skip
LOADS, STORES = 0, 1
FEW = 4  # rows of tcgen05.cp.4x256b


def checks_of(cluster: Any) -> Any:
    """Macro: the state of a cluster; null if the kernel does not use tensor memory."""
    return cast_ptr(TensorChecks, of_cluster(cluster).field("tensor"))


@native(inline=True)
def cells_at(cta: ptr_to(Cta), quarter: u32, column: u32) -> ptr_to(Cells):
    """The cells of a quarter in a column of a CTA's tensor memory."""
    number = (cta.rank * QUARTERS + quarter) * TENSOR_COLUMNS + (column & (TENSOR_COLUMNS - 1))
    return checks_of(cta.cluster).cells + number


@native(inline=True)
def forget_rows(c: ptr_to(Cells), rows: u32) -> None:
    """Forget the accesses to lanes of cells that are written now."""
    c.written = c.written | rows
    c.stored.rows = c.stored.rows & ~rows
    c.made.rows = c.made.rows & ~rows
    c.used.rows = c.used.rows & ~rows
    for i in unrolled(LOADERS):
        touch = cast_ptr(Touch, c.loaded) + i
        touch.rows = touch.rows & ~rows


@native(inline=True)
def rows_in(lane: u32, rows: u32, quarter: u32) -> u32:
    """The lanes of a quarter, as a mask, among `rows` lanes from `lane` on."""
    first = quarter * 32
    if first + 32 <= lane or first >= lane + rows:
        return 0
    if rows < 32:
        return u32(0xFFFF) << (lane & 16)
    return FULL


@native
def of_one(cta: ptr_to(Cta), column: u32, columns: u32) -> boolean:
    """Whether columns belong to one allocation."""
    unit = column // TENSOR_UNIT
    first = unit
    while first != 0 and u32(cta.unit_counts[first]) == 0:
        first = first - 1
    return column + columns <= (first + u32(cta.unit_counts[first])) * TENSOR_UNIT


# findings -------------------------------------------------------------------------------------------------------------
@native
def tell_cells(
    w: ptr_to(Warp), lanes: u32, rule: u32, why: u32, site: u32, place: u32, other: ptr_to(Touch), thread: u32, stored: u32
) -> None:
    """Report a breach at cells.

    w, lanes, site: the warp, lanes and instruction.
    rule: number of the rule.
    why: what is missing.
    place: column, and above it the quarter.
    other: the access in conflict; its `by` is 0 if there is none.
    thread: whether `other` is of a thread, otherwise of a warp.
    stored: whether `other` is a store.
    """
    entry = null(Found)
    if other.by == 0:
        entry = find(w, rule, site, lanes, 0, 0)
    else:
        cluster = w.cta.cluster
        number = other.by - 1
        others = u32(FULL)
        if thread != 0:
            others = u32(1) << (number & 31)
            number = number >> 5
        warps = cluster.launch.warps
        cta = cast_ptr(Cta, cluster.ctas) + number // warps
        entry = find_against(w, rule, site, lanes, 0, 0, other.site + 1, cta.linear, number % warps, others)
    say(entry, u64(place), u64(why), u64(stored), 0)


@native
def tell_apart(w: ptr_to(Warp), lanes: u32, column: u32, columns: u32, site: u32) -> None:
    """Report an access to columns of two allocations."""
    say(find(w, u32(rules.NOT_ALLOCATED), site, lanes, 0, 0), u64(column), u64(columns), 0, 0)


# what is known --------------------------------------------------------------------------------------------------------
@native
def knew(w: ptr_to(Warp), lane: u32, agent: u32, clock: u32) -> boolean:
    """Whether a lane knew an agent's clock at its last tcgen05.fence::after_thread_sync."""
    o = orders_of(w.cta.cluster)
    if agent >= o.stride:
        return True
    id = checks_of(w.cta.cluster).after[warp_number(w) * 32 + lane]
    return entries_of(o, id)[agent] >= clock


@native
def missing_of_move(w: ptr_to(Warp), lane: u32, touch: ptr_to(Touch), store: u32) -> u32:
    """1 + what is missing between a load or store of a warp and a lane's next action; 0 if nothing is.

    w, lane: who acts now.
    touch: the load or store.
    store: whether it is a store.
    """
    number = touch.by - 1
    mover = checks_of(w.cta.cluster).movers + number
    waited = mover.done[store] >= touch.number
    if number == warp_number(w):
        return u32(not waited) * (1 + WAITED)
    agent = mover.agent[store] - 1
    if knew(w, lane, agent, touch.number):
        return 0
    if knows(w, lane, agent, touch.number) != 0:
        return 1 + AFTER
    if knows(w, lane, number * 32, touch.clock) != 0:
        if waited:
            return 1 + BEFORE
        return 1 + WAITED
    return 1 + OTHERS


@native
def missing_of_work(w: ptr_to(Warp), lane: u32, touch: ptr_to(Touch)) -> u32:
    """1 + what is missing between an operation of a pipe and a lane's next ld or st; 0 if nothing is."""
    issuer = checks_of(w.cta.cluster).issuers + (touch.by - 1)
    if knew(w, lane, issuer.agent - 1, touch.number):
        return 0
    if knows(w, lane, issuer.agent - 1, touch.number) != 0:
        return 1 + AFTER
    if knows(w, lane, touch.by - 1, touch.clock) != 0:
        return 1 + WAITED
    return 1 + OTHERS


@native
def tell_move(
    w: ptr_to(Warp), lanes: u32, missing: u32, own: boolean, site: u32, place: u32, move: ptr_to(Touch), stored: u32
) -> None:
    """Report that something is missing behind a load or store of a warp.

    w, lanes, site: the warp, lanes and instruction that use its cells.
    missing: 1 + what is missing.
    own: whether it is a store of the same warp, whose order chips keep.
    place: column, and above it the quarter.
    move, stored: the load or store, and whether it is a store.
    """
    why = missing - 1
    rule = select(missing == 1 + WAITED, u32(rules.WAIT_MISSING), u32(rules.FENCE_MISSING))
    if missing == 1 + OTHERS:
        rule = u32(rules.RACE)
    if own:
        rule = u32(rules.NOT_PROMISED)
    elif missing == 1 + WAITED and stored == 0 and checks_of(w.cta.cluster).read[move.site] & FIRST != 0:
        rule = u32(rules.NOT_PROMISED)
        why = u32(READ_BEFORE)
    tell_cells(w, lanes, rule, why, site, place, move, 0, stored)


# allocations ----------------------------------------------------------------------------------------------------------
@native
def allocated_together(w: ptr_to(Warp), held: ptr_to(Held), column: u32, columns: u32, site: u32) -> None:
    """Compare an allocation of a pair with that of the other CTA, if that one is done."""
    number = held.met
    slot = number & 1
    held.met = number + 1
    held.column[slot] = column
    held.columns[slot] = columns
    held.met_site[slot] = site
    rank = w.cta.rank ^ 1
    other = checks_of(w.cta.cluster).held + rank
    if other.met > number and (other.columns[slot] != columns or other.column[slot] != column):
        peer = cast_ptr(Cta, w.cta.cluster.ctas) + rank
        rule = u32(rules.PAIR_DIFFERS)
        entry = find_against(w, rule, site, w.live, 0, 0, other.met_site[slot] + 1, peer.linear, 0, u32(FULL))
        if u64(entry) != 0:
            if entry.count == 1:
                for n in unrolled(2):
                    one = held
                    if n == 1:
                        one = other
                    entry.words[n] = (u64(one.columns[slot]) << 32) | u64(one.column[slot])


@native
def cells_allocated(w: ptr_to(Warp), column: u32, columns: u32, site: u32) -> None:
    """Record an allocation: nothing is written, and nothing under way."""
    held = checks_of(w.cta.cluster).held + w.cta.rank
    held.site[column // TENSOR_UNIT] = site
    held.warp[column // TENSOR_UNIT] = w.index
    if held.least != 0 and columns > held.least:
        entry = find_against(w, u32(rules.GROWS), site, w.live, 0, 0, held.least_site + 1, w.cta.linear, w.index, w.live)
        say(entry, u64(columns), u64(held.least), 0, 0)
    if held.least == 0 or columns < held.least:
        held.least = columns
        held.least_site = site
    if w.cta.pair_done != held.met:
        allocated_together(w, held, column, columns, site)
    for q in range(u32(QUARTERS)):
        fill_bytes(cells_at(w.cta, q, column), 0, u64(columns) * Cells.size)


@native
def moved_before(w: ptr_to(Warp), lane: u32, touch: ptr_to(Touch), store: u32) -> u32:
    """1 + what is missing between a load or store and the end of an allocation; 0 if nothing is."""
    number = touch.by - 1
    mover = checks_of(w.cta.cluster).movers + number
    if number != warp_number(w):
        if knows(w, lane, mover.agent[store] - 1, touch.number) != 0:
            return 0
        if knows(w, lane, number * 32, touch.clock) == 0:
            return 1 + OTHERS
    return u32(mover.done[store] < touch.number) * (1 + WAITED)


@native
def worked_before(w: ptr_to(Warp), lane: u32, touch: ptr_to(Touch)) -> u32:
    """1 + what is missing between an operation of a pipe and the end of an allocation; 0 if nothing is."""
    issuer = checks_of(w.cta.cluster).issuers + (touch.by - 1)
    if knows(w, lane, issuer.agent - 1, touch.number) != 0:
        return 0
    return 1 + WAITED


@native
def check_free(w: ptr_to(Warp), lane: u32, c: ptr_to(Cells), place: u32, site: u32) -> boolean:
    """Check that nothing is under way in cells whose allocation ends. Returns whether something was reported."""
    rule = u32(rules.FREED_EARLY)
    for n in unrolled(2):
        work = c.made
        if n == 1:
            work = c.used
        if work.rows != 0:
            missing = worked_before(w, lane, work)
            if missing != 0:
                tell_cells(w, w.live, rule, missing - 1, site, place, work, 1, 0)
                return True
    if c.stored.rows != 0:
        missing = moved_before(w, lane, c.stored, u32(STORES))
        if missing != 0:
            tell_cells(w, w.live, rule, missing - 1, site, place, c.stored, 0, 1)
            return True
    for n in unrolled(LOADERS):
        touch = cast_ptr(Touch, c.loaded) + n
        if touch.rows != 0:
            missing = moved_before(w, lane, touch, u32(LOADS))
            if missing != 0:
                if missing == 1 + WAITED and checks_of(w.cta.cluster).read[touch.site] != 0:
                    rule = u32(rules.NOT_PROMISED)
                    missing = u32(1 + READ_BEFORE)
                tell_cells(w, w.live, rule, missing - 1, site, place, touch, 0, 0)
                return True
    return False


@native
def cells_freed(w: ptr_to(Warp), column: u32, columns: u32, site: u32) -> None:
    """Check tcgen05.dealloc."""
    lane = trailing_zeros(w.live)
    told = boolean(False)
    for q in range(u32(QUARTERS)):
        for n in range(columns):
            if not told:
                told = check_free(w, lane, cells_at(w.cta, q, column + n), (column + n) | (q << LANE), site)


@native
def columns_left(cluster: ptr_to(Cluster)) -> None:
    """When a cluster has ended, report the columns that its CTAs still hold."""
    s = checks_of(cluster)
    if u64(s) != 0:
        for rank in range(cluster.cta_count):
            cta = cast_ptr(Cta, cluster.ctas) + rank
            held = s.held + rank
            for unit in range(u32(UNITS)):
                if u32(cta.unit_counts[unit]) != 0:
                    w = cast_ptr(Warp, cta.warps) + held.warp[unit]
                    entry = find(w, u32(rules.HELD), held.site[unit], u32(FULL), 0, 0)
                    say(entry, u64(unit * TENSOR_UNIT), u64(u32(cta.unit_counts[unit]) * TENSOR_UNIT), 0, 0)


@native
def tensor_moves_alone(t: ptr_to(Transfer), out: ptr_to(u32)) -> None:
    """Ask for each tcgen05.mma to be carried out by itself, so that checks see the operands of one at a time."""
    out[0] = 1


@native(inline=True)
def place_touched(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Note where the address of columns is stored by tcgen05.alloc, and who reads it."""
    if of_launch(w.cta.cluster).certifies != 0 and u64(checks_of(w.cta.cluster)) != 0:
        note_place(w, mask, at, base, bytes, access, site)


@native
def note_place(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    cluster = w.cta.cluster
    first = checks_of(cluster).held
    held = first + w.cta.rank
    if (access & events.WRITE) != 0 and held.least != 0:
        for unit in unrolled(UNITS):
            if held.site[unit] == site and held.warp[unit] == w.index:
                held.at[held.places & (PLACES - 1)] = at[trailing_zeros(mask)] | base
                held.places = held.places + 1
                return
    if (access & events.READ) == 0:
        return
    for rank in range(cluster.cta_count):
        held = first + rank
        for lane in bits_of(select(held.places != 0, mask, u32(0))):
            place = at[lane] | base
            for n in unrolled(PLACES):
                if held.at[n] != 0 and place < held.at[n] + 4 and held.at[n] < place + u64(bytes):
                    doubt(w, Doubt.PLACE_READ, site, u32(1) << lane, place, bytes, 0, 0, 0, 0)


HOOKS: Mapping[str, Native] = {
    "accessed": place_touched,
    "moves_alone": tensor_moves_alone,
    "tensor_allocated": cells_allocated, "tensor_freed": cells_freed, "cluster_finished": columns_left,
}
