"""Control Flow Instructions (PTX ISA 9.1)."""

from __future__ import annotations

from mmulator.isa.pieces import maybe, row, src
from mmulator.isa.row import OperandSpec, Row, Slot

_UNI = maybe("uni")
_RESULTS = OperandSpec("ret-param", "arguments", "", "w")
_ARGUMENTS = OperandSpec("params", "arguments", "")


def _control(
    name: str, *slots: Slot, operands: tuple[OperandSpec, ...], ptx: tuple[int, int] = (1, 0), sm: int = 0
) -> Row:
    return row(name, slots, operands, f"Control Flow Instructions: {name}", ptx, sm)


ROWS: tuple[Row, ...] = (
    _control("bra", _UNI, operands=(OperandSpec("tgt", "label", ""),)),
    _control("brx.idx", _UNI, operands=(src("index", "u32"), OperandSpec("tlist", "targets", "")), ptx=(6, 0), sm=30),
    _control("call", _UNI, operands=(_RESULTS, OperandSpec("func", "callee", ""), _ARGUMENTS,
             OperandSpec("fproto", "prototype", "", optional=True))),
    _control("ret", _UNI, operands=()),
    _control("exit", operands=()),
)  # fmt: skip
