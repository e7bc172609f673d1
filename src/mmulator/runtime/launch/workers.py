"""Running a grid: clusters over the cores, each on memory of its own, with a stop flag, a time limit and exact faults.

The caller's thread works too, a piece of a few milliseconds at a time, so that it hears of Ctrl-C and of its time limit in
between. Others join when there is more to do than a moment's work. Only where native code may call Python the caller waits:
what is raised in there would be lost.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.codegen import loading
from mmulator.base.codegen.locks import no_fork
from mmulator.base.errors import ExecutionFault, LaunchError, LimitReached
from mmulator.runtime.launch import crew
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid, order
from mmulator.runtime.launch.launch import How, Resumption
from mmulator.runtime.launch.limits import check_host
from mmulator.runtime.launch.observers import instrument_of
from mmulator.runtime.launch.resident import Resident, packs_for
from mmulator.runtime.native.matrix.tensor_state import TALLIES
from mmulator.runtime.native.state import Share, Stop

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.compiled import CompiledKernel
    from mmulator.runtime.launch.sample import Sample
    from mmulator.runtime.launch.shape import LaunchShape

MAX_RESIDENT = 264  # CTAs kept half-done while they wait for others
# Seconds until a cluster is set aside. Turns get shorter while none ends: perhaps all wait for one that has not begun.
LONGEST_TURN, SHORTEST_TURN = 0.1, 0.004
# One worker counts blocks of code instead, so that the order of clusters is the same on each machine: the most, for kernels
# without matrix instructions, and how often a turn gets shorter by a fifth.
COUNTED_TURN, SHORTER = 1 << 20, 20
LEAST_TURN = 1024  # such blocks, however short turns get: who waits for another in a loop soon has them behind it
MEETING = 256  # a turn, where all clusters wait for each other (cooperative launches)
MOMENT = 0.0003  # seconds of work that are not worth another thread
PIECE = 0.002  # seconds that native code runs before it is asked again, about
FIRST, MOST = 4096, 1 << 24  # blocks of code in a piece, at first and at most
FIRST_MACS = 1 << 20  # and multiply-accumulates at first
SHARE, MOST_SHARED = 200e-6, 256  # seconds of work that a worker takes at once, and clusters
WORDS = 16  # in two lines of the cache, which are fetched together
ROUND = 0.05  # seconds until who waits looks up
_OVER = None, -1  # a cluster that is over
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)


@cache
def _runner(instrument: Instrument | None) -> Callable[[int, int], int]:
    """The function that runs clusters, under an instrument; it has been loaded with a kernel's code."""
    name = "run_clusters"
    if instrument is None and (known := loading.symbols([name])):
        return _RUN(known[name])
    with no_fork:
        from mmulator.runtime.native.threads.scheduler import run_clusters
    return _RUN(loading.address(run_clusters.under(instrument) or run_clusters))


@cache
def _sampler() -> Callable[[CompiledKernel, LaunchShape], Sample | None]:
    """The function that chooses the clusters that run; few programs measure, so others do not import it."""
    with no_fork:
        from mmulator.runtime.launch.sample import of_launch
    return of_launch


class Diagnosis(Protocol):
    """The function that says in words why clusters do not go on: the error to raise, or where their warps are and the
    instruction of the first lanes that run."""

    def describe_fault(self, grid: Grid, resident: Resident) -> ExecutionFault: ...
    def describe_deadlock(self, grid: Grid, resident: Resident) -> ExecutionFault: ...
    def describe_livelock(self, residents: Sequence[Resident]) -> ExecutionFault: ...
    def unfinished(self, grid: Grid, residents: Sequence[Resident]) -> tuple[str, Instruction | None]: ...


@dataclass
class Outcome:
    """counts: executions of each block of code; behind them, TALLIES of tensor memory. seconds of the run."""

    counts: np.ndarray
    seconds: float
    workers: int


class _Late(Exception):
    """The time limit has passed."""


