"""Half Precision Floating Point Instructions: .f16, .bf16 and their packed pairs (PTX ISA 9.1).

Every operation is rounded once. In .f32 the sum of two .f16 or .bf16, and the product of two .f16, rounds to the same number as
the exact result; other operations use .f64, or are first rounded to odd.
"""

from mmulator.base.codegen.ops import absolute, bitcast, maximum, minimum, select
from mmulator.base.codegen.rounding import has_own_rounding, odd_fma
from mmulator.base.codegen.types import Ty, f64
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.lowering.approximate import approximate
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.floatbits import (
    FloatFormat,
    flush,
    format_of,
    is_nan_bits,
    join,
    ordered_key,
    saturate,
    split,
    widen,
)
from mmulator.compiler.lowering.scope import UNSIGNED, Mods, Result, Scope, outlined, to
from mmulator.compiler.meaning.convert import half_bits, odd32


def _same(m: Mods) -> Ty:
    return UNSIGNED[32 if m.type.endswith("x2") else 16]


def _sources(m: Mods, sources: tuple[Value, ...]) -> list[Value]:
    """The operands' elements as bits, with subnormals flushed under .ftz."""
    format = format_of(m.type)
    parts = [split(s) for s in sources]
    return [flush(p, format) for p in parts] if m.has("ftz") else parts


# What rounds to 11 bits below the least normal .f16 is flushed, even if it would round up to it as a subnormal.
_TINY = 2.0**-14 - 2.0**-26


def _finish(m: Mods, value: Value) -> Value:
    """An .f32 result (exact, or rounded to odd) as bits of the format, with .sat, .relu and .ftz."""
    format = format_of(m.type)
    bits = half_bits(saturate(value) if m.has("sat") else value, m.type)
    if m.has("ftz"):
        bits = select(absolute(value) < _TINY, bits & format.sign, bits)
    if m.has("relu"):
        bits = select(bits >= format.sign, 0, bits)
    return bits


@lanewise("add", "sub")
def add(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return _add_bf16(x, m, a, b) if m.type.startswith("bf16") else _sum(m, a, b)


@lanewise("mul")
def mul(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    if m.type.startswith("bf16"):
        return _mul_bf16(x, m, a, b)
    left, right = (widen(p, m.type) for p in _sources(m, (a, b)))
    return join(_finish(m, left * right))


def _sum(m: Mods, a: Value, b: Value) -> Value:
    left, right = (widen(p, m.type) for p in _sources(m, (a, b)))
    return join(_finish(m, left + right if m.op == "add" else left - right))


_add_bf16 = outlined(_same)(_sum)


@outlined(_same)
def _mul_bf16(m: Mods, a: Value, b: Value) -> Value:
    """The product of .bf16 in .f64 or rounded to odd, because a product that is subnormal in .f32 is not exact there."""
    left, right = (widen(p, m.type) for p in _sources(m, (a, b)))
    if has_own_rounding():
        return join(_finish(m, odd_fma(left, right, constant(left.b, left.ty, -0.0))))
    return join(_finish(m, odd32(_double(left) * _double(right))))


def _double(value: Value) -> Value:
    return to(f64.vec(value.ty.lanes), value)


def odd_sum(a: Value, b: Value) -> Value:
    """a + b rounded to odd: the rounded sum, moved towards the exact one if it is even and not exact."""
    total = a + b
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)  # exact
    bits = bitcast(_integers(total.ty), total)
    even = (bits & 1) == 0
    grows = (error > 0.0) == (total > 0.0)
    moved = select(grows, bits + 1, bits - 1)
    inexact = (error < 0.0) | (error > 0.0)
    return bitcast(total.ty, select(even & inexact, moved, bits))


def _integers(ty: Ty) -> Ty:
    return UNSIGNED[ty.bits].element.vec(ty.lanes)


_OUTSIDE = 0x7FF7  # the NaN for elements outside a tensor, of either sign (measured on an NVIDIA H200)


@lanewise("fma")
@outlined(_same)
def fma(m: Mods, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded to odd first. The product is exact: an .f16 product in .f32, a .bf16 product in .f64."""
    parts = _sources(m, (a, b, c))
    left, right, addend = (widen(p, m.type) for p in parts)
    if has_own_rounding():
        value = odd_fma(left, right, addend)
    elif m.type.startswith("bf16"):
        value = odd32(odd_sum(_double(left) * _double(right), _double(addend)))
    else:
        value = odd_sum(left * right, addend)
    bits = _finish(m, value)
    if m.has("oob"):
        magnitude = format_of(m.type).magnitude
        fill = ((parts[0] & magnitude) == _OUTSIDE) | ((parts[1] & magnitude) == _OUTSIDE)
        bits = select(fill, 0, bits)
    return join(bits)


@lanewise("abs", "neg")
def sign(x: Scope, m: Mods, a: Value) -> Result:
    format = format_of(m.type)
    (bits,) = _sources(m, (a,))
    changed = bits & format.magnitude if m.op == "abs" else bits ^ format.sign
    return join(select(is_nan_bits(bits, format), format.nan, changed))


def _from_key(key: Value, ty: Ty) -> Value:
    """The bits with this `ordered_key`; the function is its own inverse."""
    return to(ty, ordered_key(to(ty, key)))


def _extremum(m: Mods, a: Value, b: Value, format: FloatFormat) -> Value:
    """min or max: -0 is less than +0, a number is preferred to a NaN, and a NaN is canonical."""
    nan_a, nan_b = is_nan_bits(a, format), is_nan_bits(b, format)
    choose = minimum if m.op == "min" else maximum
    best = _from_key(choose(ordered_key(a), ordered_key(b)), a.ty)
    if not m.has("NaN"):
        best = select(nan_a, b, select(nan_b, a, best))
    nan = (nan_a | nan_b) if m.has("NaN") else (nan_a & nan_b)
    return select(nan, format.nan, best)


@lanewise("min", "max")
@outlined(_same)
def extremum(m: Mods, a: Value, b: Value) -> Value:
    format = format_of(m.type)
    left, right = _sources(m, (a, b))
    if not m.has("abs"):
        return join(_extremum(m, left, right, format))
    sign = (left ^ right) & format.sign
    result = _extremum(m, left & format.magnitude, right & format.magnitude, format)
    return join(select(is_nan_bits(result, format), format.nan, result | sign))


@lanewise("ex2", "tanh")
def approximation(x: Scope, m: Mods, a: Value) -> Result:
    return approximate(x, m, a)
