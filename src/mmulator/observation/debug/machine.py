"""The machine of a launch that stands still: blocks, warps, registers and memory, as they are before the next step.

Everything is read when it is asked for. After the session went on, ask again: a `WarpState` of an earlier stop is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import Ends
from mmulator.isa.types import type_bits
from mmulator.observation.debug.stops import DebugError
from mmulator.observation.record.trail import functions_of, lanes_of
from mmulator.ptx.program.addresses import (
    HEADER_LOCAL,
    HEADER_RETURN_FRAME,
    HEADER_RETURN_PC,
    RANK_SHIFT,
    SHARED_BASE,
    SLOT_PARAM,
    SLOT_SHARED,
    SLOT_SHIFT,
)
from mmulator.ptx.program.dwarf import PlacedVariable, visible
from mmulator.ptx.program.frames import slot_bytes
from mmulator.runtime.launch.arena import bytes_at, pointer
from mmulator.runtime.native.matrix.tensor_state import TENSOR_COLUMNS, TENSOR_LANES, TENSOR_ROW
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.diagnostics.whereabouts import of_warp

if TYPE_CHECKING:
    from mmulator.ptx.program.frames import Frame
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.compiled import CompiledKernel
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.resident import Resident, ResidentCta


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

    def at(self, lane: int) -> LanesAt | None:
        """Where a lane stands; None if it has exited."""
        return next((p for p in self.places if p.lanes >> lane & 1), None)


class Machine:
    """The machine at a stop.

    grid: what all blocks share.
    kernel: the compiled kernel: `executed` (instructions by site), `frames` (registers of each function), `shared`.
    residents: memory of the clusters that the launch has had.
    running: (block, warp) that executes the next step; None if none does.
    at: lanes, site and frame of that step.
    """

    def __init__(
        self, grid: Grid, residents: Sequence[Resident], running: tuple[int, int] | None = None,
        at: tuple[int, int, int] = (0, -1, 0),
    ) -> None:  # fmt: skip
        self.grid, self.kernel = grid, grid.kernel
        self.residents = [r for r in residents if r.begun[0]]
        self.running, self.at = running, at
        self.sites = site_numbers(grid.kernel)

    # blocks and warps -----------------------------------------------------------------------------------------------------
    def blocks(self) -> list[ResidentCta]:
        """Blocks that have begun and are not over, by their number. `ResidentCta.state` is their `Cta` struct."""
        every = (c for r in sorted(self.residents, key=lambda r: r.number) for c in r.each())
        return sorted((c for c in every if c.warps["live"].any()), key=block_of)

    def cta(self, block: int) -> ResidentCta:
        """The memory of a block. Raises DebugError if the block has not begun or is over."""
        for resident in self.residents:
            for cta in resident.each():
                if block_of(cta) == block:
                    return cta
        if not 0 <= block < self.grid.shape.ctas:
            raise DebugError(f"there is no block {block}: the grid has {self.grid.shape.ctas}")
        now = ", ".join(extent_text(c.state["ctaid"]) for c in self.blocks()[:4])
        raise DebugError(f"block {self.extent(block)} has not begun, or is over", hint=f"on the machine: {now}")

    def extent(self, block: int) -> str:
        """A block's number as `(1,0,0)`."""
        return extent_in(self.grid.shape.grid, block)

    def warp(self, block: int, warp: int) -> WarpState:
        """A warp. Raises DebugError if there is no such warp on the machine."""
        cta = self.cta(block)
        if not 0 <= warp < len(cta.warps):
            raise DebugError(f"there is no warp {warp}: a block has {len(cta.warps)}")
        return self._state(cta, warp)

    def warps(self, block: int | None = None) -> list[WarpState]:
        """Warps of a block, or of all blocks that have begun."""
        ctas = self.blocks() if block is None else [self.cta(block)]
        return [self._state(cta, n) for cta in ctas for n in range(len(cta.warps))]

    def _state(self, cta: ResidentCta, number: int) -> WarpState:
        w, block = cta.warps[number], block_of(cta)
        places = []
        lanes = 0
        if self.running == (block, number):
            lanes, site, frame = self.at
            places.append(LanesAt(lanes, site, self.kernel.sites[site], "runs", "", self._function(site), frame))
        for group in of_warp(self.kernel.program, cta, w):
            rest = group.lanes & ~lanes
            if rest:
                first = first_lane(rest)
                pc = int(w["lane_pc"][first])
                site = self._site_at(pc, group.instruction)
                name = self.kernel.program.blocks[pc].function.function.name
                waits = "" if group.state == "runs" else str(replace(group, lanes=rest))
                places.append(LanesAt(rest, site, group.instruction, group.state, waits, name, int(w["lane_frame"][first])))
        return WarpState(cta, block, number, int(w["live"]), tuple(places))

    def _site_at(self, pc: int, instruction: Instruction | None) -> int:
        """The site of the instruction that lanes at a block of code execute next: the instruction itself, or one made from it."""
        if instruction is None:
            return -1
        blocks, seen = self.kernel.program.blocks, set[int]()
        while pc not in seen:
            seen.add(pc)
            block = blocks[pc]
            for ins in (*block.body, *([block.last] if block.last is not None else [])):
                if ins.original is instruction and ins in self.sites:
                    return self.sites[ins]
            if block.body or block.last is not None or not block.targets:
                break
            pc = block.targets[0]
        return next((n for n, ins in enumerate(self.kernel.sites) if ins is instruction), -1)

    def _function(self, site: int) -> str:
        return function_names(self.kernel)[site] if site >= 0 else ""

    # registers ------------------------------------------------------------------------------------------------------------
    def _frame(self, warp: WarpState, frame: int | None) -> tuple[Frame, int]:
        """The frame of a function with its registers, and its first byte in the register file."""
        place = next((p for p in warp.places if frame is None or p.frame == frame), None)
        if place is None:
            raise DebugError(f"all threads of warp {warp.warp} of block {self.extent(warp.block)} have exited")
        return self.kernel.frames[place.function], place.frame

    def types(self, warp: WarpState, frame: int | None = None) -> dict[str, str]:
        """Registers of the function that a warp executes: name (`%r5`) -> PTX type. frame: another of its frames (`LanesAt`)."""
        found, _ = self._frame(warp, frame)
        return {name: found.types[name] for name in sorted(found.slots, key=_by_number)}

    def register(self, warp: WarpState, name: str, frame: int | None = None) -> NDArray[np.uint64]:
        """A register's bits, uint64 [32 lanes]; of 128 bits, uint64 [32 lanes, 2]. Raises DebugError for an unknown name."""
        found, base = self._frame(warp, frame)
        if name not in found.slots:
            from difflib import get_close_matches

            near = ", ".join(get_close_matches(name, found.slots, 3)) or f"%r1; the kernel has {len(found.slots)} registers"
            raise DebugError(f"there is no register {name} here", hint=f"such as {near}")
        address = warp.cta.warps["regs"][warp.warp]
        kind = found.types[name]
        raw = bytes_at(int(address) + base + found.slots[name], slot_bytes(kind)).tobytes()
        if type_bits(kind) == 128:
            return np.frombuffer(raw, np.uint64).reshape(-1, 2)
        return lanes_of(raw, kind)

    def variable(self, warp: WarpState, name: str) -> tuple[NDArray[np.uint64], str]:
        """(bits, uint64 [32 lanes], PTX type) of a variable of the program. Raises DebugError for an unknown name."""
        _ = self._frame(warp, None)
        place = warp.places[0]
        function = self.kernel.program.functions[place.function].function
        known, at = self.kernel.once(_variables), place.instruction.span.start if place.instruction is not None else 0
        found = known.get((function.name, at))
        if found is None:
            found = known[function.name, at] = visible(function, at)
        if name not in found:
            if not found:
                return self.register(warp, name), ""  # says which there are
            raise DebugError(f"there is no variable {name} here", hint=f"known here: {', '.join(found)}")
        register, symbol, offset, kind = found[name]
        if register:
            return self.register(warp, register), kind or self.types(warp)[register]
        if symbol not in function.places or not kind:
            raise DebugError(f"{name} is in memory ({symbol}+{offset}), and no single number", hint="info locals, x ADDRESS")
        at = function.places[symbol] + offset
        raw = self.grid.params[at : at + max(1, type_bits(kind) // 8)].tobytes()
        return np.full(32, int.from_bytes(raw, "little"), np.uint64), kind

    def registers(self, warp: WarpState, frame: int | None = None) -> dict[str, NDArray[np.uint64]]:
        """All registers of the function that a warp executes."""
        return {name: self.register(warp, name, frame) for name in self.types(warp, frame)}

    def callers(self, warp: WarpState, at: LanesAt, lane: int) -> Iterator[LanesAt]:
        """The functions that have called the one that a lane executes, innermost first, each at its call."""
        registers = int(warp.cta.warps["regs"][warp.warp])
        while at.function != self.kernel.name:
            header = bytes_at(registers + at.frame, HEADER_LOCAL).view(np.uint32)
            returns, back = (int(header[n // 4 + lane]) for n in (HEADER_RETURN_PC, HEADER_RETURN_FRAME))
            caller = self.kernel.program.blocks[returns].function
            call = next(b.last for b in caller.blocks if b.ending is Ends.CALL and returns in b.targets)
            site = next((n for n, ins in enumerate(self.kernel.executed) if ins is call), -1)
            written = self.kernel.sites[site] if site >= 0 else None
            at = LanesAt(at.lanes, site, written, "runs", "", caller.function.name, back)
            yield at

    # memory ---------------------------------------------------------------------------------------------------------------
    def shared(self, block: int) -> NDArray[np.uint8]:
        """Shared memory of a block, uint8 [bytes]; a copy. Byte 0 is at address SHARED_BASE (ptx/program/addresses.py)."""
        cta = self.cta(block)
        return bytes_at(cta.resident.shared_at(cta.rank), self.grid.shared).copy()

    def tensor(self, block: int) -> NDArray[np.uint32]:
        """Tensor memory of a block, uint32 [128 lanes, 512 columns]; a copy. Raises DebugError if the kernel has none."""
        cta = self.cta(block)
        if not self.kernel.matrix.tensor:
            raise DebugError("the kernel uses no tensor memory")
        at = cta.resident.arena.at("tensor") + cta.rank * TENSOR_LANES * TENSOR_ROW
        return bytes_at(at, TENSOR_LANES * TENSOR_ROW).view(np.uint32).reshape(TENSOR_LANES, -1)[:, :TENSOR_COLUMNS].copy()

    def host(self, address: int, size: int, block: int | None = None) -> int:
        """Where the bytes at a generic address are on the host. Raises DebugError if nothing is there."""
        slot, offset = address >> SLOT_SHIFT, address & (1 << SLOT_SHIFT) - 1
        if slot in (0, SLOT_SHARED) and offset >= SHARED_BASE and (slot or block is not None):
            rank, at = offset >> RANK_SHIFT, (offset & (1 << RANK_SHIFT) - 1) - SHARED_BASE
            if block is not None and 0 <= at <= self.grid.shared - size:
                cta = self.cta(block)
                if slot and rank != cta.rank and rank < cta.resident.size:
                    cta = cta.resident.each()[rank]
                return cta.resident.shared_at(cta.rank) + at
        if slot == SLOT_PARAM and offset + size <= self.grid.params.nbytes:
            return pointer(self.grid.params) + offset
        for region in self.grid.memory:
            if region.start <= address and address + size <= region.end:
                return region.host + address - region.start
        raise DebugError(f"there is no memory at 0x{address:x} ({size} bytes)")

    def read(self, address: int, size: int, block: int | None = None) -> bytes:
        """Bytes at a generic address, which may be in global, constant, parameter or shared memory.

        block: whose shared memory; None: only memory outside of shared is found.

        Raises DebugError if nothing is there.
        """
        return bytes_at(self.host(address, size, block), size).tobytes()

    def digest(self) -> str:
        """A hash of all registers, shared and tensor memory, places of lanes, barriers and what is in flight of all blocks on the
        machine, and of the memory that the launch may write.
        """
        sha = sha256()
        for cta in self.blocks():
            resident = cta.resident
            sha.update(str((block_of(cta), [int(cta.resident.cluster[name][0]) for name in COUNTS])).encode())
            sha.update(str((self.running, self.at)).encode())
            for name in OF_WARP:
                values = np.array(cta.warps[name])
                if name in ("lane_pc", "lane_frame") and self.running is not None and self.running[0] == block_of(cta):
                    running = np.array([self.at[0] >> n & 1 for n in range(LANES)], bool)
                    values[self.running[1], running] = 0  # of lanes that run they are written when these stop: `at` is known
                sha.update(values.tobytes())
            for name in OF_QUEUE:
                sha.update(np.ascontiguousarray(cta.warps["queues"][name]).tobytes())
            sha.update(cta.state["barriers"].tobytes())
            sha.update(bytes_at(resident.shared_at(cta.rank), self.grid.shared).data)
            first = int(cta.warps["regs"][0])
            sha.update(bytes_at(first, self.kernel.frame_bytes * len(cta.warps)).data)
            if self.kernel.local_bytes:
                sha.update(bytes_at(int(cta.warps["local"][0]), self.kernel.local_bytes * LANES * len(cta.warps)).data)
            if self.kernel.matrix.tensor:
                sha.update(self.tensor(block_of(cta)).data)
        for region in sorted(self.grid.memory, key=lambda r: r.start):
            if region.writable:
                sha.update(bytes_at(region.host, region.size).data)
        return sha.hexdigest()


COUNTS = ("rounds", "arrived", "generation", "newest", "under_way", "patience")  # flips go on from launch to launch
OF_WARP = (
    "lane_pc", "lane_frame", "live", "waiting", "held", "at_barrier", "turns", "bar_lanes", "bar_came", "napping", "naps_for",
    "timed_out", "granted", "cluster_came", "retired", "registers",
)  # fmt: skip
OF_QUEUE = ("issued", "done", "committed", "filled")


def block_of(cta: ResidentCta) -> int:
    """Number of a block in the grid, x fastest."""
    return int(cta.state["linear"])


def extent_text(extent: Sequence[int]) -> str:
    """`(1,0,0)`."""
    return "(" + ",".join(str(int(n)) for n in extent) + ")"


def extent_in(extents: Sequence[int], number: int) -> str:
    """A block of a grid, or a thread of a block, as `(1,0,0)`. extents: x, y and z. number: x fastest."""
    x, y, _ = extents
    return extent_text((number % x, number // x % y, number // (x * y)))


def first_lane(mask: int) -> int:
    """The lowest lane of a mask; -1 if it has none."""
    return (mask & -mask).bit_length() - 1


def _by_number(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


def site_numbers(kernel: CompiledKernel) -> dict[Instruction, int]:
    """Site of each instruction as it is executed."""
    return kernel.once(_site_numbers)


def _site_numbers(kernel: CompiledKernel) -> dict[Instruction, int]:
    return {ins: n for n, ins in reversed([*enumerate(kernel.executed)])}


def _variables(kernel: CompiledKernel) -> dict[tuple[str, int], dict[str, PlacedVariable]]:
    return {}  # by function and character of the PTX: filled as they are asked for


def function_names(kernel: CompiledKernel) -> list[str]:
    """Name of the function of each site."""
    return kernel.once(_function_names)


def _function_names(kernel: CompiledKernel) -> list[str]:
    owners = kernel.once(functions_of)
    return [owners[ins] for ins in kernel.executed]


def line_text(ins: Instruction | None) -> str:
    """The line of the instruction at which lanes stand: `gemm.py:31, k.ptx:120`, or `k.ptx:120` where no program is named."""
    return ins.span.rows if ins is not None else "the end of a function"
