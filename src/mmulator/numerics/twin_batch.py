# mypy: disable-error-code="valid-type, no-any-return, arg-type, assignment, operator, index, attr-defined"
"""Many small products in one native call: the twin's functions in a loop, so that a batch costs no Python for each."""

from __future__ import annotations

import ctypes
from concurrent.futures import Executor
from functools import cache
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, library_text
from mmulator.codegen.types import i64, ptr, ptr_to, u64, void
from mmulator.codegen.values import Builder, Value

_P, _I = ctypes.c_void_p, ctypes.c_int64
EXTRAS = 3  # at most: index, scale_a and scale_b


def call(function: Value, *args: Value) -> None:
    """Macro: a function of the twin by address."""
    Builder.current().call_pointer(ptr(function), void, args)


@cache
def batch_function(extras: int) -> Native:
    """`count` products: pack both operands, then dot. Operands lie `stride` bytes apart (0: the same for all).

    functions: pack_a, pack_b_rows, dot. places, strides: of a, b, c, d and the extra operands of dot.
    """
    more = range(4, 4 + extras)

    def batch(
        functions: ptr_to(u64), places: ptr_to(u64), strides: ptr_to(u64), count: i64, lda: i64, m: i64, n: i64, k: i64,
        flags: i64, room_a: ptr, room_b: ptr,
    ) -> None:  # fmt: skip
        for t in range(count):
            step = u64(t)
            a, b, c, d = [ptr(places[i] + step * strides[i]) for i in (0, 1, 2, 3)]
            call(functions[0], a, lda, m, k, room_a)
            call(functions[1], b, n, n, k, room_b)
            extra = [ptr(places[i] + step * strides[i]) for i in more]
            call(functions[2], room_a, room_b, c, n, d, n, m, n, k, flags, *extra)

    return Native(batch, f"batch_{extras}")


@cache
def _entry(extras: int) -> Any:
    function = batch_function(extras)
    library = Library(library_text([function]))
    native = library.function(function.name, None, _P, _P, _P, _I, _I, _I, _I, _I, _I, _P, _P)
    return native, library  # the library keeps the code alive


def run_batch(
    twin: Any, operands: list[Any], out: Any, shape: tuple[int, int, int], flags: int, threads: int, pool: Executor
) -> None:
    """operands: a, b, c and the extras, each [count, ...] C-contiguous, or [1, ...] if it is the same for all.

    out [count, m, n]. `pool` runs one part of the batch for each thread.
    """
    m, n, k = shape
    count = out.shape[0]
    arrays = [*operands[:3], out, *operands[3:]]
    functions = np.array([twin.pack_a, twin.pack_b_rows, twin.dot], np.uint64)
    strides = np.array([0 if x.shape[0] == 1 and count > 1 else x[0].nbytes for x in arrays], np.uint64)
    base = np.array([x.ctypes.data for x in arrays], np.uint64)
    native = _entry(len(operands) - 3)[0]
    parts = max(1, min(threads, count * m * n * k >> 18))
    size = -(-count // parts)

    def part(t: int) -> None:
        first = t * size
        if first >= count:
            return
        a = np.empty(twin.a_bytes(m, k) + 64, np.uint8)
        b = np.empty(twin.b_bytes(n, k) + 64, np.uint8)
        rooms = [-(-int(x.ctypes.data) // 64) * 64 for x in (a, b)]
        places = base + strides * np.uint64(first)
        pointers = [int(x.ctypes.data) for x in (functions, places, strides)]
        native(*pointers, min(size, count - first), operands[0].shape[-1], m, n, k, flags, *rooms)

    if parts == 1:
        part(0)
    else:
        list(pool.map(part, range(parts)))


__all__ = ["batch_function", "run_batch"]
