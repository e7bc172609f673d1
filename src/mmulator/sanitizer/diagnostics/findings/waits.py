"""Findings about threads that wait for ever: what they wait for, since which phase, and which threads should have arrived."""

from collections.abc import Iterator, Sequence

import numpy as np

from mmulator.base.errors import ExecutionFault
from mmulator.base.findings import Finding, Place, spoken
from mmulator.base.rules import Rule, execution, mbarriers, waits
from mmulator.isa.effects import Queue
from mmulator.ptx.program.blocks import takes_whole_warp
from mmulator.ptx.tree import Instruction, SpecialRegister
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.sanitizer.checks.waits import Stillness
from mmulator.sanitizer.diagnostics.faults.mbarrier import likely, missing_text
from mmulator.sanitizer.diagnostics.findings.context import block_text, location, threads_text
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierEvent, MbarrierState, arrivers, place_text
from mmulator.sanitizer.diagnostics.stillness import LOOK, looks
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, arrived_text, groups

_TOGETHER = (waits.IN_WARP, execution.PARTIAL_WARP, execution.DIVERGED)  # what lanes or warps execute together
_MOST = 4  # groups of threads, or instructions, that a sentence names

Everywhere = Sequence[tuple[ResidentCta, Sequence[LaneGroup]]]


def of_deadlock(grid: Grid, resident: Resident, error: ExecutionFault) -> tuple[Finding, ...]:
    """Findings from a deadlock: one for each mbarrier with waiting threads; if there is none, one for the wait that the error
    names.
    """
    every = [(c, groups(grid, c)) for c in resident.each()]
    sleepers: dict[int, list[tuple[ResidentCta, LaneGroup]]] = {}
    for cta, found in every:
        for g in found:
            if g.mbarrier is not None:
                sleepers.setdefault(g.mbarrier.at, []).append((cta, g))
    if resident.cluster["stalled"][0]:
        return of_livelock(grid, resident)
    span = error.span
    named = [(c, g) for c, gs in every for g in gs if g.instruction is not None and g.instruction.span == span]
    if sleepers and not any(g.state == "held" for _, g in named):
        telling = sorted(sleepers.values(), key=_telling)
        return tuple(f for at in telling for f in _at_mbarrier(grid, every, at))
    if not named:
        return ()
    rule, (cta, first) = _rule(named[0][1]), named[0]
    message = error.message.partition("\n")[0].removesuffix(f", in {block_text(grid, int(cta.state['linear']))}")
    ins = first.instruction
    assert ins is not None
    other = _missing(grid, every, named) if rule not in _TOGETHER else _elsewhere(grid, cta, every, first)
    return (_finding(grid, rule, message, ins, _threads(grid, named), arrived_text(cta).removeprefix("; "), other, error.hint),)


def _telling(at: Sequence[tuple[ResidentCta, LaneGroup]]) -> int:
    """Sort key of an mbarrier with waiting threads: an mbarrier that received something unexpected comes first, since one
    without arrivals mostly waits for it.
    """
    k = at[0][1].mbarrier
    assert k is not None
    return k.untold


def _finding(
    grid: Grid, rule: Rule, message: str, ins: Instruction, threads: str, where: str = "", conflict: Place | None = None,
    hint: str | None = None,
) -> Finding:
    if where:
        message = message.removesuffix(f"; {where}")  # not twice in one finding
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, location(ins), ins.span.brief, threads, where, conflict, grid.seed,
        1, spoken(hint or rule.hint, ins.span), span=ins.span,
    )  # fmt: skip


def _rule(g: LaneGroup) -> Rule:
    """The rule for a group of lanes that waits, but not at an mbarrier."""
    if g.state == "barrier":
        return waits.AT_BARRIER
    ins = g.instruction
    if g.state == "waits" and ins is not None and ins.effects.queue is Queue.NONE:
        if ins.effects.holds:
            return waits.AT_ALLOCATION
        return waits.AT_SETMAXNREG if ins.effects.resizes else waits.AT_CLUSTER_BARRIER
    if ins is not None and takes_whole_warp(ins):
        return execution.DIVERGED if g.state == "waits" else execution.PARTIAL_WARP
    return waits.IN_WARP


