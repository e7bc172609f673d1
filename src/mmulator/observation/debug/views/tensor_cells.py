"""Tensor memory as lanes and columns, and as the matrices that tcgen05 instructions read and write, through matrix/layouts/."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.layouts.descriptors import SharedDescriptor
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor, Variant
from mmulator.matrix.layouts.sparse.metadata import granularity
from mmulator.matrix.layouts.tensor_memory import (
    COLUMNS,
    LANES,
    PARTS,
    QUARTER,
    a_place,
    layout_id,
    metadata_place,
    moved,
    place,
    scale_parts,
    scale_place,
)
from mmulator.matrix.numerics.formats import container
from mmulator.observation.debug.views.matrix import MatrixView, dense, holders, mask_outside, names_of, words
from mmulator.observation.debug.views.scene import Scene
from mmulator.observation.debug.views.tiles import described, descriptor_text, of_descriptor, signs
from mmulator.ptx.tree import Address, Immediate
from mmulator.runtime.native.matrix.tensor_state import TENSOR_UNIT

Index = NDArray[np.int64]
_COLUMN = (1 << 16) - 1


# lanes and columns ---------------------------------------------------------------------------------------------------------
def tensor_memory(
    scene: Scene, lanes: range = range(LANES), columns: range | None = None, element: str = "b32", rank: int | None = None
) -> MatrixView:
    """Tensor memory of a CTA as it is: a row for each lane, a column for each of its columns.

    lanes, columns: the part; columns None: those that are allocated.
    element: PTX type of the elements, of 32 bits or less; narrower ones lie beside each other in a cell.
    rank: of the CTA in the cluster; None: that of the warp whose turn it is.
    """
    cells = _cells(scene, rank)
    held = allocations(scene, rank)
    if columns is None:
        columns = range(min((first for first, _ in held), default=0), max((first + n for first, n in held), default=0))
    t = TYPES[element]
    per = max(1, 32 // t.bits)
    part = cells[np.ix_(list(lanes), list(columns))]
    shifts = np.arange(per, dtype=np.uint32) * np.uint32(t.bits % 32)
    raw = (part[:, :, None] >> shifts & np.uint32((1 << t.bits) - 1)).reshape(len(lanes), -1).astype(container(t))
    names = tuple(f"{c}" + f".{n}" * (per > 1) for c in columns for n in range(per))
    said = ", ".join(f"columns {first} to {first + n - 1}" for first, n in held) or "nothing"
    return MatrixView("tensor memory", f"allocated: {said}", element, raw, row_names=tuple(f"lane {n}" for n in lanes),
                      column_names=names)  # fmt: skip


def allocations(scene: Scene, rank: int | None = None) -> list[tuple[int, int]]:
    """(first column, columns) of each allocation of tensor memory of a CTA."""
    state = scene.resident.ctas[scene.place.cta if rank is None else rank]
    counts = state["unit_counts"]
    return [(n * TENSOR_UNIT, int(count) * TENSOR_UNIT) for n, count in enumerate(counts) if count]


def _cells(scene: Scene, rank: int | None = None) -> NDArray[np.uint32]:
    found = scene.tensor_cells(rank)
    if found is None:
        raise OperandError("this kernel has no tensor memory")
    return found


# loads and stores ------------------------------------------------------------------------------------------------------------
def moved_cells(scene: Scene, form: Form) -> Iterator[MatrixView]:
    """tcgen05.ld and tcgen05.st: the cells of tensor memory, and the registers at the same places."""
    named = scene.operands
    address = _address(scene, named["taddr"])
    shape, split = form["shape"], named.get("immHalfSplitoff")
    apart = split.value if isinstance(split, Immediate) else 0
    half = bool(form["pack"] or form["unpack"])
    wide = 1 + half
    have, known = words(scene, named["r"], holders(scene, 32))
    thread, register = np.indices(have.shape)
    lane, column = moved(shape, thread, register, apart, wide)
    quarter = QUARTER * (scene.place.warp % 4)
    base = address & _COLUMN
    first = quarter + (address >> 16) % QUARTER
    t, shift = (TYPES["b16"], 16) if half else (TYPES["b32"], 0)
    rows, columns = int(lane.max()) + 1, int(column.max()) + wide
    memory = np.zeros((rows, columns), np.uint32)
    registers, there = np.zeros((rows, columns), np.uint32), np.zeros((rows, columns), bool)
    cells = _cells(scene)
    span = cells[first : first + rows, base : base + columns]
    memory[: span.shape[0], : span.shape[1]] = span
    for n in range(wide):
        registers[lane, column + n] = have >> np.uint64(shift * n) & np.uint64((1 << t.bits) - 1)
        there[lane, column + n] = known
    loads = form.effects.memory is MemoryEffect.READ
    names = tuple(f"lane {first + n}" for n in range(rows)), tuple(str(base + n) for n in range(columns))
    element = t.name if half else _type_of_cells(scene)
    dtype = container(TYPES[element])
    where = f"lanes {first} to {first + rows - 1}, columns {base} to {base + columns - 1}, of warp {scene.place.warp}"
    shown = [
        MatrixView("tensor memory", where, element, (memory & np.uint32((1 << t.bits) - 1)).astype(dtype), row_names=names[0],
                   column_names=names[1], unread=mask_outside(there)),
        MatrixView("R", f"{names_of(named['r'])} at the places of .{shape}.{form['num']}", element, registers.astype(dtype),
                   row_names=names[0], column_names=names[1], unread=mask_outside(there),
                   notes=("before the load writes it",) if loads else ()),
    ]  # fmt: skip
    yield from shown if loads else shown[::-1]


def _type_of_cells(scene: Scene) -> str:
    """The type to show cells in: f32, unless the kernel's products are of integers."""
    forms = (i.form for i in scene.kernel.sites if i.effects.tensor and i.effects.multiplies)
    return "s32" if any(f.kind == "i8" for f in forms) else "f32"


