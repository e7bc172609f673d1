"""Resources of warps that they take and give back: registers (setmaxnreg) and the stack of alloca (PTX ISA 9.1).

The registers of a thread are counted; a warp has 32 times as many. The pool of a CTA is empty at its begin: the launch's
registers belong to its warps. The specification wants one count for the four warps of a warpgroup; chips count each warp alone,
and programs rely on it (CUTLASS's attention for Blackwell). The sanitizer reports it.

The stack is the first bytes of a lane's local memory, used downward from STACK_BYTES to 0.
"""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import bits_mask, cast_ptr, load, mask_bits, select, store, trailing_zeros
from mmulator.base.codegen.types import i32, ptr_to, u32, u64
from mmulator.ptx.program.addresses import SLOT_LOCAL, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.waiting import wait_for_lanes
from mmulator.runtime.native.hooks.events import left_undetermined
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.operands import resized
from mmulator.runtime.native.state import RESCHEDULE, STACK_BYTES, FaultKind, Warp

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


# the stack of alloca -------------------------------------------------------------------------------------------------
U32, U64 = u32.vec(32), u64.vec(32)


@native
def stack_allocate(w: ptr_to(Warp), mask: u32, sizes: ptr_to(u64), align: u64, out: ptr_to(u64), site: u32) -> None:
    """Lower the stack pointer of the lanes by their sizes, to a multiple of `align`; out: the new pointers."""
    top = U64(w.stack)
    size = load(U64, sizes)
    short = mask_bits(size > top) & mask
    if short != 0:
        lane = trailing_zeros(short)
        fault(w, FaultKind.ALLOCA_OVERFLOW, site, lane, sizes[lane], w.stack[lane])
    else:
        lowered = (top - size) & ~(align - 1)
        w.used = 1
        w.stack = select(bits_mask(mask), U32(lowered), w.stack)
        store(lowered, out)


@native
def stack_restore(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), site: u32) -> None:
    """Set the stack pointer of the lanes, to any value that stacksave can return. What lies below it is lost."""
    value = load(U64, values)
    wrong = mask_bits(value > STACK_BYTES) & mask
    if wrong != 0:
        lane = trailing_zeros(wrong)
        fault(w, FaultKind.BAD_STACK, site, lane, values[lane], 0)
    else:
        left = mask & mask_bits(value > U64(w.stack))
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            left_undetermined(w, lane, u64(SLOT_LOCAL << SLOT_SHIFT) | u64(w.stack[lane]), values[lane] - u64(w.stack[lane]))
        w.used = 1
        w.stack = select(bits_mask(mask), U32(value), w.stack)
