"""Events that instruments of a kernel wrote down, brought to Python: a log for each worker, taken away whenever it is full."""

import ctypes

import numpy as np

from mmulator.base.codegen.types import Struct
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.native.state import Log

LOG = Log.numpy_dtype()
DRAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Logs:
    """The logs of all workers of a launch. Entries stay in the order in which their worker made them."""

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
