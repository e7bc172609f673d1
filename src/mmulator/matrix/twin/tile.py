"""The fast path of one chunk of a fused dot product: one row of A against 16 or 64 columns of B (idea: plan.py).

Everything here runs with the rounding mode set to toward zero.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type"

from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.codegen.engine import has_feature
from mmulator.base.codegen.ops import (
    absolute,
    any_lane,
    bitcast,
    cast_ptr,
    concat,
    leading_zeros,
    load,
    maximum,
    minimum,
    select,
    shuffle,
)
from mmulator.base.codegen.rounding import strict
from mmulator.base.codegen.types import boolean, f16, f32, f64, i8, i32, i64, u8, u16, u32
from mmulator.base.codegen.values import WIDE, Value, constant
from mmulator.matrix.twin.plan import A_BIAS, A_HEADER, B_BIAS, HIGHEST, LANE, LOWEST, NEVER, WINDOW, Plan

I, U, F, D, B = i32.vec(16), u32.vec(16), f32.vec(16), f64.vec(16), boolean.vec(16)
BYTES, SIGNED, HALF = u8.vec(64), i8.vec(64), i8.vec(32)
CLAMPED = A_BIAS + B_BIAS - WINDOW  # relative codes up to here may hide a smaller exponent
OUTLINED = f"noinline {WIDE}"
NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000


class Slots:
    """Values that live across a run-time loop: a stack slot each, which LLVM turns into a register."""

    def __init__(self, start: list[Value]) -> None:
        self.slots = [value.b.alloca(value.ty) for value in start]
        self.put(start)

    def get_one(self, n: int) -> Value:
        return self.slots[n].b.load(self.slots[n].ty.to, self.slots[n])

    def put_one(self, n: int, value: Value) -> None:
        value.b.store(value, self.slots[n])

    def get(self) -> list[Value]:
        return [self.get_one(n) for n in range(len(self.slots))]

    def put(self, values: list[Value]) -> None:
        for n, value in enumerate(values):
            self.put_one(n, value)


@dataclass(frozen=True)
class Pass:
    """One loop over the products of a chunk for two rows: it adds to some strips, and looks at and counts some bytes.

    strips: strips of columns to which it adds.
    counts: (row, half of the bytes).
    looks: (row, piece of the bytes).
    """

    strips: range
    counts: list[tuple[int, int]]
    looks: list[tuple[int, int]]


def look_pieces() -> int:
    """Number of parts in which the bytes of a row are read: vectors of the CPU."""
    return 1 if has_feature("avx512f") else 2


def strips() -> int:
    """Number of parts in which 16 accumulators are kept. With AVX2, which has half of the registers, each is one register: a
    vector of B is loaded when it is used, not two at once before.
    """
    return 1 if has_feature("avx512f") else 2


def passes(plan: Plan, vectors: int) -> list[Pass]:
    """The loops over the products of a chunk: enough that each keeps its accumulators, for two rows, in the CPU's registers."""
    kept = 4 if has_feature("avx512f") else 1 + plan.counted
    loops = max(1, vectors // kept)
    counts = [(r, h) for r in range(2) for h in range(2) if plan.counted]
    looks = [(r, piece) for r in range(2) for piece in range(look_pieces())]
    each = vectors * strips() // loops
    return [Pass(range(each * n, each * (n + 1)), share(counts, n, loops), share(looks, n, loops)) for n in range(loops)]


def share(items: list[tuple[int, int]], n: int, of: int) -> list[tuple[int, int]]:
    return items[len(items) * n // of : len(items) * (n + 1) // of]


class TileRow:
    """One row of A against `vectors` * 16 columns of B, one chunk."""

    def __init__(self, plan: Plan, a: Value, state: Value, vectors: int) -> None:
        self.plan, self.a, self.state, self.vectors = plan, a, state, range(vectors)
        self.values = cast_ptr(f32, a)
        self.exponents = cast_ptr(u32, a + plan.length * 4)
        self.lasts = cast_ptr(u32, a + plan.length * 8)
        self.offsets = cast_ptr(i32, a + plan.length * 12)
        self.header = cast_ptr(i32, a + (plan.a_chunk - A_HEADER))

    @staticmethod
    def lowest(plan: Plan, ty: Any) -> Value:
        """Codes of an emax that is below every exponent of the types."""
        return ty(u8(0 if plan.biased else max(LOWEST, plan.floor + 127)))

    def look(self, j: Value, codes: Value, largest: Value) -> Value:
        """The largest sums of codes, including product j. codes: those of its row of B, or a part of them."""
        words = u32.vec(codes.ty.lanes // 4)  # no sum leaves its byte
        return maximum(largest, bitcast(codes.ty, bitcast(words, codes) + words(self.exponents[j])))

    def align(self, largest: Value, bias: Any) -> Value:
        """Set the quanta, 2**(emax - F), of all columns. Returns whether the fast path cannot serve them.

        largest: sums of codes. bias, to be added to them: one i32 (relative), i32 lanes for each 16 columns (scaled), or None.
        """
        self.bias = bias
        if self.plan.scaled:
            return self._align_scaled(largest, bias)
        bad = boolean(0)
        if self.plan.relative:
            largest, bad = self._absolute(largest, bias)
        fields = maximum(largest, self._state_fields())
        if len(self.vectors) < 4:  # the other bytes of a lane are of no column
            fields = bitcast(BYTES, bitcast(U, fields) & ((1 << 8 * len(self.vectors)) - 1))
        self.fields = fields
        words = bitcast(U, fields - BYTES(u8(self.plan.fraction)))
        self.quanta = [(words << 23 - 8 * v if v < 3 else words >> 1) & INF for v in self.vectors]
        return bad | any_lane(fields > HIGHEST)

    def _state_fields(self) -> Value:
        """Exponents of the accumulator, in bytes like codes."""
        fields = U(0)
        for v in self.vectors:
            c = bitcast(U, load(F, self.state, 16 * v))
            fields = fields | ((c >> 23 - 8 * v if v < 3 else c << 1) & (0xFF << 8 * v))
        found = bitcast(BYTES, fields)
        if self.plan.state.name == "f16" and not self.plan.widen_c:
            found = select(found == 0, found, maximum(found, BYTES(u8(113))))
        return found

    def _absolute(self, codes: Value, bias: Value) -> tuple[Value, Value]:
        """(relative codes as f32 exponents, whether some leave the range of bytes or were clamped)."""
        plan = self.plan
        clamped = (codes - (plan.zero_codes + 1)) < BYTES(u8(CLAMPED - plan.zero_codes))
        lost = any_lane(clamped | (codes > plan.top_codes))
        largest = select(codes > plan.zero_codes, codes + BYTES(u8(bias)), BYTES(u8(LOWEST)))
        return largest, lost | (bias < LOWEST - CLAMPED - 1) | (bias > HIGHEST - plan.top_codes)

    def _align_scaled(self, largest: Value, bias: list[Value]) -> Value:
        plan, codes, fields, bad = self.plan, bitcast(U, largest), U(0), boolean(0)
        self.quanta = []
        for v in self.vectors:
            field = (codes >> 8 * v) & 0xFF
            power = select(field > plan.zero_codes, (field << 23) + U(bias[v] << 23), U(LOWEST << 23))
            bad = bad | any_lane((field > plan.top_codes) | (I(power) < LOWEST << 23))
            power = maximum(power, bitcast(U, load(F, self.state, 16 * v)) & INF)
            # the accumulator is aligned as unscaled products are
            bad = bad | any_lane(U(I(power >> 23) - bias[v] - LOWEST) > U(HIGHEST - LOWEST))
            self.quanta.append(power - (plan.fraction << 23))
            fields = fields | (power >> 23 << (8 * v))
        self.fields = bitcast(BYTES, fields)
        return bad | any_lane(self.fields > HIGHEST)

    def start(self) -> None:
        """Start the sums with the accumulator, and compute the factor of products, or the numbers that detect inexact ones."""
        sums, self.scales = [], []
        for v, quantum in enumerate(self.quanta):
            if self.plan.counted:
                sums += parts(bitcast(F, quantum + (23 << 23 | 1 << 22)), strips())
                continue
            scale = U(254 << 23) - quantum
            before = I(load(F, self.state, 16 * v) * bitcast(F, scale))
            if self.plan.scaled:
                scale = scale + U(self.bias[v] << 23)
            sums += parts(before, strips())
            self.scales += parts(bitcast(F, scale), strips())
        if self.plan.wide_sum:  # of every other product, so that half of them cannot wrap
            sums += [value.ty(0) for value in sums]
        self.sums = Slots(sums)
        if self.plan.counted:
            bound = usub_sat(self.fields, BYTES(u8(self.plan.unit)))  # the least sum of last-bit codes of an exact product
            bound = bitcast(SIGNED, minimum(bound, BYTES(u8(NEVER))) ^ 0x80)
            self.bounds = [shuffle(bound, None, list(range(n, n + 32))) for n in (0, 32)]
            self.inexact = Slots([HALF(i8(0)) for _ in self.bounds])

    def add(self, j: Value, u: int, strip: int, value: Value) -> None:
        """Add product j, a * b, to the columns of a strip.

        j, u: number of the product, and whether it is odd.
        strip: the strip.
        value: the row of B.
        """
        if self.plan.counted:
            self.sums.put_one(strip, strict("fma", value.ty, value, value.ty(self.values[j]), self.sums.get_one(strip)))
            return
        at = strip + u * len(self.scales) if self.plan.wide_sum else strip
        product = value * value.ty(self.values[j]) * self.scales[strip]
        self.sums.put_one(at, self.sums.get_one(at) + i32.vec(value.ty.lanes)(product))

    def count(self, j: Value, row: Value, h: int) -> None:
        """Count product j if it is inexact and negative, in half h of the bytes."""
        at = row + (len(self.vectors) * 16 * LANE + 64) + i64(self.offsets[j])
        own = bitcast(HALF, u32.vec(8)(self.lasts[j]))
        below = load(HALF, at, 32 * h) + own < self.bounds[h]
        self.inexact.put_one(h, self.inexact.get_one(h) - minus_one(HALF, below))

    def finish(self) -> list[Value]:
        """The rounded sums, as f32."""
        plan, vectors = self.plan, len(self.vectors)
        totals = joined(self.sums.get(), strips())
        if plan.wide_sum:
            pairs = list(zip(totals[:vectors], totals[vectors:]))
            totals = [x + y for x, y in pairs]
            wrapped = [(x ^ total) & (y ^ total) for (x, y), total in zip(pairs, totals)]
            self.overflow = any_of([w < 0 for w in wrapped])
        if plan.counted:
            counts = bitcast(U, shuffle(self.inexact.get_one(0), self.inexact.get_one(1), list(range(64))))
            for v, (total, quantum) in enumerate(zip(totals, self.quanta)):
                before = I(load(F, self.state, 16 * v) * bitcast(F, U(254 << 23) - quantum))
                own = bitcast(I, total) - bitcast(I, quantum + (23 << 23 | 1 << 22))
                totals[v] = before + own + I((counts >> (8 * v)) & 255)
        return [rounded(plan, total, quantum) for total, quantum in zip(totals, self.quanta)]


def parts(vector: Value, count: int) -> list[Value]:
    """The lanes of a vector in `count` vectors."""
    width = vector.ty.lanes // count
    return [vector] if count == 1 else [shuffle(vector, None, list(range(n, n + width))) for n in range(0, count * width, width)]


def joined(vectors: list[Value], count: int) -> list[Value]:
    """Groups of `count` vectors as one vector each. count: a power of two."""
    while count > 1:
        lanes = list(range(2 * vectors[0].ty.lanes))
        vectors = [shuffle(x, y, lanes) for x, y in zip(vectors[::2], vectors[1::2])]
        count //= 2
    return vectors


def minus_one(ty: Any, mask: Value) -> Value:
    """-1 if the mask is true, otherwise 0: the result of a comparison of less than 64 bytes without a mask register."""
    return mask.b.emit(ty, f"sext {mask.typed} to {ty.llvm}")


def usub_sat(a: Value, c: Value) -> Value:
    return a.b.intrinsic("usub.sat", a.ty, [a, c])


def any_of(masks: list[Value]) -> Value:
    total = masks[0]
    for m in masks[1:]:
        total = total | m
    return total


def rounded(plan: Plan, total: Value, quantum: Value) -> Value:
    """total quanta rounded toward zero to f32 (without overflow or subnormals in the range of the fast path), or to nearest to
    f16.
    """
    if plan.state.name == "f16":
        return rounded_half(total, quantum)
    value = strict("sitofp", F, total) * bitcast(F, quantum)
    return value if plan.keep == 23 else keep_bits(plan, value)


def keep_bits(plan: Plan, value: Value) -> Value:
    return bitcast(F, bitcast(U, value) & (0xFFFFFFFF << (23 - plan.keep) & 0xFFFFFFFF))


def rounded_half(total: Value, quantum: Value) -> Value:
    """total quanta to nearest even to f16, as f32, whatever the rounding mode."""
    if not has_feature("f16c"):
        return rounded_half_in_integers(total, quantum)
    cut = strict("sitofp", F, total)
    odd = bitcast(U, cut) | select(I(cut) == total, U(0), U(1))  # what was cut is kept as a last bit: it is rounded once more
    value = bitcast(F, odd) * bitcast(F, quantum)
    nearest = constant(value.b, i32, 0)
    halves = [value.b.call("llvm.x86.vcvtps2ph.256", u16.vec(8), [part, nearest]) for part in parts(value, 2)]
    return F(bitcast(f16.vec(16), concat(halves))) + 0.0


def rounded_half_in_integers(total: Value, quantum: Value) -> Value:
    """`rounded_half` on a CPU that has no conversion with a rounding mode of its own."""
    magnitude = U(absolute(total))
    unit = I(quantum >> 23) - 127  # exponent of the last bit of total
    top = 31 - I(leading_zeros(magnitude | 1))
    drop = U(maximum(maximum(top, I(-14) - unit) - 10, I(0)))
    half = (U(1) << drop) >> 1
    odd = (magnitude >> drop) & 1
    kept = (magnitude + select(drop != 0, half - 1 + odd, U(0))) >> drop
    bits = bitcast(U, F(I(kept)) * bitcast(F, quantum + (drop << 23)))
    bits = select(bits >= 0x47800000, U(INF), bits)
    return bitcast(F, select(kept == 0, U(0), bits | (U(total) & SIGN)))
