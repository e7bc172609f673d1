"""st.async and red.async: stores and reductions of a few words that are carried out later (PTX ISA 9.1).

Destinations are the shared memory of a CTA of the cluster, whose mbarrier receives the bytes, or global memory, without a
signal. Addresses are checked at issue, and the values are those at issue.
"""

from functools import cache

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes
from mmulator.base.codegen.types import ptr_to, u8, u32, u64
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.bulk import barrier_beside
from mmulator.runtime.native.asynchrony.transfers import heard_at, new_transfer, payload_of, start
from mmulator.runtime.native.hooks.events import BOTH, WRITE, PayloadShape, Proxy, accessed_one, by, transfer_filled
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.combine import reduce_function
from mmulator.runtime.native.memory.locate import hold_shared
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, hold
from mmulator.runtime.native.state import Completes, FaultKind, Transfer, Warp

WRITES, COMBINES = by(WRITE, Proxy.ASYNC), by(BOTH, Proxy.ASYNC)


@native
def move_words(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Carry out a store."""
    words = payload_of(t, PayloadShape.WORDS)
    accessed_one(w, t.lane, words.to, u32(words.bytes), WRITES, t.site)
    copy_bytes(t.target, cast_ptr(u8, words.value), words.bytes)
    return words.bytes


@cache
def move_into(op: str, kind: str, shared: bool) -> Native:
    """A function that carries out a reduction of one element."""
    combine = reduce_function(op, kind, shared)

    def move(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
        words = payload_of(t, PayloadShape.WORDS)
        accessed_one(w, t.lane, words.to, u32(words.bytes), COMBINES, t.site)
        combine(t.target, cast_ptr(u8, words.value), u64(1))
        return words.bytes

    return Native(move, f"move_into_{combine.name}")


@cache
def issue_function(kind: str, count: int) -> Native:
    """A function by which each lane issues a transfer of `count` elements: lane l of element c is values[32 * c + l]."""
    size = type_bits(kind) // 8

    def issue(
        w: ptr_to(Warp), lane: u32, mover: u32, to: u64, target: ptr_to(u8), values: ptr_to(u64), site: u32
    ) -> ptr_to(Transfer):
        t = new_transfer(w, lane, mover, site)
        t.completes = u32(Completes.GROUP)
        t.units = u32(1)
        t.target = target
        words = payload_of(t, PayloadShape.WORDS)
        words.to = to
        words.bytes = u64(size * count)
        for c in range(u32(count)):
            copy_bytes(cast_ptr(u8, words.value) + u64(c) * size, cast_ptr(u8, values + (lane + 32 * c)), u64(size))
        return t

    return Native(issue, f"issue_{kind}x{count}")


@cache
def to_shared(kind: str, count: int, generic: bool) -> Native:
    """A function by which each lane writes to shared memory, and an mbarrier of the same CTA receives the bytes.

    to, barriers: addresses of the shared window, or generic ones.
    """
    bytes, new = type_bits(kind) // 8 * count, issue_function(kind, count)

    def store(
        w: ptr_to(Warp), mask: u32, to: ptr_to(u64), barriers: ptr_to(u64), values: ptr_to(u64), mover: u32, site: u32
    ) -> None:
        for lane in bits_of(mask):
            at = to[lane]
            barrier = barriers[lane]
            if generic:
                if (at >> SLOT_SHIFT) != SLOT_SHARED:
                    fault(w, FaultKind.NOT_SHARED, site, lane, at, u32(bytes))
                if (barrier >> SLOT_SHIFT) != SLOT_SHARED:
                    fault(w, FaultKind.NOT_SHARED, site, lane, barrier, u32(8))
                at = at & OFFSET_MASK
                barrier = barrier & OFFSET_MASK
            if (at & (bytes - 1)) != 0:
                fault(w, FaultKind.MISALIGNED, site, lane, at, u32(bytes))
            target = hold_shared(w, lane, at, u64(bytes), site)
            reached = barrier_beside(w, lane, at, barrier, site)
            if w.cta.fault == 0:
                t = new(w, lane, mover, at | SHARED, target, values, site)
                heard_at(t, barrier, reached)
                transfer_filled(t, u32(PayloadShape.WORDS))
                start(t)

    return Native(store, f"async_{kind}x{count}{'_generic' if generic else ''}")


@cache
def to_global(kind: str, access: int) -> Native:
    """A function for a store or reduction to global memory, which signals no mbarrier."""
    bytes, new = type_bits(kind) // 8, issue_function(kind, 1)

    def store(w: ptr_to(Warp), mask: u32, to: ptr_to(u64), values: ptr_to(u64), mover: u32, site: u32) -> None:
        for lane in bits_of(mask):
            at = to[lane]
            if (at & (bytes - 1)) != 0:
                fault(w, FaultKind.MISALIGNED, site, lane, at, u32(bytes))
            target = hold(w, lane, at, u64(bytes), access, site)
            if w.cta.fault == 0:
                start(new(w, lane, mover, at, target, values, site))

    return Native(store, f"async_global_{kind}_{access}")
