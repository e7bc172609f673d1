"""Checks of the operands of matrix instructions against the signatures of their forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmulator.ptx.operands import Problem, address, describe
from mmulator.ptx.tree import (
    Address,
    Immediate,
    Instruction,
    Module,
    NegatedPredicate,
    Operand,
    Reg,
    VectorOperand,
)

if TYPE_CHECKING:
    from mmulator.isa.forms import MatrixForm, OperandSpec

_WANTED = {
    "registers": "a vector of registers", "register": "a register", "address": "an address",
    "descriptor": "a 64-bit register with a matrix descriptor", "predicate": "a predicate", "immediate": "a constant",
    "integer": "a register or a constant", "group": "a list in braces",
}  # fmt: skip


def _is_kind(operand: Operand, spec: OperandSpec) -> bool:
    kind = spec.kind
    if kind in ("registers", "group"):
        return isinstance(operand, VectorOperand)
    if kind == "register":
        return isinstance(operand, Reg)
    if kind == "address":
        return isinstance(operand, Address)
    if kind == "predicate":
        return isinstance(operand, Reg | NegatedPredicate | Immediate)
    if kind == "immediate":
        return isinstance(operand, Immediate)
    return isinstance(operand, Reg | Immediate)


def _register(operand: Operand, spec: OperandSpec) -> Iterator[Problem]:
    if not isinstance(operand, Reg):
        yield Problem(f"operand {spec.name} must be {_WANTED[spec.kind]}, not {describe(operand)}", operand.span)
    elif spec.types and operand.type not in spec.types:
        yield Problem(
            f"operand {spec.name} takes .{spec.type} registers; {operand.name.partition('@')[0]} is .{operand.type}",
            operand.span, "allowed: " + ", ".join("." + t for t in spec.types),
        )  # fmt: skip


def _operand(operand: Operand, spec: OperandSpec, module: Module, space: str) -> Iterator[Problem]:
    if isinstance(operand, VectorOperand):
        if spec.kind == "group":
            for element, part in zip(operand.elements, spec.parts):
                yield from _operand(element, part, module, space)
            want = len(spec.parts)
        else:
            for element in operand.elements:
                yield from _register(element, spec)
            want = spec.count
        if len(operand.elements) != want:
            yield Problem(
                f"operand {spec.name} has {len(operand.elements)} elements; it must have {want}", operand.span
            )
    elif isinstance(operand, Reg):
        yield from _register(operand, spec)
    elif isinstance(operand, NegatedPredicate):
        yield from _register(operand.register, spec)
    elif isinstance(operand, Address):
        yield from address(operand, space, module, None)
    elif isinstance(operand, Immediate):
        if operand.literal != "int":
            yield Problem(f"operand {spec.name} takes an integer", operand.span)
        elif spec.values is not None and operand.value not in spec.values:
            values = spec.values
            allowed = ", ".join(map(str, values)) if len(values) <= 8 else f"from {values[0]} to {values[-1]}"
            yield Problem(f"operand {spec.name} is {operand.value}; allowed: {allowed}", operand.span)


def check(instruction: Instruction, form: MatrixForm, module: Module) -> Iterator[Problem]:
    """Problems of the operands, against the signature that is nearest to what is written."""
    operands = instruction.operands
    signatures = form.signatures
    fitting = [s for s in signatures if len(s) == len(operands)]
    if not fitting:
        counts = sorted({len(s) for s in signatures})
        names = ", ".join(o.name for o in signatures[-1])
        yield Problem(
            f"{len(operands)} operands; {instruction.opcode} takes {' or '.join(map(str, counts))}",
            instruction.span, f"the operands are {names}",
        )  # fmt: skip
        return
    signature = max(fitting, key=lambda s: sum(_is_kind(o, spec) for o, spec in zip(operands, s)))
    for operand, spec in zip(operands, signature):
        if _is_kind(operand, spec):
            yield from _operand(operand, spec, module, form.space.partition("::")[0])
        else:
            yield Problem(f"operand {spec.name} must be {_WANTED[spec.kind]}, not {describe(operand)}", operand.span)
