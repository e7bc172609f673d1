"""Rules of tensor memory (base/rules/tensor_memory.py): what orders the accesses to its cells.

Cells are watched in groups: the 32 lanes of a quarter in one column, of which accesses to the same lanes conflict. Loads and
stores of a warp are numbered; a warp that has waited for them and executes tcgen05.fence::before_thread_sync knows their numbers
as clocks of two agents, and a thread that acquires from the warp knows them too. Operations of a pipe (mma, cp, shift) are
numbered for each thread that issues them; tcgen05.commit releases their numbers, as the clock of the thread's agent, to the
phase of its mbarrier. A thread may use what it knew at its last tcgen05.fence::after_thread_sync.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, fill_bytes, stack, trailing_zeros
from mmulator.base.codegen.types import boolean, ptr_to, u32, u64
from mmulator.base.rules import tensor_memory as rules
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.asynchrony.transfers import payload_of
from mmulator.runtime.native.hooks.events import PayloadShape
from mmulator.runtime.native.hooks.tensor import TensorStep, TensorTask
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS
from mmulator.runtime.native.memory.windows import shared_of
from mmulator.runtime.native.state import FULL, Cluster, Cta, Transfer, Warp
from mmulator.sanitizer.checks.proxy_operands import operands_read
from mmulator.sanitizer.checks.tensor_state import (
    ADD,
    AFTER,
    BEFORE,
    COPIED,
    FACTORS,
    FEW,
    ITSELF,
    LANE,
    LOADERS,
    LOADS,
    OPERAND,
    OTHERS,
    PRODUCT,
    QUARTERS,
    READ,
    ROWS_COPIED,
    SHIFTED,
    STORES,
    WRITE,
    Cells,
    Held,
    Issuer,
    Mover,
    Touch,
    cells_at,
    checks_of,
    forget_rows,
    knew,
    missing_of_move,
    missing_of_work,
    of_one,
    rows_in,
    tell_apart,
    tell_cells,
    tell_move,
)
from mmulator.sanitizer.order import views
from mmulator.sanitizer.order.clocks import knows, learn_plane, new_agent, now
from mmulator.sanitizer.order.locations import phaser_of
from mmulator.sanitizer.state import find, say


# loads and stores -----------------------------------------------------------------------------------------------------
@native
def check_moved(
    w: ptr_to(Warp), lane: u32, lanes: u32, c: ptr_to(Cells), rows: u32, writes: boolean, store: u32, place: u32, site: u32
) -> boolean:
    """Check an access to cells against loads and stores of warps. Returns whether something was reported.

    w, lane, lanes, site: who accesses them, the lane whose knowledge counts, and the instruction.
    c, rows, place: the cells, and which lanes of them.
    writes: whether it writes them. store: whether it is a store of a warp.
    """
    touch = c.stored
    stored = u32(1)
    missing = u32(0)
    if (touch.rows & rows) != 0:
        missing = missing_of_move(w, lane, touch, u32(STORES))
    if writes:
        for n in unrolled(LOADERS):
            other = cast_ptr(Touch, c.loaded) + n
            if missing == 0 and (other.rows & rows) != 0:
                touch = other
                stored = u32(0)
                missing = missing_of_move(w, lane, touch, u32(LOADS))
    if missing != 0:
        tell_move(w, lanes, missing, store != 0 and touch.by == warp_number(w) + 1, site, place, touch, stored)
    return missing != 0


@native
def check_move(w: ptr_to(Warp), lane: u32, c: ptr_to(Cells), rows: u32, store: u32, place: u32, site: u32) -> boolean:
    """Check a warp's access to cells. Returns whether something was reported.

    w, lane, site: the warp, the lane whose knowledge counts, and the instruction.
    c, rows, place: the cells, and which lanes of them.
    store: whether it is a store.
    """
    lanes = w.live
    touch = c.made
    missing = u32(0)
    if (touch.rows & rows) != 0:
        missing = missing_of_work(w, lane, touch)
    if missing == 0 and store != 0 and (c.used.rows & rows) != 0:
        touch = c.used
        missing = missing_of_work(w, lane, touch)
    if missing != 0:
        rule = u32(rules.READ_EARLY)
        if store != 0:
            rule = rules.WRITTEN_EARLY
        if missing == 1 + AFTER:
            rule = rules.COMMIT_FENCE_MISSING
        if missing == 1 + OTHERS:
            rule = rules.RACE
        tell_cells(w, lanes, rule, missing - 1, site, place, touch, 1, 0)
        return True
    return check_moved(w, lane, lanes, c, rows, store != 0, store, place, site)


@native
def move_columns(w: ptr_to(Warp), rows: u32, column: u32, columns: u32, store: u32, number: u32, site: u32) -> None:
    """Check and record a warp's access to columns of its quarter.

    w, site: the warp and instruction.
    rows: mask of the lanes of tensor memory.
    column, columns: the columns.
    store, number: whether it is a store, and its number.
    """
    lane = trailing_zeros(w.live)
    quarter = w.index & 3
    told = boolean(False)
    empty = boolean(False)
    if not of_one(w.cta, column, columns):
        tell_apart(w, w.live, column, columns, site)
    for n in range(columns):
        c = cells_at(w.cta, quarter, column + n)
        place = (column + n) | (quarter << LANE)
        if not told:
            told = check_move(w, lane, c, rows, store, place, site)
        if store == 0 and not empty and (c.written & rows) == 0:
            empty = True
            if (c.made.rows & rows) == 0:
                none = stack(Touch)
                none.by = 0
                tell_cells(w, w.live, u32(rules.UNWRITTEN), u32(0), site, place, none, 0, 0)
        touch = cast_ptr(Touch, c.loaded) + ((w.index >> 2) & (LOADERS - 1))
        if store != 0:
            forget_rows(c, rows)
            touch = c.stored
        touch.by = warp_number(w) + 1
        touch.number = number
        touch.clock = now(w)
        touch.site = site
        touch.rows = rows


@native
def cells_moved(w: ptr_to(Warp), address: u32, rows: u32, columns: u32, split: u32, store: u32, site: u32) -> None:
    """Check tcgen05.ld or tcgen05.st."""
    cluster = w.cta.cluster
    mover = checks_of(cluster).movers + warp_number(w)
    if mover.agent[store] == 0:
        mover.agent[store] = new_agent(cluster) + 1
    number = mover.count[store] + 1
    mover.count[store] = number
    if ((address >> (LANE + 5)) & 3) != (w.index & 3):
        say(find(w, u32(rules.QUARTER), site, w.live, 0, 0), u64(address >> LANE), 0, 0, 0)
    column = address & 0xFFFF
    move_columns(w, rows, column, columns, store, number, site)
    if split != 0:
        move_columns(w, rows, column + split, columns, store, number, site)


@native
def cells_ordered(w: ptr_to(Warp), mask: u32, step: u32, site: u32) -> None:
    """Handle tcgen05.wait and tcgen05.fence. A kernel that does nothing else with tensor memory has nothing to order."""
    cluster = w.cta.cluster
    s = checks_of(cluster)
    if u64(s) == 0:
        return
    mover = s.movers + warp_number(w)
    if step == TensorStep.WAIT_LOADS:
        mover.done[LOADS] = mover.count[LOADS]
    elif step == TensorStep.WAIT_STORES:
        mover.done[STORES] = mover.count[STORES]
    else:
        o = views.orders_of(cluster)
        k = views.knower_of(o, w)
        if step == TensorStep.BEFORE:
            for lane in range(u32(32)):
                issuer = s.issuers + (warp_number(w) * 32 + lane)
                if ((mask >> lane) & 1) != 0:
                    issuer.fenced = issuer.issued
            for kind in unrolled(2):
                agent = mover.agent[kind] - 1
                if mover.agent[kind] != 0 and agent < o.stride:
                    learn_plane(o, k.now.views, mask, agent, mover.done[kind])
        else:
            after = s.after + warp_number(w) * 32
            for lane in bits_of(mask):
                views.give_view(o, after, u32(1) << lane, k.now.views[lane])


# operations of a pipe -------------------------------------------------------------------------------------------------
@native
def promised(before: u32, key: u32) -> boolean:
    """Whether two operations of one thread, or of threads in order, are carried out in the order of their issue.

    before, key: what the first and the second one do to cells.
    """
    if before >= PRODUCT:
        return key == before or key == SHIFTED
    if before == OPERAND:
        return key == SHIFTED
    return key >= OPERAND or (before == SHIFTED and key == ROWS_COPIED)


@native
def check_behind(w: ptr_to(Warp), lane: u32, work: ptr_to(Touch), before: u32, key: u32, place: u32, site: u32) -> boolean:
    """Check an operation's order behind another one. Returns whether something was reported.

    w, lane, site: who issues it, and the instruction.
    work, before: the other operation, and what it does to the cells.
    key: what this one does to the cells.
    place: the cells.
    """
    own = work.by == warp_number(w) * 32 + lane + 1
    issuer = checks_of(w.cta.cluster).issuers + (work.by - 1)
    agent = issuer.agent - 1
    kept = promised(before, key)
    rule = u32(0)
    why = u32(AFTER)
    if own and work.number == issuer.issued and not kept:
        rule = u32(rules.UNORDERED)
        why = u32(ITSELF)
    elif knows(w, lane, agent, work.number) != 0:
        if not kept and not knew(w, lane, agent, work.number):
            rule = u32(rules.COMMIT_FENCE_MISSING)
    elif not own and knows(w, lane, work.by - 1, work.clock) == 0:
        rule = u32(rules.RACE)
        why = OTHERS
    elif not kept:
        rule = u32(rules.UNORDERED)
        why = u32(key)
        if before == OPERAND or key <= ROWS_COPIED:
            rule = u32(rules.NOT_PROMISED)
            why = OTHERS
    elif not own:
        if issuer.fenced < work.number:
            rule = u32(rules.FENCE_MISSING)
            why = BEFORE
        elif not knew(w, lane, work.by - 1, work.clock):
            rule = u32(rules.FENCE_MISSING)
    if rule != 0:
        tell_cells(w, u32(1) << lane, rule, why, site, place, work, 1, 0)
    return rule != 0


@native
def check_work(w: ptr_to(Warp), lane: u32, c: ptr_to(Cells), rows: u32, key: u32, does: u32, place: u32, site: u32) -> boolean:
    """Check an operation's access to cells. Returns whether something was reported.

    w, lane, site: who issues it, and the instruction.
    c, rows, place: the cells, and which lanes of them.
    key, does: what it does to them; READ, WRITE, ADD.
    """
    lanes = u32(1) << lane
    if (does & WRITE) != 0 and (c.used.rows & rows) != 0:
        if check_behind(w, lane, c.used, u32(OPERAND), key, place, site):
            return True
    if (c.made.rows & rows) != 0:
        if check_behind(w, lane, c.made, c.key, key, place, site):
            return True
    if check_moved(w, lane, lanes, c, rows, (does & WRITE) != 0, 0, place, site):
        return True
    if (does & ADD) != 0 and (c.written & rows) == 0:
        none = stack(Touch)
        none.by = 0
        tell_cells(w, lanes, u32(rules.UNWRITTEN), u32(1), site, place, none, 0, 0)
        return True
    return False


@native
def work_columns(
    t: ptr_to(Transfer), cta: ptr_to(Cta), rows: u32, quarter: u32, column: u32, columns: u32, key: u32, does: u32, number: u32
) -> None:
    """Check and record an operation's access to columns of a quarter.

    t: the operation.
    cta: owner of the tensor memory.
    rows, quarter: mask of the lanes of the quarter.
    column, columns: the columns.
    key, does: what it does to them; READ, WRITE, ADD.
    number: of the operation.
    """
    w = cast_ptr(Warp, t.warp)
    told = boolean(rows == 0)
    if not of_one(cta, column & COLUMN_BITS, columns):
        tell_apart(w, u32(1) << t.lane, column & COLUMN_BITS, columns, t.site)
    for n in range(columns):
        c = cells_at(cta, quarter, column + n)
        if not told:
            told = check_work(w, t.lane, c, rows, key, does, ((column + n) & COLUMN_BITS) | (quarter << LANE), t.site)
        touch = c.used
        if (does & WRITE) != 0:
            forget_rows(c, rows)
            touch = c.made
            c.key = key
        touch.by = warp_number(w) * 32 + t.lane + 1
        touch.number = number
        touch.clock = now(w)
        touch.site = t.site
        touch.rows = rows


@native
def product_issued(t: ptr_to(Transfer), cta: ptr_to(Cta), part: u32, number: u32) -> None:
    """Check what tcgen05.mma does in one CTA's tensor memory. part: 1 for the second CTA of a pair."""
    work = payload_of(t, PayloadShape.TENSOR)
    table = work.table
    for q in range(u32(QUARTERS)):
        if work.in_cells != 0:
            for p in range(table.pieces):
                rows = rows_in(table.lane[p] + ((u32(work.a) >> LANE) & 16), table.rows, q)
                if table.first[p] == 0 and rows != 0:
                    columns = (table.a_cells + 3) // 4
                    work_columns(t, cta, rows, q, u32(work.a), columns, u32(OPERAND), u32(READ | ADD), number)
                    if work.moved_up != 0:
                        work_columns(t, cta, rows, q, u32(work.a), columns, u32(SHIFTED), u32(READ | WRITE), number)
        if table.scales != 0:  # all quarters must have them
            work_columns(t, cta, u32(FULL), q, work.scale_a, table.a_span, u32(FACTORS), u32(READ | ADD), number)
            work_columns(t, cta, u32(FULL), q, work.scale_b, table.b_span, u32(FACTORS), u32(READ | ADD), number)
        if table.sparse != 0:
            work_columns(t, cta, u32(FULL), q, work.metadata + table.selected, table.cells, u32(FACTORS), u32(READ | ADD), number)
    key = PRODUCT + (table.m | (table.n << 10) | (table.mode << 20))
    does = u32(WRITE)
    if work.adds != 0:
        does = u32(READ | WRITE | ADD)
    for p in range(table.pieces):
        for q in range(u32(QUARTERS)):
            rows = rows_in(table.lane[p] + ((work.d >> LANE) & 16), table.rows, q) & ~work.lanes_off[4 * part + q]
            if rows != 0:
                work_columns(t, cta, rows, q, work.d + table.column[p], table.columns, key, does, number)


