"""Scalar arithmetic in exact rationals and Python integers, sharing nothing with the code it judges."""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Literal

Kind = Literal["number", "infinity", "nan"]


@dataclass(frozen=True)
class Format:
    """bits; mantissa (without the hidden bit); bias; nan: what arithmetic gives; infinite: not for e4m3 and smaller."""

    bits: int
    mantissa: int
    bias: int
    nan: int
    infinite: bool = True
    largest: int = 0  # magnitude bits of the greatest finite number, where there is no infinity

    @property
    def top(self) -> int:
        return self.largest or ((1 << (self.bits - 1 - self.mantissa)) - 1 << self.mantissa) - 1

    @property
    def infinity(self) -> int:
        return self.top + 1


F16, BF16 = Format(16, 10, 15, 0x7FFF), Format(16, 7, 127, 0x7FFF)
F32, F64 = Format(32, 23, 127, 0x7FFFFFFF), Format(64, 52, 1023, 0xFFF8000000000000)
TF32 = Format(19, 10, 127, 0x3FFFF)
E4M3, E5M2 = Format(8, 3, 7, 0x7F, False, 0x7E), Format(8, 2, 15, 0x7F)
E2M3, E3M2, E2M1 = Format(6, 3, 1, 0x1F, False, 0x1F), Format(6, 2, 3, 0x1F, False, 0x1F), Format(4, 1, 1, 7, False, 7)


@dataclass(frozen=True)
class Real:
    """An extended real with a sign of its own, so that zeros and infinities have one."""

    kind: Kind
    negative: bool
    value: Fraction = Fraction(0)  # of a number; its sign agrees with `negative`

    @property
    def zero(self) -> bool:
        return self.kind == "number" and not self.value


NAN, ZERO, ONE = Real("nan", False), Real("number", False), Real("number", False, Fraction(1))


def number(value: Fraction, negative: bool | None = None) -> Real:
    return Real("number", value < 0 if negative is None else negative, value)


def decode(bits: int, f: Format) -> Real:
    negative, magnitude = bool(bits >> (f.bits - 1) & 1), bits & (1 << (f.bits - 1)) - 1
    if magnitude > f.top:
        return Real("infinity", negative) if f.infinite and magnitude == f.infinity else NAN
    e, m = magnitude >> f.mantissa, magnitude & (1 << f.mantissa) - 1
    if e:
        m += 1 << f.mantissa
    value = m * Fraction(2) ** (max(e, 1) - f.bias - f.mantissa)
    return number(-value if negative else value, negative)


def rounded(value: Fraction, mode: str) -> int:
    """A rational to an integer: rn, rz, rm, rp, rna."""
    low = value.numerator // value.denominator
    rest = value - low
    if not rest or mode == "rm":
        return low
    if mode == "rp":
        return low + 1
    if mode == "rz":
        return low if value > 0 else low + 1
    half = Fraction(1, 2)
    if rest != half:
        return low + (rest > half)
    return low + (low & 1 if mode == "rn" else value > 0)


def floor_log2(value: Fraction) -> int:
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def encode(x: Real, f: Format, mode: str = "rn", *, ftz: bool = False, finite: bool = False) -> int:
    """Bits of x rounded to f. ftz: zero if subnormal after rounding with any exponent. finite: never infinite."""
    sign = x.negative << (f.bits - 1)
    if x.kind == "nan":
        return f.nan
    if x.zero:
        return sign
    if x.kind == "infinity":
        return sign | (f.top if finite or not f.infinite else f.infinity)
    e = floor_log2(abs(x.value))
    if ftz:
        unit = Fraction(2) ** (e - f.mantissa)
        if abs(rounded(x.value / unit, mode) * unit) < Fraction(2) ** (1 - f.bias):
            return sign
    e = max(e, 1 - f.bias)
    unit = Fraction(2) ** (e - f.mantissa)
    steps = abs(rounded(x.value / unit, mode))
    magnitude = steps + (e - (1 - f.bias) << f.mantissa)
    if magnitude > f.top:
        inward = mode == "rz" or mode == ("rp" if x.negative else "rm")
        magnitude = f.top if inward or finite or not f.infinite else f.infinity
    return sign | magnitude


def add(a: Real, b: Real, mode: str = "rn") -> Real:
    if "nan" in (a.kind, b.kind):
        return NAN
    if a.kind == b.kind == "infinity":
        return a if a.negative == b.negative else NAN
    if "infinity" in (a.kind, b.kind):
        return a if a.kind == "infinity" else b
    total = a.value + b.value
    if total:
        return number(total)
    return number(total, a.negative if a.negative == b.negative and a.zero and b.zero else mode == "rm")


def negate(a: Real) -> Real:
    return a if a.kind == "nan" else Real(a.kind, not a.negative, -a.value)


def multiply(a: Real, b: Real) -> Real:
    negative = a.negative != b.negative
    if "nan" in (a.kind, b.kind) or (a.zero and b.kind == "infinity") or (b.zero and a.kind == "infinity"):
        return NAN
    if "infinity" in (a.kind, b.kind):
        return Real("infinity", negative)
    return number(a.value * b.value, negative)


def divide(a: Real, b: Real) -> Real:
    negative = a.negative != b.negative
    if "nan" in (a.kind, b.kind) or (a.zero and b.zero) or a.kind == b.kind == "infinity":
        return NAN
    if a.kind == "infinity" or b.zero:
        return Real("infinity", negative)
    return number(Fraction(0) if b.kind == "infinity" else a.value / b.value, negative)


def square_root(a: Real) -> Real:
    """To 200 bits and a bit that says whether more follow: enough for any rounding."""
    if a.kind == "nan" or (a.negative and not a.zero):
        return NAN
    if a.kind == "infinity" or a.zero:
        return a
    shift = 2 * (200 - floor_log2(a.value) // 2)
    scaled = a.value * Fraction(2) ** shift
    root = isqrt(scaled.numerator // scaled.denominator)
    return number((root + Fraction(root * root != scaled, 2)) / Fraction(2) ** (shift // 2))


def arithmetic(operation: str, f: Format, mode: str, bits: tuple[int, ...], ftz: bool = False, sat: bool = False) -> int:
    """add, sub, mul, fma, div, sqrt on bits of f."""
    values = [decode(b, f) for b in bits]
    if ftz:
        tiny = Fraction(2) ** (1 - f.bias)
        values = [number(Fraction(0), v.negative) if v.kind == "number" and abs(v.value) < tiny else v for v in values]
    match operation, *values:
        case "add", a, b:
            x = add(a, b, mode)
        case "sub", a, b:
            x = add(a, negate(b), mode)
        case "mul", a, b:
            x = multiply(a, b)
        case "fma", a, b, c:
            x = add(multiply(a, b), c, mode)
        case "div", a, b:
            x = divide(a, b)
        case "sqrt", a:
            x = square_root(a)
        case _:
            raise ValueError(operation)
    if sat:
        if x.kind == "nan" or x.negative:
            return 0
        x = ONE if x.kind == "infinity" or x.value > 1 else x
    return encode(x, f, mode, ftz=ftz)


def to_integer(x: Real, bits: int, signed: bool, mode: str, nan: int) -> int:
    """cvt to an integer: rounded, then clamped; its bits."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if x.kind == "nan":
        return nan
    if x.kind == "infinity":
        result = low if x.negative else high
    else:
        result = min(max(rounded(x.value, mode), low), high)
    return result & (1 << bits) - 1
