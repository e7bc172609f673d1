"""Conflicts with asynchronous accesses: the rule that two unordered accesses break.

An asynchronous operation accesses memory at some time between its issue and its end. Both are known when it is issued; it is
checked and recorded then, so that nothing depends on when it is carried out. The access that comes second in this run may come
first in another: the rules do not depend on the order in this run, and findings always name the same access first.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.hooks.events import Access
from mmulator.native.state import FULL, Cluster, Transfer, Warp
from mmulator.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.rules import proxies as rules
from mmulator.sanitizer.checks.proxy_maps import map_used_by, map_written
from mmulator.sanitizer.checks.proxy_state import is_issue, name_of, proxies_of, slot_of_issue, warp_of
from mmulator.sanitizer.found import find_against
from mmulator.sanitizer.order.clocks import agent_of
from mmulator.sanitizer.order.issues import issue_knows, latest_in
from mmulator.sanitizer.order.views import KNOWN
from mmulator.sanitizer.shadow.records import PER_LANE, PROXY_FROM, AccessKind, Record, kind_of
from mmulator.sanitizer.shadow.replicas import is_replica
from mmulator.sanitizer.state import Found

ATOMIC, WRITE = int(Access.ATOMIC), int(Access.WRITE)
_FENCE, _READ_EARLY, _REFILL, _OPERAND, _SOURCE, _OVERLAP, _RESULT, _RACE, _COPY_FENCE, _WRITE_FENCE, _REFILL_FENCE = (
    r.number for r in (
        rules.FENCE_MISSING, rules.READ_BEFORE_WAIT, rules.REFILL_EARLY, rules.OPERAND_OVERWRITTEN, rules.SOURCE_REUSED,
        rules.WRITE_OVERLAP, rules.RESULT_EARLY, rules.OPERAND_RACE, rules.COPY_FENCE_MISSING,
        rules.WRITE_FENCE_MISSING, rules.REFILL_FENCE_MISSING,
    )
)  # fmt: skip


# telling --------------------------------------------------------------------------------------------------------------
@native
def after_issue(w: ptr_to(Warp), lanes: u32, record: ptr_to(Record)) -> boolean:
    """Whether the lanes' next action happens after the issue of an asynchronous operation, or the issue is no longer
    recorded.
    """
    cluster = w.cta.cluster
    if record.cluster != u32(cluster.number):
        return False
    issue = slot_of_issue(cluster, record.agent, record.clock, record.site)
    if not is_issue(issue, record.agent, record.clock, record.site):
        return True
    for i in range(u32(4)):
        if issue.since[i] != 0:
            if issue_knows(w, lanes, issue.issuer + i * 32, issue.since[i], KNOWN) != 0:
                return True
            if agent_of(w, 0) == ((issue.issuer >> 5) + i) << 5:
                return True
    return False


@native
def issued_by(record: ptr_to(Record), cluster: ptr_to(Cluster)) -> u32:
    """Mask of the lanes of the record's warp that issued an asynchronous operation; 0 if that is no longer recorded."""
    if kind_of(record.flags) == int(AccessKind.WGMMA):
        return FULL
    one = u32(1)
    issue = slot_of_issue(cluster, record.agent, record.clock, record.site)
    if not is_issue(issue, record.agent, record.clock, record.site):
        return 0
    return one << (issue.issuer & 31)


@native
def tell_conflict(
    w: ptr_to(Warp), lanes: u32, site: u32, at: u64, bytes: u32, record: ptr_to(Record), others: u32, rule: u32, swap: boolean
) -> ptr_to(Found):
    """Report that lanes of a warp and a record break a rule.

    w, lanes, site: the warp, lanes and instruction.
    at, bytes: the place.
    record, others: the record and its lanes.
    rule: number of the rule.
    swap: whether the record's access is reported first, if it is of this cluster.
    """
    if swap:
        if record.cluster == u32(w.cta.cluster.number):
            other = warp_of(w.cta.cluster, record.cta, record.warp)
            return find_against(other, rule, record.site, others, at, bytes, site + 1, w.cta.linear, w.index, lanes)
    return find_against(w, rule, site, lanes, at, bytes, record.site + 1, record.cta, record.warp, others)


