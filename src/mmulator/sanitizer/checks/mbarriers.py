"""Rules of mbarriers (base/rules/mbarriers.py): who initialised one, who has used it since, and which other accesses overlap it.

The records extend those of runtime/native/asynchrony/accounts.py and have the same numbers: a Keeper for each mbarrier, and for
each warp a Use, which is an operation of lanes on it. Of a warp's lanes only the newest are kept.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, fill_bytes, load, mask_bits, minimum, select, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u32, u64
from mmulator.base.rules import mbarriers as rules
from mmulator.matrix.twin.shared import UNIT
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.tokens import CLASSES
from mmulator.runtime.native.asynchrony.accounts import account_of, entry_of, warp_number
from mmulator.runtime.native.asynchrony.mbarrier import over
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, U64, WITHIN, shared_of
from mmulator.runtime.native.state import ACCOUNTS, Account, Cluster, Completes, Cta, Transfer, TransferKind, Warp, Who
from mmulator.sanitizer.checks.tensor_state import checks_of
from mmulator.sanitizer.order.clocks import agent_of, knows, knows_fenced, now
from mmulator.sanitizer.order.locations import mbarrier_agent, mbarrier_phase
from mmulator.sanitizer.order.views import knower_of, orders_of
from mmulator.sanitizer.state import Doubt, doubt, find, find_against, generic_of, host_of, of_cluster

GRANULE = 8  # bytes of an mbarrier
BITS = 32  # of a word of the map of live mbarriers

# The record of an mbarrier.
# at: its generic address.
# agent, clock: of its last initialisation or invalidation.
# async_clock, issued: clock of the phase in which the last issued operation completes (0: none), and its issuer.
# end, ended: agent + 1 and clock of that operation, if it is a tcgen05.commit: those of one thread arrive in their order.
# settled: as in Use. brings: whether the last one is a copy, which brings bytes.
# fenced: whether a fence follows its mbarrier.init, or has been checked.
Keeper = Struct("Keeper", [
    ("at", u64), ("agent", u32), ("clock", u32), ("async_clock", u32), ("end", u32), ("ended", u32), ("settled", u32),
    ("issued", Who), ("fenced", u32), ("brings", u32),
])  # fmt: skip
# The uses of an mbarrier by a warp.
# known: lanes for which its mbarrier.init happens before.
# lanes, clock, phase, site: the newest uses.
# settled: whether a thread of its block exited after it. until: as `next_meeting`.
# waiters, waited, waits_in, waits_site: lanes that have waited for the phase before, their clock then, the mbarrier's, and the
# instruction + 1 (phases.py).
# expecters, expected, expects_site: lanes that have made the phase expect more and have not arrived since, their clock then, and
# the instruction. met, met_lanes: the warp's clock when all its lanes first came together after that wait (0: not yet), and they.
Use = Struct("Use", [
    ("known", u32), ("lanes", u32), ("clock", u32), ("phase", u32), ("site", u32), ("settled", u32), ("until", u32),
    ("waiters", u32), ("waited", u32), ("waits_in", u32), ("waits_site", u32), ("expecters", u32), ("expected", u32),
    ("expects_site", u32), ("met", u32), ("met_lanes", u32),
])  # fmt: skip
# The first answer of a warp that no cluster was cancelled (ends.py). warp: its number in the cluster.
Refusal = Struct("Refusal", [("lanes", u32), ("warp", u32), ("clock", u32), ("site", u32)])
REFUSALS = 64
UNMET = 4
# The mbarriers of a cluster. low, high: range of live ones, as addresses without slot and rank. bits: a bit for each granule,
# `words` words for each CTA. asked: of each class of early questions and lane, the mbarrier and phase of the last (phases.py).
# unmet: of each warp up to UNMET mbarriers, number + 1, for which it has waited since its lanes came together.
Mbarriers = Struct("Mbarriers", [
    ("low", u64), ("high", u64), ("live", u32), ("words", u32),
    ("keepers", ptr_to(Keeper)), ("uses", ptr_to(Use)), ("bits", ptr_to(u32)), ("asked", ptr_to(u64)),
    ("unmet", ptr_to(u32)),
    ("refusals", Refusal, REFUSALS),
])  # fmt: skip


def mbarriers_of(cluster: Any) -> Any:
    """Macro: the records of a cluster's mbarriers, or null."""
    return cast_ptr(Mbarriers, of_cluster(cluster).field("mbarriers"))


