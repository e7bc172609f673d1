"""Registers of a function that may be undefined where they are read: not written before, or computed from such registers.

PTX ISA 9.1, State Spaces: a register has no value before it is written, nor has .shared and .local memory. A register that this
file does not report has a value wherever it is read, so code that tracks values at run time can ignore it.

Loads from shared memory whose value may stay unread (`unread_loads`) are those that one path reads, and on another their
registers are written again, or the thread exits, first. Such are prefetches: the last round of a loop loads what a further
round would use.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mmulator.base.errors import must_be
from mmulator.isa.effects import Algebra, Flow, MemoryEffect
from mmulator.ptx.program.blocks import Block, FunctionBlocks, Program, instructions
from mmulator.ptx.program.flow import settle
from mmulator.ptx.program.frames import Liveness
from mmulator.ptx.program.loads import kept_bits
from mmulator.ptx.program.uniform import left_behind
from mmulator.ptx.program.uses import CARRY, accesses, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Reg, Symbol, VectorOperand


@dataclass(frozen=True)
class MaybeUndefined:
    """The registers of a function that may be undefined where they are read.

    registers: all of them.
    loaded: those that may be undefined because of loaded bytes.
    unwritten: those that may be undefined because some register was never written.
    missable, missed: those that an instruction makes undefined that leaves lanes without a value, and no other reason.
    misses: these instructions.
    watched: whether global memory may be undefined too.
    kept: loads of bits that stay where they are (loads.py), and their compare-and-swaps; what they read counts as defined.
    """

    registers: frozenset[str]
    loaded: frozenset[str]
    unwritten: frozenset[str]
    missable: frozenset[str]
    missed: frozenset[str]
    misses: frozenset[Instruction]
    watched: bool = False
    kept: frozenset[Instruction] = frozenset()

    def memory(self, name: str) -> int:
        """The reason why a register may be undefined: 0: not memory; 1: memory alone; 2: perhaps memory; 3: one of `misses`.
        And 4 if it may be one of these, too.
        """
        if name in self.missed:
            return 3
        return (1 + (name in self.unwritten)) * (name in self.loaded) + 4 * (name in self.missable)


FULL = 0xFFFFFFFF
_TILES = Flow.ROWS, Flow.TILE


def flow_of(ins: Instruction, watched: bool = False) -> Flow:
    """The condition under which the results of an instruction are defined. watched: as in MaybeUndefined."""
    effects = ins.effects
    flow = effects.flow
    if flow in (Flow.LOADED, Flow.TILE) and not in_doubt(ins) and not (watched and _of_device(ins)):
        return Flow.DEFINED
    if flow is Flow.BESIDE:
        vector = any(isinstance(o, VectorOperand) for o in ins.operands[1:]) and not ins.form["vec"]
        return Flow.ANY if vector or sum(access == "r" for access, _ in accesses(ins)) > 1 else Flow.EACH
    if flow is Flow.EACH and effects.algebra in (Algebra.AND, Algebra.OR) and ins.form["type"] == "pred":
        return Flow.LOGIC
    if flow is Flow.EACH and effects.cancels and len(ins.operands) == 3 and isinstance(ins.operands[1], Reg):
        b = ins.operands[2]
        if isinstance(b, Reg) and b.name == ins.operands[1].name:
            return Flow.DEFINED  # zero for any value of the register
    return flow


def in_doubt(ins: Instruction) -> bool:
    """Whether an access may read unwritten bytes: of shared and local memory, and of a function's parameters."""
    space = ins.form["space"].partition("::")[0]
    return space in ("", "shared", "local", "param")


def _of_device(ins: Instruction) -> bool:
    """Whether an access loads from global memory, which a program may have allocated but not filled."""
    return ins.form["space"] == "global"


def missing(function: FunctionBlocks) -> frozenset[Instruction]:
    """The instructions that may leave a lane without a value: shfl from a lane that does not execute it (its mask is not full, or
    lanes of it may have exited), and the cluster of an answer that is no.
    """
    if "missing" not in function.known:
        shuffles = {i: b.index for b in function.blocks for i in b.body if flow_of(i) is Flow.LANES}
        full = {i: n for i, n in shuffles.items() if isinstance(m := i.operands[-1], Immediate) and m.bits("b32") == FULL}
        left = {*full.values()}
        if left and function.function.is_entry:
            left = left_behind(function, left)
        answers = {i for b in function.blocks for i in b.body if flow_of(i) is Flow.ANSWER}
        function.known["missing"] = answers | {i for i, n in shuffles.items() if i not in full or n in left}
    found: frozenset[Instruction] = function.known["missing"]
    return found


def doubt(function: FunctionBlocks, live: Liveness, watched: bool = False) -> MaybeUndefined:
    """The registers of a function that may be undefined. watched: as in MaybeUndefined."""
    given = {p.name for p in (*function.function.params, *function.function.returns)}
    own = {p.name for p in function.function.params} if function.function.is_entry else set()
    steps = [i for b in function.blocks for i in (*b.body, *([b.last] if b.last is not None else ()))]
    kept = kept_bits(function)
    flows = [(Flow.DEFINED if i in kept else flow_of(i, watched), i, *uses_and_defs(i)) for i in steps]
    misses = missing(function)

    def spread(found: set[str], loads: bool, shuffles: bool = True) -> frozenset[str]:
        def step() -> int:
            for flow, ins, uses, defs in flows:
                if not defs <= found and takes_doubt(flow, ins, uses, found, own, loads, misses if shuffles else ()):
                    found.update(defs - {CARRY})
            return len(found)

        settle(step, len(found))
        return frozenset(found)

    unwritten = {n for n in live.into[0] if n not in given and n != CARRY}
    every = spread({*unwritten}, True)
    missed = every - spread({*unwritten}, True, False) if misses else frozenset()
    missable = spread(set(), False) if misses else frozenset()
    return MaybeUndefined(every, spread(set(), True), spread({*unwritten}, False), missable, missed, misses, watched, kept)


def takes_doubt(
    flow: Flow, ins: Instruction, uses: frozenset[str], found: set[str], own: set[str], loads: bool,
    misses: Collection[Instruction],
) -> bool:  # fmt: skip
    """Whether the results of an instruction may be undefined.

    flow: the condition under which they are defined.
    ins: the instruction.
    uses: registers that it reads.
    found: registers that may be undefined.
    own: names of a kernel's parameters.
    loads: whether memory may be undefined.
    misses: shuffles that may take an undefined value (missing).
    """
    if ins.guard is not None and ins.guard[0].name in found:
        return True
    if flow is Flow.DEFINED:
        return False
    if ins in misses:
        return True
    if flow is Flow.LOADED and loads:
        base = must_be(next(o for o in ins.operands if isinstance(o, Address)), Address).base
        return not (ins.form["space"].startswith("param") and isinstance(base, Symbol) and base.name in own)
    return (loads and flow in (*_TILES, Flow.WGMMA)) or (flow not in (Flow.LOADED, *_TILES) and not uses.isdisjoint(found))


# loads that may stay unread -------------------------------------------------------------------------------------------
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
