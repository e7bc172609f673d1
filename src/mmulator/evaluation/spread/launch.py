"""A launch on a Dask cluster: its clusters of blocks in ranges, memory merged by what each range wrote.

That is the launch on one machine if no byte that a range writes is written or read by another. So every byte is noted, and a
launch of which this is not so is refused; then, as whenever one is not carried out, all memory is as it was.
"""

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np

from mmulator import __version__
from mmulator.base.errors import ExecutionFault, LaunchError, LimitReached, MmulatorError
from mmulator.evaluation.spread import hosts
from mmulator.evaluation.spread.memory import Memory, Traces, conflict
from mmulator.evaluation.spread.worker import Package, Part, run_part
from mmulator.host.report import Report
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.printing import LIMIT
from mmulator.runtime.launch.regions import Region

RANGES = 4  # for each thread of the cluster: the fast ones take more
PATIENCE = 3  # times that a range tells what it has touched so far, until another one may have its thread: 4 s (worker.SLOW)


def check_shared_out(**given: Any) -> None:
    """Refuse a launch that one machine alone can run. given: its further arguments, by name. Raises LaunchError."""
    reasons = {
        "cooperative": "the blocks of a cooperative grid wait for each other, and workers do not hear of each other",
        "watch": "stores are listed in the order of one machine",
        "sanitize": "the sanitizer looks at all blocks together",
        "trace": "each machine has its own steps",
        "memory": "workers have addresses of their own",
        "nan": "the launch is run again on one machine",
        "profile": "counts are those of one machine",
        "threads": "each worker has threads of its own",
    }
    for name, reason in reasons.items():
        if given.get(name):
            raise LaunchError(f"{name}= does not go with workers=: {reason}", hint="leave one of the two out")


