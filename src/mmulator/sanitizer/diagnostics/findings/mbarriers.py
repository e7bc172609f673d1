"""Memory for the records of native code about mbarriers and clusters, and faults at places without an mbarrier."""

from collections.abc import Sequence

import numpy as np

from mmulator.base.rules import Rule
from mmulator.base.rules import mbarriers as rules
from mmulator.isa.effects import Queue
from mmulator.ptx.program.tokens import CLASSES, early_questions
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import ACCOUNTS, LANES, FaultKind
from mmulator.sanitizer.checks.ends import Clusters, Reach
from mmulator.sanitizer.checks.mbarriers import BITS, GRANULE, UNMET, Keeper, Mbarriers, Use
from mmulator.sanitizer.checks.phases import LATE
from mmulator.sanitizer.diagnostics.mbarriers import ends, known, makers, on_host, operates


def _no_mbarrier(grid: Grid, cta: ResidentCta) -> Rule | None:
    """The rule that an operation breaks at a place without an mbarrier; None if native code has already reported it.

    If an mbarrier was there and has ended, operations of threads are native code's; copies may be older than the end. If there
    never was one, an mbarrier.init in the text may simply not have happened yet.
    """
    k = known(cta.resident, on_host(cta.resident, int(cta.state["fault_address"])))
    if k.ended is not None:
        ins = grid.kernel.sites[int(cta.state["fault_site"])]
        if ends(ins):  # native code is only told about it if there is an mbarrier
            return rules.AFTER_INVAL
        return None if operates(ins) and ins.effects.queue is Queue.NONE else rules.INVAL_IN_USE
    return rules.INIT_NOT_VISIBLE if makers(grid, k) else rules.NOT_INITIALISED


FAULTS = {FaultKind.NO_MBARRIER: _no_mbarrier}


# memory of native code -----------------------------------------------------------------------------------------------
def of_cluster(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory for the records of each mbarrier, and of each warp at each mbarrier (sanitizer/checks/mbarriers.py)."""
    if not resident.grid.kernel.mbarriers:
        return None
    warps, ctas = len(resident.warps), resident.size
    words = resident.grid.shared // (GRANULE * BITS) + 1
    head, keepers, uses = (np.zeros(n, s.numpy_dtype()) for n, s in ((1, Mbarriers), (ACCOUNTS, Keeper), (ACCOUNTS * warps, Use)))
    bits = np.zeros(ctas * words, np.uint32)
    asked = np.zeros(CLASSES * warps * LANES, np.uint64)
    unmet = np.zeros(UNMET * warps, np.uint32)
    head["words"], head["asked"], head["unmet"] = words, pointer(asked), pointer(unmet)
    head["keepers"], head["uses"], head["bits"] = pointer(keepers), pointer(uses), pointer(bits)
    return head, keepers, uses, bits, asked, unmet


def of_launch(grid: Grid) -> np.ndarray | None:
    """For each site the class of an early question, and LATE more for the waits that are left out by one (checks/phases.py)."""
    kernel = grid.kernel
    if of_launch not in kernel.answers:
        found = early_questions(kernel.program)
        rows = [found.questions.get(i) or (LATE + found.waits[i] if i in found.waits else 0) for i in kernel.executed]
        kernel.answers[of_launch] = np.array([*rows, 0], np.uint8) if found.questions else None
    table: np.ndarray | None = kernel.answers[of_launch]
    return table


def of_blocks(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory for the records of each warp and each block of a cluster (sanitizer/checks/ends.py)."""
    warps, ctas = len(resident.warps), resident.size
    if ctas == 1:
        return None
    head, reaches = np.zeros(1, Clusters.numpy_dtype()), np.zeros(warps * ctas, Reach.numpy_dtype())
    met, waited, any_met = (np.zeros(n, np.uint32) for n in (warps, warps, ctas))
    head["met"], head["waited"], head["any"], head["reaches"] = map(pointer, (met, waited, any_met, reaches))
    return head, met, waited, any_met, reaches
