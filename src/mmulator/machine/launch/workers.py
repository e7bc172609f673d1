"""Running a grid: clusters over the cores, each on memory of its own, with a stop flag, a time limit and exact faults."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmulator.codegen.loading import address
from mmulator.errors import LimitReached
from mmulator.machine.launch.arena import pointer
from mmulator.machine.launch.faults import describe_fault
from mmulator.machine.launch.faults_warp import describe_deadlock, unfinished
from mmulator.machine.launch.grid import Grid
from mmulator.machine.launch.limits import check_host
from mmulator.machine.launch.resident import Resident
from mmulator.machine.runtime.scheduler import run_cluster
from mmulator.machine.state import Stop

MAX_RESIDENT = 264  # CTAs kept half-done while they wait for others
# Seconds until a cluster is set aside. Turns get shorter while none ends: perhaps all wait for one that has not begun.
LONGEST_TURN, SHORTEST_TURN = 0.1, 0.004
Progress = Callable[[int, int], None]


@dataclass
class Outcome:
    """instructions and macs executed; seconds of the run."""

    counts: np.ndarray
    seconds: float
    workers: int


class Workers:
    """Threads of the host that take clusters until none is left, one fails, or the caller stops them."""

    def __init__(self, grid: Grid, progress: Progress | None) -> None:
        self.grid, self.progress = grid, progress
        self.lock = threading.Lock()
        self.most = min(max(1, MAX_RESIDENT // grid.shape.cluster_size), check_host(grid.cluster_bytes, grid.workers))
        self.clusters = grid.shape.clusters
        self.next_cluster = 0
        self.finished = 0
        self.waiting: deque[Resident] = deque()
        self.spare: list[Resident] = []
        self.resident = 0
        self.begun: dict[int, Resident] = {}
        self.turn = LONGEST_TURN
        self.error: BaseException | None = None
        self.counts = np.zeros((grid.workers, len(grid.kernel.code)), np.uint64)
        first = pointer(self.counts)
        self.count_rows = [first + n * self.counts.strides[0] for n in range(grid.workers)]
        self.done = threading.Event()
        self.run_cluster = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(address(run_cluster))

    def take(self, turn: int) -> Resident | None:
        """A cluster to work on: a new one, or one that was set aside."""
        with self.lock:
            new = self.next_cluster < self.clusters and self.resident < self.most
            if self.waiting and (not new or turn % 2):
                return self.waiting.popleft()
            if not new:
                return None
            number = self.next_cluster
            self.next_cluster += 1
            self.resident += 1
            resident = self.spare.pop() if self.spare else None
        resident = resident or Resident(self.grid)
        resident.start(number)
        self.begun[number] = resident
        return resident

    def work(self, worker: int) -> None:
        try:
            turn = 0
            while self.error is None and not self.grid.stop[0]:
                resident = self.take(turn)
                if resident is None:
                    with self.lock:
                        if self.finished == self.clusters or self.resident == 0:
                            return
                    time.sleep(0.001)  # the rest is in other workers' hands
                    continue
                turn += 1
                self._run(resident, worker)
        except BaseException as error:
            self.error = self.error or error
            self.grid.stop[0] = 1
        finally:
            with self.lock:
                self.active -= 1
                if self.active == 0:
                    self.done.set()

    def _run(self, resident: Resident, worker: int) -> None:
        resident.counts[0] = self.count_rows[worker]
        cluster, since = resident.address, time.perf_counter()
        subscriber = self.grid.subscriber
        if subscriber is not None:
            resident.cluster["log"] = subscriber.log(worker)
        while True:
            result = self.run_cluster(cluster, 32 if self.turn == LONGEST_TURN else 8)
            if result != Stop.BUDGET or time.perf_counter() - since > self.turn:
                break
        if subscriber is not None:
            subscriber.settle(cluster)
        if result == Stop.BUDGET:
            with self.lock:
                self.waiting.append(resident)
                self.turn = max(SHORTEST_TURN, self.turn * 0.8)
        elif result == Stop.EXITED:
            with self.lock:
                self.finished += 1
                self.resident -= 1
                del self.begun[resident.number]
                self.turn = min(LONGEST_TURN, self.turn * 1.25)
                self.spare.append(resident)
                if self.progress:
                    self.progress(self.finished * resident.size, self.grid.shape.ctas)
        elif result == Stop.FAULT:
            raise describe_fault(self.grid, resident)
        elif result == Stop.BLOCKED:
            raise describe_deadlock(self.grid, resident)

    def run(self, timeout: float | None) -> Outcome:
        try:
            self.grid.placement.begin(timeout)
            return self._run_grid(timeout)
        finally:
            self.grid.finish()

    def _run_grid(self, timeout: float | None) -> Outcome:
        start = time.perf_counter()
        self.active = self.grid.workers
        if self.progress:
            self.progress(0, self.grid.shape.ctas)
        threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(self.grid.workers)]
        for t in threads:
            t.start()
        try:
            while not self.done.wait(0.05):
                if timeout is not None and time.perf_counter() - start > timeout:
                    break
        except KeyboardInterrupt:
            self._halt(threads)
            raise KeyboardInterrupt(f"{self._how_far()}; {unfinished(self.grid, self._begun())[0]}") from None
        finally:
            self._halt(threads)
        if self.error is not None:
            raise self.error
        if self.finished < self.clusters:
            raise self._too_late(timeout)
        return Outcome(self.counts.sum(axis=0), time.perf_counter() - start, self.grid.workers)

    def _halt(self, threads: list[threading.Thread]) -> None:
        self.grid.stop[0] = 1
        for t in threads:
            t.join()

    def _begun(self) -> list[Resident]:
        return [self.begun[n] for n in sorted(self.begun)]

    def _how_far(self) -> str:
        shape = self.grid.shape
        return f"{self.finished * shape.cluster_size} of {shape.ctas} blocks are done"

    def _too_late(self, timeout: float | None) -> LimitReached:
        where, first = unfinished(self.grid, self._begun())
        return LimitReached(
            f"{self.grid.kernel.program.entry.function.name} did not finish within {timeout:g} s: {self._how_far()}; {where}",
            span=first.instruction.span if first is not None and first.instruction is not None else None,
            hint="an endless loop, or a larger --timeout is needed",
        )
