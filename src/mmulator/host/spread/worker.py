"""A range of clusters on a worker: on a copy of the launch's memory, on one thread, with a note of each byte that is touched."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mmulator import hosts
from mmulator.codegen.locks import Lock, TimeUp, time_limit
from mmulator.compiler.compiled import CompiledKernel
from mmulator.compiler.options import CompileOptions, in_clusters
from mmulator.diagnostics.touched import Runs, Touched, runs_of, taken
from mmulator.errors import ExecutionFault, LaunchError, MmulatorError
from mmulator.host.backend import Request
from mmulator.host.cpu import Cpu, CpuModule
from mmulator.host.spread.memory import Memory
from mmulator.host.text import Text
from mmulator.launch.arguments import Arguments, Buffer
from mmulator.source import Source

Extent = tuple[int, int, int]
NONE: Runs = np.zeros((0, 2), np.int64)
MOMENT = 0.5  # seconds until a range says how far it is
SLOW = 1.0  # seconds without an end of a cluster, until it says what it has touched so far; from then on twice as many
MANY = 1 << 16  # runs that are too many to be said meanwhile
_CPU = Cpu()
_loading = Lock()


@dataclass(frozen=True)
class Package:
    """A launch as it is sent. name: of the calls. file, text: of the PTX. params: the parameter memory; offsets: of
    each parameter in it."""

    name: str
    version: str
    file: str
    text: str
    entry: str
    device: str
    grid: Extent
    block: Extent
    shared: int
    cluster: Extent | None
    seed: int
    timeout: float | None
    params: np.ndarray
    offsets: tuple[int, ...]
    memory: Memory


@dataclass
class Part:
    """What came of a range. data: the bytes of `written`. error: what ended it. stopped: how far it was when it was told to end,
    or its time was up. compile: seconds."""

    read: Runs = field(default_factory=lambda: NONE)
    written: Runs = field(default_factory=lambda: NONE)
    data: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    instructions: dict[str, int] = field(default_factory=dict)
    macs: int = 0
    output: str = ""
    notes: list[str] = field(default_factory=list)
    cached: bool = False
    compile: float = 0.0
    error: MmulatorError | None = None
    stopped: str | None = None


@lru_cache(maxsize=32)
def _loaded(file: str, text: str) -> CpuModule:
    """A module of this process, whose variables nobody uses."""
    return CpuModule(Text.load(Source(file, text)))


def _kernel(package: Package, options: CompileOptions) -> CompiledKernel:
    with _loading:
        module = _loaded(package.file, package.text)
    with time_limit(package.timeout):
        return _CPU.compile(module, package.entry, package.device, options)


def run_part(package: Package, call: str, number: int, begin: int, end: int) -> Part:
    """Clusters of a launch from one number to before another."""
    part = Part()
    try:
        hosts.check_version(package.version)
        m = package.memory
        touched = Touched([(w.start, w.size, w.first) for w in m.windows], m.size)
        options = in_clusters(CompileOptions(events=touched.instrument), package.cluster)
        started = time.perf_counter()
        kernel = copy(_kernel(package, options))
        part.compile, part.cached = time.perf_counter() - started, kernel.from_cache
        row = m.copy()
    except TimeUp:
        part.error = LaunchError(f"{package.entry} was not compiled within {package.timeout:g} s on a worker; nothing was run")
        return part
    except MemoryError:
        part.error = LaunchError("a worker of the Dask cluster has not enough memory for the launch")
        return part
    except MmulatorError as error:
        part.error = error
        return part
    kernel.image, kernel.kept = copy(kernel.image), {}
    kernel.image.buffers = [(w.start, row[w.first : w.first + w.size], w.writable) for w in m.variables]
    buffers = [Buffer(w.start, row[w.first : w.first + w.size], w.label, w.writable) for w in m.arguments]
    far = _Far(call, package.name, number, touched, package.timeout)
    request = Request(
        package.grid, package.block, Arguments(package.params, package.offsets, buffers), package.shared, seed=package.seed,
        threads=1, progress=far.progress, cluster=package.cluster, part=(begin, end), meanwhile=far, touched=touched,
    )  # fmt: skip
    try:
        ran = _CPU.launch(kernel, request)
        assert ran.work is not None
        part.instructions, part.macs, part.output, part.notes = ran.work.instructions, ran.work.macs, ran.output, ran.notes
    except ExecutionFault as fault:
        part.error = fault
    except MmulatorError as error:
        part.error = error
        return part
    except KeyboardInterrupt as stop:
        part.stopped = str(stop)
        return part
    part.read, part.written = runs_of(touched.read), runs_of(touched.written)
    part.data = taken(row, part.written)
    return part


class _Far:
    """Is called now and then while a range runs: ends it if it is to stop, and tells the caller how far it is. A range in which
    nothing ends may wait for what another one does, which it never sees: so it tells what it has touched, too."""

    def __init__(self, call: str, name: str, number: int, touched: Touched, timeout: float | None) -> None:
        self.call, self.name, self.number, self.touched = call, name, number, touched
        self.done = self.told = 0
        now = time.monotonic()
        self.next, self.moved, self.slow = now + MOMENT, now, SLOW
        self.late = float("inf") if timeout is None else now + timeout

    def progress(self, done: int, total: int) -> None:
        if done != self.done:
            self.done, self.moved, self.slow = done, time.monotonic(), SLOW

    def __call__(self, where: Callable[[], str]) -> None:
        now = time.monotonic()
        if now > self.late or hosts.stopped(self.call):
            raise KeyboardInterrupt
        if now < self.next:
            return
        self.next = now + MOMENT
        if self.told != self.done:
            self.told = self.done
            hosts.tell(self.name, [self.number, self.done])
        if now - self.moved > self.slow:
            self.slow *= 2
            read, written = runs_of(self.touched.read), runs_of(self.touched.written)
            if len(read) + len(written) <= MANY:
                hosts.tell(self.name, [self.number, self.done, read.tobytes(), written.tobytes()])


