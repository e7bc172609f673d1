"""ldmatrix, stmatrix and movmatrix (PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import u8, u32
from mmulator.codegen.values import Value
from mmulator.isa.forms import MatrixForm
from mmulator.machine.compile.block import LANES
from mmulator.machine.meaning import lower
from mmulator.machine.meaning.matrix_operands import (
    address_of,
    form_of,
    keep,
    registers,
    results,
    site_pointer,
    state_space,
    table,
)
from mmulator.machine.meaning.operands import elements
from mmulator.machine.runtime import memory as mem
from mmulator.ptx.tree import Instruction
from mmulator.twin.places import operand_places

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter

U32 = u32.vec(LANES)


_SOURCE_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}


def _byte_move(e: Emitter, form: MatrixForm) -> Value:
    """The site of an 8-bit ldmatrix or stmatrix: the fragment's places, row after row as they lie in memory."""

    def make(sites: Any) -> np.ndarray:
        places = operand_places(form, "r", transposed=bool(form.trans))
        site = np.zeros(1, mem.ByteMoveSite.numpy_dtype())
        site["rows"] = places.size // 16
        site["element_bits"] = _SOURCE_BITS.get(form.src_fmt, 8)
        site["places"] = keep(sites, places)
        return site

    return site_pointer(e, table(e, ("bytes", form), make), mem.ByteMoveSite)


def _has_bytes(form: MatrixForm) -> bool:
    return (form.m, form.n) != (8, 8)


@lower("ldmatrix")
def ldmatrix(e: Emitter, ins: Instruction) -> None:
    form = form_of(ins)
    r, p = ins.operands
    at = e.spill(address_of(e, p, ins))
    out = e.room(U32, len(elements(r)))
    if _has_bytes(form):
        e.call(mem.ldmatrix_bytes_function(state_space(form)), e.w, _byte_move(e, form), at, cast_ptr(u8, out), e.site)
    else:
        e.call(mem.ldmatrix_function(state_space(form), form.num, form.trans), e.w, at, out, e.site)
    results(e, r, out, ins)


@lower("stmatrix")
def stmatrix(e: Emitter, ins: Instruction) -> None:
    form = form_of(ins)
    p, r = ins.operands
    source = registers(e, r)
    at = e.spill(address_of(e, p, ins))
    if _has_bytes(form):
        e.call(mem.stmatrix_bytes_function(state_space(form)), e.w, _byte_move(e, form), at, cast_ptr(u8, source), e.site)
    else:
        e.call(mem.stmatrix_function(state_space(form), form.num, form.trans), e.w, at, source, e.site)


@lower("movmatrix")
def movmatrix(e: Emitter, ins: Instruction) -> None:
    d, a = ins.operands
    out = e.room(U32)
    e.call(mem.movmatrix, registers(e, a), out)
    results(e, d, out, ins)
