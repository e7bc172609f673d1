"""Values that go into functions and come back: by registers, and by variables of the space .param.

The `Expressions` (expressions.py) of a launch enter with a step that reads such a value; its pieces leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.observation.record.addresses import elements
from mmulator.observation.record.memory import values_of
from mmulator.observation.record.trail import TrailStep
from mmulator.observation.same.graph import Pieces
from mmulator.ptx.program.uses import call_operands
from mmulator.ptx.tree import Address, Reg, Symbol


def returned(e: Any, call: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces:
    """Bits of a register to which a call gives what a function returns. bits: their value."""
    inside = [*_inside(e, call, lane)]
    number = [getattr(o, "name", "") for o in call_operands(e.trail.instruction(call))[0]].index(name)
    given = e.trail.kernel.program.functions[e.trail.function_of(inside[-1])].function.returns[number].name
    for writer, took in e.trail.writers(inside[-1], given, lane):
        if e.trail.instruction(writer).guard is not None or not took:
            break
        return e.part(writer, lane, given, low, width, bits)
    raise e.uncovered(e.trail.instruction(call))


def passed(e: Any, step: TrailStep, lane: int, name: str, at: int, size: int) -> Pieces:
    """Bytes of a variable of the space .param that a step reads: a parameter of its function, or what a call returned.

    at, size: the first of the bytes in the variable, their number.
    """
    trail = e.trail
    function = trail.kernel.program.functions[trail.function_of(step)].function
    names = [p.name for p in function.params]
    if name in names:
        call = trail.call_of(step, lane)
        if call is None:
            raise e.uncovered(trail.instruction(step))
        operand = call_operands(trail.instruction(call))[1][names.index(name)]
        if not isinstance(operand, Symbol):
            return e.operand(call, lane, operand, 8 * at, 8 * size)
        return _stored(e, step, reversed([*_of(e, call, lane)]), lane, operand.name, at, size)
    for call in reversed([*_of(e, step, lane)]):
        results = call_operands(trail.instruction(call))[0] if trail.instruction(call).effects.ends is Ends.CALL else ()
        if name in [getattr(o, "name", "") for o in results]:
            inside = [*_inside(e, call, lane)]
            callee = trail.kernel.program.functions[trail.function_of(inside[-1])].function
            number = [getattr(o, "name", "") for o in results].index(name)
            return _stored(e, step, reversed(inside), lane, callee.returns[number].name, at, size)
    raise e.uncovered(trail.instruction(step))


def _of(e: Any, step: TrailStep, lane: int) -> Iterator[TrailStep]:
    """The steps of a lane before a step, in the same frame of registers."""
    for s in e.trail.steps:
        if s.number >= step.number:
            return
        if s.warp == step.warp and s.frame == step.frame and s.lanes >> lane & 1:
            yield s


def _inside(e: Any, call: TrailStep, lane: int) -> Iterator[TrailStep]:
    """The steps of a lane in the function that a call enters, not in those that it calls."""
    frame = None
    for s in e.trail.steps:
        if s.number > call.number and s.warp == call.warp and s.lanes >> lane & 1:
            if s.frame == call.frame:
                return
            frame = s.frame if frame is None else frame
            if s.frame == frame:
                yield s


def _stored(e: Any, reader: TrailStep, steps: Iterator[TrailStep], lane: int, name: str, at: int, size: int) -> Pieces:
    """Bytes that the first of some steps stored that writes to a variable."""
    for s in steps:
        ins = e.trail.instruction(s)
        where = next((o for o in ins.operands if isinstance(o, Address)), None)
        base = where.base if where is not None and ins.form["space"].startswith("param") else None
        if where is None or not isinstance(base, Symbol | Reg) or base.name != name or ins.effects.memory is MemoryEffect.READ:
            continue
        each, count = type_bits(ins.form["type"]) // 8, len(elements(values_of(ins)[0])) * len(values_of(ins))
        number, byte = divmod(at - where.offset, each)
        if at + size <= where.offset or at >= where.offset + each * count or not e.trail.guard(s) >> lane & 1:
            continue
        if number < 0 or byte + size > each or ins.guard is not None:
            break
        return e.operand(s, lane, values_of(ins)[number], 8 * byte, 8 * size, ins.form["type"])
    raise e.uncovered(e.trail.instruction(reader))
