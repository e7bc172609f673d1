"""Copies of tensors: row by row, between the tensor and the shared memory of one or several CTAs.

Data Movement and Conversion Instructions: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor (PTX ISA 9.1). A unit of a transfer
is a row of the box (boxes.py), so that bytes come in parts. The bounds of everything that a copy touches are checked when it is
issued.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, load, null, prefetch, select, stack, store
from mmulator.base.codegen.types import i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.matrix.layouts.tensormap.types import TYPES
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.asynchrony.boxes import begin_box, extent_of_box, inside_beyond, next_row, row_offset, run_of_rows
from mmulator.runtime.native.asynchrony.bulk import barrier_beside, hold_barrier
from mmulator.runtime.native.asynchrony.maps import MOST_ROW, RANKS, Box, MapFault
from mmulator.runtime.native.asynchrony.transfers import heard_at, new_transfer, payload_of, start
from mmulator.runtime.native.hooks.events import BOTH, READ, WRITE, PayloadShape, Proxy, accessed_one, by, transfer_filled
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.moves import row_moved
from mmulator.runtime.native.memory.combine import reduce_function
from mmulator.runtime.native.memory.locate import hold_shared, one_cta
from mmulator.runtime.native.memory.rows import CHUNK, LINE, put_line, take_line
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, WITHIN, hold, other_cta, shared_of
from mmulator.runtime.native.state import Completes, FaultKind, Transfer, TransferKind, Warp

AHEAD = 8  # rows
ROUNDED = 1 << 4  # a bit of a type's code in a map: of tf32
SHARED_ALIGNMENT = 128
NAN = 0x7FF7  # of elements that are out of bounds, in 16 bits each
READS, WRITES, COMBINES = by(READ, Proxy.ASYNC), by(WRITE, Proxy.ASYNC), by(BOTH, Proxy.ASYNC)
C16 = u8.vec(CHUNK)
OWN, MULTICAST, PAIR = 1, 2, 4  # ways of a load: to the CTA's own memory; to several CTAs; the mbarriers of pairs of CTAs


# where bytes lie ----------------------------------------------------------------------------------------------------
@native(inline=True)
def swizzled(box: ptr_to(Box), at: u64) -> u64:
    """The swizzled offset in shared memory of the byte at `at`."""
    line = u32(at >> 7)
    return at ^ u64(((line & box.swizzle) << box.shift) ^ ((line & box.swizzle_low) << box.shift_low))


@native
def lines_of_box(box: ptr_to(Box)) -> u64:
    """Bytes of shared memory, from a box's first byte on, that its copy may touch."""
    bytes = u64(box.rows) * u64(box.pitch)
    if box.swizzle != 0:
        begin = box.place & (LINE - 1)
        bytes = (begin + bytes + (LINE - 1)) // LINE * LINE - begin
    return bytes