def _threads(grid: Grid, at: Sequence[tuple[ResidentCta, LaneGroup]]) -> str:
    said = [threads_text(grid, int(c.state["linear"]), g.warp, g.lanes) for c, g in at]
    return "; ".join(said[:_MOST]) + (f"; and {len(said) - _MOST} more groups" if len(said) > _MOST else "")


def _place(grid: Grid, cta: ResidentCta, g: LaneGroup) -> Place | None:
    ins = g.instruction
    if ins is None:
        return None
    who = threads_text(grid, int(cta.state["linear"]), g.warp, g.lanes)
    return Place(ins.mnemonic, location(ins), ins.span.brief, who, ins.span)


def _missing(grid: Grid, every: Everywhere, named: Sequence[tuple[ResidentCta, LaneGroup]]) -> Place | None:
    """The place of a thread that has not arrived at a barrier; threads of the same block are preferred."""
    first = named[0][0].rank
    here = {(c.rank, g.warp, g.lanes) for c, g in named}
    others = sorted(
        ((c, g) for c, gs in every for g in gs if (c.rank, g.warp, g.lanes) not in here), key=lambda x: x[0].rank != first
    )
    return next(filter(None, (_place(grid, c, g) for c, g in others)), None)


def _elsewhere(grid: Grid, cta: ResidentCta, every: Everywhere, held: LaneGroup) -> Place | None:
    """The place of other lanes of the waiting warp, or of other warps of its block."""
    own = [g for c, gs in every if c.rank == cta.rank for g in gs if (g.warp, g.lanes) != (held.warp, held.lanes)]
    own.sort(key=lambda g: (g.instruction is held.instruction, g.warp != held.warp))
    return _place(grid, cta, own[0]) if own else None


# mbarriers ----------------------------------------------------------------------------------------------------------
def _at_mbarrier(grid: Grid, every: Everywhere, at: Sequence[tuple[ResidentCta, LaneGroup]]) -> Iterator[Finding]:
    """Findings about an mbarrier with waiting threads: the wait itself, and bytes that never come or that are not expected."""
    cta, g = at[0]
    k, ins = g.mbarrier, g.instruction
    assert k is not None and ins is not None
    message = f"{ins.mnemonic} waits for ever for {k.phase_text} of {k.name(cta)}: {missing_text(k)}; {_who(grid, every, k, cta)}"
    event = k.asked if k.word.bytes > 0 else k.brought if k.word.bytes < 0 or k.counts_copies else k.arrived
    conflict = _of_event(grid, event) if event is not None else _could(grid, k)
    yield _finding(grid, waits.AT_MBARRIER, message, ins, _threads(grid, at), k.name(None), conflict, likely(g)[1] or None)
    if k.word.bytes and event is not None:
        rule = mbarriers.BYTES_MISSING if k.word.bytes > 0 else mbarriers.BYTES_UNEXPECTED
        yield bytes_finding(grid, rule, k, event)


def bytes_finding(grid: Grid, rule: Rule, k: MbarrierState, event: MbarrierEvent) -> Finding:
    """The finding about bytes that keep a phase open. event: where bytes were last expected, or where the last bytes were
    issued.
    """
    name = k.name(event.cta)
    if rule is mbarriers.BYTES_MISSING:
        message = f"{k.word.bytes} of {k.expected} bytes that are expected in {k.phase_text} of {name} never come"
        other = _of_event(grid, k.brought) if k.brought is not None else None
    else:
        message = f"{-k.word.bytes} bytes come in {k.phase_text} of {name} that nobody expects there"
        other = _of_event(grid, k.asked) if k.asked is not None else None
    who = threads_text(grid, int(event.cta.state["linear"]), event.warp, 1 << event.lane)
    return _finding(grid, rule, message, event.instruction, who, k.name(None), other)


