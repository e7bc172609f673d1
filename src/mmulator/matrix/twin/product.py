# mypy: disable-error-code="valid-type, arg-type, attr-defined, index"
"""Products of fragments: native functions from registers to registers, around those of the numerics twin.

Registers are given as memory; a ProductTable holds the place of each piece of a matrix, so that one code serves every form and
every order of registers and lanes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_mask, cast_ptr, elements_at, gather, load, store
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u16, u32, u64, void
from mmulator.base.codegen.values import Builder, Value
from mmulator.matrix.twin.moves import CONTAINER

# One mma or wmma.mma form: sizes, the twin's functions, and the place of each matrix element in the fragments.
ProductTable = Struct("ProductTable", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64),
    ("m", i64), ("n", i64), ("k", i64), ("ka", i64),  # ka: columns of A, k / 2 if it is sparse
    ("flags", i64),
    # places in the registers of the pieces of one matrix, as `collect_function` takes them, and how many there are
    ("a_map", ptr_to(i32)), ("b_map", ptr_to(i32)), ("c_map", ptr_to(i32)), ("d_map", ptr_to(i32)),
    ("a_pieces", i64), ("b_pieces", i64), ("c_pieces", i64),
    ("raw", u64), ("packed_a", u64), ("packed_b", u64), ("result", u64),  # offsets into the scratch memory
    ("copies", i64),  # matrices in one instruction (4 for m8n8k4 .f16)
    ("d_places", i64),
    ("index", u64),  # offset into the scratch memory
    ("own", u64),  # the same: raw B, and room for another, of a sparse form
    ("a_row", i64),  # bytes of a row of packed A
    ("places", ptr),  # IndexTable of a sparse A
    # block scaling: scale factors of a row of A or column of B, offsets into the scratch memory, and the byte of the
    # scale-a-data and scale-b-data registers that holds each if both selectors are 0
    ("scales", i64), ("scale_a", u64), ("scale_b", u64), ("scale_a_map", ptr_to(i32)), ("scale_b_map", ptr_to(i32)),
], functions=("pack_a", "pack_b", "dot"))  # fmt: skip

# Where the index of each element of a sparse A lies: index = base + ((metadata[lane] >> shift & 3) >> drop) * group.
IndexTable = Struct("IndexTable", [
    ("count", i64), ("lane", ptr_to(i32)), ("shift", ptr_to(i32)), ("base", ptr_to(i32)), ("drop", u32), ("group", u32),
])  # fmt: skip


def call_pack(function: Value, raw: Value, ld: Any, rows: Any, k: Any, out: Value) -> None:
    """Macro: pack_a or pack_b of the numerics twin."""
    b = Builder.current()
    b.call_pointer(ptr(function), void, [ptr(raw), i64(ld), i64(rows), i64(k), ptr(out)])


def call_dot(
    function: Value, pa: Value, pb: Value, c: Value, ldc: Any, d: Value, ldd: Any, m: Any, n: Any, k: Any, flags: Any,
    *more: Value,
) -> None:  # fmt: skip
    """Macro: dot of the numerics twin. more: index of a sparse key, scale_a and scale_b of a block-scaled one."""
    args = [ptr(pa), ptr(pb), ptr(c), i64(ldc), ptr(d), i64(ldd), i64(m), i64(n), i64(k), i64(flags)]
    Builder.current().call_pointer(ptr(function), void, [*args, *(ptr(x) for x in more)])


def call_steps(
    function: Value, count: Any, a: Value, b: Value, c: Value, ldc: Any, d: Value, ldd: Any, m: Any, n: Any, flags: Any
) -> None:
    """Macro: dot_steps of the numerics twin."""
    args = [i64(count), ptr(a), ptr(b), ptr(c), i64(ldc), ptr(d), i64(ldd), i64(m), i64(n), i64(flags)]
    Builder.current().call_pointer(ptr(function), void, args)


@native
def dense_indices(table: ptr_to(IndexTable), metadata: ptr_to(u32), out: ptr_to(i32)) -> None:
    """Compute the row of B that each element of a sparse A multiplies, from the metadata as hardware interprets it.

    Sixteen at a time: every form's count is a multiple of sixteen.
    """
    vector = u32.vec(16)
    every = bits_mask(u16(0xFFFF))
    for i in range(i64(0), table.count, 16):
        word = gather(vector, elements_at(metadata, load(vector, table.lane + i)), every)
        value = ((word >> load(vector, table.shift + i)) & 3) >> table.drop
        store(load(vector, table.base + i) + value * table.group, out + i)


@native
def has_mixed(table: ptr_to(IndexTable), metadata: ptr_to(u32)) -> u32:
    """Whether .tf32 metadata somewhere selects halves of two elements."""
    for i in range(table.count):
        value = (metadata[table.lane[i]] >> u32(table.shift[i])) & 15
        if value != 4 and value != 14:
            return u32(1)
    return u32(0)


@native
def mixed_dot(
    pack_b: u64, dot: u64, table: ptr_to(IndexTable), metadata: ptr_to(u32), pa: ptr, a_row: i64, b: ptr_to(u16),
    own: ptr_to(u16), packed: ptr, index: ptr_to(i32), c: ptr_to(u32), d: ptr_to(u32), m: i64, n: i64, k: i64, flags: i64,
) -> None:  # fmt: skip
    """dot for .tf32 metadata that selects halves of two elements: every row of A gets its own B, built from halves.

    pack_b, dot: functions of the twin.
    table, metadata: table and metadata of A.
    pa, a_row: packed A, and bytes of its row.
    b: raw B [n][k].
    own, packed, index: memory for one B, one packed B, and k / 2 indices.
    c, d: operand and result.
    m, n, k: the shape.
    flags: of the twin.
    """
    for row in range(m):
        for j in range(k // 2):
            i = row * (k // 2) + j
            value = (metadata[table.lane[i]] >> u32(table.shift[i])) & 15
            index[j] = i32(2 * j)
            for col in range(n):
                chunk = b + (col * 2 * k + 4 * j)
                mine = own + (col * 2 * k + 4 * j)
                mine[0] = chunk[value & 3]
                mine[1] = chunk[value >> 2]
        call_pack(pack_b, ptr(own), k, n, k, packed)
        call_dot(dot, pa + row * a_row, packed, ptr(c + row * n), n, ptr(d + row * n), n, i64(1), n, k, flags, ptr(index))


@cache
def collect_function(bits: int, shift: int = 0, width: int = 0) -> Native:
    """A function that copies pieces of `bits` bits from packed registers: out[i] = piece number map[i].

    A piece is an element, or several that are adjacent in registers and matrix. Elements of less than 8 bits get one byte each;
    shift, width: place of an element in its bits, if it does not fill them.
    """
    ty = CONTAINER.get(bits, u8)

    def collect(registers: ptr, places: ptr_to(i32), count: i64, out: ptr_to(ty)) -> None:
        source = cast_ptr(ty, registers)
        for i in range(count):
            at = places[i]
            if bits > 64:
                size = bits // 8
                store(load(u8.vec(size), registers + i64(at) * size), out + i * size)
            elif width:
                out[i] = (source[at] >> shift) & ((1 << width) - 1)
            elif bits >= 8:
                out[i] = source[at]
            else:
                per = 8 // bits
                out[i] = (registers[at // per] >> u8((at % per) * bits)) & ((1 << bits) - 1)

    return Native(collect, f"collect_{bits}" + (f"_{shift}_{width}" if width else ""))


@native
def collect_scales(registers: ptr, places: ptr_to(i32), selector: u32, count: i64, out: ptr) -> None:
    """Copy scale factors from scale-a-data or scale-b-data of a warp.

    registers: the data.
    places: places of the factors.
    selector: offset in bytes from the place of selectors 0.
    count: number of factors.
    out: destination.
    """
    for i in range(count):
        out[i] = registers[places[i] + i32(selector)]


@cache
def spread_function(bits: int) -> Native:
    """A function that writes accumulators to registers: register place i receives element map[i]."""
    ty = CONTAINER[bits]

    def spread(matrix: ptr, places: ptr_to(i32), count: i64, registers: ptr) -> None:
        source = cast_ptr(ty, matrix)
        out = cast_ptr(ty, registers)
        for i in range(count):
            out[i] = source[places[i]]

    return Native(spread, f"spread_{bits}")


Piece = tuple[int, int, int]  # bits of a piece; lowest bit and width of its element if that does not fill it


@cache
def mma_function(a_piece: Piece, b_piece: Piece, c_piece: Piece, d_bits: int, sparse: bool, scaled: bool) -> Native:
    """A function for mma.sync of one warp: fragments a, b, c in memory, register after register, 32 lanes each; and d.

    a_piece, b_piece, c_piece: (bits, shift, width) of the operands' pieces.
    d_bits: bits of an element of d.
    sparse: whether it takes metadata e.
    scaled: whether it takes the registers scale-a-data and scale-b-data, with selectors as for `collect_scales`.
    """
    collect_a, collect_b, collect_c = (collect_function(*n) for n in (a_piece, b_piece, c_piece))
    spread_d = spread_function(d_bits)
    a_ty, b_ty, c_ty = (CONTAINER.get(n[0], u8) for n in (a_piece, b_piece, c_piece))
    d_ty = CONTAINER[d_bits]

    def mma(
        product: ptr_to(ProductTable), scratch: ptr, a: ptr, b: ptr, c: ptr, e: ptr_to(u32), scale_a: ptr, scale_b: ptr,
        select_a: u32, select_b: u32, d: ptr,
    ) -> None:  # fmt: skip
        m = product.m
        n = product.n
        k = product.k
        raw = scratch + product.raw
        result = scratch + product.result
        pa = scratch + product.packed_a
        pb = scratch + product.packed_b
        more = []
        raw_b = raw
        if sparse:
            raw_b = scratch + product.own
            index = scratch + product.index
            dense_indices(cast_ptr(IndexTable, product.places), e, cast_ptr(i32, index))
            more += [index]
        if scaled:
            factors_a = scratch + product.scale_a
            factors_b = scratch + product.scale_b
            collect_scales(scale_a, product.scale_a_map, select_a, m * product.scales, factors_a)
            collect_scales(scale_b, product.scale_b_map, select_b, n * product.scales, factors_b)
            more += [factors_a, factors_b]
        for copy in range(product.copies):
            collect_a(a, product.a_map + copy * product.a_pieces, product.a_pieces, cast_ptr(a_ty, raw))
            call_pack(product.pack_a, raw, product.ka, m, k, pa)
            collect_b(b, product.b_map + copy * product.b_pieces, product.b_pieces, cast_ptr(b_ty, raw_b))
            call_pack(product.pack_b, raw_b, k, n, k, pb)
            collect_c(c, product.c_map + copy * product.c_pieces, product.c_pieces, cast_ptr(c_ty, raw))
            out = cast_ptr(d_ty, result) + copy * (m * n)
            if sparse:
                table = cast_ptr(IndexTable, product.places)
                if table.drop != 0 and has_mixed(table, e) != 0:
                    room = cast_ptr(u16, raw_b + n * k * 4)
                    mixed_dot(product.pack_b, product.dot, table, e, pa, product.a_row, cast_ptr(u16, raw_b), room, pb,
                              cast_ptr(i32, index), cast_ptr(u32, raw), cast_ptr(u32, out), m, n, k, product.flags)  # fmt: skip
                else:
                    call_dot(product.dot, pa, pb, raw, n, out, n, m, n, k, product.flags, *more)
            else:
                call_dot(product.dot, pa, pb, raw, n, out, n, m, n, k, product.flags, *more)
        spread_d(cast_ptr(d_ty, result), product.d_map, product.d_places, cast_ptr(d_ty, d))

    pieces = "_".join(str(x) for x in (*a_piece, *b_piece, *c_piece, d_bits))
    return Native(mma, f"mma_{pieces}{'_sp' if sparse else ''}{'_scaled' if scaled else ''}")


OPERANDS = 7  # a, b, c, e, scale_a, scale_b, d


@cache
def batch_function(one: Native) -> Native:
    """A function for `count` products in sequence. places, strides: address and distance in bytes of the OPERANDS."""

    def batch(
        product: ptr_to(ProductTable), scratch: ptr, count: i64, places: ptr_to(u64), strides: ptr_to(u64),
        select_a: u32, select_b: u32,
    ) -> None:  # fmt: skip
        for t in range(count):
            at = [ptr(places[i] + u64(t) * strides[i]) for i in unrolled(OPERANDS)]
            one(product, scratch, *at[:3], cast_ptr(u32, at[3]), *at[4:6], select_a, select_b, at[6])

    return Native(batch, f"batch_{one.name}")
