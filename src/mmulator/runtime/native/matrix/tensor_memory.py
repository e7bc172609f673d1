"""Tensor memory: allocation, and tcgen05.ld and tcgen05.st between tensor memory and registers.

TensorCore 5th Generation Family Instructions: Tensor Memory; Data Movement (PTX ISA 9.1). matrix/layouts/tensor_memory.py defines
the places of registers. As on a chip, a warp accesses the 32 lanes of its own quarter, whatever the quarter in the address.

Each CTA has all columns of tensor memory: CTAs that share a multiprocessor are not modelled.
"""

from functools import cache

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, null, stack, trailing_zeros
from mmulator.base.codegen.types import boolean, i32, ptr_to, u8, u32, u64
from mmulator.matrix.layouts.tensor_memory import moved
from mmulator.runtime.native.asynchrony.waiting import wait_for_lanes
from mmulator.runtime.native.hooks.events import warp_met
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.tensor import tensor_allocated, tensor_freed, tensor_moved
from mmulator.runtime.native.matrix.tensor_state import TENSOR_COLUMNS, TENSOR_LANES, TENSOR_ROW, TENSOR_UNIT
from mmulator.runtime.native.memory.memory import store_function
from mmulator.runtime.native.state import RESCHEDULE, Cta, FaultKind, Warp

UNITS = TENSOR_COLUMNS // TENSOR_UNIT
POISON = 0xFF  # every byte of columns whose contents are undefined: NaN in each floating-point type
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
LANE = 16  # lowest bit of the lane in an address
COLUMN_BITS = (1 << LANE) - 1


@native
def peer_of(w: ptr_to(Warp), site: u32) -> ptr_to(Cta):
    """The other CTA of the pair; null, with a fault, if the cluster has no such CTA."""
    cta = w.cta
    rank = cta.rank ^ 1
    if rank >= cta.cluster.cta_count:
        fault(w, FaultKind.TENSOR_PAIR, site, 0, u64(cta.rank), 0)
        return cast_ptr(Cta, null(u8))
    return cast_ptr(Cta, cta.cluster.ctas) + rank


@native
def wake_all(cta: ptr_to(Cta)) -> None:
    """Let all warps of a CTA look again for what they wait for."""
    warps = cast_ptr(Warp, cta.warps)
    for i in range(cta.launch.warps):
        (warps + i).waiting = 0


@native
def free_place(held: u32, units: u32) -> u32:
    """The first free unit, a multiple of `units`, with `units` free units; UNITS if there is none."""
    wanted = (u32(1) << units) - 1
    unit = u32(0)
    while unit < UNITS:
        if (held & (wanted << unit)) == 0:
            return unit
        unit = unit + units
    return u32(UNITS)


@cache
def alloc_function(space: str) -> Native:
    """A function for tcgen05.alloc, at the start of block `here`, which runs again while too few columns are free.

    space: state space of the address that receives the address in tensor memory.
    """
    keep = store_function(space, 4, 1)

    def alloc(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), columns: u32, pair: u32, here: i32, next: i32, site: u32) -> i32:
        cta = w.cta
        if cta.fault != 0:
            return i32(RESCHEDULE)
        units = columns // TENSOR_UNIT
        address = u64(cta.held_units)
        if columns < TENSOR_UNIT or columns > TENSOR_COLUMNS or (columns & (columns - 1)) != 0:
            fault(w, FaultKind.TENSOR_COUNT, site, 0, address, columns)
        elif cta.relinquished != 0:
            fault(w, FaultKind.TENSOR_RELINQUISHED, site, 0, address, columns)
        if cta.fault != 0:
            return i32(RESCHEDULE)
        if pair != 0:
            peer = peer_of(w, site)
            if u64(peer) == 0:
                return i32(RESCHEDULE)
            if cta.pair_came == cta.pair_done:
                cta.pair_came = cta.pair_came + 1
                wake_all(peer)
            if i32(peer.pair_came - cta.pair_came) < 0:
                return wait_for_lanes(w, mask, here)
        found = free_place(cta.held_units, units)
        if found == UNITS:
            return wait_for_lanes(w, mask, here)
        cta.held_units = cta.held_units | (((u32(1) << units) - 1) << found)
        cta.unit_counts[found] = u8(units)
        if pair != 0:
            cta.pair_done = cta.pair_done + 1
        for lane in range(u32(TENSOR_LANES)):
            fill_bytes(cta.tensor + u64(lane) * TENSOR_ROW + u64(found) * (4 * TENSOR_UNIT), POISON, u64(columns) * 4)
        tensor_allocated(w, found * TENSOR_UNIT, columns, site)
        value = stack(u32, 32)
        first = trailing_zeros(mask)
        value[first] = found * TENSOR_UNIT
        keep(w, u32(1) << first, at, cast_ptr(u8, value), site)
        warp_met(w, mask, site)  # all lanes may read the address next
        return next

    return Native(alloc, f"tensor_alloc_{space.replace('::', '_')}")


