"""Operands of instructions taken apart: vectors, arguments, pairs and addresses; what a call passes and where it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mmulator.ptx.tree import (
    Address,
    Arguments,
    Instruction,
    NegatedPredicate,
    Operand,
    PredicatePair,
    Reg,
    Symbol,
    VectorOperand,
)


def flatten(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Operands with vectors, arguments, pairs and addresses taken apart."""
    for o in operands:
        match o:
            case VectorOperand(elements=elements) | Arguments(elements=elements):
                yield from flatten(elements)
            case PredicatePair(p=p, q=q):
                yield from (p, q)
            case Address(base=base, extra=extra):
                yield base
                yield from flatten(extra)
            case NegatedPredicate(register=register):
                yield register
            case _:
                yield o


def call_operands(ins: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """(results, arguments) of a call."""
    callee_at = next(n for n, o in enumerate(ins.operands) if isinstance(o, Reg | Symbol))

    def elements(at: int) -> tuple[Operand, ...]:
        operand = ins.operands[at] if 0 <= at < len(ins.operands) else None
        return operand.elements if isinstance(operand, Arguments) else ()

    return elements(callee_at - 1), elements(callee_at + 1)


def callee_of(ins: Instruction) -> Reg | Symbol:
    return next(o for o in ins.operands if isinstance(o, Reg | Symbol))
