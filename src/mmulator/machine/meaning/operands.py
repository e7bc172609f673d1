"""Operands of an instruction as values and places, for what is no pure function of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.codegen.values import Value, constant
from mmulator.machine.compile.block import vector_type
from mmulator.ptx.tree import Instruction, Operand, PredicatePair, Reg, VectorOperand

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared`, ..., or `generic`."""
    text = ins.form["space"] if ins.form is not None else ""  # type: ignore[index]
    return text.partition("::")[0] or "generic"


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Of a vector operand; any other is its only one."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def write_result(e: Emitter, operand: Operand, value: Value, ins: Instruction) -> None:
    """Put a computed value into a destination register, unless it is `_`."""
    if isinstance(operand, Reg):
        e.write(operand.name, value, e.guard(ins))


def nothing(e: Emitter, ins: Instruction) -> None:
    """Hints: no effect on any value. A destination (a cache policy) becomes zero."""
    specs = getattr(ins.form, "operands", ())
    for spec, operand in zip(specs, ins.operands):
        if spec.access == "w" and isinstance(operand, Reg):
            e.write(operand.name, constant(e.b, vector_type(e.frame.types[operand.name]), 0), e.guard(ins))


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand, None)
