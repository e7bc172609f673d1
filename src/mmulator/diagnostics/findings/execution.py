"""Sentences about threads that must execute an instruction together, and the memory that native code needs to find
them apart.
"""

from collections.abc import Callable, Mapping

import numpy as np

from mmulator.compiler.compiled import CompiledKernel
from mmulator.diagnostics.findings.context import FindingContext
from mmulator.diagnostics.whereabouts import lanes_text
from mmulator.launch.grid import Grid
from mmulator.launch.resident import Resident, ResidentCta
from mmulator.native.state import WGMMA, FaultKind
from mmulator.program.skips import is_aligned_barrier
from mmulator.rules import Rule
from mmulator.rules.execution import (
    BARRIER,
    BARRIER_LANES,
    BRANCH,
    COUNTS,
    DIVERGED,
    EXITED_MEMBER,
    INCOMPLETE,
    LANES_EXITED,
    MASKS,
    NOT_MEMBER,
    PARTIAL_WARP,
    PARTNERS,
    RESIZE,
    UNSETTLED,
)
from mmulator.sanitizer.checks.execution import EXITED, LANES_GONE, NO_WARPS, WARPS, Steps
from mmulator.sanitizer.checks.skips import HAVE_EXITED, WENT_ON, Skipping


def _diverged(c: FindingContext) -> tuple[str, str]:
    why, warp, _, _ = c.words
    ins = c.instruction
    if why == EXITED:
        return f"{ins.mnemonic} by some warps of a warpgroup: warp {warp} has exited without it", ""
    what = c.against if c.against != ins.mnemonic else "another one of the text"
    return f"{ins.mnemonic}, where warp {warp} of the same warpgroup executes {what}", ""


def _incomplete(c: FindingContext) -> tuple[str, str]:
    why, number, gone, _ = c.words
    name = c.instruction.mnemonic
    if why == NO_WARPS:
        return f"{name} by a warpgroup of {number} warp{'s' * (number > 1)}: it has four", ""
    if why == LANES_GONE:
        have = "has" if gone.bit_count() == 1 else "have"
        return f"{name} by part of a warpgroup: {lanes_text(gone)} of warp {number} {have} exited", ""
    return f"{name} by part of a warpgroup: warp {number} exits without it", ""


def _partial(c: FindingContext) -> tuple[str, str]:
    others, why, _, _ = c.words
    one, name = others.bit_count() == 1, c.instruction.mnemonic
    if why == HAVE_EXITED:
        return f"{name} by part of a warp: {lanes_text(others)} {'exits' if one else 'exit'} without it", ""
    if why == WENT_ON:
        goes = "passes it by and goes" if one else "pass it by and go"
        return f"{name} by part of a warp: {lanes_text(others)} {goes} on elsewhere", ""
    return f"{name} by part of a warp: {lanes_text(others)} {'is' if one else 'are'} at another one", ""


def _partners(c: FindingContext) -> tuple[str, str]:
    return f"{c.instruction.mnemonic} by a warp that nothing orders after the last round of this barrier, of other warps", ""


def _lacks(c: FindingContext) -> tuple[str, str]:
    members, lane, _, _ = c.words
    return f"member mask 0x{members:08x} of {c.instruction.mnemonic} does not name lane {lane}, which executes it", ""


def _masks(c: FindingContext) -> tuple[str, str]:
    lane, members, other, others = c.words
    return (
        f"lane {lane} executes {c.instruction.mnemonic} with member mask 0x{members:08x}, and lane {other}, which it names, with "
        f"0x{others:08x}",
        "",
    )


def _names_exited(c: FindingContext) -> tuple[str, str]:
    members, gone, _, _ = c.words
    have = "has" if gone.bit_count() == 1 else "have"
    return f"member mask 0x{members:08x} of {c.instruction.mnemonic} names {lanes_text(gone)}, which {have} exited without it", ""


def _unsettled(c: FindingContext) -> tuple[str, str]:
    return f"{c.instruction.mnemonic} by a warp that has not met warp {c.words[0]} since the setmaxnreg before it", ""


def _has_steps(kernel: CompiledKernel) -> bool:
    return WGMMA in kernel.queues or any(i.effects.resizes for i in kernel.sites)


def of_cluster(resident: Resident) -> np.ndarray | None:
    """Memory for the instructions that the warpgroups of a cluster have executed; None if the kernel has neither wgmma nor
    setmaxnreg.
    """
    shape, kernel = resident.grid.shape, resident.grid.kernel
    if not kernel.once(_has_steps):
        return None
    return np.zeros(-(-shape.warps // WARPS) * shape.cluster_size, Steps.numpy_dtype())


def _has_barriers(kernel: CompiledKernel) -> bool:
    return any(map(is_aligned_barrier, kernel.sites))


def of_barriers(resident: Resident) -> np.ndarray | None:
    """Memory for the barriers that lanes of a cluster have skipped; None if the kernel has no aligned barrier."""
    shape, kernel = resident.grid.shape, resident.grid.kernel
    return np.zeros(shape.warps * shape.cluster_size, Skipping.numpy_dtype()) if kernel.once(_has_barriers) else None


SENTENCES: Mapping[int, Callable[[FindingContext], str | tuple[str, str]]] = {
    DIVERGED.number: _diverged, INCOMPLETE.number: _incomplete, NOT_MEMBER.number: _lacks, MASKS.number: _masks,
    PARTIAL_WARP.number: _partial, LANES_EXITED.number: _partial, EXITED_MEMBER.number: _names_exited,
    UNSETTLED.number: _unsettled, PARTNERS.number: _partners,
}  # fmt: skip


# what stops a run; findings/ended.py ------------------------------------------------------------------------------------
def _incomplete_group(grid: Grid, cta: ResidentCta) -> Rule | None:
    """The rule that an incomplete warpgroup breaks; None if the sanitizer has already found that its warps diverged."""
    return None if int(cta.state["fault_words"][0]) else INCOMPLETE


FAULTS: Mapping[FaultKind, Rule | Callable[[Grid, ResidentCta], Rule | None]] = {
    FaultKind.PARTIAL_WARP: PARTIAL_WARP,
    FaultKind.WGMMA_LANES: _incomplete_group,
    FaultKind.REGISTERS: RESIZE,
    FaultKind.BARRIER_COUNTS: COUNTS,
    FaultKind.BAD_BARRIER: BARRIER,
    FaultKind.BARRIER_LANES: BARRIER_LANES,
    FaultKind.BAD_BRANCH: BRANCH,
}
