"""Tensor memory of a trail: the write that a cell has its bits from, and the operands of one element of tcgen05.mma and bytes of
tcgen05.cp as the machine read them.

TensorCore 5th Generation Family Instructions (PTX ISA 9.1)."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.isa.types import TYPES
from mmulator.matrix.layouts import operand_addresses
from mmulator.matrix.layouts.descriptors import SharedDescriptor
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor, Variant
from mmulator.matrix.layouts.tensor_memory import MOVES, a_place, layout_id, metadata_place, moved
from mmulator.observation.record.addresses import InCell, InMemory, Place, addresses, elements, operands_of, value_of
from mmulator.observation.record.products import ProductElement
from mmulator.observation.record.tensor_pipe import TensorOperation, page_bytes, stores_cells
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.tree import Address, Instruction, Operand
from mmulator.runtime.launch.tensor_tables import key_of, unpacking
from mmulator.runtime.native.matrix.tensor_core import COPIES, SHIFTED, UNPACKED
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS, LANE
from mmulator.runtime.native.matrix.tensor_operands import LINE, START
from mmulator.runtime.native.matrix.tensor_state import BY_ADDRESS, QUARTER, Unpack
from mmulator.runtime.native.state import LANES


def copy_shape(ins: Instruction) -> str:
    """The shape of a tcgen05.cp, `64x128b.warpx2::02_13`."""
    return ".".join(filter(None, (ins.form["shape"], ins.form["multicast"])))


def loads_cells(ins: Instruction) -> bool:
    """Whether an instruction is tcgen05.ld."""
    return ins.effects.queue is Queue.TENSOR_MOVES and ins.effects.memory is MemoryEffect.READ


@dataclass(frozen=True)
class StoredCell:
    """A cell that tcgen05.st wrote. step, lane: who stored. operand, low: the register, and its lowest bit that is stored."""

    step: TrailStep
    lane: int
    operand: Operand
    low: int


@dataclass(frozen=True)
class ProductCell:
    """A cell that tcgen05.mma wrote. operation: the product. cta: owner. row, column: of D, the row in the CTA's part.
    place: the cell as it was before the product.
    """

    operation: TensorOperation
    cta: int
    row: int
    column: int
    place: InCell


@dataclass(frozen=True)
class CopiedCell:
    """A cell that tcgen05.cp wrote. operation: the copy. cta: owner. row, byte: of the copied matrix."""

    operation: TensorOperation
    cta: int
    row: int
    byte: int


@dataclass(frozen=True)
class MovedCell:
    """A cell that tcgen05.shift, or .ashift of a product, wrote. operation: the instruction. place: the cell that it copied."""

    operation: TensorOperation
    place: InCell


CellWrite = StoredCell | ProductCell | CopiedCell | MovedCell


class Cells:
    """Answers about the tensor memory of a cluster. trail: has all its steps. cluster: its number; -1: the only one."""

    def __init__(self, trail: Trail, cluster: int) -> None:
        self.trail = trail
        self._operations = [op for op in trail.pipe.operations if cluster in (-1, trail.cluster_of(op.block))]
        self._steps = [s for s in trail.steps if cluster in (-1, trail.cluster_of(s.block))]
        stores = [(float(s.number), s) for s in self._steps if stores_cells(trail.instruction(s))]
        carried = [(op.time - 0.5, op) for op in self._operations]
        both: list[tuple[float, Any]] = sorted([*stores, *carried], key=lambda one: one[0])
        self._times, self.writes = [at for at, _ in both], [write for _, write in both]
        self._name_issues()

    def _name_issues(self) -> None:
        """Give each operation the step that issued it: operations of a thread are carried out in the order of their issue."""
        found: dict[tuple[tuple[int, int], int, int], list[TrailStep]] = defaultdict(list)
        for step in self._steps:
            ins = self.trail.instruction(step)
            if ins.effects.queue is Queue.TENSOR and ins.effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE):
                taking = self.trail.guard(step)
                for lane in (n for n in range(LANES) if taking >> n & 1):
                    found[step.warp, step.site, lane].append(step)
        issues = {key: iter(steps) for key, steps in found.items()}
        for op in self._operations:
            op.step = next(issues[(op.block, op.place.warp), op.site, op.lane])

    def before(self, step: TrailStep) -> int:
        """The number of writes to tensor memory before a step."""
        return bisect_left(self._times, step.number)

    def last(self, place: InCell) -> CellWrite | None:
        """The newest write to a cell before it was read; None if there is none."""
        for number in range(place.before - 1, -1, -1):
            write = self.writes[number]
            found = self._moved(write, place, number) if isinstance(write, TensorOperation) else self._stored(write, place)
            if found is not None:
                return found
        return None

    def _stored(self, step: TrailStep, place: InCell) -> StoredCell | None:
        if step.place.cta != place.cta or step.place.warp % 4 != place.lane // QUARTER:
            return None
        hit = moved_cells(self.trail, step)
        if hit is None:
            return None
        lanes, columns, registers, wide = hit
        away = place.column - columns
        found = np.argwhere((lanes == place.lane) & (away >= 0) & (away < wide))
        if not len(found):
            return None
        lane, number = (int(n) for n in found[-1])
        return StoredCell(step, lane, registers[number], 16 * int(away[lane, number]) if wide > 1 else 0)

    def _moved(self, op: TensorOperation, place: InCell, number: int) -> CellWrite | None:
        if place.cta not in op.ctas:
            return None
        lane, column = place.lane, place.column
        work, d_lane, d_column = op.work, int(op.work["d"]) >> LANE, int(op.work["d"]) & COLUMN_BITS
        behind = InCell(place.cta, lane + 1, column, place.low, number)
        if op.table is None and work["mode"]:
            return self._copied(op, place, d_lane, d_column)
        if op.table is None:
            same = lane // QUARTER == d_lane // QUARTER and 0 <= column - d_column < SHIFTED
            return MovedCell(op, behind) if same and lane % QUARTER != QUARTER - 1 else None
        a = column - (int(work["a"]) & COLUMN_BITS)
        if work["moved_up"] and 0 <= a < -(-int(op.table["a_cells"]) // 4) and lane % QUARTER != QUARTER - 1:
            return MovedCell(op, behind)
        second = op.ctas.index(place.cta)
        if int(work["lanes_off"][4 * second + lane // QUARTER]) >> lane % QUARTER & 1:
            return None
        t = op.table
        for p in range(int(t["pieces"])):
            row, n = lane - d_lane % QUARTER - int(t["lane"][p]), column - d_column - int(t["column"][p])
            if 0 <= row < t["rows"] and 0 <= n < t["columns"]:
                at = InCell(place.cta, lane, column, 0, number)
                return ProductCell(op, place.cta, int(t["row"][p]) + row, int(t["first"][p]) + n, at)
        return None

    def _copied(self, op: TensorOperation, place: InCell, d_lane: int, d_column: int) -> CopiedCell | None:
        _, bytes, parts = COPIES[copy_shape(self.trail.kernel.executed[op.site])]
        byte = 4 * (place.column - d_column)
        for first, count, lane in parts:
            row = place.lane - d_lane - lane
            if 0 <= row < count and 0 <= byte < bytes:
                return CopiedCell(op, place.cta, first + row, byte)
        return None

    def loaded(self, step: TrailStep, lane: int, register: str) -> list[InCell]:
        """The cells of which a lane's register of tcgen05.ld has the bits, lowest first; each of 16 bits, if there are two."""
        found = moved_cells(self.trail, step)
        if found is None:
            return []
        lanes, columns, registers, wide = found
        number = next((n for n, o in enumerate(registers) if getattr(o, "name", "") == register), None)
        if number is None:
            return []
        at = int(lanes[lane, number]), int(columns[lane, number])
        return [InCell(step.place.cta, at[0], at[1] + n, 0, self.before(step)) for n in range(wide)]


