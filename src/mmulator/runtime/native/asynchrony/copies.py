"""cp.async: copies that are checked at issue and carried out later."""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import (
    bits_of,
    cast_ptr,
    iota,
    load,
    mask_bits,
    maximum,
    minimum,
    popcount,
    prefetch,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import boolean, ptr, ptr_to, u8, u32, u64
from mmulator.runtime.native.asynchrony.mbarrier import expect_arrivals, must_be_mbarrier
from mmulator.runtime.native.asynchrony.pending import entry, has_room, issue, make_room, queue
from mmulator.runtime.native.hooks.events import READ, WRITE, Access, completed, copy_signals
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.locate import locate_global
from mmulator.runtime.native.memory.rows import CHUNK, LINE, apart, of_eight, put_line
from mmulator.runtime.native.memory.windows import global_span, shared_span, translate_global, translate_shared
from mmulator.runtime.native.state import COPIES, FULL, Completes, CopyEntry, FaultKind, Warp

U8, U32, U64, CHUNKS = u8.vec(32), u32.vec(32), u64.vec(32), u8.vec(CHUNK)
ROWS = 4  # of eight lanes
LANES_OF_LINE = 4  # that copy 16 bytes each, of one line of the host's caches
READ_LATER, WRITE_LATER = READ | int(Access.LATER), WRITE | int(Access.LATER)


@native
def copy_lanes(e: ptr_to(CopyEntry)) -> None:
    """Copy the bytes of single lanes, in the order of lanes."""
    left = e.mask
    n = e.bytes
    if (left & mask_bits(load(U8, e.valid) != 16)) == 0:
        while left != 0:
            whole = trailing_zeros(left)
            left = left & (left - 1)
            store(load(CHUNKS, e.source[whole]), e.target[whole])
    for lane in bits_of(left):
        to = e.target[lane]
        valid = u32(e.valid[lane])
        if valid == 16:
            store(load(CHUNKS, e.source[lane]), to)
        elif valid == 0 and n == 16:
            store(CHUNKS(0), to)
        elif valid == n and n == 4:
            store(load(u8.vec(4), e.source[lane]), to)
        else:
            source = e.source[lane]
            for i in range(n):
                byte = u8(0)
                if i < valid:
                    byte = source[i]
                to[i] = byte


@native
def carry_out_copy(w: ptr_to(Warp), number: u64, end: u64) -> u32:
    """Carry out copies up to the next arrival at an mbarrier, which is an operation of its own. Returns their number."""
    at = number
    while at < end:
        e = entry(w, COPIES, at)
        if e.mask == 0:
            break
        completed(w, e.mask, READ_LATER | WRITE_LATER)
        if e.rows != 0:
            for row in unrolled(ROWS):
                put_line(e.row_source[row], e.row_target[row], e.turn[row])
        else:
            copy_lanes(e)
        at = at + 1
    return u32(at - number) if at != number else 1


@native
def copy_sources(
    w: ptr_to(Warp), reading: u32, at: ptr_to(u64), bytes: u32, valid: ptr_to(u8), site: u32, out: ptr_to(ptr)
) -> u32:
    """Source addresses of the lanes in `reading`: aligned to the size of the copy, and `valid` bytes long."""
    if (reading & mask_bits(load(U8, valid) != u8(bytes))) == 0:
        return translate_global(w, reading, at, bytes, READ_LATER, site, out)
    for lane in bits_of(reading):
        if (at[lane] & u64(bytes - 1)) != 0:
            fault(w, FaultKind.MISALIGNED, site, lane, at[lane], bytes)
            return 0
        host = locate_global(w, lane, at[lane], u32(valid[lane]), READ_LATER, site)
        if u64(host) == 0:
            return 0
        out[lane] = host
    return reading


@native
def cp_async(w: ptr_to(Warp), mask: u32, to: ptr_to(u64), source: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32) -> None:
    """Queue a copy of `bytes` for each lane, of which `valid[lane]` are read and the rest are zeros.

    Source addresses are checked now; the data is read and written when the copy is carried out.
    """
    q = queue(w, COPIES)
    if not has_room(q, 1):
        make_room(w, q, 1)
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
    e.rows = 0
    e.operation.completes = Completes.GROUP
    issue(w, q, COPIES.odds)


@native(inline=True)
def in_lines(to: ptr_to(u64), source: ptr_to(u64), valid: ptr_to(u32)) -> boolean:
    """Whether each eight lanes copy 128 contiguous bytes to one whole line of shared memory."""
    a, b = load(U64, source), load(U64, to)
    elsewhere = mask_bits((b ^ of_eight(b)) != (iota(U64, 0, CHUNK) & (LINE - 1)))
    return (apart(a, CHUNK) | elsewhere | mask_bits(load(U32, valid) != CHUNK)) == 0


@native
def cp_async_lines(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), source: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """`cp_async` of 16 bytes for each lane, by lines if possible. Copies with an error take the other way, which reports it.
    Instruments are not told.
    """
    if mask == FULL and w.cta.fault == 0 and in_lines(to, source, valid):
        low = minimum(minimum(source[0], source[8]), minimum(source[16], source[24]))
        high = maximum(maximum(source[0], source[8]), maximum(source[16], source[24])) + (LINE - 1)
        first = minimum(minimum(to[0], to[8]), minimum(to[16], to[24]))
        last = maximum(maximum(to[0], to[8]), maximum(to[16], to[24]))
        odd = (source[0] | source[8] | source[16] | source[24] | to[0] | to[8] | to[16] | to[24]) & (CHUNK - 1)
        memory = global_span(w, low, high, site)
        shared = shared_span(w, first & ~u64(LINE - 1), last | (LINE - 1))
        if odd == 0 and u64(memory) != 0 and u64(shared) != 0:
            q = queue(w, COPIES)
            if not has_room(q, 1):
                make_room(w, q, 1)
            e = entry(w, COPIES, q.issued)
            for row in unrolled(ROWS):
                begin = memory + (source[row * 8] - low)
                prefetch(begin)
                prefetch(begin + (LINE - 1))
                e.row_source[row] = begin
                e.row_target[row] = shared + (to[row * 8] & ~u64(LINE - 1))
                e.turn[row] = to[row * 8] & (LINE - CHUNK)
            e.mask = mask
            e.rows = ROWS
            e.operation.completes = Completes.GROUP
            issue(w, q, COPIES.odds)
            return
    cp_async(w, mask, to, source, bytes, valid, site)


@native
def arrive_behind(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), counted: u32, site: u32) -> None:
    """Issue cp.async.mbarrier.arrive: each lane arrives at its mbarrier when its copies up to here are complete. Lanes at one
    mbarrier arrive as one operation. counted: whether the phase awaits these arrivals in addition.
    """
    q = queue(w, COPIES)
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        barrier = cast_ptr(u64, host[lane])
        same = u32(0)
        for other in bits_of(left):
            if u64(host[other]) == u64(barrier):
                same = same | (1 << other)
        left = left & ~same
        count = popcount(same)
        copy_signals(w, same, u64(barrier), counted, site)
        if counted != 0:
            expect_arrivals(w, lane, site, barrier, count)
        else:
            must_be_mbarrier(w, lane, u64(barrier), site)
        if not has_room(q, 1):
            make_room(w, q, 1)
        e = entry(w, COPIES, q.issued)
        e.mask = 0
        e.operation.completes = Completes.ARRIVAL
        if counted != 0:
            e.operation.completes = Completes.BYTES
        e.operation.bytes = count
        e.operation.barrier = barrier
        e.operation.site = site
        e.operation.lane = lane
        if w.cta.fault == 0:
            issue(w, q, COPIES.odds)
