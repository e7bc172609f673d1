"""The observer of `profile=`, the sums that it brings from native code, and how a chip serves the lanes of each instruction."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.isa.types import type_bits
from mmulator.observation.record.profile.data import SUMS
from mmulator.ptx.program.blocks import instructions
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction, Reg
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.native.hooks.profile import Serves

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.compiled import CompiledKernel
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.launch import Ran
    from mmulator.runtime.launch.resident import Resident
    from mmulator.runtime.launch.shape import LaunchShape

_SHARED = ("shared", "shared::cta")
_OF_INTEGERS = ("u32", "s32", "b32")  # with which a chip does every operation in shared memory itself
_COUNTS = {("add", "u32"): 1, ("inc", "u32"): 0xFFFFFFFF}  # operations that count lanes, with the operand


def all_serving(kernel: CompiledKernel) -> list[Serves]:
    """The way of each site of a kernel's code."""
    read = {name for block in kernel.program.blocks for ins in instructions(block) for name in uses_and_defs(ins)[0]}
    return [serving(ins, read) for ins in kernel.sites]


def serving(ins: Instruction, read: Collection[str]) -> Serves:
    """The way of an instruction, as ptxas compiles it for Hopper. read: registers whose values are used."""
    effects, form = ins.effects, ins.form
    if effects.queue is Queue.COPIES:
        return Serves.BYPASS if "cg" in ins.modifiers else Serves.COPY
    if effects.queue is Queue.BULK:
        return Serves.ALONE if "tensor" in ins.modifiers else Serves.BULK
    if effects.opaque:
        return Serves.FRAGMENT
    if effects.counted_as == "atomic" and form["space"] != "shared::cluster":
        return _of_atomic(ins, read)
    loads = effects.memory is MemoryEffect.READ and effects.counted_as == "memory"
    return Serves.PAIRS if loads and form["space"] in _SHARED else Serves.ALONE


def _of_atomic(ins: Instruction, read: Collection[str]) -> Serves:
    op, type_ = ins.form["op"], ins.form["type"]
    if op == "cas" and type_bits(type_) >= 32:
        return Serves.TWICE
    last, first = ins.operands[-1], ins.operands[0]
    counts = isinstance(last, Immediate) and last.value & 0xFFFFFFFF == _COUNTS.get((op, type_))
    if counts and ins.form["space"] in _SHARED and not (isinstance(first, Reg) and first.name in read):
        return Serves.ALONE
    return Serves.TURNS if op == "exch" or type_ in _OF_INTEGERS else Serves.LOOP



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
        from mmulator.runtime.native.hooks.profile import PROFILE

        return PROFILE

    def begin(self, grid: Grid) -> None:
        from mmulator.runtime.native.hooks.profile import KINDS, ProfileMemory, ProfileSite, ProfileTable

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
