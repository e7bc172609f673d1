"""ldmatrix, stmatrix and movmatrix (PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions)."""

from mmulator.base.codegen.types import u8, u32
from mmulator.base.codegen.values import constant
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import definedness
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import address_of, elements, registers, results, state_space
from mmulator.isa.matrix_move import ROWS
from mmulator.matrix.layouts.operands import row_bytes
from mmulator.matrix.twin.moves import register_move
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.hooks.events import lanes_stored
from mmulator.runtime.native.hooks.operands import operand_refused
from mmulator.runtime.native.matrix import matrix_move as rt
from mmulator.runtime.native.state import FULL

U32 = u32.vec(LANES)


@means("ldmatrix")
def ldmatrix(e: Emitter, ins: Instruction) -> None:
    form = ins.form
    r, p = ins.operands
    at = e.spill(address_of(e, p))
    out = e.room(U32, len(elements(r)))
    unused = ~rt.lanes_with_rows(form) & FULL
    if unused and e.device == "sm_75" and e.hears(operand_refused):
        e.call(rt.check_unused, e.w, unused, at, rt.base_of(state_space(form)), e.site)
    e.call(rt.load_function(state_space(form), form), e.w, at, out, e.site)
    results(e, r, out, ins)


@means("stmatrix")
def stmatrix(e: Emitter, ins: Instruction) -> None:
    form = ins.form
    p, r = ins.operands
    source = registers(e, r)
    at = e.spill(address_of(e, p))
    e.call(rt.store_function(state_space(form), form), e.w, at, source, e.site)
    if e.hears(lanes_stored):
        rows, bytes = constant(e.b, u32, rt.lanes_with_rows(form)), row_bytes(form)
        image = e.room(u8, bytes * LANES)
        e.call(rt.image_function(form), source, image)
        e.call(lanes_stored, e.w, rows, at, rt.base_of(state_space(form)), bytes, image, 1, e.site)


@means(*(row.name for row in ROWS if row.moves))
def between_registers(e: Emitter, ins: Instruction) -> None:
    (d, a), move = ins.operands, register_move(ins.form)
    out = e.room(U32)
    e.call(move, registers(e, a), out)
    results(e, d, out, ins)
    definedness.moved(e, ins, move)