@native
def work_issued(t: ptr_to(Transfer), task: u32, columns: u32) -> None:
    """Check an operation of a pipe that is about to be issued."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    issuer = checks_of(cluster).issuers + (warp_number(w) * 32 + t.lane)
    if issuer.agent == 0:
        issuer.agent = new_agent(cluster) + 1
    number = issuer.issued + 1
    issuer.issued = number
    issuer.site = t.site
    work = payload_of(t, PayloadShape.TENSOR)
    for part in range(u32(2)):
        if part <= work.pair:
            cta = w.cta
            if work.pair != 0:
                cta = cast_ptr(Cta, cluster.ctas) + ((cta.rank & ~u32(1)) | part)
            if task == TensorTask.MMA:
                product_issued(t, cta, part, number)
            else:
                key = u32(COPIED)
                does = u32(WRITE)
                if task == TensorTask.SHIFT:
                    key = u32(SHIFTED)
                    does = u32(READ | WRITE | ADD)
                elif work.mode == FEW:
                    key = u32(ROWS_COPIED)
                for q in range(u32(QUARTERS)):
                    if task == TensorTask.COPY or q == (work.d >> (LANE + 5)) & 3:
                        work_columns(t, cta, u32(FULL), q, work.d, columns, key, does, number)
            operands_read(t, cta, task, columns, issuer.agent - 1, number)


@native
def work_committed(t: ptr_to(Transfer)) -> None:
    """Handle tcgen05.commit: the end of the thread's operations so far happens before the end of the mbarrier's phase."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    o = views.orders_of(cluster)
    issuer = checks_of(cluster).issuers + (warp_number(w) * 32 + t.lane)
    issuer.issued = issuer.issued + 1
    issuer.committed = issuer.issued
    issuer.fenced = issuer.issued
    agent = issuer.agent - 1
    for rank in bits_of(t.barriers):
        entry = phaser_of(cluster, u64(shared_of(cluster, rank)) + t.offset)
        if u64(entry) != 0:
            c = entry.collecting
            views.release_lanes(o, views.knower_of(o, w), u32(1) << t.lane, c)
            if issuer.agent != 0 and agent != views.NO_AGENT:
                for p in unrolled(views.PROXIES):
                    if c.views[p] == views.NOTHING:
                        c.views[p] = views.copied_view(o, u32(views.NOTHING))
                    if c.views[p] != views.ALL:
                        views.entries_of(o, c.views[p])[agent] = issuer.issued


