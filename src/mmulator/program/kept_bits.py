"""Loads whose value goes back to where it was read, with some bits replaced, and not elsewhere.

C++ has no element smaller than a byte: programs write a nibble as `*p = *p & ~mask | bits`, or by compare-and-swap in a loop. In
fresh memory what they read was never written; but nothing depends on it, except bits that stay as they were.
"""

from __future__ import annotations

from mmulator.isa.effects import Algebra, Flow, MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Function, Instruction, Reg

OLD, MASKED, REPLACED = range(3)  # of a register: what was read; that without some bits; that with others in their place
_STEPS = {
    **{(algebra, state): state for algebra in (Algebra.COPY, Algebra.CONVERSION) for state in (OLD, MASKED, REPLACED)},
    (Algebra.AND, OLD): MASKED, (Algebra.OR, MASKED): REPLACED,
}  # fmt: skip
Place = tuple[str, int, str, int]  # register, offset, space, bits


def _place(ins: Instruction) -> Place | None:
    """The place that an instruction accesses, if its address is in a register."""
    for o in ins.operands:
        if isinstance(o, Address) and isinstance(o.base, Reg) and ins.form["type"] and not ins.form["vec"]:
            return o.base.name, o.offset, ins.form["space"], type_bits(ins.form["type"])
    return None


def _swaps(ins: Instruction) -> bool:
    return ins.effects.memory is MemoryEffect.ATOMIC and ins.form["op"] == "cas"


def kept_bits(function: Function) -> frozenset[Instruction]:
    """These loads, and the compare-and-swaps that store what comes of them."""
    readers: dict[str, list[Instruction]] = {}
    written: dict[str, int] = {}
    for ins in function.instructions:
        uses, defs = uses_and_defs(ins)
        for name in uses:
            readers.setdefault(name, []).append(ins)
        for name in defs:
            written[name] = written.get(name, 0) + 1
    stores = {place for i in function.instructions if i.effects.memory in (MemoryEffect.WRITE, MemoryEffect.ATOMIC)
              if (place := _place(i)) is not None and written.get(place[0]) == 1}  # fmt: skip
    loads = (i for i in function.instructions if i.effects.flow is Flow.LOADED and i.effects.memory is MemoryEffect.READ)
    return frozenset().union(*(_of(load, place, readers) for load in loads if (place := _place(load)) in stores))


def _of(load: Instruction, place: Place | None, readers: dict[str, list[Instruction]]) -> set[Instruction]:
    """The load and its compare-and-swaps; empty if what it reads goes elsewhere. readers: of each register."""
    states = dict.fromkeys(uses_and_defs(load)[1], OLD)
    left, kept, replaced = [*states], {load}, False
    met: dict[Instruction, int | None] = {}  # what reads these registers, and the state of its results
    while left:
        for ins in readers.get(left.pop(), ()):
            read = {states[n] for n in uses_and_defs(ins)[0] if n in states}
            step = OLD if _swaps(ins) else _STEPS.get((ins.effects.algebra, min(read)))
            met[ins] = step
            if step is None:
                continue
            for name in uses_and_defs(ins)[1]:
                if name not in states:
                    left.append(name)
                if states.setdefault(name, step) != step:
                    return set()
    for ins, step in met.items():
        values = [states.get(n) for access, o in accesses(ins) if "r" in access for n in registers_of(o)]
        if _swaps(ins) or ins.effects.memory is MemoryEffect.WRITE:
            if _place(ins) != place or values[-1] not in ((REPLACED, None) if _swaps(ins) else (REPLACED,)):
                return set()
            replaced = replaced or values[-1] == REPLACED
            kept |= {ins} if _swaps(ins) else set()
        elif step is None and not (ins.effects.algebra is Algebra.COMPARISON and values == [OLD, OLD]):  # was it swapped?
            return set()
    return kept if replaced else set()
