"""Early questions: a thread asks an mbarrier about a phase, does something else, and leaves out a later wait after a yes.

Nothing but whether that wait is left out may hang on the answer, so "no" stands for both: who was told no does all that the
others do, and knows less while it does. A certified run answers no (sanitizer/checks/phases.py), and sees that each wait is
about the phase that was asked about.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mmulator.isa.effects import Ends
from mmulator.ptx.program.blocks import Block, FunctionBlocks, Program, blocks_from, instructions
from mmulator.ptx.program.flow import forward, spread
from mmulator.ptx.program.frames import liveness
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.program.waiting import all_of, asks, is_idle, known_result, question, reads, regions
from mmulator.ptx.tree import Instruction

CLASSES = 8  # of questions whose answers may meet in one register: each is followed by itself
NEXT = 8  # blocks behind a branch that are tried as the place where both ways meet
# The value of each register that an answer may have reached, if the last one was yes; None: it depends on more than that.
Answers = Mapping[str, int | None]


@dataclass(frozen=True)
class EarlyQuestions:
    """The early questions of a kernel, and the waits that are left out by them, each with the number of its class from 1."""

    questions: Mapping[Instruction, int]
    waits: Mapping[Instruction, int]


def early_questions(program: Program) -> EarlyQuestions:
    """The early questions of all functions."""
    questions: dict[Instruction, int] = {}
    waits: dict[Instruction, int] = {}
    recurs = {name for names, recur in program.groups if recur for name in names}
    for name, function in program.functions.items():
        if name not in recurs and any(asks(b.last) for b in function.blocks):
            for group in _groups(function):
                left_out = _Class(function, group).waits()
                if left_out is not None and len({*questions.values()}) < CLASSES and not left_out & waits.keys():
                    number = len({*questions.values()}) + 1
                    questions |= dict.fromkeys(group, number)
                    waits |= dict.fromkeys(left_out, number)
    return EarlyQuestions(questions, waits)


def _groups(function: FunctionBlocks) -> list[set[Instruction]]:
    """The questions of a function that no region of waits has, those together whose answers may meet in one register."""
    waits = (b for b in function.blocks if b.ending is Ends.WAIT and b.index not in regions(function))
    early = [b.last for b in waits if b.last is not None and asks(b.last)]
    rows = [(reads(i), uses_and_defs(i)[1]) for b in function.blocks for i in all_of(b) if i.effects.still]
    groups: list[tuple[set[Instruction], set[str]]] = []
    for ins in early:
        found = {*uses_and_defs(ins)[1]}
        spread(found, rows)
        met = [g for g in groups if g[1] & found]
        groups = [g for g in groups if g not in met] + [({ins}.union(*(g[0] for g in met)), found.union(*(g[1] for g in met)))]
    return [group for group, _ in groups]


class _Class:
    def __init__(self, function: FunctionBlocks, group: set[Instruction]) -> None:
        self.function, self.group = function, group
        self.orders, self.live = {question(ins)[0] for ins in group}, liveness(function).into

    def waits(self) -> set[Instruction] | None:
        """The waits that are left out by answers; None if anything else hangs on one."""
        nothing: Answers = {}
        found: set[Instruction] = set()
        for index, known in forward(self.function, nothing, self._step, _met).items():
            block = self.function.blocks[index - self.function.entry]
            for ins in instructions(block):
                uses = not known.keys().isdisjoint(reads(ins)) and ins.effects.ends is not Ends.BRANCH
                if uses and (asks(ins) or not ins.effects.still or ins.effects.carry):
                    return None
                known = self._step(known, ins)
            guard = block.last.guard if block.last is not None and block.ending is Ends.BRANCH else None
            if guard is not None and guard[0].name in known:
                value = known[guard[0].name]
                left_out = None if value is None else self._between(block, 0 if bool(value) != guard[1] else 1)
                if left_out is None:
                    return None
                found |= left_out
        return found

    def _step(self, known: Answers, ins: Instruction) -> Answers:
        defs = uses_and_defs(ins)[1]
        if ins in self.group:
            older = dict.fromkeys(known)
            return older | {name: None if ins.guard is not None and name in known else 1 for name in defs}
        used = known.keys() & reads(ins)
        if not defs or (not used and known.keys().isdisjoint(defs)):
            return known
        if not used or asks(ins):
            return {n: v for n, v in known.items() if n not in defs} if ins.guard is None else known
        value = None
        sure = {n: v for n, v in known.items() if v is not None}  # older answers may say something else
        if len(defs) == 1 and used <= sure.keys() and (ins.guard is None or ins.guard[0].name not in known):
            value = known_result(ins, sure)
        made = dict.fromkeys(defs, value)
        return {**known, **(_met({n: known[n] for n in defs & known.keys()}, made) if ins.guard is not None else made)}

    def _between(self, block: Block, over: int) -> set[Instruction] | None:
        """The waits between a branch and the place where its ways meet, of which none is on the way that it takes after a yes;
        None if there is anything else. over: that way."""
        other, at, before = block.targets[1 - over], block.targets[over], list[Block]()
        for _ in range(NEXT):
            between = [self._block(n) for n in blocks_from([other], lambda n: self._block(n).targets, at)]
            if block not in between and all(map(self._is_quiet, between)):
                made = {n for b in (*between, *before) for ins in all_of(b) for n in uses_and_defs(ins)[1]}
                if not made & self.live[at - self.function.entry]:
                    return {b.last for b in between if b.last is not None and asks(b.last)}
            here = self._block(at)
            if here.ending is not Ends.NO or not self._is_quiet(here):
                return None
            before.append(here)
            at = here.targets[0]
        return None

    def _block(self, index: int) -> Block:
        return self.function.blocks[index - self.function.entry]

    def _is_quiet(self, block: Block) -> bool:
        """Whether a block does nothing but wait for what the questions may have asked about."""
        if block.after is not None or block.ending not in (Ends.NO, Ends.BRANCH, Ends.WAIT):
            return False
        if block.ending is Ends.WAIT:
            last = block.last
            if last is None or not asks(last) or block.index not in regions(self.function) or {question(last)[0]} != self.orders:
                return False
        return all(map(_does_nothing, _own(block)))


def _own(block: Block) -> Iterator[Instruction]:
    return (ins for ins in instructions(block) if ins.effects.ends not in (Ends.BRANCH, Ends.WAIT))


def _does_nothing(ins: Instruction) -> bool:
    return is_idle(ins) or (ins.effects.still and not ins.effects.carry)


def _met(a: Answers, b: Answers) -> Answers:
    return {n: a[n] if n in a and b.get(n, a[n]) == a[n] else b[n] if n not in a else None for n in (*a, *b)}
