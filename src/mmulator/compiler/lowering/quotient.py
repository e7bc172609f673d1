"""Parts of a division that is fused with a sum (ptx/program/as_ptxas/quotient.py): operations without a name in PTX."""

from mmulator.base.codegen.ops import select
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.lowering.approximate import divided
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.floatbits import FORMATS, bits_of, flushed, saturate
from mmulator.compiler.lowering.scope import Mods, Result, Scope


@lanewise("quotient.sum")
def quotient_and_sum(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """a / b + c, rounded once behind the reciprocal."""
    result = divided(x, m.has("down"), m.has("ftz"), a, b, c)
    return saturate(result) if m.has("sat") else result


@lanewise("quotient.scale")
def quotient_scale(x: Scope, m: Mods, b: Value) -> Result:
    """The factor that scales a divisor and its numerator: 1, 0.25 (above 2**126) or 2**24 (below 2**-126)."""
    magnitude = bits_of(b) & FORMATS["f32"].magnitude
    scale = constant(b.b, b.ty, 1.0)
    if m.has("down"):
        scale = select(magnitude > 253 << 23, constant(b.b, b.ty, 0.25), scale)
    if m.has("up"):
        scale = select(magnitude < 1 << 23, constant(b.b, b.ty, 2.0**24), scale)
    return scale


@lanewise("quotient.times")
def quotient_times(x: Scope, m: Mods, value: Value, scale: Value) -> Result:
    """The scaled value, flushed with .ftz if it is scaled. A NaN may be any NaN: the reader makes it canonical."""
    if not m.has("ftz"):
        return value * scale
    single = FORMATS["f32"]
    return select(scale == 1.0, value, flushed(flushed(value, single, True) * scale, single, True))
