"""Sentences about mbarriers and clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmulator.machine.launch.findings.context import Context
from mmulator.machine.launch.grid import Grid
from mmulator.machine.launch.mbarriers import known, on_host
from mmulator.machine.launch.resident import ResidentCta
from mmulator.machine.state import FaultKind
from mmulator.rules import Rule
from mmulator.rules import mbarriers as rules


def _init_in_use(c: Context) -> str:
    return f"{c.instruction.mnemonic} of an mbarrier that has been initialised, and that nobody has invalidated"


SENTENCES: Mapping[int, Callable[[Context], str | tuple[str, str]]] = {rules.INIT_IN_USE.number: _init_in_use}


def _no_mbarrier(grid: Grid, cta: ResidentCta) -> Rule:
    """There never was one, or there is none any more."""
    gone = known(cta.resident, on_host(cta.resident, int(cta.state["fault_address"]))).ended is not None
    return rules.AFTER_INVAL if gone else rules.NOT_INITIALISED


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
