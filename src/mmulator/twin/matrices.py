# mypy: disable-error-code="valid-type"
"""Whole matrices through the twin: one large product shared out among threads, or many small ones in one native call."""

from __future__ import annotations

import ctypes
import math
from functools import cache, partial
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, library_text
from mmulator.codegen.ops import copy_bytes
from mmulator.codegen.types import i64, ptr, ptr_to, u64, void
from mmulator.codegen.values import Builder, Value
from mmulator.numerics.arrays import batch_shape, check_operands
from mmulator.numerics.formats import container, element_type
from mmulator.numerics.profiles import DotKey
from mmulator.twin.threads import pointer, room, shares, split, together, worth
from mmulator.twin.twin import Twin, twin_for

_P, _I = ctypes.c_void_p, ctypes.c_int64
_Shape = tuple[int, int, int]  # m, n, k


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
    """As `numerics.model_matmul` (same operands, same bits), by the compiled twin. threads: default all cores."""
    A, B = np.asarray(A), np.asarray(B)
    check_operands(key, A, B, indices, scale_a, scale_b)
    twin = twin_for(key, device)
    m, n, k = A.shape[-2], B.shape[-1], B.shape[-2]
    named = {"A": A, "B": B, "C": C, "indices": indices, "scale_a": scale_a, "scale_b": scale_b}
    batch = batch_shape({name: np.shape(x)[:-2] for name, x in named.items() if x is not None})
    D = np.empty((*batch, m, n), container(element_type(key.dtype)))
    flags = twin.flags(zero_c=C is None, negate_a=imm_scale_a < 0, negate_b=imm_scale_b < 0)
    extras = ((indices, np.int32), (scale_a, np.uint8), (scale_b, np.uint8))
    given = [A, B, D if C is None else C, *(np.asarray(x, kind) for x, kind in extras if x is not None)]
    count = math.prod(batch)
    if count == 0 or m * n == 0:
        return D
    if m * n * k < 1 << (20 if count > 1 else 19):  # larger ones are worth all threads each
        _many(twin, [_spread(x, batch) for x in given], D, (m, n, k), flags, threads)
        return D
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in given]
    for at in np.ndindex(*batch):
        _large(twin, [np.ascontiguousarray(x[at]) for x in spread], D[at], (m, n, k), flags, threads)
    return D


def _spread(x: Any, batch: tuple[int, ...]) -> Any:
    """Contiguous: a matrix for each of the batch, or one where the operand has no batch of its own."""
    lead = x.shape[:-2]
    if lead != batch and math.prod(lead) != 1:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    return np.ascontiguousarray(x)


# one large product --------------------------------------------------------------------------------------------------
_STEP = 512  # of k: so much of both operands is packed at a time, so that caches hold it and memory is used again
_PIECE = 256  # rows that a thread takes at a time


def _large(twin: Twin, operands: list[Any], d: Any, shape: _Shape, flags: int, most: int | None) -> None:
    """operands: a, b, c and the extras. Threads share out the rows of A and D, and the 64-column blocks of B."""
    a, b, c, *more = operands
    m, n, k = shape
    key = twin.key
    # D of the first part of k is C of the next, as within it; extras go with the whole of k
    step = max(1, _STEP // key.k) * key.k if not more and key.ctype == key.dtype else k
    pa = np.empty(twin.a_bytes(m, min(step, k)) + 64, np.uint8)
    pb = np.empty(twin.b_bytes(n, min(step, k)) + 64, np.uint8)
    A, B = -(-pointer(pa) // 64) * 64, -(-pointer(pb) // 64) * 64
    pack = ctypes.CFUNCTYPE(None, _P, _I, _I, _I, _P)
    pack_a, pack_b = pack(twin.pack_a), pack(twin.pack_b_rows)
    dot = ctypes.CFUNCTYPE(None, _P, _P, _P, _I, _P, _I, _I, _I, _I, _I, *[_P] * len(more))(twin.dot)
    threads = worth(m * n * k, most)
    rows, columns = shares(m, max(threads, m // _PIECE), 16), shares(n, threads, 64)

    def pack_rows(at: int, size: int, i: int, count: int) -> None:
        pack_a(pointer(a[i:]) + at * a.itemsize, a.shape[1], count, size, A + i * twin.a_bytes(1, size))

    def pack_columns(at: int, size: int, j: int, count: int) -> None:
        pack_b(pointer(b[at:]) + j * b.itemsize, n, count, size, B + twin.b_bytes(j, size))

    def dot_rows(at: int, size: int, i: int, count: int) -> None:
        # index and scale_a have a line for each row; scale_b, the last, is common
        extra = [pointer(x if x is more[-1] and key.scale_blocks > 0 else x[i:]) for x in more]
        before, own = (d, flags & ~twin.flags(zero_c=True)) if at else (c, flags)
        dot(A + i * twin.a_bytes(1, size), B, pointer(before[i:]), n, pointer(d[i:]), n, count, n, size, own, *extra)

    for at in range(0, k, step):
        part = at, min(step, k - at)
        packing = [*(partial(pack_rows, *part, *s) for s in rows), *(partial(pack_columns, *part, *s) for s in columns)]
        together(packing, threads)
        together([partial(dot_rows, *part, *s) for s in rows], threads)


# many small ones ----------------------------------------------------------------------------------------------------
def _call(function: Value, *args: Value) -> None:
    """Macro: a function of the twin by address."""
    Builder.current().call_pointer(ptr(function), void, args)


@cache
def _batch_function(extras: int) -> Native:
    """`count` products: pack both operands, then dot. Operands lie `stride` bytes apart (0: the same for all).

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
            _call(functions[0], a, lda, m, k, room_a)
            _call(functions[1], b, n, n, k, room_b)
            extra = [ptr(places[i] + step * strides[i]) for i in more]
            if flags & 1 == 0:  # tiles reach C in an order that caches do not foresee
                copy_bytes(room_c, c, bytes_c)
            _call(functions[2], room_a, room_b, room_c, n, d, n, m, n, k, flags, *extra)

    return Native(batch, f"batch_{extras}")


@cache
def _entry(extras: int) -> Any:
    function = _batch_function(extras)
    library = Library(library_text([function]))
    _libraries.append(library)
    return library.function(function.name, None, _P, _P, _P, _I, _I, _I, _I, _I, _I, _P, _P, _P, _I)


_libraries: list[Library] = []  # keeps the code alive; of threads that come first together, of each


def _many(twin: Twin, operands: list[Any], out: Any, shape: _Shape, flags: int, most: int | None) -> None:
    """operands: a, b, c and the extras, each C-contiguous: matrices for each of `out`, or one that is the same for all.

    out [..., m, n].
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


__all__ = ["twin_matmul"]
