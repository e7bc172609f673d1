"""Products of tcgen05.mma: matrices from shared and tensor memory, packed and multiplied into tensor memory.

A TensorTable says everything that the instruction and its instruction descriptor decide: places, sizes, and the functions of the
numerics twin. All of it is computed by pure functions of layouts/ (launch/tensor_tables.py).
"""

from __future__ import annotations

from mmulator.codegen.lang import native, unrolled
from mmulator.codegen.ops import cast_ptr, copy_bytes, fill_bytes, load, minimum, null, store
from mmulator.codegen.types import boolean, f16, f32, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.layouts.descriptors import fields5
from mmulator.layouts.swizzle import SWIZZLES5
from mmulator.native.asynchrony.payloads import TensorWork
from mmulator.native.hooks.events import operand_read
from mmulator.native.hooks.faults import fault
from mmulator.native.matrix.tensor_memory import COLUMN_BITS, LANE, cell
from mmulator.native.matrix.tensor_state import BY_ADDRESS, QUARTER, TENSOR_LANES, TENSOR_ROW, TensorTable, Unpack
from mmulator.native.memory.windows import descriptor_span, of_descriptor
from mmulator.native.state import Cta, FaultKind, Warp
from mmulator.twin.doors import Door
from mmulator.twin.product import IndexTable, call_dot, call_pack, dense_indices
from mmulator.twin.shared import UNIT, operand_function

LINE, START = 128, 0x3FFF  # bytes; bits of a matrix descriptor with the start address
MASKED = 8  # words of disable-output-lane, for two CTAs


@native(inline=True)
def tensor_operand_seen(w: ptr_to(Warp), at: u64, site: u32) -> None:
    """Tell an instrument about an access to UNIT bytes of a matrix."""
    operand_read(w, of_descriptor(w, at), site)


@native(inline=True)
def tensor_operand(w: ptr_to(Warp), at: u64, site: u32) -> ptr:
    """Pointer to UNIT bytes of a matrix in shared memory; null, with a fault, if they do not exist."""
    host = descriptor_span(w, at, at + (UNIT - 1))
    if u64(host) == 0:
        fault(w, FaultKind.TENSOR_ADDRESS, site, 0, at, UNIT)
        return null(u8)
    tensor_operand_seen(w, at, site)
    return host + at


matrix_bytes = operand_function(
    Door("tensor", Warp, tensor_operand, span=descriptor_span, seen=tensor_operand_seen), fields5, SWIZZLES5
)


def warp_of(cta: ptr_to(Cta)) -> ptr_to(Warp):
    """Macro: the first warp of a CTA, which stands for it."""
    return cast_ptr(Warp, cta.field("warps"))


