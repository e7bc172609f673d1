"""Control flow: branches, and the exit of lanes (PTX ISA 9.1, Control Flow Instructions)."""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import (
    address,
    bits_mask,
    bits_of,
    cast_ptr,
    load,
    mask_bits,
    popcount,
    reduce_max,
    select,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import i32, ptr, ptr_to, u32, u64
from mmulator.base.codegen.values import Builder, Value
from mmulator.ptx.program.addresses import FUNCTION_BYTES, HEADER_LOCAL, HEADER_RETURN_FRAME, HEADER_RETURN_PC, SLOT_FUNCTION
from mmulator.runtime.native.asynchrony.waiting import partial_warp, wake_warpgroup
from mmulator.runtime.native.hooks.events import READ, WRITE, lanes_exit, local_copied
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.windows import local_place
from mmulator.runtime.native.state import RESCHEDULE, Barrier, FaultKind, Warp
from mmulator.runtime.native.threads.barrier import arrive_together, release_if_complete
from mmulator.runtime.native.threads.cluster import leave_cluster


@native
def guard_warp(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32, site: u32) -> i32:
    """Handle a guarded instruction for whole warps on whose predicate lanes disagree: a fault if all of them are here."""
    if mask == w.live:
        return partial_warp(w, taken, mask & ~taken, site)
    return branch(w, mask, taken, target, next)


@native
def branch(w: ptr_to(Warp), mask: u32, taken: u32, target: i32, next: i32) -> i32:
    """Record the targets of lanes that part."""
    m = bits_mask(mask)
    w.lane_pc = select(m, select(bits_mask(taken), I32(target), I32(next)), w.lane_pc)
    return RESCHEDULE


@native
def branch_indexed(w: ptr_to(Warp), mask: u32, index: ptr_to(u32), table: ptr_to(i32), n: u32, site: u32) -> i32:
    """Execute brx.idx: each lane has its own target."""
    pcs = address(w.lane_pc)
    out = cast_ptr(i32, pcs)
    for lane in bits_of(mask):
        at = index[lane]
        if at >= n:
            fault(w, FaultKind.BAD_BRANCH, site, lane, u64(at), n)
        else:
            out[lane] = table[at]
    return RESCHEDULE


@native
def exit_lanes(w: ptr_to(Warp), mask: u32, site: u32) -> i32:
    """End threads: barriers no longer wait for them, and lanes that waited for them look again."""
    cta = w.cta
    lanes_exit(w, mask, site)
    w.live = w.live & ~mask
    w.held = 0
    w.waiting = 0  # wake lanes that waited for these
    if cta.launch.tiles != 0:
        wake_warpgroup(w)
    cta.live_threads = cta.live_threads - popcount(mask)
    bars = cast_ptr(Barrier, cta.barriers)
    for id in bits_of(cta.open_barriers):
        if (w.bar_came[id] | bars[id].arrived) != 0:  # somebody is at it
            arrive_together(w, id)
            release_if_complete(cta, id)
    if cta.cluster.arrived != 0:  # at barrier.cluster
        leave_cluster(w, mask)
    return RESCHEDULE


# calls ---------------------------------------------------------------------------------------------------------------
I32, U32 = i32.vec(32), u32.vec(32)


@native
def call_function(w: ptr_to(Warp), mask: u32, targets: ptr_to(i32), next: i32, caller: u32, local_bytes: u32, site: u32) -> i32:
    """Enter functions: each lane of `mask` its own target, by number in `launch.callees`.

    A frame is at the place of its function; one level further if the callee can call the caller, because the lane may be in
    that function already.
    """
    launch = w.cta.launch
    own = launch.callees + caller
    from_ = w.frame
    local = load(U32, w.regs + from_ + HEADER_LOCAL) + local_bytes
    too_deep = u64(reduce_max(select(bits_mask(mask), local, 0))) >= launch.local_bytes
    goals = load(I32, targets)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        number = targets[lane]
        some = mask_bits(goals == number) & left
        left = left & ~some
        if number < 0:  # find_functions has said so
            return RESCHEDULE
        callee = launch.callees + number
        frame = callee.offset
        if callee.cycle == own.cycle:
            frame = frame + (from_ - own.offset) + callee.stride
        if too_deep or frame >= callee.end:
            fault(w, FaultKind.STACK_OVERFLOW, site, lane, u64(frame), 0)
            return RESCHEDULE
        m = bits_mask(some)
        new = w.regs + frame
        store(select(m, I32(next), load(I32, new + HEADER_RETURN_PC)), new + HEADER_RETURN_PC)
        store(select(m, U32(from_), load(U32, new + HEADER_RETURN_FRAME)), new + HEADER_RETURN_FRAME)
        store(select(m, local, load(U32, new + HEADER_LOCAL)), new + HEADER_LOCAL)
        w.lane_frame = select(m, U32(frame), w.lane_frame)
        w.lane_pc = select(m, I32(callee.entry), w.lane_pc)
    return RESCHEDULE


@native
def find_functions(
    w: ptr_to(Warp), mask: u32, addresses: ptr_to(u64), known: ptr_to(i32), count: u32, code: u32, targets: ptr_to(i32), site: u32
) -> None:
    """Convert function addresses of an indirect call to numbers of the kernel's functions; -1, and a fault, for others.

    known: for each of the module's `count` functions the number, or -1 if the call cannot reach it.
    code: place of the first one.
    """
    for lane in bits_of(mask):
        at = addresses[lane]
        place = u32(at) - code
        found = i32(-1)
        if (at >> 32) == SLOT_FUNCTION and place % FUNCTION_BYTES == 0 and place // FUNCTION_BYTES < count:
            found = known[place // FUNCTION_BYTES]
        if found < 0:
            fault(w, FaultKind.BAD_CALL, site, lane, at, 0)
        targets[lane] = found


@native
def copy_local(w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), size: u32, site: u32) -> None:
    """Copy parameters of a call: `size` bytes of each lane's local memory to another place in it, by offset."""
    for lane in bits_of(mask):
        given = local_place(w, lane, source[lane], size, READ, site)
        taken = local_place(w, lane, target[lane], size, WRITE, site)
        if u64(given) == 0 or u64(taken) == 0:
            return
        for at in range(u64(size)):
            taken[at] = given[at]
        local_copied(w, lane, source[lane], target[lane], size)


@native
def return_lanes(w: ptr_to(Warp), regs: ptr, mask: u32) -> i32:
    """Let lanes go on behind the call that entered their function, in the frame of the caller."""
    m = bits_mask(mask)
    w.lane_pc = select(m, load(I32, regs + HEADER_RETURN_PC), w.lane_pc)
    w.lane_frame = select(m, load(U32, regs + HEADER_RETURN_FRAME), w.lane_frame)
    return RESCHEDULE


# printf --------------------------------------------------------------------------------------------------------------
def call_print(function: Value, *args: Value) -> Value:
    """Macro: the host function that prints; returns 1 + the lane that failed, or 0."""
    return Builder.current().call_pointer(ptr(function), u32, args)


@native
def device_print(w: ptr_to(Warp), mask: u32, formats: ptr_to(u64), values: ptr_to(u64), results: ptr_to(u32), site: u32) -> None:
    """Execute vprintf: each lane's format and argument buffer, by generic address."""
    if w.cta.fault == 0:
        failed = call_print(w.cta.launch.print, w, mask, formats, values, results)
        if failed != 0:
            fault(w, FaultKind.PRINT, site, failed - 1, 0, 0)