def cells_of(trail: Trail, block: int | None = None) -> Cells:
    """Answers about the tensor memory of the cluster of a block; None: of the only cluster."""
    cluster = -1 if block is None else trail.cluster_of(block)
    if cluster not in trail.tensor:
        trail.tensor[cluster] = Cells(trail, cluster)
    found: Cells = trail.tensor[cluster]
    return found


Index = NDArray[np.int64]


@lru_cache(maxsize=256)
def _shape(shape: str, count: int, split: int, wide: int) -> tuple[Index, Index]:
    lanes, columns = moved(shape, np.arange(LANES)[:, None], np.arange(count)[None, :], split, wide)
    both = np.broadcast_arrays(lanes, columns)
    return both[0].astype(np.int64), both[1].astype(np.int64)


def moved_cells(trail: Trail, step: TrailStep) -> tuple[Index, Index, tuple[Operand, ...], int] | None:
    """The cells of tcgen05.ld or st: (lane, column) of each [thread, register], the registers, and columns of a register."""
    ins = trail.instruction(step)
    named, form = operands_of(ins), ins.form
    operand, r = named.get("taddr"), named.get("r")
    taking = trail.guard(step)
    at = addresses(trail, step, operand, "tensor") if isinstance(operand, Address) else None
    if at is None or r is None or not taking or form["shape"] not in MOVES:
        return None
    address = int(at[(taking & -taking).bit_length() - 1]) & 0xFFFFFFFF
    split = value_of(trail, step, 0, named.get("immHalfSplitoff")) or 0
    registers = elements(r)
    wide = 2 if form["pack"] or form["unpack"] else 1
    lanes, columns = _shape(form["shape"], len(registers), split, wide)
    first = QUARTER * (step.place.warp % 4) + (address >> LANE) % QUARTER
    return lanes + first, columns + (address & COLUMN_BITS), registers, wide


