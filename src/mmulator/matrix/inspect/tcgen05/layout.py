"""Layouts of tcgen05: D, A, scale factors and metadata in tensor memory, and the registers of loads and stores."""

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from mmulator.base.errors import OperandError, UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.shapes import stored_bits
from mmulator.matrix.inspect.layouts.answer import Layout, Maps, expression
from mmulator.matrix.inspect.search import descriptor_of, text_of
from mmulator.matrix.layouts import tensor_memory as tm
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor, unknown_selector

DEVICE = "sm_100"
_ORGANIZATION = "Data Path Layout Organization"
_PUBLIC = "after CuTe and Triton, which agree; the specification has pictures; no B200 was asked"
_CUTE = "after CuTe; the specification has pictures; no B200 was asked"
_MOVES = ("ld", "st", "ld.red")
# What an operand may be called, by the name that answers have.
_NAMES = {
    "a": "a", "d": "d", "c": "d", "r": "r", "e": "sp_meta", "sp_meta": "sp_meta", "metadata": "sp_meta", "scale_a": "scale_a",
    "scale_b": "scale_b",
}  # fmt: skip


def may_be_operand(word: str) -> bool:
    """Whether a word may name an operand."""
    return word.lower().replace("-", "_") in {*_NAMES, "b", "a_desc", "b_desc"}


def operands(form: Form) -> tuple[str, ...]:
    """Operands that have a layout."""
    if form.op in _MOVES:
        return ("r",)
    if not form.atype:
        return ()
    return ("a", "d", *(("sp_meta",) if form.sparse else ()), *(("scale_a", "scale_b") if form.block_scale else ()))


def layout(form: Form, operand: str, selector: int = 0, byte_id: int = 0) -> Layout:
    """Where the elements of an operand lie: lanes and columns of tensor memory, of one CTA and from the operand's address on; of
    a load or store, lanes and registers of a warp.

    form: with shape and types.
    operand: `d`, `a` (in tensor memory), `scale_a`, `scale_b`, `sp_meta` (also `e`); `r` of a load or store.
    selector: sparsity selector; 1 for kinds f16 and tf32 alone, others are not known.
    byte_id: scale factor ID of the instruction descriptor.

    Raises OperandError for an operand that the instruction does not have there, UnsupportedError for what no source says.
    """
    name = _NAMES.get(operand.lower().replace("-", "_"), "")
    known = operands(form)
    if name not in known:
        having = f"operands with a layout: {', '.join(known)}" if known else "it has no matrix in tensor memory or registers"
        if form.atype and operand.lower() in ("b", "b-desc", "b_desc", "a-desc", "a_desc"):
            having = f"`mmulator descriptor encode {text_of(form)}` says where its elements are"
            raise OperandError(f"operand {operand} of {form} lies in shared memory", hint=having)
        raise OperandError(f"{form} has no operand {operand} in tensor memory or registers", hint=having)
    if name == "r":
        return _registers(form)
    d = descriptor_of(form)
    if name == "sp_meta":
        if unknown := unknown_selector(selector):
            raise UnsupportedError(unknown, rule="Sparsity selector (PTX ISA 9.1)", hint="selectors 0 and 1")
        return _metadata(form, replace(d, selector=selector), selector)
    if name.startswith("scale"):
        return _scales(form, d, name[-1], byte_id)
    return _matrix(form, d, name)


def _letter(d: InstructionDescriptor) -> str:
    return tm.layout_id(d.m, d.pair, d.ws, d.sparse)


def _empty(lanes: int, registers: int, per: int) -> Maps:
    return tuple(np.full((lanes, registers, per), -1, np.int64) for _ in range(3))  # type: ignore[return-value]


def _fill(maps: Maps, at: tuple[int, int, int], row: int, column: int) -> None:
    copies, rows, columns = maps
    copies[at], rows[at], columns[at] = 0, row, column


def _whose(d: InstructionDescriptor) -> tuple[str, ...]:
    return ("Of a pair of CTAs, this is the part of one.",) if d.pair else ()


def _registers(form: Form) -> Layout:
    shape, num = form["shape"], int(form["num"].removeprefix("x"))
    packed = bool(form["pack"] or form["unpack"])
    count, columns = tm.registers_of(shape, num), tm.columns_of(shape, num)
    wide = 1 + packed
    split = wide * columns if shape == "16x32bx2" else 0
    maps = _empty(32, count, wide)
    for t, r, half in product(range(32), range(count), range(wide)):
        lane, column = tm.moved(shape, t, r, split, wide)
        _fill(maps, (t, r, half), lane, column + half)
    axes = (("lane", 32), ("register", count), ("index", wide))
    notes = ["A row is a lane of tensor memory, a column one of its columns, from the instruction's address on."]
    if shape == "16x32bx2":
        notes.append(f"immHalfSplitoff is taken as {split} here: the columns behind those of lanes 0 to 15.")
    if form["unpack"]:
        notes.append("Which bits a store leaves in the upper halves of the cells is not known: mmulator writes 0 (inferred).")
    if form["pack"]:
        notes.append("Of each cell the low 16 bits.")
    return Layout(
        str(form), "r", "elements", "b16" if packed else "b32", 32 if shape == "32x32b" else 16,
        wide * columns + split, 1, 32, count, 32, 16 if packed else 32, 0, 16 if packed else 32, "r", DEVICE,
        "Matrix and Data Movement Shape (PTX ISA 9.1)", _PUBLIC,
        tuple((part, expression(m, axes)) for part, m in zip(("row", "column"), maps[1:])), tuple(notes), (), maps,
    )  # fmt: skip


