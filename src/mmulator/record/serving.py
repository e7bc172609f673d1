"""The way in which a chip serves the lanes of an instruction that accesses memory: what its wavefronts and sectors depend on."""

from collections.abc import Collection

from mmulator.compiler.compiled import CompiledKernel
from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.isa.types import type_bits
from mmulator.native.hooks.profile import Serves
from mmulator.program.blocks import instructions
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction, Reg

_SHARED = ("shared", "shared::cta")
_OF_INTEGERS = ("u32", "s32", "b32")  # with which a chip does every operation in shared memory itself
_COUNTS = {("add", "u32"): 1, ("inc", "u32"): 0xFFFFFFFF}  # operations that count lanes, with the operand


def all_serving(kernel: CompiledKernel) -> list[Serves]:
    """The way of each site of a kernel's code."""
    read = {name for block in kernel.program.blocks for ins in instructions(block) for name in uses_and_defs(ins)[0]}
    return [serving(ins, read) for ins in kernel.sites]


def serving(ins: Instruction, read: Collection[str]) -> Serves:
    """The way of an instruction, as ptxas compiles it for Hopper. read: registers whose values are used."""
    effects, form = ins.effects, ins.form
    if effects.queue is Queue.COPIES:
        return Serves.BYPASS if "cg" in ins.modifiers else Serves.COPY
    if effects.queue is Queue.BULK:
        return Serves.ALONE if "tensor" in ins.modifiers else Serves.BULK
    if effects.opaque:
        return Serves.FRAGMENT
    if effects.counted_as == "atomic" and form["space"] != "shared::cluster":
        return _of_atomic(ins, read)
    loads = effects.memory is MemoryEffect.READ and effects.counted_as == "memory"
    return Serves.PAIRS if loads and form["space"] in _SHARED else Serves.ALONE


def _of_atomic(ins: Instruction, read: Collection[str]) -> Serves:
    op, type_ = ins.form["op"], ins.form["type"]
    if op == "cas" and type_bits(type_) >= 32:
        return Serves.TWICE
    last, first = ins.operands[-1], ins.operands[0]
    counts = isinstance(last, Immediate) and last.value & 0xFFFFFFFF == _COUNTS.get((op, type_))
    if counts and ins.form["space"] in _SHARED and not (isinstance(first, Reg) and first.name in read):
        return Serves.ALONE
    return Serves.TURNS if op == "exch" or type_ in _OF_INTEGERS else Serves.LOOP
