"""How a kernel is compiled: what is decided before its machine code is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmulator.codegen.lang import Instrument


@dataclass(frozen=True)
class CompileOptions:
    """One kernel with two options is two pieces of machine code.

    contract: products and sums are fused and constants folded as ptxas does (program/as_ptxas); a module of `.target debug`
    is compiled without in any case. events: whose functions are called at every access to memory (native/hooks/events.py). step:
    every instruction is a block of its own, so that between any two of them all registers that still matter lie in the
    register file. waits: where a kernel reads or writes an accumulator of wgmma in flight it waits, as ptxas has it (C7517); else
    it meets what the registers held before, and the missing wait shows. clusters: blocks are launched in clusters of
    several, and their addresses of shared memory have their rank. keep_going: under an instrument that hears
    of it, lanes whose access is out of bounds or misaligned are left out, and the launch goes on (compiler/lowering/screened.py).
    watched: under an instrument that follows values, global memory may have none either.
    """

    contract: bool = True
    events: Instrument | None = None
    step: bool = False
    waits: bool = False
    clusters: bool = False
    keep_going: bool = False
    watched: bool = False


DEFAULT = CompileOptions()
