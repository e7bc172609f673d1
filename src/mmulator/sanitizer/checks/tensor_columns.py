"""Rules of the allocation of tensor memory (rules/tensor_memory.py): who holds columns, and what is under way where they end."""

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native, unrolled
from mmulator.codegen.ops import cast_ptr, fill_bytes, trailing_zeros
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.asynchrony.accounts import warp_number
from mmulator.native.matrix.tensor_state import TENSOR_UNIT
from mmulator.native.state import FULL, Cluster, Cta, Transfer, Warp
from mmulator.rules import tensor_memory as rules
from mmulator.sanitizer.checks.tensor_state import (
    LANE,
    LOADERS,
    LOADS,
    OTHERS,
    QUARTERS,
    READ_BEFORE,
    STORES,
    UNITS,
    WAITED,
    Cells,
    Held,
    Touch,
    cells_at,
    checks_of,
    tell_cells,
)
from mmulator.sanitizer.found import find, find_against
from mmulator.sanitizer.order.clocks import knows


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
        rule = u32(rules.PAIR_DIFFERS.number)
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
        entry = find_against(
            w, u32(rules.GROWS.number), site, w.live, 0, 0, held.least_site + 1, w.cta.linear, w.index, w.live
        )
        if u64(entry) != 0:
            if entry.count == 1:
                entry.words[0] = u64(columns)
                entry.words[1] = u64(held.least)
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
    rule = u32(rules.FREED_EARLY.number)
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
                    rule = u32(rules.NOT_PROMISED.number)
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
                    entry = find(w, u32(rules.HELD.number), held.site[unit], u32(FULL), 0, 0)
                    if u64(entry) != 0:
                        if entry.count == 1:
                            entry.words[0] = u64(unit * TENSOR_UNIT)
                            entry.words[1] = u64(u32(cta.unit_counts[unit]) * TENSOR_UNIT)


@native
def tensor_moves_alone(t: ptr_to(Transfer), out: ptr_to(u32)) -> None:
    """Ask for each tcgen05.mma to be carried out by itself, so that checks see the operands of one at a time."""
    out[0] = 1


HOOKS: Mapping[str, Native] = {
    "moves_alone": tensor_moves_alone,
    "tensor_allocated": cells_allocated, "tensor_freed": cells_freed, "cluster_finished": columns_left,
}
