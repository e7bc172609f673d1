"""Operands of an instruction as values and places, for what is no pure function of them."""

from __future__ import annotations

from mmulator.codegen.values import Value
from mmulator.compiler.emit.emitter import Emitter
from mmulator.ptx.tree import Instruction, Operand, PredicatePair, Reg, VectorOperand


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared` (that of the CTA), `shared::cluster`, ..., or `generic`."""
    space = ins.form["space"]
    return space if space == "shared::cluster" else space.partition("::")[0] or "generic"


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Of a vector operand; any other is its only one."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def write_result(e: Emitter, operand: Operand, value: Value, ins: Instruction) -> None:
    """Put a computed value into a destination register, unless it is `_`."""
    if isinstance(operand, Reg):
        e.write(operand.name, value, e.guard(ins))


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand, None)
