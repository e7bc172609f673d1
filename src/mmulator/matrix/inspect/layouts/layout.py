"""Layouts of operands in registers: the answer to `mmulator layout`, from the tables that execute.

Matrix fragments, sparsity metadata, scale factors: all are one map from (lane, register, index) to (copy, row, column). Of words
that fit several forms, whether another of them has another layout of the operand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from mmulator.base.errors import MmulatorError, OperandError
from mmulator.isa.chips import as_device
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.names.words import find_forms, parse_query, split
from mmulator.matrix.inspect.layouts.answer import Element, Index, Layout, Maps, expression
from mmulator.matrix.inspect.search import form_of, is_tcgen05, name_in
from mmulator.matrix.layouts import element_of, fragment, scales, sparse

if TYPE_CHECKING:
    from mmulator.matrix.instruction.instruction import Instruction

def operands(instruction: str | Instruction | Form) -> tuple[str, ...]:
    """Operands that have a layout in registers: some of `a b c d r`, `e` or `sp_meta`, `scale_a`, `scale_b`."""
    form = form_of(instruction)
    if form.effects.tensor:
        from mmulator.matrix.inspect.tcgen05.layout import operands as in_tensor_memory

        return in_tensor_memory(form)
    specs = {s.key: s for signature in form.signatures for s in signature}
    found = [k for k, s in specs.items() if s.kind in ("registers", "register") and k in _ORDER]
    found += ["scale_a", "scale_b"] if form.block_scale else []
    return tuple(sorted(found, key=_ORDER.index))


_ORDER = ("a", "b", "c", "d", "r", "e", "sp_meta", "scale_a", "scale_b")
_ALIASES = {"scale_a_data": "scale_a", "scale_b_data": "scale_b"}


def operand_of(form: Form, name: str) -> str:
    key = name.lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    known = operands(form)
    if key in ("e", "sp_meta", "metadata") and form.sparse:
        key = "sp_meta" if form.lanes > 32 else "e"
    if key in known:
        return key
    if form.lanes > 32 and key in ("b", "a_desc", "b_desc"):
        raise OperandError(
            f"operand {name} of {form} lies in shared memory, not in registers",
            hint=f"`mmulator descriptor encode {form}` says where its elements are",
        )
    having = f"operands with a layout: {', '.join(known)}" if known else "it has no matrix in registers"
    if not name.strip():
        raise OperandError(f"no operand of {form} is named", hint=having)
    if key not in _ORDER:
        raise OperandError(f"which operand of {form}? {name} is none", hint=f"{having}; name one as the last word")
    raise OperandError(f"{form} has no operand {name} in registers", hint=having)


def _device(name: str) -> int:
    return int(as_device(name).removeprefix("sm_"))


def _evidence(form: Form, kind: str, number: int) -> str:
    if form.effects.opaque:
        if number == 90:
            return "measured on an NVIDIA H200 (sm_90); the specification leaves fragments of wmma open"
        if number in (70, 72):
            return (
                f"not known for sm_{number}, where the specification leaves fragments of wmma open; shown are those of "
                "sm_90, which `execute` uses for every device"
            )
        return f"inferred for sm_{number} from sm_90, where it was measured; the specification leaves fragments of wmma open"
    if kind == "scales":
        return "as specified; not measured"
    if form.is_move and (form.m, form.n) != (8, 8):
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
    operand: `a`, `b`, `c`, `d`; `r` of a load, store or matrix move; `e` (wgmma: `sp_meta`), the metadata of a sparse A;
    `scale_a`, `scale_b`.
    selector: the sparsity selector.
    byte_id, thread_id: of block scaling.
    device: matters for wmma, whose fragments the specification leaves open.

    Raises InvalidInstructionError for an unknown instruction, OperandError for an operand or selector that it does not have,
    UnsupportedError for an unknown device.
    Matrix Fragments for mma, wgmma and WMMA; Sparse matrix storage; Block Scaling (PTX ISA 9.1).
    """
    form = form_of(instruction)
    if form.effects.tensor:
        from mmulator.matrix.inspect.tcgen05.layout import layout as in_tensor_memory

        return in_tensor_memory(form, operand, selector, byte_id)
    name = operand_of(form, operand)
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
    if form.trans and form.effects.memory is not MemoryEffect.NONE:
        when = "after" if form.effects.memory is MemoryEffect.READ else "before"
        notes.append(f"The matrix is shown as it is {when} transposition.")
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


def _others(text: str, found: Layout) -> Iterator[Layout]:
    """Layouts of the other forms that the words fit, where they differ; the likeliest first."""
    if name_in(text) or is_tcgen05(text):
        return
    seen = {found.maps[0].shape: [found]}
    selector = next((int(n.split(":")[0].split()[1]) for n in found.notes if n.startswith("Selector")), 0)
    keys = {_layout_key(form_of(found.instruction), found.operand)}
    named = {t for choices in parse_query(split(text)).types for t in choices}
    for form in find_forms(text):
        try:
            name = operand_of(form, found.operand)
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
    """Key of a form's layout: forms of one key have one layout."""
    if name in ("e", "sp_meta") or name.startswith("scale"):
        return form.family, form.m, form.n, form.k, form.atype, form.btype, form.scale_vec, name
    return fragment(form, name), form.sparse and name == "a"


def _same(a: Layout, b: Layout) -> bool:
    alike = (a.room, a.shift, a.width, a.spans) == (b.room, b.shift, b.width, b.spans)
    return alike and all(x.shape == y.shape and bool((x == y).all()) for x, y in zip(a.maps, b.maps))


def other_form(text: str, found: Layout) -> str:
    """The first of the other forms that the words fit whose layout of the operand differs; empty if there is none."""
    return next((other.instruction for other in _others(text, found)), "")


def other_answer(text: str, found: Layout, ask: Callable[[Layout], list[Element]]) -> tuple[Layout, list[Element]] | None:
    """(layout, elements) of the first other form that the words fit and that answers a question differently."""
    own = ask(found)
    for other in _others(text, found):
        try:
            answer = ask(other)
        except OperandError:  # the other form has no such element
            continue
        if answer != own or any(h.low != k.low or h.high != k.high for e, f in zip(own, answer)
                                for h, k in zip(e.holders, f.holders)):  # fmt: skip
            return other, answer
    return None
