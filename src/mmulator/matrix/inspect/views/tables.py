"""Layouts as text, tables for a terminal, CSV and Markdown, and their cells: neighbouring elements of one lane are one cell,
labelled as in the specification."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mmulator.base.tables import text_table

if TYPE_CHECKING:
    from mmulator.matrix.inspect.layouts.answer import Holder, Layout

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


CSV_COLUMNS = ("copy", "row", "column", "lane", "register", "index", "name", "low_bit", "high_bit")


def to_csv(layout: Layout) -> str:
    """CSV with a header (CSV_COLUMNS), and a line for every place that holds an element."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for (copy, row, column), holders in layout.cells.items():
        writer.writerows((copy, row, column, h.lane, h.register, h.index, h.name, h.low, h.high) for h in holders)
    return out.getvalue()


def to_markdown(layout: Layout) -> str:
    """A Markdown table of the matrix, one for each copy: a cell is `T0 a0`, several holders with `, ` between them."""
    parts = []
    for copy in range(layout.copies):
        head = ["", *map(str, range(layout.columns))]
        lines = [head, ["---:"] + ["---"] * layout.columns]
        for row in range(layout.rows):
            held = (layout.cells[copy, row, column] for column in range(layout.columns))
            lines.append([str(row), *(", ".join(label(layout, h, 1, short=True) for h in hs) for hs in held)])
        title = f"Matrix {copy}:\n\n" if layout.copies > 1 else ""
        parts.append(title + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts)


def _columns(lines: list[list[str]], width: int) -> list[str]:
    """Lines of cells as aligned text, in parts of equal size where they are too wide; the first cell leads each part."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    count, parts, gap = len(widths) - 1, 1, 1 if sum(widths) + 2 * len(widths) > width else 2

    def room(parts: int) -> int:
        each = -(-count // parts)
        return max(sum(widths[n : n + each]) + gap * each for n in range(1, count + 1, each)) + widths[0]

    while parts < count and room(parts) > width:
        parts, gap = parts + 1, 2
    each = -(-count // parts)
    out: list[str] = []
    for start in range(1, count + 1, each):
        if out:
            out.append("")
        for line in lines:
            cells = (line[n].ljust(widths[n]) for n in range(start, min(start + each, count + 1)))
            out.append((" " * gap).join((line[0].rjust(widths[0]), *cells)).rstrip())
    return out


def _holders(layout: Layout, holders: tuple[Holder, ...], length: int) -> str:
    """Holders as text: `T0 a0-1`; several as `T0 a0-1=a8-9`."""
    out = ""
    for n, h in enumerate(holders[:1] if layout.where == "column" else holders):  # a note tells of copies
        same = n > 0 and h.lane == holders[n - 1].lane
        out += "=" * (n > 0) + (names(layout, h, length, short=True) if same else label(layout, h, length, short=True))
    return out


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def matrix_table(layout: Layout, width: int = 80, full: bool = False) -> str:
    """Table of rows and columns of the matrix; a cell says which lane holds it. A large one is the block that repeats, unless
    `full`.
    """
    if layout.blocks and not full:
        table = text_table(("rows", "columns", "lanes", "columns of tensor memory"), layout.blocks)
        return "\n".join([*table, "", "(--full shows each element)"])
    run, repeat = run_of(layout), None if full else repeat_of(layout)
    first = 16 if layout.where == "column" and not full else layout.rows
    rows = range(repeat.rows if repeat else min(first, layout.rows))
    across = min(layout.columns, 8 * run.right) if repeat and layout.kind == "elements" else layout.columns
    columns = range(across)
    corner = "row\\chunk" if layout.kind == "metadata" else "row\\col"
    out: list[str] = []
    for copy in range(layout.copies):
        if layout.copies > 1:
            out += [*([""] if out else []), f"matrix {copy}"]
        starts = columns[:: run.right]
        lines = [[corner, *(_span(c, c + run.right - 1) for c in starts)]]
        if layout.spans:
            lines.insert(0, ["A:", *(_span(layout.spans[c][0], layout.spans[c + run.right - 1][1]) for c in starts)])
        by_row: dict[int, list[str]] = {}
        for row, _, holders in cells(layout, copy, rows, columns):
            by_row.setdefault(row, []).append(_holders(layout, holders, run.length))
        lines += [[_span(row, row + run.down - 1), *texts] for row, texts in by_row.items()]
        out += _columns(lines, width)
    if first < layout.rows and repeat is None:
        out += ["", f"... {layout.rows} rows: the others lie alike (--full shows all of it)"]
    if repeat is not None:
        out += ["", f"... {layout.rows} rows: 16 rows further down are {repeat.lanes} lanes further"]
        if repeat.names:
            out[-1] += ";"
            out.append(f"{layout.columns} columns: {repeat.columns} further right are {repeat.names} elements further")
        out.append("(--full shows all of it)")
    return "\n".join(out)


def lane_table(layout: Layout, width: int = 80, full: bool = False) -> str:
    """Table of lanes and registers; a cell says which elements lie there, as `row,column` or `row,first-last column`."""
    most = layout.lanes if full else min(layout.lanes, 32)
    shown = layout.registers if full else min(layout.registers, 16)
    lines = [["lane", *(f"{layout.where[:3]} {n}" for n in range(shown))]]
    for lane in range(most):
        held = [layout.at(lane, register) for register in range(shown)]
        name = f"{'L' if layout.where == 'column' else 'T'}{lane}"
        lines.append([name, *(_place(layout, [(e.copy, e.row, e.column) for e in h]) for h in held)])
    out = _columns(lines, width)
    if most < layout.lanes or shown < layout.registers:
        out += ["", f"... {layout.lanes} lanes, {layout.registers} {layout.where}s (--full shows all of it)"]
    return "\n".join(out)


def _place(layout: Layout, places: list[tuple[int, int, int]]) -> str:
    if not places:
        return "-"
    copies, rows, columns = (sorted({p[n] for p in places}) for n in range(3))
    if len(rows) * len(columns) != len(places):  # not a rectangle: one by one
        return " ".join(f"{r},{c}" for _, r, c in places)
    where = f"{_steps(rows)},{_steps(columns)}"
    return f"{copies[0]}:{where}" if layout.copies > 1 else where


def _steps(numbers: list[int]) -> str:
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return _span(numbers[0], numbers[-1])
    return "/".join(map(str, numbers))
