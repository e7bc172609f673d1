"""Calls of functions of CUDA's runtime: printf and a failing assert."""

from __future__ import annotations

from mmulator.codegen.ops import trailing_zeros
from mmulator.codegen.types import u32, u64
from mmulator.codegen.values import Value, constant
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.errors import must_be
from mmulator.native.hooks.faults import fault
from mmulator.native.hooks.printing import device_print
from mmulator.native.memory import memory as mem
from mmulator.native.memory.windows import peek
from mmulator.native.state import BlockExit, FaultKind
from mmulator.program.image import Abi, abi_of
from mmulator.program.operands import call_operands, callee_of
from mmulator.program.runnable import ASSERT, BUILTINS
from mmulator.ptx.tree import Function, Instruction, Operand, ParsedModule, Symbol

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
    """End a block by a call of a function of CUDA's runtime, whose declaration program/runnable.py has checked. The fault of an
    assertion names the lanes, and the place in their local memory of what was passed.
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
