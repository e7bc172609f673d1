"""Sentences about threads that must execute an instruction together, and the memory that native code needs to find
them apart.
"""

import numpy as np

from mmulator.base.rules import Rule
from mmulator.base.rules import execution as rules
from mmulator.isa.effects import Ends
from mmulator.ptx.program.skips import is_aligned_barrier
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import WGMMA, FaultKind
from mmulator.sanitizer.checks.execution import EXITED, HAVE_EXITED, LANES_GONE, NO_WARPS, WARPS, WENT_ON, Skipping, Steps
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Sentences
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text, verb


def _diverged(c: FindingContext) -> str:
    why, warp, _, _ = c.words
    ins = c.instruction
    if why == EXITED:
        return f"{ins.mnemonic} by some warps of a warpgroup: warp {warp} has exited without it"
    what = c.against if c.against != ins.mnemonic else "another one of the text"
    return f"{ins.mnemonic}, where warp {warp} of the same warpgroup executes {what}"


def _incomplete(c: FindingContext) -> str:
    why, number, gone, _ = c.words
    name = c.name
    if why == NO_WARPS:
        return f"{name} by a warpgroup of {number} warp{'s' * (number > 1)}: it has four"
    if why == LANES_GONE:
        return f"{name} by part of a warpgroup: {lanes_text(gone)} of warp {number} {verb(gone, 'has', 'have')} exited"
    return f"{name} by part of a warpgroup: warp {number} exits without it"


def _partial(c: FindingContext) -> str:
    others, why, _, _ = c.words
    part = f"{c.name} by part of a warp: {lanes_text(others)}"
    if why == HAVE_EXITED:
        return f"{part} {verb(others, 'exits', 'exit')} without it"
    if why == WENT_ON:
        return f"{part} {verb(others, 'passes it by and goes', 'pass it by and go')} on elsewhere"
    return f"{part} {verb(others, 'is', 'are')} at another one"


def _lacks(c: FindingContext) -> str:
    members, lane, _, _ = c.words
    return f"member mask 0x{members:08x} of {c.name} does not name lane {lane}, which executes it"


def _masks(c: FindingContext) -> str:
    lane, members, other, others = c.words
    mask = f"member mask 0x{members:08x}"
    return f"lane {lane} executes {c.name} with {mask}, and lane {other}, which it names, with 0x{others:08x}"


def _names_exited(c: FindingContext) -> str:
    members, gone, _, _ = c.words
    have = verb(gone, "has", "have")
    return f"member mask 0x{members:08x} of {c.name} names {lanes_text(gone)}, which {have} exited without it"


def _unsettled(c: FindingContext) -> str:
    return f"{c.name} by a warp that has not met warp {c.words[0]} since the setmaxnreg before it"


def _has_steps(kernel: CompiledKernel) -> bool:
    return WGMMA in kernel.queues or any(i.effects.resizes for i in kernel.sites)


def of_cluster(resident: Resident) -> np.ndarray | None:
    """Memory for the instructions that the warpgroups of a cluster have executed; None if the kernel has neither wgmma nor
    setmaxnreg.
    """
    shape, kernel = resident.grid.shape, resident.grid.kernel
    if not kernel.once_stored(_has_steps):
        return None
    return np.zeros(-(-shape.warps // WARPS) * shape.cluster_size, Steps.numpy_dtype())


def _has_barriers(kernel: CompiledKernel) -> bool:
    return any(is_aligned_barrier(i) or i.effects.ends is Ends.BARRIER for i in kernel.sites)


def of_barriers(resident: Resident) -> np.ndarray | None:
    """Memory for the barriers that lanes of a cluster have skipped; None if the kernel has no barrier."""
    shape, kernel = resident.grid.shape, resident.grid.kernel
    return np.zeros(shape.warps * shape.cluster_size, Skipping.numpy_dtype()) if kernel.once_stored(_has_barriers) else None


SENTENCES: Sentences = {
    rules.DIVERGED: _diverged, rules.INCOMPLETE: _incomplete, rules.NOT_MEMBER: _lacks, rules.MASKS: _masks,
    rules.PARTIAL_WARP: _partial, rules.LANES_EXITED: _partial, rules.EXITED_MEMBER: _names_exited, rules.UNSETTLED: _unsettled,
}  # fmt: skip


def _incomplete_group(grid: Grid, cta: ResidentCta) -> Rule | None:
    """The rule that an incomplete warpgroup breaks; None if the sanitizer has already found that its warps diverged."""
    return None if int(cta.state["fault_words"][0]) else rules.INCOMPLETE


FAULTS = {FaultKind.WGMMA_LANES: _incomplete_group}
