"""Blocks to machine code: writes each basic block as one LLVM function and compiles them in groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from mmulator.codegen.engine import target_cpu
from mmulator.codegen.lang import Native
from mmulator.codegen.locks import no_fork
from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import i32, u64
from mmulator.codegen.values import Builder, Value, constant, module_text
from mmulator.errors import InternalError
from mmulator.isa.effects import Ends, Memory
from mmulator.isa.types import type_bits
from mmulator.lazy import cached_property
from mmulator.machine.compile.code import BlockCode
from mmulator.machine.compile.code import groups as code_groups
from mmulator.machine.compile.options import DEFAULT, CompileOptions
from mmulator.machine.emit.block import BLOCK_PARAMS, BlockEmitter
from mmulator.machine.emit.code import MatrixTables
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.runtime.events import undefined_used
from mmulator.machine.runtime.scheduler import run_clusters
from mmulator.machine.sanitizer.accumulators import kinds_of
from mmulator.machine.state import STACK_BYTES, Callee, Cta, Kind, TransferKind
from mmulator.numerics.profiles import dot_key, profile_for
from mmulator.program.addresses import SHARED_BASE
from mmulator.program.as_ptxas.contract import contract as contracted
from mmulator.program.as_ptxas.fold import fold
from mmulator.program.as_ptxas.inflight import Moved, delay_reads, is_injected, unfenced
from mmulator.program.blocks import (
    LONGEST,
    Block,
    FunctionBlocks,
    Program,
    accesses_memory,
    build,
)
from mmulator.program.calls import Place, check_frames, deepest, place_frames
from mmulator.program.counts import instruction_class, instruction_macs
from mmulator.program.frames import Frame, allocate, liveness
from mmulator.program.image import (
    LocalFrame,
    ModuleImage,
    SharedLayout,
    local_frame,
    shared_layout,
)
from mmulator.program.provenance import origins, variables_of
from mmulator.program.registers import entry_registers
from mmulator.program.runnable import require_supported
from mmulator.program.undefined import Doubt, doubt
from mmulator.program.uniform import uniform_registers
from mmulator.ptx.resources import named_symbols, parameter_bytes, parameter_offsets
from mmulator.ptx.tree import Function, Instruction, Module, Symbol, Variable
from mmulator.twin.sfu import tables_for

Progress = Callable[[int, int], None]
T = TypeVar("T")


@dataclass
class CompiledKernel:
    """Machine code of a kernel and what a launch must know.

    code: address of each block's function. sites: instruction of each site number. classes: per block, instructions
    by class. callees: of each function its first block and the place of its frames. frame_bytes: register file of a warp.
    local_bytes: local memory of a lane. queues: kinds of asynchronous operations that it issues, and the
    address of the native function that carries one out; movers: the same of bulk operations. mbarriers: it makes some.
    kept: what launches leave for the next (launch/kept.py). answers: to questions about it that were asked (`once`).
    pace, piece: seconds that a cluster took when it was last launched, and blocks of code that a worker ran at once; 0 for
    unknown.
    """

    program: Program
    image: ModuleImage
    shared: SharedLayout
    code: np.ndarray
    sites: list[Instruction]
    classes: list[Counter[str]]
    callees: list[tuple[int, Place]]
    frame_bytes: int
    local_bytes: int
    matrix: MatrixTables
    queues: dict[Kind, int]
    movers: dict[int, int]
    mbarriers: bool
    instructions: int
    seconds: float
    from_cache: bool
    blocks: BlockCode
    notes: list[str] = field(default_factory=list)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    answers: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    pace: float = field(default=0.0, compare=False)
    piece: int = field(default=0, compare=False)

    def once(self, question: Callable[[CompiledKernel], T]) -> T:
        """The answer to a question about the kernel, as it was the first time."""
        if question not in self.answers:
            self.answers[question] = question(self)
        answer: T = self.answers[question]
        return answer

    @cached_property
    def atomic_bytes(self) -> int:
        """Size of the widest atomic operation, 1 if there is none."""
        forms = (i.form for i in self.sites if i.effects.memory is Memory.ATOMIC)
        return max((type_bits(f["type"]) // 8 for f in forms), default=1)

    @cached_property
    def site_kinds(self) -> np.ndarray:
        """Of each site what it is to a rule of wgmma's registers (sanitizer/accumulators.py: Site)."""
        return kinds_of(self.sites)

    @cached_property
    def callee_table(self) -> np.ndarray:
        """`callees` as native code reads them."""
        return np.array([(e, p.cycle, p.offset, p.stride, p.end) for e, p in self.callees], Callee.numpy_dtype())

    @cached_property
    def function_table(self) -> np.ndarray:
        """Of each function of the module its number among the callees, -1 if no pointer leads to it."""
        numbers = {n: number for number, n in enumerate(self.program.functions) if n in self.program.pointed}
        return np.array([numbers.get(n, -1) for n in self.image.function_names], np.int32)

    @cached_property
    def block_instructions(self) -> np.ndarray:
        """Of each block its instructions."""
        return np.array([sum(c.values()) for c in self.classes], np.uint64)

    @cached_property
    def matrix_blocks(self) -> list[tuple[int, int]]:
        """Blocks with matrix instructions, and their multiply-accumulates."""
        macs = [sum(instruction_macs(i) for i in b.body) for b in self.program.blocks]
        return [(n, number) for n, number in enumerate(macs) if number]

    @cached_property
    def most_macs(self) -> int:
        """Multiply-accumulates of the block that has most."""
        return max((number for _, number in self.matrix_blocks), default=0)

    @cached_property
    def registers(self) -> int:
        """Of a thread at the start, if setmaxnreg changes that."""
        return entry_registers(self.program.entry.function, self._functions)

    @property
    def _functions(self) -> list[Function]:
        return [f.function for f in self.program.functions.values()]

    @property
    def cancels(self) -> bool:
        """Whether its clusters take others that have not begun: then native code calls Python, too."""
        return TransferKind.CANCEL in self.movers

    @cached_property
    def noisy_blocks(self) -> np.ndarray:
        """Numbers of the blocks that access memory."""
        return np.array([b.index for b in self.program.blocks if accesses_memory(b)], np.uint32)

    @cached_property
    def prints(self) -> bool:
        """Whether native code may call Python: device printf."""
        return "vprintf" in named_symbols(self._functions)


