"""The compiled twin where sums are exact, or a plain chain: integers, single bits, f64.

One kernel: a register tile of `height` rows by `columns` columns, operands unpacked to lanes of one type, B in blocks
of columns so that a row k of a block is contiguous. Integers multiply in f32 lanes, exactly, while a sum stays below
2**24; bits are packed 32 to a lane; f64 is a chain of fused multiply-adds in the instruction's rounding mode.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, index, operator"

from __future__ import annotations

from dataclasses import dataclass

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import (
    add_saturating,
    any_lane,
    bitcast,
    cast_ptr,
    iota,
    load,
    mask_bits,
    masked_load,
    masked_store,
    minimum,
    null,
    popcount,
    select,
    store,
)
from mmulator.codegen.rounding import set_rounding, strict
from mmulator.codegen.types import Ty, f32, f64, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.codegen.values import Value
from mmulator.isa.types import ElementType
from mmulator.numerics.formats import element_type
from mmulator.numerics.profiles import DotKey, Profile
from mmulator.twin.pack import transpose16
from mmulator.twin.tile import OUTLINED

RAW = {8: u8, 16: u16, 32: u32, 64: u64}
COLUMNS = (64, 16)


@dataclass(frozen=True)
class Exact:
    """What the kernel has to know. `lane`: type of an unpacked element; `per`: elements in a lane (32 for b1)."""

    a: ElementType
    b: ElementType
    lane: Ty
    result: Ty
    per: int
    k: int
    sparse: bool
    saturate: bool
    bit_op: str | None
    rounding: str

    @property
    def products(self) -> int:
        """Lanes of one row of A that one instruction consumes."""
        return (self.k // 2 if self.sparse else self.k) // self.per

    @property
    def span(self) -> int:
        """Instructions summed before they are added to D: as many as stay exact, but one if each is clamped."""
        return 1 if self.saturate else max(1, 128 // (self.products * self.per))

    def a_bytes(self, m: int, k: int) -> int:
        return m * (k // self.k) * self.products * self.lane.bits // 8

    def b_bytes(self, n: int, k: int) -> int:
        return -(-n // 16) * 16 * (k // self.per) * self.lane.bits // 8


def exact_for(key: DotKey, p: Profile) -> Exact:
    a, b = element_type(key.atype), element_type(key.btype)
    match p.method:
        case "bits":
            return Exact(a, b, u32, u32, 32, key.k, key.sparse, False, key.bit_op, key.rounding)
        case "fma":
            return Exact(a, b, f64, f64, 1, key.k, key.sparse, False, None, key.rounding)
        case _:
            return Exact(a, b, f32, i32, 1, key.k, key.sparse, key.satfinite, None, key.rounding)


# packing ------------------------------------------------------------------------------------------------------------
def unpacked(t: ElementType, lane: Ty, raw: Value) -> Value:
    """16 raw elements (vector of their container) as lanes."""
    if lane is f64:
        return bitcast(f64.vec(16), raw)
    wide = i32.vec(16)(u32.vec(16)(raw))
    spare = 32 - t.bits
    return f32.vec(16)(wide << spare >> spare if t.kind == "signed" else wide & ((1 << t.bits) - 1))


def read(e: Exact, t: ElementType, source: Value, count: Value) -> Value:
    """Up to 16 lanes along k (or along n) from contiguous elements."""
    ty = RAW[max(t.bits, 8)].vec(16)
    mask = i32.vec(16)(i32(count)) > iota(i32.vec(16))
    return unpacked(t, e.lane, masked_load(ty, source, mask, ty(0)))


def read_bits(source: Value) -> Value:
    """32 elements of one bit, a byte each, as a word."""
    return mask_bits((load(u8.vec(32), source) & 1) != 0)


def pack_a_exact(e: Exact, name: str) -> Native:
    """raw [m][lda] to lanes [m][k]."""
    t, lane, per = e.a, e.lane, e.per
    ty = RAW[max(t.bits, 8)]
    divide = 2 if e.sparse else 1

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        width = k // divide
        for i in range(m):
            source = cast_ptr(ty, raw) + i * lda
            target = cast_ptr(lane, out) + i * (width // per)
            if per > 1:
                for j in range(i64(0), width // per):
                    target[j] = read_bits(source + j * per)
            else:
                for j in range(i64(0), width, 16):
                    values = read(e, t, source + j, width - j)
                    masked_store(values, target + j, i32.vec(16)(i32(width - j)) > iota(i32.vec(16)))

    return Native(pack_a, name)


def pack_b_exact(e: Exact, name: str, rows: bool) -> Native:
    """raw [k][ldb] (rows) or [n][ldb] to blocks of columns [k][columns]; columns beyond n are zeros."""
    t, lane, per = e.b, e.lane, e.per
    ty = RAW[max(t.bits, 8)]

    def gather_columns(raw: ptr, ldb: i64, n: i64, lanes: i64, column: i64, target: ptr, pitch: i64) -> None:
        # element by element: every 16-column block is read along k
        out = cast_ptr(lane, target)
        for j in range(i64(0), i64(16)):
            if column + j < n:
                for r in range(lanes):
                    if rows and per > 1:
                        word = u32(0)
                        for bit in range(i64(0), i64(per)):
                            byte = raw[(r * per + bit) * ldb + column + j]
                            word = word | ((u32(byte) & 1) << u32(bit))
                        out[r * pitch + j] = word
                    elif per > 1:
                        out[r * pitch + j] = read_bits(raw + ((column + j) * ldb + r * per))
                    else:
                        out[r * pitch + j] = single(e, t, cast_ptr(ty, raw)[(column + j) * ldb + r])
            else:
                for r in range(lanes):
                    out[r * pitch + j] = lane(0)

    def transpose_columns(raw: ptr, ldb: i64, n: i64, lanes: i64, column: i64, target: ptr, pitch: i64) -> None:
        # 16 columns by 16 of k at a time; k is a multiple of 16
        for r in range(i64(0), lanes, 16):
            lines = [line(raw, (column + j) * ldb + r, n - column > j) for j in unrolled(16)]
            for step, across in enumerate(transpose16(lines)):
                store(across, cast_ptr(lane, target) + (r + step) * pitch)

    def line(raw: Value, at: Value, there: Value) -> Value:
        return read(e, t, cast_ptr(ty, raw) + at, select(there, i64(16), i64(0)))

    by_vectors = per == 1 and lane is not f64
    columns_of = Native(transpose_columns if by_vectors else gather_columns, f"{name}_columns")

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        lanes = k // per
        column = i64(0)
        while column < n:
            width = i64(64)
            if n - column < 64:
                width = i64(16)
            for v in range(i64(0), width, 16):
                target = out + (column * lanes + v) * (lane.bits // 8)
                if rows and per == 1:
                    for r in range(lanes):
                        values = read(e, t, cast_ptr(ty, raw) + (r * ldb + column + v), n - column - v)
                        store(values, cast_ptr(lane, target) + r * width)
                else:
                    columns_of(raw, ldb, n, lanes, column + v, target, width)
            column += width

    return Native(pack_b, name)


def single(e: Exact, t: ElementType, raw: Value) -> Value:
    if e.lane is f64:
        return bitcast(f64, raw)
    wide = i32(u32(raw))
    spare = 32 - t.bits
    return f32(wide << spare >> spare if t.kind == "signed" else wide & ((1 << t.bits) - 1))


# kernels ------------------------------------------------------------------------------------------------------------
def multiply_add(e: Exact, a: Value, b: Value, total: Value) -> Value:
    match e.lane.kind, e.lane.bits:
        case "int", _:
            return total + popcount(a & b if e.bit_op == "and" else a ^ b)
        case _, 64:
            return strict("fma", f64.vec(16), b, a, total)
        case _:  # exact either way
            return total.b.intrinsic("fmuladd", total.ty, [b, a, total])


def quiet(value: Value) -> Value:
    return bitcast(f64.vec(16), bitcast(i64.vec(16), value) | (1 << 51))


def multiply_add_nan(a: Value, b: Value, total: Value) -> Value:
    """The f64 step with the rule for NaN spelled out: the first NaN of b, c, a, made quiet; else the default one."""
    result = strict("fma", f64.vec(16), b, a, total)
    result = select(result == result, result, bitcast(f64.vec(16), i64.vec(16)(-(1 << 51))))
    for x in (a, total, b):
        result = select(x == x, result, quiet(x))
    return result


def kernel_function(e: Exact, name: str, columns: int, height: int) -> Native:
    """`count` lanes of k: D = C + A B for `height` rows. n columns exist (at most `columns`)."""
    vectors, heights, unroll = range(columns // 16), range(height), min(8, e.products)
    v16 = e.lane.vec(16)
    out16 = e.result.vec(16)
    chained = e.lane is f64
    row_bytes = columns * e.lane.bits // 8

    def initial(c: Value, ldc: Value, r: int, v: int, n: Value, zero: Value) -> Value:
        mask = (i32.vec(16)(i32(n)) - 16 * v > iota(i32.vec(16))) & (zero == 0)
        return masked_load(out16, cast_ptr(e.result, c) + (ldc * r + 16 * v), mask, out16(0))

    def final(value: Value, d: Value, ldd: Value, r: int, v: int, n: Value) -> None:
        mask = i32.vec(16)(i32(n)) - 16 * v > iota(i32.vec(16))
        masked_store(value, cast_ptr(e.result, d) + (ldd * r + 16 * v), mask)

    def steps(
        a: Value, a_stride: Value, b: Value, index: Value, index_stride: Value, j: Value, totals: list[Value]
    ) -> list[Value]:
        """`unroll` lanes of k from j on."""
        for u in range(unroll):
            for r in heights:
                row = b + (j + u) * row_bytes
                if e.sparse:
                    row = b + i64((index + index_stride * r)[j + u]) * row_bytes
                x = v16((cast_ptr(e.lane, a) + a_stride * r)[j + u])
                for v in vectors:
                    y = load(v16, cast_ptr(e.lane, row) + 16 * v)
                    at = r * len(vectors) + v
                    totals[at] = multiply_add(e, x, y, totals[at])
        return totals

    def kernel(
        a: ptr,
        a_stride: i64,
        b: ptr,
        index: ptr_to(i32),
        index_stride: i64,
        count: i64,
        c: ptr,
        ldc: i64,
        zero: u32,
        d: ptr,
        ldd: i64,
        n: i64,
    ) -> None:
        at = i64(0)
        t = Totals(e, [(initial(c, ldc, r, v, n, zero) if chained else v16(0)) for r, v in pairs(heights, vectors)])
        while at < count:
            t.put(steps(a, a_stride, b, index, index_stride, at, t.get()))
            at += unroll
        sums = t.get()
        if chained:
            nan = any_nan(sums)
            if nan:
                for r, v in pairs(heights, vectors):
                    total = initial(c, ldc, r, v, n, zero)
                    for j in range(i64(0), count):
                        x = v16((cast_ptr(e.lane, a) + a_stride * r)[j])
                        total = multiply_add_nan(x, load(v16, cast_ptr(e.lane, b + j * row_bytes) + 16 * v), total)
                    final(total, d, ldd, r, v, n)
            else:
                for r, v in pairs(heights, vectors):
                    final(sums[r * len(vectors) + v], d, ldd, r, v, n)
        else:
            for r, v in pairs(heights, vectors):
                total = out16(sums[r * len(vectors) + v])
                before = initial(c, ldc, r, v, n, zero)
                final(add_saturating(before, total) if e.saturate else before + total, d, ldd, r, v, n)

    return Native(kernel, f"{name}_{columns}x{height}", OUTLINED)


def pairs(heights: range, vectors: range) -> list[tuple[int, int]]:
    return [(r, v) for r in heights for v in vectors]


def any_nan(values: list[Value]) -> Value:
    found = ~(values[0] == values[0])
    for x in values[1:]:
        found = found | ~(x == x)
    return any_lane(found)


class Totals:
    """Accumulators that live across a run-time loop: one stack slot each, which LLVM turns into registers."""

    def __init__(self, e: Exact, start: list[Value]) -> None:
        self.slots = [value.b.alloca(value.ty) for value in start]
        self.put(start)

    def get(self) -> list[Value]:
        return [s.b.load(s.ty.to, s) for s in self.slots]

    def put(self, values: list[Value]) -> None:
        for s, value in zip(self.slots, values):
            s.b.store(value, s)


def dot_exact(e: Exact, name: str) -> Native:
    """D = A B + C over packed operands."""
    if e.lane is f64:
        heights = {64: (3, 1), 16: (8, 1)}
    else:
        heights = {64: (6, 1), 16: (8, 1)} if not e.sparse else {64: (2, 1), 16: (4, 1)}
    kernels = {(c, h): kernel_function(e, name, c, h) for c in COLUMNS for h in heights[c]}
    size, lanes_of_a, kk = e.lane.bits // 8, e.products, e.k
    out_size = e.result.bits // 8
    pass_ = e.span
    per, sparse = e.per, e.sparse

    def core(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)) -> None:
        instructions = k // kk
        a_stride = instructions * lanes_of_a
        for begin in range(i64(0), instructions, pass_):
            end = minimum(begin + pass_, instructions)
            zero = u32(0)
            source = c
            lds = ldc
            if begin == 0:
                zero = u32(flags & 1)
            else:
                source = d
                lds = ldd
            j = i64(0)
            while j < n:
                width = i64(64)
                if n - j < 64:
                    width = i64(16)
                panel = b + j * (k // per) * size
                if not sparse:
                    panel = panel + begin * (kk // per) * width * size
                there = minimum(n - j, width)
                i = i64(0)
                for w in COLUMNS:
                    if width == w:
                        for h in heights[w]:
                            while i + h <= m:
                                kernels[w, h](
                                    a + (i * a_stride + begin * lanes_of_a) * size,
                                    a_stride,
                                    panel,
                                    index + i * a_stride + begin * lanes_of_a,
                                    a_stride,
                                    (end - begin) * lanes_of_a,
                                    source + (i * lds + j) * out_size,
                                    lds,
                                    zero,
                                    d + (i * ldd + j) * out_size,
                                    ldd,
                                    there,
                                )
                                i += h
                j += width

    inner = Native(core, f"{name}_core", OUTLINED)
    turn = e.lane is f64 and e.rounding != "rn"

    def dot(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64) -> None:
        if turn:
            set_rounding(e.rounding)
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32))
        if turn:
            set_rounding("rn")

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)
    ) -> None:
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index)

    return Native(dot_sparse if sparse else dot, name)