@native
def tell_early_read(
    w: ptr_to(Warp), lanes: u32, site: u32, at: u64, bytes: u32, record: ptr_to(Record), others: u32, swap: boolean,
    reader: ptr_to(Warp), readers: u32, agent: u32, clock: u32,
) -> None:  # fmt: skip
    """Report that bytes are read before a copy is complete. words of the finding: the copy's mbarrier, the phase of its
    completion, the phase for which the reader has waited.

    w, lanes, site: the warp, lanes and instruction.
    at, bytes: the place.
    record, others: the record and its lanes.
    swap: as in `tell_conflict`.
    reader, readers: the reading warp and lanes.
    agent, clock: agent and clock of the copy's end.
    """
    entry = tell_conflict(w, lanes, site, at, bytes, record, others, _READ_EARLY, swap)
    if u64(entry) != 0:
        if entry.count == 1:
            name = name_of(w.cta.cluster, agent)
            if name.agent == agent + 1:
                entry.words[0] = name.at
                entry.words[1] = u64(clock - name.first)
                waited = latest_in(reader, readers, agent, KNOWN)
                if waited >= name.first:
                    entry.words[2] = u64(waited - name.first + 1)


@native(inline=True)
def follows(reader: ptr_to(Warp), readers: u32, agent: u32) -> boolean:
    """Whether a reader has waited for some phase of an mbarrier: it takes part in the ring of buffers, and read earlier
    contents.
    """
    return latest_in(reader, readers, agent, KNOWN) != 0


@native
def wrote_later(w: ptr_to(Warp), record: ptr_to(Record), agent: u32, lanes: u32, site: u32) -> boolean:
    """Whether a thread wrote after another warp of the warpgroup issued its part of the wgmma that w issues now."""
    cluster = w.cta.cluster
    p = proxies_of(cluster)
    if record.cluster != u32(cluster.number):
        return False
    issue = slot_of_issue(cluster, p.agent, p.clock, site)
    if not is_issue(issue, p.agent, p.clock, site):
        return False
    writer = warp_of(cluster, record.cta, record.warp)
    for i in range(u32(4)):
        if issue.since[i] != 0:
            if (issue.issuer >> 5) + i == agent >> 5:
                return record.clock >= issue.since[i]
            if issue_knows(writer, lanes, issue.issuer + i * 32, issue.since[i], KNOWN) != 0:
                return True
    return False


# an ordinary access -----------------------------------------------------------------------------------------------------
@native
def async_conflict(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, write: u32, site: u32, record: ptr_to(Record)) -> None:
    """Report the conflict of a generic access with an asynchronous one whose end does not happen before it.

    w, lane, site: the lane and instruction.
    at, bytes: the place.
    write: whether it writes.
    record: the asynchronous access.
    """
    one = u32(1)
    lanes = one << lane
    cluster = w.cta.cluster
    kind = kind_of(record.flags)
    if kind == int(AccessKind.MAP):
        if write != 0:
            map_written(w, lane, at, bytes, site)
        return
    others = issued_by(record, cluster)
    after = after_issue(w, lanes, record)
    shared = (at >> SLOT_SHIFT) == SLOT_SHARED
    if (record.flags & WRITE) != 0:
        if not shared:
            if after:
                tell_conflict(w, lanes, site, at, bytes, record, others, _RESULT, False)
            else:
                tell_conflict(w, lanes, site, at, bytes, record, others, _OVERLAP, True)
        elif write != 0:
            tell_conflict(w, lanes, site, at, bytes, record, others, _OVERLAP, True)
        elif after or not follows(w, lanes, record.agent):
            tell_early_read(w, lanes, site, at, bytes, record, others, False, w, lanes, record.agent, record.clock)
        else:
            tell_conflict(w, lanes, site, at, bytes, record, others, _REFILL, True)
    elif not after:
        tell_conflict(w, lanes, site, at, bytes, record, others, _RACE, True)
    elif kind == int(AccessKind.WGMMA):
        tell_conflict(w, lanes, site, at, bytes, record, others, _OPERAND, False)
    else:
        tell_conflict(w, lanes, site, at, bytes, record, others, _SOURCE, False)


@native
def brings_the_same(w: ptr_to(Warp), record: ptr_to(Record)) -> boolean:
    """Whether the store that is being issued writes the same bytes as another one, in a copy of this code for other warps."""
    cluster = w.cta.cluster
    p = proxies_of(cluster)
    if u64(p.store) == 0 or record.cta != w.cta.linear or record.warp == w.index or (record.flags & ATOMIC) != 0:
        return False
    if p.replica == 0:
        p.replica = 2 - is_replica(cluster, cast_ptr(Transfer, p.store))
    return p.replica == 1


