"""A resident cluster: the memory of its CTAs while one worker runs them, and what a launch leaves for the next one.

A thread of the host keeps packed operands of wgmma (runtime/native/matrix/wgmma_products.py). A kernel keeps, for blocks of one
shape, the tables of a launch and the memory of its clusters.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.compiled import CompiledKernel, MatrixTables
from mmulator.runtime.launch.arena import Arena, Heap, pointer
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.shape import Extent, LaunchShape
from mmulator.runtime.native.matrix.tensor_state import TENSOR_LANES, TENSOR_ROW
from mmulator.runtime.native.state import (
    A_PACKS,
    ACCOUNTS,
    ASYNC_GROUPS,
    B_PACKS,
    INDICES,
    LANES,
    STAGING,
    TRANSFERS,
    WGMMA_STEPS,
    Account,
    AsyncGroup,
    Cluster,
    Cta,
    OperationKind,
    Packs,
    Span,
    Sums,
    Tile,
    Transfer,
    Warp,
    Warpgroup,
)

CLUSTER, CTA, WARP, WARPGROUP, SPAN = (s.numpy_dtype() for s in (Cluster, Cta, Warp, Warpgroup, Span))


@lru_cache(maxsize=64)
def thread_numbers(block: Extent) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y and z of each lane of a CTA's warps, and each warp's mask of lanes that are threads."""
    bx, by, bz = block
    threads = bx * by * bz
    thread = np.arange(-(-threads // LANES) * LANES).reshape(-1, LANES)
    live = np.bitwise_or.reduce((thread < threads) << np.arange(LANES), axis=1)
    return thread % bx, thread // bx % by, thread // (bx * by), live.astype(np.uint32)


class Resident:
    """Memory of one cluster while it runs.

    number: of the cluster in the grid.
    size: CTAs.
    observed: memory that observers keep with it, by their names.
    """

    def __init__(self, grid: Grid) -> None:
        k, s = grid.kernel, grid.shape
        self.grid, self.size = grid, s.cluster_size
        self.observed: dict[str, Any] = {}
        warps, groups = s.warps * self.size, grid.warpgroups * self.size
        self.shared = [f"shared{rank}" for rank in range(self.size)]
        parts = {
            "cluster": Cluster.size,
            "sums": Sums.size,
            "ctas": Cta.size * self.size,
            "warps": Warp.size * warps,
            "warpgroups": Warpgroup.size * groups,
            "tile_memory": k.matrix.tile_bytes * groups * grid.tiles,
            "scratch": k.matrix.scratch_bytes,
            "tensor": TENSOR_LANES * TENSOR_ROW * self.size * bool(k.matrix.tensor),
            **{kind.name: kind.entry.size * kind.room * warps for kind in k.queues},
            **{f"{kind.name} groups": AsyncGroup.size * ASYNC_GROUPS * warps for kind in k.queues},
            "movers": 8 * (max(k.movers, default=-1) + 1),
            "transfers": Transfer.size * TRANSFERS * bool(k.movers),
            "staging": STAGING * bool(k.movers),
            "accounts": Account.size * ACCOUNTS * k.mbarriers,
            "tiles": Tile.size * groups * grid.tiles,
            "regs": k.frame_bytes * warps,
        }
        atomic = grid.atomic_bytes
        windows = {"local": (k.local_bytes * LANES * warps, atomic)}
        windows |= dict.fromkeys(self.shared, (k.reserved + grid.shared, atomic))
        self.arena = Arena({name: (size, 8) for name, size in parts.items()} | windows, grid.heap)
        self.nbytes = self.arena.nbytes
        self.cluster = self.arena.view("cluster", CLUSTER)
        self.ctas = self.arena.view("ctas", CTA)
        self.warps = self.arena.view("warps", WARP)
        self._describe()
        self.spans = np.array(self.arena.spans(["tiles", "regs", "local", *self.shared]), SPAN)
        self.cluster["spans"], self.cluster["span_count"] = pointer(self.spans), len(self.spans)
        (
            self.numbers, self.single, self.begun, self.finished, self.left, self.counts, self.others, self.seeded, self.seeds,
            self.hints, self.share,
        ) = (
            self.cluster[name] for name in (
                "number", "single", "begun", "finished", "left", "counts", "others", "seeded", "seed", "hints",
                "share",
            )
        )  # fmt: skip
        self.address = self.arena.at("cluster")
        self.join(grid)

    @property
    def number(self) -> int:
        return int(self.numbers[0])

    def join(self, grid: Grid) -> None:
        """A launch, perhaps another than before: its seed, and no hints to regions that it may not have."""
        self.grid = grid
        self.seeded[0], self.seeds[0], self.begun[0] = grid.seed != 0, grid.seed % len(self.warps), 0
        self.hints.fill(0)

    def _describe(self) -> None:
        """State that all clusters share; the rest each finds as new (runtime/native/threads/renewal.py)."""
        g, a, s, k = self.grid, self.arena, self.grid.shape, self.grid.kernel
        cluster, warps = self.cluster, self.warps
        launch = pointer(g.launch)
        cluster["launch"] = launch
        cluster["ctas"], cluster["warps"], cluster["warp_count"] = a.at("ctas"), a.at("warps"), len(warps)
        cluster["cta_count"], cluster["sums"] = self.size, a.at("sums")
        if k.movers:
            a.view("movers", np.uint64)[[*k.movers]] = list(k.movers.values())
            for name in ("movers", "transfers", "staging"):
                cluster[name] = a.at(name)
        if k.mbarriers:
            cluster["accounts"] = a.at("accounts")
        self.ctas["launch"], self.ctas["cluster"] = launch, a.at("cluster")
        self.ctas["scratch"] = a.at("scratch")
        tiles = g.warpgroups * g.tiles
        for rank, cta in enumerate(self.ctas):
            cta["rank"], cta["shared"] = rank, self.shared_at(rank)
            cta["shared_base"] = SHARED_BASE + (rank << RANK_SHIFT)
            cta["warps"] = a.at("warps") + rank * s.warps * Warp.size
            cta["warpgroups"] = a.at("warpgroups") + rank * g.warpgroups * Warpgroup.size
            cta["tiles"] = a.at("tiles") + rank * tiles * Tile.size
            if k.matrix.tensor:
                cta["tensor"] = a.at("tensor") + rank * TENSOR_LANES * TENSOR_ROW
            cta["tile_memory"] = a.at("tile_memory") + rank * tiles * k.matrix.tile_bytes
            own = warps[rank * s.warps : (rank + 1) * s.warps]
            own["cta"] = a.at("ctas") + rank * Cta.size
            own["index"] = np.arange(s.warps)
            own["tid_x"], own["tid_y"], own["tid_z"], own["lanes"] = thread_numbers(s.block)
        index = np.arange(len(warps))
        warps["used"] = 1
        warps["regs"] = a.at("regs") + index * k.frame_bytes
        warps["local"] = a.at("local") + index * k.local_bytes * LANES
        for kind, carry_out in k.queues.items():
            queues = warps["queues"][:, kind.queue]
            queues["entries"] = a.at(kind.name) + index * kind.entry.size * kind.room
            queues["groups"] = a.at(f"{kind.name} groups") + index * AsyncGroup.size * ASYNC_GROUPS
            queues["carry_out"], queues["room"], queues["entry_bytes"] = carry_out, kind.room, kind.entry.size
        if g.warpgroups:
            groups, number = a.view("warpgroups", WARPGROUP), np.arange(g.warpgroups * self.size)
            groups["tiles"] = a.at("tiles") + number * Tile.size * g.tiles
            groups["first_warp"] = number % g.warpgroups * 4

    def shared_at(self, rank: int) -> int:
        """Where the first byte of a CTA's own shared memory is on the host."""
        return self.arena.at(self.shared[rank]) + self.grid.kernel.reserved

    def each(self) -> list[ResidentCta]:
        return [ResidentCta(self, rank) for rank in range(self.size)]


class ResidentCta:
    """A CTA of a resident cluster, as those read it who report. state: its `Cta`. warps: a `Warp` each."""

    def __init__(self, resident: Resident, rank: int) -> None:
        self.resident, self.rank = resident, rank
        self.state = resident.ctas[rank]
        warps = resident.grid.shape.warps
        self.warps = resident.warps[rank * warps : (rank + 1) * warps]

    def __str__(self) -> str:
        x, y, z = self.state["ctaid"]
        return f"block ({x}, {y}, {z})"

    def warp(self, number: int) -> int:
        """Where the struct of a warp is."""
        return self.resident.arena.at("warps") + (self.rank * len(self.warps) + number) * Warp.size

    def operation(self, kind: OperationKind, warp: int, number: int) -> Any:
        """The state that a warp keeps of the asynchronous operation `number` of a kind."""
        entries = self.resident.arena.view(kind.name, np.dtype(kind.entry.numpy_dtype())).reshape(-1, kind.room)
        return entries[self.rank * len(self.warps) + warp, number % kind.room]


_ALIGNED = 64
_MOST = 4  # kinds of kernels, by the sizes of their operands, for which a thread keeps memory


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.kept: dict[tuple[tuple[int, int], tuple[int, int]], tuple[np.ndarray, int]] = {}


_of_thread = _OfThread()


def packs_for(matrix: MatrixTables) -> int:
    """Where the Packs of this thread lie, for kernels with operands of such sizes."""
    kept, key = _of_thread.kept, (matrix.a_pack, matrix.b_pack)
    found = kept.get(key)
    if found is None:
        for old in list(kept)[: 1 - _MOST]:
            del kept[old]
        found = kept[key] = _new(*key)
    return found[1]


def _new(a: tuple[int, int], b: tuple[int, int]) -> tuple[np.ndarray, int]:
    (a_raw, a_packed), (b_raw, b_packed) = ([-(-size // _ALIGNED) * _ALIGNED for size in sizes] for sizes in (a, b))
    a_bytes, b_bytes = a_raw + a_packed, b_raw + b_packed
    head = -(-Packs.size // _ALIGNED) * _ALIGNED
    parts = head, A_PACKS * a_bytes, B_PACKS * b_bytes, WGMMA_STEPS * a_bytes, WGMMA_STEPS * INDICES * 4
    memory = np.zeros(sum(parts) + _ALIGNED, np.uint8)
    skip = -pointer(memory) % _ALIGNED
    address = pointer(memory) + skip
    packs = memory[skip : skip + Packs.size].view(Packs.numpy_dtype())
    for name, at in zip(("a_slots", "b_slots", "registers", "indices"), np.cumsum(parts)):
        packs[name] = address + int(at)
    packs["a_raw"], packs["a_bytes"], packs["b_raw"], packs["b_bytes"] = a_raw, a_bytes, b_raw, b_bytes
    return memory, address


KEPT_KERNELS, KEPT_SHAPES = 64, 4  # kernels, and shapes of each
KEPT_BYTES = 4 << 20  # of memory of clusters for each of those: four of a large GEMM

Kept = tuple[Grid, list[Resident]]
_keepers: dict[int, weakref.ref[CompiledKernel]] = {}  # kernels that keep some, by id; who was launched last is last


def _key(shape: LaunchShape, arguments: Arguments) -> Any:
    return shape.block, shape.cluster, shape.explicit, shape.cooperative, shape.shared, arguments.params.nbytes


def grid_for(launch: Launch, how: How, observers: Sequence[Observer] = ()) -> tuple[Grid, list[Resident]]:
    """A grid for a launch and memory for clusters: what is kept, which nobody else has until it is kept again, or a new grid."""
    kept: Kept | None = launch.kernel.kept.pop(_key(launch.shape, launch.arguments), None)
    if kept is None or Heap.from_environment().edge:
        return Grid(launch, how, observers), []
    grid, residents = kept
    grid.fill_in(launch, how, observers)
    for resident in residents:
        resident.join(grid)
        for observer in observers:
            observer.attach(resident)
    return kept


def keep(grid: Grid, residents: Sequence[Resident]) -> None:
    """Keep what a launch that ended well leaves, but nothing of the caller's."""
    if grid.heap.edge or grid.placement.copies:
        return
    kernel, key = grid.kernel, _key(grid.shape, grid.arguments)
    room, spare = KEPT_BYTES, []
    for resident in residents:
        room -= resident.nbytes
        if room < 0:
            break
        spare.append(resident)
        del resident.grid
    grid.leave()
    kernel.kept[key] = grid, spare
    for old_key in list(kernel.kept)[:-KEPT_SHAPES]:
        kernel.kept.pop(old_key, None)
    _keepers.pop(id(kernel), None)
    _keepers[id(kernel)] = weakref.ref(kernel)
    for number in list(_keepers)[:-KEPT_KERNELS]:
        old = _keepers.pop(number, None)
        if old is not None and (found := old()) is not None:
            found.kept.clear()