def _address(scene: Scene, operand: object) -> int:
    """An address in tensor memory: of the first lane of the next instruction."""
    if not isinstance(operand, Address):
        raise OperandError("an address in tensor memory is needed")
    found = scene.addresses(operand, "")
    if found is None:
        raise OperandError("the address in tensor memory is not known")
    return int(found[scene.lane]) & 0xFFFFFFFF


# products ----------------------------------------------------------------------------------------------------------------------
def tensor_product(scene: Scene, form: Form) -> Iterator[MatrixView]:
    """tcgen05.mma: A, B, D, scale factors and metadata, as they are now."""
    named, variant = scene.operands, Variant.of_form(form)
    word = scene.value(named["idesc"], type_name="b32")
    if word is None:
        raise OperandError("the instruction descriptor is not known")
    d = variant.decode(word & 0xFFFFFFFF)
    rows = d.m // (1 + variant.pair)
    ranks = [scene.place.cta & ~1, scene.place.cta | 1] if variant.pair else [scene.place.cta]
    layout = layout_id(d.m, variant.pair, variant.ws, variant.sparse)
    compressed = _joined([_a_of(scene, d, layout, rows, rank) for rank in ranks])
    yield compressed
    if variant.sparse:
        words = _joined([_metadata(scene, d, layout, rows, rank) for rank in ranks])
        yield words
        yield _dense(compressed, words, form, d)
    yield _joined([_b_of(scene, d, rank, len(ranks)) for rank in ranks], axis=1)
    yield _joined([tensor_accumulator(scene, _address(scene, named["d"]), d, layout, rank) for rank in ranks])
    if variant.scale_vec:
        count = variant.scale_vec * d.k // 64 if d.k == 96 else variant.scale_vec
        yield _joined([_scales(scene, d, "a", layout, rows, count, rank) for rank in ranks])
        yield _scales(scene, d, "b", layout, d.n, count, ranks[0])


