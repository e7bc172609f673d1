"""Which lane and register holds which element: the answer to `mmulator layout`, from the tables that execute.

Matrix fragments, sparsity metadata, scale factors: all are one map from (lane, register, index) to (copy, row, column).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import MmulatorError, OperandError
from mmulator.inspect.rules import expression
from mmulator.instruction.execution import check_known
from mmulator.isa.form import Form
from mmulator.layouts import element_of, fragment, scales, sparse
from mmulator.syntax import parse_mnemonic
from mmulator.syntax.search import find_forms, parse_query, split

if TYPE_CHECKING:
    from mmulator.instruction.instruction import Instruction

Index = NDArray[np.int64]
Maps = tuple[Index, Index, Index]


@dataclass(frozen=True, order=True)
class Holder:
    """A place in the registers. lane: 0..31, 0..127 for wgmma. register: its number in the operand's vector, from 0.

    index: which element of the register, lowest bits first. name: as in the specification's figures (`a5`: the element
    number in the lane). low, high: bits of the register.
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
    """An element and all its holders. copy: which matrix, where an operand holds several (else 0)."""

    row: int
    column: int
    copy: int
    holders: tuple[Holder, ...]

    def to_dict(self) -> dict[str, Any]:
        where = {"row": self.row, "column": self.column, "copy": self.copy}
        return where | {"holders": [h.to_dict() for h in self.holders]}


@dataclass(frozen=True)
class Layout:
    """How one operand of an instruction lies in registers.

    kind: `elements`, `metadata` (a column is a chunk of A; one nibble each) or `scales` (one byte each).
    rows, columns, copies: of the matrix that lies there; of sparse A the compressed one. spans: for sparse A and
    metadata, the first and last column of the uncompressed A that each column stands for.
    lanes, registers, register_bits: of the operand. room: bits that an element takes of a register; shift, width: the
    element's own bits in them. letter: of the names (`a` in `a5`).
    evidence: on what the layout rests. rule: (name, expression) pairs that give the map in integer arithmetic.
    maps: copy, row and column of every (lane, register, index); -1 where nothing lies.
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

    @property
    def per_register(self) -> int:
        return int(self.maps[0].shape[2])

    @property
    def column_name(self) -> str:
        return "chunk" if self.kind == "metadata" else "column"

    def holder(self, lane: int, register: int, index: int) -> Holder:
        """A place by its numbers."""
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
        """What lies in a register, lowest bits first; with an index, that element alone. Empty if the lane has none.

        Raises OperandError for a place outside the operand.
        """
        indices = range(self.per_register) if index is None else (index,)
        for name, value, limit in zip(
            ("lane", "register", "index"), (lane, register, indices[0]), self.maps[0].shape
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
        from mmulator.inspect.cute import cute_layout

        return cute_layout(self)

    @property
    def cute_note(self) -> str:
        from mmulator.inspect.cute import cute_note

        return cute_note(self)

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
        """A drawing. theme: `auto`, `light`, `dark`. full: large ones element by element, not in repeating blocks."""
        from mmulator.inspect.draw import draw

        return draw(self, theme, full)

    def png(self, theme: str = "light", full: bool = False, scale: float = 2) -> bytes:
        """The drawing as PNG. Raises UnsupportedError without the extra `draw`."""
        from mmulator.inspect.svg import to_png

        return to_png(self.svg(theme, full), scale)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}</div>"


def is_name(text: str) -> bool:
    """Whether a text is an instruction's full name, not words that describe one."""
    return ".sync" in text


def form_of(instruction: str | Instruction | Form) -> Form:
    """The form of an instruction, however given; of a few words the one that people mean (`search.find_forms`).

    Raises InvalidInstructionError.
    """
    if isinstance(instruction, str):
        return parse_mnemonic(instruction.strip()) if is_name(instruction) else find_forms(instruction)[0]
    form = instruction if isinstance(instruction, Form) else getattr(instruction, "form", None)
    if not isinstance(form, Form):
        raise OperandError(f"an instruction is needed, not {type(instruction).__name__}", hint="such as 'mma m16n8k16 f16'")
    return form


def operands(instruction: str | Instruction | Form) -> tuple[str, ...]:
    """Operands that have a layout in registers: of `a b c d r`, `e` or `sp_meta`, `scale_a`, `scale_b`."""
    form = form_of(instruction)
    specs = {s.key: s for signature in form.signatures for s in signature}
    found = [k for k, s in specs.items() if s.kind in ("registers", "register") and k in _ORDER]
    found += ["scale_a", "scale_b"] if form.block_scale else []
    return tuple(sorted(found, key=_ORDER.index))


_ORDER = ("a", "b", "c", "d", "r", "e", "sp_meta", "scale_a", "scale_b")
_ALIASES = {"scale_a_data": "scale_a", "scale_b_data": "scale_b"}


