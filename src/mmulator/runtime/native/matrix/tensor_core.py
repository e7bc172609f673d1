"""tcgen05.mma, tcgen05.cp, tcgen05.shift and tcgen05.commit: issued by a thread, carried out later.

Each is a transfer of its cluster (asynchrony/transfers.py). Those of one CTA, or of one pair of CTAs, are a pipe: they are
carried out in the order of their issue, at a time that the seed decides. When tcgen05.commit is carried out, it arrives at
mbarriers. TensorCore 5th Generation Family Instructions (PTX ISA 9.1).
"""

from functools import cache

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, stack, trailing_zeros
from mmulator.base.codegen.types import boolean, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Builder, Value
from mmulator.ptx.program.addresses import RANK_SHIFT
from mmulator.runtime.native.asynchrony.bulk import hold_barrier
from mmulator.runtime.native.asynchrony.mbarrier import complete_for
from mmulator.runtime.native.asynchrony.transfers import (
    TensorWork,
    heard_at,
    is_over,
    new_transfer,
    next_of_pipe,
    payload_of,
    start,
)
from mmulator.runtime.native.hooks.events import PayloadShape, moves_alone
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.hooks.tensor import TensorTask, tensor_carried, tensor_committed, tensor_issued, tensor_multiplied
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS, LANE, allocated, cell, peer_of
from mmulator.runtime.native.matrix.tensor_operands import (
    SITE_BITS,
    blame_issuer,
    matrix_bytes,
    shift_rows,
    unpack_elements,
    warp_of,
)
from mmulator.runtime.native.matrix.tensor_products import compute_products
from mmulator.runtime.native.matrix.tensor_state import BY_ADDRESS, ODD, QUARTER, TENSOR_LANES, TENSOR_STEPS, TensorTable, Unpack
from mmulator.runtime.native.memory.locate import one_cta
from mmulator.runtime.native.memory.windows import WITHIN, shared_of
from mmulator.runtime.native.state import Completes, Cta, FaultKind, Transfer, Warp


def call_resolve(function: Value, *args: Value) -> Value:
    """Macro: the host function that gives the TensorTable of a mode and an instruction descriptor; 0 if there is none."""
    return Builder.current().call_pointer(ptr(function), ptr, args)


# issue ----------------------------------------------------------------------------------------------------------------
@native
def table_for(w: ptr_to(Warp), known: ptr_to(ptr), lane: u32, mode: u32, word: u32, site: u32) -> ptr_to(TensorTable):
    """The table of an instruction and its descriptor; null after a fault. known: where the last one is kept."""
    found = cast_ptr(TensorTable, known[0])
    if u64(found) != 0:
        if found.word == word and found.mode == mode:
            return found
    found = cast_ptr(TensorTable, call_resolve(w.cta.launch.resolve, mode, word))
    if u64(found) == 0:
        fault(w, FaultKind.TENSOR_INSTRUCTION, site, lane, u64(word), mode)
    else:
        known[0] = cast_ptr(u8, found)
    return found


@native
def pipe_of(w: ptr_to(Warp)) -> u32:
    """The number of the pipe of a CTA: both CTAs of a pair have one."""
    return 1 + (w.cta.rank >> 1)


@native
def columns_of(w: ptr_to(Warp), lane: u32, address: u32, columns: u32, pair: u32, site: u32) -> None:
    """Record a fault unless columns of tensor memory are allocated, for a pair in both CTAs."""
    good = allocated(w.cta, address & COLUMN_BITS, columns)
    if pair != 0 and good:
        good = allocated(cast_ptr(Cta, w.cta.cluster.ctas) + (w.cta.rank ^ 1), address & COLUMN_BITS, columns)
    if not good:
        fault(w, FaultKind.TENSOR_COLUMNS, site, lane, u64(address), columns)


@native
def based(w: ptr_to(Warp), lane: u32, address: u32, upper: u32, site: u32) -> None:
    """Record a fault unless an address begins in a lane that the instruction takes: 0, or 16 if `upper` is not 0."""
    first = address >> LANE
    if first != 0 and (first != 16 or upper == 0):
        fault(w, FaultKind.TENSOR_ALIGNED, site, lane, u64(address), 0)


@native
def paired(w: ptr_to(Warp), lane: u32, table: ptr_to(TensorTable), address: u32, pair: u32, site: u32) -> None:
    """Record a fault unless metadata begins in the first of two columns that are allocated."""
    columns_of(w, lane, address + table.selected, table.cells, pair, site)
    if (address & 1) != 0:
        fault(w, FaultKind.TENSOR_ALIGNED, site, lane, u64(address), ODD)


