"""Regions of waits: from the first question about a phase to where the thread leaves its loop. Only a yes leads there, with the
same values.

Between the two a thread does nothing that it or another could notice afterwards: it asks again, counts, looks at a clock, sleeps.
So neither the answers nor the clock are choices there (docs/reference/certificates.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Orders, Pointer, Step, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.blocks import Block, FunctionBlocks, Program, instructions
from mmulator.ptx.program.flow import forward, spread
from mmulator.ptx.program.frames import liveness
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, SpecialRegister, Symbol, VectorOperand

COLUMN_BITS = 16  # of an address of tensor memory
SMALL = 1 << 7  # values below mean the same in all types
NEXT, STATES = 8, 512  # blocks behind an answer that are tried as the end of a region; states of a thread in it, at most
Known = dict[str, int]


def asks(ins: Instruction | None) -> bool:
    """Whether an instruction asks an mbarrier whether a phase is over."""
    return ins is not None and ins.effects.ends is Ends.WAIT and ins.effects.memory is MemoryEffect.READ


def question(ins: Instruction) -> tuple[frozenset[str], list[object], object]:
    """The question of an instruction: its order of memory, the phase, its guard. The same of two whose answers mean the same."""
    return frozenset(ins.modifiers) - {"test_wait", "try_wait"}, [_named(o) for o in ins.operands[1:3]], ins.guard


def is_idle(ins: Instruction) -> bool:
    """Whether an instruction has no result and does nothing that this or another thread could see, such as nanosleep."""
    e = ins.effects
    alone = e.ends is Ends.NO and e.together is Together.ALONE and e.orders is Orders.NONE and e.counted_as != "barrier"
    return alone and e.memory is MemoryEffect.NONE and e.step is Step.NONE and not ins.operands[1:] and not uses_and_defs(ins)[1]


def regions(function: FunctionBlocks) -> frozenset[int]:
    """The blocks of a function in regions of waits, their questions among them; a question elsewhere is a choice."""
    if "waits" not in function.known:
        found: set[int] = set()
        for block in function.blocks:
            if block.ending is Ends.WAIT and asks(block.last) and block.index not in found:
                found |= _Region(block).blocks()
        function.known["waits"] = frozenset(found)
    answer: frozenset[int] = function.known["waits"]
    return answer


class _Region:
    def __init__(self, block: Block) -> None:
        assert block.last is not None
        self.start, self.function, self.wait = block, block.function, block.last
        self.asked = question(self.wait)
        self.before = self._before()

    def _into(self, block: Block) -> list[Block]:
        if "into" not in self.function.known:
            into: dict[int, list[Block]] = {}
            self.function.known["into"] = into
            for b in self.function.blocks:
                for target in b.targets:
                    into.setdefault(target, []).append(b)
        found: list[Block] = self.function.known["into"].get(block.index, [])
        return found

    def _before(self) -> list[Block]:
        """The blocks that always lead to the question, such as the one that computes its address, the last one first."""
        found: list[Block] = []
        at = self.start
        while len(into := self._into(at)) == 1 and into[0].ending is Ends.NO and len(found) < NEXT:
            at = into[0]
            found.append(at)
        return found

    def blocks(self) -> set[int]:
        """The blocks of the region; none if there is no end to it that answers decide nothing behind."""
        if self.wait.guard is None and isinstance(self.wait.operands[0], Reg):
            for end in self._ends():
                if (found := self._until(end)) is not None:
                    return found
        return set()

    def _ends(self) -> Iterator[int]:
        """The blocks to which the answer yes leads."""
        at, known = self.start.targets[0], self._answered(self.wait, {}, 1)
        for _ in range(NEXT):
            yield at
            ways = self._ways(self.function.blocks[at - self.function.entry], known)
            if ways is None or len(ways) != 1:
                return
            at = ways[0]

    def _answered(self, ins: Instruction, known: Known, answer: int) -> Known:
        return {**known, **dict.fromkeys(uses_and_defs(ins)[1], answer)}

    def _until(self, end: int) -> set[int] | None:
        """The blocks between the question and an end; None if the region does not end there."""
        first, start = self.function.entry, self.start
        seen = set[tuple[int, frozenset[tuple[str, int]], bool]]()
        todo: list[tuple[int, Known, bool]] = [(start.index, {}, False)]
        leads: dict[int, set[int]] = {}
        while todo:
            at, known, over = todo.pop()
            state = at, frozenset(known.items()), over
            if at == end or state in seen:
                if at == end and not over:
                    return None
                continue
            seen.add(state)
            here, known = self.function.blocks[at - first], dict(known)
            if len(seen) > STATES or here.after is not None:
                return None
            last = here.last
            if last is not None and here.ending is Ends.WAIT:
                if over or not asks(last) or question(last) != self.asked or end == start.index:
                    return None
                todo += [(here.targets[0], self._answered(last, known, answer), bool(answer)) for answer in (0, 1)]
                continue
            ways = self._ways(here, known)
            if ways is None:
                return None
            leads.setdefault(at, set()).update(ways)
            todo += [(way, known, over) for way in ways]
        found = {at for at, _, _ in seen}
        return found if self._closed(found) and self._ends_each_turn(leads) and self._same_values(found, end) else None

    def _ways(self, block: Block, known: Known) -> list[int] | None:
        """Execute a block without a question, and where it leads; None if it does something that can be noticed."""
        if block.after is not None or not all(self._step(ins, known) for ins in block.body if ins is not block.last):
            return None
        last = block.last
        if block.ending is Ends.NO:
            return block.targets if last is None or last.effects.ends is Ends.BRANCH or self._step(last, known) else None
        if block.ending is not Ends.BRANCH or last is None or last.guard is None:
            return None
        register, negated = last.guard
        if register.name in known:
            return [block.targets[0 if bool(known[register.name]) != negated else 1]]
        return [*block.targets]

    def _step(self, ins: Instruction, known: Known) -> bool:
        """Execute an instruction. False if another thread could see that."""
        guard = ins.guard
        if guard is not None and guard[0].name in known and bool(known[guard[0].name]) == guard[1]:
            return True
        if is_idle(ins):
            return True
        if not ins.effects.still or ins.effects.ends is not Ends.NO or ins.effects.carry:
            return False
        result = known_result(ins, known) if guard is None or guard[0].name in known else None
        defs = uses_and_defs(ins)[1]
        for name in defs:
            known.pop(name, None)
        if result is not None and len(defs) == 1:
            known[next(iter(defs))] = result
        return True

    def _closed(self, found: set[int]) -> bool:
        """Whether a thread that comes to the region goes straight to its first question."""
        blocks, entry = self.function.blocks, self.function.entry
        inside = found | {b.index for b in self.before}
        into = ((blocks[at - entry], self._into(blocks[at - entry])) for at in inside)
        return all(self._asks_next(b) for b, ways in into if b.index == entry or any(w.index not in inside for w in ways))

    def _asks_next(self, block: Block) -> bool:
        for _ in range(NEXT):
            if block is self.start:
                return True
            if block.ending is not Ends.NO:
                return False
            block = self.function.blocks[block.targets[0] - self.function.entry]
        return False

    def _ends_each_turn(self, leads: dict[int, set[int]]) -> bool:
        """Whether each way around has a question in it, so that no thread turns for ever by the clock alone."""
        left = dict(leads)
        while done := [at for at, ways in left.items() if not ways & left.keys()]:
            for at in done:
                del left[at]
        return not left

    def _same_values(self, found: set[int], end: int) -> bool:
        """Whether what is read behind the end, and what the questions ask, has one value on all ways."""
        ahead = [ins for b in reversed(self.before) if b.index in found for ins in instructions(b)]
        steady, made = set[str](), set[str]()
        for at in found - {b.index for b in self.before}:
            for ins in all_of(self.function.blocks[at - self.function.entry]):
                made |= uses_and_defs(ins)[1]
        for ins in ahead:
            uses, defs = uses_and_defs(ins)
            fixed = ins.guard is None and not uses & (made | defs) and not any(isinstance(o, SpecialRegister) for o in ins.leaves)
            steady = steady | defs if fixed and not defs & (steady | made) else steady - defs
            made |= defs - steady
        asked = {name for o in self.wait.operands[1:3] for name in registers_of(o)}
        return not made & (asked | liveness(self.function).into[end - self.function.entry])


def _named(operand: object) -> object:
    """An operand without its place in the text."""
    match operand:
        case Address():
            return _named(operand.base), operand.offset
        case Reg():
            return operand.name, operand.component, operand.negated
        case Symbol():
            return operand.name, operand.offset
        case Immediate():
            return operand.value
    return operand


def all_of(block: Block) -> Iterator[Instruction]:
    yield from instructions(block)
    if block.last is not None and block.last not in instructions(block):
        yield block.last


def _every(function: FunctionBlocks) -> list[tuple[Block, Instruction, frozenset[str]]]:
    """The instructions of a function, each with its block and what it reads."""
    if "reads" not in function.known:
        function.known["reads"] = [(b, i, reads(i)) for b in function.blocks for i in all_of(b)]
    found: list[tuple[Block, Instruction, frozenset[str]]] = function.known["reads"]
    return found


def reads(ins: Instruction) -> frozenset[str]:
    """Registers that an instruction reads, without those that it writes under a guard."""
    if ins.effects.ends is Ends.CALL:
        return uses_and_defs(ins)[0]
    read = (o for access, o in accesses(ins) if "r" in access or isinstance(o, Address))
    guard = (ins.guard[0].name,) if ins.guard is not None else ()
    return frozenset((*(name for o in read for name in registers_of(o)), *guard))


# what comes of an answer ----------------------------------------------------------------------------------------------
def shows_nowhere(ins: Instruction, function: FunctionBlocks) -> bool:
    """Whether nothing depends on what an instruction answers but the way through regions of waits, and when they ask again."""
    every, found = _every(function), set(uses_and_defs(ins)[1])
    spread(found, [uses_and_defs(i) for _, i, _ in every])
    for block, other, read in every:
        if read.isdisjoint(found) or is_idle(other) or (other.effects.still and not other.effects.carry):
            continue
        if asks(other) and other.guard is None and not {n for o in other.operands[1:3] for n in registers_of(o)} & found:
            continue
        if block.ending is not Ends.BRANCH or other is not block.last or block.index not in regions(function):
            return False
    return True


def shows_as_number(program: Program, loads: set[Instruction]) -> list[Instruction]:
    """Loads of addresses of tensor memory, of some, whose results are used for more than to compute addresses of it and to give
    it back.
    """

    def passed(ins: Instruction, found: frozenset[str]) -> AbstractSet[str] | None:
        if not _is_place(ins, found):
            return None
        if not ins.effects.still or _keeps_lanes(ins):
            return frozenset()
        return uses_and_defs(ins)[1] if _keeps_columns(ins, found) else None

    every = ((i, f) for f in program.functions.values() for _, i, _ in _every(f) if i in loads)
    return [ins for ins, function in every if not _is_kept_to(ins, function, passed)]


def _keeps_lanes(ins: Instruction) -> bool:
    """Whether an instruction leaves nothing of an address of tensor memory but its lane, which is the same whichever columns are
    found.
    """
    by = ins.operands[-1]
    known = ins.effects.algebra is Algebra.RIGHT and isinstance(by, Immediate) and COLUMN_BITS <= by.value < 32
    return known and type_bits(ins.form["type"]) == 32


def _keeps_columns(ins: Instruction, found: frozenset[str]) -> bool:
    """Whether what an instruction makes of one address of tensor memory has its columns once, and where they were: else they
    might be taken for lanes, or lead out of what was allocated elsewhere.
    """
    e, sources = ins.effects, ins.operands[1:]
    read = [o for o in sources if not found.isdisjoint(registers_of(o))]
    if len(read) != 1 or any(isinstance(o, VectorOperand) for o in ins.operands):
        return False
    if e.pointer in (Pointer.DIFFERENCE, Pointer.ADDEND):
        return read[0] is sources[0 if e.pointer is Pointer.DIFFERENCE else -1]
    return e.pointer in (Pointer.SAME, Pointer.SUM) or e.algebra in (Algebra.AND, Algebra.OR, Algebra.SELECTION)


def _is_place(ins: Instruction, found: frozenset[str]) -> bool:
    e = ins.effects
    if e.still or e.frees:
        return not e.carry
    places = {n for o in ins.operands if isinstance(o, Address) for n in registers_of(o)}
    others = {n for o in ins.operands if not isinstance(o, Address) for n in registers_of(o)} - uses_and_defs(ins)[1]
    guard = {ins.guard[0].name} if ins.guard is not None else set()
    return e.tensor and bool(places & found) and not (others | guard) & found


def only_awaited(ins: Instruction, function: FunctionBlocks) -> bool:
    """Whether the state of an mbarrier that an arrival gives is used by waits alone, perhaps by way of local memory."""

    def passed(other: Instruction, found: frozenset[str]) -> AbstractSet[str] | None:
        if not _passes_on(other, found):
            return None
        local = {LOCAL} if other.effects.memory is MemoryEffect.WRITE else set[str]()
        return frozenset() if asks(other) else uses_and_defs(other)[1] | local

    return _is_kept_to(ins, function, passed)


Passed = Callable[[Instruction, frozenset[str]], AbstractSet[str] | None]


def _is_kept_to(ins: Instruction, function: FunctionBlocks, passed: Passed) -> bool:
    """Whether nothing but what is allowed hangs on the results of an instruction. passed: gives the registers to which one that
    reads some of them passes them on; None: more hangs on it.
    """
    nothing = frozenset[str]()

    def step(found: frozenset[str], other: Instruction) -> frozenset[str]:
        defs = uses_and_defs(other)[1]
        left = found - defs if other.guard is None else found
        if other is ins:
            return left | defs
        return left | (passed(other, found) or nothing) if _takes(other, found) else left

    for index, found in forward(function, nothing, step, frozenset.union).items():
        block = function.blocks[index - function.entry]
        for other in instructions(block):
            if _takes(other, found) and passed(other, found) is None:
                return False
            found = step(found, other)
        if block.ending is Ends.BRANCH and block.last is not None and _takes(block.last, found):
            return False
    return True


LOCAL = "local"  # the register that stands for local memory


def _takes(ins: Instruction, found: frozenset[str]) -> bool:
    """Whether an instruction reads one of some registers."""
    loads = "local" in ins.modifiers and ins.effects.memory is MemoryEffect.READ
    return not reads(ins).isdisjoint(found) or (loads and LOCAL in found)


def _passes_on(ins: Instruction, found: frozenset[str]) -> bool:
    """Whether an instruction that reads some registers waits for them, or copies them, and nothing else hangs on them."""
    decides = {n for o in ins.operands if isinstance(o, Address) for n in registers_of(o)}
    decides |= {ins.guard[0].name} if ins.guard is not None else set()
    if asks(ins):
        decides |= {n for o in ins.operands[3:] for n in registers_of(o)}
    elif ins.effects.algebra is Algebra.SELECTION:
        decides |= {*registers_of(ins.operands[-1])}
    elif ins.effects.algebra is not Algebra.COPY:
        return "local" in ins.modifiers and ins.effects.memory in (MemoryEffect.READ, MemoryEffect.WRITE) and not decides & found
    return not decides & found


def known_result(ins: Instruction, known: Known) -> int | None:
    """The result of what is done with an answer: moves, selections, comparisons."""

    def value(operand: Operand) -> int | None:
        if isinstance(operand, Immediate):
            return operand.value
        return known.get(operand.name) if isinstance(operand, Reg) and not operand.negated else None

    values = [value(o) for o in ins.operands[1:]]
    match ins.effects.algebra:
        case Algebra.COPY if len(values) == 1:
            return values[0]
        case Algebra.NOT if "pred" in ins.modifiers and values[0] is not None:
            return int(not values[0])
        case Algebra.AND if "pred" in ins.modifiers and 0 in values:
            return 0
        case Algebra.OR if "pred" in ins.modifiers and 1 in values:
            return 1
        case Algebra.SELECTION if values[-1] is not None:
            return values[0] if values[-1] else values[1]
        case Algebra.COMPARISON if len(values) == 2 and ins.modifiers[0] in ("eq", "ne"):
            if all(v is not None and 0 <= v < SMALL for v in values):  # else two ways to write one value may look unlike
                return int((values[0] == values[1]) == (ins.modifiers[0] == "eq"))
    return None
