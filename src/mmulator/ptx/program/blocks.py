"""A module's functions as numbered basic blocks: the JIT compiles them and the scheduler steps through them.

A block ends where control may leave (branch, call, barrier, exit) and begins at a label that a branch names or at an
instruction that needs its warp together (`.sync`): there the block's code first checks that the lanes are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from enum import IntEnum
from typing import Any, TypeVar

from mmulator.base.classes import dataclass
from mmulator.base.errors import must_be
from mmulator.isa.effects import Effects, Ends, MemoryEffect, Queue, Step, Together
from mmulator.ptx.program.calls import Aim, cycles, reached
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, LabelRef, Operand, ParsedModule, Reg, Symbol

Node = TypeVar("Node")
WGMMA_BLOCK = 32  # wgmma.mma_async in one basic block, at most: half of what a warp may be ahead of the others
# Registers that the instructions of a block name, repetitions counted. LLVM's time grows faster than the length of a function,
# so longer blocks are cut; what lives across a cut goes through memory, which costs little every few hundred instructions.
LONGEST = 4000

# These stand at the start of a block, which waits for the lanes that they name.
_WAITS_FOR_LANES = (Together.MEMBERS, Together.MEETING, Together.WARP, Together.WARPGROUP)


@dataclass
class Block:
    """A basic block.

    index: its number in the program.
    function: its function.
    body: straight-line instructions.
    ending: how it ends.
    last: the instruction that ends it, if there is one.
    targets: the following blocks (for `branch`: taken, next).
    sync: whether the first instruction of the body needs its partners here.
    after: the instruction whose results arrive when control comes back (of a barrier reduction or a call); written at the
        start.
    turn: whether its lanes wait for their turn before the only instruction of the body.
    """

    index: int
    function: FunctionBlocks
    body: list[Instruction] = field(default_factory=list)
    ending: Ends = Ends.NO
    last: Instruction | None = None
    targets: list[int] = field(default_factory=list)
    sync: bool = False
    after: Instruction | None = None
    turn: bool = False


@dataclass
class FunctionBlocks:
    """A function and its blocks, in the order of the text."""

    function: Function
    blocks: list[Block] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what was found out about it once

    @property
    def entry(self) -> int:
        return self.blocks[0].index


@dataclass
class Program:
    """The kernel (first) and every function that it can reach, with all blocks numbered consecutively.

    module: the module.
    functions: name -> its blocks.
    blocks: all blocks.
    groups: functions that can call each other, callers first, with whether they can recur.
    pointed: what a call through a pointer says -> functions that it can reach.
    """

    module: ParsedModule
    functions: dict[str, FunctionBlocks]
    blocks: list[Block]
    groups: list[tuple[tuple[str, ...], bool]]
    pointed: dict[Aim, tuple[str, ...]]

    @property
    def entry(self) -> FunctionBlocks:
        return next(iter(self.functions.values()))


def blocks_from(first: Iterable[Node], steps: Callable[[Node], Iterable[Node]], without: Node | None = None) -> set[Node]:
    """Numbers of the blocks (or other nodes) to which steps lead from the first ones, these included, without passing one of
    them.
    """
    seen, waiting = set[Node](), [*first]
    while waiting:
        n = waiting.pop()
        if n not in seen and n != without:
            seen.add(n)
            waiting += steps(n)
    return seen


def takes_whole_warp(ins: Instruction) -> bool:
    """Whether an instruction is a warp-level .aligned instruction, which all 32 lanes execute together."""
    return ins.effects.together in (Together.WARP, Together.WARPGROUP)


def is_wgmma_issue(ins: Instruction) -> bool:
    """Whether an instruction issues a wgmma."""
    effects = ins.effects
    return effects.queue is Queue.WGMMA and effects.step is Step.ISSUE


def is_wgmma_wait(ins: Instruction) -> bool:
    return ins.effects.ends is Ends.WAIT and ins.effects.queue is Queue.WGMMA


def instructions(block: Block) -> list[Instruction]:
    """The instructions that are executed in a block. `last` may be a guarded instruction for which the block only branches
    around it.
    """
    last = block.last
    if last is None or (block.ending is Ends.BRANCH and last.effects.ends is not Ends.BRANCH):
        return block.body
    return [*block.body, last]


def accesses_memory(block: Block) -> bool:
    """Whether a block accesses memory that other threads may access. A wait for an mbarrier does not count: its
    thread sleeps.
    """
    every = (*block.body, *([block.last] if block.last is not None else ()))
    accesses = any(i.effects.memory is not MemoryEffect.NONE and i.effects.ends is not Ends.WAIT for i in every)
    return block.ending is Ends.CALL or accesses


class Here(IntEnum):
    """The lanes that are known to be in the block."""

    SOME = 0
    LIVE = 1  # all that have not exited
    WHOLE = 2  # all 32
    MASK = 3  # those of a member mask that is not known here


def partners(ins: Instruction) -> Here:
    """The lanes that an instruction requires. Exited lanes of a warpgroup are checked where the operation is issued."""
    match ins.effects.together:
        case Together.WARP:
            return Here.WHOLE
        case Together.WARPGROUP:
            return Here.LIVE
    last = ins.operands[-1] if ins.operands else None
    return Here.LIVE if isinstance(last, Immediate) and last.bits("b32") == 0xFFFFFFFF else Here.MASK


def build(
    module: ParsedModule, entry: Function, prepare: Callable[[Function], Function] = lambda f: f, *, longest: int = LONGEST,
    takes_turns: Callable[[Instruction], bool] = lambda _: False,
) -> Program:
    """The program of `entry` and of the functions that it can reach.

    module: the module.
    entry: the kernel.
    prepare: a function that rewrites each function first.
    longest: greatest number of instructions in a block, see LONGEST; with 0 every instruction is a separate block.
    takes_turns: whether an instruction is a block of its own whose lanes wait for their turn.
    """
    found = reached(module, entry)
    functions = {name: FunctionBlocks(prepare(function)) for name, function in found.functions.items()}
    blocks: list[Block] = []
    for item in functions.values():
        _split(item, blocks, longest, takes_turns)
    return Program(module, functions, blocks, cycles(found.calls), found.pointed)


class _Splitter:
    def __init__(
        self, item: FunctionBlocks, blocks: list[Block], longest: int, takes_turns: Callable[[Instruction], bool]
    ) -> None:
        self.item, self.blocks, self.longest, self.takes_turns = item, blocks, longest, takes_turns
        self.fixups: list[tuple[Block, int, str]] = []
        self.labels: dict[str, int] = {}
        self.together = Here.SOME
        self.current = self.new()
        function = item.function
        self.receives = not function.is_entry and any(p.space == "reg" for p in function.params)

    def new(self) -> Block:
        block = Block(len(self.blocks), self.item)
        self.blocks.append(block)
        self.item.blocks.append(block)
        self.together = Here.SOME
        self.weight = 0
        return block

    def fall(self) -> Block:
        """End the current block and continue in a new one."""
        old = self.current
        self.current = self.new()
        old.targets.append(self.current.index)
        return old

    def label(self, name: str) -> None:
        first = self.receives and self.current is self.item.blocks[0]  # it takes the parameters, once
        if self.current.body or self.current.after or first or self.item.blocks[-1] is not self.current:
            self.fall()
        self.labels[name] = self.current.index

    def guard(self, ins: Instruction) -> None:
        """Put a guarded instruction into a separate block, with a branch around it."""
        block = self.current
        block.ending, block.last = Ends.BRANCH, ins
        self.current = self.new()
        block.targets.append(self.current.index)

    def add(self, ins: Instruction) -> None:
        if self.weight > self.longest:
            together = self.together
            self.fall()
            self.together = together  # no other lanes reach this place
        effects = ins.effects
        special = effects.ends is not Ends.NO
        sync = effects.together in _WAITS_FOR_LANES
        if effects.ends is Ends.BRANCH and ins.guard is not None:
            block = self.current
            block.ending, block.last = Ends.BRANCH, ins
            self.target(block, ins.operands[0])
            self.current = self.new()
            block.targets.append(self.current.index)
            return
        if self.takes_turns(ins):
            self.alone(ins)
            return
        guarded = ins.guard is not None and (special or sync)
        around = self.current if guarded else None
        if guarded:
            self.guard(ins)
        if sync and (self.begins(ins, effects) or self.together < partners(ins)):
            # a wait is tried again from the start of its block: nothing may stand before it
            if self.current.body or self.current.after:
                self.fall()
            self.current.sync = True
            self.together = partners(ins) if partners(ins) is not Here.MASK else Here.SOME
        if effects.ends is Ends.WAIT and not sync and (self.current.body or self.current.after):
            self.fall()  # it is tried again from the start of its block
        if special:
            self.end(ins)
        else:
            self.current.body.append(ins)
            self.weight += 2 + sum(isinstance(o, Reg) for o in ins.leaves)
            if effects.together is Together.MEETING and self.current.sync and len(self.current.body) == 1:
                self.fall()  # its lanes may come to several of them, and go on from each
                self.together = Here.SOME
        if around is not None:
            if self.current.body or self.current.sync or self.current.after is not None:
                self.fall()  # lanes that skip it do not receive its results either
            around.targets.append(self.current.index)

    def alone(self, ins: Instruction) -> None:
        """Put an instruction into a block of its own, whose lanes wait for their turn."""
        around = self.current if ins.guard is not None else None
        if around is not None:
            self.guard(ins)
        elif self.current.body or self.current.after or self.current.sync:
            self.fall()
        self.current.turn = True
        self.current.body.append(ins)
        self.fall()
        if around is not None:
            around.targets.append(self.current.index)

    def begins(self, ins: Instruction, effects: Effects) -> bool:
        """Whether an instruction begins a block, regardless of the lanes that are here."""
        warpgroup = effects.together is Together.WARPGROUP and not self.current.sync
        return warpgroup or effects.ends is Ends.WAIT or self.crowded(ins)

    def crowded(self, ins: Instruction) -> bool:
        """Whether the block has no room for another wgmma: at its start, a block reserves the queue for all its wgmma."""
        return is_wgmma_issue(ins) and sum(map(is_wgmma_issue, self.current.body)) >= WGMMA_BLOCK

    def target(self, block: Block, operand: Operand) -> None:
        block.targets.append(-1)
        self.fixups.append((block, len(block.targets) - 1, must_be(operand, LabelRef).name))

    def end(self, ins: Instruction) -> None:
        block = self.current
        block.last = ins
        ends = ins.effects.ends
        if ends is Ends.BRANCH:  # always taken
            block.ending = Ends.NO
            self.target(block, ins.operands[0])
        elif ends is Ends.RETURN and self.item.function.is_entry:
            block.ending = Ends.EXIT
        else:
            block.ending = ends
        if ends is Ends.INDEXED:
            for label in self.item.function.targets[must_be(ins.operands[1], Symbol).name].targets:
                self.target(block, label)
        if ends not in (Ends.CALL, Ends.BARRIER, Ends.WAIT):
            self.current = self.new()
            return
        self.fall()
        if ends is not Ends.WAIT:
            self.current.after = ins

    def finish(self) -> None:
        # control that runs off the end returns
        self.current.ending = Ends.EXIT if self.item.function.is_entry else Ends.RETURN
        for block, at, name in self.fixups:
            block.targets[at] = self.labels[name]


def _split(item: FunctionBlocks, blocks: list[Block], longest: int, takes_turns: Callable[[Instruction], bool]) -> None:
    splitter = _Splitter(item, blocks, longest, takes_turns)
    reachable = _jumped_to(item.function)
    for statement in item.function.body:
        if isinstance(statement, Label):
            if statement.name in reachable:  # compilers write others, where a line of source begins
                splitter.label(statement.name)
        else:
            splitter.add(statement)
    splitter.finish()


def _jumped_to(function: Function) -> set[str]:
    """Labels at which control may arrive by a branch."""
    listed = (label for targets in function.targets.values() for label in targets.targets)
    named = (o for ins in function.instructions for o in ins.operands)
    return {o.name for o in (*listed, *named) if isinstance(o, LabelRef)}
