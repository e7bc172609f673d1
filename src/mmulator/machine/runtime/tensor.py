"""Matrix instructions of the machine: fragments to matrices and back, operands in shared memory.

What is here moves data: fragments of wmma from and to memory, and for wgmma (wgmma.py) matrices out of shared memory,
A out of registers, accumulators out of registers into tiles and back.
"""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import cast_ptr, load, shuffle, store
from mmulator.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.memory import locate_function, range_
from mmulator.machine.state import FaultKind, Warp, WgmmaTable
from mmulator.program.addresses import SHARED_BASE
from mmulator.twin.product import CONTAINER

# wmma.load and wmma.store -------------------------------------------------------------------------------------------
WmmaSite = Struct("WmmaSite", [
    ("places", i64),  # elements of a fragment over all lanes
    ("major", ptr_to(i32)), ("minor", ptr_to(i32)),  # of each place: line of the leading dimension, position in it
])  # fmt: skip


@cache
def wmma_load_function(space: str, bits: int) -> Native:
    """wmma.load: place i of the fragment receives element [major[i]][minor[i]] at p + (major * stride + minor) * size."""
    ty, locate = CONTAINER[bits], locate_function(space)
    per = max(1, 8 // bits)

    def wmma_load(w: ptr_to(Warp), site: ptr_to(WmmaSite), p: u64, stride: i64, registers: ptr, number: u32) -> None:
        if w.cta.fault != 0:
            return
        out = cast_ptr(ty, registers)
        for i in range(site.places):
            at = i64(site.major[i]) * stride + i64(site.minor[i])
            if bits >= 8:
                host = locate(w, u32(0), p + u64(at * (bits // 8)), u32(bits // 8), u32(0), number)
                if host == 0:
                    return
                out[i] = cast_ptr(ty, ptr(host))[0]
            else:
                host = locate(w, u32(0), p + u64(at >> (per.bit_length() - 1)), u32(1), u32(0), number)
                if host == 0:
                    return
                value = (ptr(host)[0] >> u8((at & (per - 1)) * bits)) & ((1 << bits) - 1)
                shift = u8((i % per) * bits)
                old = u8(0)
                if (i % per) != 0:
                    old = registers[i // per]
                registers[i // per] = old | (value << shift)

    return Native(wmma_load, f"wmma_load_{space}_{bits}")


@cache
def wmma_store_function(space: str, bits: int) -> Native:
    ty, locate = CONTAINER[bits], locate_function(space)

    def wmma_store(w: ptr_to(Warp), site: ptr_to(WmmaSite), p: u64, stride: i64, registers: ptr, number: u32) -> None:
        if w.cta.fault != 0:
            return
        source = cast_ptr(ty, registers)
        for i in range(site.places):
            at = i64(site.major[i]) * stride + i64(site.minor[i])
            host = locate(w, u32(0), p + u64(at * (bits // 8)), u32(bits // 8), u32(1), number)
            if host == 0:
                return
            cast_ptr(ty, ptr(host))[0] = source[i]

    return Native(wmma_store, f"wmma_store_{space}_{bits}")


# Lanes of two vectors in turn: x0 y0 x1 y1 ...
INTERLEAVED = [lane + 32 * which for lane in range(32) for which in (0, 1)]


# wgmma --------------------------------------------------------------------------------------------------------------
@native
def operand_bytes(
    w: ptr_to(Warp), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, number: u32, out: ptr
) -> u32:
    """A matrix of shared memory as plain rows: `lines` rows of `line_bytes` bytes, 16 bytes at a time.

    K-major: a line is a row (m or n) along k. MN-major: a line is one k along m or n. 0 after a fault.
    """
    cta = w.cta
    start = (desc & 0x3FFF) << 4
    leading = i64(((desc >> 16) & 0x3FFF) << 4)
    stride = i64(((desc >> 32) & 0x3FFF) << 4)
    base = (desc >> 49) & 7
    mode = desc >> 62
    span = i64(16)
    mask = u64(0)
    if mode == 1:
        span = i64(128)
        mask = u64(7)
    if mode == 2:
        span = i64(64)
        mask = u64(3)
    if mode == 3:
        span = i64(32)
        mask = u64(1)
    end = u64(cta.launch.shared_bytes)
    target = out
    for line in range(lines):
        for at in range(i64(0), line_bytes, 16):
            offset = i64(0)
            if mn_major == 0:
                if mode == 0:
                    offset = (line % 8) * 16 + (line // 8) * stride + (at // 16) * leading
                else:
                    offset = (line % 8) * span + (line // 8) * stride + (at // span) * leading + at % span
            else:
                if mode == 0:
                    offset = (at // 16) * stride + (line % 8) * 16 + (line // 8) * leading
                else:
                    offset = at % span + (at // span) * leading + (line % 8) * span + (line // 8) * stride
            x = start + u64(offset)
            x = x ^ ((((x >> 7) - base) & mask) << 4)
            place = x - SHARED_BASE
            if place + 16 > end or place > end:
                fault(w, FaultKind.WGMMA_ADDRESS, number, u32(0), x, u32(16))
                return u32(0)
            store(load(u8.vec(16), cta.shared + place), target)
            target = target + 16
    return u32(1)


@native
def transpose16(source: ptr_to(u16), rows: i64, columns: i64, out: ptr_to(u16)) -> None:
    for r in range(rows):
        for c in range(columns):
            out[c * rows + r] = source[r * columns + c]


@native
def unpack_bits(source: ptr, count: i64, out: ptr) -> None:
    """b1: one byte for each bit."""
    for i in range(count):
        out[i] = (source[i // 8] >> u8(i % 8)) & 1


@native
def accumulator_in(site: ptr_to(WgmmaTable), regs: ptr, tile: ptr) -> None:
    """D registers of one warp into 16 rows of the tile (row-major, n columns of 32 or 16 bits)."""
    n = i64(site.n)
    if site.d_bits == 32:
        for j in range(i64(site.d_words) // 2):
            x = load(u32.vec(32), regs + i64(site.d_slots[2 * j]))
            y = load(u32.vec(32), regs + i64(site.d_slots[2 * j + 1]))
            both = shuffle(x, y, INTERLEAVED)
            at = cast_ptr(u32, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            for g in range_(8):
                store(shuffle(both, None, [8 * g + c for c in range_(8)]), at + g * n)
    else:
        for j in range(i64(site.d_words)):
            packed = load(u32.vec(32), regs + i64(site.d_slots[j]))
            row = cast_ptr(u16, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            for g in range_(8):
                store(shuffle(packed, None, [4 * g + c for c in range_(4)]), row + g * n)


@native
def accumulator_out(site: ptr_to(WgmmaTable), regs: ptr, tile: ptr) -> None:
    """16 rows of the tile into the D registers of one warp."""
    n = i64(site.n)
    if site.d_bits == 32:
        for j in range(i64(site.d_words) // 2):
            at = cast_ptr(u32, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            x = cast_ptr(u32, regs + i64(site.d_slots[2 * j]))
            y = cast_ptr(u32, regs + i64(site.d_slots[2 * j + 1]))
            for g in range_(8):
                row = load(u32.vec(8), at + g * n)
                store(shuffle(row, None, [0, 2, 4, 6]), x + 4 * g)
                store(shuffle(row, None, [1, 3, 5, 7]), y + 4 * g)
    else:
        for j in range(i64(site.d_words)):
            half = cast_ptr(u16, tile) + ((j % 2) * 8 * n + (j // 2) * 8)
            packed = cast_ptr(u32, regs + i64(site.d_slots[j]))
            for g in range_(8):
                store(load(u32.vec(4), half + g * n), packed + 4 * g)


@native
def a_registers(site: ptr_to(WgmmaTable), regs: ptr, out: ptr_to(u32)) -> None:
    """The A registers of one warp, one after the other."""
    for r in range_(4):
        store(load(u32.vec(32), regs + i64(site.a_slots[r])), out + 32 * r)


@native
def a_fragment(registers: ptr_to(u32), row_bytes: i64, out: ptr) -> None:
    """A registers of one warp as 16 rows: register r holds 16 bytes of rows g + 8 (r % 2) from byte 16 (r / 2)."""
    for r in range_(4):
        for g in range_(8):
            row = out + (row_bytes * (g + 8 * (r % 2)) + 16 * (r // 2))
            store(load(u32.vec(4), registers + (32 * r + 4 * g)), row)
