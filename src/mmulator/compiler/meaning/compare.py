"""Comparison and Selection Instructions, for all types (PTX ISA 9.1); register moves of one value."""

from collections.abc import Callable

from mmulator.base.codegen.ops import bitcast, select, shuffle
from mmulator.base.codegen.types import boolean
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.emit.block import shaped
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.floatbits import U16X64, flushed, format_of, is_nan_bits, loose, split, widen
from mmulator.compiler.lowering.scope import (
    BOOL,
    F32,
    LANES,
    U16,
    U32,
    UNSIGNED,
    Mods,
    Result,
    Scope,
    int_type,
    kind_of,
    of_integers,
)

# What LLVM calls them. Ordered: false if an operand is NaN; the `u` forms: true.
_FLOAT = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
_INTEGER = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
            "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}  # fmt: skip
_BOOL: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def compare(m: Mods, type_name: str, a: Value, b: Value) -> Value:
    """a CmpOp b, a boolean for each element (64 for packed types)."""
    kind = kind_of(type_name)
    if kind == "int":
        name = m.one(_INTEGER)
        predicate = _INTEGER[name]
        if len(predicate) == 2 and name not in ("eq", "ne"):
            predicate = ("s" if type_name[0] == "s" else "u") + predicate
        return a.b.emit(shaped(BOOL, a), f"icmp {predicate} {a.ty.llvm} {a.text}, {b.text}")
    format = format_of(type_name)
    a, b = (flushed(split(v) if kind == "half" else v, format, m.has("ftz")) for v in (a, b))
    if kind == "half":
        if m.has("nan", "num"):
            either = is_nan_bits(a, format) | is_nan_bits(b, format)
            return either if m.has("nan") else ~either
        a, b = widen(a, type_name), widen(b, type_name)
    return a.b.emit(boolean.vec(a.ty.lanes), f"fcmp {_FLOAT[m.one(_FLOAT)]} {a.ty.llvm} {a.text}, {b.text}")


@lanewise("setp", one=of_integers)
def setp(x: Scope, m: Mods, a: Value, b: Value, c: Value | None = None) -> Result:
    """(p, q): the comparison and its complement, each combined with c; for packed types the comparisons of the low and the high
    half.
    """
    test = compare(m, m.type, loose(x, a), loose(x, b))
    if test.ty.lanes == 2 * LANES:
        p, q = (shuffle(test, None, range(half, 2 * LANES, 2)) for half in (0, 1))
    else:
        p, q = test, ~test
    if c is None:
        return p, q
    combine = _BOOL[m.one(_BOOL)]
    return combine(p, c), combine(q, c)


_TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}


@lanewise("set")
def set_(x: Scope, m: Mods, a: Value, b: Value, c: Value | None = None) -> Result:
    """1.0 or 0 for floating-point results, all ones or 0 for integers; for packed types in each half."""
    test = compare(m, m.types[-1], a, b)
    pairs = test.ty.lanes == 2 * LANES
    if c is not None:
        if pairs:
            c = shuffle(c, None, [n // 2 for n in range(2 * LANES)])
        test = _BOOL[m.one(_BOOL)](test, c)
    true = _TRUE.get(m.type, -1)
    if kind_of(m.type) == "int":
        out = int_type(m.type)
    else:
        out = F32 if m.type == "f32" else U32 if pairs else U16
    elements = U16X64 if pairs else UNSIGNED[out.bits]
    return bitcast(out, select(test, constant(a.b, elements, true), 0))


@lanewise("selp", one=of_integers)
def selp(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    return select(c, a, b)


@lanewise("slct")
def slct(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """c >= 0 ? a : b; NaN counts as negative, -0 does not."""
    if m.types[-1] == "f32":
        c = flushed(c, format_of("f32"), m.has("ftz"))
    return select(c >= 0, a, b)


