"""Blocks to machine code: writes each basic block as one LLVM function and compiles them in groups."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.ops import bitcast, bits_mask, cast_ptr, mask_bits, reduce_or, select, trailing_zeros
from mmulator.codegen.types import boolean, i32, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value, constant, extract, module_text, splat
from mmulator.errors import MmulatorError, UnsupportedError
from mmulator.machine.contract import contract as contracted
from mmulator.machine.emit import BLOCK_PARAMS, LANES, BlockEmitter, storage_type
from mmulator.machine.image import (
    Abi,
    LocalFrame,
    ModuleImage,
    SharedLayout,
    local_frame,
    prototype_abi,
    shared_layout,
)
from mmulator.machine.inflight import delay_copies
from mmulator.machine.lower import LOWER, load_all
from mmulator.machine.natives import ensure, symbols
from mmulator.machine.program import (
    Block,
    Program,
    build,
    call_operands,
    callee_of,
    form_name,
    needs_warp,
)
from mmulator.machine.registers import Frame, allocate
from mmulator.machine.runtime import control as rt
from mmulator.machine.runtime import memory as mem
from mmulator.machine.state import HEADER_BYTES, Barrier, Code, Cta, FaultKind, Launch
from mmulator.ptx.tree import Function, Immediate, Instruction, Module, Operand, Reg, Symbol

U32, U64, I32 = u32.vec(LANES), u64.vec(LANES), i32.vec(LANES)
GROUP = 160  # PTX instructions compiled together

Progress = Callable[[int, int], None]


@dataclass
class MatrixSites:
    """Tables that matrix instructions of the kernel point to, in the order of their use. Filled by lower/matrix.py."""

    tables: list[np.ndarray] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    tiles: dict[tuple[str, ...], int] = field(default_factory=dict)
    tile_bytes: int = 0
    scratch_bytes: int = 0
    functions: list[tuple[np.ndarray, str, Any]] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)


@dataclass
class CompiledKernel:
    """Machine code of a kernel and what a launch must know.

    code: address of each block's function. sites: instruction of each site number. classes: per block, instructions
    by class. frames of registers and local memory in bytes.
    """

    program: Program
    image: ModuleImage
    shared: SharedLayout
    code: np.ndarray
    sites: list[Instruction]
    classes: list[Counter[str]]
    frame_bytes: int
    largest_frame: int
    local_bytes: int
    matrix: MatrixSites
    instructions: int
    seconds: float
    from_cache: bool
    libraries: list[Library]
    notes: list[str] = field(default_factory=list)

    def macs(self, counts: np.ndarray) -> int:
        """Multiply-accumulates of matrix instructions, from the executions of each block."""
        return sum(
            int(n) * sum(instruction_macs(i) for i in b.body) for n, b in zip(counts, self.program.blocks) if n
        )


class Jit:
    """Compiles one kernel of a module for one device.

    contract: fuse products and sums as ptxas does (contract.py). It optimises no module of `.target debug`.
    """

    def __init__(
        self, module: Module, function: Function, image: ModuleImage, device: str, *, contract: bool = True
    ) -> None:
        load_all()
        self.module, self.image, self.device = module, image, device
        self.contract = contract and "debug" not in module.options
        self.program = build(module, function, self._prepare)
        self._check_supported()
        functions = [f.function for f in self.program.functions.values()]
        self.shared = shared_layout(module, functions)
        self.frames: dict[str, Frame] = {n: allocate(f) for n, f in self.program.functions.items()}
        self.locals: dict[str, LocalFrame] = {f.name: local_frame(f) for f in functions}
        self.params = self._parameter_offsets(function)
        self.sites: list[Instruction] = []
        self.matrix = MatrixSites()

    def _prepare(self, function: Function) -> Function:
        """What ptxas would do to a function before instructions have their meaning."""
        return delay_copies(contracted(function) if self.contract else function)

    def _check_supported(self) -> None:
        for item in self.program.functions.values():
            for ins in item.function.instructions:
                reason = getattr(ins.form, "unsupported", "")
                if reason:
                    raise UnsupportedError(f"{ins.mnemonic} is not supported: {reason}", span=ins.span)

    @staticmethod
    def _parameter_offsets(function: Function) -> dict[str, int]:
        from mmulator.machine.image import align_up

        at = 0
        offsets = {}
        for p in function.params:
            at = align_up(at, max(p.align, 1))
            offsets[p.name] = at
            at += p.size
        return offsets

    # symbols --------------------------------------------------------------------------------------------------------
    def symbol(self, e: Emitter, symbol: Symbol) -> Value:
        name = symbol.name
        b = e.b
        local = self.locals[e.function_name].offsets.get(name)
        if local is not None:
            return U64(e.local_base()) + (local + symbol.offset)
        if name in self.shared.addresses:
            return constant(b, u64, self.shared.addresses[name] + symbol.offset)
        if name in self.image.addresses:
            return constant(b, u64, self.image.symbol_address(name) + symbol.offset)
        if e.is_entry and name in self.params:
            return constant(b, u64, self.params[name] + symbol.offset)
        callee = self.module.function(name)
        if callee is not None and callee.name in self.image.functions:
            return constant(b, u64, self.image.functions[callee.name])
        raise UnsupportedError(
            f"{name} is declared here but defined elsewhere", span=symbol.span, hint="link the modules into one first"
        )

    # compilation ----------------------------------------------------------------------------------------------------
    def compile(self, progress: Progress | None = None) -> CompiledKernel:
        """Write and compile all blocks. progress(done, total) in PTX instructions. Raises UnsupportedError."""
        start = time.perf_counter()
        ensure([*rt.CONTROL, *mem.MEMORY])
        blocks = self.program.blocks
        code = np.zeros(len(blocks), np.uint64)
        classes = [Counter(instruction_class(i) for i in _instructions(b)) for b in blocks]
        total = sum(sum(c.values()) for c in classes)
        libraries: list[Library] = []
        done = 0
        at = 0
        cached = True
        while at < len(blocks):
            group: list[Block] = []
            weight = 0
            while at < len(blocks) and (not group or weight + sum(classes[at].values()) <= GROUP):
                weight += sum(classes[at].values())
                group.append(blocks[at])
                at += 1
            library = self._compile_group(group)
            cached = cached and library.cached
            for b in group:
                code[b.index] = library.address(f"block{b.index}")
            libraries.append(library)
            done += weight
            if progress:
                progress(done, total)
        frame = max(f.bytes for f in self.frames.values())
        local = max(f.bytes for f in self.locals.values())
        depth = 64 if self.program.recursive else len(self.program.functions)
        frames = sum(sorted((f.bytes for f in self.frames.values()), reverse=True)[:depth])
        locals_ = sum(sorted((f.bytes for f in self.locals.values()), reverse=True)[:depth])
        if self.program.recursive:
            frames, locals_ = frame * depth, local * depth
        return CompiledKernel(
            self.program, self.image, self.shared, code, self.sites, classes, frames + frame, frame, locals_ + local + 16,
            self.matrix, total, time.perf_counter() - start, cached, libraries,
        )  # fmt: skip

    def _compile_group(self, group: list[Block]) -> Library:
        builders = []
        names: set[str] = set()
        for block in group:
            builder, natives = self._write(block)
            builders.append(builder)
            ensure(natives.values())
            names |= set(builder.declared)
        return Library(module_text(builders), 1, symbols(names))

    def _write(self, block: Block) -> tuple[Builder, dict[str, Any]]:
        b = Builder(f"block{block.index}", i32, BLOCK_PARAMS)
        with b:
            name = block.function.function.name
            e = Emitter(self, b, block, self.frames[name])
            if block is block.function.blocks[0] and not block.function.function.is_entry:
                e.load_register_parameters()
            if block.after is not None:
                e.after(block.after)
            for n, ins in enumerate(block.body):
                e.instruction(ins, first=n == 0)
            e.finish()
        return b, e.natives


def _instructions(block: Block) -> list[Instruction]:
    last = block.last
    counts_last = last is not None and not (block.ending == "branch" and last.opcode != "bra")
    return [*block.body, *([last] if counts_last and last is not None else [])]


_CLASSES = {
    **dict.fromkeys(("ld", "ldu", "st", "prefetch", "prefetchu"), "memory"),
    **dict.fromkeys(("atom", "red"), "atomic"),
    **dict.fromkeys(("bra", "brx", "ret", "exit", "call", "trap"), "control"),
    **dict.fromkeys(("bar", "barrier", "membar", "fence"), "barrier"),
    **dict.fromkeys(("shfl", "vote", "match", "redux", "elect", "activemask"), "warp"),
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), "matrix move"),
    "cp": "cp.async",
    "mma": "mma",
}


def instruction_class(ins: Instruction) -> str:
    """Class of an instruction in a report: `wgmma`, `mma`, `cp.async`, `memory`, `integer`, `float`, ..."""
    if ins.opcode in ("wgmma", "wmma"):
        op = ins.modifiers[0] if ins.modifiers else ""
        return ins.opcode if op in ("mma_async", "mma") else f"{ins.opcode}.{op}"
    found = _CLASSES.get(ins.opcode)
    if found:
        return found
    if any(m in ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64") for m in ins.modifiers):
        return "float"
    return "move" if ins.opcode in ("mov", "cvta") else "integer"


def instruction_macs(ins: Instruction) -> int:
    """Multiply-accumulates that one warp executes with this instruction."""
    form = ins.form
    if ins.opcode not in ("mma", "wgmma", "wmma") or getattr(form, "op", "") not in ("mma", "mma_async"):
        return 0
    macs = form.m * form.n * form.k  # type: ignore[union-attr]
    return macs // 4 if ins.opcode == "wgmma" else macs


class Emitter(BlockEmitter):
    """A block's emitter that knows its kernel: instructions, endings, calls."""

    def __init__(self, jit: Jit, b: Builder, block: Block, frame: Frame) -> None:
        self.jit = jit
        self.function_name = block.function.function.name
        self.is_entry = block.function.function.is_entry
        super().__init__(b, block, frame, jit.symbol, jit.locals[self.function_name].bytes)

    @property
    def device(self) -> str:
        return self.jit.device

    def frame_offset(self, name: str) -> int | None:
        """Offset of a variable of this function's local memory, or None."""
        return self.jit.locals[self.function_name].offsets.get(name)

    def kernel_parameter(self, name: str) -> int | None:
        """Offset of a kernel parameter in the parameter memory, or None."""
        if self.is_entry and name not in self.jit.locals[self.function_name].offsets:
            return self.jit.params.get(name)
        return None

    def launch_field(self, name: str) -> Any:
        return cast_ptr(Launch, cast_ptr(Cta, self.warp("cta")).field("launch")).field(name)

    # instructions ---------------------------------------------------------------------------------------------------
    def instruction(self, ins: Instruction, first: bool = False) -> None:
        self.site = len(self.jit.sites)
        self.jit.sites.append(ins)
        if first and self.block.sync:
            self.converge(ins)
        try:
            function = LOWER.get(form_name(ins)) or LOWER.get(ins.opcode)
            if function is not None:
                function(self, ins)
            else:
                from mmulator.machine.lower.scalar import scalar

                scalar(self, ins)
        except MmulatorError as error:
            error.span = error.span or ins.span
            raise

    def converge(self, ins: Instruction) -> None:
        """Go on only when every lane that this instruction names is here; else wait for them."""
        members = constant(self.b, u32, 0xFFFFFFFF)
        if not _takes_whole_warp(ins):
            operand = ins.operands[-1]
            if isinstance(operand, Immediate):
                members = constant(self.b, u32, operand.bits("b32"))
            else:
                wanted = U32(self.source(operand, "b32"))
                members = reduce_or(select(self.active, wanted, 0))
        missing = members & self.warp("live") & ~self.mask
        with self.b.if_(missing != 0):
            self.b.ret(self.call(rt.wait_for_lanes, self.w, self.mask, self.block.index))

    # endings --------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        block, b = self.block, self.b
        ins = block.last
        if ins is not None:
            self.site = len(self.jit.sites)
            self.jit.sites.append(ins)
        match block.ending:
            case "branch":
                assert ins is not None
                guard = self.guard(ins)
                assert guard is not None
                taken = mask_bits(guard) & self.mask
                self.flush()
                self._branch(taken, *block.targets)
            case "goto":
                self.flush()
                b.ret(block.targets[0])
            case "exit":
                if ins is not None and ins.opcode == "trap":
                    lane = trailing_zeros(self.mask)
                    self.call(rt.fault, self.w, int(FaultKind.TRAP), self.site, lane, u64(lane), 0)
                    b.ret(int(Code.RESCHEDULE))
                else:
                    b.ret(self.call(rt.exit_lanes, self.w, self.mask))
            case "return":
                self.flush()
                self.store_register_returns()
                b.ret(self.call(rt.return_lanes, self.w, self.regs, self.mask))
            case "call":
                assert ins is not None
                self._call(ins)
            case "barrier":
                assert ins is not None
                self._barrier(ins)
            case "indexed":
                assert ins is not None
                self._indexed(ins)
            case "wgmma.wait":
                assert ins is not None
                from mmulator.machine.lower.matrix import wgmma_wait

                self.flush(everything=True)
                b.ret(wgmma_wait(self, ins, block.targets[0]))

    def _branch(self, taken: Value, target: int, following: int) -> None:
        b = self.b
        none, some, all_, part = (b.label(h) for h in ("none", "some", "all", "part"))
        b.branch_if(taken == 0, none, some)
        b.place(none)
        b.ret(following)
        b.place(some)
        b.branch_if(taken == self.mask, all_, part)
        b.place(all_)
        b.ret(target)
        b.place(part)
        b.ret(self.call(rt.branch, self.w, self.mask, taken, target, following))

    def _indexed(self, ins: Instruction) -> None:
        self.flush()
        index = self.spill(U32(self.source(ins.operands[0], "u32")))
        table = self.room(i32.vec(LANES), max(1, -(-len(self.block.targets) // LANES)))
        for n, target in enumerate(self.block.targets):
            table[n] = target
        count = len(self.block.targets)
        self.b.ret(self.call(rt.branch_indexed, self.w, self.mask, index, table, count, self.site))

    # barriers -------------------------------------------------------------------------------------------------------
    def uniform(self, operand: Operand, type_name: str) -> Value:
        """The value of an operand that is the same for all active lanes."""
        if isinstance(operand, Immediate):
            return constant(self.b, u32, operand.bits(type_name))
        return u32(extract(self.source(operand, type_name), trailing_zeros(self.mask)))

    def _barrier(self, ins: Instruction) -> None:
        operation, _, rest = barrier_parts(ins)
        b = self.b
        pred = constant(b, u32, 0)
        numbers = rest
        if operation >= rt.RED_POPC:
            pred = mask_bits(self.source(rest[-1], "pred"))
            numbers = rest[:-1]
        id_ = self.uniform(numbers[0], "u32")
        count = self.uniform(numbers[1], "u32") if len(numbers) > 1 else constant(b, u32, 0)
        self.flush()
        b.line("fence seq_cst")
        following = self.block.targets[0]
        b.ret(self.call(rt.barrier, self.w, self.mask, id_, count, operation, pred, following, self.site))

    def after(self, ins: Instruction) -> None:
        """Results of the call or barrier that control comes back from."""
        if ins.opcode == "call":
            self._after_call(ins)
            return
        operation, target, rest = barrier_parts(ins)
        if operation >= rt.RED_POPC and isinstance(target, Reg):
            id_ = self.uniform(rest[0], "u32")
            barriers = cast_ptr(Barrier, cast_ptr(Cta, self.warp("cta")).field("barriers"))
            result = barriers[id_].field("result")
            value = splat(result, LANES)
            self.write(target.name, value if operation == rt.RED_POPC else value != 0)

    # calls ----------------------------------------------------------------------------------------------------------
    def _abi(self, ins: Instruction) -> tuple[Abi, Any, Any]:
        """(places, parameters, returns) of the function that a call reaches."""
        callee = callee_of(ins)
        if isinstance(callee, Symbol) and callee.space == "func":
            function = self.jit.module.function(callee.name)
            if function is None or not function.is_defined:
                raise UnsupportedError(
                    f"call of {callee.name}, which is not defined in this module", span=callee.span,
                    hint="only functions of the module, printf and assert can be called",
                )  # fmt: skip
            return self.jit.locals[function.name].abi, function.params, function.returns
        prototypes = self.block.function.function.prototypes
        name = ins.operands[-1]
        if isinstance(name, Symbol) and name.name in prototypes:
            p = prototypes[name.name]
            return prototype_abi(p), p.params, p.returns
        targets = self.block.function.function.targets
        if isinstance(name, Symbol) and name.name in targets:
            first = targets[name.name].targets[0]
            function = self.jit.module.function(first.name)
            if function is not None:
                return self.jit.locals[function.name].abi, function.params, function.returns
        raise UnsupportedError("an indirect call needs a .callprototype", span=ins.span)

    def _copy(self, size: int, align: int, source: Value, target: Value) -> None:
        """Bytes of each lane's local memory to another place in it."""
        at = 0
        while at < size:
            step = next(s for s in (8, 4, 2, 1) if s <= align and size - at >= s and at % s == 0)
            place = self.room(U64)
            self.call(mem.load_function("local", step, 1), self.w, self.mask, self.spill(source + at), place, self.site)
            self.call(mem.store_function("local", step, 1), self.w, self.mask, self.spill(target + at), place, self.site)
            at += step

    def _builtin(self, ins: Instruction, name: str) -> None:
        """A call of a function that CUDA's runtime has: printf and a failing assert."""
        b = self.b
        results, arguments = call_operands(ins)
        offsets = [self.frame_offset(a.name) for a in arguments if isinstance(a, Symbol)]
        values = [self._local_value(U64(self.local_base()) + o, 64) for o in offsets[:2] if o is not None]
        if name == "__assertfail":
            lane = trailing_zeros(self.mask)
            self.call(rt.fault, self.w, int(FaultKind.ASSERTION), self.site, lane, extract(values[0], lane), 0)
            b.ret(int(Code.RESCHEDULE))
            return
        place = self.room(U32)
        self.call(rt.device_print, self.w, self.mask, *(self.spill(v) for v in values), place)
        if results and isinstance(results[0], Symbol) and (at := self.frame_offset(results[0].name)) is not None:
            where = self.spill(U64(self.local_base()) + at)
            self.call(mem.store_function("local", 4, 1), self.w, self.mask, where, place, self.site)
        self.flush()
        b.ret(self.block.targets[0])

    def _call(self, ins: Instruction) -> None:
        b = self.b
        if (name := builtin_name(ins, self.jit.module)) is not None:
            self._builtin(ins, name)
            return
        abi, params, _ = self._abi(ins)
        _, arguments = call_operands(ins)
        base = U64(self.local_base()) + self.local_bytes
        for operand, place, parameter in zip(arguments, abi.params, params):
            self._pass(operand, base + place, parameter)
        callee = callee_of(ins)
        if isinstance(callee, Reg):
            targets = self.room(I32)
            where = self.spill(U64(self.source(callee, "u64")))
            self.call(rt.find_functions, self.w, self.mask, where, targets)
        else:
            function = self.jit.module.function(callee.name)
            assert function is not None
            targets = self.spill(constant(b, I32, self.jit.program.functions[function.name].entry))
        self.flush()
        b.ret(
            self.call(
                rt.call_function, self.w, self.mask, targets, self.block.targets[0], self.frame.bytes, self.local_bytes,
                self.site,
            )
        )  # fmt: skip

    def _pass(self, operand: Operand, target: Value, parameter: Any) -> None:
        if isinstance(operand, Symbol):
            offset = self.frame_offset(operand.name)
            if offset is None:
                raise UnsupportedError(f"{operand.name} cannot be passed", span=operand.span)
            self._copy(parameter.size, parameter.align, U64(self.local_base()) + offset, target)
            return
        value = storage_type(f"b{max(parameter.bits, 8)}")(self.source(operand, f"b{max(parameter.bits, 8)}"))
        function = mem.store_function("local", value.ty.bits // 8, 1)
        self.call(function, self.w, self.mask, self.spill(target), self.spill(value), self.site)

    def _after_call(self, ins: Instruction) -> None:
        if builtin_name(ins, self.jit.module) is not None:
            return
        abi, _, returns = self._abi(ins)
        results, _ = call_operands(ins)
        base = U64(self.local_base()) + self.local_bytes
        for operand, place, parameter in zip(results, abi.returns, returns):
            if isinstance(operand, Symbol):
                offset = self.frame_offset(operand.name)
                if offset is not None:
                    self._copy(parameter.size, parameter.align, base + place, U64(self.local_base()) + offset)
            elif isinstance(operand, Reg):
                self.write(operand.name, self._local_value(base + place, max(parameter.bits, 8)))

    def _local_value(self, at: Value, bits: int) -> Value:
        ty = storage_type(f"b{bits}")
        place = self.room(ty)
        self.call(mem.load_function("local", bits // 8, 1), self.w, self.mask, self.spill(at), place, self.site)
        return self.fetch(place, ty)

    def load_register_parameters(self) -> None:
        """Parameters declared as .reg: from the frame into their registers."""
        function, local = self.block.function.function, self.jit.locals[self.function_name]
        for parameter in function.params:
            if parameter.space == "reg":
                at = U64(self.local_base()) + local.offsets[parameter.name]
                self.write(parameter.name, self._local_value(at, max(parameter.bits, 8)))

    def store_register_returns(self) -> None:
        function, local = self.block.function.function, self.jit.locals[self.function_name]
        for parameter in function.returns:
            if parameter.space == "reg":
                at = U64(self.local_base()) + local.offsets[parameter.name]
                value = self.read(parameter.name)
                call = mem.store_function("local", value.ty.bits // 8, 1)
                self.call(call, self.w, self.mask, self.spill(at), self.spill(value), self.site)


BUILTINS = ("vprintf", "__assertfail")


def builtin_name(ins: Instruction, module: Module) -> str | None:
    """Name of the function of CUDA's runtime that a call reaches, or None."""
    callee = callee_of(ins)
    if not isinstance(callee, Symbol) or callee.name not in BUILTINS:
        return None
    function = module.function(callee.name)
    return None if function is not None and function.is_defined else callee.name


def _takes_whole_warp(ins: Instruction) -> bool:
    return needs_warp(ins) and ins.opcode in ("mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix")


def barrier_parts(ins: Instruction) -> tuple[int, Operand | None, list[Operand]]:
    """(operation, destination, the other operands) of bar and barrier."""
    if "arrive" in ins.modifiers:
        return rt.ARRIVE, None, list(ins.operands)
    if "red" in ins.modifiers:
        operation = rt.RED_POPC if "popc" in ins.modifiers else rt.RED_AND if "and" in ins.modifiers else rt.RED_OR
        return operation, ins.operands[0], list(ins.operands[1:])
    return rt.SYNC, None, list(ins.operands)


__all__ = ["HEADER_BYTES", "CompiledKernel", "Jit", "bitcast", "bits_mask", "boolean", "ptr_to"]
