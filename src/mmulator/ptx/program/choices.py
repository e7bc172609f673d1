"""Instructions whose effect may depend on the schedule, by what they say: the side conditions of a certificate
(docs/reference/certificates.md).

A kernel without races does the same in every schedule if it executes none of them. `choices` says for each what it chooses by;
`relied_on` names what the machine takes for granted of others. Where a text does not decide, an instruction counts as a choice.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mmulator.isa.effects import Effects, Ends, MemoryEffect, Orders, Queue, Step, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.blocks import Block, Program
from mmulator.ptx.program.frames import unread_results
from mmulator.ptx.program.tokens import early_questions
from mmulator.ptx.program.uses import callee_of, uses_and_defs
from mmulator.ptx.program.waiting import all_of, asks, only_awaited, regions, shows_nowhere
from mmulator.ptx.tree import Instruction, SpecialRegister, Symbol, VectorOperand

WIDEST = 128  # bits of a vector that is taken for one access
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
    """An instruction whose effect the schedule may choose, and why. spaces: of a strong or atomic access the state spaces that it
    may be in: it is only a choice if such accesses meet there with nothing to order them. explored: the order of turns decides
    (`takes_turns`), or who takes over whose work (`takes_work`)."""

    instruction: Instruction
    why: str
    spaces: frozenset[str] | None = None
    explored: bool = False


def takes_turns(ins: Instruction) -> bool:
    """Whether an instruction is a strong access of single lanes to memory that threads share, whose order the schedule
    chooses.
    """
    e = ins.effects
    if e.ends is not Ends.NO or e.queue is not Queue.NONE or e.together is not Together.ALONE or e.chooses:
        return False
    if any(isinstance(o, SpecialRegister) and o.name.startswith(tuple(VOLATILE)) for o in ins.leaves):
        return False
    if e.counted_as == "barrier" or "local" in ins.modifiers:
        return False
    form = dict(ins.form.modifiers)
    parts = max((len(o.elements) for o in ins.operands if isinstance(o, VectorOperand)), default=1)
    if e.memory is MemoryEffect.ATOMIC:  # the elements of a vector are operations of their own
        return "op" in form and parts == 1 and not form["type"].endswith("x2")
    if e.memory is MemoryEffect.NONE or parts * type_bits(form.get("type", "b8")) > WIDEST:
        return False
    words = {w for word in ins.modifiers for w in (word, word.partition("::")[0])}
    return e.memory in (MemoryEffect.READ, MemoryEffect.WRITE) and bool(words & STRONG)


def takes_work(ins: Instruction) -> bool:
    """Whether an instruction asks for the work of a cluster that has not begun."""
    e = ins.effects
    return bool(e.chooses) and e.counted_as == "cluster" and e.step is Step.ISSUE


def choices(program: Program, executed: Iterable[Block]) -> list[Choice]:
    """The choices among the blocks of a program that a launch has executed, the first of each kind and line."""
    found: list[Choice] = []
    kinds: dict[str, dict[tuple[str, str], Instruction]] = {}
    unread = {name: unread_results(f) for name, f in program.functions.items()}
    names = {id(f): name for name, f in program.functions.items()}
    early = early_questions(program).questions
    for block in executed:
        for ins in all_of(block):
            why = _why(ins, block, unread[names[id(block.function)]]) if ins not in early else ""
            if why:
                found.append(Choice(ins, why, _spaces(_space(ins)) if _meets(ins) else None, takes_turns(ins) or takes_work(ins)))
            elif "op" in (form := dict(ins.form.modifiers)) and ins.effects.memory in (MemoryEffect.ATOMIC, MemoryEffect.REDUCE):
                kind = form["op"], form["type"].lstrip("bsu") if form["op"] == "add" else form["type"]
                kinds.setdefault(_space(ins), {}).setdefault(kind, ins)
    every = {key: ins for of_space in kinds.values() for key, ins in of_space.items()}
    for space, of_space in kinds.items():
        several = every if space == "" else {**of_space, **kinds.get("", {})}
        if len(several) > 1:
            said = "is one of several atomic operations, whose order may matter"
            found.append(Choice(next(iter(of_space.values())), said, _spaces(space), all(map(takes_turns, several.values()))))
    return sorted(dict.fromkeys(found), key=lambda c: c.instruction.span.start)


def _space(ins: Instruction) -> str:
    """`global` or `shared`; "" for a generic address, which may lead to either."""
    spaces = [word.partition("::")[0] for word in ins.modifiers]
    if ins.effects.memory is MemoryEffect.REDUCE:
        return "global" if "global" in spaces else "shared"
    return next((s for s in spaces if s in ("global", "shared")), "")


def _spaces(space: str) -> frozenset[str]:
    return frozenset((space,) if space else ("global", "shared"))


def _meets(ins: Instruction) -> bool:
    """Whether an instruction is a strong or atomic access of threads, which the schedule can choose by no more than its order."""
    e = ins.effects
    alone = e.together is Together.ALONE and e.queue is Queue.NONE and not e.chooses and "mmio" not in ins.modifiers
    return alone and e.counted_as in ("memory", "atomic") and e.memory not in (MemoryEffect.NONE, MemoryEffect.COPY)


def is_sum(ins: Instruction, unread: frozenset[str]) -> bool:
    """Whether it shows nowhere which place among others of its kind an atomic operation has: it combines integers, and nothing
    reads its answer. unread: results that nothing reads.
    """
    form = dict(ins.form.modifiers)
    return form["op"] not in MIXED and form.get("type", "f32") not in FLOATS and uses_and_defs(ins)[1] <= unread


def _why(ins: Instruction, block: Block, unread: frozenset[str]) -> str:
    """The words for what the schedule chooses by an instruction; "" for nothing."""
    effects, words = ins.effects, {w for word in ins.modifiers for w in (word, word.partition("::")[0])}
    form = dict(ins.form.modifiers) if effects.ends is not Ends.CALL else {}
    for operand in ins.leaves:
        if isinstance(operand, SpecialRegister):
            for name, what in VOLATILE.items():
                if operand.name.startswith(name) and not shows_nowhere(ins, block.function):
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
        return "" if is_sum(ins, unread) else "answers what was there before, which depends on who comes first"
    if words & STRONG and "local" not in words and effects.memory is not MemoryEffect.NONE and effects.together is Together.ALONE:
        return "accesses memory that other threads may change meanwhile: it is strong, so this is no race"
    return ""


def _of_barrier(ins: Instruction, block: Block) -> str:
    if asks(ins):
        known = block.index in regions(block.function)
        return "" if known else "answers whether a phase is over, and more than a loop hangs on that"
    if ins.effects.memory is MemoryEffect.ATOMIC and uses_and_defs(ins)[1] and not only_awaited(ins, block.function):
        return "gives a state, and more than a wait hangs on that"
    return ""


# what is taken for granted --------------------------------------------------------------------------------------------
RELIED_ON: Sequence[tuple[Callable[[Effects], bool], str]] = (
    (lambda e: e.resizes, "registers are there for every setmaxnreg.inc, whichever warp asks first"),
    (lambda e: e.holds, "columns of tensor memory are there for every tcgen05.alloc"),
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
    effects = {id(ins.effects): ins.effects for block in executed for ins in all_of(block)}.values()
    return [said for holds, said in RELIED_ON if any(map(holds, effects))]
