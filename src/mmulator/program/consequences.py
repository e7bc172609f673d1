"""Consequences of a value that an instruction reads: whether it decides where memory is accessed or what runs, and which stores
it may reach.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.program.flow import spread
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Function, Instruction


@dataclass(frozen=True)
class Consequences:
    """decides: whether an address, a branch, or a store that every thread executes depends on the value. stores: those others
    that depend on it, each under a condition.
    """

    decides: bool
    stores: frozenset[Instruction]


def consequences(function: Function, of: Instruction, guarded: Collection[Instruction]) -> Consequences:
    """The consequences of the value that an instruction reads from memory, through registers alone.

    function: its function.
    of: the instruction.
    guarded: instructions that only some threads execute.
    """
    found = set(uses_and_defs(of)[1])
    every = [(i, *uses_and_defs(i)) for i in function.instructions]
    spread(found, [(uses, defs) for ins, uses, defs in every if ins is not of])
    stores = set[Instruction]()
    for ins, uses, _ in every:
        if uses.isdisjoint(found):
            continue
        places = {n for _, o in accesses(ins) if isinstance(o, Address) for n in registers_of(o)}
        writes = ins.effects.memory not in (MemoryEffect.NONE, MemoryEffect.READ) and ins.form["space"] not in ("local", "param")
        if writes and ins in guarded:
            stores.add(ins)
        elif writes or not places.isdisjoint(found) or ins.effects.ends in (Ends.BRANCH, Ends.INDEXED):
            return Consequences(True, frozenset())
    return Consequences(False, frozenset(stores))
