"""Layouts as text: tables for a terminal, CSV, Markdown."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from mmulator.inspect.views.cells import cells, label, names, repeat_of, run_of
from mmulator.tables import text_table

if TYPE_CHECKING:
    from mmulator.inspect.layouts.answer import Holder, Layout

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
