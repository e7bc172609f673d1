"""mbarrier objects (PTX ISA 9.1, Parallel Synchronization and Communication Instructions: mbarrier)."""

from __future__ import annotations

from mmulator.codegen.ops import bits_mask, mask_bits
from mmulator.codegen.types import ptr, u32, u64
from mmulator.codegen.values import Value, constant
from mmulator.errors import must_be
from mmulator.machine.emit.block import LANES
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.binding import means
from mmulator.machine.meaning.memory import place_of
from mmulator.machine.meaning.operands import write_result
from mmulator.machine.runtime import mbarrier as rt
from mmulator.machine.runtime.events import BOTH, READ
from mmulator.machine.runtime.windows import SPACES
from mmulator.ptx.tree import Address, Instruction, Operand

U32, U64, POINTERS = u32.vec(LANES), u64.vec(LANES), ptr.vec(LANES)


def barriers(e: Emitter, ins: Instruction, operand: Operand, access: int) -> tuple[Value, Value]:
    """The lanes that go on, and where their mbarriers are on the host."""
    space, where = place_of(e, ins, must_be(operand, Address))
    room = e.room(POINTERS)
    lanes = e.call(SPACES[space], e.w, e.lanes_of(ins), e.spill(where), rt.ALIGNMENT, access, e.site, room)
    return lanes, room


@means("mbarrier.init")
def init(e: Emitter, ins: Instruction) -> None:
    lanes, host = barriers(e, ins, ins.operands[0], BOTH)
    e.call(rt.init, e.w, lanes, host, e.spill(U32(e.source(ins.operands[1], "u32"))))


@means("mbarrier.arrive")
def arrive(e: Emitter, ins: Instruction) -> None:
    d, where, *rest = ins.operands
    lanes, host = barriers(e, ins, where, BOTH)
    count, expected = constant(e.b, U32, 1), constant(e.b, U32, 0)
    if "expect_tx" in ins.modifiers:
        expected = U32(e.source(rest[0], "u32"))
    elif rest:
        count = U32(e.source(rest[0], "u32"))
    states = e.room(U64)
    e.call(rt.arrive, e.w, lanes, host, e.spill(count), e.spill(expected), states)
    write_result(e, d, e.fetch(states, U64), ins)


@means("mbarrier.try_wait")
def try_wait(e: Emitter, ins: Instruction) -> None:
    """Ends a block, which runs again when the lanes are woken."""
    d, where, parity = ins.operands[:3]
    lanes, host = barriers(e, ins, where, READ)
    done = e.room(u32)
    parities = mask_bits((U32(e.source(parity, "u32")) & 1) != 0)
    to = e.call(rt.wait_at, e.w, lanes, host, parities, e.block.index, e.block.targets[0], done)
    write_result(e, d, bits_mask(e.fetch(done, u32)), ins)
    e.flush()
    e.b.ret(to)
