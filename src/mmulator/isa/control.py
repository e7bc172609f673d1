"""Control Flow Instructions (PTX ISA 9.1)."""

from mmulator.isa.effects import ACTS, Effects, Ends, Flow, Ptxas
from mmulator.isa.pieces import maybe, row, src
from mmulator.isa.row import OperandSpec, Row, Slot

_UNI = maybe("uni")
_RESULTS = OperandSpec("ret-param", "arguments", "", "w")
_ARGUMENTS = OperandSpec("params", "arguments", "")
_CONTROL = ACTS.but(counted_as="control", flow=Flow.DEFINED)


def _control(
    name: str, *slots: Slot, operands: tuple[OperandSpec, ...], ends: Ends, ptx: tuple[int, int] = (1, 0), sm: int = 0,
    effects: Effects = _CONTROL,
) -> Row:  # fmt: skip
    return row(name, slots, operands, f"Control Flow Instructions: {name}", ptx, sm, effects=effects.but(ends=ends))


ROWS: tuple[Row, ...] = (
    _control("bra", _UNI, operands=(OperandSpec("tgt", "label", ""),), ends=Ends.BRANCH),
    _control("brx.idx", _UNI, operands=(src("index", "u32"), OperandSpec("tlist", "targets", "")), ends=Ends.INDEXED,
             ptx=(6, 0), sm=30),
    _control("call", _UNI, operands=(_RESULTS, OperandSpec("func", "callee", ""), _ARGUMENTS,
             OperandSpec("fproto", "prototype", "", optional=True)), ends=Ends.CALL, effects=_CONTROL.but(ptxas=Ptxas.EXPANDED)),
    _control("ret", _UNI, operands=(), ends=Ends.RETURN),
    _control("exit", operands=(), ends=Ends.EXIT),
)  # fmt: skip
