"""Operands of wgmma and tcgen05 in shared memory, and the swizzle of a tile.

A warpgroup may read the operands of a wgmma at any time between issue and wait. Each of the four warps issues its part: 16 rows
of A, and all of B. What happens before its issue counts for these parts. A warpgroup is one agent, whose clock is the
operation's number: when one of its warps has waited, the operation is complete for all of them. Matrices of tcgen05.mma and
tcgen05.cp are read through the asynchronous proxy at any time between the issue and the arrival of the tcgen05.commit behind
it.

The swizzle of the tensor map which copied a tile is compared with that of the descriptor or map by which it is read. The record
of a tensor copy to shared memory contains its pattern (records.py), so a later write there replaces it. A read is reported if
no part of it was copied with the read's pattern: an operand of wgmma may extend beyond a small tile into the bytes behind it.
"""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, maximum, popcount, stack
from mmulator.base.codegen.types import Struct, boolean, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.rules.operands import SWIZZLE_UNLIKE, TILE_SWIZZLE
from mmulator.matrix.layouts.descriptors import fields5
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.shared import UNIT, operand_function
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.asynchrony.boxes import Box
from mmulator.runtime.native.asynchrony.pending import queue
from mmulator.runtime.native.asynchrony.transfers import payload_of
from mmulator.runtime.native.hooks.events import READ, PayloadShape
from mmulator.runtime.native.hooks.tensor import TensorTask
from mmulator.runtime.native.matrix.tensor_operands import head_of, padding_of, rest_of
from mmulator.runtime.native.matrix.wgmma import WARPS, first_of, operation
from mmulator.runtime.native.memory.windows import SHARED
from mmulator.runtime.native.state import FULL, WGMMA, Cta, Transfer, Warp
from mmulator.sanitizer.checks.proxy_state import GATHERED, METS, group_agent, group_number, note_issue, proxies_of
from mmulator.sanitizer.order.clocks import learn
from mmulator.sanitizer.order.views import acquire_views, clear_collector, forget_seen, knower_of, orders_of, release_lanes
from mmulator.sanitizer.shadow.before import check_met
from mmulator.sanitizer.shadow.conflicts import issued_by
from mmulator.sanitizer.shadow.records import MET, AccessKind, Actor, Met
from mmulator.sanitizer.shadow.shadow import act_async, touch
from mmulator.sanitizer.state import find_against, say

# The walk through an operand. from_, end: contiguous bytes that are not recorded yet. begin: its first line. number: of the next
# 16 bytes, which belong to the warp if (number / divisor) modulo 4 is `quarter`; all do if divisor is 0. padding: bytes at the
# end of each 16 that are not read.
Walk = Struct("Walk", [
    ("actor", ptr_to(Actor)), ("base", u64), ("size", u64), ("from_", u64), ("end", u64), ("number", u32), ("divisor", u32),
    ("quarter", u32), ("padding", u32), ("begin", u64), ("room", u8, UNIT),
])  # fmt: skip


@native
def begin_walk(walk: ptr_to(Walk), a: ptr_to(Actor), cta: ptr_to(Cta)) -> None:
    """Prepare the walk of an actor through an operand in a CTA's shared memory, of which all bytes belong to it."""
    fill_bytes(walk, 0, Walk.size)
    walk.actor = a
    walk.base = u64(SHARED) + (u64(cta.rank) << RANK_SHIFT)
    walk.size = u64(cta.launch.shared_bytes)


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
    begin_walk(walk, a, cta)
    walk.divisor = divisor
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


# swizzles -------------------------------------------------------------------------------------------------------------
CHUNK_BIT = 4  # the lowest address bit that swizzles of 16-byte chunks exchange
SHIFTED, OTHER = 6, 7  # further patterns, beyond 1 + the number of exchanged bits: shifted by a base offset; other chunks
OF_A, OF_B, OF_STORE = range(3)  # the first word of a finding
CHUNK = 16
ROW_BIT = 7


@native
def pattern_of_box(box: ptr_to(Box)) -> u32:
    """The swizzle pattern in which a tensor copy places the chunks of a row."""
    if box.swizzle_low != 0 or (box.swizzle != 0 and box.shift != CHUNK_BIT):
        return OTHER
    return 1 + popcount(box.swizzle)


@native
def pattern_of_descriptor(desc: u64) -> u32:
    """The swizzle pattern in which wgmma reads the chunks of a matrix."""
    bits = (4 - u32(desc >> 62)) & 3
    if ((u32(desc >> 49) & 7) & ((1 << bits) - 1)) != 0:
        return SHIFTED
    return 1 + bits


@native(inline=True)
def rows_between(first: u64, last: u64) -> u32:
    """The bits of the addresses of some bytes by which a swizzle exchanges chunks: bits 7 to 9, from 0 on."""
    apart = (first >> ROW_BIT) ^ (last >> ROW_BIT)
    return u32((first >> ROW_BIT) | (last >> ROW_BIT) | apart | (apart >> 1) | (apart >> 2))


