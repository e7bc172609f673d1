"""Running a grid: blocks over the cores, each on memory of its own, with a stop flag, a time limit and exact faults."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.errors import ExecutionFault
from mmulator.machine.arguments import Arguments, Buffer
from mmulator.machine.faults import describe_deadlock, describe_fault
from mmulator.machine.jit import CompiledKernel
from mmulator.machine.limits import check_host
from mmulator.machine.natives import address
from mmulator.machine.printing import Printer
from mmulator.machine.runtime.control import run_cta
from mmulator.machine.state import (
    COPY_QUEUE,
    LANES,
    SLOT_PARAM,
    SLOT_SHIFT,
    WGMMA_QUEUE,
    CopyEntry,
    Cta,
    Group,
    Launch,
    Stop,
    Tile,
    Warp,
    WgmmaOp,
    Window,
)
from mmulator.machine.watch import Watches

MAX_RESIDENT = 264  # blocks kept half-done while they wait for others
SLICES = 32
Progress = Callable[[int, int], None]

LAUNCH, CTA, WARP, WINDOW, GROUP, TILE = (s.numpy_dtype() for s in (Launch, Cta, Warp, Window, Group, Tile))


@dataclass
class LaunchShape:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    threads: int
    static_shared: int
    dynamic_shared: int

    @property
    def warps(self) -> int:
        return -(-self.threads // LANES)

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def _pointer(array: np.ndarray) -> int:
    return int(array.ctypes.data)


class Arena:
    """Zeroed memory, 64-byte aligned, cut into named parts."""

    def __init__(self, parts: dict[str, int]) -> None:
        self.offset: dict[str, int] = {}
        at = 0
        for name, size in parts.items():
            self.offset[name] = at
            at += -(-size // 64) * 64
        self.bytes = np.zeros(at + 64, np.uint8)
        skip = -_pointer(self.bytes) % 64
        self.bytes = self.bytes[skip : skip + at]
        self.base = _pointer(self.bytes)
        self.sizes = parts

    def at(self, name: str) -> int:
        return self.base + self.offset[name]

    def view(self, name: str, dtype: Any) -> np.ndarray:
        start = self.offset[name]
        return self.bytes[start : start + self.sizes[name]].view(dtype)

    def clear(self, *names: str) -> None:
        for name in names:
            start = self.offset[name]
            self.bytes[start : start + self.sizes[name]] = 0


class Grid:
    """One launch: what all blocks share."""

    def __init__(
        self, kernel: CompiledKernel, shape: LaunchShape, arguments: Arguments, seed: int, threads: int | None,
        watches: Watches | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.shape, self.arguments, self.seed = kernel, shape, arguments, seed
        self.workers = max(1, min(threads or os.cpu_count() or 1, shape.blocks))
        self.buffers = [*(Buffer(s, b, "a module variable", w) for s, b, w in kernel.image.buffers), *arguments.buffers]
        self.windows = self._windows()
        self.stop = np.zeros(1, np.uint32)
        self.watches = watches
        self.launch = self._launch()
        self.uses_copies = any(i.opcode == "cp" for i in kernel.sites)
        self.tiles = len(kernel.matrix.tiles)
        self.groups = -(-shape.warps // 4) if self.tiles else 0

    def read(self, address: int, size: int) -> bytes:
        """Bytes of global or const memory at a generic address; zeros where there is none."""
        for b in self.buffers:
            offset = address - b.start
            if 0 <= offset <= b.size - size:
                return b.array.reshape(-1).view(np.uint8)[offset : offset + size].tobytes()
        return bytes(size)

    def read_string(self, address: int) -> str:
        """A C string in global or const memory."""
        found = bytearray()
        while len(found) < 4096 and (byte := self.read(address + len(found), 1)) != b"\0":
            found += byte
        return found.decode("utf-8", "replace")

    @property
    def block_bytes(self) -> int:
        """Memory of a block while it runs, by far the most of it."""
        k, s = self.kernel, self.shape
        return (k.frame_bytes + k.local_bytes * LANES) * s.warps + s.shared + k.matrix.tile_bytes * self.groups * self.tiles

    def _windows(self) -> np.ndarray:
        last = max([b.start + b.size for b in self.buffers], default=0) >> SLOT_SHIFT
        windows = np.zeros(max(last + 2, 32), WINDOW)
        for b in self.buffers:
            for slot in range(b.start >> SLOT_SHIFT, ((b.start + max(b.size, 1) - 1) >> SLOT_SHIFT) + 1):
                windows[slot] = (_pointer(b.array), b.start, b.size, int(b.writable))
        params = self.arguments.params
        windows[SLOT_PARAM] = (_pointer(params), SLOT_PARAM << SLOT_SHIFT, params.nbytes, 0)
        return windows

    def _launch(self) -> np.ndarray:
        k, s = self.kernel, self.shape
        launch = np.zeros(1, LAUNCH)
        launch["code"] = _pointer(k.code)
        launch["windows"] = _pointer(self.windows)
        launch["slots"] = len(self.windows)
        launch["params"] = _pointer(self.arguments.params)
        launch["stop"] = _pointer(self.stop)
        launch["register_bytes"] = k.frame_bytes - k.largest_frame
        launch["local_bytes"] = k.local_bytes
        launch["seed"] = self.seed & 0xFFFFFFFFFFFFFFFF
        launch["grid"], launch["block"] = s.grid, s.block
        launch["warps"], launch["threads"] = s.warps, s.threads
        launch["entry"] = k.program.entry.entry
        launch["shared_bytes"], launch["dynamic_shared"] = s.shared, s.dynamic_shared
        launch["tiles"], launch["tile_bytes"] = len(k.matrix.tiles), k.matrix.tile_bytes
        entries = {n: f.entry for n, f in k.program.functions.items()}
        self.functions = np.array([entries.get(n, -1) for n in k.image.function_names], np.int32)
        launch["functions"], launch["function_count"] = _pointer(self.functions), len(self.functions)
        self.printer = Printer(self)
        launch["print"] = self.printer.address
        self.sites = np.array([_pointer(t) for t in k.matrix.tables] or [0], np.uint64)
        launch["sites"] = _pointer(self.sites)
        if self.watches is not None:
            launch["watches"], launch["watch_count"] = _pointer(self.watches.table), len(self.watches.table)
            launch["seen"] = _pointer(self.watches.log)
        return launch


class Resident:
    """Memory of one block while it runs."""

    def __init__(self, grid: Grid) -> None:
        k, s = grid.kernel, grid.shape
        self.grid = grid
        n = s.warps
        groups, tiles = grid.groups, grid.tiles
        self.arena = Arena(
            {
                "cta": Cta.size,
                "warps": Warp.size * n,
                "groups": Group.size * groups,
                "tiles": Tile.size * groups * tiles,
                "tile_memory": k.matrix.tile_bytes * groups * tiles,
                "scratch": k.matrix.scratch_bytes,
                "ops": WgmmaOp.size * WGMMA_QUEUE * n if tiles else 0,
                "group_end": 8 * 64 * n if tiles else 0,
                "copies": CopyEntry.size * COPY_QUEUE * n if grid.uses_copies else 0,
                "regs": k.frame_bytes * n,
                "local": k.local_bytes * LANES * n,
                "shared": max(s.shared, 1) + 64,
            }
        )
        self.cta = self.arena.view("cta", CTA)
        self.warps = self.arena.view("warps", WARP)
        self.used = False

    def start(self, number: int) -> None:
        """Set up block `number` of the grid (x fastest)."""
        g, a, s, k = self.grid, self.arena, self.grid.shape, self.grid.kernel
        if self.used:  # a new one is zero, and what no thread touches is never asked for
            a.clear("cta", "warps", "groups", "tiles", "regs", "local", "shared")
        self.used = True
        cta, warps = self.cta, self.warps
        cta["launch"] = _pointer(g.launch)
        for name in ("warps", "shared", "groups", "tiles", "tile_memory", "scratch"):
            cta[name] = a.at(name)
        x, y, _ = s.grid
        cta["ctaid"] = (number % x, number // x % y, number // (x * y))
        cta["linear"] = number
        cta["live_threads"] = s.threads
        cta["next_warp"] = (number * 0x9E3779B1 + g.seed) % s.warps if g.seed else 0
        index = np.arange(s.warps)
        warps["cta"] = a.at("cta")
        warps["regs"] = a.at("regs") + index * k.frame_bytes
        warps["local"] = a.at("local") + index * k.local_bytes * LANES
        warps["copies"] = a.at("copies") + index * CopyEntry.size * COPY_QUEUE
        warps["ops"] = a.at("ops") + index * WgmmaOp.size * WGMMA_QUEUE
        warps["group_end"] = a.at("group_end") + index * 512
        warps["index"] = index
        warps["lane_pc"] = k.program.entry.entry
        thread = np.arange(s.warps * LANES)
        bx, by, _ = s.block
        warps["tid_x"] = (thread % bx).reshape(-1, LANES)
        warps["tid_y"] = (thread // bx % by).reshape(-1, LANES)
        warps["tid_z"] = (thread // (bx * by)).reshape(-1, LANES)
        lanes = np.clip(s.threads - index * LANES, 0, LANES)
        warps["live"] = ((np.uint64(1) << lanes.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
        if g.groups:
            groups = a.view("groups", GROUP)
            groups["tiles"] = a.at("tiles") + np.arange(g.groups) * Tile.size * g.tiles
            groups["first_warp"] = np.arange(g.groups) * 4


@dataclass
class Outcome:
    """instructions and macs executed; seconds of the run."""

    counts: np.ndarray
    seconds: float
    workers: int


class Runner:
    """Workers that take blocks until none is left, one fails, or the caller stops them."""

    def __init__(self, grid: Grid, progress: Progress | None) -> None:
        self.grid, self.progress = grid, progress
        self.lock = threading.Lock()
        self.most = min(MAX_RESIDENT, check_host(grid.block_bytes, grid.workers))
        self.next_block = 0
        self.finished = 0
        self.waiting: deque[Resident] = deque()
        self.spare: list[Resident] = []
        self.resident = 0
        self.error: BaseException | None = None
        self.counts = np.zeros((grid.workers, len(grid.kernel.code)), np.uint64)
        self.done = threading.Event()
        self.run_cta = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(address(run_cta))

    def take(self, turn: int) -> Resident | None:
        """A block to work on: a new one, or one that was set aside."""
        with self.lock:
            new = self.next_block < self.grid.shape.blocks and self.resident < self.most
            if self.waiting and (not new or turn % 2):
                return self.waiting.popleft()
            if not new:
                return None
            number = self.next_block
            self.next_block += 1
            self.resident += 1
            resident = self.spare.pop() if self.spare else None
        resident = resident or Resident(self.grid)
        resident.start(number)
        return resident

    def work(self, worker: int) -> None:
        try:
            turn = 0
            while self.error is None and not self.grid.stop[0]:
                resident = self.take(turn)
                if resident is None:
                    with self.lock:
                        if self.finished == self.grid.shape.blocks or self.resident == 0:
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
        resident.cta["counts"] = _pointer(self.counts[worker])
        since = time.perf_counter()
        while True:
            result = self.run_cta(_pointer(resident.cta), SLICES)
            if result != Stop.BUDGET or time.perf_counter() - since > 0.1:
                break
        if result == Stop.BUDGET:
            with self.lock:
                self.waiting.append(resident)
        elif result == Stop.EXITED:
            with self.lock:
                self.finished += 1
                self.resident -= 1
                self.spare.append(resident)
                if self.progress:
                    self.progress(self.finished, self.grid.shape.blocks)
        elif result == Stop.FAULT:
            raise describe_fault(self.grid, resident)
        elif result == Stop.BLOCKED:
            raise describe_deadlock(self.grid, resident)

    def run(self, timeout: float | None) -> Outcome:
        start = time.perf_counter()
        self.active = self.grid.workers
        threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(self.grid.workers)]
        for t in threads:
            t.start()
        try:
            while not self.done.wait(0.05):
                if timeout is not None and time.perf_counter() - start > timeout:
                    self.error = self.error or ExecutionFault(
                        f"{self.grid.kernel.program.entry.function.name} did not finish within {timeout:g} s: "
                        f"{self.finished} of {self.grid.shape.blocks} blocks are done",
                        hint="an endless loop, or a larger --timeout is needed",
                    )
                    self.grid.stop[0] = 1
        finally:
            self.grid.stop[0] = 1
            for t in threads:
                t.join()
        if self.error is not None:
            raise self.error
        return Outcome(self.counts.sum(axis=0), time.perf_counter() - start, self.grid.workers)


def class_totals(kernel: CompiledKernel, counts: np.ndarray) -> dict[str, int]:
    """Executed warp instructions by class, most frequent first."""
    total: Counter[str] = Counter()
    for executed, classes in zip(counts, kernel.classes):
        if executed:
            for name, number in classes.items():
                total[name] += int(executed) * number
    return dict(total.most_common())
