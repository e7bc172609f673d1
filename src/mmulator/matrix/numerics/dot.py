"""The exact model of one output element: plain integers, no tolerance, nothing fast. All else is tested against it.

A fused chunk (every float type but f64), for L products and C:
1. Operands are decoded exactly; subnormals keep exponent emin.
2. Products are exact and not renormalised; a product's exponent is the sum of its factors'.
3. emax is the largest exponent among the non-zero products, non-zero C, and the profile's floor.
4. Every term is truncated toward zero to F bits below emax; the sum of these is exact.
5. One rounding: toward zero to f32 (or to its first 13 mantissa bits), to nearest even to f16. A zero is +0.
6. K > L: chunks in ascending k, each rounded result being the next chunk's C.
NaN, Inf * 0 and Inf - Inf give the canonical NaN.

A sum is made of steps, and the steps are the record of it: `dot` is the result of the last (`element.py` tells them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.isa.types import F16, F32, F64, ElementType
from mmulator.matrix.numerics.formats import Mode, decode, element_type, encode, encode_ieee, infinity, integers
from mmulator.matrix.numerics.profiles import GROUP, DotKey, Profile, profile_for

MODES = {
    "rn": "nearest even", "rz": "toward zero", "rm": "down", "rp": "up", "wrap": "modulo 2^32", "clamp": "clamped to s32",
}  # fmt: skip
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

    @property
    def value(self) -> Fraction | float:
        """The exact value; NaN or an infinity as a float."""
        shift = self.exponent - self.fraction
        return self.special or Fraction(self.significand << max(shift, 0), 1 << max(-shift, 0))

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


@lru_cache(maxsize=1 << 14)
def term(t: ElementType, bits: int) -> Term:
    """One raw element of a float type."""
    f = decode(t, np.asarray(bits))
    sign = -1 if f.sign else 1
    if f.nan:
        return Term(special=float("nan"))
    if f.inf:
        return Term(special=sign * float("inf"))
    return Term(sign * int(f.significand), int(f.exponent), t.mantissa)


class Origin(NamedTuple):
    """The origin of a term of a step.

    kind: "product"; "c", the operand; "step", the result of an earlier step; "zero", a constant.
    number: k of a product (counted among those that are kept, if A is sparse), or the number of a step.
    """

    kind: Literal["product", "c", "step", "zero"]
    number: int = 0


@dataclass(frozen=True)
class Rounding:
    """How a sum becomes a result.

    dtype: type of the result.
    mode: rounding mode; "wrap" or "clamp" for s32.
    keep: mantissa bits that are kept, the others being zero; None for all.
    signed_zero: whether a negative sum that is rounded to zero is -0.
    ieee: whether an overflow that is rounded toward zero gives the largest finite number; else it gives an infinity.
    """

    dtype: str
    mode: Mode | Literal["wrap", "clamp"]
    keep: int | None = None
    signed_zero: bool = True
    ieee: bool = False

    def bits(self, total: int, quantum: int, zero: int = 0) -> int:
        """Bits of total * 2**quantum. zero: the sign of the result where total is 0."""
        if self.mode == "clamp":
            return max(-(1 << 31), min((1 << 31) - 1, total)) & 0xFFFFFFFF
        if self.mode == "wrap":
            return total & 0xFFFFFFFF
        t, sign = element_type(self.dtype), int(total < 0)
        if not total:
            return zero << (t.bits - 1)
        if self.ieee:
            return encode_ieee(t, sign, abs(total), quantum, self.mode)
        bits = encode(t, sign, abs(total), quantum, self.mode, self.keep)
        return 0 if bits == 1 << (t.bits - 1) and not self.signed_zero else bits


@dataclass(frozen=True)
class SumStep:
    """One operation: terms, truncated to multiples of 2**quantum, are added as integers; the sum is rounded once.

    operation: "sum" (truncates terms); the others are exact before they are rounded: "addition", "fma", "conversion",
        "integers" (with C), "bits" (counts ones, with C), and "group" (of products, not rounded but multiplied by `scale`).
    sources, terms: what is added, in order; for each what it is, and its value.
    rounding: how the sum becomes bits; None for a group.
    bits: the result; None for a group.
    quantum, total: the sum, total * 2**quantum; 0 where it is special.
    exponents: of each term of a "sum" the exponent that it is aligned by; None for a zero, which takes no part.
    emax: the largest of these and the profile's floor; None where nothing is truncated.
    special: sum of the terms that are NaN or infinite; 0 if there are none.
    zero: sign of the result where total is 0.
    scale: what a group is multiplied by.
    """

    operation: Literal["sum", "addition", "fma", "conversion", "integers", "bits", "group"]
    sources: tuple[Origin, ...]
    terms: tuple[Term, ...]
    rounding: Rounding | None
    bits: int | None
    quantum: int = 0
    total: int = 0
    exponents: tuple[int | None, ...] = ()
    emax: int | None = None
    special: float = 0.0
    zero: int = 0
    scale: Term | None = None

    @property
    def result(self) -> int:
        """The bits; not of a group."""
        assert self.bits is not None
        return self.bits

    @property
    def value(self) -> Fraction | float:
        """The value of the result."""
        if self.rounding is None or self.rounding.dtype == "s32":
            scale = self.scale.value if self.scale else 1
            total = self.total if self.bits is None else self.bits - ((self.bits >> 31) << 32)
            return total * Fraction(2) ** self.quantum * scale
        return term(element_type(self.rounding.dtype), self.result).value

    @property
    def kept(self) -> tuple[int, ...]:
        """Each term as a multiple of 2**quantum, truncated toward zero."""
        return tuple(t.truncated(self.quantum) for t in self.terms)


Terms = Sequence[tuple[Origin, Term]]


def step(
    operation: Literal["sum", "addition", "fma", "conversion", "integers", "bits"],
    addends: Terms,
    rounding: Rounding,
    p: Profile | None = None,
    *,
    aligned: Sequence[int | None] | None = None,
    zero: int = 0,
    nan: int = 0,
) -> SumStep:
    """Add terms, and round the sum.

    operation, rounding, zero: fields of the step.
    addends: what is added.
    p: the profile to whose fraction terms are truncated; None: the sum is exact.
    aligned: exponents that decide the largest, one for each term; default: those of terms that are not zero.
    nan: bits of a NaN; default: the canonical one.
    """
    sources, terms = tuple(s for s, _ in addends), tuple(t for _, t in addends)
    special = sum(t.special for t in terms if t.special)
    if special:
        t = element_type(rounding.dtype)
        bits = infinity(t, special < 0) if special == special else nan or NAN[rounding.dtype]
        return SumStep(operation, sources, terms, rounding, bits, special=special)
    if p is None:
        exponents: tuple[int | None, ...] = ()
        emax, quantum = None, min((t.exponent - t.fraction for t in terms if t.significand), default=0)
    else:
        exponents = tuple(t.exponent if t.significand else None for t in terms) if aligned is None else tuple(aligned)
        emax = max(e for e in (*exponents, p.floor) if e is not None)
        quantum = emax - p.fraction
    total = sum(t.truncated(quantum) for t in terms)
    return SumStep(
        operation, sources, terms, rounding, rounding.bits(total, quantum, zero), quantum, total, exponents, emax, zero=zero
    )  # fmt: skip


def rounding_of(p: Profile, dtype: str) -> Rounding:
    """The rounding of a fused sum: f32 toward zero keeping p.keep bits, f16 to nearest even; zero is +0."""
    return Rounding("f16", "rn", signed_zero=False) if dtype == "f16" else Rounding("f32", "rz", p.keep, signed_zero=False)


def fused(products: Terms, c: tuple[Origin, Term], p: Profile, dtype: str) -> SumStep:
    """One chunk: the rounded sum of the products and c."""
    return step("sum", [*products, c], rounding_of(p, dtype), p)


def add(x: tuple[Origin, int], y: tuple[Origin, int], dtype: str) -> SumStep:
    """An ordinary addition of two f32 or f16 numbers, to nearest even."""
    t = element_type(dtype)
    zero = x[1] >> (t.bits - 1) & y[1] >> (t.bits - 1)
    return step("addition", [(s, term(t, bits)) for s, bits in (x, y)], Rounding(dtype, "rn"), zero=zero)


def grouped(products: Terms, scales: Sequence[Term], c: tuple[Origin, Term], p: Profile, number: int) -> list[SumStep]:
    """Groups of 16 products summed exactly, times their scale; aligned with c by scale exponents alone; f32.

    number: that of the first of these steps.
    """
    out: list[SumStep] = []
    addends, exponents = [], []
    for g, scale in enumerate(scales):
        sources, members = zip(*products[g * GROUP : (g + 1) * GROUP], strict=True)
        fraction = members[0].fraction
        total = sum(t.truncated(-fraction) for t in members)  # e2m1 exponents are not negative, and there are no special values
        addends.append((
            Origin("step", number + g),
            Term(total * scale.significand, scale.exponent, fraction + scale.fraction, scale.special),
        ))  # fmt: skip
        exponents.append(scale.exponent if scale.significand and any(t.significand for t in members) else None)
        out.append(SumStep("group", sources, members, None, None, -fraction, total, special=scale.special, scale=scale))
    exponents.append(c[1].exponent if c[1].significand else None)
    return [*out, step("sum", [*addends, c], rounding_of(p, "f32"), p, aligned=exponents)]


def quiet_nan(*operands: int) -> int:
    """The first NaN among f64 operands, made quiet; 0 if there is none."""
    return next((x | 1 << 51 for x in operands if x & ~(1 << 63) > infinity(F64)), 0)


def fma(
    t: ElementType, product: tuple[Origin, Term], c: tuple[Origin, int], sign: int, mode: Mode = "rn", nan: int = 0
) -> SumStep:
    """IEEE fused multiply-add to f32 or f64.

    t: type of the result.
    product: the exact product.
    c: bits of the number that is added.
    sign: that of the product, which decides the sign of a zero.
    mode: rounding mode.
    nan: bits of a NaN; default: the canonical one.
    """
    c_sign = c[1] >> (t.bits - 1)
    zero = c_sign if c_sign == sign else int(mode == "rm")
    return step("fma", [product, (c[0], term(t, c[1]))], Rounding(t.name, mode, ieee=True), zero=zero, nan=nan)


def converted(c: tuple[Origin, int], given: ElementType, dtype: str) -> SumStep:
    """f16 as f32, or f32 rounded to nearest even as f16."""
    return step("conversion", [(c[0], term(given, c[1]))], Rounding(dtype, "rn"), zero=c[1] >> (given.bits - 1))


def software(key: DotKey, a: Sequence[int], b: Sequence[int], c: int, first: int, out: list[SumStep]) -> None:
    """mma.m8n8k4 where it is not native: f32 arithmetic to nearest even, as ptxas writes it. first: k of the first product."""

    def chain(start: int, positions: Sequence[int]) -> None:
        total = (Origin("zero"), start)
        for k in positions:
            product = Origin("product", first + k), term(F16, a[k]) * term(F16, b[k])
            out.append(fma(F32, product, total, (a[k] ^ b[k]) >> 15))
            total = _last(out)

    start = _last(out, c)
    if key.ctype == "f16":
        out.append(converted(start, F16, "f32"))
        start = _last(out)
    if key.dtype == "f32":
        chain(0, range(4))
        out.append(add(start, _last(out), "f32"))
        return
    for pair in SOFTWARE_PAIRS:  # each begins with a plain product
        chain(1 << 31, pair)
        out.append(add(start, _last(out), "f32"))
        start = _last(out)
    out.append(converted(start, F32, "f16"))


SOFTWARE_PAIRS = ((0, 1), (2, 3))


def _last(out: Sequence[SumStep], c: int = 0) -> tuple[Origin, int]:
    """Origin and bits of the last step's result; those of operand C before the first step."""
    return (Origin("step", len(out) - 1), out[-1].result) if out else (Origin("c"), c)


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
    return steps(key, device, a, b, c, sign=imm_scale_a * imm_scale_b, scale_a=scale_a, scale_b=scale_b)[-1].result


