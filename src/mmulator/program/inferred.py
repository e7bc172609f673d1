"""Properties of an instruction that no source states for certain, and that mmulator has inferred (docs/tensor-memory.md)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.ptx.tree import Instruction, VectorOperand


def inferred(ins: Instruction) -> Iterator[str]:
    """Sentences about what an instruction does."""
    form = ins.form
    for part, said in form.row.inferred:
        if part in ins.modifiers or (part == form.signatures[0][-1].name and _last_given(ins)):
            yield said


def _last_given(ins: Instruction) -> bool:
    """Whether an operand stands behind those that an instruction needs."""
    needed = sum(not spec.optional for spec in ins.form.signatures[0])
    return sum(not isinstance(o, VectorOperand) for o in ins.operands) > needed
