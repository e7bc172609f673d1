"""The need of a certified launch for each of its barriers, fences, waits and commits: it is certified again without them.

A line counts as one: what stands there by one name (in a function that was inlined at one place, in a loop that was unrolled) is
left out at once; where that breaks something, and there are several, also each alone. At last those that are not needed are left
out together, as far as that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from threading import get_ident
from typing import Any

from mmulator.base.errors import MmulatorError
from mmulator.base.findings import Finding
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, NEEDED, NOT_KNOWN, NOT_NEEDED, NOT_TRIED, Certificate, OrderNeed
from mmulator.host.instead import Instead, instead
from mmulator.host.report import Report
from mmulator.host.schedules import NeedQuestion
from mmulator.observation.strictness.trial import Mutated
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.mutants import Mutant, changed, without_order

Judged = Callable[[], tuple[Certificate, tuple[Finding, ...]]]
Group = tuple[Mutant, ...]
NOT_EXECUTED, GIVES = "the launch does not execute it", "it also gives a value, so leaving it out is no question of order"
_FREE = NOT_NEEDED, "", ()


def needed(asked: NeedQuestion, report: Report, first: Certificate, judged: Judged) -> tuple[OrderNeed, ...]:
    """The need for each line, in the order of the text. Ctrl-C ends the trials: what is left is not known.

    asked: the question.
    report, first: of the launch as it is.
    judged: certifies the launch with what stands in for its kernel; the findings, too.
    """
    kernel, trials = asked.kernel, _Trials(asked, report, first, judged)
    groups = _lines(without_order(reached(kernel.module.tree, kernel.function).functions.values()))
    rows: dict[Group, OrderNeed] = {}
    together: Group = ()
    try:
        for number, group in enumerate(groups):
            trials.progress(number, len(groups))
            rows |= trials.of_line(group)
        together = trials.together([group for group, row in rows.items() if row.is_free])
        trials.progress(len(groups), len(groups))
    except KeyboardInterrupt:
        rows |= {group: _row(group, NOT_KNOWN, NOT_TRIED) for group in groups if group not in rows}
    return tuple(replace(row, together=set(group) <= set(together)) for group, row in rows.items())


def _lines(mutants: Iterable[Mutant]) -> list[Group]:
    """Mutants of one name and line together; a line is that of the program with the calls it was inlined by, else of the PTX."""
    groups: dict[object, list[Mutant]] = {}
    for m in mutants:
        at, name = m.instruction.span.location, m.instruction.mnemonic
        line = [(call.file, call.line) for call in at.chain] if at else m.instruction.span.line
        groups.setdefault((m.function, str(line), name), []).append(m)
    return [tuple(group) for group in groups.values()]


def _row(group: Group, *said: Any) -> OrderNeed:
    spans = [m.instruction.span for m in group]
    return OrderNeed(spans[0].brief, tuple(s.line for s in spans), " ".join(spans[0].text.split()), *said)


def _of_this_thread(run: Instead) -> Instead:
    """A stand-in for launches of this thread, and of no other of the program."""
    mine = get_ident()
    return lambda launch, *how: run(launch, *how) if get_ident() == mine else launch.kernel.run_itself(launch, *how)


@dataclass
class _Trials:
    """Trials of a launch without some of its instructions; parameters as of `needed`."""

    asked: NeedQuestion
    report: Report
    first: Certificate
    judged: Judged

    def progress(self, done: int, of: int) -> None:
        if self.asked.progress is not None:
            self.asked.progress(done, of)

    def of_line(self, group: Group) -> dict[Group, OrderNeed]:
        """The row of a line; where its instructions are needed and several, a row for each of them, too."""
        row = self.tried(group)
        alone = [(m,) for m in group] if len(group) > 1 and row.verdict != NOT_NEEDED else []
        return {group: row} | {one: self.tried(one) for one in alone}

    def tried(self, group: Group) -> OrderNeed:
        if not any(m.instruction.span.start in self.report.evidence.executed for m in group):
            return _row(group, NOT_NEEDED, NOT_EXECUTED)
        if all(m.statement == m.instruction.span.text for m in group):
            return _row(group, NOT_KNOWN, GIVES)
        return _row(group, *self.without(group))

    def without(self, group: Group) -> tuple[str, str, tuple[str, ...]]:
        """The verdict of a launch without some instructions, the reason, and what its certificate rests on besides."""
        kernel = self.asked.kernel
        try:
            mutated = Mutated((kernel.module.source.text, kernel.name), changed(group), self.report.seconds["run"])
            with instead(_of_this_thread(mutated)):
                found, findings = self.judged()
        except MmulatorError as error:
            return NOT_KNOWN, f"without it the kernel cannot be run: {error.message}", ()
        if found.verdict != CERTIFIED:
            first = replace(found.reasons[0], location=PurePath(found.reasons[0].location).name)
            return NEEDED if found.verdict == COUNTEREXAMPLE else NOT_KNOWN, str(first), ()
        known = {(f.rule, f.location) for f in self.report.evidence.findings}
        notes = [f"{PurePath(f.location).name}: {f.message} [{f.rule}]" for f in findings if (f.rule, f.location) not in known]
        more = [said for said in found.rests_on if said not in self.first.rests_on]
        return NOT_NEEDED, "", tuple(more or notes)

    def together(self, free: Sequence[Group]) -> Group:
        """A set of what is not needed alone that can be left out at once, and to which nothing of the rest can be added."""
        every = tuple(m for group in free for m in group)
        if len(free) < 2 or self.without(every) == _FREE:
            return every
        kept: Group = ()
        for number, group in enumerate(free):
            self.progress(number, len(free))
            if not kept or self.without((*kept, *group)) == _FREE:
                kept += group
        return kept
