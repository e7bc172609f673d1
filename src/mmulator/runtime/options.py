"""Options of a compilation: the decisions that are made before machine code is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.base.classes import dataclass

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation; each combination gives different machine code of a kernel.

    contract: whether products and sums are fused and constants folded as by ptxas (ptx/program/as_ptxas); never in a module of
        `.target debug`.
    events: the instrument whose functions are called at every access to memory (runtime/native/hooks/events.py).
    step: whether every instruction is a separate block, so that between any two all live registers are in the register file.
    waits: whether an access to a wgmma's accumulator in flight waits, as ptxas makes it (C7517); otherwise it sees the
        register's earlier contents, which reveals the missing wait.
    clusters: whether blocks are launched in clusters, so that addresses of shared memory contain a rank.
    keep_going: whether an instrument is told of lanes whose access is out of bounds or misaligned, which are then left out, and
        the launch continues (compiler/lowering/screened.py).
    watched: whether global memory may be undefined too, for an instrument that tracks values.
    turns: whether an access whose order the schedule may choose is a block of its own, before which lanes wait for their turn.
    """

    contract: bool = True
    events: Instrument | None = None
    step: bool = False
    waits: bool = False
    clusters: bool = False
    keep_going: bool = False
    watched: bool = False
    turns: bool = False


DEFAULT = CompileOptions()
