"""Registers that hold one value for all lanes of a warp, so that one word stores it.

They are computed from values that are equal for a warp (parameters, %ctaid, numbers, loads from one address), and written only
where all lanes are together: in blocks where no lane can be while another is elsewhere. So no lane writes them while lanes are
apart, and a lane reads what it would have read alone. A loop that lanes leave at different times, and all code behind it, does
not qualify, up to an instruction that waits for all lanes of the warp. Lanes at an exit no longer read or write, and do not
count.

Loads of neighbouring words by each lane, such as the members of a struct, can be done together at the first of them
(`neighbours`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable

from mmulator.base.codegen.locks import remaining
from mmulator.base.errors import must_be
from mmulator.isa.effects import Ends, Flow, MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.ptx.program.blocks import Block, FunctionBlocks, Here, blocks_from, partners
from mmulator.ptx.program.flow import settle, turned
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Reg, SpecialRegister, Symbol, flatten

_PER_LANE = ("tid", "lane", "clock", "globaltimer")  # special registers, by how they begin
_SPACES = ("global", "shared", "const", "param")  # in which one address is one place: each lane has its own local memory


def is_plain_load(ins: Instruction) -> bool:
    """Whether lanes that load from one address get one value, at once and without ordering other accesses."""
    if ins.effects.flow is not Flow.LOADED or ins.effects.memory is not MemoryEffect.READ:
        return False
    form = ins.form
    return form["sem"] in ("", "weak") and form["space"].partition("::")[0] in _SPACES


def runs(block: Block, uniform: Collection[str]) -> list[list[Instruction]]:
    """Runs of two or more loads of one register each, from addresses that are equal for all lanes, which can be done together
    at the place of the last: nothing between them accesses memory or their results.
    """
    found: list[list[Instruction]] = [[]]
    results: set[str] = set()
    for ins in block.body:
        uses, defs = uses_and_defs(ins)
        joins = ins.guard is None and is_plain_load(ins) and is_one_register(ins) and uses.issubset(uniform)
        joins = joins and bool(uses) and not ins.form["space"].startswith("param") and type_bits(ins.form["type"]) <= 64
        if not results.isdisjoint(uses | defs) or not (joins or is_still(ins)) or (joins and _differ(found[-1], ins)):
            found.append([])
            results.clear()
        if joins:
            found[-1].append(ins)
            results |= defs
    return [run for run in found if len(run) > 1]


def is_one_register(ins: Instruction) -> bool:
    """Whether a load has one register as destination, possibly in braces, as compilers of inline assembly write it."""
    return [isinstance(o, Reg) for o in flatten(ins.operands[:1])] == [True]


def _differ(run: list[Instruction], ins: Instruction) -> bool:
    return any((i.form["space"], type_bits(i.form["type"])) != (ins.form["space"], type_bits(ins.form["type"])) for i in run[:1])


def is_still(ins: Instruction) -> bool:
    """Whether executing an instruction has no effect besides its results."""
    return ins.effects.still


def takes_one_lane(ins: Instruction) -> bool:
    """Whether an instruction is a shuffle in which all 32 lanes read one lane."""
    if ins.effects.flow is not Flow.LANES or ins.form["mode"] != "idx":
        return False
    _, _, lane, clamp, members = ins.operands
    numbers = [o.bits("b32") if isinstance(o, Immediate) else None for o in (lane, clamp, members)]
    return isinstance(ins.operands[0], Reg) and numbers[0] is not None and numbers[1:] == [31, 0xFFFFFFFF]


def _depends(ins: Instruction, local: Collection[str]) -> frozenset[str] | None:
    """Registers that make the results of an instruction uniform if they are uniform; None if the results are never uniform."""
    effects = ins.effects
    if effects.flow is Flow.LANES and takes_one_lane(ins):
        return frozenset() if ins.guard is None else None
    waits = effects.ends is Ends.WAIT and effects.memory is MemoryEffect.READ  # for an mbarrier
    if not ((is_still(ins) and not effects.carry) or is_plain_load(ins) or waits):
        return None
    for o in ins.leaves:
        if isinstance(o, Reg):
            if type_bits(o.type) > 64:
                return None
        elif isinstance(o, SpecialRegister):
            if o.name.startswith(_PER_LANE):
                return None
        elif isinstance(o, Symbol) and o.name in local:
            return None
    return uses_and_defs(ins)[0]


class _Flow:
    """The solver for a function.

    varying: registers that are not known to be uniform.
    apart: blocks in which lanes may be while others are elsewhere.
    """

    def __init__(self, function: FunctionBlocks, local: Collection[str]) -> None:
        self.blocks = function.blocks
        self.first = function.blocks[0].index
        self.varying: set[str] = set()
        self.apart: set[int] = set()
        self.leaves = self._leaves()
        self.meets = {b.index for b in self.blocks if b.sync and partners(b.body[0] if b.body else must_be(b.last, Instruction))
                      in (Here.LIVE, Here.WHOLE)}  # fmt: skip
        self.steps: list[list[tuple[frozenset[str] | None, frozenset[str]]]] = []
        for block in self.blocks:
            steps: list[tuple[frozenset[str] | None, frozenset[str]]] = []
            if block.after is not None:
                steps.append((None, uses_and_defs(block.after)[1]))
            every = block.body if block.last is None or block.ending is Ends.BRANCH else [*block.body, block.last]
            for ins in every:
                defs = uses_and_defs(ins)[1]
                if defs:
                    steps.append((_depends(ins, local), defs))
            self.steps.append(steps)

    def _leaves(self) -> set[int]:
        """Blocks that do nothing but exit."""
        found: set[int] = set()
        for block in reversed(self.blocks):
            empty = not block.body and block.after is None and not block.sync
            if empty and (block.ending is Ends.EXIT or (block.ending is Ends.NO and found.issuperset(block.targets))):
                found.add(block.index)
        return found

    def parts(self, block: Block) -> bool:
        """Whether lanes that reach the end of a block together may continue apart."""
        match block.ending:
            case Ends.NO | Ends.BARRIER:
                return False
            case Ends.BRANCH:
                guard = must_be(must_be(block.last, Instruction).guard, tuple)[0].name
                return guard in self.varying and not any(t in self.leaves for t in block.targets)
            case Ends.INDEXED | Ends.WAIT:
                return not uses_and_defs(must_be(block.last, Instruction))[0].isdisjoint(self.varying)
        return True

    def solve(self) -> None:
        settle(self.step)

    def step(self) -> tuple[int, int]:
        for block, steps in zip(self.blocks, self.steps):
            apart = block.index in self.apart
            for depends, defs in steps:
                if not defs <= self.varying and (apart or depends is None or not depends.isdisjoint(self.varying)):
                    self.varying |= defs
            if block.targets and (apart or self.parts(block)):
                self.apart.update(t for t in block.targets if t not in self.meets)
        return len(self.varying), len(self.apart)


def left_behind(function: FunctionBlocks, blocks: Iterable[int]) -> set[int]:
    """Blocks of a kernel, of those given, that lanes may execute when others of their warp have exited: from one target of a
    branch lanes leave without coming here, and from another they come.
    """
    flow = _Flow(function, {v.name for v in function.function.variables if v.space in ("local", "param")})
    flow.solve()
    before = turned({b.index: b.targets for b in function.blocks})
    branches = [
        b.targets for b in function.blocks
        if len({*b.targets}) > 1 and not uses_and_defs(must_be(b.last, Instruction))[0].isdisjoint(flow.varying)
    ]  # fmt: skip
    ends = [b.index for b in function.blocks if b.ending is Ends.EXIT]

    def is_left(block: int) -> bool:
        remaining()
        gone, come = blocks_from(ends, before.__getitem__, block), blocks_from([block], before.__getitem__)
        return any(t in gone and any(u in come and u != t for u in targets) for targets in branches for t in targets)

    return {b for b in blocks if is_left(b)}


def uniform_registers(function: FunctionBlocks, local: Collection[str]) -> frozenset[str]:
    """The uniform registers of a kernel; none for a called function, whose callers may be apart. local: names of variables of
    which each lane has its own.
    """
    if not function.function.is_entry:
        return frozenset()
    flow = _Flow(function, local)
    flow.solve()
    return frozenset(n for n in function.function.registers if n not in flow.varying)


# loads of neighbouring words ------------------------------------------------------------------------------------------
WORD = 4  # bytes
MOST = 8  # words
SPACES = ("", "global", "shared", "shared::cta")


def neighbours(block: Block, uniform: Collection[str]) -> list[list[Instruction]]:
    """Groups of two or more loads of a block, by rising addresses: words of 32 bits without a gap, from one register on. Between
    the loads no instruction writes that register, or memory.

    uniform: registers with one value for all lanes, whose loads are done otherwise.
    """
    found: list[list[tuple[int, Instruction]]] = []
    open_: dict[str, dict[str, list[tuple[int, Instruction]]]] = defaultdict(dict)  # by register, then state space
    for ins in block.body:
        uses, defs = uses_and_defs(ins)
        if not is_plain_load(ins) and not is_still(ins):
            open_.clear()
        elif _joins(ins) and not uses.issubset(uniform):
            address = ins.operands[1]
            assert isinstance(address, Address) and isinstance(address.base, Reg)
            spaces = open_[address.base.name]
            if ins.form["space"] not in spaces:
                found.append(spaces.setdefault(ins.form["space"], []))
            spaces[ins.form["space"]].append((address.offset, ins))
        for name in defs:
            open_.pop(name, None)
    return [group for loads in found for group in _without_gaps(loads)]


def _joins(ins: Instruction) -> bool:
    """Whether a load may be done with others."""
    if ins.guard is not None or not is_plain_load(ins) or not is_one_register(ins) or ins.form["space"] not in SPACES:
        return False
    address = ins.operands[1]
    base = address.base if isinstance(address, Address) else None
    return type_bits(ins.form["type"]) == 8 * WORD and isinstance(base, Reg) and type_bits(base.type) == 64


def _without_gaps(loads: Iterable[tuple[int, Instruction]]) -> Iterable[list[Instruction]]:
    by_offset: dict[int, Instruction] = {}
    for offset, ins in loads:
        by_offset.setdefault(offset, ins)
    group: list[Instruction] = []
    last = 0
    for offset, ins in sorted(by_offset.items(), key=lambda item: item[0]):
        if group and (offset != last + WORD or len(group) == MOST):
            yield from [group] * (len(group) > 1)
            group = []
        group.append(ins)
        last = offset
    yield from [group] * (len(group) > 1)