def _of_event(grid: Grid, event: MbarrierEvent) -> Place:
    ins = event.instruction
    who = threads_text(grid, int(event.cta.state["linear"]), event.warp, 1 << event.lane)
    return Place(ins.mnemonic, location(ins), ins.span.brief, who, ins.span)


def _who(grid: Grid, every: Everywhere, k: MbarrierState, here: ResidentCta) -> str:
    """The last thread that arrived at an mbarrier, and its place now; without an arrival, instructions that could arrive."""
    if k.arrived is None:
        found = arrivers(grid, k)
        if k.counts_copies:
            return "no other arrival has come since mbarrier.init"
        could = ", ".join(place_text(i) for i in found[:_MOST]) + (" and others" if len(found) > _MOST else "")
        return "nobody has arrived since mbarrier.init" + (f"; what could: {could}" if found else ", and no instruction could")
    e = k.arrived
    phase = "" if e.phase == k.phases else f" in phase {e.phase}"
    now = next((g for c, gs in every if c.rank == e.cta.rank for g in gs if g.warp == e.warp and g.lanes >> e.lane & 1), None)
    where = f"is now at {place_text(now.instruction)}" if now is not None else "has exited"
    return f"the last arrival was{phase} by {e.text(here)}, which {where}"


def _could(grid: Grid, k: MbarrierState) -> Place | None:
    """The first instruction in the text that could arrive at the mbarrier, as a place."""
    found = arrivers(grid, k)
    return Place(found[0].mnemonic, location(found[0]), found[0].span.brief, "no thread has", found[0].span) if found else None


# loops that nothing ends --------------------------------------------------------------------------------------------
_CLOCKS = ("clock", "globaltimer")


def of_livelock(grid: Grid, resident: Resident) -> tuple[Finding, ...]:
    """Findings from a livelock: one for each instruction at which threads of a cluster poll memory or loop."""
    found: dict[str, Finding] = {}
    for cta in resident.each():
        for g in groups(grid, cta):
            if g.state == "runs" and g.instruction is not None:
                f = _loop(grid, resident, cta, g, g.instruction)
                found.setdefault(f.location, f)
    return tuple(found.values())


def _loop(grid: Grid, resident: Resident, cta: ResidentCta, g: LaneGroup, at: Instruction) -> Finding:
    table = looks(resident)
    who = threads_text(grid, int(cta.state["linear"]), g.warp, g.lanes)
    look = table[cta.rank * grid.shape.warps + g.warp] if table is not None else None
    if look is None or not look["site"]:
        return _finding(grid, waits.LIVELOCK, f"{at.mnemonic} is in a loop that nothing can end", at, who)
    from mmulator.sanitizer.diagnostics.faults.describe import describe_address

    ins = grid.kernel.sites[int(look["site"]) - 1]
    where = f"{int(look['bytes'])} bytes at {describe_address(grid, int(look['at']))}"
    return _finding(
        grid, waits.LIVELOCK, f"{ins.mnemonic} polls memory for ever: no thread is left that could change it", ins, who, where
    )


def of_cluster(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory of a resident cluster for sanitizer/checks/waits.py."""
    if resident.grid.kernel.once_stored(_reads_clock):
        return None
    head, table = np.zeros(1, Stillness.numpy_dtype()), np.zeros(len(resident.warps), LOOK)
    head["looks"] = pointer(table)
    return head, table


def _reads_clock(kernel: CompiledKernel) -> bool:
    return any(
        isinstance(o, SpecialRegister) and o.name.lstrip("%").startswith(_CLOCKS)
        for f in kernel.program.functions.values() for i in f.function.body if isinstance(i, Instruction) for o in i.operands
    )  # fmt: skip
