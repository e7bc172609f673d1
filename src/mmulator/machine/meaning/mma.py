"""mma, and wmma.mma, which is the same (PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions).

Fragments come from layouts/, arithmetic from the numerics twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.codegen.ops import cast_ptr, null, trailing_zeros
from mmulator.codegen.types import u8, u32
from mmulator.codegen.values import Value, constant, extract
from mmulator.isa.forms import MatrixForm
from mmulator.layouts.operands import fragment
from mmulator.machine.compile.block import storage_type
from mmulator.machine.meaning import lower
from mmulator.machine.meaning.matrix_operands import (
    form_of,
    registers,
    results,
    selector_of,
    site_pointer,
    table,
)
from mmulator.machine.meaning.operands import elements
from mmulator.machine.state import Cta
from mmulator.ptx.tree import Immediate, Instruction, Operand
from mmulator.twin.places import Product, product_for, scale_step
from mmulator.twin.product import ProductTable

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter

@lower("mma")
def mma(e: Emitter, ins: Instruction) -> None:
    multiply(e, ins, form_of(ins))


def multiply(e: Emitter, ins: Instruction, form: MatrixForm) -> None:
    d, a, b, c, *rest = ins.operands
    selector, metadata = 0, null(u32)
    if form.sparse:
        selector, metadata = selector_of(ins, rest[1]), registers(e, rest[0])
        rest = rest[2:]
    factors, select = [null(u8)] * 2, [constant(e.b, u32, 0)] * 2
    if form.block_scale:
        scale_a, ids_a, scale_b, ids_b = rest
        select = [_scale_selector(e, form, "a", ids_a), _scale_selector(e, form, "b", ids_b)]
        factors = [cast_ptr(u8, registers(e, o)) for o in (scale_a, scale_b)]
    product = product_for(form, e.device, selector)
    number = table(e, ("mma", form, selector), lambda sites: _keep_product(sites, product))
    width = {x: fragment(form, x).register_bits for x in "abcd"}
    out = e.room(storage_type(f"b{width['d']}"), len(elements(d)))
    places = [registers(e, o, width[x]) for x, o in zip("abc", (a, b, c))]
    if product.transposed:
        places[:2] = places[1::-1]
    scratch = cast_ptr(Cta, e.warp("cta")).field("scratch")
    e.call(product.function, site_pointer(e, number, ProductTable), scratch, *places, metadata, *factors, *select, out)
    results(e, d, out, ins, width["d"])


def _keep_product(sites: Any, product: Product) -> np.ndarray:
    sites.scratch_bytes = max(sites.scratch_bytes, product.scratch)
    sites.keep.append(product)
    return product.table


def _scale_selector(e: Emitter, form: MatrixForm, side: str, operand: Operand) -> Value:
    """{byte-id, thread-id}, those of the warp's first lane, as bytes from the place that both being 0 selects.

    Registers are taken modulo what the selector may be, so that the bytes are always those of the operand.
    """
    byte_id, thread_id = elements(operand)
    threads = 2 if side == "a" else 4
    at = constant(e.b, u32, 0)
    for o, limit, step in ((byte_id, 5 - form.scale_vec, 1), (thread_id, threads, scale_step(form, side))):
        if isinstance(o, Immediate):
            at = at + constant(e.b, u32, o.value * step)
        else:
            value = u32(extract(storage_type("b16")(e.source(o, "b16")), trailing_zeros(e.mask)))
            at = at + value % limit * step
    return at
