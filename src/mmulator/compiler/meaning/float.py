"""Floating Point Instructions on .f32 and .f64 (PTX ISA 9.1), approximate functions excepted.

Arithmetic never contracts; `.rn` is the CPU's own operation. Results that are NaN get the bits the hardware gives them.
"""

from collections.abc import Callable
from typing import Any

from mmulator.base.codegen.ops import absolute, bitcast, fma, is_nan, select, sqrt
from mmulator.base.codegen.rounding import STRICT, directed
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.lowering.approximate import approximate
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.floatbits import FORMATS, FloatFormat, bits_of, canonical, flushed, loose, nan32, saturate
from mmulator.compiler.lowering.scope import BOOL, F32, F64, U32, U64, Mods, Result, Scope, outline, to

_NEAREST: dict[str, Callable[..., Value]] = {
    "fadd": lambda a, b: a + b,
    "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b,
    "fdiv": lambda a, b: a / b,
    "fma": fma,
    "sqrt": sqrt,
}
_OPERATION = {"add": "fadd", "sub": "fsub", "mul": "fmul", "fma": "fma", "mad": "fma", "div": "fdiv", "sqrt": "sqrt"}


def _rounded32(operation: str, mode: str, ftz: bool, *args: Value) -> Value:
    """One rounded .f32 operation; with `ftz` on operands that are not subnormal.

    The hardware flushes results that are subnormal after rounding to 24 bits with an unlimited exponent: a product that rounds
    up to the least normal number only because subnormals have fewer bits becomes zero. So the result times 2^24 is checked too.
    """

    def act(*values: Value) -> Value:
        return _NEAREST[operation](*values) if mode == "rn" else directed(operation, mode, F32, *values)

    result = act(*args)
    if not ftz or operation == "sqrt":
        return result
    if operation in ("fadd", "fsub"):  # exact where the result is subnormal
        return flushed(result, FORMATS["f32"], True)
    return flush_tiny(result, act(args[0] * 2.0**24, *args[1:2], *(c * 2.0**24 for c in args[2:])))


def flush_tiny(result: Value, grown: Value) -> Value:
    """`result`, or a zero of its sign if `grown`, the rounded result times 2^24, shows that it is subnormal."""
    zero = bitcast(F32, bits_of(result) & FORMATS["f32"].sign)
    return select(absolute(grown) < 2.0**-102, zero, result)


def arithmetic32(x: Scope, m: Mods, operation: str, *args: Value) -> Value:
    """One rounded .f32 operation, with .ftz and .sat."""
    ftz, mode = m.has("ftz"), m.rounding or "rn"
    args = tuple(flushed(loose(x, a), FORMATS["f32"], ftz) for a in args)
    if mode == "rn":
        result = _rounded32(operation, mode, ftz, *args)
    else:
        name = f"ptx_{operation}_{mode}{'_ftz' if ftz else ''}_f32"
        result = outline(x, name, F32, lambda *v: _rounded32(operation, mode, ftz, *v), *args, attributes=STRICT)
    return saturate(result) if m.has("sat") else canonical(result, x)


def nan64(result: Value, *args: Value) -> Value:
    """An .f64 result. A NaN becomes the first NaN among `args`, made quiet, or otherwise the hardware's default NaN."""
    format = FORMATS["f64"]
    bits = constant(result.b, U64, format.nan)
    for a in reversed(args):
        bits = select(is_nan(a), bits_of(a) | format.quiet, bits)
    return select(is_nan(result), bitcast(F64, bits), result)


def arithmetic64(x: Scope, m: Mods, operation: str, *args: Value) -> Value:
    """One rounded .f64 operation."""
    mode = m.rounding or "rn"

    def body(*values: Value) -> Value:
        plain = mode == "rn"
        result = _NEAREST[operation](*values) if plain else directed(operation, mode, F64, *values)
        a, *others = values
        return nan64(result, *((a, *others) if operation == "fdiv" else (*others, a)))

    return outline(x, f"ptx_{operation}_{mode}_f64", F64, body, *args, attributes="" if mode == "rn" else STRICT)


@lanewise("add", "sub", "mul", "fma", "mad", kinds="f32")
def arithmetic_f32(x: Scope, m: Mods, *args: Value) -> Result:
    if m.types[-1] in ("f16", "bf16"):  # add.f32.f16: the narrow operands first
        from mmulator.compiler.lowering.floatbits import widen

        args = tuple(widen(a, m.types[-1]) if a.ty.kind == "int" else a for a in args)
    return arithmetic32(x, m, _OPERATION[m.op], *args)


@lanewise("add", "sub", "mul", "fma", "mad", kinds="f64")
def arithmetic_f64(x: Scope, m: Mods, *args: Value) -> Result:
    return arithmetic64(x, m, _OPERATION[m.op], *args)


