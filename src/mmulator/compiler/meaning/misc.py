"""Miscellaneous Instructions (PTX ISA 9.1)."""

from mmulator.base.codegen.ops import trailing_zeros
from mmulator.base.codegen.types import u64
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.convergence import converge
from mmulator.ptx.program.counts import count_of
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.asynchrony.waiting import fall_asleep
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.state import BlockExit, FaultKind
from mmulator.runtime.native.threads import resources as rt


@means("setmaxnreg")
def setmaxnreg(e: Emitter, ins: Instruction) -> None:
    """Change the number of registers; no value changes. An increase waits for registers that others release, and ends
    a block.
    """
    if "dec" in ins.modifiers:
        e.call(rt.release_registers, e.w, e.mask, count_of(ins), e.site)
        return
    converge(e, ins)
    e.flush()
    e.b.ret(e.call(rt.take_registers, e.w, e.mask, count_of(ins), e.block.index, e.block.targets[0], e.site))


@means("pmevent")
def nothing(e: Emitter, ins: Instruction) -> None:
    """Write nothing: the instruction has no effect on values."""


@means("nanosleep")
def nanosleep(e: Emitter, ins: Instruction) -> None:
    """Let another warp run; no value changes."""
    e.call(fall_asleep, e.w, e.mask)


@means("trap", "brkpt")
def trap(e: Emitter, ins: Instruction) -> None:
    """End the launch: so does a breakpoint where no debugger is (seen on an H200)."""
    lane = trailing_zeros(e.mask)
    e.call(fault, e.w, int(FaultKind.TRAP), e.site, lane, u64(lane), 0)
    e.b.ret(int(BlockExit.RESCHEDULE))
