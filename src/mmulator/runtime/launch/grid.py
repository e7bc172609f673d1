"""A launch as data: what all CTAs of a grid share, and what the host may read of it.

Most of it is the same for all launches of a kernel in blocks of one shape; `fill_in` writes the rest (resident.py).
Clusters wait to begin in a `Line`: workers take one after the other in native code (runtime/native/threads/cluster.py).
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.ptx.program.addresses import SLOT_GRID, SLOT_PARAM, SLOT_SHIFT
from mmulator.runtime.launch.arena import Heap, placed, pointer
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.printing import Printer
from mmulator.runtime.launch.regions import Region, Regions
from mmulator.runtime.native.state import LANES, WORD
from mmulator.runtime.native.state import Launch as Struct
from mmulator.runtime.native.state import Line as LineStruct

LAUNCH = Struct.numpy_dtype()
# What all CTAs of a cooperative grid share, as an H200 has it: a size, the word of grid.sync() in cooperative_groups, 1, nothing.
WORKSPACE = np.array([16, 0, 1, 0], np.uint32).view(np.uint8)
_ROW, _EXTENT, _WORD, _TABLES = struct.Struct("<4Q"), struct.Struct("<3I"), struct.Struct("<Q"), struct.Struct("<4Q")
_NCTAID, _SEED, _WINDOWS = (Struct.offset[name] for name in ("nctaid", "seed", "windows"))


@cache
def cores() -> int:
    return os.cpu_count() or 1


class Grid:
    """One launch: what all its CTAs share. observed: memory that observers keep with it for the next launch, by their names."""

    def __init__(self, launch: Launch, how: How, observers: Sequence[Observer] = ()) -> None:
        self.kernel, self.shape = kernel, shape = launch.kernel, launch.shape
        self.observed: dict[str, Any] = {}
        self.shared = kernel.shared.static + shape.shared  # bytes of a CTA
        self.heap = Heap.from_environment()
        self.atomic_bytes = kernel.atomic_bytes
        self.code, self.records = self.heap.hold(kernel.code), self.heap.hold(kernel.blocks.records)
        self.stop = np.zeros(1, np.uint32)
        self.tiles = len(kernel.matrix.tiles)
        self.warpgroups = -(-shape.warps // 4) if self.tiles else 0  # of a CTA, where it counts
        self.printer = Printer(self.stop)
        self.params = self.heap.bytes(launch.arguments.params.nbytes, 8)
        self.workspace = self.heap.bytes(len(WORKSPACE), 8)
        self.slots = max([(s + b.nbytes >> SLOT_SHIFT) + 2 for s, b, _ in kernel.image.buffers], default=0)
        self.slots = max(self.slots, kernel.image.next_slot)  # of the module alone
        self.rows, self.filled = 0, False  # of windows, that a launch has filled in; with memory of its own
        self.windows, self._first = np.zeros(0, np.uint8), 0  # and where it begins
        self.line = Line(self.heap)
        self.launch = self._launch()
        self._fields = memoryview(self.launch.view(np.uint8))  # type: ignore[arg-type]
        tiles = kernel.matrix.tile_bytes * self.warpgroups * self.tiles
        registers = (kernel.frame_bytes + kernel.local_bytes * LANES) * shape.warps
        self.cluster_bytes = (registers + self.shared + tiles) * shape.cluster_size  # while it runs, by far the most of it
        self._own: list[tuple[int, ...]] = [(SLOT_PARAM, pointer(self.params), self.params.nbytes, 0)]  # rows that stay
        if shape.cooperative:
            self._own.append((SLOT_GRID, pointer(self.workspace), len(WORKSPACE), 1))
        self.fill_in(launch, how, observers)

    def fill_in(self, launch: Launch, how: How, observers: Sequence[Observer] = ()) -> None:
        """Write what this launch has of its own. Raises LaunchError."""
        self.kernel, self.shape, self.arguments = kernel, shape, arguments = launch.kernel, launch.shape, launch.arguments
        self.seed = how.seed
        threads = how.threads or (1 if observers and any(o.alone for o in observers) else cores())
        self.workers = 1 if any(o.ordered for o in observers) else max(1, min(threads, shape.clusters))
        self.buffers = arguments.buffers
        variables = kernel.image.buffers if launch.variables is None else launch.variables
        if variables:
            self.buffers = [*(Region.of(s, b, "a module variable", w) for s, b, w in variables), *self.buffers]
        self.regions = Regions(map(replace, arguments.regions)) if self.heap.edge else arguments.regions
        self.placement = placed(self.buffers, self.regions, self.atomic_bytes, self.heap)
        self.params[:] = arguments.params
        if shape.cooperative:
            self.workspace[:] = WORKSPACE
        self.stop[0] = 0
        self.line.begin(shape.clusters)
        self.printer.begin()
        slots = self.slots
        for b in arguments.buffers:
            slots = max(slots, (b.start + b.size >> SLOT_SHIFT) + 2)
        if self.rows != slots or self.filled or arguments.buffers or launch.variables is not None:
            self._fill_windows(slots)
        self.filled = bool(arguments.buffers) or launch.variables is not None
        if self.regions.lowest < slots << SLOT_SHIFT:
            raise LaunchError(f"memory of the launch lies below 0x{slots << SLOT_SHIFT:x}, where the module has its variables")
        if self.placement.copies and self.regions:
            self.regions = Regions(self.regions)  # they lie elsewhere
        self.table = self.heap.hold(self.regions.table)
        table = pointer(self.table) if self.heap.edge else self.regions.address
        _TABLES.pack_into(self._fields, _WINDOWS, self._first, slots, table, len(self.table))
        _EXTENT.pack_into(self._fields, _NCTAID, *shape.grid)
        _WORD.pack_into(self._fields, _SEED, how.seed & 0xFFFFFFFFFFFFFFFF)
        self.observers = observers
        for observer in observers:
            observer.begin(self)

    def finish(self) -> None:
        """Bring what was stored to the arrays of the caller, wherever it was stored."""
        self.placement.finish()

    def leave(self) -> None:
        """Nothing of the caller's is kept with what is kept."""
        del self.kernel, self.shape, self.arguments, self.buffers, self.placement, self.regions, self.table, self.observers

    @property
    def memory(self) -> Sequence[Region]:
        """All that has a name in messages."""
        return [*self.buffers, *self.arguments.regions.given, *self.arguments.regions]

    def _fill_windows(self, slots: int) -> None:
        """The table of windows, for slots below that."""
        size = slots * _ROW.size
        if self.heap.edge or size > self.windows.nbytes:
            self.windows = self.heap.bytes(size if self.heap.edge else 2 * size, 8)
            self._first = pointer(self.windows)
        else:
            self.windows[: self.rows * _ROW.size] = 0
        self.rows = slots
        rows = memoryview(self.windows)  # type: ignore[arg-type]
        for b in self.buffers:
            start, size = b.start, b.size
            for slot in range(start >> SLOT_SHIFT, ((start + max(size, 1) - 1) >> SLOT_SHIFT) + 1):
                _ROW.pack_into(rows, slot * _ROW.size, b.host, start, size, b.writable)
        for slot, host, size, writable in self._own:
            _ROW.pack_into(rows, slot * _ROW.size, host, slot << SLOT_SHIFT, size, writable)

    def _launch(self) -> np.ndarray:
        """State that all launches of a kernel in blocks of one shape share."""
        k, s = self.kernel, self.shape
        launch = np.zeros(1, LAUNCH)
        launch["code"] = pointer(self.code)
        launch["records"] = pointer(self.records)
        launch["params"] = pointer(self.params)
        launch["stop"] = pointer(self.stop)
        launch["line"] = self.line.address
        launch["local_bytes"] = k.local_bytes
        launch["ntid"], launch["cluster"] = s.block, s.cluster
        launch["registers"] = k.registers
        launch["explicit"] = s.explicit
        launch["warps"], launch["threads"] = s.warps, s.threads
        launch["entry"] = k.entry
        launch["words"] = k.atomic_bytes >= WORD
        launch["shared_bytes"], launch["dynamic_shared"], launch["reserved"] = self.shared, s.shared, k.reserved
        launch["tiles"], launch["tile_bytes"] = self.tiles, k.matrix.tile_bytes
        self.callees = self.heap.hold(k.callee_table)
        launch["callees"] = pointer(self.callees)
        launch["frame_bytes"] = k.frame_bytes
        self.noisy = self.heap.hold(k.noisy_blocks)
        launch["noisy"], launch["noisy_count"] = pointer(self.noisy), len(self.noisy)
        launch["blocks"] = len(k.code)
        launch["print"] = self.printer.address
        if k.matrix.tensor:
            from mmulator.runtime.launch.tensor_tables import (
                tables_of,  # it loads layouts and the twin, which other kernels do not need
            )

            launch["resolve"] = tables_of(k.matrix.tensor).address
        launch["workspace"] = (SLOT_GRID << SLOT_SHIFT) * s.cooperative
        self.tables = [self.heap.hold(t) for t in k.matrix.tables]
        self.table_list = self.heap.hold(np.array([pointer(t) for t in self.tables], np.uint64))
        launch["tables"] = pointer(self.table_list)
        return launch


