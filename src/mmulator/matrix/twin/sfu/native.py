"""The approximate instructions as native functions: the twin of the model in tests/support/sfu_instructions.py.

`APPROX[(operation, type, ftz)]` is a function of vectors of 32 lanes, `ARRAYS[...]` of `count` numbers. Operations: rcp, rsqrt,
sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full; types as PTX writes them. Arguments and results are bits: u16 for f16 and
bf16, u32 for f32 and the packed pairs, u64 for f64. A division takes two sources. On lanes it has two parts, since many
divisions share a divisor: `divisor_lanes`, and `quotient` inside the code that divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import (
    absolute,
    bitcast,
    fma,
    iota,
    is_nan,
    load,
    masked_load,
    masked_store,
    select,
    shuffle,
    store,
)
from mmulator.base.codegen.types import Ty, f32, f64, i64, ptr_to, u16, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.matrix.numerics.sfu.arithmetic import INFINITY, INVERSE_TWO_PI, NAN, SIGN
from mmulator.matrix.numerics.sfu.tables import DEFAULT_DEVICE, Tables, load_tables
from mmulator.matrix.twin.sfu import vector
from mmulator.matrix.twin.sfu.short import lanes, to

Key = tuple[str, str, bool]  # operation, type, .ftz
Macro = Callable[[Value, Tables], Value]
LANES = 32
_WIDE = 32  # lanes that are computed at a time


def _float(bits: Value) -> Value:
    return bitcast(lanes(f32, bits), bits)


def _bits(x: Value) -> Value:
    """Bits of f32 lanes, every NaN as 0x7fffffff."""
    return select(is_nan(x), NAN, bitcast(lanes(u32, x), x))


def _magnitude(bits: Value) -> Value:
    return bits & ~SIGN


def _subnormal(bits: Value) -> Value:
    return (bits & INFINITY) == 0


def _above_2_126(bits: Value) -> Value:
    magnitude = _magnitude(bits)
    return (magnitude > 253 << 23) & (magnitude <= INFINITY)


def _flushed(bits: Value) -> Value:
    return select(_subnormal(bits), bits & SIGN, bits)


def _scaled(bits: Value, factor: float, ftz: bool = False) -> Value:
    """The bits of a number times a power of two."""
    result = bitcast(bits.ty, _float(_flushed(bits) if ftz else bits) * factor)
    return _flushed(result) if ftz else result


# f32 -----------------------------------------------------------------------------------------------------------------
def _rcp(x: Value, tables: Tables) -> Value:
    factor = select(_subnormal(x), 2.0**24, select(_above_2_126(x), 0.25, constant(x.b, lanes(f32, x), 1.0)))
    scaled = bitcast(x.ty, _float(x) * factor)
    return _bits(_float(vector.rcp(scaled, tables)) * factor)


def _rescued(function: Macro, after: Callable[[Value], Value]) -> Macro:
    """A function of the unit with subnormal operands scaled by 2**24."""

    def run(x: Value, tables: Tables) -> Value:
        subnormal = _subnormal(x)
        y = function(select(subnormal, _scaled(x, 2.0**24), x), tables)
        return select(subnormal, _bits(after(_float(y))), y)

    return run


def _ex2(x: Value, tables: Tables) -> Value:
    low = _float(x) < -126.0
    y = vector.ex2(select(low, _scaled(x, 0.5), x), tables)
    return select(low, bitcast(x.ty, _float(y) * _float(y)), y)


def _turns(x: Value) -> Value:
    """x/2pi toward zero. The product is exact in f64; the unit treats a subnormal product as zero, however it is rounded."""
    inverse = constant(x.b, lanes(u32, x), INVERSE_TWO_PI)
    product = to(f64, _float(x)) * to(f64, _float(inverse))
    cut = bitcast(lanes(u64, x), product) & ~0x1FFFFFFF
    # an infinity or a NaN has to stay one, so the cut leaves NaN payloads in the high bits
    return bitcast(x.ty, to(f32, bitcast(product.ty, cut)))


def _sin(x: Value, tables: Tables) -> Value:
    return vector.sin(_turns(x), tables)


def _cos(x: Value, tables: Tables) -> Value:
    return vector.cos(_turns(x), tables)


def divisor(b: Value, tables: Tables, full: bool, ftz: bool) -> tuple[Value, Value]:
    """The part of a division that does not depend on the numerator: (reciprocal, scale of the numerator: 1, 0.25 for a large
    divisor, 2**24 for a subnormal one).
    """
    scale = constant(b.b, lanes(f32, b), 1.0)
    if full:
        large = _above_2_126(b)
        b, scale = select(large, _scaled(b, 0.25, ftz), b), select(large, 0.25, scale)
    if not ftz:
        subnormal = _subnormal(b)
        b, scale = select(subnormal, _scaled(b, 2.0**24), b), select(subnormal, 2.0**24, scale)
    return _float(vector.rcp(b, tables)), scale


def quotient(a: Value, inverse: Value, scale: Value, ftz: bool, c: Value | None = None) -> Value:
    """The final multiplication of a division (a and the result as bits), or the multiplication fused with a sum.

    a: the numerator.
    inverse, scale: results of `divisor`.
    ftz: whether subnormals are flushed.
    c: the summand, or None.
    """
    if not ftz:
        a = _float(a) * scale
        return _bits(inverse * a if c is None else fma(inverse, a, _float(c)))
    # flushed is what is below 2**-126 after rounding to 24 bits of any exponent: look at what is 2**64 (2**24) times as large
    x = _float(_flushed(bitcast(a.ty, _float(_flushed(a)) * scale)))
    if c is None:
        result, wide, least = inverse * x, inverse * (x * 2.0**64), 2.0**-62
    else:
        y = _float(_flushed(c))
        result, wide, least = fma(inverse, x, y), fma(inverse, x * 2.0**24, y * 2.0**24), 2.0**-102
    bits = _bits(result)
    return select(absolute(wide) < least, bits & SIGN, bits)


# half types and f64 --------------------------------------------------------------------------------------------------
def _f16(function: Macro) -> Macro:
    return lambda x, tables: vector.f32_to_f16_truncated(function(vector.f16_to_f32(x), tables))


def _bf16(function: Macro) -> Macro:
    return lambda x, tables: vector.f32_to_bf16_truncated(function(vector.bf16_to_f32(x), tables))


def _pair(function: Macro) -> Macro:
    """A function of both halves of u32 lanes."""

    def run(x: Value, tables: Tables) -> Value:
        low, high = function(to(u16, x), tables), function(to(u16, x >> 16), tables)
        return to(u32, low) | to(u32, high) << 16

    return run


def _seed(function: Macro) -> Macro:
    """A function of u64 lanes, of which the unit reads and writes only the high word."""
    return lambda x, tables: to(u64, function(to(u32, x >> 32), tables)) << 32


def _rsqrt_f64(x: Value, tables: Tables) -> Value:
    double, sign = lanes(f64, x), 1 << 63
    magnitude = x & ~sign
    subnormal = magnitude < 1 << 52
    value = bitcast(double, x)
    value = select(subnormal, value * 2.0**54, value)
    y = bitcast(double, _seed(vector.rsqrt64h)(bitcast(x.ty, value), tables))
    error = fma(value, -(y * y), 1.0)
    root = fma(fma(error, 0.375, 0.5), y * error, y)
    result = bitcast(x.ty, select(subnormal, root * 2.0**27, root))
    infinity = 0x7FF << 52
    result = select(x == infinity, 0, result)
    result = select(x >= sign, 0xFFF8 << 48, result)
    result = select(magnitude > infinity, x | 1 << 51, result)
    return select(magnitude == 0, x | infinity, result)


_MACROS: dict[Key, Macro] = {
    ("rcp", "f32", False): _rcp,
    ("rcp", "f32", True): vector.rcp,
    ("rsqrt", "f32", False): _rescued(vector.rsqrt, lambda y: y * 4096.0),
    ("rsqrt", "f32", True): vector.rsqrt,
    ("sqrt", "f32", False): _rescued(vector.sqrt, lambda y: y * 2.0**-12),
    ("sqrt", "f32", True): vector.sqrt,
    ("lg2", "f32", False): _rescued(vector.lg2, lambda y: y + -24.0),
    ("lg2", "f32", True): vector.lg2,
    ("ex2", "f32", False): _ex2,
    ("ex2", "f32", True): vector.ex2,
    ("sin", "f32", False): _sin,
    ("sin", "f32", True): _sin,
    ("cos", "f32", False): _cos,
    ("cos", "f32", True): _cos,
    ("tanh", "f32", False): vector.tanh,
    ("ex2", "f16", False): _f16(vector.ex2),
    ("ex2", "f16x2", False): _pair(_f16(vector.ex2)),
    ("ex2", "bf16", True): _bf16(vector.ex2),
    ("ex2", "bf16x2", True): _pair(_bf16(vector.ex2)),
    ("tanh", "f16", False): _f16(vector.tanh),
    ("tanh", "f16x2", False): _pair(_f16(vector.tanh)),
    ("tanh", "bf16", False): _bf16(vector.tanh),
    ("tanh", "bf16x2", False): _pair(_bf16(vector.tanh)),
    ("rcp", "f64", True): _seed(vector.rcp64h),
    ("rsqrt", "f64", True): _seed(vector.rsqrt64h),
    ("rsqrt", "f64", False): _rsqrt_f64,
}
# Operations of two sources.
BINARY: tuple[Key, ...] = tuple((name, "f32", ftz) for name in ("div.approx", "div.full") for ftz in (False, True))
KEYS: tuple[Key, ...] = (*_MACROS, *BINARY)


def word_of(key: Key) -> Ty:
    """The type that holds one operand of an operation: u16, u32 or u64."""
    return {"f16": u16, "bf16": u16, "f64": u64}.get(key[1], u32)


def _symbol(key: Key, tables: Tables) -> str:
    name, ty, ftz = key
    return f"approx_{name.replace('.', '_')}_{ty}{'_ftz' if ftz else ''}_{tables.device}"


def value_of(key: Key, sources: tuple[Value, ...], tables: Tables) -> Value:
    """The operation on vectors of any number of lanes, inside code that is being built."""
    if key in BINARY:
        a, b = sources
        return quotient(a, *divisor(b, tables, key[0] == "div.full", key[2]), key[2])
    return _MACROS[key](sources[0], tables)


def _lane_form(key: Key, tables: Tables) -> Native:
    vector = word_of(key).vec(LANES)

    def one(src: vector) -> vector:  # type: ignore[valid-type]
        return value_of(key, (vector(src),), tables)

    return Native(one, _symbol(key, tables))


@cache
def divisor_lanes(tables: Tables, full: bool, ftz: bool) -> Native:
    """`f(b)`: for 32 lanes the reciprocals, and behind them the numerators' scales (`divisor`)."""
    vector, both = u32.vec(LANES), f32.vec(2 * LANES)

    def parts(b: vector) -> both:  # type: ignore[valid-type]
        return both(shuffle(*divisor(vector(b), tables, full, ftz), range(2 * LANES)))

    return Native(parts, f"divisor{'_full' if full else ''}{'_ftz' if ftz else ''}_{tables.device}")


