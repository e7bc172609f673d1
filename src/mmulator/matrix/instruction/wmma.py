"""wmma.load and wmma.store on registers and images of memory."""

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.matrix.instruction.mma import mma as mma  # of fragments, as the other one
from mmulator.matrix.instruction.operands import OFFSETS, Array, Operands, check_inside, image, integer, stored, target
from mmulator.matrix.layouts import fragment
from mmulator.matrix.twin import images
from mmulator.matrix.twin.moves import default_stride, line_alignment

_ALIGNMENT = "Matrix Storage for WMMA, Address Alignment (PTX ISA 9.1)"


def load(form: Form, device: str, o: Operands) -> Array:
    memory = image("memory", o["memory"])
    return images.wmma_load(form, memory, *_place(form, o, memory.shape[-1]))


def store(form: Form, device: str, o: Operands) -> Array:
    memory = target(o["memory"])
    p, stride = _place(form, o, memory.shape[-1])
    images.wmma_store(form, memory, p, stride, stored(form, o["r"], memory))
    return memory


def _place(form: Form, o: Operands, limit: int) -> tuple[int, int]:
    """(p, stride) of a matrix inside the memory. Raises ExecutionFault if it leaves the memory. limit: bytes of memory."""
    rule, bits = fragment(form, "r"), form.type.bits
    default = default_stride(form)
    stride = default if o["stride"] is None else integer("stride", o["stride"], OFFSETS)
    if stride < default:
        raise OperandError(
            f"stride is {stride}: it must be at least {default}, the size of the leading dimension",
            rule=str(form.section),
        )
    p = integer("p", o["p"], OFFSETS)
    aligned = line_alignment(form)
    if p % aligned:
        raise OperandError(f"p is {p}: it must be a multiple of {aligned}, the size of the fragment", rule=_ALIGNMENT)
    # The PTX ISA asks for lines at multiples of the fragment's size, CUDA's wmma for multiples of 16 bytes, which is
    # what hardware needs: kernels count on it.
    line = min(aligned, 16)
    if stride != default and stride * bits % (8 * line):
        raise OperandError(
            f"stride is {stride}: {stride} .{form.type} elements are {stride * bits / 8:g} bytes, "
            f"and every line must start at a multiple of {line}",
            rule=_ALIGNMENT,
            hint=f"use a multiple of {8 * line // bits} elements",
        )
    lines = rule.rows * rule.columns // default
    if p < 0 or 8 * p + ((lines - 1) * stride + default) * bits > 8 * limit:
        _refuse(form, p, stride, limit)
    return p, stride


def _refuse(form: Form, p: int, stride: int, limit: int) -> None:
    """Raise ExecutionFault with the first element, row by row, that lies outside."""
    rule = fragment(form, "r")
    row, column = np.indices((rule.rows, rule.columns))
    element = row * stride + column if form.layout == "row" else column * stride + row
    check_inside("memory", p + element * form.type.bits // 8, max(1, form.type.bits // 8), limit)
