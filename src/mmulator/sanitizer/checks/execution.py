"""Rules about threads that must execute an instruction together (base/rules/execution.py).

The warps of a warpgroup must execute the same wgmma instructions in the same order. The instructions of the warp that is ahead
are recorded, and the other warps are compared with them.

Aligned barriers (bar, and barrier and barrier.cluster with .aligned) are reached by a whole warp. A barrier is complete when
all threads that have not exited are there, so lanes that never reach it must exit. They may exit before the other lanes arrive,
or while these wait; what they execute before is known from ptx/program/skips.py.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_mask, bits_of, cast_ptr, load, mask_bits, select, store, trailing_zeros
from mmulator.base.codegen.types import Struct, ptr_to, u32, u64
from mmulator.base.rules import execution as rules
from mmulator.runtime.native.hooks.operands import BARRIERS, CLUSTER_ARRIVE
from mmulator.runtime.native.state import FULL, LANES, Cluster, Cta, Warp
from mmulator.sanitizer.checks.mbarriers import knows_of_warp
from mmulator.sanitizer.order.clocks import agent_of, knows, now
from mmulator.sanitizer.state import Doubt, doubt, find, find_against, of_cluster, of_launch, say

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



def steps_of(w: Any) -> Any:
    """Macro: the steps of a warp's warpgroup."""
    cta = w.field("cta")
    groups = (cta.field("launch").field("warps") + (WARPS - 1)) // WARPS
    every = cast_ptr(Steps, of_cluster(cta.field("cluster")).field("execution"))
    return every + (cta.field("rank") * groups + w.field("index") // WARPS)


@native
def say_incomplete(w: ptr_to(Warp), site: u32, why: u32, number: u32, lanes: u32) -> None:
    say(find(w, rules.INCOMPLETE, site, FULL, 0, 0), u64(why), u64(number), u64(lanes), 0)


@native
def parted(w: ptr_to(Warp), site: u32, other_site: u32, other: u32) -> None:
    """Report an instruction of a warp where another warp of its group has executed another one."""
    say(find_against(w, rules.DIVERGED, site, FULL, 0, 0, other_site + 1, w.cta.linear, other, FULL), ANOTHER, u64(other), 0, 0)


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
    say(find_against(who, rule, other_site, FULL, 0, 0, site + 1, w.cta.linear, w.index, mask), EXITED, u64(w.index), 0, 0)


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
        without(w, rules.INCOMPLETE, group.firsts[n % ROWS], group.rows[n % ROWS], mask, site)
    if group.gone == (1 << WARPS) - 1:
        for i in range(u32(WARPS)):
            if group.resizes[i] > group.resizes[own]:
                without(w, rules.DIVERGED, i, group.resize[i], mask, site)
                return
            if group.resizes[i] < group.resizes[own]:
                less = cast_ptr(Warp, w.cta.warps) + ((w.index & ~u32(WARPS - 1)) + i)
                without(less, rules.DIVERGED, own, group.resize[own], mask, site)
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
                say(find(w, rules.UNSETTLED, site, FULL, 0, 0), u64((w.index & ~u32(WARPS - 1)) + i), 0, 0, 0)
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
            say(find(w, rules.EXITED_MEMBER, site, same, 0, 0), u64(own), u64(gone), 0, 0)
        if outside != 0:
            say(find(w, rules.NOT_MEMBER, site, outside, 0, 0), u64(own), u64(trailing_zeros(outside)), 0, 0)
        others = own & mask & ~mask_bits(load(U32, given) == own)
        if others != 0 and outside != same:
            other = trailing_zeros(others)
            say(find(w, rules.MASKS, site, same | others, 0, 0), u64(lane), u64(own), u64(other), u64(given[other]))


HOOKS = {
    "wgmma_fenced": fenced, "wgmma_issued": issued, "wgmma_committed": committed, "wgmma_waited": waited, "lanes_exit": exits,
    "cluster_begins": begins, "members_given": members, "resized": resizes,
    "warps_missing": miss,
}  # fmt: skip


# aligned barriers -----------------------------------------------------------------------------------------------------
ELSEWHERE, WENT_ON, HAVE_EXITED = range(3)  # why, in the second word of a finding

# The state of a warp's lanes at barriers.
# passed, began: for each lane the kinds of barriers that it has skipped before another action, and the site of that action.
# exits: site at which each lane exited.
# at, kind: for each barrier 1 + the site of the last aligned arrival, and its kind.
# there: lanes at barrier.cluster.arrive and .wait, while others of the warp are not.
# told: lanes that have been reported.
# came, met: the warp's clock when it came to each barrier in the round that is gathering, and in the last complete one; 0: not.
Skipping = Struct("Skipping", [
    ("passed", u32, LANES), ("began", u32, LANES), ("exits", u32, LANES),
    ("at", u32, BARRIERS), ("kind", u32, BARRIERS), ("there", u32, BARRIERS - CLUSTER_ARRIVE), ("told", u32),
    ("came", u32, CLUSTER_ARRIVE), ("met", u32, CLUSTER_ARRIVE),
])  # fmt: skip


def skipping_of(w: Any) -> Any:
    """Macro: the state of a warp's lanes at barriers."""
    cta = w.field("cta")
    every = cast_ptr(Skipping, of_cluster(cta.field("cluster")).field("skips"))
    return every + (cta.field("rank") * cta.field("launch").field("warps") + w.field("index"))


@native
def say_skipped(w: ptr_to(Warp), rule: u32, here: u32, lanes: u32, site: u32, sites: ptr_to(u32), why: u32) -> None:
    """Report lanes, each at its own site, that skip a barrier at which others are.

    w: the warp.
    rule: number of the rule.
    here: lanes at the barrier.
    lanes: lanes that skip it.
    site: the barrier.
    sites: site of each skipping lane.
    why: the reason, for the sentence.
    """
    while lanes != 0:
        lane = trailing_zeros(lanes)
        same = lanes & mask_bits(load(U32, sites) == sites[lane])
        lanes = lanes & ~same
        say(find_against(w, rule, site, here, 0, 0, sites[lane] + 1, w.cta.linear, w.index, same), u64(same), u64(why), 0, 0)


@native
def tell_skipped(w: ptr_to(Warp), s: ptr_to(Skipping), number: u32, here: u32, gone: u32) -> None:
    """Report lanes that have exited without a barrier at which others of their warp are. Only the first barrier that a lane
    skips is reported.
    """
    gone = gone & ~s.told
    s.told = s.told | gone
    busy = gone & mask_bits((load(U32, s.passed) & s.kind[number]) != 0)
    site = s.at[number] - 1
    say_skipped(w, rules.PARTIAL_WARP, here, busy, site, s.began, WENT_ON)
    say_skipped(w, rules.LANES_EXITED, here, gone & ~busy, site, s.exits, HAVE_EXITED)


@native
def join_round(w: ptr_to(Warp), mask: u32, id: u32, site: u32) -> None:
    """Record that a warp comes to a barrier. If it was not in the barrier's last round, and nothing orders it after that, it
    could have come in the place of another: which warps meet is luck.
    """
    s = skipping_of(w)
    cta = w.cta
    if s.met[id] == 0 and s.came[id] == 0:
        for i in range(cta.launch.warps):
            number = cta.rank * cta.launch.warps + i
            other = cast_ptr(Skipping, of_cluster(cta.cluster).skips) + number
            if other.met[id] != 0 and not knows_of_warp(w, trailing_zeros(mask), number, FULL, other.met[id]):
                find_against(w, rules.PARTNERS, site, mask, 0, 0, other.at[id], cta.linear, i, FULL)
                break
    if of_launch(cta.cluster).certifies != 0:
        counted = (w.bar_lanes[id] | w.bar_came[id]) == 0
        if s.came[id] != 0 and (counted or (w.bar_came[id] & mask) != 0):  # it arrives again before the round is over
            doubt(w, Doubt.ROUND, site, mask, 0, 0, s.at[id], cta.linear, w.index, FULL)
        for i in range(cta.launch.warps):
            number = cta.rank * cta.launch.warps + i
            other = cast_ptr(Skipping, of_cluster(cta.cluster).skips) + number
            if i != w.index and other.met[id] != 0:
                if not knows_of_warp(w, trailing_zeros(mask), number, FULL, other.met[id]):
                    doubt(w, Doubt.ROUND, site, mask, 0, 0, other.at[id], cta.linear, i, FULL)
    s.came[id] = now(w)


@native
def close_round(cta: ptr_to(Cta), id: u32) -> None:
    every = cast_ptr(Skipping, of_cluster(cta.cluster).skips)
    if u64(every) != 0:
        for i in range(cta.launch.warps):
            s = every + (cta.rank * cta.launch.warps + i)
            s.met[id] = s.came[id]
            s.came[id] = 0


@native
def come_to_barrier(w: ptr_to(Warp), mask: u32, number: u32, aligned: u32, kind: u32, site: u32) -> None:
    if u64(of_cluster(w.cta.cluster).skips) == 0 or number >= BARRIERS or w.cta.fault != 0:
        return
    s = skipping_of(w)
    came = mask
    if number < CLUSTER_ARRIVE:
        join_round(w, mask, number, site)
        came = came | w.bar_lanes[number] | w.bar_came[number]
    else:
        n = number - CLUSTER_ARRIVE
        others = s.there[n] & w.live & ~mask
        if aligned != 0 and others != 0 and s.at[number] != site + 1 and s.at[number] != 0:
            entry = find_against(w, rules.PARTIAL_WARP, site, mask, 0, 0, s.at[number], w.cta.linear, w.index, others)
            say(entry, u64(others), ELSEWHERE, 0, 0)
        came = came | s.there[n]
        s.there[n] = came
        if (w.live & ~came) == 0:
            s.there[n] = 0
    s.at[number] = 0
    if aligned != 0:
        s.at[number] = site + 1
        s.kind[number] = kind
        gone = w.lanes & ~w.live & ~came
        if gone != 0:
            tell_skipped(w, s, number, mask, gone)


@native
def pass_barrier_by(w: ptr_to(Warp), mask: u32, kinds: u32, site: u32) -> None:
    if u64(of_cluster(w.cta.cluster).skips) != 0:
        s = skipping_of(w)
        passed = load(U32, s.passed)
        new = bits_mask(mask) & ((passed & kinds) != kinds)
        store(select(new, U32(site), load(U32, s.began)), s.began)
        store(select(new, passed | kinds, passed), s.passed)


@native
def exit_past_barrier(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    if u64(of_cluster(w.cta.cluster).skips) == 0 or w.cta.fault != 0:
        return
    s = skipping_of(w)
    store(select(bits_mask(mask), U32(site), load(U32, s.exits)), s.exits)
    for id in bits_of(w.cta.open_barriers):
        came = w.bar_lanes[id] | w.bar_came[id]
        if came != 0 and s.at[id] != 0 and (mask & ~came) != 0:
            tell_skipped(w, s, id, came & w.live, mask & ~came)
    for n in range(u32(BARRIERS - CLUSTER_ARRIVE)):
        came = s.there[n]
        if came != 0:
            if s.at[CLUSTER_ARRIVE + n] != 0 and (mask & ~came) != 0:
                tell_skipped(w, s, CLUSTER_ARRIVE + n, came & w.live, mask & ~came)
            if (w.live & ~mask & ~came) == 0:
                s.there[n] = 0


@native
def begin_skipping(cluster: ptr_to(Cluster)) -> None:
    every = cast_ptr(Skipping, of_cluster(cluster).skips)
    if u64(every) != 0:
        for i in range(cluster.launch.warps * cluster.cta_count):
            s = every + i
            store(U32(u32(0)), s.passed)
            s.told = 0
            for n in range(u32(BARRIERS)):
                s.at[n] = 0
            for n in range(u32(CLUSTER_ARRIVE)):
                s.came[n] = 0
                s.met[n] = 0
            for n in range(u32(BARRIERS - CLUSTER_ARRIVE)):
                s.there[n] = 0


BARRIER_HOOKS = {
    "barrier_here": come_to_barrier, "barrier_passed": pass_barrier_by, "lanes_exit": exit_past_barrier,
    "cluster_begins": begin_skipping, "barrier_over": close_round,
}  # fmt: skip