@native(inline=True)
def exchanges(rows: u32, one: u32, other: u32) -> boolean:
    """Whether two patterns place chunks differently in some rows: by so many bits, less one, a pattern exchanges them."""
    if maximum(one, other) >= SHIFTED:
        return True
    return (rows & (((1 << (one - 1)) - 1) ^ ((1 << (other - 1)) - 1))) != 0


@native
def part_read(a: ptr_to(Actor), met: ptr_to(Met)) -> None:
    """Record that a warp has read its part of A; after the last of four, all of A is checked."""
    if a.alike != 0:
        met.alike = 1
    if a.unlike != 0 and met.unlike == 0:
        met.unlike = a.unlike
        met.unlike_pattern = a.unlike_pattern
        met.unlike_at = a.unlike_at
    met.parts = met.parts + 1
    a.alike = met.alike
    a.unlike = 0
    if met.parts == WARPS and met.renewed == a.store.renewed:
        a.unlike = met.unlike
        a.unlike_pattern = met.unlike_pattern
        a.unlike_at = met.unlike_at


@native
def pattern_read(a: ptr_to(Actor), operand: u32, desc: u64) -> None:
    """Check the pattern by which the actor has read a tile. words of the finding: operand, the two patterns, the descriptor."""
    if a.unlike != 0 and a.alike == 0:
        r = a.store.records + a.unlike
        lanes = 1 << a.lane
        if operand != OF_STORE:
            lanes = FULL
        rule = u32(TILE_SWIZZLE)
        if operand == OF_STORE or (operand == OF_B and not exchanges(a.rows, a.pattern, a.unlike_pattern)):
            rule = SWIZZLE_UNLIKE  # A has 64 lines
        others = issued_by(r, a.cluster)
        entry = find_against(a.w, rule, a.site, lanes, a.unlike_at, CHUNK, r.site + 1, r.cta, r.warp, others)
        say(entry, u64(operand), u64(a.pattern), u64(a.unlike_pattern), desc)
    a.pattern = 0
    a.alike = 0
    a.unlike = 0


# tcgen05 --------------------------------------------------------------------------------------------------------------
walk_operand5 = operand_function(Door("sanitizer_tensor", Walk, pass_unit), fields5, SWIZZLES5)


@native
def matrix_read(a: ptr_to(Actor), cta: ptr_to(Cta), desc: u64, lines: i64, line_bytes: i64, across: u32, padding: u32) -> None:
    """Access a matrix.

    a: the actor.
    cta: owner of the shared memory.
    desc: matrix descriptor.
    lines, line_bytes: number of lines of the matrix, and bytes of a line.
    across: whether M or N is contiguous.
    padding: bytes at the end of each 16 that are not read.
    """
    walk = stack(Walk)
    begin_walk(walk, a, cta)
    walk.padding = padding
    head = head_of(desc, line_bytes)
    walk_operand5(walk, desc, lines, head, across, a.site, cta.scratch)
    if head != line_bytes:
        walk_operand5(walk, rest_of(desc), lines, line_bytes - head, across, a.site, cta.scratch)
    told(walk)


@native
def operands_read(t: ptr_to(Transfer), cta: ptr_to(Cta), task: u32, columns: u32, agent: u32, number: u32) -> None:
    """Record what an operation reads in the shared memory of a CTA.

    t: the operation.
    cta: the CTA.
    task: a TensorTask.
    columns: columns that tcgen05.cp writes.
    agent, number: agent and clock of its end.
    """
    if task == TensorTask.SHIFT:
        return
    w = cast_ptr(Warp, t.warp)
    work = payload_of(t, PayloadShape.TENSOR)
    a = stack(Actor)
    act_async(w, t.lane, u32(1) << t.lane, t.site, u32(READ), u32(AccessKind.MMA), agent, number, u32(0), a)
    note_issue(w, t.lane, agent, number, t.site, u32(0))
    if task == TensorTask.MMA:
        table = work.table
        n = i64(table.n // (1 + work.pair))
        if table.b_across != 0:
            matrix_read(a, cta, work.b, i64(table.k), n * i64(table.b_size), u32(1), u32(0))
        else:
            matrix_read(a, cta, work.b, n, i64(table.b_line), u32(0), padding_of(table.b_unpack))
        if work.in_cells == 0:
            if table.a_across != 0:
                matrix_read(a, cta, work.a, i64(table.stored), i64(table.m) * i64(table.a_size), u32(1), u32(0))
            else:
                matrix_read(a, cta, work.a, i64(table.m), i64(table.a_line), u32(0), padding_of(table.a_unpack))
    else:
        matrix_read(a, cta, work.a, i64(work.mode), i64(columns) * 4, u32(0), work.padding)
