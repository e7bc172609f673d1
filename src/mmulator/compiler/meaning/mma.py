"""mma and wmma.mma, which share one function (PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions).

Fragments come from matrix/layouts/, arithmetic from the numerics twin.
"""

from mmulator.base.codegen.ops import cast_ptr, null, trailing_zeros
from mmulator.base.codegen.types import u8, u32
from mmulator.base.codegen.values import Value, constant, extract
from mmulator.compiler.emit.block import storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import elements, given, registers, results, selector_of, table_pointer
from mmulator.compiler.lowering.operands import metadata as metadata_of
from mmulator.compiler.lowering.products import join
from mmulator.isa.form import Form
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.layouts.scales import BYTE_IDS, THREADS
from mmulator.matrix.layouts.sparse.metadata import selectors
from mmulator.matrix.twin.places import product_for, scale_step
from mmulator.matrix.twin.product import ProductTable
from mmulator.ptx.tree import Immediate, Instruction, Operand
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.operands import UniformOperand as Shared
from mmulator.runtime.native.state import Cta, FaultKind


@means("mma")
def mma(e: Emitter, ins: Instruction) -> None:
    multiply(e, ins, ins.form)


def multiply(e: Emitter, ins: Instruction, form: Form) -> None:
    d, a, b, c, *rest = ins.operands
    selector, metadata = 0, null(u32)
    if form.sparse:
        selector, metadata = selector_of(rest[1]), registers(e, rest[0])
        if selector not in (allowed := selectors(form)):  # ptxas takes it, and a chip stops there
            e.call(fault, e.w, FaultKind.SPARSE_SELECTOR, e.site, trailing_zeros(e.mask), selector, allowed[-1])
            selector = 0
        else:
            metadata_of(e, form, metadata, selector)
        rest = rest[2:]
    if join(e, ins):
        return
    factors, select = [null(u8)] * 2, [constant(e.b, u32, 0)] * 2
    if form.block_scale:
        scale_a, ids_a, scale_b, ids_b = rest
        select = [_scale_selector(e, form, "a", ids_a), _scale_selector(e, form, "b", ids_b)]
        factors = [cast_ptr(u8, registers(e, o)) for o in (scale_a, scale_b)]
    product = product_for(form, e.device, selector)
    table = table_pointer(e, ProductTable, ("mma", form, selector), lambda tables: tables.kept(product))
    width = {x: fragment(form, x).register_bits for x in "abcd"}
    out = e.room(storage_type(f"b{width['d']}"), len(elements(d)))
    places = [registers(e, o, width[x]) for x, o in zip("abc", (a, b, c))]
    if product.transposed:
        places[:2] = places[1::-1]
    scratch = cast_ptr(Cta, e.warp("cta")).field("scratch")
    e.call(product.function, table, scratch, *places, metadata, *factors, *select, out)
    results(e, d, out, ins, width["d"])


def _scale_selector(e: Emitter, form: Form, side: str, operand: Operand) -> Value:
    """Offset in bytes of the scale factors that {byte-id, thread-id} of the warp's first lane select, from those that (0, 0)
    selects.

    Registers are reduced modulo the selector's range, so that the bytes are always inside the operand.
    """
    byte_id, thread_id = elements(operand)
    at = constant(e.b, u32, 0)
    byte, thread = (Shared.BYTE_ID_A, Shared.THREAD_ID_A) if side == "a" else (Shared.BYTE_ID_B, Shared.THREAD_ID_B)
    for o, name, allowed, step in (
        (byte_id, byte, BYTE_IDS[form.scale_vec], 1), (thread_id, thread, range(THREADS[side]), scale_step(form, side)),
    ):  # fmt: skip
        if isinstance(o, Immediate):
            at = at + constant(e.b, u32, o.value * step)
        else:
            values = storage_type("b16")(e.source(o, "b16"))
            given(e, name, values, allowed)
            at = at + u32(extract(values, trailing_zeros(e.mask))) % allowed.stop * step
    return at
