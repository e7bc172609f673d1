"""The stack of alloca: the first bytes of a lane's local memory, used downward from STACK_BYTES to 0."""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_mask, load, mask_bits, select, store, trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.hooks.events import left_undetermined
from mmulator.native.hooks.faults import fault
from mmulator.native.state import STACK_BYTES, FaultKind, Warp
from mmulator.program.addresses import SLOT_LOCAL, SLOT_SHIFT

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
