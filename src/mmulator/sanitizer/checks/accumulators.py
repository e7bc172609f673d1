"""Rules of wgmma's registers in flight (base/rules/accumulators.py).

For each warp, the state of its wgmma in program order, by their numbers: issued, committed to a group, waited for. When the
machine carries them out does not matter, nor do waits that it inserts itself (CompileOptions.waits). Each register that some
wgmma names has a Cell: the newest wgmma that accumulates there, the newest that reads A there, and the last other access since
the last wgmma.fence. The number of a wgmma is stored + 1, so that 0 means none. After a finding the state is as if the missing
wait or fence had been there: each is reported once, where it is first missed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes
from mmulator.base.codegen.types import Struct, boolean, i32, ptr_to, u8, u32, u64
from mmulator.base.rules import accumulators as rules
from mmulator.isa.effects import Queue, Step
from mmulator.ptx.program.inline_assembly import copies, moved_by_compiler
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.hooks.events import Access
from mmulator.runtime.native.matrix.wgmma import operation
from mmulator.runtime.native.state import FULL, Cluster, Warp
from mmulator.sanitizer.state import find, find_against, of_cluster, say

CELL_SHIFT = 7  # a register of wgmma takes at least 128 bytes of a frame, so its offset shifted by this numbers its cell
OPERATIONS = 256  # recorded operations of a warp

# The accesses to a register. *_epoch, touch: number of fences at the last access, 0 for never; touch is for instructions other
# than wgmma.
Cell = Struct("AccumulatorCell", [
    ("d", u32), ("d_epoch", u32), ("d_place", u32), ("shape", u32), ("tile", u32),  # the newest wgmma that accumulates here
    ("a", u32), ("a_epoch", u32), ("a_place", u32),  # the newest wgmma that reads A here
    ("touch", u32), ("site", u32), ("lanes", u32), ("wrote", u32),  # the last other access; wrote: 1 if it was a write
])  # fmt: skip
UNCOMMITTED = 0xFFFFFFFF
Issued = Struct("AccumulatorIssued", [("site", u32), ("group", u32)])
SOUND = 4
Sound = Struct("SoundAccumulator", [("table", u64), ("frame", u64), ("touches", u64)])
# The state of a warp.
# epoch: number of fences so far, + 1.
# done: number of wgmma that were waited for.
# seen, settled: epoch at the last wgmma or wait, and at the last wait.
# kinds: kind of each site.
# touches: number of accesses other than to D by a wgmma, + 1.
# sound: wgmma of late whose D no other tile shares. Another one like them has nothing to check if `touches` is as it was.
Accumulators = Struct("Accumulators", [
    ("epoch", u32), ("issued", u32), ("committed", u32), ("groups", u32), ("done", u32), ("seen", u32), ("settled", u32),
    ("cells", ptr_to(Cell)), ("count", u64),
    ("operations", ptr_to(Issued)), ("touches", u64), ("sound", Sound, SOUND),
    ("kinds", ptr_to(u8)),
])  # fmt: skip


class Site:
    """The kind of an instruction for these rules, by its site."""

    STRICT = 0  # at the place where its author wrote it
    COMPUTES = 1  # placed between inline assembly by a compiler that does not know registers in flight
    MOVES = 2  # as COMPUTES, and it only copies
    ORDERS = 3  # wgmma.commit_group, wgmma.wait_group of the text


def kinds_of(sites: Sequence[Instruction]) -> np.ndarray:
    """The kind of each instruction."""
    return np.array([_kind(ins) for ins in sites], np.uint8)


def _kind(ins: Instruction) -> int:
    if ins.effects.queue is Queue.WGMMA:
        return Site.ORDERS if ins.effects.step in (Step.COMMIT, Step.WAIT) else Site.STRICT
    if moved_by_compiler(ins):
        return Site.MOVES if copies(ins) else Site.COMPUTES
    return Site.STRICT


# words[0] of a finding: a place in a list of registers, and above it the kind of breach.
PLACE_BITS = 16
IN_D, IN_A, FIRST, TOUCHED, SHAPE, BETWEEN = range(6)


def _mine(w: Any) -> Any:
    """Macro: the state of a warp's accumulators."""
    cta = w.field("cta")
    cluster = cta.field("cluster")
    number = (u64(w) - u64(cluster.field("warps"))) // Warp.size
    return cast_ptr(Accumulators, of_cluster(cluster).field("accumulators")) + number


