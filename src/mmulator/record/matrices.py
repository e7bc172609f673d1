"""Elements of matrices that a warp moves between registers and memory: where in memory each lies.

Warp-level matrix load and store instructions: ldmatrix, stmatrix, wmma.load, wmma.store (PTX ISA 9.1).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import Addressed
from mmulator.isa.form import Form
from mmulator.layouts.operands import fragment, memory_bits
from mmulator.ptx.tree import Address, Operand, Reg
from mmulator.record.addresses import Operands, addresses, elements, operands_of, value_of
from mmulator.record.trail import Trail, TrailStep
from mmulator.twin.moves import default_stride

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
    found = moved(trail, step)
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