@native
def dealloc(w: ptr_to(Warp), address: u32, columns: u32, pair: u32, site: u32) -> None:
    """Execute tcgen05.dealloc: the columns of one allocation are free."""
    cta = w.cta
    if cta.fault != 0:
        return
    if pair != 0:
        if u64(peer_of(w, site)) == 0:
            return
    unit = (address & COLUMN_BITS) // TENSOR_UNIT
    units = columns // TENSOR_UNIT
    known = unit < UNITS and (address & (COLUMN_BITS & (TENSOR_UNIT - 1))) == 0 and (address >> LANE) == 0
    if known:
        known = units * TENSOR_UNIT == columns and units != 0 and u32(cta.unit_counts[unit]) == units
    if not known:
        fault(w, FaultKind.TENSOR_DEALLOC, site, 0, u64(address), columns)
        return
    tensor_freed(w, unit * TENSOR_UNIT, columns, site)
    cta.unit_counts[unit] = u8(0)
    cta.held_units = cta.held_units & ~(((u32(1) << units) - 1) << unit)
    wake_all(cta)


@native
def relinquish(w: ptr_to(Warp), site: u32) -> None:
    """Execute tcgen05.relinquish_alloc_permit."""
    w.cta.relinquished = 1


@native
def allocated(cta: ptr_to(Cta), column: u32, columns: u32) -> boolean:
    """Whether columns of tensor memory are there and allocated."""
    if column + columns > TENSOR_COLUMNS or columns > TENSOR_COLUMNS:
        return False
    first = column // TENSOR_UNIT
    units = (column + columns + (TENSOR_UNIT - 1)) // TENSOR_UNIT - first
    wanted = ((u32(1) << units) - 1) << first
    return (cta.held_units & wanted) == wanted


@native(inline=True)
def cell(cta: ptr_to(Cta), lane: u32, column: u32) -> ptr_to(u32):
    """Pointer to a cell of tensor memory."""
    return cast_ptr(u32, cta.tensor + (u64(lane) * TENSOR_ROW + u64(column) * 4))


@native
def first_lane(w: ptr_to(Warp), address: u32, shape: u32, column: u32, columns: u32, split: u32, site: u32) -> u32:
    """The lane of tensor memory to which a warp's first row goes; TENSOR_LANES, with a fault, if the address is wrong.

    w: the warp.
    address: address in tensor memory.
    shape: index into SHAPES.
    column, columns: first column and number of columns of a row.
    split: columns from the first half's columns to those of the second half.
    site: the instruction.
    """
    within = (address >> LANE) & 31
    good = within == 0
    if shape != 0:
        good = good or within == 16
    if not good:
        fault(w, FaultKind.TENSOR_ALIGNED, site, 0, u64(address), 0)
    elif not allocated(w.cta, column, columns) or not allocated(w.cta, column + split, columns):
        fault(w, FaultKind.TENSOR_COLUMNS, site, 0, u64(address), columns + split)
    if w.cta.fault != 0:
        return u32(TENSOR_LANES)
    return 32 * (w.index & 3) + within


@cache
def move_function(shape: str, store: bool, half: bool) -> Native:
    """A function for tcgen05.ld or tcgen05.st of one shape.

    shape: one of SHAPES.
    store: whether it is tcgen05.st.
    half: whether each register has the low 16 bits of two neighbouring columns (.pack::16b, .unpack::16b).
    """
    number, wide, rows = SHAPES.index(shape), 2 if half else 1, 0xFFFFFFFF if shape == SHAPES[0] else 0xFFFF

    def move(w: ptr_to(Warp), address: u32, count: u32, columns: u32, split: u32, values: ptr_to(u32), site: u32) -> None:
        if w.cta.fault != 0:
            return
        column = address & COLUMN_BITS
        base = first_lane(w, address, u32(number), column, columns * wide, split, site)
        if base == TENSOR_LANES:
            return
        tensor_moved(w, address, u32(rows) << (base & 16), columns * wide, split, u32(store), site)
        cta = w.cta
        for r in range(count):
            for t in range(u32(32)):
                lane, at = moved(shape, t, r, split, wide)
                here = cell(cta, base + u32(lane), column + u32(at))
                if store and half:
                    here[0] = values[32 * r + t] & 0xFFFF
                    here[1] = values[32 * r + t] >> 16
                elif store:
                    here[0] = values[32 * r + t]
                elif half:
                    values[32 * r + t] = (here[0] & 0xFFFF) | (here[1] << 16)
                else:
                    values[32 * r + t] = here[0]

    return Native(move, f"tensor_{'st' if store else 'ld'}_{shape}{'_half' if half else ''}")

