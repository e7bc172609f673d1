# mypy: disable-error-code="valid-type"
"""Whole matrices through the twin: large products (large.py), or many small ones in one native call."""

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import copy_bytes
from mmulator.base.codegen.types import i64, ptr, ptr_to, u64, void
from mmulator.base.codegen.values import Builder, Value
from mmulator.base.errors import OperandError
from mmulator.matrix.numerics.formats import batch_shape, container, element_type
from mmulator.matrix.numerics.profiles import DotKey
from mmulator.matrix.twin.large import large_product
from mmulator.matrix.twin.threads import pointer, room, split, worth
from mmulator.matrix.twin.twin import Twin, twin_for

_P, _I = ctypes.c_void_p, ctypes.c_int64
_Shape = tuple[int, int, int]  # m, n, k
_LARGE = 1 << 19  # multiply-accumulates of a product that is worth all threads; of many twice as many


def twin_matmul(
    key: DotKey,
    device: str,
    A: Any,
    B: Any,
    C: Any | None,
    *,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    indices: Any | None = None,
    scale_a: Any | None = None,
    scale_b: Any | None = None,
    threads: int | None = None,
) -> Any:
    """D = A B + C with a device's bits, for any number of instructions chained over k. All matrices are raw unsigned integers.

    key: the arithmetic of an instruction.
    device: name of the device.
    A: [..., M, K]; compressed [..., M, K/2] when sparse.
    B: [..., K, N].
    C: [..., M, N] of key.ctype, or None for zero.
    imm_scale_a, imm_scale_b: 1 or -1.
    indices: when sparse, the dense k of each element of A, with the shape of A.
    scale_a: [..., M, S], with S = K / key.k * key.scale_blocks.
    scale_b: [..., S, N].
    threads: number of threads, by default one for each core.

    The result has C's shape and the container of key.dtype. One element a container (8 bits for narrower types; b1 as 0 or 1).
    K is a multiple of key.k; after each instruction D becomes C.
    Raises OperandError for shapes that do not fit, UnsupportedError if the device has no such arithmetic.
    """
    A, B = np.asarray(A), np.asarray(B)
    _check(key, A, B, indices, scale_a, scale_b)
    twin = twin_for(key, device)
    extras = {"indices": (indices, np.int32), "scale_a": (scale_a, np.uint8), "scale_b": (scale_b, np.uint8)}
    given = {"A": A, "B": B, **({} if C is None else {"C": np.asarray(C)})}
    given |= {name: np.asarray(x, kind) for name, (x, kind) in extras.items() if x is not None}
    batch = batch_shape({name: x.shape[:-2] for name, x in given.items()})
    D = np.empty((*batch, A.shape[-2], B.shape[-1]), container(element_type(key.dtype)))
    flags = twin.flags(zero_c=C is None, negate_a=imm_scale_a < 0, negate_b=imm_scale_b < 0)
    if D.size:
        _products(twin, _as_one(given, batch), D, flags, threads)
    return D


def _check(key: DotKey, A: Any, B: Any, indices: Any | None, scale_a: Any | None, scale_b: Any | None) -> None:
    """Raise OperandError unless raw operands of a product have the shapes and containers that a key of arithmetic takes."""
    if A.ndim < 2 or B.ndim < 2 or B.shape[-2] % key.k or A.shape[-1] * (1 + key.sparse) != B.shape[-2]:
        what = "[..., M, K/2]" if key.sparse else "[..., M, K]"
        raise OperandError(f"A {A.shape} and B {B.shape}", rule=f"A is {what}, B is [..., K, N], K a multiple of {key.k}")
    for name, array, kind in (("A", A, key.atype), ("B", B, key.btype)):
        want = np.dtype("u1") if kind == "b1" else container(element_type(kind))
        if array.dtype != want:
            raise OperandError(f"{name} is {array.dtype}", rule=f"raw elements of .{kind} come as {want}")
    if key.sparse != (indices is not None) or (indices is not None and indices.shape[-2:] != A.shape[-2:]):
        raise OperandError("indices come with sparse instructions, one for each element of A")
    if bool(key.scale_blocks) != (scale_a is not None and scale_b is not None):
        raise OperandError("scale_a and scale_b come with block-scaled instructions, and only with them")
    if scale_a is not None and scale_b is not None:
        s = B.shape[-2] // key.k * key.scale_blocks
        if scale_a.shape[-2:] != (A.shape[-2], s) or scale_b.shape[-2:] != (s, B.shape[-1]):
            raise OperandError(f"scale_a {scale_a.shape}, scale_b {scale_b.shape}", rule=f"[..., M, {s}] and [..., {s}, N]")


