"""The second file of the door to memory (windows.py): lanes of a warp whose bytes are in one window get one pointer for all.

    origin        lanes side by side, in one place or anywhere: one pointer for all; UNKNOWN, without a fault, if not
    local         the same for .local, where each lane has its own memory
    row           32 lanes side by side, by few questions: a pointer, or null
"""

from enum import IntEnum
from functools import cache

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import iota, leading_zeros, mask_bits, null, stack, store
from mmulator.base.codegen.types import ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import extract
from mmulator.ptx.program.addresses import SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import WRITE, accessed
from mmulator.runtime.native.memory.sums import give_way
from mmulator.runtime.native.memory.windows import NAMES, SHARED, U64, window_of
from mmulator.runtime.native.state import FULL, HINTS, PART, PARTS, Warp


class Shape(IntEnum):
    """The arrangement of the bytes of lanes."""

    UNKNOWN = 0
    ROW = 1  # side by side, in the order of the lanes
    ONE = 2  # all in one place
    SPREAD = 3


@cache
def origin_function(space: str, bytes: int, access: int, sums: bool = False, align: int = 0) -> Native:
    """A function that returns the shape, if all lanes of `mask` (not 0) may access `bytes` each in one window; UNKNOWN if not,
    or if only `translate` can tell. No fault is recorded. For contiguous lanes, two addresses decide for all.

    a, first: the addresses, and that of lane `low`, the lowest of `mask`. sums: for sums that wait (sums.py), of small arrays.
    align: of the addresses, if not `bytes`. out: receives the host place of address 0, of the window's begin and of its end.
    """
    slots = {"shared": SLOT_SHARED, "shared::cluster": SLOT_SHARED, "const": SLOT_CONST, "param": SLOT_PARAM}
    base, align = slots.get(space, 0) << SLOT_SHIFT, align or bytes  # base: what an address lacks to be generic
    only_shared, any_space, writes = base == SHARED, space == "generic", (access & WRITE) != 0

    def origin(w: ptr_to(Warp), mask: u32, low: u64, first: u64, a: U64, site: u32, out: ptr_to(ptr)) -> u32:
        cta = w.cta
        start = cta.shared_base
        size = u64(cta.launch.shared_bytes)
        host = u64(cta.shared)
        if not only_shared:
            slot = (first + base) >> SLOT_SHIFT
            own = (slot == SLOT_SHARED or slot == SLOT_LOCAL) if base == 0 else slot != base >> SLOT_SHIFT
            if own:
                if not any_space:
                    return u32(Shape.UNKNOWN)
                start = start | SHARED
            else:
                window = window_of(cta, first + base, site)
                start = window.start - base
                size = window.size
                host = window.host
                if writes:
                    if window.writable == 0:
                        return u32(Shape.UNKNOWN)
                if sums:
                    if host + size - (host & ~u64(PART - 1)) > PART * PARTS:
                        return u32(Shape.UNKNOWN)
                elif base == 0:
                    give_way(cta.cluster, host, size, u32(writes))
        place = first - start
        if size < bytes or (first & (align - 1)) != 0:
            return u32(Shape.UNKNOWN)
        shape = u32(Shape.ROW)
        apart = mask
        if (mask & 3) != 3 or extract(a, 1) != first:
            apart = mask & mask_bits((a - iota(U64, 0, bytes)) != (first - low * bytes))
        if apart == 0:
            span = (u64(32 - leading_zeros(mask)) - low) * bytes
            if span > size or place > size - span:
                return u32(Shape.UNKNOWN)
        elif (mask & mask_bits(a != first)) == 0:
            shape = u32(Shape.ONE)
            if place > size - bytes:
                return u32(Shape.UNKNOWN)
        else:
            shape = u32(Shape.SPREAD)
            if (mask & mask_bits(((a - start) > (size - bytes)) | ((a & (align - 1)) != 0))) != 0:
                return u32(Shape.UNKNOWN)
        at = stack(u64, 32)
        store(a, at)
        accessed(w, mask, at, base, bytes, access, site)
        out[0] = ptr(host - start)
        out[1] = ptr(host)
        out[2] = ptr(host + size)
        return shape

    return Native(origin, f"origin_{NAMES[space]}_{bytes}_{access}{'_sums' * sums}{f'_{align}' * (align != bytes)}", inline=True)


@cache
def local_function(bytes: int, access: int) -> Native:
    """A function that returns the shape of lanes' addresses of .local: SPREAD or UNKNOWN. places: what to add to `out`."""

    def origin_local(w: ptr_to(Warp), mask: u32, a: U64, site: u32, out: ptr_to(ptr), places: ptr_to(u64)) -> u32:
        size = w.cta.launch.local_bytes
        if size < bytes or (mask & mask_bits((a > (size - bytes)) | ((a & (bytes - 1)) != 0))) != 0:
            return u32(Shape.UNKNOWN)
        store(a, places)
        accessed(w, mask, places, SLOT_LOCAL << SLOT_SHIFT, bytes, access, site)
        store(a + iota(U64) * size, places)
        out[0] = w.local
        return u32(Shape.SPREAD)

    return Native(origin_local, f"origin_local_{bytes}_{access}", inline=True)


@cache
def row_function(space: str, bytes: int, access: int) -> Native:
    """A function that returns the host place of the bytes of lane 0, if 32 lanes may access `bytes` each, side by side from there
    on in .global or .shared; null, without a fault, if they may not, or if only `origin` can tell. It tells no instrument.
    """
    far, span, writes = space == "global", 32 * bytes, (access & WRITE) != 0

    def row(w: ptr_to(Warp), mask: u32, a: U64, site: u32) -> ptr:
        cta = w.cta
        first = extract(a, 0)
        may = (mask == FULL) & (cta.fault == 0) & ((first & (bytes - 1)) == 0)
        start = cta.shared_base
        size = u64(cta.launch.shared_bytes)
        host = u64(cta.shared)
        if far:
            slot = first >> SLOT_SHIFT
            window = cta.launch.windows + slot
            if slot == 0 or slot >= cta.launch.slots:
                window = cta.launch.regions + cta.cluster.hints[site & (HINTS - 1)]
            start = window.start
            size = window.size
            host = window.host
            sums = cta.cluster.sums
            if writes:
                may = may & (sums.touched == 0) & (window.writable != 0)
            else:
                may = may & ((sums.touched == 0) | (host >= sums.end) | (host + size <= u64(sums.start)))
        place = first - start
        may = may & (size >= span) & (place <= size - span)
        if may & (mask_bits((a - iota(U64, 0, bytes)) != first) == 0):
            return ptr(host + place)
        return null(u8)

    return Native(row, f"row_{space}_{bytes}_{access}", inline=True)
