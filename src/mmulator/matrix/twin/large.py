# mypy: disable-error-code="valid-type, arg-type, attr-defined, index, operator, call-overload"
"""One large product, a tile of D at a time: operands are packed piece by piece next to the products that use them.

A packed element takes up to ten times the bytes of a raw one, so packing in caches and discarding the result is cheaper than
keeping packed operands in memory for the next call. Each task has its own rows and columns of D and shares nothing with others:
for each part of k it packs its rows of A once, then each panel of columns of B, which is used at once.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import cast_ptr, copy_bytes, minimum, prefetch
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u64
from mmulator.matrix.twin.product import call_dot, call_pack
from mmulator.matrix.twin.threads import pointer, room, shares, together, worth
from mmulator.matrix.twin.twin import Twin

_P, _I = ctypes.c_void_p, ctypes.c_int64
PANEL = 128  # columns of B that are packed at a time, for so much of k as takes
AHEAD = 16  # lines of raw B that are prefetched
_BYTES = 360 << 10  # packed, a third of a second cache: 256 of f16
_ROWS, _COLUMNS = 512, 1024  # of a task, at most; its packed A takes _SIZE bytes at most, if that is 16 rows
_SIZE = 6 << 20

LargeTable = Struct("LargeTable", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64), ("flags", i64),
    ("a", ptr), ("b", ptr), ("c", ptr), ("d", ptr), ("index", ptr_to(i32)), ("scale_a", ptr), ("scale_b", ptr),
    ("n", i64), ("k", i64), ("kk", i64), ("step", i64),  # kk: of an instruction
    ("lda", i64), ("a_size", i64), ("b_k", i64), ("b_n", i64),  # bytes from one k, one column of B to the next
    ("c_size", i64), ("d_size", i64), ("scales", i64),  # scales: of an instruction
    # offsets into the scratch memory, where packed A is at 0
    ("packed_b", u64), ("raw", u64), ("own_index", u64), ("own_a", u64), ("own_b", u64),
])  # fmt: skip
_Numbers = ctypes.c_uint64 * len(LargeTable.fields)


@native
def gather_lines(source: ptr, count: i64, pitch: i64, bytes: i64, out: ptr) -> None:
    """Copy lines that are apart into contiguous memory: at a pitch of a power of two they would evict each other from the
    caches, and the CPU does not predict where the next line is.

    source: first line.
    count: number of lines.
    pitch: distance of lines in bytes.
    bytes: bytes of a line.
    out: destination.
    """
    for n in range(count):
        line = source + n * pitch
        for at in range(i64(0), bytes, 64):
            prefetch(line + (AHEAD * pitch + at))
        copy_bytes(out + n * bytes, line, bytes)


@cache
def large_function(sparse: bool, scaled: bool) -> Native:
    """A function for rows by columns of D, over all of k."""
    divide = 2 if sparse else 1

    def large(table: ptr_to(LargeTable), i: i64, rows: i64, j: i64, columns: i64, scratch: ptr) -> None:
        n = table.n
        k = table.k
        flags = table.flags
        c = table.c
        c_size = table.c_size
        packed_b = scratch + table.packed_b
        raw = scratch + table.raw
        own_index = scratch + table.own_index
        own_a = scratch + table.own_a
        own_b = scratch + table.own_b
        scales = table.scales
        for at in range(i64(0), k, table.step):
            size = minimum(table.step, k - at)
            a = table.a + (i * table.lda + at // divide) * table.a_size
            call_pack(table.pack_a, a, table.lda, rows, size, scratch)
            more = []
            if sparse:
                kept = size // divide
                target = cast_ptr(i32, own_index)
                source = table.index + (i * (k // divide) + at // divide)
                for r in range(rows):
                    for x in range(kept):
                        target[r * kept + x] = source[r * (k // divide) + x] - i32(at)
                more += [own_index]
            first = at // table.kk * scales
            count = size // table.kk * scales
            if scaled:
                for r in range(rows):
                    copy_bytes(own_a + r * count, table.scale_a + ((i + r) * (k // table.kk * scales) + first), count)
                more += [own_a, own_b]
            for column in range(j, j + columns, PANEL):
                width = minimum(j + columns - column, i64(PANEL))
                b = table.b + (at * table.b_k + column * table.b_n)
                if table.b_n <= table.b_k:  # by rows
                    gather_lines(b, size, table.b_k, width * table.b_n, raw)
                    call_pack(table.pack_b, raw, width, width, size, packed_b)
                else:
                    gather_lines(b, width, table.b_n, size * table.b_k, raw)
                    call_pack(table.pack_b, raw, size, width, size, packed_b)
                if scaled:
                    for x in range(count):
                        copy_bytes(own_b + x * width, table.scale_b + ((first + x) * n + column), width)
                d = table.d + (i * n + column) * table.d_size
                call_dot(table.dot, scratch, packed_b, c + (i * n + column) * c_size, n, d, n, rows, width, size, flags, *more)
            c = table.d
            c_size = table.d_size
            flags = flags & -2  # D of this part is C of the next

    return Native(large, f"large{'_sparse' * sparse}{'_scaled' * scaled}")


@cache
def _function(sparse: bool, scaled: bool) -> Any:
    return ctypes.CFUNCTYPE(None, _P, _I, _I, _I, _I, _P)(address(large_function(sparse, scaled)))


def tiles(m: int, n: int, rows: int, threads: int) -> list[tuple[int, int, int, int]]:
    """(i, rows, j, columns) of the tasks: at least two for each thread, if each still has 64 columns.

    m, n: size of D.
    rows: greatest number of rows of a task.
    threads: number of threads.
    """
    down = -(-m // rows)
    across = min(-(-n // 64), max(-(-n // _COLUMNS), -(-2 * threads // down) if threads > 1 else 1))
    if down * across < threads:
        down = max(down, min(threads, m // 32))
    return [(*vertical, *horizontal) for vertical in shares(m, down, 16) for horizontal in shares(n, across, 64)]


def _lines(x: Any) -> bool:
    """Whether rows are contiguous and in ascending order, possibly with gaps between them."""
    row, element = x.strides
    return bool(element == x.itemsize and row > 0 and row % x.itemsize == 0)


def _in_lines(x: Any) -> Any:
    """An operand with contiguous rows. NumPy may give a dimension of one element any stride: 0 after it is broadcast."""
    x = x if _lines(x) else np.ascontiguousarray(x)
    return x if _lines(x) else x.copy()


def large_product(twin: Twin, a: Any, b: Any, c: Any, d: Any, extras: Sequence[Any], flags: int, most: int | None) -> None:
    """Compute d = a b + c on several threads.

    twin: the arithmetic.
    a, b, c: operands.
    d: the result, C-contiguous.
    extras: index; scale_a, scale_b.
    flags: of the twin.
    most: greatest number of threads.
    """
    a = _in_lines(a)
    b = b if _lines(b.T) else _in_lines(b)
    c, *extras = (np.ascontiguousarray(x) for x in (c, *extras))
    key = twin.key
    m, n = d.shape
    k = b.shape[0]
    # D of one part of k is C of the next, as within it
    step = min(max(1, _BYTES // twin.b_bytes(PANEL, key.k)) * key.k, k) if key.ctype == key.dtype else k
    by_rows = _lines(b)
    threads = worth(m * n * k, most)
    rows = min(_ROWS, max(16, _SIZE // twin.a_bytes(16, step) * 16))
    parts = tiles(m, n, rows, threads)
    rows, most_scales = max(part[1] for part in parts), step // key.k * key.scale_blocks
    panel = max(twin.b_bytes(PANEL, step), twin.b_bytes(PANEL - 1, step))  # blocks of 16 columns take more than one of 64
    sizes = (
        twin.a_bytes(rows, step), panel, PANEL * step * b.itemsize, rows * step * 2 * key.sparse, rows * most_scales,
        PANEL * most_scales,
    )  # fmt: skip
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-(size + 64) // 64) * 64)
    index = pointer(extras[0]) if key.sparse else 0
    scale_a, scale_b = (pointer(x) for x in extras[-2:]) if key.scale_blocks else (0, 0)
    table = _Numbers(
        twin.pack_a, twin.pack_b_rows if by_rows else twin.pack_b, twin.dot, flags,
        pointer(a), pointer(b), pointer(c), pointer(d), index, scale_a, scale_b,
        n, k, key.k, step,
        a.strides[0] // a.itemsize, a.itemsize, *b.strides,
        c.itemsize, d.itemsize, key.scale_blocks,
        *offsets[1:-1],
    )  # fmt: skip
    function = _function(key.sparse, key.scale_blocks > 0)

    def part(i: int, rows: int, j: int, columns: int) -> None:
        function(table, i, rows, j, columns, room(offsets[-1], "product"))

    together([partial(part, *tile) for tile in parts], threads)
