"""The question of a certificate about barriers: that each arrival and each wait belongs to one phase, in every schedule.

A wait by parity cannot tell a phase from the one after the next. So a thread must know, when it waits, that the phase before the
awaited one is over (else it may be let through too early), and the next phase may only end after the thread has looked (else it
is lapped, and waits for ever). An arrival must know that the phase before its own is over, or it may count for that one. The same
holds for rounds of `bar`. Knowledge is happens-before (order/), and what is not known is a Doubt (found.py), never a finding:
chips may keep such an order for other reasons.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, maximum, trailing_zeros
from mmulator.base.codegen.types import ptr, ptr_to, u8, u32, u64
from mmulator.runtime.native.asynchrony.accounts import account_of, warp_number
from mmulator.runtime.native.asynchrony.mbarrier import lanes_at, over
from mmulator.runtime.native.memory.windows import shared_of
from mmulator.runtime.native.state import Cluster, Completes, Transfer, Warp
from mmulator.sanitizer.checks.mbarriers import GRANULE, UNMET, Use, mbarriers_of, number_of
from mmulator.sanitizer.order.clocks import knows, now
from mmulator.sanitizer.order.locations import PHASERS, Phaser, phaser_of
from mmulator.sanitizer.order.views import (
    ALL,
    KNOWN,
    MEETINGS,
    PLANES,
    UNSAID,
    Orders,
    copied_view,
    drop_id,
    entries_of,
    knower_of,
    orders_of,
)
from mmulator.sanitizer.state import Doubt, doubt, generic_of, of_launch

# questions ------------------------------------------------------------------------------------------------------------
LATE = 1 << 7  # of a wait that early answers leave out, besides their class


@native
def asked_of(cluster: ptr_to(Cluster), w: ptr_to(Warp), number: u32) -> ptr_to(u64):
    """Pointer to what the last early question of a class was about, for each lane of a warp. number: of the class, from 1."""
    return mbarriers_of(cluster).asked + ((number - 1) * cluster.warp_count + warp_number(w)) * 32


@native
def question_comes(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, out: ptr_to(u32), site: u32) -> None:
    """Answer no to early questions (ptx/program/tokens.py), and note what they are about: the phase before that must be over."""
    cluster = w.cta.cluster
    launch = of_launch(cluster)
    if launch.certifies == 0 or u64(launch.early) == 0 or u64(mbarriers_of(cluster)) == 0:
        return
    number = u32(cast_ptr(u8, launch.early)[site])
    if number == 0 or number >= LATE:
        return
    out[0] = 1
    asked = asked_of(cluster, w, number)
    for lane in bits_of(mask):
        barrier = u64(host[lane])
        account = account_of(cluster, barrier)
        entry = phaser_of(cluster, barrier)
        asked[lane] = 0
        if u64(account) != 0 and u64(entry) != 0:
            behind = u32(over(cast_ptr(u64, host[lane]), (parities >> lane) & 1))
            if entry.phase >= 1 + behind and knows(w, lane, entry.agent, entry.clock - behind - 1) == 0:
                doubt(w, Doubt.EARLY_WAIT, site, 1 << lane, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)
            asked[lane] = (number_of(cluster, account) << 32) | u64(entry.clock - behind)


@native
def answer_comes(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), site: u32) -> None:
    """Check lanes whose wait is over that might have been left out: their last question was about the same phase."""
    cluster = w.cta.cluster
    launch = of_launch(cluster)
    if u64(launch.early) == 0 or u64(mbarriers_of(cluster)) == 0:
        return
    number = u32(cast_ptr(u8, launch.early)[site])
    if number <= LATE:
        return
    asked = asked_of(cluster, w, number - LATE)
    for lane in bits_of(mask):
        barrier = u64(host[lane])
        account = account_of(cluster, barrier)
        entry = phaser_of(cluster, barrier)
        if u64(account) != 0 and u64(entry) != 0:
            if asked[lane] != ((number_of(cluster, account) << 32) | u64(entry.clock - 1)):
                doubt(w, Doubt.OTHER_PHASE, site, 1 << lane, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)


# waits ----------------------------------------------------------------------------------------------------------------
@native
def wait_comes(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Check lanes whose wait is over, before they acquire anything by it: that the phase before the awaited one is over they must
    know from elsewhere."""
    cluster = w.cta.cluster
    if of_launch(cluster).certifies == 0:
        return
    answer_comes(w, mask, host, site)
    for lane in bits_of(mask):
        barrier = u64(host[lane])
        entry = phaser_of(cluster, barrier)
        if u64(entry) != 0:
            if entry.phase >= 2 and knows(w, lane, entry.agent, entry.clock - 2) == 0:
                doubt(w, Doubt.EARLY_WAIT, site, 1 << lane, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)


