"""The door to memory: the only code that makes a host pointer from a kernel's address.

Every instruction uses it, whatever its proxy: bounds, alignment and write permission are checked for all lanes before a pointer
is given out, faults are recorded, and an instrument is told about the access (events.py). After a fault no more pointers are
given out, so that no store of a later instruction goes to a wrong address. `access` is the kind of access.
Lanes that are in one window have a file of their own, which belongs to the door (shapes.py).

    translate     addresses of the lanes of a warp, a function for each state space (SPACES)
    find_host     one address, for locate.py
    operand       a piece of a matrix that a descriptor selects
    parameter     a kernel's parameter whose place was known when the module was read
    local         addresses of .local, where each lane has its own memory
    local_place   a place in a lane's own frame
    peek          bytes for the host, as far as they exist
"""

from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, load, mask_bits, null, stack, store, trailing_zeros
from mmulator.base.codegen.types import boolean, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.ptx.program.addresses import (
    FIRST_GLOBAL_SLOT,
    RANK_SHIFT,
    SHARED_BASE,
    SLOT_CONST,
    SLOT_LOCAL,
    SLOT_PARAM,
    SLOT_SHARED,
    SLOT_SHIFT,
)
from mmulator.runtime.native.hooks.events import ATOMIC, READ, WRITE, accessed, accessed_one, left_undetermined
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.sums import give_way, settled
from mmulator.runtime.native.state import HINTS, WORD, Cluster, Cta, FaultKind, Warp, Window

U64, POINTERS = u64.vec(32), ptr.vec(32)
OFFSET_MASK = (1 << SLOT_SHIFT) - 1
SHARED = SLOT_SHARED << SLOT_SHIFT
WITHIN = (1 << RANK_SHIFT) - 1  # of an address of shared memory: what is not the rank


@native
def find_shared(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, site: u32) -> ptr:
    """Host pointer to `bytes` of the shared memory of any CTA of the cluster; null, with a fault, if they do not exist.

    at: in the shared window (PTX ISA 9.1, State Spaces: shared::cluster); the slot of a generic address is ignored.
    """
    cta = w.cta
    rank = u32((at & OFFSET_MASK) >> RANK_SHIFT)
    if rank >= cta.cluster.cta_count:
        if cta.cluster.cta_count == 1:
            fault(w, FaultKind.SHARED_OUT_OF_BOUNDS, site, lane, at, u32(bytes))
        else:
            fault(w, FaultKind.NO_SUCH_RANK, site, lane, at, u32(bytes))
        return null(u8)
    owner = cast_ptr(Cta, cta.cluster.ctas) + rank
    offset = (at & WITHIN) - SHARED_BASE
    size = u64(cta.launch.shared_bytes)
    if offset > size or bytes > size - offset:
        fault(w, FaultKind.SHARED_OUT_OF_BOUNDS, site, lane, at, u32(bytes))
        return null(u8)
    if rank != cta.rank and owner.live_threads == 0:
        fault(w, FaultKind.CTA_EXITED, site, lane, at, u32(bytes))
        return null(u8)
    return owner.shared + offset


@native(inline=True)
def in_window(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, access: u32, site: u32) -> ptr:
    """Host pointer to bytes of the global space that lie in one buffer; null, with a fault, if they do not. An atomic operation
    on a word may extend into the room behind a region, and so may a load in a kernel with some: compilers emulate atomics on
    smaller elements by the containing word."""
    window = window_of(w.cta, at, site)
    size = window.size
    give_way(w.cta.cluster, window.host, size, access & WRITE)
    slot = at >> SLOT_SHIFT
    if bytes == WORD and ((access & ATOMIC) != 0 or ((access & WRITE) == 0 and w.cta.launch.words != 0)):
        size = size + u64(window.room)
    offset = at - window.start
    if size < bytes or offset > size - bytes:
        kind = u32(FaultKind.OUT_OF_BOUNDS)
        if slot == 0:
            kind = FaultKind.NULL_POINTER
        fault(w, kind, site, lane, at, u32(bytes))
        return null(u8)
    if (access & WRITE) != 0 and window.writable == 0:
        fault(w, FaultKind.READ_ONLY, site, lane, at, u32(bytes))
        return null(u8)
    return ptr(window.host + offset)


