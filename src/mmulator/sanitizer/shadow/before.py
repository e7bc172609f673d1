"""The check whether an older access happens before the access that an actor makes now, and the choice of a report if not."""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_of, cast_ptr, funnel_left, load, mask_bits, maximum, minimum, trailing_zeros
from mmulator.base.codegen.types import boolean, ptr_to, u32, u64
from mmulator.runtime.native.hooks.events import SCOPES
from mmulator.sanitizer.order import views
from mmulator.sanitizer.order.clocks import agent_of, has_seen, knows, knows_all, now
from mmulator.sanitizer.order.views import U32, entries_of, knower_of, orders_of
from mmulator.sanitizer.order.world import has_fenced, issue_knows_foreign, knows_foreign, view_knows_foreign
from mmulator.sanitizer.shadow.conflicts import async_conflict, async_found
from mmulator.sanitizer.shadow.judgement import SIZES, conflict, steady_broken
from mmulator.sanitizer.shadow.records import (
    ATOMIC,
    BEYOND,
    KIND_SHIFT,
    LANE_BITS,
    LANE_MASK,
    LIST_KEY,
    MET,
    MIXED,
    PATTERN_MASK,
    PATTERN_SHIFT,
    PER_LANE,
    PROXY_FROM,
    SCOPE_MASK,
    SCOPE_SHIFT,
    STRONG,
    UNASKED,
    VERDICTS,
    WHOLE,
    WRITE,
    AccessKind,
    Actor,
    Met,
    Record,
    Verdict,
    kind_of,
    may_meet,
    meet,
)
from mmulator.sanitizer.state import Doubt, doubt, of_launch

ISSUE = 1 << 31  # in the key of a verdict about a joint issue: what happens before, with a proxy fence between
# The order between an older access and the actor's: none; before; before, with a proxy fence between; before, and a read or
# read since.
UNORDERED, KNOWN, FENCED, READ_SINCE = range(4)


def turned(lanes: Any, lane: Any) -> Any:
    """Macro: lanes relative to lane 0 as lanes relative to another."""
    return funnel_left(lanes, lanes, lane)


@native(inline=True)
def verdict_of(a: ptr_to(Actor), number: u32) -> ptr_to(Verdict):
    return a.races.verdicts + ((agent_of(a.w, 0) >> LANE_BITS) * VERDICTS + (number & (VERDICTS - 1)))


@native(inline=True)
def surely_known(a: ptr_to(Actor), r: ptr_to(Record), number: u32) -> boolean:
    """Whether a cached verdict says that all lanes of a record happen before all of the actor."""
    v = verdict_of(a, number)
    return v.key == number * 2 + a.store.foreign and ((a.mask & ~v.observers) | (r.all & ~v.lanes)) == 0


@native(inline=True)
def is_sent(r: ptr_to(Record)) -> boolean:
    """Whether a record is a thread's write to memory beyond its block, which an arrival without a scope does not carry along."""
    return kind_of(r.flags) == 0 and (r.flags & (WRITE | ATOMIC)) != 0 and (r.flags & BEYOND) != 0


@native(inline=True)
def counts_unsaid(o: ptr_to(views.Orders), r: ptr_to(Record)) -> boolean:
    """Whether a record happens before what follows an arrival without a scope."""
    return o.planes > views.UNSAID and not is_sent(r)


@native
def known_lanes(a: ptr_to(Actor), r: ptr_to(Record), number: u32) -> u32:
    """Mask of the lanes of a record whose access happens before that of all lanes of the actor. The result is cached: it stays
    true, or the clock has ticked.
    """
    w = a.w
    store = a.store
    key = number * 2 + store.foreign
    v = verdict_of(a, number)
    if v.key == key and (a.mask & ~v.observers) == 0:
        if (r.all & ~v.lanes) == 0 or v.asked == now(w):
            return v.lanes
    cluster = a.cluster
    o = orders_of(cluster)
    if r.flags >> KIND_SHIFT == 0 and store.foreign == 0:
        writer = o.knowers + (r.agent >> LANE_BITS)
        if writer.clock == r.clock:
            return 0  # its warp has released nothing since
    k = knower_of(o, w)
    ids = load(U32, k.now.views)
    left = a.mask
    known = ~u32(0)
    unsaid = counts_unsaid(o, r)
    while left != 0:
        first = trailing_zeros(left)
        id = k.now.views[first]
        same = mask_bits(ids == id)
        more = u32(views.NOTHING)
        if unsaid:
            more = k.now.views[views.UNSAID * 32 + first]
            same = same & mask_bits(load(U32, k.now.views, views.UNSAID * 32) == more)
        left = left & ~same
        if store.foreign != 0 and r.cluster != u32(cluster.number):
            for lane in bits_of(r.all & known):
                agent = r.agent
                if (r.flags & PER_LANE) != 0:
                    agent = agent + lane
                if not view_knows_foreign(cluster, id, r.cluster, agent, r.clock):
                    known = known & ~(1 << lane)
        elif (r.flags & PER_LANE) != 0:
            latest = maximum(load(U32, entries_of(o, id), r.agent), load(U32, entries_of(o, more), r.agent))
            known = known & mask_bits(latest >= r.clock)
        elif r.agent < o.stride:
            if maximum(entries_of(o, id)[r.agent], entries_of(o, more)[r.agent]) < r.clock:
                known = 0
    v.key = key
    v.observers = a.mask
    v.lanes = known
    v.asked = now(w)
    return known


