"""The compiled twin for exact sums and plain chains: integers, single bits, f64, f32.

One kernel: a register tile of `height` rows by `columns` columns, operands unpacked to lanes of one type, B in blocks of
columns so that a row k of a block is contiguous. Integers are words, two along k in a lane, whose products one instruction adds
up. Elements of sparse integers, which select any two of B, are f32 lanes: they multiply exactly while a sum stays below 2**24.
Bits are packed 32 to a lane; f64 is a chain of fused multiply-adds in the instruction's rounding mode; so is f32, of FFMA.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, index, operator"

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.codegen.cpus import ARM
from mmulator.base.codegen.engine import architecture, has_feature
from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import (
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
    shuffle,
    store,
)
from mmulator.base.codegen.rounding import set_rounding, strict
from mmulator.base.codegen.types import Ty, f32, f64, i16, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.profiles import DotKey, Profile
from mmulator.matrix.twin.pack import transpose
from mmulator.matrix.twin.plan import Parts
from mmulator.matrix.twin.tile import OUTLINED, Slots

RAW = {8: u8, 16: u16, 32: u32, 64: u64}
COLUMNS = (64, 16)  # of a block of B
UNROLL = 4  # lanes of k: what every instruction has a multiple of


@dataclass(frozen=True)
class Exact(Parts):
    """The parameters of a kernel. lane: type of the factors. per: elements in one lane (32 for b1, 2 for words). chain: whether
    factors are floats, each product of which is added with one rounding."""

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
    chain: bool = False

    def _plain(self, **changes: Any) -> Exact:
        return replace(self, result=i32, k=0, saturate=False, bit_op=None, rounding="rn", **changes)

    @property
    def of_a(self) -> Exact:
        return self._plain(b=self.a)

    @property
    def of_b(self) -> Exact:
        return self._plain(a=self.b, sparse=False)

    @property
    def of_dot(self) -> Exact:
        return replace(self, a=TYPES["s8"], b=TYPES["s8"])

    @property
    def products(self) -> int:
        """Lanes of one row of A in one instruction."""
        return (self.k // 2 if self.sparse else self.k) // self.per

    @property
    def span(self) -> int:
        """Lanes of k that are summed before the sum is added to D: one instruction's if each result is clamped; as many as stay
        exact in f32; 0 for all lanes, directly in D.
        """
        exact = 128 // self.products * self.products if self.lane is f32 and not self.chain else 0
        return self.products if self.saturate else exact

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
            lane = f64 if a.bits == 64 else f32
            return Exact(a, b, lane, lane, 1, key.k, key.sparse, False, None, key.rounding, True)
        case _:
            lane, per = (f32, 1) if key.sparse else (i32, 2)
            return Exact(a, b, lane, i32, per, key.k, key.sparse, key.satfinite, None, key.rounding)


# packing ------------------------------------------------------------------------------------------------------------
def signed(t: ElementType, raw: Value, ty: Ty) -> Value:
    """Raw elements as numbers, in lanes of `ty`, a signed integer type."""
    wide, spare = ty(raw), ty.bits - t.bits
    return wide << spare >> spare if t.kind == "signed" else wide & ((1 << t.bits) - 1)


def unpacked(e: Exact, t: ElementType, raw: Value) -> Value:
    """Raw elements (a vector of their container) as lanes; if two elements share a lane, as its words."""
    count = raw.ty.lanes
    match e.per:
        case 1 if e.chain:
            return bitcast(e.lane.vec(count), raw)
        case 1:
            return f32.vec(count)(signed(t, raw, i32.vec(count)))
        case _:
            return u16.vec(count)(signed(t, raw, i16.vec(count)))


def read(e: Exact, t: ElementType, source: Value, count: Value) -> Value:
    """Up to 16 elements along k (or along n), as `unpacked`; zeros beyond `count`."""
    ty = RAW[max(t.bits, 8)].vec(16)
    return unpacked(e, t, masked_load(ty, source, below(count), ty(0)))


def read_bits(source: Value) -> Value:
    """32 elements of one bit, a byte each, as one word."""
    return mask_bits((load(u8.vec(32), source) & 1) != 0)


def pack_a_exact(e: Exact, name: str) -> Native:
    """A function that packs raw A [m][lda] to lanes [m][k]."""
    t, lane, per = e.a, e.lane, e.per
    ty = RAW[max(t.bits, 8)]
    divide = 2 if e.sparse else 1
    element = u16 if per == 2 else lane

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        width = k // divide
        for i in range(m):
            source = cast_ptr(ty, raw) + i * lda
            target = cast_ptr(lane, out) + i * (width // per)
            if per == 32:
                for j in range(i64(0), width // per):
                    target[j] = read_bits(source + j * per)
            else:
                whole = width // 16 * 16
                for j in range(i64(0), whole, 16):
                    store(unpacked(e, t, load(ty.vec(16), source + j)), cast_ptr(element, target) + j)
                if whole < width:
                    values = read(e, t, source + whole, width - whole)
                    masked_store(values, cast_ptr(element, target) + whole, below(width - whole))

    return Native(pack_a, name)


def pack_b_exact(e: Exact, name: str, rows: bool) -> Native:
    """A function that packs raw B [k][ldb] (rows) or [n][ldb] to blocks of columns [k][columns]; columns beyond n are zeros."""
    columns_of = across_function(e, f"{name}_columns") if rows else along_function(e, f"{name}_columns")
    per, size, element = e.per, e.lane.bits // 8, max(e.b.bits, 8) // 8

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        lanes = k // per
        step = i64(element)
        if not rows:
            step = ldb * element
        column = i64(0)
        while column < n:
            width = i64(64)
            if n - column < 64:
                width = i64(16)
            for v in range(i64(0), width, 16):
                columns_of(raw + (column + v) * step, ldb, n - column - v, lanes, out + (column * lanes + v) * size, width)
            column += width

    return Native(pack_b, name)


def across_function(e: Exact, name: str) -> Native:
    """A function that packs 16 columns of raw B [k][ldb], of which n exist, to lanes [k][pitch]."""
    t, lane, per = e.b, e.lane, e.per
    ty = RAW[max(t.bits, 8)]

    def line(source: Value, n: Value, whole: bool) -> Value:
        return unpacked(e, t, load(ty.vec(16), source)) if whole else read(e, t, source, n)

    def lanes_of(source: Value, ldb: Value, n: Value, whole: bool) -> Value:
        """A row of lanes, from `per` rows of elements."""
        if per == 1:
            return line(source, n, whole)
        if per == 2:
            return u32.vec(16)(line(source, n, whole)) | u32.vec(16)(line(source + ldb, n, whole)) << 16
        words = u32.vec(16)(0)
        for bit in range(per):
            at, ones = source + ldb * bit, u8.vec(16)
            raw = load(ones, at) if whole else masked_load(ones, at, below(n), ones(0))
            words = words | (u32.vec(16)(raw) & 1) << bit
        return words

    def across(raw: ptr, ldb: i64, n: i64, lanes: i64, target: ptr, pitch: i64) -> None:
        source = cast_ptr(ty, raw)
        out = cast_ptr(lane, target)
        if n >= 16:
            for r in range(lanes):
                store(lanes_of(source + r * per * ldb, ldb, n, True), out + r * pitch)
        else:
            for r in range(lanes):
                store(lanes_of(source + r * per * ldb, ldb, n, False), out + r * pitch)

    return Native(across, name)


def below(count: Value, lanes: int = 16) -> Value:
    """A mask of the first `count` of a number of lanes."""
    return i32.vec(lanes)(i32(count)) > iota(i32.vec(lanes))


def along_function(e: Exact, name: str) -> Native:
    """A function that packs 16 columns of raw B [n][ldb], of which n exist, to lanes [k][pitch]."""
    t, lane, per = e.b, e.lane, e.per
    ty = RAW[max(t.bits, 8)]

    def words(raw: Value, ldb: Value, n: Value, j: int, at: Value, more: Value) -> Value:
        """16 lanes along k of column j, zeros if there is no such column. more: distance in elements from the first half to the
        second.
        """
        line = cast_ptr(ty, raw) + (minimum(n - 1, i64(j)) * ldb + at)
        halves = [unpacked(e, t, load(ty.vec(16), line + more * half)) for half in range(per)]
        whole = halves[0] if per == 1 else shuffle(halves[0], halves[1], list(range(32)))
        return select(n > j, bitcast(u32.vec(16), whole), u32.vec(16)(0))

    def by_vectors(raw: ptr, ldb: i64, n: i64, lanes: i64, target: ptr, pitch: i64) -> None:
        # 16 columns by 16 lanes of k at a time; k is a multiple of 16
        for r in range(i64(0), lanes, 16):
            count = minimum(lanes - r, i64(16))
            lines = [words(raw, ldb, n, j, r * per, (count * per - 16) * (per - 1)) for j in unrolled(16)]
            across = transpose(lines)
            out = cast_ptr(u32, target) + r * pitch
            for step in unrolled(8):
                store(across[step], out + pitch * step)
            if count > 8:
                for step in unrolled(8, 16):
                    store(across[step], out + pitch * step)

    def by_fours(raw: ptr, ldb: i64, n: i64, lanes: i64, target: ptr, pitch: i64) -> None:
        # four columns by four lanes of k at a time; k is a multiple of four
        four = lane.vec(4)
        for r in range(i64(0), lanes, 4):
            for first in unrolled(0, 16, 4):
                lines = []
                for j in unrolled(first, first + 4):
                    line = load(four, cast_ptr(lane, raw) + (minimum(n - 1, i64(j)) * ldb + r))
                    lines += [select(n > j, line, four(0))]
                for step, across in enumerate(transpose(lines)):
                    store(across, cast_ptr(lane, target) + ((r + step) * pitch + first))

    def bits(raw: ptr, ldb: i64, n: i64, lanes: i64, target: ptr, pitch: i64) -> None:
        out = cast_ptr(lane, target)
        for j in range(i64(0), i64(16)):
            if j < n:
                for r in range(lanes):
                    out[r * pitch + j] = read_bits(raw + (j * ldb + r * per))
            else:
                for r in range(lanes):
                    out[r * pitch + j] = lane(0)

    return Native(bits if per == 32 else by_fours if e.chain else by_vectors, name)


# kernels ------------------------------------------------------------------------------------------------------------
def multiply_add(e: Exact, a: Value, b: Value, total: Value) -> Value:
    match e.per, e.lane.bits:
        case 32, _:
            return total + popcount(a & b if e.bit_op == "and" else a ^ b)
        case 2, _:
            return total + products(a, b)
        case _ if e.chain:
            return strict("fma", total.ty, b, a, total)
        case _:  # exact either way
            return total.b.intrinsic("fmuladd", total.ty, [b, a, total])


def products(a: Value, b: Value) -> Value:
    """Sums of the products of neighbouring words: one instruction, or one together with the addition."""
    words, wide = i16.vec(32), i32.vec(32)
    if architecture() == ARM:  # a product is added by the instruction that computes it; B is taken apart once for all rows
        each = [[i32.vec(16)(shuffle(bitcast(words, x), None, range(n, 32, 2))) for x in (a, b)] for n in (0, 1)]
        return each[0][0] * each[0][1] + each[1][0] * each[1][1]
    both = wide(bitcast(words, a)) * wide(bitcast(words, b))
    even, odd = (shuffle(both, None, list(range(n, 32, 2))) for n in (0, 1))
    return even + odd


def quiet(value: Value) -> Value:
    return bitcast(value.ty, bitcast(i64.vec(value.ty.lanes), value) | (1 << 51))


def multiply_add_nan(a: Value, b: Value, total: Value) -> Value:
    """The step with the rule for NaN. f64: the first NaN of b, c, a, made quiet; otherwise the default NaN. f32: 0x7fffffff."""
    result = strict("fma", b.ty, b, a, total)
    if b.ty.element is f32:
        return select(result == result, result, bitcast(b.ty, i32.vec(b.ty.lanes)(0x7FFFFFFF)))
    result = select(result == result, result, bitcast(b.ty, i64.vec(b.ty.lanes)(-(1 << 51))))
    for x in (a, total, b):
        result = select(x == x, result, quiet(x))
    return result


def kernel_function(e: Exact, name: str, pitch: int, columns: int, height: int) -> Native:
    """A function that adds `count` lanes of k: D = C + A B for `height` rows by `columns` columns, n of which exist, of a block
    of B.

    e: parameters.
    name: its symbol.
    pitch: columns of the block.
    columns, height: size of the register tile.
    """
    width = min(columns, 16)
    starts, heights = range(0, columns, width), range(height)
    tile = [(r, v) for r in heights for v in starts]
    ty, out = e.lane.vec(width), e.result.vec(width)
    chained, span, saturate = e.chain, e.span, e.saturate
    row_bytes = pitch * e.lane.bits // 8

    def initial(c: Value, ldc: Value, r: int, v: int, n: Value, zero: Value) -> Value:
        return masked_load(out, cast_ptr(e.result, c) + (ldc * r + v), below(n - v, width) & (zero == 0), out(0))

    def final(value: Value, d: Value, ldd: Value, r: int, v: int, n: Value) -> None:
        masked_store(value, cast_ptr(e.result, d) + (ldd * r + v), below(n - v, width))

    def steps(
        a: Value, a_stride: Value, b: Value, index: Value, index_stride: Value, j: Value, totals: list[Value]
    ) -> list[Value]:
        """UNROLL lanes of k from j on."""
        for u in range(UNROLL):
            for r in heights:
                row = b + (j + u) * row_bytes
                if e.sparse:
                    row = b + i64((index + index_stride * r)[j + u]) * row_bytes
                x = ty((cast_ptr(e.lane, a) + a_stride * r)[j + u])
                for n, v in enumerate(starts):
                    y = load(ty, cast_ptr(e.lane, row) + v)
                    at = r * len(starts) + n
                    totals[at] = multiply_add(e, x, y, totals[at])
        return totals

    def kernel(
        a: ptr, a_stride: i64, b: ptr, index: ptr_to(i32), index_stride: i64, count: i64, c: ptr, ldc: i64, zero: u32,
        d: ptr, ldd: i64, n: i64,
    ) -> None:  # fmt: skip
        at = i64(0)
        t = Slots([initial(c, ldc, r, v, n, zero) for r, v in tile])
        if span:
            while at < count:
                end = minimum(at + span, count)
                part = Slots([ty(0) for _ in tile])
                while at < end:
                    part.put(steps(a, a_stride, b, index, index_stride, at, part.get()))
                    at += UNROLL
                both = zip(t.get(), part.get())
                t.put([add_saturating(x, out(y)) if saturate else x + out(y) for x, y in both])
        else:
            while at < count:
                t.put(steps(a, a_stride, b, index, index_stride, at, t.get()))
                at += UNROLL
        sums = t.get()
        if chained:
            nan = any_nan(sums)
            if nan:
                for r, v in tile:
                    total = initial(c, ldc, r, v, n, zero)
                    for j in range(i64(0), count):
                        x = ty((cast_ptr(e.lane, a) + a_stride * r)[j])
                        total = multiply_add_nan(x, load(ty, cast_ptr(e.lane, b + j * row_bytes) + v), total)
                    final(total, d, ldd, r, v, n)
            else:
                for r, v in tile:
                    final(sums[tile.index((r, v))], d, ldd, r, v, n)
        else:
            for r, v in tile:
                final(sums[tile.index((r, v))], d, ldd, r, v, n)

    return Native(kernel, f"{name}_{columns}of{pitch}x{height}", OUTLINED, inner=True)


def any_nan(values: list[Value]) -> Value:
    found = ~(values[0] == values[0])
    for x in values[1:]:
        found = found | ~(x == x)
    return any_lane(found)


def tile_of(e: Exact, pitch: int) -> tuple[int, tuple[int, ...]]:
    """(columns of a register tile in a block of `pitch`, possible heights in descending order). The tile and a row of B fit in
    the CPU's registers, and a tile is high enough that B need not come from the second-level cache at full speed.
    """
    if architecture() == ARM and e.per == 2:  # two rows take 294 instructions where four take 382, 94 of them for the stack
        return 16, (2, 1)
    if not has_feature("avx512f"):
        return (8, (5, 2, 1)) if e.lane is f64 else (16, (4, 2, 1))
    if e.lane is f64:
        return (32, (4, 1)) if pitch == 64 else (16, (8, 1))
    if e.sparse:
        return pitch, (2, 1) if pitch == 64 else (4, 1)
    return pitch, (4, 2, 1) if pitch == 64 else (8, 1)


def dot_exact(e: Exact, name: str) -> Native:
    """A function that computes D = A B + C from packed operands."""
    shapes = {pitch: tile_of(e, pitch) for pitch in COLUMNS}
    kernels = {(pitch, h): kernel_function(e, name, pitch, columns, h) for pitch, (columns, hs) in shapes.items() for h in hs}
    size, lanes_of_a, kk = e.lane.bits // 8, e.products, e.k
    out_size = e.result.bits // 8
    per = e.per

    def core(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32)) -> None:
        a_stride = k // kk * lanes_of_a
        zero = u32(flags & 1)
        j = i64(0)
        while j < n:
            width = i64(64)
            if n - j < 64:
                width = i64(16)
            panel = b + j * (k // per) * size
            i = i64(0)
            for pitch in COLUMNS:
                if width == pitch:
                    for h in shapes[pitch][1]:
                        while i + h <= m:
                            rows, lines = a + i * a_stride * size, index + i * a_stride
                            for at in range(i64(0), i64(pitch), shapes[pitch][0]):
                                kernels[pitch, h](
                                    rows, a_stride, panel + at * size, lines, a_stride, a_stride,
                                    c + (i * ldc + j + at) * out_size, ldc, zero, d + (i * ldd + j + at) * out_size, ldd,
                                    minimum(n - j - at, i64(pitch)),
                                )  # fmt: skip
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

    return Native(dot_sparse if e.sparse else dot, name)
