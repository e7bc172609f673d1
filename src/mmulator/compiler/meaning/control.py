"""Control Flow Instructions (PTX ISA 9.1), and the endings of blocks that no instruction writes."""

import numpy as np

from mmulator.base.codegen.ops import mask_bits, select
from mmulator.base.codegen.types import i32, u32
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import calls
from mmulator.compiler.lowering.binding import means, receives
from mmulator.compiler.lowering.operands import table_pointer
from mmulator.ptx.program.blocks import takes_whole_warp
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.hooks.blocks import branched, steered
from mmulator.runtime.native.threads import control as rt
from mmulator.runtime.native.threads.control import return_lanes

U32 = u32.vec(LANES)


def go_on(e: Emitter) -> None:
    """Jump to the only following block."""
    e.flush()
    e.b.ret(e.block.targets[0])


def part_ways(e: Emitter, ins: Instruction) -> None:
    """Jump to the first of two blocks where the guard is true, of a branch or of a guarded instruction in its own block."""
    guard = must_be(e.guard(ins), Value)
    whole = None if e.hears(steered) else e.one_of(guard)
    if whole is not None:  # all lanes to one of them
        if e.hears(branched):
            e.call(branched, e.w, e.mask, select(whole, e.mask, 0), e.site)
        e.flush()
        e.b.ret(select(whole, *(constant(e.b, i32, target) for target in e.block.targets)))
        return
    taken = mask_bits(guard) & e.mask
    if e.hears(steered):
        place = e.spill(taken)
        e.call(steered, e.w, e.mask, place, e.site)
        taken = e.fetch(place, u32)
    e.call(branched, e.w, e.mask, taken, e.site)
    e.flush()
    _branch(e, ins, taken, *e.block.targets)


def _branch(e: Emitter, ins: Instruction, taken: Value, target: int, following: int) -> None:
    b = e.b
    none, some, all_, part = (b.label(h) for h in ("none", "some", "all", "part"))
    b.branch_if(taken == 0, none, some)
    b.place(none)
    b.ret(following)
    b.place(some)
    b.branch_if(taken == e.mask, all_, part)
    b.place(all_)
    b.ret(target)
    b.place(part)
    if takes_whole_warp(ins):
        b.ret(e.call(rt.guard_warp, e.w, e.mask, taken, target, following, e.site))
    else:
        b.ret(e.call(rt.branch, e.w, e.mask, taken, target, following))


def leave(e: Emitter) -> None:
    """Return at the end of a function or a kernel."""
    if e.is_entry:
        e.b.ret(e.call(rt.exit_lanes, e.w, e.mask, e.site))
        return
    e.flush()
    calls.store_register_returns(e)
    e.b.ret(e.call(return_lanes, e.w, e.regs, e.mask))


@means("bra")
def bra(e: Emitter, ins: Instruction) -> None:
    if ins.guard is None:
        go_on(e)
    else:
        part_ways(e, ins)


@means("brx.idx")
def brx(e: Emitter, ins: Instruction) -> None:
    e.flush()
    index = e.spill(U32(e.source(ins.operands[0], "u32")))
    targets = e.block.targets
    goals = table_pointer(e, i32, ("brx", e.block.index), lambda tables: np.array(targets, np.int32))
    e.b.ret(e.call(rt.branch_indexed, e.w, e.mask, index, goals, len(targets), e.site))


@means("ret")
def ret(e: Emitter, ins: Instruction) -> None:
    leave(e)


@means("exit")
def exit_(e: Emitter, ins: Instruction) -> None:
    e.b.ret(e.call(rt.exit_lanes, e.w, e.mask, e.site))


@means("call")
def call(e: Emitter, ins: Instruction) -> None:
    calls.call(e, ins)


@receives("call")
def results_of_call(e: Emitter, ins: Instruction) -> None:
    calls.receive(e, ins)