def _operand(form: Form, name: str) -> str:
    key = name.lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    known = operands(form)
    if key in ("e", "sp_meta", "metadata") and form.sparse:
        key = "sp_meta" if form.family == "wgmma" else "e"
    if key in known:
        return key
    if form.family == "wgmma" and key in ("b", "a_desc", "b_desc"):
        raise OperandError(
            f"operand {name} of {form} lies in shared memory, not in registers",
            hint="`mmulator descriptor` says where its elements are",
        )
    having = f"operands with a layout: {', '.join(known)}" if known else "it has no matrix in registers"
    if not name.strip():
        raise OperandError(f"no operand of {form} is named", hint=having)
    raise OperandError(f"{form} has no operand {name} in registers", hint=having)


def _device(name: str) -> int:
    check_known(name)
    return int(name.removeprefix("sm_"))


def _evidence(form: Form, kind: str, number: int) -> str:
    if form.family == "wmma":
        if number == 90:
            return "measured on an NVIDIA H200 (sm_90); the specification leaves fragments of wmma open"
        if number in (70, 72):
            return (
                f"not known for sm_{number}, where the specification leaves fragments of wmma open; shown are those of "
                "sm_90, which `execute` uses for every device"
            )
        return (
            f"inferred for sm_{number} from sm_90, where it was measured; the specification leaves fragments of wmma open"
        )
    if kind == "scales":
        return "as specified; not measured"
    if form.dst_fmt or (form.family in ("ldmatrix", "stmatrix") and (form.m, form.n) != (8, 8)):
        return "after the layouts that CUTLASS has for it; not measured"
    return "as specified"


def layout(
    instruction: str | Instruction | Form,
    operand: str,
    *,
    selector: int = 0,
    byte_id: int = 0,
    thread_id: int = 0,
    device: str = "sm_90",
) -> Layout:
    """Where the elements of an operand lie.

    instruction: its full name, or a few words such as `mma m16n8k16 bf16`, of which the likeliest form is taken.
    operand: `a`, `b`, `c`, `d`; `r` of a load, store or matrix move; `e` (wgmma: `sp_meta`), the metadata of a sparse
    A; `scale_a`, `scale_b`. selector: the sparsity selector. byte_id, thread_id: of block scaling. device: matters for
    wmma, whose fragments the specification leaves open.
    Raises InvalidInstructionError for an instruction, OperandError for an operand or selector that there is not,
    UnsupportedError for an unknown device.

    Matrix Fragments for mma, wgmma and WMMA; Sparse matrix storage; Block Scaling (PTX ISA 9.1).
    """
    form = form_of(instruction)
    name = _operand(form, operand)
    number = _device(device)
    if name in ("e", "sp_meta"):
        return _metadata(form, name, selector, device, number)
    if name.startswith("scale"):
        return _scales(form, name, byte_id, thread_id, device, number)
    return _elements(form, name, device, number)


