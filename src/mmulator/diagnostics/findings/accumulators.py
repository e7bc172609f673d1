"""Sentences about wgmma's registers in flight, and the memory that native code needs to find misuse of them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.diagnostics.findings.context import FindingContext
from mmulator.launch.arena import pointer
from mmulator.launch.resident import Resident
from mmulator.native.state import WGMMA
from mmulator.program.blocks import is_wgmma_issue
from mmulator.program.uses import registers_of
from mmulator.ptx.tree import Instruction
from mmulator.rules.accumulators import (
    A_OVERWRITTEN,
    A_READ,
    FENCE_MISSING,
    NOT_COMMITTED,
    NOT_WAITED,
    OVERLAP,
    READ_EARLY,
    WRITTEN_EARLY,
)
from mmulator.sanitizer.checks.accumulators import (
    BETWEEN,
    CELL_SHIFT,
    FIRST,
    IN_A,
    OPERATIONS,
    PLACE_BITS,
    SHAPE,
    UNCOMMITTED,
    Accumulators,
    Cell,
    Issued,
)


# memory -------------------------------------------------------------------------------------------------------------
def memory(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory of the checks of wgmma's registers for a resident cluster: a state for each warp first; None if the kernel has no
    wgmma.
    """
    kernel = resident.grid.kernel
    if WGMMA not in kernel.queues:
        return None
    warps, count = len(resident.warps), (kernel.frame_bytes >> CELL_SHIFT) + 1
    state = np.zeros(warps, Accumulators.numpy_dtype())
    cells = np.zeros((warps, count), Cell.numpy_dtype())
    operations = np.zeros((warps, OPERATIONS), Issued.numpy_dtype())
    kinds = kernel.site_kinds
    state["cells"] = pointer(cells) + np.arange(warps) * cells.strides[0]
    state["operations"] = pointer(operations) + np.arange(warps) * operations.strides[0]
    state["kinds"], state["count"] = pointer(kinds), count
    return state, cells, operations, kinds


# sentences ----------------------------------------------------------------------------------------------------------
def _register(wgmma: Instruction, word: int) -> str:
    """Name of the register at a word of a wgmma's D or A."""
    names = list(registers_of(wgmma.operands[1 if word >> PLACE_BITS == IN_A else 0]))
    place = word & ((1 << PLACE_BITS) - 1)
    return names[place] if place < len(names) else names[0]


def _group(c: FindingContext) -> str:
    """Why a wgmma is still in flight, and which instruction would wait for it."""
    _, group, since, *_ = c.words
    if group == UNCOMMITTED:
        return "no wgmma.commit_group has made it part of a group"
    return f"its group is pending: wgmma.wait_group {since}{' or less' if since else ''} would cover it"


def _wgmma(c: FindingContext) -> Instruction:
    """The wgmma with which the instruction of a finding conflicts."""
    ins = c.other
    assert ins is not None
    return ins


def _early(verb: str, what: str) -> Callable[[FindingContext], tuple[str, str]]:
    def said(c: FindingContext) -> tuple[str, str]:
        register = _register(_wgmma(c), c.words[0])
        return f"{c.instruction.mnemonic} {verb} {register}, {what} a wgmma in flight: {_group(c)}", f"register {register}"

    return said


def _fence(c: FindingContext) -> tuple[str, str]:
    word, wrote, *_ = c.words
    why = word >> PLACE_BITS
    if why == FIRST:
        return "this warp executes a wgmma, and has executed no wgmma.fence before it", ""
    other = _wgmma(c)
    place = IN_A << PLACE_BITS if why == IN_A else 0
    register = _register(c.instruction, place | word & ((1 << PLACE_BITS) - 1))
    part = "A" if why == IN_A else "accumulator"
    if why == SHAPE:
        said = f"{register} was the accumulator of a wgmma of another shape, and no wgmma.fence lies between the two"
    elif why == BETWEEN or is_wgmma_issue(other):
        before = "A" if why == BETWEEN else "accumulator"
        said = f"{register}, {part} here, was {before} of another wgmma, and no wgmma.fence lies between the two"
    else:
        verb = "writes" if wrote else "reads"
        said = f"{other.mnemonic} {verb} {register}, {part} of this wgmma, and no wgmma.fence lies between the two"
    return said, f"register {register}"


def _overlap(c: FindingContext) -> tuple[str, str]:
    register = _register(_wgmma(c), c.words[0])
    return f"{register} is an accumulator of two wgmma in flight with different lists of registers", f"register {register}"


def _left(why: str) -> Callable[[FindingContext], str]:
    return lambda c: f"the thread exits, and {why}"


SENTENCES: Mapping[int, Callable[[FindingContext], str | tuple[str, str]]] = {
    READ_EARLY.number: _early("reads", "an accumulator of"),
    WRITTEN_EARLY.number: _early("writes", "an accumulator of"),
    A_OVERWRITTEN.number: _early("writes", "part of A of"),
    A_READ.number: _early("reads", "part of A of"),
    FENCE_MISSING.number: _fence,
    NOT_COMMITTED.number: _left("no wgmma.commit_group has followed this wgmma"),
    NOT_WAITED.number: _left("no wgmma.wait_group has covered this wgmma's group"),
    OVERLAP.number: _overlap,
}
