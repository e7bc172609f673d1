"""Blocks, the parts of a document of the explorer: plain data, which the page draws without computing anything."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mmulator.inspect.layouts.answer import Layout
from mmulator.inspect.views.cells import names, run_of
from mmulator.inspect.views.lines import Drawn

Block = dict[str, Any]
CHUNKS = 8  # of 16 bytes in a line of shared memory


def facts(rows: Iterable[tuple[str, object]], caption: str = "") -> Block:
    """A block of names and what they are; those without a text are left out."""
    return {"kind": "facts", "caption": caption, "rows": [[name, str(text)] for name, text in rows if str(text)]}


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Block:
    """A block with a table."""
    return {"kind": "table", "caption": caption, "columns": [*columns], "rows": [[str(cell) for cell in row] for row in rows]}


def text(*lines: str) -> Block:
    """A block of paragraphs."""
    return {"kind": "text", "lines": [*lines]}


def code(caption: str, source: str) -> Block:
    """A block of text with fixed spacing."""
    return {"kind": "code", "caption": caption, "source": source}


def lines(caption: str, drawn: dict[int, Drawn], shown: Iterable[int]) -> Block:
    """A block with lines of 128 bytes of shared memory, in chunks of 16 bytes.

    drawn: the chunks, by their address in units of 16 bytes.
    shown: numbers of the lines that are shown.
    """
    rows = []
    for line in shown:
        own = [drawn.get(CHUNKS * line + n, Drawn("", None)) for n in range(CHUNKS)]
        rows.append([f"{128 * line:#x}", [[c.label, c.hue, *((c.tip,) if c.tip else ())] for c in own]])
    return cells(caption, "address", [f"+{16 * n}" for n in range(CHUNKS)], rows)


def cells(caption: str, corner: str, columns: Sequence[str], rows: Sequence[Any]) -> Block:
    """A block with a table whose cells have colours.

    corner: what the first column has.
    rows: of each its name, and its cells: [text, colour of a lane or None, what is said of it instead of the text].
    """
    return {"kind": "cells", "caption": caption, "corner": corner, "columns": [*columns], "rows": [*rows]}


def grid(layout: Layout) -> Block:
    """A block with the layout of an operand.

    `cells` has, by copy, row and column, the number of the place that holds an element: a number `n` is the place
    `items[n % len(items)]` of lane `n // len(items)`. A list has the numbers of several holders. `run` says how many elements
    down and to the right a table shows as one cell, whose name `labels` has, by item.
    """
    run = run_of(layout)
    items, labels = [], []
    for register in range(layout.registers):
        for index in range(layout.per_register):
            held = layout.holder(0, register, index)
            items.append([held.name, register, f"{held.low}" if held.low == held.high else f"{held.low}..{held.high}"])
            labels.append(names(layout, held, run.length, short=True))
    cells = _numbers(layout)
    return {
        "kind": "grid", "lanes": layout.lanes, "items": items, "labels": labels, "run": [run.down, run.right], "cells": cells,
        "short": "L" if layout.where == "column" else "T", "where": layout.where, "column": layout.column_name,
        "spans": [list(span) for span in layout.spans],
    }  # fmt: skip


def _numbers(layout: Layout) -> list[Any]:
    """The places of each element, by copy, row and column."""
    copy, row, column = (m.reshape(-1) for m in layout.maps)
    places = np.flatnonzero(row >= 0)
    element = ((copy * layout.rows + row) * layout.columns + column)[places]
    order = np.argsort(element, kind="stable")
    starts = np.flatnonzero(np.diff(element[order], prepend=-1))
    held, ends = places[order].tolist(), [*starts[1:].tolist(), len(order)]
    flat = [held[begin] if end == begin + 1 else held[begin:end] for begin, end in zip(starts.tolist(), ends)]
    lines = [flat[at : at + layout.columns] for at in range(0, len(flat), layout.columns)]
    return [lines[at : at + layout.rows] for at in range(0, len(lines), layout.rows)]
