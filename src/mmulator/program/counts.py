"""The class and the multiply-accumulates with which an instruction counts in a report."""

from mmulator.ptx.tree import Instruction

_FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f32x2", "f64"))
_LANES = 32


def instruction_class(ins: Instruction) -> str:
    """Class of an instruction in a report: `wgmma`, `mma`, `cp.async`, `memory`, `integer`, `float`, ..."""
    return ins.effects.counted_as or ("integer" if _FLOATS.isdisjoint(ins.modifiers) else "float")


def instruction_macs(ins: Instruction) -> int:
    """Multiply-accumulates that one warp executes with this instruction."""
    if not ins.effects.multiplies:
        return 0
    form = ins.form
    return form.m * form.n * form.k * _LANES // form.lanes
