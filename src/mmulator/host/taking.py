"""Blocks that take over the work of others (clusterlaunchcontrol.try_cancel): an observer decides which block does whose.

Clusters run one after another, each with what it takes over; certificates ask for happens-before, so nothing hangs on that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.host.turns import OutOfReach
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import CallingObserver
from mmulator.runtime.native.state import Transfer, TransferKind, TransferState
from mmulator.runtime.native.threads.turns import TAKES
from mmulator.runtime.native.threads.turns import Turns as Struct

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.resident import Resident
    from mmulator.runtime.launch.workers import Workers

_ASKED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_TRANSFER = np.dtype(Transfer.numpy_dtype())


class Takeovers(CallingObserver):
    """The observer that answers requests for the work of other clusters.

    owners: for each cluster the one that does its work: itself, or one with a lower number; those that are missing do their own.

    A cluster asks for one after another, from one thread, or the launch is out of reach: else it is open which answer is whose.
    """

    ordered = True

    def __init__(self, owners: Sequence[int] = ()) -> None:
        self.owners = owners
        self.requests = 0
        self._call = _ASKED(self.guarded(self._asked))
        self._askers: dict[int, tuple[int, int]] = {}

    @property
    def instrument(self) -> Instrument:
        return TAKES

    def begin(self, grid: Grid) -> None:
        self.grid = grid
        self.row = np.zeros(1, Struct.numpy_dtype())
        self.row["asked"] = ctypes.cast(self._call, ctypes.c_void_p).value
        grid.launch["turns"] = pointer(self.row)

    def run_by(self, workers: Workers) -> None:
        self.clusters, self.line, workers.most = workers.clusters, workers.line, 1
        taken: dict[int, list[int]] = {}
        for n in range(self.clusters):
            owner = self.owners[n] if n < len(self.owners) else n
            taken.setdefault(owner if owner in taken else n, []).append(n)
        self.queue = [n for each in taken.values() for n in each]
        self.first = {each[0] for each in taken.values()}
        self.line.begin(self.clusters, self.queue)

    def take(self, resident: Resident, worker: int) -> None:
        self.resident = resident

    def _asked(self, warp: int, lane: int, out: int) -> None:
        self.requests += 1
        at, number = self.line.taken, self.resident.number
        if self._askers.setdefault(number, (warp, lane)) != (warp, lane):
            raise OutOfReach("several threads of a cluster ask for the work of others: which answer is whose is open")
        every = self.resident.arena.view("transfers", _TRANSFER)
        waits = (every["state"] == int(TransferState.UNDER_WAY)) & (every["kind"] == int(TransferKind.CANCEL))
        if np.count_nonzero(waits) > 1:
            raise OutOfReach("a cluster asks for more work before it has an answer: which answer comes first is open")
        if at == self.clusters or self.queue[at] in self.first:
            ctypes.c_uint32.from_address(out).value = 1


def ways(clusters: int) -> Iterator[tuple[int, ...]]:
    """All `owners` of so many clusters, as of `Takeovers`: the partitions of a set."""
    found: list[tuple[int, ...]] = [()]
    while found:
        owners = found.pop()
        if len(owners) == clusters:
            yield owners
        else:
            n = len(owners)
            found += [(*owners, owner) for owner in (*sorted({*owners}), n)]


def number_of_ways(clusters: int) -> int:
    """How many `ways` there are: a Bell number."""
    found = [1]
    for n in range(clusters):
        found.append(sum(comb(n, k) * found[k] for k in range(n + 1)))
    return found[-1]


def asks_for_work(kernel: Any) -> bool:
    """Whether a kernel has instructions that ask for the work of other clusters."""
    from mmulator.ptx.program.choices import takes_work

    return any(takes_work(ins) for block in kernel.program.blocks for ins in block.body)
