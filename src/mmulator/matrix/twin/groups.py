"""The compiled twin of mxf4 and mxf4nvf4: groups of 16 e2m1 products, summed exactly and scaled, as in `dot.grouped`.

Twice an element is a small integer, so that a group's sum is one of 32 bits. Times its scale factors it is exact in f64, and so
are all further steps until the one rounding. Lanes run along n; the largest exponent needs to know, too, which groups have a
product that is not zero. Packed operands are groups, whatever the instruction:

    A, row after row:                         words [16] | which of them are not zero, as 32 bits
    B, in blocks of 16 columns:    pairs of words along k [8][16] | which of a column's words are not zero [16]

Elements of a sparse A select any two of four rows of B: words [16] by words [k][16], without the bits.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, index, operator, call-overload"

from __future__ import annotations

from dataclasses import replace

from mmulator.base.classes import dataclass
from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import (
    bitcast,
    cast_ptr,
    fill_bytes,
    load,
    mask_bits,
    masked_load,
    masked_store,
    maximum,
    minimum,
    null,
    select,
    stack,
    store,
    trunc,
)
from mmulator.base.codegen.types import f32, f64, i16, i32, i64, ptr, ptr_to, u8, u16, u32
from mmulator.base.codegen.values import Value
from mmulator.isa.types import ElementType
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.profiles import GROUP, DotKey, Profile
from mmulator.matrix.twin.exact import products
from mmulator.matrix.twin.pack import Decoded, transpose
from mmulator.matrix.twin.plan import ROWS, Parts
from mmulator.matrix.twin.slow import cut_to_single, lanes, power_of_two, turned
from mmulator.matrix.twin.tile import NAN, OUTLINED, SIGN, D, F, I, Slots, U

COLUMNS = 16
NONE = -9999  # an exponent that is lower than all others
BYTES, WORDS = u8.vec(16), i16.vec(16)
LINE = COLUMNS * 4  # bytes of a row of pairs, of the bits of 16 columns


@dataclass(frozen=True)
class Groups(Parts):
    """The parameters of a kernel."""

    scale: ElementType
    k: int
    blocks: int  # scale factors per instruction
    sparse: bool
    fraction: int
    floor: int

    @property
    def of_a(self) -> Groups:
        return replace(self, scale=element_type("ue8m0"), k=64, blocks=0, fraction=0, floor=0)

    @property
    def of_b(self) -> Groups:
        return self.of_a

    @property
    def groups(self) -> int:
        return (self.k // 2 if self.sparse else self.k) // GROUP

    @property
    def a_group(self) -> int:
        """Bytes of a group of a row of A."""
        return GROUP * 2 + 4 * (not self.sparse)

    @property
    def b_group(self) -> int:
        """Bytes of 16 rows of B in a block."""
        return GROUP // 2 * LINE + LINE * (not self.sparse)

    def a_bytes(self, m: int, k: int) -> int:
        return m * (k // self.k) * self.groups * self.a_group

    def b_bytes(self, n: int, k: int) -> int:
        return -(-n // COLUMNS) * (k // GROUP) * self.b_group


def groups_for(key: DotKey, p: Profile) -> Groups:
    return Groups(element_type(key.stype or "ue8m0"), key.k, key.scale_blocks, key.sparse, p.fraction, p.floor)


def words(raw: Value) -> Value:
    """Twice the numbers that e2m1 elements are."""
    code = WORDS(raw) & 7
    size = maximum(code, maximum(code * 2 - 4, code * 4 - 16))
    negative = WORDS(0) - (WORDS(raw) >> 3 & 1)
    return (size ^ negative) - negative


def pack_a_groups(g: Groups, name: str) -> Native:
    """A function that packs raw A [m][lda]."""
    divide, size = 2 if g.sparse else 1, g.a_group

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        width = k // divide
        for i in range(m):
            for j in range(i64(0), width, GROUP):
                target = out + (i * width + j) // GROUP * size
                line = words(load(BYTES, raw + (i * lda + j)))
                store(line, target)
                if not g.sparse:
                    cast_ptr(u32, target)[GROUP // 2] = u32(mask_bits(line != 0))

    return Native(pack_a, name)


def pack_b_groups(g: Groups, name: str, rows: bool) -> Native:
    """A function that packs raw B [k][ldb] (rows) or [n][ldb]; columns beyond n are zeros."""

    def put(source: Value, pitch: Value, out: Value) -> None:
        lines = [load(BYTES, source + pitch * line) for line in range(GROUP)]
        rows_of_b = [words(line) for line in (lines if rows else transpose(lines))]
        if g.sparse:
            for number, row in enumerate(rows_of_b):
                store(row, out, number * COLUMNS * 2)
            return
        used = U(0)
        for number, row in enumerate(rows_of_b):
            used = used | select(row != 0, U(1 << number), U(0))
        for number, (low, high) in enumerate(zip(rows_of_b[::2], rows_of_b[1::2])):
            store(U(u16.vec(16)(low)) | U(u16.vec(16)(high)) << 16, out, number * LINE)
        store(used, out, GROUP // 2 * LINE)

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        room = stack(u8, GROUP * COLUMNS)
        fill_bytes(room, 0, GROUP * COLUMNS)
        at = ptr(out)
        for j in range(i64(0), n, COLUMNS):
            count = minimum(n - j, i64(COLUMNS))
            for r in range(i64(0), k, GROUP):
                source = raw + (r * ldb + j) if rows else raw + (j * ldb + r)
                pitch = i64(ldb)
                if count < COLUMNS:
                    down, across = (i64(GROUP), count) if rows else (count, i64(GROUP))
                    for line in range(down):
                        for x in range(across):
                            room[line * COLUMNS + x] = source[line * ldb + x]
                    source = ptr(room)
                    pitch = i64(COLUMNS)
                put(source, pitch, at)
                at = at + g.b_group

    return Native(pack_b, name)


def factors_function(g: Groups, name: str) -> Native:
    """A function that decodes 16 scale factors at a time: their values, and their exponents."""
    t = g.scale

    def factors(raw: ptr, count: i64, values: ptr_to(f64), exponents: ptr_to(i32)) -> None:
        for n in range(i64(0), count, 16):
            codes = U(load(BYTES, raw + n))
            if t.name == "ue8m0":  # exceeds f32's normal range
                exponent = I(codes) - 127
                value = select(codes == 255, D(float("nan")), power_of_two(exponent))
            else:
                decoded = Decoded(t, codes & 0x7F)
                value, exponent = D(decoded.value), select(decoded.zero, I(NONE), decoded.exponent)
            store(value, values + n)
            store(exponent, exponents + n)

    return Native(factors, name, OUTLINED)


def rows_function(g: Groups, name: str) -> Native:
    """A function for one instruction and up to ROWS rows by 16 columns, two rows at a time: state -> state.

    The last of an odd number of rows is computed twice.
    """
    groups, per_scale, blocks = g.groups, g.groups // g.blocks, g.blocks

    def sum_of(lines: list[Value], b: Value, indices: list[Value], s: Value) -> tuple[list[Value], list[Value]]:
        """For both rows the sums of a group, and whether one of its products is not zero."""
        if g.sparse:
            sums, any_bits = [WORDS(0), WORDS(0)], [WORDS(0), WORDS(0)]
            for j in range(GROUP):
                for n, (line, index) in enumerate(zip(lines, indices)):
                    own = WORDS(cast_ptr(i16, line + s * g.a_group)[j])
                    product = own * load(WORDS, b + i64(index[s * GROUP + j]) * (COLUMNS * 2))
                    sums[n], any_bits[n] = sums[n] + product, any_bits[n] | product
            return [I(total) for total in sums], [bits != 0 for bits in any_bits]
        sums, panel = [I(0), I(0)], b + s * g.b_group
        own = [cast_ptr(u32, line + s * g.a_group) for line in lines]
        for j in range(GROUP // 2):
            row = load(U, panel, j * LINE)
            sums = [total + products(U(line[j]), row) for total, line in zip(sums, own)]
        used = load(U, panel, GROUP // 2 * LINE)
        return sums, [(used & line[GROUP // 2]) != 0 for line in own]

    def rows_of(
        a: ptr, a_stride: i64, b: ptr, index: ptr_to(i32), index_stride: i64, state: ptr_to(f32), rows: i64,
        a_values: ptr_to(f64), a_exponents: ptr_to(i32), b_values: ptr_to(f64), b_exponents: ptr_to(i32),
    ) -> None:  # fmt: skip
        totals = stack(I, 2 * groups)
        for r in range(i64(0), rows, 2):
            at = [r, minimum(r + 1, rows - 1)]
            lines = [a + a_stride * i for i in at]
            indices = [index + index_stride * i for i in at]
            before = [load(F, state + COLUMNS * i) for i in at]
            fields = [I(bitcast(U, c) >> 23 & 0xFF) for c in before]
            largest = Slots([select(c == 0.0, I(g.floor), maximum(I(g.floor), maximum(field, I(1)) - 127))
                             for c, field in zip(before, fields)])  # fmt: skip
            for s in range(i64(0), i64(groups)):
                sums, used = sum_of(lines, b, indices, s)
                theirs = load(I, b_exponents + s // per_scale * COLUMNS)
                for n in unrolled(2):
                    store(sums[n], totals, s * 2 + n)
                    exponent = theirs + a_exponents[at[n] * blocks + s // per_scale]
                    largest.put_one(n, select(used[n], maximum(largest.get_one(n), exponent), largest.get_one(n)))
            for n in unrolled(2):
                top = largest.get_one(n)
                scale = power_of_two(g.fraction - top)
                whole = Slots([trunc(D(before[n]) * scale)])
                for s in range(i64(0), i64(groups)):
                    both = load(D, b_values + s // per_scale * COLUMNS) * (a_values[at[n] * blocks + s // per_scale] * 0.25)
                    whole.put_one(0, whole.get_one(0) + trunc(D(load(I, totals, s * 2 + n)) * (both * scale)))
                result = cut_to_single(whole.get_one(0) * power_of_two(top - g.fraction)) + 0.0
                store(select(result == result, result, bitcast(F, U(NAN))), state + COLUMNS * at[n])

    return Native(rows_of, name, OUTLINED, inner=True)


def dot_groups(g: Groups, name: str) -> Native:
    """A function that computes D = A B + C from packed operands and raw scale factors."""
    rows_of = rows_function(g, f"{name}_rows")
    factors = factors_function(g, f"twin_factors_{g.scale}")
    kk, blocks, sparse = g.k, g.blocks, g.sparse
    a_instruction, b_instruction, kept = g.groups * g.a_group, kk // GROUP * g.b_group, g.groups * GROUP

    def core(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        state = stack(f32, ROWS * COLUMNS)
        raw = stack(u8, ROWS * blocks)
        fill_bytes(raw, 0, ROWS * blocks)
        tables = [(stack(f64, COLUMNS * blocks), stack(i32, COLUMNS * blocks)) for _ in "ab"]
        instructions = k // kk
        flip = u32(0)
        if ((flags >> 1) ^ (flags >> 2)) & 1 != 0:
            flip = u32(SIGN)
        for j in range(i64(0), n, COLUMNS):
            count = minimum(n - j, i64(COLUMNS))
            for i in range(i64(0), m, ROWS):
                rows = minimum(m - i, i64(ROWS))
                for r in range(rows):
                    value = F(0.0)
                    if flags & 1 == 0:
                        value = masked_load(F, cast_ptr(f32, c) + ((i + r) * ldc + j), lanes(count), F(0.0))
                    store(bitcast(F, bitcast(U, value) ^ U(flip)), state + r * COLUMNS)
                for inst in range(instructions):
                    for r in range(rows):
                        own = scale_a + ((i + r) * instructions + inst) * blocks
                        for t in unrolled(blocks):
                            raw[r * blocks + t] = own[t]
                    factors(raw, rows * blocks, *tables[0])
                    for t in range(i64(0), i64(blocks)):
                        theirs = scale_b + ((inst * blocks + t) * n + j)
                        if count == COLUMNS:
                            store(load(BYTES, theirs), raw + t * COLUMNS)
                        else:
                            for x in range(count):
                                raw[t * COLUMNS + x] = theirs[x]
                    factors(raw, i64(COLUMNS * blocks), *tables[1])
                    at = i * instructions + inst
                    panel = b + j // COLUMNS * instructions * b_instruction
                    if not sparse:  # an index counts from the first row of all
                        panel = panel + inst * b_instruction
                    rows_of(
                        a + at * a_instruction, instructions * a_instruction, panel,
                        index + at * kept, instructions * kept, state, rows, *tables[0], *tables[1],
                    )  # fmt: skip
                for r in range(rows):
                    result = turned(load(F, state + r * COLUMNS), flip)
                    masked_store(result, cast_ptr(f32, d) + ((i + r) * ldd + j), lanes(count))

    inner = Native(core, f"{name}_core", OUTLINED)

    def dot(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64,
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), scale_a, scale_b)

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, scale_a, scale_b)

    return Native(dot_sparse if sparse else dot, name)
