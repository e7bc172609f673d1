"""What instruments of a kernel wrote down, brought to Python: a log for each worker, taken away whenever it is full."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mmulator.codegen.types import Struct
from mmulator.errors import ExecutionFault
from mmulator.launch.arena import pointer
from mmulator.native.state import Log

if TYPE_CHECKING:
    from mmulator.codegen.lang import Instrument

LOG = Log.numpy_dtype()
DRAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Subscriber(Protocol):
    """Who sees the events of a launch. instrument: what its kernel is compiled for (CompileOptions.events). calls: its native
    functions call Python. each: it looks at clusters one by one. grid, resident: of grid.py and resident.py, which know this
    file."""

    calls: bool
    each: bool

    @property
    def instrument(self) -> Instrument: ...

    def begin(self, grid: Any) -> None:
        """Before the launch runs: what native code needs. The grid may be one that another launch has left."""

    def attach(self, resident: Any) -> None:
        """Prepare the memory of a cluster, before one runs there."""

    def log(self, worker: int) -> int:
        """Where the log of a worker is."""

    def settle(self, cluster: int) -> None:
        """A worker leaves a cluster alone, for now or for good."""

    def stalled(self, residents: Sequence[Any], over: int) -> bool:
        """Whether nothing can change in these clusters any more, which are all but the `over` that ended."""

    def stopped(self, error: ExecutionFault, residents: Sequence[Any]) -> None:
        """A fault or a deadlock ends the run: in these clusters."""


class Logs:
    """Of all workers of a launch. Entries stay in the order in which their worker made them."""

    def __init__(self, entry: Struct, workers: int, room: int) -> None:
        self.entries = np.zeros((workers, room), entry.numpy_dtype())
        self.heads = np.zeros(workers, LOG)
        self.taken: list[list[np.ndarray]] = [[] for _ in range(workers)]
        self.callback = DRAIN(self._drain)
        self.heads["entries"] = pointer(self.entries) + np.arange(workers) * self.entries.strides[0]
        self.heads["drain"] = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.heads["entry_bytes"], self.heads["room"] = entry.size, room

    def address(self, worker: int) -> int:
        return pointer(self.heads) + worker * LOG.itemsize

    def _drain(self, log: int) -> None:
        """Called from native code, or when the launch is over."""
        worker = (log - pointer(self.heads)) // LOG.itemsize
        head = self.heads[worker]
        self.taken[worker].append(self.entries[worker, : head["count"]].copy())
        head["count"] = head["open"] = 0

    def all(self) -> np.ndarray:
        """All entries, one worker's after the other's."""
        for worker in range(len(self.heads)):
            self._drain(self.address(worker))
        return np.concatenate([part for parts in self.taken for part in parts])