def _cell(mine: Any, offset: Any) -> Any:
    """Macro: the cell of a register at an offset in the warp's register file."""
    return mine.field("cells") + (offset >> CELL_SHIFT)


def _sound(mine: Any, table: Any) -> Any:
    """Macro: where a wgmma that needs no check is noted."""
    return cast_ptr(Sound, mine.field("sound")) + (table.field("tile") & (SOUND - 1))


def _issued(mine: Any, number: Any) -> Any:
    """Macro: the record of an operation."""
    return mine.field("operations") + (number & (OPERATIONS - 1))


@native
def accumulators_begin(cluster: ptr_to(Cluster)) -> None:
    """Reset the state for a new cluster: nothing issued, nothing accessed."""
    warps = cast_ptr(Warp, cluster.warps)
    if u64(of_cluster(cluster).accumulators) != 0:
        for i in range(cluster.warp_count):
            mine = _mine(warps + i)
            fill_bytes(mine, 0, Accumulators.offset["cells"])
            mine.epoch = 1
            mine.touches = mine.touches + 1
            fill_bytes(mine.cells, 0, mine.count * Cell.size)


@native
def accumulators_conflict(
    w: ptr_to(Warp), mine: ptr_to(Accumulators), rule: u32, site: u32, lanes: u32, number: u32, word: u32
) -> None:
    """Report a breach against the operation with this number (+ 1).

    w: the warp.
    mine: the state of its accumulators.
    rule: number of the rule.
    site, lanes: the instruction and its lanes.
    number: number of the operation + 1.
    word: the place in the operand.

    words of the finding: the place; the operation's group or UNCOMMITTED; number of groups committed since, which is the N of a
    sufficient wait_group.
    """
    other = _issued(mine, number - 1)
    entry = find_against(w, rule, site, lanes, 0, 0, other.site + 1, w.cta.linear, w.index, FULL)
    say(entry, u64(word), u64(other.group), u64(mine.groups - 1 - other.group), 0)


@native
def accumulators_early(
    w: ptr_to(Warp), mine: ptr_to(Accumulators), rule: u32, site: u32, lanes: u32, number: u32, word: u32
) -> None:
    """Report an access to an accumulator of an operation that was not waited for. From here on its group counts as complete."""
    accumulators_conflict(w, mine, rule, site, lanes, number, word)
    if rule != rules.A_READ:
        group = _issued(mine, number - 1).group
        done = number
        while done != mine.issued and _issued(mine, done).group == group:
            done = done + 1
        mine.done = done


@native
def accumulators_touched(w: ptr_to(Warp), mask: u32, slot: u32, access: u32, site: u32) -> None:
    """Check an instruction's access to a register that wgmma uses."""
    mine = _mine(w)
    mine.touches = mine.touches + 1
    cell = _cell(mine, u64(w.frame) + u64(slot))
    wrote = (access >> 1) & 1
    kind = u32(mine.kinds[site])
    if cell.d > mine.done:
        rule = u32(rules.READ_EARLY)
        if wrote != 0:
            rule = rules.WRITTEN_EARLY
        if mask != 0:
            accumulators_early(w, mine, rule, site, mask, cell.d, cell.d_place)
    elif cell.a > mine.done:
        rule = rules.A_OVERWRITTEN
        if wrote == 0:
            rule = rules.A_READ
        if mask != 0 and (wrote != 0 or kind == Site.STRICT):
            accumulators_early(w, mine, rule, site, mask, cell.a, cell.a_place)
    epoch = mine.epoch
    if kind == Site.COMPUTES:
        epoch = mine.seen
    if kind == Site.MOVES:
        epoch = mine.settled
    if mask != 0 and epoch >= cell.touch and (access & int(Access.LATER)) == 0:
        cell.touch = epoch
        cell.site = site
        cell.lanes = mask
        cell.wrote = wrote


