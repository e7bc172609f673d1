"""Loads of tensor memory whose values have all gone to memory before another thread can know of the load.

A use of a register waits for its load, also on a chip, but ptxas moves arithmetic, shuffles, votes and short branches behind
an arrival, and no access to memory. So a load of which every register, or what is computed from it, is stored or is part of an
address, by all lanes and on every path, before a barrier, an arrival, or any other signal to a thread, is over for the thread
that receives the signal.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from mmulator.isa.effects import Ends, MemoryEffect, Queue, Step, Together
from mmulator.program.blocks import Program
from mmulator.program.static.flow import forward
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction

# Values of loads that memory has not seen, a bit for each register of a load; and of which values each register has a part.
Unseen = tuple[int, Mapping[str, int]]
_QUIET = (Ends.NO, Ends.BRANCH, Ends.INDEXED)
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
    """What memory has not seen behind an instruction."""
    values, parts = unseen
    uses, defs = uses_and_defs(ins)
    used = reduce(or_, (parts.get(name, 0) for name in uses), 0)
    if used and ins.effects.memory is not MemoryEffect.NONE and ins.guard is None:
        values &= ~used
    if used or not defs.isdisjoint(parts):
        parts = {**parts, **dict.fromkeys(defs, used)}
    return values, parts


def _met(a: Unseen, b: Unseen) -> Unseen:
    (x, in_x), (y, in_y) = a, b
    names = {*in_x, *in_y}
    return x | y, {n: (in_x.get(n, 0) & (in_y.get(n, 0) | ~y)) | (in_y.get(n, 0) & ~x) for n in names}


def read_loads(program: Program) -> set[Instruction]:
    """The loads of tensor memory whose values have all gone to memory before they are heard of."""
    bits: dict[Instruction, int] = {}
    early = 0
    count = 0

    def step(unseen: Unseen, ins: Instruction) -> Unseen:
        nonlocal early, count
        values, parts = unseen
        if values:
            over = not uses_and_defs(ins)[1].isdisjoint(parts)
            values, parts = _behind(unseen, ins)
            if _is_heard(ins):
                early |= values
            elif over:  # a value of which no register has a part any more
                early |= values & ~reduce(or_, parts.values(), 0)
            values &= ~early
        if loads_tensor_memory(ins):
            written = [n for access, o in accesses(ins) if "w" in access for n in registers_of(o)]
            if ins not in bits:
                bits[ins] = ((1 << len(written)) - 1) << count
                count += len(written)
            own, first = bits[ins], bits[ins] & -bits[ins]
            parts = {name: part & ~own for name, part in parts.items()} | {n: first << i for i, n in enumerate(written)}
            values |= own
        return values, parts

    for function in program.functions.values():
        if any(map(loads_tensor_memory, function.function.instructions)):
            nothing: Unseen = (0, {})
            forward(function, nothing, step, _met)
    return {ins for ins, own in bits.items() if not own & early}
