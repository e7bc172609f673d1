"""Rules of clusters (base/rules/mbarriers.py), of operations that are left when a cluster ends, and of cluster launch control.

Blocks that access each other's shared memory must all have begun, and none may exit before the last access. For each warp the
newest access to the shared memory of each other block is kept, a Reach; arrivals at its mbarriers and copies to it are uses in
mbarriers.py. A Reach is settled if an exiting thread of that block is ordered after it: by a barrier, or by a wait for the
phase of the arrival or of the copy.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, fill_bytes, load, mask_bits, popcount, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u32, u64
from mmulator.base.rules import mbarriers as rules
from mmulator.matrix.numerics.mbarrier import BYTES
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.accounts import account_of, warp_number
from mmulator.runtime.native.asynchrony.mbarrier import awaited_bytes
from mmulator.runtime.native.asynchrony.transfers import entry as transfer_at
from mmulator.runtime.native.hooks.events import PROXY_SHIFT, PayloadShape, Proxy
from mmulator.runtime.native.memory.windows import OFFSET_MASK, U64, shared_of
from mmulator.runtime.native.state import ACCOUNTS, COPIES, Account, Cluster, Completes, Queue, Transfer, Warp, Who
from mmulator.sanitizer.checks.mbarriers import REFUSALS, blame, has_ended, knows_of_warp, mbarriers_of, next_meeting, number_of
from mmulator.sanitizer.order.clocks import agent_of, knows, now
from mmulator.sanitizer.order.locations import mbarrier_agent
from mmulator.sanitizer.state import find_against, of_cluster

# The accesses of a warp to another block of its cluster.
# begun: lanes for which the block's begin happens before.
# lanes, clock, at, bytes, site: the newest accesses to its shared memory.
# until: as `next_meeting`.
Reach = Struct("Reach", [
    ("at", u64), ("begun", u32), ("lanes", u32), ("clock", u32), ("site", u32), ("bytes", u32), ("settled", u32), ("until", u32),
])  # fmt: skip
# The state of a cluster.
# met: lanes of each warp that have waited at barrier.cluster. waited: its number of completions then. any: whether a thread of
#     each CTA has.
# reaches: by warp and rank.
Clusters = Struct("Clusters", [("met", ptr_to(u32)), ("waited", ptr_to(u32)), ("any", ptr_to(u32)), ("reaches", ptr_to(Reach))])


def clusters_of(cluster: Any) -> Any:
    """Macro: the state of a cluster of more than one block; null for other clusters."""
    return cast_ptr(Clusters, of_cluster(cluster).field("clusters"))


# begin ----------------------------------------------------------------------------------------------------------------
@native
def has_begun(w: ptr_to(Warp), lane: u32, rank: u32) -> boolean:
    """Whether it is ordered before a lane's next action that a block has begun: both met at barrier.cluster, or the lane
    acquired from one of its threads.
    """
    cluster = w.cta.cluster
    s = clusters_of(cluster)
    if ((s.met[warp_number(w)] >> lane) & 1) != 0:
        return True
    if s.any[w.cta.rank] != 0 and ((w.cluster_came >> lane) & 1) == 0:
        return True
    warps = cluster.launch.warps
    for i in range(rank * warps * 32, (rank + 1) * warps * 32):
        if knows(w, lane, i, 1) != 0:
            return True
    return False


@native
def reached(w: ptr_to(Warp), mask: u32, at: u64, bytes: u32, site: u32) -> None:
    """Record that lanes access the shared memory of another block. at: address of the first lane."""
    cluster = w.cta.cluster
    s = clusters_of(cluster)
    rank = u32((at & OFFSET_MASK) >> RANK_SHIFT)
    r = s.reaches + (warp_number(w) * cluster.cta_count + rank)
    left = mask & ~r.begun
    r.begun = r.begun | mask
    lost = u32(0)
    for lane in bits_of(left):
        if not has_begun(w, lane, rank):
            lost = lost | (1 << lane)
    if lost != 0:
        find_against(w, rules.START_UNSYNCHRONISED, site, lost, at, bytes, 0, 0, 0, 0)
    clock = now(w)
    if r.clock == clock and r.site == site:
        r.lanes = r.lanes | mask
    else:
        r.lanes = mask
        r.clock = clock
        r.site = site
        r.at = at
        r.bytes = bytes
    r.until = next_meeting(w, mask)
    r.settled = 0


@native(inline=True)
def cluster_reached(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    if w.cta.cluster.cta_count == 1 or (access >> PROXY_SHIFT) == Proxy.MBARRIER:
        return
    if u64(clusters_of(w.cta.cluster)) == 0:
        return
    places = load(U64, at) | base
    ranks = (places & OFFSET_MASK) >> RANK_SHIFT
    left = mask & mask_bits(((places >> SLOT_SHIFT) == SLOT_SHARED) & (ranks != u64(w.cta.rank)))
    while left != 0:
        lane = trailing_zeros(left)
        same = left & mask_bits(ranks == ranks[lane])
        left = left & ~same
        reached(w, same, at[lane] | base, bytes, site)


@native
def cluster_reached_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    if w.cta.cluster.cta_count == 1 or (access >> PROXY_SHIFT) != Proxy.GENERIC:
        return
    if u64(clusters_of(w.cta.cluster)) == 0 or (at >> SLOT_SHIFT) != SLOT_SHARED:
        return
    if u32((at & OFFSET_MASK) >> RANK_SHIFT) != w.cta.rank:
        reached(w, 1 << lane, at, bytes, site)


@native
def cluster_met(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """At barrier.cluster.wait, record that all blocks have begun."""
    s = clusters_of(w.cta.cluster)
    if u64(s) != 0:
        number = warp_number(w)
        s.met[number] = s.met[number] | mask
        s.any[w.cta.rank] = 1
        lane = trailing_zeros(mask)
        s.waited[number] = w.cluster_generation[lane] + 1


# exit -----------------------------------------------------------------------------------------------------------------
@native
def accuse(w: ptr_to(Warp), mask: u32, site: u32, warp: u32, lanes: u32, at: u64, bytes: u32, by: u32) -> None:
    """Report the exit of a block whose shared memory a warp accessed at instruction `by`, without an order between the two.

    w, mask, site: the exiting warp, its lanes and instruction.
    warp, lanes: the accessing warp and its lanes.
    at, bytes: the place.
    by: site of the access.
    """
    cluster = w.cta.cluster
    other = cast_ptr(Warp, cluster.warps) + warp
    find_against(other, rules.EXIT_UNSYNCHRONISED, by, lanes, at, bytes, site + 1, w.cta.linear, w.index, mask)


@native
def settle_reaches(w: ptr_to(Warp), mask: u32, last: boolean, site: u32) -> None:
    cluster = w.cta.cluster
    s = clusters_of(cluster)
    warps = cluster.launch.warps
    for i in range(cluster.warp_count):
        r = s.reaches + (i * cluster.cta_count + w.cta.rank)
        if r.lanes != 0 and r.settled == 0 and i // warps != w.cta.rank:
            left = mask
            while left != 0:
                if s.waited[warp_number(w)] >= r.until or knows_of_warp(w, trailing_zeros(left), i, r.lanes, r.clock):
                    r.settled = 1
                    left = 0
                left = left & (left - 1)
            if r.settled == 0 and last:
                accuse(w, mask, site, i, r.lanes, r.at, r.bytes, r.site)


@native
def settle_mbarrier(w: ptr_to(Warp), mask: u32, last: boolean, account: ptr_to(Account), site: u32) -> None:
    """At the exit of threads, check the operations of other blocks at one of the block's mbarriers, and copies that they
    issued.
    """
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    warps = cluster.launch.warps
    number = number_of(cluster, account)
    k = s.keepers + number
    agent = mbarrier_agent(cluster, account.at)
    for i in range(cluster.warp_count):
        use = s.uses + (number * u64(cluster.warp_count) + u64(i))
        if use.lanes != 0 and use.settled == 0 and i // warps != w.cta.rank:
            for lane in bits_of(mask):
                if knows(w, lane, agent, use.phase) != 0 or clusters_of(cluster).waited[warp_number(w)] >= use.until:
                    use.settled = 1
                elif knows_of_warp(w, lane, i, use.lanes, use.clock):
                    use.settled = 1
            if use.settled == 0 and last:
                accuse(w, mask, site, i, use.lanes, k.at, 8, use.site)
    own = k.issued.warp // warps == w.cta.rank
    if k.async_clock != 0 and k.settled == 0 and (not own or (k.brings != 0 and account.valid != 0)):
        for lane in bits_of(mask):
            if has_ended(w, lane, k, agent):
                k.settled = 1
        if k.settled == 0 and last and own:
            by = cast_ptr(Warp, cluster.warps) + k.issued.warp
            issuer = 1 << k.issued.lane
            find_against(by, rules.COPY_AT_EXIT, k.issued.site - 1, issuer, k.at, 8, site + 1, w.cta.linear, w.index, mask)
        elif k.settled == 0 and last:
            accuse(w, mask, site, k.issued.warp, 1 << k.issued.lane, k.at, 8, k.issued.site - 1)


@native
def cluster_left(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """At the exit of threads, settle what can be settled; for the last threads of a block, everything."""
    cluster = w.cta.cluster
    last = w.cta.live_threads == popcount(mask)
    if u64(clusters_of(cluster)) != 0:
        settle_reaches(w, mask, last, site)
    if u64(mbarriers_of(cluster)) == 0 or cluster.account_count == 0:
        return
    table = cast_ptr(Account, cluster.accounts)
    begin = u64(w.cta.shared)
    for n in range(u32(ACCOUNTS)):
        entry = table + n
        if entry.at - begin < u64(cluster.launch.shared_bytes):
            settle_mbarrier(w, mask, last, entry, site)


@native
def bytes_are_late(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """When a phase is over, report copies that complete bytes at this mbarrier and are under way: expect_tx announced too few."""
    s = mbarriers_of(cluster)
    account = account_of(cluster, barrier)
    if u64(s) == 0 or u64(account) == 0:
        return
    for place in range(cluster.under_way):
        t = transfer_at(cluster, place)
        ranks = t.barriers
        if t.completes != Completes.BYTES or t.pipe != 0:  # tcgen05.commit brings no bytes
            ranks = 0
        while ranks != 0:
            if u64(shared_of(cluster, trailing_zeros(ranks))) + t.offset == barrier:
                who = account.asked
                if who.site == 0:
                    who = account.arrived
                at = (s.keepers + number_of(cluster, account)).at
                blame(cast_ptr(Warp, t.warp), rules.BYTES_LATE, t.site, 1 << t.lane, at, who.site, who.warp, 1 << who.lane)
            ranks = ranks & (ranks - 1)


# the end --------------------------------------------------------------------------------------------------------------
@native
def copies_pend(cluster: ptr_to(Cluster)) -> boolean:
    """Whether some cp.async, or an arrival behind one, was never carried out."""
    for i in range(cluster.warp_count):
        q = cast_ptr(Queue, (cast_ptr(Warp, cluster.warps) + i).queues) + COPIES.queue
        if q.done != q.issued:
            return True
    return False


@native
def lacks(cluster: ptr_to(Cluster), k_at: u64, rule: u32, who: ptr_to(Who), other: ptr_to(Who)) -> None:
    """Report bytes of an mbarrier that are missing when its cluster ends.

    cluster: the cluster.
    k_at: address of the mbarrier.
    rule: number of the rule.
    who: the event that is blamed.
    other: a conflicting event, if there is one.
    """
    w = cast_ptr(Warp, cluster.warps) + who.warp
    if other.site != 0:
        blame(w, rule, who.site - 1, 1 << who.lane, k_at, other.site, other.warp, 1 << other.lane)
    else:
        find_against(w, rule, who.site - 1, 1 << who.lane, k_at, 8, 0, 0, 0, 0)


@native
def cluster_lacks(cluster: ptr_to(Cluster)) -> None:
    """At the end of a cluster, report mbarriers that still expect bytes, and operations that were never completed."""
    s = mbarriers_of(cluster)
    if u64(s) == 0 or cluster.account_count == 0:
        return
    if copies_pend(cluster):
        return
    table = cast_ptr(Account, cluster.accounts)
    for n in range(u32(ACCOUNTS)):
        entry = table + n
        if entry.at != 0 and entry.valid != 0:
            bytes = awaited_bytes(entry.word)
            k = s.keepers + n
            if bytes != 0 and (bytes >> (BYTES - 1)) == 0 and entry.asked.site != 0:
                lacks(cluster, k.at, rules.BYTES_MISSING, entry.asked, entry.brought)
            elif (bytes >> (BYTES - 1)) != 0 and entry.brought.site != 0:
                lacks(cluster, k.at, rules.BYTES_UNEXPECTED, entry.brought, entry.asked)


@native
def clusters_renewed(cluster: ptr_to(Cluster)) -> None:
    """Reset the state for a new cluster."""
    s = clusters_of(cluster)
    if u64(s) != 0:
        fill_bytes(s.met, 0, u64(cluster.warp_count) * 4)
        fill_bytes(s.waited, 0, u64(cluster.warp_count) * 4)
        fill_bytes(s.any, 0, u64(cluster.cta_count) * 4)
        fill_bytes(s.reaches, 0, u64(cluster.warp_count * cluster.cta_count) * Reach.size)


# clusters that have not begun ------------------------------------------------------------------------------------------
@native
def answer_refused(w: ptr_to(Warp), lanes: u32, site: u32) -> None:
    """Record the first answer of a warp that is no."""
    s = mbarriers_of(w.cta.cluster)
    if lanes == 0 or u64(s) == 0:
        return
    r = s.refusals + (warp_number(w) & (REFUSALS - 1))
    if r.lanes == 0:
        r.lanes = lanes
        r.warp = warp_number(w)
        r.clock = now(w)
        r.site = site


@native
def asked_again(t: ptr_to(Transfer), shape: u32) -> None:
    """Judge a request that is issued: no thread of its block may have seen such an answer before."""
    if shape != PayloadShape.RESPONSE:
        return
    w = cast_ptr(Warp, t.warp)
    warps = w.cta.launch.warps
    s = mbarriers_of(w.cta.cluster)
    for n in range(u32(REFUSALS)):
        r = s.refusals + n
        if r.lanes != 0 and r.warp // warps == w.cta.rank:
            other = cast_ptr(Warp, w.cta.warps) + r.warp % warps
            lane = trailing_zeros(r.lanes)
            if r.warp == warp_number(w) or knows(w, t.lane, agent_of(other, lane), r.clock) != 0:
                one = u32(1)
                find_against(w, rules.CANCEL_AGAIN, t.site, one << t.lane, 0, 0, r.site + 1, w.cta.linear, other.index, r.lanes)
                return


HOOKS: Mapping[str, Native] = {
    "cancel_refused": answer_refused, "transfer_filled": asked_again,
    "accessed": cluster_reached, "accessed_one": cluster_reached_one, "cluster_waited": cluster_met, "lanes_exit": cluster_left,
    "mbarrier_over": bytes_are_late, "cluster_finished": cluster_lacks, "cluster_begins": clusters_renewed,
}  # fmt: skip
