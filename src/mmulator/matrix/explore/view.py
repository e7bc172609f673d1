"""A view of the explorer: its parameters, their choices, and the document of each choice, made of blocks.

Blocks are plain data, which the page draws without computing anything.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.base.errors import MmulatorError, OperandError
from mmulator.matrix.inspect.layouts.answer import Layout
from mmulator.matrix.inspect.views.chunks import Drawn
from mmulator.matrix.inspect.views.tables import names, run_of

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


Choices = dict[str, Any]  # value of the first parameter -> choices of the others; of the last one: {value: None}
Document = list[Block]


@dataclass(frozen=True)
class View:
    """A page of the explorer.

    name, title: in links, and for people.
    about: what the page shows, in a sentence or two.
    parameters: (name, label) of each, in the order of `choices`.
    choices: makes the tree of the parameters' values.
    document: makes the document of a choice, from its values.
    free: (name, label, example) of texts that a reader may give; only a server can answer them.
    same: key of a choice; choices of one key have one document.
    chips: makes, for each instruction among the values, a number whose bit n says whether device n has it.
    """

    name: str
    title: str
    about: str
    parameters: tuple[tuple[str, str], ...]
    choices: Callable[[], Choices]
    document: Callable[..., Document]
    free: tuple[tuple[str, str, str], ...] = ()
    chips: Callable[[], dict[str, int]] = field(default=dict)
    same: Callable[..., object] = field(default=lambda *values: values)


def leaves(choices: Choices, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The values of every choice of a tree."""
    for value, rest in choices.items():
        if rest is None:
            yield (*before, value)
        else:
            yield from leaves(rest, (*before, value))


def tree_of(every: Iterable[tuple[str, ...]]) -> Choices:
    """The tree of choices with these values."""
    tree: Choices = {}
    for *before, last in every:
        at = tree
        for value in before:
            at = at.setdefault(value, {})
        at[last] = None
    return tree


def takes(make: Callable[..., object], *values: Any, **named: Any) -> bool:
    """Whether a function takes values: it raises no error of the package."""
    try:
        make(*values, **named)
    except MmulatorError:
        return False
    return True


def whole_number(given: str, example: str) -> int:
    """A number that a reader gives. Raises OperandError for other texts."""
    try:
        return int(given, 0)
    except ValueError:
        raise OperandError(f"{given!r} is no number", hint=f"such as {example}") from None
