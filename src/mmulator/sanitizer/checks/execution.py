"""Rules about threads that must execute an instruction together (rules/execution.py).

The warps of a warpgroup must execute the same wgmma instructions in the same order. The instructions of the warp that is ahead
are recorded, and the other warps are compared with them.
"""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, load, mask_bits, trailing_zeros
from mmulator.codegen.types import Struct, ptr_to, u32, u64
from mmulator.native.state import FULL, LANES, Cluster, Warp
from mmulator.rules.execution import DIVERGED, EXITED_MEMBER, INCOMPLETE, MASKS, NOT_MEMBER, UNSETTLED
from mmulator.sanitizer.found import find, find_against, of_cluster
from mmulator.sanitizer.order.clocks import agent_of, knows, now

U32 = u32.vec(LANES)
WARPS = 4  # of a warpgroup

# The instructions that the warps of a warpgroup have executed.
# steps: number of steps of each warp. most: of the warp that is ahead.
# rows, firsts: site and first warp of step n, at n modulo ROWS.
# gone: warps that have exited.
# judged: whether checks are over, after a finding or because a step is too old.
# resizes, resize: number of setmaxnreg of each warp, and its last one. clocks: those of a warp at its last two.
ROWS = 1024
Steps = Struct("Steps", [
    ("steps", u32, WARPS), ("most", u32), ("gone", u32), ("judged", u32),
    ("resizes", u32, WARPS), ("resize", u32, WARPS), ("clocks", u32, 2 * WARPS),
    ("rows", u32, ROWS), ("firsts", u32, ROWS),
])  # fmt: skip
PARTED = 2  # judged: they have executed different instructions
EXITED, ANOTHER, NO_WARPS, LANES_GONE = range(4)  # why, in the first word of a finding

_DIVERGED, _INCOMPLETE = DIVERGED.number, INCOMPLETE.number
_MEMBER, _MASKS, _GONE, _UNSETTLED = (r.number for r in (NOT_MEMBER, MASKS, EXITED_MEMBER, UNSETTLED))


