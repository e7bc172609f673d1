"""Products whose sums are exact: plain f32 sums that have the bits of a fused dot product, and the proof that they have.

Let all products and C be multiples of 2**q, and let sum |a| |b| + |c| be less than 2**(q + kept), where a result keeps `kept`
significant bits. Then, for any number of instructions where D of one is C of the next:

- Each sum of some of these terms is a multiple of 2**q with at most `kept` significant bits. So neither the end of a chunk nor
  an f32 FMA rounds it, in any order of the terms.
- No term is truncated. A chunk truncates to multiples of 2**(emax - F). An exponent of C is at most q + kept - 1; one of a
  product too, if the largest |a| and |b| count as at least 2**emin, the exponent of subnormal elements. F is at least
  kept - 1, and the floor of emax is at most F above the least q.
- Zeros are +0: the first sum is C + 0, and x - x is +0 unless numbers are rounded down.
- Nothing is Inf, NaN or subnormal, if 2**q and the sum are numbers of the result's type with all their bits.

The sum is at most the number of products times the largest |a| times the largest |b|. Packing leaves a word of facts for
each 16 rows of A and each block of columns of B, of one instruction:
    bits 31 to 16: the 16 bits below the sign of an f32 that is no less than any |a|
    bits 15 to 8: last + LAST_BIAS, where all elements are multiples of 2**last; 0 if nothing is known
    bits 7 to 0: no part of it
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, call-overload, operator, index"

from typing import Any

from mmulator.base.codegen.engine import has_feature
from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import any_lane, bitcast, cast_ptr, load, maximum, minimum, reduce_max, reduce_min, select, store
from mmulator.base.codegen.rounding import strict
from mmulator.base.codegen.types import boolean, f32, f64, i32, i64, ptr, ptr_to, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.isa.types import ElementType
from mmulator.matrix.twin.plan import A_HEADER, LANE, Plan
from mmulator.matrix.twin.tile import INF, OUTLINED, B, F, I, Slots, U

LAST_BIAS = 160
MORE = 1 + 2.0**-30  # more than sums of f64 lose


def kept_bits(plan: Plan) -> int:
    """Significant bits of a result."""
    return 11 if plan.d.name == "f16" else plan.keep + 1


def reach(plan: Plan, t: ElementType) -> int:
    """How far the last bits of a matrix may be below its largest exponent, so that packing looks at all of it.

    That is half of what most results of the type have beside the number of products; less if random numbers of a type may be
    that near each other, but not all numbers.
    """
    half = (min(24, plan.fraction + 1) - (plan.products - 1).bit_length()) // 2
    whole = plan.top(t) - (t.emin - t.mantissa)
    return half if whole <= half else min(half, t.mantissa + 3)


def facts_function(plan: Plan, t: ElementType, lanes: int) -> Native:
    """A function that returns the word of facts about `count` lines of `width` f32, `stride` bytes apart. lanes: f32 at once.

    The first elements tell whether it has to look at the others: random numbers are thus sorted out.
    """
    most_apart, emin = reach(plan, t), plan.emin(t)
    words, signed, floats = u32.vec(lanes), i32.vec(lanes), f32.vec(lanes)

    def last_of(size: Value) -> Value:
        significand = size & 0x7FFFFF | 0x800000  # one bit too low for subnormals
        lowest = bitcast(words, floats(signed(significand & (0 - significand))))
        code = signed((size >> 23) + (lowest >> 23)) - (127 + 150 - LAST_BIAS)
        return select(size == 0, signed(999), code)

    def facts(at: ptr, count: i64, stride: i64, width: i64) -> u32:
        most = load(words, at) & 0x7FFFFFFF
        last = last_of(most)
        if i32(reduce_max(most) >> 23) - reduce_min(last) > 127 - LAST_BIAS + most_apart:
            return u32(0)
        for i in range(count):
            for v in range(i64(0), width, lanes):
                size = load(words, at + i * stride, v * LANE) & 0x7FFFFFFF
                most = maximum(most, size)
                last = minimum(last, last_of(size))
        largest = maximum(reduce_max(most), u32(emin + 127 << 23))
        least = minimum(reduce_min(last), i32(255))
        if least < 1 or largest >= INF:
            return u32(0)
        return (largest + 0x7FFF) >> 15 << 16 | u32(least) << 8

    return Native(facts, f"twin_facts_{lanes}_{most_apart}_{-emin}", OUTLINED)


def proof_function(plan: Plan, columns: int) -> Native:
    """A function that says whether `count` instructions have plain sums.

    at_a, headers: packed rows of A, and headers of B, of each instruction.
    state, rows: the accumulator, and the number of its rows.
    from_c: 0 if the accumulator is zero.
    """
    kept = kept_bits(plan)
    lowest, highest = (-24, 16) if plan.d.name == "f16" else (-126, 127)
    chunk, products = plan.a_chunk, plan.products

    def unit(bound: Value) -> Value:
        """The least q."""
        return maximum(i32(bitcast(u64, bound) >> 52) - (1022 + kept), i32(lowest))

    def proof(at_a: ptr_to(ptr), headers: ptr_to(ptr), count: i64, state: ptr_to(f32), rows: i64, from_c: u32) -> boolean:
        bound = f64(0.0)
        last = i32(999)
        for inst in range(count):
            x = cast_ptr(u32, at_a[inst] + (chunk - A_HEADER))[0]
            y = cast_ptr(u32, headers[inst])[2]
            if x < 256 or y == 0:
                return False
            bound = bound + f64(bitcast(f32, x >> 16 << 15)) * f64(bitcast(f32, y >> 16 << 15))
            last = minimum(last, i32(x >> 8 & 255) + i32(y >> 8 & 255) - 2 * LAST_BIAS)
        bound = bound * (products * MORE)
        if last < unit(bound):
            return False
        if from_c != 0:
            most = U(0)
            for v in range(i64(0), rows * columns, 16):
                most = maximum(most, bitcast(U, load(F, state, v)) & 0x7FFFFFFF)
            largest = reduce_max(most)
            if largest >= INF:
                return False
            bound = bound + f64(bitcast(f32, largest)) * MORE
            if last < unit(bound) or bound >= 2.0**highest:
                return False
            scale = bitcast(f32, u32(127 - unit(bound)) << 23)
            parts = B(boolean(0))
            for v in range(i64(0), rows * columns, 16):
                value = load(F, state, v) * scale
                parts = parts | (F(I(value)) != value)
            if any_lane(parts):
                return False
        return bound < 2.0**highest

    return Native(proof, f"twin_proof_{columns}_{kept}_{chunk}_{products}", OUTLINED)


def plain_function(plan: Plan, columns: int) -> Native:
    """A function that adds the products of `count` instructions to the accumulator.

    at_a, at_b: packed rows of A, and rows of B, of each instruction.
    state, rows: the accumulator, and the number of its rows.
    """
    vectors, length, row_bytes, chunks = columns // 16, plan.length, plan.b_row(columns), len(plan.order)
    wide = has_feature("avx512f")
    height = 4 if wide and vectors > 1 else 8 // (1 + (not wide))  # as many as the CPU's registers hold
    kept = vectors if wide else 1
    # where product j of a chunk lies: first * which + stride * j for an even j, and one further for the next
    first, stride = plan.step, plan.order[0][2] // 2

    def add(sums: Slots, lines: list[Value], b: Value, j: Value, u: int, group: int) -> None:
        row = b + (j * stride + u) * row_bytes
        values = [load(F, row, 16 * LANE * v) for v in range(group, group + kept)]
        for n, line in enumerate(lines):
            own = F(line[j + u])
            for v, value in enumerate(values):
                at = n * kept + v
                sums.put_one(at, strict("fma", F, value, own, sums.get_one(at)))

    def places(state: Value, at: list[Value], group: int) -> list[Any]:
        return [state + (columns * i + 16 * v) for i in at for v in range(group, group + kept)]

    def plain(at_a: ptr_to(ptr), at_b: ptr_to(ptr), count: i64, state: ptr_to(f32), rows: i64) -> None:
        for r in range(i64(0), rows, height):
            at = [minimum(r + i, rows - 1) for i in unrolled(height)]  # the last row is computed in place of missing ones
            for group in unrolled(0, vectors, kept):
                sums = Slots([load(F, place) + 0.0 for place in places(state, at, group)])
                for inst in range(count):
                    for which in range(i64(0), i64(chunks)):
                        a = at_a[inst] + which * plan.a_chunk
                        b = at_b[inst] + which * (first * row_bytes)
                        lines = [cast_ptr(f32, a + i * plan.a_instruction) for i in at]
                        for j in range(i64(0), i64(length), 2):
                            for u in unrolled(2):
                                add(sums, lines, b, j, u, group)
                for place, value in zip(places(state, at, group), sums.get()):
                    store(value, place)

    name = f"twin_plain_{columns}_{chunks}_{length}_{plan.halves:d}_{plan.a_chunk}_{row_bytes}"
    return Native(plain, name, OUTLINED, inner=True)
