"""Packing of operands for the compiled twin of fused dot products (layouts: plan.py). All macros over Values."""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, call-overload"

from typing import Any

from mmulator.base.codegen.engine import rounds_halves
from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import (
    any_lane,
    bitcast,
    cast_ptr,
    iota,
    load,
    masked_load,
    maximum,
    minimum,
    reduce_add,
    reduce_max,
    select,
    shuffle,
    stack,
    store,
    trailing_zeros,
)  # fmt: skip
from mmulator.base.codegen.types import boolean, f16, f32, i16, i32, i64, ptr, ptr_to, u8, u16, u32
from mmulator.base.codegen.values import Builder, Value
from mmulator.isa.types import ElementType
from mmulator.matrix.twin.plain import facts_function
from mmulator.matrix.twin.plan import (
    A_BIAS,
    A_HEADER,
    B_BIAS,
    B_HEADER,
    LANE,
    NARROW_COLUMNS,
    NEVER,
    ROWS,
    WIDE_COLUMNS,
    WINDOW,
    Plan,
)
from mmulator.matrix.twin.tile import OUTLINED

I, U, F, B = i32.vec(16), u32.vec(16), f32.vec(16), boolean.vec(16)
SHORT, PAIRS, BYTES = u16.vec(16), u16.vec(32), u8.vec(64)
RAW = {8: u8, 16: u16, 32: u32}


class Decoded:
    """16 decoded elements: value (f32 lanes), exponent and significand (i32 lanes), and which are zero, special or negative.

    emin: exponent of subnormals, if it is not the type's own.
    """

    def __init__(self, t: ElementType, raw: Value, emin: int | None = None) -> None:
        self.type = t
        bits = raw & 0xFFFFE000 if t.name == "tf32" else raw
        full = t.mantissa + t.exponent
        shift = 13 if t.name == "tf32" else 0
        field = I((bits >> (t.mantissa + shift)) & ((1 << t.exponent) - 1))
        mantissa = I((bits >> shift) & ((1 << t.mantissa) - 1))
        top = field == (1 << t.exponent) - 1
        match t.nan:
            case "ieee":
                self.special = top
            case "all_ones":
                self.special = top & (mantissa == (1 << t.mantissa) - 1)
            case _:
                self.special = top & (field != field)
        significand = mantissa | select(field != 0, I(1 << t.mantissa), I(0))
        self.significand = significand
        self.exponent = maximum(field, I(1)) - t.bias
        self.zero = significand == 0
        self.negative = ((bits >> (full + shift)) & 1) != 0
        if t.exponent == 8:  # an f32 with fewer mantissa bits
            self.value = bitcast(F, bits << (32 - t.bits))
            return
        scale = bitcast(F, (self.exponent - t.mantissa + 127) << 23)
        finite = bitcast(U, F(significand) * scale)
        infinite = select(mantissa == 0, U(0x7F800000), U(0x7FC00000)) if t.nan == "ieee" else U(0x7FC00000)
        magnitude = select(self.special, infinite, finite)
        self.value = bitcast(F, magnitude | select(self.negative, U(0x80000000), U(0)))
        if emin is not None and emin < t.emin:  # subnormals become normal numbers of the target type
            self.exponent = maximum(I(finite >> 23) - 127, I(emin))

    def exponents(self, within: Value | None = None) -> Value:
        """Exponents of the finite non-zero elements; -999 for others."""
        counts = ~self.zero & ~self.special
        if within is not None:
            counts = counts & within
        return select(counts, self.exponent, I(-999))

    def largest(self, within: Value | None = None) -> Value:
        """Largest exponent of the finite non-zero elements; -999 if there are none."""
        return reduce_max(self.exponents(within))

    def codes(self, bias: int, top: Value | None) -> Value:
        """Exponent codes, relative to `top` if given. Codes of special values are arbitrary."""
        e = self.exponent + bias
        if top is not None:
            e = maximum(e - top, I(bias - WINDOW))
        return select(self.zero, I(0), e)

    def last_codes(self) -> Value:
        """Last-bit codes."""
        last = self.exponent + trailing_zeros(self.significand) - self.type.emin
        return select(self.special | self.zero, I(NEVER), last)


