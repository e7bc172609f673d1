"""Elements of arguments that a launch watches, and the stores that it saw."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.codegen.loading import address
from mmulator.base.errors import LaunchError
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.events import Logs
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.native.state import Watch, WatchEntry

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.launch import Ran
    from mmulator.runtime.launch.resident import Resident

ROOM = 4096  # of a worker's log
Watched = tuple[int, Any]  # number of an argument, and an index of one of its elements: a number or a tuple


@dataclass(frozen=True)
class WatchedStore:
    """A store to a watched element.

    argument: number of the argument.
    index: index of the element.
    block, thread: (x, y, z) of the thread that stored.
    instruction, file, line: the PTX instruction and its place.
    value: the element after the store, a NumPy scalar of the argument's dtype.
    bits: the raw bits of the element.
    source: the line from which the PTX was compiled, `mm.py:17`, or "".
    """

    argument: int
    index: tuple[int, ...]
    block: tuple[int, ...]
    thread: tuple[int, ...]
    instruction: str
    file: str
    line: int
    value: Any
    bits: int
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f" ({self.source})" if self.source else "")
        return f"block {self.block}, thread {self.thread}: {self.instruction} at {place}, {self.value} (bits 0x{self.bits:x})"


class StoreLog(Observer):
    """The observer of stores to some places in memory: a table of the places for native code, and the stores that it saw.

    places: generic addresses (first, behind the last) of at most 8 bytes each.
    """

    calls = True  # when a log is full
    alone = True

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        self.table = np.array(list(places), Watch.numpy_dtype())

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.touched import WATCH

        return WATCH

    def begin(self, grid: Grid) -> None:
        from mmulator.runtime.native.hooks.touched import settle_cluster

        launch = grid.launch
        self.logs = Logs(WatchEntry, grid.workers, max(ROOM, 32 * len(self.table)))
        self._settle = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address(settle_cluster))
        launch["watches"], launch["watch_count"], launch["seen"] = pointer(self.table), len(self.table), 0

    def take(self, resident: Resident, worker: int) -> None:
        resident.cluster["watch_log"] = self.logs.address(worker)

    def settle(self, cluster: int) -> None:
        self._settle(cluster)

    def entries(self) -> np.ndarray:
        """The stores (WatchEntry), in the order in which they happened."""
        found = self.logs.all()
        return found[np.argsort(found["order"])]


class Watches(StoreLog):
    """The observer of watched elements of arguments.

    watched: elements of arguments.
    arguments: of the launch.
    more: other places, whose stores `others` gives.
    """

    def __init__(self, watched: Sequence[Watched], arguments: Arguments, more: Sequence[tuple[int, int]] = ()) -> None:
        self.elements: list[tuple[int, tuple[int, ...]]] = []
        self.dtypes: list[np.dtype[Any]] = []
        places, args = [], arguments.values
        for number, index in watched:
            array = args[number] if isinstance(number, int) and 0 <= number < len(args) else None
            if not isinstance(array, np.ndarray):
                raise LaunchError(f"watch: argument {number} is no array")
            try:
                at = tuple(int(i) for i in (index if isinstance(index, tuple) else np.unravel_index(index, array.shape)))
                offset = int(np.ravel_multi_index(at, array.shape)) * array.itemsize
            except (ValueError, TypeError):
                raise LaunchError(f"watch: argument {number} of shape {array.shape} has no element {index}") from None
            if array.itemsize > 8:
                raise LaunchError(f"watch: argument {number} has elements of {array.itemsize} bytes; at most 8 can be watched")
            place = array.ctypes.data
            buffer = next(b for b in (*arguments.buffers, *arguments.regions) if b.host == place and b.size == array.nbytes)
            places.append((buffer.start + offset, buffer.start + offset + array.itemsize))
            self.elements.append((number, at))
            self.dtypes.append(array.dtype)
        super().__init__([*places, *more])

    def others(self) -> list[np.ndarray]:
        """The stores (WatchEntry) to each place of `more`, in the order in which they happened."""
        found = self.entries()
        found = found[np.argsort(found["watch"], kind="stable")]
        first = len(self.elements)
        return np.split(found, np.searchsorted(found["watch"], np.arange(first, len(self.table) + 1)))[1:-1]

    def tell(self, ran: Ran, grid: Grid) -> None:
        ran.stores = self.stores(grid.shape, grid.kernel.sites)

    def stores(self, shape: LaunchShape, sites: Sequence[Instruction]) -> list[WatchedStore]:
        """The stores, in the order in which they happened."""
        return [self._store(entry, shape, sites) for entry in self.entries() if entry["watch"] < len(self.elements)]

    def _store(self, entry: np.void, shape: LaunchShape, sites: Sequence[Instruction]) -> WatchedStore:
        ins = sites[int(entry["site"])]
        number, index = self.elements[int(entry["watch"])]
        dtype, bits = self.dtypes[int(entry["watch"])], int(entry["value"])
        return WatchedStore(
            number, index, shape.block_at(int(entry["cta"])), shape.thread_at(int(entry["thread"])), ins.mnemonic,
            ins.span.source.name, ins.span.line,
            np.array(bits, np.uint64).reshape(1).view(np.uint8)[: dtype.itemsize].view(dtype)[0], bits, ins.span.brief,
        )  # fmt: skip
