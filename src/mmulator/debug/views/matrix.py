"""A matrix to look at: raw elements of a type, with the numbers of its rows and columns, and text that fits a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.types import TYPES, ElementType
from mmulator.numerics.formats import from_raw

WIDTH = 80
MOST_LINES = 40  # lines of elements that a text has, unless more are asked for
FIRST_ROWS = 16
_DIGITS = 4


@dataclass(frozen=True, eq=False)
class MatrixView:
    """A matrix of elements of one type.

    name: `A`, `D`, `full tile`.
    what: where it is, in words.
    element: PTX type of its elements.
    raw: its elements' bits, unsigned [rows, columns].
    axes: names of row and column in front of their numbers: ("m", "k").
    off: whether an element belongs to a lane that does not execute the instruction, bool [rows, columns]; None: no element.
    unread: whether an element is not known or not defined yet, bool [rows, columns]; None: all are known.
    left_out: whether an element of a sparse matrix is not stored, bool [rows, columns]; None: all are stored.
    row_names, column_names: in place of numbers.
    notes: what else a reader should know.
    """

    name: str
    what: str
    element: str
    raw: NDArray[Any] = field(repr=False)
    axes: tuple[str, str] = ("", "")
    off: NDArray[np.bool_] | None = field(default=None, repr=False)
    unread: NDArray[np.bool_] | None = field(default=None, repr=False)
    left_out: NDArray[np.bool_] | None = field(default=None, repr=False)
    row_names: tuple[str, ...] = field(default=(), repr=False)
    column_names: tuple[str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.raw.shape[0], self.raw.shape[1]

    @property
    def type(self) -> ElementType:
        """The elements' type."""
        return TYPES[self.element]

    @property
    def values(self) -> NDArray[Any]:
        """The elements as numbers, in the type's NumPy dtype."""
        return from_raw(self.type, self.raw)

    def part(self, rows: range, columns: range) -> MatrixView:
        """Some rows and columns, with their numbers."""
        at = np.ix_(list(rows), list(columns))
        return replace(
            self, raw=self.raw[at], off=None if self.off is None else self.off[at],
            unread=None if self.unread is None else self.unread[at],
            left_out=None if self.left_out is None else self.left_out[at],
            row_names=tuple(self.row_name(r) for r in rows), column_names=tuple(self.column_name(c) for c in columns),
        )  # fmt: skip

    def row_name(self, row: int) -> str:
        return self.row_names[row] if self.row_names else f"{self.axes[0]}{row}"

    def column_name(self, column: int) -> str:
        return self.column_names[column] if self.column_names else f"{self.axes[1]}{column}"

    def as_dict(self) -> dict[str, Any]:
        """The matrix as JSON data: values as texts, bits as integers."""
        rows, columns = self.shape
        return {
            "name": self.name, "what": self.what, "element": self.element, "rows": rows, "columns": columns,
            "axes": list(self.axes), "bits": self.raw.tolist(), "values": self.cells().tolist(),
            "row_names": [self.row_name(n) for n in range(rows)], "column_names": [self.column_name(n) for n in range(columns)],
            "off": None if self.off is None else self.off.tolist(),
            "unread": None if self.unread is None else self.unread.tolist(),
            "left_out": None if self.left_out is None else self.left_out.tolist(), "notes": list(self.notes),
        }  # fmt: skip

    def cells(self, bits: bool = False, digits: int | None = None) -> NDArray[Any]:
        """The text of each element. bits: in hexadecimal. digits: significant ones of a float; None: as many as it needs."""
        return element_texts(self.type, self.raw, bits, digits)

    # text -------------------------------------------------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """The first line of the text: `A [16 x 16] of f16: %r1 to %r4`."""
        rows, columns = self.shape
        return f"{self.name} [{rows} x {columns}] of {self.element}" + f": {self.what}" * bool(self.what)

    def text(
        self, rows: range | None = None, columns: range | None = None, width: int = WIDTH, bits: bool = False,
        digits: int | None = _DIGITS, all: bool = False,
    ) -> str:  # fmt: skip
        """The matrix for a terminal.

        rows, columns: the part to show; None: all, or the first of a large matrix.
        width: columns of the terminal.
        bits: elements in hexadecimal.
        digits: significant digits of a float; None: as many as it needs.
        all: show all of a large matrix.
        """
        from textwrap import wrap

        notes = [line for note in self.notes for line in wrap(note, width - 2, initial_indent="  ", subsequent_indent="    ")]
        head = wrap(self.title, width, subsequent_indent="    ")
        one = self._one()
        if one and rows is None and columns is None:
            return "\n".join([*head, f"  all elements are {one}", *notes])
        return "\n".join([*head, *self._grid(rows, columns, width, bits, digits, all), *notes])

    def __str__(self) -> str:
        return self.text()

    def _one(self) -> str:
        """The text of the only value that all elements have; "" if there are several."""
        if self.unread is not None and self.unread.all() and self.raw.size > 16:
            return "?"
        plain = self.unread is None or not self.unread.any()
        if self.raw.size > 16 and plain and (self.off is None or not self.off.any()) and (self.raw == self.raw.flat[0]).all():
            return str(element_texts(self.type, self.raw[:1, :1], False, None)[0, 0])
        return ""

    def _grid(
        self, rows: range | None, columns: range | None, width: int, bits: bool, digits: int | None, all: bool
    ) -> list[str]:
        cut = not all and rows is None and columns is None and sum(self.shape) > MOST_LINES
        every = range(self.shape[0]), range(self.shape[1])
        part = self.part(rows or every[0][: FIRST_ROWS if cut else None], columns or every[1][: width if cut else None])
        texts, (down, count) = part._marked(bits, digits), part.shape
        label = max(map(len, part.row_names), default=0) + 1
        cell = 1 + max(max(map(len, part.column_names), default=0), max(map(len, texts.flat), default=0))
        across = max(1, (width - label) // cell)
        panels = [range(count)[n : n + across] for n in range(0, count, across)]
        if cut:
            panels = panels[: max(1, MOST_LINES // (down + 1))]
        lines = []
        for panel in panels:
            lines.append(" " * label + "".join(f"{part.column_names[c]:>{cell}}" for c in panel))
            lines += _rows(part.row_names, [[texts[r, c] for c in panel] for r in range(down)], label, cell)
        hidden = self.shape[0] - down, self.shape[1] - (panels[-1].stop if panels else 0)
        more = [f"{n} more {what}" for n, what in zip(hidden, ("rows", "columns")) if n > 0]
        return [*lines, "  ... " + " and ".join(more)] if cut and more else lines

    def _marked(self, bits: bool, digits: int | None) -> NDArray[Any]:
        texts = self.cells(bits, digits)
        if self.off is not None and self.off.any():
            texts = np.where(self.off, np.char.add(texts.astype(str), "'"), texts).astype(object)
        if self.left_out is not None:
            texts = np.where(self.left_out, ".", texts)
        if self.unread is not None and self.unread.any():
            texts = np.where(self.unread, "?", texts)
        return texts

    def _repr_html_(self) -> str:
        from mmulator.tables import element, html_table

        rows, columns = self.shape
        texts = self._marked(False, None)
        body = [(self.row_name(r), *texts[r]) for r in range(rows)]
        notes = "".join(element("p", note) for note in self.notes)
        return element("p", self.title) + html_table(("", *(self.column_name(c) for c in range(columns))), body) + notes


def _rows(names: tuple[str, ...], texts: list[list[str]], label: int, cell: int) -> list[str]:
    """Lines of rows; of neighbours that are nothing but `?`, one line."""
    lines: list[str] = []
    for unread, group in groupby(zip(names, texts), key=lambda row: set(row[1]) == {"?"}):
        rows = list(group)
        if unread and len(rows) > 2:
            lines.append(f"{rows[0][0]:>{label - 1}} " + f"to {rows[-1][0]}: ?")
        else:
            lines += [f"{name:>{label - 1}} " + "".join(f"{t:>{cell}}" for t in row) for name, row in rows]
    return lines


def element_texts(t: ElementType, raw: NDArray[Any], bits: bool = False, digits: int | None = None) -> NDArray[Any]:
    """Texts of raw elements of a type, as an array of str.

    bits: in hexadecimal.
    digits: significant digits of a float; None: as many as it needs.
    """
    if bits or not (t.is_float or t.is_integer or t.bits == 1):
        found = [f"{int(x):0{-(-t.bits // 4)}x}" for x in raw.flat]
    elif t.is_float:
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            wide = from_raw(t, raw).astype(np.float64)
        found = [_float(v, digits) if digits is not None else f"{v:.{_needed(t)}g}" for v in wide.flat]
    else:
        found = [str(int(x)) for x in (from_raw(t, raw) if t.bits != 1 else raw).flat]
    out: NDArray[Any] = np.empty(raw.size, object)
    out[:] = found
    return out.reshape(raw.shape)


def _needed(t: ElementType) -> int:
    """Significant digits that tell each value of a type from its neighbours."""
    return {64: 17, 32: 9}.get(t.bits, 2 + (t.mantissa * 30103 + 99999) // 100000)


def _float(value: float, digits: int) -> str:
    if value == 0:
        return "-0" if np.signbit(value) else "0"
    if digits < 6 and 0 < abs(value) < 1e-3:
        return f"{value:.{max(digits - 3, 0)}e}".replace("e-0", "e-")  # columns stay narrow
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+")
