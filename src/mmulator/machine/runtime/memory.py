"""Checked memory: addresses of 32 lanes to host pointers, loads, stores.

Nothing here touches host memory before the window of the access is known to hold it. After a fault every operation of the
block does nothing, so that no store of a later instruction lands on a wrong address.
"""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import (
    all_lanes,
    any_lane,
    bits_mask,
    cast_ptr,
    gather,
    iota,
    load,
    mask_bits,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import Ty, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.faults import fault
from mmulator.machine.state import FULL, FaultKind, Warp
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, SHARED_BASE, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT

U32, U64 = u32.vec(32), u64.vec(32)
READ, WRITE = 0, 1
OFFSET_MASK = (1 << SLOT_SHIFT) - 1


@native
def locate(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> u64:
    """Host pointer of one lane's generic address, or 0 and a recorded fault."""
    launch = w.cta.launch
    slot = at >> SLOT_SHIFT
    offset = at & OFFSET_MASK
    if w.cta.fault != 0:
        return u64(0)
    if (at & u64(bytes - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, at, bytes)
        return u64(0)
    if slot == SLOT_SHARED:
        offset = offset - SHARED_BASE
        if offset + u64(bytes) > u64(launch.shared_bytes) or offset > OFFSET_MASK:
            fault(w, FaultKind.SHARED_OUT_OF_BOUNDS, site, lane, at, bytes)
            return u64(0)
        return u64(w.cta.shared) + offset
    if slot == SLOT_LOCAL:
        if offset + u64(bytes) > launch.local_bytes:
            fault(w, FaultKind.LOCAL_OUT_OF_BOUNDS, site, lane, at, bytes)
            return u64(0)
        return u64(w.local) + u64(lane) * launch.local_bytes + offset
    if slot == 0:
        fault(w, FaultKind.NULL_POINTER, site, lane, at, bytes)
        return u64(0)
    if slot >= launch.slots:
        fault(w, FaultKind.OUT_OF_BOUNDS, site, lane, at, bytes)
        return u64(0)
    window = launch.windows + slot
    offset = at - window.start
    if window.size < u64(bytes) or offset > window.size - u64(bytes):
        fault(w, FaultKind.OUT_OF_BOUNDS, site, lane, at, bytes)
        return u64(0)
    if access == WRITE and window.writable == 0:
        fault(w, FaultKind.READ_ONLY, site, lane, at, bytes)
        return u64(0)
    return window.host + offset


@native
def translate_each(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
) -> u32:
    """Lane by lane; 0 if any faults."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        host = locate(w, lane, at[lane], bytes, access, site)
        if host == 0:
            return u32(0)
        out[lane] = host
    return mask


@native
def outside_global(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, site: u32) -> u32:
    """1 and a fault if a lane of an access to .global has the generic address of shared or local memory."""
    slots = load(U64, at) >> SLOT_SHIFT
    wrong = mask_bits((slots == SLOT_SHARED) | (slots == SLOT_LOCAL)) & mask
    if wrong != 0:
        lane = trailing_zeros(wrong)
        fault(w, FaultKind.WRONG_SPACE, site, lane, at[lane], bytes)
        return u32(1)
    return u32(0)


def _slots(space: str) -> Native:
    """Generic addresses of the lanes in `mask` to host pointers. Returns mask, or 0 if nothing may be done."""
    only_global = space == "global"

    def translate_slots(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
    ) -> u32:
        if mask == 0 or w.cta.fault != 0:
            return u32(0)
        launch = w.cta.launch
        a = load(U64, at)
        m = bits_mask(mask)
        first = at[trailing_zeros(mask)]
        slot = first >> SLOT_SHIFT
        if slot >= FIRST_GLOBAL_SLOT and slot < launch.slots:
            window = launch.windows + slot
            offset = a - window.start
            wrong = (offset > window.size - u64(bytes)) | ((a & u64(bytes - 1)) != 0)
            if any_lane(wrong & m) == 0 and window.size >= u64(bytes) and (access == READ or window.writable != 0):
                store(offset + window.host, out)
                return mask
        if only_global:
            if outside_global(w, mask, at, bytes, site) != 0:
                return u32(0)
        return translate_each(w, mask, at, bytes, access, site, out)

    return Native(translate_slots, "translate" if space == "generic" else f"translate_{space}")


translate, translate_global = _slots("generic"), _slots("global")


@native
def translate_shared(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
) -> u32:
    """The same for addresses of the shared window."""
    cta = w.cta
    if mask == 0 or cta.fault != 0:
        return u32(0)
    a = load(U64, at)
    size = u64(cta.launch.shared_bytes)
    offset = a - SHARED_BASE
    wrong = (offset > size - u64(bytes)) | ((a & u64(bytes - 1)) != 0)
    bad = mask_bits(wrong) & mask
    if size < u64(bytes):
        bad = mask
    if bad != 0:
        lane = trailing_zeros(bad)
        kind = u32(FaultKind.SHARED_OUT_OF_BOUNDS)
        if (at[lane] & u64(bytes - 1)) != 0:
            kind = u32(FaultKind.MISALIGNED)
        fault(w, kind, site, lane, at[lane], bytes)
        return u32(0)
    store(offset + u64(cta.shared), out)
    return mask


@native
def locate_shared(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> u64:
    """`locate` for an address of the shared window."""
    if at > OFFSET_MASK:
        fault(w, FaultKind.BEYOND_SPACE, site, lane, at, bytes)
        return u64(0)
    return locate(w, lane, at | (SLOT_SHARED << SLOT_SHIFT), bytes, access, site)


@native
def locate_global(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> u64:
    """`locate` for an address of the global space."""
    slot = at >> SLOT_SHIFT
    if slot == SLOT_SHARED or slot == SLOT_LOCAL:
        fault(w, FaultKind.WRONG_SPACE, site, lane, at, bytes)
        return u64(0)
    return locate(w, lane, at, bytes, access, site)


def _offsets_into(slot: int, space: str) -> Native:
    """The same for a space whose addresses are offsets into one window, below 4 GiB."""

    def translate_offsets(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
    ) -> u32:
        if mask == 0 or w.cta.fault != 0:
            return u32(0)
        a = load(U64, at)
        beyond = mask_bits(a > OFFSET_MASK) & mask
        if beyond != 0:
            lane = trailing_zeros(beyond)
            fault(w, FaultKind.BEYOND_SPACE, site, lane, at[lane], bytes)
            return u32(0)
        generic = stack(u64, 32)
        store(a | (slot << SLOT_SHIFT), generic)
        return translate_each(w, mask, generic, bytes, access, site, out)

    return Native(translate_offsets, f"translate_{space}")


SPACES: dict[str, Native] = {
    "generic": translate, "global": translate_global, "shared": translate_shared, "local": _offsets_into(SLOT_LOCAL, "local"),
    "const": _offsets_into(SLOT_CONST, "const"), "param": _offsets_into(SLOT_PARAM, "param"),
}  # fmt: skip
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}


@native
def translate_to_shared(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
) -> u32:
    """Generic addresses of an instruction that works on shared memory alone."""
    if mask == 0 or w.cta.fault != 0:
        return u32(0)
    a = load(U64, at)
    wrong = mask_bits((a >> SLOT_SHIFT) != SLOT_SHARED) & mask
    if wrong != 0:
        lane = trailing_zeros(wrong)
        fault(w, FaultKind.NOT_SHARED, site, lane, at[lane], bytes)
        return u32(0)
    offsets = stack(u64, 32)
    store(a & OFFSET_MASK, offsets)
    return translate_shared(w, mask, offsets, bytes, access, site, out)


def matrix_space(space: str) -> Native:
    """What translates the addresses of ldmatrix and stmatrix."""
    return translate_shared if space == "shared" else translate_to_shared


LOCATE: dict[str, Native] = {"shared": locate_shared, "global": locate_global}


def locate_function(space: str) -> Native:
    """`locate` for the addresses of a state space that a single lane computes."""
    return LOCATE.get(space, locate)


@cache
def load_function(space: str, size: int, count: int) -> Native:
    """`count` elements of `size` bytes a lane; element c of lane l goes to dst[32 * c + l]. Idle lanes get anything."""
    resolve, element = SPACES[space], _ELEMENT[size]
    vector, pointers = element.vec(32), ptr.vec(32)

    def load_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr, site: u32) -> None:
        host = stack(u64, 32)
        ok = resolve(w, mask, at, size * count, READ, site, host)
        if ok == 0:
            return
        h = load(U64, host)
        base = host[0]
        if ok == FULL and all_lanes((h - base) == iota(U64, 0, size * count)) and count == 1:
            store(load(vector, ptr(base)), dst)
            return
        if size >= 4:
            for c in range_(count):
                store(gather(vector, pointers(h + c * size), bits_mask(ok)), cast_ptr(vector, dst) + c)
            return
        out = cast_ptr(element, dst)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            source = cast_ptr(element, ptr(host[lane]))
            for c in range_(count):
                out[lane + 32 * c] = source[c]

    return Native(load_, f"load_{space}_{size}x{count}")


@cache
def store_function(space: str, size: int, count: int) -> Native:
    """The reverse. Of lanes that store to one address the highest wins."""
    resolve, element = SPACES[space], _ELEMENT[size]
    vector = element.vec(32)

    def store_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr, site: u32) -> None:
        host = stack(u64, 32)
        ok = resolve(w, mask, at, size * count, WRITE, site, host)
        if ok == 0:
            return
        h = load(U64, host)
        base = host[0]
        if count == 1 and ok == FULL and all_lanes((h - base) == iota(U64, 0, size)):
            store(load(vector, src), ptr(base))
            return
        values = cast_ptr(element, src)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            target = cast_ptr(element, ptr(host[lane]))
            for c in range_(count):
                target[c] = values[lane + 32 * c]

    return Native(store_, f"store_{space}_{size}x{count}")


def range_(count: int) -> list[int]:
    """Unrolled at compile time."""
    return list(range(count))


MEMORY = [locate, *SPACES.values()]
