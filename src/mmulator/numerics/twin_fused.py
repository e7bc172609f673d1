"""The compiled twin of fused dot products: kernels over packed operands (idea and layouts: twin_plan.py).

`core` runs with the rounding mode set to toward zero; functions that need round-to-nearest set it for themselves and
are never inlined. Between chunks the accumulator is a row-major tile of f32 values on the stack, its sign turned if the
products' sign is (zeros are +0 either way), so that no kernel needs to know of negation.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, no-any-return, arg-type, assignment, operator, index, misc, call-overload"

from __future__ import annotations

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import (
    absolute,
    any_lane,
    bitcast,
    cast_ptr,
    copysign,
    fill_bytes,
    iota,
    leading_zeros,
    load,
    masked_load,
    masked_store,
    maximum,
    minimum,
    select,
    shuffle,
    stack,
    store,
    trunc,
)  # fmt: skip
from mmulator.codegen.types import Ty, boolean, f32, f64, i32, i64, ptr, ptr_to, u8, u16, u32
from mmulator.codegen.values import WIDE, Builder, Value
from mmulator.numerics.twin_plan import HIGHEST, LOWEST, NARROW_COLUMNS, ROWS, WIDE_COLUMNS, Plan

I, U, F, D, B = i32.vec(16), u32.vec(16), f32.vec(16), f64.vec(16), boolean.vec(16)
BYTES = u8.vec(64)
OUTLINED = f"noinline {WIDE}"
NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000
ZERO_C, NEGATE_A, NEGATE_B = 1, 2, 4  # flags


def strict(name: str, ty: Ty, args: list[Value], suffix: str) -> Value:
    """A floating-point operation in the rounding mode of the moment."""
    b = Builder.current()
    full = f"llvm.experimental.constrained.{name}.{suffix}"
    types = ", ".join(a.ty.llvm for a in args)
    b.declared[full] = f"declare {ty.llvm} @{full}({types}, metadata, metadata)"
    given = ", ".join(a.typed for a in args)
    return b.emit(ty, f'call {ty.llvm} @{full}({given}, metadata !"round.dynamic", metadata !"fpexcept.ignore")')


def set_rounding(mode: int) -> None:
    """0 toward zero, 1 to nearest even, 2 up, 3 down."""
    b = Builder.current()
    b.declared["llvm.set.rounding"] = "declare void @llvm.set.rounding(i32)"
    b.line(f"call void @llvm.set.rounding(i32 {mode})")


# a tile of one chunk, fast ------------------------------------------------------------------------------------------
class Row:
    """One row of A against `vectors` * 16 columns of B, one chunk."""

    def __init__(self, plan: Plan, a: Value, state: Value, vectors: int) -> None:
        self.plan, self.a, self.state, self.vectors = plan, a, state, range(vectors)
        length, lane = plan.length, plan.lane
        self.values = cast_ptr(f64 if plan.double else f32, a)
        self.exponents = cast_ptr(u32, a + length * lane)
        self.lasts = cast_ptr(u32, a + length * (lane + 4))
        self.offsets = cast_ptr(i32, a + length * (lane + 8))
        self.header = cast_ptr(i32, a + length * (lane + 12))
        # an emax below every exponent the types can produce
        lowest = max(LOWEST, plan.floor + 127)
        self.largest = BYTES(u8(0 if plan.relative else lowest))

    def codes(self, pointer: Value, j: int) -> Value:
        return bitcast(BYTES, U(pointer[j]))

    def align(self, bias: Value | None) -> Value:
        """emax of all columns as powers of two; True in a lane that the fast path cannot serve."""
        plan = self.plan
        packed = bitcast(U, self.largest)
        bad = B(boolean(0))
        self.powers = []
        for v in self.vectors:
            code = (
                packed << 23 if v == 0 else packed << 15 if v == 1 else packed << 7 if v == 2 else packed >> 1
            ) & INF
            if bias is not None:
                # codes up to 64: only zero products; up to 97: some exponent may have been clamped
                field = code >> 23
                bad = bad | ((field - 65) < 33) | (field > 127)
                code = select(field > 64, code + U(bias << 23), U(LOWEST << 23))
                bad = bad | (I(code) < LOWEST << 23)
            c = bitcast(U, load(F, self.state, 16 * v))
            c_power = c & INF
            if plan.state.name == "f16" and not plan.widen_c:
                c_power = select((c & 0x7FFFFFFF) == 0, c_power, maximum(c_power, U(113 << 23)))
            power = maximum(code, c_power)
            bad = bad | (power > HIGHEST << 23)
            self.powers.append(power)
        self.bias = bias
        return bad

    def start(self) -> None:
        """Accumulators, and the least last-bit code of an exact product."""
        plan = self.plan
        step = 52 - plan.fraction if plan.double else 23 - plan.fraction
        bounds = U(0)
        self.sums, self.bases = [], []
        for v, power in enumerate(self.powers):
            base = power + (step << 23 | 1 << 22)
            self.bases.append(base)
            value = bitcast(F, base)
            self.sums.append(D(value) if plan.double else value)
            field = power >> 23
            if self.bias is not None:
                field = U(maximum(minimum(I(field) - self.bias, I(255)), I(plan.fraction)))
            bounds = bounds | (field << (8 * v))
        self.bound = bitcast(BYTES, bounds) - plan.fraction
        self.inexact = BYTES(u8(0))

    def step(self, j: int, values: list[Value], row: Value) -> None:
        """Product j: add a * b, and count the inexact negative ones."""
        plan, ty = self.plan, D if self.plan.double else F
        suffix = "v16f64" if plan.double else "v16f32"
        a = ty(self.values[j])
        self.sums = [strict("fma", ty, [b, a, s], suffix) for b, s in zip(values, self.sums)]
        last = load(BYTES, row + (len(self.vectors) * 16 * plan.lane + 64) + i64(self.offsets[j]))
        weight = uadd_sat(last, self.codes(self.lasts, j))
        self.inexact = select(weight < self.bound, self.inexact + 2, self.inexact)

    def finish(self) -> list[Value]:
        """The rounded sums, as f32."""
        plan = self.plan
        counts = bitcast(U, self.inexact)
        results = []
        for v, power in enumerate(self.powers):
            c = load(F, self.state, 16 * v)
            scale = bitcast(F, U((254 + plan.fraction) << 23) - power)
            total = I(c * scale) + I((counts >> (8 * v + 1)) & 127)
            if plan.double:
                total = total + shuffle(bitcast(i32.vec(32), self.sums[v]), None, list(range(0, 32, 2)))
            else:
                total = total + bitcast(I, self.sums[v]) - bitcast(I, self.bases[v])
            results.append(
                rounded_half(plan, total, power) if plan.state.name == "f16" else rounded(plan, total, power)
            )
        return results


def uadd_sat(a: Value, c: Value) -> Value:
    return a.b.intrinsic("uadd.sat", a.ty, [a, c])


def rounded(plan: Plan, total: Value, power: Value) -> Value:
    """total * 2**(emax - F) toward zero to f32; no overflow, no subnormals in the range of the fast path."""
    value = strict("sitofp", F, [total], "v16f32.v16i32") * bitcast(F, power - (plan.fraction << 23))
    return value if plan.keep == 23 else keep_bits(plan, value)


def keep_bits(plan: Plan, value: Value) -> Value:
    return bitcast(F, bitcast(U, value) & (0xFFFFFFFF << (23 - plan.keep) & 0xFFFFFFFF))


def rounded_half(plan: Plan, total: Value, power: Value) -> Value:
    """total * 2**(emax - F) to nearest even to f16, as f32, in integers (the rounding mode is another)."""
    magnitude = U(absolute(total))
    unit = I(power >> 23) - (127 + plan.fraction)  # exponent of the last bit of total
    top = 31 - I(leading_zeros(magnitude | 1))
    drop = U(maximum(maximum(top, I(-14) - unit) - 10, I(0)))
    half = (U(1) << drop) >> 1
    odd = (magnitude >> drop) & 1
    kept = (magnitude + select(drop != 0, half - 1 + odd, U(0))) >> drop
    bits = bitcast(U, F(I(kept)) * bitcast(F, power - (plan.fraction << 23) + (drop << 23)))
    bits = select(bits >= 0x47800000, U(INF), bits)
    return bitcast(F, select(kept == 0, U(0), bits | (U(total) & SIGN)))


# the same for any operands, in f64 ------------------------------------------------------------------------------------
def slow_function(plan: Plan, name: str) -> Native:
    """One row, one chunk, `columns` columns: state -> state. 1 if a result is too small for later fast chunks."""

    def chunk(
        a: ptr, b: ptr, index: ptr_to(i32), source: ptr_to(f32), state: ptr_to(f32), columns: i64, row_bytes: i64,
        first: i32,
    ) -> u32:  # fmt: skip
        tiny = u32(0)
        for v in range(columns // 16):
            c = load(F, source, v * 16)
            result = exact_vector(plan, a, b + v * (16 * plan.lane), index, row_bytes, c, first)
            tiny = tiny | u32(any_lane(is_tiny(plan, result)))
            store(result, state, v * 16)
        return tiny

    inner = Native(chunk, f"{name}_nearest", OUTLINED)

    def slow(
        a: ptr, b: ptr, index: ptr_to(i32), source: ptr_to(f32), state: ptr_to(f32), columns: i64, row_bytes: i64,
        first: i32,
    ) -> u32:  # fmt: skip
        set_rounding(1)
        tiny = inner(a, b, index, source, state, columns, row_bytes, first)
        set_rounding(0)
        return tiny

    return Native(slow, name, OUTLINED)


def is_tiny(plan: Plan, value: Value) -> Value:
    """Non-zero, and below what a chunk of zero products leaves unchanged in the fast path."""
    if plan.state.name == "f16":
        return B(boolean(0))
    limit = 27 if plan.relative else 80
    return ((bitcast(U, value) & 0x7FFFFFFF) - 1) < (limit << 23) - 1


def exponents(value: Value, emin: int) -> Value:
    """Exponents (i32 lanes) of f64 lanes, not below emin; very low for zero."""
    bits = bitcast(i64.vec(16), value)
    e = maximum(I((bits >> 52) & 0x7FF) - 1023, I(emin))
    return select((bits << 1) == 0, I(-5000), e)


def power_of_two(e: Value) -> Value:
    return bitcast(D, i64.vec(16)(e + 1023) << 52)


def exact_vector(plan: Plan, a: Value, b: Value, index: Value, row_bytes: Value, c: Value, first: Value) -> Value:
    """16 columns of one chunk as `dot.fused` does it. In f64 products and the sum of truncated terms are exact."""
    length = plan.length
    products = stack(D, length)
    values = cast_ptr(f64 if plan.double else f32, a)
    wide = D(c)
    emin = -14 if plan.state.name == "f16" and not plan.widen_c else -126
    largest = maximum(exponents(wide, emin), I(plan.floor))
    special = wide
    b_ty = D if plan.double else F
    for j in range(length):
        row = b + chunk_row(plan, index, first, j) * row_bytes
        x, y = D(f64(values[j])), D(load(b_ty, row))
        p = x * y
        store(p, products, j)
        special = special + p
        e = exponents(x, plan.a.emin) + exponents(y, plan.b.emin)
        largest = maximum(largest, e)
    scale = power_of_two(plan.fraction - largest)
    total = trunc(wide * scale)
    for j in range(length):
        total = total + trunc(load(D, products, j) * scale)
    exact = total * power_of_two(largest - plan.fraction)
    result = nearest_half(exact) if plan.state.name == "f16" else toward_zero(plan, exact)
    result = bitcast(F, bitcast(U, result + 0.0))
    finite = absolute(special) < float("inf")
    nan = ~(special == special)
    signed = bitcast(F, U(INF) | (bitcast(U, F(special)) & SIGN))
    return select(finite, result, select(nan, bitcast(F, U(NAN)), signed))


def chunk_row(plan: Plan, index: Value, first: Value, j: int) -> Value:
    """Row of B (dense k) of product j of the chunk `first`."""
    if plan.sparse:
        b = Builder.current()
        positions = [order[j] for order in plan.order]
        at = i32(positions[0])
        for n, p in enumerate(positions[1:], 1):
            at = select(first == n, i32(p), at)
        return i64(b.load(i32, b.offset(index, at)))
    at = i32(plan.order[0][j])
    for n, order in enumerate(plan.order[1:], 1):
        at = select(first == n, i32(order[j]), at)
    return i64(at)


def toward_zero(plan: Plan, exact: Value) -> Value:
    """f64 to f32 toward zero; from 2**128 on, infinite."""
    value = F(exact)
    bits = bitcast(U, value)
    above = absolute(D(value)) > absolute(exact)
    bits = select(above & (absolute(exact) < 2.0**128), bits - 1, bits)
    return keep_bits(plan, bitcast(F, bits))


def nearest_half(exact: Value) -> Value:
    """f64 to the nearest f16, ties to even, as f32: by adding and subtracting 1.5 * 2**52 last bits."""
    last = maximum(exponents(exact, -14), I(-14)) - 10
    magic = power_of_two(last + 52) * 1.5
    value = (exact + magic) - magic
    value = select(absolute(value) >= 65536.0, copysign(D(float("inf")), value), value)
    return F(value)


# loading and storing the accumulator ----------------------------------------------------------------------------------
def half_to_single(raw: Value) -> Value:
    """f16 bits (u32 lanes) to f32 values, exactly; NaN stays NaN."""
    magnitude = raw & 0x7FFF
    normal = (magnitude << 13) + (112 << 23)
    special = (magnitude << 13) + (224 << 23)
    small = bitcast(U, F(I(magnitude)) * 2.0**-24)
    bits = select(magnitude < 0x400, small, select(magnitude >= 0x7C00, special, normal))
    return bitcast(F, bits | ((raw & 0x8000) << 16))


def single_to_half(value: Value) -> Value:
    """f32 values that are f16 numbers to bits (u32 lanes); NaN to the canonical one."""
    bits = bitcast(U, value)
    magnitude = bits & 0x7FFFFFFF
    small = U(I(absolute(value) * 2.0**24))
    half = select(magnitude < 113 << 23, small, (magnitude >> 13) - (112 << 10))
    half = select(magnitude == INF, U(0x7C00), half) | ((bits >> 16) & 0x8000)
    return select(magnitude > INF, U(0x7FFF), half)


def turned(value: Value, flip: Value) -> Value:
    """The sign changed by `flip` (0 or the sign bit); zero and NaN stay as they are."""
    bits = bitcast(U, value)
    magnitude = bits & 0x7FFFFFFF
    return bitcast(F, select((magnitude - 1) < INF, bits ^ U(flip), bits))


def load_function(kind: str, name: str, plan: Plan) -> Native:
    """rows x columns of C into the tile; 1 in `tiny[row]` where the fast path must not begin."""
    ty = u16 if kind == "f16" else u32

    def load_tile(
        c: ptr, ldc: i64, state: ptr_to(f32), pitch: i64, rows: i64, columns: i64, flip: u32, tiny: ptr_to(u32)
    ) -> None:
        for r in range(rows):
            low = u32(0)
            for v in range(i64(0), columns, 16):
                raw = U(masked_load(ty.vec(16), cast_ptr(ty, c) + (r * ldc + v), lanes(columns - v), ty.vec(16)(0)))
                value = half_to_single(raw) if kind == "f16" else bitcast(F, raw)
                value = bitcast(F, bitcast(U, value) ^ U(flip))
                low = low | u32(any_lane(is_tiny(plan, value)))
                store(value, state, r * pitch + v)
            tiny[r] = low

    return Native(load_tile, name)


def store_function(plan: Plan, name: str) -> Native:
    half = plan.d.name == "f16"
    ty = u16 if half else u32

    def store_tile(d: ptr, ldd: i64, state: ptr_to(f32), pitch: i64, rows: i64, columns: i64, flip: u32) -> None:
        for r in range(rows):
            for v in range(i64(0), columns, 16):
                value = turned(load(F, state, r * pitch + v), flip)
                raw = single_to_half(value) if half else bitcast(U, value)
                masked_store(ty.vec(16)(raw), cast_ptr(ty, d) + (r * ldd + v), lanes(columns - v))

    return Native(store_tile, name)


def lanes(count: Value) -> Value:
    return I(i32(count)) > iota(I)


def after_function(plan: Plan, name: str) -> Native:
    """What follows the chunks of one instruction in round-to-nearest: the sum with C ("halves"), or the f16 result."""

    def nearest(state: ptr_to(f32), extra: ptr_to(f32), size: i64) -> None:
        for v in range(i64(0), size, 16):
            value = load(F, state, v)
            if plan.halves:
                value = value + load(F, extra, v)
            if plan.d.name == "f16":
                value = copysign(nearest_half(D(value)), value)  # a tiny negative sum gives -0 here
            store(select(~(value == value), bitcast(F, U(NAN)), value), state, v)

    inner = Native(nearest, f"{name}_nearest", OUTLINED)

    def after(state: ptr_to(f32), extra: ptr_to(f32), size: i64) -> None:
        set_rounding(1)
        inner(state, extra, size)
        set_rounding(0)

    return Native(after, name, OUTLINED)


# kernels --------------------------------------------------------------------------------------------------------------
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

        def chunk(
            a: ptr, a_stride: i64, b: ptr, top: i32, index: ptr_to(i32), index_stride: i64, source: ptr_to(f32),
            state: ptr_to(f32), pitch: i64, tiny: ptr_to(u32),
        ) -> None:  # fmt: skip
            rows = [Row(plan, a + a_stride * r, source + pitch * r, vectors) for r in heights]
            align(b, index, index_stride, rows)
            bad = [r.align(r.header[1] + top if relative else None) for r in rows]
            lost = any_of(bad)
            for r in heights:
                lost = lost | (tiny[r] != 0) | (rows[r].header[0] != 0)
            if lost | plan.always_slow:
                for r in heights:
                    tiny[r] = tiny[r] | slow(
                        a + a_stride * r, b, index + index_stride * r, source + pitch * r, state + pitch * r,
                        i64(columns), i64(row_bytes), i32(which),
                    )  # fmt: skip
            else:
                multiply(b, index, index_stride, rows)
                for r in heights:
                    for v, value in enumerate_(rows[r].finish()):
                        store(value, state + pitch * r, 16 * v)

        return Native(chunk, f"{name}_{which}", OUTLINED)

    return [make(which) for which in range(len(plan.order))]


enumerate_ = enumerate


def any_of(masks: list[Value]) -> Value:
    total = masks[0]
    for m in masks[1:]:
        total = total | m
    return any_lane(total)


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
    from mmulator.codegen.ops import copy_bytes

    copy_bytes(to, source, count * 4)


K_STEP = 256  # dense k of a pass; the accumulator is kept in D between passes
N_STEP = 256


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
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)
    ) -> None:
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
                        )  # fmt: skip
            for i in range(i64(0), m, ROWS):
                height = minimum(m - i, i64(ROWS))
                for j in range(whole, n, 16):
                    narrow(
                        a + i * a_stride, b + (whole // 64) * wide_bytes + ((j - whole) // 16) * narrow_bytes,
                        k, begin, end, index + i * index_stride, index_stride, c + (i * ldc + j) * c_size, ldc, from_c,
                        d + (i * ldd + j) * d_size, ldd, height, minimum(n - j, i64(NARROW_COLUMNS)), flip,
                    )  # fmt: skip

    inner = Native(core, f"{name}_core", OUTLINED)

    def dot(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64) -> None:
        set_rounding(0)
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null_index())
        set_rounding(1)

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)
    ) -> None:
        set_rounding(0)
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index)
        set_rounding(1)

    return Native(dot_sparse if plan.sparse else dot, name)


def null_index() -> Value:
    from mmulator.codegen.ops import null

    return null(i32)
