"""The search for a smaller launch that fails in the same way: passes over what may go, until nothing goes any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mmulator.base.errors import MmulatorError
from mmulator.host.jobs.job import Job
from mmulator.observation.reduce import changes
from mmulator.observation.reduce.failure import FailureTrial, LaunchFailure
from mmulator.observation.reduce.program import KernelLines, LineKind

SMALL = 400  # instructions, up to which single statements are made simpler
Candidate = tuple[Job, KernelLines]


@dataclass
class Reduction:
    """A search.

    job, lines: the smallest launch so far that fails.
    trial: says whether another one does.
    failure: of the smallest one.
    smaller: is called for each one that is smaller.
    until: the time, of time.monotonic, at which no launch is begun any more.
    """

    job: Job
    lines: KernelLines
    trial: FailureTrial
    failure: LaunchFailure
    smaller: Callable[[Reduction], None] = lambda _: None
    until: float = float("inf")
    whole: bool = True  # False where time was up, or a user did not want to wait
    taken: int = 0  # candidates

    def __call__(self) -> None:
        """Make it smaller, until nothing more goes, time is up, or Ctrl-C."""
        try:
            self._passes()
        except KeyboardInterrupt:
            self.whole = False

    def _passes(self) -> None:
        self._sliced()
        if self.lines.instructions > SMALL:  # what the values are that fail, seldom matters
            self._lines(lambda lines: changes.forwarded(lines, self._failing))
            self._sliced()
        before = -1
        while before != self.taken and self.whole:
            before = self.taken
            self._launch(partial(changes.shapes, cut=self.cuts))
            if not before:
                self._sliced()
            self._thinned(LineKind.STATEMENT)
            if self.lines.instructions <= SMALL:
                self._lines(changes.forwarded)
            self._greedy(lambda: changes.fewer(self.job, self.lines))
            self._thinned(LineKind.DECLARATION)
            self._launch(partial(changes.values, cut=self.cuts))
            if self.lines.instructions <= SMALL:
                self._lines(partial(changes.simpler, cut=self.cuts))

    @property
    def _failing(self) -> set[int]:
        """The numbers of the lines that fail."""
        return {span.line - 1 for span in self.failure.spans}

    @property
    def cuts(self) -> bool:
        """Whether memory may have fewer bytes: not where an access beyond its end is what fails."""
        return "BOUNDS" not in self.trial.target.name.upper().replace("-", "_")

    def take(self, job: Job, lines: KernelLines) -> bool:
        """Whether a candidate fails in the same way; then it is the smallest so far."""
        if time.monotonic() > self.until:
            self.whole = False
        found = self.trial(job, lines) if self.whole else None
        if found is not None:
            self.job, self.lines, self.failure, self.taken = job, lines, found, self.taken + 1
            self.smaller(self)
        return found is not None

    def _greedy(self, candidates: Callable[[], Iterator[Candidate]]) -> None:
        """Take what fails, and go on behind it among the candidates that the smaller launch has."""
        at, going = 0, True
        while going:
            going = False
            for n, (job, lines) in enumerate(candidates()):
                if n >= at and self.take(job, lines):
                    at, going = n, self.whole
                    break

    def _launch(self, of: Callable[[Job], Iterator[Job]]) -> None:
        self._greedy(lambda: ((job, self.lines) for job in of(self.job)))

    def _lines(self, of: Callable[[KernelLines], Iterator[KernelLines]]) -> None:
        self._greedy(lambda: ((self.job, lines) for lines in of(self.lines)))

    def _sliced(self) -> None:
        """Try what the instructions of the failure are computed from, alone."""
        if self.failure.spans and self.lines.instructions > SMALL // 10:
            try:
                found = [*changes.slices(self.lines, self._failing)]
            except MmulatorError:  # of a text that is not verified
                return
            any(self.take(self.job, lines) for lines in found)

    def _thinned(self, kind: LineKind) -> None:
        """Leave out pieces of lines of a kind, from the last on: halves first, and single lines in the end."""
        count = len(self.lines.of(kind))
        size = max(1, count // 2)
        going = count > 0
        while going and self.whole:
            going = size > 1
            end = len(numbers := self.lines.of(kind))
            while end > 0 and self.whole:
                begin = max(0, end - size)
                if self.take(self.job, changes.without(self.lines, {*numbers[begin:end]})):
                    numbers = self.lines.of(kind)
                    going = True
                end = begin
            size = max(1, size // 2)
