"""Loads of tensor memory whose values have all gone to memory before another thread can know of the load.

A use of a register waits for its load, also on a chip, but ptxas moves arithmetic, shuffles, votes and short branches behind
an arrival, and no access to memory. So a load of which every register, or what is computed from it, is stored or is part of an
address, by all lanes and on every path, before a barrier, an arrival, or any other signal to a thread, is over for the thread
that receives the signal. A deallocation comes at the end: for it the stores may lie before the last signal of the thread.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple

from mmulator.isa.effects import Ends, MemoryEffect, Queue, Step, Together
from mmulator.ptx.program.blocks import FunctionBlocks, Program
from mmulator.ptx.program.flow import forward
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction

FIRST, LAST = 1, 2  # signals of a thread before which all that it loaded has been stored


class Unseen(NamedTuple):
    """values: those of loads that memory has not seen, two bits for each register of a load (_again). unsaid: those that it has
    seen since the last signal. parts: of which values each register has a part.
    """

    values: int
    unsaid: int
    parts: Mapping[str, int]


_QUIET = (Ends.NO, Ends.BRANCH, Ends.INDEXED)
_LEAVES = (Ends.EXIT, Ends.RETURN, Ends.TRAP)
_PLAIN = (MemoryEffect.NONE, MemoryEffect.READ, MemoryEffect.WRITE)


def loads_tensor_memory(ins: Instruction) -> bool:
    effects = ins.effects
    return effects.queue is Queue.TENSOR_MOVES and effects.step is Step.ISSUE and effects.memory is MemoryEffect.READ


def _is_heard(ins: Instruction) -> bool:
    """Whether another thread may hear of an instruction, and so of what was before it."""
    effects, form = ins.effects, ins.form
    strong = "volatile" in ins.modifiers or (form["sem"] or "weak") != "weak"
    if effects.queue is Queue.TENSOR_MOVES:
        return False
    alone = effects.together not in (Together.MEETING, Together.LIVE)
    quiet = effects.ends in _QUIET and effects.memory in _PLAIN and effects.queue is Queue.NONE and alone and not strong
    return not quiet or effects.holds or effects.frees


def _behind(unseen: Unseen, ins: Instruction) -> Unseen:
    """Values that memory has not seen behind an instruction."""
    values, unsaid, parts = unseen
    uses, defs = uses_and_defs(ins)
    used = reduce(or_, (parts.get(name, 0) for name in uses), 0)
    if used and ins.effects.memory is not MemoryEffect.NONE and ins.guard is None:
        values, unsaid = values & ~used, unsaid | values & used
    if used or not defs.isdisjoint(parts):
        parts = {**parts, **dict.fromkeys(defs, used)}
    return Unseen(values, unsaid, parts)


def _met(a: Unseen, b: Unseen) -> Unseen:
    x, y = a.values, b.values
    parts = {n: (a.parts.get(n, 0) & (b.parts.get(n, 0) | ~y)) | (b.parts.get(n, 0) & ~x) for n in {*a.parts, *b.parts}}
    return Unseen(x | y, a.unsaid | b.unsaid, parts)


def _again(unseen: Unseen, new: int, size: int) -> Unseen:
    """A load is executed again: values of its last round, `size` bits `new`, become values of rounds before, which have the bits
    behind.
    """

    def moved(bits: int) -> int:
        return (bits & ~(new | new << size)) | (bits & new) << size

    before = Unseen(moved(unseen.values), unseen.unsaid, {name: moved(part) for name, part in unseen.parts.items()})
    rest = Unseen(unseen.values & ~new, unseen.unsaid, {name: part & ~new for name, part in unseen.parts.items()})
    return _met(before, rest)


def read_loads(program: Program) -> dict[Instruction, int]:
    """The loads of tensor memory: FIRST if all their values have gone to memory before they are heard of, LAST if they have
    before the thread's last signal.
    """
    found: dict[Instruction, int] = {}
    for function in program.functions.values():
        if any(map(loads_tensor_memory, function.function.instructions)):
            for signal in (FIRST, LAST):
                for ins, over in _loads(function, signal).items():
                    found[ins] = found.get(ins, 0) | signal * over
    return found


def _loads(function: FunctionBlocks, signal: int) -> dict[Instruction, bool]:
    """Whether each load of a function is over before the first signal behind it, or the last."""
    bits: dict[Instruction, int] = {}
    early = 0
    count = 0

    def step(unseen: Unseen, ins: Instruction) -> Unseen:
        nonlocal early, count
        if unseen.values | unseen.unsaid:
            over = not uses_and_defs(ins)[1].isdisjoint(unseen.parts)
            unseen = _behind(unseen, ins)
            if _is_heard(ins):
                ends = ins.effects.ends in _LEAVES
                early |= unseen.values * (ends or signal == FIRST) | unseen.unsaid * (ends and signal == LAST)
                unseen = unseen._replace(unsaid=0)
            elif over:  # a value of which no register has a part any more
                early |= unseen.values & ~reduce(or_, unseen.parts.values(), 0)
            unseen = unseen._replace(values=unseen.values & ~early)
        if loads_tensor_memory(ins):
            written = [n for access, o in accesses(ins) if "w" in access for n in registers_of(o)]
            size = len(written)
            if ins not in bits:
                bits[ins] = ((1 << 2 * size) - 1) << count
                count += 2 * size
            first = bits[ins] & -bits[ins]
            new = (first << size) - first
            unseen = _again(unseen, new, size)
            parts = dict(unseen.parts) | {name: first << i for i, name in enumerate(written)}
            unseen = Unseen(unseen.values | new, unseen.unsaid, parts)
        return unseen

    forward(function, Unseen(0, 0, {}), step, _met)
    return {ins: not own & early for ins, own in bits.items()}
