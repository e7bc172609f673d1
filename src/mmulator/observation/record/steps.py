"""Steps of a launch: an observer that is called between two instructions of a warp, and sees the whole machine there.

A step is one instruction that one warp executes, or tries. The number of steps is the time of a launch on one thread of the
host, which is the same in each run under one seed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from mmulator.ptx.program.addresses import SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import CallingObserver
from mmulator.runtime.native.state import Cta, Transfer, Warp
from mmulator.runtime.native.state import Steps as Struct

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.resident import Resident

NEVER = (1 << 64) - 1
STEPPED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
CARRIED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
READS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32)
TRANSFER = Transfer.numpy_dtype()
_FRAME = Warp.offset["frame"]
_LINEAR = Cta.offset["linear"]


class WarpPlace:
    """A warp of a resident cluster.

    resident: the cluster's memory.
    cta, warp: numbers of the CTA in the cluster, and of the warp in the CTA.
    address: of the warp's struct.
    registers: address of the warp's register file.
    """

    __slots__ = ("_frame", "address", "cta", "linear", "registers", "resident", "warp")

    def __init__(self, resident: Resident, number: int) -> None:
        warps = len(resident.warps) // resident.size
        self.resident, self.cta, self.warp = resident, number // warps, number % warps
        self.address = resident.arena.at("warps") + number * Warp.size
        self.registers = int(resident.warps["regs"][number])
        self.linear = ctypes.c_uint32.from_address(resident.arena.at("ctas") + self.cta * Cta.size + _LINEAR)
        self._frame = ctypes.c_uint32.from_address(self.address + _FRAME)

    @property
    def block(self) -> int:
        """Number of the CTA in the grid, x fastest."""
        return self.linear.value

    def window(self, cta: int) -> int:
        """The number that makes a generic address of an offset in the shared memory of a CTA of the cluster."""
        return (SLOT_SHARED << SLOT_SHIFT) + int(self.resident.ctas["shared_base"][cta]) - SHARED_BASE

    @property
    def frame(self) -> int:
        """Byte in the register file at which the frame of the running function begins."""
        return self._frame.value


class Steps(CallingObserver):
    """The observer that calls Python between instructions.

    stepped: is called with (place, lanes, site) before lanes (a mask of 32 bits) of a warp execute the instruction of a site.
    reads: is called with (place of a warpgroup's first warp, number, site) before operation `number` of wgmma reads its operands.
    carried: is called with (place of a warp of the CTA that issued it, Transfers of instructions that are carried out together)
        before tcgen05.mma, cp or shift reads its operands.
    next: number of the first step of which `stepped` is told; NEVER: of none but `stops`.
    stops: gives, when the grid is known, sites of whose steps it is always told.

    What one of the two raises ends the launch, and is raised by it.
    """

    alone = True

    def __init__(
        self, stepped: Callable[[WarpPlace, int, int], None], reads: Callable[[WarpPlace, int, int], None] | None = None,
        next: int = 0, stops: Callable[[Grid], Iterable[int]] | None = None,
        carried: Callable[[WarpPlace, list[np.void]], None] | None = None,
    ) -> None:  # fmt: skip
        self.stepped, self.reads, self.carried, self.first, self.stops = stepped, reads, carried, next, stops
        self.memory = np.zeros(1, Struct.numpy_dtype())
        self._count = ctypes.c_uint64.from_address(pointer(self.memory) + Struct.offset["count"])
        self._places: dict[int, WarpPlace] = {}
        self._stepped, self._reads = STEPPED(self.guarded(self._on_step)), READS(self.guarded(self._on_read))
        self._carried = CARRIED(self.guarded(self._on_work))

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.steps import STEPS

        return STEPS

    @property
    def count(self) -> int:
        """Number of steps so far."""
        return self._count.value

    def begin(self, grid: Grid) -> None:
        self.grid, self.kernel, self.shape = grid, grid.kernel, grid.shape
        sites = np.zeros(len(grid.kernel.sites) + 1, np.uint8)
        for site in self.stops(grid) if self.stops is not None else ():
            sites[site] = 1
        self.marks = sites
        row = self.memory
        row["count"], row["next"], row["stops"] = 0, self.first, pointer(sites)
        row["stepped"] = ctypes.cast(self._stepped, ctypes.c_void_p).value
        row["reads"] = ctypes.cast(self._reads, ctypes.c_void_p).value
        row["carried"] = ctypes.cast(self._carried, ctypes.c_void_p).value
        grid.launch["steps"] = pointer(row)
        self._places.clear()

    def take(self, resident: Resident, worker: int) -> None:
        first = resident.arena.at("warps")
        if first not in self._places:
            for number in range(len(resident.warps)):
                self._places[first + number * Warp.size] = WarpPlace(resident, number)

    def place(self, warp: int) -> WarpPlace:
        """The warp whose struct is at an address."""
        return self._places[warp]

    def _on_step(self, w: int, mask: int, site: int) -> None:
        self.stepped(self._places[w], mask, site)

    def _on_read(self, first: int, number: int, site: int) -> None:
        if self.reads is not None:
            self.reads(self._places[first], number, site)

    def _on_work(self, w: int, work: int, count: int) -> None:
        if self.carried is not None:
            at = (ctypes.c_uint64 * count).from_address(work)
            read = [np.frombuffer(ctypes.string_at(one, TRANSFER.itemsize), TRANSFER)[0] for one in at]
            self.carried(self._places[w], read)
