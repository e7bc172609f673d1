"""Execution order of a kernel's instructions, for analyses of facts that hold on every path."""

from collections.abc import Callable
from typing import TypeVar

from mmulator.findings import Finding, Place, spoken
from mmulator.isa.effects import Ends, Together
from mmulator.program.blocks import Block, FunctionBlocks, blocks_from, instructions
from mmulator.ptx.tree import Instruction
from mmulator.rules.rule import Rule

State = TypeVar("State")
_ALONE = (Together.ALONE, Together.LIVE)


def certain(ins: Instruction) -> bool:
    """Whether an instruction is executed if control reaches it: blocks that end in a guarded instruction have a branch around
    it.
    """
    return ins.guard is None or ins.effects.ends is not Ends.NO or ins.effects.together not in _ALONE


def forward(
    function: FunctionBlocks, start: State, step: Callable[[State, Instruction], State], meet: Callable[[State, State], State]
) -> dict[int, State]:
    """The state at the start of each reachable block: `meet` of the states at the ends of all its predecessors.

    function: the function.
    start: state at the entry.
    step: a function from a state and an instruction to the state behind it.
    meet: a function of two states.
    """
    first = function.blocks[0].index
    states = {first: start}
    waiting = [first]
    while waiting:
        block = function.blocks[waiting.pop() - first]
        state = states[block.index]
        for ins in instructions(block):
            state = step(state, ins)
        for target in block.targets:
            met = state if target not in states else meet(states[target], state)
            if target not in states or met != states[target]:
                states[target] = met
                waiting.append(target)
    return states


def reachable(function: FunctionBlocks, block: Block) -> set[int]:
    """Numbers of the blocks that control may reach from the end of a block; including the block itself if it is in a loop."""
    first = function.blocks[0].index
    return blocks_from(block.targets, lambda n: function.blocks[n - first].targets)


def found(rule: Rule, ins: Instruction, message: str, where: str = "", other: Instruction | None = None) -> Finding:
    """A finding of the text, which names no threads.

    rule: the broken rule.
    ins: the instruction.
    message: the sentence.
    where: the place in memory, in words.
    other: the other instruction of a conflict.
    """
    conflict = None if other is None else Place(other.mnemonic, _location(other), other.span.brief, "", other.span)
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, _location(ins), ins.span.brief, "", where, conflict, 0, 1,
        spoken(rule.hint, ins.span, other.span if other is not None else None), span=ins.span,
    )  # fmt: skip


def _location(ins: Instruction) -> str:
    return ins.span.place
