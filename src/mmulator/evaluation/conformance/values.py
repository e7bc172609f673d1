"""Operands that are hard to get right: raw elements of A, B and C for each kind of difficulty.

A `MatrixProblem` says what is multiplied and how the device adds (F, floor), so that terms can be put on the edges of its
truncation. `operands(stream, kind, problem, count)` gives a [count, M, columns of A], b [count, K, N], c [count, M, N].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.stream import Int, RandomStream
from mmulator.isa.types import ElementType
from mmulator.matrix.numerics.formats import container, from_raw

Array = NDArray[Any]
Three = tuple[Array, Array, Array]


@dataclass(frozen=True)
class MatrixProblem:
    """Shapes, types, and the arithmetic whose edges are wanted.

    columns: of A as stored (K / 2 when sparse).
    fraction: F of the profile.
    floor: least exponent of the alignment.
    keep: mantissa bits of a result.
    """

    m: int
    n: int
    k: int
    columns: int
    atype: ElementType
    btype: ElementType
    ctype: ElementType
    dtype: ElementType
    fraction: int = 25
    floor: int = -133
    keep: int = 23


# Floats --------------------------------------------------------------------------------------------------------------
def _width(t: ElementType) -> int:
    return t.bits - 1 - t.exponent  # tf32 has 23 stored bits, of which it reads 10


def _word(t: ElementType) -> Any:
    return np.uint64 if t.bits == 64 else np.uint32


def _raw(s: RandomStream, t: ElementType, *shape: int) -> Array:
    return s.doubles(*shape) if t.bits == 64 else s.words(*shape)


def number(t: ElementType, sign: Array, exponent: Array, fraction: Array) -> Array:
    """Raw elements (-1)**sign * 1.fraction * 2**exponent; below the normal numbers as subnormals, above as the largest.

    sign: words whose lowest bit counts.
    exponent: int32.
    fraction: words whose low mantissa bits count.
    """
    word, width = _word(t), _width(t)
    top = (1 << t.exponent) - (2 if t.nan == "ieee" else 1)
    field = exponent.astype(np.int32) + np.int32(t.bias)
    mantissa = fraction.astype(word, copy=False) & word((1 << width) - 1)
    low = np.clip(1 - field, 0, width + 2).astype(word)
    mantissa = np.where(field >= 1, mantissa, (mantissa | word(1 << width)) >> low)
    if t.nan == "all_ones":  # the largest exponent has numbers too, all but one of them
        mantissa = np.where((field >= top) & (mantissa == word((1 << width) - 1)), word((1 << width) - 2), mantissa)
    bits = np.clip(field, 0, top).astype(word) << word(width) | mantissa
    return (bits | (sign.astype(word) & word(1)) << word(t.bits - 1)).astype(container(t))


def _spread(s: RandomStream, t: ElementType, low: int, high: int, *shape: int) -> Array:
    """Random signs and fractions, exponents from low to high."""
    raw = _raw(s, t, *shape)
    return number(t, raw >> raw.dtype.type(t.bits - 1 if t.bits >= 32 else 31), s.between(low, high, *shape), raw)


def _zeroed(s: RandomStream, p: float, x: Array, t: ElementType) -> Array:
    """Elements of which the part p is set to zero, with the signs they had."""
    sign = x & x.dtype.type(1 << (t.bits - 1))
    return np.where(s.chance(p, *x.shape), sign, x)


def _shapes(p: MatrixProblem, count: int) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]:
    return (count, p.m, p.columns), (count, p.k, p.n), (count, p.m, p.n)


def _top(p: MatrixProblem) -> int:
    """An exponent that a product may have without overflowing the result."""
    return 8 if p.dtype.name == "f16" else 20


def _range(t: ElementType) -> tuple[int, int]:
    """Exponents of the least subnormal and of the largest number."""
    return t.emin - t.mantissa, (1 << t.exponent) - (2 if t.nan == "ieee" else 1) - t.bias


def _each(
    s: RandomStream, p: MatrixProblem, count: int, low: Callable[[ElementType], int], high: Callable[[ElementType], int]
) -> Three:
    a, b, c = (_spread(s, t, low(t), high(t), *shape) for t, shape in zip((p.atype, p.btype, p.ctype), _shapes(p, count)))
    return a, b, c


def bits(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Random bits: everything that can be written, Inf and NaN with it."""
    a, b, c = (
        _raw(s, t, *shape).astype(container(t)) & container(t).type((1 << t.bits) - 1)
        for t, shape in zip((p.atype, p.btype, p.ctype), _shapes(p, count))
    )
    return a, b, c


