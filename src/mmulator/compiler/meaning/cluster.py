"""Instructions of thread block clusters (PTX ISA 9.1)."""

from mmulator.base.codegen.ops import mask_bits
from mmulator.base.codegen.types import u32, u64, u128
from mmulator.base.codegen.values import constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import write_result
from mmulator.ptx.program.addresses import RANK_SHIFT
from mmulator.ptx.program.skips import is_aligned_barrier
from mmulator.ptx.tree import Address, Instruction, VectorOperand
from mmulator.runtime.native.hooks.events import order_of
from mmulator.runtime.native.hooks.operands import CLUSTER_ARRIVE, CLUSTER_WAIT, barrier_here, cancel_refused
from mmulator.runtime.native.state import TransferKind
from mmulator.runtime.native.threads import cluster as rt

U32, U64 = u32.vec(LANES), u64.vec(LANES)
_RANK = 0xFF << RANK_SHIFT


@means("mapa")
def mapa(e: Emitter, ins: Instruction) -> None:
    """Write the address in the shared memory of another block that corresponds to `a`: each rank has a window of 16 MiB, at the
    same address in every block.
    """
    own = U64(e.source(ins.operands[1], ins.form["type"]))
    rank = U64(e.source(ins.operands[2], "u32"))
    write_result(e, ins.operands[0], (own & (0xFFFFFFFFFFFFFFFF ^ _RANK)) | ((rank << RANK_SHIFT) & _RANK), ins)


@means("getctarank")
def getctarank(e: Emitter, ins: Instruction) -> None:
    own = U64(e.source(ins.operands[1], ins.form["type"]))
    write_result(e, ins.operands[0], U32((own & _RANK) >> RANK_SHIFT), ins)


def _order(ins: Instruction, default: str) -> int:
    return order_of("relaxed" if "relaxed" in ins.modifiers else default, "cluster")


def _comes(e: Emitter, ins: Instruction, barrier: int) -> None:
    kind = e.kernel.skips.bits.get(ins, 0)
    e.call(barrier_here, e.w, e.lanes_of(ins), barrier, int(is_aligned_barrier(ins)), kind, e.site)


@means("barrier.cluster.arrive")
def arrive(e: Emitter, ins: Instruction) -> None:
    _comes(e, ins, CLUSTER_ARRIVE)
    e.b.line("fence seq_cst")
    e.call(rt.cluster_arrive, e.w, e.lanes_of(ins), _order(ins, "release"), e.site)


@means("barrier.cluster.wait")
def wait(e: Emitter, ins: Instruction) -> None:
    """End a block that runs again when the cluster's barrier is complete."""
    _comes(e, ins, CLUSTER_WAIT)
    to = e.call(rt.cluster_wait, e.w, e.mask, _order(ins, "acquire"), e.block.index, e.block.targets[0], e.site)
    e.flush()
    e.b.line("fence seq_cst")
    e.b.ret(to)


@means("clusterlaunchcontrol.try_cancel.async")
def try_cancel(e: Emitter, ins: Instruction) -> None:
    """Write the response of 16 bytes: x of a CTA, y and z in 16 bits each, and whether a CTA was cancelled."""
    e.transfers(TransferKind.CANCEL, rt.move_cancel)
    form = ins.form
    places = [e.spill(e.address(must_be(operand, Address))) for operand in ins.operands]
    function = rt.cancel_function(not form["space"], "multicast::cluster::all" in ins.modifiers)
    e.call(function, e.w, e.lanes_of(ins), *places, e.site)


@means("clusterlaunchcontrol.query_cancel")
def query_cancel(e: Emitter, ins: Instruction) -> None:
    target, response = ins.operands
    value = u128.vec(LANES)(e.source(response, "b128"))
    if "is_canceled" in ins.modifiers:
        yes = ((value >> 64) & 1) != 0
        e.call(cancel_refused, e.w, e.lanes_of(ins) & ~mask_bits(yes), e.site)
        write_result(e, target, yes, ins)
        return
    parts = [U32(value), U32(value >> 32) & 0xFFFF, U32(value >> 48) & 0xFFFF, constant(e.b, U32, 0)]
    if isinstance(target, VectorOperand):
        for operand, part in zip(target.elements, parts):
            write_result(e, operand, part, ins)
    else:
        axis = next(m for m in ins.modifiers if m.startswith("get_first_ctaid"))[-1]
        write_result(e, target, parts["xyz".index(axis)], ins)
