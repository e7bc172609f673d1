"""Values of memory that asynchronous operations read, write and move (values.py).

Bytes of device memory that nobody has written (unwritten.py) have no value where a copy brings them either. Their use is then a
finding about the copy and the memory, as if it had loaded them itself: of each 16 bytes it is known where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import cast_ptr, fill_bytes, minimum, null, select, stack, trailing_zeros
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.native.asynchrony.payloads import payload_of
from mmulator.native.asynchrony.tensor import CHUNK, in_chunks, place_in_row
from mmulator.native.hooks.events import PROXY_SHIFT, Access, PayloadShape, Proxy
from mmulator.native.memory.windows import SHARED
from mmulator.native.state import Completes, Transfer, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.rules.values import UNDEFINED_COPY, UNDEFINED_OPERAND, UNDEFINED_STORE
from mmulator.sanitizer.checks.unwritten import stretch_of
from mmulator.sanitizer.checks.values import (
    BROUGHT,
    MARKS,
    ORIGINS,
    UNDEFINED,
    UNIT_BITS,
    WRITTEN,
    Source,
    known,
    nothing_written_at,
    take_source,
    tell_undefined,
    tell_unwritten,
    undefined_until_end,
    value_state_at,
)
from mmulator.sanitizer.found import of_launch

_ASYNC_READ = int(Access.READ) | Proxy.ASYNC << PROXY_SHIFT
_STORES, _PRODUCT = 1 + Completes.GROUP, 1 + Completes.PIPE  # of `moving`
_UNIT = 1 << UNIT_BITS


@native
def values_of_transfer(t: ptr_to(Transfer), moves: u32) -> None:
    """Note that a transfer begins or ends to move its bytes, and what it completes."""
    s = known(cast_ptr(Warp, t.warp).cta.cluster)
    s.moving = moves * (1 + t.completes)


@native
def one_wrote(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Handle a write of one lane, or a transfer's read for global memory."""
    slot = at >> SLOT_SHIFT
    if (slot != SLOT_SHARED and slot != SLOT_LOCAL) or u64(value_state_at(w, lane, at)) == 0:
        return
    s = known(w.cta.cluster)
    if (access & MARKS) == int(Access.WRITE):
        fill_bytes(value_state_at(w, lane, at), WRITTEN, bytes)
    elif access == _ASYNC_READ and s.moving != 0:
        state = value_state_at(w, lane, at)
        one = u32(1)
        begin = u32(0)
        while begin < bytes:
            size = minimum(bytes - begin, 4)
            if nothing_written_at(state + begin, size):
                source = stack(Source)
                take_source(w, lane, at + u64(begin), size, state + begin, site, source)
                if (state[begin] & BROUGHT) != 0:
                    if s.moving == _STORES:
                        tell_unwritten(w, UNDEFINED_STORE.number, site, one << lane, source)
                        return
                    if s.moving == _PRODUCT:
                        tell_undefined(w, UNDEFINED_OPERAND.number, site, one << lane, source)
                else:
                    source.site = 0
                    if (state[begin] & UNDEFINED) == 0:
                        undefined_until_end(w, UNDEFINED_COPY.number, one << lane, site, one, source)
                    else:
                        tell_undefined(w, UNDEFINED_COPY.number, site, one << lane, source)
                    return
            begin = begin + 4


@native
def one_lost(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64) -> None:
    """Mark bytes that a transfer has written with an unknown value."""
    if bytes != 0:
        fill_bytes(value_state_at(w, lane, at), UNDEFINED, bytes)
        s = known(w.cta.cluster)
        s.epoch = s.epoch + 1


# copies from device memory --------------------------------------------------------------------------------------------
@native
def origin_noted(w: ptr_to(Warp), lane: u32, source: u64, target: u64, site: u32) -> None:
    """Record where a byte without a value came from, for the bytes around it."""
    s = known(w.cta.cluster)
    unit = target >> UNIT_BITS
    o = s.origins + (unit & (ORIGINS - 1))
    o.unit = unit
    o.away = source - target
    o.site = site + 1
    o.cta = w.cta.linear
    o.warp = w.index
    o.lane = lane


@native
def one_brought(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32, site: u32) -> None:
    """Mark bytes of shared memory that a copy brings from device memory where nobody has written them."""
    state = cast_ptr(u8, value_state_at(w, lane, target))
    marks = null(u8)
    none = u8(0)
    if source >> SLOT_SHIFT == SLOT_SHARED:
        marks = cast_ptr(u8, value_state_at(w, lane, source))
        none = BROUGHT
    elif u64(of_launch(w.cta.cluster).values) != 0:
        found = stretch_of(w, source, site)
        if u64(found) != 0:
            marks = found.marks + (source - found.start)
    if u64(marks) == 0 or u64(state) == 0:
        return
    s = known(w.cta.cluster)
    last = ~u64(0)
    for n in range(bytes):
        if marks[n] == none:
            state[n] = BROUGHT
            at = target + u64(n)
            if at >> UNIT_BITS != last:
                last = at >> UNIT_BITS
                origin_noted(w, lane, source + u64(n), at, site)
                s.epoch = s.epoch + 1


@native
def row_brought(t: ptr_to(Transfer), rank: u32, at: u64, source: u64) -> None:
    """The same for a row of a box."""
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
    """The same for cp.async."""
    if u64(of_launch(w.cta.cluster).values) == 0 or w.cta.fault != 0:
        return
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        one_brought(w, lane, source[lane], target[lane] | SHARED, minimum(valid[lane], bytes), site)


HOOKS: Mapping[str, Native] = {
    "accessed_one": one_wrote, "left_undetermined": one_lost, "transfer_moves": values_of_transfer, "bytes_moved": one_brought,
    "row_moved": row_brought, "lanes_moved": lanes_brought,
}
