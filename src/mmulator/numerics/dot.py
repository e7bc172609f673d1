"""The exact model of one output element: plain integers, no tolerance, nothing fast. All else is tested against it.

A fused chunk (every float type but f64), for L products and C:
1. Operands are decoded exactly; subnormals keep exponent emin.
2. Products are exact and not renormalised; a product's exponent is the sum of its factors'.
3. emax is the largest exponent among the non-zero products, non-zero C, and the profile's floor.
4. Every term is truncated toward zero to F bits below emax; the sum of these is exact.
5. One rounding: toward zero to f32 (or to its first 13 mantissa bits), to nearest even to f16. A zero is +0.
6. K > L: chunks in ascending k, each rounded result being the next chunk's C.
NaN, Inf * 0 and Inf - Inf give the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmulator.isa.types import F16, F32, F64, ElementType
from mmulator.numerics.formats import decode, element_type, encode, encode_ieee, infinity, integers
from mmulator.numerics.profiles import GROUP, DotKey, Profile, profile_for

NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "f64": 0xFFF8000000000000}


@dataclass(frozen=True)
class Term:
    """A term of a sum: significand * 2**(exponent - fraction) with a signed significand, or a special value."""

    significand: int = 0
    exponent: int = 0
    fraction: int = 0
    special: float = 0.0  # nan, inf, -inf

    def __mul__(self, other: Term) -> Term:
        if self.special or other.special:
            return Term(special=self._sign() * other._sign())
        exponent, fraction = self.exponent + other.exponent, self.fraction + other.fraction
        return Term(self.significand * other.significand, exponent, fraction)

    def _sign(self) -> float:
        """The part of the value that decides a special product: its sign, 0 for zero, or the special value."""
        return self.special or float((self.significand > 0) - (self.significand < 0))

    def truncated(self, quantum: int) -> int:
        """The value as a multiple of 2**quantum, truncated toward zero."""
        shift = self.exponent - self.fraction - quantum
        magnitude = abs(self.significand)
        magnitude = magnitude << shift if shift >= 0 else magnitude >> -shift
        return -magnitude if self.significand < 0 else magnitude

    def normalised(self, emin: int) -> Term:
        """An equal value with its leading bit at the exponent, if that is not below emin."""
        shift = min(self.fraction + 1 - abs(self.significand).bit_length(), self.exponent - emin)
        if self.significand == 0 or shift <= 0:
            return self
        return Term(self.significand << shift, self.exponent - shift, self.fraction, self.special)

    def negated(self) -> Term:
        return Term(-self.significand, self.exponent, self.fraction, -self.special if self.special else 0.0)


def term(t: ElementType, bits: int) -> Term:
    """One raw element of a float type."""
    f = decode(t, np.asarray(bits))
    sign = -1 if f.sign else 1
    if f.nan:
        return Term(special=float("nan"))
    if f.inf:
        return Term(special=sign * float("inf"))
    return Term(sign * int(f.significand), int(f.exponent), t.mantissa)


def fused(products: Sequence[Term], c: Term, p: Profile, dtype: str) -> int:
    """One chunk: bits of the rounded sum of the products and c."""
    result = F16 if dtype == "f16" else F32
    terms = [*products, c]
    special = sum(t.special for t in terms if t.special)
    if special != special:
        return NAN[dtype]
    if special:
        return infinity(result, special < 0)
    emax = max([t.exponent for t in terms if t.significand] + [p.floor])
    quantum = emax - p.fraction
    total = sum(t.truncated(quantum) for t in terms)
    return rounded(total, quantum, p, dtype)


def rounded(total: int, quantum: int, p: Profile, dtype: str) -> int:
    """total * 2**quantum as bits: f32 toward zero keeping p.keep bits, f16 to nearest even; zero is +0."""
    sign, magnitude = int(total < 0), abs(total)
    if dtype == "f16":
        bits = encode(F16, sign, magnitude, quantum, "rn")
        return 0 if bits == 0x8000 else bits
    bits = encode(F32, sign, magnitude, quantum, "rz", p.keep)
    return 0 if bits == 0x80000000 else bits


def add(x: int, y: int, dtype: str) -> int:
    """An ordinary addition of two f32 or f16 numbers, to nearest even."""
    t = F16 if dtype == "f16" else F32
    a, b = term(t, x), term(t, y)
    special = a.special + b.special
    if special != special:
        return NAN[dtype]
    if special:
        return infinity(t, special < 0)
    low = min(a.exponent, b.exponent) - t.mantissa
    total = a.truncated(low) + b.truncated(low)
    if total == 0:
        both_negative = x >> (t.bits - 1) and y >> (t.bits - 1)
        return 1 << (t.bits - 1) if both_negative else 0
    return encode(t, int(total < 0), abs(total), low, "rn")


def grouped(products: Sequence[Term], scales: Sequence[Term], c: Term, p: Profile) -> int:
    """Groups of 16 products summed exactly, times their scale; aligned with c by scale exponents alone; f32."""
    special = sum(t.special for t in [*scales, c] if t.special)  # e2m1 has no special values
    if special:
        return NAN["f32"] if special != special else infinity(F32, special < 0)
    groups = []
    for g, scale in enumerate(scales):
        members = products[g * GROUP : (g + 1) * GROUP]
        if scale.significand and any(t.significand for t in members):
            fraction = members[0].fraction
            total = sum(t.significand << t.exponent for t in members)  # e2m1 exponents are not negative
            groups.append(Term(total * scale.significand, scale.exponent, fraction + scale.fraction))
    emax = max([g.exponent for g in groups] + [c.exponent] * (c.significand != 0) + [p.floor])
    quantum = emax - p.fraction
    return rounded(sum(t.truncated(quantum) for t in [*groups, c]), quantum, p, "f32")


def quiet_nan(*operands: int) -> int:
    """The first NaN among f64 operands, made quiet; 0 if there is none."""
    return next((x | 1 << 51 for x in operands if x & ~(1 << 63) > infinity(F64)), 0)


def fma(t: ElementType, a: Term, b: Term, c_bits: int, product_sign: int, mode: str) -> int:
    """IEEE fused multiply-add to f32 or f64: a * b + c. product_sign decides the sign of a zero."""
    c = term(t, c_bits)
    product = a * b
    special = product.special + c.special
    if special != special:
        return NAN[t.name]
    if special:
        return infinity(t, special < 0)
    low = min(product.exponent - product.fraction, c.exponent - c.fraction)
    total = product.truncated(low) + c.truncated(low)
    if total == 0:
        c_sign = c_bits >> (t.bits - 1)
        return (c_sign if c_sign == product_sign else int(mode == "rm")) << (t.bits - 1)
    return encode_ieee(t, int(total < 0), abs(total), low, mode)  # type: ignore[arg-type]


def software(key: DotKey, a: Sequence[int], b: Sequence[int], c: int) -> int:
    """mma.m8n8k4 where it is not native: f32 arithmetic to nearest even, as ptxas writes it."""

    def chain(start: int, positions: Sequence[int]) -> int:
        total = start
        for k in positions:
            total = fma(F32, term(F16, a[k]), term(F16, b[k]), total, (a[k] ^ b[k]) >> 15, "rn")
        return total

    c = widened(c) if key.ctype == "f16" else c
    if key.dtype == "f32":
        return add(c, chain(0, range(4)), "f32")
    for pair in SOFTWARE_PAIRS:  # each begins with a plain product
        c = add(c, chain(1 << 31, pair), "f32")
    return narrowed(c)


SOFTWARE_PAIRS = ((0, 1), (2, 3))


def dot(
    key: DotKey,
    device: str,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
) -> int:
    """One output element of one instruction, all operands and the result as raw bits.

    key: the arithmetic of the instruction.
    device: name of the device.
    a, b: key.products elements each (b already selected when sparse; single bits for b1).
    c: an element of key.ctype.
    imm_scale_a, imm_scale_b: 1 or -1.
    scale_a, scale_b: key.scale_blocks scale factors.
    """
    p = profile_for(key, device)
    atype, btype = element_type(key.atype), element_type(key.btype)
    if p.method == "bits":
        both = sum(x & y if key.bit_op == "and" else x ^ y for x, y in zip(a, b, strict=True))
        return (c + both) & 0xFFFFFFFF
    if p.method == "integer":
        xs, ys = integers(atype, np.asarray(a)).tolist(), integers(btype, np.asarray(b)).tolist()
        total: int = sum(x * y for x, y in zip(xs, ys, strict=True)) + (c - ((c >> 31) << 32))
        if key.satfinite:
            total = max(-(1 << 31), min((1 << 31) - 1, total))
        return total & 0xFFFFFFFF
    if p.narrow_d:
        wide = dot(replace(key, dtype="f32"), device, a, b, c, imm_scale_a=imm_scale_a, imm_scale_b=imm_scale_b)
        return narrowed(wide)
    if p.method == "software":
        return software(key, a, b, c)
    left, right = [term(atype, x) for x in a], [term(btype, y) for y in b]
    if p.method == "fma":
        for x, y, tx, ty in zip(a, b, left, right, strict=True):
            c = quiet_nan(y, c, x) or fma(F64, tx, ty, c, (x ^ y) >> 63, key.rounding)
        return c
    if p.method == "halves":  # as f16 numbers, few are subnormal
        left, right = [x.normalised(F16.emin) for x in left], [y.normalised(F16.emin) for y in right]
    products = [x * y for x, y in zip(left, right, strict=True)]
    if imm_scale_a * imm_scale_b < 0:
        products = [t.negated() for t in products]
    ctype = element_type(key.ctype)
    if p.method == "groups":
        return grouped(products, group_scales(key, scale_a, scale_b), term(F32, c), p)
    if scale_a:  # mxf8f6f4: one block an instruction, whose scale exponents join those of the products
        scale = group_scales(key, scale_a, scale_b)[0]
        products = [t * scale for t in products]
    if p.method == "halves":
        first = [t for k, t in enumerate(products) if k % 4 < 2]
        second = [t for k, t in enumerate(products) if k % 4 >= 2]
        d1 = fused(first, Term(), p, key.dtype)
        result = element_type(key.dtype)
        return add(fused(second, term(result, d1), p, key.dtype), c, key.dtype)
    if p.widen_c:
        c, ctype = widened(c), F32
    for start in range(0, len(products), p.chunk):
        c = fused(products[start : start + p.chunk], term(ctype, c), p, key.dtype)
        ctype = element_type(key.dtype)
    return c


def group_scales(key: DotKey, scale_a: Sequence[int], scale_b: Sequence[int]) -> list[Term]:
    """The product of both scale factors, for each group of 16 products (one for the whole of mxf8f6f4)."""
    t = element_type(key.stype or "ue8m0")
    blocks = [term(t, x) * term(t, y) for x, y in zip(scale_a, scale_b, strict=True)]
    if key.kind == "mxf8f6f4":
        return blocks
    groups = key.products // GROUP
    return [blocks[g * len(blocks) // groups] for g in range(groups)]


def widened(half: int) -> int:
    """f16 bits as f32 bits."""
    t = term(F16, half)
    if t.special:
        return NAN["f32"] if t.special != t.special else infinity(F32, t.special < 0)
    sign = half >> 15
    return encode(F32, sign, abs(t.significand), t.exponent - t.fraction)


def narrowed(bits: int) -> int:
    """f32 bits rounded to nearest even as f16 bits."""
    t = term(F32, bits)
    if t.special:
        return NAN["f16"] if t.special != t.special else infinity(F16, t.special < 0)
    return encode(F16, bits >> 31, abs(t.significand), t.exponent - t.fraction, "rn")