def _array_form(key: Key, tables: Tables) -> Native:
    def value(*sources: Value) -> Value:
        return value_of(key, sources, tables)

    return over_array(_symbol(key, tables) + "_array", word_of(key), 2 if key in BINARY else 1, value)


def over_array(symbol: str, word: Ty, operands: int, value: Callable[..., Value]) -> Native:
    """dst[i] = value(src[i]) for i < count, a vector at a time, the last one masked."""

    def one(src: ptr_to(word), dst: ptr_to(word), count: i64) -> None:  # type: ignore[valid-type]
        ty = word.vec(_WIDE)
        whole = count // _WIDE * _WIDE
        for at in range(0, whole, _WIDE):
            store(value(load(ty, src, at)), dst, at)
        if whole < count:
            rest = iota(i64.vec(_WIDE)) < count - whole
            x = masked_load(ty, src + whole, rest, ty(0))
            masked_store(value(x), dst + whole, rest)

    def two(a: ptr_to(word), b: ptr_to(word), dst: ptr_to(word), count: i64) -> None:  # type: ignore[valid-type]
        ty = word.vec(_WIDE)
        whole = count // _WIDE * _WIDE
        for at in range(0, whole, _WIDE):
            store(value(load(ty, a, at), load(ty, b, at)), dst, at)
        if whole < count:
            rest = iota(i64.vec(_WIDE)) < count - whole
            x, y = masked_load(ty, a + whole, rest, ty(0)), masked_load(ty, b + whole, rest, ty(0))
            masked_store(value(x, y), dst + whole, rest)

    def three(a: ptr_to(word), b: ptr_to(word), c: ptr_to(word), dst: ptr_to(word), count: i64) -> None:  # type: ignore[valid-type]
        ty = word.vec(_WIDE)
        whole = count // _WIDE * _WIDE
        for at in range(0, whole, _WIDE):
            store(value(load(ty, a, at), load(ty, b, at), load(ty, c, at)), dst, at)
        if whole < count:
            rest = iota(i64.vec(_WIDE)) < count - whole
            x, y, z = [masked_load(ty, p + whole, rest, ty(0)) for p in (a, b, c)]
            masked_store(value(x, y, z), dst + whole, rest)

    return Native((one, two, three)[operands - 1], symbol)


class Functions(Mapping[Key, Native]):
    """The native functions of one set of tables by (operation, type, .ftz), made on demand."""

    def __init__(self, tables: Tables, form: Callable[[Key, Tables], Native], keys: tuple[Key, ...]) -> None:
        self._tables, self._form, self._keys = tables, form, keys
        self._made: dict[Key, Native] = {}

    def __getitem__(self, key: Key) -> Native:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self._form(key, self._tables)
        return self._made[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@cache
def lane_functions(tables: Tables) -> Functions:
    """The functions of 32 lanes, `f(src)`, for operations of one source."""
    return Functions(tables, _lane_form, tuple(_MACROS))


@cache
def array_functions(tables: Tables) -> Functions:
    """The functions `f(src, dst, count)` or `f(a, b, dst, count)`, for all operations."""
    return Functions(tables, _array_form, KEYS)


APPROX = lane_functions(load_tables(DEFAULT_DEVICE))
ARRAYS = array_functions(load_tables(DEFAULT_DEVICE))
