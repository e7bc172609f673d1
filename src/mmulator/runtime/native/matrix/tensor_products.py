"""Products of tcgen05.mma: matrices from shared and tensor memory, packed and multiplied into tensor memory.

A TensorTable says everything that the instruction and its instruction descriptor decide: places, sizes, and the functions of the
numerics twin. All of it is computed by pure functions of matrix/layouts/ (runtime/launch/tensor_tables.py).
"""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import cast_ptr, copy_bytes, fill_bytes, stack
from mmulator.base.codegen.types import boolean, f16, f32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.matrix.twin.product import call_dot, call_pack, call_steps
from mmulator.runtime.native.asynchrony.transfers import TensorWork, payload_of
from mmulator.runtime.native.hooks.events import PayloadShape
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS, LANE, cell
from mmulator.runtime.native.matrix.tensor_operands import (
    blame_issuer,
    cells_matrix,
    factors,
    indices,
    matrix_bytes,
    shared_matrix,
    shift_rows,
    warp_of,
)
from mmulator.runtime.native.matrix.tensor_state import QUARTER, TENSOR_LANES, TENSOR_ROW, TENSOR_STEPS, TensorTable
from mmulator.runtime.native.state import Cta, Transfer

MASKED = 8  # words of disable-output-lane, for two CTAs


@native
def is_off(work: ptr_to(TensorWork), second: u32, lane: u32) -> boolean:
    """Whether disable-output-lane names a lane of tensor memory. second: 1 for the second CTA of a pair."""
    return ((work.lanes_off[4 * second + (lane >> 5)] >> (lane & 31)) & 1) != 0


@native
def piece_in(cta: ptr_to(Cta), table: ptr_to(TensorTable), work: ptr_to(TensorWork), lane: u32, column: u32, out: ptr) -> None:
    """Copy a piece of D to plain rows, divided by a power of two as scale-input-d says."""
    scale = f32(1.0)
    for _ in range(work.divides):
        scale = scale * 0.5
    for r in range(table.rows):
        source = cell(cta, lane + r, column)
        if table.d_bits == 16:
            target = cast_ptr(u16, out) + r * table.columns
            for c in range(table.columns):
                target[c] = u16(source[c])
            if work.divides != 0:
                halves = cast_ptr(f16, target)
                for c in range(table.columns):
                    halves[c] = f16(f32(halves[c]) * scale)
        else:
            words = cast_ptr(u32, out) + r * table.columns
            for c in range(table.columns):
                words[c] = source[c]
            if work.divides != 0:
                numbers = cast_ptr(f32, words)
                for c in range(table.columns):
                    numbers[c] = numbers[c] * scale


@native
def piece_out(
    cta: ptr_to(Cta), table: ptr_to(TensorTable), work: ptr_to(TensorWork), second: u32, lane: u32, column: u32, source: ptr
) -> None:
    """Copy plain rows to a piece of D, but for the lanes that disable-output-lane names."""
    for r in range(table.rows):
        if not is_off(work, second, lane + r):
            target = cell(cta, lane + r, column)
            if table.d_bits == 16:
                halves = cast_ptr(u16, source) + r * table.columns
                for c in range(table.columns):
                    target[c] = u32(halves[c])
            else:
                copy_bytes(cast_ptr(u8, target), source + u64(r) * u64(table.columns) * 4, u64(table.columns) * 4)


