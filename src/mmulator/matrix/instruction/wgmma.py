"""wgmma.mma_async on registers and images of shared memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import InternalError, OperandError
from mmulator.isa.form import Form
from mmulator.isa.types import ElementType
from mmulator.matrix.instruction.operands import (
    OFFSETS,
    Array,
    Operands,
    batch,
    check_inside,
    check_metadata,
    column,
    image,
    integer,
    registers,
)
from mmulator.matrix.layouts import MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.operands import BY_LANE
from mmulator.matrix.twin.images import operand
from mmulator.matrix.twin.places import product_for
from mmulator.matrix.twin.registers import run
from mmulator.matrix.twin.twin import Twin


def mma_async(form: Form, device: str, o: Operands) -> Array:
    if (o["a"] is None) == (o["a_desc"] is None):
        raise OperandError("operands a and a_desc: exactly one of them is needed")
    scale_d = bool(integer("scale_d", o["scale_d"], range(2)))
    if scale_d and o["d"] is None:
        raise OperandError("operand d is missing", hint="with scale_d=0 it is not read")
    signs = {}
    for name in ("imm_scale_a", "imm_scale_b"):
        if name in o:
            signs[name] = integer(name, o[name], range(-1, 2, 2))
    trans_a = bool(integer("imm_trans_a", o.get("imm_trans_a", 0), range(2)))
    trans_b = bool(integer("imm_trans_b", o.get("imm_trans_b", 0), range(2)))
    if trans_a and o["a"] is not None:
        raise OperandError("imm_trans_a belongs to a_desc; A is in registers here")
    shared = image("shared", o["shared"])
    base = integer("shared_base", o["shared_base"], OFFSETS)
    columns = form.k // 2 if form.sparse else form.k
    plain = {"b"}
    if o["a"] is not None:
        a = registers(form, "a", o["a"])
    else:
        a = shared_matrix(shared, base, _descriptor("a_desc", o["a_desc"]), form.m, columns, form.atype, trans_a)
        plain.add("a")
    b = shared_matrix(shared, base, _descriptor("b_desc", o["b_desc"]), form.n, form.k, form.btype, trans_b)
    c = registers(form, "d", o["d"]) if scale_d else None
    selector, e = 0, None
    if form.sparse:
        selector, e = integer("sp_sel", o["sp_sel"]), column(form, "sp_meta", o["sp_meta"])
        check_metadata(form, e, selector, o["strict"])
    flags = Twin.flags(zero_c=not scale_d, negate_a=signs.get("imm_scale_a") == -1, negate_b=signs.get("imm_scale_b") == -1)
    product = product_for(form, device, selector, BY_LANE, frozenset(plain), flags)
    return run(product, a, b, c, e, batch=batch(a=(a, 2), b=(b, 2), d=(c, 2), sp_meta=(e, 1)))


def _descriptor(name: str, value: Any) -> int:
    if isinstance(value, MatrixDescriptor):
        return value.encode()
    word = integer(name, value)
    if isinstance(value, np.int64):  # a register, bit for bit
        word &= (1 << 64) - 1
    if not 0 <= word < 1 << 64:
        rule = "Matrix Descriptor Format (PTX ISA 9.1)"
        raise OperandError(f"operand {name} is {word:#x}: a descriptor has 64 bits, 0 to 2**64 - 1", rule=rule)
    return word


def shared_matrix(
    shared: NDArray[np.uint8], base: int, descriptor: int, rows: int, k: int, element: ElementType, mn_major: bool = False
) -> Array:
    """Raw elements [..., rows, k] that a matrix descriptor selects from an image of shared memory.

    shared: the image [..., bytes].
    base: shared address of the image's first byte.
    descriptor: the 64 bits of the matrix descriptor.
    rows, k: shape of the matrix.
    element: type of the elements.
    mn_major: whether a line of the matrix runs along rows instead of k. A line is a multiple of 16 bytes.

    Raises ExecutionFault for an address outside the image.
    """
    lines, along = (k, rows) if mn_major else (rows, k)
    found = operand(shared, base, descriptor, lines, along * element.bits // 8, mn_major)
    if found is None:
        address = operand_addresses(MatrixDescriptor.decode(descriptor), rows, k, element.bits, mn_major)
        check_inside("shared", address - base, max(1, element.bits // 8), shared.shape[-1], base)
        raise InternalError("all elements are inside, and a line is not")
    if element.bits == 1:
        return np.unpackbits(found, axis=-1, bitorder="little")
    matrix = found.view(f"<u{element.bits // 8}")
    return np.swapaxes(matrix, -1, -2) if mn_major else matrix
