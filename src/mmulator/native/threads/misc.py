"""setmaxnreg (PTX ISA 9.1, Miscellaneous Instructions): registers that warps give to their CTA's pool, and take from it.

The registers of a thread are counted; a warp has 32 times as many. The pool of a CTA is empty at its begin: the launch's
registers belong to its warps. The specification wants one count for the four warps of a warpgroup; chips count each warp alone,
and programs rely on it (CUTLASS's attention for Blackwell). The sanitizer reports it.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, trailing_zeros
from mmulator.codegen.types import i32, ptr_to, u32, u64
from mmulator.native.asynchrony.waiting import wait_for_lanes
from mmulator.native.hooks.faults import fault
from mmulator.native.hooks.operands import resized
from mmulator.native.state import RESCHEDULE, FaultKind, Warp

UNIT = 8


@native
def whole_units(registers: u32) -> u32:
    """Number of registers that a thread gets for a requested number."""
    return (registers + (UNIT - 1)) // UNIT * UNIT


@native
def misused(w: ptr_to(Warp), mask: u32, count: u32, site: u32) -> None:
    fault(w, FaultKind.REGISTERS, site, trailing_zeros(mask), u64(w.registers) | (u64(count) << 32), 0)


@native
def release_registers(w: ptr_to(Warp), mask: u32, count: u32, site: u32) -> None:
    """Execute setmaxnreg.dec: the registers are free for waiting warps of the CTA."""
    cta = w.cta
    if cta.launch.registers == 0:
        return
    if count > w.registers:
        misused(w, mask, count, site)
        return
    cta.register_pool = cta.register_pool + (whole_units(w.registers) - count)
    w.registers = count
    resized(w, site)
    warps = cast_ptr(Warp, cta.warps)
    for i in range(cta.launch.warps):
        (warps + i).waiting = 0


@native
def take_registers(w: ptr_to(Warp), mask: u32, count: u32, here: i32, next: i32, site: u32) -> i32:
    """Execute setmaxnreg.inc at the start of block `here`, which runs again while too few registers are free."""
    cta = w.cta
    if cta.launch.registers == 0:
        return next
    if count < w.registers:
        misused(w, mask, count, site)
        return RESCHEDULE
    more = count - whole_units(w.registers)
    if count < whole_units(w.registers):
        more = u32(0)
    if more > cta.register_pool:
        return wait_for_lanes(w, mask, here)
    cta.register_pool = cta.register_pool - more
    w.registers = count
    resized(w, site)
    return next
