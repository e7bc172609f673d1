"""The compiler of a kernel: each basic block becomes one LLVM function, and functions are compiled in groups."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, field
from functools import cache, partial
from types import ModuleType
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.codegen.engine import target_cpu
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.locks import no_fork, remaining
from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.stencils import Records
from mmulator.base.codegen.types import i32, u64
from mmulator.base.codegen.values import Builder, Value, constant, module_text
from mmulator.base.errors import InternalError
from mmulator.compiler.emit.block import BLOCK_PARAMS, BlockEmitter
from mmulator.compiler.emit.emitter import Emitter
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.matrix.numerics.sfu.tables import tables_for
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.program.as_ptxas.contract import contract as contracted
from mmulator.ptx.program.as_ptxas.fold import fold
from mmulator.ptx.program.as_ptxas.inflight import Moved, delay_reads, is_injected, unfenced
from mmulator.ptx.program.as_ptxas.used_bytes import narrow
from mmulator.ptx.program.blocks import LONGEST, Block, FunctionBlocks, Program, accesses_memory, build, instructions
from mmulator.ptx.program.calls import check_frames, deepest, place_frames, shared_layout
from mmulator.ptx.program.choices import takes_turns
from mmulator.ptx.program.counts import entry_registers, instruction_class, instruction_macs
from mmulator.ptx.program.frames import Frame, allocate, liveness, unread_results
from mmulator.ptx.program.image import LocalFrame, ModuleImage, local_frame
from mmulator.ptx.program.products import delay
from mmulator.ptx.program.provenance import origins, variables_of
from mmulator.ptx.program.runnable import ASSERT, ASSERT_BYTES, require_supported
from mmulator.ptx.program.skips import Skips, skips_of
from mmulator.ptx.program.undefined import MaybeUndefined, doubt, unread_loads
from mmulator.ptx.program.uniform import uniform_registers
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.resources import named_symbols, parameter_bytes, parameter_offsets
from mmulator.ptx.tree import Function, Instruction, ParsedModule, Symbol, Variable, VectorOperand
from mmulator.runtime.code import BlockCode
from mmulator.runtime.code import groups as code_groups
from mmulator.runtime.compiled import CompiledKernel as CompiledKernel
from mmulator.runtime.compiled import KernelFacts, MatrixTables
from mmulator.runtime.native.hooks.events import stepped, undefined_used
from mmulator.runtime.native.hooks.moves import value_moves
from mmulator.runtime.native.hooks.operands import barrier_passed
from mmulator.runtime.native.state import STACK_BYTES, Cta, OperationKind
from mmulator.runtime.native.threads.scheduler import run_clusters, run_records
from mmulator.runtime.options import DEFAULT, CompileOptions

Progress = Callable[[int, int], None]


@dataclass
class KernelSource:
    """The source of a kernel's code, its LLVM texts, and the native functions that these call. sites, executed, frames, locals:
    as in compiled.Lowered.
    """

    program: Program
    sites: list[Instruction]
    executed: list[Instruction]
    frames: dict[str, Frame]
    locals: dict[str, LocalFrame]
    texts: list[str] = field(default_factory=list)
    natives: list[Native] = field(default_factory=list)


@cache
def meanings() -> ModuleType:
    """The module compiler/meaning, with everything that is imported to write code: a forked child cannot wait for an import."""
    with no_fork:
        from mmulator.compiler import meaning
    return meaning


class Jit:
    """The compiler of one kernel of a module for one device."""

    def __init__(
        self, module: ParsedModule, function: Function, image: ModuleImage, device: str, options: CompileOptions = DEFAULT
    ) -> None:
        self.module, self.image, self.device, self.options = module, image, device, options
        self.moved = Moved()
        turns = {"takes_turns": takes_turns} if options.turns else {}
        self.program = build(module, function, self._prepare, longest=0 if options.step else LONGEST, **turns)
        remaining()
        if not options.step and options.events is None:
            for item in self.program.functions.values():
                delay(item)
        functions = [f.function for f in self.program.functions.values()]
        self.unfenced: set[Instruction] = set().union(*(unfenced(f) for f in functions))
        self.numbers = {name: number for number, name in enumerate(self.program.functions)}
        remaining()
        require_supported(module, functions)
        self.shared = shared_layout(module, functions)
        remaining()
        live = {n: liveness(f) for n, f in self.program.functions.items()}
        self.doubtful: dict[str, MaybeUndefined] = {}
        self.variables: dict[str, dict[str, Variable]] = {}
        self.origins: dict[str, dict[str, Symbol]] = {}
        if undefined_used.under(options.events) is not None:
            self.doubtful = {n: doubt(f, live[n], options.watched) for n, f in self.program.functions.items()}
            both = {n: (f.function, variables_of(module, f.function)) for n, f in self.program.functions.items()}
            remaining()
            self.variables = {n: v for n, (_, v) in both.items()}
            self.origins = {n: origins(f, v) for n, (f, v) in both.items()}
        remaining()
        self.unread = unread_loads(self.program) if value_moves.under(options.events) is not None else {}
        self.held: dict[str, dict[str, set[int]]] = {n: {} for n in self.program.functions}
        for name, item in self.program.functions.items():
            for load in (i for b in item.blocks for i in b.body if i in self.unread):
                for register in uses_and_defs(load)[1]:
                    self.held[name].setdefault(register, set()).add(self.unread[load])
        remaining()
        self.skips = skips_of(self.program) if barrier_passed.under(options.events) is not None else Skips()
        remaining()
        self.stack = STACK_BYTES if any(i.effects.allocates for f in functions for i in f.instructions) else 0
        self.locals: dict[str, LocalFrame] = {f.name: local_frame(f, self.stack) for f in functions}
        self.frames: dict[str, Frame] = {
            n: allocate(
                f, live[n], self.doubtful[n].registers if self.doubtful else frozenset(), *self._unseen(f),
                apart=stepped.under(options.events) is not None,
            )
            for n, f in self.program.functions.items()
        }
        self.params = dict(zip((p.name for p in function.params), parameter_offsets(function.params)))
        self.parameter_bytes = parameter_bytes(function.params)
        self.sites: list[Instruction] = []
        self.executed: list[Instruction] = []
        self.matrix = MatrixTables()
        self.queues: dict[OperationKind, int] = {}
        self.movers: dict[int, int] = {}
        self.mbarriers = self.reserved = False

    @property
    def meaning(self) -> ModuleType:
        """The module compiler/meaning, which only writing code needs."""
        return meanings()

    def _prepare(self, function: Function) -> Function:
        """The function after the changes that ptxas makes."""
        contract = self.options.contract and "debug" not in self.module.options  # ptxas optimises no such module
        for change in (narrow, *((fold, contracted) if contract else ()), self._delayed):
            remaining()  # each of these walks a kernel of many instructions for a while
            function = change(function)
        return function

    def _delayed(self, function: Function) -> Function:
        return delay_reads(function, self.options.waits, self.moved)

    def _unseen(self, function: FunctionBlocks) -> tuple[frozenset[str], frozenset[str]]:
        """(uniform registers, results that nothing reads); both empty under an instrument, which needs 32 lanes of each
        register.
        """
        if self.options.step or self.options.events is not None:
            return frozenset(), frozenset()
        return uniform_registers(function, self.locals[function.function.name].offsets), unread_results(function)

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
        every = [f.function for f in self.program.functions.values()]
        named = named_symbols(every)
        local = deepest(groups, {n: f.bytes for n, f in self.locals.items()}) + (ASSERT_BYTES if ASSERT in named else 16)
        check_frames(self.program.entry.function, frame_bytes, local)
        natives: dict[str, Native] = {}
        classes = self.classes()
        sizes = [sum(c.values()) for c in classes]
        code, records = BlockCode(len(sizes)), Records()
        joins = not self.options.step and self.options.events is None
        try:
            for builders, group in self._groups(sizes, natives):
                blocks = dict(zip(group, builders))
                code.take(module_text(builders), group, partial(records.take, blocks, natives) if joins else bool)
            self.meaning.wgmma.find_rivals(self.matrix)
            runs = run_clusters.under(self.options.events) or run_clusters
            natives |= {f.other.name: f.other for f in [*natives.values()] if f.other}
            fixed = [*natives.values(), runs, *([run_records] if records.blocks else [])]
            code.load(fixed, lambda done: progress and progress(sum(sizes[:done]), sum(sizes)), records)
        except BaseException:
            code.give_up()
            raise
        macs = [sum(instruction_macs(i) for i in b.body) for b in self.program.blocks]
        widest = (type_bits(i.form["type"]) // 8 for i in self.sites if i.effects.memory is MemoryEffect.ATOMIC)
        facts = KernelFacts(
            self.program.entry.function.name, self.program.entry.entry, (self.shared.addresses, self.shared.static),
            [dict(c) for c in classes], [(n, number) for n, number in enumerate(macs) if number],
            [b.index for b in self.program.blocks if accesses_memory(b)],
            [(f.entry, *astuple(places[n])) for n, f in self.program.functions.items()],
            frame_bytes, local, max(widest, default=1), entry_registers(every[0], every),
            "vprintf" in named, self.mbarriers, self.reserved, not any(map(_heard_elsewhere, self.sites)), self.notes(),
            self._places(),
        )  # fmt: skip
        source = self._source()
        seconds = time.perf_counter() - start
        return CompiledKernel(
            facts, self.image, self.matrix, self.queues, self.movers, code, lambda: source, seconds, code.cached
        )

    def classes(self) -> list[Counter[str]]:
        """Number of instructions of each class, for each block."""
        return [Counter(instruction_class(i) for i in instructions(b)) for b in self.program.blocks]

    def _groups(self, sizes: list[int], natives: dict[str, Native]) -> Iterator[tuple[list[Builder], range]]:
        """The functions of each group of blocks, with the group. sizes: instructions of each block. natives: collects the native
        functions that they call.
        """
        for group in code_groups(sizes):
            yield [self._write(self.program.blocks[n], natives) for n in group], group

    def written(self) -> KernelSource:
        """The source and texts that `compile` writes, without compiling them."""
        sizes = [sum(c.values()) for c in self.classes()]
        natives: dict[str, Native] = {}
        texts = [module_text(builders) for builders, _ in self._groups(sizes, natives)]
        return self._source(texts, [*natives.values()])

    def located(self, places: Sequence[int]) -> KernelSource:
        """The source without texts. places: of the instruction of each site among those of the program, as in KernelFacts."""
        every = self._every()
        executed = [every[n] for n in places]
        return KernelSource(self.program, [i.original for i in executed], executed, self.frames, self.locals)

    def _every(self) -> list[Instruction]:
        """The instructions of the program, block after block, as they are executed."""
        return [i for b in self.program.blocks for i in (*b.body, b.last) if i is not None]

    def _places(self) -> list[int]:
        """The place of each site's instruction in `_every`; empty if one is not there."""
        places = {id(ins): n for n, ins in enumerate(self._every())}
        return [places[id(i)] for i in self.executed] if all(id(i) in places for i in self.executed) else []

    def _source(self, *texts: Any) -> KernelSource:
        return KernelSource(self.program, self.sites, self.executed, self.frames, self.locals, *texts)

    def notes(self) -> list[str]:
        """Sentences about parts of the kernel whose bits may differ from the device's."""
        approximate: set[str] = set()
        inferred: dict[str, None] = {}
        unseen: dict[str, None] = {}
        early: dict[int, None] = {}
        said_of: dict[str, None] = {}
        for item in self.program.functions.values():
            for ins in item.function.instructions:
                said_of.update(dict.fromkeys(inferred_texts(ins)))
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
        said = [*inferred, *(f"inferred: {sentence}" for sentence in said_of)]
        if unseen:
            said.append(f"{_named(unseen)}: as the PTX ISA describes them; no chip that has them was asked")
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
        if approximate:
            tables, measured = tables_for(self.device)
            if not measured:
                said.append(
                    f"{', '.join(sorted(approximate))}: approximate functions with the tables of {tables.device}; "
                    f"none were captured on {self.device}"
                )
        return said

    def _write(self, block: Block, natives: dict[str, Native]) -> Builder:
        remaining()
        b = Builder(f"block{block.index}", i32, BLOCK_PARAMS)
        with b:
            e = Emitter(self, b, block, self.frames[block.function.function.name])
            self.meaning.write_block(e)
        natives |= e.natives
        return b


