"""Bit patterns of the floating-point formats and operations on them: NaN, flushing of subnormals, order."""

from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.codegen.ops import bitcast, is_nan, select, shuffle
from mmulator.base.codegen.types import Ty, f16, u16
from mmulator.base.codegen.values import Builder, Value, constant
from mmulator.compiler.lowering.scope import F32, SIGNED, U32, UNSIGNED, to

U16X64 = u16.vec(64)


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point format. bits, mantissa: widths. nan: the NaN that arithmetic returns."""

    bits: int
    mantissa: int
    nan: int

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def magnitude(self) -> int:
        return self.sign - 1

    @property
    def infinity(self) -> int:
        return self.magnitude >> self.mantissa << self.mantissa

    @property
    def quiet(self) -> int:
        return 1 << (self.mantissa - 1)


FORMATS = {
    "f16": FloatFormat(16, 10, 0x7FFF),
    "bf16": FloatFormat(16, 7, 0x7FFF),
    "f32": FloatFormat(32, 23, 0x7FFFFFFF),
    "f64": FloatFormat(64, 52, 0xFFF8000000000000),
}


def format_of(type_name: str) -> FloatFormat:
    """The format of a float type, or of the elements of a packed type."""
    return FORMATS[type_name.removesuffix("x2")]


def bits_of(value: Value) -> Value:
    """A float's bits as an unsigned integer; raw bits unchanged."""
    if value.ty.kind == "int":
        return value
    return bitcast(UNSIGNED[value.ty.bits].element.vec(value.ty.lanes), value)


def nan32() -> Value:
    """The NaN of .f32 arithmetic, in every lane."""
    return Value(Builder.current(), F32, "splat (float 0x7FFFFFFFE0000000)")


def canonical(value: Value, x: Any = None) -> Value:
    """An .f32 result with the NaN of the hardware, 0x7fffffff. The scope remembers the original value for `loose`."""
    result = select(is_nan(value), nan32(), value)
    if x is not None:
        getattr(x, "known", {})["loose", result.text] = value
    return result


def loose(x: Any, value: Value) -> Value:
    """A float before its NaNs were made canonical, for operations whose result does not depend on the kind of quiet NaN."""
    found: Value = getattr(x, "known", {}).get(("loose", value.text), value)
    return found


def saturate(value: Value) -> Value:
    """The value clamped to [0, 1]; NaN and -0 become +0."""
    b, ty = value.b, value.ty
    zero, one = constant(b, ty, 0.0), constant(b, ty, 1.0)
    return b.intrinsic("minimumnum", ty, [b.intrinsic("maximumnum", ty, [value, zero]), one])


def flush(bits: Value, format: FloatFormat) -> Value:
    """The bits, with a subnormal replaced by a zero of the same sign."""
    small = (bits & format.infinity) == 0
    return select(small, bits & format.sign, bits)


def flushed(value: Value, format: FloatFormat, ftz: bool) -> Value:
    """A float value, or raw bits, with subnormals flushed if `ftz`."""
    if not ftz:
        return value
    return bitcast(value.ty, flush(bits_of(value), format))


def is_nan_bits(bits: Value, format: FloatFormat) -> Value:
    return (bits & format.magnitude) > format.infinity


def ordered_key(bits: Value) -> Value:
    """Signed integers in the order of the floats: -0 before +0, NaNs at the ends."""
    ty = SIGNED[bits.ty.bits].element.vec(bits.ty.lanes)
    number = to(ty, bits)
    return number ^ to(ty, to(bits.ty, number >> (bits.ty.bits - 1)) >> 1)


# halves -------------------------------------------------------------------------------------------------------------
def split(value: Value) -> Value:
    """u32 x 32 as u16 x 64, low halves first in each pair; u16 x 32 unchanged."""
    return bitcast(U16X64, value) if value.ty.bits == 32 else value


def join(value: Value) -> Value:
    """u16 x 64 as u32 x 32; u16 x 32 unchanged."""
    return bitcast(U32, value) if value.ty.lanes == 64 else value


def widen(bits: Value, type_name: str) -> Value:
    """.f16 or .bf16 bits (any number of lanes) as floats of 32 bits, exactly."""
    lanes = bits.ty.lanes
    if type_name.startswith("bf16"):
        return bitcast(_f32(lanes), to(_u32(lanes), bits) << 16)
    return to(_f32(lanes), bitcast(f16.vec(lanes), bits))


def _f32(lanes: int) -> Ty:
    return F32.element.vec(lanes)


def _u32(lanes: int) -> Ty:
    return U32.element.vec(lanes)


def concat(a: Value, b: Value) -> Value:
    """Lanes of a, then lanes of b."""
    return shuffle(a, b, range(2 * a.ty.lanes))
