"""The treatment of accumulators in flight by ptxas: computations from them, and lists of registers that overlap.

A wgmma's result reaches its registers at the wait_group that covers it. Compilers compute with accumulators between the wgmma
and its wait, and mean the value after the wait: Triton unpacks f16 accumulators in this way, and adds up FP8 products in f32.
ptxas renames copies and waits before any other use (C7517). Here an instruction that only computes from such a register is
delayed until after the next wait_group of its straight line, if nothing in between needs its result earlier. At any other early
read or write ptxas inserts a wait. This file does so too if `waits` is set; otherwise the access sees the registers' earlier
contents.

Accumulators that overlap: a wgmma accumulates on neighbouring registers of the chip, so a list that does not fit the lists of
earlier wgmma has to be copied. With a wgmma.fence between the two, ptxas copies the result of the earlier one. Without it,
ptxas copies at the last fence, before both: the earlier products are lost in the registers that they share (seen with ptxas
13.0 and 13.5, which warn: C7511; `unfenced`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mmulator.isa.effects import Ends, Queue, Step
from mmulator.ptx.program.as_ptxas.quotient import instruction
from mmulator.ptx.program.blocks import is_wgmma_issue, is_wgmma_wait
from mmulator.ptx.program.inline_assembly import computes
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, Statement

_REGISTERS_ALIGNED = 4  # an accumulator begins at a multiple of so many registers
_STAYS = (Ends.NO, Ends.BARRIER)
_GONE = (Ends.BRANCH, Ends.INDEXED, Ends.RETURN, Ends.EXIT, Ends.TRAP)


@dataclass(frozen=True)
class Moved:
    """The instructions that `delay_reads` has moved.

    late: instructions that were delayed.
    behind: id of a wait_group -> the instructions directly behind it that stood before it.
    """

    late: set[Instruction] = field(default_factory=set)
    behind: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)


def delay_reads(function: Function, waits: bool = False, moved: Moved | None = None) -> Function:
    """The function with computations from accumulators in flight delayed; the same function if it has no wgmma.

    waits: whether to insert a wait before every other instruction that reads or writes an accumulator in flight.
    moved: receives the instructions that were moved.
    """
    if not any(i.effects.queue is Queue.WGMMA for i in function.instructions):
        return function
    return replace(function, body=tuple(_Delay(waits, moved or Moved()).run(function.body)))


def is_injected(ins: Instruction) -> bool:
    """Whether `delay_reads` has inserted this wait."""
    return ins.made_from is not None and is_wgmma_wait(ins)


def _wait(ins: Instruction) -> Iterator[Instruction]:
    """The instructions that wait for all wgmma so far, to be put before an instruction."""
    yield instruction(ins, "wgmma", ("commit_group", "sync", "aligned"), (), None)
    yield instruction(ins, "wgmma", ("wait_group", "sync", "aligned"), (Immediate(0, "int", ins.span),), None)


def unfenced(function: Function) -> set[Instruction]:
    """The id of every wgmma whose accumulator ptxas copies at the last fence instead of at the wgmma.

    In each straight line this is the first wgmma since the fence whose list does not fit the earlier lists. Later ones are
    separate, and read the current contents.
    """
    found: set[Instruction] = set()
    lists: list[tuple[str, ...]] | None = None  # since a fence; None where there was none, or one was copied
    for statement in function.body:
        if isinstance(statement, Label) or statement.effects.ends not in _STAYS:
            lists = None
        elif statement.effects.step is Step.FENCE:
            lists = []
        elif lists is not None and is_wgmma_issue(statement):
            own = tuple(registers_of(statement.operands[0]))
            if any(set(own) & set(x) for x in lists) and not any(_fits(own, x) for x in lists):
                found.add(statement)
                lists = None
            else:
                lists.append(own)
    return found


def _fits(own: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Whether both lists can be the same registers of the chip: one is an aligned run of the earlier list, or continues it."""
    runs = (before[at : at + len(own)] for at in range(0, len(before), _REGISTERS_ALIGNED))
    return own in runs or own[: len(before)] == before


def _computes(ins: Instruction) -> bool:
    """Whether an instruction only computes registers, each lane its own."""
    return computes(ins) and ins.guard is None


class _Delay:
    def __init__(self, waits: bool, moved: Moved) -> None:
        self.waits, self.moved = waits, moved
        self.groups: list[set[str]] = [set()]  # accumulators in flight, by group; the last group is open
        self.late: list[Instruction] = []
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def run(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        for statement in body:
            if isinstance(statement, Label):
                yield from self.leave()
                yield statement
                continue
            if is_wgmma_wait(statement):
                if self.late:
                    self.moved.behind[statement] = tuple(self.late)
                yield statement
                yield from self.release()
                self.complete(statement)
                continue
            uses, defs = uses_and_defs(statement)
            if self.can_wait(statement, uses, defs):
                self.late.append(statement)
                self.moved.late.add(statement)
                self.reads |= uses
                self.writes |= defs
                continue
            if self.waits and not is_wgmma_issue(statement) and (uses & self.writes or (uses | defs) & self.in_flight):
                yield from self.wait(statement)
            if statement.effects.ends not in _STAYS:
                yield from self.leave()
            elif uses & self.writes or defs & (self.reads | self.writes):
                yield from self.release()
            yield statement
            if is_wgmma_issue(statement):
                self.groups[-1].update(registers_of(statement.operands[0]))
            elif statement.effects.step is Step.COMMIT and statement.effects.queue is Queue.WGMMA:
                self.groups.append(set())
            elif statement.effects.ends in _GONE and statement.guard is None:
                self.groups = [set()]
        yield from self.leave()

    @property
    def in_flight(self) -> set[str]:
        return set().union(*self.groups)

    def can_wait(self, ins: Instruction, uses: frozenset[str], defs: frozenset[str]) -> bool:
        """Whether an instruction computes from an accumulator in flight, or from a delayed result, and may be delayed. Delayed
        instructions keep their order.
        """
        flying = self.in_flight
        return _computes(ins) and bool(uses & (flying | self.writes)) and not defs & flying

    def complete(self, wait: Instruction) -> None:
        """Remove the groups that a wait_group completes. Without inserted waits nothing else happens: readers of pending
        registers see their earlier contents.
        """
        count = wait.operands[0]
        pending = count.value if self.waits and isinstance(count, Immediate) else 0
        self.groups = [*self.groups[:-1][max(0, len(self.groups) - 1 - pending) :], set()]

    def wait(self, ins: Instruction) -> Iterator[Statement]:
        """The statements that wait for all groups, before an instruction."""
        yield from _wait(ins)
        self.groups = [set()]
        yield from self.release()

    def leave(self) -> Iterator[Statement]:
        """The statements at the end of a straight line: everything that was delayed."""
        if self.waits and self.late:
            yield from self.wait(self.late[0])
        yield from self.release()
        if not self.waits:
            self.groups = [set()]

    def release(self) -> Iterator[Statement]:
        yield from self.late
        self.late = []
        self.reads = set()
        self.writes = set()
