"""A range of clusters on a worker: on a copy of the launch's memory, on one thread, with a note of each byte that is touched."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mmulator.base.codegen.locks import Lock, TimeUp, time_limit
from mmulator.base.errors import ExecutionFault, LaunchError, MmulatorError
from mmulator.base.source import Source
from mmulator.evaluation.spread import hosts
from mmulator.evaluation.spread.memory import Memory
from mmulator.host.cpu import Cpu, CpuModule
from mmulator.host.text import Text
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import How, Launch, compile_options
from mmulator.runtime.launch.regions import Region
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.options import CompileOptions
from mmulator.sanitizer.diagnostics.touched import Runs, Touched, runs_of, taken

NONE: Runs = np.zeros((0, 2), np.int64)
MOMENT = 0.5  # seconds until a range says how far it is
SLOW = 1.0  # seconds without an end of a cluster, until it says what it has touched so far; from then on twice as many
MANY = 1 << 16  # runs that are too many to be said meanwhile
_CPU = Cpu()
_loading = Lock()


@dataclass(frozen=True)
class Package:
    """A launch as it is sent to workers.

    name: name of the calls.
    version: the sender's version of this package.
    file, text: name and text of the PTX.
    entry, device: the kernel, and whose arithmetic it has.
    shape, seed, timeout: as LaunchShape and How have them.
    params: the parameter memory, uint8; offsets: where each parameter begins in it.
    memory: the bytes of all arrays and variables.
    """

    name: str
    version: str
    file: str
    text: str
    entry: str
    device: str
    shape: LaunchShape
    seed: int
    timeout: float | None
    params: np.ndarray
    offsets: tuple[int, ...]
    memory: Memory


@dataclass
class Part:
    """The result of a range. data: the bytes of `written`. error: what ended it. stopped: how far it was when it was told to end,
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
        touched = Touched([(w.start, w.size, first) for w, first in m.windows], m.size)
        far = _Far(call, package.name, number, touched, package.timeout)
        how = How(package.seed, threads=1, part=(begin, end), progress=far.progress, meanwhile=far)
        started = time.perf_counter()
        kernel = _kernel(package, compile_options(package.shape, how, [touched]))
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
    variables = [(w.start, row[first : first + w.size], w.writable) for w, first in m.variables]
    buffers = [Region.of(w.start, row[first : first + w.size], w.label, w.writable) for w, first in m.arguments]
    arguments = Arguments(package.params, package.offsets, buffers)
    try:
        ran = _CPU.launch(Launch(kernel, package.shape, arguments, variables=variables), how, [touched])
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


