"""Rounding of .f32 to a smaller format in every mode, and conversion of small formats back; cvt to and from packed .e4m3x2,
.e5m2x2, .e2m3x2, .e3m2x2, .e2m1x2 and .ue8m0x2, and to vectors of four with random bits (PTX ISA 9.1: cvt).

One integer algorithm serves all formats: drop the bits below the target's quantum and add an increment that the rounding mode
decides; the carry runs into the exponent by itself.
"""

from functools import reduce

from mmulator.base.classes import dataclass
from mmulator.base.codegen.ops import bitcast, minimum, select, shuffle
from mmulator.base.codegen.types import Ty, f16
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.lowering.floatbits import bits_of, split, widen
from mmulator.compiler.lowering.scope import LANES, U8, U16, U32, Mods, Result, Scope, outline, to


@dataclass(frozen=True)
class Small:
    """A small format.

    bits, mantissa, bias: of the format.
    largest: magnitude bits of the greatest finite number.
    infinity: its bits, or None.
    nan: bits of a converted NaN (without sign).
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int


SMALL = {
    "f16": Small(16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF),
    "bf16": Small(16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF),
    "tf32": Small(19, 10, 127, 0x3FBFF, 0x3FC00, 0x3FFFF),
    "e4m3": Small(8, 3, 7, 0x7E, None, 0x7F),
    "e5m2": Small(8, 2, 15, 0x7B, 0x7C, 0x7F),
    "e3m2": Small(6, 2, 3, 0x1F, None, 0x1F),
    "e2m3": Small(6, 3, 1, 0x1F, None, 0x1F),
    "e2m1": Small(4, 1, 1, 0x7, None, 0x7),
}


@dataclass(frozen=True)
class Random:
    """Random bits of .rs: `count` bits, the highest of which is added at the highest bit that is cut off."""

    bits: Value
    count: int

    def increment(self, drop: Value) -> Value:
        wider = drop > self.count
        up = self.bits << select(wider, drop - self.count, 0)
        return select(wider, up, self.bits >> select(wider, 0, self.count - drop))


def _increment(mode: str, negative: Value, drop: Value, kept: Value, random: Random | None) -> Value:
    """The number that is added below the last kept bit before the lower `drop` bits are cut off.

    mode: rounding mode.
    negative: whether the value is negative.
    drop: number of bits that are cut off.
    kept: the kept bits.
    random: random bits of .rs.
    """
    if random is not None:
        return random.increment(drop)
    ty = drop.ty
    one = constant(drop.b, ty, 1)
    all_below = (one << drop) - 1
    zero = constant(drop.b, ty, 0)
    match mode:
        case "rn":
            return select(drop == 0, 0, (all_below >> 1) + (kept & 1))
        case "rna":
            return (one << drop) >> 1
        case "rp":
            return select(negative, zero, all_below)
        case "rm":
            return select(negative, all_below, zero)
    return zero


def narrow(
    value: Value, target: Small, mode: str, *, finite: bool = False, relu: bool = False, random: Random | None = None
) -> Value:
    """Bits of the .f32 `value` in the format `target`, as unsigned 32-bit lanes.

    value, target: the number and the format.
    mode: rounding mode.
    finite: whether overflow and infinity give the greatest number.
    relu: whether negative numbers give +0.
    random: random bits of .rs.
    """
    bits = bits_of(value)
    ty: Ty = bits.ty
    magnitude, negative = bits & 0x7FFFFFFF, bits > 0x7FFFFFFF
    field = magnitude >> 23
    subnormal = field == 0
    exponent = select(subnormal, 1, field)  # biased by 127
    significand = (magnitude & 0x7FFFFF) | select(subnormal, constant(bits.b, ty, 0), 0x800000)
    least = 127 + 1 - target.bias  # biased exponent of the target's least normal number
    below = select(exponent < least, least - exponent, 0) if least > 1 else constant(bits.b, ty, 0)
    lost = below + (23 - target.mantissa)
    drop = minimum(lost, 25)
    if random is not None:  # how far below the last kept bit the number lies decides how likely it is rounded up
        significand = significand >> minimum(lost - drop, 31)
    kept = significand >> drop
    rounded = (significand + _increment(mode, negative, drop, kept, random)) >> drop
    steps = select(exponent > least, exponent - least, 0)
    code = (steps << target.mantissa) + rounded
    too_large = code > target.largest
    if finite or target.infinity is None:
        code = select(too_large, target.largest, code)
    else:
        code = select(too_large, _overflow(mode, negative, target, magnitude), code)
    result = code | select(negative, constant(bits.b, ty, 1 << (target.bits - 1)), 0)
    if relu:
        result = select(negative, 0, result)
    return select(magnitude > 0x7F800000, target.nan, result)


def _overflow(mode: str, negative: Value, target: Small, magnitude: Value) -> Value:
    """Infinity, or the greatest finite number where rounding goes toward zero."""
    ty = magnitude.ty
    infinity = constant(magnitude.b, ty, must_be(target.infinity, int))
    match mode:
        case "rz":
            return select(magnitude == 0x7F800000, infinity, target.largest)
        case "rp":
            return select((magnitude == 0x7F800000) | ~negative, infinity, target.largest)
        case "rm":
            return select((magnitude == 0x7F800000) | negative, infinity, target.largest)
    return infinity


def enlarge(codes: Value, source: Small) -> Value:
    """Codes of a small format (unsigned 16-bit lanes, other bits zero) as .f16 bits, exactly; NaN is 0x7fff."""
    ty = codes.ty
    magnitude = codes & ((1 << (source.bits - 1)) - 1)
    sign = (codes >> (source.bits - 1)) << 15
    if source.bias == 15:  # e5m2 is the upper half of an .f16
        shifted = magnitude << (10 - source.mantissa)
        return select(shifted > 0x7C00, 0x7FFF, shifted | sign)
    # read as .f16 with the wrong bias, then corrected by an exact product
    scaled = widen(magnitude << (10 - source.mantissa), "f16") * float(2 ** (15 - source.bias))
    exact = bitcast(ty, f16.vec(ty.lanes)(scaled))
    result = exact | sign
    if source.bits == 8:
        result = select(magnitude == source.nan, 0x7FFF, result)
    return result


# packed formats ------------------------------------------------------------------------------------------------------
_PACKED = {f"{name}x2": small for name, small in SMALL.items() if small.bits <= 8}
_HALVES = {half: range(half, 2 * LANES, 2) for half in (0, 1)}


def _singles(m: Mods, a: Value, b: Value | None) -> tuple[Value, Value]:
    """The two .f32 values of the source, the low one first."""
    if b is not None:
        return b, a
    wide = widen(split(a), m.types[-1])
    return shuffle(wide, None, _HALVES[0]), shuffle(wide, None, _HALVES[1])


def _join(low: Value, high: Value, bits: int) -> Value:
    """Two codes (u32 lanes) side by side: two nibbles in 8 bits, or two bytes in 16."""
    return to(U8, (high << 4) | low) if bits == 4 else to(U16, (high << 8) | low)


def _to_packed(m: Mods, target: Small, a: Value, b: Value | None) -> Value:
    low, high = (narrow(v, target, "rn", finite=True, relu=m.has("relu")) for v in _singles(m, a, b))
    return _join(low, high, target.bits)


def _from_packed(m: Mods, source: Small, a: Value) -> Value:
    """Conversion to .f16x2 or .bf16x2, which is exact."""
    width = 4 if source.bits == 4 else 8
    mask = (1 << source.bits) - 1
    wide = U16(a)
    codes = (wide & mask, (wide >> width) & mask)
    halves = []
    for code in codes:
        half = enlarge(code, source)
        half = select(half >= 0x8000, 0, half) if m.has("relu") else half
        halves.append(_to_bf16(half) if m.type == "bf16x2" else half)
    return to(U32, halves[0]) | (to(U32, halves[1]) << 16)


def _to_bf16(codes: Value) -> Value:
    """.f16 bits that were converted from a small format, as .bf16; exact."""
    bits = bits_of(widen(codes, "f16")) >> 16
    return select(codes == 0x7FFF, 0x7FFF, to(codes.ty, bits))


def stochastic(x: Scope, m: Mods, a: Value, b: Value, e: Value, f: Value, rbits: Value) -> Result:
    """cvt.rs to four small numbers, a the highest. a and b share 16 random bits, e and f the other 16."""
    target = SMALL[m.type.removesuffix("x4")]
    width = 4 if target.bits == 4 else 8

    def body(a: Value, b: Value, e: Value, f: Value, rbits: Value) -> Value:
        first, second = rbits >> 16, rbits & 0xFFFF
        if target.bits == 4:  # the upper bytes of both halves are for a and b
            first, second = ((rbits >> 16) & 0xFF00) | ((rbits >> 8) & 0xFF), ((rbits >> 8) & 0xFF00) | (rbits & 0xFF)
        codes = (
            narrow(value, target, "rs", finite=True, relu=m.has("relu"), random=Random(random, 16))
            for value, random in ((a, first), (b, first), (e, second), (f, second))
        )
        result = reduce(lambda high, low: (high << width) | low, codes)
        return to(U16, result) if width == 4 else result

    return outline(x, f"ptx_{m.key}", U16 if width == 4 else U32, body, a, b, e, f, rbits)


def _to_exponent(m: Mods, value: Value) -> Value:
    """Code of a magnitude's power of two, 2^(code - 127); 255 is NaN."""
    magnitude = bits_of(value) & 0x7FFFFFFF
    code = magnitude >> 23
    if m.has("rp"):  # 2^-127 itself is a subnormal .f32
        up = ((magnitude & 0x7FFFFF) != 0) & (magnitude > 0x400000) & (magnitude < 0x7F800000)
        code = select(up, code + 1, code)
    if m.has("satfinite"):
        code = select((code == 255) & (magnitude <= 0x7F800000), 254, code)
    return code


def _from_exponents(a: Value) -> Value:
    """Conversion of .ue8m0x2 to .bf16x2."""
    halves = []
    for shift in (0, 8):
        code = (U32(a) >> shift) & 0xFF
        half = select(code == 0, 0x0040, select(code == 255, 0x7FFF, code << 7))
        halves.append(half)
    return halves[0] | (halves[1] << 16)


def convert(x: Scope, m: Mods, a: Value, b: Value | None) -> Result:
    """A cvt that has a packed small format on one side."""
    target, source = m.types[0], m.types[-1]
    name = f"ptx_{m.key}"
    if source == "ue8m0x2":
        return outline(x, name, U32, _from_exponents, a)
    if source in _PACKED:
        return outline(x, name, U32, lambda v: _from_packed(m, _PACKED[source], v), a)
    sources = (a,) if b is None else (a, b)

    def body(a: Value, b: Value | None = None) -> Value:
        if target == "ue8m0x2":
            low, high = (_to_exponent(m, v) for v in _singles(m, a, b))
            return _join(low, high, 8)
        return _to_packed(m, _PACKED[target], a, b)

    return outline(x, name, U8 if target == "e2m1x2" else U16, body, *sources)
