"""The compiled twin of fused dot products: loops over packed operands (idea and layouts: plan.py).

`core` runs with the rounding mode set to toward zero; functions that need round-to-nearest set it for themselves and
are never inlined. Between chunks the accumulator is a row-major tile of f32 values on the stack, its sign turned if the
products' sign is (zeros are +0 either way), so that no kernel needs to know of negation.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, call-overload, misc"

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import any_lane, cast_ptr, copy_bytes, fill_bytes, load, maximum, minimum, null, stack, store
from mmulator.codegen.rounding import set_rounding
from mmulator.codegen.types import f32, i32, i64, ptr, ptr_to, u8, u32
from mmulator.codegen.values import Value
from mmulator.twin.plan import NARROW_COLUMNS, ROWS, WIDE_COLUMNS, Plan
from mmulator.twin.slow import after_function, load_function, scale_exponents, slow_function, store_function
from mmulator.twin.tile import BYTES, OUTLINED, SIGN, D, F, Row, uadd_sat

ZERO_C, NEGATE_A, NEGATE_B = 1, 2, 4  # flags


def chunk_function(plan: Plan, name: str, columns: int, height: int, slow: Native) -> list[Native]:
    """`height` rows of one chunk number `which` of the instruction: source -> state."""
    row_bytes, vectors, length = plan.b_row(columns), columns // 16, plan.length
    relative, a_row_index = plan.relative, plan.sparse
    ty = D if plan.double else F
    heights = range(height)

    def make(which: int) -> Native:
        order = plan.order[which]

        def b_row(b: Value, index: Value, r: int, stride: Value, j: int) -> Value:
            if not a_row_index:
                return b + order[j] * row_bytes
            return b + i64((index + stride * r)[order[j]]) * row_bytes

        def align(b: Value, index: Value, stride: Value, rows: list[Row]) -> None:
            for j in range(length):
                for r, row in enumerate(rows):
                    place = b_row(b, index, r, stride, j)
                    codes = load(BYTES, place + columns * plan.lane)
                    row.largest = maximum(row.largest, uadd_sat(codes, row.codes(row.exponents, j)))

        def multiply(b: Value, index: Value, stride: Value, rows: list[Row]) -> None:
            for row in rows:
                row.start()
            for j in range(length):
                for r, row in enumerate(rows):
                    place = b_row(b, index, r, stride, j)
                    values = [load(ty, place, 16 * v * plan.lane) for v in range(vectors)]
                    row.step(j, values, place)

        def bias(row: Row, top: Value, scale_a: Value, scale_b: Value, n: Value) -> Any:
            if relative:
                return row.header[1] + top
            if plan.scaled:
                return [scale_exponents(scale_a, scale_b, 16 * v, n) for v in range(vectors)]
            return None

        def chunk(
            a: ptr, a_stride: i64, b: ptr, top: i32, index: ptr_to(i32), index_stride: i64, source: ptr_to(f32),
            state: ptr_to(f32), pitch: i64, tiny: ptr_to(u32), scale_a: ptr, scale_stride: i64, scale_b: ptr, n: i64,
        ) -> None:  # fmt: skip
            rows = [Row(plan, a + a_stride * r, source + pitch * r, vectors) for r in heights]
            align(b, index, index_stride, rows)
            bad = [row.align(bias(row, top, scale_a + scale_stride * r, scale_b, n)) for r, row in enumerate(rows)]
            lost = any_of(bad)
            for r in heights:
                lost = lost | (tiny[r] != 0) | (rows[r].header[0] != 0)
            if ~lost:
                multiply(b, index, index_stride, rows)
                results = [row.finish() for row in rows]
                if plan.wide_sum:
                    lost = any_lane(any_of([row.overflow for row in rows]))
                if ~lost:
                    for r in heights:
                        for v in unrolled(vectors):
                            store(results[r][v], state + pitch * r, 16 * v)
            if lost:
                for r in heights:
                    tiny[r] = tiny[r] | slow(
                        a + a_stride * r, b, index + index_stride * r, source + pitch * r, state + pitch * r,
                        i64(columns), i64(row_bytes), i32(which), scale_a + scale_stride * r, scale_b, n,
                    )  # fmt: skip

        return Native(chunk, f"{name}_{which}", OUTLINED)

    return [make(which) for which in range(len(plan.order))]


def any_of(masks: list[Value]) -> Value:
    total = masks[0]
    for m in masks[1:]:
        total = total | m
    return total


def block_function(plan: Plan, name: str, columns: int, heights: tuple[int, ...], slow: Native) -> Native:
    """Up to ROWS rows by `columns` columns, over `instructions` instructions."""
    chunks = {h: chunk_function(plan, f"{name}_{columns}x{h}", columns, h, slow) for h in heights}
    row_bytes, relative, kk = plan.b_row(columns), plan.relative, plan.k
    first = load_function(plan.c.name, f"{name}_load_c", plan)
    again = load_function(plan.d.name, f"{name}_load_d", plan)
    finish = store_function(plan, f"{name}_store")
    after = after_function(plan, f"{name}_after") if plan.halves or plan.narrow_d else None
    a_chunk, a_instruction, products = plan.a_chunk, plan.a_instruction, plan.products
    orders = range(len(plan.order))

    def block(
        a: ptr, b: ptr, k: i64, begin: i64, end: i64, index: ptr_to(i32), index_stride: i64,
        c: ptr, ldc: i64, from_c: u32, d: ptr, ldd: i64, rows: i64, n: i64, flip: u32,
        scale_a: ptr, scale_a_stride: i64, scale_b: ptr, scale_b_stride: i64,
    ) -> None:  # fmt: skip
        state = stack(f32, ROWS * columns)
        tiny = stack(u32, ROWS)
        other = stack(f32, ROWS * columns)
        if from_c == 0:
            fill_bytes(state, 0, ROWS * columns * 4)
            fill_bytes(tiny, 0, ROWS * 4)
        elif from_c == 1:
            first(c, ldc, state, i64(columns), rows, n, flip, tiny)
        else:
            again(d, ldd, state, i64(columns), rows, n, flip, tiny)
        headers = cast_ptr(i32, b + k * row_bytes)
        for inst in range(begin, end):
            top = i32(0)
            if relative:
                top = headers[inst * 16]
            rows_b = b
            if not plan.sparse:
                rows_b = b + inst * (kk * row_bytes)
            if plan.halves:
                fill_bytes(other, 0, ROWS * columns * 4)
            for which in orders:
                r = i64(0)
                for h in heights:
                    while r + h <= rows:
                        here = state if not plan.halves else other
                        chunks[h][which](
                            a + (inst * rows + r) * a_instruction + which * a_chunk, i64(a_instruction), rows_b, top,
                            index + r * index_stride + inst * products, index_stride, here + r * columns,
                            here + r * columns, i64(columns), tiny + r,
                            scale_a + r * scale_a_stride + inst, scale_a_stride, scale_b + inst * scale_b_stride, n,
                        )  # fmt: skip
                        r += h
            if plan.halves:
                after(other, state, rows * columns)
                copy_tile(state, other, rows * columns)
            elif plan.narrow_d:
                after(state, state, rows * columns)
        finish(d, ldd, state, i64(columns), rows, n, flip)

    return Native(block, f"{name}_{columns}", OUTLINED)


def copy_tile(to: Value, source: Value, count: Value) -> None:
    copy_bytes(to, source, count * 4)


K_STEP = 512  # dense k of a pass; the accumulator is kept in D between passes
N_STEP = 128


def dot_function(plan: Plan, name: str) -> Native:
    """D = A B + C over packed operands. The index is only read by sparse plans: dense k of each element of A."""
    slow = slow_function(plan, f"{name}_slow")
    wide_heights, narrow_heights = ((1,), (4, 1)) if plan.sparse else ((2, 1), (4, 1))
    wide = block_function(plan, f"{name}_block", WIDE_COLUMNS, wide_heights, slow)
    narrow = block_function(plan, f"{name}_block", NARROW_COLUMNS, narrow_heights, slow)
    a_instruction, kk, products = plan.a_instruction, plan.k, plan.products
    c_size, d_size = plan.c.bits // 8, plan.d.bits // 8
    header = 64 if plan.relative else 0
    wide_row, narrow_row = plan.b_row(WIDE_COLUMNS), plan.b_row(NARROW_COLUMNS)
    step = max(1, K_STEP // plan.k)

    def core(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        instructions = k // kk
        a_stride = instructions * a_instruction
        index_stride = instructions * products
        wide_bytes = k * wide_row + instructions * header
        narrow_bytes = k * narrow_row + instructions * header
        whole = n // 64 * 64
        flip = u32(0)
        if ((flags >> 1) ^ (flags >> 2)) & 1 != 0:
            flip = u32(SIGN)
        for begin in range(i64(0), instructions, step):
            end = minimum(begin + step, instructions)
            from_c = u32(2)
            if begin == 0:
                from_c = u32((flags & 1) ^ 1)
            for group in range(i64(0), whole, N_STEP):
                last = minimum(group + N_STEP, whole)
                for i in range(i64(0), m, ROWS):
                    height = minimum(m - i, i64(ROWS))
                    for j in range(group, last, 64):
                        wide(
                            a + i * a_stride, b + (j // 64) * wide_bytes, k, begin, end,
                            index + i * index_stride, index_stride, c + (i * ldc + j) * c_size, ldc, from_c,
                            d + (i * ldd + j) * d_size, ldd, height, i64(64), flip,
                            scale_a + i * instructions, instructions, scale_b + j, n,
                        )  # fmt: skip
            for i in range(i64(0), m, ROWS):
                height = minimum(m - i, i64(ROWS))
                for j in range(whole, n, 16):
                    narrow(
                        a + i * a_stride, b + (whole // 64) * wide_bytes + ((j - whole) // 16) * narrow_bytes,
                        k, begin, end, index + i * index_stride, index_stride, c + (i * ldc + j) * c_size, ldc, from_c,
                        d + (i * ldd + j) * d_size, ldd, height, minimum(n - j, i64(NARROW_COLUMNS)), flip,
                        scale_a + i * instructions, instructions, scale_b + j, n,
                    )  # fmt: skip

    inner = Native(core, f"{name}_core", OUTLINED)

    def dot(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64) -> None:
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), null(u8), null(u8))
        set_rounding("rn")

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)
    ) -> None:
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, null(u8), null(u8))
        set_rounding("rn")

    def dot_scaled(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64,
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), scale_a, scale_b)
        set_rounding("rn")

    def dot_sparse_scaled(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, scale_a, scale_b)
        set_rounding("rn")

    plain, scaled = (dot, dot_sparse), (dot_scaled, dot_sparse_scaled)
    return Native((scaled if plan.scaled else plain)[plan.sparse], name)