def cut(clusters: int, threads: int) -> list[tuple[int, int]]:
    """Ranges of clusters, as long as each other or one longer: two at least, where there are two clusters."""
    count = min(clusters, max(2, RANGES * threads))
    edges = [clusters * n // count for n in range(count + 1)]
    return list(pairwise(edges))


def launch_on(workers: Any, what: Launch, how: How) -> Report:
    """Run a launch of a module's kernel on a Dask cluster, and wait.

    Raises LaunchError for a launch that workers cannot share, or whatever ended it.
    """
    return _Spread(hosts.client_of(workers), what, how).run()


class _Spread:
    """A launch that workers share: ranges of clusters that are out, what came back of each, and how far each is."""

    def __init__(self, client: Any, launch: Launch, how: How) -> None:
        kernel, device, shape, arguments = launch.kernel, launch.device, launch.shape, launch.arguments
        self.client, self.kernel, self.entry, self.device, self.shape, self.how = client, kernel, kernel.name, device, shape, how
        source, image = kernel.module.source, kernel.module.image
        self.size, self.blocks = shape.cluster_size, shape.ctas
        self.threads = hosts.threads_of(client)
        self.ranges = cut(shape.clusters, self.threads)
        names = {address: name for name, address in image.addresses.items()}  # constants, which lie together, have their first's
        variables = [Region.of(start, bytes, f"variable {names[start]}", writable) for start, bytes, writable in image.buffers]
        self.memory = Memory.of(variables, arguments.buffers)
        name = f"mmulator-{uuid.uuid4().hex}"
        package = Package(
            name, __version__, source.name, source.text, kernel.name, device, shape, how.seed, how.timeout, arguments.params,
            tuple(arguments.offsets), self.memory,
        )  # fmt: skip
        each = [(n, *ends) for n, ends in enumerate(self.ranges)]
        self.calls = hosts.Calls(client, name, run_part, package, each, self._told)
        self.parts: dict[int, Part] = {}
        self.far: dict[int, int] = {}  # blocks that are done, of each range
        self.traces: dict[int, Traces] = {}  # so far, of ranges that go on
        self.fault: int | None = None  # the first range that has one
        self.reports: Counter[int] = Counter()  # of those: how often they were told

    def run(self) -> Report:
        try:
            return self._run()
        finally:
            self.calls.told = None  # which leads back here: memory is given up now

    def _run(self) -> Report:
        shape, timeout = self.shape, self.how.timeout
        started = time.perf_counter()
        if timeout is not None:
            self.calls.late = time.monotonic() + 2 * timeout  # for compilation, and again
        try:
            self._show()
            with closing(self.calls.results()) as results:
                for number, part in results:
                    self._ended(number, part)
        except TimeoutError:
            raise self._too_late(timeout or 0) from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{self._how_far()}; nothing was stored") from None
        self._refuse()
        parts = [self.parts[n] for n in sorted(self.parts) if self.fault is None or n <= self.fault]
        for part in parts:
            self.memory.store(part.written, part.data)
        if self.fault is not None and (error := parts[-1].error):
            raise error
        compiled = max(p.compile for p in parts)
        return Report(
            self.entry, self.device, shape.grid, shape.block, self.kernel.static_shared + shape.shared, self.how.seed,
            min(self.threads, len(parts)),
            _sum(p.instructions for p in parts), sum(p.macs for p in parts),
            {"parse": self.kernel.module.parse_seconds, "compile": compiled,
             "run": max(time.perf_counter() - started - compiled, 0.0)},
            all(p.cached for p in parts), list(dict.fromkeys(note for p in parts for note in p.notes)),
            "".join(p.output for p in parts)[:LIMIT], cluster=shape.cluster,
        )  # fmt: skip

    # what comes -----------------------------------------------------------------------------------------------------
    def _ended(self, number: int, part: Part) -> None:
        self.parts[number] = part
        self.traces.pop(number, None)
        if part.stopped is not None:
            raise self._too_late(self.how.timeout or 0, part.stopped.partition("; ")[2])
        if isinstance(part.error, ExecutionFault):
            if self.fault is None or number < self.fault:
                self.fault = number
                self.calls.halt([n for n in self.calls.futures if n > number])
        elif part.error is not None:
            raise part.error
        else:
            begin, end = self.ranges[number]
            self.far[number] = (end - begin) * self.size
            self._show()
        if self.traces:
            self._refuse()

    def _told(self, message: Sequence[Any]) -> None:
        """How far a range is, and what it has touched until then if it seems to wait."""
        number, done, *maps = message
        if number in self.parts:
            return
        if self.far.get(number, 0) != done:
            self.far[number] = done
            self._show()
        if maps:
            read, written = (np.frombuffer(m, np.int64).reshape(-1, 2) for m in maps)
            self.traces[number] = Traces(number, read, written)
            self._refuse()
            self.reports[number] += 1
            begun = {*self.far, *self.parts, *self.traces}
            if self.reports[number] == PATIENCE and len(self.traces) >= self.threads and len(begun) < len(self.ranges):
                self.calls.aside(number)  # perhaps it waits for one that has had no thread yet

    def _show(self) -> None:
        if self.how.progress:
            self.how.progress(sum(self.far.values()), self.blocks)

    def _refuse(self) -> None:
        """Raises LaunchError if ranges have touched what others wrote."""
        done = [Traces(n, p.read, p.written) for n, p in sorted(self.parts.items())]
        found = conflict([*done, *self.traces.values()])
        if found is None:
            return
        first, second, byte = self._name(found.first), self._name(found.second), self.memory.describe(found.byte)
        what = f"{first} and {second} both write {byte}" if found.both_write else f"{second} read {byte}, which {first} write"
        raise LaunchError(
            f"the blocks of {self.entry} cannot be shared out among workers: {what}",
            rule="on several machines no block may use what others write, nor write where they do",
            hint="launch it on one machine: without workers= (--dask); all memory is as it was",
        )

    # sentences ------------------------------------------------------------------------------------------------------
    def _name(self, number: int) -> str:
        begin, end = self.ranges[number]
        if self.size > 1:
            return f"the blocks of cluster {begin}" if end == begin + 1 else f"the blocks of clusters {begin} to {end - 1}"
        x, y, _ = self.shape.grid
        first, last = (f"({n % x}, {n // x % y}, {n // (x * y)})" for n in (begin, end - 1))
        return f"block {first}" if end == begin + 1 else f"blocks {first} to {last}"

    def _how_far(self) -> str:
        return f"{sum(self.far.values())} of {self.blocks} blocks are done"

    def _too_late(self, timeout: float, where: str = "") -> MmulatorError:
        where = f"; {where}" if where else ""
        return LimitReached(
            f"{self.entry} did not finish within {timeout:g} s: {self._how_far()}{where}",
            hint="an endless loop, or a larger --timeout is needed",
        )


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total.most_common())