def _named(mnemonics: Iterable[str], most: int = 3) -> str:
    """Instructions in words; many of one opcode as their number: `tcgen05 (14 instructions), add.rn.f32x2`."""
    by: dict[str, list[str]] = {}
    for name in mnemonics:
        by.setdefault(name.partition(".")[0], []).append(name)
    return ", ".join(", ".join(n) if len(n) <= most else f"{opcode} ({len(n)} instructions)" for opcode, n in by.items())


_BEYOND = frozenset(("volatile", "mmio", "cv", "gl", "gpu", "sys"))


def _heard_elsewhere(ins: Instruction) -> bool:
    """Whether other clusters may wait for an instruction, or it for them."""
    together = ins.effects.memory in (MemoryEffect.ATOMIC, MemoryEffect.REDUCE)
    return together or not _BEYOND.isdisjoint(ins.modifiers)


def _of_halves_elsewhere(ins: Instruction) -> bool:
    """Whether an instruction is an atomic sum of two halves that may lie in the shared memory of another CTA of the cluster."""
    m = ins.modifiers
    sums = ins.effects.memory is MemoryEffect.ATOMIC and "add" in m and ("f16x2" in m or "bf16x2" in m)
    return sums and not {"global", "shared", "shared::cta"} & {*m}


def inferred_texts(ins: Instruction) -> Iterator[str]:
    """Sentences about what an instruction does."""
    form = ins.form
    for part, said in form.row.inferred:
        if part in ins.modifiers or (part == form.signatures[0][-1].name and _last_given(ins)):
            yield said


def _last_given(ins: Instruction) -> bool:
    """Whether an operand stands behind those that an instruction needs."""
    needed = sum(not spec.optional for spec in ins.form.signatures[0])
    return sum(not isinstance(o, VectorOperand) for o in ins.operands) > needed