def near(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Near one: full precision, little alignment."""
    return _each(s, p, count, lambda t: -2, lambda t: 2)


def wide(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Every exponent, from subnormals up; the sum seldom overflows."""
    top = _range(p.dtype)[1] // 2 - 3
    return _each(s, p, count, lambda t: _range(t)[0], lambda t: min(_range(t)[1], top))


def powers(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Powers of two and zeros: sums that cancel exactly."""
    parts = []
    for t, shape in zip((p.atype, p.btype, p.ctype), _shapes(p, count)):
        x = number(t, s.words(*shape), s.between(-3, 3, *shape), np.zeros(1, _word(t)))
        parts.append(_zeroed(s, 0.1, x, t))
    return parts[0], parts[1], parts[2]


def subnormal(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Mostly subnormal operands, and results that are."""
    a, b, c = _each(s, p, count, lambda t: _range(t)[0], lambda t: t.emin)
    large = s.chance(0.3, *b.shape)
    lift = min(_range(p.btype)[1] - 2, 10)
    return a, np.where(large, _spread(s, p.btype, 0, lift, *b.shape), b), c


def overflow(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Products and C near the largest result."""
    top = _range(p.dtype)[1]
    share = min(_range(p.atype)[1], top - top // 2)
    rest = min(_range(p.btype)[1], top - share)
    sa, sb, sc = _shapes(p, count)
    c_top = _range(p.ctype)[1]
    return (
        _spread(s, p.atype, share - 3, share, *sa),
        _spread(s, p.btype, rest - 3, rest, *sb),
        _spread(s, p.ctype, c_top - 5, c_top, *sc),
    )


def special(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Inf, NaN of any payload and zeros sprinkled among ordinary numbers."""
    parts = []
    for t, x, p_each in zip((p.atype, p.btype, p.ctype), near(s, p, count), (0.4 / p.columns, 0.4 / p.columns, 0.2)):
        w, top = _word(t), _word(t)(((1 << t.exponent) - 1) << _width(t))
        raw = _raw(s, t, *x.shape)
        payload = np.where(raw & w(16) != 0, raw & w((1 << _width(t)) - 1), w(0))
        odd = raw & w(1 << (t.bits - 1)) | top | payload
        odd = np.where(s.chance(0.3, *x.shape), raw & w(1 << (t.bits - 1)), odd)  # zeros, for Inf * 0
        parts.append(np.where(s.chance(p_each, *x.shape), odd.astype(x.dtype), x))
    return parts[0], parts[1], parts[2]


def nans(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """NaN of every payload and sign, quiet and signalling, in most products: which one survives."""
    parts = []
    for t, x, p_each in zip((p.atype, p.btype, p.ctype), near(s, p, count), (0.6 / p.columns, 0.6 / p.columns, 0.3)):
        w, top = _word(t), _word(t)(((1 << t.exponent) - 1) << _width(t))
        raw = _raw(s, t, *x.shape)
        odd = (raw | top) & w((1 << t.bits) - 1)
        parts.append(np.where(s.chance(p_each, *x.shape), odd.astype(x.dtype), x))
    return parts[0], parts[1], parts[2]


def zeros(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Signed zeros, a few numbers among them."""
    a, b, c = near(s, p, count)
    return _zeroed(s, 0.85, a, p.atype), _zeroed(s, 0.5, b, p.btype), _zeroed(s, 0.9, c, p.ctype)


def full(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """All mantissa bits set and one sign to a row: carries through the whole sum."""
    parts = []
    for t, shape in zip((p.atype, p.btype, p.ctype), _shapes(p, count)):
        ones = np.full(1, (1 << _width(t)) - 1, _word(t))
        sign = s.words(shape[0], shape[1], 1) if t is p.atype else np.zeros(1, np.uint32)
        parts.append(number(t, np.broadcast_to(sign, shape), s.between(-1, 1, *shape), ones))
    return parts[0], parts[1], parts[2]


def _dropped(s: RandomStream, p: MatrixProblem, count: int, drops: Int, plain: float, c_shift: tuple[int, int]) -> Three:
    """Products whose exponents lie `drops` below a top, per position of k: split between A and B as their ranges allow.

    drops: [count, columns]. plain: part of the elements that are powers of two.
    """
    sa, sb, sc = _shapes(p, count)
    top = s.between(0, _top(p) // 2, count, 1)
    ea, eb = (np.minimum(top, _range(t)[1] - 1) for t in (p.atype, p.btype))
    group = 1
    if p.columns != p.k:  # sparse: which rows of B a column meets is known for a chunk alone
        group = 4 if p.atype.bits == 4 else 2
        drops = np.repeat(drops[:, ::group], group, axis=1)
    # both factors stay normal as long as their ranges allow: a subnormal keeps its type's least exponent
    room_a, room_b = ea - p.atype.emin, eb - p.btype.emin
    on_a = np.where(s.chance(0.5, count, 1), np.minimum(drops, room_a), drops - np.minimum(drops, room_b))
    on_b = drops - on_a
    if group > 1:
        on_b = np.repeat(on_b[:, ::group], 2 * group, axis=1)
    jitter_a = np.where(s.chance(0.25, *sa), s.between(-1, 1, *sa), 0)
    jitter_b = np.where(s.chance(0.25, *sb), s.between(-1, 1, *sb), 0)
    parts = []
    for t, exponent, shape in (
        (p.atype, (ea - on_a)[:, None, :] + jitter_a, sa),
        (p.btype, (eb - on_b)[:, :, None] + jitter_b, sb),
        (p.ctype, (ea + eb)[:, :, None] + s.between(*c_shift, *sc), sc),
    ):
        raw = _raw(s, t, *shape)
        fraction = np.where(s.chance(plain, *shape), raw.dtype.type(0), raw)
        parts.append(number(t, s.words(*shape), exponent, fraction))
    return parts[0], parts[1], _zeroed(s, 0.15, parts[2], p.ctype)


def align(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Terms around F bits below the largest: what truncation keeps and what it drops, C among them."""
    f = p.fraction
    edge = s.choice([0, 0, f - 2, f - 1, f, f + 1, f + 2], count, p.columns)
    drops = np.where(s.chance(0.3, count, p.columns), s.below(f + 4, count, p.columns), edge).astype(np.int32)
    return _dropped(s, p, count, drops, 0.2, (-f - 2, 2))


def ties(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Terms at half a unit of the result's last place, and a little more or less."""
    keep = min(p.keep, p.dtype.mantissa)
    edge = [0, keep - 1, keep, keep + 1, keep + 1, keep + 1, keep + 2, keep + 3, p.fraction, p.fraction + 1]
    drops = s.choice(edge, count, p.columns).astype(np.int32)
    return _dropped(s, p, count, drops, 0.85, (-1, 1))


def cancel(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Pairs of products that cancel, exactly or but for the last bit; or C and the first product do."""
    a, b, c = near(s, p, count)
    sign = a.dtype.type(1 << (p.atype.bits - 1))
    last = s.chance(0.2, *a[..., 1::2].shape).astype(a.dtype)
    if p.atype.name == "tf32":
        last = last << a.dtype.type(13)
    a[..., 1::2] = (a[..., ::2] ^ sign) ^ last
    same = s.chance(0.6, count, 1, 1)
    b = np.where(same, np.repeat(b[:, :1], p.k, axis=1), b)
    b[:, 1::2] = b[:, ::2]
    # for half of the executions C cancels the first product, which then has no partner
    with_c = s.chance(0.5, count, 1, 1)
    a[..., 1:2] = np.where(with_c, a[..., 1:2] & sign, a[..., 1:2])
    small = _spread(s, p.ctype, -22, -12, *c.shape)
    if p.ctype.name == "f32":
        first = (-(_as_f32(p.atype, a[..., :1]) * _as_f32(p.btype, b[:, :1, :]))).view(np.uint32)
        c = first ^ s.chance(0.3, *c.shape).astype(np.uint32)
    return a, b, np.where(with_c, c, _zeroed(s, 0.7, small, p.ctype))


def _as_f32(t: ElementType, raw: Array) -> NDArray[np.float32]:
    if t.name == "tf32":
        raw = raw & np.uint32(0xFFFFE000)
    return from_raw(t, raw).astype(np.float32)


def floor(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Sums whose largest term is near the least exponent of alignment, with terms at the last bit that this leaves.

    Most C are zero, since others are larger than that exponent.
    """
    sa, sb, sc = _shapes(p, count)
    group = 1 if p.columns == p.k else 4 if p.atype.bits == 4 else 2
    edge = p.floor - p.fraction + s.between(-3, 2, count, p.columns)
    half = p.dtype.emin - p.dtype.mantissa - 1  # half of the least result: a tie, if it is rounded to nearest
    large = p.floor + s.between(-17, 2, count, 1)
    large = np.where(s.chance(0.5, count, 1) & (p.dtype.name == "f16"), half, large)
    large = large - s.chance(0.25, count, p.columns)
    total = np.where(s.chance(0.3, count, p.columns), large, edge)
    total = np.repeat(total[:, ::group], group, axis=1)
    (low_a, high_a), (low_b, high_b) = _range(p.atype), _range(p.btype)
    eb = np.clip(total // 2, low_b, high_b)
    ea = np.clip(total - eb, low_a, high_a)
    eb = eb if group == 1 else np.repeat(eb[:, ::group], 2 * group, axis=1)
    parts = []
    for t, exponent, shape in ((p.atype, ea[:, None, :], sa), (p.btype, eb[:, :, None], sb)):
        raw = _raw(s, t, *shape)
        fraction = np.where(s.chance(0.75, *shape), raw.dtype.type(0), raw)
        parts.append(number(t, s.words(*shape), np.broadcast_to(exponent, shape), fraction))
    low_c = max(_range(p.ctype)[0], p.floor - 4)
    c = _spread(s, p.ctype, low_c, low_c + 10, *sc)
    return _zeroed(s, 0.4, parts[0], p.atype), parts[1], _zeroed(s, 0.8, c, p.ctype)


# Integers and bits ---------------------------------------------------------------------------------------------------
def _limits(t: ElementType) -> tuple[int, int]:
    if t.kind == "signed":
        return -(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1
    return 0, (1 << t.bits) - 1


def _stored(t: ElementType, values: Array) -> Array:
    return (values.astype(np.int64) & ((1 << t.bits) - 1)).astype(container(t))


def _int_c(s: RandomStream, p: MatrixProblem, count: int, base: tuple[int, ...], reach: int) -> Array:
    """C near some numbers: up to `reach` away."""
    shape = (count, p.m, p.n)
    away = s.words(*shape).astype(np.int64) % (2 * reach + 1) - reach
    near_to = s.choice(np.array(base, np.int64), *shape)
    return ((near_to + away) & 0xFFFFFFFF).astype(np.uint32)


_EDGES = (-(1 << 31), (1 << 31) - 1)


def extremes(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Least and largest elements, one, zero and minus one; C at the ends of its range."""
    parts = []
    for t, shape in zip((p.atype, p.btype), _shapes(p, count)):
        low, high = _limits(t)
        parts.append(_stored(t, s.choice([low, high, low, high, 0, 1, -1 if low else high - 1], *shape)))
    return parts[0], parts[1], _int_c(s, p, count, (*_EDGES, 0), 3)


def saturate(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """C so near an end of its range that the products decide whether the sum passes it."""
    a, b, _ = bits(s, p, count)
    product = max(map(abs, _limits(p.atype))) * max(map(abs, _limits(p.btype)))
    return a, b, _int_c(s, p, count, _EDGES, max(4, math.isqrt(p.columns) * product // 3))


def largest(s: RandomStream, p: MatrixProblem, count: int) -> Three:
    """Every product at an extreme of one sign in a row: the largest sums there are."""
    sa, sb, _ = _shapes(p, count)
    rows = s.choice(_limits(p.atype), count, p.m, 1)
    columns = s.choice(_limits(p.btype), count, 1, p.n)
    a, b = np.broadcast_to(rows, sa), np.broadcast_to(columns, sb)
    return _stored(p.atype, a), _stored(p.btype, b), _int_c(s, p, count, (*_EDGES, 0), 1 << 20)


FLOATS: dict[str, Callable[[RandomStream, MatrixProblem, int], Three]] = {
    f.__name__: f
    for f in (bits, near, wide, powers, subnormal, overflow, special, nans, zeros, full, align, ties, cancel, floor)
}
INTEGERS: dict[str, Callable[[RandomStream, MatrixProblem, int], Three]] = {
    f.__name__: f for f in (bits, extremes, saturate, largest)
}


def kinds(p: MatrixProblem) -> tuple[str, ...]:
    """Names of the kinds of operands for a problem."""
    return tuple(FLOATS if p.atype.is_float else INTEGERS)


def operands(s: RandomStream, kind: str, p: MatrixProblem, count: int) -> Three:
    """Raw elements in their containers: a [count, M, columns], b [count, K, N], c [count, M, N]."""
    return (FLOATS if p.atype.is_float else INTEGERS)[kind](s, p, count)
