"""Bulk copies (PTX ISA 9.1, Data Movement and Conversion Instructions)."""

from __future__ import annotations

from mmulator.codegen.types import u32
from mmulator.errors import must_be
from mmulator.machine.emit.block import LANES
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.binding import means
from mmulator.machine.runtime import bulk as rt
from mmulator.machine.state import TransferKind
from mmulator.ptx.tree import Address, Instruction

U32 = u32.vec(LANES)


@means("cp.async.bulk")
def copy(e: Emitter, ins: Instruction) -> None:
    to, at, size, barrier = ins.operands
    e.transfers(TransferKind.BULK_COPY, rt.move_bytes)
    places = [e.spill(e.address(must_be(operand, Address))) for operand in (to, at)]
    sizes, barriers = e.spill(U32(e.source(size, "u32"))), e.spill(e.address(must_be(barrier, Address)))
    e.call(rt.global_to_shared, e.w, e.lanes_of(ins), *places, sizes, barriers, e.site)
