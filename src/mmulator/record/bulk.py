"""Bulk copies of a trail: where the byte at an address of the destination comes from.

Data Movement and Conversion Instructions: cp.async.bulk, cp.async.bulk.tensor (PTX ISA 9.1).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from mmulator.errors import OperandError
from mmulator.layouts.tensormap.encoded import Encoded
from mmulator.layouts.tensormap.places import OUTSIDE, Places, places
from mmulator.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Instruction, Operand
from mmulator.record.addresses import MemoryWrite, addresses, elements, operands_of, signed32, value_of
from mmulator.record.trail import Trail, TrailStep

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


def _place(trail: Trail, step: TrailStep, operand: Operand | None, space: str, lane: int) -> int | None:
    at = addresses(trail, step, operand, space) if isinstance(operand, Address) else None
    return None if at is None else int(at[lane])


def _ways(trail: Trail, step: TrailStep, named: dict[str, Operand], at: int, lane: int) -> list[int]:
    """Addresses of the destination in each CTA that a copy goes to: `at` alone, unless it is multicast."""
    mask = value_of(trail, step, lane, named.get("ctaMask"))
    if mask is None or at >> SLOT_SHIFT != SLOT_SHARED:
        return [at]
    return [at & ~_RANK_MASK | rank << RANK_SHIFT for rank in range(16) if mask >> rank & 1]


def _plain(
    trail: Trail, step: TrailStep, ins: Instruction, named: dict[str, Operand], lane: int, address: int
) -> MemoryWrite | None:
    to = _place(trail, step, named.get("dstMem"), ins.form["dst"], lane)
    source = _place(trail, step, named.get("srcMem"), ins.form["src"], lane)
    size = value_of(trail, step, lane, named.get("size"))
    if to is None or source is None or size is None:
        return None
    for way in _ways(trail, step, named, to, lane):
        if way <= address < way + size:
            return MemoryWrite(step, lane, None, 0, "b8", source + address - way)
    return None


def _tensor(
    trail: Trail, step: TrailStep, ins: Instruction, named: dict[str, Operand], lane: int, address: int
) -> MemoryWrite | None:
    store = "srcMem" in named
    operand = named["tensorMap"]
    if trail.read is None or not isinstance(operand, Address):
        return None
    at = _place(trail, step, operand, "", lane)
    coordinates = [value_of(trail, step, lane, o) for o in operand.coordinates]
    info = named.get("im2colOffsets") or named.get("im2colInfo")
    offsets = [value_of(trail, step, lane, o) for o in elements(info)] if info is not None else []
    shared = _place(trail, step, named.get("srcMem" if store else "dstMem"), "shared", lane)
    if at is None or shared is None or None in coordinates or None in offsets:
        return None
    try:
        found, base = _boxes(
            trail.read(at, MAP_BYTES), tuple(signed32(c) for c in coordinates if c is not None),
            tuple(c for c in offsets if c is not None), shared & 0xFFFFFFFF & ~_RANK_MASK, ins.form["mode"] or None, store,
        )  # fmt: skip
    except OperandError:
        return None
    if store:
        hit = np.argwhere((found.memory + base <= address) & (address < found.memory + base + found.size) & found.inside)
        if not len(hit):
            return None
        unit = tuple(hit[0])
        byte = address - base - int(np.broadcast_to(found.memory, found.shared.shape)[unit])
        return MemoryWrite(step, lane, None, 0, "b8", shared & ~0xFFFFFFFF | shared & _RANK_MASK | int(found.shared[unit]) + byte)
    for way in _ways(trail, step, named, shared, lane):
        if address & ~0xFFFFFFFF | address & _RANK_MASK != way & ~0xFFFFFFFF | way & _RANK_MASK:
            continue
        offset = address & 0xFFFFFFFF & ~_RANK_MASK
        hit = np.argwhere((found.shared <= offset) & (offset < found.shared + found.size))
        if len(hit):
            unit = tuple(hit[0])
            memory = int(np.broadcast_to(found.memory, found.shared.shape)[unit])
            source = None if memory == OUTSIDE else base + memory + offset - int(found.shared[unit])
            where = ", ".join(str(int(np.broadcast_to(c, found.shared.shape)[unit])) for c in found.coordinates)
            said = f"box at ({', '.join(map(str, map(signed32, coordinates)))}), element ({where}) of the tensor"  # type: ignore[arg-type]
            return MemoryWrite(step, lane, None, 0, "b8", source, said)
    return None


@lru_cache(maxsize=256)
def _boxes(
    data: bytes, coordinates: tuple[int, ...], offsets: tuple[int, ...], shared: int, mode: str | None, store: bool
) -> tuple[Places, int]:
    """Places of a box, and the address of the tensor."""
    m = Encoded.decode(data)
    return places(m, coordinates, offsets, shared=shared, mode=mode, store=store), m.address