@native
def multiply_pieces(cta: ptr_to(Cta), room: ptr, work: ptr_to(TensorWork), count: u32, second: u32, scaled: boolean) -> None:
    """Multiply packed operands, piece after piece of one CTA's part of D.

    cta: owner of the part.
    room: scratch memory with the operands.
    work: operands of the first instruction.
    count: number of instructions.
    second: 1 for the second CTA of a pair.
    scaled: whether there are scale factors.
    """
    table = work.table
    at_a = stack(ptr, TENSOR_STEPS)
    at_b = stack(ptr, TENSOR_STEPS)
    flags = i64(table.flags)
    if work.adds == 0:
        flags = flags | 1
    off = u32(0)
    for i in unrolled(MASKED):
        off = off | work.lanes_off[i]
    apart = table.d_bits == 16 or off != 0 or work.divides != 0
    base = (work.d >> LANE) & 31
    k = i64(table.k)
    rows = i64(table.rows)
    columns = i64(table.columns)
    for p in range(table.pieces):
        lane = table.lane[p] + base
        column = (work.d & COLUMN_BITS) + table.column[p]
        d = cast_ptr(u8, cell(cta, lane, column))
        stride = i64(TENSOR_ROW // 4)
        if apart:
            d = room + table.scratch.c
            stride = columns
            if work.adds != 0:
                piece_in(cta, table, work, lane, column, d)
        a = room + table.scratch.packed_a + u64(table.row[p]) * u64(table.a_row)
        b = room + table.scratch.packed_b + u64(table.first[p]) * u64(table.b_row)
        index = room + table.scratch.index + u64(table.row[p]) * u64(table.stored) * 4
        scale_a = room + table.scratch.scale_a + u64(table.row[p]) * u64(table.scales)
        scale_b = room + table.scratch.scale_b + u64(table.first[p]) * u64(table.scales)
        if count > 1:
            for step in range(count):
                at_a[step] = a + u64(step) * u64(table.a_pack)
                at_b[step] = b + u64(step) * u64(table.b_pack)
            call_steps(table.dot_steps, count, at_a, at_b, d, stride, d, stride, rows, columns, flags)
        elif table.sparse != 0 and scaled:
            call_dot(table.dot, a, b, d, stride, d, stride, rows, columns, k, flags, index, scale_a, scale_b)
        elif table.sparse != 0:
            call_dot(table.dot, a, b, d, stride, d, stride, rows, columns, k, flags, index)
        elif scaled:
            call_dot(table.dot, a, b, d, stride, d, stride, rows, columns, k, flags, scale_a, scale_b)
        else:
            call_dot(table.dot, a, b, d, stride, d, stride, rows, columns, k, flags)
        if apart:
            piece_out(cta, table, work, second, lane, column, d)


@native
def pack_columns(packed: ptr, table: ptr_to(TensorTable), elements: ptr, turned: boolean) -> None:
    """Pack B, each piece's columns for themselves.

    packed: where to.
    table: table of the instruction.
    elements: B.
    turned: whether the elements lie row after row.
    """
    done = u32(0)
    for p in range(table.pieces):
        if p == 0 or table.first[p] >= done:
            first = table.first[p]
            source = elements + u64(first) * u64(table.b_size)
            target = packed + u64(first) * u64(table.b_row)
            if turned:
                call_pack(table.pack_b_rows, source, i64(table.n), i64(table.columns), i64(table.k), target)
            else:
                source = elements + u64(first) * u64(table.k) * u64(table.b_size)
                call_pack(table.pack_b, source, i64(table.k), i64(table.columns), i64(table.k), target)
            done = first + table.columns


@native
def pack_rows(packed: ptr, table: ptr_to(TensorTable), elements: ptr) -> None:
    """Pack A, each piece's rows for themselves. packed: where to."""
    done = u32(0)
    for p in range(table.pieces):
        if p == 0 or table.row[p] >= done:
            row = table.row[p]
            source = elements + u64(row) * u64(table.stored) * u64(table.a_size)
            target = packed + u64(row) * u64(table.a_row)
            call_pack(table.pack_a, source, i64(table.stored), i64(table.rows), i64(table.k), target)
            done = row + table.rows


@native
def clear_columns(table: ptr_to(TensorTable), zeros: u64, elements: ptr) -> None:
    """Set columns of B to zero, as a zero-column mask descriptor says: each piece of D has a mask of runs of used columns and
    runs of zeros. The table of the specification exchanges the names of the two lengths; its examples do not.

    table: table of the instruction.
    zeros: the descriptor.
    elements: B, column after column.
    """
    zero_run = u32(zeros >> 40) & 0xFF
    used_run = u32(zeros >> 48) & 0xFF
    bytes = u64(table.k) * u64(table.b_size)
    for p in range(table.pieces):
        at = u32(zeros >> u64(8 * p)) & 0xFF
        zero = u32(zeros >> u64(32 + p)) & 1
        for c in range(table.columns):
            length = used_run
            if zero != 0:
                length = zero_run
            if zero != 0:
                fill_bytes(elements + u64(table.first[p] + c) * bytes, 0, bytes)
            at = at + 1
            if at > length:
                at = u32(0)
                zero = zero ^ 1


@native
def read_columns(
    own: ptr_to(Cta), even: ptr_to(Cta), odd: ptr_to(Cta), work: ptr_to(TensorWork), packed: ptr, site: u32
) -> boolean:
    """Read B of one instruction and pack it. Returns False after a fault.

    own: the CTA that issued it.
    even, odd: the CTAs of the pair; both `own` for an instruction of one CTA.
    work: the instruction's operands.
    packed: where to.
    site: the instruction.
    """
    table = work.table
    elements = own.scratch + table.scratch.elements
    size = u64(table.b_size)
    parts = u32(1) + work.pair
    columns = table.n // parts
    shift = u32(work.zeros >> 56) & 63
    masked = ((work.zeros >> 39) & 1) != 0
    turned = table.b_across != 0 and parts == 1 and shift == 0 and not masked
    if turned:
        if matrix_bytes(warp_of(even), work.b, i64(table.k), i64(table.n) * i64(size), 1, site, elements) == 0:
            return False
        parts = u32(0)
    for part in range(parts):
        cta = even
        if part != 0:
            cta = odd
        target = elements + u64(part) * u64(columns) * u64(table.k) * size
        good = shared_matrix(
            cta, table, work.b, i64(columns + shift), i64(table.k), table.b_line, table.b_size, table.b_across, table.b_unpack,
            site, target,
        )  # fmt: skip
        if not good:
            return False
    elements = elements + u64(shift) * u64(table.k) * size
    if masked:
        clear_columns(table, work.zeros, elements)
    pack_columns(packed, table, elements, turned)
    return True


@native
def read_rows(cta: ptr_to(Cta), room: ptr, work: ptr_to(TensorWork), packed: ptr, site: u32) -> boolean:
    """Read one CTA's part of A of one instruction and pack it. Returns False after a fault.

    cta: owner of the part.
    room: scratch memory of the CTA that issued the instruction.
    work: the instruction's operands.
    packed: where to.
    site: the instruction.
    """
    table = work.table
    elements = room + table.scratch.elements
    if work.in_cells != 0:
        cells_matrix(cta, table, u32(work.a), (u32(work.a) >> LANE) & 31, elements)
    else:
        good = shared_matrix(
            cta, table, work.a, i64(table.m), i64(table.stored), table.a_line, table.a_size, table.a_across, table.a_unpack,
            site, elements,
        )  # fmt: skip
        if not good:
            return False
    pack_rows(packed, table, elements)
    return True


@native
def read_factors(cta: ptr_to(Cta), room: ptr, work: ptr_to(TensorWork)) -> None:
    """Read the scale factors of one CTA's part of an instruction.

    cta: owner of the part.
    room: scratch memory of the CTA that issued the instruction.
    work: the instruction's operands.
    """
    table = work.table
    rows = room + table.scratch.scale_a
    factors(cta, work.scale_a, u32(0), table.m, table.scales, table.a_byte, table.a_next, 1, u64(table.scales), rows)
    for p in range(table.pieces):
        at = room + table.scratch.scale_b + u64(table.first[p]) * u64(table.scales)
        step = u64(table.columns)
        factors(cta, work.scale_b, table.lane[p], table.columns, table.scales, table.b_byte, table.b_next, step, 1, at)


@native
def compute_products(own: ptr_to(Cta), even: ptr_to(Cta), odd: ptr_to(Cta), steps: ptr_to(ptr), count: u32) -> None:
    """Execute tcgen05.mma: read the operands, multiply, write D; with .ashift, move A in tensor memory behind the product.

    own: the CTA that issued it.
    even, odd: the CTAs of the pair; both `own` for an instruction of one CTA.
    steps: a Transfer of each of several instructions that are one product, in their order.
    count: number of instructions.
    """
    first = cast_ptr(Transfer, steps[0])
    work = payload_of(first, PayloadShape.TENSOR)
    table = work.table
    room = own.scratch
    for step in range(count):
        t = cast_ptr(Transfer, steps[step])
        packed = room + table.scratch.packed_b + u64(step) * u64(table.b_pack)
        if not read_columns(own, even, odd, payload_of(t, PayloadShape.TENSOR), packed, t.site):
            blame_issuer(t, own)
            return
    for part in range(u32(1) + work.pair):
        cta = even
        if part != 0:
            cta = odd
        for step in range(count):
            t = cast_ptr(Transfer, steps[step])
            packed = room + table.scratch.packed_a + u64(step) * u64(table.a_pack)
            if not read_rows(cta, room, payload_of(t, PayloadShape.TENSOR), packed, t.site):
                blame_issuer(t, cta)
                return
        if table.scales != 0:
            read_factors(cta, room, work)
        if table.sparse != 0:
            indices(cta, table, work.metadata)
        multiply_pieces(cta, room, work, count, part, table.scales != 0)
        if work.moved_up != 0:
            for quarter in range(u32(TENSOR_LANES // QUARTER)):
                shift_rows(cta, quarter * QUARTER, u32(work.a) & COLUMN_BITS, u64(table.a_cells))