@native
def knows_exactly(a: ptr_to(Actor), r: ptr_to(Record), number: u32, lanes: u32) -> boolean:
    """Whether the accesses of lanes of a record happen before those of the actor's lanes."""
    left = lanes & ~known_lanes(a, r, number)
    foreign = boolean(False)
    if a.store.foreign != 0:
        foreign = r.cluster != u32(a.cluster.number)
    for lane in bits_of(left):
        agent = r.agent
        if (r.flags & PER_LANE) != 0:
            agent = agent + lane
        for one in bits_of(a.lanes):
            if foreign:
                if not knows_foreign(a.w, one, r.cluster, agent, r.clock):
                    return False
            elif is_sent(r):
                if knows_all(a.w, one, agent, r.clock) == 0:
                    return False
            elif knows(a.w, one, agent, r.clock) == 0:
                return False
    return True


@native
def has_seen_all(a: ptr_to(Actor), r: ptr_to(Record)) -> boolean:
    """Whether each lane of the actor acts after a load that observed a strong write."""
    for lane in bits_of(a.lanes):
        if not has_seen(a.w, lane, a.at, a.bytes, r.cluster, r.agent, r.clock, r.site):
            return False
    return True


@native
def issue_lanes(a: ptr_to(Actor), r: ptr_to(Record), plane: u32) -> u32:
    """Mask of the lanes of a record that happen before one of the lanes which issue an operation, in a plane."""
    o = orders_of(a.cluster)
    k = knower_of(o, a.w)
    ids = load(U32, k.now.views, plane * 32)
    known = u32(0)
    left = a.issuers
    while left != 0:
        id = k.now.views[plane * 32 + trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        if r.agent >= o.stride:
            known = ~u32(0)
        elif (r.flags & PER_LANE) != 0:
            known = known | mask_bits(load(U32, entries_of(o, id), r.agent) >= r.clock)
        elif entries_of(o, id)[r.agent] >= r.clock:
            known = ~u32(0)
    if plane == views.KNOWN and counts_unsaid(o, r):
        known = known | issue_lanes(a, r, views.UNSAID)
    if (r.flags & PER_LANE) != 0:
        if r.agent == k.first:
            if plane == views.KNOWN:
                known = known | a.issuers
            else:
                known = known | (a.issuers & mask_bits(load(U32, k.now.own, plane * 32) >= r.clock))
        if o.copies != 0 and r.agent == k.first + o.threads:
            known = known | (a.issuers & mask_bits(load(U32, k.now.copied, plane * 32) >= r.clock))
    return known


@native
def issue_level(a: ptr_to(Actor), r: ptr_to(Record), number: u32, lanes: u32) -> u32:
    """The order between lanes of a record and an asynchronous actor, as a level (`async_found`)."""
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            if kind_of(a.flags) == int(AccessKind.MAP):
                return UNORDERED  # other fences count
            if issue_knows_foreign(a.w, a.issuers, r.cluster, r.agent, lanes, r.clock, views.KNOWN) == 0:
                return UNORDERED
            if has_fenced(a.cluster, r.cluster) != 0:
                return FENCED
            plane = u32(views.FENCED_GLOBAL)
            return KNOWN + issue_knows_foreign(a.w, a.issuers, r.cluster, r.agent, lanes, r.clock, plane)
    if kind_of(a.flags) == int(AccessKind.MAP):
        return UNORDERED
    if a.seen != number:
        a.seen = number
        v = verdict_of(a, number)
        key = (number * 2 + a.store.foreign) | ISSUE
        if v.key != key or v.observers != a.issuers or (r.all & ~v.lanes) != 0:
            v.key = key
            v.observers = a.issuers
            v.lanes = issue_lanes(a, r, u32(views.FENCED) + a.store.foreign)
            if v.lanes != 0 and orders_of(a.cluster).planes >= views.FENCES:
                v.lanes = v.lanes & issue_lanes(a, r, views.KNOWN)  # what is relaxed passes on more proxy fences than actions
        a.seen_fenced = v.lanes
        a.seen_known = v.lanes
        if (r.all & ~v.lanes) == 0:
            a.fine = number
        else:
            a.seen_known = issue_lanes(a, r, views.KNOWN)
    if (lanes & ~a.seen_fenced) == 0:
        return FENCED
    if (lanes & ~a.seen_known) == 0:
        return KNOWN
    return UNORDERED


@native
def together(a: ptr_to(Actor), r: ptr_to(Record)) -> u32:
    """1 if both accesses are strong, of elements of one size, and the scope of each includes the other."""
    if (a.flags & r.flags & STRONG) == 0 or ((a.flags ^ r.flags) & SIZES) != 0:
        return 0
    scope = minimum((a.flags >> SCOPE_SHIFT) & SCOPE_MASK, (r.flags >> SCOPE_SHIFT) & SCOPE_MASK)
    if r.cta == a.w.cta.linear:
        return 1
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return u32(scope >= 3)
    return u32(scope >= 2)


@native
def note_met(a: ptr_to(Actor), number: u32, lanes: u32) -> None:
    """Record that an asynchronous actor accesses bytes of a write."""
    met = cast_ptr(Met, a.met)
    for n in range(u32(minimum(met.count, MET))):
        if met.records[n] == number:
            met.lanes[n] = met.lanes[n] | lanes
            return
    if met.count < MET:
        met.records[met.count] = number
        met.lanes[met.count] = lanes
        met.at[met.count] = a.at
    met.count = met.count + 1


@native
def note_pattern(a: ptr_to(Actor), r: ptr_to(Record), number: u32) -> None:
    """Compare the swizzle that an actor expects with that of a tensor copy's record."""
    brought = (r.flags >> PATTERN_SHIFT) & PATTERN_MASK
    if brought == a.pattern:
        a.alike = 1
    elif brought != 0 and a.unlike == 0:
        a.unlike = number
        a.unlike_pattern = brought
        a.unlike_at = a.at


@native
def check_met(a: ptr_to(Actor), met: ptr_to(Met)) -> None:
    """Check the actor against the writes that another actor of the same operation has found."""
    for n in range(met.count):
        number = met.records[n]
        r = a.store.records + number
        lanes = met.lanes[n]
        level = issue_level(a, r, number, lanes)
        if level == UNORDERED or (level == KNOWN and kind_of(r.flags) < PROXY_FROM):
            unknown = lanes & ~a.seen_known
            if level == KNOWN:
                unknown = lanes & ~a.seen_fenced
            if unknown == 0:
                unknown = lanes
            async_found(a.w, a.lane, met.at[n], 16, a.flags, a.site, r, trailing_zeros(unknown), level)


@native
def knows_record(a: ptr_to(Actor), number: u32) -> boolean:
    """Whether all accesses of a record happen before those of all lanes of the actor."""
    r = a.store.records + number
    if number == 0:
        return False
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return False
    return (r.all & ~known_lanes(a, r, number)) == 0


@native
def knows_past(a: ptr_to(Actor), r: ptr_to(Record)) -> boolean:
    """Whether what a write has overwritten, and who had read it, happens before the actor."""
    if r.over == MIXED:
        return False
    past = r.over
    while past != 0:
        key = (a.store.nodes + past).entry
        if key < LIST_KEY:
            if not knows_record(a, key):
                return False
        else:
            left = key & ~u32(LIST_KEY)
            while left != 0:
                node = a.store.nodes + left
                if not knows_record(a, node.entry >> LANE_BITS):
                    return False
                left = node.next
        past = (a.store.nodes + past).next
    return True


@native(inline=True)
def is_link(a: ptr_to(Actor), r: ptr_to(Record)) -> boolean:
    """Whether a record is of an atomic operation that each later one at its place sees, if no store comes between: its scope has
    all threads in it that can access the place.
    """
    least = u32(SCOPES["gpu"])
    if a.store.foreign == 0:
        least = u32(SCOPES["cta"]) + u32(a.cluster.cta_count > 1)
    both = u32(ATOMIC | STRONG)
    return kind_of(r.flags) == 0 and (r.flags & both) == both and ((r.flags >> SCOPE_SHIFT) & SCOPE_MASK) >= least


@native
def comes_after_all(a: ptr_to(Actor), last: u32) -> boolean:
    """Whether a weak actor comes after the newest atomic operation of a cell, and so after all that this one has seen, one
    through the other (PTX ISA 9.1, Causality Order: an operation precedes what comes after a read that observes it). In another
    order of theirs it might not, so that order must be explored: the newest has an answer, or a strong load has seen it.
    """
    number = last >> LANE_BITS
    r = a.store.records + number
    if number == 0 or of_launch(a.cluster).certifies == 0 or a.asynchronous != 0 or (a.flags & STRONG) != 0 or not is_link(a, r):
        return False
    if (r.flags & UNASKED) == 0 and knows_exactly(a, r, number, turned(r.lanes, last & LANE_MASK)):
        return True
    return has_seen_all(a, r)


@native(inline=True)
def keeps_atomics(a: ptr_to(Actor), number: u32) -> boolean:
    """Whether the readers of a cell have atomic operations, the last of which is its last write (`readers.behind`)."""
    return ((a.store.records + number).flags & ATOMIC) != 0 and of_launch(a.cluster).certifies != 0


@native(inline=True)
def are_rewrites(a: ptr_to(Actor)) -> boolean:
    """Whether it matters which of two executions of the actor's instruction, by lanes that have not met between, comes last: for
    a certificate."""
    if of_launch(a.cluster).certifies == 0:
        return False
    return a.asynchronous == 0 and (a.flags & (WRITE | ATOMIC | STRONG)) == WRITE and kind_of(a.flags) == 0


@native
def check_access(a: ptr_to(Actor), item: u32, wrote: u32) -> None:
    """Check the actor against a conflicting access: a write, or a read."""
    number = item >> LANE_BITS
    r = a.store.records + number
    lanes = turned(r.lanes, item & LANE_MASK)
    kind = kind_of(r.flags)
    if r.cut != 0 and (a.flags & ATOMIC) == 0:
        doubt(a.w, Doubt.MANY_WRITES, r.site, lanes, a.at, u32(a.bytes), a.site + 1, a.w.cta.linear, a.w.index, a.lanes)
    if number == a.record:
        same = u32((item & LANE_MASK) == a.lane)
        if (a.flags & WHOLE) != 0 or (same != 0 and ((lanes & (lanes - 1)) == 0 or not are_rewrites(a))):
            return  # the same lanes, or at the same time; other lanes have come to the instruction at another time
    if a.asynchronous != 0:
        if wrote != 0 and u64(a.met) != 0:
            note_met(a, number, lanes)
        if wrote != 0 and a.pattern != 0 and kind == int(AccessKind.TENSOR):
            note_pattern(a, r, number)
        level = issue_level(a, r, number, lanes)
        if level == FENCED:
            return
        if (a.flags & r.flags & ATOMIC) != 0:
            meet(a, r)
            return
        if level == KNOWN and kind < PROXY_FROM and (a.flags & WRITE) != 0 and (wrote & ~a.reread) == 0:
            released = u32(0)
            if a.store.foreign == 0:
                released = issue_lanes(a, r, views.FENCED_READS)
            if number != a.noted and (lanes & ~released) != 0:
                a.noted = number
                async_found(a.w, a.lane, a.at, u32(a.bytes), a.flags, a.site, r, item & LANE_MASK, READ_SINCE)
        elif number != a.told and (level == UNORDERED or (wrote != 0 and kind < PROXY_FROM)):
            a.told = number
            a.fine = number
            async_found(a.w, a.lane, a.at, u32(a.bytes), a.flags, a.site, r, item & LANE_MASK, level)
        return
    if together(a, r) != 0:
        if not may_meet(a) and not knows_exactly(a, r, number, lanes):
            meet(a, r)
        return
    if knows_exactly(a, r, number, lanes):
        steady_broken(a, r, lanes, wrote)
        return
    if kind < PROXY_FROM:
        if wrote != 0 and (r.flags & STRONG) != 0 and has_seen_all(a, r):
            return
        plain = kind == 0 and wrote != 0 and ((a.flags & WRITE) | (r.flags & ATOMIC)) == 0
        if plain and (known_lanes(a, r, number) & lanes) != 0:
            # lanes of one store wrote these bytes, one of them in order, and all the same value (else: LANES_DIFFER)
            doubt(a.w, Doubt.ONE_OF_LANES, a.site, a.lanes, a.at, u32(a.bytes), r.site + 1, r.cta, r.warp, lanes)
            return
        a.past = 0
        if r.over != 0:
            a.past = u32(not knows_past(a, r))
        conflict(a, r, item & LANE_MASK, lanes, wrote)
    elif (a.flags & r.flags & ATOMIC) != 0:
        meet(a, r)
    else:
        async_conflict(a.w, a.lane, a.at, u32(a.bytes), (a.flags & WRITE) >> 1, a.site, r)
