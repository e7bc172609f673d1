"""The compiled twin of `unit.py`: its functions on vectors of any number of lanes, as macros over Values.

If the result is the sum's highest bits, `short.py` computes in 32 bits. Otherwise a row of a table is one 64-bit word (C0, C1,
C2 side by side), so a vector of lanes needs one gather. Rounding to 24 bits by truncation goes through f64, which holds every
number here exactly, with the surplus bits masked off.
"""

from collections.abc import Sequence

from mmulator.base.codegen.ops import bitcast, fma, gather, is_nan, minimum, select
from mmulator.base.codegen.rounding import constant_table
from mmulator.base.codegen.types import boolean, f16, f32, f64, i32, i64, ptr_to, u16, u32, u64
from mmulator.base.codegen.values import Builder, Value, constant
from mmulator.matrix.numerics.sfu.arithmetic import FRACTION, HIDDEN, INFINITY, INFINITY64, NAN, NAN16, NAN64, SIGN
from mmulator.matrix.numerics.sfu.tables import Quadratic, Row, Tables, TanhTable
from mmulator.matrix.twin.sfu.short import lanes, short, split_sum, square, to

# Field widths of C1 and C2 in a packed row; C0 has the rest.
_WIDTHS = (19, 18)
_TANH_WIDTHS = (20, 18)
_TANH_SCALE = 39  # fraction bits that all rows of tanh are brought to
_TANH_C0_SHIFT = 14  # every D is a multiple of this power of two


def pack(row: Row, widths: tuple[int, int] = _WIDTHS) -> int:
    """(C0, C1, C2) as one word. Raises ValueError if a coefficient does not fit its field."""
    (c0, c1, c2), (w1, w2) = row, widths
    if not 0 <= c0 < 1 << 64 - w1 - w2 or c1 != _signed(c1, w1) or c2 != _signed(c2, w2):
        raise ValueError(f"coefficients {row} do not fit {64 - w1 - w2}, {w1} and {w2} bits")
    return c0 << w1 + w2 | (c1 & (1 << w1) - 1) << w2 | c2 & (1 << w2) - 1


def _signed(value: int, bits: int) -> int:
    return ((value + (1 << bits - 1)) & (1 << bits) - 1) - (1 << bits - 1)


def _rows(name: str, words: Sequence[int], index: Value) -> Value:
    """Words of a constant table, one a lane. index: u64 lanes, in range."""
    b: Builder = index.b
    symbol = constant_table(f"approx_{name}", i64, [_signed(w, 64) for w in words], b)
    at = b.emit(lanes(ptr_to(u64), index), f"getelementptr i64, ptr @{symbol}, {index.typed}")
    return gather(lanes(u64, index), at, constant(b, lanes(boolean, index), 1))


def _y(name: str, q: Quadratic, index: Value, x: Value, more: int = 0) -> Value:
    """The datapath's result, shifted by `more`, in u32 lanes, for a unit whose shifts do not depend on the parity."""
    return to(u32, short(name, q, index, x) >> q.out_shift[0] + more - q.c0_shift[0])


def _evaluate(words: Value, c0_shift: int, x: Value, sq: Value, added: int, widths: tuple[int, int] = _WIDTHS) -> Value:
    """(C0 << c0_shift) + C1 * x + C2 * sq + added, in i64 lanes."""
    w1, w2 = widths
    c0 = words >> (w1 + w2) << c0_shift
    packed = to(i64, words)
    c1 = packed << (64 - w1 - w2) >> (64 - w1)
    c2 = packed << (64 - w2) >> (64 - w2)
    total = to(i64, c0) + c1 * to(i64, x) + c2 * to(i64, sq)
    return total + added if added else total


def _sum(name: str, q: Quadratic, index: Value, x: Value) -> Value:
    """The datapath's result, all its bits, in f64 lanes, for a unit whose shifts do not depend on the parity."""
    c0, rest, up = split_sum(name, q, index, x, q.out_shift[0])
    return fma(to(f64, c0), 2.0**up, to(f64, to(u32, rest)))


def _fraction(bits: Value) -> tuple[Value, Value]:
    """(index of 6 bits, x of 17 bits) from a 23-bit fraction."""
    return bits >> 17 & 63, bits & 0x1FFFF


def _truncated(number: Value, scale: int) -> Value:
    """i64 lanes >= 0, below 2**53, times 2**-scale, as bits of f32 truncated to 24 bits. In range, or zero."""
    return _bits_of(to(f64, number), scale)


def _bits_of(exact: Value, scale: int) -> Value:
    """f64 lanes >= 0 times 2**-scale, as bits of f32 truncated to 24 bits. In range, or zero."""
    short = bitcast(lanes(f64, exact), bitcast(lanes(u64, exact), exact) & ~0x1FFFFFFF)
    return bitcast(lanes(u32, exact), to(f32, short) * 2.0**-scale)


