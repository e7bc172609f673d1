"""Bulk copies and reductions (PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk, cp.reduce.async.bulk).

Each lane issues its own operation. Addresses and sizes are checked at issue; bytes move when the transfer is carried out, in
pieces.
"""

from functools import cache

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, copy_bytes, fill_bytes, maximum, minimum, null, trailing_zeros
from mmulator.base.codegen.types import ptr, ptr_to, u8, u32, u64
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.asynchrony.mbarrier import ALIGNMENT, must_be_mbarrier
from mmulator.runtime.native.asynchrony.transfers import heard_at, new_transfer, payload_of, start
from mmulator.runtime.native.hooks.events import (
    BOTH,
    READ,
    WRITE,
    PayloadShape,
    Proxy,
    accessed_one,
    by,
    left_undetermined,
    transfer_filled,
)
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.moves import bytes_moved
from mmulator.runtime.native.memory.combine import reduce_function
from mmulator.runtime.native.memory.locate import hold_shared, one_cta
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, WITHIN, hold, other_cta, shared_of, window_of
from mmulator.runtime.native.state import Completes, FaultKind, Transfer, TransferKind, Warp

UNIT = 16  # bytes that addresses and sizes are multiples of
PIECE = 512  # bytes of a unit of a transfer
MOST_IGNORED = 15
ALL = (1 << UNIT) - 1
READS, WRITES, COMBINES = by(READ, Proxy.ASYNC), by(WRITE, Proxy.ASYNC), by(BOTH, Proxy.ASYNC)


