"""Changed kernels in the place of a test's kernels: which there are, and what becomes of one.

A `Watch` notes the kernels that a test launches. A `Mutated` runs a mutant in the place of one, with the memory of the original's
variables. A `Forged` runs the original, and puts other bytes where it has stored: what a test then passes does not look there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmulator.base.lazy import cached_property
from mmulator.base.source import Source
from mmulator.host.module import Kernel, Module
from mmulator.host.report import Report
from mmulator.host.text import Text, verified
from mmulator.observation.record.launches.snapshot import LaunchSnapshot
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.mutants import Mutant, mutants, useless
from mmulator.ptx.tree import Function
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

NOTICED, SURVIVED, EQUIVALENT, UNDECIDED, NOT_RUN = "noticed", "survived", "equivalent", "undecided", "not run"
SLOWER, LEAST = 20, 5.0  # times as long as the original, and seconds, after which a launch of a mutant is ended
Key = tuple[str, str]  # text of a module, name of a kernel: what is the same when a test is run again
_FORGED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "stores 0": lambda live, before: np.zeros_like(live),
    "stores nothing": lambda live, before: before,
    "stores random bytes": lambda live, before: np.random.default_rng(0).integers(0, 256, live.size, np.uint8),
}


def key_of(launch: Launch) -> Key:
    return launch.kernel.module.source.text, launch.kernel.name


@dataclass
class MutantOutcome:
    """The fate of one mutant.

    state: NOTICED or another of these words.
    words: how it was noticed, what tells it from the original, why it is the same, or why nothing is known.
    """

    mutant: Mutant
    state: str = NOT_RUN
    words: str = ""

    def as_dict(self) -> dict[str, Any]:
        m = self.mutant
        at = m.instruction.span.location
        source = f"{at.file}:{at.line}" if at else ""
        return {"kind": m.kind, "change": m.words, "line": m.instruction.span.line, "source": source, "statement": m.statement,
                "was": m.instruction.span.text, "state": self.state, "words": self.words}  # fmt: skip


@dataclass
class TestedKernel:
    """A kernel of a test. launches: of one run of the test. seconds: of the longest. zeros: all that they stored is 0."""

    kernel: Kernel
    launches: int = 0
    seconds: float = 0.0
    zeros: bool = True
    passes: list[str] = field(default_factory=list)  # names of _FORGED that the test does not notice
    alike: bool = False  # it notices random bytes in the first launch alone

    @cached_property
    def functions(self) -> list[Function]:
        return list(reached(self.kernel.module.tree, self.kernel.function).functions.values())

    @cached_property
    def outcomes(self) -> list[MutantOutcome]:
        """One for each mutant; nothing has been run."""
        return [MutantOutcome(mutant) for mutant in mutants(self.functions)]

    @property
    def vacuous(self) -> str:
        """The kernel that passes the test and should not; "" if none was found."""
        if "stores random bytes" in self.passes:
            how = "it compares the kernel with itself" if self.alike else "it does not look at what the kernel stores"
            return f"a kernel that stores 0, or random bytes, passes: {how}"
        if "stores 0" in self.passes:
            how = "with its inputs 0 is right everywhere" if self.zeros else "its tolerance is wider than the values"
            return f"a kernel that stores 0 passes: {how}" + ("" if self.zeros else ", or it looks at few of them")
        return "a kernel that stores nothing passes: its outputs are right before" if self.passes else ""

    def as_dict(self) -> dict[str, Any]:
        return {"kernel": self.kernel.name, "file": self.kernel.module.source.name, "vacuous": self.vacuous,
                "passes": self.passes, "mutants": [o.as_dict() for o in self.outcomes]}  # fmt: skip


class Watch:
    """Notes the kernels that are launched."""

    def __init__(self) -> None:
        self.kernels: dict[Key, TestedKernel] = {}

    def __call__(self, launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
        begun = time.perf_counter()
        report: Report = launch.kernel.run_itself(launch, how, observers)
        seen = self.kernels.setdefault(key_of(launch), TestedKernel(launch.kernel))
        seen.launches += 1
        seen.seconds = max(seen.seconds, time.perf_counter() - begun)
        return report


class Mutated:
    """Runs a mutant in the place of a kernel. Raises what is wrong with its text, when it is made.

    key: of the kernel.
    source: the text of the mutant.
    seconds: that a launch of the kernel takes.
    """

    def __init__(self, key: Key, source: Source, seconds: float) -> None:
        self.key, self.timeout, self.launches = key, LEAST + SLOWER * seconds, 0
        self.module = Module(Text.of(verified(source)), 0.0)  # such a text is never kept for another process

    def kernel(self, original: Kernel) -> Kernel:
        self.module.loaded.image = original.module.image  # variables are where the program has their addresses from
        return self.module[original.name]

    def run(self, launch: Launch, how: How, observers: Sequence[Observer] = ()) -> Report:
        """Run a launch of the original with the mutant."""
        self.launches += 1
        limit = min(self.timeout, how.timeout or self.timeout)
        kernel = self.kernel(launch.kernel)
        return kernel.run_itself(replace(launch, kernel=kernel), replace(how, timeout=limit), observers)

    def __call__(self, launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
        if key_of(launch) == self.key:
            return self.run(launch, how, observers)
        report: Report = launch.kernel.run_itself(launch, how, observers)
        return report


class Forged:
    """Runs a kernel as it is, and then puts other bytes where it has stored.

    first: only its first launch has them.
    """

    def __init__(self, seen: TestedKernel, key: Key, name: str, first: bool = False) -> None:
        self.seen, self.key, self.name, self.first, self.launches = seen, key, name, first, 0

    def __call__(self, launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
        mine = key_of(launch) == self.key
        self.launches += mine
        if not mine or (self.first and self.launches > 1):
            done: Report = launch.kernel.run_itself(launch, how, observers)
            return done
        snapshot = LaunchSnapshot(launch, how.seed, ())
        report: Report = launch.kernel.run_itself(launch, replace(how, threads=1), [*observers, snapshot.touched])
        snapshot.over()
        for piece in snapshot.pieces:
            if piece.written is not None:
                live = piece.live[piece.written]
                self.seen.zeros &= not live.any()
                piece.live[piece.written] = _FORGED[self.name](live, piece.before[piece.written])
        return report


def forgeries() -> tuple[str, ...]:
    return tuple(_FORGED)


def equivalent(seen: TestedKernel, mutant: Mutant) -> str:
    """The reason why a mutant is proved to be the same kernel; "" where it is not."""
    return "nothing that is stored, and no branch, depends on it" if useless(seen.functions, mutant.instruction) else ""

