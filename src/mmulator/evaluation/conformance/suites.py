"""Suites: sequences of instructions that are compared as a whole. Each kind makes its own cases and kernels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mmulator.evaluation.conformance import bulk, mbarriers, tensors
from mmulator.host.backend import Backend
from mmulator.isa.targets import Target

BATCH = 2000  # programs of a launch


@dataclass(frozen=True)
class Compared:
    """The comparison of one launch.

    cases: cases that ran.
    executions: of instructions.
    words: words compared.
    wrong: how many of them differ.
    first: the first difference in words.
    """

    cases: int
    executions: int
    words: int
    wrong: int
    first: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite. arch: the first target that has it. run: function (backend, seed, count) that runs `count` cases."""

    name: str
    group: str
    arch: int
    run: Callable[[Backend, int, int], Iterator[Compared]]

    def there(self, target: Target) -> bool:
        return target.number >= self.arch


def mbarrier_sequences(backend: Backend, seed: int, count: int, lanes: float) -> Iterator[Compared]:
    """Compare sequences of mbarrier operations. lanes: how many of the operations are executed by several lanes."""
    module = backend.load(mbarriers.kernel(str(backend.chip.target)))
    try:
        for first in range(0, count, BATCH):
            found = mbarriers.programs(seed * 1_000_003 + first, min(BATCH, count - first), lanes)
            words, wrong, said = mbarriers.differences(found, *mbarriers.run(backend, module, found))
            yield Compared(len(found), sum(len(p.steps) for p in found), words, wrong, said)
    finally:
        backend.close(module)


Batches = Iterator[tuple[int, tuple[int, int, str]]]  # cases of a launch; bytes, wrong ones of them, the first in words


def copies(
    backend: Backend, seed: int, count: int, run: Callable[[Backend, str, int, int], Batches], what: str
) -> Iterator[Compared]:
    """Compare copies of a kind, each of which is an execution."""
    for cases, (bytes, wrong, said) in run(backend, what, seed, count):
        yield Compared(cases, cases, bytes, wrong, said)


_ALL = (
    Suite("mbarrier sequences", "mbarrier: states and words", 90, partial(mbarrier_sequences, lanes=0.0)),
    Suite("mbarrier sequences of warps", "mbarrier: states and words", 90, partial(mbarrier_sequences, lanes=0.4)),
    *(Suite(f"bulk {what}", f"bulk copies: {what}", 90, partial(copies, run=bulk.compared, what=what)) for what in bulk.SUITES),
    *(Suite(f"tensor {what}", f"tensor copies: {what}", 90, partial(copies, run=tensors.compared, what=what))
      for what in tensors.SUITES),
)  # fmt: skip
SUITES: dict[str, Suite] = {s.name: s for s in _ALL}
