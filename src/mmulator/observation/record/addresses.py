"""Operands in the steps of a trail: their names, where they lie, and what a value or an address is in each lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.trail import LOCAL, Trail, TrailStep
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.uses import signature_of
from mmulator.ptx.tree import (
    Address,
    Immediate,
    Instruction,
    NegatedPredicate,
    Operand,
    Reg,
    SpecialRegister,
    Symbol,
    VectorOperand,
)  # fmt: skip
from mmulator.runtime.native.state import LANES

if TYPE_CHECKING:
    from mmulator.runtime.launch.shape import LaunchShape

@dataclass(frozen=True)
class InRegister:
    """An element in a register. lane, name, low: the lane, the register and the element's lowest bit."""

    lane: int
    name: str
    low: int


@dataclass(frozen=True)
class InMemory:
    """An element in memory.

    address: generic address of its first byte.
    before: number of the step before which it was read.
    low: its lowest bit in that byte.
    """

    address: int
    before: int
    low: int = 0


@dataclass(frozen=True)
class InCell:
    """An element in tensor memory.

    cta: number of its CTA in the cluster.
    lane, column: of the cell.
    low: lowest bit of the element in it.
    before: number of writes to tensor memory before it was read.
    """

    cta: int
    lane: int
    column: int
    low: int
    before: int

    @property
    def text(self) -> str:
        """`tensor memory [lane 3, column 5]`."""
        return f"tensor memory [lane {self.lane}, column {self.column}]" + (f" of CTA {self.cta}" if self.cta else "")


Place = InRegister | InMemory | InCell


U64 = NDArray[np.uint64]
Operands = dict[str, Operand]  # by their names in the tables of the ISA
SPACES = {SLOT_SHARED: "shared", SLOT_LOCAL: "local", SLOT_CONST: "const", SLOT_PARAM: "param"}
_SLOTS = {name: slot for slot, name in SPACES.items()}
_AXES = {"x": 0, "y": 1, "z": 2}
_OFFSET = (1 << SLOT_SHIFT) - 1


def space_of(address: int) -> str:
    """State space of a generic address."""
    return SPACES.get(address >> SLOT_SHIFT, "global")


def space_text(address: int) -> str:
    """A generic address in no array, as people read it: `shared+128`, `shared+128 of CTA 1` in a cluster."""
    space, offset = space_of(address), address & _OFFSET
    rank = offset >> RANK_SHIFT if space == "shared" else 0
    return f"{space}+{offset & (1 << RANK_SHIFT) - 1 if space == 'shared' else offset}" + (f" of CTA {rank}" if rank else "")


