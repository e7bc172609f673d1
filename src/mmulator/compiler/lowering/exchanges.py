"""Instructions that only move words between the lanes of a warp: from a native function to their code."""

from collections.abc import Callable

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.types import u32
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import definedness
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import write_result
from mmulator.ptx.tree import Instruction

U32 = u32.vec(LANES)


def exchanges(*names: str) -> Callable[[Native], Native]:
    """A decorator: the native function does what these rows do, f(a, ..., d), each a pointer to the 32 words of an operand.

    The rows have Flow.MOVED, one result and any number of sources, all of 32 bits. The function also moves the marks of lanes
    without a value.
    """

    def bind(move: Native) -> Native:
        def write(e: Emitter, ins: Instruction) -> None:
            d, *sources = ins.operands
            out = e.room(U32)
            e.call(move, *(e.spill(U32(e.source(source, "b32"))) for source in sources), out)
            write_result(e, d, e.fetch(out, U32), ins)
            definedness.moved(e, ins, move)

        write.__module__ = move.function.__module__  # `means` binds it to the rows of the file of that name
        means(*names)(write)
        return move

    return bind
