"""Approximate functions of Floating Point and Half Precision Floating Point Instructions (PTX ISA 9.1).

What they compute, exactly as the special-function unit does, is in `mmulator.numerics.approx`.
"""

from __future__ import annotations

from mmulator.codegen.ops import bitcast, select
from mmulator.codegen.values import Value, constant
from mmulator.machine.ops.floatbits import FORMATS, bits_of, flushed
from mmulator.machine.ops.registry import UNSIGNED, Mods, Result, Scope, call_through_memory, semantic
from mmulator.numerics.approx import lane_functions, tables_for, word_of
from mmulator.numerics.approx.tables import DEFAULT_DEVICE


def approximate(x: Scope, m: Mods, *sources: Value) -> Value:
    """rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div.approx, div.full. The scope may name a `device`."""
    name = m.op
    if name == "div":
        name = "div.full" if m.has("full") else "div.approx"
    key = name, m.type, m.has("ftz")
    tables, _ = tables_for(getattr(x, "device", DEFAULT_DEVICE))
    word = UNSIGNED[word_of(key).bits]
    result = call_through_memory(x, lane_functions(tables)[key], word, *(bitcast(word, s) for s in sources))
    return bitcast(sources[0].ty, result)


@semantic("rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def unary(x: Scope, m: Mods, a: Value) -> Result:
    return approximate(x, m, a)


# parts of a division that is fused with a sum (machine/quotient.py) -----------------------------------------------------
@semantic("quotient.scale")
def quotient_scale(x: Scope, m: Mods, b: Value) -> Result:
    """What a divisor and its numerator are multiplied with: 1, 0.25 (above 2**126) or 2**24 (below 2**-126)."""
    magnitude = bits_of(b) & FORMATS["f32"].magnitude
    scale = constant(b.b, b.ty, 1.0)
    if m.has("down"):
        scale = select(magnitude > 253 << 23, constant(b.b, b.ty, 0.25), scale)
    if m.has("up"):
        scale = select(magnitude < 1 << 23, constant(b.b, b.ty, 2.0**24), scale)
    return scale


@semantic("quotient.times")
def quotient_times(x: Scope, m: Mods, value: Value, scale: Value) -> Result:
    """Scaled, and flushed with .ftz where it is scaled. A NaN may be any NaN: the reader makes it the one there is."""
    if not m.has("ftz"):
        return value * scale
    single = FORMATS["f32"]
    return select(scale == 1.0, value, flushed(flushed(value, single, True) * scale, single, True))
