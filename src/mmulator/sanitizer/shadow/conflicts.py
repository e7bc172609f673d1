"""Conflicts with asynchronous accesses: the rule that two unordered accesses break.

An asynchronous operation accesses memory at some time between its issue and its end. Both are known when it is issued; it is
checked and recorded then, so that nothing depends on when it is carried out. The access that comes second in this run may come
first in another: the rules do not depend on the order in this run, and findings always name the same access first.
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, copy_bytes, null, stack
from mmulator.base.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.base.rules import proxies as rules
from mmulator.base.rules import tensor_memory
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.boxes import next_row, row_inside, row_offset
from mmulator.runtime.native.asynchrony.maps import MOST_ROW, Box
from mmulator.runtime.native.asynchrony.tensor import begin_of, first_byte, take_row
from mmulator.runtime.native.asynchrony.transfers import entry, payload_of
from mmulator.runtime.native.hooks.events import Access, PayloadShape
from mmulator.runtime.native.state import FULL, Cluster, Transfer, TransferKind, Warp
from mmulator.sanitizer.checks.proxy_state import is_issue, map_used_by, map_written, name_of, proxies_of, slot_of_issue, warp_of
from mmulator.sanitizer.order.clocks import agent_of, issue_knows, latest_in
from mmulator.sanitizer.order.views import KNOWN
from mmulator.sanitizer.shadow.judgement import OTHER_FIRST, Decisions
from mmulator.sanitizer.shadow.records import LANE_MASK, PER_LANE, PROXY_FROM, AccessKind, Record, kind_of
from mmulator.sanitizer.state import Doubt, Found, doubt, find_against

ATOMIC, WRITE = int(Access.ATOMIC), int(Access.WRITE)

# A generic access and an asynchronous one, whichever of them came first in this run. async_writes, writes: the asynchronous one
# does, the generic one does. shared: in shared memory of this cluster. after: the generic one comes after the issue. follows: the
# generic one's thread has waited for a phase of the mbarrier. wgmma: the asynchronous one is of a wgmma. The "other" access is
# the asynchronous one.
GENERIC = Decisions(rules, """
    async_writes  writes  shared  after  follows  wgmma  |  rule                 other_first
    1             -       0       1      -        -      |  RESULT_EARLY         0
    1             -       0       0      -        -      |  WRITE_OVERLAP        1
    1             1       1       -      -        -      |  WRITE_OVERLAP        1
    1             0       1       1      -        -      |  READ_BEFORE_WAIT     0
    1             0       1       0      0        -      |  READ_BEFORE_WAIT     0
    1             0       1       0      1        -      |  REFILL_EARLY         1
    0             -       -       0      -        -      |  OPERAND_RACE         1
    0             -       -       1      -        1      |  OPERAND_OVERWRITTEN  0
    0             -       -       1      -        0      |  SOURCE_REUSED        0
""")
# An asynchronous access that is being issued, and another asynchronous one. same: both are one store (is_one_store). after: it
# comes after the issue of the other. follows: whoever reads has waited for a phase of the writer's mbarrier. wgmma: the reader is
# a wgmma.
ASYNCHRONOUS = Decisions(rules, """
    writes  other_writes  same  shared  after  follows  wgmma  |  rule                 other_first
    0       -             -     0       -      -        -      |  RESULT_EARLY         0
    0       -             -     1       1      -        -      |  READ_BEFORE_WAIT     0
    0       -             -     1       0      0        -      |  READ_BEFORE_WAIT     0
    0       -             -     1       0      1        1      |  OPERAND_OVERWRITTEN  1
    0       -             -     1       0      1        0      |  SOURCE_REUSED        1
    1       -             1     -       -      -        -      |  -
    1       1             0     -       -      -        -      |  WRITE_OVERLAP        0
    1       0             0     0       -      -        -      |  WRITE_OVERLAP        0
    1       0             0     1       1      -        1      |  OPERAND_OVERWRITTEN  0
    1       0             0     1       0      1        1      |  OPERAND_OVERWRITTEN  0
    1       0             0     1       0      0        1      |  READ_BEFORE_WAIT     1
    1       0             0     1       1      -        0      |  SOURCE_REUSED        0
    1       0             0     1       0      -        0      |  OPERAND_RACE         1
