"""A block's emitter that knows its kernel: instructions, endings of blocks, barriers, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.codegen.lang import Native
from mmulator.codegen.loading import address
from mmulator.codegen.ops import cast_ptr, mask_bits, reduce_or, select, trailing_zeros
from mmulator.codegen.types import i32, u32, u64, u128
from mmulator.codegen.values import Builder, Value, constant
from mmulator.errors import MmulatorError, UnsupportedError
from mmulator.machine.compile.block import LANES, BlockEmitter, storage_type
from mmulator.machine.meaning import LOWER
from mmulator.machine.meaning.builtins import builtin_abi, builtin_name, call_builtin
from mmulator.machine.runtime import barrier as bar
from mmulator.machine.runtime import calls, waiting
from mmulator.machine.runtime import control as rt
from mmulator.machine.runtime import memory as mem
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.stack import stack_restore
from mmulator.machine.state import FULL, Code, Cta, FaultKind, Kind, Launch
from mmulator.program.blocks import Block, form_name, is_warp_barrier, is_wgmma_issue, takes_whole_warp
from mmulator.program.frames import Frame
from mmulator.program.image import (
    SAVED_STACK,
    Abi,
    prototype_abi,
)
from mmulator.program.operands import call_operands, callee_of
from mmulator.ptx.tree import Immediate, Instruction, Operand, Parameter, Reg, Symbol

if TYPE_CHECKING:
    from mmulator.machine.compile.kernel import Jit

U32, U64, I32, U128 = u32.vec(LANES), u64.vec(LANES), i32.vec(LANES), u128.vec(LANES)


class Emitter(BlockEmitter):
    """A block's emitter that knows its kernel: instructions, endings, calls."""

    def __init__(self, jit: Jit, b: Builder, block: Block, frame: Frame) -> None:
        self.jit = jit
        self.function_name = block.function.function.name
        self.is_entry = block.function.function.is_entry
        super().__init__(b, block, frame, jit.symbol, jit.locals[self.function_name].bytes, jit.options.events)

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

    def uses(self, kind: Kind, carry_out: Native) -> None:
        """The kernel issues asynchronous operations of this kind, which a native function carries out."""
        self.jit.queues[kind] = address(carry_out.under(self.events) or carry_out)

    # instructions ---------------------------------------------------------------------------------------------------
    def instruction(self, ins: Instruction, first: bool = False) -> None:
        self.next_site(ins, self.jit.sites)
        if first and self.block.sync:
            self.converge(ins)
        if first:
            self._enter_warpgroup()
        try:
            function = LOWER.get(form_name(ins)) or LOWER.get(ins.opcode)
            if function is not None:
                function(self, ins)
            else:
                from mmulator.machine.meaning.scalar import scalar

                scalar(self, ins)
        except MmulatorError as error:
            error.span = error.span or ins.span
            raise

    def converge(self, ins: Instruction) -> None:
        """Go on only when every lane that this instruction names is here; else wait for them."""
        if takes_whole_warp(ins) and ins.opcode != "wgmma":
            with self.b.if_(self.mask != FULL):
                self.b.ret(self.call(waiting.wait_for_warp, self.w, self.mask, self.block.index, self.site))
            return
        members = constant(self.b, u32, FULL)
        if ins.opcode != "wgmma":  # lanes of a warpgroup that have exited are its own affair
            operand = ins.operands[-1]
            if isinstance(operand, Immediate):
                members = constant(self.b, u32, operand.bits("b32"))
            else:
                wanted = U32(self.source(operand, "b32"))
                members = reduce_or(select(self.active, wanted, 0))
        missing = members & self.warp("live") & ~self.mask
        with self.b.if_(missing != 0):
            if is_warp_barrier(ins):
                behind = self.block.targets[0]
                self.b.ret(self.call(waiting.wait_for_members, self.w, self.mask, members, self.block.index, behind))
            else:
                self.b.ret(self.call(waiting.wait_for_partners, self.w, self.mask, self.block.index))

    def _enter_warpgroup(self) -> None:
        """Before a block with wgmma: go on only when the queues of the warpgroup have room for all of them."""
        issues = [self.site + n for n, ins in enumerate(self.block.body) if is_wgmma_issue(ins)]
        if issues:
            from mmulator.machine.runtime.wgmma import enter_warpgroup

            with self.b.if_(self.call(enter_warpgroup, self.w, len(issues), issues[0]) == 0):
                self.b.ret(self.call(waiting.wait_for_lanes, self.w, self.mask, self.block.index))

    # endings --------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        block, b = self.block, self.b
        ins = block.last
        if ins is not None:
            self.next_site(ins, self.jit.sites)
        match block.ending:
            case "branch":
                assert ins is not None
                guard = self.guard(ins)
                assert guard is not None
                taken = mask_bits(guard) & self.mask
                self.flush()
                self._branch(ins, taken, *block.targets)
            case "goto":
                self.flush()
                b.ret(block.targets[0])
            case "exit":
                if ins is not None and ins.opcode == "trap":
                    lane = trailing_zeros(self.mask)
                    self.call(fault, self.w, int(FaultKind.TRAP), self.site, lane, u64(lane), 0)
                    b.ret(int(Code.RESCHEDULE))
                else:
                    b.ret(self.call(rt.exit_lanes, self.w, self.mask))
            case "return":
                self.flush()
                self.store_register_returns()
                b.ret(self.call(calls.return_lanes, self.w, self.regs, self.mask))
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
                from mmulator.machine.meaning.wgmma import wgmma_wait

                self.converge(ins)
                self.flush(everything=True)
                b.ret(wgmma_wait(self, ins, block.targets[0]))

    def _branch(self, ins: Instruction, taken: Value, target: int, following: int) -> None:
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
        if takes_whole_warp(ins):
            b.ret(self.call(rt.guard_warp, self.w, self.mask, taken, target, following, self.site))
        else:
            b.ret(self.call(rt.branch, self.w, self.mask, taken, target, following))

    def _indexed(self, ins: Instruction) -> None:
        from mmulator.machine.meaning.matrix_operands import site_pointer, table

        self.flush()
        index = self.spill(U32(self.source(ins.operands[0], "u32")))
        targets = self.block.targets
        number = table(self, ("brx", self.block.index), lambda sites: np.array(targets, np.int32))
        goals = site_pointer(self, number, i32)
        self.b.ret(self.call(rt.branch_indexed, self.w, self.mask, index, goals, len(targets), self.site))

    # barriers -------------------------------------------------------------------------------------------------------
    def _barrier(self, ins: Instruction) -> None:
        operation, _, rest = barrier_parts(ins)
        b = self.b
        pred = constant(b, u32, 0)
        numbers = rest
        if operation >= bar.RED_POPC:
            pred = mask_bits(self.source(rest[-1], "pred"))
            numbers = rest[:-1]
        following = self.block.targets[0]
        if all(isinstance(o, Immediate) for o in numbers):
            values = [constant(b, u32, o.bits("u32")) for o in numbers if isinstance(o, Immediate)]
            arrive, values = bar.barrier, [*values, constant(b, u32, 0)][:2]
        else:
            vectors = [U32(self.source(o, "u32")) for o in numbers]
            arrive, values = bar.barrier_named, [self.spill(v) for v in [*vectors, constant(b, U32, 0)][:2]]
        self.flush()
        b.line("fence seq_cst")
        if ins.opcode == "bar" or "aligned" in ins.modifiers:
            operation |= bar.ALIGNED
        b.ret(self.call(arrive, self.w, self.mask, *values, operation, pred, following, self.site))

    def after(self, ins: Instruction) -> None:
        """Results of the call or barrier that control comes back from."""
        self.next_site(ins, self.jit.sites)
        if ins.opcode == "call":
            self._after_call(ins)
            return
        operation, target, _ = barrier_parts(ins)
        if operation >= bar.RED_POPC and isinstance(target, Reg):
            value = self.warp("bar_result")
            self.write(target.name, value if operation == bar.RED_POPC else value != 0)

    # calls ----------------------------------------------------------------------------------------------------------
    def _abi(self, ins: Instruction) -> tuple[Abi, Any, Any]:
        """(places, parameters, returns) of the function that a call reaches."""
        callee = callee_of(ins)
        if isinstance(callee, Symbol) and callee.space == "func":
            function = self.jit.module.function(callee.name)
            if function is not None and builtin_name(ins, self.jit.module) is not None:
                return builtin_abi(function), function.params, function.returns
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

    def _copy(self, size: int, source: Value, target: Value) -> None:
        """Bytes of each lane's local memory to another place in it."""
        self.call(calls.copy_local, self.w, self.mask, self.spill(source), self.spill(target), size, self.site)

    def _call(self, ins: Instruction) -> None:
        b = self.b
        if (name := builtin_name(ins, self.jit.module)) is not None:
            call_builtin(self, ins, name)
            return
        abi, params, _ = self._abi(ins)
        _, arguments = call_operands(ins)
        base = U64(self.local_base()) + self.local_bytes
        for operand, place, parameter in zip(arguments, abi.params, params):
            with self.passing():
                self._pass(operand, base + place, parameter)
        callee = callee_of(ins)
        if isinstance(callee, Reg):
            targets = self.room(I32)
            where = self.spill(U64(self.source(callee, "u64")))
            self.call(calls.find_functions, self.w, self.mask, where, targets)
        else:
            function = self.jit.module.function(callee.name)
            assert function is not None
            targets = self.spill(constant(b, I32, self.jit.numbers[function.name]))
        if self.jit.stack:
            self._save_stack()
        self.flush()
        b.ret(
            self.call(
                calls.call_function, self.w, self.mask, targets, self.block.targets[0], self.jit.numbers[self.function_name],
                self.local_bytes, self.site,
            )
        )  # fmt: skip

    def _saved_stack(self) -> Value:
        return U64(self.local_base()) + self.jit.locals[self.function_name].offsets[SAVED_STACK]

    def _save_stack(self) -> None:
        """What a callee takes with alloca is free when it returns."""
        place = self.spill(self.warp("stack"))
        self.call(mem.store_function("local", 4, 1), self.w, self.mask, self.spill(self._saved_stack()), place, self.site)

    def _restore_stack(self) -> None:
        value = self.spill(U64(self.local_value(self._saved_stack(), 32)))
        self.call(stack_restore, self.w, self.mask, value, self.site)

    def _pass(self, operand: Operand, target: Value, parameter: Any) -> None:
        if isinstance(operand, Symbol):
            offset = self.frame_offset(operand.name)
            if offset is None:
                raise UnsupportedError(f"{operand.name} cannot be passed", span=operand.span)
            self._copy(parameter.size, U64(self.local_base()) + offset, target)
            return
        bits = passed_bits(parameter)
        self._store_local(target, storage_type(f"b{bits}")(self.source(operand, f"b{bits}")))

    def _after_call(self, ins: Instruction) -> None:
        if self.jit.stack and builtin_name(ins, self.jit.module) is None:
            self._restore_stack()
        abi, _, returns = self._abi(ins)
        results, _ = call_operands(ins)
        base = U64(self.local_base()) + self.local_bytes
        for operand, place, parameter in zip(results, abi.returns, returns):
            with self.passing():
                self._receive(operand, base + place, parameter)

    def _receive(self, operand: Operand, source: Value, parameter: Any) -> None:
        if isinstance(operand, Symbol):
            offset = self.frame_offset(operand.name)
            if offset is not None:
                self._copy(parameter.size, source, U64(self.local_base()) + offset)
        elif isinstance(operand, Reg):
            self.write(operand.name, self.local_value(source, passed_bits(parameter)))

    def local_value(self, at: Value, bits: int) -> Value:
        """A value of each lane's local memory."""
        ty = storage_type(f"b{min(bits, 64)}")
        parts = -(-bits // 64)
        place = self.room(ty, parts)
        function = mem.load_function("local", ty.bits // 8, parts)
        self.call(function, self.w, self.mask, self.spill(at), place, self.site)
        values = [self.fetch(place, ty, n) for n in range(parts)]
        return values[0] if parts == 1 else U128(values[0]) | (U128(values[1]) << 64)

    def _store_local(self, at: Value, value: Value) -> None:
        values = [value] if value.ty.bits <= 64 else [U64(value), U64(value >> 64)]
        function = mem.store_function("local", values[0].ty.bits // 8, len(values))
        self.call(function, self.w, self.mask, self.spill(at), self.spill(*values), self.site)

    def load_register_parameters(self) -> None:
        """Parameters declared as .reg: from the frame into their registers."""
        first = next(iter(self.block.body), self.block.last)
        if first is not None:
            self.next_site(first, self.jit.sites)
        function, local = self.block.function.function, self.jit.locals[self.function_name]
        for parameter in function.params:
            if parameter.space == "reg":
                at = U64(self.local_base()) + local.offsets[parameter.name]
                with self.passing():
                    self.write(parameter.name, self.local_value(at, passed_bits(parameter)))

    def store_register_returns(self) -> None:
        function, local = self.block.function.function, self.jit.locals[self.function_name]
        for parameter in function.returns:
            if parameter.space == "reg":
                at = U64(self.local_base()) + local.offsets[parameter.name]
                passed_bits(parameter)
                with self.passing():
                    self._store_local(at, self.read(parameter.name))


def passed_bits(parameter: Parameter) -> int:
    """Bits of a register that is a parameter or a result. Raises UnsupportedError for a predicate."""
    if parameter.type == "pred":
        raise UnsupportedError("a predicate cannot be passed to a function", span=parameter.span, hint="pass a .b32 from selp")
    return max(parameter.bits, 8)


def barrier_parts(ins: Instruction) -> tuple[int, Operand | None, list[Operand]]:
    """(operation, destination, the other operands) of bar and barrier."""
    if "arrive" in ins.modifiers:
        return bar.ARRIVE, None, list(ins.operands)
    if "red" in ins.modifiers:
        operation = bar.RED_POPC if "popc" in ins.modifiers else bar.RED_AND if "and" in ins.modifiers else bar.RED_OR
        return operation, ins.operands[0], list(ins.operands[1:])
    return bar.SYNC, None, list(ins.operands)
