# mypy: disable-error-code="valid-type, no-any-return, arg-type, assignment, operator, index, attr-defined"
"""Many small products in one native call: the twin's functions in a loop, so that a batch costs no Python for each."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, library_text
from mmulator.codegen.ops import copy_bytes
from mmulator.codegen.types import i64, ptr, ptr_to, u64, void
from mmulator.codegen.values import Builder, Value

_P, _I = ctypes.c_void_p, ctypes.c_int64


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
        flags: i64, room_a: ptr, room_b: ptr, room_c: ptr, bytes_c: i64,
    ) -> None:  # fmt: skip
        for t in range(count):
            step = u64(t)
            a, b, c, d = [ptr(places[i] + step * strides[i]) for i in (0, 1, 2, 3)]
            call(functions[0], a, lda, m, k, room_a)
            call(functions[1], b, n, n, k, room_b)
            extra = [ptr(places[i] + step * strides[i]) for i in more]
            if flags & 1 == 0:  # tiles reach C in an order that caches do not foresee
                copy_bytes(room_c, c, bytes_c)
            call(functions[2], room_a, room_b, room_c, n, d, n, m, n, k, flags, *extra)

    return Native(batch, f"batch_{extras}")


@cache
def _entry(extras: int) -> Any:
    function = batch_function(extras)
    library = Library(library_text([function]))
    native = library.function(function.name, None, _P, _P, _P, _I, _I, _I, _I, _I, _I, _P, _P, _P, _I)
    return native, library  # the library keeps the code alive


_room = threading.local()


def room(size: int, which: str = "scratch") -> int:
    """Address of at least `size` bytes of this thread's own, a multiple of 64. `which`: several do not overlap."""
    memory, length, address = getattr(_room, which, (None, 0, 0))
    if length < size:
        memory = np.empty(size + 64, np.uint8)
        address = (pointer(memory) + 63) & -64
        setattr(_room, which, (memory, size, address))
    return int(address)


def pointer(array: Any) -> int:
    """Address of an array's first byte."""
    return array.ctypes.data


def run_batch(
    twin: Any, operands: list[Any], out: Any, shape: tuple[int, int, int], flags: int, threads: int,
    pool: Callable[[int], Executor],
) -> None:  # fmt: skip
    """operands: a, b, c and the extras, each C-contiguous: matrices for each of `out`, or one that is the same for all.

    out [..., m, n]. `pool(threads)` runs one part of the batch for each thread.
    """
    m, n, k = shape
    count = out.size // (m * n)
    arrays = [*operands[:3], out, *operands[3:]]
    words = ctypes.c_uint64 * len(arrays)
    places = [pointer(x) for x in arrays]
    # an operand is shared if it has but one matrix
    sizes = [0 if x.size == x.shape[-1] * x.shape[-2] else x.nbytes // count for x in arrays]
    native, strides, lda = _entry(len(operands) - 3)[0], words(*sizes), operands[0].shape[-1]
    parts = max(1, min(threads, count * m * n * k >> 18)) if count > 1 else 1
    size = -(-count // parts)

    def part(t: int) -> None:
        first = t * size
        if first < count:
            at = words(*(p + first * s for p, s in zip(places, sizes)))
            size_c = m * n * operands[2].itemsize
            rooms = room(twin.a_bytes(m, k), "a"), room(twin.b_bytes(n, k), "b"), room(size_c, "c")
            native(twin.functions, at, strides, min(size, count - first), lda, m, n, k, flags, *rooms, size_c)

    if parts == 1:
        part(0)
    else:
        list(pool(threads).map(part, range(parts)))


__all__ = ["batch_function", "pointer", "room", "run_batch"]
