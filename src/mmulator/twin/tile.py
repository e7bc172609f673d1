"""The fast path of one chunk of a fused dot product: one row of A against 16 or 64 columns of B (idea: plan.py).

Everything here runs with the rounding mode set to toward zero.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

from mmulator.codegen.ops import absolute, any_lane, bitcast, cast_ptr, leading_zeros, load, maximum, minimum, select, shuffle
from mmulator.codegen.rounding import strict
from mmulator.codegen.types import boolean, f32, f64, i32, i64, u8, u32
from mmulator.codegen.values import WIDE, Value
from mmulator.twin.plan import A_BIAS, B_BIAS, HIGHEST, LOWEST, WINDOW, Plan

I, U, F, D, B = i32.vec(16), u32.vec(16), f32.vec(16), f64.vec(16), boolean.vec(16)
BYTES = u8.vec(64)
CLAMPED = A_BIAS + B_BIAS - WINDOW  # relative codes up to here may hide a smaller exponent
OUTLINED = f"noinline {WIDE}"
NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000


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
        self.largest = BYTES(u8(0 if plan.biased else lowest))

    def codes(self, pointer: Value, j: int) -> Value:
        return bitcast(BYTES, U(pointer[j]))

    def align(self, bias: Any) -> Value:
        """emax of all columns as powers of two; True if the fast path cannot serve them.

        bias, to be added to sums of codes: one i32 (relative), i32 lanes for each 16 columns (scaled), or None.
        """
        plan = self.plan
        self.bias = bias
        bad = boolean(0)
        if plan.relative:
            bad = self._absolute(bias)
        codes = bitcast(U, self.largest)
        fields = U(0)
        self.powers = []
        for v in self.vectors:
            at = 23 - 8 * v
            power = (codes << at if at >= 0 else codes >> -at) & INF
            if plan.scaled:
                power, lost = self._scaled(power, bias[v])
                bad = bad | lost
            c = bitcast(U, load(F, self.state, 16 * v))
            c_power = c & INF
            if plan.state.name == "f16" and not plan.widen_c:
                c_power = select((c & 0x7FFFFFFF) == 0, c_power, maximum(c_power, U(113 << 23)))
            power = maximum(power, c_power)
            if plan.scaled:  # the accumulator is aligned as unscaled products are
                bad = bad | any_lane(U(I(power >> 23) - bias[v] - LOWEST) > U(HIGHEST - LOWEST))
            self.powers.append(power)
            fields = fields | (power >> 23 << (8 * v))
        self.fields = bitcast(BYTES, fields)
        return bad | any_lane(self.fields > HIGHEST)

    def _absolute(self, bias: Value) -> Value:
        """Relative codes made f32 exponents; True if that leaves the bytes, or some exponent was clamped."""
        plan, codes = self.plan, self.largest
        clamped = (codes - (plan.zero_codes + 1)) < BYTES(u8(CLAMPED - plan.zero_codes))
        lost = any_lane(clamped | (codes > plan.top_codes))
        self.largest = select(codes > plan.zero_codes, codes + BYTES(u8(bias)), BYTES(u8(LOWEST)))
        return lost | (bias < LOWEST - CLAMPED - 1) | (bias > HIGHEST - plan.top_codes)

    def _scaled(self, power: Value, bias: Value) -> tuple[Value, Value]:
        field = power >> 23
        power = select(field > self.plan.zero_codes, power + U(bias << 23), U(LOWEST << 23))
        return power, any_lane((field > self.plan.top_codes) | (I(power) < LOWEST << 23))

    def start(self) -> None:
        """Accumulators, and the least last-bit code of an exact product."""
        plan = self.plan
        step = 52 - plan.fraction if plan.double else 23 - plan.fraction
        self.sums, self.bases = [], []
        bounds = U(0)
        for v, power in enumerate(self.powers):
            base = power + (step << 23 | 1 << 22)
            if plan.scaled:
                base = base - U(self.bias[v] << 23)
                bounds = bounds | (U(maximum(minimum(I(power >> 23) - self.bias[v], I(255)), I(0))) << (8 * v))
            self.bases.append(base)
            value = bitcast(F, base)
            self.sums.append(D(value) if plan.double else value)
        bound = bitcast(BYTES, bounds) if plan.scaled else self.fields
        if plan.relative:
            zero, most = i32(0), i32(255)
            bound = uadd_sat(bound, BYTES(u8(minimum(maximum(zero - self.bias, zero), most))))
            bound = usub_sat(bound, BYTES(u8(minimum(maximum(self.bias, zero), most))))
        self.bound = usub_sat(bound, BYTES(u8(plan.fraction)))
        self.inexact = BYTES(u8(0))

    def step(self, j: int, values: list[Value], row: Value) -> None:
        """Product j: add a * b, and count the inexact negative ones."""
        plan, ty = self.plan, D if self.plan.double else F
        a = ty(self.values[j])
        self.sums = [strict("fma", ty, b, a, s) for b, s in zip(values, self.sums)]
        last = load(BYTES, row + (len(self.vectors) * 16 * plan.lane + 64) + i64(self.offsets[j]))
        weight = uadd_sat(last, self.codes(self.lasts, j))
        self.inexact = select(weight < self.bound, self.inexact + 2, self.inexact)

    def finish(self) -> list[Value]:
        """The rounded sums, as f32."""
        plan = self.plan
        counts = bitcast(U, self.inexact)
        results = []
        self.overflow = B(boolean(0))
        for v, power in enumerate(self.powers):
            c = load(F, self.state, 16 * v)
            scale = bitcast(F, U((254 + plan.fraction) << 23) - power)
            total = I(c * scale) + I((counts >> (8 * v + 1)) & 127)
            if plan.double:
                halves = bitcast(i32.vec(32), self.sums[v])
                low = shuffle(halves, None, list(range(0, 32, 2)))
                total = total + low
                if plan.wide_sum:
                    high = shuffle(halves, None, list(range(1, 32, 2)))
                    start = shuffle(bitcast(i32.vec(32), D(bitcast(F, self.bases[v]))), None, list(range(1, 32, 2)))
                    fits = ((high - start) == (low >> 31)) & ((U(low) + 0x78000000) < 0xF0000000)
                    self.overflow = self.overflow | ~fits
            else:
                total = total + bitcast(I, self.sums[v]) - bitcast(I, self.bases[v])
            results.append(rounded_half(plan, total, power) if plan.state.name == "f16" else rounded(plan, total, power))
        return results


def uadd_sat(a: Value, c: Value) -> Value:
    return a.b.intrinsic("uadd.sat", a.ty, [a, c])


def usub_sat(a: Value, c: Value) -> Value:
    return a.b.intrinsic("usub.sat", a.ty, [a, c])


def rounded(plan: Plan, total: Value, power: Value) -> Value:
    """total * 2**(emax - F) toward zero to f32; no overflow, no subnormals in the range of the fast path."""
    value = strict("sitofp", F, total) * bitcast(F, power - (plan.fraction << 23))
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
