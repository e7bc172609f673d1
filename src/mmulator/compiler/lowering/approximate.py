"""Approximate functions of Floating Point and Half Precision Floating Point Instructions (PTX ISA 9.1).

The computation, with exactly the bits of the special-function unit, is in `mmulator.matrix.twin.sfu`.
"""

from mmulator.base.codegen.ops import bitcast, shuffle
from mmulator.base.codegen.values import Value
from mmulator.compiler.lowering.floatbits import loose
from mmulator.compiler.lowering.scope import F32, LANES, U32, UNSIGNED, Mods, Scope, outline
from mmulator.matrix.numerics.sfu.tables import DEFAULT_DEVICE, tables_for
from mmulator.matrix.twin.sfu.native import divisor_lanes, lane_functions, quotient, word_of


def approximate(x: Scope, m: Mods, *sources: Value) -> Value:
    """rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div.approx, div.full. The scope may name a `device`."""
    if m.op == "div":
        return divided(x, m.has("full"), m.has("ftz"), *sources)
    key = m.op, m.type, m.has("ftz")
    tables, _ = tables_for(getattr(x, "device", DEFAULT_DEVICE))
    source = loose(x, sources[0])
    return bitcast(source.ty, x.call(lane_functions(tables)[key], bitcast(UNSIGNED[word_of(key).bits], source)))


def divided(x: Scope, full: bool, ftz: bool, a: Value, b: Value, c: Value | None = None) -> Value:
    """a / b, or a / b + c rounded once behind the reciprocal. Work that several divisions by one value share is computed once.

    x: the scope.
    full: whether it is div.full.
    ftz: whether subnormals are flushed.
    a, b, c: operands; c is None without a sum.
    """
    tables, _ = tables_for(getattr(x, "device", DEFAULT_DEVICE))
    a, b = loose(x, a), loose(x, b)
    known = getattr(x, "known", {})
    key = divisor_lanes, full, ftz, b.text
    if key not in known:
        both = x.call(divisor_lanes(tables, full, ftz), bitcast(U32, b))
        known[key] = shuffle(both, None, range(LANES)), shuffle(both, None, range(LANES, 2 * LANES))
    inverse, scale = known[key]
    if not ftz:
        return bitcast(F32, quotient(bitcast(U32, a), inverse, scale, False, None if c is None else bitcast(U32, c)))

    def flushed(*values: Value) -> Value:
        numerator, inverse, scale, *more = values
        return quotient(numerator, inverse, scale, True, *more)

    sources = [bitcast(U32, a), inverse, scale, *([] if c is None else [bitcast(U32, c)])]
    return bitcast(F32, outline(x, f"quotient_ftz{'' if c is None else '_sum'}", U32, flushed, *sources))