def steps(
    key: DotKey,
    device: str,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    sign: int = 1,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
    before: Sequence[SumStep] = (),
    first: int = 0,
) -> list[SumStep]:
    """The steps of one output element of one instruction, after those of earlier ones. The last has the result.

    key, device, a, b, scale_a, scale_b: as for `dot`.
    c: bits of C; where there are steps before, the result of the last is C.
    sign: imm_scale_a * imm_scale_b.
    before: steps of the instructions before.
    first: k of the first product.
    """
    p = profile_for(key, device)
    out = [*before]
    c_source, c = _last(out, c)
    atype, btype, ctype = element_type(key.atype), element_type(key.btype), element_type(key.ctype)
    if p.narrow_d:
        wide = replace(key, dtype="f32")
        out = steps(wide, device, a, b, c, sign=sign, scale_a=scale_a, scale_b=scale_b, before=out, first=first)
        return [*out, converted(_last(out), F32, "f16")]
    if p.method == "software":
        software(key, a, b, c, first, out)
        return out
    sources = [Origin("product", first + k) for k in range(len(a))]
    if p.method in ("bits", "integer"):
        xs, ys = integers(atype, np.asarray(a)).tolist(), integers(btype, np.asarray(b)).tolist()
        both = (x * y if p.method == "integer" or key.bit_op == "and" else x ^ y for x, y in zip(xs, ys, strict=True))
        addends = [*zip(sources, map(Term, both), strict=True), (c_source, Term(c - ((c >> 31) << 32)))]
        rounding = Rounding("s32", "clamp" if key.satfinite else "wrap")
        return [*out, step("bits" if p.method == "bits" else "integers", addends, rounding)]
    left, right = [term(atype, x) for x in a], [term(btype, y) for y in b]
    if p.method == "fma":
        for source, x, y, tx, ty in zip(sources, a, b, left, right, strict=True):
            nan = quiet_nan(y, c, x)
            out.append(fma(F64, (source, tx * ty), (c_source, c), (x ^ y) >> 63, key.rounding, nan))  # type: ignore[arg-type]
            c_source, c = _last(out)
        return out
    if p.method == "halves":  # as f16 numbers, few are subnormal
        left, right = [x.normalised(F16.emin) for x in left], [y.normalised(F16.emin) for y in right]
    products = [x * y for x, y in zip(left, right, strict=True)]
    if sign < 0:
        products = [t.negated() for t in products]
    if p.method == "groups":
        scales = group_scales(key, scale_a, scale_b)
        return [*out, *grouped([*zip(sources, products, strict=True)], scales, (c_source, term(F32, c)), p, len(out))]
    if scale_a:  # mxf8f6f4: one block an instruction, whose scale exponents join those of the products
        scale = group_scales(key, scale_a, scale_b)[0]
        products = [t * scale for t in products]
    terms = [*zip(sources, products, strict=True)]
    result = element_type(key.dtype)
    if p.method == "halves":
        out.append(fused([t for k, t in enumerate(terms) if k % 4 < 2], (Origin("zero"), Term()), p, key.dtype))
        source, d1 = _last(out)
        out.append(fused([t for k, t in enumerate(terms) if k % 4 >= 2], (source, term(result, d1)), p, key.dtype))
        return [*out, add(_last(out), (c_source, c), key.dtype)]
    if p.widen_c:
        out.append(converted((c_source, c), F16, "f32"))
        (c_source, c), ctype = _last(out), F32
    for start in range(0, len(terms), p.chunk):
        out.append(fused(terms[start : start + p.chunk], (c_source, term(ctype, c)), p, key.dtype))
        (c_source, c), ctype = _last(out), result
    return out


def group_scales(key: DotKey, scale_a: Sequence[int], scale_b: Sequence[int]) -> list[Term]:
    """The product of both scale factors, for each group of 16 products (one for the whole of mxf8f6f4)."""
    t = element_type(key.stype or "ue8m0")
    blocks = [term(t, x) * term(t, y) for x, y in zip(scale_a, scale_b, strict=True)]
    if key.kind == "mxf8f6f4":
        return blocks
    groups = key.products // GROUP
    return [blocks[g * len(blocks) // groups] for g in range(groups)]
