"""Instructions whose effect may depend on the schedule, by what they say: the side conditions of a certificate
(docs/reference/certificates.md).

A kernel without races does the same in every schedule if it executes none of them. `choices` says for each what it chooses by;
`relied_on` names what the machine takes for granted of others. Where a text does not decide, an instruction counts as a choice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mmulator.isa.effects import Algebra, Effects, Ends, MemoryEffect, Orders, Queue, Step, Together
from mmulator.ptx.program.blocks import Block, Program, instructions
from mmulator.ptx.program.frames import liveness, unread_results
from mmulator.ptx.program.uses import accesses, callee_of, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, SpecialRegister, Symbol

STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "e4m3x4", "e5m2x4"))
MIXED = frozenset(("exch", "cas", "inc", "dec"))  # operations that do not commute with themselves
# Special registers that another schedule may give another value, by how their names begin.
VOLATILE = {
    "clock": "a clock", "globaltimer": "a clock", "pm": "a counter of the chip", "smid": "where the block runs",
    "warpid": "where the warp runs", "gridid": "the number of the launch",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """An instruction whose effect the schedule may choose, and why."""

    instruction: Instruction
    why: str


def choices(program: Program, executed: Iterable[Block]) -> list[Choice]:
    """The choices among the blocks of a program that a launch has executed, the first of each kind and line."""
    found: list[Choice] = []
    kinds: dict[str, dict[tuple[str, str], Instruction]] = {}
    unread = {name: unread_results(f) for name, f in program.functions.items()}
    names = {id(f): name for name, f in program.functions.items()}
    for block in executed:
        for ins in every(block):
            why = _why(ins, block, unread[names[id(block.function)]])
            if why:
                found.append(Choice(ins, why))
            elif "op" in (form := dict(ins.form.modifiers)) and ins.effects.memory in (MemoryEffect.ATOMIC, MemoryEffect.REDUCE):
                kind = form["op"], form["type"].lstrip("bsu") if form["op"] == "add" else form["type"]
                kinds.setdefault(_space(ins), {}).setdefault(kind, ins)
    all_kinds = {key: ins for of_space in kinds.values() for key, ins in of_space.items()}
    for space, of_space in kinds.items():
        several = all_kinds if space == "" else {**of_space, **kinds.get("", {})}
        if len(several) > 1:
            found.append(Choice(next(iter(of_space.values())), "is one of several atomic operations, whose order may matter"))
    return sorted(dict.fromkeys(found), key=lambda c: c.instruction.span.start)


def every(block: Block) -> Iterator[Instruction]:
    """The instructions of a block, with the one that ends it."""
    yield from instructions(block)
    if block.last is not None and block.last not in instructions(block):
        yield block.last


def _space(ins: Instruction) -> str:
    """`global` or `shared`; "" for a generic address, which may lead to either."""
    spaces = [word.partition("::")[0] for word in ins.modifiers]
    if ins.effects.memory is MemoryEffect.REDUCE:
        return "global" if "global" in spaces else "shared"
    return next((s for s in spaces if s in ("global", "shared")), "")


def _why(ins: Instruction, block: Block, unread: frozenset[str]) -> str:
    """The words for what the schedule chooses by an instruction; "" for nothing."""
    effects, words = ins.effects, {w for word in ins.modifiers for w in (word, word.partition("::")[0])}
    form = dict(ins.form.modifiers) if effects.ends is not Ends.CALL else {}
    for operand in ins.leaves:
        if isinstance(operand, SpecialRegister):
            for name, what in VOLATILE.items():
                if operand.name.startswith(name):
                    return f"reads %{operand.name}: {what}"
    if effects.ends is Ends.CALL:
        callee = callee_of(ins)
        return "prints, in the order in which threads come" if isinstance(callee, Symbol) and callee.name == "vprintf" else ""
    if effects.chooses:
        return effects.chooses
    if effects.counted_as == "barrier":
        return _of_barrier(ins, block)
    if "op" in form and effects.memory in (MemoryEffect.ATOMIC, MemoryEffect.REDUCE):
        if form["op"] in MIXED:
            return f"is an atomic {form['op']}, whose effect depends on who comes first"
        if form.get("type", "f32") in FLOATS:  # the type of a tensor's elements stands in its map
            return "combines floats in the order in which threads come"
        if not uses_and_defs(ins)[1] <= unread:
            return "answers what was there before, which depends on who comes first"
        return ""
    if words & STRONG and "local" not in words and effects.memory is not MemoryEffect.NONE and effects.together is Together.ALONE:
        return "accesses memory that other threads may change meanwhile: it is strong, so this is no race"
    return ""


def _waits(ins: Instruction) -> bool:
    """Whether an instruction asks an mbarrier whether a phase is over."""
    return ins.effects.ends is Ends.WAIT and ins.effects.memory is MemoryEffect.READ


def _of_barrier(ins: Instruction, block: Block) -> str:
    if _waits(ins):
        return "" if _only_spins(ins, block) else "answers whether a phase is over, and more than a loop hangs on that"
    if ins.effects.memory is MemoryEffect.ATOMIC and (state := uses_and_defs(ins)[1]):
        for other in (i for b in block.function.blocks for i in every(b)):
            if other is not ins and _reads(other) & state and not _waits(other):
                return "gives a state, and more than a wait hangs on that"
    return ""


def _reads(ins: Instruction) -> frozenset[str]:
    """Registers that an instruction reads, without those that it writes under a guard."""
    reads = {name for access, operand in accesses(ins) if "r" in access or isinstance(operand, Address) for name in
             registers_of(operand)} if ins.effects.ends is not Ends.CALL else uses_and_defs(ins)[0]  # fmt: skip
    return frozenset(reads)


def _is_idle(ins: Instruction) -> bool:
    """Whether an instruction has no result and does nothing that this or another thread could see, such as nanosleep."""
    e = ins.effects
    alone = e.ends is Ends.NO and e.together is Together.ALONE and e.orders is Orders.NONE
    return alone and e.memory is MemoryEffect.NONE and e.step is Step.NONE and not ins.operands[1:] and not uses_and_defs(ins)[1]


# loops of waits -------------------------------------------------------------------------------------------------------
def _only_spins(wait: Instruction, block: Block) -> bool:
    """Whether a wait that is not over only comes back to itself, so that a thread that leaves the loop has seen it over."""
    target = wait.operands[0]
    if block.last is not wait or wait.guard is not None or not isinstance(target, Reg):
        return False
    return _Spin(block, target.name).closes()


class _Spin:
    """The way of a thread from a wait whose answer is no, with the values that follow from that."""

    def __init__(self, block: Block, answer: str) -> None:
        self.block, self.function = block, block.function
        self.known: dict[str, int] = {answer: 0}
        self.made = {answer}
        self.steady = set[str]()  # of these, what has the same value each time

    def closes(self) -> bool:
        first, at, seen = self.function.entry, self.block.targets[0], set[int]()
        while at != self.block.index:
            here = self.function.blocks[at - first]
            if at in seen or not all(map(self.step, here.body)) or here.after is not None:
                return False
            seen.add(at)
            way = self.leave(here)
            if way is None:
                return False
            at = way
        return all(map(self.step, self.block.body)) and not self.stale()

    def leave(self, block: Block) -> int | None:
        """The block after one; None if that is not known, or if the block does more than lead there."""
        last = block.last
        if block.ending is Ends.NO and (last is None or self.step(last)):
            return block.targets[0]
        if block.ending is not Ends.BRANCH or last is None:
            return None
        if last.guard is None:
            return block.targets[0]
        register, negated = last.guard
        if register.name not in self.known:
            return None
        return block.targets[0 if bool(self.known[register.name]) != negated else 1]

    def value(self, operand: Operand) -> int | None:
        if isinstance(operand, Immediate):
            return operand.value
        return self.known.get(operand.name) if isinstance(operand, Reg) else None

    def step(self, ins: Instruction) -> bool:
        """Execute an instruction. False if another thread could see that, or the thread itself afterwards."""
        if ins.guard is not None:
            register, negated = ins.guard
            if register.name not in self.known:
                return False
            if bool(self.known[register.name]) == negated:
                return True
        uses, defs = uses_and_defs(ins)
        if _is_idle(ins):
            return True
        if not ins.effects.still or ins.effects.ends is not Ends.NO:
            return False
        result = self._result(ins)
        if result is not None and len(defs) == 1:
            self.known[next(iter(defs))] = result
        elif uses & ((self.made - self.steady) | defs):
            return False
        else:
            self.steady |= defs
            for name in defs:
                self.known.pop(name, None)
        self.made |= defs
        return True

    def _result(self, ins: Instruction) -> int | None:
        """The result of what is done with an answer: moves, selections, comparisons."""
        values = [self.value(o) for o in ins.operands[1:]]
        match ins.effects.algebra:
            case Algebra.COPY if len(values) == 1:
                return values[0]
            case Algebra.NOT if "pred" in ins.modifiers and values[0] is not None:
                return int(not values[0])
            case Algebra.SELECTION if values[-1] is not None:
                return values[0] if values[-1] else values[1]
            case Algebra.COMPARISON if len(values) == 2 and None not in values and ins.modifiers[0] in ("eq", "ne"):
                return int((values[0] == values[1]) == (ins.modifiers[0] == "eq"))
        return None

    def stale(self) -> bool:
        """Whether a register that was written on the way is read later, though another instruction may have written it before."""
        live = liveness(self.function).into[self.block.index - self.function.entry]
        for name in self.made & live:
            writers = [i for b in self.function.blocks for i in every(b) if name in uses_and_defs(i)[1]]
            if len(writers) != 1 or writers[0] is self.block.last:
                return True
        return False


# what is taken for granted --------------------------------------------------------------------------------------------
RELIED_ON: Sequence[tuple[Callable[[Effects], bool], str]] = (
    (lambda e: e.resizes, "registers are there for every setmaxnreg.inc, whichever warp asks first"),
    (lambda e: e.holds, "columns of tensor memory are there for every tcgen05.alloc, and no result depends on which"),
    (lambda e: e.queue is Queue.WGMMA, "the end of a wgmma comes after what all lanes of its four warps did before its issue"),
    (lambda e: e.queue is Queue.WGMMA, "a wgmma that one warp has waited for is over for all four warps"),
    (lambda e: e.memory is MemoryEffect.COPY and e.together is Together.WARP,
     "a tensor map that a warp copies is as all its lanes have left it"),
    (lambda e: e.queue is Queue.WGMMA, "an operation of whole warps comes after what any of their lanes knows to be over"),
    (lambda e: e.tensor, "arrivals of a thread's tcgen05.commit come in the order of their issue"),
    (lambda e: e.tensor, "of 32 lanes of a column of tensor memory one access of each kind is remembered"),
    (lambda e: e.orders is Orders.FENCE,
     "memory fences, fence.mbarrier_init among them, add up through the barriers between their threads"),
)  # fmt: skip


def relied_on(executed: Iterable[Block]) -> list[str]:
    """Sentences about what is taken for granted of the instructions in blocks that a launch has executed."""
    effects = {ins.effects: None for block in executed for ins in every(block)}
    return [said for holds, said in RELIED_ON if any(map(holds, effects))]
