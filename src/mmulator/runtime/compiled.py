"""A compiled kernel as a launch uses it. Its source is needed only by faults and reports, and is restored for them
on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.lazy import cached_property
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.program.image import LocalFrame, ModuleImage, SharedLayout
from mmulator.runtime.code import BlockCode
from mmulator.runtime.native.state import Callee, OperationKind

if TYPE_CHECKING:
    from mmulator.ptx.program.blocks import Program
    from mmulator.ptx.program.frames import Frame
    from mmulator.ptx.tree import Instruction

T = TypeVar("T")
Answers = Callable[[str, Callable[[], Any]], Any]  # (a name, what computes its answer) -> the answer, computed or stored


@dataclass
class MatrixTables:
    """The tables of matrix instructions, in the order of their use. compiler/meaning/ fills them."""

    tables: list[np.ndarray] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    # tiles of wgmma: (function, n, bits of an element, register slots) of the accumulator
    tiles: dict[tuple[str, int, int, tuple[int, ...]], int] = field(default_factory=dict)
    wgmma: list[np.ndarray] = field(default_factory=list)
    tile_bytes: int = 0
    a_pack: tuple[int, int] = (0, 0)  # bytes of the largest plain and packed A, of those that are kept
    b_pack: tuple[int, int] = (0, 0)
    scratch_bytes: int = 0
    tensor: str = ""  # the device, if the kernel uses tensor memory
    keep: list[Any] = field(default_factory=list)

    def kept(self, product: Any) -> np.ndarray:
        """The table of a product of matrix/twin/, which is kept, with room for its scratch memory."""
        self.scratch_bytes = max(self.scratch_bytes, product.scratch)
        self.keep.append(product)
        table: np.ndarray = product.table
        return table


class Lowered(Protocol):
    """The source from which code was written.

    sites: the instruction of each site number.
    executed: the instruction as it is executed, which a rewrite may have made.
    frames: registers of each function.
    locals: local memory of each function.
    """

    program: Program
    sites: list[Instruction]
    executed: list[Instruction]
    frames: dict[str, Frame]
    locals: dict[str, LocalFrame]


@dataclass(frozen=True)
class KernelFacts:
    """The facts about a kernel that a launch needs, as plain data.

    name: name of the kernel.
    entry: number of its first block.
    shared: addresses of its shared variables, and their bytes.
    classes: number of instructions of each class, for each block.
    macs: (block, multiply-accumulates) of blocks with matrix instructions.
    noisy: blocks that access memory.
    callees: first block and places of frames of each called function (state.Callee).
    frame_bytes: size of a warp's register file.
    local_bytes: size of a lane's local memory.
    atomic_bytes: size of the widest atomic operation; 1 if there is none.
    registers: registers of a thread at the start if the kernel has setmaxnreg, otherwise 0.
    prints: whether native code may call Python for printf.
    mbarriers: whether it initialises mbarriers.
    reserved: whether it may use the system's part of shared memory.
    independent: whether no cluster can hear of another: it has no atomics, and no access with an order beyond its cluster.
    notes: differences from the device that are not excluded, in words.
    places: of each site's instruction among those of all blocks; empty if they are known only while code is written.
    """

    name: str
    entry: int
    shared: tuple[dict[str, int], int]
    classes: list[dict[str, int]]
    macs: list[tuple[int, int]]
    noisy: list[int]
    callees: list[tuple[int, ...]]
    frame_bytes: int
    local_bytes: int
    atomic_bytes: int
    registers: int
    prints: bool
    mbarriers: bool
    reserved: bool
    independent: bool
    notes: list[str]
    places: list[int]


@dataclass
class CompiledKernel:
    """Machine code of a kernel with everything that a launch needs.

    facts: facts as plain data.
    image: the module's variables.
    matrix: tables of matrix instructions.
    queues: kind of asynchronous operation -> address of the native function that carries it out.
    movers: kind of bulk operation -> address of the native function that carries it out.
    blocks: the code of the blocks.
    lower: a function that restores the source of the code.
    seconds: time of compilation.
    from_cache: whether the code was stored before.
    kept: objects that a launch leaves for the next one (runtime/launch/resident.py).
    answers: results of `once` and `once_stored`.
    stored: answers that stand in the store of compiled code, or None (compiler/warm.py).
    pace: seconds of a cluster in the last launch; 0 if unknown.
    piece: blocks of code that a worker ran at once in the last launch; 0 if unknown.
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
    stored: Answers | None = field(default=None, repr=False, compare=False)
    pace: float = field(default=0.0, compare=False)
    piece: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        facts = self.facts
        self.name, self.entry, self.notes = facts.name, facts.entry, facts.notes
        self.frame_bytes, self.local_bytes, self.atomic_bytes = facts.frame_bytes, facts.local_bytes, facts.atomic_bytes
        self.registers, self.prints, self.mbarriers = facts.registers, facts.prints, facts.mbarriers
        self.reserved = SHARED_BASE if facts.reserved else 0  # bytes of it
        self.code = self.blocks.table  # address of each block's function
        self.shared = SharedLayout(*facts.shared)

    def once(self, question: Callable[[CompiledKernel], T]) -> T:
        """question(kernel), computed once."""
        if question not in self.answers:
            self.answers[question] = question(self)
        answer: T = self.answers[question]
        return answer

    def once_stored(self, question: Callable[..., T], *given: str) -> T:
        """question(kernel, *given), computed once for all processes, since that takes the source.

        The answer is an array of numbers, a truth value, None, or tuples of numbers and strings.
        """
        asked = question, *given
        if asked not in self.answers:
            name = " ".join((question.__module__, question.__qualname__, *given))
            self.answers[asked] = self.stored(name, lambda: question(self, *given)) if self.stored else question(self, *given)
        answer: T = self.answers[asked]
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

    @property
    def executed(self) -> list[Instruction]:
        """Instruction of each site number as it is executed, which a rewrite (ptx/program/as_ptxas) may have made."""
        return self._lowered.executed

    @property
    def frames(self) -> dict[str, Frame]:
        """Registers of each function and their places in the register file."""
        return self._lowered.frames

    @property
    def locals(self) -> dict[str, LocalFrame]:
        """Local memory of each function."""
        return self._lowered.locals

    @cached_property
    def classes(self) -> list[Counter[str]]:
        """Number of instructions of each class, for each block."""
        return [Counter(c) for c in self.facts.classes]

    @cached_property
    def callee_table(self) -> np.ndarray:
        """The called functions, as native code reads them."""
        return np.array([tuple(c) for c in self.facts.callees], Callee.numpy_dtype())

    @cached_property
    def block_instructions(self) -> np.ndarray:
        """Number of instructions of each block."""
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
        """Greatest number of multiply-accumulates of a block."""
        return max((number for _, number in self.facts.macs), default=0)

    @cached_property
    def noisy_blocks(self) -> np.ndarray:
        """Numbers of the blocks that access memory."""
        return np.array(self.facts.noisy, np.uint32)
