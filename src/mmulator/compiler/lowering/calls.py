"""Calls: arguments and results are passed in each lane's local memory, at the places of ptx/program/image.py."""

from typing import Any

import numpy as np

from mmulator.base.codegen.ops import trailing_zeros
from mmulator.base.codegen.types import i32, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.operands import table_pointer
from mmulator.ptx.program.calls import aim_of
from mmulator.ptx.program.image import SAVED_STACK, Abi, abi_of, prototype_abi
from mmulator.ptx.program.runnable import ASSERT, BUILTINS
from mmulator.ptx.program.uses import call_operands, callee_of
from mmulator.ptx.tree import Function, Instruction, Operand, Parameter, ParsedModule, Reg, Symbol
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory import memory as mem
from mmulator.runtime.native.memory.windows import peek
from mmulator.runtime.native.state import BlockExit, FaultKind
from mmulator.runtime.native.threads import control as rt
from mmulator.runtime.native.threads.control import device_print
from mmulator.runtime.native.threads.resources import stack_restore

U32, U64 = u32.vec(LANES), u64.vec(LANES)


def builtin_name(ins: Instruction, module: ParsedModule) -> str | None:
    """Name of the function of CUDA's runtime that a call reaches, or None."""
    callee = callee_of(ins)
    if not isinstance(callee, Symbol) or callee.name not in BUILTINS:
        return None
    function = module.function(callee.name)
    return None if function is not None and function.is_defined else callee.name


def builtin_abi(function: Function) -> Abi:
    """The place of its result: behind the caller's local memory, as for any other function."""
    return abi_of(function.returns, function.params)


def call_builtin(e: Emitter, ins: Instruction, name: str) -> None:
    """End a block by a call of a function of CUDA's runtime, whose declaration ptx/program/runnable.py has checked. The fault of
    an assertion names the lanes, and the place in their local memory of what was passed.
    """
    function = must_be(e.kernel.module.function(name), Function)
    if name == ASSERT:
        e.call(fault, e.w, int(FaultKind.ASSERTION), e.site, trailing_zeros(e.mask), u64(e.mask), e.local_bytes)
        e.b.ret(int(BlockExit.RESCHEDULE))
        return
    _, arguments = call_operands(ins)
    values = [_argument(e, a) for a in arguments]
    place = e.spill(constant(e.b, U32, 0))
    e.natives[peek.name] = peek  # the host reads with it, when there is no time to compile it
    e.call(device_print, e.w, e.mask, *(e.spill(v) for v in values), place, e.site)
    if function.returns:
        where = e.spill(U64(e.local_base()) + (e.local_bytes + builtin_abi(function).returns[0]))
        e.call(mem.store_function("local", 4, 1), e.w, e.mask, where, place, e.site)
    e.flush()
    e.b.ret(e.block.targets[0])


def _argument(e: Emitter, operand: Operand) -> Value:
    """A 64-bit argument: a .param variable, a register or a constant."""
    if isinstance(operand, Symbol):
        return e.local_value(U64(e.local_base()) + must_be(e.frame_offset(operand.name), int), 64)
    return U64(e.source(operand, "b64"))


U64, I32 = u64.vec(LANES), i32.vec(LANES)


def call(e: Emitter, ins: Instruction) -> None:
    """Write a call, which ends a block."""
    name = builtin_name(ins, e.kernel.module)
    if name in (None, ASSERT):
        abi, params, _ = _abi(e, ins)
        _, arguments = call_operands(ins)
        base = e.local_address(e.local_bytes)
        for operand, place, parameter in zip(arguments, abi.params, params):
            with e.passing():
                _pass(e, operand, base + place, parameter)
    if name is not None:
        call_builtin(e, ins, name)
        return
    callee = callee_of(ins)
    if isinstance(callee, Reg):
        targets = e.room(I32)
        where = e.spill(U64(e.source(callee, "u64")))
        every, aim = e.kernel.image.functions, aim_of(e.kernel.module, e.block.function.function, ins)
        numbers = [e.kernel.numbers[n] if n in e.kernel.program.pointed[aim] else -1 for n in every]
        known = table_pointer(e, i32, ("call", aim), lambda tables: np.array(numbers, np.int32))
        e.call(rt.find_functions, e.w, e.mask, where, known, len(every), e.kernel.image.code, targets, e.site)
    else:
        function = must_be(e.kernel.module.function(callee.name), Function)
        targets = e.spill(constant(e.b, I32, e.kernel.numbers[function.name]))
    if e.kernel.stack:
        _save_stack(e)
    e.flush()
    e.b.ret(
        e.call(
            rt.call_function, e.w, e.mask, targets, e.block.targets[0], e.kernel.numbers[e.function_name], e.local_bytes,
            e.site,
        )
    )  # fmt: skip


