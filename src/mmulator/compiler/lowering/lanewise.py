"""Lane-wise instructions: operands are read by the form's types, a pure function computes, results are written under
the guard.
"""

from typing import Any

from mmulator.codegen.lang import Native
from mmulator.codegen.values import Value, extract
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import Meaning
from mmulator.compiler.lowering.operands import write_result
from mmulator.compiler.lowering.scope import mods
from mmulator.program.uses import CARRY
from mmulator.ptx.tree import Immediate, Instruction, Operand, PredicatePair, Reg, VectorOperand


class Lanes:
    """The view that a pure function has of the emitter: the lanes, their condition code, calls of native functions."""

    lanes = 32

    def __init__(self, e: Emitter, ins: Instruction) -> None:
        self._e, self._ins = e, ins
        self.device, self.known = e.device, e.known

    def call(self, function: Native, *args: Any) -> Value:
        return self._e.call(function, *args)

    @property
    def carry(self) -> Value:
        return self._e.read(CARRY)

    @carry.setter
    def carry(self, value: Value) -> None:
        self._e.write(CARRY, value, self._e.guard(self._ins))


def run(e: Emitter, ins: Instruction, meaning: Meaning) -> None:
    """Write an instruction whose results are a function of its operands."""
    form: Any = ins.form
    m = mods(form)
    targets: list[Operand] = []
    sources: list[Any] = []
    for spec, operand in zip(form.operands, ins.operands):
        if spec.access == "w":
            targets += [operand.p, operand.q] if isinstance(operand, PredicatePair) else [operand]
        elif spec.kind == "imm" and isinstance(operand, Immediate):
            sources.append(operand.value)
        elif isinstance(operand, VectorOperand):
            sources += [(part, spec.type) for part in operand.elements]
        else:
            sources.append((operand, spec.type))
    values = _ones(e, sources) if meaning.one is not None and meaning.one(m) else None
    if values is None:
        values = [e.source(*s) if isinstance(s, tuple) else s for s in sources]
    results = meaning.function(Lanes(e, ins), m, *values)
    if not isinstance(results, tuple):
        results = (results,)
    for target, result in zip(targets, results):
        if isinstance(target, Reg) and result.ty.lanes and target.name in e.frame.uniform:
            one = e.one_of(result)
            result = extract(result, 0) if one is None else one  # its sources are equal in all lanes, whichever are active
        write_result(e, target, result, ins)


def _ones(e: Emitter, sources: list[Any]) -> list[Any] | None:
    """The sources as values without lanes; None if lanes may differ."""
    values: list[Any] = []
    for s in sources:
        values.append(e.one(*s) if isinstance(s, tuple) else s)
        if values[-1] is None:
            return None
    return values
