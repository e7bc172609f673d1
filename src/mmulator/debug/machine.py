"""The machine of a launch that stands still: blocks, warps, registers and memory, as they are before the next step.

Everything is read when it is asked for. After the session went on, ask again: a `WarpState` of an earlier stop is out of date.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mmulator.compiler.compiled import CompiledKernel
    from mmulator.launch.grid import Grid
    from mmulator.launch.resident import ResidentCta
    from mmulator.ptx.tree import Instruction


@dataclass(frozen=True)
class LanesAt:
    """Lanes of a warp that stand at one instruction.

    lanes: their mask.
    site: number of the instruction that they execute next (CompiledKernel.executed); -1 if it is not known.
    instruction: it.
    state: `runs`, `waits` (for other warps of the warpgroup, or a pending operation), `held` (for lanes of the warp), `barrier`,
        or `sleeps` (for a phase of an mbarrier).
    waits_for: what they wait for, in words; "" if they run.
    function: name of the function that they execute.
    frame: byte in the warp's register file where that function's registers begin.
    """

    lanes: int
    site: int
    instruction: Instruction | None
    state: str
    waits_for: str
    function: str
    frame: int


@dataclass(frozen=True)
class WarpState:
    """A warp of a block that is on the machine.

    cta: the memory of its block.
    block: number of the block in the grid, x fastest.
    warp: number in the block.
    live: mask of the lanes that have not exited.
    places: where they stand; empty if all have exited.
    """

    cta: ResidentCta
    block: int
    warp: int
    live: int
    places: tuple[LanesAt, ...]


class Machine:
    """The machine at a stop.

    grid: what all blocks share.
    kernel: the compiled kernel: `executed` (instructions by site), `frames` (registers of each function), `shared`.
    """

    grid: Grid
    kernel: CompiledKernel

    def blocks(self) -> Sequence[ResidentCta]:
        """Blocks that have begun and are not over, by their number. `ResidentCta.state` is their `Cta` struct."""
        raise NotImplementedError

    def cta(self, block: int) -> ResidentCta:
        """The memory of a block. Raises DebugError if the block has not begun or is over."""
        raise NotImplementedError

    def warp(self, block: int, warp: int) -> WarpState:
        """Raises DebugError if there is no such warp on the machine."""
        raise NotImplementedError

    def warps(self, block: int | None = None) -> list[WarpState]:
        """Warps of a block, or of all blocks that have begun."""
        raise NotImplementedError

    def types(self, warp: WarpState, frame: int | None = None) -> dict[str, str]:
        """Registers of the function that a warp executes: name (`%r5`) -> PTX type. frame: another of its frames (`LanesAt`)."""
        raise NotImplementedError

    def register(self, warp: WarpState, name: str, frame: int | None = None) -> NDArray[np.uint64]:
        """A register's bits, uint64 [32 lanes]; of 128 bits, uint64 [32 lanes, 2]. Raises DebugError for an unknown name."""
        raise NotImplementedError

    def registers(self, warp: WarpState, frame: int | None = None) -> dict[str, NDArray[np.uint64]]:
        """All registers of the function that a warp executes."""
        raise NotImplementedError

    def shared(self, block: int) -> NDArray[np.uint8]:
        """Shared memory of a block, uint8 [bytes]; a copy."""
        raise NotImplementedError

    def tensor(self, block: int) -> NDArray[np.uint32]:
        """Tensor memory of a block, uint32 [128 lanes, 512 columns]; a copy. Raises DebugError if the kernel has none."""
        raise NotImplementedError

    def read(self, address: int, size: int, block: int | None = None) -> bytes:
        """Bytes at a generic address, which may be in global, constant, parameter or shared memory.

        block: whose shared memory; a block's own window is at SHARED_BASE (program/addresses.py). None: of the block in focus.

        Raises DebugError if nothing is there.
        """
        raise NotImplementedError

    def digest(self) -> str:
        """A hash of all registers, shared and tensor memory, barriers and queues of all blocks, and of the device memory."""
        raise NotImplementedError
