"""Operands that no form of the instruction allows, but ptxas accepts (rules/operands.py)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.errors import OperandError
from mmulator.findings import Finding
from mmulator.isa.effects import Algebra, Queue, Together
from mmulator.layouts.sparse.metadata import selectors
from mmulator.layouts.tensor_variants import Variant
from mmulator.program.blocks import Program
from mmulator.program.static.flow import found
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg
from mmulator.rules.operands import INSTRUCTION_DESCRIPTOR, SPARSE_SELECTOR


def refused(program: Program) -> Iterator[Finding]:
    """Sparsity selectors that the shape of an mma.sp does not have; ptxas itself checks those of wgmma."""
    for item in program.functions.values():
        for ins in item.function.instructions:
            form = ins.form
            if form.is_matrix and form.sparse and form.effects.together is Together.WARP:
                selector, allowed = ins.operands[5], selectors(form)
                if isinstance(selector, Immediate) and selector.value not in allowed:
                    said = f"sparsity selector {selector.value} of {ins.mnemonic}: this shape has 0 to {allowed[-1]}"
                    yield found(SPARSE_SELECTOR, ins, said)


def described(program: Program) -> Iterator[Finding]:
    """Instruction descriptors of tcgen05.mma whose value stands in the text, and that the instruction does not take."""
    for item in program.functions.values():
        products = [i for i in item.function.instructions if i.effects.multiplies and i.effects.queue is Queue.TENSOR]
        if not products:
            continue
        written: dict[str, list[Instruction]] = {}
        for ins in item.function.instructions:
            for name in uses_and_defs(ins)[1]:
                written.setdefault(name, []).append(ins)
        for ins in products:
            word = _constant(ins.operands[3 + ins.form.sparse], written)
            if word is not None:
                try:
                    Variant.of_form(ins.form).decode(word)
                except OperandError as error:
                    yield found(INSTRUCTION_DESCRIPTOR, ins, f"{ins.mnemonic}: {error.message}")


def _constant(operand: Operand, written: dict[str, list[Instruction]]) -> int | None:
    """The 32 bits of an operand: a constant, or a register that one instruction writes, which copies a constant."""
    if isinstance(operand, Reg):
        writers = written.get(operand.name, [])
        plain = len(writers) == 1 and writers[0].guard is None and writers[0].effects.algebra is Algebra.COPY
        operand = writers[0].operands[1] if plain else operand
    return operand.bits("b32") if isinstance(operand, Immediate) else None
