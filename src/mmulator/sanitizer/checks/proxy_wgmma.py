"""Operands of wgmma in shared memory: the warpgroup may read them at any time between issue and wait.

Each of the four warps issues its part: 16 rows of A, and all of B. What happens before its issue counts for these parts. A
warpgroup is one agent, whose clock is the operation's number: when one of its warps has waited, the operation is complete for
all of them.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, stack
from mmulator.codegen.types import Struct, boolean, i64, ptr, ptr_to, u8, u32, u64
from mmulator.native.asynchrony.pending import queue
from mmulator.native.hooks.events import READ
from mmulator.native.matrix.wgmma import first_of, operation
from mmulator.native.memory.windows import SHARED
from mmulator.native.state import FULL, WGMMA, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.sanitizer.checks.proxy_state import GATHERED, METS, group_agent, group_number, note_issue, proxies_of
from mmulator.sanitizer.checks.swizzles import OF_A, OF_B, part_read, pattern_of_descriptor, pattern_read, rows_between
from mmulator.sanitizer.order.clocks import learn
from mmulator.sanitizer.order.views import acquire_views, clear_collector, forget_seen, knower_of, orders_of, release_lanes
from mmulator.sanitizer.shadow.before import check_met
from mmulator.sanitizer.shadow.records import MET, AccessKind, Actor, Met
from mmulator.sanitizer.shadow.shadow import act_async, touch
from mmulator.twin.doors import Door
from mmulator.twin.shared import UNIT, operand_function

# The walk through an operand. from_, end: contiguous bytes that are not recorded yet. begin: its first line. number: of the next
# 16 bytes, which belong to the warp if (number / divisor) modulo 4 is `quarter`; all do if divisor is 0. padding: bytes at the
# end of each 16 that are not read.
Walk = Struct("Walk", [
    ("actor", ptr_to(Actor)), ("base", u64), ("size", u64), ("from_", u64), ("end", u64), ("number", u32), ("divisor", u32),
    ("quarter", u32), ("padding", u32), ("begin", u64), ("room", u8, UNIT),
])  # fmt: skip


@native
def told(walk: ptr_to(Walk)) -> None:
    """Record the access to the bytes of a walk that are not recorded yet."""
    if walk.end != walk.from_:
        touch(walk.actor, walk.base + walk.from_, walk.end - walk.from_)
        walk.actor.rows = walk.actor.rows | rows_between(walk.from_, walk.end - 1)
    walk.from_ = walk.end


@native(inline=True)
def pass_unit(walk: ptr_to(Walk), at: u64, site: u32) -> ptr:
    """Move on to the next 16 bytes of an operand, at an address of the shared window."""
    number = walk.number
    own = boolean(True)
    if walk.divisor != 0:
        walk.number = number + 1
        own = ((number // walk.divisor) & 3) == walk.quarter
    place = at - SHARED_BASE
    if own and place <= walk.size and place + UNIT <= walk.size:
        if at == walk.end:
            walk.end = at + UNIT
        elif at + UNIT == walk.from_ and walk.padding == 0:
            walk.from_ = at
        else:
            told(walk)
            walk.from_ = at
            walk.end = at + UNIT - u64(walk.padding)
    return walk.room


@native(inline=True)
def first_line(walk: ptr_to(Walk)) -> u64:
    return walk.begin


walk_operand = operand_function(Door("sanitizer", Walk, pass_unit, begin=first_line))


@native
def walk_matrix(
    a: ptr_to(Actor), met: ptr_to(Met), operand: u32, desc: u64, begin: i64, lines: i64, line_bytes: i64, mn_major: u32,
    divisor: u32,
) -> None:  # fmt: skip
    """Access the warp's part of an operand.

    a: the actor.
    met: the walk's record for the warpgroup.
    operand: number of the operand.
    desc: matrix descriptor.
    begin, lines: the warp's first line, and the end of its lines.
    line_bytes: bytes of a line.
    mn_major: whether M or N is contiguous.
    divisor: as in Walk.
    """
    walk = stack(Walk)
    cta = a.w.cta
    walk.actor = a
    walk.base = u64(SHARED) + (u64(cta.rank) << RANK_SHIFT)
    walk.size = u64(cta.launch.shared_bytes)
    walk.from_ = 0
    walk.end = 0
    walk.number = 0
    walk.divisor = divisor
    walk.padding = 0
    walk.begin = u64(begin)
    walk.quarter = a.w.index & 3
    a.pattern = pattern_of_descriptor(desc)
    a.rows = 0
    walk_operand(walk, desc, lines, line_bytes, mn_major, a.site, cta.scratch)
    told(walk)
    if operand == OF_A:
        part_read(a, met)
    pattern_read(a, operand, desc)


@native
def wgmma_begins(w: ptr_to(Warp), number: u64, site: u32) -> None:
    """Record that a warp issues its part of an operation."""
    op = operation(w, number)
    table = op.table
    agent = group_agent(w)
    clock = u32(number) + 1
    p = proxies_of(w.cta.cluster)
    p.agent = agent
    p.clock = clock
    a = stack(Actor)
    act_async(w, 0, FULL, site, READ, AccessKind.WGMMA, agent, clock, 0, a)
    note_issue(w, 0, agent, clock, site, w.index & 3)
    k = i64(table.k)
    bits = i64(table.element_bits)
    met = p.met + (group_number(w) * METS + u32(number & (METS - 1)))
    first = met.operation != number + 1 or met.site != site
    if first:
        met.parts = 0
        met.alike = 0
        met.unlike = 0
        met.renewed = a.store.renewed
    if table.a_in_registers == 0:
        ka = k
        if table.sparse != 0:
            ka = k // 2
        if table.mn_major_a != 0:
            walk_matrix(a, met, OF_A, op.a_desc, 0, k, 128, 1, 2)
        else:
            row = i64(w.index & 3) * 16
            walk_matrix(a, met, OF_A, op.a_desc, row, row + 16, ka * bits // 8, 0, 0)
    if not first and met.count <= MET and met.renewed == a.store.renewed:
        check_met(a, met)  # another warp has passed through B
        return
    if met.renewed != a.store.renewed:
        met.unlike = 0  # its record is forgotten
    met.operation = number + 1
    met.site = site
    met.count = 0
    met.renewed = a.store.renewed
    a.met = cast_ptr(u8, met)
    if table.mn_major_b != 0:
        walk_matrix(a, met, OF_B, op.b_desc, 0, k, i64(table.n) * 2, 1, 0)
    else:
        walk_matrix(a, met, OF_B, op.b_desc, 0, i64(table.n), k * bits // 8, 0, 0)


@native
def wgmma_gathers(w: ptr_to(Warp), site: u32) -> None:
    """Record wgmma.commit_group: the earlier actions of the warp's lanes happen before the end of the group."""
    o = orders_of(w.cta.cluster)
    q = queue(w, WGMMA)
    g = proxies_of(w.cta.cluster).gathered + (group_number(w) * GATHERED + u32(q.committed & (GATHERED - 1)))
    one = u32(1)
    own = one << (w.index & 3)
    if g.end != q.issued:
        clear_collector(o, g.all)
        g.end = q.issued
        g.warps = 0
    if (g.warps & own) == 0:
        g.warps = g.warps | own
        release_lanes(o, knower_of(o, w), FULL, g.all)


@native
def wgmma_over(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    """Record that operations are complete: all four warps have issued them, and everything that happened before those issues is
    acquired too. This is stronger than the specification, and the behaviour of chips: one thread of a warpgroup releases a
    stage after its own wait.
    """
    if end == 0:
        return
    o = orders_of(w.cta.cluster)
    learn(w, mask, group_agent(w), u32(end))
    gathered = proxies_of(w.cta.cluster).gathered + group_number(w) * GATHERED
    for n in range(u32(GATHERED)):
        g = gathered + n
        if g.end == end and g.warps != 0:
            first = first_of(w)
            for i in range(u32(4)):
                if ((g.warps >> i) & 1) == 0:
                    release_lanes(o, knower_of(o, first + i), FULL, g.all)
            g.warps = 15
            forget_seen(o, g.all)
            acquire_views(o, knower_of(o, w).now.views, mask, g.all.views)
