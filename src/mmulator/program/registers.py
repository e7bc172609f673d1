"""How many registers a thread has where setmaxnreg changes that, as ptxas decides it (found by asking ptxas 13.0)."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from mmulator.errors import must_be
from mmulator.ptx.tree import Function, Immediate, Instruction

REGISTERS = 65536  # of a multiprocessor
UNIT = 8  # registers of a thread that are given together
MOST = 255


def count_of(ins: Instruction) -> int:
    """The registers that a setmaxnreg asks for."""
    return must_be(ins.operands[0], Immediate).value


def entry_registers(kernel: Function, functions: Iterable[Function]) -> int:
    """Registers of a thread when the kernel begins; 0 where there is no setmaxnreg, or where ptxas leaves it out (C7508).

    It leaves it out unless .maxnreg says a bound, or .minnctapersm beside .maxntid or .reqntid. The count is that bound, or the
    most that a setmaxnreg.inc asks for, if that is less. functions: all that the kernel may call, and itself.
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