def receive(e: Emitter, ins: Instruction) -> None:
    """Read the results of a call when control comes back."""
    if e.kernel.stack and builtin_name(ins, e.kernel.module) is None:
        _restore_stack(e)
    abi, _, returns = _abi(e, ins)
    results, _ = call_operands(ins)
    base = e.local_address(e.local_bytes)
    for operand, place, parameter in zip(results, abi.returns, returns):
        with e.passing():
            _take(e, operand, base + place, parameter)


def _abi(e: Emitter, ins: Instruction) -> tuple[Abi, Any, Any]:
    """(places, parameters, returns) of the called function."""
    callee = callee_of(ins)
    module, caller = e.kernel.module, e.block.function.function
    if isinstance(callee, Symbol) and callee.space == "func":
        function = must_be(module.function(callee.name), Function)
        if builtin_name(ins, module) is not None:
            return builtin_abi(function), function.params, function.returns
        return e.kernel.locals[function.name].abi, function.params, function.returns
    name = must_be(ins.operands[-1], Symbol).name
    if name in caller.prototypes:
        p = caller.prototypes[name]
        return prototype_abi(p), p.params, p.returns
    function = must_be(module.function(caller.targets[name].targets[0].name), Function)
    return abi_of(function.returns, function.params), function.params, function.returns


def _copy(e: Emitter, size: int, source: Value, target: Value) -> None:
    """Copy bytes of each lane's local memory to another place in it."""
    e.call(rt.copy_local, e.w, e.mask, e.spill(source), e.spill(target), size, e.site)


def _pass(e: Emitter, operand: Operand, target: Value, parameter: Any) -> None:
    if isinstance(operand, Symbol):
        _copy(e, parameter.size, e.local_address(must_be(e.frame_offset(operand.name), int)), target)
        return
    bits = passed_bits(parameter)
    e.store_local(target, storage_type(f"b{bits}")(e.source(operand, f"b{bits}")))


def _take(e: Emitter, operand: Operand, source: Value, parameter: Any) -> None:
    if isinstance(operand, Symbol):
        offset = e.frame_offset(operand.name)
        if offset is not None:
            _copy(e, parameter.size, source, e.local_address(offset))
    elif isinstance(operand, Reg):
        e.write(operand.name, e.local_value(source, passed_bits(parameter)))


def passed_bits(parameter: Parameter) -> int:
    """Bits of a register that is a parameter or a result; predicates cannot be passed (ptx/program/runnable.py)."""
    return max(parameter.bits, 8)


# the stack of alloca ------------------------------------------------------------------------------------------------
def _saved_stack(e: Emitter) -> Value:
    return e.local_address(e.locals.offsets[SAVED_STACK])


def _save_stack(e: Emitter) -> None:
    """Save the stack pointer, so that memory which the callee takes with alloca is free after its return."""
    place = e.spill(e.warp("stack"))
    e.call(mem.store_function("local", 4, 1), e.w, e.mask, e.spill(_saved_stack(e)), place, e.site)


def _restore_stack(e: Emitter) -> None:
    value = e.spill(U64(e.local_value(_saved_stack(e), 32)))
    e.call(stack_restore, e.w, e.mask, value, e.site)


# parameters declared as .reg ----------------------------------------------------------------------------------------
def load_register_parameters(e: Emitter) -> None:
    """At the start of a function, load parameters from the frame into their registers."""
    first = next(iter(e.block.body), e.block.last)
    if first is not None:
        e.begin(first)
    for parameter in e.block.function.function.params:
        if parameter.space == "reg":
            at = e.local_address(e.locals.offsets[parameter.name])
            with e.passing():
                e.write(parameter.name, e.local_value(at, passed_bits(parameter)))


def store_register_returns(e: Emitter) -> None:
    """At a return, store the results from their registers into the frame."""
    for parameter in e.block.function.function.returns:
        if parameter.space == "reg":
            at = e.local_address(e.locals.offsets[parameter.name])
            with e.passing():
                e.store_local(at, e.read(parameter.name))
