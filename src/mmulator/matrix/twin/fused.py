"""The compiled twin of fused dot products: loops over packed operands (idea and layouts: plan.py).

`core` runs with the rounding mode set to toward zero; functions that need round-to-nearest set it themselves and are never
inlined. Between chunks the accumulator is a row-major tile of f32 values on the stack. Its sign is flipped if the products are
negated (zeros are +0 in both cases), so that no kernel handles negation.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, call-overload, misc, operator"

from typing import Any

from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import any_lane, cast_ptr, copy_bytes, fill_bytes, load, minimum, null, stack, store
from mmulator.base.codegen.rounding import set_rounding
from mmulator.base.codegen.types import f32, i32, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.matrix.twin.plain import plain_function, proof_function
from mmulator.matrix.twin.plan import B_HEADER, LANE, NARROW_COLUMNS, ROWS, WIDE_COLUMNS, Plan
from mmulator.matrix.twin.slow import after_function, load_function, scale_exponents, slow_function, store_function
from mmulator.matrix.twin.tile import OUTLINED, SIGN, Pass, Slots, TileRow, any_of, joined, look_pieces, passes, strips

ZERO_C, NEGATE_A, NEGATE_B = 1, 2, 4  # flags
CORE_POINTERS = 5  # parameters of `core` behind the flags, all of which may be null


def chunk_function(plan: Plan, name: str, columns: int, slow: Native) -> Native:
    """A function that computes chunk number `which` of an instruction for `rows` rows of a tile, two at a time: state -> state.

    The last of an odd number of rows is computed twice. While a pair is multiplied, the exponents of the next pair are read.
    """
    row_bytes, vectors, length = plan.b_row(columns), columns // 16, plan.length
    width = 16 // strips()
    ty = f32.vec(width)
    # where product j of a chunk lies: first * which + stride * j for an even j, and one further for the next
    first, stride = plan.step, plan.order[0][2] // 2

    def places(b: Value, indices: list[Value], j: Value, u: int) -> list[Value]:
        """The rows of B that product j + u uses for each row of A."""
        if not plan.sparse:
            return [b + (j * stride + u) * row_bytes] * len(indices)
        return [b + i64(index[j * stride + u]) * row_bytes for index in indices]

    loops, pieces = passes(plan, vectors), look_pieces()
    codes = u8.vec(64 // pieces)

    def lowest() -> list[Value]:
        return [TileRow.lowest(plan, codes)] * (2 * pieces)

    def look(largest: Slots, rows: list[TileRow], b: Value, indices: list[Value], j: Value, u: int, loop: Pass) -> None:
        at = places(b, indices, j, u)
        for r, piece in loop.looks:
            value = load(codes, at[r] + columns * LANE, 64 // pieces * piece)
            largest.put_one(r * pieces + piece, rows[r].look(j + u, value, largest.get_one(r * pieces + piece)))

    def look_all(largest: Slots, rows: list[TileRow], b: Value, indices: list[Value], j: Value, u: int) -> None:
        for loop in loops:
            look(largest, rows, b, indices, j, u, loop)

    def found(largest: Slots) -> list[Value]:
        """The largest codes of both rows, in all bytes."""
        return joined(largest.get(), pieces)

    def multiply(rows: list[TileRow], b: Value, indices: list[Value], j: Value, u: int, loop: Pass) -> None:
        at = places(b, indices, j, u)
        for strip in loop.strips:  # each of B is loaded and used up before the next one
            for row, place in zip(rows, at):
                row.add(j + u, u, strip, load(ty, place, strip * width * LANE))
        for r, h in loop.counts:
            rows[r].count(j + u, at[r], h)

    def bias(row: TileRow, top: Value, scale_a: Value, scale_b: Value, n: Value) -> Any:
        if plan.relative:
            return row.header[1] + top
        if plan.scaled:
            return [scale_exponents(scale_a, scale_b, 16 * v, n) for v in range(vectors)]
        return None

    def chunk(
        a: ptr, a_stride: i64, b: ptr, header: ptr_to(i32), which: i64, index: ptr_to(i32), index_stride: i64,
        state: ptr_to(f32), rows: i64, tiny: ptr_to(u32), scale_a: ptr, scale_stride: i64, scale_b: ptr, n: i64,
    ) -> None:  # fmt: skip
        begin = index + which * first
        panel = b
        if not plan.sparse:
            panel = b + which * (first * row_bytes)
        last = rows - 1
        largest = Slots(lowest())
        at = [i64(0), minimum(i64(1), last)]
        lines = [TileRow(plan, a + a_stride * r, state, vectors) for r in at]
        indices = [begin + index_stride * r for r in at]
        for j in range(i64(0), i64(length), 2):
            for u in unrolled(2):
                look_all(largest, lines, panel, indices, j, u)
        for r in range(i64(0), rows, 2):
            at = [r, minimum(r + 1, last)]
            after = [minimum(r + 2, last), minimum(r + 3, last)]
            pair = [TileRow(plan, a + a_stride * i, state + columns * i, vectors) for i in at]
            following = [TileRow(plan, a + a_stride * i, state, vectors) for i in after]
            indices = [begin + index_stride * i for i in at]
            indices_after = [begin + index_stride * i for i in after]
            sums = found(largest)
            largest.put(lowest())
            biases = [bias(row, header[0], scale_a + scale_stride * i, scale_b, n) for i, row in zip(at, pair)]
            bad = [row.align(codes, x) for row, codes, x in zip(pair, sums, biases)]
            lost = any_of(bad) | (header[1] != 0)
            for i, row in zip(at, pair):
                lost = lost | (tiny[i] != 0) | ((row.header[0] & 1) != 0)
            if lost:
                for j in range(i64(0), i64(length), 2):
                    for u in unrolled(2):
                        look_all(largest, following, panel, indices_after, j, u)
            else:
                for row in pair:
                    row.start()
                for loop in loops:
                    for j in range(i64(0), i64(length), 2):
                        for u in unrolled(2):
                            multiply(pair, panel, indices, j, u, loop)
                            look(largest, following, panel, indices_after, j, u, loop)
                results = [row.finish() for row in pair]
                if plan.wide_sum:
                    lost = any_lane(any_of([row.overflow for row in pair]))
                if ~lost:
                    for row, values in zip(pair, results):
                        for v in unrolled(vectors):
                            store(values[v], row.state, 16 * v)
            if lost:
                for i in range(r, minimum(r + 2, rows)):
                    tiny[i] = tiny[i] | slow(
                        a + a_stride * i, b, index + index_stride * i, state + columns * i, i64(columns), i64(row_bytes),
                        i32(which), scale_a + scale_stride * i, scale_b, n,
                    )  # fmt: skip

    return Native(chunk, name, OUTLINED, inner=True)


def block_function(plan: Plan, name: str, columns: int, slow: Native) -> Native:
    """A function for up to ROWS rows by `columns` columns, over instructions `begin` to `end`.

    steps_a, steps_b: packed A and B of each instruction, or null; a_at, b_at: offsets of rows and columns in them.
    """
    chunk = chunk_function(plan.of_sum, f"twin_chunk_{columns}_{plan.of_sum.symbol}", columns, slow)
    row_bytes, kk = plan.b_row(columns), plan.k
    first, again = (load_function(t.name, f"twin_load_{t}_{plan.of_c.symbol}", plan.of_c) for t in (plan.c, plan.d))
    finish = store_function(plan, f"twin_store_{plan.d}")
    after = after_function(plan, f"twin_after_{plan.d}_{plan.halves:d}") if plan.halves or plan.narrow_d else None
    a_chunk, a_instruction, products = plan.a_chunk, plan.a_instruction, plan.products
    chunks = len(plan.order)
    most = max(1, K_STEP // kk)
    proof, plain = proof_function(plan, columns), plain_function(plan, columns)

    def block(
        a: ptr, b: ptr, k: i64, begin: i64, end: i64, index: ptr_to(i32), index_stride: i64,
        c: ptr, ldc: i64, from_c: u32, d: ptr, ldd: i64, rows: i64, n: i64, flip: u32,
        scale_a: ptr, scale_a_stride: i64, scale_b: ptr, scale_b_stride: i64,
        steps_a: ptr_to(ptr), steps_b: ptr_to(ptr), a_at: i64, b_at: i64,
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
        at_a = stack(ptr, most)
        at_b = stack(ptr, most)
        headers = stack(ptr, most)
        done = begin
        for inst in range(begin, end):
            rows_a = a + inst * rows * a_instruction
            rows_b = b
            if not plan.sparse:
                rows_b = b + inst * (kk * row_bytes)
            header = b + (k * row_bytes + inst * B_HEADER)
            if u64(steps_a) != 0:
                rows_a = steps_a[inst] + a_at
                rows_b = steps_b[inst] + b_at
                header = rows_b + kk * row_bytes
            at_a[inst - begin] = rows_a
            at_b[inst - begin] = rows_b
            headers[inst - begin] = header
        if plan.plain and proof(at_a, headers, i64(end - begin), state, rows, from_c):
            plain(at_a, at_b, i64(end - begin), state, rows)
            done = end
        for inst in range(done, end):
            here = state
            if plan.halves:
                fill_bytes(other, 0, ROWS * columns * 4)
                here = other
            for which in range(i64(0), i64(chunks)):
                chunk(
                    at_a[inst - begin] + which * a_chunk, i64(a_instruction), at_b[inst - begin],
                    cast_ptr(i32, headers[inst - begin]), which,
                    index + inst * products, index_stride, here, rows, tiny,
                    scale_a + inst, scale_a_stride, scale_b + inst * scale_b_stride, n,
                )  # fmt: skip
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


def core_function(plan: Plan, name: str) -> Native:
    """A function that computes D = A B + C from packed operands. Only sparse plans read the index: the dense k of each element
    of A.

    steps_a, steps_b: packed A and B of each instruction, instead of a and b; or null.
    """
    slow = slow_function(plan.of_sum, f"twin_slow_{plan.of_sum.symbol}")
    wide = block_function(plan, f"{name}_block", WIDE_COLUMNS, slow)
    narrow = block_function(plan, f"{name}_block", NARROW_COLUMNS, slow)
    a_instruction, kk, products = plan.a_instruction, plan.k, plan.products
    c_size, d_size = plan.c.bits // 8, plan.d.bits // 8
    wide_row, narrow_row = plan.b_row(WIDE_COLUMNS), plan.b_row(NARROW_COLUMNS)
    step = max(1, K_STEP // plan.k)

    def core(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr, steps_a: ptr_to(ptr), steps_b: ptr_to(ptr),
    ) -> None:  # fmt: skip
        instructions = k // kk
        a_stride = instructions * a_instruction
        index_stride = instructions * products
        wide_bytes = k * wide_row + instructions * B_HEADER
        narrow_bytes = k * narrow_row + instructions * B_HEADER
        wide_step = kk * wide_row + B_HEADER
        narrow_step = kk * narrow_row + B_HEADER
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
                            steps_a, steps_b, i * a_instruction, (j // 64) * wide_step,
                        )  # fmt: skip
            for i in range(i64(0), m, ROWS):
                height = minimum(m - i, i64(ROWS))
                for j in range(whole, n, 16):
                    narrow(
                        a + i * a_stride, b + (whole // 64) * wide_bytes + ((j - whole) // 16) * narrow_bytes,
                        k, begin, end, index + i * index_stride, index_stride, c + (i * ldc + j) * c_size, ldc, from_c,
                        d + (i * ldd + j) * d_size, ldd, height, minimum(n - j, i64(NARROW_COLUMNS)), flip,
                        scale_a + i * instructions, instructions, scale_b + j, n,
                        steps_a, steps_b, i * a_instruction, (whole // 64) * wide_step + ((j - whole) // 16) * narrow_step,
                    )  # fmt: skip

    return Native(core, f"{name}_core", OUTLINED)


def dot_function(plan: Plan, name: str) -> Native:
    """A function that sets the rounding mode of the core, computes the whole product, and restores the mode."""
    inner = core_function(plan, name)

    def dot(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64) -> None:
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), null(u8), null(u8), null(ptr), null(ptr))
        set_rounding("rn")

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)
    ) -> None:
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, null(u8), null(u8), null(ptr), null(ptr))
        set_rounding("rn")

    def dot_scaled(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64,
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), scale_a, scale_b, null(ptr), null(ptr))
        set_rounding("rn")

    def dot_sparse_scaled(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        set_rounding("rz")
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, scale_a, scale_b, null(ptr), null(ptr))
        set_rounding("rn")

    plain, scaled = (dot, dot_sparse), (dot_scaled, dot_sparse_scaled)
    return Native((scaled if plan.scaled else plain)[plan.sparse], name)


def steps_function(plan: Plan, name: str, dot: str) -> Native:
    """A function for the products of `count` instructions, where D of one is C of the next and each has its own packed A and B:
    the accumulator stays in place between them. Not for sparse or scaled plans. dot: the name of the plan's `dot`.
    """
    inner, kk = core_function(plan, dot), plan.k

    def dot_steps(
        count: i64, steps_a: ptr_to(ptr), steps_b: ptr_to(ptr), c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, flags: i64
    ) -> None:
        set_rounding("rz")
        none = null(u8)
        inner(none, none, c, ldc, d, ldd, m, n, count * kk, flags, null(i32), none, none, steps_a, steps_b)
        set_rounding("rn")

    return Native(dot_steps, name)
