"""Registers of wgmma that every path reads, writes or uses too early, or without a fence (rules/accumulators.py)."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

from mmulator.findings import Finding
from mmulator.isa.effects import Ends, Queue, Step
from mmulator.program.blocks import FunctionBlocks, Program, instructions, is_wgmma_issue, is_wgmma_wait
from mmulator.program.flow import forward
from mmulator.program.frames import pinned_registers
from mmulator.program.inline_assembly import moved_by_compiler
from mmulator.program.static.flow import certain, found
from mmulator.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction, Reg, VectorOperand
from mmulator.rules.accumulators import A_OVERWRITTEN, A_READ, FENCE_MISSING, READ_EARLY, WRITTEN_EARLY
from mmulator.rules.rule import Rule

OLDEST = 64  # groups behind an operation that are counted


@dataclass(frozen=True)
class Flight:
    """A register in flight on every path: its wgmma, and the greatest number of groups committed since its issue."""

    wgmma: Instruction
    part: str  # "d" or "a"
    age: int = 0


@dataclass(frozen=True)
class RegisterState:
    """Facts on every path to an instruction.

    fenced: whether some path may have executed wgmma.fence.
    touched: register -> the instructions that accessed it since the last fence; for accumulators the wgmma.
    """

    flying: dict[str, Flight] = field(default_factory=dict)
    touched: dict[str, Instruction] = field(default_factory=dict)
    fenced: bool = False


def meet(a: RegisterState, b: RegisterState) -> RegisterState:
    flying = {
        name: replace(x, age=max(x.age, b.flying[name].age))
        for name, x in a.flying.items()
        if name in b.flying and b.flying[name].part == x.part
    }
    return RegisterState(
        flying, {n: i for n, i in a.touched.items() if n in b.touched and _alike(i, b.touched[n])}, a.fenced or b.fenced
    )


def _alike(a: Instruction, b: Instruction) -> bool:
    """Whether two accesses need no fence between them: neither is a wgmma, or both are wgmma of one shape."""
    return is_wgmma_issue(a) == is_wgmma_issue(b) and (not is_wgmma_issue(a) or _shape(a) == _shape(b))


def _shape(wgmma: Instruction) -> str:
    return str(wgmma.form["shape"])


def _parts(wgmma: Instruction) -> tuple[list[str], list[str]]:
    """(registers of a wgmma's accumulator, registers of A if A is in registers)."""
    a = wgmma.operands[1]
    return list(registers_of(wgmma.operands[0])), list(registers_of(a)) if isinstance(a, VectorOperand) else []


def step(pinned: AbstractSet[str], state: RegisterState, ins: Instruction) -> RegisterState:
    """The facts behind an instruction. pinned: registers that some wgmma uses."""
    if is_wgmma_issue(ins):
        d, a = _parts(ins)
        flying = state.flying | dict.fromkeys(a, Flight(ins, "a")) | dict.fromkeys(d, Flight(ins, "d"))
        return replace(state, flying=flying, touched=state.touched | dict.fromkeys(d, ins))
    if ins.effects.ends is Ends.CALL:
        return RegisterState(fenced=True)
    if ins.effects.queue is Queue.WGMMA:
        if ins.effects.step is Step.FENCE:
            return replace(state, touched={}, fenced=True)
        if ins.effects.step is Step.COMMIT:
            return replace(state, flying={n: replace(f, age=f.age + 1) for n, f in state.flying.items() if f.age < OLDEST})
        if is_wgmma_wait(ins):
            count = ins.operands[0]
            pending = count.value if isinstance(count, Immediate) else 0
            return replace(state, flying={n: f for n, f in state.flying.items() if f.age == 0 or f.age <= pending})
    touched = _touched(pinned, ins)
    return replace(state, touched=state.touched | dict.fromkeys(touched, ins)) if touched else state


def _touched(pinned: AbstractSet[str], ins: Instruction) -> set[str]:
    """Registers of wgmma that an instruction accesses whenever control reaches it."""
    named = any(isinstance(o, Reg) and o.name in pinned for o in ins.leaves)
    if not named or not certain(ins) or moved_by_compiler(ins):
        return set()
    return set().union(*uses_and_defs(ins)) & pinned


def early(program: Program) -> Iterator[Finding]:
    """Findings in the functions of a program: for each wgmma the first instruction of the text that breaks a rule."""
    for function in program.functions.values():
        if any(is_wgmma_issue(i) for i in function.function.instructions):
            yield from _of_function(function)


def _of_function(function: FunctionBlocks) -> Iterator[Finding]:
    entry = function.function.is_entry
    told: set[tuple[Instruction | None, str]] = set()
    pinned = pinned_registers(function)
    after = partial(step, pinned)
    states = forward(function, RegisterState(fenced=not entry), after, meet)
    first = function.blocks[0].index
    for index in sorted(states):
        state = states[index]
        for ins in instructions(function.blocks[index - first]):
            for finding, key in _broken(pinned, state, ins):
                if key not in told:
                    told.add(key)
                    yield finding
            state = after(state, ins)


def _broken(
    pinned: AbstractSet[str], state: RegisterState, ins: Instruction
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    """Findings of one instruction, each with a key; findings with one key are reported once."""
    if is_wgmma_issue(ins):
        d, a = _parts(ins)
        yield from _early(state, ins, set(a), {n for n in d if n in state.flying and state.flying[n].part == "a"})
        if not state.fenced:
            said = "a wgmma is executed, and no wgmma.fence before it on any path"
            yield found(FENCE_MISSING, ins, said), (None, "first")
        else:
            yield from _unfenced(state, ins, d, a)
    elif _touched(pinned, ins) and ins.effects.queue is not Queue.WGMMA:
        uses, defs = uses_and_defs(ins)
        yield from _early(state, ins, uses, defs)


def _early(
    state: RegisterState, ins: Instruction, uses: AbstractSet[str], defs: AbstractSet[str]
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    for names, verb, rules in ((uses, "reads", (READ_EARLY, A_READ)), (defs, "writes", (WRITTEN_EARLY, A_OVERWRITTEN))):
        for name in sorted(names & state.flying.keys()):
            flight = state.flying[name]
            if is_wgmma_issue(ins) and flight.part == "a" and verb == "reads":
                continue  # two wgmma with one A
            rule: Rule = rules[flight.part == "a"]
            what = "part of A" if flight.part == "a" else "an accumulator"
            why = "no wgmma.commit_group has made it part of a group" if flight.age == 0 else "no wgmma.wait_group covers it"
            said = f"{ins.mnemonic} {verb} {name}, {what} of a wgmma in flight: {why} on any path"
            yield found(rule, ins, said, f"register {name}", flight.wgmma), (flight.wgmma, "wait")


def _unfenced(
    state: RegisterState, ins: Instruction, d: list[str], a: list[str]
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    for name in (*d, *a):
        other = state.touched.get(name)
        if other is None or (is_wgmma_issue(other) and (name in state.flying if name in a else _shape(other) == _shape(ins))):
            continue  # in order, or told of already
        part = "A" if name in a else "accumulator"
        said = f"{other.mnemonic} accesses {name}, {part} of this wgmma, and no wgmma.fence lies between the two on any path"
        yield found(FENCE_MISSING, ins, said, f"register {name}", other), (ins, "fence")
