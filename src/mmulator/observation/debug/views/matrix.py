"""A matrix to look at: raw elements of a type, with the numbers of its rows and columns, and text that fits a terminal; fragments
as matrices: registers of the lanes of a warp or warpgroup at a matrix instruction, through matrix/layouts/.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.form import Form
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.layouts.fragments import Fragment
from mmulator.matrix.layouts.operands import element_of, fragment
from mmulator.matrix.layouts.scales import BYTE_IDS, THREADS
from mmulator.matrix.layouts.scales import places as scale_places
from mmulator.matrix.layouts.sparse import metadata
from mmulator.matrix.numerics.formats import from_raw
from mmulator.observation.debug.views.barrier_state import masks_text
from mmulator.observation.debug.views.scene import Scene
from mmulator.observation.record.addresses import elements
from mmulator.observation.record.steps import WarpPlace
from mmulator.ptx.tree import Immediate, Operand, Reg
from mmulator.runtime.native.state import FULL, LANES
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text

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
        marks: dict[str, Any] = {name: None if mask is None else mask[at] for name, mask in self._marks.items()}
        names = tuple(self.row_name(r) for r in rows), tuple(self.column_name(c) for c in columns)
        return replace(self, raw=self.raw[at], row_names=names[0], column_names=names[1], **marks)

    @property
    def _marks(self) -> dict[str, Any]:
        return {"off": self.off, "unread": self.unread, "left_out": self.left_out}

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
            **{name: None if mask is None else mask.tolist() for name, mask in self._marks.items()}, "notes": list(self.notes),
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
        from mmulator.base.tables import element, html_table

        rows, columns = self.shape
        texts = self._marked(False, None)
        body = [(self.row_name(r), *texts[r]) for r in range(rows)]
        notes = "".join(element("p", note) for note in self.notes)
        return element("p", self.title) + html_table(("", *(self.column_name(c) for c in range(columns))), body) + notes


def mask_outside(inside: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Mask of the elements that are not inside; None if all are."""
    return None if inside.all() else ~inside


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


Words = NDArray[np.uint64]
AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n"), "r": ("", "")}


@dataclass(frozen=True)
class FragmentWarp:
    """A warp that holds a part of a fragment.

    place: the warp.
    frame: byte of its register file at which the registers of the function begin; -1 if the warp is not in the function.
    lanes: mask of its lanes that are at the instruction.
    """

    place: WarpPlace
    frame: int
    lanes: int


def holders(scene: Scene, count: int) -> list[FragmentWarp]:
    """The warp whose turn it is; or, for a count of 128 lanes, the four warps of its warpgroup."""
    own = FragmentWarp(scene.place, scene.frame_at, scene.lanes)
    if count == LANES:
        return [own]
    first = scene.place.warp & ~3
    warps = range(first, min(first + 4, scene.grid.shape.warps))
    return [own if w == scene.place.warp else _other(scene, w) for w in warps]


def _other(scene: Scene, warp: int) -> FragmentWarp:
    """Another warp of the warpgroup, as far as it is in the function."""
    found = [g for g in scene.groups_of(scene.cta) if g.warp == warp]
    inside = [g for g in found if scene.function_of(g) == scene.function]
    here = [g for g in inside if g.instruction is scene.instruction]
    lanes = 0
    for g in here:
        lanes |= g.lanes
    frame = (here or inside)[0].frame if inside else -1
    return FragmentWarp(scene.warp_at(scene.place.cta, warp), frame, lanes)


def words(scene: Scene, operand: Operand, held: list[FragmentWarp], type_name: str = "b32") -> tuple[Words, NDArray[np.bool_]]:
    """(registers of a vector operand, uint64 [lanes, registers]; which of them are known).

    operand: a register, or a vector of registers and constants.
    held: the warps.
    type_name: PTX type of a constant.
    """
    parts = elements(operand)
    out = np.zeros((LANES * len(held), len(parts)), np.uint64)
    known = np.zeros(out.shape, bool)
    for number, one in enumerate(held):
        rows = slice(LANES * number, LANES * (number + 1))
        for column, part in enumerate(parts):
            value: Any = None
            if isinstance(part, Reg) and one.frame >= 0:
                value = scene.register(part.name, one.place, frame=one.frame)
            elif isinstance(part, Immediate):
                value = part.bits(type_name)
            if value is not None:
                out[rows, column], known[rows, column] = value, True
    return out, known


def names_of(operand: Operand) -> str:
    """Registers of an operand in words: `{%r1..%r4}`."""
    said = [p.name if isinstance(p, Reg) else str(p.value) if isinstance(p, Immediate) else "_" for p in elements(operand)]
    if len(said) == 1:
        return said[0]
    return "{" + (", ".join(said) if len(said) <= 4 else f"{said[0]}, {said[1]}, ... {said[-1]}") + "}"


