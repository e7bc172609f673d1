"""Fused products with separate A and B, computed side by side: as many as fill the 64 columns of a row, 16 columns or more
each.

In plan.py one A serves all columns; here every 16 columns have a row of their own A. Exponents are treated in the same way: the
codes of adjacent rows of A are the four bytes of a word. A product of two elements is exact in f32 (22 bits at most); times
2**(F - emax), converted to an integer, it is trunc(p/q). So nothing has to be counted, and packing is cheap, which matters if a
packed operand is used once.

    A, row after row, of each chunk:    values [sides][L] f32 | exponent codes [L] | header
B is as in plan.py, without its last-bit codes. Relative codes refer to the largest exponent of a row of all A, and of all B.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, call-overload, misc, operator, index"

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mmulator.base.codegen.engine import has_feature
from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import (
    any_lane,
    bitcast,
    cast_ptr,
    fill_bytes,
    iota,
    load,
    masked_load,
    maximum,
    minimum,
    null,
    reduce_max,
    select,
    stack,
    store,
)  # fmt: skip
from mmulator.base.codegen.rounding import set_rounding
from mmulator.base.codegen.types import boolean, f32, i32, i64, ptr, ptr_to, u32
from mmulator.base.codegen.values import Value
from mmulator.matrix.numerics.profiles import DotKey, profile_for
from mmulator.matrix.twin.lines import shuffled
from mmulator.matrix.twin.pack import RAW, Decoded, any_special
from mmulator.matrix.twin.plan import A_BIAS, ROWS, WIDE_COLUMNS, Plan, plan_for
from mmulator.matrix.twin.slow import after_function, exact_vector, is_tiny, load_function, store_function
from mmulator.matrix.twin.tile import BYTES, OUTLINED, B, F, I, Slots, TileRow, U, rounded

COLUMNS = WIDE_COLUMNS
HALF = 16  # products whose sum is an i32 in any case


def stands_beside(plan: Plan) -> bool:
    """Whether products of a plan can be computed side by side."""
    return not (plan.sparse or plan.scaled)


def a_chunk(plan: Plan, sides: int) -> int:
    """Bytes of a chunk of one row of every A."""
    return plan.length * 4 * (sides + 1) + 8


class Rows(TileRow):
    """One row of every A, each with its own columns, for one chunk."""

    def __init__(self, plan: Plan, a: Value, state: Value, sides: int) -> None:
        super().__init__(plan, a, state, COLUMNS // 16)
        self.sides = sides
        self.values = cast_ptr(f32, a)
        self.exponents = cast_ptr(u32, a + plan.length * 4 * sides)
        self.header = cast_ptr(i32, a + plan.length * 4 * (sides + 1))

    def start(self) -> None:
        self.scales = [bitcast(F, U(254 << 23) - quantum) for quantum in self.quanta]
        self.sums = Slots([I(0) for _ in self.vectors])
        self.before: list[Value] = []

    def add_to(self, v: int, j: Value, value: Value) -> None:
        """Add product j to 16 columns. value: the row of B."""
        own = self.values[j + v * self.sides // 4 * self.plan.length]
        self.sums.put_one(v, self.sums.get_one(v) + I(value * F(own) * self.scales[v]))

    def put_by(self) -> None:
        """Save the sums before the next product might overflow, and start new ones."""
        self.before = self.sums.get()
        self.sums.put([I(0) for _ in self.vectors])

    def plus(self, x: Value, y: Value) -> Value:
        total = x + y
        if self.plan.wide_sum or self.plan.may_overflow:
            self.overflow = self.overflow | (((total ^ x) & (total ^ y)) < 0)
        return total

    def finish(self) -> list[Value]:
        """The rounded sums, as f32."""
        plan, results = self.plan, []
        self.overflow = B(boolean(0))
        for v, (quantum, scale) in enumerate(zip(self.quanta, self.scales)):
            total = self.plus(I(load(F, self.state, 16 * v) * scale), self.sums.get_one(v))
            if self.before:
                total = self.plus(total, self.before[v])
            results.append(rounded(plan, total, quantum))
        return results


def chunk_function(plan: Plan, sides: int, name: str) -> Native:
    """A function for a chunk of one instruction for `rows` rows of a tile, two at a time; the last of an odd number is computed
    twice.
    """
    length, order, pieces = plan.length, plan.order, [range(4)] if has_feature("avx512f") else [range(v, v + 1) for v in range(4)]
    row_bytes = plan.b_row(COLUMNS)
    slow = slow_function(plan, sides, f"{name}_slow")
    # where product j of a chunk lies in B: begin + step * j for an even j, and one further for the next
    begin, step = (order[1][0] if len(order) > 1 else 0), order[0][2] // 2

    def look(largest: Slots, rows: list[Rows], panel: Value, j: Value, u: int) -> None:
        codes = load(BYTES, panel + (j * step + u) * row_bytes, COLUMNS * 4)
        for n, row in enumerate(rows):
            largest.put_one(n, row.look(j + u, codes, largest.get_one(n)))

    def multiply(rows: list[Rows], panel: Value, j: Value, u: int, piece: range) -> None:
        for v in piece:
            value = load(F, panel + (j * step + u) * row_bytes, 16 * 4 * v)
            for row in rows:
                row.add_to(v, j + u, value)

    def put_by(rows: list[Rows]) -> None:
        for row in rows:
            row.put_by()

    def chunk(
        a: ptr, stride: i64, b: ptr, header: ptr_to(i32), which: i64, state: ptr_to(f32), rows: i64, tiny: ptr_to(u32)
    ) -> None:
        a = a + which * a_chunk(plan, sides)
        panel = b + which * (begin * row_bytes)
        last = rows - 1
        largest = Slots([TileRow.lowest(plan, BYTES)] * 2)
        lines = [Rows(plan, a + stride * i, state, sides) for i in [i64(0), minimum(i64(1), last)]]
        for j in range(i64(0), i64(length), 2):
            for u in unrolled(2):
                look(largest, lines, panel, j, u)
        for r in range(i64(0), rows, 2):
            at = [r, minimum(r + 1, last)]
            pair = [Rows(plan, a + stride * i, state + COLUMNS * i, sides) for i in at]
            following = [Rows(plan, a + stride * i, state, sides) for i in [minimum(r + 2, last), minimum(r + 3, last)]]
            lost = header[1] != 0
            for n in unrolled(2):
                bias = pair[n].header[1] + header[0] if plan.relative else None
                lost = lost | pair[n].align(largest.get_one(n), bias) | (tiny[at[n]] != 0) | (pair[n].header[0] != 0)
            largest.put([TileRow.lowest(plan, BYTES)] * 2)
            if lost:
                for j in range(i64(0), i64(length), 2):
                    for u in unrolled(2):
                        look(largest, following, panel, j, u)
            else:
                for row in pair:
                    row.start()
                for first in unrolled(0, length, HALF):
                    if first:
                        put_by(pair)
                    for piece in pieces:
                        for j in range(i64(first), i64(min(first + HALF, length)), 2):
                            for u in unrolled(2):
                                multiply(pair, panel, j, u, piece)
                                if piece == pieces[-1]:
                                    look(largest, following, panel, j, u)
                results = [row.finish() for row in pair]
                if plan.wide_sum or plan.may_overflow:
                    lost = any_lane(pair[0].overflow | pair[1].overflow)
                if ~lost:
                    for row, values in zip(pair, results):
                        for v in unrolled(4):
                            store(values[v], row.state, 16 * v)
            if lost:
                for i in range(r, minimum(r + 2, rows)):
                    tiny[i] = tiny[i] | slow(a + stride * i, b, state + COLUMNS * i, i32(which))

    return Native(chunk, name, OUTLINED, inner=True)


def slow_function(plan: Plan, sides: int, name: str) -> Native:
    """One row of every A for one chunk: state -> state. Returns 1 if a result is too small for later fast chunks."""
    row_bytes = plan.b_row(COLUMNS)

    def chunk(a: ptr, b: ptr, state: ptr_to(f32), which: i32) -> u32:
        tiny = u32(0)
        for v in range(i64(0), i64(COLUMNS // 16)):
            c = load(F, state, v * 16)
            own = a + v * sides // 4 * (plan.length * 4)
            result = exact_vector(plan, own, b + v * 64, null(i32), i64(row_bytes), c, which)
            tiny = tiny | u32(any_lane(is_tiny(plan, result)))
            store(result, state, v * 16)
        return tiny

    inner = Native(chunk, f"{name}_nearest", OUTLINED)

    def slow(a: ptr, b: ptr, state: ptr_to(f32), which: i32) -> u32:
        set_rounding("rn")
        tiny = inner(a, b, state, which)
        set_rounding("rz")
        return tiny

    return Native(slow, name, OUTLINED)


def dot_function(plan: Plan, sides: int, name: str) -> Native:
    """D = A B + C of packed operands for one instruction, in the rounding mode of `core` (fused.py) and with its parameters."""
    chunk = chunk_function(plan, sides, f"{name}_chunk")
    first = load_function(plan.c.name, f"twin_load_{plan.c}_{plan.of_c.symbol}", plan.of_c)
    finish = store_function(plan, f"twin_store_{plan.d}")
    after = after_function(plan, f"twin_after_{plan.d}_{plan.halves:d}") if plan.halves or plan.narrow_d else None
    c_size, d_size, chunks = plan.c.bits // 8, plan.d.bits // 8, len(plan.order)

    def dot(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr, steps_a: ptr_to(ptr), steps_b: ptr_to(ptr),
    ) -> None:  # fmt: skip
        state = stack(f32, ROWS * COLUMNS)
        other = stack(f32, ROWS * COLUMNS)
        tiny = stack(u32, ROWS)
        header = cast_ptr(i32, b + plan.k * plan.b_row(COLUMNS))
        stride = i64(chunks * a_chunk(plan, sides))
        for i in range(i64(0), m, ROWS):
            rows = minimum(m - i, i64(ROWS))
            first(c + i * ldc * c_size, ldc, state, i64(COLUMNS), rows, i64(COLUMNS), u32(0), tiny)
            here = state
            if plan.halves:
                fill_bytes(other, 0, ROWS * COLUMNS * 4)
                here = other
            for which in range(i64(0), i64(chunks)):
                chunk(a + i * stride, stride, b, header, which, here, rows, tiny)
            if plan.halves:
                after(here, state, rows * COLUMNS)
            elif plan.narrow_d:
                after(state, state, rows * COLUMNS)
            finish(d + i * ldd * d_size, ldd, here, i64(COLUMNS), rows, i64(COLUMNS), u32(0))

    return Native(dot, name)


def pack_a_function(plan: Plan, sides: int, name: str) -> Native:
    """A function that packs raw A [sides][m][lda]."""
    ty, length, chunk_bytes = RAW[max(plan.a.bits, 8)], plan.length, a_chunk(plan, sides)
    steps = range(0, plan.k, 16)

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        for i in range(m):
            at = out + i * (chunk_bytes * len(plan.order))
            parts = []
            for s in unrolled(sides):
                line = cast_ptr(ty, raw) + (m * s + i) * lda
                parts.append([decoded(plan, plan.a, ty, line + step, plan.k - step) for step in steps])
            everything = together(parts)
            top = largest_of(sizes_of(*everything)) if plan.relative else None
            for s in unrolled(sides):
                put(plan, sides, at, [d.value for d in parts[s]], s)
            put(plan, sides, at, [row_codes(row, top) for row in zip(*parts)], sides)
            lost = any_special(everything)
            for which in unrolled(len(plan.order)):
                header = cast_ptr(i32, at + (which * chunk_bytes + length * 4 * (sides + 1)))
                header[0] = i32(lost)
                header[1] = top if plan.relative else i32(0)

    return Native(pack_a, name)


def sizes_of(first: Decoded, *more: Decoded) -> Value:
    """For each lane the largest exponent of finite non-zero elements; -999 if there are none."""
    lanes = select(first.zero | first.special, I(-999), first.exponent)
    return maximum(lanes, sizes_of(*more)) if more else lanes


def largest_of(sizes: Value) -> Value:
    """The largest of these exponents; 0 if there are none."""
    top = reduce_max(sizes)
    return select(top == -999, i32(0), top)


def together(lists: list[list[Any]]) -> list[Any]:
    return [x for part in lists for x in part]


def row_codes(row: tuple[Decoded, ...], top: Value | None) -> Value:
    """Exponent codes of 16 elements of the same row of every A: each A fills as many bytes of a word as it has columns."""
    codes, bits = I(0), 32 // len(row)
    for n, part in enumerate(row):
        codes = codes | (part.codes(A_BIAS, top) << (bits * n))
    return codes * (0x01010101 & (1 << bits) - 1)


def put(plan: Plan, sides: int, row: Value, vectors: list[Value], number: int) -> None:
    """Macro: store words of a row along k, each at the place of number `number` in its chunk.

    plan, sides: the plan, and the number of A.
    row: the packed row.
    vectors: the words.
    number: their number within the chunk.
    """
    length = plan.length
    for which, order in enumerate(plan.order):
        for first in range(0, length, 16):
            (part,) = shuffled(lambda n: vectors[n], [[divmod(k, 16) for k in order[first : first + 16]]])
            store(part, row + (which * a_chunk(plan, sides) + (number * length + first) * 4))


def decoded(plan: Plan, t: Any, ty: Any, line: Value, count: int) -> Decoded:
    """Up to 16 elements along k; zero beyond `count`."""
    if count >= 16:
        raw = load(ty.vec(16), line)
    else:
        raw = masked_load(ty.vec(16), line, iota(U) < count, ty.vec(16)(0))
    return Decoded(t, U(raw), plan.emin(t))


@dataclass(frozen=True)
class Beside:
    """Native functions of products side by side; B is packed as for the twin."""

    pack_a: int
    dot: int
    a_row: int  # of a row of A


@lru_cache(maxsize=256)
def beside_for(key: DotKey, device: str, sides: int) -> Beside | None:
    """The functions of products side by side; None if the plan does not allow them. sides: 1, 2 or 4, each of 64 / sides
    columns.
    """
    p = profile_for(key, device)
    if p.method not in ("fused", "halves") or not stands_beside(plan := plan_for(key, p)):
        return None
    name = f"beside_{sides}_{plan.symbol}"
    pack_a, dot = pack_a_function(plan, sides, f"{name}_pack_a"), dot_function(plan, sides, f"{name}_dot")
    return Beside(address(pack_a), address(dot), len(plan.order) * a_chunk(plan, sides))
