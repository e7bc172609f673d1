"""Lane-wise instructions: operands in by the form's types, a pure function, results out under the guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmulator.codegen.lang import Native
from mmulator.codegen.values import Value
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.operands import write_result
from mmulator.machine.meaning.scope import Result, mods
from mmulator.program.uses import CARRY
from mmulator.ptx.tree import Immediate, Instruction, Operand, PredicatePair, VectorOperand


class Lanes:
    """What a pure function sees of the emitter: the lanes, their condition code, calls of native functions."""

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


def run(e: Emitter, ins: Instruction, function: Callable[..., Result]) -> None:
    """Write an instruction whose results are `function` of its operands."""
    form: Any = ins.form
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
    results = function(Lanes(e, ins), mods(form), *sources)
    if not isinstance(results, tuple):
        results = (results,)
    for target, result in zip(targets, results):
        write_result(e, target, result, ins)
