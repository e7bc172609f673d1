"""A job under the sanitizer: over several seeds, and without what its file expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmulator.base.errors import MmulatorError
from mmulator.base.findings import Finding, at_places, counted, grouped, places
from mmulator.base.rules import RULES, TOPICS
from mmulator.base.rules.choice import NOTES, chosen
from mmulator.base.schemas import document
from mmulator.host.campaign import Snapshot, campaign, raised
from mmulator.host.driver.seeds import reasons
from mmulator.host.jobs.suppressions import Suppression, sorted_out
from mmulator.host.module import Kernel
from mmulator.host.report import Report
from mmulator.sanitizer.sarif import Baseline

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SanitizerOptions:
    """Questions to a sanitized job.

    seeds: under how many the kernel runs, from the job's on.
    rules: what is looked for.
    certify: the first launch gets a certificate; "needed": and says what it needs.
    keep_going: after an access out of bounds the launch goes on.
    """

    seeds: int = 1
    rules: frozenset[str] = chosen("")
    certify: bool | str = False
    keep_going: bool = False


@dataclass(frozen=True)
class Judged:
    """Findings of a sanitized job. suppressed: what the launch file expects. idle: what it expects and is not there. seeds: that
    were run. quiet: of rules of severity note that were not asked for. known: what a baseline has, which is not told again."""

    findings: tuple[Finding, ...]
    suppressed: list[tuple[Finding, Suppression]]
    idle: list[Suppression]
    seeds: tuple[int, ...]
    rules: frozenset[str]
    quiet: tuple[Finding, ...] = ()
    known: tuple[Finding, ...] = ()

    @classmethod
    def of(
        cls, found: Sequence[Finding], wish: SanitizerOptions, expected: Sequence[Suppression], seeds: Sequence[int]
    ) -> Judged:  # fmt: skip
        notes = NOTES - wish.rules if wish.rules & set(RULES) - NOTES else frozenset()
        races = any(rule.name in wish.rules for rule in TOPICS["races"])
        asked = [f for f in found if f.rule in wish.rules or (races and f.is_error and f.rule in notes)]
        findings, suppressed, idle = sorted_out(asked, expected)
        quiet = tuple(f for f in found if f.rule in notes and not f.is_error)
        return cls(findings, suppressed, idle, tuple(seeds), wish.rules, quiet)

    def against(self, baseline: Baseline | None) -> Judged:
        """This judgement without the findings that the baseline, an earlier run, has; they are set aside as `known`."""
        if baseline is None:
            return self
        new = baseline.new(self.findings)
        told = {id(f) for f in new}
        return replace(self, findings=tuple(new), known=tuple(f for f in self.findings if id(f) not in told))

    @property
    def errors(self) -> int:
        return self._of("error")

    def _of(self, severity: str) -> int:
        return sum(group[0].severity == severity for group in grouped(self.findings))

    @property
    def last_line(self) -> str:
        """`3 findings (2 errors, 1 warning), of 2 rules; 1 suppressed`"""
        known = f"; {len(grouped(self.known))} known by the baseline" if self.known else ""
        none = "nothing new" if self.known else f"no findings: {self._looked_for}"
        said = counted(self.findings) if self.findings else none
        return said + known + (f"; {len(self.suppressed)} suppressed" if self.suppressed else "")

    @property
    def _looked_for(self) -> str:
        rules = len(self.rules)
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        whole = self.rules >= set(RULES) - NOTES
        return f"{'all ' * whole}{rules} rule{'s' * (rules != 1)} looked for, {seeds}"

    @property
    def notes(self) -> list[str]:
        """A line for each rule of severity note that was not asked for, and for what is expected and was not found."""
        quiet = [f"{at_places(rule, n)}; --strict tells where" for rule, n in places(self.quiet).items()]
        return [*quiet, *(f"nothing was found for [[suppress]] {s}" for s in self.idle)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return document("findings", {
            "errors": self.errors, "warnings": self._of("warning"), "seeds": list(self.seeds),
            "rules": sorted(self.rules),
            "findings": [f.as_dict() | {"group": n} for n, group in enumerate(grouped(self.findings)) for f in group],
            "known": len(grouped(self.known)),
            "suppressed": [f.as_dict() | {"reason": s.reason} for f, s in self.suppressed],
            "unused_suppressions": [str(s) for s in self.idle], "not_told": places(self.quiet),
        })  # fmt: skip


def run(
    launch: Callable[..., Report], kernel: Kernel, arrays: dict[str, np.ndarray], first: int, wish: SanitizerOptions,
    expected: Sequence[Suppression], progress: Progress | None = None,
) -> tuple[Report, Judged]:  # fmt: skip
    """The report of the first seed's launch, which is what memory has afterwards, and what all seeds found.

    launch: launch(seed=, progress=) sanitizes.
    kernel: the kernel; its module's variables are restored between launches.
    arrays: the arrays that launches may write, by name.
    first: the first seed.
    wish: how many seeds, and which rules.
    expected: findings that the launch file expects.
    progress: is called with ("seeds", done, all), and as `launch` calls it.

    Raises what the launches raise, with the findings of all so far, and `judged`.
    """
    variables = ((None, array) for _, array, writable in kernel.module.image.buffers if writable)
    memory = Snapshot([*variables, *((None, a) for a in {id(a): a for a in arrays.values()}.values())])
    seeds = range(first, first + wish.seeds)
    begun = 0
    reference: dict[str, np.ndarray] = {}
    unlike: list[tuple[int, str]] = []  # a seed, and an element that it leaves otherwise than the first

    def one(seed: int) -> Report:
        nonlocal begun
        begun = seed - first + 1
        done = launch(seed=seed, progress=progress if seed == first else None)
        if seed == first and wish.seeds > 1:
            reference.update((name, a.copy()) for name, a in arrays.items())
        return done

    def over(seed: int) -> None:
        unlike.extend((seed, said) for said in _differences(arrays, reference))
        if progress:
            progress("seeds", seed - first + 1, len(seeds))

    try:
        report, found = campaign(seeds, one, memory, over)
    except MmulatorError as error:
        error.__dict__["judged"] = Judged.of(error.findings, wish, expected, seeds[:begun])
        raise
    if unlike:
        names = [f"({re.split(r' is |[[]', said)[0]})" for _, said in unlike] if any(reasons(kernel)) else [""]
        found = raised(found, unlike[0][0], f": {unlike[0][1]}", names)
    judged = Judged.of(found, wish, expected, seeds)
    return report, judged


def _differences(arrays: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> Iterator[str]:
    for name, array in arrays.items():
        ours, theirs = (_bytes(a) for a in (array, reference[name]))
        wrong = (ours != theirs).any(axis=1)
        count = int(np.count_nonzero(wrong))
        if count:
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), array.shape))
            place = f"{name}[{', '.join(map(str, index))}]" if index else name
            more = f" ({count:,} of {array.size:,} elements differ)" if count > 1 else ""
            yield f"{place} is {array[index]} instead of {reference[name][index]}{more}"


def _bytes(array: np.ndarray) -> np.ndarray:
    """Rows, the bytes of an element each."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(-1, array.itemsize)
