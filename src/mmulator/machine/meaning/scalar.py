"""Every other instruction: a pure function of its operands, lane by lane (vocabulary.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmulator.codegen.values import Value
from mmulator.machine.meaning.operands import write_result
from mmulator.machine.meaning.vocabulary import SEMANTICS
from mmulator.program.blocks import CARRY, form_name
from mmulator.ptx.tree import Immediate, Instruction, Operand, PredicatePair, VectorOperand

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter


class Carry:
    """The condition code of the lanes, as pure functions see it."""

    lanes = 32

    def __init__(self, e: Emitter, ins: Instruction) -> None:
        self._e, self._ins = e, ins
        self.device = e.device

    def call(self, function: Any, *args: Any) -> Value:
        return self._e.call(function, *args)

    @property
    def carry(self) -> Value:
        return self._e.read(CARRY)

    @carry.setter
    def carry(self, value: Value) -> None:
        self._e.write(CARRY, value, self._e.guard(self._ins))


def scalar(e: Emitter, ins: Instruction) -> None:
    """Operands in by the form's types, SEMANTICS[opcode], results out under the guard."""
    form: Any = ins.form
    function = SEMANTICS.get(form_name(ins)) or SEMANTICS[ins.opcode]
    targets: list[Operand] = []
    sources: list[Any] = []
    for spec, operand in zip(form.operands, ins.operands):
        if spec.access == "w":
            targets += [operand.p, operand.q] if isinstance(operand, PredicatePair) else [operand]
        elif spec.kind == "imm" and isinstance(operand, Immediate):
            sources.append(operand.value)
        elif isinstance(operand, VectorOperand):
            sources += [e.source(part, spec.type) for part in operand.elements]
        else:
            sources.append(e.source(operand, spec.type))
    results = function(Carry(e, ins), form, *sources)
    if not isinstance(results, tuple):
        results = (results,)
    for target, result in zip(targets, results):
        write_result(e, target, result, ins)
