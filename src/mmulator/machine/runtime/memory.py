"""Loads, stores, matrix moves, between memory behind the door (windows.py) and registers."""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import advance, all_lanes, bits_mask, cast_ptr, gather, iota, load, stack, store, trailing_zeros
from mmulator.codegen.types import Struct, Ty, i32, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.windows import SPACES, matrix_space
from mmulator.machine.state import FULL, Warp

U64, POINTERS = u64.vec(32), ptr.vec(32)
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}


@cache
def load_function(space: str, size: int, count: int) -> Native:
    """`count` elements of `size` bytes a lane; element c of lane l goes to dst[32 * c + l]. Idle lanes get anything."""
    translate, element = SPACES[space], _ELEMENT[size]
    vector = element.vec(32)

    def load_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        ok = translate(w, mask, at, size * count, READ, site, host)
        if ok == 0:
            return
        base = host[0]
        if ok == FULL and all_lanes((load(U64, host) - u64(base)) == iota(U64, 0, size * count)) and count == 1:
            store(load(vector, base), dst)
            return
        if size >= 4:
            h = load(POINTERS, host)
            for c in range_(count):
                store(gather(vector, advance(h, c * size), bits_mask(ok)), cast_ptr(vector, dst) + c)
            return
        out = cast_ptr(element, dst)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            source = cast_ptr(element, host[lane])
            for c in range_(count):
                out[lane + 32 * c] = source[c]

    return Native(load_, f"load_{space}_{size}x{count}")


@cache
def store_function(space: str, size: int, count: int) -> Native:
    """The reverse. Of lanes that store to one address the highest wins."""
    translate, element = SPACES[space], _ELEMENT[size]
    vector = element.vec(32)

    def store_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        ok = translate(w, mask, at, size * count, WRITE, site, host)
        if ok == 0:
            return
        base = host[0]
        if count == 1 and ok == FULL and all_lanes((load(U64, host) - u64(base)) == iota(U64, 0, size)):
            store(load(vector, src), base)
            return
        values = cast_ptr(element, src)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            target = cast_ptr(element, host[lane])
            for c in range_(count):
                target[c] = values[lane + 32 * c]

    return Native(store_, f"store_{space}_{size}x{count}")


def range_(count: int) -> list[int]:
    """Unrolled at compile time."""
    return list(range(count))


# chance --------------------------------------------------------------------------------------------------------------
@native
def hash_choice(seed: u64, a: u64, b: u64) -> u64:
    """A well-mixed number from three; the machine's only source of chance."""
    x = seed * 0x9E3779B97F4A7C15 + a * 0xBF58476D1CE4E5B9 + b * 0x94D049BB133111EB + 0x2545F4914F6CDD1D
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


# matrix moves -------------------------------------------------------------------------------------------------------
@cache
def ldmatrix_function(space: str, matrices: int, trans: bool) -> Native:
    """ldmatrix .m8n8 .b16: lane 8 i + r gives the address of row r of matrix i; dst[32 i + lane] receives a register."""
    translate = matrix_space(space)
    lanes = (1 << (8 * matrices)) - 1

    def ldmatrix(w: ptr_to(Warp), at: ptr_to(u64), dst: ptr_to(u32), site: u32) -> None:
        host = stack(ptr, 32)
        if translate(w, lanes, at, 16, READ, site, host) == 0:
            return
        for i in range_(matrices):
            if trans:
                words = cast_ptr(u16, dst + 32 * i)
                for r in range_(8):
                    row = cast_ptr(u16, host[8 * i + r])
                    # element [r][c] lies in lane 4 c + r / 2, half r % 2
                    for c in range_(8):
                        words[(4 * c + r // 2) * 2 + r % 2] = row[c]
            else:
                for r in range_(8):
                    store(load(u32.vec(4), host[8 * i + r]), dst + (32 * i + 4 * r))

    return Native(ldmatrix, f"ldmatrix_{space}_x{matrices}{'_trans' if trans else ''}")


@cache
def stmatrix_function(space: str, matrices: int, trans: bool) -> Native:
    """stmatrix .m8n8 .b16, the reverse of ldmatrix."""
    translate = matrix_space(space)
    lanes = (1 << (8 * matrices)) - 1

    def stmatrix(w: ptr_to(Warp), at: ptr_to(u64), src: ptr_to(u32), site: u32) -> None:
        host = stack(ptr, 32)
        if translate(w, lanes, at, 16, WRITE, site, host) == 0:
            return
        for i in range_(matrices):
            if trans:
                words = cast_ptr(u16, src + 32 * i)
                for r in range_(8):
                    row = cast_ptr(u16, host[8 * i + r])
                    for c in range_(8):
                        row[c] = words[(4 * c + r // 2) * 2 + r % 2]
            else:
                for r in range_(8):
                    store(load(u32.vec(4), src + (32 * i + 4 * r)), host[8 * i + r])

    return Native(stmatrix, f"stmatrix_{space}_x{matrices}{'_trans' if trans else ''}")


# 8-bit ldmatrix and stmatrix: 16 elements a row, and the byte of the registers in memory that each is in.
ByteMoveSite = Struct("ByteMoveSite", [("rows", u32), ("element_bits", u32), ("places", ptr_to(i32))])


@cache
def ldmatrix_bytes_function(space: str) -> Native:
    """ldmatrix .m16n16 and .m8n16: lane r gives the address of row r; 4- and 6-bit elements are packed in its low bits."""
    translate = matrix_space(space)

    def ldmatrix_bytes(w: ptr_to(Warp), move: ptr_to(ByteMoveSite), at: ptr_to(u64), dst: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        rows = move.rows
        if translate(w, u32((u64(1) << u64(rows)) - 1), at, 16, READ, site, host) == 0:
            return
        bits = move.element_bits
        for r in range(rows):
            row = host[r]
            for c in range(u32(16)):
                first = bits * c
                value = u32(row[first // 8]) >> (first % 8)
                if first % 8 + bits > 8:
                    value = value | (u32(row[first // 8 + 1]) << (8 - first % 8))
                dst[move.places[16 * r + c]] = u8(value & ((1 << bits) - 1))

    return Native(ldmatrix_bytes, f"ldmatrix_bytes_{space}")


@cache
def stmatrix_bytes_function(space: str) -> Native:
    """stmatrix .m16n8 .b8: lane r gives the address of row r of the transposed matrix."""
    translate = matrix_space(space)

    def stmatrix_bytes(w: ptr_to(Warp), move: ptr_to(ByteMoveSite), at: ptr_to(u64), src: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        rows = move.rows
        if translate(w, u32((u64(1) << u64(rows)) - 1), at, 16, WRITE, site, host) == 0:
            return
        for r in range(rows):
            row = host[r]
            for c in range(u32(16)):
                row[c] = src[move.places[16 * r + c]]

    return Native(stmatrix_bytes, f"stmatrix_bytes_{space}")


@native
def movmatrix(a: ptr_to(u32), d: ptr_to(u32)) -> None:
    """Transpose an 8 by 8 matrix of 16-bit elements: [r][c] lies in lane 4 r + c / 2, half c % 2."""
    source = cast_ptr(u16, a)
    target = cast_ptr(u16, d)
    for r in range_(8):
        for c in range_(8):
            target[(4 * c + r // 2) * 2 + r % 2] = source[(4 * r + c // 2) * 2 + c % 2]
