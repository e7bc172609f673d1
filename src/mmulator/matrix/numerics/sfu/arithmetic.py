"""IEEE arithmetic of f32 in integers: every function takes and returns bits."""

from dataclasses import dataclass

NAN, NAN16, NAN64 = 0x7FFFFFFF, 0x7FFF, 0x7FFFFFFF  # the last of the high word of an f64
INFINITY, INFINITY64 = 0x7F800000, 0x7FF00000
SIGN = 0x80000000
HIDDEN = 1 << 23
FRACTION = HIDDEN - 1


def is_nan(bits: int) -> bool:
    """Whether the bits of an f32 are a NaN."""
    return bits & 0x7FFFFFFF > INFINITY


@dataclass(frozen=True)
class BinaryFormat:
    """A binary format. Every finite number is an integer times 2**-scale."""

    precision: int
    width: int
    nan: int

    @property
    def sign(self) -> int:
        return 1 << self.width - 1

    @property
    def infinity(self) -> int:
        return (1 << self.width - 1) - (1 << self.precision - 1)

    @property
    def scale(self) -> int:
        return (1 << self.width - self.precision - 1) - 3 + self.precision

    def integer(self, bits: int) -> int:
        """The value of a finite number, in units of 2**-scale."""
        e = (bits & self.sign - 1) >> self.precision - 1
        f = bits & (1 << self.precision - 1) - 1
        number = f | 1 << self.precision - 1 if e else f
        return (-1 if bits & self.sign else 1) * (number << max(e - 1, 0))

    def rounded(self, number: int, scale: int, negative_zero: bool = False, toward_zero: bool = False) -> int:
        """Bits of number * 2**-scale, rounded to nearest even or toward zero; subnormals are kept.

        number: an integer.
        scale: its scale.
        negative_zero: whether a zero result is negative.
        toward_zero: whether to round toward zero.
        """
        if number == 0:
            return self.sign if negative_zero else 0
        sign, number = (self.sign, -number) if number < 0 else (0, number)
        drop = max(number.bit_length() - self.precision, scale - self.scale)
        if drop <= 0:
            kept = number << -drop
        else:
            kept, rest, half = number >> drop, number & (1 << drop) - 1, 1 << drop - 1
            kept += not toward_zero and (rest > half or (rest == half and kept & 1))
        bits = kept + (drop - scale + self.scale << self.precision - 1)
        limit = self.infinity - 1 if toward_zero else self.infinity
        return sign | min(bits, limit)


F32 = BinaryFormat(24, 32, NAN)


def multiply(a: int, b: int, *, ftz: bool = False, toward_zero: bool = False) -> int:
    """FMUL of f32 bits. A NaN result is 0x7fffffff.

    a, b: the factors.
    ftz: whether subnormal operands are zeros of their sign. Results are then zeros too if their magnitude, rounded to 24 bits
        without regard to the range of exponents, is below 2**-126 (measured on an NVIDIA H200).
    toward_zero: whether to round toward zero instead of to nearest even.
    """
    if ftz:
        a, b = flushed(a), flushed(b)
    sign = (a ^ b) & SIGN
    magnitudes = (a & ~SIGN, b & ~SIGN)
    if max(magnitudes) > INFINITY or (INFINITY in magnitudes and 0 in magnitudes):
        return NAN
    if INFINITY in magnitudes:
        return sign | INFINITY
    product = F32.integer(a) * F32.integer(b)
    if ftz:
        wide = F32.rounded(abs(product) << 64, 2 * F32.scale, False, toward_zero)  # 2**64 times as large: no subnormal
        if wide < f32_bits(2.0**-62):
            return sign
    return F32.rounded(product, 2 * F32.scale, bool(sign), toward_zero)


def flushed(bits: int) -> int:
    """The bits of a number, or a zero of its sign if it is subnormal."""
    return bits if bits & INFINITY else bits & SIGN


def f32_bits(value: float) -> int:
    """Bits of a number that f32 represents."""
    numerator, denominator = value.as_integer_ratio()
    return F32.rounded(numerator, denominator.bit_length() - 1)


UP, DOWN = f32_bits(2.0**24), f32_bits(0.25)
INVERSE_TWO_PI = 0x3E22F983
