"""The answer to `layout`: one map from (lane, register, index) to (copy, row, column), also in words, as integer expressions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, UnsupportedError
from mmulator.base.lazy import cached_property
from mmulator.matrix.inspect.answer import Answer, png

Index = NDArray[np.int64]
Maps = tuple[Index, Index, Index]


@dataclass(frozen=True, order=True)
class Holder:
    """A place in the registers.

    lane: 0..31, 0..127 for wgmma.
    register: its number in the operand's vector, from 0.
    index: which element of the register, lowest bits first.
    name: as in the specification's figures (`a5`: the element number in the lane).
    low, high: bits of the register.
    """

    lane: int
    register: int
    index: int
    name: str = field(compare=False)
    low: int = field(compare=False)
    high: int = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "lane": self.lane, "register": self.register, "index": self.index, "name": self.name,
            "bits": [self.low, self.high],
        }  # fmt: skip


@dataclass(frozen=True)
class Element:
    """An element and all its holders. copy: number of the matrix, where an operand holds several (else 0)."""

    row: int
    column: int
    copy: int
    holders: tuple[Holder, ...]

    def to_dict(self) -> dict[str, Any]:
        where = {"row": self.row, "column": self.column, "copy": self.copy}
        return where | {"holders": [h.to_dict() for h in self.holders]}


@dataclass(frozen=True)
class Layout(Answer):
    """The layout of one operand of an instruction in registers.

    kind: `elements`, `metadata` (a column is a chunk of A; one nibble each) or `scales` (one byte each).
    type: of the elements.
    rows, columns, copies: of the matrix that lies there; of sparse A the compressed one.
    lanes, registers, register_bits: of the operand.
    room: bits that an element takes of a register.
    shift, width: the element's own bits in them.
    letter: of the names (`a` in `a5`).
    device: whose layout it is, where devices differ.
    section: of the specification.
    evidence: how the layout is known.
    rule: (name, expression) pairs that give the map in integer arithmetic.
    spans: for sparse A and metadata, the first and last column of the uncompressed A that each column stands for.
    maps: copy, row and column of every (lane, register, index); -1 where nothing lies.
    where: `register`, or `column`: of tensor memory, where columns of 32 bits stand for registers.
    blocks: in tensor memory, the parts that lie together: rows, columns, lanes, columns of tensor memory.
    """

    instruction: str
    operand: str
    kind: str
    type: str
    rows: int
    columns: int
    copies: int
    lanes: int
    registers: int
    register_bits: int
    room: int
    shift: int
    width: int
    letter: str
    device: str
    section: str
    evidence: str
    rule: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    maps: Maps = field(compare=False, repr=False)
    where: str = "register"
    blocks: tuple[tuple[str, ...], ...] = ()

    @property
    def per_register(self) -> int:
        return int(self.maps[0].shape[2])

    @property
    def column_name(self) -> str:
        return "chunk" if self.kind == "metadata" else "column"

    def holder(self, lane: int, register: int, index: int) -> Holder:
        """The holder at a lane, register and index."""
        name = f"{self.letter}{register * self.per_register + index}"
        low = index * self.room + self.shift
        return Holder(lane, register, index, name, low, low + self.width - 1)

    @cached_property
    def cells(self) -> dict[tuple[int, int, int], tuple[Holder, ...]]:
        """Holders of every (copy, row, column), in ascending order."""
        copy, row, column = (m.reshape(-1) for m in self.maps)
        out: dict[tuple[int, int, int], list[Holder]] = {}
        per = self.per_register
        for place in np.nonzero(row >= 0)[0].tolist():
            rest, index = divmod(place, per)
            key = (int(copy[place]), int(row[place]), int(column[place]))
            out.setdefault(key, []).append(self.holder(*divmod(rest, self.registers), index))
        return {key: tuple(out[key]) for key in sorted(out)}

    def element(self, row: int, column: int, copy: int = 0) -> Element:
        """The holders of an element. Raises OperandError outside the matrix."""
        for name, value, limit in zip(
            ("row", self.column_name, "copy"), (row, column, copy), (self.rows, self.columns, self.copies)
        ):
            if not 0 <= value < limit:
                raise OperandError(f"{name} {value} is outside 0..{limit - 1}")
        own = (self.maps[0] == copy) & (self.maps[1] == row) & (self.maps[2] == column)
        return Element(row, column, copy, tuple(self.holder(*place) for place in np.argwhere(own).tolist()))

    def at(self, lane: int, register: int = 0, index: int | None = None) -> tuple[Element, ...]:
        """Elements in a register, lowest bits first; with an index, that element alone. Empty if the lane has none.
        Raises OperandError for a place outside the operand.
        """
        indices = range(self.per_register) if index is None else (index,)
        for name, value, limit in zip(
            ("lane", self.where, "index"), (lane, register, indices[0]), self.maps[0].shape
        ):  # fmt: skip
            if not 0 <= value < limit:
                raise OperandError(f"{name} {value} is outside 0..{limit - 1}")
        found = []
        for i in indices:
            copy, row, column = (int(m[lane, register, i]) for m in self.maps)
            if row >= 0:
                found.append(Element(row, column, copy, (self.holder(lane, register, i),)))
        return tuple(found)

    @cached_property
    def cute(self) -> str | None:
        """The CuTe layout from (thread, value) to an element, or None; `cute_note` says what it means, or why none."""
        return None if self.where == "column" else cute_text(self.offsets)

    @property
    def offsets(self) -> Index:
        """Offsets of the CuTe layout: int64 [lanes, values]; see `offsets`."""
        return cute_offsets(self.maps, self.rows, self.columns, self.operand == "b")

    @property
    def cute_note(self) -> str:
        """Meaning of the numbers of the CuTe layout, or why there is none."""
        if self.where == "column":
            return "no CuTe layout: it would begin at (thread, value), and this operand lies in tensor memory"
        if self.cute is None:
            what = "metadata" if self.kind == "metadata" else "scale factors"
            return f"no CuTe layout: it would map every (thread, value) to an element, and not every lane holds {what} here"
        column = "chunk" if self.kind == "metadata" else "k" if self.operand == "a" else "n"
        if self.operand == "b":
            where = f"n + {self.columns} k"
        elif self.operand in ("r", "scale_a", "scale_b"):
            where = f"row + {self.rows} column"
        else:
            where = f"m + {self.rows} {column}"
        if self.copies > 1:
            where += f" + {self.rows * self.columns} matrix"
        per = self.per_register
        text = f"(thread, value) -> {where}; value = {'register' if per == 1 else f'{per} register + index'}"
        if self.kind == "elements" and self.spans:
            text += ", k counts stored columns"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `elements` lists every element with its holders."""
        plain = (
            "instruction", "operand", "kind", "type", "rows", "columns", "copies", "lanes", "registers",
            "register_bits", "device", "section", "evidence",
        )  # fmt: skip
        return {name: getattr(self, name) for name in plain} | {
            "rule": dict(self.rule),
            "notes": list(self.notes),
            "columns_of_a": [list(s) for s in self.spans] or None,
            "cute": self.cute,
            "elements": [Element(r, c, k, held).to_dict() for (k, r, c), held in self.cells.items()],
        }

    def svg(self, theme: str = "auto", full: bool = False) -> str:
        """A drawing. theme: `auto`, `light`, `dark`. full: draw large layouts element by element, not as repeating blocks."""
        if self.where == "column":
            said = f"operand {self.operand} lies in tensor memory: drawings are of registers"
            raise UnsupportedError(said, hint="the table, --full, --csv or --json have its places")
        return self.show("svg", theme, full)

    def png(self, theme: str = "light", full: bool = False, scale: float = 2) -> bytes:
        """The drawing as PNG. Raises UnsupportedError without the extra `draw`."""
        return png(self.svg(theme, full), scale)

    def _repr_svg_(self) -> str:
        return self.svg()


