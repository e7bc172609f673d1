"""A launch: what runs (`Launch`), how it runs on this machine (`How`), and what came of it (`Ran`).

`compile_options` says how the kernel of a launch has to be compiled. Observers (observers.py) are given beside the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.observers import Observer, instrument_of
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.options import CompileOptions

if TYPE_CHECKING:
    import numpy as np

    from mmulator.base.findings import Finding
    from mmulator.runtime.launch.work import Work

Progress = Callable[[int, int], None]
Meanwhile = Callable[[Callable[[], str]], None]


@dataclass(slots=True)
class Launch:
    """The description of a launch, for every backend.

    kernel: a `Kernel` of a module; for a backend, what its `compile` gave.
    shape: CTAs, threads, clusters, dynamic shared memory.
    arguments: parameter memory and buffers; the arrays of the buffers are updated in place.
    device: whose arithmetic it has; a backend's kernel has its own.
    back: arrays that are wanted afterwards; None: all.
    variables: (start address, bytes, writable) of the module's variables; None: the module's own memory.
    """

    kernel: Any
    shape: LaunchShape
    arguments: Arguments
    device: str = ""
    back: Sequence[np.ndarray] | None = None
    variables: Sequence[tuple[int, np.ndarray, bool]] | None = None

    def run(self, how: How, observers: Sequence[Observer] = (), **compiling: Any) -> Any:
        """Run a launch of a module's kernel on this machine; the report. Parameters as in `Kernel.run` (host/module.py)."""
        return self.kernel.run(self, how, observers, **compiling)

    def writable(self) -> list[tuple[int, np.ndarray]]:
        """(address, bytes) of the memory that it may write: what it was given, and variables of its kernel's module."""
        given = (b for b in (*self.arguments.buffers, *self.arguments.regions) if b.writable)
        variables = ((start, array) for start, array, writable in self.kernel.module.image.buffers if writable)
        return [*((b.start, bytes_at(b.host, b.size)) for b in given), *variables]


@dataclass(slots=True)
class Resumption:
    """A moment of a launch on one thread at which no cluster is half-done, to go on from.

    finished: clusters that are over.
    next: number of requests for a cluster so far (state.Line).
    taken: clusters that were taken while others waited.
    clock: the fields of the worker's clock of blocks (workers.Counted), and whether a cluster was running at its last tick.
    counts: executions of each block of code.
    """

    finished: int
    next: int
    taken: int
    clock: tuple[int, int, int, bool]
    counts: np.ndarray


@dataclass(slots=True)
class How:
    """How a launch runs on the CPU: what may be chosen freely for a kernel in order. A GPU reads nothing of it.

    seed: seed of the scheduler's choices: which warp goes first, when asynchronous operations complete.
    order: seed of the order in which clusters begin; None: they begin in order. Several numbers: threads, in the order of their
        turns (host/turns.py).
    threads: threads of the host; None: as many as there are cores.
    timeout: seconds that the run may take; None: no limit.
    slice: blocks of code, at most, after which another warp or CTA has its turn; 0: no limit.
    part: the clusters that run, from the first to before the second; None: all.
    sampled: a sample of the clusters runs, if none can wait for another; counts are as if all had (sample.py).
    step: every instruction is a block of code of its own.
    waits: an access to an accumulator of wgmma in flight waits, where ptxas makes it wait.
    keep_going: lanes whose access is out of bounds or misaligned are left out; needs an observer that hears of them.
    watched: global memory may have no value yet; needs an observer that follows values.
    progress: is called with CTAs that are done, and all.
    meanwhile: is called every few milliseconds with a function that says where the warps are; what it raises ends the launch.
    resume: where another run of the launch stood, which goes on here; the caller has brought its memory back.
    """

    seed: int = 0
    order: int | tuple[int, ...] | None = None
    threads: int | None = None
    timeout: float | None = None
    slice: int = 0
    part: tuple[int, int] | None = None
    sampled: bool = False
    step: bool = False
    waits: bool = False
    keep_going: bool = False
    watched: bool = False
    progress: Progress | None = None
    meanwhile: Meanwhile | None = None
    resume: Resumption | None = None


@dataclass(slots=True)
class Ran:
    """The result of a launch. A GPU says `seconds` alone.

    seconds: of the run.
    threads: threads of the host that it ran on.
    work: executed instructions.
    cached: the machine code came from the disk cache.
    notes: what a reader of the results should know.
    output: what the kernel printed.
    stores: stores to watched elements (WatchedStore), in order.
    findings: rules that the kernel broke.
    profile: sums for each instruction (observation/record/counts.py), if they were asked for.
    held: notes of the sanitizer that were not asked for.
    refused: what was not looked at, and why.
    evidence: for a certificate, if one was asked for (sanitizer/diagnostics/certificates/evidence.py).
    """

    seconds: float
    threads: int = 0
    work: Work | None = None
    cached: bool = False
    notes: list[str] = field(default_factory=list)
    output: str = ""
    stores: list[Any] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    profile: Any = None
    held: tuple[Finding, ...] = ()
    refused: tuple[str, ...] = ()
    evidence: Any = None


_made = lru_cache(maxsize=256)(CompileOptions)  # programs launch in the same ways again and again


def compile_options(shape: LaunchShape, how: How, observers: Sequence[Observer] = ()) -> CompileOptions:
    """How the kernel of a launch has to be compiled."""
    instrument = instrument_of(observers) if observers else None
    return _made(True, instrument, how.step, how.waits, shape.cluster_size > 1, how.keep_going, how.watched,
                 any(o.turns for o in observers))
