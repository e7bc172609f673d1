"""bar, barrier and bar.warp.sync (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from mmulator.base.codegen.ops import keep_order, mask_bits, trailing_zeros
from mmulator.base.codegen.types import u32
from mmulator.base.codegen.values import constant, extract
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means, receives
from mmulator.ptx.program.skips import is_aligned_barrier
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg
from mmulator.runtime.native.hooks.events import warp_met
from mmulator.runtime.native.hooks.operands import barrier_here
from mmulator.runtime.native.threads import barrier as rt

U32 = u32.vec(LANES)

@means("bar", "barrier")
def barrier(e: Emitter, ins: Instruction) -> None:
    """End a block at a barrier of the thread block; the next block runs when the barrier is complete."""
    operation, _, numbers = barrier_parts(ins)
    b = e.b
    pred = constant(b, u32, 0)
    if operation >= rt.RED_POPC:
        pred = mask_bits(e.source(numbers[-1], "pred"))
        numbers = numbers[:-1]
    if all(isinstance(o, Immediate) for o in numbers):
        values = [constant(b, u32, o.bits("u32")) for o in numbers if isinstance(o, Immediate)]
        arrive, values = rt.barrier, [*values, constant(b, u32, 0)][:2]
    else:
        vectors = [U32(e.source(o, "u32")) for o in numbers]
        arrive, values = rt.barrier_named, [e.spill(v) for v in [*vectors, constant(b, U32, 0)][:2]]
    e.flush()
    keep_order("acq_rel")  # one thread of the host runs the block; the threads of other blocks see its stores in this order
    aligned = is_aligned_barrier(ins)
    if e.hears(barrier_here):
        number = values[0] if arrive is rt.barrier else extract(U32(e.source(numbers[0], "u32")), trailing_zeros(e.mask))
        e.call(barrier_here, e.w, e.mask, number, int(aligned), e.kernel.skips.bits.get(ins, 0), e.site)
    if aligned:
        operation |= rt.ALIGNED
    b.ret(e.call(arrive, e.w, e.mask, *values, operation, pred, e.block.targets[0], e.site))


@receives("bar", "barrier")
def reduction(e: Emitter, ins: Instruction) -> None:
    """The result of bar.red, when control comes back from it."""
    operation, target, _ = barrier_parts(ins)
    if operation >= rt.RED_POPC and isinstance(target, Reg):
        value = e.warp("bar_result")
        e.write(target.name, value if operation == rt.RED_POPC else value != 0)


def barrier_parts(ins: Instruction) -> tuple[int, Operand | None, list[Operand]]:
    """(operation, destination, the other operands) of bar and barrier."""
    if "arrive" in ins.modifiers:
        return rt.ARRIVE, None, list(ins.operands)
    if "red" in ins.modifiers:
        operation = rt.RED_POPC if "popc" in ins.modifiers else rt.RED_AND if "and" in ins.modifiers else rt.RED_OR
        return operation, ins.operands[0], list(ins.operands[1:])
    return rt.SYNC, None, list(ins.operands)


@means("bar.warp.sync")
def warp_barrier(e: Emitter, ins: Instruction) -> None:
    """Write bar.warp.sync: its lanes have met at the start of the block, and their earlier stores are visible."""
    e.call(warp_met, e.w, e.mask, e.site)
    e.b.line('fence syncscope("singlethread") seq_cst')  # one thread of the host runs the lanes