def _elements(form: Form, name: str, device: str, number: int) -> Layout:
    f = fragment(form, name)
    spans: tuple[tuple[int, int], ...] = ()
    notes = []
    if form.sparse and name == "a":
        g = sparse.granularity(form)
        spans = tuple((c // g.kept * g.chunk, (c // g.kept + 1) * g.chunk - 1) for c in range(f.columns))
        notes.append(
            f"A is compressed: of every {g.chunk} columns {g.kept} {'is' if g.kept == 1 else 'are'} stored; "
            "the metadata says which."
        )
    if f.width < f.bits:
        notes.append(f"An element of {f.width} bits lies in bits {f.shift} to {f.shift + f.width - 1} of a byte.")
    if f.copies > 1:
        notes.append(f"The operand holds {f.copies} matrices.")
    if f.lanes * f.registers * f.per_register > f.copies * f.rows * f.columns:
        notes.append("Elements have several holders: the registers repeat them.")
    if form.trans and form.family in ("ldmatrix", "stmatrix"):
        notes.append(f"The matrix is shown as it is {'after' if form.family == 'ldmatrix' else 'before'} transposition.")
    axes = (("lane", f.lanes), ("register", f.registers), ("index", f.per_register))
    parts = zip(("matrix", "row", "column"), f.maps)
    rule = tuple((part, expression(map_, axes)) for part, map_ in parts if part != "matrix" or f.copies > 1)
    return Layout(
        str(form), name, "elements", str(element_of(form, name)), f.rows, f.columns, f.copies, f.lanes, f.registers,
        f.register_bits, f.bits, f.shift, f.width, name, device, str(form.section),
        _evidence(form, "elements", number), rule, tuple(notes), spans, f.maps,
    )  # fmt: skip


def _scattered(lane: Index, index: Index, lanes: int, per_register: int) -> Maps:
    """Maps of a one-register operand from the lane and index of every (row, column)."""
    shape = np.broadcast_shapes(lane.shape, index.shape)
    row, column = np.indices(shape)
    maps = tuple(np.full((lanes, 1, per_register), -1, np.int64) for _ in range(3))
    at = (np.broadcast_to(lane, shape), 0, np.broadcast_to(index, shape))
    for target, value in zip(maps, (0 * row, row, column)):
        target[at] = value
    return maps[0], maps[1], maps[2]


def _metadata(form: Form, name: str, selector: int, device: str, number: int) -> Layout:
    g = sparse.granularity(form)
    lane, bit = sparse.places(form, selector)
    rows, chunks = lane.shape
    axes = (("row", rows), ("chunk", chunks))
    lanes = sorted(set((lane % 4).reshape(-1).tolist()))
    who = f"lanes with lane % 4 = {' or '.join(map(str, lanes))} hold the metadata; what the others hold is not used."
    notes = (
        f"Selector {selector}: {'all lanes hold metadata.' if len(lanes) == 4 else who}",
        f"A nibble says which {g.kept} of the {g.chunk} columns of its chunk {'is' if g.kept == 1 else 'are'} stored.",
    )
    return Layout(
        str(form), name, "metadata", "b4", rows, chunks, 1, form.lanes, 1, 32, 4, 0, 4, name[0], device,
        str(form.section), _evidence(form, "metadata", number),
        (("lane", expression(lane, axes)), ("lowest bit", expression(bit, axes))), notes,
        tuple((c * g.chunk, (c + 1) * g.chunk - 1) for c in range(chunks)),
        _scattered(lane, bit // 4, form.lanes, 8),
    )  # fmt: skip


def _scales(form: Form, name: str, byte_id: int, thread_id: int, device: str, number: int) -> Layout:
    side = name[-1]
    lane, byte = scales.places(form, side, byte_id, thread_id)
    lines, factors = len(lane), len(byte)
    axes = (("row", lines),) if side == "a" else (("column", lines),)
    rule = (
        ("lane", expression(lane, axes)),
        ("byte", expression(byte, (("column", factors),) if side == "a" else (("row", factors),))),
    )
    along = "row" if side == "a" else "column"
    notes = (
        f"byte-id-{side} {byte_id}, thread-id-{side} {thread_id}; a factor scales {form.k // form.scale_vec} elements "
        f"of its {along} along k.",
    )
    grid = (lane[:, None], byte[None, :]) if side == "a" else (lane[None, :], byte[:, None])
    rows, columns = (lines, factors) if side == "a" else (factors, lines)
    return Layout(
        str(form), name, "scales", str(form.stype), rows, columns, 1, form.lanes, 1, 32, 8, 0, 8, "s", device,
        str(form.section), _evidence(form, "scales", number), rule, notes, (), _scattered(*grid, form.lanes, 4),
    )  # fmt: skip


# words that fit several forms -----------------------------------------------------------------------------------------
def _others(text: str, found: Layout) -> Iterator[Layout]:
    """Layouts of the other forms that the words fit, where they are others; the likeliest first."""
    if is_name(text):
        return
    seen = {found.maps[0].shape: [found]}
    selector = next((int(n.split(":")[0].split()[1]) for n in found.notes if n.startswith("Selector")), 0)
    keys = {_layout_key(form_of(found.instruction), found.operand)}
    named = {t for choices in parse_query(split(text)).types for t in choices}
    for form in find_forms(text):
        try:
            name = _operand(form, found.operand)
        except OperandError:
            continue
        key = _layout_key(form, name)
        if key in keys:
            continue
        keys.add(key)
        try:
            other = layout(form, name, selector=selector, device=found.device)
        except MmulatorError:
            continue
        if found.type in named and other.type not in named:  # the words say the type of this operand
            continue
        known = seen.setdefault(other.maps[0].shape, [])
        if not any(_same(other, k) for k in known):
            known.append(other)
            yield other


def _layout_key(form: Form, name: str) -> object:
    """Forms of one key have one layout."""
    if name in ("e", "sp_meta") or name.startswith("scale"):
        return form.family, form.m, form.n, form.k, form.atype, form.btype, form.scale_vec, name
    return fragment(form, name), form.sparse and name == "a"


def _same(a: Layout, b: Layout) -> bool:
    alike = (a.room, a.shift, a.width, a.spans) == (b.room, b.shift, b.width, b.spans)
    return alike and all(x.shape == y.shape and bool((x == y).all()) for x, y in zip(a.maps, b.maps))


def other_form(text: str, found: Layout) -> str:
    """The first of the other forms that the words fit whose layout of the operand is another; empty if there is none."""
    return next((other.instruction for other in _others(text, found)), "")


def other_answer(
    text: str, found: Layout, ask: Callable[[Layout], list[Element]]
) -> tuple[Layout, list[Element]] | None:
    """The first of the other forms that the words fit that answers a question otherwise, and how."""
    own = ask(found)
    for other in _others(text, found):
        try:
            answer = ask(other)
        except OperandError:  # it has no such element
            continue
        if answer != own or any(h.low != k.low or h.high != k.high for e, f in zip(own, answer)
                                for h, k in zip(e.holders, f.holders)):  # fmt: skip
            return other, answer
    return None
