"""Other schedules of a launch, for its certificate (certificate.py): one is looked for that ends otherwise than the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mmulator.base.errors import ExecutionFault
from mmulator.host.campaign import Snapshot
from mmulator.host.certificate import COUNTEREXAMPLE, NOT_DECIDED, Certificate, Schedule, first_look, of_fault, reason
from mmulator.host.report import Report
from mmulator.runtime.launch.launch import How, Launch

SCHEDULES = 7  # that are tried where a launch is not certified, besides the first


def certified_launch(
    kernel_run: Callable[[Launch, How], Report], launch: Launch, how: How, run: Callable[[], Report]
) -> Report:
    """The report of a sanitized launch of a `Kernel`, with its certificate.

    kernel_run: `Kernel.run`.
    launch, how: what runs, and how.
    run: launches it under the sanitizer.
    """

    def again(schedule: Schedule) -> Report:
        return kernel_run(launch, replace(how, seed=schedule.seed, order=schedule.order, threads=1, progress=None))

    memory = Snapshot((f"device address 0x{start:x}", array) for start, array in launch.writable())
    return certified(run, again, memory, Schedule(how.seed, how.order))


def certified(
    run: Callable[[], Report], again: Callable[[Schedule], object], memory: Snapshot, schedule: Schedule
) -> Report:
    """The report of a launch, with its certificate. Memory is as this launch left it, whatever is raised.

    run: launches under the sanitizer, as evidence.
    again: launches in another schedule, without the sanitizer.
    memory: what the launch may write, taken before it.
    schedule: of `run`.

    Raises what `run` raises; a fault has the certificate as `certificate`.
    """
    try:
        report = run()
    except ExecutionFault as fault:
        fault.__dict__["certificate"] = of_fault(fault, schedule)
        raise
    found = first_look(report.evidence, schedule)
    if found.verdict == NOT_DECIDED:
        memory.keep()
        try:
            found = _search(found, again, memory, schedule)
        finally:
            memory.leave()
    report.certificate = found
    return report


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
            said = reason("other bytes than in the first schedule: " + _difference(piece))
            return Certificate(COUNTEREXAMPLE, (said, *found.reasons), found.rests_on, schedule, n + 1)
    return replace(found, tried=SCHEDULES + 1)


def _difference(piece: Any) -> str:
    differs = (piece.live != piece.wanted).nonzero()[0]
    label = getattr(piece.owner, "label", piece.owner) or "memory"
    return f"{len(differs)} byte{'s' * (len(differs) != 1)} of {label}, the first is byte {piece.start + int(differs[0])}"
