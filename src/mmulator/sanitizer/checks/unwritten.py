"""Rules of device memory that neither the host nor a kernel has written (base/rules/values.py).

A watched allocation has marks, a byte for each of its bytes (runtime/launch/regions.py). Kernels set them where they write;
several threads of the host may do so at once, since all write the same mark. A load of a lane has no value

    if no byte of it has been written (for a vector: no byte of the whole vector, because programs read whole vectors at the end
    of arrays),
    if the host alone has written some bytes of an element: a copy or a fill that ends in its middle. Bytes written by a kernel
    may be members of a structure, and the others its padding.

The use of such a value is then checked as for shared memory (values.py). An atomic operation itself depends on the old bytes.

What asynchronous operations read and write is here, too, since they move values: bytes without one have none where a copy brings
them either. Of each 16 bytes it is known where they came from, so their use is a finding about the copy and its source.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import (
    all_lanes,
    bits_mask,
    bits_of,
    cast_ptr,
    elements_at,
    fill_bytes,
    gather,
    iota,
    leading_zeros,
    load,
    mask_bits,
    minimum,
    null,
    select,
    stack,
    trailing_zeros,
)
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u8, u32, u64
from mmulator.base.rules.values import UNDEFINED_COPY, UNDEFINED_GLOBAL, UNDEFINED_OPERAND, UNDEFINED_STORE
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.tensor import CHUNK, in_chunks, place_in_row
from mmulator.runtime.native.asynchrony.transfers import payload_of
from mmulator.runtime.native.hooks.events import PROXY_SHIFT, Access, PayloadShape, Proxy
from mmulator.runtime.native.memory.windows import SHARED
from mmulator.runtime.native.state import BY_HOST, BY_KERNEL, FULL, LANES, Completes, Transfer, Warp
from mmulator.sanitizer.checks import values as known_values
from mmulator.sanitizer.state import find, of_launch

EXCHANGE, COMBINES, KEEPS = 1, 2, 3
U64, U32 = u64.vec(32), u32.vec(32)
_WRITE, _ATOMIC = int(Access.WRITE), int(Access.ATOMIC)
ALL_WRITTEN = BY_HOST * 0x01010101  # four written bytes, by any writer
_KERNEL = BY_KERNEL & ~BY_HOST
_ASYNC_READ = int(Access.READ) | Proxy.ASYNC << PROXY_SHIFT
_STORES, _PRODUCT = 1 + Completes.GROUP, 1 + Completes.PIPE  # of `moving`

# An allocation, and its marks.
Stretch = Struct("WatchedStretch", [("start", u64), ("size", u64), ("marks", ptr)])
# Watched allocations that are not completely written, sorted by address, behind an empty one. atomics: for each site EXCHANGE
# for an atomic exchange, KEEPS for a compare-and-swap that replaces some bits, COMBINES for another atomic operation.
WatchedLaunch = Struct("WatchedLaunch", [("stretches", ptr_to(Stretch)), ("count", u64), ("atomics", ptr_to(u8))])


@native
def stretch_of(w: ptr_to(Warp), at: u64, site: u32) -> ptr_to(Stretch):
    """The watched memory that contains an address; null if there is none."""
    watched = cast_ptr(WatchedLaunch, of_launch(w.cta.cluster).values)
    s = known_values.known(w.cta.cluster)
    found = watched.stretches + s.hints[site & 31]
    if at - found.start < found.size:
        return found
    low = u64(0)
    high = watched.count
    while high - low > 1:
        middle = (low + high) >> 1
        if (watched.stretches + middle).start <= at:
            low = middle
        else:
            high = middle
    found = watched.stretches + low
    if at - found.start < found.size:
        s.hints[site & 31] = u32(low)
        return found
    return cast_ptr(Stretch, null(u8))


# writes ---------------------------------------------------------------------------------------------------------------
@native
def mark_bytes(w: ptr_to(Warp), at: u64, bytes: u64, site: u32) -> None:
    """Mark contiguous bytes as written by a kernel."""
    found = stretch_of(w, at, site)
    if u64(found) != 0:
        offset = at - found.start
        fill_bytes(found.marks + offset, BY_KERNEL, minimum(bytes, found.size - offset))


@native
def nothing_at(w: ptr_to(Warp), at: u64, bytes: u32, site: u32) -> boolean:
    """Whether bytes are watched and unwritten."""
    found = stretch_of(w, at, site)
    if u64(found) == 0:
        return False
    if found.size - (at - found.start) < u64(bytes):
        return False
    marks = cast_ptr(u8, found.marks + (at - found.start))
    some = u8(0)
    for n in range(bytes):
        some = some | marks[n]
    return some == 0


@native
def combines(w: ptr_to(Warp), access: u32, site: u32) -> boolean:
    """Whether an access keeps some of the old bytes, or depends on them."""
    if (access & _ATOMIC) == 0:
        return False
    watched = cast_ptr(WatchedLaunch, of_launch(w.cta.cluster).values)
    return watched.atomics[site] == COMBINES


@native
def lanes_mark(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Mark the bytes that lanes write, if they are watched."""
    if (access & _WRITE) == 0 or mask == 0 or base != 0:
        return
    if u64(of_launch(w.cta.cluster).values) == 0:
        return
    if combines(w, access, site):
        bad = u32(0)
        first = u64(0)
        for lane in bits_of(mask):
            if nothing_at(w, at[lane], bytes, site):
                if bad == 0:
                    first = at[lane]
                one = u32(1)
                bad = bad | (one << lane)
        if bad != 0:
            find(w, UNDEFINED_GLOBAL, site, bad, first, bytes)
    a = load(U64, at)
    first = a[0]
    if mask == FULL and all_lanes((a - first) == U64(bytes) * iota(U64)):
        mark_bytes(w, first, u64(bytes) * LANES, site)
        return
    for lane in bits_of(mask):
        mark_bytes(w, at[lane], u64(bytes), site)