# doing --------------------------------------------------------------------------------------------------------------
@native(inline=True)
def piece(t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Number of bytes of some units of a transfer."""
    return minimum(u64(end) * PIECE, payload_of(t, PayloadShape.PLAIN).bytes) - u64(first) * PIECE


@native
def bytes_in(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Copy some pieces to the shared memory of CTAs."""
    copy = payload_of(t, PayloadShape.PLAIN)
    begin = u64(first) * PIECE
    bytes = piece(t, first, end)
    accessed_one(w, t.lane, copy.from_ + begin, u32(bytes), READS, t.site)
    for rank in bits_of(t.barriers):
        at = (copy.to & WITHIN) + begin
        accessed_one(w, t.lane, at | (u64(rank) << RANK_SHIFT) | SHARED, u32(bytes), WRITES, t.site)
        bytes_moved(w, t.lane, copy.from_ + begin, at | (u64(rank) << RANK_SHIFT) | SHARED, u32(bytes), t.site)
        copy_bytes(shared_of(w.cta.cluster, rank) + (at - SHARED_BASE), t.source + begin, bytes)
    return bytes


@native
def bytes_in_between(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Copy some pieces of a copy that ignores bytes at its ends. The content of ignored bytes is undefined: 0xff if there is no
    memory.
    """
    copy = payload_of(t, PayloadShape.PLAIN)
    begin = u64(first) * PIECE
    bytes = piece(t, first, end)
    low = maximum(begin, copy.begin)
    high = minimum(begin + bytes, copy.bytes - copy.end)
    if low >= high:
        high = low
    else:
        accessed_one(w, t.lane, copy.from_ + low, u32(high - low), READS, t.site)
    at = copy.to & WITHIN
    shared = (copy.to & ~u64(WITHIN)) | SHARED
    target = shared_of(w.cta.cluster, u32((copy.to & OFFSET_MASK) >> RANK_SHIFT)) + (at - SHARED_BASE)
    accessed_one(w, t.lane, shared | (at + begin), u32(bytes), WRITES, t.site)
    bytes_moved(w, t.lane, copy.from_ + low, shared | (at + low), u32(high - low), t.site)
    if copy.whole != 0:
        copy_bytes(target + begin, t.source + begin, bytes)
    else:
        fill_bytes(target + begin, 0xFF, bytes)
        copy_bytes(target + low, t.source + low, high - low)
    left_undetermined(w, t.lane, shared | (at + begin), low - begin)
    left_undetermined(w, t.lane, shared | (at + high), begin + bytes - high)
    return bytes


@native
def bytes_out(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Copy some pieces to global memory."""
    copy = payload_of(t, PayloadShape.PLAIN)
    begin = u64(first) * PIECE
    bytes = piece(t, first, end)
    kept = u32(copy.kept)
    accessed_one(w, t.lane, copy.from_ + begin, u32(bytes), READS, t.site)
    if kept == ALL:
        accessed_one(w, t.lane, copy.to + begin, u32(bytes), WRITES, t.site)
        copy_bytes(t.target + begin, t.source + begin, bytes)
        return bytes
    i = u64(0)
    while i < bytes:
        if ((kept >> (u32(i) & (UNIT - 1))) & 1) != 0:
            accessed_one(w, t.lane, copy.to + begin + i, u32(1), WRITES, t.site)
            t.target[begin + i] = t.source[begin + i]
        i = i + 1
    return bytes


@cache
def move_reduction(op: str, kind: str, shared: bool) -> Native:
    """A function for some pieces of a reduction of elements of a type."""
    combine, size = reduce_function(op, kind, shared), type_bits(kind) // 8

    def move(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
        copy = payload_of(t, PayloadShape.PLAIN)
        begin = u64(first) * PIECE
        bytes = piece(t, first, end)
        accessed_one(w, t.lane, copy.from_ + begin, u32(bytes), READS, t.site)
        accessed_one(w, t.lane, copy.to + begin, u32(bytes), COMBINES, t.site)
        combine(t.target + begin, t.source + begin, bytes // size)
        return bytes

    return Native(move, f"move_{combine.name}")


# checks -------------------------------------------------------------------------------------------------------------
@native
def check(w: ptr_to(Warp), lane: u32, to: u64, at: u64, bytes: u32, site: u32) -> None:
    """Record a fault unless addresses and size are multiples of 16."""
    if (at & (UNIT - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, at, UNIT)
    if (to & (UNIT - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, to, UNIT)
    if (bytes & (UNIT - 1)) != 0:
        fault(w, FaultKind.BULK_SIZE, site, lane, at, bytes)


@native
def hold_own(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, site: u32) -> ptr:
    """`hold_shared` for an address of .shared::cta."""
    if at <= OFFSET_MASK and other_cta(w, at):
        fault(w, FaultKind.OTHER_CTA, site, lane, at, u32(bytes))
        return null(u8)
    return hold_shared(w, lane, at, bytes, site)


@native
def hold_barrier(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> ptr:
    """Host address of the mbarrier at an address of the shared window; null, with a fault, if there is none."""
    if (at & (ALIGNMENT - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, at, ALIGNMENT)
    barrier = hold_shared(w, lane, at, ALIGNMENT, site)
    if u64(barrier) != 0:
        must_be_mbarrier(w, lane, u64(barrier), site)
    return barrier


@native
def targets(w: ptr_to(Warp), lane: u32, to: u64, bytes: u64, barrier: u64, ranks: u32, site: u32) -> None:
    """Check that all CTAs of a multicast have shared memory, and an mbarrier, at these places.

    w, lane, site: the lane and instruction.
    to, bytes: the destination.
    barrier: the mbarrier.
    ranks: mask of the CTAs.
    """
    left = ranks
    while left != 0:
        rank = u64(trailing_zeros(left)) << RANK_SHIFT
        left = left & (left - 1)
        hold_shared(w, lane, (to & WITHIN) | rank, bytes, site)
        hold_barrier(w, lane, (barrier & WITHIN) | rank, site)


@native
def need_cluster(w: ptr_to(Warp), lane: u32, to: u64, site: u32) -> None:
    """Record a fault for a copy from shared memory to that of a CTA of the cluster in a launch without clusters, where an H200
    traps.
    """
    if w.cta.launch.explicit == 0:
        fault(w, FaultKind.NO_CLUSTER, site, lane, to, 0)


@native
def barrier_beside(w: ptr_to(Warp), lane: u32, to: u64, barrier: u64, site: u32) -> u32:
    """Mask of the CTA of the destination, whose shared memory must hold the mbarrier; 0, with a fault, if it does not."""
    host = hold_barrier(w, lane, barrier, site)
    only = one_cta(w, lane, to, site)
    if (to >> RANK_SHIFT) != (barrier >> RANK_SHIFT):
        fault(w, FaultKind.MBARRIER_ELSEWHERE, site, lane, u64(host), u32(to >> RANK_SHIFT))
    return only


# issue --------------------------------------------------------------------------------------------------------------
@native
def fill(t: ptr_to(Transfer), to: u64, at: u64, bytes: u32, source: ptr) -> None:
    """Fill in the fields that all transfers have."""
    t.units = (bytes + (PIECE - 1)) // PIECE
    t.source = source
    copy = payload_of(t, PayloadShape.PLAIN)
    copy.to = to
    copy.from_ = at
    copy.bytes = u64(bytes)
    copy.begin = 0
    copy.end = 0


@cache
def load_function(to_space: str, from_space: str, multicast: bool) -> Native:
    """A function for cp.async.bulk to shared memory: each lane copies, and the mbarrier at barriers[lane] receives the bytes;
    for a multicast those at its place in each CTA of ranks[lane].

    to, barriers: addresses of the shared window. at: of global memory, or of shared memory of this CTA.
    """
    own = to_space == "shared::cta"
    from_global = from_space == "global"

    def load(
        w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), sizes: ptr_to(u32), barriers: ptr_to(u64),
        ranks: ptr_to(u32), site: u32,
    ) -> None:  # fmt: skip
        for lane in bits_of(mask):
            bytes = sizes[lane]
            check(w, lane, to[lane], at[lane], bytes, site)
            source = null(u8)
            if from_global:
                source = hold(w, lane, at[lane], u64(bytes), READ, site)
            else:
                need_cluster(w, lane, to[lane], site)
                source = hold_own(w, lane, at[lane], u64(bytes), site)
            if own:
                hold_own(w, lane, to[lane], u64(bytes), site)
            else:
                hold_shared(w, lane, to[lane], u64(bytes), site)
            reached = u32(0)
            if multicast:
                reached = ranks[lane]
                targets(w, lane, to[lane], u64(bytes), barriers[lane], reached, site)
            else:
                reached = barrier_beside(w, lane, to[lane], barriers[lane], site)
            if w.cta.fault == 0:
                t = new_transfer(w, lane, u32(TransferKind.BULK_LOAD), site)
                heard_at(t, barriers[lane], reached)
                if from_global:
                    fill(t, to[lane], at[lane], bytes, source)
                else:
                    fill(t, to[lane], at[lane] | SHARED, bytes, source)
                if reached == 0:
                    t.units = u32(0)
                transfer_filled(t, u32(PayloadShape.PLAIN))
                start(t)

    return Native(load, f"bulk_load_{'cta' if own else 'cluster'}_{from_space[:6]}{'_multicast' if multicast else ''}")


@native
def load_between(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), sizes: ptr_to(u32), barriers: ptr_to(u64), lefts: ptr_to(u32),
    rights: ptr_to(u32), kind: u32, site: u32,
) -> None:
    """Issue cp.async.bulk.ignore_oob, from global memory to that of this CTA.

    w, mask, site: the warp, lanes and instruction.
    to, at: destination and source of each lane.
    sizes: bytes of each lane.
    barriers: mbarrier of each lane.
    lefts, rights: bytes of each lane at begin and end that may lie outside all memory.
    kind: number of the mover.
    """
    for lane in bits_of(mask):
        bytes = u64(sizes[lane])
        low = u64(lefts[lane])
        high = u64(rights[lane])
        check(w, lane, to[lane], at[lane], sizes[lane], site)
        if low > MOST_IGNORED or high > MOST_IGNORED:
            fault(w, FaultKind.BULK_IGNORED, site, lane, at[lane], u32(maximum(low, high)))
        begin = minimum(low, bytes)
        between = bytes - begin - minimum(high, bytes - begin)
        source = hold(w, lane, at[lane] + begin, between, READ, site) + (0 - begin)
        hold_own(w, lane, to[lane], bytes, site)
        barrier_beside(w, lane, to[lane], barriers[lane], site)
        if w.cta.fault == 0:
            window = window_of(w.cta, at[lane] + begin, site)
            t = new_transfer(w, lane, kind, site)
            heard_at(t, barriers[lane], 1 << (u32(to[lane] >> RANK_SHIFT) & 31))
            fill(t, to[lane], at[lane], sizes[lane], source)
            copy = payload_of(t, PayloadShape.PLAIN)
            copy.begin = begin
            copy.end = bytes - begin - between
            offset = at[lane] - window.start
            copy.whole = u64(offset <= window.size and bytes <= window.size and offset <= window.size - bytes)
            transfer_filled(t, u32(PayloadShape.PLAIN))
            start(t)


@native
def store_to_global(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), sizes: ptr_to(u32), kept: ptr_to(u32), kind: u32, site: u32
) -> None:
    """Issue cp.async.bulk and cp.reduce.async.bulk from shared to global memory, in the lanes' bulk async-groups.

    w, mask, site: the warp, lanes and instruction.
    to, at: destination and source of each lane.
    sizes: bytes of each lane.
    kept: which bytes of each 16 are copied.
    kind: number of the mover.
    """
    for lane in bits_of(mask):
        bytes = sizes[lane]
        check(w, lane, to[lane], at[lane], bytes, site)
        source = hold_own(w, lane, at[lane], u64(bytes), site)
        target = hold(w, lane, to[lane], u64(bytes), WRITE, site)
        if w.cta.fault == 0:
            t = new_transfer(w, lane, kind, site)
            t.completes = Completes.GROUP
            fill(t, to[lane], at[lane] | SHARED, bytes, source)
            t.source_bytes = u64(bytes)
            t.target = target
            payload_of(t, PayloadShape.PLAIN).kept = u64(kept[lane])
            transfer_filled(t, u32(PayloadShape.PLAIN))
            start(t)


@native
def reduce_to_shared(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), sizes: ptr_to(u32), barriers: ptr_to(u64), kind: u32, site: u32
) -> None:
    """Issue cp.reduce.async.bulk into the shared memory of a CTA of the cluster, whose mbarrier receives the bytes."""
    for lane in bits_of(mask):
        bytes = sizes[lane]
        need_cluster(w, lane, to[lane], site)
        check(w, lane, to[lane], at[lane], bytes, site)
        source = hold_own(w, lane, at[lane], u64(bytes), site)
        target = hold_shared(w, lane, to[lane], u64(bytes), site)
        reached = barrier_beside(w, lane, to[lane], barriers[lane], site)
        if w.cta.fault == 0:
            t = new_transfer(w, lane, kind, site)
            heard_at(t, barriers[lane], reached)
            fill(t, to[lane] | SHARED, at[lane] | SHARED, bytes, source)
            t.target = target
            transfer_filled(t, u32(PayloadShape.PLAIN))
            start(t)


# at once ------------------------------------------------------------------------------------------------------------
@native
def prefetch(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), sizes: ptr_to(u32), site: u32) -> None:
    """Check cp.async.bulk.prefetch.L2: illegal operands are a fault; any memory is allowed, and nothing moves."""
    for lane in bits_of(mask):
        if w.cta.fault == 0:
            check(w, lane, 0, at[lane], sizes[lane], site)


@native
def clear(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), sizes: ptr_to(u64), site: u32) -> None:
    """Execute st.bulk: zeros in the CTA's shared memory, at addresses of the shared window."""
    for lane in bits_of(mask):
        bytes = sizes[lane]
        if ((at[lane] | bytes) & 7) != 0:
            fault(w, FaultKind.MISALIGNED, site, lane, at[lane], 8)
        target = hold_own(w, lane, at[lane], bytes, site)
        if w.cta.fault == 0:
            accessed_one(w, lane, at[lane] | SHARED, u32(bytes), WRITE, site)
            fill_bytes(target, 0, bytes)


@native
def from_generic(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), sizes: ptr_to(u64), site: u32) -> None:
    """Execute st.bulk at generic addresses, which must be in shared memory."""
    for lane in bits_of(mask):
        if (at[lane] & ~u64(OFFSET_MASK)) != SHARED:
            fault(w, FaultKind.NOT_SHARED, site, lane, at[lane], u32(sizes[lane]))
        at[lane] = at[lane] & OFFSET_MASK
    clear(w, mask, at, sizes, site)
