"""Loads of tensor memory whose registers have all been read before another thread can know of the load.

A use of a register waits for its load, also on a chip. So a load whose every register is read, by all lanes and on every path,
before a barrier, an arrival, or any other signal to a thread, is over for the thread that receives the signal.
"""

from mmulator.isa.effects import Ends, MemoryEffect, Queue, Step, Together
from mmulator.program.blocks import Program
from mmulator.program.static.flow import forward
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction

Unread = frozenset[tuple[Instruction, str]]  # loads, each with a register that nothing has read since
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


def read_loads(program: Program) -> set[Instruction]:
    """The loads of tensor memory whose registers have all been read before they are heard of."""
    every: set[Instruction] = set()
    early: set[Instruction] = set()

    def step(unread: Unread, ins: Instruction) -> Unread:
        uses, defs = uses_and_defs(ins)
        if unread and ins.guard is None:
            unread = frozenset(u for u in unread if u[1] not in uses)
        if unread and (_is_heard(ins) or any(name in defs for _, name in unread)):
            early.update(load for load, name in unread if name in defs or _is_heard(ins))
            unread = frozenset(u for u in unread if u[0] not in early)
        if loads_tensor_memory(ins):
            every.add(ins)
            written = [n for access, o in accesses(ins) if "w" in access for n in registers_of(o)]
            unread |= frozenset((ins, name) for name in written)
        return unread

    for function in program.functions.values():
        if any(map(loads_tensor_memory, function.function.instructions)):
            nothing: Unread = frozenset()
            forward(function, nothing, step, lambda a, b: a | b)
    return every - early
