"""cvt to and from packed .e4m3x2, .e5m2x2, .e2m3x2, .e3m2x2, .e2m1x2 and .ue8m0x2, and to vectors of four with random bits (PTX
ISA 9.1: cvt).
"""

from functools import reduce

from mmulator.codegen.ops import select, shuffle
from mmulator.codegen.values import Value
from mmulator.compiler.lowering.floatbits import bits_of, split, widen
from mmulator.compiler.lowering.narrow import SMALL, Random, Small, enlarge, narrow
from mmulator.compiler.lowering.scope import LANES, U8, U16, U32, Mods, Result, Scope, outline, to

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
