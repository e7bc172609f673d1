"""Approximate functions of constants as ptxas computes them: rounded to nearest, unlike the unit.

The code around the unit in forms without .ftz is computed step by step. Every function takes and returns
bits. Checked with ptxas 13.5 on several thousand constants; docs/explanation/arithmetic.md.
"""

import math
import struct
from collections.abc import Callable

from mmulator.matrix.numerics.sfu.arithmetic import DOWN, F32, INFINITY, NAN, SIGN, UP, f32_bits, flushed, is_nan, multiply

_ONE = f32_bits(1.0)
_AFTER = {"rsqrt": f32_bits(4096.0), "sqrt": f32_bits(2.0**-12)}
_NUMBER: dict[str, Callable[[float], float]] = {
    "rcp": lambda v: 1.0 / v, "sqrt": math.sqrt, "rsqrt": lambda v: 1.0 / math.sqrt(v), "lg2": math.log2,
    "ex2": math.exp2, "sin": math.sin, "cos": math.cos,
}  # fmt: skip
# The same of +0, -0, +infinity, -infinity.
_EDGES: dict[str, tuple[int, int, int, int]] = {
    "rcp": (INFINITY, SIGN | INFINITY, 0, SIGN), "sqrt": (0, SIGN, INFINITY, NAN),
    "rsqrt": (INFINITY, SIGN | INFINITY, 0, NAN), "lg2": (SIGN | INFINITY, SIGN | INFINITY, INFINITY, NAN),
    "ex2": (_ONE, _ONE, INFINITY, 0), "sin": (0, SIGN, NAN, NAN), "cos": (_ONE, _ONE, NAN, NAN),
}  # fmt: skip


def scale_of(divisor: int, down: bool, up: bool) -> int:
    """The factor by which a division multiplies both its operands: 1, 2**24 (for a subnormal or zero divisor) or 0.25 (for a
    large one).
    """
    magnitude = divisor & ~SIGN
    if up and magnitude < f32_bits(2.0**-126):
        return UP
    return DOWN if down and f32_bits(2.0**126) < magnitude <= INFINITY else _ONE


def unit(name: str, x: int) -> int:
    """A function of a constant, in place of the unit; subnormal operands and results become zero."""
    if is_nan(x):
        return NAN
    x = flushed(x)
    if x & ~SIGN in (0, INFINITY):
        return _EDGES[name][(2 if x & INFINITY else 0) + (x >> 31)]
    (value,) = struct.unpack("<f", x.to_bytes(4, "little"))
    if value < 0 and name in ("sqrt", "rsqrt", "lg2"):
        return NAN
    if name == "ex2" and not -126 <= value < 128:
        return INFINITY if value > 0 else 0
    numerator, denominator = _NUMBER[name](value).as_integer_ratio()
    return flushed(F32.rounded(numerator, denominator.bit_length() - 1))


def constant(name: str, x: int, ftz: bool) -> int:
    """`name.approx{.ftz}.f32` of a constant."""
    if name == "rcp" and not ftz:
        scale = scale_of(x, down=True, up=True)
        return multiply(scale, unit(name, multiply(x, scale)))
    if name == "ex2" and not ftz and f32_bits(-126.0) < x <= SIGN | INFINITY:
        y = unit(name, multiply(x, f32_bits(0.5)))
        return multiply(y, y)
    if ftz or x & INFINITY or name in ("rcp", "ex2", "sin", "cos"):
        return unit(name, x)
    y = unit(name, multiply(x, UP))
    if name in _AFTER:
        return multiply(y, _AFTER[name])
    if y & INFINITY == INFINITY:
        return y
    return F32.rounded(F32.integer(y) - (24 << F32.scale), F32.scale)
