"""The special-function unit, exactly, one function per operation, in plain integers: the oracle of its compiled twin.

Every function takes and returns the bits of an f32 (or of the high word of an f64, of an f16 or of a bf16 if its name says so).
These functions are the unit alone; `sfu_instructions` has the code that an instruction adds around it.

The unit has one datapath: a table row chosen by the leading bits of the argument, and a quadratic in the 17 bits (16
for rcp) below them, in integers. Its form was first described for the G80 by the envytools project (nvhw/sfu.c).
"""

from mmulator.matrix.numerics.sfu.arithmetic import FRACTION, HIDDEN, INFINITY, INFINITY64, NAN, NAN16, NAN64, SIGN, is_nan
from mmulator.matrix.numerics.sfu.tables import Quadratic, Tables


def square(x: int) -> int:
    """x * x >> 19 for x < 2**18, but every partial-product row loses its bits below 2**18 before the rows are added."""
    return sum((x << i) >> 18 for i in range(18) if x >> i & 1) >> 1


def quadratic(q: Quadratic, index: int, x: int, odd: int = 0) -> int:
    """The datapath: row `index` of the table at x. odd: the parity of the exponent, where the shifts depend on it."""
    c0, c1, c2 = q.rows[index]
    total = (c0 << q.c0_shift[odd % len(q.c0_shift)]) + c1 * x + c2 * square(x << q.square_shift) + q.constant
    return total >> q.out_shift[odd % len(q.out_shift)]


def fields(bits: int) -> tuple[int, int, int]:
    """(sign bit in place, biased exponent, fraction) of an f32."""
    return bits & SIGN, bits >> 23 & 0xFF, bits & FRACTION


def truncated(sign: int, number: int, scale: int) -> int:
    """number * 2**-scale as an f32, truncated to 24 bits. Zero keeps the sign. The exponent must be in range."""
    if number == 0:
        return sign
    width = number.bit_length()
    significand = number >> (width - 24) if width > 24 else number << (24 - width)
    return sign | (width - 1 - scale + 127 - 1 << 23) + significand


# reciprocal and roots ------------------------------------------------------------------------------------------------
def rcp(bits: int, tables: Tables) -> int:
    """1/x. A subnormal input is a zero, and so is a result below 2**-126."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e == 0:
        return sign | INFINITY
    y = quadratic(tables.rcp, f >> 16, f & 0xFFFF)  # 2**23 .. 2**24, both included
    result = (252 - e << 23) + y
    return sign | (result if result >= HIDDEN and e < 255 else 0)


def _root_argument(e: int, f: int) -> tuple[int, int, int, int]:
    """(half the exponent, its parity, the table index, the bits below the index)."""
    odd = (e - 127) & 1
    return (e - 127) >> 1, odd, odd << 6 | f >> 17, f & 0x1FFFF


def rsqrt(bits: int, tables: Tables) -> int:
    """1/sqrt(x). A subnormal input is a zero; powers of 4 give exact results."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e == 0:
        return sign | INFINITY
    if sign:
        return NAN
    if e == 255:
        return 0
    half, odd, index, x = _root_argument(e, f)
    y = 1 << 24 if f == 0 and not odd else quadratic(tables.rsqrt, index, x)
    return (125 - half << 23) + y


def sqrt(bits: int, tables: Tables) -> int:
    """sqrt(x), from its own table. A subnormal input is a zero of its sign."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e == 0:
        return sign
    if sign:
        return NAN
    if e == 255:
        return INFINITY
    half, odd, index, x = _root_argument(e, f)
    return (126 + half << 23) + quadratic(tables.sqrt, index, x, odd)


# exponential and logarithm -------------------------------------------------------------------------------------------
def ex2(bits: int, tables: Tables) -> int:
    """2**x. No subnormal results: below 2**-126 the result is +0."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e >= 127 + 8:
        return 0 if sign else INFINITY
    significand = f | HIDDEN if e else 0
    fixed = significand << (e - 127) if e >= 127 else significand >> (127 - e)  # |x|, 23 fraction bits
    n, fraction = fixed >> 23, fixed & FRACTION
    if sign:
        n, fraction = (-n - 1, fraction ^ FRACTION) if fraction else (-n, 0)
    if n < -126:
        return 0
    if n > 127:
        return INFINITY
    return (126 + n << 23) + quadratic(tables.ex2, fraction >> 17, fraction & 0x1FFFF)