_GROUPS = {Unpack.PADDED_4: 4, Unpack.PADDED_6: 6}  # bits of an element, of which 16 lie in 16 bytes
_CELL_LOW = {Unpack.SHIFTED_4: 2}


def tensor_product(made: ProductCell) -> ProductElement:
    """The element of D that a tcgen05.mma wrote to a cell."""
    op, cta, number = made.operation, made.cta, made.place.before
    assert op.table is not None
    variant = Variant.of_number(int(op.table["mode"]))
    d = variant.decode(int(op.table["word"]))
    second = op.ctas.index(cta)
    stored = d.k // 2 if d.sparse else d.k
    if ("a", cta, made.row) not in op.lines:
        op.lines["a", cta, made.row] = _row_of_a(op, d, cta, made.row, stored, number)
    if ("b", cta, made.column) not in op.lines:
        op.lines["b", cta, made.column] = _column_of_b(op, d, made.column)
    (a_at, a), (b_at, b) = op.lines["a", cta, made.row], op.lines["b", cta, made.column]
    positions: Sequence[int] = range(d.k)
    if d.sparse:
        positions = _kept(op, d, cta, made.row, stored)
        b_at, b = tuple(b_at[k] for k in positions), tuple(b[k] for k in positions)
    factors = [_factors(op, cta, side, line, number) for side, line in (("a", made.row), ("b", made.column))]
    raw = [tuple((op.cell(at.cta, at.lane, at.column) or 0) >> at.low & 0xFF for at in side) for side in factors]
    adds = bool(op.work["adds"])
    c = op.cell(cta, made.place.lane, made.place.column) if adds else None
    divides = int(op.work["divides"]) if adds else 0
    return ProductElement(
        key_of(d, variant), d.k, made.row + second * (d.m // 2), made.column, a, b,
        None if c is None else c & (1 << TYPES[d.dtype].bits) - 1, -1 if d.negate_a != d.negate_b else 1,
        made.place if adds else None, tuple(positions), a_at, b_at, raw[0], raw[1], factors[0], factors[1], divides,
    )  # fmt: skip


def _row_of_a(
    op: TensorOperation, d: InstructionDescriptor, cta: int, row: int, count: int, number: int
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """(places, raw elements) of a row of A, as it is stored. row: in the CTA's part."""
    word, bits = int(op.work["a"]), TYPES[d.atype].bits
    whole, in_cells = unpacking(d.kind, d.atype)
    if not op.work["in_cells"]:
        return _in_shared(op, cta, word, row, d.m // len(op.ctas), count, bits, whole, d.transpose_a)
    layout = layout_id(d.m, d.pair, d.ws, d.sparse)
    lane, column, low = a_place(layout, bits if in_cells in (Unpack.WHOLE, Unpack.PAIRS) else 8, row, np.arange(count))
    lane = lane + (word >> LANE) % QUARTER
    places = tuple(
        InCell(cta, int(lane), (word & COLUMN_BITS) + int(c), int(b) + _CELL_LOW.get(in_cells, 0), number)
        for c, b in zip(column.tolist(), low.tolist())
    )
    raw = tuple((op.cell(cta, at.lane, at.column) or 0) >> at.low & (1 << bits) - 1 for at in places)
    return places, raw


def _column_of_b(op: TensorOperation, d: InstructionDescriptor, column: int) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """(places, raw elements) of a column of B along the dense k."""
    part, n = divmod(column, d.n // len(op.ctas))
    zeros = int(op.work["zeros"])
    shift = zeros >> 56 & 63
    places, raw = _in_shared(
        op, op.ctas[part], int(op.work["b"]), n + shift, d.n // len(op.ctas) + shift, d.k, TYPES[d.btype].bits,
        unpacking(d.kind, d.btype)[0], d.transpose_b,
    )  # fmt: skip
    return places, tuple(0 for _ in raw) if zeros >> 39 & 1 and _cleared(op, zeros, column) else raw


def _cleared(op: TensorOperation, zeros: int, column: int) -> bool:
    """Whether a zero-column mask descriptor makes a column of B zero."""
    assert op.table is not None
    runs = zeros >> 48 & 0xFF, zeros >> 40 & 0xFF  # lengths, less one, of runs of used columns and of zeros
    for p in range(int(op.table["pieces"])):
        at, zero = zeros >> 8 * p & 0xFF, zeros >> 32 + p & 1
        for c in range(int(op.table["columns"])):
            if int(op.table["first"][p]) + c == column and zero:
                return True
            at += 1
            if at > runs[zero]:
                at, zero = 0, zero ^ 1
    return False


def _in_shared(
    op: TensorOperation, cta: int, word: int, line: int, lines: int, count: int, bits: int, unpack: Unpack, across: bool
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """(places, raw elements) of a row of A, or of a column of B, in shared memory.

    op, cta: the product, and the CTA whose shared memory it is.
    word: matrix descriptor.
    line, lines: number of the row or column, and how many the matrix has.
    count, bits: elements along k, and bits of each.
    unpack, across: how elements lie in bytes; whether M or N is contiguous.
    """
    at, low = element_places(word, lines, count, bits, unpack, across)
    base = op.place.window(cta)
    places, raw = [], []
    for address, first in zip(at[line].tolist(), low.tolist()):
        places.append(InMemory(base + address, op.time, first))
        size = -(-(first + bits) // 8)
        raw.append(page_bytes(op.shared[cta], address - SHARED_BASE, size) >> first & (1 << bits) - 1)
    return tuple(places), tuple(raw)


@lru_cache(maxsize=64)
def element_places(word: int, lines: int, count: int, bits: int, unpack: Unpack, across: bool) -> tuple[Index, Index]:
    """Where elements of a matrix of tcgen05.mma lie: (address of the first byte [line, k], lowest bit there [k])."""
    k = np.arange(count)
    if across:
        return operand_addresses(SharedDescriptor.decode(word), lines, count, bits, True), k * 0
    if unpack in _GROUPS:
        bit = k % 16 * _GROUPS[unpack]
        byte, low = k // 16 * 16 + bit // 8, bit % 8
    else:
        byte, low = k * bits // 8, k * bits % 8
    size = count if unpack in _GROUPS else -(-count * bits // 8)
    return line_bytes(word, lines, size)[:, byte], low


def line_bytes(word: int, lines: int, size: int) -> Index:
    """Addresses of the bytes of K-major lines, int64 [lines, size]; those behind a boundary of 128 bytes may be elsewhere."""
    descriptor = SharedDescriptor.decode(word)
    if not word & BY_ADDRESS:
        return operand_addresses(descriptor, lines, size, 8)
    head = min(size, LINE - (word << 4 & LINE - 1))
    rest = SharedDescriptor.decode(word & ~START | word >> 16 & START)
    parts = operand_addresses(descriptor, lines, head, 8), operand_addresses(rest, lines, max(1, size - head), 8)
    return np.concatenate(parts, axis=1)[:, :size]


def _factors(op: TensorOperation, cta: int, side: str, line: int, number: int) -> tuple[InCell, ...]:
    """Where the scale factors of a row of A, or of a column of B, are."""
    t = op.table
    assert t is not None
    address, lane = int(op.work[f"scale_{side}"]), 0
    if side == "b":
        piece = next(p for p in range(int(t["pieces"])) if 0 <= line - int(t["first"][p]) < t["columns"])
        lane, line = int(t["lane"][piece]), line - int(t["first"][piece])
    found = []
    for s in range(int(t["scales"])):
        at = int(t[f"{side}_byte"]) + s
        column = (address & COLUMN_BITS) + line // 32 + at // 4 * int(t[f"{side}_next"])
        found.append(InCell(cta, lane + line % 32, column, 8 * (at % 4), number))
    return tuple(found)


def _kept(op: TensorOperation, d: InstructionDescriptor, cta: int, row: int, count: int) -> tuple[int, ...]:
    """The k of each element of a row of sparse A."""
    bits = 4 if d.kind in ("mxf4", "mxf4nvf4") else max(TYPES[d.atype].bits, 8)
    j = np.arange(count)
    lane, column, low = np.broadcast_arrays(*metadata_place(bits, row, j, layout_id(d.m, d.pair, d.ws, d.sparse)))
    address = int(op.work["metadata"])
    first = (address & COLUMN_BITS) + d.selector
    words = [op.cell(cta, int(n) + (address >> LANE & 16), first + int(c)) or 0 for n, c in zip(lane, column)]
    code = np.array([word >> int(b) & 3 for word, b in zip(words, low)])
    if bits == 32:  # one of two
        found = j * 2 + (code >> 1)
    elif bits == 4:  # two pairs of four
        found = j // 4 * 8 + j % 2 + 2 * code
    else:  # two of four
        found = j // 2 * 4 + code
    return tuple(found.tolist())


def copied_from(made: CopiedCell, ins: Instruction, low: int, width: int) -> list[tuple[InMemory, int, int]]:
    """The bytes of shared memory that bits of a cell of tcgen05.cp come from: (place, bits, bytes) of each part.

    made: the cell.
    ins: the instruction.
    low, width: lowest bit in the cell, and number of bits.

    One part, if bytes are copied as they are; else each byte that the elements lie in.
    """
    op = made.operation
    rows, bytes, _ = COPIES[copy_shape(ins)]
    addresses = operand_addresses(SharedDescriptor.decode(int(op.work["a"])), rows, bytes, 8)[made.row]
    window, first = op.place.window(made.cta), made.byte + low // 8
    size = _GROUPS.get(UNPACKED[ins.form["src_fmt"]])
    if size is None:
        at, count = int(addresses[first]), max(1, width // 8)
        return [(InMemory(window + at, op.time, low % 8), page_bytes(op.shared[made.cta], at - SHARED_BASE, count), count)]
    begin = first // 16 * 128 + first % 16 * size
    end = begin + max(1, width // 8) * size
    parts = []
    for byte in range(begin // 8, -(-end // 8)):
        at = int(addresses[byte])
        low = max(0, begin - 8 * byte)
        parts.append((InMemory(window + at, op.time, low), page_bytes(op.shared[made.cta], at - SHARED_BASE, 1), 1))
    return parts
