"""Rules of registers and bytes that have not been written (base/rules/values.py).

Each byte of shared memory, and of each lane's local memory, has a byte of state; for registers the kernel's own code keeps
masks (compiler/emit/shadow.py). A loaded element has a value if one of its bytes has: single bytes are not tracked. Unwritten
bytes that are read may be written by another thread a little later. This is a race, and reported as such; so shared memory is
checked when the cluster ends, and only bytes that are still unwritten then are findings here.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import (
    all_lanes,
    bits_mask,
    bits_of,
    cast_ptr,
    copy_bytes,
    elements_at,
    fill_bytes,
    gather,
    iota,
    load,
    mask_bits,
    null,
    select,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Struct, boolean, ptr, ptr_to, u8, u32, u64
from mmulator.base.rules import values as rules
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import Access
from mmulator.runtime.native.state import FULL, LANES, Cluster, Warp
from mmulator.sanitizer.state import Found, SanitizedCluster, find, find_against, say

U64, U32 = u64.vec(32), u32.vec(32)
# Of a byte: not written, written, written with an undefined value, brought from device memory where nobody has written it.
NEVER, WRITTEN, UNDEFINED, BROUGHT = 0, 1, 2, 4
WORD = 0x01010101  # WRITTEN in each byte
_OFFSET, _WITHIN = (1 << SLOT_SHIFT) - 1, (1 << RANK_SHIFT) - 1
MARKS = int(Access.WRITE | Access.ATOMIC)  # an atomic operation keeps some of the old bytes

FRESH, UNWRITTEN, UNWRITTEN_PART = 1, 2, 3
# The last load of a warp that returned an undefined value, or the copy that brought it. site: + 1. fresh: FRESH for unwritten
# shared memory, UNWRITTEN for unwritten device memory, UNWRITTEN_PART if the host has written a part of it (unwritten.py); 0
# otherwise.
Source = Struct("UndefinedSource", [
    ("at", u64), ("site", u32), ("bytes", u32), ("lane", u32), ("fresh", u32), ("cta", u32), ("warp", u32),
])  # fmt: skip
# Where the bytes of a unit of shared memory came from that are BROUGHT (unwritten.py). away: of its source from its address.
Origin = Struct("UndefinedOrigin", [("unit", u64), ("away", u64), ("site", u32), ("cta", u32), ("warp", u32), ("lane", u32)])
ORIGINS, UNIT_BITS = 1024, 4
# A finding, if the bytes are still unwritten when the cluster ends.
Pending = Struct("PendingUndefined", [
    ("w", ptr_to(Warp)), ("source", Source), ("rule", u32), ("site", u32), ("lanes", u32), ("memory", u32),
    ("count", u64),
])  # fmt: skip
ROOM = 256
# An operand of wgmma, by its descriptor and shape, whose bytes are all written, as long as `epoch` does not change.
Sound = Struct("SoundOperand", [("desc", u64), ("shape", u64), ("epoch", u64)])
SOUND = 256
ValuesState = Struct("ValuesState", [
    ("shared", ptr), ("shared_bytes", u64),  # of all CTAs in sequence; bytes of one
    ("local", ptr), ("local_bytes", u64),  # of the lanes
    ("warps", u64), ("sources", ptr_to(Source)), ("missed", ptr_to(u64)),
    ("moving", u32),  # a transfer is being done
    ("met", u32),  # an operand in shared memory has bytes without a value
    ("count", u32), ("pending", Pending, ROOM),
    ("epoch", u64), ("sound", Sound, SOUND),
    ("hints", u32, 32),  # by sites: the watched memory of the last access
    ("origins", Origin, ORIGINS),  # by the low bits of their units
])  # fmt: skip


def known(cluster: Any) -> Any:
    """Macro: the state of this topic for a cluster."""
    return cast_ptr(ValuesState, cast_ptr(SanitizedCluster, cluster.field("sanitizer")).field("values"))


@native(inline=True)
def number_of_warp(w: ptr_to(Warp)) -> u64:
    """Number of a warp in its cluster."""
    return u64(w.cta.rank) * u64(w.cta.launch.warps) + u64(w.index)


@native(inline=True)
def value_state_at(w: ptr_to(Warp), lane: u32, at: u64) -> ptr:
    """The state of the bytes at a generic address; null for memory that always has a value."""
    s = known(w.cta.cluster)
    slot = at >> SLOT_SHIFT
    if slot == SLOT_SHARED and (at & _WITHIN) >= SHARED_BASE:
        return s.shared + (((at & _OFFSET) >> RANK_SHIFT) * s.shared_bytes + ((at & _WITHIN) - SHARED_BASE))
    if slot == SLOT_LOCAL:
        return s.local + ((number_of_warp(w) * LANES + u64(lane)) * s.local_bytes + (at & _OFFSET))
    return null(u8)


@native(inline=True)
def mark_written(state: ptr, bytes: u32) -> None:
    """Mark bytes as written."""
    for size in (4, 2, 1, 8, 16):
        if bytes == size:
            store(u8.vec(size)(u8(WRITTEN)), state, 0, 1)
            return
    fill_bytes(state, WRITTEN, bytes)


@native
def mark_lanes_written(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    """Mark the bytes that lanes have written."""
    a = load(U64, at) | base
    first = a[0]
    if mask == FULL and first >> SLOT_SHIFT == SLOT_SHARED and (first & _WITHIN) >= SHARED_BASE:
        if all_lanes((a - first) == U64(bytes) * iota(U64)):
            fill_bytes(value_state_at(w, 0, first), WRITTEN, bytes * LANES)
            return
    s = known(w.cta.cluster)
    own = (a & _OFFSET) - w.cta.shared_base
    near = (mask_bits((a >> SLOT_SHIFT == SLOT_SHARED) & (own < s.shared_bytes)) & mask) == mask  # in the CTA's own memory
    first_state = s.shared + (u64(w.cta.rank) * s.shared_bytes - w.cta.shared_base)
    for lane in bits_of(mask):
        state = first_state + ((at[lane] | base) & _OFFSET)
        if not near:
            state = value_state_at(w, lane, at[lane] | base)
        if u64(state) != 0:
            mark_written(state, bytes)


@native
def lanes_wrote(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Handle a write of lanes."""
    if (access & MARKS) != int(Access.WRITE):
        return
    slot = (at[trailing_zeros(mask)] | base) >> SLOT_SHIFT
    if slot == SLOT_SHARED or slot == SLOT_LOCAL:
        mark_lanes_written(w, mask, at, base, bytes)
    elif base == 0:
        slots = load(U64, at) >> SLOT_SHIFT
        if (mask_bits((slots == SLOT_SHARED) | (slots == SLOT_LOCAL)) & mask) != 0:
            mark_lanes_written(w, mask, at, base, bytes)


