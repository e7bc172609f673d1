"""Consequences of loaded values: loads whose value goes back to where it was read, with some bits replaced, and not elsewhere;
and whether a value decides where memory is accessed or what runs, and which stores it may reach.

C++ has no element smaller than a byte: programs write a nibble as `*p = *p & ~mask | bits`, or by compare-and-swap in a loop.
In fresh memory what they read was never written; but nothing depends on it, except bits that stay as they were.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mmulator.isa.effects import Algebra, Ends, Flow, MemoryEffect, Pointer, Queue, Step, Stored, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.blocks import FunctionBlocks
from mmulator.ptx.program.flow import spread
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Operand, Reg

OLD, MASKED, REPLACED = range(3)  # of a register: what was read; that without some bits; that with others in their place
_STEPS = {
    **{(algebra, state): state for algebra in (Algebra.COPY, Algebra.CONVERSION) for state in (OLD, MASKED, REPLACED)},
    (Algebra.AND, OLD): MASKED, (Algebra.OR, MASKED): REPLACED,
}  # fmt: skip
DEPTH = 8  # of the sums that an address is
Place = tuple[str, int, int]  # address as sums of registers, offset, bits


def _sums(operand: Operand, writers: dict[str, list[Instruction]], depth: int = 0) -> str:
    """An address as text: registers that one instruction writes, through its copies and sums; empty if another one is met.
    writers: of each register.
    """
    if isinstance(operand, Immediate):
        return str(operand.value)
    if not isinstance(operand, Reg):
        return ""
    if len(by := writers.get(operand.name, [])) != 1 or depth == DEPTH:
        return ""
    adds = by[0].effects.pointer in (Pointer.SAME, Pointer.SUM) and by[0].guard is None
    texts = [_sums(o, writers, depth + 1) for o in by[0].operands if adds and o is not by[0].operands[0]]
    return "+".join(texts) if texts and all(texts) else operand.name


def _place(ins: Instruction, writers: dict[str, list[Instruction]]) -> Place | None:
    """The place that an instruction accesses, if its address is known. writers: of each register."""
    base = next((o for o in ins.operands if isinstance(o, Address)), None)
    text = _sums(base.base, writers) if base is not None and isinstance(base.base, Reg) else ""
    if base is None or not text or not ins.form["type"] or ins.form["vec"]:
        return None
    return text, base.offset, type_bits(ins.form["type"])


def _swaps(ins: Instruction) -> bool:
    return ins.effects.memory is MemoryEffect.ATOMIC and ins.form["op"] == "cas"


def kept_bits(function: FunctionBlocks) -> frozenset[Instruction]:
    """These loads, and the compare-and-swaps that store what comes of them."""
    if "kept" not in function.known:
        function.known["kept"] = _found(function.function)
    found: frozenset[Instruction] = function.known["kept"]
    return found


def _found(function: Function) -> frozenset[Instruction]:
    readers: dict[str, list[Instruction]] = {}
    writers: dict[str, list[Instruction]] = {}
    for ins in function.instructions:
        for found, names in zip((readers, writers), uses_and_defs(ins)):
            for name in names:
                found.setdefault(name, []).append(ins)
    acts = [i for i in function.instructions if i.effects.memory is not MemoryEffect.NONE]
    places = {i: place for i in acts if (place := _place(i, writers)) is not None}
    stores = {place for i, place in places.items() if i.effects.memory in (MemoryEffect.WRITE, MemoryEffect.ATOMIC)}
    loads = [i for i in places if i.effects.flow is Flow.LOADED and i.effects.memory is MemoryEffect.READ]
    return frozenset().union(*(_of(load, places, readers) for load in loads if places[load] in stores))


def _of(load: Instruction, places: dict[Instruction, Place], readers: dict[str, list[Instruction]]) -> set[Instruction]:
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
            if places.get(ins) != places[load] or values[-1] not in ((REPLACED, None) if _swaps(ins) else (REPLACED,)):
                return set()
            replaced = replaced or values[-1] == REPLACED
            kept |= {ins} if _swaps(ins) else set()
        elif step is None and not (ins.effects.algebra is Algebra.COMPARISON and values == [OLD, OLD]):  # was it swapped?
            return set()
    return kept if replaced else set()


# consequences of a value ----------------------------------------------------------------------------------------------
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


def own_stores(function: Function, of: Instruction) -> tuple[frozenset[Instruction], bool] | None:
    """The stores to global memory that the value which a thread reads by an instruction may reach, through registers of its warp
    alone, and whether those of other lanes are among them; None if it may reach anything else that shows: an address, a
    condition, another warp, other memory.
    """
    found, stores, exchanged = set(uses_and_defs(of)[1]), set[Instruction](), False
    every = [(i, *uses_and_defs(i)) for i in function.instructions]
    spread(found, [(uses, defs) for _, uses, defs in every])
    for ins, uses, _ in every:
        e = ins.effects
        if uses.isdisjoint(found) or (e.still and not e.carry):
            continue
        decides = {n for _, o in accesses(ins) if isinstance(o, Address) for n in registers_of(o)}
        decides |= {ins.guard[0].name} if ins.guard is not None else set()
        decides |= set(registers_of(ins.operands[-1])) if e.together is Together.MEMBERS else set()
        stays = e.queue is Queue.NONE and e.step is Step.NONE and e.ends is Ends.NO and decides.isdisjoint(found)
        alone = e.together is Together.ALONE
        stored = e.memory is MemoryEffect.WRITE and e.stored is Stored.VALUES and alone and "global" in ins.modifiers
        reads = e.memory is MemoryEffect.READ and alone  # under a guard: its register keeps what it had
        passed = e.memory is MemoryEffect.NONE and e.pure and e.together in (Together.MEMBERS, Together.WARP)
        if not stays or not (stored or reads or passed):
            return None
        exchanged |= passed
        if stored:
            stores.add(ins)
    return frozenset(stores), exchanged
