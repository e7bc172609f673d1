"""Certificates of a program's launches: each as its launch is over, and what they come to at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from mmulator.base.demangle import demangle
from mmulator.base.names import shorter
from mmulator.host.campaign import Snapshot
from mmulator.host.certificate import CERTIFIED, NOT_TRIED, VERDICTS, Certificate, Schedule
from mmulator.host.driver.functions import Function
from mmulator.host.driver.inquiries import Arrays
from mmulator.host.driver.progress import Launching
from mmulator.host.driver.seeds import memory_of
from mmulator.host.report import Report
from mmulator.host.schedules import NeedQuestion, certified
from mmulator.host.settings import Settings
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.regions import Regions

_NAME = 80  # characters of a kernel's name
STOPPED = "", ""
_asked: set[tuple[str, str]] = set()  # text and name of kernels of which it is known what they need; STOPPED: ask no more


def certify(
    function: Function, regions: Regions, settings: Settings, run: Callable[..., Report], arrays: Arrays, more: Any = None
) -> Report:
    """The report of a launch with its certificate; memory is as this launch left it.

    function, regions: the kernel, and the memory of the launch.
    settings: of the program.
    run: run(seed, settings, arrays, more) launches.
    arrays: as of Driver.launch.
    more: an observer of the sanitized run, for the order between launches.
    """
    plain = replace(settings, sanitize="", certify=False, keep_going=False, threads=1, seeds=1, profile="", trace="", why="",
                    nan="", capture="", record="", replay="", progress="never")  # fmt: skip
    memory = Snapshot(memory_of(function, regions), ((r.written, r.size) for r in regions if r.written is not None))

    def again(schedule: Schedule) -> Report:
        return run(schedule.seed, replace(plain, seed=schedule.seed, order=schedule.order), arrays)

    def look() -> Report:
        return run(settings.seed, replace(plain, threads=settings.threads, certify=True), arrays)

    def in_turns(observer: Observer) -> Report:
        return run(settings.seed, replace(plain, threads=1, order=None, certify=True), arrays, observer)

    first, key = Schedule(settings.seed, settings.order), (function.kernel.module.source.text, function.name)
    asks = settings.certify == "needed" and not {STOPPED, key} & _asked
    launching = Launching(function.name, settings.progress)
    left_out = partial(launching.explored, what="lines left out")
    asked = NeedQuestion(function.kernel, look, left_out) if asks else None
    try:
        report = certified(
            lambda: run(settings.seed, settings, arrays, more), again, memory, first, in_turns, launching.explored, asked
        )
    finally:
        launching.close()
    found = report.certificate
    if found and found.needed is not None:
        _asked.add(STOPPED if any(row.reason == NOT_TRIED for row in found.needed) else key)
    return report


def told(kernel: str, certificate: Certificate) -> str:
    """The line about a launch that is not certified; those about what it needs."""
    name = shorter(demangle(kernel), _NAME)
    again = f"; again: exec {certificate.schedule.options}" if certificate.schedule is not None else ""
    return "\n".join([f"{name}: {certificate}{again}", *certificate.lines_of_needed()])


def summary(verdicts: Iterable[str]) -> str:
    """`3 launches certified, 1 not decided`; "" for none."""
    counts = Counter(verdicts)
    found = [(counts[v], v) for v in VERDICTS if counts[v]]
    if not found:
        return ""
    n, first = found[0]
    rest = "".join(f", {n} {verdict}" for n, verdict in found[1:])
    return f"{n} launch{'es' * (n != 1)} {first}{rest}"


__all__ = ["CERTIFIED", "certify", "summary", "told"]