def _blocks(letter: str, columns: int, cells: int, own: bool) -> tuple[tuple[str, ...], ...]:
    """Rows of a table: rows, columns, lanes, columns of tensor memory.

    letter: of the layout. columns: of the matrix. cells: columns of tensor memory.
    own: whether the matrix is D, whose columns some layouts divide.
    """
    return tuple(
        (_span(p.row, p.rows), _span(p.first, p.columns) if own else _span(0, columns), _span(p.lane, p.rows), _span(0, cells))
        for p in tm.pieces(letter, columns if own else tm.copies(letter))
    )


def _span(first: int, many: int) -> str:
    return f"{first}-{first + many - 1}" if many > 1 else str(first)


def _matrix(form: Form, d: InstructionDescriptor, name: str) -> Layout:
    """D or A."""
    letter, section, evidence = _letter(d), _ORGANIZATION, _PUBLIC
    rows, notes = tm.PARTS[letter], [*_whose(d)]
    element = form.dtype if name == "d" else form.atype
    spans: tuple[tuple[int, int], ...] = ()
    if name == "d":
        columns, room, shift, repeats = d.n, 32, 0, 1
        if element.bits < 32:
            notes.append("A cell holds one element, in its low bits.")
    else:
        columns, repeats = d.k // 2 if d.sparse else d.k, tm.copies(letter)
        room = stored_bits(form, element)
        shift = 2 if (room, element.bits) == (8, 4) else 0
        if room > element.bits:
            notes.append(
                f"An element of {element.bits} bits lies in bits {shift} to {shift + element.bits - 1} of a byte: inferred from "
                "ldmatrix, the specification has pictures."
            )
        if repeats > 1:
            notes.append(f"A is held {repeats} times, for each part of D's columns" + ("." if d.pair else ": inferred."))
        if d.sparse:
            notes.append("A is compressed; the metadata says which columns are stored.")
        notes.append("A may lie in shared memory, too: mmulator descriptor encode.")
    if letter in "FC":
        notes.append("The address may begin at lane 0 or at lane 16, the same for D, A and the metadata.")
    per = 32 // room
    width = columns // (tm.LANES // rows if name == "d" and letter in "BEG" else 1)
    maps = _maps(letter, rows, columns, -(-width // per), room, name == "d", repeats)
    places = [tm.place(letter, m, 0, d.n)[0] for m in range(rows)]
    rule = (("lane", _lane_rule(letter, np.array(places), rows, d.n if name == "d" else 0)), ("column", _column_rule(
        letter, per, d.n if name == "d" else 0)))  # fmt: skip
    return Layout(
        text_of(form), name, "elements", str(element), rows, columns, 1, tm.LANES, maps[0].shape[1], 32, room, shift,
        element.bits, name, DEVICE, f"{section} (PTX ISA 9.1), layout {letter}", evidence, rule, tuple(notes), spans, maps,
        where="column", blocks=_blocks(letter, columns, maps[0].shape[1], name == "d"),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _maps(letter: str, rows: int, columns: int, wide: int, room: int, own: bool, repeats: int) -> Maps:
    """Maps of D, if `own`, or of A: a matrix of a layout, in `wide` columns of tensor memory, that is held several times.

    room: bits of an element.
    """
    maps = _empty(tm.LANES, wide, 32 // room)
    for copy, m, n in product(range(repeats), range(rows), range(columns)):
        lane, column, low = (*tm.place(letter, m, n, columns), 0) if own else tm.a_place(letter, room, m, n, copy)
        _fill(maps, (lane, column, low // room), m, n)
    return maps


def _lane_rule(letter: str, places: np.ndarray, rows: int, n: int) -> str:
    lane = expression(places, (("row", rows),))
    parts = tm.LANES // rows
    return f"{lane} + {rows} * (column / {n // parts})" if n and parts > 1 and letter in "BEG" else lane


def _column_rule(letter: str, per: int, n: int) -> str:
    if n:
        return f"column % {n // (tm.LANES // tm.PARTS[letter])}" if letter in "BEG" else "column"
    return f"column / {per}" if per > 1 else "column"


def _scales(form: Form, d: InstructionDescriptor, side: str, byte_id: int) -> Layout:
    longer = d.k == 96
    allowed = range(0, 4, form.scale_vec // (1 + longer))
    if byte_id not in allowed:
        having = ", ".join(map(str, allowed))
        raise OperandError(
            f"the scale factor ID is {byte_id}: for .scale_vec::{form.scale_vec}X it must be one of {having}",
            rule="Scale Factor A ID; Scale Factor B ID (PTX ISA 9.1)",
        )  # fmt: skip
    letter, factors = _letter(d), form.scale_vec * 3 // 2 if longer else form.scale_vec
    lines = tm.PARTS[letter] if side == "a" else d.n
    parts = tm.scale_parts(letter, side, lines)
    maps = _empty(tm.LANES, tm.scale_span(parts[0][1], byte_id, factors), 4)
    blocks = []
    for first, many, quarters in parts:
        for i, s, quarter in product(range(many), range(factors), quarters):
            lane, column, byte = tm.scale_place(i, s + byte_id, many)
            at = (lane + tm.QUARTER * quarter, column, byte)
            _fill(maps, at, *((first + i, s) if side == "a" else (s, first + i)))
        for i, word in product(range(0, many, tm.QUARTER), range((byte_id + factors + 3) // 4)):
            lanes = ", ".join(_span(tm.QUARTER * q, tm.QUARTER) for q in quarters)
            start, end = max(4 * word - byte_id, 0), min(4 * word + 4 - byte_id, factors)
            own = _span(first + i, min(tm.QUARTER, many - i)), _span(start, end - start)
            blocks.append((*(own if side == "a" else own[::-1]), lanes, str(tm.scale_place(i, 4 * word, many)[1])))
    line = "row" if side == "a" else "column"
    byte = f"factor{f' + {byte_id}' * bool(byte_id)}"
    rule = (("lane % 32", f"{line} % 32"), ("column", f"{line} / 32"), ("byte", byte))
    if factors + byte_id > 4:
        byte = byte if byte == "factor" else f"({byte})"
        rule = (rule[0], ("column", f"{line} / 32 + {tm.scale_step(lines)} * ({byte} / 4)"), ("byte", f"{byte} % 4"))
    if len(parts) > 1:
        rule = (*rule[:1], ("column", f"{line} % {lines // 2} / 32"), rule[2])
    notes = (
        f"Scale factor ID {byte_id}; a factor scales {d.k // factors} elements of its {line} along k.",
        "Every quarter of 32 lanes that is named holds a copy.", *_whose(d),
    )  # fmt: skip
    rows, columns = (lines, factors) if side == "a" else (factors, lines)
    return Layout(
        text_of(form), f"scale_{side}", "scales", str(form.stype), rows, columns, 1, tm.LANES, maps[0].shape[1], 32, 8, 0, 8,
        "s", DEVICE, "Block Scaling for tcgen05.mma (PTX ISA 9.1)", _CUTE, rule, notes, (), maps, where="column",
        blocks=tuple(blocks),
    )  # fmt: skip


def _metadata(form: Form, d: InstructionDescriptor, selector: int) -> Layout:
    letter, room = _letter(d), stored_bits(form, form.atype)
    rows = tm.PARTS[letter]
    chunk = {32: 2, 4: 8}.get(room, 4)  # columns of A that a nibble is about
    chunks, step = d.k // chunk, {32: 1, 4: 4}.get(room, 2)
    maps = _empty(tm.LANES, 1 + selector if room > 8 else 2, 8)
    for copy, m, c in product(range(tm.copies(letter)), range(rows), range(chunks)):
        lane, column, low = tm.metadata_place(room, m, c * step, letter, copy, selector)
        _fill(maps, (lane, column, low // 4), m, c)
    found = np.array([[tm.metadata_place(room, m, c * step, letter, 0, selector) for c in range(chunks)] for m in range(rows)])
    axes = (("row", rows), ("chunk", chunks))
    rule = tuple((part, expression(found[..., i], axes)) for i, part in enumerate(("lane", "column", "lowest bit")))
    evidence = _CUTE if letter not in "FC" else "inferred: for M = 64 of a CTA CuTe has none, the specification a picture"
    notes = [f"A nibble says which {2 if chunk > 2 else 1} of the {chunk} columns of its chunk are stored"
             + (", in pairs." if chunk == 8 else "."), *_whose(d)]  # fmt: skip
    if tm.copies(letter) > 1:
        notes.append(f"{tm.copies(letter)} copies, each {rows} lanes further.")
    return Layout(
        text_of(form), "sp_meta", "metadata", "b4", rows, chunks, 1, tm.LANES, maps[0].shape[1], 32, 4, 0, 4, "e", DEVICE,
        f"Sparsity selector (PTX ISA 9.1), selector {selector}", evidence, rule, tuple(notes),
        tuple((c * chunk, (c + 1) * chunk - 1) for c in range(chunks)), maps, where="column",
    )  # fmt: skip
