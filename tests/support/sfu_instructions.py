"""The approximate instructions in plain integers: the unit, and the code that ptxas for sm_90 adds to it.

Every function takes and returns bits. Floating Point Instructions: rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div;
Half Precision Floating Point Instructions: ex2, tanh (PTX ISA 9.1). The sequences were read off the machine code of
ptxas 12.8. The unit flushes subnormal inputs and results in any case, so the forms without .ftz scale around it.
"""

from collections.abc import Callable

from mmulator.matrix.numerics.sfu.arithmetic import (
    DOWN,
    F32,
    INFINITY,
    INVERSE_TWO_PI,
    SIGN,
    UP,
    BinaryFormat,
    f32_bits,
    is_nan,
    multiply,
)
from mmulator.matrix.numerics.sfu.tables import Tables
from mmulator.matrix.twin.sfu.native import Key
from tests.support import sfu_unit as unit

F64 = BinaryFormat(53, 64, 0xFFF8000000000000)
_2_126 = f32_bits(2.0**126)


def _subnormal(bits: int) -> bool:
    """Whether |x| < 2**-126, zero included: the negation of FSETP.GEU."""
    return not bits & INFINITY


# f32 -----------------------------------------------------------------------------------------------------------------
def rcp(x: int, tables: Tables, ftz: bool) -> int:
    if ftz:
        return unit.rcp(x, tables)
    factor = UP if _subnormal(x) else DOWN if _2_126 < x & ~SIGN else f32_bits(1.0)
    return multiply(factor, unit.rcp(multiply(x, factor), tables))


def rsqrt(x: int, tables: Tables, ftz: bool) -> int:
    if ftz or not _subnormal(x):
        return unit.rsqrt(x, tables)
    return multiply(unit.rsqrt(multiply(x, UP), tables), f32_bits(4096.0))


def sqrt(x: int, tables: Tables, ftz: bool) -> int:
    if ftz or not _subnormal(x):
        return unit.sqrt(x, tables)
    return multiply(unit.sqrt(multiply(x, UP), tables), f32_bits(2.0**-12))


def lg2(x: int, tables: Tables, ftz: bool) -> int:
    if ftz or not _subnormal(x):
        return unit.lg2(x, tables)
    y = unit.lg2(multiply(x, UP), tables)
    if y & INFINITY == INFINITY:
        return y
    return F32.rounded(F32.integer(y) - (24 << F32.scale), F32.scale)


def ex2(x: int, tables: Tables, ftz: bool) -> int:
    if ftz or x <= f32_bits(-126.0) or is_nan(x):  # as integers: every x >= 0, and -126 <= x < 0
        return unit.ex2(x, tables)
    y = unit.ex2(multiply(x, f32_bits(0.5)), tables)
    return multiply(y, y)


def _turns(x: int) -> int:
    """The reduced argument: FMUL.RZ by 1/2pi, in the .ftz forms too."""
    return multiply(x, INVERSE_TWO_PI, toward_zero=True)


def sin(x: int, tables: Tables, ftz: bool) -> int:
    return unit.sin(_turns(x), tables)


def cos(x: int, tables: Tables, ftz: bool) -> int:
    return unit.cos(_turns(x), tables)


def tanh(x: int, tables: Tables, ftz: bool) -> int:
    return unit.tanh(x, tables)


def div_approx(a: int, b: int, tables: Tables, ftz: bool) -> int:
    if not ftz and _subnormal(b):
        a, b = multiply(a, UP), multiply(b, UP)
    return multiply(unit.rcp(b, tables), a, ftz=ftz)


def div_full(a: int, b: int, tables: Tables, ftz: bool) -> int:
    if _2_126 < b & ~SIGN and not is_nan(b):
        a, b = multiply(a, DOWN, ftz=ftz), multiply(b, DOWN, ftz=ftz)
    elif not ftz and _subnormal(b):
        a, b = multiply(a, UP), multiply(b, UP)
    return multiply(unit.rcp(b, tables), a, ftz=ftz)


# half types ----------------------------------------------------------------------------------------------------------
Half = Callable[[int, Tables], int]


def _single(function: Half) -> Callable[[int, Tables, bool], int]:
    return lambda x, tables, ftz: function(x, tables)


def _pair(function: Half) -> Callable[[int, Tables, bool], int]:
    return lambda x, tables, ftz: function(x & 0xFFFF, tables) | function(x >> 16, tables) << 16


# f64 -----------------------------------------------------------------------------------------------------------------
def rcp_f64(x: int, tables: Tables, ftz: bool) -> int:
    return unit.rcp64h(x >> 32, tables) << 32


def rsqrt_f64(x: int, tables: Tables, ftz: bool) -> int:
    """rsqrt of an f64. Without .ftz: one step of third order from the seed; a subnormal is scaled by 2**54 and the result by
    2**27.
    """
    if ftz:
        return unit.rsqrt64h(x >> 32, tables) << 32
    magnitude = x & F64.sign - 1
    if magnitude == 0:
        return x | F64.infinity
    if magnitude > F64.infinity:
        return x | 1 << 51  # x + x: quiet
    if x & F64.sign:
        return F64.nan
    if magnitude == F64.infinity:
        return 0
    one = 1 << F64.scale
    subnormal = x < 1 << 52
    value = F64.integer(x) << (54 if subnormal else 0)
    seed = unit.rsqrt64h(F64.rounded(value, F64.scale) >> 32, tables) << 32
    y = F64.integer(seed)
    y2 = _rounded64(y * y, 2)
    error = _rounded64(one * one - value * y2, 2)
    slope = _rounded64(error * (one * 3 // 8) + one * one // 2, 2)
    result = _rounded64(slope * _rounded64(y * error, 2) + y * one, 2)
    return F64.rounded(result << (27 if subnormal else 0), F64.scale)


def _rounded64(number: int, factors: int) -> int:
    """A product of `factors` integers in units of 2**-scale, rounded to f64, again as an integer in these units."""
    return F64.integer(F64.rounded(number, factors * F64.scale))


# the table of all ----------------------------------------------------------------------------------------------------
Unary = Callable[[int, Tables, bool], int]
Binary = Callable[[int, int, Tables, bool], int]

# (operation, type, .ftz): a function of the bits of the operand, tables and .ftz.
UNARY: dict[Key, Unary] = {
    **{
        (name, "f32", ftz): function
        for name, function in (
            ("rcp", rcp), ("rsqrt", rsqrt), ("sqrt", sqrt), ("lg2", lg2), ("ex2", ex2), ("sin", sin), ("cos", cos),
        )
        for ftz in (False, True)
    },
    ("tanh", "f32", False): tanh,
    ("ex2", "f16", False): _single(unit.ex2_f16),
    ("ex2", "f16x2", False): _pair(unit.ex2_f16),
    ("ex2", "bf16", True): _single(unit.ex2_bf16),
    ("ex2", "bf16x2", True): _pair(unit.ex2_bf16),
    ("tanh", "f16", False): _single(unit.tanh_f16),
    ("tanh", "f16x2", False): _pair(unit.tanh_f16),
    ("tanh", "bf16", False): _single(unit.tanh_bf16),
    ("tanh", "bf16x2", False): _pair(unit.tanh_bf16),
    ("rcp", "f64", True): rcp_f64,
    ("rsqrt", "f64", True): rsqrt_f64,
    ("rsqrt", "f64", False): rsqrt_f64,
}  # fmt: skip

# The same for two operands.
BINARY: dict[Key, Binary] = {
    (name, "f32", ftz): function
    for name, function in (("div.approx", div_approx), ("div.full", div_full))
    for ftz in (False, True)
}
