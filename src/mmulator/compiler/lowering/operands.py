"""Operands of an instruction as values and places, for instructions that are not lane-wise."""

from mmulator.codegen.values import Value
from mmulator.compiler.emit.emitter import Emitter
from mmulator.ptx.tree import Instruction, Operand, PredicatePair, Reg, VectorOperand


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared` (of the own CTA), `shared::cluster`, ..., or `generic`."""
    space = ins.form["space"]
    return space if space == "shared::cluster" else space.partition("::")[0] or "generic"


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Elements of a vector operand; any other operand is its own only element."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def write_result(e: Emitter, operand: Operand, value: Value, ins: Instruction) -> None:
    """Put a computed value into a destination register, unless it is `_`."""
    if isinstance(operand, Reg):
        e.write(operand.name, value, e.guard(ins))


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand, None)
