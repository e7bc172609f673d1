"""Sentences about wgmma's registers in flight, and the memory that native code needs to find misuse of them."""

from collections.abc import Callable, Sequence

import numpy as np

from mmulator.base.errors import must_be
from mmulator.base.rules import accumulators as rules
from mmulator.ptx.program.blocks import is_wgmma_issue
from mmulator.ptx.program.uses import registers_of
from mmulator.ptx.tree import Instruction
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.state import WGMMA
from mmulator.sanitizer.checks import accumulators as checks
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Sentences


# memory -------------------------------------------------------------------------------------------------------------
def memory(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory of the checks of wgmma's registers for a resident cluster: a state for each warp first; None if the kernel has no
    wgmma.
    """
    kernel = resident.grid.kernel
    if WGMMA not in kernel.queues:
        return None
    warps, count = len(resident.warps), (kernel.frame_bytes >> checks.CELL_SHIFT) + 1
    state = np.zeros(warps, checks.Accumulators.numpy_dtype())
    cells = np.zeros((warps, count), checks.Cell.numpy_dtype())
    operations = np.zeros((warps, checks.OPERATIONS), checks.Issued.numpy_dtype())
    kinds = kernel.once_stored(_kinds)
    state["cells"] = pointer(cells) + np.arange(warps) * cells.strides[0]
    state["operations"] = pointer(operations) + np.arange(warps) * operations.strides[0]
    state["kinds"], state["count"] = pointer(kinds), count
    return state, cells, operations, kinds


def _kinds(kernel: CompiledKernel) -> np.ndarray:
    """The kind of each site of a kernel for these rules."""
    return checks.kinds_of(kernel.sites)


# sentences ----------------------------------------------------------------------------------------------------------
def _register(wgmma: Instruction, word: int) -> str:
    """Name of the register at a word of a wgmma's D or A."""
    names = list(registers_of(wgmma.operands[1 if word >> checks.PLACE_BITS == checks.IN_A else 0]))
    place = word & ((1 << checks.PLACE_BITS) - 1)
    return names[place] if place < len(names) else names[0]


def _group(c: FindingContext) -> str:
    """Why a wgmma is still in flight, and which instruction would wait for it."""
    _, group, since, *_ = c.words
    if group == checks.UNCOMMITTED:
        return "no wgmma.commit_group has made it part of a group"
    return f"its group is pending: wgmma.wait_group {since}{' or less' if since else ''} would cover it"


def _early(verb: str, what: str) -> Callable[[FindingContext], tuple[str, str]]:
    def said(c: FindingContext) -> tuple[str, str]:
        register = _register(must_be(c.other, Instruction), c.words[0])
        return f"{c.name} {verb} {register}, {what} a wgmma in flight: {_group(c)}", f"register {register}"

    return said


def _fence(c: FindingContext) -> tuple[str, str]:
    word, wrote, *_ = c.words
    why = word >> checks.PLACE_BITS
    if why == checks.FIRST:
        return "this warp executes a wgmma, and has executed no wgmma.fence before it", ""
    other = must_be(c.other, Instruction)
    place = checks.IN_A << checks.PLACE_BITS if why == checks.IN_A else 0
    register = _register(c.instruction, place | word & ((1 << checks.PLACE_BITS) - 1))
    part = "A" if why == checks.IN_A else "accumulator"
    if why == checks.SHAPE:
        said = f"{register} was the accumulator of a wgmma of another shape, and no wgmma.fence lies between the two"
    elif why == checks.BETWEEN or is_wgmma_issue(other):
        before = "A" if why == checks.BETWEEN else "accumulator"
        said = f"{register}, {part} here, was {before} of another wgmma, and no wgmma.fence lies between the two"
    else:
        verb = "writes" if wrote else "reads"
        said = f"{other.mnemonic} {verb} {register}, {part} of this wgmma, and no wgmma.fence lies between the two"
    return said, f"register {register}"


def _overlap(c: FindingContext) -> tuple[str, str]:
    register = _register(must_be(c.other, Instruction), c.words[0])
    return f"{register} is an accumulator of two wgmma in flight with different lists of registers", f"register {register}"


SENTENCES: Sentences = {
    rules.READ_EARLY: _early("reads", "an accumulator of"), rules.WRITTEN_EARLY: _early("writes", "an accumulator of"),
    rules.A_OVERWRITTEN: _early("writes", "part of A of"), rules.A_READ: _early("reads", "part of A of"),
    rules.FENCE_MISSING: _fence, rules.OVERLAP: _overlap,
}  # fmt: skip
