"""Memory of a trail: which step wrote a byte last, what a load reads, and where the elements of a warp's matrices lie.

Warp-level matrix load and store instructions: ldmatrix, stmatrix, wmma.load, wmma.store (PTX ISA 9.1)."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.isa.effects import Addressed, MemoryEffect, Queue, Step, Stored
from mmulator.isa.form import Form
from mmulator.isa.types import type_bits
from mmulator.matrix.layouts.operands import fragment, memory_bits
from mmulator.matrix.twin.moves import default_stride
from mmulator.observation.record.addresses import U64, MemoryWrite, Operands, addresses, elements, operands_of, space_of, value_of
from mmulator.observation.record.bulk import bulk_span, bulk_write
from mmulator.observation.record.trail import NEAR, Trail, TrailStep
from mmulator.ptx.tree import Address, Immediate, Instruction, NegatedPredicate, Operand, Reg
from mmulator.runtime.native.state import FULL, LANES

Index = NDArray[np.int64]


def moved(trail: Trail, step: TrailStep) -> tuple[list[Operand], Index, int] | None:
    """The elements that a step moves between registers and memory.

    Returns (registers, generic address of the element at [lane, register, element of the register], bits of an element in a
    register), or None for an instruction that is not understood here.
    """
    ins = trail.instruction(step)
    form = ins.form
    named = operands_of(ins)
    p, r = named.get("p"), named.get("r")
    if not isinstance(p, Address) or r is None:
        return None
    shared = ins.effects.addressed is Addressed.ROWS
    at = addresses(trail, step, p, "shared" if shared else form["space"])
    if at is None:
        return None
    places = _rows(form, at.astype(np.int64)) if shared else _tile(trail, step, form, named, at)
    return None if places is None else (list(elements(r)), places, fragment(form, "r").bits)


def _rows(form: Form, at: Index) -> Index:
    """Places in rows that lanes have the addresses of: the first lane of the first row of the first matrix, and so on."""
    f = fragment(form, "r")
    rows, (copy, row, column) = f.rows, f.maps
    if form["trans"]:  # the fragment is of the matrix after transposition
        rows, row, column = f.columns, column, row
    found: Index = at[rows * copy + row] + column * memory_bits(form) // 8
    return found


def _tile(trail: Trail, step: TrailStep, form: Form, named: Operands, at: NDArray[Any]) -> Index | None:
    """Places in a tile whose lines are `stride` elements apart."""
    stride = value_of(trail, step, 0, named["stride"]) if "stride" in named else default_stride(form)
    if stride is None or form.type.bits < 8:
        return None
    _, row, column = fragment(form, "r").maps
    element = row * stride + column if form.layout == "row" else column * stride + row
    found: Index = int(at[0]) + element * form.type.bits // 8
    return found


def loaded_from(trail: Trail, step: TrailStep, lane: int, register: str, low: int) -> int | None:
    """Generic address of the element whose bits begin at bit `low` of a lane's register; None where it is not known."""
    key = step.number, -1  # of no operand: what `moved` said
    if key not in trail.places:
        trail.places[key] = moved(trail, step)
    found = trail.places[key]
    if found is None:
        return None
    operands, places, bits = found
    names = [o.name for o in operands if isinstance(o, Reg)]
    if register not in names:
        return None
    return int(places[lane, names.index(register), low // bits]) + low % bits // 8


def stored_span(trail: Trail, step: TrailStep) -> tuple[int, int] | None:
    """(first address, address behind the last) of all that a matrix store writes, with gaps; None where it is not known."""
    found = moved(trail, step)
    return None if found is None else (int(found[1].min()), int(found[1].max()) + found[2] // 8)


def stored_at(trail: Trail, step: TrailStep, address: int) -> tuple[int, Operand, int] | None:
    """(lane, register, byte of the register) that a matrix store writes at an address; None if it writes elsewhere."""
    found = moved(trail, step)
    if found is None:
        return None
    operands, places, bits = found
    hit = np.argwhere((places <= address) & (address < places + bits // 8))
    if not len(hit):
        return None
    lane, register, index = (int(n) for n in hit[0])
    return lane, operands[register], index * bits // 8 + address - int(places[lane, register, index])


Reader = tuple[TrailStep, int] | None  # step and lane
Writes = list[MemoryWrite | None]  # to bytes side by side


def last_write(trail: Trail, before: int | None, address: int, reader: Reader = None) -> MemoryWrite | None:
    """The newest write to the byte at a generic address; None if the trail has none. before, reader: as in `last_writes`."""
    return next((found[0] for found in last_writes(trail, before, address, 1, reader)), None)


def last_writes(trail: Trail, before: int | None, address: int, size: int, reader: Reader = None) -> Iterator[Writes]:
    """The writes of each step to some bytes, of NEAR bytes side by side, the newest step first; without those that wrote nothing.

    before: number of the step before which they were; None: the end.
    address, size: generic address of the first byte, and their number.
    reader: who reads local memory, which each lane has for itself, or shared memory, which each cluster has; None: somebody of
        the only cluster.
    """
    first, space = address // NEAR * NEAR, space_of(address)
    cluster = trail.cluster_of(reader[0].block) if reader is not None and space == "shared" else -1
    for step in trail.writes_near(before, first, _span, cluster):
        if space == "local" and reader is not None:
            if step.warp == reader[0].warp:
                ins, lane = trail.instruction(step), 1 << reader[1]
                found = [_write_of(trail, step, ins, at, lane) for at in range(address, address + size)]
                if any(found):
                    yield found
            continue
        key = step.number, first
        if key not in trail.written:
            trail.written[key] = _writes_of(trail, step, first)
        found = trail.written[key][address - first : address - first + size]
        if any(found):
            yield found


def stores_words(ins: Instruction) -> bool:
    """Whether an instruction stores registers to global memory at the lanes' own addresses."""
    effects = ins.effects
    plain = effects.stored in (Stored.VALUES, Stored.COMBINED) and effects.queue is Queue.NONE
    return plain and ins.form["space"] in ("", "global") and bool(ins.form["type"])


def is_followed(trail: Trail, step: TrailStep) -> bool:
    """Whether it is known where a step writes, if it writes to memory that loads read: not to tensor memory or a queue's."""
    ins, taking = trail.instruction(step), trail.guard(step)
    effects = ins.effects
    if effects.memory in (MemoryEffect.NONE, MemoryEffect.READ) or effects.tensor or effects.hints or not taking:
        return True
    if ins.form["space"].startswith("param"):  # of a call
        return True
    if effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE) or effects.stored is not Stored.NOTHING:
        return _span(trail, step) != NOWHERE
    return effects.counted_as not in ("memory", "atomic")  # others write to mbarriers


def stores_to(trail: Trail, low: int, high: int) -> bool:
    """Whether a step of a trail may write to a generic address from `low` to below `high`."""
    return trail.stores_to(low, high, _span)


def left_out(trail: Trail, address: int) -> tuple[TrailStep, int] | None:
    """The newest store, and a lane, that would have written the byte at an address if its guard had held, or None."""
    for step in reversed(trail.steps):
        ins = trail.instruction(step)
        out = step.lanes & ~trail.guard(step)
        hit = out & lanes_at(trail, step, address) if out and stores_words(ins) else 0
        if hit:
            return step, (hit & -hit).bit_length() - 1
    return None


def combined(trail: Trail, found: MemoryWrite, address: int) -> tuple[list[tuple[TrailStep, int]], MemoryWrite | None]:
    """Contributions of atomic operations to an element, in order, and what wrote it before them; nothing of another write.

    found: the newest write to the byte at `address`.
    """
    done: list[tuple[TrailStep, int]] = []
    write: MemoryWrite | None = found
    while write is not None and write.byte == found.byte and combines(trail.instruction(write.step)):
        hit = lanes_at(trail, write.step, address) & trail.guard(write.step)
        done += [(write.step, lane) for lane in reversed(range(LANES)) if hit >> lane & 1]
        write = last_write(trail, write.step.number, address)
    return done[::-1], write


def writes_first(trail: Trail, step: TrailStep, lane: int, address: int) -> bool:
    """Whether nothing in a launch writes to the byte at an address before a lane of a step, and after it that lane alone."""
    last = last_write(trail, None, address)
    while last is not None and (last.step.warp, last.lane) == (step.warp, lane) and last.step.number > step.number:
        last = last_write(trail, last.step.number, address)
    first = last is not None and last.step.number == step.number and last_write(trail, step.number, address) is None
    return first and lanes_at(trail, step, address) & trail.guard(step) == 1 << lane


def combines(ins: Instruction) -> bool:
    """Whether an instruction combines a value with what is in memory, at each lane's address."""
    effects = ins.effects
    plain = effects.stored is Stored.COMBINED and effects.queue is Queue.NONE and bool(ins.form["type"])
    return plain and ins.form["op"] not in ("exch", "cas")


def lanes_at(trail: Trail, step: TrailStep, address: int) -> int:
    """Mask of the lanes that a store of words sends to the byte at an address, whatever its guard."""
    ins = trail.instruction(step)
    where, operand = _target(ins)
    at = addresses(trail, step, operand, ins.form["space"])
    bytes = type_bits(ins.form["type"]) // 8 * len(elements(ins.operands[where + 1]))
    hit = () if at is None else np.nonzero((at <= np.uint64(address)) & (np.uint64(address) < at + np.uint64(bytes)))[0]
    return sum(1 << int(lane) for lane in hit)


NOWHERE = 1, 0


def _span(trail: Trail, step: TrailStep) -> tuple[int, int]:
    """The first address that a step may write, and the one behind the last."""
    ins = trail.instruction(step)
    effects = ins.effects
    if effects.memory is MemoryEffect.COPY and effects.queue is Queue.COPIES and effects.step is Step.ISSUE:
        to, _, size, *_ = ins.operands
        known = isinstance(to, Address) and isinstance(size, Immediate)
        at, bytes = (addresses(trail, step, to, "shared"), size.value) if known else (None, 0)  # type: ignore[arg-type, union-attr]
    elif effects.queue is Queue.BULK and "b" not in operands_of(ins):
        return bulk_span(trail, step, ins) or NOWHERE if effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE) else NOWHERE
    elif effects.stored in (Stored.ROWS, Stored.TILE):
        return stored_span(trail, step) or NOWHERE
    elif effects.holds:
        at, bytes = addresses(trail, step, _target(ins)[1], "shared"), 4
    elif effects.queue is Queue.BULK or (effects.stored in (Stored.VALUES, Stored.COMBINED) and ins.form["type"]):
        where, operand = _target(ins)
        at = addresses(trail, step, operand, ins.form["space"])
        bytes = type_bits(ins.form["type"]) // 8 * len(elements(ins.operands[where + 1]))
    else:
        return NOWHERE
    if at is None:
        return NOWHERE
    taking = trail.guard(step)
    used = at[[n for n in range(LANES) if taking >> n & 1]]
    return (int(used.min()), int(used.max()) + bytes) if len(used) else NOWHERE


def _target(ins: Instruction) -> tuple[int, Address]:
    """(number, address) of the operand to which an instruction stores."""
    return next((n, o) for n, o in enumerate(ins.operands) if isinstance(o, Address))


def _write_of(trail: Trail, step: TrailStep, ins: Instruction, address: int, lanes: int) -> MemoryWrite | None:
    """The write of a step to the byte at an address by one of some lanes."""
    if (own := _own_addresses(trail, step, ins)) is not None:
        at, size, made = own
        hit = _hit(trail, step, at, size, address, lanes)
        return None if hit is None else made(*hit)
    effects = ins.effects
    if effects.queue is Queue.BULK and effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE):
        return bulk_write(trail, step, ins, address)
    if effects.stored in (Stored.ROWS, Stored.TILE):
        found = stored_at(trail, step, address)
        return None if found is None else MemoryWrite(step, found[0], found[1], found[2], "b32")
    return None


def _writes_of(trail: Trail, step: TrailStep, first: int) -> Writes:
    """The writes of a step to NEAR bytes; of several lanes that write one byte, that of the highest."""
    ins = trail.instruction(step)
    own = _own_addresses(trail, step, ins)
    if own is None:
        return [_write_of(trail, step, ins, at, FULL) for at in range(first, first + NEAR)]
    (at, size, made), found = own, cast(Writes, [None] * NEAR)
    if at is not None:
        away, taking = (at - np.uint64(first)).view(np.int64), trail.guard(step)
        for lane in np.flatnonzero((away > -size) & (away < NEAR)).tolist():
            start = int(away[lane])
            for n in range(max(0, start), min(NEAR, start + size)) if taking >> lane & 1 else ():
                found[n] = made(lane, n - start)
    return found


Made = Callable[[int, int], MemoryWrite]  # what a lane writes to one of its bytes, by the numbers of both


def _own_addresses(trail: Trail, step: TrailStep, ins: Instruction) -> tuple[U64 | None, int, Made] | None:
    """(address of each lane, bytes that it writes there, the write of a byte) of an instruction whose lanes write each on its
    own; None of another.
    """
    effects = ins.effects
    if effects.memory is MemoryEffect.COPY and effects.queue is Queue.COPIES and effects.step is Step.ISSUE:
        to, source, *sizes = ins.operands
        if not (isinstance(to, Address) and isinstance(source, Address) and sizes and isinstance(sizes[0], Immediate)):
            return None
        origin = addresses(trail, step, source, "global")

        def copied(lane: int, byte: int) -> MemoryWrite:
            known = origin is not None and byte < source_bytes(trail, step, ins, lane)
            return MemoryWrite(step, lane, None, byte, "b8", int(origin[lane]) + byte if known and origin is not None else None)

        return None if origin is None else addresses(trail, step, to, "shared"), int(sizes[0].value), copied
    if effects.holds:  # the address of what was allocated
        return addresses(trail, step, _target(ins)[1], "shared"), 4, lambda lane, byte: MemoryWrite(step, lane, None, byte, "b32")
    bulk, kind = effects.queue is Queue.BULK, ins.form["type"]
    if not ("b" in operands_of(ins) if bulk else effects.stored in (Stored.VALUES, Stored.COMBINED) and kind):
        return None  # of the queue st.async and red.async alone store what a register has
    where, operand = _target(ins)
    values = elements(ins.operands[where + 1])
    size = type_bits(kind) // 8
    return (
        addresses(trail, step, operand, ins.form["space"]), size * len(values),
        lambda lane, byte: MemoryWrite(step, lane, values[byte // size], byte % size, kind),
    )  # fmt: skip


def values_of(ins: Instruction) -> tuple[Operand, ...]:
    """The registers or constants that an instruction stores at an address."""
    return elements(ins.operands[_target(ins)[0] + 1])


def _hit(trail: Trail, step: TrailStep, at: U64 | None, bytes: int, address: int, lanes: int = FULL) -> tuple[int, int] | None:
    """(lane, byte) of the highest of some lanes whose bytes from `at` on have the address."""
    if at is None:
        return None
    hit = np.flatnonzero(np.uint64(address) - at < np.uint64(bytes))
    taking = trail.guard(step) & lanes
    for lane in hit[::-1]:
        if taking >> int(lane) & 1:
            return int(lane), address - int(at[lane])
    return None


def source_bytes(trail: Trail, step: TrailStep, ins: Instruction, lane: int) -> int:
    """Bytes that a cp.async of a lane reads; the rest of its bytes become zero."""
    size = int(ins.operands[2].value) if isinstance(ins.operands[2], Immediate) else 16
    given = ins.operands[3] if len(ins.operands) > 3 else None
    value = value_of(trail, step, lane, given)
    if value is None:
        return size
    if isinstance(given, NegatedPredicate) or (isinstance(given, Reg) and given.type == "pred"):  # ignore-src
        return 0 if value else size
    return min(size, value)


def loads(trail: Trail, step: TrailStep) -> Iterator[tuple[Operand, U64, int, str]]:
    """The elements that a load gives: (register, generic address of each lane, bytes, PTX type) of each element."""
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


def impossible(trail: Trail, step: TrailStep, lane: int) -> str:
    """Why a load of global memory cannot be, in a launch that goes on; "" where it can."""
    every = [*loads(trail, step)]
    first, size = int(every[0][1][lane]), sum(size for _, _, size, _ in every)
    if space_of(first) != "global" or trail.read is None or not trail.goes_on:
        return ""
    try:
        trail.read(first, size)
    except OperandError:
        return "out of bounds"
    return "misaligned" if first % size else ""
