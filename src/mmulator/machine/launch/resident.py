"""A resident cluster: the memory of its CTAs while one worker runs them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mmulator.machine.launch.arena import Arena, pointer
from mmulator.machine.launch.grid import Grid
from mmulator.machine.launch.shape import Extent
from mmulator.machine.state import (
    ASYNC_GROUPS,
    LANES,
    STACK_BYTES,
    AsyncGroup,
    Cluster,
    Cta,
    Kind,
    Tile,
    Warp,
    Warpgroup,
)

CHANGED = ("ctas", "warps", "warpgroups")  # parts that are described, and that a run changes
CLUSTER, CTA, WARP, WARPGROUP = (s.numpy_dtype() for s in (Cluster, Cta, Warp, Warpgroup))


@lru_cache(maxsize=64)
def thread_numbers(block: Extent) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, y and z of each lane of a CTA's warps, and each warp's mask of lanes that are threads."""
    bx, by, bz = block
    threads = bx * by * bz
    thread = np.arange(-(-threads // LANES) * LANES).reshape(-1, LANES)
    live = np.bitwise_or.reduce((thread < threads) << np.arange(LANES), axis=1)
    return thread % bx, thread // bx % by, thread // (bx * by), live.astype(np.uint32)


class Resident:
    """Memory of one cluster while it runs. number: of the cluster in the grid. size: CTAs."""

    def __init__(self, grid: Grid) -> None:
        k, s = grid.kernel, grid.shape
        self.grid, self.size, self.number = grid, s.cluster_size, 0
        warps, groups = s.warps * self.size, grid.warpgroups * self.size
        self.shared = [f"shared{rank}" for rank in range(self.size)]
        parts = {
            "cluster": Cluster.size,
            "ctas": Cta.size * self.size,
            "warps": Warp.size * warps,
            "warpgroups": Warpgroup.size * groups,
            "tiles": Tile.size * groups * grid.tiles,
            "tile_memory": k.matrix.tile_bytes * groups * grid.tiles,
            "scratch": k.matrix.scratch_bytes,
            **{kind.name: kind.entry.size * kind.room * warps for kind in k.queues},
            **{f"{kind.name} groups": AsyncGroup.size * ASYNC_GROUPS * warps for kind in k.queues},
            "regs": k.frame_bytes * warps,
        }
        atomic = grid.atomic_bytes
        windows = {"local": (k.local_bytes * LANES * warps, atomic), **dict.fromkeys(self.shared, (s.shared, atomic))}
        self.arena = Arena({name: (size, 8) for name, size in parts.items()} | windows, grid.heap)
        self.cluster = self.arena.view("cluster", CLUSTER)
        self.ctas = self.arena.view("ctas", CTA)
        self.warps = self.arena.view("warps", WARP)
        self._describe()
        self.fresh = self.arena.copy(*CHANGED)
        self.ctaid, self.linear, self.counts = (self.ctas[name] for name in ("ctaid", "linear", "counts"))
        self.next_warp = self.cluster["next_warp"]
        self.address = self.arena.at("cluster")
        self.used = False

    def start(self, number: int) -> None:
        """Set up cluster `number` of the grid (x fastest)."""
        if self.used:  # a new one is zero, and what no thread touches is never asked for
            self.arena.restore(self.fresh)
            self.arena.clear("tiles", "regs", "local", *self.shared)
        self.used, self.number = True, number
        s, seed = self.grid.shape, self.grid.seed
        for rank, ctaid in enumerate(s.members(number)):
            self.ctaid[rank] = ctaid
            self.linear[rank] = s.linear(ctaid)
        if seed:
            self.next_warp[0] = (number * 0x9E3779B1 + seed) % len(self.warps)

    def _describe(self) -> None:
        """What is the same for all clusters."""
        g, a, s, k = self.grid, self.arena, self.grid.shape, self.grid.kernel
        cluster, ctas, warps = self.cluster, self.ctas, self.warps
        cluster["launch"] = ctas["launch"] = pointer(g.launch)
        cluster["ctas"], cluster["warps"], cluster["warp_count"] = a.at("ctas"), a.at("warps"), len(warps)
        rank, index = np.arange(self.size), np.arange(len(warps))
        ctas["cluster"], ctas["rank"] = a.at("cluster"), rank
        ctas["shared"] = [a.at(name) for name in self.shared]
        ctas["scratch"] = a.at("scratch")
        ctas["live_threads"] = s.threads
        tiles = g.warpgroups * g.tiles
        for name, size in (
            ("warps", Warp.size * s.warps), ("warpgroups", Warpgroup.size * g.warpgroups), ("tiles", Tile.size * tiles),
            ("tile_memory", k.matrix.tile_bytes * tiles),
        ):  # fmt: skip
            ctas[name] = a.at(name) + rank * size
        warps["cta"] = a.at("ctas") + index // s.warps * Cta.size
        warps["index"] = index % s.warps
        warps["regs"] = a.at("regs") + index * k.frame_bytes
        warps["local"] = a.at("local") + index * k.local_bytes * LANES
        warps["lane_pc"] = k.program.entry.entry
        warps["stack"] = STACK_BYTES
        of_cta = warps.reshape(self.size, s.warps)
        of_cta["tid_x"], of_cta["tid_y"], of_cta["tid_z"], of_cta["live"] = thread_numbers(s.block)
        for kind, carry_out in k.queues.items():
            queues = warps["queues"][:, kind.queue]
            queues["entries"] = a.at(kind.name) + index * kind.entry.size * kind.room
            queues["groups"] = a.at(f"{kind.name} groups") + index * AsyncGroup.size * ASYNC_GROUPS
            queues["carry_out"], queues["room"], queues["entry_bytes"] = carry_out, kind.room, kind.entry.size
        if g.warpgroups:
            groups, number = a.view("warpgroups", WARPGROUP), np.arange(g.warpgroups * self.size)
            groups["tiles"] = a.at("tiles") + number * Tile.size * g.tiles
            groups["first_warp"] = number % g.warpgroups * 4

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

    def operation(self, kind: Kind, warp: int, number: int) -> Any:
        """What a warp keeps of the asynchronous operation `number` of a kind."""
        entries = self.resident.arena.view(kind.name, np.dtype(kind.entry.numpy_dtype())).reshape(-1, kind.room)
        return entries[self.rank * len(self.warps) + warp, number % kind.room]
