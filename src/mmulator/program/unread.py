"""Loads from shared memory whose value may stay unread: one path reads it, and on another its registers are written again, or the
thread exits, first.

Such are prefetches: the last round of a loop loads what a further round would use.
"""

from mmulator.isa.effects import Flow, MemoryEffect
from mmulator.program.blocks import Block, FunctionBlocks, Program, instructions
from mmulator.program.undefined import in_doubt
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Instruction


def _may_stay_unread(function: FunctionBlocks, block: Block, begin: int, names: frozenset[str]) -> bool:
    """Whether one path from an instruction of a block reads the registers, and another does not before all are written again."""
    first, left, seen, met = function.blocks[0].index, [(block, begin)], set[int](), set[bool]()
    while left:
        block, begin = left.pop()
        for ins in [*instructions(block)][begin:]:
            uses, defs = uses_and_defs(ins)
            if names <= defs or not uses.isdisjoint(names):
                met.add(not uses.isdisjoint(names))
                break
        else:
            if not block.targets:
                met.add(False)
            left += [(function.blocks[n - first], 0) for n in block.targets if n not in seen]
            seen.update(block.targets)
    return len(met) == 2


def _of_function(function: FunctionBlocks) -> dict[Instruction, str]:
    """These loads of a function, each with the lowest name of the registers that it writes."""
    if "unread" not in function.known:
        function.known["unread"] = found = {}
        for block in function.blocks:
            for n, ins in enumerate(block.body):
                effects, names = ins.effects, uses_and_defs(ins)[1]
                loads = effects.flow in (Flow.LOADED, Flow.ROWS, Flow.TILE) and effects.memory is MemoryEffect.READ
                if loads and names and in_doubt(ins) and _may_stay_unread(function, block, n + 1, names):
                    found[ins] = min(names)
    known: dict[Instruction, str] = function.known["unread"]
    return known


def unread_loads(program: Program) -> dict[Instruction, int]:
    """These loads, each with a number of the registers that it writes: of one function and with the same lowest name."""
    numbers: dict[tuple[str, str], int] = {}
    return {
        ins: numbers.setdefault((name, lowest), len(numbers))
        for name, function in program.functions.items() for ins, lowest in _of_function(function).items()
    }  # fmt: skip
