"""A resident cluster: the memory of its CTAs while one worker runs them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mmulator.launch.arena import Arena, pointer
from mmulator.launch.grid import Grid
from mmulator.launch.shape import Extent
from mmulator.native.matrix.tensor_state import TENSOR_LANES, TENSOR_ROW
from mmulator.native.state import (
    ACCOUNTS,
    ASYNC_GROUPS,
    LANES,
    STAGING,
    TRANSFERS,
    Account,
    AsyncGroup,
    Cluster,
    Cta,
    OperationKind,
    Span,
    Sums,
    Tile,
    Transfer,
    Warp,
    Warpgroup,
)
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE

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
        """State that all clusters share; the rest each finds as new (native/threads/renewal.py)."""
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
