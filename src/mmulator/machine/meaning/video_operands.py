"""Video instructions: operands with their selectors to machine/meaning/video.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.isa.video import ROWS
from mmulator.machine.meaning import lower, video
from mmulator.machine.meaning.memory import write_result
from mmulator.machine.meaning.scalar import Carry
from mmulator.machine.meaning.scope import mods
from mmulator.ptx.tree import Instruction, Operand, Reg

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter

_SIMD = ("2", "4")


def _selector(operand: Operand) -> str:
    return operand.component if isinstance(operand, Reg) else ""


def _negated(operand: Operand) -> bool:
    return isinstance(operand, Reg) and operand.negated


@lower(*{row.opcode for row in ROWS})
def video_instruction(e: Emitter, ins: Instruction) -> None:
    d, a, b, *rest = ins.operands
    m = mods(ins.form)
    signs = (_negated(a), _negated(b), bool(rest) and _negated(rest[0]))
    selectors = video.Selectors(_selector(d), _selector(a), _selector(b), signs)
    values = [e.source(o, "u32") for o in (a, b, *rest)]
    x = Carry(e, ins)
    if ins.opcode == "vmad":
        result = video.mad(x, m, selectors, *values)
    elif ins.opcode[-1] in _SIMD:
        result = video.simd(x, m, selectors, *values)
    else:
        result = video.scalar(x, m, selectors, values[0], values[1], values[2] if rest else None)
    write_result(e, d, result, ins)