def gathered(scene: Scene, form: Form, name: str, operand: Operand) -> list[MatrixView]:
    """The matrix in a fragment: one view, or as many as there are matrices in the operand.

    form, name: the instruction, and its operand's name.
    operand: its registers.
    """
    f, t = fragment(form, name), element_of(form, name)
    held = holders(scene, f.lanes)
    have, known = words(scene, operand, held, "b64" if f.register_bits == 64 else "b32")
    matrix = f.to_matrix(have.astype(f"<u{f.register_bits // 8}"))
    off = np.concatenate([_bits(FULL & ~h.lanes) for h in held])[:, None] | np.zeros(known.shape, bool)
    views = (_spread(f, mask) for mask in (off, ~known))
    out, unread = (v.reshape(f.copies, f.rows, f.columns) for v in views)
    notes = tuple(_notes(scene, held))
    raw = matrix.reshape(f.copies, f.rows, f.columns)
    label = name.upper() if name != "r" else "R"
    return [
        MatrixView(
            label + (str(n) if f.copies > 1 else ""), names_of(operand), t.name, raw[n], AXES.get(name, ("", "")),
            out[n] if out.any() else None, unread[n] if unread.any() else None, notes=notes,
        )
        for n in range(f.copies)
    ]  # fmt: skip


def _spread(f: Fragment, of_register: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each element of the matrix a fact about the register that has it, which is given [lanes, registers]."""
    found: NDArray[np.bool_] = np.repeat(of_register.reshape(-1), f.per_register)[f.first_places]
    return found


def _bits(mask: int) -> NDArray[np.bool_]:
    return (mask >> np.arange(LANES) & 1).astype(bool)


def _notes(scene: Scene, held: list[FragmentWarp]) -> list[str]:
    live = {h.place.warp: int(scene.cta.warps[h.place.warp]["live"]) for h in held}
    gone = [w for w, lanes in live.items() if not lanes]
    strangers = [h.place.warp for h in held if h.frame < 0 and live[h.place.warp]]
    away = [h.place.warp for h in held if h.frame >= 0 and not h.lanes]
    out = []
    if gone:
        out.append(f"?: {masks_text(dict.fromkeys(gone, FULL))} {'has' if len(gone) == 1 else 'have'} exited")
    if strangers:
        out.append(f"?: {masks_text(dict.fromkeys(strangers, FULL))} {_are(len(strangers))} not in {scene.function}")
    if away:
        out.append(f"': {masks_text(dict.fromkeys(away, FULL))} {_are(len(away))} elsewhere: what registers hold now")
    for h in held:
        missing = FULL & ~h.lanes
        if h.lanes and missing and h.frame >= 0:
            warp = f" of warp {h.place.warp}" * (len(held) > 1)
            who = f"{lanes_text(missing)}{warp} {_are(missing.bit_count())}"
            out.append(f"': {who} not at this instruction: what registers hold now")
    return out


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# sparse A ------------------------------------------------------------------------------------------------------------------
def expanded(scene: Scene, form: Form, compressed: MatrixView, word: Operand, selector: int) -> MatrixView:
    """A sparse A as the dense matrix that it stands for; what metadata leaves out is zero.

    form: the instruction.
    compressed: A as it is stored.
    word: the register of the metadata.
    selector: the sparsity selector.
    """
    have, _ = words(scene, word, holders(scene, form.lanes))
    nibbles = metadata.from_registers(have[:, 0].astype(np.uint32), form, selector)
    return dense(compressed, nibbles, form, f"metadata in {names_of(word)}, selector {selector}")


def dense(compressed: MatrixView, nibbles: NDArray[np.uint8], form: Form, origin: str) -> MatrixView:
    """A sparse A as the dense matrix that it stands for.

    compressed: A as it is stored.
    nibbles: its metadata, [rows, chunks].
    form: the instruction.
    origin: where the metadata is, in words.
    """
    columns = metadata.indices(nibbles, form)
    raw = np.zeros((len(nibbles), form.k), compressed.raw.dtype)
    rows = np.arange(len(nibbles))[:, None]
    raw[rows, columns] = compressed.raw
    left_out = np.ones(raw.shape, bool)
    left_out[rows, columns] = False
    odd = int(metadata.undefined(nibbles, form).sum())
    notes = (*compressed.notes, f"{origin}; .: not stored, so zero")
    if odd:
        notes += (f"{odd} chunks have metadata that the specification leaves undefined",)
    off = None
    if compressed.off is not None:
        off = np.zeros(raw.shape, bool)
        off[rows, columns] = compressed.off
    return replace(compressed, name="A dense", raw=raw, off=off, left_out=left_out, notes=notes)


# block scaling ----------------------------------------------------------------------------------------------------------------
def factors(scene: Scene, form: Form, side: str, data: Operand, selector: Operand) -> MatrixView:
    """The scale factors of an mma: [m, blocks] of A, [blocks, n] of B.

    form: the instruction.
    side: `a` or `b`.
    data: the register that has them.
    selector: byte-id and thread-id.
    """
    byte, thread = (scene.value(o, type_name="b16") or 0 for o in elements(selector))
    byte, thread = byte % BYTE_IDS[form.scale_vec].stop, thread % THREADS[side]
    lanes, bytes = scale_places(form, side, byte, thread)
    have, _ = words(scene, data, holders(scene, LANES))
    raw = (have[lanes, 0][:, None] >> (8 * bytes).astype(np.uint64) & np.uint64(0xFF)).astype(np.uint8)
    what = f"{names_of(data)}, byte-id {byte}, thread-id {thread}"
    t: ElementType = form.stype
    shown, axes = (raw, ("m", "block")) if side == "a" else (raw.T, ("block", "n"))
    return MatrixView(f"scale {side.upper()}", what, t.name, shown, axes)
