"""Branches that decide what a lane stores: those that chose a constant, and those that led a thread past a store.

Where no thread came to a store, a run for this question alone sends each lane to stores once at each branch that would lead it
past them. So the machine itself computes where the lane would have stored."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmulator.isa.effects import Algebra, Ends
from mmulator.observation.record.cause import span_text
from mmulator.observation.record.memory import lanes_at, stores_words
from mmulator.observation.record.steps import NEVER, Steps, WarpPlace
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.ptx.program.blocks import Block, Program, blocks_from, instructions
from mmulator.ptx.program.uses import callee_of, uses_and_defs
from mmulator.ptx.tree import Instruction, Symbol

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.runtime.launch.grid import Grid

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


STEERED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)


class Arrived(Exception):
    """The end of a run that has found its thread."""


@dataclass(frozen=True)
class Detour:
    """A thread that is led past a store.

    block: number of its CTA in the grid.
    warp, lane: of the thread in the CTA.
    branch, taken: the first branch that leads it past stores, and whether its guard is true then.
    store: the store.
    """

    block: int
    warp: int
    lane: int
    branch: Instruction
    taken: bool
    store: Instruction

    def step_of(self, trail: Trail) -> TrailStep | None:
        """The step of another run of the block at which the thread is led past the store."""
        for step in trail.steps:
            if step.block == self.block and step.place.warp == self.warp and step.lanes >> self.lane & 1:
                same = _place(trail.instruction(step)) == _place(self.branch)
                if same and bool(trail.guard(step) >> self.lane & 1) == self.taken:
                    return step
        return None


class Detours(Steps):
    """The observer of a run that ends, by Arrived, when a lane that was sent to a store would write to an address.

    address: generic address of the byte.
    found: what was found, or None.

    The launch has to go on after impossible accesses (How.keep_going): a branch may have spared lanes some.
    """

    def __init__(self, address: int) -> None:
        super().__init__(self._arrives, None, NEVER, self._stores)
        self.address = address
        self.found: Detour | None = None
        self.trail = Trail()
        self.trail.observer = self
        self._steered = STEERED(self._on_branch)
        self._sent: dict[tuple[int, int, int], int] = defaultdict(int)  # (block, warp, site) -> lanes
        self._first: dict[tuple[int, int, int], tuple[Instruction, bool]] = {}  # (block, warp, lane) -> branch, guard

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.steps import DETOURS

        return DETOURS

    def _stores(self, grid: Grid) -> list[int]:
        self.stores = {n for n, ins in enumerate(grid.kernel.executed) if stores_words(ins)}
        led = dict(ways_to_stores(grid.kernel.program))
        self.ways = {n: led[ins] for n, ins in enumerate(grid.kernel.executed) if ins in led}
        return [*self.stores, *self.ways]

    def begin(self, grid: Grid) -> None:
        super().begin(grid)
        self.memory["steered"] = ctypes.cast(self._steered, ctypes.c_void_p).value
        self.trail.index()

    def _on_branch(self, w: int, mask: int, taken: int, site: int) -> None:
        if self.error is not None:
            return
        place, lanes = self._places[w], ctypes.c_uint32.from_address(taken)
        key = place.block, place.warp, site
        wrong = mask & (~lanes.value if self.ways[site] else lanes.value) & ~self._sent[key]
        self._sent[key] |= wrong
        lanes.value ^= wrong
        for lane in (n for n in range(32) if wrong >> n & 1):
            self._first.setdefault((place.block, place.warp, lane), (self.kernel.executed[site], not self.ways[site]))

    def _arrives(self, place: WarpPlace, lanes: int, site: int) -> None:
        if site not in self.stores:
            return
        self.trail.stepped(place, lanes, site)
        step = self.trail.steps.pop()
        hit = lanes_at(self.trail, step, self.address) & lanes
        for lane in (n for n in range(32) if hit >> n & 1):
            first = self._first.get((place.block, place.warp, lane))
            if first is not None:
                self.found = Detour(place.block, place.warp, lane, *first, self.trail.instruction(step))
                raise Arrived


def ways_to_stores(program: Program) -> Iterator[tuple[Instruction, bool]]:
    """Conditional branches one way of which leads to more stores to global memory than the other: (branch, its guard there)."""
    storing = _storing(program)
    for item in program.functions.values():
        ways = {block.index: block.targets for block in item.blocks}
        stores = {block.index for block in item.blocks if _stores(block, storing)}
        for block in item.blocks if stores else ():
            if block.ending is Ends.BRANCH and block.last is not None:
                reached = [blocks_from([t], ways.__getitem__) for t in block.targets]
                taken, other = (stores & blocks for blocks in reached)
                if taken != other and (taken >= other or other >= taken):
                    yield block.last, taken > other


def _storing(program: Program) -> set[str]:
    """Names of functions that store, or call one that does."""
    found: set[str] = set()
    for _ in program.functions:
        found |= {name for name, item in program.functions.items() if any(_stores(block, found) for block in item.blocks)}
    return found


def _stores(block: Block, storing: set[str]) -> bool:
    if block.ending is Ends.CALL and block.last is not None:
        callee = callee_of(block.last)
        return isinstance(callee, Symbol) and callee.name in storing
    return any(map(stores_words, instructions(block)))


def _place(ins: Instruction) -> int:
    return ins.original.span.start
