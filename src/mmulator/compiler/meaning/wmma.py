"""Warp-level matrix instructions: wmma.load, wmma.store, wmma.mma (PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate
Instructions)."""

from typing import Any

from mmulator.base.codegen.ops import bitcast, trailing_zeros
from mmulator.base.codegen.types import i32, i64, u32
from mmulator.base.codegen.values import Value, constant, extract
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import definedness
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import address_of, given, registers, results, state_space, table_pointer
from mmulator.compiler.meaning.mma import multiply
from mmulator.isa.form import Form
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.moves import (
    WmmaTable,
    default_stride,
    line_alignment,
    wmma_load_function,
    wmma_store_function,
    wmma_table,
)
from mmulator.ptx.program.fragments import Misuse, fragments_of
from mmulator.ptx.tree import Address, Immediate, Instruction, Reg
from mmulator.ptx.tree import Operand as Written
from mmulator.runtime.native.hooks.events import READ, WRITE
from mmulator.runtime.native.hooks.operands import UniformOperand, fragment_placed, fragment_used
from mmulator.runtime.native.memory.locate import locate_function
from mmulator.runtime.native.state import Warp

U32 = u32.vec(LANES)
MISUSES = tuple(Misuse)


@means("wmma.mma")
def wmma_mma(e: Emitter, ins: Instruction) -> None:
    fragments_used(e, ins)
    multiply(e, ins, ins.form)


def fragments_used(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report misuses of the fragments of an instruction."""
    if e.hears(fragment_used):
        for n, wrong in enumerate(fragments_of(e.block.function).wrong.get(ins, ())):
            e.call(fragment_used, e.w, MISUSES.index(wrong.misuse), n, e.site)


def _wmma_table(e: Emitter, form: Form) -> Value:
    return table_pointer(e, WmmaTable, ("wmma", form), lambda tables: wmma_table(tables.keep, form))


def _wmma_place(e: Emitter, ins: Instruction, form: Form, operand: Written, rest: tuple[Written, ...]) -> Any:
    """(address, stride in elements) of the warp: those of its first lane."""
    lane = trailing_zeros(e.mask)
    at = extract(address_of(e, operand), lane)
    stride = constant(e.b, i64, default_stride(form))
    if rest:
        stride = i64(bitcast(i32, extract(U32(e.source(rest[0], "b32")), lane)))
    if e.hears(fragment_placed):
        if isinstance(must_be(operand, Address).base, Reg):
            given(e, UniformOperand.P, address_of(e, operand))
        if rest and not isinstance(rest[0], Immediate):
            given(e, UniformOperand.STRIDE, e.source(rest[0], "b32"))
        generic = int(state_space(form) == "generic")
        e.call(fragment_placed, e.w, at, stride, default_stride(form), form.type.bits, line_alignment(form), generic, e.site)
    return at, stride


def _door(form: Form, access: int) -> Door:
    """The way of the twin's moves to memory, through the windows."""
    space = state_space(form)
    return Door(space, Warp, locate_function(space), access)


@means("wmma.load")
def wmma_load(e: Emitter, ins: Instruction) -> None:
    form = ins.form
    r, p, *rest = ins.operands
    f = fragment(form, "r")
    at, stride = _wmma_place(e, ins, form, p, tuple(rest))
    out = e.room(storage_type(f"b{f.register_bits}"), f.registers)
    table = _wmma_table(e, form)
    e.call(wmma_load_function(_door(form, READ), f.bits, f.per_register), e.w, table, at, stride, out, e.site)
    results(e, r, out, ins, f.register_bits)
    definedness.tile(e, ins, f, table, at, stride)


@means("wmma.store")
def wmma_store(e: Emitter, ins: Instruction) -> None:
    form = ins.form
    fragments_used(e, ins)
    p, r, *rest = ins.operands
    f = fragment(form, "r")
    at, stride = _wmma_place(e, ins, form, p, tuple(rest))
    source = registers(e, r, f.register_bits)
    e.call(wmma_store_function(_door(form, WRITE), f.bits, f.per_register), e.w, _wmma_table(e, form), at, stride, source, e.site)