@native
def wait_ends(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Note the lanes whose wait is over: the phase under way may only end after each of them."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    if of_launch(cluster).certifies == 0 or u64(s) == 0:
        return
    left = mask
    while left != 0:
        barrier = u64(host[trailing_zeros(left)])
        same = lanes_at(host, left, barrier)
        left = left & ~same
        account = account_of(cluster, barrier)
        entry = phaser_of(cluster, barrier)
        if u64(account) != 0 and u64(entry) != 0:
            use = s.uses + (number_of(cluster, account) * u64(cluster.warp_count) + u64(warp_number(w)))
            if use.waits_in == entry.clock and use.waiters != 0:
                if use.waits_site != site + 1 and (use.waiters & ~same) != 0:
                    doubt(w, Doubt.LAPPED, site, same, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)
                same = same | use.waiters
            use.waiters = same
            use.met = 0
            number = u32(number_of(cluster, account))
            s.unmet[warp_number(w) * UNMET + (number & (UNMET - 1))] = number + 1
            knower = knower_of(orders_of(cluster), w)
            knower.clock = knower.clock + 1  # so that what comes before has another clock
            use.waited = now(w)
            use.waits_in = entry.clock
            use.waits_site = site + 1


@native
def phase_heard(o: ptr_to(Orders), phaser: ptr_to(Phaser), agent: u32) -> u32:
    """The clock up to which an agent's actions happen before the end of the phase that has just ended."""
    first = ((phaser.phase - 1) & 1) * PLANES
    found = maximum(entries_of(o, phaser.done[first + KNOWN])[agent], entries_of(o, phaser.done[first + UNSAID])[agent])
    if phaser.is_far != 0:
        found = maximum(found, entries_of(o, phaser.far_done[first + KNOWN])[agent])
        found = maximum(found, entries_of(o, phaser.far_done[first + UNSAID])[agent])
    return found


@native
def unheard(o: ptr_to(Orders), phaser: ptr_to(Phaser), warp: u32, use: ptr_to(Use)) -> u32:
    """Mask of the waiters of a warp that may not have looked when the phase ended. Lanes that were at one instruction for the
    whole warp after their wait, and before an arrival of one of them, have; a lane that had exited was not there."""
    lost = u32(0)
    latest = u32(0)
    for lane in bits_of(use.waiters):
        clock = phase_heard(o, phaser, warp * 32 + lane)
        latest = maximum(latest, clock)
        if clock < use.waited:
            lost = lost | (1 << lane)
    if lost != 0:
        knower = o.knowers + warp
        if use.met != 0 and use.met <= latest:
            lost = lost & ~use.met_lanes
        for n in unrolled(MEETINGS):
            if knower.together[n] >= use.waited and knower.together[n] <= latest:
                lost = lost & ~knower.together_lanes[n]
    return lost


@native
def phase_ends(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """Check at the end of a phase that every lane which has waited for the one before has looked, and that none of its arrivals
    could come before what was expected of it."""
    s = mbarriers_of(cluster)
    if of_launch(cluster).certifies == 0 or u64(s) == 0:
        return
    o = orders_of(cluster)
    account = account_of(cluster, barrier)
    entry = phaser_of(cluster, barrier)
    if u64(account) == 0 or u64(entry) == 0:
        return
    for i in range(cluster.warp_count):
        use = s.uses + (number_of(cluster, account) * u64(cluster.warp_count) + u64(i))
        if use.waiters != 0 and use.waits_in == entry.clock - 1:
            lost = unheard(o, entry, i, use)
            if lost != 0:
                w = cast_ptr(Warp, cluster.warps) + i
                doubt(w, Doubt.LAPPED, use.waits_site - 1, lost, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)
        use.waiters = 0
        early = u32(0)
        for lane in bits_of(use.expecters):
            if phase_heard(o, entry, i * 32 + lane) < use.expected:
                early = early | (1 << lane)
        if early != 0:
            w = cast_ptr(Warp, cluster.warps) + i
            doubt(w, Doubt.LATE_EXPECT, use.expects_site, early, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)
        use.expecters = 0


# together -------------------------------------------------------------------------------------------------------------
@native
def come_together(w: ptr_to(Warp), mask: u32) -> None:
    """Note that all lanes of a warp are at one instruction that takes them together."""
    if of_launch(w.cta.cluster).certifies != 0 and mask == w.live:
        knower = knower_of(orders_of(w.cta.cluster), w)
        last = (knower.together_count - 1) & (MEETINGS - 1)
        if knower.together[last] != knower.clock or knower.together_lanes[last] != mask:
            knower.together[knower.together_count & (MEETINGS - 1)] = knower.clock
            knower.together_lanes[knower.together_count & (MEETINGS - 1)] = mask
            knower.together_count = knower.together_count + 1
        s = mbarriers_of(w.cta.cluster)
        if u64(s) != 0:
            unmet = s.unmet + warp_number(w) * UNMET
            for i in unrolled(UNMET):
                if unmet[i] != 0:
                    use = s.uses + (u64(unmet[i] - 1) * u64(w.cta.cluster.warp_count) + u64(warp_number(w)))
                    use.met = knower.clock
                    use.met_lanes = mask
                    unmet[i] = 0


@native
def members_come(w: ptr_to(Warp), mask: u32, members: ptr_to(u32), meets: u32, site: u32) -> None:
    if mask != 0 and (mask & ~members[trailing_zeros(mask)]) == 0:
        come_together(w, mask)


@native
def group_fences(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    come_together(w, mask)


@native
def group_issues(w: ptr_to(Warp), number: u64, site: u32) -> None:
    come_together(w, w.live)


@native
def group_waits(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    come_together(w, mask)


@native
def cells_come(w: ptr_to(Warp), address: u32, rows: u32, columns: u32, split: u32, store: u32, site: u32) -> None:
    come_together(w, w.live)


# arrivals -------------------------------------------------------------------------------------------------------------
@native
def come_in_phase(w: ptr_to(Warp), mask: u32, barrier: u64, site: u32) -> None:
    """Check lanes that arrive, expect bytes or issue what arrives: the phase before must be over for them."""
    cluster = w.cta.cluster
    if of_launch(cluster).certifies == 0:
        return
    entry = phaser_of(cluster, barrier)
    if u64(entry) == 0 or entry.phase == 0:
        return
    early = u32(0)
    for lane in bits_of(mask):
        if knows(w, lane, entry.agent, entry.clock - 1) == 0:
            early = early | (1 << lane)
    if early != 0:
        doubt(w, Doubt.EARLY_ARRIVAL, site, early, generic_of(cluster, barrier), GRANULE, 0, 0, 0, 0)


@native
def expect_more(w: ptr_to(Warp), mask: u32, barrier: u64, awaits: u32, site: u32) -> None:
    """Note lanes that make a phase expect more, which must come before one of its arrivals, or forget those that arrive: the
    phase cannot end before they do. awaits: whether they make it expect more."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    account = account_of(cluster, barrier)
    if of_launch(cluster).certifies == 0 or u64(s) == 0 or u64(account) == 0:
        return
    use = s.uses + (number_of(cluster, account) * u64(cluster.warp_count) + u64(warp_number(w)))
    use.expecters = use.expecters & ~mask
    if awaits != 0:
        use.expecters = use.expecters | mask
        knower = knower_of(orders_of(cluster), w)
        knower.clock = knower.clock + 1  # so that what comes before has another clock
        use.expected = now(w)
        use.expects_site = site


@native
def arrival_comes(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    come_in_phase(w, mask, barrier, site)
    expect_more(w, mask, barrier, u32((arrivals | came) == 0), site)  # what has come was expected, and is waited for


@native
def copies_signal(w: ptr_to(Warp), mask: u32, barrier: u64, counted: u32, site: u32) -> None:
    come_in_phase(w, mask, barrier, site)
    expect_more(w, mask, barrier, counted, site)


@native
def pass_phases_on(w: ptr_to(Warp), lane: u32, to: ptr_to(Phaser)) -> None:
    """Let those who hear of a copy know which phases its issuer knew to be over, of mbarriers at which threads alone arrive: such
    a phase says nothing of any access, and the copy was issued after it."""
    cluster = w.cta.cluster
    o = orders_of(cluster)
    s = mbarriers_of(cluster)
    ids = knower_of(o, w).now.views
    for n in range(u32(PHASERS)):
        phaser = cast_ptr(Phaser, o.phasers) + n
        if phaser.at != 0 and phaser.agent < o.stride and u64(phaser) != u64(to):
            account = account_of(cluster, phaser.at)
            known = maximum(
                entries_of(o, ids[KNOWN * 32 + lane])[phaser.agent], entries_of(o, ids[UNSAID * 32 + lane])[phaser.agent]
            )
            if u64(account) != 0 and known > entries_of(o, to.collecting.views[KNOWN])[phaser.agent]:
                if (s.keepers + number_of(cluster, account)).async_clock == 0:
                    made = copied_view(o, to.collecting.views[KNOWN])
                    if made != ALL:
                        entries_of(o, made)[phaser.agent] = known
                    drop_id(o, to.collecting.views[KNOWN], 1)
                    to.collecting.views[KNOWN] = made


@native
def transfer_comes(t: ptr_to(Transfer)) -> None:
    if t.completes == Completes.BYTES:
        w = cast_ptr(Warp, t.warp)
        for rank in bits_of(t.barriers):
            barrier = u64(shared_of(w.cta.cluster, rank)) + t.offset
            come_in_phase(w, u32(1) << t.lane, barrier, t.site)
            if rank != w.cta.rank and of_launch(w.cta.cluster).certifies != 0:
                phaser = phaser_of(w.cta.cluster, barrier)
                if u64(phaser) != 0 and u64(mbarriers_of(w.cta.cluster)) != 0:
                    pass_phases_on(w, t.lane, phaser)


EARLY_HOOKS: Mapping[str, Native] = {
    "mbarrier_asked": question_comes, "mbarrier_waited": wait_comes, "mbarrier_arrived": arrival_comes,
}  # fmt: skip
HOOKS: Mapping[str, Native] = {
    "mbarrier_waited": wait_ends, "mbarrier_over": phase_ends, "copy_signals": copies_signal, "transfer_issued": transfer_comes,
    "members_given": members_come, "wgmma_fenced": group_fences, "wgmma_issued": group_issues, "wgmma_waited": group_waits,
    "tensor_moved": cells_come,
}  # fmt: skip