_WORDS = struct.Struct("<5Q")
_CACHE = 128  # bytes, two lines: they are fetched in pairs


def order(clusters: int, most: int, seed: int) -> tuple[list[int], list[int]]:
    """Numbers of the clusters that begin first, and of those that begin last, as a seed has it; those between begin in order.

    most: clusters that are resident at once. The hardware begins them in order, as far as anyone knows, and those that are
    resident together overtake each other. So each is exchanged for one of those only, which lets a cluster wait for one with
    a lower number; and only in the first and the last such group, since there may be very many.
    """
    import random  # a launch in order needs none

    chance = random.Random(seed)
    first = range(min(most, clusters))
    last = range(max(len(first), clusters - most), clusters)
    return chance.sample(first, len(first)), chance.sample(last, len(last))


class Line:
    """The part of one launch; the next launch begins anew."""

    def __init__(self, heap: Heap) -> None:
        assert LineStruct.size == _WORDS.size
        memory = heap.bytes(_CACHE, 8 if heap.edge else _CACHE)
        self.address = pointer(memory)
        self._words = memoryview(memory)  # type: ignore[arg-type]
        self.begin(0)

    def begin(self, clusters: int, first: Sequence[int] = (), last: Sequence[int] = (), taken: int = 0) -> None:
        """So many clusters, of which some begin in an order of their own, and so many never will."""
        self.clusters, self.first, self.last = clusters, first, last
        self._numbers = np.array([*first, *last], np.uint64) if first else None
        numbers = 0 if self._numbers is None else pointer(self._numbers)
        _WORDS.pack_into(self._words, 0, taken, clusters, len(first), clusters - len(last), numbers)

    def skip(self, taken: int) -> None:
        """So many have begun already."""
        _WORD.pack_into(self._words, 0, taken)

    @property
    def taken(self) -> int:
        """How many have begun, or never will."""
        return min(int(_WORD.unpack_from(self._words)[0]), self.clusters)

    @property
    def left(self) -> int:
        return self.clusters - self.taken

    @property
    def next(self) -> int:
        """The number of the cluster that begins next, if one does."""
        at = self.taken
        after = at - (self.clusters - len(self.last))
        return self.first[at] if at < len(self.first) else self.last[after] if 0 <= after < len(self.last) else at