# rows ---------------------------------------------------------------------------------------------------------------
@native
def fill_row(box: ptr_to(Box), row: ptr_to(u8)) -> None:
    """Fill a row with out-of-bounds elements."""
    if box.nan != 0:
        for i in range(box.memory_row // 2):
            cast_ptr(u16, row)[i] = NAN
        return
    for i in range(box.memory_row):
        row[i] = 0


def in_chunks(box: Any, at: Any) -> Value:
    """Macro: whether a row in shared memory consists of whole chunks, which a swizzle exchanges."""
    padding = box.field("row") ^ box.field("memory_row")
    return (((u32(at) | box.field("row")) & (CHUNK - 1)) | box.field("swizzle_low") | padding) == 0


@native(inline=True)
def place_in_row(box: ptr_to(Box), at: u64, i: u64) -> u64:
    """Offset in shared memory of byte i of a row that begins at `at`."""
    unit = u64(box.unit)
    return swizzled(box, at + i // unit * u64(box.shared_unit) + i % unit)


def _exchange(into: bool) -> Native:
    """A function that copies rows of whole chunks from the tensor into shared memory, or out of it.

    memory, step: the first row in the tensor, and bytes to the next row.
    shared: a CTA's first byte of shared memory.
    at, pitch: offset of the first row there, and bytes to the next row.
    mask, shift: of the swizzle.

    Rows that are far apart are prefetched, because hardware does not predict them.
    """
    line: Any = put_line if into else take_line

    def exchange(
        memory: ptr_to(u8), step: u64, shared: ptr_to(u8), at: u64, pitch: u64, rows: u32, bytes: u64, mask: u32, shift: u32
    ) -> None:
        row = memory
        begin = at
        lines = (bytes + 63) // 64
        asked = u32(0)
        for number in range(rows):
            while asked < rows and asked <= number + AHEAD:
                for n in range(lines):
                    prefetch(memory + u64(asked) * step + n * 64, write=not into)
                asked = asked + 1
            place = begin
            outside = row
            end = begin + bytes
            if ((begin | bytes) & (LINE - 1)) == 0:
                while place != end:
                    line(outside, shared + place, u64((u32(place >> 7) & mask) << shift))
                    place = place + LINE
                    outside = outside + LINE
            while place != end:
                inside = shared + (place ^ u64((u32(place >> 7) & mask) << shift))
                if into:
                    store(load(C16, outside), inside)
                else:
                    store(load(C16, inside), outside)
                place = place + CHUNK
                outside = outside + CHUNK
            begin = begin + pitch
            row = row + step

    return Native(exchange, f"exchange_{'into' if into else 'out_of'}_shared")


put_rows, take_rows = _exchange(True), _exchange(False)


@native
def put_row(box: ptr_to(Box), row: ptr_to(u8), shared: ptr_to(u8), at: u64) -> None:
    """Write a row to shared memory, where it begins at `at`."""
    if in_chunks(box, at):
        put_rows(row, 0, shared, at, 0, 1, u64(box.row), box.swizzle, box.shift)
    else:
        for i in range(u64(box.memory_row)):
            shared[place_in_row(box, at, i)] = row[i]


@native
def take_row(box: ptr_to(Box), row: ptr_to(u8), shared: ptr_to(u8), at: u64) -> None:
    """Read a row from shared memory."""
    if in_chunks(box, at):
        take_rows(row, 0, shared, at, 0, 1, u64(box.row), box.swizzle, box.shift)
    else:
        for i in range(u64(box.memory_row)):
            row[i] = shared[place_in_row(box, at, i)]


# moving -------------------------------------------------------------------------------------------------------------
def first_byte(box: Any) -> Value:
    """Macro: the first byte of shared memory that a store reads."""
    return select(box.field("swizzle") != 0, box.field("place") & ~u64(LINE - 1), box.field("place"))


def begin_of(pointer: Any, bytes: Any) -> Value:
    """Macro: the pointer moved back by a number of bytes."""
    return pointer + (i64(0) - i64(bytes))


@native
def round_to_tf32(row: ptr_to(u32), count: u32) -> None:
    """Round elements of a row to nearest, ties to even; NaNs get the bits of the canonical NaN that tf32 keeps."""
    for i in range(count):
        bits = row[i]
        magnitude = bits & 0x7FFFFFFF
        rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
        row[i] = select(magnitude > 0x7F800000, 0x7FFFE000, select(magnitude == 0x7F800000, bits, rounded))


@native(inline=True)
def tell_row(
    w: ptr_to(Warp), t: ptr_to(Transfer), box: ptr_to(Box), rank: u32, at: u64, low: u32, high: u32, access: u32
) -> None:
    """Tell an instrument about a row in the shared memory of a CTA, in the order of the swizzle.

    w, t, box: the warp, transfer and box.
    rank, at: the CTA, and the offset of the row.
    low, high: its bytes from `low` on, up to `high`.
    access: what is done there.
    """
    base = (u64(rank) << RANK_SHIFT) + (SHARED + SHARED_BASE)
    if box.swizzle == 0:
        accessed_one(w, t.lane, base + at + u64(low), high - low, access, t.site)
    else:
        for c in range(u64(low) // CHUNK, u64(high + (CHUNK - 1)) // CHUNK):
            accessed_one(w, t.lane, base + swizzled(box, at + c * CHUNK), u32(CHUNK), access, t.site)


@native(inline=True)
def as_they_are(box: ptr_to(Box), rows: u32, beyond: u32, at: u64) -> u32:
    """1 if the next rows are entirely inside the tensor, and consist of chunks."""
    last = box.at[1] + i64(rows - 1) * box.step[1]
    inside = (box.at[1] >= 0) & (last < box.size[1]) & (beyond != 0) & (box.high - box.low == box.memory_row)
    return u32(inside & in_chunks(box, at))


@native
def move_tensor_load(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Copy some rows from the tensor to shared memory."""
    box = payload_of(t, PayloadShape.BOX)
    cluster = w.cta.cluster
    room = stack(u8, MOST_ROW)
    bytes = box.high - box.low
    rounded = box.type & ROUNDED
    further = u64(box.step[1] * box.stride[1])
    at = box.place + u64(first) * u64(box.pitch)
    number = first
    while number < end:
        beyond = inside_beyond(box)
        along = box.at[1]
        offset = row_offset(box)
        rows = u32(run_of_rows(box, end - number))
        if rounded == 0 and as_they_are(box, rows, beyond, at) != 0:
            for n in range(rows):
                accessed_one(w, t.lane, box.address + offset + u64(n) * further, bytes, READS, t.site)
            for rank in bits_of(box.targets):
                for n in range(rows):
                    tell_row(w, t, box, rank, at + u64(n) * u64(box.pitch), u32(0), u32(box.row), WRITES)
                    row_moved(t, rank, at + u64(n) * u64(box.pitch), box.address + offset + u64(n) * further)
                put_rows(
                    t.source + (offset - box.first), further, shared_of(cluster, rank), at, u64(box.pitch), rows, u64(box.row),
                    box.swizzle, box.shift,
                )  # fmt: skip
            at = at + u64(rows) * u64(box.pitch)
        else:
            for _ in range(rows):
                fill_row(box, room)
                if (beyond & u32(u64(along) < u64(box.size[1]))) != 0:
                    accessed_one(w, t.lane, box.address + offset + u64(box.low), bytes, READS, t.site)
                    copy_bytes(room + box.low, t.source + (offset - box.first + u64(box.low)), bytes)
                    if rounded != 0:
                        round_to_tf32(cast_ptr(u32, room + box.low), bytes // 4)
                for rank in bits_of(box.targets):
                    tell_row(w, t, box, rank, at, u32(0), u32(box.row), WRITES)
                    if (beyond & u32(u64(along) < u64(box.size[1]))) != 0:
                        row_moved(t, rank, at, box.address + offset)
                    put_row(box, room, shared_of(cluster, rank), at)
                at = at + u64(box.pitch)
                offset = offset + further
                along = along + box.step[1]
        next_row(box, rows)
        number = number + rows
    return u64(end - first) * u64(box.memory_row)


_BITS = ("u32", "s32", "u64")
_INTEGERS = (*_BITS, "s64")
_HALVES = ("f16", "bf16")
# Types of elements that can be combined: measured on an H200, where others are illegal.
REDUCED: Mapping[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", *_HALVES, "f32", "f32.ftz", "f64", "tf32", "tf32.ftz"), "min": (*_INTEGERS, *_HALVES),
    "max": (*_INTEGERS, *_HALVES), "inc": ("u32",), "dec": ("u32",), "and": _BITS, "or": _BITS, "xor": _BITS,
}  # fmt: skip
_AS = {"tf32": "f32", "tf32.ftz": "f32.ftz"}  # tf32 is not rounded here


def codes(op: str) -> int:
    """Mask of the element types that an operation supports, by their codes in a map."""
    return sum(1 << kind.code for kind in TYPES if kind.name in REDUCED[op])


@cache
def store_function(op: str) -> Native:
    """A function for some rows from shared memory to the tensor: stored if `op` is empty, otherwise combined."""
    combined = [kind for kind in TYPES if kind.name in REDUCED.get(op, ())]
    functions = {kind.code: reduce_function(op, _AS.get(kind.name, kind.name)) for kind in combined}
    sizes = {kind.code: kind.memory for kind in TYPES}
    writes = COMBINES if op else WRITES

    def move(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
        box = payload_of(t, PayloadShape.BOX)
        room = stack(u8, MOST_ROW)
        memory = begin_of(t.source, first_byte(box))
        bytes = box.high - box.low
        further = u64(box.step[1] * box.stride[1])
        at = box.place + u64(first) * u64(box.pitch)
        number = first
        while number < end:
            beyond = inside_beyond(box)
            along = box.at[1]
            offset = row_offset(box)
            rows = u32(run_of_rows(box, end - number))
            whole = as_they_are(box, rows, beyond, at) if not op else u32(0)
            if whole != 0:
                for n in range(rows):
                    tell_row(w, t, box, w.cta.rank, at + u64(n) * u64(box.pitch), u32(0), u32(box.row), u32(READS))
                    accessed_one(w, t.lane, box.address + offset + u64(n) * further, bytes, writes, t.site)
                take_rows(
                    t.target + (offset - box.first), further, memory, at, u64(box.pitch), rows, u64(box.row), box.swizzle,
                    box.shift,
                )  # fmt: skip
                at = at + u64(rows) * u64(box.pitch)
            else:
                for _ in range(rows):
                    if (beyond & u32(u64(along) < u64(box.size[1]))) != 0:
                        target = t.target + (offset - box.first + u64(box.low))
                        if box.row == box.memory_row:  # nobody uses the elements beyond the tensor
                            tell_row(w, t, box, w.cta.rank, at, u32(box.low), u32(box.high), u32(READS))
                        else:
                            tell_row(w, t, box, w.cta.rank, at, u32(0), u32(box.row), u32(READS))
                        accessed_one(w, t.lane, box.address + offset + u64(box.low), bytes, writes, t.site)
                        take_row(box, room, memory, at)
                        if not op:
                            copy_bytes(target, room + box.low, bytes)
                        for code in functions:
                            if box.type == code:
                                functions[code](target, room + box.low, u64(bytes // sizes[code]))
                    at = at + u64(box.pitch)
                    offset = offset + further
                    along = along + box.step[1]
            next_row(box, rows)
            number = number + rows
        return u64(0)

    return Native(move, f"move_tensor_{op or 'store'}")


# issue --------------------------------------------------------------------------------------------------------------
@native
def note_copy(w: ptr_to(Warp), lane: u32, at: u64, to: u64, coordinates: ptr_to(u32)) -> None:
    """Save the facts for a report of a fault: the map, the place in shared memory, the coordinates."""
    cta = w.cta
    cta.fault_words[0] = at
    cta.fault_words[1] = to
    for k in unrolled(RANKS):
        cta.fault_words[2 + k] = u64(coordinates[k * 32 + lane])


@native
def hold_tensor(w: ptr_to(Warp), lane: u32, box: ptr_to(Box), access: u32, site: u32) -> ptr:
    """Pointer to the part of the tensor that a copy touches, which must be in one buffer; null if it touches nothing, or with a
    fault.
    """
    if w.cta.fault != 0:  # the rows of a box that has room in shared memory can be counted, those of others not
        return null(u8)
    ends = stack(i64, 2)
    found = extent_of_box(box, ends, ends + 1)
    if found == 2:
        fault(w, FaultKind.OUT_OF_BOUNDS, site, lane, box.address, 0)
    if found != 1:
        return null(u8)
    box.first = ends[0]
    return hold(w, lane, box.address + box.first, u64(ends[1]) - box.first, access, site)


@native
def hold_box(w: ptr_to(Warp), lane: u32, box: ptr_to(Box), to: u64, targets: u32, site: u32) -> None:
    """Record a fault unless the box fits in the shared memory of each target CTA."""
    if (to & (SHARED_ALIGNMENT - 1)) != 0:
        fault(w, FaultKind.MISALIGNED, site, lane, to, SHARED_ALIGNMENT)
    if to > OFFSET_MASK:
        fault(w, FaultKind.BEYOND_SPACE, site, lane, to, 0)
    box.place = (to & WITHIN) - SHARED_BASE
    box.targets = targets
    for rank in bits_of(targets):
        hold_shared(w, lane, (u64(rank) << RANK_SHIFT) | (to & WITHIN), lines_of_box(box), site)


@native
def hold_barriers(w: ptr_to(Warp), lane: u32, t: ptr_to(Transfer), barrier: u64, barriers: u32, site: u32) -> None:
    """Let the mbarriers at one place in the shared memory of several CTAs receive the bytes of a transfer."""
    for rank in bits_of(barriers):
        hold_barrier(w, lane, (u64(rank) << RANK_SHIFT) | (barrier & WITHIN), site)
    heard_at(t, barrier, barriers)


@native
def load_box(
    w: ptr_to(Warp), lane: u32, to: u64, at: u64, coordinates: ptr_to(u32), more: ptr_to(u32), barrier: u64, targets: u32,
    barriers: u32, rank: u32, mode: u32, site: u32,
) -> None:  # fmt: skip
    """Issue the copy of one box to shared memory.

    w, lane, site: the lane and instruction.
    to: destination.
    at: address of the map.
    coordinates, more: as for `begin_box`.
    barrier: the mbarrier.
    targets: mask of the CTAs that receive the box.
    barriers: mask of the CTAs whose mbarriers receive the bytes.
    rank, mode: of the instruction.
    """
    if w.cta.fault != 0:
        return
    t = new_transfer(w, lane, TransferKind.TENSOR_LOAD, site)
    box = payload_of(t, PayloadShape.BOX)
    if begin_box(w, lane, at, coordinates, more, rank, mode, False, box, site):
        hold_box(w, lane, box, to, targets, site)
        hold_barriers(w, lane, t, barrier, barriers, site)
        t.source = hold_tensor(w, lane, box, READ, site)
        t.units = box.rows
        if w.cta.fault == 0:
            transfer_filled(t, u32(PayloadShape.BOX))
            start(t)


@native
def tensor_load(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), maps: ptr_to(u64), coordinates: ptr_to(u32), more: ptr_to(u32),
    barriers: ptr_to(u64), masks: ptr_to(u32), rank: u32, mode: u32, way: u32, site: u32,
) -> None:  # fmt: skip
    """Issue cp.async.bulk.tensor to shared memory. way: bits of OWN, MULTICAST and PAIR."""
    for lane in bits_of(mask):
        if w.cta.fault != 0:
            return
        place = to[lane]
        barrier = barriers[lane]
        where = maps[lane]
        if (way & OWN) != 0 and other_cta(w, place):
            fault(w, FaultKind.OTHER_CTA, site, lane, place, 0)
        if (way & MULTICAST) == 0:
            only = one_cta(w, lane, place, site)
            owner = only
            if (way & PAIR) == 0:
                barrier_beside(w, lane, place, barrier, site)
            else:
                owner = one_cta(w, lane, barrier, site)
            load_box(w, lane, place, where, coordinates, more, barrier, only, owner, rank, mode, site)
        elif (way & PAIR) == 0:
            all = masks[lane] & 0xFFFF
            load_box(w, lane, place, where, coordinates, more, barrier, all, all, rank, mode, site)
        else:  # of each pair of CTAs the one hears that has the place in it of the mbarrier's owner
            for half in unrolled(2):
                some = masks[lane] & (0x5555 << half)
                hear = (some >> half) << (u32(barrier >> RANK_SHIFT) & 1)
                if some != 0:
                    load_box(w, lane, place, where, coordinates, more, barrier, some, hear, rank, mode, site)
        if w.cta.fault != 0:
            note_copy(w, lane, where, place, coordinates)


@native
def tensor_store(
    w: ptr_to(Warp), mask: u32, maps: ptr_to(u64), coordinates: ptr_to(u32), source: ptr_to(u64), rank: u32, mode: u32,
    kind: u32, types: u32, site: u32,
) -> None:  # fmt: skip
    """Issue cp.async.bulk.tensor and cp.reduce.async.bulk.tensor to global memory.

    w, mask, site: the warp, lanes and instruction.
    maps, coordinates: maps and coordinates of the lanes.
    source: the boxes in shared memory.
    rank, mode: of the instruction.
    kind: number of the mover.
    types: mask of the element types that it supports.
    """
    for lane in bits_of(mask):
        from_ = source[lane]
        if w.cta.fault != 0:
            return
        if other_cta(w, from_):
            fault(w, FaultKind.OTHER_CTA, site, lane, from_, 0)
        t = new_transfer(w, lane, kind, site)
        box = payload_of(t, PayloadShape.BOX)
        if begin_box(w, lane, maps[lane], coordinates, coordinates, rank, mode, True, box, site):
            if ((types >> box.type) & 1) == 0:
                fault(w, FaultKind.TENSOR_MAP, site, lane, maps[lane], MapFault.OPERATION)
            hold_box(w, lane, box, from_, 1 << w.cta.rank, site)
            t.target = hold_tensor(w, lane, box, WRITE, site)
            t.completes = Completes.GROUP
            t.units = box.rows
            t.source = shared_of(w.cta.cluster, w.cta.rank) + first_byte(box)
            t.source_bytes = box.place + lines_of_box(box) - first_byte(box)
            if w.cta.fault == 0:
                transfer_filled(t, u32(PayloadShape.BOX))
                start(t)
        if w.cta.fault != 0:
            note_copy(w, lane, maps[lane], from_, coordinates)
