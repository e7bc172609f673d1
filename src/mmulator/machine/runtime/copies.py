"""cp.async: copies that are checked when they are issued and done later."""

from __future__ import annotations

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import cast_ptr, load, mask_bits, minimum, popcount, prefetch, store, trailing_zeros
from mmulator.codegen.types import ptr, ptr_to, u8, u32, u64
from mmulator.machine.runtime.events import READ, WRITE, Access, completed, copy_signals
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.locate import locate_global
from mmulator.machine.runtime.mbarrier import expect_arrivals, must_be_mbarrier
from mmulator.machine.runtime.pending import entry, has_room, issue, make_room, queue
from mmulator.machine.runtime.windows import translate_global, translate_shared
from mmulator.machine.state import COPIES, Completes, FaultKind, Warp

U8, U32 = u8.vec(32), u32.vec(32)
LANES_OF_LINE = 4  # that copy 16 bytes each, of one line of the host's caches
READ_LATER, WRITE_LATER = READ | int(Access.LATER), WRITE | int(Access.LATER)


@native
def carry_out_copy(w: ptr_to(Warp), number: u64, end: u64) -> u32:
    e = entry(w, COPIES, number)
    if e.mask == 0:
        return u32(1)
    completed(w, e.mask, READ_LATER | WRITE_LATER)
    left = e.mask
    n = e.bytes
    if (left & mask_bits(load(U8, e.valid) != 16)) == 0:
        while left != 0:
            whole = trailing_zeros(left)
            left = left & (left - 1)
            store(load(u8.vec(16), e.source[whole]), e.target[whole])
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        to = e.target[lane]
        valid = u32(e.valid[lane])
        if valid == 16:
            store(load(u8.vec(16), e.source[lane]), to)
        elif valid == n and n == 4:
            store(load(u8.vec(4), e.source[lane]), to)
        else:
            source = e.source[lane]
            for i in range(n):
                byte = u8(0)
                if i < valid:
                    byte = source[i]
                to[i] = byte
    return u32(1)


@native
def copy_sources(
    w: ptr_to(Warp), reading: u32, at: ptr_to(u64), bytes: u32, valid: ptr_to(u8), site: u32, out: ptr_to(ptr)
) -> u32:
    """Source addresses of the lanes in `reading`: aligned to the size of the copy, and `valid` bytes long."""
    if (reading & mask_bits(load(U8, valid) != u8(bytes))) == 0:
        return translate_global(w, reading, at, bytes, READ_LATER, site, out)
    left = reading
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        if (at[lane] & u64(bytes - 1)) != 0:
            fault(w, FaultKind.MISALIGNED, site, lane, at[lane], bytes)
            return u32(0)
        host = locate_global(w, lane, at[lane], u32(valid[lane]), READ_LATER, site)
        if u64(host) == 0:
            return u32(0)
        out[lane] = host
    return reading


@native
def cp_async(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), source: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Queue a copy of `bytes` a lane, of which `valid[lane]` are read and the rest are zeros.

    Source addresses are checked now; the data is read and written when the copy is carried out.
    """
    q = queue(w, COPIES)
    if not has_room(q, 1):
        make_room(w, q, u32(1))
    e = entry(w, COPIES, q.issued)
    ok = translate_shared(w, mask, to, bytes, WRITE_LATER, site, e.target)
    if ok == 0:
        return
    sizes = minimum(load(U32, valid), bytes)
    store(U8(sizes), e.valid)
    reading = ok & mask_bits(sizes != 0)
    if reading != 0 and copy_sources(w, reading, source, bytes, e.valid, site, e.source) == 0:
        return
    for lane in unrolled(0, 32, LANES_OF_LINE):
        prefetch(e.source[lane])
    e.mask = ok
    e.bytes = bytes
    e.operation.completes = Completes.GROUP
    issue(w, q, u32(COPIES.odds))


@native
def arrive_behind(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counted: u32, site: u32) -> None:
    """cp.async.mbarrier.arrive: each lane arrives at its mbarrier when its copies up to here are done. Lanes at one mbarrier
    arrive as one operation. counted: the phase awaits them besides what it awaits.
    """
    q = queue(w, COPIES)
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        barrier = cast_ptr(u64, host[lane])
        same = u32(0)
        others = left
        while others != 0:
            other = trailing_zeros(others)
            others = others & (others - 1)
            if u64(host[other]) == u64(barrier):
                same = same | (u32(1) << other)
        left = left & ~same
        count = popcount(same)
        copy_signals(w, same, u64(barrier), counted, site)
        if counted != 0:
            expect_arrivals(w, lane, site, barrier, count)
        else:
            must_be_mbarrier(w, lane, u64(barrier), site)
        if not has_room(q, 1):
            make_room(w, q, u32(1))
        e = entry(w, COPIES, q.issued)
        e.mask = u32(0)
        e.operation.completes = u32(Completes.ARRIVAL)
        if counted != 0:
            e.operation.completes = u32(Completes.BYTES)
        e.operation.bytes = count
        e.operation.barrier = barrier
        e.operation.site = site
        e.operation.lane = lane
        if w.cta.fault == 0:
            issue(w, q, u32(COPIES.odds))
