"""Tensor memory of a trail: the write that a cell has its bits from.

TensorCore 5th Generation Family Instructions (PTX ISA 9.1).
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.layouts.tensor_memory import MOVES, moved
from mmulator.native.matrix.tensor_core import COPIES, SHIFTED
from mmulator.native.matrix.tensor_memory import COLUMN_BITS, LANE
from mmulator.native.matrix.tensor_state import QUARTER
from mmulator.native.state import LANES
from mmulator.ptx.tree import Address, Instruction, Operand
from mmulator.record.addresses import addresses, elements, operands_of, value_of
from mmulator.record.places import InCell
from mmulator.record.tensor.pipe import TensorOperation, stores_cells
from mmulator.record.trail import Trail, TrailStep


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
    """Answers about tensor memory. trail: the steps of the cluster, all of them."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        stores = [(float(s.number), s) for s in trail.steps if stores_cells(trail.instruction(s))]
        carried = [(op.time - 0.5, op) for op in trail.pipe.operations]
        both: list[tuple[float, Any]] = sorted([*stores, *carried], key=lambda one: one[0])
        self._times, self.writes = [at for at, _ in both], [write for _, write in both]
        self._name_issues()

    def _name_issues(self) -> None:
        """Give each operation the step that issued it: operations of a thread are carried out in the order of their issue."""
        found: dict[tuple[int, int, int], list[TrailStep]] = defaultdict(list)
        for step in self.trail.steps:
            ins = self.trail.instruction(step)
            if ins.effects.queue is Queue.TENSOR and ins.effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE):
                taking = self.trail.guard(step)
                for lane in (n for n in range(LANES) if taking >> n & 1):
                    found[step.place.address, step.site, lane].append(step)
        issues = {key: iter(steps) for key, steps in found.items()}
        for op in self.trail.pipe.operations:
            op.step = next(issues[op.place.address, op.site, op.lane])

    def before(self, step: TrailStep) -> int:
        """The number of writes to tensor memory before a step."""
        return bisect_left(self._times, step.number)

    def last(self, place: InCell) -> CellWrite | None:
        """The newest write to a cell before it was read; None if there is none."""
        for number in range(place.before - 1, -1, -1):
            write = self.writes[number]
            found = (
                self._moved(write, place, number) if isinstance(write, TensorOperation) else self._stored(write, place)
            )
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


def cells_of(trail: Trail) -> Cells:
    """Answers about the tensor memory of a trail."""
    if trail.tensor is None:
        trail.tensor = Cells(trail)
    found: Cells = trail.tensor
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