@native(inline=True)
def number_of(cluster: ptr_to(Cluster), account: ptr_to(Account)) -> u64:
    return (u64(account) - u64(cluster.accounts)) // Account.size


@native
def mark(cluster: ptr_to(Cluster), at: u64, live: boolean) -> None:
    """Set whether there is a live mbarrier at a generic address."""
    s = mbarriers_of(cluster)
    if (at & WITHIN) < SHARED_BASE:  # the system's part
        return
    granule = u32(((at & WITHIN) - SHARED_BASE) // GRANULE)
    word = s.bits + (u32((at & OFFSET_MASK) >> RANK_SHIFT) * s.words + granule // BITS)
    bit = 1 << (granule % BITS)
    if live:
        if (word[0] & bit) == 0:
            s.live = s.live + 1
        word[0] = word[0] | bit
        within = at & WITHIN
        s.low = minimum(s.low, within)
        s.high = select(within + GRANULE > s.high, within + GRANULE, s.high)
    elif (word[0] & bit) != 0:
        s.live = s.live - 1
        word[0] = word[0] & ~bit


@native
def next_meeting(w: ptr_to(Warp), mask: u32) -> u32:
    """Number of completions of barrier.cluster after the next arrival of these lanes."""
    now_at = w.cta.cluster.generation
    if (w.cluster_came & mask & mask_bits(w.cluster_generation == now_at)) != 0:
        return now_at + 2
    return now_at + 1


@native
def blame(w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, at: u64, other_site: u32, other_warp: u32, other_lanes: u32) -> None:
    """Report a breach at an mbarrier, against an operation of warp `other_warp` of the cluster.

    w, site, lanes: the warp, instruction and lanes that are blamed.
    rule: number of the rule.
    at: address of the mbarrier.
    other_site, other_warp, other_lanes: the other operation.
    """
    cluster = w.cta.cluster
    warps = cluster.launch.warps
    cta = cast_ptr(Cta, cluster.ctas) + other_warp // warps
    find_against(w, rule, site, lanes, at, GRANULE, other_site, cta.linear, other_warp % warps, other_lanes)


@native
def knows_of_warp(w: ptr_to(Warp), lane: u32, warp: u32, lanes: u32, clock: u32) -> boolean:
    """Whether an operation of one of the `lanes` of a warp happens before a lane's next action. One lane is enough, since it
    may act for the others: libcu++ lets the first of the lanes that match.any.sync names do so.
    """
    for other in bits_of(lanes):
        if knows(w, lane, warp * 32 + other, clock) != 0:
            return True
    return False


# its life -------------------------------------------------------------------------------------------------------------
@native
def mbarrier_is_made(w: ptr_to(Warp), lane: u32, barrier: u64, count: u64, site: u32) -> None:
    """Record an mbarrier.init."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    if u64(s) == 0:
        return
    entry = entry_of(cluster, barrier)
    if u64(entry) == 0:
        return
    at = generic_of(cluster, barrier)
    one = 1 << lane
    if entry.at != 0 and entry.valid != 0:
        who = entry.made
        blame(w, rules.INIT_IN_USE, site, one, at, who.site, who.warp, 1 << who.lane)
    number = number_of(cluster, entry)
    k = s.keepers + number
    fill_bytes(k, 0, Keeper.size)
    k.at = at
    k.agent = agent_of(w, lane)
    k.clock = now(w)
    fill_bytes(s.uses + number * u64(cluster.warp_count), 0, u64(cluster.warp_count) * Use.size)
    mark(cluster, at, True)


@native
def has_met(w: ptr_to(Warp), lane: u32, until: u32) -> boolean:
    """Whether a lane has waited for a completion of barrier.cluster. until: as `next_meeting`."""
    waits = ((w.cluster_came >> lane) & 1) != 0
    return w.cta.cluster.generation >= until and (not waits or w.cluster_generation[lane] >= until)


@native
def has_ended(w: ptr_to(Warp), lane: u32, k: ptr_to(Keeper), agent: u32) -> boolean:
    """Whether the last operation that completes an mbarrier has arrived before a lane's next action. agent: the mbarrier's."""
    if knows(w, lane, agent, k.async_clock) != 0:
        return True
    return k.end != 0 and knows(w, lane, k.end - 1, k.ended) != 0


@native
def mbarrier_is_gone(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> None:
    """Record an mbarrier.inval; all uses, and all operations that complete the mbarrier, must happen before it."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    if u64(s) == 0:
        return
    entry = account_of(cluster, barrier)
    if u64(entry) == 0:
        return
    number = number_of(cluster, entry)
    k = s.keepers + number
    one = 1 << lane
    for i in range(cluster.warp_count):
        use = s.uses + (number * u64(cluster.warp_count) + u64(i))
        if use.lanes != 0 and not knows_of_warp(w, lane, i, use.lanes, use.clock) and not has_met(w, lane, use.until):
            blame(w, rules.INVAL_IN_USE, site, one, k.at, use.site + 1, i, use.lanes)
        for other in bits_of(use.lanes):
            if knows(w, lane, i * 32 + other, use.clock) == 0 and not has_met(w, lane, use.until):
                doubt(w, Doubt.EARLY_INVAL, site, one, k.at, GRANULE, use.site + 1, w.cta.linear, i, use.lanes)
    if k.async_clock != 0 and not has_ended(w, lane, k, mbarrier_agent(cluster, barrier)):
        who = k.issued
        blame(w, rules.INVAL_IN_USE, site, one, k.at, who.site, who.warp, 1 << who.lane)
    k.agent = agent_of(w, lane)
    k.clock = now(w)
    mark(cluster, k.at, False)


@native
def know_init(w: ptr_to(Warp), mask: u32, k: ptr_to(Keeper), use: ptr_to(Use), who: ptr_to(Who), site: u32) -> None:
    """Check that the mbarrier.init happens before the lanes' use. Lanes of the initialising warp are not checked."""
    left = mask & ~use.known
    use.known = use.known | mask
    lost = u32(0)
    for lane in bits_of(left):
        if knows(w, lane, k.agent, k.clock) == 0:
            if k.agent // 32 != warp_number(w):
                lost = lost | (1 << lane)
            else:
                doubt(w, Doubt.UNSEEN_INIT, site, 1 << lane, k.at, GRANULE, 0, 0, 0, 0)
    if lost != 0:
        blame(w, rules.INIT_NOT_VISIBLE, site, lost, k.at, who.site, who.warp, 1 << who.lane)


@native
def mbarrier_is_used(w: ptr_to(Warp), mask: u32, at: u64, site: u32) -> None:
    """Record and check an operation of lanes on one mbarrier. at: its generic address."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    barrier = host_of(cluster, at)
    entry = account_of(cluster, barrier)
    if u64(entry) == 0:
        return
    number = number_of(cluster, entry)
    k = s.keepers + number
    if entry.valid == 0:
        lane = trailing_zeros(mask)
        rule = u32(rules.INVAL_IN_USE)
        if knows(w, lane, k.agent, k.clock) != 0:
            rule = rules.AFTER_INVAL
        who = entry.ended
        blame(w, rule, site, mask, at, who.site, who.warp, 1 << who.lane)
        return
    use = s.uses + (number * u64(cluster.warp_count) + u64(warp_number(w)))
    if (mask & ~use.known) != 0:
        know_init(w, mask, k, use, entry.made, site)
    clock = now(w)
    if use.clock == clock and use.site == site:
        use.lanes = use.lanes | mask
    else:
        use.lanes = mask
        use.clock = clock
        use.site = site
    use.phase = mbarrier_phase(cluster, barrier)
    use.until = next_meeting(w, mask)
    use.settled = 0


@native
def issued_for(w: ptr_to(Warp), lane: u32, barrier: u64, end: u32, ended: u32, site: u32) -> None:
    """Record that a lane issues an operation that completes an mbarrier later. end, ended: as in Keeper."""
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    entry = account_of(cluster, barrier)
    if u64(s) == 0 or u64(entry) == 0:
        return
    number = number_of(cluster, entry)
    k = s.keepers + number
    use = s.uses + (number * u64(cluster.warp_count) + u64(warp_number(w)))
    know_init(w, 1 << lane, k, use, entry.made, site)
    k.async_clock = mbarrier_phase(cluster, barrier)
    k.end = end
    k.ended = ended
    k.issued.site = site + 1
    k.issued.warp = warp_number(w)
    k.issued.lane = lane
    k.settled = 0
    k.brings = 0


@native
def completed_by(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> None:
    """Check a copy that completes an mbarrier through the asynchronous proxy: a fence for that proxy or for mbarriers must
    follow the mbarrier.init. Each mbarrier is checked once.
    """
    cluster = w.cta.cluster
    s = mbarriers_of(cluster)
    entry = account_of(cluster, barrier)
    if u64(s) == 0 or u64(entry) == 0:
        return
    k = s.keepers + number_of(cluster, entry)
    if k.fenced == 0 and entry.valid != 0:
        k.fenced = 1
        if knows_fenced(w, lane, k.agent, k.clock) == 0 and knows(w, lane, k.agent, k.clock) != 0:
            who = entry.made
            blame(w, rules.INIT_NOT_FENCED, site, 1 << lane, k.at, who.site, who.warp, 1 << who.lane)


@native
def mbarriers_fenced(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    """Record fence.mbarrier_init, which covers mbarriers that its threads have initialised."""
    s = mbarriers_of(w.cta.cluster)
    if kind != events.Fence.MBARRIER_INIT or u64(s) == 0:
        return
    first = warp_number(w) * 32
    for n in range(u32(ACCOUNTS)):
        k = s.keepers + n
        lane = k.agent - first
        if k.at != 0 and lane < 32:
            k.fenced = k.fenced | ((mask >> lane) & 1)


@native
def mbarrier_is_issued(t: ptr_to(Transfer)) -> None:
    """Record a copy that completes mbarriers."""
    if t.completes == Completes.BYTES:
        w = cast_ptr(Warp, t.warp)
        left = t.barriers
        end = u32(0)
        ended = u32(0)
        if t.pipe != 0:
            issuer = checks_of(w.cta.cluster).issuers + agent_of(w, t.lane)
            end = issuer.agent
            ended = issuer.issued
        for rank in bits_of(left):
            barrier = u64(shared_of(w.cta.cluster, rank)) + t.offset
            issued_for(w, t.lane, barrier, end, ended, t.site)
            account = account_of(w.cta.cluster, barrier)
            if u64(account) != 0:
                (mbarriers_of(w.cta.cluster).keepers + number_of(w.cta.cluster, account)).brings = u32(t.pipe == 0)
            if t.kind != TransferKind.STORE_ASYNC and t.pipe == 0:  # these use the generic proxy
                completed_by(w, t.lane, barrier, t.site)


@native
def mbarrier_signalled(w: ptr_to(Warp), mask: u32, barrier: u64, counted: u32, site: u32) -> None:
    """Record cp.async.mbarrier.arrive."""
    issued_for(w, trailing_zeros(mask), barrier, u32(0), u32(0), site)


@native
def mbarrier_released(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    """Report an arrival at the mbarrier of another block with .release.cta, or without a scope, which means .cta.

    w, mask, site: the warp, its lanes and the instruction.
    barrier: the mbarrier, on the host.
    arrivals: number of arrivals.
    expected: bytes that are expected in addition.
    came: bytes that have come.
    """
    cluster = w.cta.cluster
    if cluster.cta_count == 1 or arrivals == 0:
        return
    order = knower_of(orders_of(cluster), w).order
    rule = u32(rules.SCOPE_TOO_NARROW)
    if (order & events.SAID) == 0:
        rule = rules.SCOPE_UNSAID
    elif (order & events.Order.RELEASE) == 0 or ((order >> events.SCOPE_SHIFT) & events.SCOPE_MASK) != events.SCOPES["cta"]:
        return
    at = generic_of(cluster, barrier)
    if u32((at & OFFSET_MASK) >> RANK_SHIFT) != w.cta.rank:
        find(w, rule, site, mask, at, GRANULE)


# accesses that overlap it ---------------------------------------------------------------------------------------------
@native
def phase_missed(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Report lanes whose wait ends though their phase is no longer the one before the current phase."""
    for lane in bits_of(mask):
        barrier = u64(host[lane])
        if not over(cast_ptr(u64, host[lane]), (parities >> lane) & 1):
            find(w, rules.PHASE_MISSED, site, 1 << lane, generic_of(w.cta.cluster, barrier), GRANULE)


@native
def live_in(cluster: ptr_to(Cluster), at: u64, bytes: u32) -> u64:
    """Generic address of the first live mbarrier that overlaps some bytes; 0 if there is none."""
    s = mbarriers_of(cluster)
    within = at & WITHIN
    if within >= s.high or within + u64(bytes) <= s.low:
        return 0
    rank = u32((at & OFFSET_MASK) >> RANK_SHIFT)
    bits = s.bits + rank * s.words
    first = u32((within - SHARED_BASE) // GRANULE)
    last = u32((within + u64(bytes) - 1 - SHARED_BASE) // GRANULE)
    for granule in range(first, last + 1):
        if ((bits[granule // BITS] >> (granule % BITS)) & 1) != 0:
            return u64(SHARED) | (u64(rank) << RANK_SHIFT) | (u64(granule) * GRANULE + SHARED_BASE)
    return 0


@native
def lies_over(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Report an access to an mbarrier's bytes that is not an operation on mbarriers."""
    cluster = w.cta.cluster
    found = live_in(cluster, at, bytes)
    if found == 0:
        return
    entry = account_of(cluster, host_of(cluster, found))
    if u64(entry) == 0:
        return
    rule = u32(rules.READ_AS_DATA)
    if (access & events.WRITE) != 0:
        rule = rules.STORED_TO
    who = entry.made
    blame(w, rule, site, 1 << lane, found, who.site, who.warp, 1 << who.lane)


@native
def touched_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    s = mbarriers_of(w.cta.cluster)
    if u64(s) != 0:
        if s.live != 0 and (at >> SLOT_SHIFT) == SLOT_SHARED:
            lies_over(w, lane, at, bytes, access, site)


@native(inline=True)
def touched_operand(w: ptr_to(Warp), at: u64, site: u32) -> None:
    s = mbarriers_of(w.cta.cluster)
    if u64(s) != 0:
        if s.live != 0 and (at >> SLOT_SHIFT) == SLOT_SHARED:
            lies_over(w, 0, at, UNIT, events.by(events.READ, events.Proxy.ASYNC), site)


@native(inline=True)
def touched(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    s = mbarriers_of(w.cta.cluster)
    if u64(s) == 0:
        return
    places = load(U64, at) | base
    if (access >> events.PROXY_SHIFT) == events.Proxy.MBARRIER:
        left = mask
        if (access & events.READ) == 0:  # mbarrier.init and inval have hooks of their own
            left = 0
        while left != 0:
            place = at[trailing_zeros(left)] | base
            same = left & mask_bits(places == place)
            left = left & ~same
            mbarrier_is_used(w, same, place, site)
        return
    if s.live == 0:
        return
    within = places & WITHIN
    inside = (within < s.high) & (within + u64(bytes) > s.low)
    for lane in bits_of(mask & mask_bits((places >> SLOT_SHIFT == SLOT_SHARED) & inside)):
        lies_over(w, lane, at[lane] | base, bytes, access, site)


@native
def mbarriers_forgotten(cluster: ptr_to(Cluster)) -> None:
    """Reset the records for a new cluster: no mbarriers."""
    s = mbarriers_of(cluster)
    if u64(s) != 0:
        if s.high != 0:
            fill_bytes(s.bits, 0, u64(s.words * cluster.cta_count) * 4)
            fill_bytes(s.refusals, 0, REFUSALS * Refusal.size)
            fill_bytes(s.asked, 0, u64(cluster.warp_count) * (CLASSES * 32 * 8))
            fill_bytes(s.unmet, 0, u64(cluster.warp_count) * (UNMET * 4))
        s.low = WITHIN
        s.high = 0
        s.live = 0


HOOKS: Mapping[str, Native] = {
    "mbarrier_made": mbarrier_is_made, "mbarrier_gone": mbarrier_is_gone, "accessed": touched, "accessed_one": touched_one,
    "operand_read": touched_operand,
    "transfer_issued": mbarrier_is_issued, "copy_signals": mbarrier_signalled, "cluster_begins": mbarriers_forgotten,
    "mbarrier_arrived": mbarrier_released, "fenced": mbarriers_fenced, "mbarrier_waited": phase_missed,
}  # fmt: skip
