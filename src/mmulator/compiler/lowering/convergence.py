"""The code before the first instruction of a block that checks that its lanes have arrived, and its warpgroup is complete."""

from mmulator.base.codegen.ops import reduce_or, select
from mmulator.base.codegen.types import i32, u32
from mmulator.base.codegen.values import constant
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.isa.effects import Together
from mmulator.ptx.program.blocks import is_wgmma_issue
from mmulator.ptx.tree import Immediate, Instruction
from mmulator.runtime.native.asynchrony import waiting as rt
from mmulator.runtime.native.matrix.wgmma import enter_warpgroup
from mmulator.runtime.native.state import FULL, RESCHEDULE
from mmulator.runtime.native.threads.turns import has_turn

U32 = u32.vec(LANES)


def arrive(e: Emitter, ins: Instruction) -> None:
    """Write the checks before the first instruction of a block."""
    if e.block.turn:
        with e.b.if_(~e.call(has_turn, e.w, e.mask, e.block.index)):
            e.b.ret(constant(e.b, i32, RESCHEDULE))
    if e.block.sync:
        converge(e, ins)
    _enter_warpgroup(e)


def converge(e: Emitter, ins: Instruction) -> None:
    """Continue only if every lane that this instruction names is here; otherwise wait for the missing lanes."""
    together = ins.effects.together
    if together is Together.WARP:
        with e.b.if_(e.mask != FULL):
            e.b.ret(e.call(rt.wait_for_warp, e.w, e.mask, e.block.index, e.site))
        return
    members = constant(e.b, u32, FULL)
    if together is not Together.WARPGROUP:  # lanes of a warpgroup that have exited are its own affair
        operand = ins.operands[-1]
        if isinstance(operand, Immediate):
            members = constant(e.b, u32, operand.bits("b32"))
        else:
            wanted = U32(e.source(operand, "b32"))
            members = reduce_or(select(e.active, wanted, 0))
    missing = members & e.warp("live") & ~e.mask
    with e.b.if_(missing != 0):
        if together is Together.MEETING:
            behind = e.block.targets[0]
            e.b.ret(e.call(rt.wait_for_members, e.w, e.mask, members, e.block.index, behind))
        else:
            e.b.ret(e.call(rt.wait_for_partners, e.w, e.mask, e.block.index))


def _enter_warpgroup(e: Emitter) -> None:
    """Before a block with wgmma, continue only if the warpgroup's queues have room for all of them."""
    issues = [e.site + n for n, ins in enumerate(e.block.body) if is_wgmma_issue(ins)]
    if issues:
        with e.b.if_(e.call(enter_warpgroup, e.w, len(issues), issues[0]) == 0):
            e.b.ret(e.call(rt.wait_for_lanes, e.w, e.mask, e.block.index))
