"""The operands of calls: arguments and results."""

from mmulator.ptx.tree import ArgumentList, Instruction, Operand, Reg, Symbol


def call_operands(ins: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """(results, arguments) of a call."""
    callee_at = next(n for n, o in enumerate(ins.operands) if isinstance(o, Reg | Symbol))

    def elements(at: int) -> tuple[Operand, ...]:
        operand = ins.operands[at] if 0 <= at < len(ins.operands) else None
        return operand.elements if isinstance(operand, ArgumentList) else ()

    return elements(callee_at - 1), elements(callee_at + 1)


def callee_of(ins: Instruction) -> Reg | Symbol:
    return next(o for o in ins.operands if isinstance(o, Reg | Symbol))
