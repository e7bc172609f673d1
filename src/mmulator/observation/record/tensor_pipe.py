"""Operations of tensor memory's pipe, recorded as they are carried out, and images of the shared memory that they read.

tcgen05.mma, cp and shift are carried out later than they are issued: what they read is kept when they read it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.asynchrony.transfers import TensorWork
from mmulator.runtime.native.matrix.tensor_memory import COLUMN_BITS
from mmulator.runtime.native.matrix.tensor_state import TENSOR_LANES, TENSOR_ROW, TensorTable

if TYPE_CHECKING:
    from mmulator.observation.record.steps import WarpPlace

PAGE = 4096  # bytes of shared memory that images have in common where they are equal
WORK, TABLE = TensorWork.numpy_dtype(), TensorTable.numpy_dtype()
Pages = tuple[bytes, ...]
_at = ctypes.string_at


class Images:
    """Images of shared memory, page by page: a page that did not change is that of the image before."""

    def __init__(self) -> None:
        self._last: dict[int, Pages] = {}

    def take(self, place: WarpPlace, cta: int) -> Pages:
        """The shared memory of a CTA as it is now. place: a warp of the cluster. cta: number of the CTA in it."""
        start, size = place.resident.shared_at(cta), place.resident.grid.shared
        before = self._last.get(start, ())
        new = []
        for number, at in enumerate(range(0, size, PAGE)):
            page = _at(start + at, min(PAGE, size - at))
            new.append(before[number] if number < len(before) and before[number] == page else page)
        self._last[start] = tuple(new)
        return self._last[start]


def page_bytes(pages: Pages, offset: int, size: int) -> int:
    """Bytes of an image as a number. offset: of the first. size: how many, in one aligned group of 16."""
    page, at = divmod(offset, PAGE)
    return int.from_bytes(pages[page][at : at + size], "little")


@dataclass
class TensorOperation:
    """tcgen05.mma, cp or shift, as it was carried out.

    time: number of the step before which it was.
    place, block, lane, site: the warp with its block and the lane that issued it, and the instruction.
    ctas: numbers in the cluster of the CTAs that take part: one, or the even and the odd one of a pair.
    work: its operands, a TensorWork.
    table: what its instruction descriptor decides, a TensorTable; None for cp and shift.
    shared: CTA -> image of shared memory.
    cells: (CTA, first column) -> the cells that it reads, uint32 [128 lanes, columns].
    step: the TrailStep that issued it.
    lines: rows of A and columns of B that were looked up: (side, CTA, number) -> (places, raw elements).
    """

    time: int
    place: WarpPlace
    block: int
    lane: int
    site: int
    ctas: tuple[int, ...]
    work: np.void
    table: np.void | None
    shared: dict[int, Pages]
    cells: dict[tuple[int, int], NDArray[np.uint32]]
    step: Any = None
    lines: dict[tuple[str, int, int], Any] = field(default_factory=dict)

    def cell(self, cta: int, lane: int, column: int) -> int | None:
        """The bits of a cell that it read; None for one that it did not read."""
        for (owner, first), found in self.cells.items():
            if owner == cta and 0 <= column - first < found.shape[1]:
                return int(found[lane, column - first])
        return None

    def continues(self, before: TensorOperation | None) -> bool:
        """Whether it adds to what the operation before it in the pipe has written, and to all of it."""
        if before is None or before.ctas != self.ctas or self.table is None or before.table is None:
            return False
        mine, theirs = self.work, before.work
        same = all(int(mine[name]) == int(theirs[name]) for name in ("table", "d"))
        return same and not mine["divides"] and not mine["lanes_off"].any() and not theirs["lanes_off"].any()


@dataclass(frozen=True)
class Issued:
    """An operation of the pipe. transfer: its Transfer. place: the warp that issued it. multiplies: it is tcgen05.mma."""

    transfer: np.void
    place: WarpPlace
    multiplies: bool


class TensorPipe:
    """The history of a launch's tensor memory. operations: in the order in which they were carried out."""

    def __init__(self, images: Images) -> None:
        self.operations: list[TensorOperation] = []
        self._images = images
        self._tables: dict[int, np.void] = {}
        self._newest: dict[int, TensorOperation] = {}  # of each cluster

    def carried(self, time: int, place: WarpPlace, issued: Sequence[Issued], stored: bool) -> None:
        """Record operations that are about to read their operands together.

        time: number of the step before which they do.
        place: a warp of the CTA that issued them.
        issued: the operations.
        stored: whether tcgen05.st was executed since the last ones.
        """
        for n, one in enumerate(issued):
            self._one(time, place, one, stored and not n)

    def _one(self, time: int, place: WarpPlace, issued: Issued, stored: bool) -> None:
        t = issued.transfer
        work = np.frombuffer(t["payload"].tobytes(), WORK, 1)[0]
        cta = place.cta
        ctas = (cta & ~1, cta | 1) if work["pair"] else (cta,)
        table = self._table(int(work["table"])) if issued.multiplies else None
        moves = table is None and not work["mode"]
        shared = {} if moves else {n: self._images.take(place, n) for n in ctas}
        cluster = place.resident.number
        last = self._newest.get(cluster)
        new = TensorOperation(
            time, issued.place, issued.place.block, int(t["lane"]), int(t["site"]), ctas, work, table, shared, {}
        )  # fmt: skip
        self._newest[cluster] = new
        if table is not None:
            added = bool(work["adds"]) and (stored or not new.continues(last))
            for first, count in _columns_read(work, table, added):
                new.cells |= {(n, first): _cells(place, n, first, count) for n in ctas}
        self.operations.append(new)

    def _table(self, address: int) -> np.void:
        if address not in self._tables:
            self._tables[address] = np.frombuffer(_at(address, TABLE.itemsize), TABLE, 1)[0]
        return self._tables[address]


def _columns_read(work: np.void, table: np.void, added: bool) -> list[tuple[int, int]]:
    """(first, number) of columns that tcgen05.mma reads. added: whether D is among them."""
    at = {name: int(work[name]) & COLUMN_BITS for name in ("a", "d", "metadata", "scale_a", "scale_b")}
    found = [(at["a"], -(-int(table["a_cells"]) // 4))] if work["in_cells"] else []
    if table["sparse"]:
        found.append((at["metadata"] + int(table["selected"]), int(table["cells"])))
    if table["scales"]:
        found += [(at[f"scale_{side}"], int(table[f"{side}_span"])) for side in "ab"]
    return [*found, (at["d"], int(table["width"]))] if added else found


def _cells(place: WarpPlace, cta: int, first: int, count: int) -> NDArray[np.uint32]:
    raw = _at(int(place.resident.ctas["tensor"][cta]), TENSOR_LANES * TENSOR_ROW)
    return np.frombuffer(raw, np.uint32).reshape(TENSOR_LANES, -1)[:, first : first + count].copy()


def stores_cells(ins: Instruction) -> bool:
    """Whether an instruction is tcgen05.st."""
    return ins.effects.queue is Queue.TENSOR_MOVES and ins.effects.memory is MemoryEffect.WRITE