""")
# An asynchronous access that is being issued, and a generic one before it, with no proxy fence between. read: the generic one
# reads, or its thread has read since what it wrote. cp_async: the generic one is of a cp.async.
UNFENCED = Decisions(rules, """
    writes  read  wgmma  cp_async  st_async  |  rule
    0       -     1      1         -         |  COPY_FENCE_MISSING
    0       -     1      0         -         |  FENCE_MISSING
    0       -     0      -         -         |  FENCE_MISSING
    1       -     -      -         1         |  -
    1       0     -      -         0         |  WRITE_FENCE_MISSING
    1       1     -      -         0         |  REFILL_FENCE_MISSING
""")


def multiplies(kind: Any) -> Any:
    """Macro: whether an AccessKind is that of a product."""
    return (kind == int(AccessKind.WGMMA)) | (kind == int(AccessKind.MMA))


@native
def of_product(decision: u32, kind: u32) -> u32:
    """A decision about a product that reads shared memory, by its AccessKind."""
    if kind == int(AccessKind.MMA) and (decision & (OTHER_FIRST - 1)) == u32(rules.OPERAND_OVERWRITTEN):
        return (decision & OTHER_FIRST) | tensor_memory.OPERAND_OVERWRITTEN
    return decision


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
    if record.since != 0:
        return one << (record.since & LANE_MASK)
    issue = slot_of_issue(cluster, record.agent, record.clock, record.site)
    if not is_issue(issue, record.agent, record.clock, record.site):
        return 0
    return one << (issue.issuer & 31)


@native
def tell_conflict(
    w: ptr_to(Warp), lanes: u32, site: u32, at: u64, bytes: u32, record: ptr_to(Record), others: u32, decision: u32,
    reader: ptr_to(Warp), readers: u32, agent: u32, clock: u32,
) -> None:  # fmt: skip
    """Tell that lanes of a warp and those of a record break a rule, if a decision says so.

    lanes, site, at, bytes: what w accesses now.
    others: lanes of the record. The finding names it first if the decision says so and it is of this cluster.
    reader, readers: of the two that which reads, and its lanes.
    agent, clock: the mbarrier of what is read before it is complete, and the phase that says so.
    """
    rule = decision & (OTHER_FIRST - 1)
    if rule == 0:
        return
    cluster = w.cta.cluster
    entry = null(Found)
    if (decision & OTHER_FIRST) != 0 and record.cluster == u32(cluster.number):
        other = warp_of(cluster, record.cta, record.warp)
        entry = find_against(other, rule, record.site, others, at, bytes, site + 1, w.cta.linear, w.index, lanes)
    else:
        entry = find_against(w, rule, site, lanes, at, bytes, record.site + 1, record.cta, record.warp, others)
    if rule != u32(rules.READ_BEFORE_WAIT) or u64(entry) == 0:
        return
    name = name_of(cluster, agent)
    if entry.count == 1 and name.agent == agent + 1:
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


@native
def is_one_store(
    w: ptr_to(Warp), kind: u32, site: u32, lanes: u32, record: ptr_to(Record), others: u32, shared: boolean
) -> boolean:
    """Whether two asynchronous writes are no conflict, since they are one store. kind, site, lanes: of what w issues now."""
    if site != record.site:
        if shared or kind_of(record.flags) != int(AccessKind.TENSOR):
            return False
        return brings_the_same(w, record)
    if record.cta != w.cta.linear or record.warp != w.index:
        return False
    if not shared:
        return others != lanes  # lanes of a warp that all issue the same store
    # nobody has read what the same instruction brought before: prefetches into one place (CUTLASS has such)
    return kind == int(AccessKind.TENSOR) and (record.flags & WRITE) != 0


# accesses that meet ---------------------------------------------------------------------------------------------------
@native
def async_conflict(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, write: u32, site: u32, record: ptr_to(Record)) -> None:
    """A generic access meets an asynchronous one of which its lane does not know that it is over."""
    one = u32(1)
    lanes = one << lane
    cluster = w.cta.cluster
    kind = kind_of(record.flags)
    if kind == int(AccessKind.MAP):
        if write != 0:
            map_written(w, lane, at, bytes, site)
        return
    shared = (at >> SLOT_SHIFT) == SLOT_SHARED
    async_writes = (record.flags & WRITE) != 0
    waits = boolean(False)
    if async_writes and shared and write == 0:
        waits = follows(w, lanes, record.agent)
    decision = GENERIC(
        async_writes=async_writes, writes=write != 0, shared=shared, after=after_issue(w, lanes, record), follows=waits,
        wgmma=multiplies(kind),
    )  # fmt: skip
    others = issued_by(record, cluster)
    tell_conflict(w, lanes, site, at, bytes, record, others, of_product(decision, kind), w, lanes, record.agent, record.clock)


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
    wgmma = kind == int(AccessKind.WGMMA)
    if level == 1:  # the same again
        if p.told == u64(record) and p.told_site == site:
            return
        p.told = u64(record)
        p.told_site = site
    if wgmma:
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
    writes = (flags & WRITE) != 0
    if level != 0:
        unfenced = UNFENCED(
            writes=writes, read=level != 1, wgmma=multiplies(kind), cp_async=other_kind == int(AccessKind.COPY),
            st_async=kind == int(AccessKind.STORE),
        )  # fmt: skip
        tell_conflict(w, lanes, site, at, bytes, record, others, unfenced, w, lanes, agent, 0)
        return
    other_writes = (record.flags & WRITE) != 0
    shared = (at >> SLOT_SHIFT) == SLOT_SHARED and record.cluster == u32(cluster.number)
    reader = w
    readers = lanes
    end = record.agent
    clock = record.clock
    if writes:
        reader = warp_of(cluster, record.cta, record.warp)
        readers = others
        end = p.agent
        clock = p.clock
    waits = boolean(False)
    after = boolean(False)
    decision = u32(0)
    if other_kind < PROXY_FROM:
        if shared and writes and not other_writes:
            waits = follows(reader, readers, end)
        if wgmma and not writes:
            after = wrote_later(w, record, agent, others, site)
        decision = GENERIC(
            async_writes=writes, writes=other_writes, shared=shared, after=after, follows=waits, wgmma=multiplies(kind)
        ) ^ OTHER_FIRST
    else:
        if shared and writes != other_writes:
            waits = follows(reader, readers, end)
            after = after_issue(w, lanes, record)
        same = boolean(False)
        product = kind
        if writes:
            product = other_kind
            same = is_one_store(w, kind, site, lanes, record, others, shared)
            if same and other_writes:
                doubt(w, Doubt.SAME_STORE, site, lanes, at, bytes, record.site + 1, record.cta, record.warp, others)
        decision = ASYNCHRONOUS(
            writes=writes, other_writes=other_writes, same=same, shared=shared, after=after, follows=waits,
            wgmma=multiplies(product),
        )  # fmt: skip
        decision = of_product(decision, product)
    tell_conflict(w, lanes, site, at, bytes, record, others, decision, reader, readers, end, clock)


@native
def is_equal(a: ptr_to(u8), b: ptr_to(u8), bytes: u64) -> boolean:
    for i in range(bytes):
        if a[i] != b[i]:
            return False
    return True


@native
def is_there(t: ptr_to(Transfer)) -> boolean:
    """Whether the tensor already has the bytes that a store will write to it."""
    box = stack(Box)
    copy_bytes(box, payload_of(t, PayloadShape.BOX), Box.size)
    room = stack(u8, MOST_ROW)
    target = cast_ptr(u8, t.target)
    memory = cast_ptr(u8, begin_of(t.source, first_byte(box)))
    at = box.place
    for _ in range(box.rows):
        if row_inside(box) != 0:
            take_row(box, room, memory, at)
            tensor = target + (row_offset(box) - box.first + u64(box.low))
            if not is_equal(tensor, room + box.low, u64(box.high - box.low)):
                return False
        at = at + u64(box.pitch)
        next_row(box, 1)
    return True


@native
def is_on_its_way(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> u32:
    """1 if another store of the same box, with the same bytes, is under way."""
    box = payload_of(t, PayloadShape.BOX)
    for place in range(cluster.under_way):
        other = entry(cluster, place)
        if other.kind == TransferKind.TENSOR_STORE:
            its = payload_of(other, PayloadShape.BOX)
            same = (u64(other.target) == u64(t.target)) & (other.units == t.units) & (other.source_bytes == t.source_bytes)
            same = same & (its.first == box.first) & (its.row == box.row) & (its.swizzle == box.swizzle)
            if same != 0:
                if is_equal(cast_ptr(u8, other.source), cast_ptr(u8, t.source), t.source_bytes):
                    return 1
    return 0


@native
def is_replica(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> u32:
    """1 if a store of a box to a tensor, which has not begun, writes bytes that are already there or under way."""
    if is_there(t):
        return 1
    return is_on_its_way(cluster, t)
