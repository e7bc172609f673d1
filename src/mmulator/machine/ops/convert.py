"""cvt between integers, .f32, .f64, .f16 and .bf16 (PTX ISA 9.1, Data Movement and Conversion Instructions: cvt)."""

from __future__ import annotations

from collections.abc import Callable

from mmulator.codegen.ops import (
    absolute,
    bitcast,
    ceil,
    floor,
    is_nan,
    minimum,
    round_even,
    select,
    shuffle,
    to_int_saturating,
    trunc,
)
from mmulator.codegen.types import f16
from mmulator.codegen.values import Value, constant
from mmulator.machine.ops.directed import STRICT, directed
from mmulator.machine.ops.floatbits import FORMATS, bits_of, canonical, concat, flush, flushed, widen
from mmulator.machine.ops.floats import nan64, saturate
from mmulator.machine.ops.narrow import SMALL, narrow
from mmulator.machine.ops.registry import (
    F32,
    F64,
    LANES,
    U16,
    U32,
    U64,
    Mods,
    Result,
    Scope,
    int_type,
    kind_of,
    outline,
    semantic,
)

_TO_INTEGRAL: dict[str, Callable[[Value], Value]] = {"rni": round_even, "rzi": trunc, "rmi": floor, "rpi": ceil}
_FLOAT = {"f32": F32, "f64": F64}
_PAIRS = [n // 2 + LANES * (n % 2) for n in range(2 * LANES)]  # lane n of the first half, lane n of the second, ...


# integers -----------------------------------------------------------------------------------------------------------
def _range(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def clamp_integer(target: str, value: Value) -> Value:
    """To the range of the target type, in the source's type."""
    low, high = _range(int(target[1:]), target[0] == "s")
    source = value.ty
    least, greatest = _range(source.bits, source.signed)
    name = "s" if source.signed else "u"
    if high < greatest:
        value = value.b.intrinsic(f"{name}min", source, [value, constant(value.b, source, high)])
    if low > least:
        value = value.b.intrinsic(f"{name}max", source, [value, constant(value.b, source, low)])
    return value


def _integer_to_integer(m: Mods, a: Value) -> Value:
    if m.has("sat"):
        a = clamp_integer(m.type, a)
    return int_type(m.type)(a)  # type: ignore[no-any-return]


def _integer_to_float(x: Scope, m: Mods, a: Value) -> Value:
    ty, mode = _FLOAT[m.type], m.rounding
    exact = a.ty.bits < 32 or (ty == F64 and a.ty.bits == 32)
    if mode in ("", "rn") or exact:
        result: Value = ty(a)
    else:
        operation = "sitofp" if a.ty.signed else "uitofp"
        name = f"ptx_{operation}_{mode}_{a.ty.element}_{ty.element}"
        result = outline(x, name, ty, lambda v: directed(operation, mode, ty, v), a, attributes=STRICT)
    return saturate(result) if m.has("sat") else result


def _float_to_integer(m: Mods, a: Value) -> Value:
    """Clamps to the target's range; NaN gives 0."""
    rounding = m.one(_TO_INTEGRAL)
    if rounding not in ("", "rzi"):
        a = _TO_INTEGRAL[rounding](a)
    return to_int_saturating(int_type(m.type), a)


# to the halves ------------------------------------------------------------------------------------------------------
def f16_bits(value: Value) -> Value:
    """.f32 to .f16 bits, to nearest even; NaN is 0x7fff. Any number of lanes."""
    lanes = value.ty.lanes
    bits = bitcast(U16.element.vec(lanes), f16.vec(lanes)(value))
    return select(is_nan(value), 0x7FFF, bits)


def bf16_high(value: Value) -> Value:
    """.f32 to .bf16, to nearest even, in the upper half of 32 bits; the lower half is noise. NaN is 0x7fff."""
    bits = bits_of(value)
    rounded = bits + (((bits >> 16) & 1) + 0x7FFF)
    return select(is_nan(value), 0x7FFF0000, rounded)


def half_bits(value: Value, type_name: str) -> Value:
    """.f32 to .f16 or .bf16 bits, to nearest even."""
    if type_name.startswith("f16"):
        return f16_bits(value)
    return U16.element.vec(value.ty.lanes)(bf16_high(value) >> 16)  # type: ignore[no-any-return]


def odd32(value: Value) -> Value:
    """.f64 to .f32, rounded to odd: any later rounding to a smaller format is then as if it were the only one."""
    near: Value = F32.element.vec(value.ty.lanes)(value)
    back: Value = value.ty(near)
    bits = bits_of(near)
    size, exact = absolute(back), absolute(value)
    even = (bits & 1) == 0
    bits = select(even & (size < exact), bits + 1, select(even & (size > exact), bits - 1, bits))
    return bitcast(near.ty, bits)


def _plain(m: Mods) -> bool:
    """Nothing but rounding to nearest."""
    return m.rounding in ("", "rn") and not m.has("satfinite", "relu", "sat", "ftz")


def _to_half(x: Scope, m: Mods, a: Value, target: str) -> Value:
    """Any .f32 or .f64 to .f16, .bf16 or .tf32 bits, as the modifiers say."""
    if a.ty == F32 and target != "tf32" and _plain(m):
        return half_bits(a, target)
    bits = U32 if target == "tf32" else U16

    def body(value: Value) -> Value:
        value = odd32(value) if value.ty == F64 else flushed(value, FORMATS["f32"], m.has("ftz"))
        if m.has("sat"):
            value = saturate(value)
        code = narrow(value, SMALL[target], m.rounding or "rn", finite=m.has("satfinite"), relu=m.has("relu"))
        if m.has("ftz") and target == "f16":
            code = flush(code, FORMATS["f16"])
        return code << 13 if target == "tf32" else U16(code)  # type: ignore[no-any-return]

    return outline(x, f"ptx_{m.key}", bits, body, a)  # type: ignore[no-any-return]


def _pack_halves(x: Scope, m: Mods, a: Value, b: Value) -> Value:
    """cvt.f16x2.f32 d, a, b: a in the upper half."""
    if _plain(m):
        if m.type == "f16x2":
            return bitcast(U32, shuffle(f16_bits(concat(b, a)), None, _PAIRS))
        return (bf16_high(a) & 0xFFFF0000) | (bf16_high(b) >> 16)

    def body(a: Value, b: Value) -> Value:
        small = SMALL[m.type.removesuffix("x2")]
        high, low = (
            narrow(flushed(v, FORMATS["f32"], m.has("ftz")), small, m.rounding, finite=m.has("satfinite"), relu=m.has("relu"))
            for v in (a, b)
        )
        return (high << 16) | low

    return outline(x, f"ptx_{m.key}", U32, body, a, b)  # type: ignore[no-any-return]


def _integer_to_half(x: Scope, m: Mods, a: Value) -> Value:
    def body(value: Value) -> Value:
        ty = value.ty
        if ty.bits == 64:  # keep 53 bits and whether anything was lost
            size = U64(absolute(value)) if ty.signed else value
            sticky = (size >> 16) | U64((size & 0xFFFF) != 0)
            number = select(size < (1 << 52), F64(size), F64(sticky) * 65536.0)
            if ty.signed:
                number = select(value < 0, -number, number)
        else:
            number = F64(value)
        single = odd32(number)
        if m.has("sat"):
            single = saturate(single)
        return U16(narrow(single, SMALL[m.type], m.rounding or "rn", finite=m.has("satfinite")))  # type: ignore[no-any-return]

    return outline(x, f"ptx_{m.key}", U16, body, a)  # type: ignore[no-any-return]


# between .f32 and .f64 ----------------------------------------------------------------------------------------------
def _float_to_float(x: Scope, m: Mods, a: Value) -> Value:
    target, source = m.types[0], m.types[-1]
    ftz = m.has("ftz")
    if source == "f32":
        a = flushed(a, FORMATS["f32"], ftz)
    integral = m.one(_TO_INTEGRAL)
    if integral:
        a = _TO_INTEGRAL[integral](a)
    if target == source:
        result = a
    elif target == "f64":
        result = F64(a)
    elif m.rounding in ("", "rn"):
        result = F32(a)
    else:
        name = f"ptx_fptrunc_{m.rounding}"
        result = outline(x, name, F32, lambda v: directed("fptrunc", m.rounding, F32, v), a, attributes=STRICT)
    if target == "f32":
        result = flushed(result, FORMATS["f32"], ftz)
    if m.has("sat"):
        return saturate(result)
    return canonical(result) if target == "f32" else nan64(result)


def _from_half(x: Scope, m: Mods, a: Value) -> Value:
    """.f16 or .bf16 as what it is in .f32."""
    value = widen(flush(a, FORMATS["f16"]) if m.has("ftz") and m.types[-1] == "f16" else a, m.types[-1])
    return canonical(value)


@semantic("cvt")
def cvt(x: Scope, m: Mods, a: Value, b: Value | None = None, c: Value | None = None) -> Result:
    target, source = m.types[0], m.types[-1]
    to, of = kind_of(target), kind_of(source)
    if to == "half" and (target not in ("f16", "bf16", "tf32") or source not in ("f16", "bf16", "f32", "f64")) and of != "int":
        if target in ("f16x2", "bf16x2") and source == "f32" and b is not None and c is None:
            return _pack_halves(x, m, a, b)
        from mmulator.machine.ops.minifloat import convert

        return convert(x, m, a, b, c)
    if of == "int":
        if to == "int":
            return _integer_to_integer(m, a)
        return _integer_to_half(x, m, a) if to == "half" else _integer_to_float(x, m, a)
    if of == "half":
        a = _from_half(x, m, a)
        if target == "f32" and not m.has("sat", *_TO_INTEGRAL):
            return a
    if to == "int":
        if of != "f64":
            a = flushed(a, FORMATS["f32"], m.has("ftz"))
        return _float_to_integer(m, a)
    if to == "half":
        integral = m.one(_TO_INTEGRAL)
        return _to_half(x, m, _TO_INTEGRAL[integral](a) if integral else a, target)
    return _float_to_float(x, m, a)


@semantic("cvt.pack")
def cvt_pack(x: Scope, m: Mods, a: Value, b: Value, c: Value | None = None) -> Result:
    """Two 32-bit integers, saturated to the first type; a above b; what remains above comes from c."""
    width = int(m.types[0][1:])
    mask = (1 << width) - 1
    high, low = (U32(clamp_integer(m.types[0], v)) & mask for v in (a, b))
    packed = (high << width) | low
    return packed if c is None else packed | (c << 2 * width)


__all__ = ["bf16_high", "f16_bits", "half_bits", "minimum", "odd32"]
