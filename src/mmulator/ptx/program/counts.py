"""Numbers for reports and schedules: the class and the multiply-accumulates with which an instruction counts, and the registers
of a thread in kernels with setmaxnreg, as ptxas decides it (found with ptxas 13.0).
"""

from collections.abc import Iterable
from math import prod

from mmulator.base.errors import must_be
from mmulator.isa.chips import REGISTERS
from mmulator.ptx.tree import Function, Immediate, Instruction

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


# registers of a thread ------------------------------------------------------------------------------------------------
UNIT = 8  # registers of a thread that are given together
MOST = 255


def count_of(ins: Instruction) -> int:
    """The number of registers that a setmaxnreg requests."""
    return must_be(ins.operands[0], Immediate).value


def entry_registers(kernel: Function, functions: Iterable[Function]) -> int:
    """Registers of a thread when the kernel begins; 0 without setmaxnreg, or if ptxas ignores it (C7508).

    ptxas ignores it unless there is a bound: .maxnreg, or .minnctapersm together with .maxntid or .reqntid. The number is that
    bound, or the greatest request of a setmaxnreg.inc, whichever is less. functions: the kernel and all functions that it may
    call.
    """
    every = [i for f in functions for i in f.instructions if i.effects.resizes]
    d = kernel.directives
    threads, blocks = d.get("reqntid") or d.get("maxntid"), d.get("minnctapersm")
    if not every:
        return 0
    if "maxnreg" in d:
        bound = max(int(d["maxnreg"][0]), 3 * UNIT)
    elif threads and blocks and int(blocks[0]):
        warps = -(-prod(int(n) for n in threads) // 32)
        bound = REGISTERS // (int(blocks[0]) * warps * 32) // UNIT * UNIT
    else:
        return 0
    asked = [count_of(i) for i in every if "inc" in i.modifiers]
    return min(bound, MOST, *([max(asked)] if asked else []))