# an asynchronous access -------------------------------------------------------------------------------------------------
@native
def async_found(
    w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, flags: u32, site: u32, record: ptr_to(Record), record_lane: u32, level: u32
) -> None:
    """Report the conflict of an asynchronous access with an older one.

    w, lane, site: the issuing lane and instruction.
    at, bytes: the place.
    flags: flags of its record.
    record, record_lane: the older access.
    level: 0: the older access does not happen before the issue; 1: a generic write happens before it, but without a proxy fence
        between; 3: as 1, or a generic read of bytes that it overwrites.
    """
    cluster = w.cta.cluster
    p = proxies_of(cluster)
    one = u32(1)
    lanes = one << lane
    kind = kind_of(flags)
    if level == 1:  # the same again
        if p.told == u64(record) and p.told_site == site:
            return
        p.told = u64(record)
        p.told_site = site
    if kind == int(AccessKind.WGMMA):
        lanes = FULL
    agent = record.agent
    if (record.flags & PER_LANE) != 0:
        agent = agent + record_lane
    others = record.lanes << record_lane
    if kind_of(record.flags) == int(AccessKind.WGMMA):
        others = FULL
    if kind == int(AccessKind.MAP):
        map_used_by(w, lane, at, site, record, agent, others)
        return
    other_kind = kind_of(record.flags)
    if other_kind == int(AccessKind.MAP):
        return
    if level != 0:
        if (flags & WRITE) == 0:
            rule = u32(_FENCE)
            if kind == int(AccessKind.WGMMA) and other_kind == int(AccessKind.COPY):
                rule = _COPY_FENCE
            tell_conflict(w, lanes, site, at, bytes, record, others, rule, False)
        elif kind != int(AccessKind.STORE):
            rule = _WRITE_FENCE
            if level != 1:
                rule = _REFILL_FENCE
            tell_conflict(w, lanes, site, at, bytes, record, others, rule, False)
        return
    shared = (at >> SLOT_SHIFT) == SLOT_SHARED
    foreign = record.cluster != u32(cluster.number)
    if (flags & WRITE) == 0:
        if other_kind < PROXY_FROM:
            if kind == int(AccessKind.WGMMA) and wrote_later(w, record, agent, others, site):
                tell_conflict(w, lanes, site, at, bytes, record, others, _OPERAND, True)
            else:
                tell_conflict(w, lanes, site, at, bytes, record, others, _RACE, False)
        elif not shared:
            tell_conflict(w, lanes, site, at, bytes, record, others, _RESULT, False)
        elif after_issue(w, lanes, record) or not follows(w, lanes, record.agent):
            tell_early_read(w, lanes, site, at, bytes, record, others, False, w, lanes, record.agent, record.clock)
        elif kind == int(AccessKind.WGMMA):
            tell_conflict(w, lanes, site, at, bytes, record, others, _OPERAND, True)
        else:
            tell_conflict(w, lanes, site, at, bytes, record, others, _SOURCE, True)
        return
    if site == record.site and not shared and record.cta == w.cta.linear and record.warp == w.index and others != lanes:
        return  # lanes of a warp that all issue the same store
    if other_kind == int(AccessKind.TENSOR) and not shared and site != record.site:
        if brings_the_same(w, record):
            return
    if site == record.site and kind == int(AccessKind.TENSOR) and record.cta == w.cta.linear and record.warp == w.index:
        if shared and not foreign and (record.flags & WRITE) != 0:
            return  # earlier data of the same instruction was not read: prefetches into one place (as in CUTLASS)
    if (record.flags & WRITE) != 0 or foreign or not shared:
        tell_conflict(w, lanes, site, at, bytes, record, others, _OVERLAP, False)
        return
    reader = warp_of(cluster, record.cta, record.warp)
    if other_kind < PROXY_FROM:
        if follows(reader, others, p.agent):
            tell_conflict(w, lanes, site, at, bytes, record, others, _REFILL, False)
        else:
            tell_early_read(w, lanes, site, at, bytes, record, others, True, reader, others, p.agent, p.clock)
    elif other_kind == int(AccessKind.WGMMA):
        if after_issue(w, lanes, record) or follows(reader, FULL, p.agent):
            tell_conflict(w, lanes, site, at, bytes, record, others, _OPERAND, False)
        else:
            tell_early_read(w, lanes, site, at, bytes, record, others, True, reader, FULL, p.agent, p.clock)
    elif after_issue(w, lanes, record):
        tell_conflict(w, lanes, site, at, bytes, record, others, _SOURCE, False)
    else:
        tell_conflict(w, lanes, site, at, bytes, record, others, _RACE, True)