@native
def one_marks(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Mark the bytes that one lane or a transfer writes."""
    if (access & _WRITE) == 0:
        return
    if u64(of_launch(w.cta.cluster).values) == 0:
        return
    if combines(w, access, site) and nothing_at(w, at, bytes, site):
        one = u32(1)
        find(w, UNDEFINED_GLOBAL, site, one << lane, at, bytes)
    mark_bytes(w, at, u64(bytes), site)


# reads ----------------------------------------------------------------------------------------------------------------
@native
def note_unwritten(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, fresh: u32, site: u32) -> None:
    """Record that a lane loads a value that was not written."""
    source = known_values.known(w.cta.cluster).sources + known_values.number_of_warp(w)
    source.at = at
    source.site = site + 1
    source.bytes = bytes
    source.lane = lane
    source.fresh = fresh
    source.cta = w.cta.linear
    source.warp = w.index


@native
def lane_read(
    w: ptr_to(Warp), lane: u32, at: u64, marks: ptr_to(u8), bytes: u32, count: u32, out: ptr_to(u32), site: u32
) -> None:
    """Check the elements that one lane loads. out: masks of lanes; the lane's bit is cleared where an element has no value.

    w, lane, site: the lane and instruction.
    at: address.
    marks: marks of the bytes.
    bytes, count: bytes of an element, and number of elements.
    """
    one = u32(1)
    for pass_ in range(u32(2)):
        for c in range(count):
            every = u8(BY_HOST)
            some = u8(0)
            for n in range(bytes):
                mark = marks[c * bytes + n]
                every = every & mark
                some = some | mark
            if pass_ == 0:
                if every != 0 and count > 1:
                    return
            elif every == 0 and (some & _KERNEL) == 0:
                out[c] = out[c] & ~(one << lane)
                fresh = u32(known_values.UNWRITTEN)
                if some != 0:
                    fresh = known_values.UNWRITTEN_PART
                note_unwritten(w, lane, at + u64(c * bytes), bytes, fresh, site)


@native
def lanes_read_unwritten(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, count: u32, out: ptr_to(u32), site: u32
) -> None:
    """Check the elements that lanes load; `out` as in values.py for other memory."""
    if mask == 0 or base != 0 or w.cta.fault != 0:
        return
    watched = cast_ptr(WatchedLaunch, of_launch(w.cta.cluster).values)
    if u64(watched) == 0:
        return
    if watched.atomics[site] == COMBINES:  # the atomic operation itself is reported
        return
    a = load(U64, at)
    whole = bytes * count
    left = mask
    found = stretch_of(w, at[trailing_zeros(mask)], site)
    if u64(found) != 0 and (whole & 3) == 0:
        if found.size >= u64(whole):
            offsets = a - found.start
            inside = mask_bits(offsets <= (found.size - u64(whole))) & mask
            doubt = u32(0)
            for c in range(whole >> 2):
                words = gather(U32, elements_at(found.marks + 4 * c, offsets), bits_mask(inside))
                doubt = doubt | (mask_bits((words & ALL_WRITTEN) != ALL_WRITTEN) & inside)
            left = (left & ~inside) | doubt
    while left != 0:  # the lowest lane last: what is noted then stays
        one = u32(1)
        lane = (LANES - 1) - leading_zeros(left)
        left = left & ~(one << lane)
        stretch = stretch_of(w, at[lane], site)
        if u64(stretch) != 0:
            offset = at[lane] - stretch.start
            if stretch.size - offset >= u64(whole):
                lane_read(w, lane, at[lane], cast_ptr(u8, stretch.marks + offset), bytes, count, out, site)


# asynchronous operations ----------------------------------------------------------------------------------------------
@native
def values_of_transfer(t: ptr_to(Transfer), moves: u32) -> None:
    """Note that a transfer begins or ends to move its bytes, and what it completes."""
    s = known_values.known(cast_ptr(Warp, t.warp).cta.cluster)
    s.moving = moves * (1 + t.completes)


@native
def one_accessed(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Handle a write of one lane, or a transfer's read of shared memory."""
    slot = at >> SLOT_SHIFT
    if slot != SLOT_SHARED and slot != SLOT_LOCAL:
        one_marks(w, lane, at, bytes, access, site)
        return
    if u64(known_values.value_state_at(w, lane, at)) == 0:
        return
    s = known_values.known(w.cta.cluster)
    if (access & known_values.MARKS) == int(Access.WRITE):
        fill_bytes(known_values.value_state_at(w, lane, at), known_values.WRITTEN, bytes)
    elif access == _ASYNC_READ and s.moving != 0:
        state = known_values.value_state_at(w, lane, at)
        one = u32(1)
        begin = u32(0)
        while begin < bytes:
            size = minimum(bytes - begin, 4)
            if known_values.nothing_written_at(state + begin, size):
                source = stack(known_values.Source)
                known_values.take_source(w, lane, at + u64(begin), size, state + begin, site, source)
                if (state[begin] & known_values.BROUGHT) != 0:
                    if s.moving == _STORES:
                        known_values.tell_unwritten(w, UNDEFINED_STORE, site, one << lane, source)
                        return
                    if s.moving == _PRODUCT:
                        known_values.tell_undefined(w, UNDEFINED_OPERAND, site, one << lane, source)
                else:
                    source.site = 0
                    if (state[begin] & known_values.UNDEFINED) == 0:
                        known_values.undefined_until_end(w, UNDEFINED_COPY, one << lane, site, one, source)
                    else:
                        known_values.tell_undefined(w, UNDEFINED_COPY, site, one << lane, source)
                    return
            begin = begin + 4


@native
def one_lost(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64) -> None:
    """Mark bytes that have no value any more."""
    slot = at >> SLOT_SHIFT
    if slot != SLOT_SHARED and slot != SLOT_LOCAL:
        if u64(of_launch(w.cta.cluster).values) == 0:
            return
        found = stretch_of(w, at, 0)
        if u64(found) != 0:
            fill_bytes(found.marks + (at - found.start), 0, minimum(bytes, found.size - (at - found.start)))
    elif bytes != 0:
        fill_bytes(known_values.value_state_at(w, lane, at), known_values.UNDEFINED, bytes)
        s = known_values.known(w.cta.cluster)
        s.epoch = s.epoch + 1


# copies from device memory --------------------------------------------------------------------------------------------
@native
def origin_noted(w: ptr_to(Warp), lane: u32, source: u64, target: u64, site: u32) -> None:
    """Record where a byte without a value came from, for the bytes around it."""
    s = known_values.known(w.cta.cluster)
    unit = target >> known_values.UNIT_BITS
    o = s.origins + (unit & (known_values.ORIGINS - 1))
    o.unit = unit
    o.away = source - target
    o.site = site + 1
    o.cta = w.cta.linear
    o.warp = w.index
    o.lane = lane


@native
def one_brought(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32, site: u32) -> None:
    """Mark bytes of shared memory that a copy brings from unwritten device memory."""
    state = cast_ptr(u8, known_values.value_state_at(w, lane, target))
    marks = null(u8)
    none = u8(0)
    if source >> SLOT_SHIFT == SLOT_SHARED:
        marks = cast_ptr(u8, known_values.value_state_at(w, lane, source))
        none = known_values.BROUGHT
    elif u64(of_launch(w.cta.cluster).values) != 0:
        found = stretch_of(w, source, site)
        if u64(found) != 0:
            marks = found.marks + (source - found.start)
    if u64(marks) == 0 or u64(state) == 0:
        return
    s = known_values.known(w.cta.cluster)
    last = ~u64(0)
    for n in range(bytes):
        if marks[n] == none:
            state[n] = known_values.BROUGHT
            at = target + u64(n)
            if at >> known_values.UNIT_BITS != last:
                last = at >> known_values.UNIT_BITS
                origin_noted(w, lane, source + u64(n), at, site)
                s.epoch = s.epoch + 1


@native
def row_brought(t: ptr_to(Transfer), rank: u32, at: u64, source: u64) -> None:
    """Mark such bytes of a row of a box."""
    w = cast_ptr(Warp, t.warp)
    if u64(of_launch(w.cta.cluster).values) == 0:
        return
    box = payload_of(t, PayloadShape.BOX)
    base = (u64(rank) << RANK_SHIFT) + (SHARED + SHARED_BASE)
    whole = select(in_chunks(box, at), u64(CHUNK), u64(box.unit))
    i = u64(box.low)
    while i < u64(box.high):
        n = minimum(whole - i % whole, u64(box.high) - i)
        one_brought(w, t.lane, source + i, base + place_in_row(box, at, i), u32(n), t.site)
        i = i + n


@native
def lanes_brought(
    w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Mark such bytes of a cp.async."""
    if u64(of_launch(w.cta.cluster).values) == 0 or w.cta.fault != 0:
        return
    for lane in bits_of(mask):
        one_brought(w, lane, source[lane], target[lane] | SHARED, minimum(valid[lane], bytes), site)


HOOKS: Mapping[str, Native] = {
    "accessed": lanes_mark, "accessed_one": one_accessed, "bytes_read": lanes_read_unwritten, "left_undetermined": one_lost,
    "transfer_moves": values_of_transfer, "bytes_moved": one_brought, "row_moved": row_brought, "lanes_moved": lanes_brought,
}
