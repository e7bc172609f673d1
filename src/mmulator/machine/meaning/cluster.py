"""Instructions of thread block clusters (PTX ISA 9.1), of a cluster of one block."""

from __future__ import annotations

from mmulator.codegen.types import u32, u64
from mmulator.machine.emit.block import LANES
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.binding import means
from mmulator.machine.meaning.operands import write_result
from mmulator.ptx.tree import Instruction

U32, U64 = u32.vec(LANES), u64.vec(LANES)
_RANK_SHIFT, _RANK = 24, 0xFF000000


@means("mapa")
def mapa(e: Emitter, ins: Instruction) -> None:
    """A block is a cluster of its own: rank 0 is its shared memory, any other lies outside, one window of 16 MiB a rank."""
    own = U64(e.source(ins.operands[1], ins.form["type"]))
    rank = U64(e.source(ins.operands[2], "u32"))
    write_result(e, ins.operands[0], (own & (0xFFFFFFFFFFFFFFFF ^ _RANK)) | ((rank << _RANK_SHIFT) & _RANK), ins)


@means("getctarank")
def getctarank(e: Emitter, ins: Instruction) -> None:
    own = U64(e.source(ins.operands[1], ins.form["type"]))
    write_result(e, ins.operands[0], U32((own & _RANK) >> _RANK_SHIFT), ins)