Mode = tuple[int, int]  # shape, stride


def cute_offsets(maps: tuple[Index, Index, Index], rows: int, columns: int, column_first: bool) -> Index:
    """Offsets of the elements: int64 [lanes, values]; value = register * elements of a register + index. -1 where nothing lies.

    CuTe counts A as (m, k), B as (n, k), C and D as (m, n), the first coordinate contiguous; matrices of several copies follow
    one
    another.

    maps: copy, row and column of every (lane, register, index).
    rows, columns: of the matrix.
    column_first: the first coordinate is the column, as for B.
    """
    copy, row, column = maps
    index = column + row * columns if column_first else row + column * rows
    return np.where(row < 0, -1, copy * rows * columns + index).reshape(len(row), -1)


def _modes(line: Index) -> list[Mode] | None:
    """Modes of one axis, as few as possible; None if it has none. The line begins with 0."""
    modes: list[Mode] = []
    done, total = 1, len(line)
    while done < total:
        stride, size = int(line[done]), 2
        while done * size < total and line[done * size] == size * stride:
            size += 1
        while total % (done * size):
            size -= 1
        if size == 1:
            return None
        modes.append((size, stride))
        done *= size
    at = np.arange(total)
    rebuilt, weight = np.zeros(total, np.int64), 1
    for size, stride in modes:
        rebuilt += at // weight % size * stride
        weight *= size
    return modes if np.array_equal(rebuilt, line) else None


