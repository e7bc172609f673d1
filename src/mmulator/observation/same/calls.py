"""Values that go into functions and come back: by registers, and by variables of the space .param.

The `Expressions` (expressions.py) of a launch enter with a step that reads such a value; its pieces leave.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.observation.record.memory import values_of
from mmulator.observation.record.trail import TrailStep
from mmulator.observation.same.graph import Pieces
from mmulator.ptx.program.uses import call_operands
from mmulator.ptx.tree import Address, Function, Instruction, Operand, Symbol, flatten


class PassedValues:
    """The values of the calls of a launch. expressions: its `Expressions`."""

    def __init__(self, expressions: Any) -> None:
        self.e, self.trail = expressions, expressions.trail
        self._writes: dict[tuple[Any, str], list[TrailStep]] = {}  # by warp and variable
        self._last: dict[tuple[int, int], TrailStep] = {}  # by the number of a call, and lane

    def returned(self, call: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces:
        """Bits of a register that a call gives what a function returns. bits: their value."""
        last = self._left(call, lane)
        given = self._function(last).returns[self._number(call, name)].name
        writer, took = next(self.trail.writers(last, given, lane), (call, False))
        if not took or self.trail.instruction(writer).guard is not None:
            raise self.e.uncovered(self.trail.instruction(call))
        return self.e.part(writer, lane, given, low, width, bits)

    def passed(self, step: TrailStep, lane: int, name: str, at: int, size: int) -> Pieces:
        """Bytes of a variable of the space .param that a step reads: a parameter of its function, or what a call returned.

        at, size: the first of the bytes in the variable, their number.
        """
        names = [p.name for p in self._function(step).params]
        if name not in names:
            return self._stored(step, lane, name, at, size)
        call = self.trail.call_of(step, lane)
        operand = None if call is None else call_operands(self.trail.instruction(call))[1][names.index(name)]
        if operand is None:
            raise self.e.uncovered(self.trail.instruction(step))
        if isinstance(operand, Symbol):
            return self._stored(call, lane, operand.name, at, size)
        return self.e.operand(call, lane, operand, 8 * at, 8 * size)

    def _stored(self, reader: TrailStep, lane: int, name: str, at: int, size: int) -> Pieces:
        """Bytes of a variable as a step finds them in its frame of registers."""
        for s in reversed(self._writers(reader, name)):
            if s.number >= reader.number or s.frame != reader.frame or not self.trail.guard(s) >> lane & 1:
                continue
            ins = self.trail.instruction(s)
            if ins.effects.ends is Ends.CALL:
                last = self._left(s, lane)
                return self._stored(last, lane, self._function(last).returns[self._number(s, name)].name, at, size)
            each, values = type_bits(ins.form["type"]) // 8, values_of(ins)
            number, byte = divmod(at - next(o.offset for o in ins.operands if isinstance(o, Address)), each)
            if number >= len(values) or number * each + byte + size <= 0:
                continue
            if number < 0 or byte + size > each or ins.guard is not None:
                break
            return self.e.operand(s, lane, values[number], 8 * byte, 8 * size, ins.form["type"])
        raise self.e.uncovered(self.trail.instruction(reader))

    def _writers(self, reader: TrailStep, name: str) -> list[TrailStep]:
        """The steps of a warp that write to a variable."""
        if not self._writes:
            self._writes = defaultdict(list)
            for s in self.trail.steps:
                for o in _written(self.trail.instruction(s)):
                    self._writes[s.warp, getattr(o, "name", "")].append(s)
        return self._writes[reader.warp, name]

    def _left(self, call: TrailStep, lane: int) -> TrailStep:
        """The last step of a lane in the function that a call enters."""
        if (call.number, lane) not in self._last:
            frame = None
            for s in islice(self.trail.steps, bisect_right(self.trail.numbers, call.number), None):
                if s.warp == call.warp and s.lanes >> lane & 1:
                    if s.frame == call.frame:
                        break
                    frame = s.frame if frame is None else frame
                    if s.frame == frame:
                        self._last[call.number, lane] = s
        return self._last[call.number, lane]

    def _function(self, step: TrailStep) -> Function:
        return self.trail.kernel.program.functions[self.trail.function_of(step)].function

    def _number(self, call: TrailStep, name: str) -> int:
        return [getattr(o, "name", "") for o in call_operands(self.trail.instruction(call))[0]].index(name)


def _written(ins: Instruction) -> Iterator[Operand]:
    """The variables of the space .param that an instruction writes."""
    if ins.effects.ends is Ends.CALL:
        yield from flatten(call_operands(ins)[0])
    elif ins.effects.memory is MemoryEffect.WRITE and ins.form["space"].startswith("param"):
        yield from (o.base for o in ins.operands if isinstance(o, Address))
