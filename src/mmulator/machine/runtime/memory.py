"""Checked memory: addresses of 32 lanes to host pointers, loads, stores, atomics, asynchronous copies.

Nothing here touches host memory before the window of the access is known to hold it. After a fault every operation of the
block does nothing, so that no store of a later instruction lands on a wrong address.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import Struct, Ty, i32, ptr, ptr_to, u8, u16, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.control import fault
from mmulator.machine.state import (
    COPY_QUEUE,
    FIRST_GLOBAL_SLOT,
    FULL,
    SHARED_BASE,
    SLOT_LOCAL,
    SLOT_SHARED,
    SLOT_SHIFT,
    CopyEntry,
    FaultKind,
    Warp,
)

U32, U64 = u32.vec(32), u64.vec(32)
READ, WRITE = 0, 1
OFFSET_MASK = (1 << SLOT_SHIFT) - 1


@native
def locate(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> u64:
    """Host pointer of one lane's generic address, or 0 and a recorded fault."""
    launch = w.cta.launch
    slot = at >> SLOT_SHIFT
    offset = at & OFFSET_MASK
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
def translate(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
) -> u32:
    """Generic addresses of the lanes in `mask` to host pointers. Returns mask, or 0 if nothing may be done."""
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
    return translate_each(w, mask, at, bytes, access, site, out)


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
def translate_local(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, access: u32, site: u32, out: ptr_to(u64)
) -> u32:
    """The same for addresses of the local window: each lane its own memory."""
    if mask == 0 or w.cta.fault != 0:
        return u32(0)
    generic = stack(u64, 32)
    store((load(U64, at) & OFFSET_MASK) | (SLOT_LOCAL << SLOT_SHIFT), generic)
    return translate_each(w, mask, generic, bytes, access, site, out)


SPACES: dict[str, Native] = {
    "generic": translate, "global": translate, "const": translate, "param": translate, "shared": translate_shared,
    "local": translate_local,
}  # fmt: skip
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}


def _family(space: str) -> str:
    """Spaces that translate alike share their functions."""
    return space if space in ("shared", "local") else "generic"


def load_function(space: str, size: int, count: int) -> Native:
    return _load_function(_family(space), size, count)


def store_function(space: str, size: int, count: int) -> Native:
    return _store_function(_family(space), size, count)


@cache
def _load_function(space: str, size: int, count: int) -> Native:
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
def _store_function(space: str, size: int, count: int) -> Native:
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


# atomics ------------------------------------------------------------------------------------------------------------
def atomic_rmw(op: str, pointer: Value, value: Value) -> Value:
    """Macro: LLVM's atomicrmw; the old value."""
    b = Builder.current()
    return b.emit(value.ty, f"atomicrmw {op} ptr {pointer.text}, {value.typed} seq_cst, align {value.ty.size}")


def compare_exchange(pointer: Value, expected: Value, new: Value) -> Value:
    """Macro: LLVM's cmpxchg; the old value."""
    b = Builder.current()
    ty = expected.ty.llvm
    text = f"cmpxchg ptr {pointer.text}, {expected.typed}, {new.typed} seq_cst seq_cst, align {expected.ty.size}"
    pair = b.emit(expected.ty, text)
    return b.emit(expected.ty, f"extractvalue {{ {ty}, i1 }} {pair.text}, 0")


def _inc(old: Value, operand: Value) -> Value:
    return select(old >= operand, operand * 0, old + 1)


def _dec(old: Value, operand: Value) -> Value:
    return select((old == 0) | (old > operand), operand, old - 1)


_RMW = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg"}


@cache
def atomic_function(space: str, op: str, ty: Ty, combine: Any = None, name: str = "") -> Native:
    """atom/red, lane after lane: dst[l] = old value.

    combine: the new value from (old, operand), as a macro, for operations that LLVM has no atomicrmw for (floats, inc,
    dec); `name` distinguishes it.
    """
    space = _family(space)
    resolve, size = SPACES[space], ty.size
    own = combine or {"inc": _inc, "dec": _dec}.get(op)
    rmw = _RMW.get(op) or (op if ty.signed else "u" + op)

    def atomic(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr_to(ty), other: ptr_to(ty), dst: ptr_to(ty), site: u32
    ) -> None:
        host = stack(u64, 32)
        left = resolve(w, mask, at, size, WRITE, site, host)
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            target = cast_ptr(ty, ptr(host[lane]))
            if op == "cas":
                dst[lane] = compare_exchange(target, src[lane], other[lane])
            elif own is None:
                dst[lane] = atomic_rmw(rmw, target, src[lane])
            else:
                old = target[0]
                seen = compare_exchange(target, old, own(old, src[lane]))
                while seen != old:
                    old = seen
                    seen = compare_exchange(target, old, own(old, src[lane]))
                dst[lane] = old

    return Native(atomic, f"atom_{space}_{op}_{ty.name}{name}")