def _print(modes: list[Mode]) -> tuple[str, str]:
    if len(modes) < 2:
        size, stride = modes[0] if modes else (1, 0)
        return str(size), str(stride)
    return f"({','.join(str(m[0]) for m in modes)})", f"({','.join(str(m[1]) for m in modes)})"


def cute_text(at: Index) -> str | None:
    """Offsets as `((4,8),(2,2,2)):((32,1),(16,8,128))`, modes merged where they can be; None where no layout has them."""
    if (at < 0).any() or at[0, 0]:
        return None
    threads, values = _modes(at[:, 0]), _modes(at[0])
    if threads is None or values is None or not np.array_equal(at, at[:, :1] + at[:1]):
        return None
    (shape_t, stride_t), (shape_v, stride_v) = _print(threads), _print(values)
    return f"({shape_t},{shape_v}):({stride_t},{stride_v})"


Axis = tuple[str, int]


def expression(values: Index, axes: Sequence[Axis]) -> str:
    """An expression for an array, such as `lane / 4 + 8 * (register % 2)`; `/` rounds down.

    axes: name and extent of every axis of the array. Every bit of every axis adds a step of its own.
    """
    array = values.reshape(tuple(extent for _, extent in axes))
    origin = int(array.flat[0])
    terms: list[str] = []
    rebuilt = np.full(array.shape, origin, np.int64)
    for number, (name, extent) in enumerate(axes):
        line = np.moveaxis(array, number, 0).reshape(extent, -1)[:, 0]
        steps = [int(line[1 << bit]) - origin for bit in range((extent - 1).bit_length())]
        terms += _terms(name, steps)
        place = np.arange(extent).reshape([-1 if n == number else 1 for n in range(len(axes))])
        for bit, step in enumerate(steps):
            rebuilt += (place >> bit & 1) * step
    if not np.array_equal(rebuilt, array):
        raise AssertionError("the map is not additive over bits")
    if origin or not terms:
        terms.append(str(origin))
    return " + ".join(terms)


def _terms(name: str, steps: list[int]) -> list[str]:
    """One term for each run of bits whose steps double."""
    out = []
    start = 0
    while start < len(steps):
        stop = start + 1
        while stop < len(steps) and steps[stop] == 2 * steps[stop - 1]:
            stop += 1
        if steps[start]:
            part = name if not start else f"{name} / {1 << start}"
            part += f" % {1 << (stop - start)}" if stop < len(steps) else ""
            out.append(part if steps[start] == 1 else f"{steps[start]} * {part if part == name else f'({part})'}")
        start = stop
    return out
