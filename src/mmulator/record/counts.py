"""The observer of `profile=`, and the sums that it brings from native code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mmulator.launch.arena import pointer
from mmulator.launch.observers import Observer

if TYPE_CHECKING:
    from mmulator.codegen.lang import Instrument
    from mmulator.compiler.compiled import CompiledKernel
    from mmulator.launch.grid import Grid
    from mmulator.launch.launch import Ran
    from mmulator.launch.resident import Resident
    from mmulator.launch.shape import LaunchShape

SUMS = ("requests", "lanes", "bytes", "units", "ideal")  # fields of a ProfileMemory


class Counts:
    """Sums of one launch, or of several launches of a kernel in one shape.

    kernel, shape: the kernel and the launch.
    launches: number of launches.
    blocks, missing: executions of each block of code, and the lanes that were elsewhere.
    sites: fields of ProfileSite -> a number for each instruction.
    memory: SUMS -> a number for each instruction and Kind.
    """

    def __init__(
        self, kernel: CompiledKernel, shape: LaunchShape, blocks: np.ndarray, missing: np.ndarray, sites: dict[str, np.ndarray],
        memory: dict[str, np.ndarray], launches: int = 1,
    ) -> None:  # fmt: skip
        self.kernel, self.shape, self.launches = kernel, shape, launches
        self.blocks, self.missing, self.sites, self.memory = blocks, missing, sites, memory

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.kernel, self.shape, self.blocks + other.blocks, self.missing + other.missing,
            {name: n + other.sites[name] for name, n in self.sites.items()},
            {name: n + other.memory[name] for name, n in self.memory.items()}, self.launches + other.launches,
        )  # fmt: skip


class Counting(Observer):
    """The observer that counts what a launch does, each worker of the launch in memory of its own."""

    @property
    def instrument(self) -> Instrument:
        from mmulator.native.hooks.profile import PROFILE

        return PROFILE

    def begin(self, grid: Grid) -> None:
        from mmulator.native.hooks.profile import KINDS, ProfileMemory, ProfileSite, ProfileTable
        from mmulator.record.serving import all_serving

        sites, workers = len(grid.kernel.sites), grid.workers
        self.missing = np.zeros((workers, len(grid.kernel.code)), np.uint64)
        self.sites = np.zeros((workers, sites), ProfileSite.numpy_dtype())
        self.sites["serves"] = grid.kernel.once(all_serving)
        self.memory = np.zeros((workers, sites, KINDS), ProfileMemory.numpy_dtype())
        self.tables = np.zeros(workers, ProfileTable.numpy_dtype())
        for worker, table in enumerate(self.tables):
            for name in ("missing", "sites", "memory"):
                table[name] = pointer(getattr(self, name)[worker])

    def take(self, resident: Resident, worker: int) -> None:
        resident.cluster["profile"] = pointer(self.tables) + worker * self.tables.itemsize

    def tell(self, ran: Ran, grid: Grid) -> None:
        assert ran.work is not None and self.sites.dtype.names is not None
        ran.profile = Counts(
            grid.kernel, grid.shape, ran.work.blocks.astype(np.int64), self.missing.sum(0, dtype=np.int64),
            {name: self.sites[name].sum(0, dtype=np.int64) for name in self.sites.dtype.names},
            {name: self.memory[name].sum(0, dtype=np.int64) for name in SUMS},
        )  # fmt: skip