def _products(twin: Twin, given: dict[str, Any], out: Any, flags: int, most: int | None) -> None:
    """Compute all products of a batch.

    twin: the arithmetic.
    given: A, B and, if present, C, indices, scale_a, scale_b; their leading dimensions broadcast to those of `out`. Without
        any, all of `out` is one product.
    out: the result.
    flags: of the twin.
    most: greatest number of threads.
    """
    a, b, c, *extras = (given.get(name, out) for name in ("A", "B", "C", *(x for x in given if x not in "ABC")))
    if out.ndim > 2 and all(x.ndim == 2 for x in given.values()):
        out = out.reshape(math.prod(out.shape[:-1]), out.shape[-1])
        c = c.reshape(out.shape)
    *batch, m, n = out.shape
    count, k = math.prod(batch), b.shape[-2]
    if m * n * k < (2 * _LARGE if count > 1 else _LARGE):
        _many(twin, [_spread(x, tuple(batch)) for x in (a, b, c, *extras)], out, (m, n, k), flags, most)
        return
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b, c, *extras)]
    for at in np.ndindex(*batch):
        a, b, c, *extras = (x[at] for x in spread)
        large_product(twin, a, b, c, out[at], extras, flags, most)


def _as_one(given: dict[str, Any], batch: tuple[int, ...]) -> dict[str, Any]:
    """The operands of products that share B, as one product with the rows of all."""
    shared = [given[name] for name in ("B", "scale_b") if name in given]
    if not batch or given["A"].shape[:-2] != batch or any(x.size != x.shape[-2] * x.shape[-1] for x in shared):
        return given
    one = {}
    for name, x in given.items():
        lines = x if name in ("B", "scale_b") else np.broadcast_to(x, (*batch, *x.shape[-2:]))
        one[name] = lines.reshape(math.prod(lines.shape[:-1]), x.shape[-1])
    return one


def _spread(x: Any, batch: tuple[int, ...]) -> Any:
    """A contiguous operand: a matrix for each product of the batch, or one if the operand has no batch dimensions."""
    lead = x.shape[:-2]
    if lead != batch and math.prod(lead) != 1:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    return np.ascontiguousarray(x)


# many small ones ----------------------------------------------------------------------------------------------------
def _call(function: Value, *args: Value) -> None:
    """Macro: a function of the twin by address."""
    Builder.current().call_pointer(ptr(function), void, args)


@cache
def batch_function(extras: int) -> Native:
    """A function for `count` products: pack both operands, then dot. Operands are `stride` bytes apart (0: shared by all).

    functions: pack_a, pack_b_rows, dot. places, strides: of a, b, c, d and the extra operands of dot.
    """
    more = range(4, 4 + extras)

    def batch(
        functions: ptr_to(u64), places: ptr_to(u64), strides: ptr_to(u64), count: i64, lda: i64, m: i64, n: i64, k: i64,
        flags: i64, room_a: ptr, room_b: ptr, room_c: ptr, bytes_c: i64,
    ) -> None:  # fmt: skip
        for t in range(count):
            step = u64(t)
            a, b, c, d = [ptr(places[i] + step * strides[i]) for i in (0, 1, 2, 3)]
            if t == 0 or strides[0] != 0:
                _call(functions[0], a, lda, m, k, room_a)
            if t == 0 or strides[1] != 0:
                _call(functions[1], b, n, n, k, room_b)
            extra = [ptr(places[i] + step * strides[i]) for i in more]
            if flags & 1 == 0:  # tiles reach C in an order that caches do not foresee
                copy_bytes(room_c, c, bytes_c)
            _call(functions[2], room_a, room_b, room_c, n, d, n, m, n, k, flags, *extra)

    return Native(batch, f"batch_{extras}")


@cache
def _entry(extras: int) -> Any:
    return ctypes.CFUNCTYPE(None, _P, _P, _P, _I, _I, _I, _I, _I, _I, _P, _P, _P, _I)(address(batch_function(extras)))


def _many(twin: Twin, operands: list[Any], out: Any, shape: _Shape, flags: int, most: int | None) -> None:
    """Compute many small products on several threads.

    twin: the arithmetic.
    operands: a, b, c and the extras, each C-contiguous: matrices for each of `out`, or one for all.
    out: the result [..., m, n].
    shape: (m, n, k).
    flags: of the twin.
    most: greatest number of threads.
    """
    m, n, k = shape
    count = out.size // (m * n)
    arrays = [*operands[:3], out, *operands[3:]]
    words = ctypes.c_uint64 * len(arrays)
    places = [pointer(x) for x in arrays]
    # an operand is shared if it has but one matrix
    sizes = [0 if x.size == x.shape[-1] * x.shape[-2] else x.nbytes // count for x in arrays]
    native, strides, lda = _entry(len(operands) - 3), words(*sizes), operands[0].shape[-1]
    size_c = m * n * operands[2].itemsize

    def part(first: int, size: int) -> None:
        at = words(*(p + first * s for p, s in zip(places, sizes)))
        rooms = room(twin.a_bytes(m, k), "a"), room(twin.b_bytes(n, k), "b"), room(size_c, "c")
        native(twin.functions, at, strides, size, lda, m, n, k, flags, *rooms, size_c)

    split(part, count, worth(count * m * n * k, most) if count > 1 else 1)