@native(inline=True)
def find_host(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """Host pointer of one lane's generic address; null, with a fault, if there is none."""
    launch = w.cta.launch
    slot = at >> SLOT_SHIFT
    offset = at & OFFSET_MASK
    if w.cta.fault != 0:
        return null(u8)
    if (at & u64(bytes - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, at, bytes)
        return null(u8)
    if slot == SLOT_SHARED:
        if (at & WITHIN) + u64(bytes) <= u64(launch.reserved) and u32(offset >> RANK_SHIFT) == w.cta.rank:
            return w.cta.shared + ((at & WITHIN) - SHARED_BASE)
        return find_shared(w, lane, at, u64(bytes), site)
    if slot == SLOT_LOCAL:
        if offset + u64(bytes) > launch.local_bytes:
            fault(w, FaultKind.LOCAL_OUT_OF_BOUNDS, site, lane, at, bytes)
            return null(u8)
        return w.local + (u64(lane) * launch.local_bytes + offset)
    return in_window(w, lane, at, u64(bytes), access, site)


@native
def other_cta(w: ptr_to(Warp), at: u64) -> boolean:
    """Whether an address of the shared window is in the shared memory of another CTA of the cluster."""
    return u32(at >> RANK_SHIFT) != w.cta.rank and w.cta.cluster.cta_count != 1


# many bytes ---------------------------------------------------------------------------------------------------------
@native
def hold(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, access: u32, site: u32) -> ptr:
    """Host pointer to bytes of the global space in one buffer, or null and a fault. Who moves them tells instruments."""
    slot = at >> SLOT_SHIFT
    if w.cta.fault != 0:
        return null(u8)
    if slot == SLOT_SHARED or slot == SLOT_LOCAL:
        fault(w, FaultKind.WRONG_SPACE, site, lane, at, u32(bytes))
        return null(u8)
    return in_window(w, lane, at, bytes, access, site)


@native
def hold_each(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u64, site: u32) -> None:
    """Check that bytes of the global space exist, for each lane, without reading them or telling instruments."""
    left = mask
    while left != 0:
        hold(w, trailing_zeros(left), at[trailing_zeros(left)], bytes, READ, site)
        left = left & (left - 1)


@native
def lose_each(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u64) -> None:
    """Tell instruments that bytes have no value any more, for each lane."""
    left = mask
    while left != 0:
        left_undetermined(w, trailing_zeros(left), at[trailing_zeros(left)], bytes)
        left = left & (left - 1)


@native(inline=True)
def shared_of(cluster: ptr_to(Cluster), rank: u32) -> ptr:
    """The first byte of a CTA's shared memory, for movers whose bounds were checked at issue."""
    return (cast_ptr(Cta, cluster.ctas) + rank).shared


# addresses of the lanes of a warp -----------------------------------------------------------------------------------
@native
def translate_each(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(ptr)) -> u32:
    """Translate lane by lane; returns 0 if any lane faults."""
    for lane in bits_of(mask):
        host = find_host(w, lane, at[lane], bytes, access, site)
        if u64(host) == 0:
            return 0
        out[lane] = host
    accessed(w, mask, at, 0, bytes, access, site)
    return mask


@native
def outside_global(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, site: u32) -> u32:
    """1, with a fault, if a lane of an access to .global has the generic address of shared or local memory."""
    slots = load(U64, at) >> SLOT_SHIFT
    wrong = mask_bits((slots == SLOT_SHARED) | (slots == SLOT_LOCAL)) & mask
    if wrong != 0:
        lane = trailing_zeros(wrong)
        fault(w, FaultKind.WRONG_SPACE, site, lane, at[lane], bytes)
        return 1
    return 0


@native
def in_one_cta(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, out: ptr_to(ptr)) -> u32:
    """1, with the pointers, if all lanes may access the shared memory of one CTA. Their addresses have one slot."""
    cta = w.cta
    first = at[trailing_zeros(mask)]
    rank = u32((first & OFFSET_MASK) >> RANK_SHIFT)
    size = u64(cta.launch.shared_bytes)
    if rank >= cta.cluster.cta_count or size < u64(bytes):
        return 0
    owner = cast_ptr(Cta, cta.cluster.ctas) + rank
    a = load(U64, at)
    offset = a - ((first & ~u64(WITHIN)) | SHARED_BASE)
    wrong = (offset > size - u64(bytes)) | ((a & u64(bytes - 1)) != 0)
    if (mask_bits(wrong) & mask) != 0 or (rank != cta.rank and owner.live_threads == 0):
        return 0
    store(POINTERS(offset + u64(owner.shared)), out)
    return 1


def _slots(space: str) -> Native:
    """A function from generic addresses of the lanes in `mask` to host pointers. Returns mask, or 0 after a fault."""
    only_global = space == "global"

    def translate_slots(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(ptr)) -> u32:
        if mask == 0 or w.cta.fault != 0:
            return u32(0)
        a = load(U64, at)
        first = at[trailing_zeros(mask)]
        slot = first >> SLOT_SHIFT
        if slot >= FIRST_GLOBAL_SLOT or slot == 0:
            settled(w.cta.cluster)
            window = window_of(w.cta, first, site)
            offset = a - window.start
            wrong = (offset > window.size - u64(bytes)) | ((a & u64(bytes - 1)) != 0)
            if (mask_bits(wrong) & mask) == 0 and window.size >= u64(bytes) and ((access & WRITE) == 0 or window.writable != 0):
                store(POINTERS(offset + window.host), out)
                accessed(w, mask, at, 0, bytes, access, site)
                return mask
        if not only_global:
            if slot == SLOT_SHARED:
                if in_one_cta(w, mask, at, bytes, out) != 0:
                    accessed(w, mask, at, 0, bytes, access, site)
                    return mask
        if only_global:
            if outside_global(w, mask, at, bytes, site) != 0:
                return u32(0)
        return translate_each(w, mask, at, bytes, access, site, out)

    return Native(translate_slots, "translate" if space == "generic" else f"translate_{space}")


translate, translate_global = _slots("generic"), _slots("global")


@native
def translate_shared(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(ptr)) -> u32:
    """Write host pointers for addresses of the shared window; returns the mask of the lanes that continue."""
    cta = w.cta
    if mask == 0 or cta.fault != 0:
        return 0
    a = load(U64, at)
    size = u64(cta.launch.shared_bytes)
    offset = a - cta.shared_base
    bad = mask_bits((offset > size - u64(bytes)) | ((a & u64(bytes - 1)) != 0)) & mask
    if size < u64(bytes):
        bad = mask
    if bad != 0:
        if (mask_bits(a - (cta.shared_base - SHARED_BASE) < u64(cta.launch.reserved)) & bad) == bad:
            places = stack(u64, 32)
            store(a | SHARED, places)
            return translate_each(w, mask, places, bytes, access, site, out)
        lane = trailing_zeros(bad)
        kind = u32(FaultKind.SHARED_OUT_OF_BOUNDS)
        if (at[lane] & u64(bytes - 1)) != 0:
            kind = FaultKind.MISALIGNED
        elif at[lane] > OFFSET_MASK:
            kind = FaultKind.BEYOND_SPACE
        elif other_cta(w, at[lane]):
            kind = FaultKind.OTHER_CTA
        fault(w, kind, site, lane, at[lane], bytes)
        return 0
    store(POINTERS(offset + u64(cta.shared)), out)
    accessed(w, mask, at, SHARED, bytes, access, site)
    return mask


@native
def translate_to_shared(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(ptr)) -> u32:
    """Write host pointers for generic addresses of an instruction that only works on shared memory."""
    if mask == 0 or w.cta.fault != 0:
        return 0
    a = load(U64, at)
    wrong = mask_bits((a >> SLOT_SHIFT) != SLOT_SHARED) & mask
    if wrong != 0:
        lane = trailing_zeros(wrong)
        fault(w, FaultKind.NOT_SHARED, site, lane, at[lane], bytes)
        return 0
    offsets = stack(u64, 32)
    store(a & OFFSET_MASK, offsets)
    return translate_shared(w, mask, offsets, bytes, access, site, out)


def _offsets_into(slot: int, space: str) -> Native:
    """A function to host pointers for a space whose addresses are offsets into one window, below 4 GiB."""

    def translate_offsets(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(ptr)
    ) -> u32:
        if mask == 0 or w.cta.fault != 0:
            return u32(0)
        a = load(U64, at)
        beyond = mask_bits(a > OFFSET_MASK) & mask
        if beyond != 0:
            lane = trailing_zeros(beyond)
            fault(w, FaultKind.BEYOND_SPACE, site, lane, at[lane], bytes)
            return u32(0)
        if slot == SLOT_SHARED:
            if in_one_cta(w, mask, at, bytes, out) != 0:
                accessed(w, mask, at, SHARED, bytes, access, site)
                return mask
        generic = stack(u64, 32)
        store(a | (slot << SLOT_SHIFT), generic)
        return translate_each(w, mask, generic, bytes, access, site, out)

    return Native(translate_offsets, f"translate_{space}")


SPACES: dict[str, Native] = {
    "shared::cluster": _offsets_into(SLOT_SHARED, "cluster"),
    "generic": translate, "global": translate_global, "shared": translate_shared, "local": _offsets_into(SLOT_LOCAL, "local"),
    "const": _offsets_into(SLOT_CONST, "const"), "param": _offsets_into(SLOT_PARAM, "param"),
}  # fmt: skip
NAMES = {space: space.rpartition("::")[2] for space in SPACES}  # in names of native functions


# where the address is known or made here ----------------------------------------------------------------------------
@native(inline=True)
def shared_span(w: ptr_to(Warp), low: u64, high: u64) -> ptr:
    """Host place of address 0 of the shared window, if bytes `low` to `high` are the CTA's own; otherwise null."""
    base = w.cta.shared_base
    if low < base or high >= base + u64(w.cta.launch.shared_bytes):
        return null(u8)
    return ptr(u64(w.cta.shared) - base)


@native(inline=True)
def descriptor_span(w: ptr_to(Warp), low: u64, high: u64) -> ptr:
    """`shared_span` for addresses of a matrix descriptor, which are in the own CTA, whatever its rank."""
    if low < SHARED_BASE or high >= SHARED_BASE + u64(w.cta.launch.shared_bytes):
        return null(u8)
    return w.cta.shared + i64(-SHARED_BASE)


@native(inline=True)
def of_descriptor(w: ptr_to(Warp), at: u64) -> u64:
    """The generic address of an address in a matrix descriptor."""
    return (at + (w.cta.shared_base - SHARED_BASE)) | SHARED


@native(inline=True)
def global_span(w: ptr_to(Warp), low: u64, high: u64, site: u32) -> ptr:
    """Host place of the byte at `low`, if all bytes up to `high` can be read in one window; otherwise null."""
    window = window_of(w.cta, low, site)
    slot = low >> SLOT_SHIFT
    if slot == SLOT_SHARED or slot == SLOT_LOCAL or low < window.start or high < low or high - window.start >= window.size:
        return null(u8)
    give_way(w.cta.cluster, window.host, window.size, 0)
    return ptr(window.host + (low - window.start))


@native(inline=True)
def local_place(w: ptr_to(Warp), lane: u32, offset: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """Host pointer to any number of bytes of a lane's local memory; null, with a fault, if they do not exist."""
    size = w.cta.launch.local_bytes
    if offset > size or u64(bytes) > size - offset:
        fault(w, FaultKind.LOCAL_OUT_OF_BOUNDS, site, lane, (SLOT_LOCAL << SLOT_SHIFT) | offset, bytes)
    if w.cta.fault != 0:
        return null(u8)
    accessed_one(w, lane, (SLOT_LOCAL << SLOT_SHIFT) | offset, bytes, access, site)
    return w.local + (u64(lane) * size + offset)


def parameter(e: Any, ins: Any, at: int, bytes: int) -> Value:
    """The pointer, in code of a block, to bytes of the kernel's parameters that are known to exist."""
    if e.events is not None:
        place = e.spill(constant(e.b, U64, at))
        e.call(accessed, e.w, e.lanes_of(ins), place, SLOT_PARAM << SLOT_SHIFT, bytes, READ, e.site)
    return e.launch_field("params") + at


@native
def peek(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, out: ptr) -> u64:
    """Copy up to `bytes` from a lane's generic address, as far as there is memory; returns their number. No fault."""
    launch = w.cta.launch
    slot = at >> SLOT_SHIFT
    offset = at & OFFSET_MASK
    size = u64(0)
    host = null(u8)
    if slot == SLOT_SHARED:
        rank = u32(offset >> RANK_SHIFT)
        if rank >= w.cta.cluster.cta_count:
            return 0
        offset = (at & WITHIN) - SHARED_BASE
        size = u64(launch.shared_bytes)
        host = (cast_ptr(Cta, w.cta.cluster.ctas) + rank).shared
    elif slot == SLOT_LOCAL:
        size = launch.local_bytes
        host = w.local + u64(lane) * size
    else:
        settled(w.cta.cluster)
        window = launch.windows + slot
        if slot == 0 or slot >= launch.slots:
            window = search(w.cta, at, 0)
        offset = at - window.start
        size = window.size
        host = ptr(window.host)
    if offset >= size:
        return 0
    count = size - offset
    if bytes < count:
        count = bytes
    copy_bytes(out, host + offset, count)
    return count


# tables --------------------------------------------------------------------------------------------------------------
@native
def search(cta: ptr_to(Cta), at: u64, site: u32) -> ptr_to(Window):
    """The last region of the host's memory that begins at or before an address; it may end before the address."""
    regions = cta.launch.regions
    low = u64(0)
    high = cta.launch.region_count
    while high - low > 1:
        middle = (low + high) >> 1
        if regions[middle].start <= at:
            low = middle
        else:
            high = middle
    cta.cluster.hints[site & (HINTS - 1)] = u32(low)
    return regions + low


@native(inline=True)
def window_of(cta: ptr_to(Cta), at: u64, site: u32) -> ptr_to(Window):
    """The window that may contain a generic address of global memory, constants or parameters: the window of its slot, or a
    region. An instruction usually finds the region of its last access at once.
    """
    slot = at >> SLOT_SHIFT
    found = cta.launch.windows + slot
    if slot == 0 or slot >= cta.launch.slots:
        found = cta.launch.regions + cta.cluster.hints[site & (HINTS - 1)]
        if at - found.start >= found.size:
            found = search(cta, at, site)
    return found