@native
def lanes_wrote_anew(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    """Mark bytes that atomic operations have overwritten completely."""
    if w.cta.fault == 0:
        mark_lanes_written(w, mask, at, base, bytes)


# uses ---------------------------------------------------------------------------------------------------------------
@native
def undefined_until_end(w: ptr_to(Warp), rule: u32, lanes: u32, site: u32, memory: u32, source: ptr_to(Source)) -> None:
    """Record a finding that counts only if its bytes are still unwritten at the cluster's end. memory: as in
    `use_undefined`.
    """
    s = known(w.cta.cluster)
    for n in range(s.count):
        entry = s.pending + n
        if entry.rule == rule and entry.site == site and entry.source.site == source.site:
            entry.count = entry.count + 1
            return
    if s.count == ROOM:
        return
    entry = s.pending + s.count
    s.count = s.count + 1
    entry.w = w
    entry.source.at = source.at
    entry.source.site = source.site
    entry.source.bytes = source.bytes
    entry.source.lane = source.lane
    entry.source.cta = source.cta
    entry.source.warp = source.warp
    entry.rule = rule
    entry.site = site
    entry.lanes = lanes
    entry.memory = memory
    entry.count = 1


@native
def tell_undefined(w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, source: ptr_to(Source)) -> ptr_to(Found):
    """Report a finding about a loaded value."""
    one = u32(1)
    return find_against(w, rule, site, lanes, source.at, source.bytes, source.site, source.cta, source.warp, one << source.lane)


@native
def tell_unwritten(w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, source: ptr_to(Source)) -> None:
    """Report a finding about a value loaded from device memory. words of the finding: the rule that describes the use."""
    own = u32(rules.UNDEFINED_GLOBAL)
    if source.fresh == UNWRITTEN_PART:
        own = rules.UNDEFINED_PART
    say(tell_undefined(w, own, site, lanes, source), u64(rule), 0, 0, 0)


@native
def use_undefined(w: ptr_to(Warp), lanes: u32, rule: u32, memory: u32, site: u32) -> None:
    """Report that lanes use an undefined value. memory: why: 0: an unwritten register, 1: loaded bytes, 2: one of these, 3:
    `note_missed`; 4 is added where it may be that, too.
    """
    if w.cta.fault != 0:
        return
    source = known(w.cta.cluster).sources + number_of_warp(w)
    if memory == 3 or (memory > 3 and source.site == 0):
        missed = known(w.cta.cluster).missed[number_of_warp(w)]
        if missed != 0:
            entry = find_against(w, u32(missed >> 32), u32(missed) - 1, lanes, 0, 0, site + 1, w.cta.linear, w.index, lanes)
            say(entry, u64(rule), 0, 0, 0)
            return
    kind = memory & 3
    if kind != 0 and source.site != 0:
        if rule == rules.UNDEFINED_KEPT and source.fresh != FRESH:
            find(w, rule, site, lanes, source.at, source.bytes)
            return
        if source.fresh >= UNWRITTEN:
            tell_unwritten(w, rule, site, lanes, source)
            return
        if source.fresh != 0:
            undefined_until_end(w, rule, lanes, site, kind, source)
            return
        if kind == 1:
            tell_undefined(w, rule, site, lanes, source)
            return
    find_against(w, rule, site, lanes, 0, 0, 0, 0, 0, 0)


@native
def note_missed(w: ptr_to(Warp), lanes: u32, rule: u32, site: u32) -> None:
    """Record that an instruction leaves lanes without a value. rule: that the use of one breaks."""
    if lanes != 0:
        known(w.cta.cluster).missed[number_of_warp(w)] = (u64(rule) << 32) | u64(site + 1)


@native(inline=True)
def nothing_written_at(state: ptr_to(u8), bytes: u32) -> boolean:
    """Whether no byte of an element is written."""
    if bytes == 4:
        return (load(u32, state, 0, 1) & WORD) == 0
    found = u8(0)
    for n in range(bytes):
        found = found | state[n]
    return (found & WRITTEN) == 0


@native
def take_source(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, state: ptr_to(u8), site: u32, source: ptr_to(Source)) -> None:
    """Describe bytes without a value that a lane reads: where it reads them, or the copy that brought them and its source."""
    source.at = at
    source.site = site + 1
    source.bytes = bytes
    source.lane = lane
    source.cta = w.cta.linear
    source.warp = w.index
    source.fresh = u32(at >> SLOT_SHIFT == SLOT_SHARED and (state[0] & UNDEFINED) == 0)
    for n in range(bytes):
        if (state[n] & BROUGHT) != 0 and source.fresh != UNWRITTEN:
            source.fresh = UNWRITTEN
            unit = (at + u64(n)) >> UNIT_BITS
            o = known(w.cta.cluster).origins + (unit & (ORIGINS - 1))
            if o.unit == unit and o.site != 0:
                source.at = at + u64(n) + o.away
                source.bytes = bytes - n
                source.site = o.site
                source.lane = o.lane
                source.cta = o.cta
                source.warp = o.warp


@native
def note_undefined(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, state: ptr_to(u8), site: u32) -> None:
    """Record that a lane loads an undefined value."""
    take_source(w, lane, at, bytes, state, site, known(w.cta.cluster).sources + number_of_warp(w))


@native
def lanes_read_written(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, count: u32, out: ptr_to(u32), site: u32
) -> None:
    """Compute the masks of lanes that load defined elements."""
    for c in range(count):
        out[c] = FULL
    if mask == 0 or w.cta.fault != 0:
        return
    a = load(U64, at) | base
    slots = a >> SLOT_SHIFT
    inside = mask & mask_bits((slots == SLOT_SHARED) | (slots == SLOT_LOCAL))
    if inside == 0:
        return
    cluster = w.cta.cluster
    s = known(cluster)
    own = (a & _OFFSET) - w.cta.shared_base
    left = inside
    whole = bytes * count
    if (mask_bits((slots == SLOT_SHARED) & (own < s.shared_bytes)) & inside) == inside and (whole & 3) == 0:
        # most often: all of it in the CTA's own shared memory, and written
        left = u32(0)
        for c in range(whole >> 2):
            first = s.shared + (u64(w.cta.rank) * s.shared_bytes + 4 * u64(c))
            words = gather(U32, elements_at(first, own), bits_mask(inside)) & WORD
            left = left | select(bytes >= 4, mask_bits(words == 0), mask_bits(words != WORD))
        left = left & inside
    while left != 0 and cluster.under_way == 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        place = at[lane] | base
        if has_value_state(w, place, bytes * count):
            state = value_state_at(w, lane, place)
            for c in range(count):
                if nothing_written_at(state + c * bytes, bytes):
                    one = u32(1)
                    out[c] = out[c] & ~(one << lane)
                    note_undefined(w, lane, place + u64(c * bytes), bytes, state + c * bytes, site)


@native(inline=True)
def has_value_state(w: ptr_to(Warp), at: u64, bytes: u32) -> boolean:
    """Whether an address is in existing shared or local memory; otherwise the access faults."""
    s = known(w.cta.cluster)
    slot = at >> SLOT_SHIFT
    offset = at & _OFFSET
    size = s.local_bytes
    if slot == SLOT_SHARED:
        offset = (at & _WITHIN) - SHARED_BASE
        size = s.shared_bytes
        if (at & _OFFSET) >> RANK_SHIFT >= u64(w.cta.cluster.cta_count):
            return False
    elif slot != SLOT_LOCAL:
        return False
    return size >= u64(bytes) and offset <= size - u64(bytes)


@native
def rows_read_written(
    w: ptr_to(Warp), at: ptr_to(u64), base: u64, matrices: u32, trans: u32, out: ptr_to(u32), site: u32
) -> None:
    """Masks of lanes with defined elements for ldmatrix: 8 rows of 16 bytes for each matrix, at addresses of 8 lanes."""
    for m in range(matrices):
        out[m] = FULL
    if w.cta.fault != 0 or w.cta.cluster.under_way != 0:
        return
    for m in range(matrices):
        for r in range(u32(8)):
            place = at[8 * m + r] | base
            if place >> SLOT_SHIFT == SLOT_SHARED and has_value_state(w, place, 16):
                state = value_state_at(w, 0, place)
                for t in range(u32(4)):
                    if nothing_written_at(state + 4 * t, 4):
                        # lane 4 r + t has these two elements; transposed, lanes 8 t + r / 2 and 8 t + 4 + r / 2 have one each
                        lanes = 1 << (4 * r + t)
                        if trans != 0:
                            lanes = 0x11 << (8 * t + (r >> 1))
                        out[m] = out[m] & ~lanes
                        note_undefined(w, 8 * m + r, place + u64(4 * t), 4, state + 4 * t, site)


@native
def lanes_wrote_nothing(
    w: ptr_to(Warp), mask: u32, lanes: u32, at: ptr_to(u64), base: u64, offset: u32, bytes: u32, memory: u32, site: u32
) -> None:
    """Mark bytes to which lanes have stored an undefined value, and report stores to global memory."""
    if w.cta.fault != 0:
        return
    outside = u32(0)
    for lane in bits_of(lanes):
        place = (at[lane] | base) + u64(offset)
        state = value_state_at(w, lane, place)
        if u64(state) == 0:
            one = u32(1)
            outside = outside | (one << lane)
        elif has_value_state(w, place, bytes):
            fill_bytes(state, UNDEFINED, bytes)
            s = known(w.cta.cluster)
            s.epoch = s.epoch + 1
    if outside != 0:
        use_undefined(w, outside, rules.UNDEFINED_STORE, memory, site)
    left = mask & ~lanes
    for lane in bits_of(left):  # of lanes that store to one address the highest wins
        place = (at[lane] | base) + u64(offset)
        below = u32((1 << u64(lane)) - 1) & lanes
        if below != 0 and place >> SLOT_SHIFT == SLOT_SHARED:
            state = value_state_at(w, lane, place)
            if has_value_state(w, place, bytes):
                mark_written(state, bytes)


# beginnings and ends --------------------------------------------------------------------------------------------------
@native
def values_begin(cluster: ptr_to(Cluster)) -> None:
    """Mark all memory of a new cluster as unwritten."""
    s = known(cluster)
    fill_bytes(s.shared, NEVER, s.shared_bytes * u64(cluster.cta_count))
    fill_bytes(s.local, NEVER, s.local_bytes * LANES * s.warps)
    fill_bytes(cast_ptr(u8, s.sources), 0, s.warps * Source.size)
    fill_bytes(cast_ptr(u8, s.missed), 0, s.warps * 8)
    s.count = 0
    s.moving = 0
    s.epoch = s.epoch + 1


@native
def values_end(cluster: ptr_to(Cluster)) -> None:
    """Report uses of bytes that are still unwritten at the cluster's end."""
    s = known(cluster)
    for n in range(s.count):
        entry = s.pending + n
        source = entry.source
        if nothing_written_at(value_state_at(entry.w, source.lane, source.at), source.bytes):
            found = cast_ptr(Found, null(u8))
            if entry.memory == 1:
                found = tell_undefined(entry.w, entry.rule, entry.site, entry.lanes, source)
            else:
                none = u32(0)
                found = find_against(entry.w, entry.rule, entry.site, entry.lanes, 0, none, none, none, none, none)
            if u64(found) != 0:
                found.count = found.count + (entry.count - 1)
    s.count = 0


@native
def values_of_frame(w: ptr_to(Warp), mask: u32, base: ptr_to(u32), begin: u32, end: u32) -> None:
    """Mark the variables of a function as undefined when it begins."""
    s = known(w.cta.cluster)
    for lane in bits_of(mask):
        offset = u64(base[lane]) + u64(begin)
        if offset + u64(end - begin) <= s.local_bytes:
            fill_bytes(s.local + ((number_of_warp(w) * LANES + u64(lane)) * s.local_bytes + offset), NEVER, end - begin)


@native
def values_copied(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32) -> None:
    """Copy the state of bytes with the bytes themselves."""
    base = u64(SLOT_LOCAL << SLOT_SHIFT)
    copy_bytes(value_state_at(w, lane, base | target), value_state_at(w, lane, base | source), bytes)


@native
def out_of_variable(
    w: ptr_to(Warp), lanes: u32, at: ptr_to(u64), base: u64, origin: ptr_to(u64), bytes: u32, size: u32, site: u32
) -> None:
    """Report lanes that access bytes outside a variable. words of the finding: the first lane's offset from it, its bytes."""
    if w.cta.fault != 0:
        return
    lane = trailing_zeros(lanes)
    none = u32(0)
    entry = find_against(w, rules.OUT_OF_VARIABLE, site, lanes, at[lane] | base, bytes, none, none, none, none)
    say(entry, u64(u32(at[lane] - origin[lane])), u64(size), 0, 0)


HOOKS: Mapping[str, Native] = {
    "accessed": lanes_wrote, "bytes_read": lanes_read_written, "rows_read": rows_read_written,
    "bytes_written": lanes_wrote_anew, "undefined_written": lanes_wrote_nothing, "undefined_used": use_undefined,
    "frame_entered": values_of_frame, "cluster_begins": values_begin, "value_missed": note_missed, "cluster_ends": values_end,
    "local_copied": values_copied, "left_variable": out_of_variable,
}
