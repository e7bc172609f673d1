"""Aligned barriers that lanes of a warp may skip: the instructions that show that a lane has skipped one.

PTX ISA 9.1, Parallel Synchronization and Communication Instructions: bar: all threads of a warp execute the same bar. A lane
has skipped a barrier when no path from its place leads to the barrier any more. From there on it executes only its exit, or
first an instruction of `behind`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import or_

from mmulator.base.errors import must_be
from mmulator.isa.effects import Ends, MemoryEffect, Together
from mmulator.ptx.program.blocks import Block, Program, instructions
from mmulator.ptx.program.calls import aim_of
from mmulator.ptx.program.flow import solve, turned
from mmulator.ptx.program.uses import callee_of
from mmulator.ptx.tree import Instruction, Reg

KINDS = 32  # of barriers that are told apart
_QUIET = "param", "const"


@dataclass(frozen=True)
class Skips:
    """The barriers that may be skipped.

    bits: id of an aligned barrier -> its kind, as one bit; 0 if lanes that skip it can only exit.
    behind: id of an instruction -> the kinds of barriers that are skipped when control reaches it.
    """

    bits: Mapping[Instruction, int] = field(default_factory=dict)
    behind: Mapping[Instruction, int] = field(default_factory=dict)


def is_aligned_barrier(ins: Instruction) -> bool:
    """Whether an instruction is bar, or barrier or barrier.cluster with .aligned, which a warp must reach as a whole."""
    return ins.effects.together is Together.LIVE


def skips_of(program: Program) -> Skips:
    """The skips of the aligned barriers of a kernel and of the functions that it calls."""
    every = [instructions(b) for b in program.blocks]
    barriers = [[i for i in body if is_aligned_barrier(i)] for body in every]
    numbers = {ins: n for n, ins in enumerate(i for found in barriers for i in found)}
    if not numbers:
        return Skips()
    ways = dict(enumerate(_ways(program)))
    own = [sum(1 << numbers[i] for i in found) for found in barriers]
    met = [sum(1 << numbers[i] for i in found if _certain(i, block)) for found, block in zip(barriers, program.blocks)]
    ahead = _spread(own, turned(ways))  # barriers that a way leads to
    entered = [0] * len(ways)
    for u, targets in ways.items():
        for v in targets:
            entered[v] |= ahead[u] & ~ahead[v] & ~met[u]
    passed = _spread(entered, ways)
    firsts = [next((i for i in body if _does_something(i)), None) for body in every]
    kinds = _kinds(len(numbers), [by for by, first in zip(passed, firsts) if first is not None])
    behind = {first: _kinds_in(by, kinds) for by, first in zip(passed, firsts) if first is not None and by}
    return Skips({i: kinds[n] for i, n in numbers.items() if kinds[n]}, {i: bits for i, bits in behind.items() if bits})


def _certain(ins: Instruction, block: Block) -> bool:
    """Whether all lanes that reach its block execute a barrier: a block that ends in a guarded barrier has a branch
    around it.
    """
    return ins.guard is None or ins is block.last


def _does_something(ins: Instruction) -> bool:
    """Whether an instruction is neither a lane-wise computation nor an exit."""
    effects = ins.effects
    if effects.ends is not Ends.NO:
        return effects.ends not in (Ends.EXIT, Ends.RETURN) and (effects.ends is not Ends.BRANCH or ins.guard is not None)
    if effects.memory is MemoryEffect.READ and ins.form["space"].partition("::")[0] in _QUIET:
        return False
    return effects.memory is not MemoryEffect.NONE or not effects.pure or effects.together is not Together.ALONE


def _ways(program: Program) -> list[list[int]]:
    """For each block the blocks that control may reach next, including calls and returns."""
    returns: dict[str, list[int]] = {name: [] for name in program.functions}
    ways = []
    for block in program.blocks:
        targets = list(block.targets)
        if block.ending is Ends.CALL and block.last is not None:
            for name in _called(program, block):
                targets.append(program.functions[name].entry)
                returns[name] += block.targets
        ways.append(targets)
    for block in program.blocks:
        if block.ending is Ends.RETURN:
            ways[block.index] += returns[block.function.function.name]
    return ways


def _called(program: Program, block: Block) -> list[str]:
    """Functions that the call at the end of a block may call."""
    callee = callee_of(must_be(block.last, Instruction))
    if isinstance(callee, Reg):
        return list(program.pointed[aim_of(program.module, block.function.function, must_be(block.last, Instruction))])
    return [callee.name] if callee.name in program.functions else []  # else one of CUDA's runtime


def _spread(bits: list[int], ways: Mapping[int, list[int]]) -> list[int]:
    """The bits of each block, joined with those of all blocks from which ways lead to it."""
    found = solve({n: b for n, b in enumerate(bits) if b}, ways.__getitem__, lambda _, b: b, or_)
    return [found.get(n, 0) for n in range(len(bits))]


def _kinds(count: int, passed: list[int]) -> list[int]:
    """For each barrier the bit of its kind: barriers that are skipped at the same places are of one kind. If there are more
    kinds than bits, the rest have no bit.
    """
    known: dict[tuple[int, ...], int] = {(): 0}
    found = []
    for n in range(count):
        places = tuple(place for place, by in enumerate(passed) if by >> n & 1)
        if places not in known:
            known[places] = 1 << len(known) - 1 if len(known) <= KINDS else 0
        found.append(known[places])
    return found


def _kinds_in(passed: int, kinds: list[int]) -> int:
    bits = 0
    while passed:
        n = passed.bit_length() - 1
        passed ^= 1 << n
        bits |= kinds[n]
    return bits
