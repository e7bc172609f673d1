"""A compiled kernel, as a launch holds it. What it is made of is asked for by faults and reports alone, and loaded then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from mmulator.compiler.code import BlockCode
from mmulator.compiler.emit.tables import MatrixTables
from mmulator.lazy import cached_property
from mmulator.native.state import Callee, OperationKind
from mmulator.program.image import ModuleImage, SharedLayout

if TYPE_CHECKING:
    from mmulator.program.blocks import Program
    from mmulator.ptx.tree import Instruction

T = TypeVar("T")


class Lowered(Protocol):
    """What code was written from. sites: instruction of each site number."""

    program: Program
    sites: list[Instruction]


@dataclass(frozen=True)
class KernelFacts:
    """What a launch must know of a kernel, as plain data.

    name, entry: of the kernel, and its first block. shared: addresses of variables, bytes. classes: per block, instructions by
    class. macs: blocks with matrix instructions, and their multiply-accumulates. noisy: blocks that access memory. callees: of
    each function its first block and the place of its frames (state.Callee); functions: of each function of the module its number
    among these, -1 if no pointer leads to it. frame_bytes: register file of a warp. local_bytes: local memory of a lane.
    atomic_bytes: size of the widest atomic operation, 1 if there is none. registers: of a thread at the start, if setmaxnreg
    changes that. prints: native code may call Python, for device printf. mbarriers: it makes some.
    """

    name: str
    entry: int
    shared: tuple[dict[str, int], int]
    classes: list[dict[str, int]]
    macs: list[tuple[int, int]]
    noisy: list[int]
    callees: list[tuple[int, ...]]
    functions: list[int]
    frame_bytes: int
    local_bytes: int
    atomic_bytes: int
    registers: int
    prints: bool
    mbarriers: bool
    notes: list[str]


@dataclass
class CompiledKernel:
    """Machine code of a kernel and what a launch must know.

    queues: kinds of asynchronous operations that it issues, and the address of the native function that carries one out; movers:
    the same of bulk operations. lower: what the code was written from. kept: what launches leave for the next (launch/kept.py).
    answers: to questions about it that were asked (`once`). pace, piece: seconds that a cluster took when it was last launched,
    and blocks of code that a worker ran at once; 0 for unknown.
    """

    facts: KernelFacts
    image: ModuleImage
    matrix: MatrixTables
    queues: dict[OperationKind, int]
    movers: dict[int, int]
    blocks: BlockCode
    lower: Callable[[], Lowered] = field(repr=False)
    seconds: float
    from_cache: bool
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    answers: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    pace: float = field(default=0.0, compare=False)
    piece: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        facts = self.facts
        self.name, self.entry, self.notes = facts.name, facts.entry, facts.notes
        self.frame_bytes, self.local_bytes, self.atomic_bytes = facts.frame_bytes, facts.local_bytes, facts.atomic_bytes
        self.registers, self.prints, self.mbarriers = facts.registers, facts.prints, facts.mbarriers
        self.code = self.blocks.table  # address of each block's function
        self.shared = SharedLayout(*facts.shared)

    def once(self, question: Callable[[CompiledKernel], T]) -> T:
        """The answer to a question about the kernel, as it was the first time."""
        if question not in self.answers:
            self.answers[question] = question(self)
        answer: T = self.answers[question]
        return answer

    @cached_property
    def _lowered(self) -> Lowered:
        return self.lower()

    @property
    def program(self) -> Program:
        return self._lowered.program

    @property
    def sites(self) -> list[Instruction]:
        """Instruction of each site number."""
        return self._lowered.sites

    @cached_property
    def site_kinds(self) -> np.ndarray:
        """What each site is to a rule of wgmma's registers (sanitizer/checks/accumulators.py: Site)."""
        from mmulator.sanitizer.checks.accumulators import kinds_of

        return kinds_of(self.sites)

    @cached_property
    def classes(self) -> list[Counter[str]]:
        """Per block, instructions by class."""
        return [Counter(c) for c in self.facts.classes]

    @cached_property
    def callee_table(self) -> np.ndarray:
        """The functions that it calls as native code reads them."""
        return np.array([tuple(c) for c in self.facts.callees], Callee.numpy_dtype())

    @cached_property
    def function_table(self) -> np.ndarray:
        """Of each function of the module its number among the callees, -1 if no pointer leads to it."""
        return np.array(self.facts.functions, np.int32)

    @cached_property
    def block_instructions(self) -> np.ndarray:
        """Of each block its instructions."""
        return np.array([sum(c.values()) for c in self.facts.classes], np.uint64)

    @property
    def instructions(self) -> int:
        return int(self.block_instructions.sum())

    @property
    def matrix_blocks(self) -> list[tuple[int, int]]:
        """Blocks with matrix instructions, and their multiply-accumulates."""
        return self.facts.macs

    @cached_property
    def most_macs(self) -> int:
        """Multiply-accumulates of the block that has most."""
        return max((number for _, number in self.facts.macs), default=0)

    @cached_property
    def noisy_blocks(self) -> np.ndarray:
        """Numbers of the blocks that access memory."""
        return np.array(self.facts.noisy, np.uint32)
