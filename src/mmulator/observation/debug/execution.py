"""One execution of a launch under the debugger: a thread that runs it, and stands still where a judge wants to.

The judge is called by native code, between two instructions. What it and the machine share is changed only while it stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.host.campaign import Snapshot
from mmulator.observation.record.steps import Steps, WarpPlace
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.launch import How, Resumption
from mmulator.runtime.native.state import Cell as CellStruct
from mmulator.runtime.native.state import StepEntry

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.base.errors import ExecutionFault
    from mmulator.host.report import Report
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.observers import Observer
    from mmulator.runtime.launch.resident import Resident

STOPS, STEPS = 1, 2  # marks of runtime/native/hooks/steps.py
CELLS = 256  # watched words at once
APART, ROOM = 1 << 19, 256 << 20  # steps between two checkpoints, bytes of all of them
ENTRIES = 1 << 20  # newest steps that are known
CELL, ENTRY = CellStruct.numpy_dtype(), StepEntry.numpy_dtype()


@dataclass(frozen=True)
class Parked:
    """The launch stands before a step. place, lanes, site: as `Steps` tells them. step: its number."""

    place: WarpPlace
    lanes: int
    site: int
    step: int


@dataclass(frozen=True)
class Ended:
    """The launch is over. report: what came of it, or None. error: what it raised, or None."""

    report: Report | None
    error: BaseException | None


@dataclass(frozen=True)
class Failed:
    """A fault or a deadlock ends the launch, and its machine is still there. residents: the clusters."""

    error: ExecutionFault
    residents: Sequence[Resident]
    step: int


@dataclass(frozen=True)
class Checkpoint:
    """A moment between two clusters to go on from. step: number of the step that comes next. memory: the device memory then."""

    step: int
    moment: Resumption
    memory: Snapshot


class Checkpoints:
    """The checkpoints of a launch, so that a way back into a long launch does not begin at its first step.

    memory: what the launch may write, as (address, array).
    apart: steps between two, at least; it grows as their memory does.
    """

    def __init__(self, memory: Sequence[tuple[int, np.ndarray]], apart: int = APART) -> None:
        self.memory, self.apart = memory, apart
        self.bytes = sum(array.nbytes for _, array in memory)
        self.most = max(2, ROOM // max(self.bytes, 1))
        self.points: list[Checkpoint] = []

    def due(self, step: int) -> bool:
        """Whether the launch is far enough behind the last one."""
        return step >= (self.points[-1].step if self.points else 0) + self.apart

    def add(self, step: int, moment: Resumption) -> None:
        """The launch stands between two clusters, before a step."""
        if len(self.points) >= self.most:  # every other one goes
            del self.points[::2]
            self.apart *= 2
        self.points.append(Checkpoint(step, moment, Snapshot(self.memory)))

    def before(self, step: int) -> Checkpoint | None:
        """The last one that is not behind a step."""
        return next((c for c in reversed(self.points) if c.step <= step), None)


class GivenUp(BaseException):
    """Ends an execution that nobody wants any more."""


class History:
    """The newest steps of a launch: a ring that native code writes, and the steps whose entries are there.

    low, high: entries of steps from `low` to before `high` are known. A launch has the same steps in each run, so they stay
    true when the launch runs again.
    """

    def __init__(self) -> None:
        self.ring = np.zeros(ENTRIES, ENTRY)
        self.low = self.high = 0

    def ran(self, begin: int, end: int) -> None:
        """A run from step `begin` to before `end` has written its entries."""
        room = len(self.ring)
        joined = begin <= self.high and end >= self.low
        low, high = (min(begin, self.low), max(end, self.high)) if joined else (begin, end)
        if high > end and high - begin > room:  # entries of later steps were overwritten
            low, high = begin, end
        self.low, self.high = max(low, high - room), high

    def entries(self, begin: int, end: int) -> np.ndarray:
        """Entries of known steps."""
        return self.ring[np.arange(begin, end) & (len(self.ring) - 1)]


class Watcher(Steps):
    """The observer of an execution.

    judge: is called with (place, lanes, site) where native code stops; true to stand still.
    arrived: is called with each cluster's memory when it is new.
    failing: is called with a fault or deadlock and the clusters that it ends.
    ready: gives the marks of sites, when the grid is known.
    checkpoints: receives moments to go on from, or None.
    begin: number of the first step.
    """

    def __init__(
        self, judge: Callable[[WarpPlace, int, int], None], history: History, arrived: Callable[[Resident], None],
        failing: Callable[[ExecutionFault, Sequence[Resident]], None], ready: Callable[[Grid], np.ndarray],
        checkpoints: Checkpoints | None = None, begin: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(judge, None, 0)
        self.checkpoints, self.begins = checkpoints, begin
        self.history, self.arrived, self.failing, self.ready = history, arrived, failing, ready
        self.cells = np.zeros(CELLS, CELL)

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.steps import DEBUGGER

        return DEBUGGER

    def begin(self, grid: Grid) -> None:
        super().begin(grid)
        self.residents: list[Resident] = []
        row = self.memory
        row["count"] = self.begins
        row["log"], row["room"] = pointer(self.history.ring), len(self.history.ring)
        row["cells"], row["cell_count"] = pointer(self.cells), 0
        self.marks = self.ready(grid)
        row["stops"] = pointer(self.marks)

    def run_by(self, workers: Any) -> None:
        self.workers = workers

    @property
    def apart(self) -> bool:  # type: ignore[override]
        """Whether it is time for a checkpoint."""
        if self.checkpoints is None or self.kernel.prints:  # the text so far is kept nowhere
            return False
        return self.checkpoints.due(self.step)

    @property
    def step(self) -> int:
        """Number of steps of the launch so far."""
        return int(self.memory["count"][0])

    def attach(self, resident: Resident) -> None:
        self.residents.append(resident)
        self.arrived(resident)

    def take(self, resident: Resident, worker: int) -> None:
        if self.apart and self.checkpoints is not None and (moment := self.workers.moment) is not None:
            self.checkpoints.add(self.step, moment)
        super().take(resident, worker)

    def stopped(self, error: ExecutionFault, residents: Sequence[Resident]) -> None:
        if self.error is None:
            self.failing(error, residents)


class Execution:
    """A thread that runs a launch, in turns with the thread that commands it.

    run: launches with a How and observers.
    how: of the launch.
    others: further observers.
    judge: is called between steps, as in `Watcher`; true to stand still.
    history, arrived, ready, checkpoints: as in `Watcher`.
    begin: where it begins; None: at the launch's beginning.
    """

    def __init__(
        self, run: Callable[[How, Sequence[Observer]], Report], how: How, others: Sequence[Observer], history: History,
        judge: Callable[[WarpPlace, int, int], bool], arrived: Callable[[Resident], None], ready: Callable[[Grid], np.ndarray],
        checkpoints: Checkpoints | None = None, begin: Checkpoint | None = None,
    ) -> None:  # fmt: skip
        first = 0 if begin is None else begin.step
        self.watcher = Watcher(self._between, history, arrived, self._failing, ready, checkpoints, first)
        self.judge = judge
        self._news: SimpleQueue[Parked | Failed | Ended] = SimpleQueue()
        self._go = threading.Semaphore(0)
        self._dropped = False
        self.over = False
        self.at: Parked | Failed | Ended | None = None
        how = replace(how, threads=1, progress=None, meanwhile=None, timeout=None, resume=begin.moment if begin else None)
        observers = [self.watcher, *others]
        self._thread = threading.Thread(target=self._launch, args=(run, how, observers), name="mmulator debug", daemon=True)
        self._thread.start()

    # in the launch's threads ----------------------------------------------------------------------------------------------
    def _launch(self, run: Callable[[How, Sequence[Observer]], Report], how: How, observers: Sequence[Observer]) -> None:
        report, error = None, None
        try:
            report = run(how, observers)
        except BaseException as raised:
            error = raised
        self._news.put(Ended(report, error))

    def _between(self, place: WarpPlace, lanes: int, site: int) -> None:
        if self._dropped:
            raise GivenUp
        if self.judge(place, lanes, site):
            self._hold(Parked(place, lanes, site, self.step - 1))

    def _failing(self, error: ExecutionFault, residents: Sequence[Resident]) -> None:
        if not self._dropped:
            self._hold(Failed(error, residents, self.step))

    def _hold(self, at: Parked | Failed) -> None:
        self._news.put(at)
        self._go.acquire()
        if self._dropped and isinstance(at, Parked):
            raise GivenUp

    # in the thread that commands ------------------------------------------------------------------------------------------
    @property
    def step(self) -> int:
        """Number of steps so far."""
        return self.watcher.step

    def wait(self, interrupted: Callable[[], Any]) -> Parked | Failed | Ended:
        """Until the launch stands still or is over. interrupted: is called at Ctrl-C, and the wait goes on."""
        while True:
            try:
                self.at = self._news.get()
                break
            except KeyboardInterrupt:
                interrupted()
        self.over = isinstance(self.at, Ended)
        return self.at

    def resume(self, interrupted: Callable[[], Any]) -> Parked | Failed | Ended:
        """Go on from where it stands."""
        self._go.release()
        return self.wait(interrupted)

    def drop(self) -> None:
        """End it, where it stands."""
        if not self.over:
            self._dropped = True
            self.watcher.memory["next"] = 0
            self._go.release()
            while not isinstance(self._news.get(), Ended):
                pass
            self.over = True
        self._thread.join()