@native
def accumulators_unfenced(w: ptr_to(Warp), cell: ptr_to(Cell), site: u32, word: u32) -> u32:
    """1, with a finding, if there is no wgmma.fence between an access to a register and the wgmma that uses it."""
    entry = find_against(w, rules.FENCE_MISSING, site, FULL, 0, 0, cell.site + 1, w.cta.linear, w.index, cell.lanes)
    say(entry, u64(word), u64(cell.wrote), 0, 0)
    return 1


@native
def accumulators_between(w: ptr_to(Warp), mine: ptr_to(Accumulators), site: u32, number: u32, word: u32) -> u32:
    """Report an accumulator that a wgmma (number + 1) used before."""
    accumulators_conflict(w, mine, rules.FENCE_MISSING, site, FULL, number, word)
    return 1


@native
def accumulators_use_d(w: ptr_to(Warp), mine: ptr_to(Accumulators), number: u32, fenced: u32) -> u32:
    """Check the accumulators of operation `number` before it is issued. Returns 1 if a missing fence was reported."""
    op = operation(w, u64(number))
    table = op.table
    slots = cast_ptr(i32, table.d_slots)
    shape = table.n | table.k << 16
    told = fenced
    apart = boolean(False)
    early = boolean(False)
    for i in range(table.d_words):
        cell = _cell(mine, op.frame + u64(slots[i]))
        if told == 0 and cell.touch == mine.epoch:
            told = accumulators_unfenced(w, cell, op.site, i | (TOUCHED << PLACE_BITS))
        if told == 0 and cell.d_epoch == mine.epoch and cell.shape != shape:
            told = accumulators_between(w, mine, op.site, cell.d, i | (SHAPE << PLACE_BITS))
        if told == 0 and not apart and cell.d > mine.done and cell.d_epoch == mine.epoch and cell.tile != table.tile:
            accumulators_conflict(w, mine, rules.OVERLAP, op.site, FULL, cell.d, cell.d_place)
            apart = True
        if not early and cell.a > mine.done:
            accumulators_early(w, mine, rules.A_OVERWRITTEN, op.site, FULL, cell.a, cell.a_place)
            early = True
        if told == 0 and not early and cell.a_epoch == mine.epoch:
            told = accumulators_between(w, mine, op.site, cell.a, i | (BETWEEN << PLACE_BITS))
    sound = _sound(mine, table)
    sound.table = 0
    if not early and table.rival_count == 0:
        sound.table = u64(table)
        sound.frame = op.frame
        sound.touches = mine.touches
    return told


@native
def accumulators_use_a(w: ptr_to(Warp), mine: ptr_to(Accumulators), number: u32, fenced: u32) -> u32:
    """Check the registers of A before a wgmma uses them. Returns 1 if a missing fence was reported, or else `fenced`."""
    op = operation(w, u64(number))
    slots = cast_ptr(i32, op.table.a_slots)
    told = fenced
    early = boolean(False)
    for i in range(u32(4)):
        cell = _cell(mine, op.frame + u64(slots[i]))
        word = i | (IN_A << PLACE_BITS)
        if not early and cell.d > mine.done:
            accumulators_early(w, mine, rules.READ_EARLY, op.site, FULL, cell.d, cell.d_place)
            early = True
        if told == 0 and cell.touch == mine.epoch:
            told = accumulators_unfenced(w, cell, op.site, word)
        if told == 0 and not early and cell.d_epoch == mine.epoch:
            told = accumulators_between(w, mine, op.site, cell.d, word)
    return told