def _parts(bits: Value) -> tuple[Value, Value, Value]:
    """(magnitude, biased exponent, whether the sign is set)."""
    return bits & 0x7FFFFFFF, bits >> 23 & 0xFF, bits >= SIGN


# reciprocal and roots ------------------------------------------------------------------------------------------------
def _no_subnormal(result: Value, smallest: int) -> Value:
    """The result, or zero if an exponent of 0 or less has made it smaller than the smallest normal number, read with
    its sign.
    """
    return select(bitcast(lanes(i32, result), result) < smallest, 0, result)


def rcp(bits: Value, tables: Tables) -> Value:
    magnitude, e, _ = _parts(bits)
    result = (252 - e << 23) + _y("rcp", tables.rcp, bits >> 16 & 127, bits & 0xFFFF)
    result = _no_subnormal(result, HIDDEN)
    result = select(e == 0, INFINITY, result) | bits & SIGN
    return select(magnitude > INFINITY, NAN, result)


def _root_specials(bits: Value, result: Value, of_zero: Value | int, of_infinity: int) -> Value:
    magnitude, e, negative = _parts(bits)
    result = select(magnitude == INFINITY, of_infinity, result)
    result = select(e == 0, of_zero, select(negative, NAN, result))
    return select(magnitude > INFINITY, NAN, result)


def _parity_index(bits: Value) -> Value:
    """Table index: odd exponents (even biased ones) use the upper half."""
    return (bits >> 17 & 127) ^ 64


def rsqrt(bits: Value, tables: Tables) -> Value:
    y = _y("rsqrt", tables.rsqrt, _parity_index(bits), bits & 0x1FFFF)
    y = select((bits & 0xFFFFFF) == HIDDEN, 1 << 24, y)
    half = (bits >> 23 & 0xFF) + 1 >> 1  # 64 + floor((e - 127) / 2)
    result = (125 + 64 - half << 23) + y
    return _root_specials(bits, result, bits & SIGN | INFINITY, 0)


def sqrt(bits: Value, tables: Tables) -> Value:
    q = tables.sqrt
    v = short("sqrt", q, _parity_index(bits), bits & 0x1FFFF)
    even, odd = (v >> shift - min(q.c0_shift) for shift in q.out_shift)
    v = select(bits & HIDDEN != 0, even, odd)
    half = (bits >> 23 & 0xFF) + 1 >> 1
    result = (126 - 64 + half << 23) + to(u32, v)
    return _root_specials(bits, result, bits & SIGN, INFINITY)


# exponential and logarithm -------------------------------------------------------------------------------------------
def ex2(bits: Value, tables: Tables) -> Value:
    x = bitcast(lanes(f32, bits), bits)
    near = select(x >= -126.0, x, -127.0)  # every result below 2**-126 is that of 2**-127, which encodes as +0
    near = select(near < 128.0, near, 128.0)  # and every one from 2**128 on encodes as infinity; a NaN goes with either
    fixed = to(i32, near * 2.0**23)  # toward zero
    # the one's complement of the fraction where there is one, below zero
    fixed = fixed + select(fixed & FRACTION != 0, fixed >> 31, 0)
    fraction = bitcast(lanes(u32, bits), fixed)
    y = _y("ex2", tables.ex2, *_fraction(fraction))
    result = bitcast(y.ty, (fixed >> 23) + 126 << 23) + y
    return select(is_nan(x), NAN, result)


def lg2(bits: Value, tables: Tables) -> Value:
    e = bits >> 23 & 0xFF
    total = fma(to(f64, to(i32, e) - 127), 2.0**36, _sum("lg2", tables.lg2, *_fraction(bits)))
    total = select(bits == 127 << 23, 0.0, total)
    negative = total < 0.0
    result = _bits_of(select(negative, -1.0 - total, total), 36) | select(negative, SIGN, constant(bits.b, bits.ty, 0))
    return _root_specials(bits, result, SIGN | INFINITY, INFINITY)


# trigonometry --------------------------------------------------------------------------------------------------------
SINE_SCALE = 37  # fraction bits of what sine_of_turns returns


def sine_of_turns(turns: Value, tables: Tables) -> Value:
    """Sines of u32 lanes of turns in units of 2**-25, as f32 times 2**SINE_SCALE. Whole turns count for nothing."""
    fraction = select(turns & HIDDEN != 0, ~turns, turns)
    negative = turns << 7 & SIGN  # bit 24: the quadrants 2 and 3
    return bitcast(lanes(f32, turns), _bits_of(_sum("sin", tables.sin, *_fraction(fraction)), 0) | negative)