def _joined(parts: list[MatrixView], axis: int = 0) -> MatrixView:
    """The parts of both CTAs of a pair as one matrix."""
    first = parts[0]
    if len(parts) == 1:
        return first
    marks = [np.zeros(p.shape, bool) if p.unread is None else p.unread for p in parts]
    unread = np.concatenate(marks, axis)
    half = ("rows", "columns")[axis]
    return replace(
        first, raw=np.concatenate([p.raw for p in parts], axis), unread=unread if unread.any() else None,
        notes=(*first.notes, f"the first half of its {half} is in the even CTA, the second in the odd one"),
    )  # fmt: skip


def tensor_accumulator(scene: Scene, address: int, d: InstructionDescriptor, layout: str, rank: int | None = None) -> MatrixView:
    """The accumulator of a tcgen05.mma in tensor memory, [rows of a CTA, n].

    address: of D in tensor memory.
    d: what the instruction descriptor says.
    layout: letter of the layout (matrix/layouts/tensor_memory.py: layout_id).
    rank: of the CTA in the cluster; None: that of the warp whose turn it is.
    """
    m, n = np.indices((PARTS[layout], d.n))
    lane, column = place(layout, m, n, d.n)
    t = TYPES[d.dtype]
    raw, there = _at(_cells(scene, rank), lane + (address >> 16), column + (address & _COLUMN), 0 * m, t)
    what = f"in tensor memory at lane {address >> 16}, column {address & _COLUMN}, layout {layout}"
    return MatrixView("D", what, d.dtype, raw, ("m", "n"), unread=there, notes=_pending(scene))


def _pending(scene: Scene) -> tuple[str, ...]:
    from mmulator.observation.debug.views.in_flight import transfers

    count = sum(t.pipe for t in transfers(scene))
    are = "operation of tensor memory is" if count == 1 else "operations of tensor memory are"
    return (f"{count} {are} in flight, and not in this matrix yet",) if count else ()


