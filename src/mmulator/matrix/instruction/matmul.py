"""Products of whole matrices through one instruction, as a kernel computes them: chained over k, with zeros at the edges."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, short_traceback
from mmulator.base.floating import in_plain_floats
from mmulator.base.interop import as_array, is_lazy
from mmulator.isa.chips import as_device
from mmulator.isa.form import Form
from mmulator.isa.names.words import Query, legal_forms, rank
from mmulator.isa.types import ElementType
from mmulator.matrix.instruction import chunks, execution
from mmulator.matrix.instruction.instruction import Instruction
from mmulator.matrix.instruction.operands import check_signs, sparse_a
from mmulator.matrix.layouts import sparse
from mmulator.matrix.numerics.formats import SCALE_OF_ONE, from_raw, to_raw
from mmulator.matrix.numerics.profiles import dot_key

Array = NDArray[Any]


@short_traceback
@in_plain_floats
def matmul(
    A: Any,
    B: Any,
    C: Any = None,
    *,
    instruction: Instruction | str = "",
    device: str | None = None,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    scale_a: Any = None,
    scale_b: Any = None,
    metadata: Any = None,
) -> Array:
    """D = A B + C for any M, N, K with the bits that a kernel using `instruction` gets on `device`.

    A: [..., M, K]. Sparse instructions take a dense A with the zeros that their granularity requires, or a result of
        `sparse.compress`, or the elements that are kept, [..., M, K / 2], with `metadata`.
    B: [..., K, N].
    C: [..., M, N]; None is zero.
    instruction: an Instruction, or a name or words for `Instruction.parse`; it must be given.
    device: name of a device or chip, such as "sm_90" or "H100"; None is sm_90, and the target's chip for tcgen05.
    imm_scale_a, imm_scale_b: 1 or -1, as for wgmma, in every step.
    scale_a: [..., M, S], for block scaling: one factor for every k / scale_vec elements.
    scale_b: [..., S, N].
    metadata: nibbles [..., M, chunks] that say which elements of a sparse A are kept, as `sparse.compress` gives them.

    Elements are NumPy or ml_dtypes values of the instruction's types, or raw unsigned integers of their size. Leading
    dimensions broadcast. K is cut into steps of the instruction's k in ascending order, and the result of a step is the C of
    the next; the last step is padded with zeros. Output elements do not depend on each other, so M and N need no padding.
    The result has the NumPy dtype of the instruction's D. If an operand is a Dask array, the result is one too, and is computed
    on demand: chunks of M and N in any order, chunks along K one after another (docs/how-to/python.md).
    Raises OperandError for wrong shapes or dtypes, UnsupportedError where the device lacks the instruction.
    """
    if isinstance(instruction, str | None) and not instruction:
        raise _unnamed(A, B, device)
    i = instruction if isinstance(instruction, Instruction) else Instruction.parse(instruction)
    form = i.form
    if not form.atype or not form.btype or not form.dtype:
        raise OperandError(f"{form} multiplies no matrices", hint="use an mma, wgmma.mma_async or wmma.mma instruction")
    device = execution.check_device(form, execution.default_chip(form, i.target) if device is None else device)
    check_signs(form, imm_scale_a, imm_scale_b)
    A = sparse_a(form, A, metadata)
    operands = {"A": A, "B": B, "C": C, "scale_a": scale_a, "scale_b": scale_b}
    if any(map(is_lazy, operands.values())):
        signs = {"imm_scale_a": imm_scale_a, "imm_scale_b": imm_scale_b}
        return chunks.product(partial(matmul, instruction=str(i), device=device, **signs), form, operands)
    o = prepared(form, A, B, C, scale_a, scale_b)
    from mmulator.matrix.twin.matrices import twin_matmul

    d = twin_matmul(
        dot_key(form), device, o.a, o.b, o.c, imm_scale_a=imm_scale_a, imm_scale_b=imm_scale_b, indices=o.indices, **o.scales
    )
    return from_raw(form.dtype, d)


def _unnamed(A: Any, B: Any, device: str | None) -> OperandError:
    """The error of a product without an instruction. Its hint has those that multiply such elements on the device."""
    types, chip = [f"{getattr(x, 'dtype', 0)}".rpartition(".")[2] for x in (A, B)], as_device(device or "sm_90")
    fitting = (f for f in legal_forms() if f.atype and f.btype and [f.atype.numpy, f.btype.numpy] == types)
    best: dict[str, str] = {}
    for form in sorted((f for f in fitting if chip in execution.devices_with(f)), key=lambda f: rank(f, Query())):
        best.setdefault(form.family, form.mnemonic)
    some = f"such as instruction={' or '.join(map(repr, best.values()))}; " if best else ""
    return OperandError("matmul needs an instruction: it decides the sum", hint=f"{some}`mmulator list` has all")


@dataclass(frozen=True)
class MatrixOperands:
    """Operands of a product of matrices as raw elements, with zeros up to a multiple of the instruction's k.

    a: [..., M, K]; of a sparse A the elements that are kept, [..., M, K / 2].
    b: [..., K, N].
    c: [..., M, N], or None.
    indices: of a sparse A the place along K of each element that is kept; else None.
    scales: scale_a and scale_b, for block scaling.
    """

    a: Array
    b: Array
    c: Array | None
    indices: Array | None
    scales: dict[str, Any]


def prepared(form: Form, A: Any, B: Any, C: Any, scale_a: Any, scale_b: Any) -> MatrixOperands:
    """The operands of a product, given as `matmul` takes them. Raises OperandError for wrong shapes or dtypes."""
    b = _raw("B", form.btype, B)
    if isinstance(A, sparse.Compressed):
        a, shape = _raw("A", form.atype, A.values), A.shape
    else:
        a = _raw("A", form.atype, A)
        shape = a.shape
    if shape[-1] != b.shape[-2]:
        raise OperandError(f"A {shape} and B {b.shape}: A is [..., M, K], B [..., K, N]")
    m, k, n = shape[-2], shape[-1], b.shape[-1]
    c = None if C is None else _raw("C", form.ctype or form.dtype, C)
    if c is not None and c.shape[-2:] != (m, n):
        raise OperandError(f"C of shape {c.shape}: [..., {m}, {n}] is needed")
    steps = max(1, -(-k // form.k))
    b = _padded(b, -2, steps * form.k)
    indices = None
    if form.sparse:
        whole = A if isinstance(A, sparse.Compressed) else _padded(as_array("A", A), -1, steps * form.k)
        kept = sparse.operand(whole, form).padded(m, steps * form.k)
        a, indices = to_raw(form.atype, kept.values), sparse.indices(kept.metadata, form)
    elif isinstance(A, sparse.Compressed):
        raise OperandError(f"A is compressed and {form} is dense", hint="`sparse.expand` gives the dense A")
    else:
        a = _padded(a, -1, steps * form.k)
    return MatrixOperands(a, b, c, indices, _scales(form, scale_a, scale_b, k, steps))


def _raw(name: str, element: ElementType, value: Any) -> Array:
    raw = to_raw(element, value, name)
    if raw.ndim < 2:
        raise OperandError(f"{name} of shape {raw.shape} is no matrix")
    return raw


def _padded(array: Array, axis: int, size: int, value: int = 0) -> Array:
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths, constant_values=value)


def _scales(form: Form, scale_a: Any, scale_b: Any, k: int, steps: int) -> dict[str, Any]:
    if not form.block_scale:
        if scale_a is not None or scale_b is not None:
            raise OperandError(f"{form} takes no scale_a or scale_b")
        return {}
    factors = dot_key(form).scale_blocks
    block = form.k // factors
    blocks = -(-k // block)
    out = {}
    for name, value, axis in (("scale_a", scale_a, -1), ("scale_b", scale_b, -2)):
        if value is None:
            raise OperandError(f"{name} is missing: one .{form.stype} factor for every {block} elements along k")
        raw = _raw(name, form.stype, value)
        if raw.shape[axis] != blocks:
            raise OperandError(f"{name} of shape {raw.shape}: {blocks} factors along k are needed, one for {block} elements")
        out[name] = _padded(raw, axis, steps * factors, SCALE_OF_ONE[form.stype.name])
    return out
