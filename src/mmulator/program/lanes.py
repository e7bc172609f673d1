"""Registers that depend on the lane but on nothing that was loaded, and basic blocks that only some lanes may reach."""

from __future__ import annotations

from collections import defaultdict

from mmulator.isa.effects import Ends, MemoryEffect, Queue, Together
from mmulator.program.blocks import Block, FunctionBlocks, blocks_from
from mmulator.program.flow import settle
from mmulator.program.uses import accesses
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, SpecialRegister, Symbol, VectorOperand, flatten

_LANE = {"tid.x", "laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"}
_SAME, _LANES, _ELSE = range(3)  # the same in all lanes, computed from the number of the lane, or from something else


def lanes_of(function: FunctionBlocks) -> LaneFacts:
    if "lanes" not in function.known:
        function.known["lanes"] = LaneFacts(function)
    found: LaneFacts = function.known["lanes"]
    return found


class LaneFacts:
    """The dependence of a function's registers and blocks on the lane."""

    def __init__(self, function: FunctionBlocks) -> None:
        self.function = function
        self.first = function.blocks[0].index
        self.classes: dict[str, int] = defaultdict(int)
        self._classify([i for b in function.blocks for i in (*b.body, *([b.last] if b.last is not None else []))])
        self.guarded = self._guarded_blocks()

    def of(self, operand: Operand) -> int:
        match operand:
            case Reg(name=name):
                return self.classes[name]
            case SpecialRegister(name=name):
                return _LANES if name in _LANE else _SAME
            case Immediate() | Symbol():
                return _SAME
        return _ELSE

    def _classify(self, every: list[Instruction]) -> None:
        def step() -> dict[str, int]:
            for ins in every:
                new = self._result(ins)
                for access, operand in accesses(ins):
                    for o in flatten((operand,)) if "w" in access and not isinstance(operand, Address) else ():
                        if isinstance(o, Reg):
                            self.classes[o.name] = max(self.classes[o.name], new)
            return {**self.classes}

        settle(step, {})

    def _result(self, ins: Instruction) -> int:
        e = ins.effects
        if e.memory is MemoryEffect.READ and ins.form["space"].startswith("param"):
            return _SAME
        if (
            e.together is not Together.ALONE
            or e.memory is not MemoryEffect.NONE
            or e.queue is not Queue.NONE
            or e.ends is not Ends.NO
        ):
            return _ELSE
        sources = [o for access, x in accesses(ins) if access != "w" for o in _flat(x)]
        guard = [ins.guard[0]] if ins.guard is not None else []
        return max((self.of(o) for o in (*sources, *guard)), default=_SAME)

    def _guarded_blocks(self) -> set[int]:
        """Blocks that lanes reach depending on a branch whose condition depends on the lane."""
        found: set[int] = set()
        for block in self.function.blocks:
            if block.ending is not Ends.BRANCH or block.last is None or block.last.guard is None:
                continue
            if self.classes[block.last.guard[0].name] != _LANES:
                continue
            one, other = (blocks_from([t], self._targets, block.index) for t in block.targets)
            found |= one ^ other
        return found

    def _targets(self, block: int) -> list[int]:
        return self.function.blocks[block - self.first].targets

    def under_condition(self, ins: Instruction, block: Block) -> bool:
        """Whether the lane's number alone decides if a lane executes an instruction."""
        guard = ins.guard is not None and self.classes[ins.guard[0].name] == _LANES
        return guard or block.index in self.guarded

    def differing(self, ins: Instruction) -> list[Reg]:
        """Operands that an instruction reads and whose value depends on the lane's number."""
        sources = (o for access, o in accesses(ins) if "w" not in access)
        return [o for o in sources if isinstance(o, Reg) and o.type != "pred" and self.of(o) == _LANES]


def _flat(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, VectorOperand) else tuple(flatten((operand,)))