def elements(operand: Operand) -> tuple[Operand, ...]:
    """The registers or constants of a vector operand; another operand is its own only element."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def operands_of(ins: Instruction) -> Operands:
    """The operands of an instruction by their names in the tables of the ISA."""
    return {spec.name: o for spec, o in zip(signature_of(ins.form, ins.operands), ins.operands)}


def value_of(trail: Trail, step: TrailStep, lane: int, operand: Operand | None, type_name: str = "b64") -> int | None:
    """Bits of a source operand in a lane; None where they are not known.

    trail, step, lane: who reads.
    operand: a register, a constant or a special register; of others nothing is known.
    type_name: PTX type of a constant.
    """
    match operand:
        case Reg(name=name):
            found = trail.register(step, name)
            return None if found is None else int(found[lane])
        case NegatedPredicate(register=register):
            held = value_of(trail, step, lane, register)
            return None if held is None else 1 - held
        case Immediate():
            return operand.bits(type_name) if type_name in TYPES else operand.value
        case SpecialRegister(name=name):
            return special_value(trail.shape, step, lane, name)
    return None


def special_value(shape: LaunchShape, step: TrailStep, lane: int, name: str) -> int | None:
    """The value of a special register for a lane of a step; None for those that change while a kernel runs (PTX ISA 9.1, Special
    Registers).
    """
    family, _, axis = name.partition(".")
    number = _AXES.get(axis)
    if number is not None:
        at = shape.block_at(step.block)
        if family == "cluster_ctaid":
            return at[number] % shape.cluster[number]
        if family == "clusterid":
            return at[number] // shape.cluster[number]
        if family == "nclusterid":
            return shape.grid[number] // shape.cluster[number]
        sizes = {"ntid": shape.block, "nctaid": shape.grid, "cluster_nctaid": shape.cluster}
        if family in sizes:
            return sizes[family][number]
        if family == "tid":
            return shape.thread_at(step.place.warp * LANES + lane)[number]
        if family == "ctaid":
            return at[number]
        return None
    ones = (1 << 32) - 1
    return {
        "laneid": lane, "warpid": step.place.warp, "nwarpid": shape.warps, "cluster_ctarank": step.place.cta,
        "cluster_nctarank": shape.cluster_size, "lanemask_eq": 1 << lane, "lanemask_lt": (1 << lane) - 1,
        "lanemask_le": (2 << lane) - 1, "lanemask_gt": ones & ~((2 << lane) - 1), "lanemask_ge": ones & ~((1 << lane) - 1),
    }.get(name)  # fmt: skip


def signed32(bits: int) -> int:
    """The low 32 bits of a value as a number with a sign."""
    low = bits & 0xFFFFFFFF
    return low - (low >> 31 << 32)


def addresses(trail: Trail, step: TrailStep, operand: Address, space: str) -> U64 | None:
    """Generic address of each lane, uint64 [32]; None where it is not known."""
    key = step.number, id(operand)
    if key not in trail.places:
        trail.places[key] = _addresses(trail, step, operand, space)
    found: U64 | None = trail.places[key]
    return found


def _addresses(trail: Trail, step: TrailStep, operand: Address, space: str) -> U64 | None:
    base = operand.base
    if isinstance(base, Reg):
        value = trail.register(step, base.name)
        if value is None:
            return None
        if type_bits(base.type) == 32:
            at = (value + np.uint64(operand.offset & 0xFFFFFFFF)) & np.uint64(0xFFFFFFFF)
        else:
            at = value + np.uint64(operand.offset & 0xFFFFFFFFFFFFFFFF)
    elif isinstance(base, Immediate):
        at = np.full(32, base.value + operand.offset & 0xFFFFFFFFFFFFFFFF, np.uint64)
    else:
        found = address_of(trail, step, base)
        if found is None:
            return None
        at = found + np.uint64(operand.offset & 0xFFFFFFFFFFFFFFFF)
    slot = _SLOTS.get(space.partition("::")[0], 0)
    if slot and not int(at.max()) >> SLOT_SHIFT:
        at = at | np.uint64(slot << SLOT_SHIFT)
    return at


def address_of(trail: Trail, step: TrailStep, symbol: Symbol) -> U64 | None:
    """Generic address of a variable for each lane, uint64 [32]; None for what has no address in the kernel."""
    kernel = trail.kernel
    if symbol.name in kernel.shared.addresses:
        window = step.place.window(step.place.cta)
        return _everywhere(window + int(kernel.shared.addresses[symbol.name]) + symbol.offset)
    offset = kernel.locals[trail.function_of(step)].offsets.get(symbol.name)
    if offset is not None:
        base = trail.register(step, LOCAL)
        return None if base is None else base + np.uint64((SLOT_LOCAL << SLOT_SHIFT) + offset + symbol.offset)
    if symbol.name in kernel.image.addresses:
        return _everywhere(int(kernel.image.symbol_address(symbol.name)) + symbol.offset)
    return None


def _everywhere(address: int) -> U64:
    return np.full(LANES, address, np.uint64)


@dataclass(frozen=True)
class MemoryWrite:
    """A write to memory by one lane.

    step, lane: who wrote.
    operand: what was stored, or None where it is not a register or constant.
    byte: number of the byte of the operand that lies at the address that was asked for.
    type: PTX type of the operand.
    source: address from which the byte was copied, or None.
    remark: more about a copy.
    """

    step: TrailStep
    lane: int
    operand: Operand | None
    byte: int
    type: str
    source: int | None = None
    remark: str = ""
