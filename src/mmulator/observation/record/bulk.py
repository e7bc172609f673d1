"""Bulk copies of a trail: where the byte at an address of the destination comes from.

Data Movement and Conversion Instructions: cp.async.bulk, cp.async.bulk.tensor (PTX ISA 9.1).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.places import OUTSIDE, Places, places
from mmulator.observation.record.addresses import MemoryWrite, Operands, addresses, elements, operands_of, signed32, value_of
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Instruction, Operand

MAP_BYTES = 128
_RANK_MASK = 0xFF << RANK_SHIFT


def bulk_write(trail: Trail, step: TrailStep, ins: Instruction, address: int) -> MemoryWrite | None:
    """The write of a bulk copy to the byte at an address; None if it writes elsewhere."""
    named = operands_of(ins)
    lanes = trail.guard(step)
    op = ins.form["op"]
    for lane in (n for n in range(32) if lanes >> n & 1):
        found = _tensor(trail, step, ins, named, lane, address) if "tensorMap" in named else _plain(
            trail, step, ins, named, lane, address)  # fmt: skip
        if found is not None:
            return replace(found, remark=f"{op} with what was there {found.remark}".strip()) if op else found
    return None


def bulk_span(trail: Trail, step: TrailStep, ins: Instruction) -> tuple[int, int] | None:
    """(first address, address behind the last) of all that a bulk copy may write, with gaps; None if it writes nothing."""
    named, lanes = operands_of(ins), trail.guard(step)
    spans = _tensor_spans if "tensorMap" in named else _plain_spans
    found = [span for lane in range(32) if lanes >> lane & 1 for span in spans(trail, step, ins, named, lane)]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def _place(trail: Trail, step: TrailStep, operand: Operand | None, space: str, lane: int) -> int | None:
    at = addresses(trail, step, operand, space) if isinstance(operand, Address) else None
    return None if at is None else int(at[lane])


def _ways(trail: Trail, step: TrailStep, named: Operands, at: int, lane: int) -> list[int]:
    """Addresses of the destination in each CTA that a copy goes to: `at` alone, unless it is multicast."""
    mask = value_of(trail, step, lane, named.get("ctaMask"))
    if mask is None or at >> SLOT_SHIFT != SLOT_SHARED:
        return [at]
    return [at & ~_RANK_MASK | rank << RANK_SHIFT for rank in range(16) if mask >> rank & 1]


def _plain_copy(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int) -> tuple[int, int, int] | None:
    """(destination, source, bytes) of a copy without a tensor map; None where they are not known."""
    to = _place(trail, step, named.get("dstMem"), ins.form["dst"], lane)
    source = _place(trail, step, named.get("srcMem"), ins.form["src"], lane)
    size = value_of(trail, step, lane, named.get("size"))
    return None if to is None or source is None or size is None else (to, source, size)


def _plain_spans(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int) -> list[tuple[int, int]]:
    copy = _plain_copy(trail, step, ins, named, lane)
    return [] if copy is None else [(way, way + copy[2]) for way in _ways(trail, step, named, copy[0], lane)]


def _plain(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int, address: int) -> MemoryWrite | None:
    copy = _plain_copy(trail, step, ins, named, lane)
    if copy is None:
        return None
    to, source, size = copy
    for way in _ways(trail, step, named, to, lane):
        if way <= address < way + size:
            return MemoryWrite(step, lane, None, 0, "b8", source + address - way)
    return None


@dataclass(frozen=True)
class _Box:
    """The box of a tensor copy.

    places: of its units.
    base: address of the tensor.
    shared: generic address of the box in shared memory.
    coordinates: of its corner, with signs.
    """

    places: Places
    base: int
    shared: int
    coordinates: tuple[int, ...]


def _box(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int) -> _Box | None:
    """The box that a lane copies; None where it is not known."""
    store = "srcMem" in named
    operand = named["tensorMap"]
    if trail.read is None or not isinstance(operand, Address):
        return None
    at = _place(trail, step, operand, "", lane)
    given = [value_of(trail, step, lane, o) for o in operand.coordinates]
    info = named.get("im2colOffsets") or named.get("im2colInfo")
    offsets = [value_of(trail, step, lane, o) for o in elements(info)] if info is not None else []
    shared = _place(trail, step, named.get("srcMem" if store else "dstMem"), "shared", lane)
    if at is None or shared is None or None in given or None in offsets:
        return None
    coordinates = tuple(signed32(c) for c in given if c is not None)
    try:
        found, base = _boxes(
            trail.read(at, MAP_BYTES), coordinates, tuple(c for c in offsets if c is not None),
            shared & 0xFFFFFFFF & ~_RANK_MASK, ins.form["mode"] or None, store,
        )  # fmt: skip
    except OperandError:
        return None
    return _Box(found, base, shared, coordinates)


def _tensor_spans(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int) -> list[tuple[int, int]]:
    box = _box(trail, step, ins, named, lane)
    if box is None:
        return []
    store, found = "srcMem" in named, box.places
    units = found.memory[found.inside] if store else found.shared
    if not units.size:
        return []
    low, high = int(units.min()), int(units.max()) + found.size
    ways = [box.base] if store else [_window(way) for way in _ways(trail, step, named, box.shared, lane)]
    return [(way + low, way + high) for way in ways]


def _window(shared: int) -> int:
    """The generic address of a CTA's first byte of shared memory, from the address of another byte of it."""
    return shared & ~0xFFFFFFFF | shared & _RANK_MASK


def _tensor(trail: Trail, step: TrailStep, ins: Instruction, named: Operands, lane: int, address: int) -> MemoryWrite | None:
    box = _box(trail, step, ins, named, lane)
    if box is None:
        return None
    found, base = box.places, box.base
    if "srcMem" in named:
        hit = np.argwhere((found.memory + base <= address) & (address < found.memory + base + found.size) & found.inside)
        if not len(hit):
            return None
        unit = tuple(hit[0])
        byte = address - base - int(np.broadcast_to(found.memory, found.shared.shape)[unit])
        return MemoryWrite(step, lane, None, 0, "b8", _window(box.shared) + int(found.shared[unit]) + byte)
    for way in _ways(trail, step, named, box.shared, lane):
        if _window(address) != _window(way):
            continue
        offset = address & 0xFFFFFFFF & ~_RANK_MASK
        hit = np.argwhere((found.shared <= offset) & (offset < found.shared + found.size))
        if len(hit):
            unit = tuple(hit[0])
            memory = int(np.broadcast_to(found.memory, found.shared.shape)[unit])
            source = None if memory == OUTSIDE else base + memory + offset - int(found.shared[unit])
            where = ", ".join(str(int(np.broadcast_to(c, found.shared.shape)[unit])) for c in found.coordinates)
            said = f"box at ({', '.join(map(str, box.coordinates))}), element ({where}) of the tensor"
            return MemoryWrite(step, lane, None, 0, "b8", source, said)
    return None


@lru_cache(maxsize=256)
def _boxes(
    data: bytes, coordinates: tuple[int, ...], offsets: tuple[int, ...], shared: int, mode: str | None, store: bool
) -> tuple[Places, int]:
    """Places of a box, and the address of the tensor."""
    m = Encoded.decode(data)
    return places(m, coordinates, offsets, shared=shared, mode=mode, store=store), m.address
