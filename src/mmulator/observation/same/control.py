"""Conditions, addresses and operands of whole instructions that depend on inputs, and that no expression has.

The `Expressions` (expressions.py) of a launch enter with its trail; their `leans` has what depends on inputs.
"""

from __future__ import annotations

from typing import Any

from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.observation.record.addresses import operands_of
from mmulator.observation.record.memory import is_followed
from mmulator.observation.record.trail import TrailStep
from mmulator.ptx.tree import NegatedPredicate, Reg, flatten
from mmulator.runtime.native.state import LANES


def note_control(e: Any) -> None:
    """Note each branch and each store whose condition depends on inputs, and each store to an address that does.

    An exit that no lane takes has no step: its guard is that of the lanes that go past it.
    """
    executed = e.trail.kernel.executed
    for step in e.trail.steps:
        ins, before = e.trail.instruction(step), executed[step.site - 1] if step.site else None
        stores = ins.effects.memory not in (MemoryEffect.NONE, MemoryEffect.READ)
        if stores and not is_followed(e.trail, step):
            raise e.uncovered(ins)
        for one in (ins, before):
            if one is not None and one.guard is not None and ((one is ins and stores) or one.effects.ends is not Ends.NO):
                for lane in _of(step.lanes):
                    e.note_open(step, lane, one.guard[0], "the condition")
        if stores or ins.effects.ends is Ends.INDEXED:
            for lane in _of(e.trail.guard(step)):
                e.note_address(step, lane, ins)
                e.note_open(step, lane, ins.operands[0] if not stores else None, "the branch")
                if ins.effects.memory is MemoryEffect.COPY:
                    for operand in flatten(ins.operands):
                        register = operand.register if isinstance(operand, NegatedPredicate) else operand
                        e.note_open(step, lane, register if isinstance(register, Reg) else None, "what is copied")


def note_product(e: Any, step: TrailStep) -> None:
    """Note operands of a matrix product besides its matrices and scale factors: metadata, descriptors, whether D is added."""
    if step.number not in e.noted:
        e.noted.add(step.number)
        for name, operand in operands_of(e.trail.instruction(step)).items():
            if name not in ("a", "b", "c", "d", "scale_a", "scale_b"):
                for one in flatten((operand,)):
                    register = one.register if isinstance(one, NegatedPredicate) else one
                    for lane in _of(step.lanes):
                        e.note_open(step, lane, register if isinstance(register, Reg) else None, f"{name} of the product")


def note_rows(e: Any, step: TrailStep) -> None:
    """Note the addresses of rows that the lanes of a warp give."""
    if step.number not in e.noted:
        e.noted.add(step.number)
        for lane in _of(step.lanes):
            e.note_address(step, lane, e.trail.instruction(step))


def _of(lanes: int) -> list[int]:
    return [n for n in range(LANES) if lanes >> n & 1]