@cache
def meanings() -> ModuleType:
    """machine/meaning, and all that is imported on the way to code: a forked child cannot wait for it."""
    with no_fork:
        from mmulator.machine import meaning
    return meaning


class Jit:
    """Compiles one kernel of a module for one device."""

    def __init__(
        self, module: Module, function: Function, image: ModuleImage, device: str, options: CompileOptions = DEFAULT
    ) -> None:
        self.meaning = meanings()
        self.module, self.image, self.device, self.options = module, image, device, options
        self.moved = Moved()
        self.program = build(module, function, self._prepare, longest=0 if options.step else LONGEST)
        functions = [f.function for f in self.program.functions.values()]
        self.unfenced: set[int] = set().union(*(unfenced(f) for f in functions))
        self.numbers = {name: number for number, name in enumerate(self.program.functions)}
        require_supported(module, functions)
        self.shared = shared_layout(module, functions)
        live = {n: liveness(f) for n, f in self.program.functions.items()}
        self.doubtful: dict[str, Doubt] = {}
        self.variables: dict[str, dict[str, Variable]] = {}
        self.origins: dict[str, dict[str, Symbol]] = {}
        if undefined_used.under(options.events) is not None:
            self.doubtful = {n: doubt(f, live[n]) for n, f in self.program.functions.items()}
            both = {n: (f.function, variables_of(module, f.function)) for n, f in self.program.functions.items()}
            self.variables = {n: v for n, (_, v) in both.items()}
            self.origins = {n: origins(f, v) for n, (f, v) in both.items()}
        self.stack = STACK_BYTES if any(i.effects.allocates for f in functions for i in f.instructions) else 0
        self.locals: dict[str, LocalFrame] = {f.name: local_frame(f, self.stack) for f in functions}
        self.frames: dict[str, Frame] = {
            n: allocate(f, live[n], self.doubtful[n].registers if self.doubtful else frozenset(), self._uniform(f))
            for n, f in self.program.functions.items()
        }
        self.params = dict(zip((p.name for p in function.params), parameter_offsets(function.params)))
        self.parameter_bytes = parameter_bytes(function.params)
        self.sites: list[Instruction] = []
        self.matrix = MatrixTables()
        self.queues: dict[Kind, int] = {}
        self.movers: dict[int, int] = {}
        self.mbarriers = False

    def _prepare(self, function: Function) -> Function:
        """What ptxas would do to a function before instructions have their meaning."""
        contract = self.options.contract and "debug" not in self.module.options  # ptxas optimises no such module
        return delay_reads(contracted(fold(function)) if contract else function, self.options.waits, self.moved)

    def _uniform(self, function: FunctionBlocks) -> frozenset[str]:
        """Registers that are one value. Who looks at a kernel finds 32 lanes of each."""
        if self.options.step or self.options.events is not None:
            return frozenset()
        return uniform_registers(function, self.locals[function.function.name].offsets)

    # symbols --------------------------------------------------------------------------------------------------------
    def symbol(self, e: Emitter, symbol: Symbol) -> Value:
        name = symbol.name
        b = e.b
        local = self.locals[e.function_name].offsets.get(name)
        if local is not None:
            return u64.vec(32)(e.local_base()) + (local + symbol.offset)
        if name in self.shared.addresses:
            offset = self.shared.addresses[name] + symbol.offset
            if self.options.clusters:
                return cast_ptr(Cta, e.warp("cta")).field("shared_base") + (offset - SHARED_BASE)
            return constant(b, u64, offset)
        if name in self.image.addresses:
            return constant(b, u64, self.image.symbol_address(name) + symbol.offset)
        if e.is_entry and name in self.params:
            return constant(b, u64, self.params[name] + symbol.offset)
        callee = self.module.function(name)
        if callee is not None and callee.name in self.image.functions:
            return constant(b, u64, self.image.functions[callee.name])
        raise InternalError(f"{name} has no address")

    def special(self, e: BlockEmitter, name: str) -> Value:
        return self.meaning.special_registers.special_register(e, name)

    # compilation ----------------------------------------------------------------------------------------------------
    def compile(self, progress: Progress | None = None) -> CompiledKernel:
        """Write and compile all blocks. progress(done, total) in PTX instructions. Raises UnsupportedError."""
        start = time.perf_counter()
        target_cpu()  # raises what is wrong with its name here, where no instruction is to blame
        groups = self.program.groups
        places, frame_bytes = place_frames(groups, {n: f.bytes for n, f in self.frames.items()})
        local = deepest(groups, {n: f.bytes for n, f in self.locals.items()}) + 16
        check_frames(self.program.entry.function, frame_bytes, local)
        blocks = self.program.blocks
        natives: dict[str, Native] = {}
        classes = [Counter(instruction_class(i) for i in _instructions(b)) for b in blocks]
        sizes = [sum(c.values()) for c in classes]
        code = BlockCode(len(blocks))
        try:
            for group in code_groups(sizes):
                code.take(self._text([blocks[n] for n in group], natives), group)
            self.meaning.wgmma.find_rivals(self.matrix)
            runs = run_clusters.under(self.options.events) or run_clusters
            code.load([*natives.values(), runs], lambda done: progress and progress(sum(sizes[:done]), sum(sizes)))
        except BaseException:
            code.give_up()
            raise
        callees = [(f.entry, places[n]) for n, f in self.program.functions.items()]
        return CompiledKernel(
            self.program, self.image, self.shared, code.table, self.sites, classes, callees, frame_bytes, local, self.matrix,
            self.queues, self.movers, self.mbarriers, sum(sizes), time.perf_counter() - start, code.cached, code, self.notes(),
        )  # fmt: skip

    def notes(self) -> list[str]:
        """What of this kernel is not known to be the device's to the bit."""
        approximate: set[str] = set()
        inferred: dict[str, None] = {}
        unseen: dict[str, None] = {}
        early: dict[int, None] = {}
        for item in self.program.functions.values():
            for ins in item.function.instructions:
                if is_injected(ins):
                    early[ins.span.line] = None
                if not ins.form.is_matrix and ins.form.status.state == "unproven":
                    unseen[ins.mnemonic] = None
                elif ins.effects.approximate:
                    approximate.add(ins.opcode)
                elif instruction_macs(ins):
                    profile = profile_for(dot_key(ins.form), self.device)
                    if profile.confidence == "inferred":
                        inferred[f"{ins.mnemonic} on {self.device}: {profile.note or 'not observed'}"] = None
        tables, measured = tables_for(self.device)
        said = list(inferred)
        if unseen:
            said.append(f"{', '.join(unseen)}: as the PTX ISA describes them; no chip that has them was asked")
        if early:
            lines = ", ".join(map(str, early))
            said.append(f"a result of wgmma is used before its wait_group, which is undefined; as ptxas does (C7517), a wait was "
                        f"put in front of line {lines}")  # fmt: skip
        every = [i for f in self.program.functions.values() for i in f.function.instructions]
        if any(i.effects.resizes for i in every) and not entry_registers(
            self.program.entry.function, [f.function for f in self.program.functions.values()]
        ):
            said.append("setmaxnreg does nothing, as ptxas has it (C7508): it needs .maxnreg, or .minnctapersm with .maxntid or "
                        ".reqntid")  # fmt: skip
        if self.options.clusters and any(_of_halves_elsewhere(i) for i in every):
            said.append("sums of f16x2 and bf16x2 by atomics in the shared memory of another block: as the PTX ISA has them; "
                        "ptxas 13.0 makes an H200 add such words as integers")  # fmt: skip
        if approximate and not measured:
            said.append(
                f"{', '.join(sorted(approximate))}: approximate functions with the tables of {tables.device}; "
                f"none were captured on {self.device}"
            )
        return said

    def _text(self, group: list[Block], natives: dict[str, Native]) -> str:
        """LLVM text of these blocks. natives: what they call is added."""
        builders = []
        for block in group:
            builder, called = self._write(block)
            builders.append(builder)
            natives |= called
        return module_text(builders)

    def _write(self, block: Block) -> tuple[Builder, dict[str, Native]]:
        b = Builder(f"block{block.index}", i32, BLOCK_PARAMS)
        with b:
            e = Emitter(self, b, block, self.frames[block.function.function.name])
            self.meaning.write_block(e)
        return b, e.natives


def _instructions(block: Block) -> list[Instruction]:
    last = block.last
    if last is None or (block.ending is Ends.BRANCH and last.effects.ends is not Ends.BRANCH):  # a way round `last`
        return block.body
    return [*block.body, last]


def _of_halves_elsewhere(ins: Instruction) -> bool:
    """An atomic sum of two halves that may lie in the shared memory of another CTA of the cluster."""
    m = ins.modifiers
    sums = ins.effects.memory is Memory.ATOMIC and "add" in m and ("f16x2" in m or "bf16x2" in m)
    return sums and not {"global", "shared", "shared::cta"} & {*m}
