"""The topics of the sanitizer: memory that they need, findings from the entries that native code wrote, and findings from the
fault or deadlock that ended a run, if it breaks a rule.

A function that makes memory returns None if the kernel does not need the topic. If it returns several arrays, the first one holds
the addresses of the others. A name in the tables of these functions is a field of a struct in sanitizer/state.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault
from mmulator.base.findings import Finding, spoken
from mmulator.base.rules import RULES, Rule
from mmulator.base.rules.accumulators import in_module
from mmulator.base.rules.operands import LAYOUT
from mmulator.base.rules.races import BY_THREADS, HALF_STRONG, NOT_RELEASED, PLAIN_SYNC, READ_WRITE, REPLICATED_READ, UNREAD
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import FaultKind
from mmulator.sanitizer.diagnostics.faults.mbarrier import KINDS as MBARRIER_KINDS
from mmulator.sanitizer.diagnostics.findings import (
    accumulators,
    execution,
    launches,
    mbarriers,
    operands,
    orders,
    proxies,
    races,
    shadows,
    tensor_memory,
    values,
    waits,
)
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Sentences, block_text, location, threads_text
from mmulator.sanitizer.diagnostics.mbarriers import known, on_host

Memory = np.ndarray | Sequence[np.ndarray] | None
OF_LAUNCH: Mapping[str, Callable[[Grid], Memory]] = {
    "orders": orders.of_launch, "races": shadows.of_launch, "proxies": proxies.of_launch, "values": values.of_launch,
    "early": mbarriers.of_launch,
}  # fmt: skip
OF_CLUSTER: Mapping[str, Callable[[Resident], Memory]] = {
    "orders": orders.of_cluster, "races": shadows.of_cluster, "accumulators": accumulators.memory,
    "mbarriers": mbarriers.of_cluster, "clusters": mbarriers.of_blocks, "execution": execution.of_cluster,
    "skips": execution.of_barriers, "values": values.of_cluster, "waits": waits.of_cluster, "proxies": proxies.memory,
    "tensor": tensor_memory.memory,
}  # fmt: skip
# Functions that remove from a cluster's memory what is of a launch, for the next one. A cluster that begins renews all else.
RENEWED: Mapping[str, Callable[[Any], None]] = {"orders": orders.renew, "races": shadows.renew, "values": values.renew}

# The message of each rule that native code reports: what the rule says, or more.
SENTENCES: Sentences = {rule: FindingContext.says for rule in RULES.values() if rule.says}
for _topic in (accumulators, proxies, races, operands, execution, values, tensor_memory, launches):
    SENTENCES |= _topic.SENTENCES
# Of kinds of faults the rule that is broken, or what chooses it (None: none is).
Breach = Callable[[Grid, ResidentCta], Rule | None]
FAULTS: Mapping[FaultKind, Rule | Breach] = {
    **{FaultKind[name]: rule for rule in RULES.values() for name in rule.faults.split()},
    **mbarriers.FAULTS, **operands.FAULTS, **execution.FAULTS,
}  # fmt: skip


# what native code wrote ----------------------------------------------------------------------------------------------
def finding(grid: Grid, entry: Any, count: int) -> Finding:
    """The finding of an entry. count: how often it happened."""
    context = FindingContext(grid, entry)
    said = SENTENCES[context.rule](context)
    rule = in_module(context.rule, grid.kernel.program.module.options)
    message, where, *own = said if isinstance(said, tuple) else (said, context.where())
    ins, other = context.instruction, context.other
    lines = ins.span, other.span if other is not None else None
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, location(ins), ins.span.brief, context.who, where,
        context.conflict, grid.seed, count, spoken("".join(own) or rule.hint, *lines), span=ins.span,
    )  # fmt: skip


def findings_of(grid: Grid, entries: Iterable[Any]) -> tuple[Finding, ...]:
    """Findings from the entries of all workers, in the order of rules and of the text. Entries of one rule at the same
    instructions become one finding with their sum.
    """
    counts: dict[tuple[int, int, int], int] = {}
    first: dict[tuple[int, int, int], Any] = {}
    for entry in entries:
        if entry["rule"] == REPLICATED_READ.number and shadows.is_used(grid, entry):
            entry["rule"] = READ_WRITE.number
        if entry["rule"] == HALF_STRONG.number and races.is_unreleased(FindingContext(grid, entry)):
            entry["rule"] = NOT_RELEASED.number
        if entry["rule"] in BY_THREADS and races.is_plain_sync(FindingContext(grid, entry)):
            entry["rule"] = PLAIN_SYNC.number
        if entry["rule"] == LAYOUT.number:  # of each descriptor there is an entry
            entry["other_site"] = 0
            if not (broken := operands.misplaces(FindingContext(grid, entry))):
                continue
            entry["rule"] = broken.number
        if entry["rule"] == UNREAD.number and entry["words"][2]:
            entry["rule"] = entry["words"][1]
        key = int(entry["rule"]), int(entry["site"]), int(entry["other_site"])
        counts[key] = counts.get(key, 0) + int(entry["count"])
        if key not in first or (int(entry["cta"]), int(entry["warp"])) < (int(first[key]["cta"]), int(first[key]["warp"])):
            first[key] = entry
    # of a lock's accesses the plain ones race with each other, too
    known = {at for rule, site, other in first if rule == PLAIN_SYNC.number for at in (site + 1, other)}
    told = (key for key in sorted(first) if key[0] not in BY_THREADS or not {key[1] + 1, key[2]} <= known)
    return tuple(finding(grid, first[key], counts[key]) for key in told)


# what ended a run -----------------------------------------------------------------------------------------------------
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
