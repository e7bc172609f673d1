"""Operands of tcgen05.mma: matrices from shared and tensor memory, scale factors and metadata, element after element."""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import cast_ptr, copy_bytes, load, minimum, null, store
from mmulator.base.codegen.types import boolean, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.matrix.layouts.descriptors import fields5
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.product import IndexTable, dense_indices
from mmulator.matrix.twin.shared import UNIT, operand_function
from mmulator.runtime.native.hooks.events import READ, Proxy, accessed_one, by
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS, LANE, cell
from mmulator.runtime.native.matrix.tensor_state import BY_ADDRESS, PADDING, QUARTER, TENSOR_LANES, TensorTable, Unpack
from mmulator.runtime.native.memory.windows import descriptor_span, of_descriptor
from mmulator.runtime.native.state import Cta, FaultKind, Transfer, Warp

LINE, START = 128, 0x3FFF  # bytes; bits of a matrix descriptor with the start address
_PADDED_4, _PADDED_6 = PADDING.values()
SITE_BITS = 28  # of a walk's number; above them the bytes of padding at the end of each UNIT


@native(inline=True)
def padding_of(unpack: u32) -> u32:
    """Bytes of padding at the end of each UNIT of a matrix, which no instruction reads. unpack: an Unpack."""
    return u32(unpack == Unpack.PADDED_4) * _PADDED_4 + u32(unpack == Unpack.PADDED_6) * _PADDED_6


@native(inline=True)
def tensor_operand_seen(w: ptr_to(Warp), at: u64, number: u32) -> None:
    """Tell an instrument about an access to UNIT bytes of a matrix. number: the site, and above it the padding."""
    accessed_one(
        w, u32(0), of_descriptor(w, at), u32(UNIT) - (number >> SITE_BITS), by(READ, Proxy.ASYNC), number & ((1 << SITE_BITS) - 1)
    )


@native(inline=True)
def tensor_operand(w: ptr_to(Warp), at: u64, number: u32) -> ptr:
    """Pointer to UNIT bytes of a matrix in shared memory; null, with a fault, if they do not exist. number: as above."""
    host = descriptor_span(w, at, at + (UNIT - 1))
    if u64(host) == 0:
        fault(w, FaultKind.TENSOR_ADDRESS, number & ((1 << SITE_BITS) - 1), 0, at, UNIT)
        return null(u8)
    tensor_operand_seen(w, at, number)
    return host + at


matrix_bytes = operand_function(
    Door("tensor", Warp, tensor_operand, span=descriptor_span, seen=tensor_operand_seen), fields5, SWIZZLES5
)


@native
def blame_issuer(t: ptr_to(Transfer), cta: ptr_to(Cta)) -> None:
    """Name the thread that issued an operation in the fault of a matrix, where it is of this CTA."""
    w = cast_ptr(Warp, t.warp)
    if w.cta.linear == cta.linear:
        cta.fault_warp = w.index
        cta.fault_lane = t.lane


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
        if matrix_bytes(w, desc, rows, i64(line), 0, site | (padding_of(unpack) << SITE_BITS), raw) == 0:
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
