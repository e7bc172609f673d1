"""Other schedules of a launch, for its certificate (certificate.py): one is looked for that ends otherwise than the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mmulator.base.errors import ExecutionFault
from mmulator.base.findings import Finding
from mmulator.host import entries
from mmulator.host.campaign import Snapshot
from mmulator.host.certificate import (
    CERTIFIED,
    COUNTEREXAMPLE,
    NOT_DECIDED,
    Certificate,
    Schedule,
    first_look,
    of_fault,
    reason,
)  # fmt: skip
from mmulator.host.report import Report
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

SCHEDULES = 3  # that are tried where a launch is not certified, besides the first: those that differ do so early


@dataclass(frozen=True)
class NeedQuestion:
    """The question which barriers, fences, waits and commits a certified launch needs.

    kernel: of the launch.
    look: launches it again under the sanitizer, as evidence, with what stands in for the kernel.
    progress: is called with lines that are done, and all.
    """

    kernel: Any
    look: Callable[[], Report]
    progress: Callable[[int, int], object] | None = None


def certified_launch(
    launch: Launch, how: How, run: Callable[[], Report], observing: Callable[[], Sequence[Observer]], needed: bool = False,
    progress: Callable[[str, int, int], object] | None = None,
) -> Report:  # fmt: skip
    """The report of a sanitized launch of a `Kernel`, with its certificate.

    launch, how: what runs, and how.
    run: launches it under the sanitizer.
    observing: gives a sanitizer for evidence.
    needed: it is asked which barriers, fences, waits and commits the launch needs.
    progress: is called with ("needed", lines that are done, all) and ("explore", interleavings that have been run, about all).
    """
    plain = replace(how, progress=None)

    def again(schedule: Schedule) -> Report:
        return launch.run(replace(plain, seed=schedule.seed, order=schedule.order, threads=1))

    def in_turns(observer: Observer) -> Report:
        return launch.run(replace(plain, order=None, threads=1), [*observing(), observer])

    memory = Snapshot((f"device address 0x{start:x}", array) for start, array in launch.writable())
    told = {phase: partial(progress, phase) if progress else None for phase in ("needed", "explore")}
    asked = NeedQuestion(launch.kernel, lambda: launch.run(plain, observing()), told["needed"]) if needed else None
    return certified(run, again, memory, Schedule(how.seed, how.order), in_turns, told["explore"], asked)


def certified(
    run: Callable[[], Report], again: Callable[[Schedule], object], memory: Snapshot, schedule: Schedule,
    in_turns: Callable[[Observer], Report], progress: Callable[[int, int], object] | None = None,
    asked: NeedQuestion | None = None,
) -> Report:  # fmt: skip
    """The report of a launch, with its certificate. Memory is as this launch left it, whatever is raised.

    run: launches under the sanitizer, as evidence.
    again: launches in another schedule, without the sanitizer.
    memory: what the launch may write, taken before it.
    schedule: of `run`.
    in_turns: launches under the sanitizer, as evidence, with an observer besides.
    progress: is called with interleavings that have been run, and about how many there are.
    asked: whether it is asked what is needed, of a launch that is certified.

    Raises what `run` raises; a fault has the certificate as `certificate`.
    """
    try:
        report = run()
    except ExecutionFault as fault:
        fault.__dict__["certificate"] = of_fault(fault, schedule)
        raise
    found = first_look(report.evidence, schedule)
    if found.verdict == NOT_DECIDED or (asked and found.verdict == CERTIFIED):
        memory.keep()
        try:
            if found.verdict == NOT_DECIDED:
                found = _search(found, again, memory, schedule)
                if found.verdict == NOT_DECIDED and (report.evidence.turns or report.evidence.takeovers):
                    from mmulator.host.exploring import explored

                    found = explored(found, in_turns, memory, schedule, progress, report.evidence.takeovers)
            elif asked:
                without = partial(_without, asked.look, again, memory, schedule)
                found = replace(found, needed=entries.needed(asked, report, found, without))
        finally:
            memory.leave()
    if asked and found.verdict != CERTIFIED:
        report.notes.append(f"which barriers and fences are needed was not asked: the launch is {found.verdict}")
    report.certificate = found
    return report


def _without(
    look: Callable[[], Report], again: Callable[[Schedule], object], memory: Snapshot, schedule: Schedule
) -> tuple[Certificate, tuple[Finding, ...]]:
    """The certificate of the launch with what stands in for its kernel now, from the same memory: other bytes than the first
    launch left are a counterexample. And the findings, notes too.
    """
    memory.restore()
    try:
        evidence = look().evidence
    except ExecutionFault as fault:
        return of_fault(fault, schedule), ()
    found = first_look(evidence, schedule)
    piece = next(memory.differing(), None)
    if found.verdict != COUNTEREXAMPLE and piece is not None:
        said = reason("other bytes: " + piece.difference)
        found = replace(found, verdict=COUNTEREXAMPLE, reasons=(said, *found.reasons), schedule=schedule)
    if found.verdict == NOT_DECIDED:
        found = _search(found, again, memory, schedule)
    return found, evidence.findings


def _search(found: Certificate, again: Callable[[Schedule], object], memory: Snapshot, first: Schedule) -> Certificate:
    """Look for a schedule that ends otherwise than the first."""
    for n in range(1, SCHEDULES + 1):
        schedule = Schedule(first.seed + n, first.seed + n)
        memory.restore()
        try:
            again(schedule)
        except ExecutionFault as fault:
            broken = of_fault(fault, schedule, n + 1)
            return replace(broken, reasons=(*broken.reasons, *found.reasons), rests_on=found.rests_on)
        piece = next(memory.differing(), None)
        if piece is not None:
            said = reason("other bytes than in the first schedule: " + piece.difference)
            return Certificate(COUNTEREXAMPLE, (said, *found.reasons), found.rests_on, schedule, n + 1)
    return replace(found, tried=SCHEDULES + 1)
