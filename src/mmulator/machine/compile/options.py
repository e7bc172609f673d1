"""How a kernel is compiled: what is decided before its machine code is written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileOptions:
    """One kernel with two options is two pieces of machine code.

    contract: products and sums are fused and constants folded as ptxas does (program/as_ptxas); a module of `.target debug`
    is compiled without in any case. watch: stores look whether a launch watches their element. step: every instruction is a
    block of its own, so that between any two of them all registers that still matter lie in the register file.
    """

    contract: bool = True
    watch: bool = False
    step: bool = False


DEFAULT = CompileOptions()
