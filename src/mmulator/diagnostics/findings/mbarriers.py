"""Sentences about mbarriers and clusters, and memory for the records of native code about them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.diagnostics.findings.context import FindingContext
from mmulator.diagnostics.mbarriers import ends, known, makers, on_host, operates
from mmulator.isa.effects import Queue
from mmulator.launch.arena import pointer
from mmulator.launch.grid import Grid
from mmulator.launch.resident import Resident, ResidentCta
from mmulator.native.state import ACCOUNTS, FaultKind
from mmulator.rules import Rule
from mmulator.rules import mbarriers as rules
from mmulator.sanitizer.checks.ends import Clusters, Reach
from mmulator.sanitizer.checks.mbarriers import BITS, GRANULE, Keeper, Mbarriers, Use

# A clause each, where {this} is the instruction that is blamed and {other} that of the conflict.
_CLAUSES: Mapping[Rule, str] = {
    rules.INIT_IN_USE: "{this} of an mbarrier that has been initialised and not invalidated",
    rules.AFTER_INVAL: "{this} at an mbarrier that has been invalidated",
    rules.STORED_TO: "{this} writes over an mbarrier",
    rules.READ_AS_DATA: "{this} reads an mbarrier as if it were data",
    rules.BYTES_MISSING: "bytes that {this} expects at an mbarrier never come",
    rules.BYTES_UNEXPECTED: "bytes that {this} brings to an mbarrier are expected by nobody there",
    rules.INVAL_IN_USE: "nothing orders {other} at an mbarrier and {this} at it",
    rules.INIT_NOT_VISIBLE: "nothing orders the mbarrier.init of an mbarrier before {this} at it",
    rules.SCOPE_TOO_NARROW: "{this} at an mbarrier of another block, for whose threads this scope orders nothing",
    rules.SCOPE_UNSAID: "{this} at an mbarrier of another block has no scope, and so that of its own block",
    rules.INIT_NOT_FENCED: "{this} completes an mbarrier, and no fence lies after the {other} of it",
    rules.PHASE_MISSED: "{this} ends its wait for a phase when the next phase is over, too",
    rules.BYTES_LATE: "a phase of an mbarrier is over while {this}, which completes bytes there, is under way",
    rules.COPY_AT_EXIT: "the block exits and has not waited for {this} into its shared memory",
    rules.EXIT_UNSYNCHRONISED: "nothing orders {this} to the shared memory of a block before that block exits",
    rules.CANCEL_AGAIN: "{this} by a block that has seen at {other} that there is no other cluster",
    rules.START_UNSYNCHRONISED: "{this} to the shared memory of a block that perhaps has not begun",
}


def _clause(rule: Rule) -> Callable[[FindingContext], str]:
    return lambda c: _CLAUSES[rule].format(this=c.instruction.mnemonic, other=c.against)


SENTENCES: Mapping[int, Callable[[FindingContext], str | tuple[str, str]]] = {rule.number: _clause(rule) for rule in _CLAUSES}


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


FAULTS: Mapping[FaultKind, Rule | Callable[[Grid, ResidentCta], Rule | None]] = {
    FaultKind.NO_MBARRIER: _no_mbarrier,
    FaultKind.MBARRIER_RANGE: rules.COUNT_INVALID,
    FaultKind.MBARRIER_ARRIVALS: rules.ARRIVAL_OVERRUN,
    FaultKind.MBARRIER_BYTES: rules.TX_OVERFLOW,
    FaultKind.MBARRIER_COMPLETES: rules.NO_COMPLETE,
    FaultKind.MBARRIER_STORED: rules.STORED_TO,
    FaultKind.MBARRIER_ELSEWHERE: rules.OTHER_BLOCK,
    FaultKind.CTA_EXITED: rules.EXIT_UNSYNCHRONISED,
    FaultKind.CLUSTER_BARRIER: rules.BARRIER_UNPAIRED,
}


# memory of native code -----------------------------------------------------------------------------------------------
def of_cluster(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory for the records of each mbarrier, and of each warp at each mbarrier (sanitizer/checks/mbarriers.py)."""
    if not resident.grid.kernel.mbarriers:
        return None
    warps, ctas = len(resident.warps), resident.size
    words = resident.grid.shared // (GRANULE * BITS) + 1
    head, keepers, uses = (np.zeros(n, s.numpy_dtype()) for n, s in (
        (1, Mbarriers), (ACCOUNTS, Keeper), (ACCOUNTS * warps, Use),
    ))  # fmt: skip
    bits = np.zeros(ctas * words, np.uint32)
    head["words"], head["keepers"], head["uses"], head["bits"] = words, pointer(keepers), pointer(uses), pointer(bits)
    return head, keepers, uses, bits


def of_blocks(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory for the records of each warp and each block of a cluster (sanitizer/checks/ends.py)."""
    warps, ctas = len(resident.warps), resident.size
    if ctas == 1:
        return None
    head, reaches = np.zeros(1, Clusters.numpy_dtype()), np.zeros(warps * ctas, Reach.numpy_dtype())
    met, waited, any_met = (np.zeros(n, np.uint32) for n in (warps, warps, ctas))
    head["met"], head["waited"], head["any"], head["reaches"] = map(pointer, (met, waited, any_met, reaches))
    return head, met, waited, any_met, reaches
