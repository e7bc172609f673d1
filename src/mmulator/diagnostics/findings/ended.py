"""Findings from the fault or deadlock that ended a run, if it breaks a rule of the sanitizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mmulator.diagnostics.faults.mbarrier import KINDS as MBARRIER_KINDS
from mmulator.diagnostics.findings import execution, mbarriers, operands, tensor_memory, waits
from mmulator.diagnostics.findings.context import block_text, location, threads_text
from mmulator.diagnostics.mbarriers import known, on_host
from mmulator.errors import ExecutionFault
from mmulator.findings import Finding, spoken
from mmulator.native.state import FaultKind

if TYPE_CHECKING:
    from mmulator.launch.grid import Grid
    from mmulator.launch.resident import Resident, ResidentCta
    from mmulator.rules import Rule

# Of kinds of faults the rule that is broken, or what chooses it (None: none is).
Breach = Callable[["Grid", "ResidentCta"], "Rule | None"]
FAULTS: Mapping[FaultKind, Rule | Breach] = {
    kind: rule for topic in (mbarriers, operands, execution, tensor_memory) for kind, rule in topic.FAULTS.items()
}


def of_the_end(grid: Grid, residents: Sequence[Resident], error: ExecutionFault, livelock: bool) -> tuple[Finding, ...]:
    """Findings from the fault, deadlock or livelock that ended a run; a time limit gives none.

    grid: the launch.
    residents: the clusters that were running.
    error: the exception that the run raises.
    livelock: whether threads of several clusters poll for each other for ever.
    """
    faulty = next((c for r in residents for c in r.each() if c.state["fault"]), None)
    if faulty is not None:
        return of_fault(grid, faulty, error)
    every: dict[tuple[str, str, str], Finding] = {}
    for f in (f for r in residents for f in (waits.of_livelock(grid, r) if livelock else waits.of_deadlock(grid, r, error))):
        every[f.key] = replace(every[f.key], count=every[f.key].count + 1) if f.key in every else f
    return tuple(every.values())


def of_fault(grid: Grid, cta: ResidentCta, error: ExecutionFault) -> tuple[Finding, ...]:
    """Findings from the first fault of a CTA. error: the exception that describes this fault."""
    state = cta.state
    found = FAULTS.get(FaultKind(int(state["fault"])))
    rule = found(grid, cta) if callable(found) else found
    if rule is None:
        return ()
    lanes = 1 << int(state["fault_lane"])
    who = threads_text(grid, int(state["linear"]), int(state["fault_warp"]), lanes)
    ins = grid.kernel.sites[int(state["fault_site"])]
    block = block_text(grid, int(state["linear"]))
    message = error.message.partition("\n")[0].removesuffix(f", in {who}").removesuffix(f", in {block}")
    message, where = _said_once(grid, cta, message)
    return (
        Finding(
            rule.name, str(rule.severity), message, ins.mnemonic, location(ins), ins.span.brief, who, where, None, grid.seed, 1,
            spoken(error.hint or rule.hint, ins.span), span=ins.span,
        ),
    )  # fmt: skip


def _said_once(grid: Grid, cta: ResidentCta, message: str) -> tuple[str, str]:
    """(message, place) of a fault: the bytes of memory are moved from the message to the place."""
    address, size = int(cta.state["fault_address"]), int(cta.state["fault_bytes"])
    bare, at, place = message.partition(f" of {size} bytes at address 0x{address:x}, ")
    if not at:
        return message, _where(grid, cta)
    place = place if place.startswith("byte ") else f"address 0x{address:x}, {place}"
    return bare, f"{size} byte{'s' * (size != 1)} at {place}"


def _where(grid: Grid, cta: ResidentCta) -> str:
    """The mbarrier of a fault in words, or ""."""
    if FaultKind(int(cta.state["fault"])) not in MBARRIER_KINDS:
        return ""
    return known(cta.resident, on_host(cta.resident, int(cta.state["fault_address"]))).name(None)