def _sine(bits: Value, sign: Value, ahead: int, tables: Tables) -> Value:
    magnitude, e, _ = _parts(bits)
    significand = select(e == 0, 0, bits & FRACTION | HIDDEN)
    right = significand >> minimum(125 - e, 31)  # a "negative" count is large
    left = significand << minimum(e - 125, 31)
    turns = select(e < 125, right, left) + (ahead << 23)
    sine = bitcast(bits.ty, sine_of_turns(turns, tables) * 2.0**-SINE_SCALE)
    return select(magnitude >= INFINITY, NAN, sine ^ sign)


def sin(bits: Value, tables: Tables) -> Value:
    return _sine(bits, bits & SIGN, 0, tables)


def cos(bits: Value, tables: Tables) -> Value:
    return _sine(bits, constant(bits.b, bits.ty, 0), 1, tables)


def _tanh_words(table: TanhTable) -> list[int]:
    """Rows of tanh, at one scale. Several of D's low bits are zero."""
    words = []
    for d, c1, c2, scale in table.rows:
        up = 1 << _TANH_SCALE - scale
        d0, rest = divmod(d * up, 1 << _TANH_C0_SHIFT)
        if rest:
            raise ValueError(f"tanh: {d} is no multiple of 2**{_TANH_C0_SHIFT}")
        words.append(pack((d0, c1 * up, c2 * up), _TANH_WIDTHS))
    return words


def _nibbles(values: Sequence[int], e: Value) -> Value:
    """values[e], for values below 16, by shifting a constant."""
    word = sum(v << 4 * i for i, v in enumerate(values))
    return constant(e.b, e.ty, word) >> e * 4 & 15


def tanh(bits: Value, tables: Tables) -> Value:
    magnitude, e, _ = _parts(bits)
    binade = minimum(e - (127 - 8), 10)  # lanes out of range are replaced at the end
    wide = to(u64, binade)
    split = to(u32, _nibbles(tables.tanh.split, wide))
    low, high = ([row >> at & 15 for row in tables.tanh.first_row] for at in (0, 4))
    first = _nibbles(low, wide) + (_nibbles(high, wide) << 4)
    shifted = (bits & FRACTION) << split
    index = first + to(u64, shifted >> 23)
    x = shifted >> 6 & 0x1FFFF
    words = _rows("tanh", _tanh_words(tables.tanh), index)
    v = _evaluate(words, _TANH_C0_SHIFT, x, square(x), 0, _TANH_WIDTHS)
    result = _truncated(v, _TANH_SCALE) | bits & SIGN
    result = select(magnitude >= 130 << 23, 127 << 23 | bits & SIGN, result)
    result = select(magnitude < 119 << 23, bits, result)
    return select(magnitude > INFINITY, NAN, result)


# seeds of the f64 functions ------------------------------------------------------------------------------------------
def rcp64h(high: Value, tables: Tables) -> Value:
    magnitude, e = high & 0x7FFFFFFF, high >> 20 & 0x7FF
    f = high << 3 & FRACTION
    y = _y("rcp", tables.rcp, f >> 16, f & 0xFFFF, 3)
    result = (2044 - e << 20) + y
    result = _no_subnormal(result, 1 << 20)
    result = select(e == 0, INFINITY64, result) | high & SIGN
    return select(magnitude > INFINITY64, NAN64, result)


def rsqrt64h(high: Value, tables: Tables) -> Value:
    magnitude, e = high & 0x7FFFFFFF, high >> 20 & 0x7FF
    f = high << 3 & 0xFFFFFF  # parity of the exponent on top
    y = _y("rsqrt", tables.rsqrt, f >> 17 ^ 64, f & 0x1FFFF)
    y = select(f == HIDDEN, 1 << 24, y)
    half = e + 1 >> 1  # 512 + floor((e - 1023) / 2)
    result = (1021 + 512 - half << 20) + (y >> 3)
    result = select(magnitude == INFINITY64, 0, result)
    result = select(e == 0, high & SIGN | INFINITY64, select(high >= SIGN, NAN64, result))
    return select(magnitude > INFINITY64, NAN64, result)


# half types ----------------------------------------------------------------------------------------------------------
def f16_to_f32(half: Value) -> Value:
    """Bits of f16 (u16 lanes) as bits of f32 (u32 lanes); a NaN stays one."""
    return bitcast(lanes(u32, half), to(f32, bitcast(lanes(f16, half), half)))


def f32_to_f16_truncated(bits: Value) -> Value:
    magnitude, e, _ = _parts(bits)
    normal = magnitude - (112 << 23) >> 13
    small = (bits & FRACTION | HIDDEN) >> minimum(126 - e, 31)
    result = select(e >= 113, select(e >= 143, 0x7C00, normal), small) | bits >> 16 & 0x8000
    return to(u16, select(magnitude > INFINITY, NAN16, result))


def bf16_to_f32(half: Value) -> Value:
    return to(u32, half) << 16


def f32_to_bf16_truncated(bits: Value) -> Value:
    return to(u16, bits >> 16)
