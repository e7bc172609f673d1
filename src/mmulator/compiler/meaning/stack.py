"""alloca, stacksave and stackrestore (PTX ISA 9.1, Stack Manipulation Instructions)."""

from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import constant
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import write_result
from mmulator.ptx.tree import Immediate, Instruction
from mmulator.runtime.native.threads import resources as rt

U32, U64 = u32.vec(LANES), u64.vec(LANES)
LEAST_ALIGNMENT = 8


@means("alloca")
def alloca(e: Emitter, ins: Instruction) -> None:
    target, size, *rest = ins.operands
    align = rest[0].value if rest and isinstance(rest[0], Immediate) else LEAST_ALIGNMENT
    place = e.spill(constant(e.b, U64, 0))
    sizes = e.spill(U64(e.source(size, ins.form["type"])))
    e.call(rt.stack_allocate, e.w, e.lanes_of(ins), sizes, max(align, LEAST_ALIGNMENT), place, e.site)
    write_result(e, target, e.fetch(place, U64), ins)


@means("stacksave")
def stacksave(e: Emitter, ins: Instruction) -> None:
    write_result(e, ins.operands[0], U64(e.warp("stack")), ins)


@means("stackrestore")
def stackrestore(e: Emitter, ins: Instruction) -> None:
    values = e.spill(U64(e.source(ins.operands[0], ins.form["type"])))
    e.call(rt.stack_restore, e.w, e.lanes_of(ins), values, e.site)
