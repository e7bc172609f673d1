"""Approximate functions of Floating Point and Half Precision Floating Point Instructions (PTX ISA 9.1).

What they compute, exactly as the special-function unit does, is in `mmulator.twin.sfu`.
"""

from __future__ import annotations

from mmulator.codegen.ops import bitcast
from mmulator.codegen.values import Value
from mmulator.machine.meaning.scope import UNSIGNED, Mods, Scope, call_through_memory
from mmulator.numerics.sfu.tables import DEFAULT_DEVICE
from mmulator.twin.sfu import lane_functions, tables_for, word_of


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