# the beginning and the end --------------------------------------------------------------------------------------------
@native
def tensor_begins(cluster: ptr_to(Cluster)) -> None:
    """Reset the state for a new cluster."""
    s = checks_of(cluster)
    if u64(s) != 0:
        warps = u64(cluster.warp_count)
        fill_bytes(s.movers, 0, warps * Mover.size)
        fill_bytes(s.issuers, 0, warps * (32 * Issuer.size))
        fill_bytes(s.after, 0, warps * (32 * 4))
        fill_bytes(s.held, 0, u64(cluster.cta_count) * Held.size)


@native
def issuers_leave(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """At the exit of threads, report operations that they have not committed."""
    s = checks_of(w.cta.cluster)
    if u64(s) != 0:
        for lane in bits_of(mask):
            issuer = s.issuers + (warp_number(w) * 32 + lane)
            if issuer.committed != issuer.issued:
                find(w, u32(rules.NOT_COMMITTED), issuer.site, u32(1) << lane, 0, 0)


HOOKS: Mapping[str, Native] = {
    "tensor_moved": cells_moved, "tensor_ordered": cells_ordered, "tensor_issued": work_issued,
    "tensor_committed": work_committed, "lanes_exit": issuers_leave, "cluster_begins": tensor_begins,
}  # fmt: skip