def steps_of(w: Any) -> Any:
    """Macro: the steps of a warp's warpgroup."""
    cta = w.field("cta")
    groups = (cta.field("launch").field("warps") + (WARPS - 1)) // WARPS
    every = cast_ptr(Steps, of_cluster(cta.field("cluster")).field("execution"))
    return every + (cta.field("rank") * groups + w.field("index") // WARPS)


@native
def say_incomplete(w: ptr_to(Warp), site: u32, why: u32, number: u32, lanes: u32) -> None:
    entry = find(w, _INCOMPLETE, site, FULL, 0, 0)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = u64(why)
            entry.words[1] = u64(number)
            entry.words[2] = u64(lanes)


@native
def parted(w: ptr_to(Warp), site: u32, other_site: u32, other: u32) -> None:
    """Report an instruction of a warp where another warp of its group has executed another one."""
    entry = find_against(w, _DIVERGED, site, FULL, 0, 0, other_site + 1, w.cta.linear, other, FULL)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = ANOTHER
            entry.words[1] = u64(other)


@native
def say_diverged(w: ptr_to(Warp), group: ptr_to(Steps), n: u32, site: u32) -> None:
    """Report that step `n` of a warp is a different instruction from that of the first warp at this step."""
    group.judged = PARTED
    parted(w, site, group.rows[n % ROWS], (w.index & ~u32(WARPS - 1)) + group.firsts[n % ROWS])


@native
def step(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Record and check the next instruction of a warp in its warpgroup."""
    if w.cta.fault != 0:  # from then on its instructions do nothing
        return
    if (w.index | (WARPS - 1)) >= w.cta.launch.warps:
        say_incomplete(w, site, NO_WARPS, w.cta.launch.warps % WARPS, 0)
        return
    if mask != FULL:
        say_incomplete(w, site, LANES_GONE, w.index, ~mask)
        return
    if u64(of_cluster(w.cta.cluster).execution) == 0:
        return
    group = steps_of(w)
    if group.judged != 0:
        return
    own = w.index % WARPS
    n = group.steps[own]
    if n == group.most:
        group.rows[n % ROWS] = site
        group.firsts[n % ROWS] = own
        group.most = n + 1
        for i in range(u32(WARPS)):
            if ((group.gone >> i) & 1) != 0:
                group.judged = 1
                say_incomplete(w, site, EXITED, (w.index & ~u32(WARPS - 1)) + i, 0)
                return
    elif n + ROWS < group.most:
        group.judged = 1
    elif group.rows[n % ROWS] != site:
        say_diverged(w, group, n, site)
    group.steps[own] = n + 1


@native
def without(w: ptr_to(Warp), rule: u32, other: u32, other_site: u32, mask: u32, site: u32) -> None:
    """Report a warp that has exited without an instruction that another warp of its group has executed."""
    who = cast_ptr(Warp, w.cta.warps) + ((w.index & ~u32(WARPS - 1)) + other)
    entry = find_against(who, rule, other_site, FULL, 0, 0, site + 1, w.cta.linear, w.index, mask)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = EXITED
            entry.words[1] = u64(w.index)


@native
def exits(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """At the exit of a warp's last lanes, check whether other warps of its group have executed more than it."""
    if (w.live & ~mask) != 0 or (w.index | (WARPS - 1)) >= w.cta.launch.warps or u64(of_cluster(w.cta.cluster).execution) == 0:
        return
    group = steps_of(w)
    own = w.index % WARPS
    group.gone = group.gone | (1 << own)
    n = group.steps[own]
    if group.judged == 0 and n != group.most and n + ROWS >= group.most:
        group.judged = 1
        without(w, _INCOMPLETE, group.firsts[n % ROWS], group.rows[n % ROWS], mask, site)
    if group.gone == (1 << WARPS) - 1:
        for i in range(u32(WARPS)):
            if group.resizes[i] > group.resizes[own]:
                without(w, _DIVERGED, i, group.resize[i], mask, site)
                return
            if group.resizes[i] < group.resizes[own]:
                less = cast_ptr(Warp, w.cta.warps) + ((w.index & ~u32(WARPS - 1)) + i)
                without(less, _DIVERGED, own, group.resize[own], mask, site)
                return


@native
def fenced(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    step(w, mask, site)


@native
def issued(w: ptr_to(Warp), number: u64, site: u32) -> None:
    step(w, FULL, site)


@native
def committed(w: ptr_to(Warp), site: u32) -> None:
    step(w, w.live, site)


@native
def waited(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    step(w, mask, site)


@native
def miss(w: ptr_to(Warp), site: u32) -> None:
    """For a warp that waits in vain at a wgmma, report the warp that executed something else, if there is one."""
    if (w.index | (WARPS - 1)) < w.cta.launch.warps:
        group = steps_of(w)
        n = group.steps[w.index % WARPS]
        if group.judged == 0 and n + ROWS >= group.most:
            while n < group.most and group.rows[n % ROWS] < site:  # stands before it in the text
                n = n + 1
            if n < group.most and group.rows[n % ROWS] != site:
                say_diverged(w, group, n, site)
        if group.judged == PARTED:
            w.cta.fault_words[0] = 1


@native
def begins(cluster: ptr_to(Cluster)) -> None:
    """Reset the state for a new cluster: nothing executed."""
    every = cast_ptr(Steps, of_cluster(cluster).execution)
    if u64(every) != 0:
        for i in range((cluster.launch.warps + (WARPS - 1)) // WARPS * cluster.cta_count):
            group = every + i
            for n in range(u32(WARPS)):
                group.steps[n] = 0
            group.most = 0
            group.gone = 0
            group.judged = 0
            for n in range(u32(WARPS)):
                group.resizes[n] = 0


@native
def resizes(w: ptr_to(Warp), site: u32) -> None:
    """Record a setmaxnreg of a warp, and report it if another warp of its group has one of another count in its place."""
    if u64(of_cluster(w.cta.cluster).execution) != 0:
        first = cast_ptr(Warp, w.cta.warps) + (w.index & ~u32(WARPS - 1))
        group = steps_of(w)
        own = w.index % WARPS
        group.resizes[own] = group.resizes[own] + 1
        group.resize[own] = site
        number = group.resizes[own]
        before = (number - 1) % 2 * WARPS
        group.clocks[number % 2 * WARPS + own] = now(w)
        lane = trailing_zeros(w.live)
        for i in range(u32(WARPS)):
            other = agent_of(w, lane) - (own - i) * LANES
            if i != own and number > 1 and (
                group.resizes[i] + 1 < number or knows(w, lane, other, group.clocks[before + i]) == 0
            ):
                entry = find(w, _UNSETTLED, site, FULL, 0, 0)
                if u64(entry) != 0:
                    if entry.count == 1:
                        entry.words[0] = u64((w.index & ~u32(WARPS - 1)) + i)
                break
        for i in range(u32(WARPS)):
            if group.resizes[i] == group.resizes[own] and (first + i).registers != w.registers:
                parted(w, site, group.resize[i], (w.index & ~u32(WARPS - 1)) + i)
                return


@native
def members(w: ptr_to(Warp), mask: u32, given: ptr_to(u32), meets: u32, site: u32) -> None:
    """Report lanes that are not in their own member mask, and lanes that name each other with different masks; and at
    bar.warp.sync (`meets`) lanes that have exited.
    """
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        own = given[lane]
        same = left & mask_bits(load(U32, given) == own)
        left = left & ~same
        outside = same & ~own
        gone = own & w.lanes & ~w.live
        if meets != 0 and gone != 0 and outside == 0:
            entry = find(w, _GONE, site, same, 0, 0)
            if u64(entry) != 0:
                if entry.count == 1:
                    entry.words[0] = u64(own)
                    entry.words[1] = u64(gone)
        if outside != 0:
            entry = find(w, _MEMBER, site, outside, 0, 0)
            if u64(entry) != 0:
                if entry.count == 1:
                    entry.words[0] = u64(own)
                    entry.words[1] = u64(trailing_zeros(outside))
        others = own & mask & ~mask_bits(load(U32, given) == own)
        if others != 0 and outside != same:
            entry = find(w, _MASKS, site, same | others, 0, 0)
            if u64(entry) != 0:
                if entry.count == 1:
                    other = trailing_zeros(others)
                    entry.words[0] = u64(lane)
                    entry.words[1] = u64(own)
                    entry.words[2] = u64(other)
                    entry.words[3] = u64(given[other])


HOOKS = {
    "wgmma_fenced": fenced, "wgmma_issued": issued, "wgmma_committed": committed, "wgmma_waited": waited, "lanes_exit": exits,
    "cluster_begins": begins, "members_given": members, "resized": resizes,
    "warps_missing": miss,
}  # fmt: skip