class Counted:
    """A clock of blocks of code, for one worker. It ticks at the end of each turn, and a cluster that has run since the tick
    before is set aside. Nothing here knows when the worker looked up: the order of clusters follows from the kernel alone."""

    def __init__(self, longest: int) -> None:
        self.longest = self.left = longest  # blocks of code of a turn; until the next tick
        self.shorter = 0  # by how many fifths turns are shorter, since clusters end seldom
        self.running: tuple[Resident | None, int] | None = None  # at the last tick: its memory, its number
        self.finished = 0  # clusters, until then

    def begin(self, resident: Resident, new: int) -> None:
        """A worker goes on with a cluster, or with the next, whose number is `new`. The first after a tick has the turn."""
        if self.running is None:
            self.running = resident, resident.number if resident.begun[0] else new

    def ran(self, resident: Resident, budget: int, finished: int) -> bool:
        """Native code is back, with some of its budget left perhaps. finished: clusters so far, but for this memory's. Whether
        the cluster is to be set aside."""
        self.left -= budget - int(resident.left[0])
        if self.left > 0:
            return False
        begun = bool(resident.begun[0])
        over = begun and self.running == (resident, resident.number)
        finished += int(resident.finished[0])
        self.shorter = max(0, self.shorter - (finished - self.finished))
        self.shorter = min(self.shorter + over, SHORTER)
        self.finished = finished
        self.running = (resident, resident.number) if begun and not over else None
        self.left = max(self.longest * 4**self.shorter // 5**self.shorter, min(self.longest, LEAST_TURN))
        return over


def _counters(workers: int, blocks: int) -> tuple[np.ndarray, np.ndarray | None]:
    """A row of zeros for each worker, a number for each block of code; and the Shares in memory, where there are several. No two
    rows share a line of the cache: the workers count at every block."""
    if workers == 1:
        return np.zeros((1, blocks), np.uint64), None
    width = WORDS + -(-blocks // WORDS) * WORDS
    memory = np.zeros((workers + 1) * width, np.uint64)
    skip = -pointer(memory) // 8 % WORDS
    rows = memory[skip : skip + workers * width].reshape(workers, width)
    return rows[:, WORDS : WORDS + blocks], rows[:, : Share.size // 8]


class Workers:
    """Threads of the host that take clusters until none is left, one fails, or the caller stops them."""

    def __init__(self, grid: Grid, how: How, diagnosis: Callable[[], Diagnosis], spare: Sequence[Resident] = ()) -> None:
        """Workers of a grid that has not begun.

        grid: what all CTAs of the launch share.
        how: order, part, sampled, slice, progress and meanwhile of the launch; threads and seed are the grid's already.
        diagnosis: gives what says why a run ends; it is loaded when there is something to say.
        spare: memory of clusters that nobody uses.
        """
        self.grid, self.diagnosis, self.progress, self.meanwhile = grid, diagnosis, how.progress, how.meanwhile
        self.timeout, part, slice = how.timeout, how.part, how.slice
        self.lock = threading.Lock()
        self.news: threading.Condition | None = None  # a cluster may be taken, or a thread is done; where there are threads
        size = grid.shape.cluster_size
        begin, end = part or (0, grid.shape.clusters)
        self.sample = _sampler()(grid.kernel, grid.shape) if how.sampled else None
        self.size, self.clusters = size, end - begin if self.sample is None else len(self.sample.numbers)
        room = check_host(grid.cluster_bytes, grid.workers)
        if grid.shape.cooperative and room < self.clusters:
            held = f"{room * size} of the {grid.shape.ctas} blocks"
            raise LaunchError(f"the memory of this machine holds {held} of a cooperative grid")
        self.most = self.clusters if grid.shape.cooperative else min(max(1, MAX_RESIDENT // size), room)
        self.line = grid.line  # of those that have not begun
        if self.sample is not None:
            self.line.begin(self.clusters, self.sample.numbers.tolist())
        elif isinstance(how.order, int):
            self.line.begin(self.clusters, *order(self.clusters, self.most, how.order))
        elif part is not None:
            self.line.begin(end, taken=begin)
        self.finished = 0
        self.waiting: deque[Resident] = deque()  # set aside half-done
        self.spare, self.residents = list(spare), list(spare)  # memory of clusters that nobody uses, and all of it
        self.resident = 0  # of them in use
        self.turn = LONGEST_TURN
        self.taken = 0  # clusters that were taken while others waited
        self.active = 0  # threads besides the caller's
        self.called: set[int] = set()  # those of them that have not come yet
        observers = grid.observers
        self.alone = not (grid.kernel.prints or any(o.calls for o in observers))  # the caller works, too
        self.error: BaseException | None = None
        self.counts, self.shares = _counters(grid.workers, len(grid.kernel.code) + TALLIES * bool(grid.kernel.matrix.tensor))
        self.first_count, self.next_count = pointer(self.counts), self.counts.strides[0]
        # times: when others join (never again then), when the time is up, when better code of the kernel pays
        self.joined = self.deadline = self.improved = self.start = float("inf")
        first = min(FIRST, FIRST_MACS // (grid.kernel.most_macs or 1)) or 1
        self.meet = grid.shape.cooperative and self.clusters > 1  # they wait for each other: turns are short from the start
        self.piece = first if self.meet else grid.kernel.piece or first
        if slice:
            grid.launch["slice"] = slice
        longest = MEETING if self.meet else slice or max(COUNTED_TURN * first // FIRST, 1)
        self.counted = Counted(longest) if grid.workers == 1 else None
        if observers or self.meet or slice:
            self.shares = None
        self.paced = self.shares is None  # or it is known how long a cluster takes
        if self.shares is not None:
            self.shares[:, 3] = grid.workers
            if grid.kernel.pace:
                self._pace(grid.kernel.pace)
        self.native = _runner(instrument_of(observers) if observers else None)
        if how.resume is not None:
            self._resume(how.resume)
        for observer in observers:
            observer.run_by(self)

    @property
    def moment(self) -> Resumption | None:
        """Where the launch stands, if one worker runs it and no cluster is half-done."""
        clock = self.counted
        if clock is None or self.waiting or any(r.begun[0] for r in self.residents):
            return None
        times = clock.left, clock.shorter, clock.finished, clock.running is not None
        return Resumption(self.finished, self.line.taken, self.taken, times, self.counts[0].copy())

    def _resume(self, at: Resumption) -> None:
        """Stand where another run stood."""
        assert self.counted is not None
        self.finished, self.taken = at.finished, at.taken
        self.line.skip(at.next)
        self.counts[0] = at.counts
        self.counted.left, self.counted.shorter, self.counted.finished, running = at.clock
        if running:  # at the last tick, and over since
            self.counted.running = _OVER

    def _pace(self, seconds: float) -> None:
        """A cluster takes so long: workers take as many neighbours as are work for a while."""
        assert self.shares is not None
        self.shares[:, 2] = min(int(SHARE / max(seconds, 1e-9)), MOST_SHARED)
        self.paced = True

    # clusters to work on --------------------------------------------------------------------------------------------
    def _new(self, worker: int) -> bool:
        """Whether a worker may begin a cluster."""
        if self.resident >= self.most:
            return False
        return self.line.left > 0 or (self.shares is not None and bool(self.shares[worker, 0] < self.shares[worker, 1]))

    def more(self, worker: int) -> bool:
        """Whether there is something to take."""
        return bool(self.waiting) or self._new(worker)

    def take(self, worker: int) -> Resident | None:
        """Memory to work in: for new clusters, as many as there are, or with one that was set aside, by turns."""
        with self.lock:
            new = self._new(worker)
            if self.waiting:
                self.taken += 1
                if not new or self.taken % 2 == 0:
                    return self.waiting.popleft()
            if not new:
                return None
            self.resident += 1
            resident = self.spare.pop() if self.spare else None
        if resident is None:
            resident = Resident(self.grid)
            self.residents.append(resident)
            for observer in self.grid.observers:
                observer.attach(resident)
        return resident

    def _settle(self, resident: Resident, over: bool) -> bool:
        """Account for what ended. Whether the worker goes on, unless its turn is over."""
        with self.lock:
            done = int(resident.finished[0])
            if done:
                resident.finished[0] = 0
                self.finished += done
                self.turn = min(LONGEST_TURN, self.turn * 1.25 ** min(done, 16))
            begun = resident.begun[0]
            if not begun:
                self.resident -= 1
                self.spare.append(resident)
            elif over:
                self.waiting.append(resident)
                self.turn = max(SHORTEST_TURN, self.turn * 0.8)
            if self.news is not None:
                self.news.notify_all()
            if done and self.progress:
                self.progress(self.finished * self.size, self.clusters * self.size)
            return bool(begun) and not over

    def _run(self, resident: Resident, worker: int) -> None:
        """Run clusters until they are over, or for a turn."""
        resident.counts[0] = self.first_count + worker * self.next_count
        resident.share[0] = 0 if self.shares is None else pointer(self.shares) + worker * self.next_count
        observers = self.grid.observers
        for observer in observers:
            observer.take(resident, worker)
        if self.grid.kernel.matrix.wgmma:
            resident.cluster["packs"] = packs_for(self.grid.kernel.matrix)
        cluster, native, counted = resident.address, self.native, self.counted
        if counted is not None:
            counted.begin(resident, self.line.next)
        since = before = time.perf_counter()
        number = resident.number
        while True:
            budget = self.piece if counted is None else min(self.piece, counted.left)
            resident.others[0] = self.finished + 1 < self.clusters
            resident.single[0] = bool(self.waiting) or any(o.apart for o in observers)
            result = native(cluster, budget)
            now = time.perf_counter()
            if number != resident.number:  # another has begun meanwhile
                number, since = resident.number, before
            over = self.meet or now - since > self.turn if counted is None else counted.ran(resident, budget, self.finished)
            if result == Stop.ASLEEP:  # perhaps it waits for others
                over = True
            elif result != Stop.BUDGET:
                break
            took, before = now - before, now
            if not self.paced and resident.finished[0]:
                self._pace(took / int(resident.finished[0]))
            if took > 2 * PIECE:
                self.piece = max(int(budget * PIECE / took), 1)
            elif took < PIECE / 2 and budget == self.piece and not self.meet:
                self.piece = min(2 * self.piece, MOST)
            if not self._settle(resident, over):
                break
            if not worker and self.alone:
                self.look(now)
        if observers:
            for observer in observers:
                observer.settle(cluster)
            finished = self.finished  # before the look: others finish meanwhile
            begun = self._begun()
            if len(begun) == self.clusters - finished and any(o.stalled(begun, finished) for o in observers):
                raise self._told(self.diagnosis().describe_livelock(begun), *begun)
        if result in (Stop.EXITED, Stop.INTERRUPTED):
            self._settle(resident, True)
        elif result == Stop.FAULT:
            raise self._told(self.diagnosis().describe_fault(self.grid, resident), resident)
        elif result == Stop.BLOCKED:
            raise self._told(self.diagnosis().describe_deadlock(self.grid, resident), resident)

    def _told(self, error: ExecutionFault, *residents: Resident) -> ExecutionFault:
        """Observers hear of what ends the run, and in which clusters."""
        for observer in self.grid.observers:
            observer.stopped(error, residents)
        return error

    # threads --------------------------------------------------------------------------------------------------------
    def join_in(self, number: int) -> None:
        """More threads."""
        self.news = threading.Condition(self.lock)
        for worker in range(self.alone, self.alone + number):
            with self.lock:
                self.called.add(worker)
                self.active += 1
            try:
                crew.call(partial(self.work, worker))
            except BaseException:  # it may have been called nevertheless
                with self.lock:
                    if worker in self.called:
                        self.called.remove(worker)
                        self.active -= 1
                raise

    def work(self, worker: int) -> None:
        """The work of such a thread."""
        with self.lock:
            if worker not in self.called:
                return
            self.called.remove(worker)
        try:
            while not self.grid.stop[0]:
                resident = self.take(worker)
                if resident is not None:
                    self._run(resident, worker)
                    continue
                with self.lock:
                    if self.finished == self.clusters or self.resident == 0:
                        break
                    if not self.more(worker) and self.news is not None:
                        self.news.wait(ROUND)  # the rest is in other workers' hands
        except BaseException as error:
            self.fail(error)
        finally:
            with self.lock:
                self.active -= 1
                if self.news is not None:
                    self.news.notify_all()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.grid.stop[0] = 1

    def look(self, now: float) -> None:
        """The check of the caller between two pieces of work: whether there is enough to do for more threads, and its time."""
        if self.joined < now and self.grid.workers > 1:
            more = min(self.grid.workers - 1, self.line.left + len(self.waiting))
            if more > 0:
                self.joined = float("inf")
                self.join_in(more)
        if self.meanwhile is not None:
            self.meanwhile(self.where)
        if now > self.improved:
            self.grid.kernel.blocks.improve()
            self.improved = max(now, self.start + self.grid.kernel.blocks.patience)
        if now > self.deadline:
            raise _Late

    def lead(self) -> None:
        """The caller's thread."""
        while self.error is None and (self.active or self.finished < self.clusters):
            resident = self.take(0) if self.alone else None
            if resident is not None:
                self._run(resident, 0)
            else:
                with self.lock:
                    if self.active == 0:
                        return
                    if not (self.alone and self.more(0)) and self.news is not None:
                        self.news.wait(ROUND)
            if self.finished < self.clusters:
                self.look(time.perf_counter())

    # the whole ------------------------------------------------------------------------------------------------------
    def run(self) -> Outcome:
        """Run all clusters, and bring what was stored to the caller's arrays. Raises what ended the run."""
        try:
            self.grid.placement.begin(self.timeout)
            return self._run_grid()
        finally:
            self.grid.finish()

    def _run_grid(self) -> Outcome:
        grid, timeout, start = self.grid, self.timeout, time.perf_counter()
        self.start, self.improved = start, start + grid.kernel.blocks.patience
        if timeout is not None:
            self.deadline = start + timeout
        self.joined = start + MOMENT
        if self.progress:
            self.progress(0, self.clusters * self.size)
        try:
            if not self.alone:
                self.joined = float("inf")
                self.join_in(grid.workers)
            elif grid.kernel.pace * self.clusters > 2 * MOMENT:
                self.joined = 0.0
                self.look(start)
            self.lead()
        except _Late:
            self._halt()
            raise self._too_late() from None
        except KeyboardInterrupt:
            self._halt()
            raise KeyboardInterrupt(self.where()) from None
        except BaseException as error:
            self.fail(error)
        finally:
            self._halt()
        if self.error is not None:
            raise self.error
        seconds = time.perf_counter() - start
        grid.kernel.piece = 0 if self.meet else self.piece
        grid.kernel.pace = seconds * (1 if self.joined < float("inf") else grid.workers) / self.clusters
        counts = self.counts.sum(axis=0) if grid.workers > 1 else self.counts[0]
        if self.sample is not None:
            counts = self.sample.scaled(counts)
        return Outcome(counts, seconds, grid.workers)

    def _halt(self) -> None:
        """All threads leave what they do."""
        self.grid.stop[0] = 1
        if self.news is not None:
            with self.lock:
                self.news.notify_all()
                while self.active:
                    self.news.wait(ROUND)

    def _begun(self) -> list[Resident]:
        return sorted((r for r in self.residents if r.begun[0]), key=lambda r: r.number)

    def _how_far(self) -> str:
        shape = self.grid.shape
        return f"{self.finished * shape.cluster_size} of {self.clusters * shape.cluster_size} blocks are done"

    def where(self) -> str:
        """Blocks that are done, and where the warps of another one are."""
        return f"{self._how_far()}{self.diagnosis().unfinished(self.grid, self._begun())[0]}"

    def _too_late(self) -> LimitReached:
        where, first = self.diagnosis().unfinished(self.grid, self._begun())
        return LimitReached(
            f"{self.grid.kernel.name} did not finish within {self.timeout:g} s: {self._how_far()}{where}",
            span=first.span if first is not None else None,
            hint="an endless loop, or a larger --timeout is needed", fault="TIMEOUT",
        )
