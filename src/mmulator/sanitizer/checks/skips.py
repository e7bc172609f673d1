"""Aligned barriers that only part of a warp reaches (rules/execution.py): bar, and barrier and barrier.cluster with .aligned.

A barrier is complete when all threads that have not exited are there, so lanes that never reach it must exit. They may exit
before the other lanes arrive, or while these wait; what they execute before is known from program/skips.py.
"""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_mask, bits_of, cast_ptr, load, mask_bits, select, store, trailing_zeros
from mmulator.codegen.types import Struct, ptr_to, u32, u64
from mmulator.native.hooks.operands import BARRIERS, CLUSTER_ARRIVE
from mmulator.native.state import FULL, LANES, Cluster, Cta, Warp
from mmulator.rules.execution import LANES_EXITED, PARTIAL_WARP, PARTNERS
from mmulator.sanitizer.checks.mbarriers import knows_of_warp
from mmulator.sanitizer.found import find_against, of_cluster
from mmulator.sanitizer.order.clocks import now

U32 = u32.vec(LANES)
ELSEWHERE, WENT_ON, HAVE_EXITED = range(3)  # why, in the second word of a finding
_PARTIAL, _EXITED, _PARTNERS = PARTIAL_WARP.number, LANES_EXITED.number, PARTNERS.number

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
        entry = find_against(w, rule, site, here, 0, 0, sites[lane] + 1, w.cta.linear, w.index, same)
        if u64(entry) != 0:
            if entry.count == 1:
                entry.words[0] = u64(same)
                entry.words[1] = u64(why)


@native
def tell_skipped(w: ptr_to(Warp), s: ptr_to(Skipping), number: u32, here: u32, gone: u32) -> None:
    """Report lanes that have exited without a barrier at which others of their warp are. Only the first barrier that a lane
    skips is reported.
    """
    gone = gone & ~s.told
    s.told = s.told | gone
    busy = gone & mask_bits((load(U32, s.passed) & s.kind[number]) != 0)
    site = s.at[number] - 1
    say_skipped(w, _PARTIAL, here, busy, site, s.began, WENT_ON)
    say_skipped(w, _EXITED, here, gone & ~busy, site, s.exits, HAVE_EXITED)


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
                find_against(w, _PARTNERS, site, mask, 0, 0, other.at[id], cta.linear, i, FULL)
                break
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
            entry = find_against(
                w, _PARTIAL, site, mask, 0, 0, s.at[number], w.cta.linear, w.index, others
            )
            if u64(entry) != 0:
                if entry.count == 1:
                    entry.words[0] = u64(others)
                    entry.words[1] = ELSEWHERE
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


HOOKS = {
    "barrier_here": come_to_barrier, "barrier_passed": pass_barrier_by, "lanes_exit": exit_past_barrier,
    "cluster_begins": begin_skipping, "barrier_over": close_round,
}  # fmt: skip
