"""Matrices of tcgen05.mma and tcgen05.cp in shared memory: read through the asynchronous proxy at any time between the issue and
the arrival of the tcgen05.commit behind it.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, stack
from mmulator.codegen.types import i64, ptr_to, u32, u64
from mmulator.layouts.descriptors import fields5
from mmulator.layouts.swizzle import SWIZZLES5
from mmulator.native.asynchrony.transfers import payload_of
from mmulator.native.hooks.events import READ, PayloadShape
from mmulator.native.hooks.tensor import TensorTask
from mmulator.native.matrix.tensor_operands import head_of, padding_of, rest_of
from mmulator.native.memory.windows import SHARED
from mmulator.native.state import Cta, Transfer, Warp
from mmulator.program.addresses import RANK_SHIFT
from mmulator.sanitizer.checks.proxy_state import note_issue
from mmulator.sanitizer.checks.proxy_wgmma import Walk, pass_unit, told
from mmulator.sanitizer.shadow.records import AccessKind, Actor
from mmulator.sanitizer.shadow.shadow import act_async
from mmulator.twin.doors import Door
from mmulator.twin.shared import operand_function

walk_operand5 = operand_function(Door("sanitizer_tensor", Walk, pass_unit), fields5, SWIZZLES5)


@native
def matrix_read(
    a: ptr_to(Actor), cta: ptr_to(Cta), desc: u64, lines: i64, line_bytes: i64, across: u32, padding: u32
) -> None:
    """Access a matrix.

    a: the actor.
    cta: owner of the shared memory.
    desc: matrix descriptor.
    lines, line_bytes: number of lines of the matrix, and bytes of a line.
    across: whether M or N is contiguous.
    padding: bytes at the end of each 16 that are not read.
    """
    walk = stack(Walk)
    walk.actor = a
    walk.base = u64(SHARED) + (u64(cta.rank) << RANK_SHIFT)
    walk.size = u64(cta.launch.shared_bytes)
    walk.from_ = 0
    walk.end = 0
    walk.number = 0
    walk.divisor = 0
    walk.quarter = 0
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
