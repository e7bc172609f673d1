"""What ptxas makes of accumulators in flight: copies of them, and lists of registers that overlap.

A wgmma's result reaches the registers at the wait_group that covers it. Compilers write plain `mov` (also `mov` that takes a
register apart) and `cvt` between widths of integers between the wgmma and its wait, meaning the value after the wait: Triton's
f16 accumulators are unpacked so. ptxas makes nothing of such a copy, it renames. Here each of these moves goes behind the next
wait_group of its straight line, if nothing in between needs it earlier. At any other early read ptxas injects a wait; here,
too, if `waits` says so, else it sees what the registers held before.

Accumulators that overlap: a wgmma accumulates on neighbouring registers of the chip, so a list that does not fit to those of
the wgmma before it has to be copied. With a wgmma.fence between the two ptxas copies what the earlier one left. Without, it
copies at the last fence, from before both: the earlier products are lost in the registers that they share (seen with ptxas
13.0 and 13.5, which warn: C7511; `unfenced`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mmulator.isa.effects import Algebra, Ends, Queue, Step
from mmulator.program.blocks import is_wgmma_issue, is_wgmma_wait
from mmulator.program.as_ptxas.quotient import instruction
from mmulator.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, Statement

_REGISTERS_ALIGNED = 4  # an accumulator begins at a multiple of so many registers
_INTEGERS = frozenset(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))
_STAYS = (Ends.NO, Ends.BARRIER)


def delay_copies(function: Function, waits: bool = False) -> Function:
    """The function with those moves delayed; itself if it has no wgmma. waits: with a wait in front of each other instruction
    that reads or writes an accumulator in flight."""
    if not any(i.effects.queue is Queue.WGMMA for i in function.instructions):
        return function
    return replace(function, body=tuple(_Delay(waits).run(function.body)))


def is_injected(ins: Instruction) -> bool:
    """Whether `delay_copies` put this wait there."""
    return ins.made_from is not None and is_wgmma_wait(ins)


def _wait(ins: Instruction) -> Iterator[Instruction]:
    """What waits for all wgmma so far, in front of an instruction."""
    yield instruction(ins, "wgmma", ("commit_group", "sync", "aligned"), (), None)
    yield instruction(ins, "wgmma", ("wait_group", "sync", "aligned"), (Immediate(0, "int", ins.span),), None)


def unfenced(function: Function) -> set[int]:
    """The id of every wgmma whose accumulator ptxas copies at the last fence, and not where it stands.

    In each straight line that is the first one since the fence whose list does not fit to the lists before it. Those after it
    stand alone, and get what is there.
    """
    found: set[int] = set()
    lists: list[tuple[str, ...]] | None = None  # since a fence; None where there was none, or one was copied
    for statement in function.body:
        if isinstance(statement, Label) or statement.effects.ends not in _STAYS:
            lists = None
        elif statement.effects.step is Step.FENCE:
            lists = []
        elif lists is not None and is_wgmma_issue(statement):
            own = tuple(registers_of(statement.operands[0]))
            if any(set(own) & set(x) for x in lists) and not any(_fits(own, x) for x in lists):
                found.add(id(statement))
                lists = None
            else:
                lists.append(own)
    return found


def _fits(own: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Whether both can be the same registers of the chip: one is a run of the earlier one, or goes on where it ended."""
    runs = (before[at : at + len(own)] for at in range(0, len(before), _REGISTERS_ALIGNED))
    return own in runs or own[: len(before)] == before


def _is_copy(ins: Instruction) -> bool:
    """Whether the bits move as they are: mov, and cvt such as cvt.u32.u16 (halves of a register, for an asm that takes whole)."""
    algebra = ins.effects.algebra
    return algebra is Algebra.COPY or (
        algebra is Algebra.CONVERSION and len(ins.modifiers) == 2 and _INTEGERS.issuperset(ins.modifiers)
    )


class _Delay:
    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.in_flight: set[str] = set()
        self.moves: list[Instruction] = []
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def run(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        for statement in body:
            if isinstance(statement, Label):
                yield from self.release()
                self.in_flight.clear()
                yield statement
                continue
            if is_wgmma_wait(statement):
                yield statement
                self.in_flight.clear()
                yield from self.release()
                continue
            uses, defs = uses_and_defs(statement)
            if self.can_wait(statement, uses, defs):
                self.moves.append(statement)
                self.reads |= uses
                self.writes |= defs
                continue
            if self.waits and not is_wgmma_issue(statement) and (uses & self.writes or (uses | defs) & self.in_flight):
                yield from _wait(statement)
                self.in_flight.clear()
                yield from self.release()
            if statement.effects.ends not in _STAYS or uses & self.writes or defs & (self.reads | self.writes):
                yield from self.release()
            yield statement
            if is_wgmma_issue(statement):
                self.in_flight.update(registers_of(statement.operands[0]))
        yield from self.release()

    def can_wait(self, ins: Instruction, uses: set[str], defs: set[str]) -> bool:
        """A move out of an accumulator in flight (or out of such a copy)."""
        if not _is_copy(ins) or ins.guard is not None or not uses & (self.in_flight | self.writes):
            return False
        return not defs & (self.in_flight | self.reads | self.writes)

    def release(self) -> Iterator[Statement]:
        yield from self.moves
        self.moves = []
        self.reads = set()
        self.writes = set()
