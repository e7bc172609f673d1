"""Places in memory of a trail: the bytes that an instruction of a lane accesses, and which step wrote a byte last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import MemoryEffect, Queue, Step, Stored
from mmulator.isa.types import type_bits
from mmulator.native.state import FULL, LANES
from mmulator.program.addresses import SHARED_BASE, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, Symbol, VectorOperand
from mmulator.record.matrices import stored_at
from mmulator.record.trail import LOCAL, Trail
from mmulator.record.trail import Step as Moment

U64 = NDArray[np.uint64]
SPACES = {SLOT_SHARED: "shared", SLOT_LOCAL: "local", SLOT_CONST: "const", SLOT_PARAM: "param"}
_SLOTS = {name: slot for slot, name in SPACES.items()}
_OFFSET = (1 << SLOT_SHIFT) - 1


def space_of(address: int) -> str:
    """State space of a generic address."""
    return SPACES.get(address >> SLOT_SHIFT, "global")


def elements(operand: Operand) -> tuple[Operand, ...]:
    """The registers or constants of a vector operand; another operand is its own only element."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def addresses(trail: Trail, step: Moment, operand: Address, space: str) -> U64 | None:
    """Generic address of each lane, uint64 [32]; None where it is not known."""
    key = step.number, id(operand)
    if key not in trail.places:
        trail.places[key] = _addresses(trail, step, operand, space)
    return trail.places[key]


def _addresses(trail: Trail, step: Moment, operand: Address, space: str) -> U64 | None:
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


def address_of(trail: Trail, step: Moment, symbol: Symbol) -> U64 | None:
    """Generic address of a variable for each lane, uint64 [32]; None for what has no address in the kernel."""
    kernel = trail.kernel
    if symbol.name in kernel.shared.addresses:
        rank = int(step.place.resident.ctas["shared_base"][step.place.cta]) - SHARED_BASE
        return _everywhere((SLOT_SHARED << SLOT_SHIFT) + rank + int(kernel.shared.addresses[symbol.name]) + symbol.offset)
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
class Write:
    """A write to memory by one lane.

    step, lane: who wrote.
    operand: what was stored, or None where it is not a register or constant.
    byte: number of the byte of the operand that lies at the address that was asked for.
    type: PTX type of the operand.
    source: address from which the byte was copied, or None.
    remark: more about a copy.
    """

    step: Moment
    lane: int
    operand: Operand | None
    byte: int
    type: str
    source: int | None = None
    remark: str = ""


def last_write(trail: Trail, before: int | None, address: int, own: tuple[Moment, int] | None = None) -> Write | None:
    """The newest write to the byte at a generic address; None if the trail has none.

    before: number of the step before which it was; None: the end.
    own: step and lane of who reads local memory, which each lane has for itself.
    """
    for step in trail.writes_before(before):
        ins = trail.instruction(step)
        if own is not None and step.place is not own[0].place:
            continue
        found = _write_of(trail, step, ins, address, FULL if own is None else 1 << own[1])
        if found is not None:
            return found
    return None


def _write_of(trail: Trail, step: Moment, ins: Instruction, address: int, lanes: int) -> Write | None:
    """The write of a step to the byte at an address by one of some lanes."""
    effects = ins.effects
    if effects.memory is MemoryEffect.COPY and effects.queue is Queue.COPIES and effects.step is Step.ISSUE:
        return _copied(trail, step, ins, address)
    if effects.queue is Queue.BULK and effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE):
        from mmulator.record.bulk import bulk_write

        return bulk_write(trail, step, ins, address)
    if effects.stored in (Stored.ROWS, Stored.TILE):
        hit = stored_at(trail, step, address)
        return None if hit is None else Write(step, hit[0], hit[1], hit[2], "b32")
    if effects.stored in (Stored.VALUES, Stored.COMBINED) and ins.form["type"]:
        return _stored(trail, step, ins, address, lanes)
    return None


def _hit(trail: Trail, step: Moment, at: U64 | None, bytes: int, address: int, lanes: int = FULL) -> tuple[int, int] | None:
    """(lane, byte) of the highest of some lanes whose bytes from `at` on have the address."""
    if at is None:
        return None
    hit = np.nonzero((at <= np.uint64(address)) & (np.uint64(address) < at + np.uint64(bytes)))[0]
    taking = trail.guard(step) & lanes
    for lane in hit[::-1]:
        if taking >> int(lane) & 1:
            return int(lane), address - int(at[lane])
    return None


def _stored(trail: Trail, step: Moment, ins: Instruction, address: int, lanes: int) -> Write | None:
    where = next(n for n, o in enumerate(ins.operands) if isinstance(o, Address))
    operand: Any = ins.operands[where]
    type_name = ins.form["type"]
    values = elements(ins.operands[where + 1])
    size = type_bits(type_name) // 8
    at = addresses(trail, step, operand, ins.form["space"])
    hit = _hit(trail, step, at, size * len(values), address, lanes)
    if hit is None:
        return None
    lane, byte = hit
    return Write(step, lane, values[byte // size], byte % size, type_name)


def _copied(trail: Trail, step: Moment, ins: Instruction, address: int) -> Write | None:
    to, source, *sizes = ins.operands
    if not (isinstance(to, Address) and isinstance(source, Address) and sizes and isinstance(sizes[0], Immediate)):
        return None
    at = addresses(trail, step, to, "shared")
    hit = _hit(trail, step, at, int(sizes[0].value), address)
    if hit is None:
        return None
    lane, byte = hit
    origin = addresses(trail, step, source, "global")
    if origin is None:
        return None
    there = source_bytes(trail, step, ins, lane)
    return Write(step, lane, None, byte, "b8", int(origin[lane]) + byte if byte < there else None)


def source_bytes(trail: Trail, step: Moment, ins: Instruction, lane: int) -> int:
    """Bytes that a cp.async of a lane reads; the rest of its bytes become zero."""
    size = int(ins.operands[2].value) if isinstance(ins.operands[2], Immediate) else 16
    given = ins.operands[3] if len(ins.operands) > 3 else None
    if isinstance(given, Immediate):
        return min(size, given.value)
    if isinstance(given, Reg):
        value = trail.register(step, given.name)
        if value is not None and given.type == "pred":  # ignore-src
            return 0 if value[lane] else size
        if value is not None:
            return min(size, int(value[lane]))
    return size


def loads(trail: Trail, step: Moment) -> Iterator[tuple[Operand, U64, int, str]]:
    """What a load gives: (register, generic address of each lane, bytes, PTX type) of each element."""
    ins = trail.instruction(step)
    where = next((o for o in ins.operands if isinstance(o, Address)), None)
    if where is None:
        return
    at = addresses(trail, step, where, ins.form["space"])
    if at is None:
        return
    type_name = ins.form["type"]
    size = type_bits(type_name) // 8
    for n, target in enumerate(elements(ins.operands[0])):
        yield target, at + np.uint64(n * size), size, type_name
