"""cp.async (PTX ISA 9.1, Data Movement and Conversion Instructions: Asynchronous copy)."""

from mmulator.base.codegen.ops import bits_mask, mask_bits, select
from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.screened import lost
from mmulator.isa.types import type_bits
from mmulator.ptx.tree import Address, Immediate, Instruction, NegatedPredicate, Reg
from mmulator.runtime.native.asynchrony import copies, pending
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.hooks.blocks import group_closed
from mmulator.runtime.native.hooks.moves import lanes_moved
from mmulator.runtime.native.hooks.operands import WrongOperand, operand_refused
from mmulator.runtime.native.memory import rows
from mmulator.runtime.native.state import COPIES

U32, U64 = u32.vec(LANES), u64.vec(LANES)


@means("cp.async")
def cp_async(e: Emitter, ins: Instruction) -> None:
    to, source, size, *rest = ins.operands
    bytes_ = must_be(size, Immediate).value
    valid = constant(e.b, U32, bytes_)
    for operand in rest:
        if isinstance(operand, NegatedPredicate) or (isinstance(operand, Reg) and operand.type == "pred"):
            valid = select(e.source(operand, "pred"), constant(e.b, U32, 0), valid)  # ignore-src
        elif not (isinstance(operand, Reg) and type_bits(operand.type) == 64):  # 64 bits: a cache policy
            valid = U32(e.source(operand, "u32"))  # src-size
            if e.hears(operand_refused):
                with e.b.if_((beyond := e.lanes_of(ins) & mask_bits(valid > bytes_)) != 0):
                    e.call(operand_refused, e.w, beyond, e.spill(U64(valid)), int(WrongOperand.SOURCE_SIZE), e.site)
    where, given = e.address(must_be(to, Address)), e.address(must_be(source, Address))
    lanes = e.lanes_of(ins)
    if e.kernel.options.keep_going:  # what cannot be read is zeros, where nothing can be written nothing is
        lanes &= ~lost(e, lanes, "shared", where, bytes_, events.WRITE)
        reads = lanes & mask_bits(valid != 0)
        valid = select(bits_mask(lost(e, reads, "global", given, bytes_, events.READ)), constant(e.b, U32, 0), valid)
    e.uses(COPIES, copies.carry_out_copy)
    issue = copies.cp_async_lines if bytes_ == rows.CHUNK and e.events is None else copies.cp_async
    target, begin, sizes = e.spill(where), e.spill(given), e.spill(valid)
    e.call(issue, e.w, lanes, target, begin, bytes_, sizes, e.site)
    e.call(lanes_moved, e.w, lanes, begin, target, bytes_, sizes, e.site)


@means("cp.async.commit_group")
def cp_async_commit(e: Emitter, ins: Instruction) -> None:
    e.call(pending.commit_group, e.w, COPIES.queue)
    if e.hears(group_closed):
        e.call(group_closed, e.w, e.lanes_of(ins), e.site)


@means("cp.async.wait_group")
def cp_async_wait(e: Emitter, ins: Instruction) -> None:
    groups = must_be(ins.operands[0], Immediate).value
    e.call(pending.wait_group, e.w, COPIES.queue, groups)
    e.call(pending.tell_copies, e.w, e.lanes_of(ins), groups)


@means("cp.async.wait_all")
def cp_async_wait_all(e: Emitter, ins: Instruction) -> None:
    e.call(pending.wait_all, e.w, COPIES.queue)
    e.call(pending.tell_all_copies, e.w, e.lanes_of(ins))
