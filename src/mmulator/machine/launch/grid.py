"""A launch as data: what all CTAs of a grid share, and what the host may read of it."""

from __future__ import annotations

import os

import numpy as np

from mmulator.machine.compile.kernel import CompiledKernel
from mmulator.machine.launch.arena import Heap, Placement, pointer
from mmulator.machine.launch.arguments import Arguments, Buffer, Region
from mmulator.machine.launch.events import Subscriber
from mmulator.machine.launch.printing import Printer
from mmulator.machine.launch.shape import LaunchShape
from mmulator.machine.state import LANES, Launch, Window
from mmulator.program.addresses import SLOT_PARAM, SLOT_SHIFT

LAUNCH, WINDOW = Launch.numpy_dtype(), Window.numpy_dtype()


class Grid:
    """One launch: what all its CTAs share."""

    def __init__(
        self, kernel: CompiledKernel, shape: LaunchShape, arguments: Arguments, seed: int, threads: int | None,
        subscriber: Subscriber | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.shape, self.arguments, self.seed = kernel, shape, arguments, seed
        self.workers = max(1, min(threads or os.cpu_count() or 1, shape.clusters))
        self.buffers = [*(Buffer(s, b, "a module variable", w) for s, b, w in kernel.image.buffers), *arguments.buffers]
        self.memory: list[Buffer | Region] = [*self.buffers, *arguments.regions]
        self.heap = Heap.from_environment()
        self.atomic_bytes = kernel.atomic_bytes
        self.placement = Placement(self.memory, self.atomic_bytes, self.heap)
        self.params = self.heap.hold(arguments.params)
        self.code = self.heap.hold(kernel.code)
        self.windows = self.heap.hold(self._windows())
        self.regions = self.heap.hold(self._regions())
        self.stop = np.zeros(1, np.uint32)
        self.subscriber = subscriber
        self.tiles = len(kernel.matrix.tiles)
        self.warpgroups = -(-shape.warps // 4) if self.tiles else 0  # of a CTA, where it counts
        self.printer = Printer(self.stop)
        self.launch = self._launch()
        if subscriber is not None:
            subscriber.begin(self.launch, self.workers)

    def finish(self) -> None:
        """Bring what was stored to the arrays of the caller, wherever it was stored."""
        self.placement.finish()

    @property
    def cluster_bytes(self) -> int:
        """Memory of a cluster while it runs, by far the most of it."""
        k, s = self.kernel, self.shape
        tiles = k.matrix.tile_bytes * self.warpgroups * self.tiles
        return ((k.frame_bytes + k.local_bytes * LANES) * s.warps + s.shared + tiles) * s.cluster_size

    def _windows(self) -> np.ndarray:
        last = max([b.start + b.size for b in self.buffers], default=0) >> SLOT_SHIFT
        windows = np.zeros(max(last + 2, 32), WINDOW)
        for b in self.buffers:
            for slot in range(b.start >> SLOT_SHIFT, ((b.start + max(b.size, 1) - 1) >> SLOT_SHIFT) + 1):
                windows[slot] = (b.host, b.start, b.size, int(b.writable))
        windows[SLOT_PARAM] = (pointer(self.params), SLOT_PARAM << SLOT_SHIFT, self.params.nbytes, 0)
        return windows

    def _regions(self) -> np.ndarray:
        rows = [(0, 0, 0, 0), *((r.host, r.start, r.size, int(r.writable)) for r in self.arguments.regions)]
        return np.array(sorted(rows, key=lambda row: row[1]), WINDOW)

    def _launch(self) -> np.ndarray:
        k, s = self.kernel, self.shape
        launch = np.zeros(1, LAUNCH)
        launch["code"] = pointer(self.code)
        launch["windows"] = pointer(self.windows)
        launch["slots"] = len(self.windows)
        launch["regions"], launch["region_count"] = pointer(self.regions), len(self.regions)
        launch["params"] = pointer(self.params)
        launch["stop"] = pointer(self.stop)
        launch["local_bytes"] = k.local_bytes
        launch["seed"] = self.seed & 0xFFFFFFFFFFFFFFFF
        launch["nctaid"], launch["ntid"], launch["cluster"] = s.grid, s.block, s.cluster
        launch["warps"], launch["threads"] = s.warps, s.threads
        launch["entry"] = k.program.entry.entry
        launch["shared_bytes"], launch["dynamic_shared"] = s.shared, s.dynamic_shared
        launch["tiles"], launch["tile_bytes"] = self.tiles, k.matrix.tile_bytes
        self.callees = self.heap.hold(k.callee_table)
        launch["callees"] = pointer(self.callees)
        self.functions = self.heap.hold(k.function_table)
        launch["functions"], launch["function_count"] = pointer(self.functions), len(self.functions)
        launch["print"] = self.printer.address
        self.tables = [self.heap.hold(t) for t in k.matrix.tables]
        self.table_list = self.heap.hold(np.array([pointer(t) for t in self.tables], np.uint64))
        launch["tables"] = pointer(self.table_list)
        return launch