@native
def accumulators_issued(w: ptr_to(Warp), number: u64, site: u32) -> None:
    """Record the issue of a wgmma: earlier accesses to its registers must be fenced; from here on they are in flight."""
    mine = _mine(w)
    op = operation(w, number)
    table = op.table
    own = u32(number)
    fenced = u32(0)
    if own == 0 and mine.epoch == 1:
        fenced = 1
        entry = find(w, rules.FENCE_MISSING, site, FULL, 0, 0)
        if u64(entry) != 0:
            entry.words[0] = FIRST << PLACE_BITS
    sound = _sound(mine, table)
    again = sound.table == u64(table) and sound.frame == op.frame and sound.touches == mine.touches
    if not again:
        fenced = accumulators_use_d(w, mine, own, fenced)
    if table.a_in_registers != 0:
        mine.touches = mine.touches + 1
        fenced = accumulators_use_a(w, mine, own, fenced)
    mine.epoch = mine.epoch + fenced
    if table.a_in_registers != 0:
        for i in range(u32(4)):
            cell = _cell(mine, op.frame + u64(cast_ptr(i32, table.a_slots)[i]))
            cell.a = own + 1
            cell.a_epoch = mine.epoch
            cell.a_place = i | (IN_A << PLACE_BITS)
    for i in range(table.d_words):
        cell = _cell(mine, op.frame + u64(cast_ptr(i32, table.d_slots)[i]))
        cell.d = own + 1
        cell.d_epoch = mine.epoch
        if not again:
            cell.d_place = i
            cell.shape = table.n | table.k << 16
            cell.tile = table.tile
    kept = _issued(mine, own)
    kept.site = site
    kept.group = UNCOMMITTED
    mine.issued = own + 1
    mine.seen = mine.epoch


@native
def accumulators_fenced(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    if u64(of_cluster(w.cta.cluster).accumulators) != 0:  # the kernel has a wgmma
        mine = _mine(w)
        mine.epoch = mine.epoch + 1


@native
def accumulators_committed(w: ptr_to(Warp), site: u32) -> None:
    """Record a group of all operations issued since the last commit."""
    if u64(of_cluster(w.cta.cluster).accumulators) == 0:
        return
    mine = _mine(w)
    if u32(mine.kinds[site]) == Site.ORDERS:
        at = mine.committed
        if mine.issued - at > OPERATIONS:
            at = mine.issued - OPERATIONS
        while at != mine.issued:
            _issued(mine, at).group = mine.groups
            at = at + 1
        mine.committed = mine.issued
        mine.groups = mine.groups + 1


@native
def accumulators_waited(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    if u64(of_cluster(w.cta.cluster).accumulators) == 0:
        return
    mine = _mine(w)
    if u32(mine.kinds[site]) == Site.ORDERS:
        if u32(end) > mine.done:
            mine.done = u32(end)
        mine.seen = mine.epoch
        mine.settled = mine.epoch


@native
def accumulators_left(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """At the exit of threads, report the newest operation of each group that was not waited for."""
    if u64(of_cluster(w.cta.cluster).accumulators) != 0:
        mine = _mine(w)
        if mask == w.live and mine.done != mine.issued:
            at = mine.done
            if mine.issued - at > OPERATIONS:
                at = mine.issued - OPERATIONS
            while at != mine.issued:
                own = _issued(mine, at)
                last = at + 1 == mine.issued
                if not last:
                    last = _issued(mine, at + 1).group != own.group
                if last:
                    rule = u32(rules.NOT_WAITED)
                    if own.group == UNCOMMITTED:
                        rule = rules.NOT_COMMITTED
                    find(w, rule, own.site, mask, 0, 0)
                at = at + 1


HOOKS = {
    "cluster_begins": accumulators_begin,
    "register": accumulators_touched,
    "wgmma_fenced": accumulators_fenced,
    "wgmma_issued": accumulators_issued,
    "wgmma_committed": accumulators_committed,
    "wgmma_waited": accumulators_waited,
    "lanes_exit": accumulators_left,
}