def lg2(bits: int, tables: Tables) -> int:
    """log2(x). A subnormal input is a zero."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e == 0:
        return SIGN | INFINITY
    if sign:
        return NAN
    if e == 255:
        return INFINITY
    if e == 127 and f == 0:
        return 0
    total = (e - 127 << 36) + quadratic(tables.lg2, f >> 17, f & 0x1FFFF)
    return truncated(SIGN, ~total, 36) if total < 0 else truncated(0, total, 36)


# trigonometry --------------------------------------------------------------------------------------------------------
def _quarter_turns(e: int, f: int) -> tuple[int, int]:
    """(quadrant in two bits, fraction in 23 bits, truncated) of 4 * |turns|; (0, 0) for an argument that is too large."""
    significand = f | HIDDEN if e else 0
    shift = e - 127 + 2
    fixed = significand << shift if shift >= 0 else significand >> -shift
    return fixed >> 23 & 3, fixed & FRACTION


def _sine(sign: int, quadrant: int, fraction: int, tables: Tables) -> int:
    if quadrant & 1:
        fraction ^= FRACTION
    y = quadratic(tables.sin, fraction >> 17, fraction & 0x1FFFF)
    return truncated(sign ^ (SIGN if quadrant & 2 else 0), y, 37)


def sin(bits: int, tables: Tables) -> int:
    """Sine of an angle in turns (the instruction multiplies by 1/2pi before)."""
    sign, e, f = fields(bits)
    if e == 255:
        return NAN
    return _sine(sign, *_quarter_turns(e, f), tables)


def cos(bits: int, tables: Tables) -> int:
    """Cosine of an angle in turns: the sine one quadrant on, of the magnitude."""
    _, e, f = fields(bits)
    if e == 255:
        return NAN
    quadrant, fraction = _quarter_turns(e, f)
    return _sine(0, quadrant + 1 & 3, fraction, tables)


def tanh(bits: int, tables: Tables) -> int:
    """tanh(x). Below 2**-8 it is x itself, subnormals too; from 8 on it is 1."""
    sign, e, f = fields(bits)
    if is_nan(bits):
        return NAN
    if e < 127 - 8:
        return bits
    if e >= 127 + 3:
        return sign | 127 << 23
    binade = e - (127 - 8)
    split = tables.tanh.split[binade]
    d, c1, c2, scale = tables.tanh.rows[tables.tanh.first_row[binade] + (f >> (23 - split))]
    x = (f << split & FRACTION) >> 6
    return truncated(sign, d + c1 * x + c2 * square(x), scale)


# seeds of the f64 functions ------------------------------------------------------------------------------------------
def _fields64(high: int) -> tuple[int, int, int]:
    """(sign bit in place, biased exponent, the 20 fraction bits of the high word as 23 bits)."""
    return high & SIGN, high >> 20 & 0x7FF, (high & 0xFFFFF) << 3


def rcp64h(high: int, tables: Tables) -> int:
    """High word of about 1/x, from the high word of x."""
    sign, e, f = _fields64(high)
    if e == 2047 and f:
        return NAN64
    if e == 0:
        return sign | INFINITY64
    result = (2044 - e << 20) + (quadratic(tables.rcp, f >> 16, f & 0xFFFF) >> 3)
    return sign | (result if result >= 1 << 20 and e < 2047 else 0)


def rsqrt64h(high: int, tables: Tables) -> int:
    """High word of about 1/sqrt(x), from the high word of x."""
    sign, e, f = _fields64(high)
    if e == 2047 and f:
        return NAN64
    if e == 0:
        return sign | INFINITY64
    if sign:
        return NAN64
    if e == 2047:
        return 0
    odd = (e - 1023) & 1
    y = 1 << 24 if f == 0 and not odd else quadratic(tables.rsqrt, odd << 6 | f >> 17, f & 0x1FFFF)
    return (1021 - (e - 1023 >> 1) << 20) + (y >> 3)


# half types: the f32 result, truncated toward zero --------------------------------------------------------------------
def f16_to_f32(half: int) -> int:
    """The number of an f16 as f32 bits (exact). NaN gives the canonical NaN."""
    sign, e, f = (half & 0x8000) << 16, half >> 10 & 0x1F, half & 0x3FF
    if e == 31:
        return NAN if f else sign | INFINITY
    if e:
        return sign | e + 112 << 23 | f << 13
    return truncated(sign, f, 24)


def f32_to_f16_truncated(bits: int) -> int:
    """f32 bits converted to f16 toward zero; 65536 and more becomes infinity. NaN gives 0x7fff."""
    if is_nan(bits):
        return NAN16
    sign, e, f = fields(bits)
    if e >= 127 + 16:
        return sign >> 16 | 0x7C00
    if e >= 127 - 14:
        return sign >> 16 | e - 112 << 10 | f >> 13
    return sign >> 16 | ((f | HIDDEN) >> (126 - e) if e else 0)


def ex2_f16(half: int, tables: Tables) -> int:
    return f32_to_f16_truncated(ex2(f16_to_f32(half), tables))


def tanh_f16(half: int, tables: Tables) -> int:
    return f32_to_f16_truncated(tanh(f16_to_f32(half), tables))


def ex2_bf16(half: int, tables: Tables) -> int:
    return ex2(half << 16, tables) >> 16


def tanh_bf16(half: int, tables: Tables) -> int:
    return tanh(half << 16, tables) >> 16
