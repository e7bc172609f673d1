"""Products of Dask arrays, chunk by chunk: lazy, with the same bits as the product of the whole arrays.

Elements of D do not depend on each other, so chunks of M, N and leading dimensions are separate products. Along K the order of
additions decides the bits: a chunk's result is the C of the next chunk, just as a step's result is the C of the next step
within a product. This module is imported only when an operand is a Dask array, so Dask is installed.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.base.interop import readable
from mmulator.isa.form import Form
from mmulator.isa.types import ElementType
from mmulator.matrix.layouts import sparse
from mmulator.matrix.numerics.formats import batch_shape, numpy_dtype, to_raw
from mmulator.matrix.numerics.profiles import dot_key

AXES = {"A": "mk", "B": "kn", "C": "mn", "scale_a": "mk", "scale_b": "kn"}
Product = Callable[..., Any]


def product(multiply: Product, form: Form, operands: Mapping[str, Any]) -> Any:
    """`matmul` of Dask arrays. multiply: `matmul` for arrays in memory, which computes each chunk."""
    given = _given(form, operands)
    a, b, c = given["A"], given["B"], given.get("C")
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.shape[-2] != k:
        raise OperandError(f"A {a.shape} and B {b.shape}: A is [..., M, K], B [..., K, N]")
    if c is not None and c.shape[-2:] != (m, n):
        raise OperandError(f"C of shape {c.shape}: [..., {m}, {n}] is needed")
    step = form.k // dot_key(form).scale_blocks if form.block_scale else 1  # elements for which there is one factor
    for name, axis in (("scale_a", -1), ("scale_b", -2)):
        if name in given and given[name].shape[axis] != -(-k // step):
            raise OperandError(
                f"{name} of shape {given[name].shape}: {-(-k // step)} factors along k are needed, one for {step} elements"
            )
    edges = _edges(form, k, operands, given)
    for begin, end in pairwise(edges):
        steps = slice(begin // step, -(-end // step))
        parts = {
            "A": a[..., begin:end], "B": b[..., begin:end, :], "C": c,
            **({"scale_a": given["scale_a"][..., steps], "scale_b": given["scale_b"][..., steps, :]} if form.block_scale else {}),
        }  # fmt: skip
        c = _blockwise(multiply, form, {name: x for name, x in parts.items() if x is not None}, whole="k")
    return c


def batch(compute: Product, form: Form, operands: Mapping[str, Any]) -> Any:
    """`Instruction.compute` of Dask arrays. compute: `Instruction.compute` for arrays in memory, which computes each chunk."""
    given = _given(form, operands)
    sizes, factors = {"m": form.m, "n": form.n, "k": form.k}, dot_key(form).scale_blocks
    for name, x in given.items():
        wanted = tuple(factors if name.startswith("scale") and axis == "k" else sizes[axis] for axis in AXES[name])
        if x.shape[-2:] != wanted:
            raise OperandError(f"{name} of shape {x.shape}: [..., {wanted[0]}, {wanted[1]}] is needed")
    return _blockwise(compute, form, given, whole="mnk")


def _given(form: Form, operands: Mapping[str, Any]) -> dict[str, Any]:
    """The operands that are not None, as Dask arrays. Raises OperandError."""
    import dask.array as da

    types: dict[str, ElementType] = {"A": form.atype, "B": form.btype, "C": form.ctype or form.dtype}
    found = {}
    for name, x in operands.items():
        scale = name.startswith("scale")
        if x is None and (name == "C" or (scale and not form.block_scale)):
            continue
        if scale and not form.block_scale:
            raise OperandError(f"{form} takes no scale_a or scale_b")
        if x is None:
            raise OperandError(f"{name} is missing")
        if isinstance(x, sparse.Compressed):
            raise OperandError(
                "A is compressed, and other operands are arrays of Dask's", hint="pass the dense A: `sparse.expand` gives it"
            )
        if not isinstance(x, da.Array):
            array = readable(x, name)
            x = da.from_array(np.asarray(x) if array is None else array, chunks=-1, name=False)
        if x.ndim < 2:
            raise OperandError(f"{name} of shape {x.shape} is no matrix")
        if any(math.isnan(size) for size in x.shape):
            raise OperandError(f"{name} has chunks of unknown size", hint=f"{name}.compute_chunk_sizes() finds them out")
        to_raw(form.stype if scale else types[name], np.zeros((1, 1), x.dtype), name)  # raises for elements that are none
        found[name] = x
    return found


def _edges(form: Form, k: int, operands: Mapping[str, Any], given: Mapping[str, Any]) -> list[int]:
    """The places along K where the product is cut: the ends of chunks of A (or of B, if only B is a Dask array), rounded up to
    whole steps of the instruction. There is no cut if C and D have different types, since D would be rounded between chunks.
    """
    if form.ctype and form.ctype != form.dtype:
        return [0, k]  # within a product D is not rounded to C's type
    cut = given["A"].chunks[-1] if operands["A"] is given["A"] else given["B"].chunks[-2]
    ends = {min(k, -(-int(end) // form.k) * form.k) for end in np.cumsum(cut)}
    return [0, *sorted(ends - {0}), *([0] if k == 0 else [])]


def _blockwise(function: Product, form: Form, given: Mapping[str, Any], whole: str) -> Any:
    """A product for each chunk. whole: axes ("m", "n", "k") along which the operands are merged into one chunk."""
    import dask.array as da

    lead = len(batch_shape({name: x.shape[:-2] for name, x in given.items()}))
    names = [f"b{n}" for n in range(lead)]
    arguments: list[Any] = []
    for name in ("A", "B", "C", "scale_a", "scale_b"):
        x = given.get(name)
        if x is None:
            arguments += [None, None]
            continue
        own = [*names[lead - (x.ndim - 2) :], *(axis + "s" * (name.startswith("scale") and axis == "k") for axis in AXES[name])]
        arguments += [x.rechunk({x.ndim - 2 + n: -1 for n, axis in enumerate(AXES[name]) if axis in whole}), own]
    dtype = numpy_dtype(form.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", da.PerformanceWarning)  # that a product has more chunks than its operands
        return da.blockwise(
            _Chunk(function, bool(form.block_scale)), [*names, "m", "n"], *arguments, dtype=dtype, concatenate=True,
            meta=np.empty((0,) * (lead + 2), dtype),
        )  # fmt: skip


class _Chunk:
    """The function that multiplies one set of chunks: operands in the order of AXES, None for absent ones."""

    def __init__(self, function: Product, scaled: bool) -> None:
        self.function, self.scaled, self.__name__ = function, scaled, "mmulator"

    def __dask_tokenize__(self) -> Any:
        from dask.base import normalize_token

        return normalize_token((self.function, self.scaled))

    def __call__(self, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
        scales = {"scale_a": scale_a, "scale_b": scale_b} if self.scaled else {}
        return self.function(a, b, c, **scales)