@native
def described(w: ptr_to(Warp), lane: u32, desc: u64, k: u32, site: u32) -> None:
    """Record a fault unless a matrix descriptor has the constants that it must have, and a swizzle. k: of the product, or 0."""
    swizzle = u32(desc >> 61)
    odd = (swizzle & 1) != 0 and swizzle != 1
    if (desc & BY_ADDRESS) != 0:
        odd = k != 96 or swizzle != 2 or ((desc >> 49) & 7) != 0
    if ((desc >> 46) & 7) != 1 or ((desc >> 53) & 0xFF) != 0 or odd:
        fault(w, FaultKind.TENSOR_MATRIX, site, lane, desc, 0)


@native
def tally(w: ptr_to(Warp), table: ptr_to(TensorTable), in_cells: u32) -> None:
    """Count a product. in_cells: not 0 if A is in tensor memory."""
    counts = w.cta.cluster.counts + w.cta.launch.blocks
    counts[0] = counts[0] + table.macs
    left = table.open
    if in_cells != 0:
        left = left | table.open_cells
    while left != 0:
        question = trailing_zeros(left) + 1
        left = left & (left - 1)
        counts[question] = counts[question] + 1


@native
def issue_mma(
    w: ptr_to(Warp), mask: u32, known: ptr_to(ptr), mode: u32, d: ptr_to(u32), a: ptr_to(u64), b: ptr_to(u64), words: ptr_to(u32),
    adds: u32, divides: u32, metadata: ptr_to(u32), scale_a: ptr_to(u32), scale_b: ptr_to(u32), off: ptr_to(u32), off_words: u32,
    zeros: ptr_to(u64), pair: u32, in_cells: u32, mover: u32, site: u32,
) -> None:  # fmt: skip
    """Issue tcgen05.mma, lane after lane.

    w, mask, site: the warp, lanes and instruction.
    known: where the last TensorTable of the instruction is kept.
    mode: what the instruction says (matrix/layouts/instruction_descriptor.py: Mode).
    d: addresses in tensor memory.
    a, b: matrix descriptors; a: addresses in tensor memory with in_cells.
    words: instruction descriptors.
    adds: mask of the lanes whose enable-input-d is true.
    divides: scale-input-d.
    metadata, scale_a, scale_b: addresses in tensor memory.
    off, off_words: disable-output-lane, and its words.
    zeros: zero-column mask descriptors.
    pair: 1 for cta_group::2.
    in_cells: 1 if A is in tensor memory, 2 with .ashift.
    mover: number of `move_mma` in the kernel.
    """
    for lane in bits_of(mask):
        if w.cta.fault != 0:
            return
        table = table_for(w, known, lane, mode, words[lane], site)
        if u64(table) == 0:
            return
        if pair != 0:
            if u64(peer_of(w, site)) == 0:
                return
        based(w, lane, d[lane], table.upper, site)
        columns_of(w, lane, d[lane], table.width, pair, site)
        if in_cells != 0:
            based(w, lane, u32(a[lane]), table.upper, site)
            columns_of(w, lane, u32(a[lane]), (table.a_cells + 3) // 4, pair, site)
            if in_cells == 2 and table.upper != 0:
                fault(w, FaultKind.TENSOR_INSTRUCTION, site, lane, u64(words[lane]), mode)
        else:
            described(w, lane, a[lane], table.k, site)
        described(w, lane, b[lane], table.k, site)
        if table.sparse != 0:
            paired(w, lane, table, metadata[lane], pair, site)
        if table.scales != 0:
            columns_of(w, lane, scale_a[lane], table.a_span, pair, site)
            columns_of(w, lane, scale_b[lane], table.b_span, pair, site)
        if w.cta.fault != 0:
            return
        tally(w, table, in_cells)
        tensor_multiplied(w, table.macs, site)
        t = new_transfer(w, lane, mover, site)
        t.units = 1
        t.completes = Completes.PIPE
        t.pipe = pipe_of(w)
        work = payload_of(t, PayloadShape.TENSOR)
        work.table = table
        work.a = a[lane]
        work.b = b[lane]
        work.d = d[lane]
        work.pair = pair
        work.in_cells = in_cells
        work.moved_up = in_cells >> 1
        work.zeros = zeros[lane]
        work.adds = (adds >> lane) & 1
        work.divides = divides
        work.metadata = metadata[lane]
        work.scale_a = scale_a[lane]
        work.scale_b = scale_b[lane]
        for i in range(u32(8)):
            work.lanes_off[i] = 0
            if i < off_words:
                work.lanes_off[i] = off[32 * i + lane]
        tensor_issued(t, u32(TensorTask.MMA), u32(0))
        start(t)


@native
def pair_of(w: ptr_to(Warp), pair: u32, odd: u32) -> ptr_to(Cta):
    """The even or odd CTA of a pair; the warp's own CTA for an instruction of one CTA."""
    cta = w.cta
    if pair == 0:
        return cta
    return cast_ptr(Cta, cta.cluster.ctas) + ((cta.rank & ~u32(1)) | odd)


@native(inline=True)
def carried_alone(w: ptr_to(Warp), t: ptr_to(Transfer)) -> None:
    """Tell an instrument about one instruction that is carried out."""
    work = stack(ptr, 1)
    work[0] = cast_ptr(u8, t)
    tensor_carried(w, work, u32(1))


@native
def reads_apart(table: ptr_to(TensorTable), work: ptr_to(TensorWork)) -> boolean:
    """Whether an instruction does not read what it writes: A is in shared memory, or in other columns than D."""
    if work.in_cells == 0:
        return True
    a = u32(work.a) & COLUMN_BITS
    d = work.d & COLUMN_BITS
    return a + (table.a_cells + 3) // 4 <= d or d + table.width <= a


@native
def same_product(first: ptr_to(Transfer), next: ptr_to(Transfer)) -> boolean:
    """Whether an instruction can be computed as one product with another one before it: it adds to the same D, and reads nothing
    that the other one writes.
    """
    if next.kind != first.kind or u64(cast_ptr(Warp, next.warp).cta) != u64(cast_ptr(Warp, first.warp).cta):
        return False
    work = payload_of(first, PayloadShape.TENSOR)
    more = payload_of(next, PayloadShape.TENSOR)
    table = work.table
    if u64(more.table) != u64(table) or more.d != work.d or more.pair != work.pair or more.adds == 0 or more.divides != 0:
        return False
    for i in unrolled(8):
        if more.lanes_off[i] != work.lanes_off[i]:
            return False
    return more.moved_up == 0 and reads_apart(table, more)


@native
def move_mma(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Carry out tcgen05.mma, together with as many of the next ones of its pipe as are one product with it."""
    cluster = w.cta.cluster
    work = payload_of(t, PayloadShape.TENSOR)
    steps = stack(ptr, TENSOR_STEPS)
    steps[0] = cast_ptr(u8, t)
    count = u32(1)
    alone = stack(u32, 1)
    alone[0] = u32(work.moved_up != 0)
    moves_alone(t, alone)
    last = t
    for _ in range(u32(TENSOR_STEPS - 1)):
        if alone[0] == 0 and count < work.table.steps:
            last = next_of_pipe(cluster, last)
            alone[0] = 1
            if u64(last) != 0:
                if same_product(t, last):
                    steps[count] = cast_ptr(u8, last)
                    count = count + 1
                    alone[0] = 0
    tensor_carried(w, steps, count)
    compute_products(w.cta, pair_of(w, work.pair, u32(0)), pair_of(w, work.pair, u32(1)), steps, count)
    for step in range(u32(1), count):
        done = cast_ptr(Transfer, steps[step])
        done.done = done.units
        is_over(cluster, done)
    return u64(0)


# copies ---------------------------------------------------------------------------------------------------------------
# Rows and bytes of a row in shared memory; of each copy in tensor memory its first row, number of rows and first lane.
COPIES: dict[str, tuple[int, int, tuple[tuple[int, int, int], ...]]] = {
    "128x256b": (128, 32, ((0, 128, 0),)),
    "128x128b": (128, 16, ((0, 128, 0),)),
    "64x128b.warpx2::02_13": (64, 16, ((0, 64, 0), (0, 64, 64))),
    "64x128b.warpx2::01_23": (64, 16, ((0, 32, 0), (0, 32, 32), (32, 32, 64), (32, 32, 96))),
    "32x128b.warpx4": (32, 16, ((0, 32, 0), (0, 32, 32), (0, 32, 64), (0, 32, 96))),
    "4x256b": (4, 32, tuple((q, 1, 32 * q) for q in range(4))),  # to which the address's lane is added: CuTe, TIRx's simulator
}
UNPACKED = {"": Unpack.WHOLE, "b6x16_p32": Unpack.PADDED_6, "b4x16_p64": Unpack.PADDED_4}


@cache
def copy_function(shape: str, unpack: Unpack) -> Native:
    """A function that carries out tcgen05.cp of one shape. unpack: WHOLE, or how its elements become bytes."""
    rows, bytes, places = COPIES[shape]

    def copy(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
        work = payload_of(t, PayloadShape.TENSOR)
        carried_alone(w, t)
        for part in range(u32(1) + work.pair):
            cta = pair_of(w, work.pair, part)
            raw = w.cta.scratch
            number = t.site | (work.padding << SITE_BITS)
            if matrix_bytes(warp_of(cta), work.a, i64(rows), i64(bytes), u32(0), number, raw) == 0:
                blame_issuer(t, cta)
                return u64(0)
            if unpack != Unpack.WHOLE:
                other = raw + rows * bytes
                unpack_elements(raw, i64(rows * bytes), u32(unpack), other)
                if unpack == Unpack.PADDED_4:  # a 4-bit element is in bits 2 to 5 of its byte
                    for i in range(u32(rows * bytes)):
                        other[i] = other[i] << 2
                raw = other
            for begin, count, lane in places:
                for r in range(u32(count)):
                    target = cell(cta, (work.d >> LANE) + u32(lane) + r, work.d & COLUMN_BITS)
                    copy_bytes(cast_ptr(u8, target), raw + u64(begin + r) * bytes, u64(bytes))
        return u64(0)

    name = shape.replace(".", "_").replace("::", "_")
    return Native(copy, f"tensor_copy_{name}_{unpack.name.lower()}")


@native
def issue_copy(
    w: ptr_to(Warp), mask: u32, d: ptr_to(u32), desc: ptr_to(u64), columns: u32, rows: u32, padding: u32, pair: u32, mover: u32,
    site: u32,
) -> None:  # fmt: skip
    """Issue tcgen05.cp or tcgen05.shift, lane after lane.

    w, mask, site: the warp, lanes and instruction.
    d: addresses in tensor memory.
    desc: matrix descriptors of tcgen05.cp.
    columns: number of columns that it writes.
    rows: rows in shared memory of tcgen05.cp; 0 for tcgen05.shift.
    padding: bytes at the end of each 16 of them that are not read.
    pair: 1 for cta_group::2.
    mover: number of the function that carries it out.
    """
    for lane in bits_of(mask):
        if pair != 0:
            if u64(peer_of(w, site)) == 0:
                return
        columns_of(w, lane, d[lane], columns, pair, site)
        if rows != 0:
            described(w, lane, desc[lane], u32(0), site)
            if (d[lane] >> LANE) >= QUARTER or (rows != 4 and (d[lane] >> LANE) != 0):
                fault(w, FaultKind.TENSOR_ALIGNED, site, lane, u64(d[lane]), 0)
        if w.cta.fault != 0:
            return
        t = new_transfer(w, lane, mover, site)
        t.units = 1
        t.completes = Completes.PIPE
        t.pipe = pipe_of(w)
        work = payload_of(t, PayloadShape.TENSOR)
        work.a = desc[lane]
        work.d = d[lane]
        work.mode = rows
        work.padding = padding
        work.pair = pair
        tensor_issued(t, u32(TensorTask.SHIFT) - u32(rows != 0), columns)
        start(t)


SHIFTED = 8  # columns that tcgen05.shift moves


@native
def move_shift(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Carry out tcgen05.shift.down in the quarter of the address: inferred from the text, "the rows of the matrix for a warp"."""
    work = payload_of(t, PayloadShape.TENSOR)
    carried_alone(w, t)
    for part in range(u32(1) + work.pair):
        first = (work.d >> LANE) & (TENSOR_LANES - QUARTER)
        shift_rows(pair_of(w, work.pair, part), first, work.d & COLUMN_BITS, u64(4 * SHIFTED))
    return u64(0)


# completion -----------------------------------------------------------------------------------------------------------
@native
def move_commit(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Carry out tcgen05.commit: arrive once at each mbarrier."""
    for rank in bits_of(t.barriers):
        complete_for(w, t.lane, t.site, cast_ptr(u64, shared_of(w.cta.cluster, rank) + t.offset), 1, 0)
    return u64(0)


@native
def issue_commit(
    w: ptr_to(Warp), mask: u32, barriers: ptr_to(u64), ranks: ptr_to(u32), multicast: u32, mover: u32, site: u32
) -> None:
    """Issue tcgen05.commit, lane after lane.

    w, mask, site: the warp, lanes and instruction.
    barriers: addresses of the shared window.
    ranks: with `multicast`, masks of the CTAs whose mbarriers hear of it.
    mover: number of `move_commit` in the kernel.
    """
    for lane in bits_of(mask):
        at = barriers[lane]
        reached = u32(0)
        if multicast != 0:
            reached = ranks[lane]
            rest = reached
            while rest != 0:
                rank = u64(trailing_zeros(rest)) << RANK_SHIFT
                rest = rest & (rest - 1)
                hold_barrier(w, lane, (at & WITHIN) | rank, site)
        else:
            hold_barrier(w, lane, at, site)
            reached = one_cta(w, lane, at, site)
        if w.cta.fault != 0:
            return
        t = new_transfer(w, lane, mover, site)
        heard_at(t, at, reached)
        t.units = 1
        t.pipe = pipe_of(w)
        if reached == 0:
            t.units = 0
        tensor_committed(t)
        start(t)
