# mypy: disable-error-code="valid-type, no-any-return, arg-type, assignment, operator, index, attr-defined"
"""Matrix instructions from registers to registers in native code: one, or a batch of them.

Where the elements lie, the caller says with tables of places (the fragments are `layouts`' business); the arithmetic is
the twin's. For each instruction operands are taken out of the registers (or an image of shared memory), packed,
multiplied, and the result is put into registers, so that a batch costs no Python for each.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, library_text
from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.codegen.values import Value
from mmulator.numerics.twin import Twin, pool
from mmulator.numerics.twin_batch import call

Array = NDArray[Any]
_P, _I = ctypes.c_void_p, ctypes.c_int64
_CONTAINER = {1: u8, 2: u8, 4: u8, 8: u8, 16: u16, 32: u32, 64: u64}
_Words = ctypes.c_uint64 * 7
Operand = tuple[Array, bool] | None  # an array, and whether the whole batch shares it
OPERANDS = ("a", "b", "c", "d", "e", "scale_a", "scale_b")

Site = Struct("RegistersSite", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64),
    ("m", i64), ("n", i64), ("k", i64), ("ka", i64),  # ka: columns of A, k / 2 if it is sparse
    ("copies", i64), ("d_places", i64), ("scales", i64),
    ("a_map", ptr_to(i32)), ("b_map", ptr_to(i32)), ("c_map", ptr_to(i32)), ("d_map", ptr_to(i32)),
    ("e_lane", ptr_to(i32)), ("e_shift", ptr_to(i32)), ("e_base", ptr_to(i32)), ("e_drop", u32), ("e_group", u32),
    ("scale_a_map", ptr_to(i32)), ("scale_b_map", ptr_to(i32)),
    # offsets into the scratch memory
    ("raw_a", i64), ("raw_b", i64), ("raw_c", i64), ("raw_d", i64), ("packed_a", i64), ("packed_b", i64),
    ("index", i64), ("raw_scale_a", i64), ("raw_scale_b", i64),
])  # fmt: skip


@dataclass(frozen=True)
class Room:
    """Where an element lies: bits of its room in a register, and shift and width inside that."""

    bits: int
    shift: int
    width: int


@dataclass(frozen=True, eq=False)
class Metadata:
    """Dense column of each element of a sparse A [M, K/2]: base + ((e[lane] >> shift & 3) >> drop) * group.

    drop: 1 where an index is made of two halves (tf32), which have to belong together.
    """

    lane: Array
    shift: Array
    base: Array
    drop: int
    group: int


def collect_function(room: Room) -> Native:
    """Elements out of packed registers into one container each: out[i] = element number map[i]."""
    ty = _CONTAINER[room.bits]
    bits, shift, width = room.bits, room.shift, room.width

    def collect(registers: ptr, places: ptr_to(i32), count: i64, target: ptr) -> None:
        source = cast_ptr(ty, registers)
        out = cast_ptr(ty, target)
        for i in range(count):
            at = i64(places[i])
            if bits >= 8:
                value = source[at]
                if width < bits:
                    value = (value >> shift) & ((1 << width) - 1)
                out[i] = value
            else:
                per = 8 // bits
                out[i] = (registers[at // per] >> u8((at % per) * bits)) & ((1 << bits) - 1)

    return Native(collect, f"collect_{bits}_{shift}_{width}")


def spread_function(bits: int) -> Native:
    """The reverse for results: register place i receives element map[i]."""
    ty = _CONTAINER[bits]

    def spread(matrix: ptr, places: ptr_to(i32), count: i64, registers: ptr) -> None:
        source = cast_ptr(ty, matrix)
        out = cast_ptr(ty, registers)
        for i in range(count):
            out[i] = source[i64(places[i])]

    return Native(spread, f"spread_{bits}")


@cache
def _indices_function(halves: bool) -> Native:
    """The row of B that each element of a sparse A multiplies; not 0 if halves of two elements are mixed."""

    def indices(site: ptr_to(Site), metadata: ptr_to(u32), out: ptr_to(i32)) -> u32:
        mixed = u32(0)
        for i in range(site.m * site.ka):
            nibble = metadata[i64(site.e_lane[i])] >> u32(site.e_shift[i])
            if halves:  # 0b0100 and 0b1110 are elements 0 and 1
                low = nibble & 15
                mixed = mixed | (u32(low != 4) & u32(low != 14))
            out[i] = site.e_base[i] + i32(((nibble & 3) >> site.e_drop) * site.e_group)
        return mixed

    return Native(indices, f"indices_{int(halves)}")


@cache
def run_function(a: Room, b: Room, c: Room, d_bits: int, sparse: int, scaled: bool) -> Native:
    """`count` instructions. places, strides: of OPERANDS, `strides` bytes apart (0: the same for all).

    sparse: 0, 1, or 2 where metadata names halves. Flags 1: C is not read. Returns the number of the first instruction
    whose metadata mixes halves, `count` if there is none; nothing after it is computed.
    """
    collect_a, collect_b, collect_c, spread_d = (*(collect_function(r) for r in (a, b, c)), spread_function(d_bits))
    collect_scales = collect_function(Room(8, 0, 8))
    indices = _indices_function(sparse == 2)
    d_size = d_bits // 8

    def run(site: ptr_to(Site), places: ptr_to(u64), strides: ptr_to(u64), count: i64, flags: i64, scratch: ptr) -> i64:
        m = site.m
        n = site.n
        k = site.k
        raw_a = scratch + site.raw_a
        raw_b = scratch + site.raw_b
        raw_c = scratch + site.raw_c
        raw_d = scratch + site.raw_d
        packed_a = scratch + site.packed_a
        packed_b = scratch + site.packed_b
        index = scratch + site.index
        scale_a = scratch + site.raw_scale_a
        scale_b = scratch + site.raw_scale_b
        for t in range(count):
            step = u64(t)
            at_a, at_b, at_c, at_d, at_e, at_sa, at_sb = [at(places, strides, step, i) for i in everything]
            mixed = u32(0)
            if sparse:
                mixed = indices(site, cast_ptr(u32, at_e), cast_ptr(i32, index))
            if mixed != 0:
                return t
            if scaled:
                collect_scales(at_sa, site.scale_a_map, m * site.scales, scale_a)
                collect_scales(at_sb, site.scale_b_map, n * site.scales, scale_b)
            for copy in range(site.copies):
                collect_a(at_a, site.a_map + copy * (m * k), m * site.ka, raw_a)
                call(site.pack_a, raw_a, site.ka, m, k, packed_a)
                collect_b(at_b, site.b_map + copy * (n * k), n * k, raw_b)
                call(site.pack_b, raw_b, n, n, k, packed_b)
                if (flags & 1) == 0:
                    collect_c(at_c, site.c_map + copy * (m * n), m * n, raw_c)
                out = raw_d + copy * (m * n * d_size)
                more = ([index] if sparse else []) + ([scale_a, scale_b] if scaled else [])
                call(site.dot, packed_a, packed_b, raw_c, n, out, n, m, n, k, flags, *more)
            spread_d(raw_d, site.d_map, site.d_places, at_d)
        return count

    return Native(run, f"registers_{a.bits}_{b.bits}_{c.bits}_{d_bits}_{sparse}_{int(scaled)}")


everything = tuple(range(len(OPERANDS)))


def at(places: Value, strides: Value, step: Value, i: int) -> Value:
    """Macro: the operand of one instruction of the batch."""
    return ptr(places[i] + step * strides[i])


@cache
def _entry(*kind: Any) -> tuple[Any, Library]:
    function = run_function(*kind)
    library = Library(library_text([function]))
    return library.function(function.name, ctypes.c_int64, _P, _P, _P, _I, _I, _P), library


class Registers:
    """One instruction's way from registers to registers on one device.

    rooms, maps: of a, b, c: for each element of the matrices (copies, M, K), (copies, K, N), (copies, M, N) its place
    in the operand's registers, counted in elements. d_map: for each place of the result the number of its element.
    scale_maps: byte of each scale factor [M, S] and [S, N] within the scale operands.
    """

    def __init__(
        self, twin: Twin, shape: tuple[int, int, int], rooms: tuple[Room, Room, Room, int], maps: tuple[Array, Array, Array],
        d_map: Array, copies: int = 1, metadata: Metadata | None = None, scale_maps: tuple[Array, Array] | None = None,
    ) -> None:  # fmt: skip
        m, n, k = shape
        ka = k // 2 if metadata else k
        site = np.zeros(1, Site.numpy_dtype())
        self._keep: list[Any] = [twin, site]
        for name, value in (("m", m), ("n", n), ("k", k), ("ka", ka), ("copies", copies), ("d_places", d_map.size)):
            site[name] = value
        for name in ("pack_a", "dot"):
            site[name] = getattr(twin, name)
        site["pack_b"] = twin.pack_b_rows
        for name, table in zip(("a_map", "b_map", "c_map", "d_map"), (*maps, d_map)):
            site[name] = self._table(table)
        if metadata:
            for name in ("lane", "shift", "base"):
                site[f"e_{name}"] = self._table(getattr(metadata, name))
            site["e_drop"], site["e_group"] = metadata.drop, metadata.group
        scales = 0
        if scale_maps:
            scales = scale_maps[0].size // m
            site["scales"] = scales
            site["scale_a_map"], site["scale_b_map"] = (self._table(x) for x in scale_maps)
        end = 0
        for name, size in (
            ("raw_a", m * k * 8), ("raw_b", n * k * 8), ("raw_c", m * n * 8), ("raw_d", m * n * copies * 8),
            ("packed_a", twin.a_bytes(m, k)), ("packed_b", twin.b_bytes(n, k)), ("index", m * k * 4),
            ("raw_scale_a", m * scales), ("raw_scale_b", n * scales),
        ):  # fmt: skip
            site[name] = end
            end += (size // 64 + 2) * 64
        self._site, self._scratch = site.ctypes.data, end
        self._work = m * n * k * copies
        sparse = 0 if not metadata else 2 if metadata.drop else 1
        self._native, _ = _entry(*rooms, sparse, scale_maps is not None)

    def _table(self, values: Array) -> int:
        array = np.ascontiguousarray(values, np.int32)
        self._keep.append(array)
        return int(array.ctypes.data)

    def __call__(self, operands: list[Operand], out: Array, count: int, threads: int, flags: int = 0) -> bool:
        """Fill `out`, [count, ...]. operands: those of OPERANDS without d, in that order.

        False if metadata mixes halves of elements; then `out` is undefined.
        """
        own = out.nbytes // count
        given = [*operands[:3], (out, False), *operands[3:]]
        pointers = [0 if x is None else int(x[0].ctypes.data) for x in given]
        strides = _Words(*(0 if x is None or x[1] else own if x[0] is out else x[0].nbytes // count for x in given))
        parts = max(1, min(threads, count * self._work >> 18))
        if parts == 1:
            return self._part(pointers, strides, count, flags)
        size = -(-count // parts)
        jobs = [
            pool(threads).submit(
                self._part, [p + first * s for p, s in zip(pointers, strides)], strides, min(size, count - first), flags
            )
            for first in range(0, count, size)
        ]
        return sum(job.result() for job in jobs) == len(jobs)

    def _part(self, pointers: list[int], strides: Any, count: int, flags: int) -> bool:
        scratch = np.empty(self._scratch + 64, np.uint8)
        start = (int(scratch.ctypes.data) + 63) & -64
        return bool(self._native(self._site, _Words(*pointers), strides, count, flags, start) == count)
