"""Constants that a branch chooses: the branch that leads a lane past another value for the same register."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from mmulator.isa.effects import Algebra, Ends
from mmulator.program.blocks import Block, blocks_from, instructions
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Instruction
from mmulator.record.cause import span_text
from mmulator.record.trail import Trail, TrailStep

MOST = 2000  # steps of a warp, before a value is read, that are looked at for the branch


def chosen(
    trail: Trail, told: Callable[[TrailStep], tuple[str, str]], step: TrailStep, writer: TrailStep, lane: int, name: str
) -> Iterator[str]:
    """A sentence about the newest branch that led a lane past another definition of a register; none if no branch did.

    trail: the steps.
    told: gives the place of a branch and its condition, in words.
    step, writer: the step that reads the register, and the one that wrote it.
    lane, name: who reads, and the register.
    """
    function = trail.kernel.program.functions[trail.function_of(step)]
    blocks = {block.index: block for block in function.blocks}
    mine = trail.instruction(writer)
    every = [(n, i) for n, block in blocks.items() for i in instructions(block) if name in uses_and_defs(i)[1]]
    home = next((n for n, i in every if i is mine), None)
    others = [(n, i) for n, i in every if _value(i) != _value(mine)]
    branches = {b.last: b for b in function.blocks if b.ending is Ends.BRANCH and b.last is not None}
    end = bisect_left(trail.numbers, step.number)
    for s in reversed(trail.steps[max(0, end - MOST) : end]) if others and home is not None else ():
        ins = trail.instruction(s)
        if s.place is not step.place or s.frame != step.frame or not s.lanes >> lane & 1 or ins not in branches:
            continue
        taken, other = _sides(branches[ins], blocks, bool(trail.guard(s) >> lane & 1))
        here = home in taken - other
        past = [i for n, i in others if n in other - taken] if here or s.number > writer.number else []
        past += [i for n, i in others if here and n not in taken and branches[ins].index in _from([n], blocks)]
        if past:
            (at, condition), there = told(s), span_text(past[0].original.span)
            yield f"chosen by {ins.original.mnemonic} at {at}, not the value of {there}: {condition}"
            return


def _value(ins: Instruction) -> str:
    """The instruction that a copy copies; of another instruction itself."""
    return ins.operands[1].span.text if ins.effects.algebra is Algebra.COPY and len(ins.operands) == 2 else str(ins.span.start)


def _from(first: list[int], blocks: dict[int, Block], without: int | None = None) -> set[int]:
    return blocks_from(first, lambda n: [k for k in blocks[n].targets if k in blocks], without)


def _sides(branch: Block, blocks: dict[int, Block], held: bool) -> tuple[set[int], set[int]]:
    """The blocks that a branch may come to by the way that it took, and by the other one, without coming to itself again."""
    first, second = (_from([t], blocks, branch.index) for t in branch.targets)
    return (first, second) if held else (second, first)
