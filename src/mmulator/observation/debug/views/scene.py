"""The machine between two instructions: whose turn it is, registers of any warp, memory, and the lanes of all warps.

All views are functions of a `Scene`. It holds no copies: it says what the machine is, as long as the launch stands still.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.base.lazy import cached_property
from mmulator.observation.debug.machine import first_lane, line_text
from mmulator.observation.record.addresses import addresses, operands_of, special_value, value_of
from mmulator.observation.record.steps import WarpPlace
from mmulator.observation.record.trail import Trail, TrailStep, functions_of, lanes_of
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.frames import slot_bytes
from mmulator.ptx.tree import Address, Instruction, Operand
from mmulator.runtime.launch.arena import bytes_at, read
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.matrix.tensor_state import TENSOR_COLUMNS, TENSOR_LANES, TENSOR_ROW
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierEvent, shared_name
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, groups

if TYPE_CHECKING:
    from mmulator.observation.debug.machine import Machine
    from mmulator.observation.debug.stops import Focus
    from mmulator.ptx.program.blocks import Block
    from mmulator.ptx.program.frames import Frame
    from mmulator.runtime.compiled import CompiledKernel
    from mmulator.runtime.launch.grid import Grid

_PLACE = re.compile(r"(?P<base>%?[\w$.]+)\s*(?:(?P<sign>[+-])\s*(?P<offset>\w+))?")


@dataclass(frozen=True, eq=False)
class Scene:
    """A launch that stands still, seen from lanes of a warp.

    grid: the launch.
    place: the warp that is looked at: whose turn it is, or another one.
    lanes: mask of its lanes at one instruction; 0 if only the cluster is looked at, as where no warp can go on.
    site: number of the instruction that these lanes execute next; -1 if there is none.
    step: number of steps that the launch has done.
    base: byte of the register file at which the frame of their function begins; -1: that of the warp's last step.
    turn: (warp, lanes, site) whose turn it is, if these are not the lanes that are looked at.
    """

    grid: Grid
    place: WarpPlace
    lanes: int = 0
    site: int = -1
    step: int = 0
    base: int = -1
    turn: tuple[WarpPlace, int, int] | None = None

    @classmethod
    def of(cls, machine: Machine, focus: Focus, step: int = 0) -> Scene:
        """The machine of a debugged launch, seen from a lane. Raises DebugError where its warp is not on the machine."""
        state = machine.warp(focus.block, focus.warp)
        at = state.at(focus.lane) or next(iter(state.places), None)
        resident, warps = state.cta.resident, len(state.cta.warps)
        turn = None
        looked = focus.block, focus.warp
        if machine.running is not None and (machine.running != looked or at is None or at.lanes != machine.at[0]):
            cta = machine.cta(machine.running[0])
            if cta.resident is resident:
                turn = WarpPlace(resident, cta.rank * warps + machine.running[1]), machine.at[0], machine.at[1]
        place = WarpPlace(resident, state.cta.rank * warps + state.warp)
        if at is None or at.site < 0:
            return cls(machine.grid, place, step=step, turn=turn)
        return cls(machine.grid, place, at.lanes, at.site, step, at.frame, turn)

    # who --------------------------------------------------------------------------------------------------------------
    @property
    def kernel(self) -> CompiledKernel:
        return self.grid.kernel

    @property
    def resident(self) -> Resident:
        """The cluster of the warp whose turn it is."""
        return self.place.resident

    @property
    def cta(self) -> ResidentCta:
        """The CTA of the warp whose turn it is."""
        return ResidentCta(self.resident, self.place.cta)

    @property
    def instruction(self) -> Instruction | None:
        """The next instruction, as the text has it."""
        return self.kernel.sites[self.site] if self.site >= 0 else None

    @property
    def lane(self) -> int:
        """The first lane that executes the next instruction; 0 if there is none."""
        return max(0, first_lane(self.lanes))

    def warp_at(self, cta: int, warp: int) -> WarpPlace:
        """A warp of the cluster. cta, warp: numbers of the CTA in the cluster, and of the warp in the CTA."""
        if (cta, warp) == (self.place.cta, self.place.warp):
            return self.place
        return WarpPlace(self.resident, cta * self.grid.shape.warps + warp)

    def groups_of(self, cta: ResidentCta) -> list[LaneGroup]:
        """Lanes of a CTA that have not exited, those at one place together, in the order of warps."""
        if cta.rank not in self._groups:
            self._groups[cta.rank] = self._groups_of(cta)
        return self._groups[cta.rank]

    @cached_property
    def _groups(self) -> dict[int, list[LaneGroup]]:
        return {}

    def _groups_of(self, cta: ResidentCta) -> list[LaneGroup]:
        found = groups(self.grid, cta)
        place, lanes, site = self.turn or (self.place, self.lanes, self.site)
        if not lanes or cta.rank != place.cta:
            return found
        # a block of code is under way, so the program counters of its lanes are those of its beginning
        own, out, here = place.warp, [], 0
        for g in found:
            mine = g.lanes & lanes if g.warp == own and g.state == "runs" else 0
            here |= mine
            if g.lanes & ~mine:
                out.append(replace(g, lanes=g.lanes & ~mine))
        if not here:
            return found
        pc = self.kernel.once(_blocks)[self.kernel.executed[site]].index
        running = LaneGroup(own, here, "runs", self.kernel.sites[site], pc=pc, frame=place.frame)
        at = next((n for n, g in enumerate(out) if g.warp >= own), len(out))
        return [*out[:at], running, *out[at:]]

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Names of the cluster's CTAs by rank: `block (1, 0, 0)`."""
        return tuple(map(str, self.resident.each()))

    @cached_property
    def cta_groups(self) -> list[tuple[ResidentCta, list[LaneGroup]]]:
        """The groups of lanes of each CTA of the cluster."""
        return [(cta, self.groups_of(cta)) for cta in self.resident.each()]

    def function_of(self, group: LaneGroup) -> str:
        """Name of the function that lanes are in."""
        return self.kernel.program.blocks[group.pc].function.function.name

    @property
    def function(self) -> str:
        """Name of the function that executes the next instruction; of the kernel if there is none."""
        return self.kernel.once(functions_of)[self.kernel.executed[self.site]] if self.site >= 0 else self.kernel.name

    @property
    def frame_at(self) -> int:
        """Byte of the register file at which the frame of the lanes' function begins."""
        return self.base if self.base >= 0 else self.place.frame

    @cached_property
    def block(self) -> Block | None:
        """The block of code that has the next instruction."""
        if self.site < 0:
            return None
        return self.kernel.once(_blocks)[self.kernel.executed[self.site]]

    # operands of the next instruction -----------------------------------------------------------------------------------
    @cached_property
    def trail(self) -> Trail:
        """A trail of one step, the next one: questions about operands have their answers in observation/record/."""
        trail = Trail()
        watcher = trail.observer
        watcher.grid, watcher.kernel, watcher.shape = self.grid, self.kernel, self.grid.shape
        watcher.memory["count"] = self.step + 1
        if self.site >= 0:
            trail.record(self.place, self.lanes, self.site, self.frame_at)
        trail.index()
        trail.read = self.read
        return trail

    @property
    def next_step(self) -> TrailStep:
        """The step that comes next. Raises OperandError where no warp can go on."""
        if self.site < 0:
            raise OperandError("no warp can go on: there is no next instruction")
        return self.trail.steps[-1]

    @cached_property
    def operands(self) -> dict[str, Operand]:
        """The operands of the next instruction, by their names in the specification."""
        return operands_of(self.kernel.executed[self.site]) if self.site >= 0 else {}

    @cached_property
    def guarded(self) -> int:
        """Mask of the lanes for which the guard of the next instruction holds."""
        return self.trail.guard(self.next_step) if self.site >= 0 else 0

    def value(self, operand: Operand | None, lane: int | None = None, type_name: str = "b64") -> int | None:
        """Bits of an operand of the next instruction in a lane (default: the first); None where they are not known."""
        return value_of(self.trail, self.next_step, self.lane if lane is None else lane, operand, type_name)

    def addresses(self, operand: Address, space: str) -> NDArray[np.uint64] | None:
        """Generic address of each lane for an operand of the next instruction."""
        return addresses(self.trail, self.next_step, operand, space)

    # registers ------------------------------------------------------------------------------------------------------------
    def frame(self, function: str = "") -> Frame:
        """The registers of a function (default: of the next instruction's)."""
        return self.kernel.frames[function or self.function]

    def register(
        self, name: str, place: WarpPlace | None = None, function: str = "", frame: int | None = None
    ) -> NDArray[np.uint64] | None:
        """A register in the 32 lanes of a warp, uint64 [32]; of 128 bits the low half. None for a name without a place.

        name: of the register, as the tree has it.
        place: the warp; default: whose turn it is.
        function: the function whose register it is; default: of the next instruction.
        frame: byte of the register file at which its frame begins; default: that of the running function.
        """
        place = place or self.place
        found = self.frame(function)
        slot = found.slots.get(name)
        if slot is None:
            return None
        if frame is None:
            frame = self.frame_at if place is self.place else place.frame
        at = place.registers + frame + slot
        return lanes_of(bytes_at(at, slot_bytes(found.types[name])).tobytes(), found.types[name])

    # memory ----------------------------------------------------------------------------------------------------------------
    def read(self, address: int, size: int, lane: int | None = None) -> bytes:
        """Up to `size` bytes at a generic address, as far as there is memory. lane: whose local memory is meant."""
        return read(self.place.address, self.lane if lane is None else lane, address, size)

    def shared_image(self, rank: int | None = None) -> NDArray[np.uint8]:
        """Shared memory of a CTA of the cluster, uint8 [bytes]; its first byte has the address SHARED_BASE."""
        return bytes_at(self.resident.shared_at(self.place.cta if rank is None else rank), self.grid.shared)

    def tensor_cells(self, rank: int | None = None) -> NDArray[np.uint32] | None:
        """Tensor memory of a CTA, uint32 [128 lanes, 512 columns]; None for a kernel that has none."""
        if not self.kernel.matrix.tensor:
            return None
        rank = self.place.cta if rank is None else rank
        row = bytes_at(self.resident.arena.at("tensor") + rank * TENSOR_LANES * TENSOR_ROW, TENSOR_LANES * TENSOR_ROW)
        return row.view(np.uint32).reshape(TENSOR_LANES, TENSOR_ROW // 4)[:, :TENSOR_COLUMNS]

    # words of a user --------------------------------------------------------------------------------------------------------
    def number(self, text: str | int, lane: int | None = None) -> int:
        """The value of what a user writes: a number, a register, a special register or a shared variable, perhaps with an offset:
        `0x400`, `%rd4`, `%tid.x`, `smem+1024`. Raises OperandError for other texts.
        """
        if isinstance(text, int):
            return text
        lane = self.lane if lane is None else lane
        found = _PLACE.fullmatch(text.strip())
        if found is None:
            raise OperandError(f"cannot read {text!r}", hint="a number, a register or a variable: 0x400, %rd4, smem+1024")
        offset = int(found["offset"], 0) if found["offset"] else 0
        return self._base(found["base"], lane) + (-offset if found["sign"] == "-" else offset)

    def _base(self, name: str, lane: int) -> int:
        if name[0].isdigit():
            return int(name, 0)
        held = self.register(name)
        if held is None and not name.startswith("%"):
            held = self.register("%" + name)
        if held is not None:
            return int(held[lane])
        if name in self.kernel.shared.addresses:
            return (SLOT_SHARED << SLOT_SHIFT) + self._rank_base + int(self.kernel.shared.addresses[name])
        if name in self.kernel.image.addresses:
            return int(self.kernel.image.symbol_address(name))
        special = special_value(self.grid.shape, self.trail.steps[-1], lane, name[1:]) if self.site >= 0 else None
        if special is None:
            near = [*self.kernel.shared.addresses, *self.frame().slots][:6]
            raise OperandError(f"no register or variable {name!r} here", hint=f"such as {', '.join(near)}")
        return special

    @property
    def _rank_base(self) -> int:
        return self.place.cta << RANK_SHIFT

    def shared_address(self, address: int) -> tuple[int, int] | None:
        """(rank of the CTA, address within its shared memory) of a generic or shared address; None for other memory."""
        slot, offset = address >> SLOT_SHIFT, address & (1 << SLOT_SHIFT) - 1
        if slot not in (0, SLOT_SHARED):
            return None
        rank, within = offset >> RANK_SHIFT, offset & (1 << RANK_SHIFT) - 1
        if rank == 0 and slot == 0:
            rank = self.place.cta  # an address of .shared::cta, or a matrix descriptor's
        inside = SHARED_BASE <= within < SHARED_BASE + self.grid.shared and rank < self.resident.size
        return (rank, within) if inside else None


def _blocks(kernel: CompiledKernel) -> dict[Instruction, Block]:
    """The block of code of each instruction."""
    return {i: b for b in kernel.program.blocks for i in (*b.body, b.last) if i is not None}


def lanes_in(mask: int) -> list[int]:
    """The numbers of the lanes in a mask."""
    return [n for n in range(LANES) if mask >> n & 1]


def spot(ins: Instruction | None) -> str:
    """An instruction in short, with its line: `wgmma.mma_async (k.ptx:120)`."""
    return "the end of a function" if ins is None else f"{ins.form.name} ({line_text(ins)})"


def named_shared(scene: Scene, address: int) -> str:
    """A place in shared memory in words: `smem + 16 (shared 0x410)`. address: in the shared memory of a CTA."""
    name = shared_name(scene.grid, address)
    return f"{name} (shared {address:#x})" if name else f"shared {address:#x}"


def of_block(blocks: tuple[str, ...], cta: int) -> str:
    """` of block (1, 0, 0)`, or "" where a cluster has one CTA. blocks: names of the cluster's CTAs. cta: rank."""
    return f" of {blocks[cta]}" * (len(blocks) > 1)


def issuer(event: MbarrierEvent, here: ResidentCta) -> str:
    """Who did something at an mbarrier: `lane 0 of warp 3, mbarrier.arrive (k.ptx:120)`."""
    block = "" if event.cta.rank == here.rank else f" of {event.cta}"
    return f"lane {event.lane} of warp {event.warp}{block}, {spot(event.instruction)}"
