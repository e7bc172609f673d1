"""The rule that two unordered accesses of the generic proxy break (base/rules/races.py), and tables of such decisions.

Two writes of the same bytes are not a finding if the second leaves the first one's value: programs do this on purpose, and no
run can tell the order of such writes. So a write stays pending until the next hook of its cluster, when it has been done.

A table of decisions is text, of rows that a reader can check one by one. Its head names conditions, and behind `|` what a row
says. A row has for each condition 1 (holds), 0 (does not hold) or - (either), and behind `|` the name of a rule (- for none)
and, where the head asks for it, 1 if the finding names the other access first. Exactly one row is for each combination of
conditions (tests/sanitizer/test_decisions.py).
"""

from types import ModuleType
from typing import Any, NamedTuple

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, select, stack
from mmulator.base.codegen.types import CodeError, boolean, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Builder, Value, constant
from mmulator.base.rules import races as rules
from mmulator.runtime.native.hooks.moves import LOADED, READ
from mmulator.runtime.native.memory.windows import peek
from mmulator.runtime.native.state import Warp
from mmulator.sanitizer.order.clocks import knows
from mmulator.sanitizer.shadow import records as rec
from mmulator.sanitizer.state import ROOM, Doubt, Found, doubt, find_entry, of_launch

OTHER_FIRST = 1 << 16  # of a decision, above the number of the rule


class DecisionRow(NamedTuple):
    """A row: the conditions that it looks at, those of them that hold, and the decision (a rule's number, 0 for none)."""

    care: int
    want: int
    decision: int


class Decisions:
    """A table whose rules are names of a module of base/rules/."""

    def __init__(self, rules: ModuleType, text: str) -> None:
        head, *lines = text.strip().splitlines()
        self.conditions = tuple(head.partition("|")[0].split())
        self.rows = [self._row(rules, line) for line in lines]

    def _row(self, rules: ModuleType, line: str) -> DecisionRow:
        cells, said = (part.split() for part in line.split("|"))
        care, want = (sum((cell in wanted) << n for n, cell in enumerate(cells)) for wanted in ("01", "1"))
        number = 0 if said[0] == "-" else getattr(rules, said[0]).number
        return DecisionRow(care, want, number | OTHER_FIRST * (said[1:] == ["1"]))

    def __call__(self, **conditions: Any) -> Value:
        """Macro: the decision for these conditions (boolean values, by their names)."""
        if set(conditions) != set(self.conditions):
            raise CodeError(f"conditions are {', '.join(self.conditions)}, not {', '.join(conditions)}")
        b = Builder.current()
        holds = decision = constant(b, u32, 0)
        for n, name in enumerate(self.conditions):
            holds = holds | (u32(conditions[name]) << n)
        for row in self.rows:
            decision = select((holds & row.care) == row.want, constant(b, u32, row.decision), decision)
        return decision


# Two accesses that nothing orders. half: a strong read meets a write that is not. replica: is_replicated_read. apart: of two
# blocks. strong: both are. sizes: both are, of elements of different sizes. foreign: in global memory. copy: a cp.async of which
# the actor knows the issue. warp: of one warp. record_writes, writes: the record's access does, the actor's does.
RACES = Decisions(rules, """
    sizes  half  replica  apart  strong  foreign  copy  warp  record_writes  writes  |  rule
    1      -     -        -      -       -        -     -     -              -       |  SIZES
    0      1     -        -      -       -        -     -     -              -       |  HALF_STRONG
    0      0     1        -      -       -        -     -     -              -       |  REPLICATED_READ
    0      0     0        1      1       -        -     -     -              -       |  SCOPE
    0      0     0        1      0       1        -     -     -              -       |  BETWEEN_BLOCKS
    0      0     0        1      0       0        -     -     -              -       |  IN_CLUSTER
    0      0     0        0      -       -        1     -     0              -       |  COPY_SOURCE
    0      0     0        0      -       -        1     -     1              1       |  COPY_OVERWRITTEN
    0      0     0        0      -       -        1     -     1              0       |  COPY_READ
    0      0     0        0      -       -        0     1     -              -       |  IN_WARP
    0      0     0        0      -       -        0     0     1              1       |  WRITE_WRITE
    0      0     0        0      -       -        0     0     1              0       |  READ_WRITE
    0      0     0        0      -       -        0     0     0              -       |  READ_WRITE
""")
SIZES = rec.SIZE_MASK << rec.SIZE_SHIFT
AGAIN = 63  # of the word of a finding: the write is not the first one there
LARGEST = 16  # bytes of a write that may be of what was there


