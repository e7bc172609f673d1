"""cvt between integers, .f32, .f64, .f16 and .bf16 (PTX ISA 9.1, Data Movement and Conversion Instructions: cvt)."""

from collections.abc import Callable

from mmulator.base.codegen.ops import (
    absolute,
    bitcast,
    ceil,
    floor,
    is_nan,
    round_even,
    select,
    shuffle,
    to_int_saturating,
    trunc,
)
from mmulator.base.codegen.rounding import STRICT, directed
from mmulator.base.codegen.types import f16
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.emit.block import shaped
from mmulator.compiler.lowering import minifloat
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.floatbits import FORMATS, bits_of, canonical, concat, flushed, loose, saturate, widen
from mmulator.compiler.lowering.minifloat import SMALL, Random, Small, narrow
from mmulator.compiler.lowering.scope import (
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
    of_integers,
    outline,
    to,
)
from mmulator.compiler.meaning.float import flush_tiny

_TO_INTEGRAL: dict[str, Callable[[Value], Value]] = {"rni": round_even, "rzi": trunc, "rmi": floor, "rpi": ceil}
_FLOAT = {"f32": F32, "f64": F64}
_PAIRS = [n // 2 + LANES * (n % 2) for n in range(2 * LANES)]  # lane n of the first half, lane n of the second, ...


# integers -----------------------------------------------------------------------------------------------------------
def _range(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def clamp_integer(target: str, value: Value) -> Value:
    """The value clamped to the range of the target type, in the source's type."""
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
    return to(shaped(int_type(m.type), a), a)


def _integer_to_float(x: Scope, m: Mods, a: Value) -> Value:
    ty, mode = _FLOAT[m.type], m.rounding
    exact = a.ty.bits < 32 or (ty == F64 and a.ty.bits == 32)
    if mode in ("", "rn") or exact:
        result: Value = ty(a)
    else:
        operation = "sitofp" if a.ty.signed else "uitofp"
        name = f"ptx_{operation}_{mode}_{a.ty.element}_{ty.element}"
        result = outline(x, name, ty, lambda v: directed(operation, mode, ty, v), a, attributes=STRICT)
        result = select(a == 0, ty(a), result)  # a host without conversions of unsigned words makes -0 of 0, rounding down
    return saturate(result) if m.has("sat") else result


def _float_to_integer(x: Scope, m: Mods, a: Value) -> Value:
    """A float converted to an integer, clamped to the target's range; NaN gives 0, or only the top bit if either type has 64
    bits.
    """
    rounding, target = m.one(_TO_INTEGRAL), int_type(m.type)
    wide = target.bits == 64 or a.ty == F64

    def body(value: Value) -> Value:
        integral = _TO_INTEGRAL[rounding](value) if rounding not in ("", "rzi") else value
        result = to_int_saturating(target, integral)
        return select(is_nan(value), 1 << (target.bits - 1), result) if wide else result

    if not wide:
        return body(a)
    return outline(x, f"ptx_fptoint_{rounding}_{m.type}_{a.ty.element}", target, body, a)


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
    return to(U16.element.vec(value.ty.lanes), bf16_high(value) >> 16)


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
    """Whether a conversion has no modifier other than rounding to nearest."""
    return m.rounding in ("", "rn") and not m.has("satfinite", "relu", "sat", "ftz")


def _shortened(bits: Value, small: Small) -> Value:
    """A quiet .f32 NaN in a smaller format."""
    payload = (bits & 0x7FFFFF) >> (23 - small.mantissa)
    return ((bits >> 31) << (small.bits - 1)) | FORMATS["bf16" if small.bias == 127 else "f16"].infinity | payload


def _away(m: Mods, a: Value) -> Value:
    """cvt.rna.tf32.f32, with infinity and NaN as the hardware's integer sequence leaves them."""
    bits = bits_of(a)
    special = (bits & 0x7F800000) == 0x7F800000
    result = select(special, bits, bits + 0x1000) & 0xFFFFE000
    if m.has("satfinite"):
        result = select((result & 0x7F800000) == 0x7F800000, result - 0x2000, result)
    return result


def _to_half(x: Scope, m: Mods, a: Value, target: str) -> Value:
    """Any .f32 or .f64 as .f16, .bf16 or .tf32 bits, rounded by the modifiers."""
    if a.ty == F32 and target != "tf32" and _plain(m):
        return half_bits(loose(x, a), target)
    if m.rounding == "rna":
        return _away(m, a)
    bits = U32 if target == "tf32" else U16

    def body(value: Value) -> Value:
        double = value.ty == F64
        # .ftz does nothing to a subnormal that becomes an .f16
        value = odd32(value) if double else flushed(value, FORMATS["f32"], m.has("ftz") and target != "f16")
        if m.has("sat"):
            value = saturate(value)
        small = SMALL[target]
        code = narrow(value, small, m.rounding or "rn", finite=m.has("satfinite"), relu=m.has("relu"))
        if double:  # NaN keeps its sign and the upper part of its payload
            code = select(is_nan(value), _shortened(bits_of(value), small), code)
        return code << 13 if target == "tf32" else to(U16, code)

    return outline(x, f"ptx_{m.key}", bits, body, a)


def _stochastic_halves(x: Scope, m: Mods, a: Value, b: Value, rbits: Value) -> Value:
    """cvt.rs.f16x2.f32 d, a, b, rbits: the upper half of rbits is for a; an .f16 uses its low 13 bits."""
    small = SMALL[m.type.removesuffix("x2")]
    count = 23 - small.mantissa

    def body(a: Value, b: Value, rbits: Value) -> Value:
        mask = (1 << count) - 1
        high, low = (
            narrow(v, small, "rs", finite=m.has("satfinite"), relu=m.has("relu"), random=Random(r & mask, count))
            for v, r in ((a, rbits >> 16), (b, rbits))
        )
        return (high << 16) | low

    return outline(x, f"ptx_{m.key}", U32, body, a, b, rbits)


def _pack_halves(x: Scope, m: Mods, a: Value, b: Value) -> Value:
    """cvt.f16x2.f32 d, a, b: a in the upper half."""
    if _plain(m):
        a, b = loose(x, a), loose(x, b)
        if m.type == "f16x2":
            return bitcast(U32, shuffle(f16_bits(concat(b, a)), None, _PAIRS))
        return (bf16_high(a) & 0xFFFF0000) | (bf16_high(b) >> 16)

    def body(a: Value, b: Value) -> Value:
        small = SMALL[m.type.removesuffix("x2")]
        high, low = (narrow(v, small, m.rounding, finite=m.has("satfinite"), relu=m.has("relu")) for v in (a, b))
        return (high << 16) | low

    return outline(x, f"ptx_{m.key}", U32, body, a, b)


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
        return to(U16, narrow(single, SMALL[m.type], m.rounding or "rn", finite=m.has("satfinite")))

    return outline(x, f"ptx_{m.key}", U16, body, a)


# between .f32 and .f64 ----------------------------------------------------------------------------------------------
def _shorten(x: Scope, m: Mods, a: Value) -> Value:
    """.f64 to .f32. The CPU's own conversion keeps a NaN's sign and payload, as the hardware's does."""
    mode, ftz = m.rounding or "rn", m.has("ftz")
    if mode == "rn" and not ftz:
        return to(F32, a)

    def act(value: Value) -> Value:
        return to(F32, value) if mode == "rn" else directed("fptrunc", mode, F32, value)

    def body(value: Value) -> Value:
        return flush_tiny(act(value), act(value * 2.0**24)) if ftz else act(value)

    return outline(x, f"ptx_fptrunc_{mode}{'_ftz' if ftz else ''}", F32, body, a, attributes=STRICT)


def _float_to_float(x: Scope, m: Mods, a: Value) -> Value:
    """Conversion between .f32 (or a widened half) and .f64."""
    target, source = m.types[0], m.types[1]
    if m.has("ftz") and source != "f64":
        a = canonical(flushed(a, FORMATS["f32"], True))
    integral = m.one(_TO_INTEGRAL)
    result = _TO_INTEGRAL[integral](a) if integral else a
    if a.ty != _FLOAT[target]:
        result = F64(a) if target == "f64" else _shorten(x, m, a)
    if m.has("sat"):
        return saturate(result)
    return canonical(result) if target == "f32" and integral else result


def _pack_integers(m: Mods, a: Value, b: Value, c: Value | None) -> Value:
    """cvt.pack: a above b, each clamped to the first type; what remains above them comes from c."""
    target = m.one(("u2", "s2"), m.types[0])
    width = int(target[1:])
    mask = (1 << width) - 1
    high, low = (to(U32, clamp_integer(target, v)) & mask for v in (a, b))
    packed = (high << width) | low
    return packed if c is None else packed | (c << 2 * width)


_PLAIN = ("f16", "bf16", "tf32", "f32", "f64")


@lanewise("cvt", one=lambda m: of_integers(m) and not m.has("pack"))
def cvt(x: Scope, m: Mods, a: Value, b: Value | None = None, c: Value | None = None, *more: Value) -> Result:
    """The result of any cvt and cvt.pack; `more` are operands of conversions of four numbers."""
    target, source = m.types[0], m.types[1]
    if m.rounding == "rs" and b is not None and c is not None:
        return minifloat.stochastic(x, m, a, b, c, *more) if more else _stochastic_halves(x, m, a, b, c)
    if m.has("pack") and b is not None:
        return _pack_integers(m, a, b, c)
    into, of = kind_of(target), kind_of(source)
    if of == "int":
        if into == "int":
            return _integer_to_integer(m, a)
        return _integer_to_half(x, m, a) if into == "half" else _integer_to_float(x, m, a)
    if (into == "half" and target not in _PLAIN) or (of == "half" and source not in _PLAIN):
        if source == "f32" and b is not None and target in ("f16x2", "bf16x2"):
            return _pack_halves(x, m, a, b)
        return minifloat.convert(x, m, a, b)
    if of == "half":
        a = widen(a, source)
        if target == "f32" and source == "f16":  # .ftz has nothing to flush: no .f16 is subnormal in .f32
            return saturate(a) if m.has("sat") else canonical(a)
    if into == "int":
        return _float_to_integer(x, m, a if of == "f64" else flushed(a, FORMATS["f32"], m.has("ftz")))
    integral = m.one(_TO_INTEGRAL)
    if into == "half":
        return _to_half(x, m, _TO_INTEGRAL[integral](a) if integral else a, target)
    return _float_to_float(x, m, a)
