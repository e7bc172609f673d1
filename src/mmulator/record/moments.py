"""The observer of `trace=`: entries of what happened when, brought from native code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.errors import LimitReached
from mmulator.launch.arena import pointer
from mmulator.launch.events import Logs
from mmulator.launch.observers import Observer

if TYPE_CHECKING:
    from mmulator.codegen.lang import Instrument
    from mmulator.errors import ExecutionFault
    from mmulator.launch.grid import Grid
    from mmulator.launch.launch import Ran
    from mmulator.launch.resident import Resident

BLOCKS = 64  # blocks of a launch that are recorded: those with the lowest numbers
ENTRIES = 400_000  # of a launch, shared evenly by its clusters
LATE = 20_000  # of a launch whose time is over: a trace of more takes seconds to make
ROOM = 1 << 14  # of a worker's log
MEMORY = "timeline"  # of a resident cluster: its Timeline


class Moments(Observer):
    """The observer that records what happens when. file: where the trace is written when the launch is over; "" for nowhere."""

    calls = True  # when a log is full

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.events: list[dict[str, Any]] = []  # of the trace, when the launch is over

    @property
    def instrument(self) -> Instrument:
        from mmulator.native.hooks.timeline import TIMELINE

        return TIMELINE

    def begin(self, grid: Grid) -> None:
        from mmulator.native.hooks.timeline import TimelineEntry

        self.grid = grid
        self.logs = Logs(TimelineEntry, grid.workers, ROOM)
        self.shared: list[list[int]] = []  # of each resident cluster where the shared memory of its blocks is on the host
        self.clusters = min(grid.shape.clusters, max(1, BLOCKS // grid.shape.cluster_size))
        self.most = ENTRIES // self.clusters
        self.kept: list[np.ndarray] = []

    def attach(self, resident: Resident) -> None:
        from mmulator.native.hooks.timeline import Timeline

        state = np.zeros(1, Timeline.numpy_dtype())
        state["most"], state["clusters"], state["resident"] = self.most, self.clusters, len(self.shared)
        self.shared.append([resident.shared_at(rank) for rank in range(resident.size)])
        self.kept.append(state)
        resident.observed[MEMORY] = state
        resident.cluster["timeline"] = pointer(state)

    def take(self, resident: Resident, worker: int) -> None:
        resident.observed[MEMORY]["log"] = self.logs.address(worker)

    def failed(self, fault: ExecutionFault) -> None:
        self._finish(min(self.most, LATE // self.clusters) if isinstance(fault, LimitReached) else self.most)

    def tell(self, ran: Ran, grid: Grid) -> None:
        self._finish(self.most)
        if self.clusters < grid.shape.clusters:
            size = grid.shape.cluster_size
            ran.notes.append(f"the trace has the first {self.clusters * size} of {grid.shape.ctas} blocks")

    def _finish(self, most: int) -> None:
        """Make the trace. most: entries of a cluster that it has."""
        from mmulator.record.trace import events_of, write

        entries = self.logs.all()
        entries = entries[entries["order"] < most]
        entries = entries[np.lexsort((entries["order"], entries["cluster"]))]
        self.events = events_of(self.grid, entries, self.shared, most)
        if self.file:
            write(self.file, self.events)
