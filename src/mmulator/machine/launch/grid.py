"""Running a grid: blocks over the cores, each on memory of its own, with a stop flag, a time limit and exact faults."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mmulator.codegen.loading import address
from mmulator.errors import LimitReached
from mmulator.machine.compile.kernel import CompiledKernel
from mmulator.machine.launch.arena import Arena, Heap, Placement, pointer
from mmulator.machine.launch.arguments import Arguments, Buffer
from mmulator.machine.launch.faults import describe_fault
from mmulator.machine.launch.faults_warp import describe_deadlock, unfinished
from mmulator.machine.launch.limits import check_host
from mmulator.machine.launch.printing import Printer
from mmulator.machine.runtime.control import run_cta
from mmulator.machine.state import (
    COPY_QUEUE,
    LANES,
    STACK_BYTES,
    WGMMA_GROUPS,
    WGMMA_QUEUE,
    CopyEntry,
    Cta,
    Group,
    Launch,
    Stop,
    Tile,
    Warp,
    WgmmaGroup,
    WgmmaOp,
    Window,
)
from mmulator.program.addresses import SLOT_PARAM, SLOT_SHIFT

if TYPE_CHECKING:
    from mmulator.machine.launch.events import Subscriber

MAX_RESIDENT = 264  # blocks kept half-done while they wait for others
# Seconds until a block is set aside. Turns get shorter while no block ends: perhaps all wait for one that has not begun.
LONGEST_TURN, SHORTEST_TURN = 0.1, 0.004
DESCRIBED = ("cta", "warps", "groups")  # parts of a block that it does not begin with all zero
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


class Grid:
    """One launch: what all blocks share."""

    def __init__(
        self, kernel: CompiledKernel, shape: LaunchShape, arguments: Arguments, seed: int, threads: int | None,
        subscriber: Subscriber | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.shape, self.arguments, self.seed = kernel, shape, arguments, seed
        self.workers = max(1, min(threads or os.cpu_count() or 1, shape.blocks))
        self.buffers = [*(Buffer(s, b, "a module variable", w) for s, b, w in kernel.image.buffers), *arguments.buffers]
        self.heap = Heap.from_environment()
        self.atomic_bytes = kernel.atomic_bytes
        self.placement = Placement(self.buffers, self.atomic_bytes, self.heap)
        self.params = self.heap.hold(arguments.params)
        self.code = self.heap.hold(kernel.code)
        self.windows = self.heap.hold(self._windows())
        self.stop = np.zeros(1, np.uint32)
        self.subscriber = subscriber
        self.launch = self._launch()
        if subscriber is not None:
            subscriber.begin(self)
        self.uses_copies = kernel.uses_copies
        self.tiles = len(kernel.matrix.tiles)
        self.groups = -(-shape.warps // 4) if self.tiles else 0

    def buffer_at(self, address: int) -> Buffer | None:
        """The buffer of global or const memory that has the byte at a generic address."""
        return next((b for b in self.buffers if 0 <= address - b.start < b.size), None)

    def finish(self) -> None:
        """Bring what was stored to the arrays of the caller, wherever it was stored."""
        self.placement.finish()

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
                windows[slot] = (b.host, b.start, b.size, int(b.writable))
        windows[SLOT_PARAM] = (pointer(self.params), SLOT_PARAM << SLOT_SHIFT, self.params.nbytes, 0)
        return windows

    def _launch(self) -> np.ndarray:
        k, s = self.kernel, self.shape
        launch = np.zeros(1, LAUNCH)
        launch["code"] = pointer(self.code)
        launch["windows"] = pointer(self.windows)
        launch["slots"] = len(self.windows)
        launch["params"] = pointer(self.params)
        launch["stop"] = pointer(self.stop)
        launch["local_bytes"] = k.local_bytes
        launch["seed"] = self.seed & 0xFFFFFFFFFFFFFFFF
        launch["grid"], launch["block"] = s.grid, s.block
        launch["warps"], launch["threads"] = s.warps, s.threads
        launch["entry"] = k.program.entry.entry
        launch["shared_bytes"], launch["dynamic_shared"] = s.shared, s.dynamic_shared
        launch["tiles"], launch["tile_bytes"] = len(k.matrix.tiles), k.matrix.tile_bytes
        self.callees = self.heap.hold(k.callee_table)
        launch["callees"] = pointer(self.callees)
        self.functions = self.heap.hold(k.function_table)
        launch["functions"], launch["function_count"] = pointer(self.functions), len(self.functions)
        self.printer = Printer(self)
        launch["print"] = self.printer.address
        self.tables = [self.heap.hold(t) for t in k.matrix.tables]
        self.sites = self.heap.hold(np.array([pointer(t) for t in self.tables], np.uint64))
        launch["sites"] = pointer(self.sites)
        return launch


@lru_cache(maxsize=64)
def thread_numbers(block: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y and z of each lane of the warps, and each warp's mask of lanes that are threads."""
    bx, by, bz = block
    threads = bx * by * bz
    thread = np.arange(-(-threads // LANES) * LANES).reshape(-1, LANES)
    live = np.bitwise_or.reduce((thread < threads) << np.arange(LANES), axis=1)
    return thread % bx, thread // bx % by, thread // (bx * by), live.astype(np.uint32)


class Resident:
    """Memory of one block while it runs."""

    def __init__(self, grid: Grid) -> None:
        k, s = grid.kernel, grid.shape
        self.grid = grid
        n = s.warps
        groups, tiles = grid.groups, grid.tiles
        parts = {
            "cta": Cta.size,
            "warps": Warp.size * n,
            "groups": Group.size * groups,
            "tiles": Tile.size * groups * tiles,
            "tile_memory": k.matrix.tile_bytes * groups * tiles,
            "scratch": k.matrix.scratch_bytes,
            "ops": WgmmaOp.size * WGMMA_QUEUE * n if tiles else 0,
            "wgmma_groups": WgmmaGroup.size * WGMMA_GROUPS * n if tiles else 0,
            "copies": CopyEntry.size * COPY_QUEUE * n if grid.uses_copies else 0,
            "regs": k.frame_bytes * n,
        }
        atomic = grid.atomic_bytes
        windows = {"local": (k.local_bytes * LANES * n, atomic), "shared": (s.shared, atomic)}
        self.arena = Arena({name: (size, 8) for name, size in parts.items()} | windows, grid.heap)
        self.cta = self.arena.view("cta", CTA)
        self.warps = self.arena.view("warps", WARP)
        self._describe()
        self.fresh = self.arena.copy(*DESCRIBED)
        self.ctaid, self.linear, self.next_warp, self.counts = (
            self.cta[name] for name in ("ctaid", "linear", "next_warp", "counts")
        )
        self.used = False

    def start(self, number: int) -> None:
        """Set up block `number` of the grid (x fastest)."""
        if self.used:  # a new one is zero, and what no thread touches is never asked for
            self.arena.restore(self.fresh)
            self.arena.clear("tiles", "regs", "local", "shared")
        self.used = True
        s, seed = self.grid.shape, self.grid.seed
        x, y, _ = s.grid
        self.ctaid[0] = (number % x, number // x % y, number // (x * y))
        self.linear[0] = number
        if seed:
            self.next_warp[0] = (number * 0x9E3779B1 + seed) % s.warps

    def _describe(self) -> None:
        """What is the same for all blocks."""
        g, a, s, k = self.grid, self.arena, self.grid.shape, self.grid.kernel
        cta, warps = self.cta, self.warps
        cta["launch"] = pointer(g.launch)
        for name in ("warps", "shared", "groups", "tiles", "tile_memory", "scratch"):
            cta[name] = a.at(name)
        cta["live_threads"] = s.threads
        index = np.arange(s.warps)
        warps["cta"] = a.at("cta")
        warps["regs"] = a.at("regs") + index * k.frame_bytes
        warps["local"] = a.at("local") + index * k.local_bytes * LANES
        warps["copies"] = a.at("copies") + index * CopyEntry.size * COPY_QUEUE
        warps["ops"] = a.at("ops") + index * WgmmaOp.size * WGMMA_QUEUE
        warps["groups"] = a.at("wgmma_groups") + index * WgmmaGroup.size * WGMMA_GROUPS
        warps["index"] = index
        warps["lane_pc"] = k.program.entry.entry
        warps["stack"] = STACK_BYTES
        warps["tid_x"], warps["tid_y"], warps["tid_z"], warps["live"] = thread_numbers(s.block)
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
        self.begun: dict[int, Resident] = {}
        self.turn = LONGEST_TURN
        self.error: BaseException | None = None
        self.counts = np.zeros((grid.workers, len(grid.kernel.code)), np.uint64)
        first = pointer(self.counts)
        self.count_rows = [first + n * self.counts.strides[0] for n in range(grid.workers)]
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
        self.begun[number] = resident
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
        resident.counts[0] = self.count_rows[worker]
        cta, since = resident.arena.at("cta"), time.perf_counter()
        subscriber = self.grid.subscriber
        if subscriber is not None:
            resident.cta["log"] = subscriber.log(worker)
        while True:
            result = self.run_cta(cta, 32 if self.turn == LONGEST_TURN else 8)
            if result != Stop.BUDGET or time.perf_counter() - since > self.turn:
                break
        if subscriber is not None:
            subscriber.settle(cta)
        if result == Stop.BUDGET:
            with self.lock:
                self.waiting.append(resident)
                self.turn = max(SHORTEST_TURN, self.turn * 0.8)
        elif result == Stop.EXITED:
            with self.lock:
                self.finished += 1
                self.resident -= 1
                del self.begun[int(resident.linear[0])]
                self.turn = min(LONGEST_TURN, self.turn * 1.25)
                self.spare.append(resident)
                if self.progress:
                    self.progress(self.finished, self.grid.shape.blocks)
        elif result == Stop.FAULT:
            raise describe_fault(self.grid, resident)
        elif result == Stop.BLOCKED:
            raise describe_deadlock(self.grid, resident)

    def run(self, timeout: float | None) -> Outcome:
        try:
            self.grid.placement.begin(timeout)
            return self._run_blocks(timeout)
        finally:
            self.grid.finish()

    def _run_blocks(self, timeout: float | None) -> Outcome:
        start = time.perf_counter()
        self.active = self.grid.workers
        if self.progress:
            self.progress(0, self.grid.shape.blocks)
        threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(self.grid.workers)]
        for t in threads:
            t.start()
        try:
            while not self.done.wait(0.05):
                if timeout is not None and time.perf_counter() - start > timeout:
                    break
        except KeyboardInterrupt:
            self._halt(threads)
            raise KeyboardInterrupt(f"{self._how_far()}; {unfinished(self.grid, self._begun())[0]}") from None
        finally:
            self._halt(threads)
        if self.error is not None:
            raise self.error
        if self.finished < self.grid.shape.blocks:
            raise self._too_late(timeout)
        return Outcome(self.counts.sum(axis=0), time.perf_counter() - start, self.grid.workers)

    def _halt(self, threads: list[threading.Thread]) -> None:
        self.grid.stop[0] = 1
        for t in threads:
            t.join()

    def _begun(self) -> list[Resident]:
        return [self.begun[n] for n in sorted(self.begun)]

    def _how_far(self) -> str:
        return f"{self.finished} of {self.grid.shape.blocks} blocks are done"

    def _too_late(self, timeout: float | None) -> LimitReached:
        where, first = unfinished(self.grid, self._begun())
        return LimitReached(
            f"{self.grid.kernel.program.entry.function.name} did not finish within {timeout:g} s: {self._how_far()}; {where}",
            span=first.instruction.span if first is not None and first.instruction is not None else None,
            hint="an endless loop, or a larger --timeout is needed",
        )


def class_totals(kernel: CompiledKernel, counts: np.ndarray) -> dict[str, int]:
    """Executed warp instructions by class, most frequent first."""
    total: Counter[str] = Counter()
    for executed, classes in zip(counts, kernel.classes):
        if executed:
            for name, number in classes.items():
                total[name] += int(executed) * number
    return dict(total.most_common())
