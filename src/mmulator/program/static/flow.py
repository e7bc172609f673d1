"""Findings of the text: which instructions are executed on every path, and what is said of them."""

from mmulator.findings import Finding, Place, spoken
from mmulator.isa.effects import Ends, Together
from mmulator.program.blocks import Block, FunctionBlocks, blocks_from
from mmulator.ptx.tree import Instruction
from mmulator.rules.rule import Rule

_ALONE = (Together.ALONE, Together.LIVE)


def certain(ins: Instruction) -> bool:
    """Whether an instruction is executed if control reaches it: blocks that end in a guarded instruction have a branch around
    it.
    """
    return ins.guard is None or ins.effects.ends is not Ends.NO or ins.effects.together not in _ALONE


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