@lanewise("add", "sub", "mul", "fma", kinds="f32x2")
def arithmetic_f32x2(x: Scope, m: Mods, *args: Value) -> Result:
    """The operation on both halves of 64 bits."""
    halves = []
    for shift in (0, 32):
        parts = (bitcast(F32, to(U32, a >> shift if shift else a)) for a in args)
        halves.append(to(U64, bits_of(arithmetic32(x, m, _OPERATION[m.op], *parts))))
    return halves[0] | (halves[1] << 32)


_ARITHMETIC: dict[Any, Callable[..., Value]] = {F32: arithmetic32, F64: arithmetic64}


@lanewise("div", kinds="f32 f64")
def div(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    if m.has("approx", "full"):
        return approximate(x, m, a, b)
    return _ARITHMETIC[a.ty](x, m, "fdiv", a, b)


@lanewise("rcp", kinds="f32 f64")
def rcp(x: Scope, m: Mods, a: Value) -> Result:
    if m.has("approx"):
        return approximate(x, m, a)
    return _ARITHMETIC[a.ty](x, m, "fdiv", constant(a.b, a.ty, 1.0), a)


@lanewise("sqrt", kinds="f32 f64")
def square_root(x: Scope, m: Mods, a: Value) -> Result:
    if m.has("approx"):
        return approximate(x, m, a)
    result = _ARITHMETIC[a.ty](x, m, "sqrt", a)
    # LLVM knows that (a < 0 ? NaN : sqrt(a)) is sqrt(a), and forgets which NaN
    if m.type == "f64":
        return result
    negative = bits_of(flushed(a, FORMATS["f32"], m.has("ftz"))) > FORMATS["f32"].sign
    return select(negative, nan32(), result)


@lanewise("rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def approximation(x: Scope, m: Mods, a: Value) -> Result:
    return approximate(x, m, a)


# sign and order -----------------------------------------------------------------------------------------------------
@lanewise("abs", "neg", kinds="f32 f64")
def sign(x: Scope, m: Mods, a: Value) -> Result:
    """neg or abs. A NaN becomes the canonical NaN for .f32; for .f64 it keeps its payload and sign and becomes quiet."""
    a = flushed(loose(x, a), FORMATS[m.type], m.has("ftz"))
    result = -a if m.op == "neg" else a.b.intrinsic("fabs", a.ty, [a])
    return canonical(result, x) if m.type == "f32" else nan64(result, a)


@lanewise("copysign", kinds="f32 f64")
def copy_sign(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    """The sign of a, the magnitude of b."""
    return a.b.intrinsic("copysign", a.ty, [b, a])


def _extremum(name: str, a: Value, b: Value) -> Value:
    """min or max: -0 is less than +0, and a number is preferred to a NaN."""
    return a.b.intrinsic("minimumnum" if name == "min" else "maximumnum", a.ty, [a, b])


@lanewise("min", "max", kinds="f32")
def extremum32(x: Scope, m: Mods, a: Value, b: Value, c: Value | None = None) -> Result:
    format = FORMATS["f32"]
    args = [flushed(v if m.has("xorsign") else loose(x, v), format, m.has("ftz")) for v in (a, b, c) if v is not None]
    signs = None
    if m.has("xorsign"):
        signs = (bits_of(args[0]) ^ bits_of(args[1])) & format.sign
    if m.has("abs"):
        args = [v.b.intrinsic("fabs", F32, [v]) for v in args]
    result = _extremum(m.op, args[0], args[1])
    for v in args[2:]:
        result = _extremum(m.op, result, v)
    if signs is not None:
        result = bitcast(F32, bits_of(result) | signs)
    if m.has("NaN"):
        nan = a.b.emit(BOOL, f"fcmp uno {args[0].typed}, {args[1].text}")
        if c is not None:
            nan = nan | is_nan(args[2])
        return select(nan, nan32(), result)
    return canonical(result, x)


@lanewise("min", "max", kinds="f64")
def extremum64(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return nan64(_extremum(m.op, a, b), b, a)


# tests --------------------------------------------------------------------------------------------------------------
_TESTS: dict[str, Callable[[Value, FloatFormat], Value]] = {
    "finite": lambda u, f: u < f.infinity,
    "infinite": lambda u, f: u == f.infinity,
    "number": lambda u, f: u <= f.infinity,
    "notanumber": lambda u, f: u > f.infinity,
    "normal": lambda u, f: ((u - (1 << f.mantissa)) < f.infinity - (1 << f.mantissa)) | (u == 0),
    "subnormal": lambda u, f: (u - 1) < (1 << f.mantissa) - 1,
}


@lanewise("testp")
def testp(x: Scope, m: Mods, a: Value) -> Result:
    """testp; as on hardware, zero is normal."""
    format = FORMATS[m.type]
    return _TESTS[m.one(_TESTS)](bits_of(a) & format.magnitude, format)
