"""Operands that no form of the instruction allows, but ptxas accepts (rules/operands.py)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.findings import Finding
from mmulator.isa.effects import Together
from mmulator.layouts.sparse.metadata import selectors
from mmulator.program.blocks import Program
from mmulator.program.static.flow import found
from mmulator.ptx.tree import Immediate
from mmulator.rules.operands import SPARSE_SELECTOR


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