def pack_a_function(plan: Plan, name: str) -> Native:
    """A function that packs raw A [m][lda]; k counts dense columns."""
    ty = RAW[max(plan.a.bits, 8)]
    length, chunks, products = plan.length, plan.order, plan.products
    chunk_bytes, relative, overflow, kk = plan.a_chunk, plan.relative, plan.may_overflow, plan.k
    mantissa, instruction_bytes = plan.a.mantissa, plan.a_instruction
    steps = range(0, length, 16)
    put: Any = store_a_short if Short.serves(plan, plan.a) else store_a
    facts = facts_function(plan, plan.a, min(16, length))

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        for start in range(i64(0), m, ROWS):
            height = minimum(m - start, i64(ROWS))
            block = out + start * (k // kk) * instruction_bytes
            for i in range(height):
                for inst in range(k // kk):
                    source = cast_ptr(ty, raw) + ((start + i) * lda + inst * products)
                    at = block + (inst * height + i) * instruction_bytes
                    for order in chunks:
                        parts = [decode_positions(plan, ty, source, order[s : s + 16]) for s in steps]
                        top = largest_of(parts) if relative else None
                        for step in steps:
                            put(parts[step // 16], top, plan, at, step, min(16, length - step))
                        header = cast_ptr(i32, at + (chunk_bytes - A_HEADER))
                        lost = any_special(parts)
                        if overflow:
                            lost = lost | (total_significand(parts) > (2 * length - 1 << mantissa))
                        header[0] = i32(lost)
                        header[1] = 0
                        if relative:
                            header[1] = top
                        at = at + chunk_bytes
            if plan.plain and (k > kk or m > ROWS):  # a small product takes less time than the question
                for inst in range(k // kk):
                    first = block + inst * height * instruction_bytes
                    header = cast_ptr(i32, first + (chunk_bytes - A_HEADER))
                    header[0] = header[0] | i32(facts(first, height * len(chunks), i64(chunk_bytes), i64(length)))

    return Native(pack_a, name)


def elements_at(ty: Any, source: Value, positions: tuple[int, ...]) -> Value:
    """Up to 16 elements at given positions; zeros beyond them."""
    first, span = positions[0], positions[-1] - positions[0] + 1
    wide = 32 if span > 16 else 16
    if span == wide:
        raw = load(ty.vec(wide), source, first)
    else:
        mask = iota(u32.vec(wide)) < span
        zero = ty.vec(wide)(0)
        raw = masked_load(ty.vec(wide), source + first, mask, zero)
    raw = u32.vec(wide)(raw)
    if list(positions) != list(range(first, first + 16)):
        # lanes beyond the positions read a zero lane, or repeat: mask them
        lanes = [p - first for p in positions] + [0] * (16 - len(positions))
        raw = select(iota(U) < len(positions), shuffle(raw, None, lanes), U(0))
    return raw


def decode_positions(plan: Plan, ty: Any, source: Value, positions: tuple[int, ...]) -> Any:
    raw = elements_at(ty, source, positions)
    return Short(plan.a, SHORT(raw)) if Short.serves(plan, plan.a) else Decoded(plan.a, raw, plan.emin(plan.a))


class Short:
    """Elements in 16-bit lanes, of bf16 and of types whose numbers are those of f16 times a power of two: the interface of
    `Decoded` for half of the work.
    """

    def __init__(self, t: ElementType, bits: Value) -> None:
        ty = bits.ty
        self.type, self.bits, self.magnitude = t, bits, bits & ((1 << t.mantissa + t.exponent) - 1)
        self.signed = i16.vec(ty.lanes)
        field = self.magnitude >> t.mantissa
        self.significand = (bits & ((1 << t.mantissa) - 1)) | select(field != 0, ty(1 << t.mantissa), ty(0))
        self.zero = self.significand == 0
        match t.nan:
            case "ieee":
                self.special = field == (1 << t.exponent) - 1
            case "all_ones":
                self.special = self.magnitude == (1 << t.mantissa + t.exponent) - 1
            case _:
                self.special = field != field
        self.sign = bits >> (t.mantissa + t.exponent) & 1
        self.least = maximum(field, ty(1))
        self.exponent = self.signed(self.least) - t.bias

    @staticmethod
    def serves(plan: Plan, t: ElementType) -> bool:
        return t.bits <= 16 and plan.emin(t) == t.emin and (t.exponent == 8 or rounds_halves())

    def exponents(self) -> Value:
        """Exponents of the finite non-zero elements; -999 for others."""
        return select(self.special | self.zero, self.signed(-999), self.exponent)

    def largest(self) -> Value:
        return i32(reduce_max(self.exponents()))

    def codes(self, bias: int, top: Value | None) -> Value:
        """Exponent codes, relative to `top` if given."""
        ty, e = self.bits.ty, self.exponent + bias
        if top is not None:
            e = maximum(e - self.signed(i16(top)), self.signed(bias - WINDOW))
        return select(self.zero, ty(0), ty(e))

    def last_codes(self) -> Value:
        """Last-bit codes."""
        ty = self.bits.ty
        return select(self.special | self.zero, ty(NEVER), self.least + trailing_zeros(self.significand) - 1)

    def value(self) -> Value:
        """The values of 16 elements, as f32."""
        t, bits = self.type, self.bits
        if t.exponent == 8:
            return bitcast(F, U(bits) << 16)
        if t.bits < 16:
            bits = self.magnitude << (10 - t.mantissa) | self.sign << 15
        value = F(bitcast(f16.vec(16), bits))
        if t.bias != 15:
            value = value * 2.0 ** (15 - t.bias)
        return select(self.special, F(float("nan")), value) if t.nan == "all_ones" else value


def largest_of(parts: list[Decoded]) -> Value:
    top = parts[0].largest()
    for p in parts[1:]:
        top = maximum(top, p.largest())
    return select(top == -999, i32(0), top)


def any_special(parts: list[Any]) -> Value:
    special = parts[0].special
    for p in parts[1:]:
        special = special | p.special
    return any_lane(special)


def total_significand(parts: list[Any]) -> Value:
    """The sum of all significands of parts of 16 elements; it fits in their lanes."""
    total = i32(reduce_add(parts[0].significand))
    for p in parts[1:]:
        total = total + i32(reduce_add(p.significand))
    return total


def store_a(d: Decoded, top: Value | None, plan: Plan, out: Value, step: int, count: int) -> None:
    """Store up to 16 elements of a chunk of A, from position `step` on.

    d: the elements.
    top: exponent to which codes are relative.
    plan: the plan.
    out: the packed chunk.
    step, count: position and number.
    """
    pieces = [d.value, d.codes(A_BIAS, top) * 0x01010101]
    if plan.counted:  # a negative element's negative products are those with positive elements of B
        pieces += [d.last_codes() * 0x01010101, select(d.negative, I(64), I(0))]
    store_pieces(plan, pieces, out, step, count)


def store_a_short(d: Short, top: Value | None, plan: Plan, out: Value, step: int, count: int) -> None:
    codes = d.codes(A_BIAS, top)
    if plan.counted:
        codes = codes | d.last_codes() << 8
    both = bitcast(BYTES, U(codes))
    pieces = [d.value(), shuffle(both, None, [n // 4 * 4 for n in range(64)])]
    if plan.counted:
        pieces += [shuffle(both, None, [n // 4 * 4 + 1 for n in range(64)]), U(d.sign) << 6]
    store_pieces(plan, [pieces[0], *(bitcast(I, piece) for piece in pieces[1:])], out, step, count)


def store_pieces(plan: Plan, pieces: list[Value], out: Value, step: int, count: int) -> None:
    b = Builder.current()
    for n, vector in enumerate(pieces):
        part = vector if count == 16 else shuffle(vector, None, list(range(count)))
        b.store(part, out + (plan.length * n + step) * 4)


def store_b_row(d: list[Decoded], top: Value | None, plan: Plan, row: Value) -> Value:
    """Store 16 or 64 columns of B for one k. Returns whether there is an Inf or NaN.

    d: the elements.
    top: exponent to which codes are relative.
    plan: the plan.
    row: the packed row.
    """
    columns = 16 * len(d)
    codes = [I(0)] * (3 if plan.counted else 1)
    for v, part in enumerate(d):
        kinds = [part.codes(B_BIAS, top)]
        if plan.counted:
            never, last = I(NEVER ^ 0x80), part.last_codes() ^ 0x80
            kinds += [select(part.negative, last, never), select(part.negative, never, last)]
        codes = [found | (code << (8 * v)) for found, code in zip(codes, kinds)]
        store(part.value, row, v * 16 * LANE)
    for which, code in enumerate(codes):
        store(code, row, columns * LANE + 64 * which)
    return any_special(d)


def store_b_short(plan: Plan, values: list[Value], pairs: list[Value], top: Value | None, row: Value) -> Value:
    """Store packed elements of B of types that Short supports.

    plan: the plan.
    values: the elements, 16 columns each.
    pairs: for 64 columns, columns t and t + 32 in lane t for t below 16, and for t from 16 on; for 16 columns the columns.
    top: exponent to which codes are relative.
    row: the packed row.
    """
    t, columns = plan.b, 16 * len(values)
    for v, bits in enumerate(values):
        store(Short(t, bits).value(), row, v * 16 * LANE)
    codes: list[Value] = []
    special = []
    for v, bits in enumerate(pairs):
        d = Short(t, bits)
        special.append(d.special)
        kinds = [d.codes(B_BIAS, top)]
        if plan.counted:
            never, last, negative = bits.ty(NEVER ^ 0x80), d.last_codes() ^ 0x80, d.sign != 0
            kinds += [select(negative, last, never), select(negative, never, last)]
        codes = [code | more << 8 for code, more in zip(codes, kinds)] if v else kinds
    for which, code in enumerate(codes):
        store(bitcast(BYTES, code) if len(pairs) > 1 else U(code), row, columns * LANE + 64 * which)
    return any_lane(special[0] | special[1] if len(special) > 1 else special[0])


def transpose(rows: list[Value]) -> list[Value]:
    """Vectors transposed in rounds of pairwise shuffles; there are as many as each has lanes (a power of two)."""
    count, step = len(rows), 1
    while step < count:
        low = [n if not n & step else n - step + count for n in range(count)]
        high = [n + step if not n & step else n + count for n in range(count)]
        result = list(rows)
        for r in range(count):
            if not r & step:
                x, y = rows[r], rows[r | step]
                result[r], result[r | step] = shuffle(x, y, low), shuffle(x, y, high)
        rows, step = result, 2 * step
    return rows


def _turned(lines: ptr_to(u32), out: ptr_to(u32), pitch: i64) -> None:
    """16 lines of 16, one after the other, become columns of `out`, whose lines are `pitch` apart."""
    for r, across in enumerate(transpose([load(U, lines, 16 * n) for n in unrolled(16)])):
        store(across, out, pitch * r)


turned = Native(_turned, "twin_turned", OUTLINED, inner=True)


def pack_b_function(plan: Plan, name: str, rows: bool) -> Native:
    """A function that packs raw B. rows: whether raw is [k][ldb] with n contiguous; otherwise [n][ldb] with k contiguous."""
    block = {c: pack_block_function(plan, f"{name}_{c}", rows, c) for c in (WIDE_COLUMNS, NARROW_COLUMNS)}
    size = max(plan.b.bits, 8) // 8
    wide, narrow = block[WIDE_COLUMNS], block[NARROW_COLUMNS]
    row_wide, row_narrow = plan.b_row(WIDE_COLUMNS), plan.b_row(NARROW_COLUMNS)
    kk = plan.k

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        step = i64(size)
        if not rows:
            step = ldb * size
        j = i64(0)
        while j + 64 <= n:
            wide(raw + j * step, ldb, i64(64), k, out)
            out = out + (k * row_wide + k // kk * B_HEADER)
            j += 64
        while j < n:
            narrow(raw + j * step, ldb, n - j, k, out)
            out = out + (k * row_narrow + k // kk * B_HEADER)
            j += 16

    return Native(pack_b, name)


def pack_block_function(plan: Plan, name: str, rows: bool, columns: int) -> Native:
    """A function that packs one block of columns; `n` of them exist (the others are packed as zeros)."""
    ty = RAW[max(plan.b.bits, 8)]
    row_bytes, relative, kk = plan.b_row(columns), plan.relative, plan.k
    vectors = range(columns // 16)
    t, short = plan.b, Short.serves(plan, plan.b)
    two = short and columns == WIDE_COLUMNS  # columns in a lane
    held = range(len(vectors) // 2) if two else vectors

    def read(source: Value, n: Value, v: int) -> Value:
        if columns == WIDE_COLUMNS:
            return U(load(ty.vec(16), source, 16 * v))
        return U(masked_load(ty.vec(16), source, iota(U) < u32(n), ty.vec(16)(0)))

    none = (i16 if short else i32).vec(16)
    facts = facts_function(plan, t, 16)
    least = 0 if columns == WIDE_COLUMNS else kk  # a narrow product of one instruction takes less time than the question

    def exponents(raw: Value) -> Value:
        return (Short(t, SHORT(raw)) if short else Decoded(t, raw)).exponents()

    def emit(row: Value, raws: list[Value], top: Value | None) -> Value:
        if two:
            pairs = raws if len(raws) == 2 else [x | y << 16 for x, y in zip(raws[:2], raws[2:])]
            values = [SHORT(raw) for raw in (raws if len(raws) == 4 else [*raws, *(raw >> 16 for raw in raws)])]
            return store_b_short(plan, values, [bitcast(PAIRS, pair) for pair in pairs], top, row)
        if short:
            return store_b_short(plan, [SHORT(raws[0])], [SHORT(raws[0])], top, row)
        return store_b_row([Decoded(t, r, plan.emin(t)) for r in raws], top, plan, row)

    def pack_rows(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        source = cast_ptr(ty, raw)
        headers = cast_ptr(i32, out + k * row_bytes)
        for inst in range(k // kk):
            top = i32(-999)
            if relative:
                most = none(-999)
                for r in range(inst * kk, (inst + 1) * kk):
                    for v in vectors:
                        most = maximum(most, exponents(read(source + r * ldb, n, v)))
                top = i32(reduce_max(most))
                if top == -999:
                    top = i32(0)
            lost = boolean(0)
            for r in range(inst * kk, (inst + 1) * kk):
                parts = [read(source + r * ldb, n, v) for v in vectors]
                lost = lost | emit(out + r * row_bytes, parts, top if relative else None)
            headers[inst * 16] = top
            headers[inst * 16 + 1] = i32(lost)
            if plan.plain:
                headers[inst * 16 + 2] = 0
                if k > least:
                    headers[inst * 16 + 2] = i32(facts(out + inst * (kk * row_bytes), i64(kk), i64(row_bytes), i64(columns)))

    def pack_columns(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        # through a plain [k][columns] copy of one instruction's rows, transposed 16 by 16
        lines, room = stack(u32, 256), stack(u32, 16 * columns)
        headers = cast_ptr(i32, out + k * row_bytes)
        for inst in range(k // kk):
            top = i32(-999)
            if relative:
                most = none(-999)
                for j in range(i64(0), n if columns != WIDE_COLUMNS else i64(columns)):
                    for step in unrolled(0, kk, 16):
                        line = cast_ptr(ty, raw) + (j * ldb + inst * kk + step)
                        most = maximum(most, exponents(read_k(ty, line, min(16, kk - step))))
                top = i32(reduce_max(most))
                if top == -999:
                    top = i32(0)
            lost = boolean(0)
            for step in unrolled(0, kk, 16):
                for first in range(i64(0), i64(16 * len(held)), 16):
                    for j in range(i64(16)):
                        part = read_line(ty, raw, ldb, first + j, n, columns, inst * kk + step, min(16, kk - step))
                        if two:
                            part = part | read_line(
                                ty, raw, ldb, first + j + 32, n, columns, inst * kk + step, min(16, kk - step)
                            ) << 16
                        store(part, lines, j * 16)
                    turned(lines, room + first, i64(columns))
                for r in range(i64(0), i64(min(16, kk - step))):
                    parts = [load(U, room, r * columns + 16 * v) for v in held]
                    lost = lost | emit(out + (inst * kk + step + r) * row_bytes, parts, top if relative else None)
            headers[inst * 16] = top
            headers[inst * 16 + 1] = i32(lost)
            if plan.plain:
                headers[inst * 16 + 2] = 0
                if k > least:
                    headers[inst * 16 + 2] = i32(facts(out + inst * (kk * row_bytes), i64(kk), i64(row_bytes), i64(columns)))

    return Native(pack_rows if rows else pack_columns, name)


def read_k(ty: Any, line: Value, count: int) -> Value:
    """16 elements along k, zero beyond `count`."""
    if count == 16:
        return U(load(ty.vec(16), line))
    return U(masked_load(ty.vec(16), line, iota(U) < count, ty.vec(16)(0)))


def read_line(ty: Any, raw: Value, ldb: Value, j: int, n: Value, columns: int, k: Value, count: int) -> Value:
    """Elements k .. k + count of column j, zeros if the block has no such column.

    ty: type of the elements.
    raw, ldb: the matrix.
    j, n, columns: the column, and number of existing columns and of columns of the block.
    k, count: the elements.
    """
    line = cast_ptr(ty, raw) + (ldb * j + k)
    if columns == WIDE_COLUMNS:
        return read_k(ty, line, count)
    lanes = select(n > j, u32(count), u32(0))
    return U(masked_load(ty.vec(16), line, iota(U) < lanes, ty.vec(16)(0)))