def _at(
    cells: NDArray[np.uint32], lane: Index, column: Index, low: Index, t: ElementType
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """(raw elements, mask of those outside of tensor memory or None) at places of tensor memory."""
    inside = (lane < LANES) & (column < COLUMNS)
    found = cells[np.where(inside, lane, 0), np.where(inside, column, 0)] >> low.astype(np.uint32)
    raw = (found & np.uint32((1 << t.bits) - 1)).astype(container(t))
    return raw, mask_outside(inside)


def _stored(d: InstructionDescriptor) -> int:
    return d.k // 2 if d.sparse else d.k


def _narrow(d: InstructionDescriptor, bits: int) -> bool:
    """Whether elements of less than a byte are in bytes of their own."""
    return bits < 8 and d.kind not in ("mxf4", "mxf4nvf4")


def _a_of(scene: Scene, d: InstructionDescriptor, layout: str, rows: int, rank: int) -> MatrixView:
    """One CTA's rows of A."""
    t, stored, notes = TYPES[d.atype], _stored(d), ("compressed",) if d.sparse else ()
    cells = scene.operands.get("a", scene.operands.get("a-desc"))
    if not isinstance(cells, Address):
        return _of_shared(scene, d, "a", rows, stored, t, d.transpose_a, rank, d.negate_a, notes)
    address, bits = _address(scene, cells), 8 if _narrow(d, t.bits) else t.bits
    m, k = np.indices((rows, stored))
    lane, column, low = a_place(layout, bits, m, k)
    low = low + (2 if _narrow(d, t.bits) and t.bits == 4 else 0)
    raw, outside = _at(_cells(scene, rank), lane + (address >> 16), column + (address & _COLUMN), low, t)
    what = f"in tensor memory at lane {address >> 16}, column {address & _COLUMN}"
    return MatrixView("A", what, t.name, raw, ("m", "k"), unread=outside, notes=notes + signs(d.negate_a))


def _b_of(scene: Scene, d: InstructionDescriptor, rank: int, parts: int) -> MatrixView:
    return _of_shared(scene, d, "b", d.n // parts, d.k, TYPES[d.btype], d.transpose_b, rank, d.negate_b, ())


def _of_shared(
    scene: Scene, d: InstructionDescriptor, side: str, rows: int, k: int, t: ElementType, across: bool, rank: int,
    negative: bool, notes: tuple[str, ...],
) -> MatrixView:  # fmt: skip
    """A or B in shared memory."""
    unit = 16 if _narrow(d, t.bits) else 0
    return of_descriptor(scene, side, rows, k, t, across, negative, SharedDescriptor, unit, rank, notes)


def _metadata(scene: Scene, d: InstructionDescriptor, layout: str, rows: int, rank: int) -> MatrixView:
    """The index that each stored element of A has in its chunk."""
    address = _address(scene, scene.operands["sp-meta"])
    bits = 4 if d.kind in ("mxf4", "mxf4nvf4") else max(8, TYPES[d.atype].bits)
    m, j = np.indices((rows, _stored(d)))
    lane, column, low = metadata_place(bits, m, j, layout, selector=d.selector)
    cells = _cells(scene, rank)
    raw, outside = _at(cells, lane + (address >> 16), column + (address & _COLUMN), low, TYPES["u4"])
    raw = raw & (15 if bits == 32 else 3)
    what = f"in tensor memory at column {address & _COLUMN}"
    return MatrixView("metadata of A", what, "u4", raw, ("m", "stored "), unread=outside)


def _dense(compressed: MatrixView, codes: MatrixView, form: Form, d: InstructionDescriptor) -> MatrixView:
    """A sparse A as the dense matrix that it stands for. codes: the index of each stored element in its chunk."""
    given = {"shape": f"m{d.m}n{d.n}k{d.k}", "dtype": d.dtype, "atype": d.atype, "btype": d.btype}
    full = Form(form.row, (*form.modifiers, *given.items()))
    g = granularity(full)
    each = codes.raw[:, :: g.group]  # neighbours in a group share an index
    nibbles = each if g.kept == 1 else each[:, ::2] | each[:, 1::2] << 2
    plain = replace(compressed, notes=tuple(n for n in compressed.notes if n != "compressed"))
    return dense(plain, nibbles.astype(np.uint8), full, f"metadata {codes.what}")


def _scales(scene: Scene, d: InstructionDescriptor, side: str, layout: str, lines: int, count: int, rank: int) -> MatrixView:
    """The scale factors of A [rows, count] or B [count, n] in tensor memory."""
    address = _address(scene, scene.operands[f"scale-{side}"])
    t, first = TYPES[d.stype], d.scale_a_id if side == "a" else d.scale_b_id
    raw = np.zeros((lines, count), container(t))
    for begin, many, quarters in scale_parts(layout, side, lines):
        i, s = np.indices((many, count))
        lane, column, byte = scale_place(i, s + first, many)
        part, _ = _at(_cells(scene, rank), lane + QUARTER * quarters[0], column + (address & _COLUMN), 8 * byte, t)
        raw[begin : begin + many] = part
    what = f"in tensor memory at column {address & _COLUMN}, factor {first} on"
    view = MatrixView(f"scale {side.upper()}", what, t.name, raw, ("m", "block"))
    return view if side == "a" else replace(view, raw=raw.T, axes=("block", "n"))


def tensor_copy(scene: Scene, form: Form) -> Iterator[MatrixView]:
    """tcgen05.cp: the rows of shared memory that it copies, in words of 32 bits."""
    from mmulator.runtime.native.matrix.tensor_core import COPIES

    word = scene.value(scene.operands["s-desc"])
    if word is None:
        raise OperandError("the descriptor is not known")
    rows, bytes, _ = COPIES[".".join(filter(None, (form["shape"], form["multicast"])))]
    desc = SharedDescriptor.decode(word)
    raw, inside = described(scene, desc, rows, bytes, TYPES["b8"])
    address = _address(scene, scene.operands["taddr"])
    what = f"{descriptor_text(scene, desc)}, to column {address & _COLUMN} of tensor memory"
    yield MatrixView("rows", what, "b8", raw, ("row ", "byte "), unread=mask_outside(inside))

