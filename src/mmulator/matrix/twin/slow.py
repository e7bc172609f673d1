"""The slower path of fused dot products, in f64, for any operands; and the conversion of the accumulator from and to memory."""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type"

from mmulator.base.codegen.engine import rounds_halves
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import (
    absolute,
    any_lane,
    bitcast,
    cast_ptr,
    copysign,
    iota,
    load,
    masked_load,
    masked_store,
    maximum,
    select,
    stack,
    store,
    trunc,
)
from mmulator.base.codegen.rounding import set_rounding
from mmulator.base.codegen.types import boolean, f16, f32, f64, i32, i64, ptr, ptr_to, u8, u16, u32
from mmulator.base.codegen.values import Builder, Value
from mmulator.matrix.twin.plan import LANE, LOWEST, Plan
from mmulator.matrix.twin.tile import INF, NAN, OUTLINED, SIGN, B, D, F, I, U, keep_bits

NAN_SCALE = 9999


def slow_function(plan: Plan, name: str) -> Native:
    """A function for one row, one chunk and `columns` columns: state -> state. Returns 1 if a result is too small for later
    fast chunks.
    """

    def chunk(
        a: ptr, b: ptr, index: ptr_to(i32), state: ptr_to(f32), columns: i64, row_bytes: i64,
        first: i32, scale_a: ptr, scale_b: ptr, n: i64,
    ) -> u32:  # fmt: skip
        tiny = u32(0)
        for v in range(columns // 16):
            c = load(F, state, v * 16)
            scale = scale_exponents(scale_a, scale_b, v * 16, n) if plan.scaled else None
            result = exact_vector(plan, a, b + v * (16 * LANE), index, row_bytes, c, first, scale)
            tiny = tiny | u32(any_lane(is_tiny(plan, result)))
            store(result, state, v * 16)
        return tiny

    inner = Native(chunk, f"{name}_nearest", OUTLINED)

    def slow(
        a: ptr, b: ptr, index: ptr_to(i32), state: ptr_to(f32), columns: i64, row_bytes: i64,
        first: i32, scale_a: ptr, scale_b: ptr, n: i64,
    ) -> u32:  # fmt: skip
        set_rounding("rn")
        tiny = inner(a, b, index, state, columns, row_bytes, first, scale_a, scale_b, n)
        set_rounding("rz")
        return tiny

    return Native(slow, name, OUTLINED)


def is_tiny(plan: Plan, value: Value) -> Value:
    """Whether a value is non-zero, and below the values that a chunk of zero products leaves unchanged in the fast path."""
    if plan.state.name == "f16":
        return B(boolean(0))
    limit = LOWEST if plan.biased else plan.zero_codes + 1
    return ((bitcast(U, value) & 0x7FFFFFFF) - 1) < (limit << 23) - 1


def scale_exponents(scale_a: Value, scale_b: Value, column: Value, n: Value) -> Value:
    """Sum of the exponents of a ue8m0 factor of A and those of 16 columns of B; very large for NaN."""
    column = i64(column) if isinstance(column, Value) else column
    raw = I(masked_load(u8.vec(16), scale_b + column, lanes(n - column), u8.vec(16)(127)))
    own = I(i32(scale_a[0]))
    return select((raw == 255) | (own == 255), I(NAN_SCALE), raw + own - 254)


def exponents(value: Value, emin: int) -> Value:
    """Exponents (i32 lanes) of f64 lanes, not below emin; very low for zero."""
    bits = bitcast(i64.vec(16), value)
    e = maximum(I((bits >> 52) & 0x7FF) - 1023, I(emin))
    return select((bits << 1) == 0, I(-5000), e)


def power_of_two(e: Value) -> Value:
    return bitcast(D, i64.vec(16)(e + 1023) << 52)


def exact_vector(
    plan: Plan, a: Value, b: Value, index: Value, row_bytes: Value, c: Value, first: Value, scale: Value | None = None
) -> Value:
    """16 columns of one chunk by the arithmetic of `dot.fused`. In f64 products and the sum of truncated terms are exact.

    plan: the plan.
    a, b: packed row of A, and packed B.
    index: rows of B for a sparse A.
    row_bytes: bytes of a row of B.
    c: the accumulator.
    first: number of the chunk.
    scale: exponents of the scale factors, or None.
    """
    length = plan.length
    products = stack(D, length)
    values = cast_ptr(f32, a)
    wide = D(c)
    emin = -14 if plan.state.name == "f16" and not plan.widen_c else -126
    largest = maximum(exponents(wide, emin), I(plan.floor))
    special = wide
    if scale is not None:
        nan = scale == NAN_SCALE
        scale = select(nan, I(0), scale)
        factor = power_of_two(scale)
        special = special + select(nan, D(float("nan")), D(0.0))
    for j in range(length):
        row = b + chunk_row(plan, index, first, j) * row_bytes
        x, y = D(f64(values[j])), D(load(F, row))
        p = x * y
        if scale is not None:
            p = p * factor
        store(p, products, j)
        special = special + p
        e = exponents(x, plan.emin(plan.a)) + exponents(y, plan.emin(plan.b))
        if scale is not None:
            e = e + scale
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
    """Row of B (dense k) of product j of chunk `first`."""
    at, b = first * plan.step + plan.order[0][j], Builder.current()
    return i64(b.load(i32, b.offset(index, at)) if plan.sparse else at)


def toward_zero(plan: Plan, exact: Value) -> Value:
    """f64 to f32 with as many bits as the plan keeps, toward zero; from 2**128 on, infinite."""
    return keep_bits(plan, cut_to_single(exact))


def cut_to_single(exact: Value) -> Value:
    """f64 to f32 toward zero; from 2**128 on, infinite."""
    value = F(exact)
    bits = bitcast(U, value)
    above = absolute(D(value)) > absolute(exact)
    return bitcast(F, select(above & (absolute(exact) < 2.0**128), bits - 1, bits))


def nearest_half(exact: Value) -> Value:
    """f64 to the nearest f16, ties to even, as f32: by adding and subtracting 1.5 * 2**52 last bits."""
    last = maximum(exponents(exact, -14), I(-14)) - 10
    magic = power_of_two(last + 52) * 1.5
    value = (exact + magic) - magic
    value = select(absolute(value) >= 65536.0, copysign(D(float("inf")), value), value)
    return F(value)


def as_half(value: Value) -> Value:
    """f32 to the nearest f16, ties to even, as f32, where the rounding mode is to nearest; a tiny negative number gives -0."""
    if rounds_halves():
        return F(f16.vec(16)(value))
    return copysign(nearest_half(D(value)), value)


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
    """f32 values that are f16 numbers, as f16 bits (u32 lanes); NaN becomes the canonical one."""
    bits = bitcast(U, value)
    magnitude = bits & 0x7FFFFFFF
    small = U(I(absolute(value) * 2.0**24))
    half = select(magnitude < 113 << 23, small, (magnitude >> 13) - (112 << 10))
    half = select(magnitude == INF, U(0x7C00), half) | ((bits >> 16) & 0x8000)
    return select(magnitude > INF, U(0x7FFF), half)


def turned(value: Value, flip: Value) -> Value:
    """The value with its sign changed by `flip` (0 or the sign bit); zero and NaN are unchanged."""
    bits = bitcast(U, value)
    magnitude = bits & 0x7FFFFFFF
    return bitcast(F, select((magnitude - 1) < INF, bits ^ U(flip), bits))


def load_function(kind: str, name: str, plan: Plan) -> Native:
    """A function that loads rows x columns of C into the tile, and sets `tiny[row]` to 1 if the fast path must not begin."""
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
    """A function for the round-to-nearest step after the chunks of one instruction: the sum with C ("halves"), or the f16
    result.
    """

    def nearest(state: ptr_to(f32), extra: ptr_to(f32), size: i64) -> None:
        for v in range(i64(0), size, 16):
            value = load(F, state, v)
            if plan.halves:
                value = value + load(F, extra, v)
            if plan.d.name == "f16":
                value = as_half(value)
            store(select(~(value == value), bitcast(F, U(NAN)), value), state, v)

    inner = Native(nearest, f"{name}_nearest", OUTLINED)

    def after(state: ptr_to(f32), extra: ptr_to(f32), size: i64) -> None:
        set_rounding("rn")
        inner(state, extra, size)
        set_rounding("rz")

    return Native(after, name, OUTLINED)
