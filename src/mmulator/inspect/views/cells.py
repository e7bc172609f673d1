"""Cells of a table or drawing: neighbouring elements of one lane are one cell, labelled as in the specification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mmulator.inspect.layouts.answer import Holder, Layout


@dataclass(frozen=True)
class Run:
    """Number of elements that one cell shows below or beside each other: 1 in one of the directions."""

    down: int
    right: int

    @property
    def length(self) -> int:
        return self.down * self.right


def _unbroken(layout: Layout, down: int, right: int) -> bool:
    """Whether every aligned group of that extent is held by one set of lanes under consecutive element numbers."""
    lanes = np.full((layout.copies, layout.rows, layout.columns), -1, np.int64)
    numbers = lanes.copy()
    places = layout.lanes * layout.registers * layout.per_register
    at = tuple(m.reshape(-1)[::-1] for m in layout.maps)
    each = layout.registers * layout.per_register
    lanes[at] = np.arange(places)[::-1] // each
    numbers[at] = np.arange(places)[::-1] % each
    axis, count = (1, down) if down > 1 else (2, right)
    shape = [*lanes.shape[:axis], lanes.shape[axis] // count, count, *lanes.shape[axis + 1 :]]
    grouped, numbered = lanes.reshape(shape), numbers.reshape(shape)
    first = np.take(grouped, [0], axis + 1), np.take(numbered, [0], axis + 1)
    step = np.arange(count).reshape([count if a == axis + 1 else 1 for a in range(grouped.ndim)])
    return bool(np.all(grouped == first[0]) and np.all(numbered == first[1] + step))


@lru_cache(maxsize=64)
def run_of(layout: Layout) -> Run:
    """The longest run that all of the matrix falls into."""
    if layout.kind != "elements":
        return Run(1, 1)
    best = Run(1, 1)
    for down in (True, False):  # of two equal ones, that to the right
        extent = layout.rows if down else layout.columns
        length = 2
        while extent % length == 0 and _unbroken(layout, *((length, 1) if down else (1, length))):
            if length >= best.length:
                best = Run(length, 1) if down else Run(1, length)
            length *= 2
    return best


def names(layout: Layout, holder: Holder, length: int, short: bool = False) -> str:
    """The elements of a cell, as `a0`, `{a0,a1}`, `{a0..a3}`, bits `[0..3]`; short: `a0`, `a0-1`, `a0-3`, `0..3`."""
    if layout.kind != "elements":
        bits = f"{holder.low}..{holder.high}"
        return bits if short else f"[{bits}]"
    first = int(holder.name[len(layout.letter) :])
    last = f"{layout.letter}{first + length - 1}"
    if short:
        return holder.name if length == 1 else f"{holder.name}-{first + length - 1}"
    if length == 1:
        return holder.name
    return f"{{{holder.name},{last}}}" if length == 2 else f"{{{holder.name}..{last}}}"


def label(layout: Layout, holder: Holder, length: int, short: bool = False) -> str:
    """Label of a cell: `T0:{a0,a1}`, or in short `T0 a0-1`."""
    return f"{'L' if layout.where == 'column' else 'T'}{holder.lane}{' ' if short else ':'}{names(layout, holder, length, short)}"


def cells(layout: Layout, copy: int, rows: range, columns: range) -> Iterator[tuple[int, int, tuple[Holder, ...]]]:
    """(row, column, holders) of the first element of every cell of a part of the matrix."""
    run = run_of(layout)
    for row in rows[:: run.down]:
        for column in columns[:: run.right]:
            yield row, column, layout.cells[copy, row, column]


@dataclass(frozen=True)
class Repeat:
    """A large matrix as blocks that repeat: what a block is, and what is added from one to the next.

    rows, columns: of a block.
    lanes: added for the next block below.
    names: added for the next block to the right.
    """

    rows: int
    columns: int
    lanes: int
    names: int


_LARGE = 32  # rows


@lru_cache(maxsize=64)
def repeat_of(layout: Layout) -> Repeat | None:
    """The repetition of a matrix too large to show at once; None for a small one.

    Only operands of a warpgroup are so large: warp w has the rows from 16 w, and further columns are further registers.
    """
    if layout.rows <= _LARGE:
        return None
    rows = 16
    run = run_of(layout)
    columns = min(layout.columns, 4 * run.right if layout.kind == "elements" else layout.columns)
    first = layout.cells[0, 0, 0][0]
    below = layout.cells[0, rows, 0][0]
    number = int(layout.cells[0, 0, columns][0].name[1:]) if columns < layout.columns else 0
    found = Repeat(rows, columns, below.lane - first.lane, number)
    for (copy, row, column), holders in layout.cells.items():
        base = layout.cells[copy, row % rows, column % columns]
        down, right = row // rows, column // columns
        moved = [(h.lane + down * found.lanes, int(h.name[1:]) + right * number) for h in base]
        if moved != [(h.lane, int(h.name[1:])) for h in holders]:
            return None
    return found