# cp.async -----------------------------------------------------------------------------------------------------------
@native
def hash_choice(seed: u64, a: u64, b: u64) -> u64:
    """A well-mixed number from three; the machine's only source of chance."""
    x = seed * 0x9E3779B97F4A7C15 + a * 0xBF58476D1CE4E5B9 + b * 0x94D049BB133111EB + 0x2545F4914F6CDD1D
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@native
def do_copy(e: ptr_to(CopyEntry)) -> None:
    left = e.mask
    n = e.bytes
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        to = ptr(e.target[lane])
        valid = u32(e.valid[lane])
        if valid == 16:
            store(load(u8.vec(16), ptr(e.source[lane])), to)
        else:
            source = ptr(e.source[lane])
            for i in range(n):
                byte = u8(0)
                if i < valid:
                    byte = source[i]
                to[i] = byte


@native
def finish_copies(w: ptr_to(Warp), end: u32) -> None:
    """Complete the copies before queue position `end`."""
    head = w.copy_head
    while head != end:
        do_copy(w.copies + (head & (COPY_QUEUE - 1)))
        head = head + 1
    w.copy_head = head


@native
def cp_async(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), source: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Queue a copy of `bytes` a lane, of which `valid[lane]` are read and the rest are zeros.

    Source addresses are checked now; the data is read and written later: at once, or when a wait asks, as the seed says.
    """
    e = w.copies + (w.copy_tail & (COPY_QUEUE - 1))
    if w.copy_tail - w.copy_head >= COPY_QUEUE:
        finish_copies(w, w.copy_head + 1)
    ok = translate_shared(w, mask, to, bytes, WRITE, site, e.target)
    if ok == 0:
        return
    reading = u32(0)
    left = ok
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        n = valid[lane]
        if n > bytes:
            n = bytes
        e.valid[lane] = u8(n)
        if n != 0:
            reading = reading | (u32(1) << lane)
    if reading != 0 and translate(w, reading, source, bytes, READ, site, e.source) == 0:
        return
    e.mask = ok
    e.bytes = bytes
    w.copy_tail = w.copy_tail + 1
    cta = w.cta
    chance = hash_choice(cta.launch.seed, u64(cta.linear) * 64 + u64(w.index), u64(w.copy_tail))
    if (chance & 3) == 0:
        finish_copies(w, w.copy_tail)


@native
def cp_async_commit(w: ptr_to(Warp)) -> None:
    tail = w.copy_group_tail
    if w.copy_tail != w.copy_head and (tail == 0 or w.copy_group_end[(tail - 1) & (COPY_QUEUE - 1)] != w.copy_tail):
        w.copy_group_number[tail & (COPY_QUEUE - 1)] = w.copy_groups
        w.copy_group_end[tail & (COPY_QUEUE - 1)] = w.copy_tail
        w.copy_group_tail = tail + 1
    w.copy_groups = w.copy_groups + 1


@native
def cp_async_wait(w: ptr_to(Warp), pending: u32) -> None:
    """Leave the newest `pending` groups; complete everything older."""
    if pending >= w.copy_groups:
        return
    wanted = w.copy_groups - pending - 1
    at = w.copy_group_tail
    for _ in range(u32(COPY_QUEUE)):
        if at == 0:
            return
        at = at - 1
        if w.copy_group_number[at & (COPY_QUEUE - 1)] <= wanted:
            end = w.copy_group_end[at & (COPY_QUEUE - 1)]
            if i32(end - w.copy_head) > 0:
                finish_copies(w, end)
            return


@native
def cp_async_wait_all(w: ptr_to(Warp)) -> None:
    finish_copies(w, w.copy_tail)


# matrix moves -------------------------------------------------------------------------------------------------------
@cache
def ldmatrix_function(space: str, matrices: int, trans: bool) -> Native:
    """ldmatrix .m8n8 .b16: lane 8 i + r gives the address of row r of matrix i; dst[32 i + lane] receives a register."""
    space = _family(space)
    resolve = SPACES[space]
    lanes = (1 << (8 * matrices)) - 1

    def ldmatrix(w: ptr_to(Warp), at: ptr_to(u64), dst: ptr_to(u32), site: u32) -> None:
        host = stack(u64, 32)
        if resolve(w, lanes, at, 16, READ, site, host) == 0:
            return
        for i in range_(matrices):
            if trans:
                words = cast_ptr(u16, dst + 32 * i)
                for r in range_(8):
                    row = cast_ptr(u16, ptr(host[8 * i + r]))
                    # element [r][c] lies in lane 4 c + r / 2, half r % 2
                    for c in range_(8):
                        words[(4 * c + r // 2) * 2 + r % 2] = row[c]
            else:
                for r in range_(8):
                    store(load(u32.vec(4), ptr(host[8 * i + r])), dst + (32 * i + 4 * r))

    return Native(ldmatrix, f"ldmatrix_{space}_x{matrices}{'_trans' if trans else ''}")


@cache
def stmatrix_function(space: str, matrices: int, trans: bool) -> Native:
    """stmatrix .m8n8 .b16, the reverse of ldmatrix."""
    space = _family(space)
    resolve = SPACES[space]
    lanes = (1 << (8 * matrices)) - 1

    def stmatrix(w: ptr_to(Warp), at: ptr_to(u64), src: ptr_to(u32), site: u32) -> None:
        host = stack(u64, 32)
        if resolve(w, lanes, at, 16, WRITE, site, host) == 0:
            return
        for i in range_(matrices):
            if trans:
                words = cast_ptr(u16, src + 32 * i)
                for r in range_(8):
                    row = cast_ptr(u16, ptr(host[8 * i + r]))
                    for c in range_(8):
                        row[c] = words[(4 * c + r // 2) * 2 + r % 2]
            else:
                for r in range_(8):
                    store(load(u32.vec(4), src + (32 * i + 4 * r)), ptr(host[8 * i + r]))

    return Native(stmatrix, f"stmatrix_{space}_x{matrices}{'_trans' if trans else ''}")


# 8-bit ldmatrix and stmatrix: 16 elements a row, and the byte of the registers in memory that each is in.
ByteMoveSite = Struct("ByteMoveSite", [("rows", u32), ("element_bits", u32), ("places", ptr_to(i32))])


@cache
def ldmatrix_bytes_function(space: str) -> Native:
    """ldmatrix .m16n16 and .m8n16: lane r gives the address of row r; 4- and 6-bit elements are packed in its low bits."""
    resolve = SPACES[_family(space)]

    def ldmatrix_bytes(w: ptr_to(Warp), move: ptr_to(ByteMoveSite), at: ptr_to(u64), dst: ptr, site: u32) -> None:
        host = stack(u64, 32)
        rows = move.rows
        if resolve(w, u32((u64(1) << u64(rows)) - 1), at, 16, READ, site, host) == 0:
            return
        bits = move.element_bits
        for r in range(rows):
            row = ptr(host[r])
            for c in range(u32(16)):
                first = bits * c
                value = u32(row[first // 8]) >> (first % 8)
                if first % 8 + bits > 8:
                    value = value | (u32(row[first // 8 + 1]) << (8 - first % 8))
                dst[move.places[16 * r + c]] = u8(value & ((1 << bits) - 1))

    return Native(ldmatrix_bytes, f"ldmatrix_bytes_{_family(space)}")


@cache
def stmatrix_bytes_function(space: str) -> Native:
    """stmatrix .m16n8 .b8: lane r gives the address of row r of the transposed matrix."""
    resolve = SPACES[_family(space)]

    def stmatrix_bytes(w: ptr_to(Warp), move: ptr_to(ByteMoveSite), at: ptr_to(u64), src: ptr, site: u32) -> None:
        host = stack(u64, 32)
        rows = move.rows
        if resolve(w, u32((u64(1) << u64(rows)) - 1), at, 16, WRITE, site, host) == 0:
            return
        for r in range(rows):
            row = ptr(host[r])
            for c in range(u32(16)):
                row[c] = src[move.places[16 * r + c]]

    return Native(stmatrix_bytes, f"stmatrix_bytes_{_family(space)}")


@native
def movmatrix(a: ptr_to(u32), d: ptr_to(u32)) -> None:
    """Transpose an 8 by 8 matrix of 16-bit elements: [r][c] lies in lane 4 r + c / 2, half c % 2."""
    source = cast_ptr(u16, a)
    target = cast_ptr(u16, d)
    for r in range_(8):
        for c in range_(8):
            target[(4 * c + r // 2) * 2 + r % 2] = source[(4 * r + c // 2) * 2 + c % 2]


MEMORY = [locate, translate, translate_shared, translate_local, hash_choice, cp_async, cp_async_commit, cp_async_wait,
          cp_async_wait_all]  # fmt: skip