@native
def unpack_elements(raw: ptr_to(u8), count: i64, unpack: u32, out: ptr_to(u8)) -> None:
    """Write elements of less than 8 bits to bytes of their own.

    raw: the elements as they lie in memory.
    count: number of elements, a multiple of 16.
    unpack: an Unpack.
    out: destination, `count` bytes.
    """
    if unpack == Unpack.PAIRS:
        for i in range(count // 2):
            out[2 * i] = raw[i] & 15
            out[2 * i + 1] = raw[i] >> 4
    elif unpack == Unpack.SHIFTED_4:
        for i in range(count):
            out[i] = (raw[i] >> 2) & 15
    elif unpack == Unpack.LOW_6:
        for i in range(count):
            out[i] = raw[i] & 63
    elif unpack == Unpack.PADDED_4:
        for g in range(count // 16):
            for i in range(i64(8)):
                out[16 * g + 2 * i] = raw[16 * g + i] & 15
                out[16 * g + 2 * i + 1] = raw[16 * g + i] >> 4
    else:
        for g in range(count // 16):
            for i in range(i64(4)):
                three = raw + (16 * g + 3 * i)
                bits = u32(three[0]) | (u32(three[1]) << 8) | (u32(three[2]) << 16)
                for j in unrolled(4):
                    out[16 * g + 4 * i + j] = u8((bits >> (6 * j)) & 63)


@native
def across(raw: ptr, rows: i64, columns: i64, size: u32, out: ptr) -> None:
    """Transpose a matrix of `rows` by `columns` elements of `size` bytes."""
    for r in range(rows):
        for c in range(columns):
            source = raw + (r * columns + c) * i64(size)
            target = out + (c * rows + r) * i64(size)
            if size == 1:
                target[0] = source[0]
            elif size == 2:
                store(load(u16, source), target)
            else:
                store(load(u32, source), target)


@native(inline=True)
def head_of(desc: u64, line: i64) -> i64:
    """The bytes of a line that lie before a boundary of 128 bytes, where a descriptor has an address for the others."""
    if (desc & BY_ADDRESS) == 0:
        return line
    return minimum(line, i64(LINE) - i64((desc << 4) & (LINE - 1)))


@native(inline=True)
def rest_of(desc: u64) -> u64:
    """A matrix descriptor that begins at the address that another one has instead of a leading byte offset."""
    return (desc & ~u64(START)) | ((desc >> 16) & START)


@native
def shared_matrix(
    cta: ptr_to(Cta), table: ptr_to(TensorTable), desc: u64, rows: i64, stored: i64, line: u32, size: u32, turned: u32,
    unpack: u32, site: u32, out: ptr,
) -> boolean:  # fmt: skip
    """Read a matrix of shared memory, element after element along k. Returns False after a fault.

    cta: owner of the shared memory.
    table: table of the instruction.
    desc: matrix descriptor.
    rows: rows of A or columns of B.
    stored: elements along k.
    line: bytes of a row along k.
    size: bytes of an element.
    turned: whether M or N is contiguous.
    unpack: an Unpack.
    site: the instruction.
    out: destination.
    """
    w = warp_of(cta)
    raw = cta.scratch + table.scratch.raw
    if turned != 0:
        if matrix_bytes(w, desc, stored, rows * i64(size), 1, site, raw) == 0:
            return False
        across(raw, stored, rows, size, out)
    elif unpack == Unpack.WHOLE:
        return matrix_bytes(w, desc, rows, i64(line), 0, site, out) != 0
    elif (desc & BY_ADDRESS) != 0:
        head = head_of(desc, i64(line))
        tail = i64(line) - head
        rest = raw + u64(rows * head)
        if matrix_bytes(w, desc, rows, head, 0, site, raw) == 0:
            return False
        if matrix_bytes(w, rest_of(desc), rows, tail, 0, site, rest) == 0:
            return False
        for r in range(rows):
            unpack_elements(raw + u64(r * head), 2 * head, unpack, out + u64(r * stored))
            unpack_elements(rest + u64(r * tail), 2 * tail, unpack, out + u64(r * stored + 2 * head))
    else:
        if matrix_bytes(w, desc, rows, i64(line), 0, site, raw) == 0:
            return False
        unpack_elements(raw, rows * stored, unpack, out)
    return True


@native
def shift_rows(cta: ptr_to(Cta), first: u32, column: u32, bytes: u64) -> None:
    """Move each lane's bytes from a column on to the lane before it, in the 32 lanes of a quarter; the last lane keeps its own.

    cta: owner of the tensor memory.
    first: first lane of the quarter.
    column: the column.
    bytes: number of bytes.
    """
    for lane in range(u32(QUARTER - 1)):
        source = cell(cta, first + lane + 1, column)
        copy_bytes(cast_ptr(u8, cell(cta, first + lane, column)), cast_ptr(u8, source), bytes)


@native
def cells_matrix(cta: ptr_to(Cta), table: ptr_to(TensorTable), address: u32, base: u32, out: ptr) -> None:
    """Read A from tensor memory, element after element along k.

    cta: owner of the tensor memory.
    table: table of the instruction.
    address: of A in tensor memory.
    base: its first lane within a quarter, 0 or 16.
    out: destination.
    """
    room = out
    if table.a_cells_unpack != Unpack.WHOLE:
        room = cta.scratch + table.scratch.raw
    for p in range(table.pieces):
        if table.first[p] == 0:
            for r in range(table.rows):
                source = cell(cta, table.lane[p] + r + base, address & COLUMN_BITS)
                copy_bytes(room + u64(table.row[p] + r) * u64(table.a_cells), cast_ptr(u8, source), u64(table.a_cells))
    if table.a_cells_unpack != Unpack.WHOLE:
        unpack_elements(room, i64(table.m) * i64(table.stored), table.a_cells_unpack, out)


@native
def factors(
    cta: ptr_to(Cta), address: u32, lane: u32, rows: u32, count: u32, byte: u32, next: u32, step: u64, stride: u64,
    out: ptr_to(u8),
) -> None:  # fmt: skip
    """Read scale factors from tensor memory: factor s of row i to out[i * stride + s * step].

    cta: owner of the tensor memory.
    address: of the scale factors.
    lane: first lane of the quarter that holds them.
    rows: rows of A or columns of B.
    count: factors of a row.
    byte: the first one's byte in its cell.
    next: columns to the cell of the factors behind the fourth byte.
    step, stride: bytes from a factor to the next, and from a row to the next.
    out: destination.
    """
    for i in range(rows):
        for s in range(count):
            at = byte + s
            word = cell(cta, lane + (i & 31), (address & COLUMN_BITS) + (i >> 5) + (at >> 2) * next)[0]
            out[u64(i) * stride + u64(s) * step] = u8(word >> (8 * (at & 3)))


@native
def indices(cta: ptr_to(Cta), table: ptr_to(TensorTable), address: u32) -> None:
    """Compute the indices of a sparse A from the metadata in tensor memory."""
    words = cast_ptr(u32, cta.scratch + table.scratch.metadata)
    base = (address >> LANE) & 16
    column = (address & COLUMN_BITS) + table.selected
    for lane in range(TENSOR_LANES - base):
        for c in range(table.cells):
            words[lane * table.cells + c] = cell(cta, lane + base, column + c)[0]
    dense_indices(cast_ptr(IndexTable, table.places), words, cast_ptr(i32, cta.scratch + table.scratch.index))


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
def multiply_pieces(
    cta: ptr_to(Cta), room: ptr, table: ptr_to(TensorTable), work: ptr_to(TensorWork), second: u32, scaled: boolean
) -> None:
    """Multiply packed operands, piece after piece of one CTA's part of D.

    cta: owner of the part.
    room: scratch memory with the operands.
    table: table of the instruction.
    work: the instruction's operands.
    second: 1 for the second CTA of a pair.
    scaled: whether there are scale factors.
    """
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
        if table.sparse != 0 and scaled:
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
def pack_columns(room: ptr, table: ptr_to(TensorTable), elements: ptr, turned: boolean) -> None:
    """Pack B, each piece's columns for themselves. turned: whether the elements lie row after row."""
    done = u32(0)
    for p in range(table.pieces):
        if p == 0 or table.first[p] >= done:
            first = table.first[p]
            source = elements + u64(first) * u64(table.b_size)
            target = room + table.scratch.packed_b + u64(first) * u64(table.b_row)
            if turned:
                call_pack(table.pack_b_rows, source, i64(table.n), i64(table.columns), i64(table.k), target)
            else:
                source = elements + u64(first) * u64(table.k) * u64(table.b_size)
                call_pack(table.pack_b, source, i64(table.k), i64(table.columns), i64(table.k), target)
            done = first + table.columns


@native
def pack_rows(room: ptr, table: ptr_to(TensorTable), elements: ptr) -> None:
    """Pack A, each piece's rows for themselves."""
    done = u32(0)
    for p in range(table.pieces):
        if p == 0 or table.row[p] >= done:
            row = table.row[p]
            source = elements + u64(row) * u64(table.stored) * u64(table.a_size)
            target = room + table.scratch.packed_a + u64(row) * u64(table.a_row)
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
def compute_products(own: ptr_to(Cta), even: ptr_to(Cta), odd: ptr_to(Cta), work: ptr_to(TensorWork), site: u32) -> None:
    """Execute one tcgen05.mma: read its operands, multiply, write D; with .ashift, move A in tensor memory behind the product.

    own: the CTA that issued it.
    even, odd: the CTAs of the pair; both `own` for an instruction of one CTA.
    work: the instruction's operands.
    site: the instruction.
    """
    table = work.table
    room = own.scratch
    elements = room + table.scratch.elements
    size = u64(table.b_size)
    parts = u32(1) + work.pair
    columns = table.n // parts
    shift = u32(work.zeros >> 56) & 63
    scaled = table.scales != 0
    masked = ((work.zeros >> 39) & 1) != 0
    turned = table.b_across != 0 and parts == 1 and shift == 0 and not masked
    if turned:
        if matrix_bytes(warp_of(even), work.b, i64(table.k), i64(table.n) * i64(size), 1, site, elements) == 0:
            return
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
            return
    elements = elements + u64(shift) * u64(table.k) * size
    if masked:
        clear_columns(table, work.zeros, elements)
    pack_columns(room, table, elements, turned)
    parts = u32(1) + work.pair
    elements = room + table.scratch.elements
    for part in range(parts):
        cta = even
        if part != 0:
            cta = odd
        if work.in_cells != 0:
            cells_matrix(cta, table, u32(work.a), (u32(work.a) >> LANE) & 31, elements)
        else:
            good = shared_matrix(
                cta, table, work.a, i64(table.m), i64(table.stored), table.a_line, table.a_size, table.a_across, table.a_unpack,
                site, elements,
            )  # fmt: skip
            if not good:
                return
        pack_rows(room, table, elements)
        if scaled:
            rows = room + table.scratch.scale_a
            factors(cta, work.scale_a, u32(0), table.m, table.scales, table.a_byte, table.a_next, 1, u64(table.scales), rows)
            for p in range(table.pieces):
                first = table.first[p]
                at = room + table.scratch.scale_b + u64(first) * u64(table.scales)
                step = u64(table.columns)
                factors(
                    cta, work.scale_b, table.lane[p], table.columns, table.scales, table.b_byte, table.b_next, step, 1, at
                )
        if table.sparse != 0:
            indices(cta, table, work.metadata)
        multiply_pieces(cta, room, table, work, part, scaled)
        if work.moved_up != 0:
            for quarter in range(u32(TENSOR_LANES // QUARTER)):
                shift_rows(cta, quarter * QUARTER, u32(work.a) & COLUMN_BITS, u64(table.a_cells))