@native
def knows_issue(a: ptr_to(rec.Actor), r: ptr_to(rec.Record), lane: u32) -> u32:
    """1 if the issue of a cp.async happens before the actor's access."""
    warp = u32((u64(a.w) - u64(a.cluster.warps)) // Warp.size) - a.w.index + r.warp
    return knows(a.w, a.lane, warp * 32 + lane, r.since)


@native
def is_replicated_read(a: ptr_to(rec.Actor), r: ptr_to(rec.Record), lane: u32, wrote: u32) -> boolean:
    """Whether a read and a write of one block are of copies of one instruction, which a compiler makes. wrote: the record's is
    the write."""
    operands = a.races.launch.operands
    if (operands[a.site] & operands[r.site] & 1) == 0:
        return False
    if (wrote == 0 and a.read_site == r.site + 1) or (wrote != 0 and r.since == a.site + 1 and rec.kind_of(r.flags) == 0):
        return True
    return operands[a.site] == operands[r.site] or (lane == a.lane and r.warp != a.w.index)


@native
def rule_of(a: ptr_to(rec.Actor), r: ptr_to(rec.Record), lane: u32, wrote: u32) -> u32:
    """The number of the rule, which is the same whichever of the two came first. wrote: the record's access is a write."""
    writes = (a.flags & rec.WRITE) != 0
    apart = r.cta != a.w.cta.linear
    foreign = a.store.foreign != 0
    half = boolean(False)
    replica = boolean(False)
    copy = boolean(False)
    if foreign and not (wrote != 0 and writes):
        strong_read = a.flags & ~r.flags
        if wrote == 0:
            strong_read = r.flags & ~a.flags
        half = (strong_read & rec.STRONG) != 0
        if not apart:
            replica = is_replicated_read(a, r, lane, wrote)
    if rec.kind_of(r.flags) == int(rec.AccessKind.COPY) and not apart:
        copy = knows_issue(a, r, lane) != 0
    strong = (a.flags & r.flags & rec.STRONG) != 0
    sizes = strong and ((a.flags ^ r.flags) & SIZES) != 0
    return RACES(
        sizes=sizes, half=half, replica=replica, apart=apart, strong=strong, foreign=foreign, copy=copy,
        warp=r.warp == a.w.index, record_writes=wrote != 0, writes=writes,
    )  # fmt: skip


@native
def unread_rule(w: ptr_to(Warp), rule: u32, site: u32, warp: u32, lanes: u32) -> u32:
    """The rule of a race between a write and a load whose value has not been read yet: a note, unless it is read later.

    w: a warp of the block.
    rule: number of the rule if the value is read.
    site, warp, lanes: the load.
    """
    s = rec.races_of(w.cta.cluster)
    number = s.launch.unread[site]
    if number == 0:
        return rule
    value = s.loaded + (u64(w.cta.rank * w.cta.launch.warps + warp) * u64(s.loads) + u64(number - 1))
    if (lanes & ~value.unread) != 0:
        return rule
    value.raced = value.unread
    value.site = site
    return rules.UNREAD


@native
def value_moved(w: ptr_to(Warp), lanes: u32, number: u32, how: u32) -> None:
    """Handle a read or a write of registers of a load that may stay unread. A read after a race makes its notes errors."""
    s = rec.races_of(w.cta.cluster)
    value = s.loaded + (u64(w.cta.rank * w.cta.launch.warps + w.index) * u64(s.loads) + u64(number))
    if how == READ and (value.raced & lanes) != 0:
        for n in range(u32(ROOM)):
            entry = cast_ptr(Found, w.cta.cluster.log.entries) + n
            if entry.rule == rules.UNREAD and entry.site == value.site:
                entry.words[2] = 1
    value.raced = value.raced & ~lanes
    value.unread = value.unread & ~lanes
    if how == LOADED:
        value.unread = value.unread | lanes


@native
def tell_race(
    w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, at: u64, bytes: u32, other_site: u32, other_cta: u32, other_warp: u32,
    other_lanes: u32, word: u64,
) -> None:
    """Report a race. The finding does not depend on the order in the run: of a read and a write the read comes first, of two
    writes the one further down in the text.

    w, site, lanes: the warp, instruction and lanes.
    rule: number of the rule.
    at, bytes: the place.
    other_site, other_cta, other_warp, other_lanes: the other access.
    word: the flags of both.
    """
    swap = (word & rec.WRITE) == 0
    if ((word >> 32) & rec.WRITE) != 0 and (word & rec.WRITE) != 0:
        swap = other_site > site
    first = site
    second = other_site
    if swap:
        first = other_site
        second = site
        word = ((word >> 32) & ((1 << (AGAIN - 32)) - 1)) | (word << 32) | (word & (1 << AGAIN))
    cluster = w.cta.cluster
    told = rule
    if (rule == rules.READ_WRITE or rule == rules.IN_WARP) and ((word >> 32) & (rec.WRITE | rec.ATOMIC)) == 0:
        told = unread_rule(w, rule, first, select(swap, other_warp, w.index), select(swap, other_lanes, lanes))
    e = find_entry(cluster, told, first, second + 1)
    if u64(e) == 0:
        launch = of_launch(cluster)
        launch.lost = launch.lost + 1
        return
    e.count = e.count + 1
    if e.count == 1:
        e.at = at
        e.bytes = bytes
        e.words[0] = word
        if told != rule:
            e.words[1] = u64(rule)
        if not swap:
            e.cta = w.cta.linear
            e.warp = w.index
            e.lanes = lanes
            e.other_cta = other_cta
            e.other_warp = other_warp
            e.other_lanes = other_lanes
        else:
            e.cta = other_cta
            e.warp = other_warp
            e.lanes = other_lanes
            e.other_cta = w.cta.linear
            e.other_warp = w.index
            e.other_lanes = lanes
    if rule != rules.REPLICATED_READ:
        return
    reader = select(swap, other_warp, w.index)  # all that read, for findings/shadows.py
    readers = select(swap, other_lanes, lanes)
    if other_warp == w.index:
        readers = readers & ~select(swap, lanes, other_lanes)
    if readers != 0:
        if of_launch(cluster).certifies != 0:
            replicas = find_entry(cluster, u32(Doubt.REPLICA), first, reader + 1)
            if u64(replicas) == 0:
                of_launch(cluster).lost = of_launch(cluster).lost + 1
            else:
                replicas.lanes = replicas.lanes | readers
        if e.cta == w.cta.linear:
            e.words[1] = e.words[1] | (1 << u64(reader))
            e.words[2] = e.words[2] | u64(readers)


@native
def conflict(a: ptr_to(rec.Actor), r: ptr_to(rec.Record), lane: u32, lanes: u32, wrote: u32) -> None:
    """Report the actor's access and an older one that are unordered, one of which writes."""
    rule = rule_of(a, r, lane, wrote)
    word = (u64(a.flags) << 32) | u64(r.flags)
    if wrote == 0:
        word = (word & ~u64(rec.WRITE | rec.ATOMIC)) | (u64(a.again) << AGAIN)
    s = a.races
    if wrote != 0 and a.plain != 0 and a.bytes <= LARGEST and rec.kind_of(r.flags) == 0:
        a.kept = 1
        before = stack(u64, 2)
        before[0] = 0
        before[1] = 0
        cells = u32(0)  # that both access: in the actor's others nothing conflicts with this record
        for n in range(a.run_cells):
            cells = cells + u32(cells == n and a.run[n] == a.run[0])
        part = cells << a.granule
        if peek(a.w, a.lane, a.run_at, u64(part), cast_ptr(u8, before)) == u64(part):
            if s.doubt_count != 0 and of_launch(a.cluster).certifies != 0:
                d = s.doubts + (s.doubt_count - 1)
                here = d.at == a.at and d.from_ == a.run_at and d.part == part and d.lane == a.lane
                if here and d.site == a.site and d.rule == rule and d.other_site == r.site:
                    d.over = d.over | a.past  # of a certificate's many writers of one place the first is told
                    return
            if s.doubt_count < rec.DOUBTS:
                d = s.doubts + s.doubt_count
                s.doubt_count = s.doubt_count + 1
                d.before[0] = before[0]
                d.before[1] = before[1]
                d.w = a.w
                d.lane = a.lane
                d.bytes = u32(a.bytes)
                d.rule = rule
                d.site = a.site
                d.lanes = a.lanes
                d.at = a.at
                d.from_ = a.run_at
                d.part = part
                d.other_site = r.site
                d.other_cta = r.cta
                d.other_warp = r.warp
                d.other_lanes = lanes
                d.over = a.past
                d.word = word
            else:
                doubt(a.w, Doubt.MANY_WRITES, a.site, a.lanes, a.at, u32(a.bytes), r.site + 1, r.cta, r.warp, lanes)
            return
    tell_race(a.w, rule, a.site, a.lanes, a.at, u32(a.bytes), r.site, r.cta, r.warp, lanes, word)


@native
def steady_broken(a: ptr_to(rec.Actor), r: ptr_to(rec.Record), lanes: u32, wrote: u32) -> None:
    """Report two ordered accesses, one of which reads memory that must not change while the kernel runs. wrote: whether the
    record's access is a write.
    """
    if ((a.flags | r.flags) & rec.STEADY) == 0:
        return
    rule = u32(rules.STEADY)
    word = (u64(a.flags) << 32) | u64(r.flags)
    if wrote == 0:
        rule = rules.STEADY_LATER
        word = word & ~u64(rec.WRITE | rec.ATOMIC)
    tell_race(a.w, rule, a.site, a.lanes, a.at, u32(a.bytes), r.site, r.cta, r.warp, lanes, word)


@native
def settle_doubts(s: ptr_to(rec.Races)) -> None:
    """Judge the pending writes, which have been done now."""
    now = stack(u64, 2)
    for i in range(s.doubt_count):
        d = s.doubts + i
        now[0] = 0
        now[1] = 0
        peek(d.w, d.lane, d.from_, u64(d.part), cast_ptr(u8, now))
        if now[0] != d.before[0] or now[1] != d.before[1]:
            tell_race(d.w, d.rule, d.site, d.lanes, d.at, d.bytes, d.other_site, d.other_cta, d.other_warp, d.other_lanes, d.word)
        else:
            other = d.other_site + 1
            kind = select(d.over != 0, u32(Doubt.OVERWRITTEN), u32(Doubt.SAME_VALUE))
            doubt(d.w, kind, d.site, d.lanes, d.at, d.bytes, other, d.other_cta, d.other_warp, d.other_lanes)
    s.doubt_count = 0
