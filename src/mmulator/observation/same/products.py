"""Elements of D of matrix instructions as nodes: C with chunks of products, as the device sums them.

All elements that a warp computes in one step are made at once, and operands that several steps read are looked up once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import Flow
from mmulator.isa.form import Form
from mmulator.isa.types import type_bits
from mmulator.matrix.layouts import MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.numerics.element import explain_element
from mmulator.matrix.numerics.profiles import DotKey, dot_key, profile_for
from mmulator.observation.record.addresses import InRegister, Operands, Place, elements, operands_of, signed32, value_of
from mmulator.observation.record.memory import moved
from mmulator.observation.record.products import ProductElement, described, factors, kept, matrices, product_element
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.observation.same.graph import BitPiece, ExpressionGraph, Pieces, constant, cut
from mmulator.ptx.tree import Reg
from mmulator.runtime.native.state import FULL, LANES

Nodes = NDArray[np.int64]  # their numbers
PAIR = 32  # bits of each number of a pair of nodes


class Products:
    """Nodes of elements of D.

    trail, graph, device: as of `Expressions`.
    at, many, note: its functions that give the pieces of operands, and remember which step made a node.
    """

    def __init__(
        self, trail: Trail, graph: ExpressionGraph, device: str, at: Callable[[TrailStep, Place, int, int], Pieces],
        many: Callable[[TrailStep, list[int], int, list[int], int], list[Pieces]], note: Callable[[int, TrailStep], None],
    ) -> None:  # fmt: skip
        self.trail, self.graph, self.device, self._at, self._many, self._note = trail, graph, device, at, many, note
        self._made: dict[int, dict[tuple[int, str, int], Pieces]] = {}
        self._sides: dict[tuple[Any, ...], Nodes] = {}
        self._lines: dict[int, tuple[tuple[Place, ...], list[int]]] = {}

    def of_warp(self, step: TrailStep, lane: int, name: str, low: int) -> Pieces | None:
        """Pieces of the element of D whose bits begin at bit `low` of a lane's register; None where operands are not known."""
        if step.number not in self._made:
            self._made[step.number] = self._warp(step)
        return self._made[step.number].get((lane, name, low))

    def of_cell(self, step: TrailStep, e: ProductElement) -> Pieces:
        """Pieces of an element of D in tensor memory."""
        sides = [self._line(step, *side) for side in ((e.a_at, e.a, e.a_type.bits), (e.b_at, e.b, e.b_type.bits))]
        scales = [*self._line(step, e.scale_a_at, e.scale_a, 8), *self._line(step, e.scale_b_at, e.scale_b, 8)]
        size = self._chunk(e.key, scales)
        (pairs,) = _pairs(e.key, np.array(sides[0]), np.array(sides[1])[:, None], size)
        added = constant(0, e.d_bits) if e.c_at is None else self._at(step, e.c_at, type_bits(e.key.ctype), e.c or 0)
        detail = *self._detail(e.key, e.sign, e.halved), *(() if size else (*_scaling(e.key), e.positions))
        return self._summed(step, detail, self.graph.whole(added), pairs, scales, e.d_bits, lambda: e)

    def _warp(self, step: TrailStep) -> dict[tuple[int, str, int], Pieces]:
        """All elements of D that a warp computes in a step, by lane, register and lowest bit."""
        ins = self.trail.instruction(step)
        form, named, read = ins.form, operands_of(ins), [m for m in matrices(self.trail, step) if m is not None]
        if len(read) < 2:
            return {}
        key, d = dot_key(form), fragment(form, "d")
        first = LANES * (step.place.warp % 4 if form.lanes > LANES else 0)
        copy, rows, columns = (m[first : first + LANES] for m in d.maps)
        a, b = (self._side(step, form, named, side, m, np.unique(rows)) for side, m in zip("ab", read))
        names = [o.name for o in elements(named["d"]) if isinstance(o, Reg)]
        added = elements(named["c" if "c" in named else "d"]) if value_of(self.trail, step, 0, named.get("scale-d")) != 0 else ()
        before = [self._elements(step, getattr(o, "name", ""), d.bits) for o in added]
        scales = [value_of(self.trail, step, 0, named.get(f"imm-scale-{x}")) or 1 for x in "ab"]
        detail = self._detail(key, -1 if [signed32(x) for x in scales].count(-1) == 1 else 1, 0)
        size = self._chunk(key, ("scaled",) if form.block_scale else ())
        lines: dict[tuple[int, int], tuple[list[Any], tuple[int, ...]]] = {}
        made: dict[tuple[int, str, int], Pieces] = {}
        for lane, number, index in np.ndindex(rows.shape):
            if not step.lanes >> lane & 1:
                continue
            row, column, which = int(rows[lane, number, index]), int(columns[lane, number, index]), int(copy[lane, number, index])
            if (which, row) not in lines:
                left, right, positions = a[which, row], b[which], np.arange(a.shape[2])
                if form.sparse:
                    found = kept(self.trail, step, form, named, row, first // LANES)
                    if found is None:
                        return {}
                    positions, right = found, right[found]
                lines[which, row] = _pairs(key, left, right, size), tuple(positions.tolist())
            pairs, at = lines[which, row]
            low = index * d.bits
            c = before[number](lane, low) if added else constant(0, d.bits)
            more = () if size else (*_scaling(key), at)
            lined = (("a", row), ("b", column)) if form.block_scale else ()
            own = [factors(self.trail, step, form, named, side, line) for side, line in lined]
            scaling = [self.graph.whole(self._at(step, place, 8, 0)) for places in own for place in places]
            name = names[number]
            made[lane, name, low] = self._summed(
                step, (*detail, *more), self.graph.whole(c), pairs[column], scaling, d.bits,
                partial(product_element, self.trail, step, lane, name, low),
            )  # fmt: skip
        return made

    def _summed(
        self, step: TrailStep, detail: tuple[Any, ...], added: int, chunks: Sequence[Sequence[int]], factors: list[int],
        bits: int, element: Callable[[], ProductElement | None],
    ) -> Pieces:  # fmt: skip
        """C and its products, chunk by chunk. element: gives their values, if no input decides them."""
        nodes, kind = self.graph.nodes, "product" if len(detail) > SIGN + 1 else "chunk"
        if all(nodes[n].kind == "constant" for n in (added, *factors, *(n for chunk in chunks for n in chunk))):
            e = element()
            if e is not None:
                return constant(self._value(e), bits)
        made = added
        for chunk in chunks:
            made = self.graph.node(kind, detail, (made, *chunk, *factors), bits)
            self._note(made, step)
        return (BitPiece(made, 0, bits),)

    def _detail(self, key: DotKey, sign: int, halved: int) -> tuple[Any, ...]:
        """All that decides the bits of a sum besides its operands. halved: how often C is halved before the sum."""
        p = profile_for(key, self.device)
        rule = p.method, p.chunk, p.fraction, p.floor, p.keep, p.widen_c, p.narrow_d
        types = tuple(sorted((key.atype, key.btype)))
        return (*rule, key.ctype, key.dtype, key.rounding, key.satfinite, key.bit_op, halved, types, sign)

    def _chunk(self, key: DotKey, factors: Iterable[object]) -> int:
        """The number of products that are summed exactly, in no order; 0 where the rule is another."""
        profile = profile_for(key, self.device)
        return profile.chunk if profile.method == "fused" and not [*factors] else 0

    def _value(self, e: ProductElement) -> int:
        more: dict[str, Any] = {"positions": e.positions, "scale_a": e.scale_a, "scale_b": e.scale_b}
        return explain_element(e.key, self.device, e.a, e.b, e.c or 0, imm_scale_a=e.sign, **more).bits

    # operands -------------------------------------------------------------------------------------------------------
    def _side(self, step: TrailStep, form: Form, named: Operands, side: str, read: NDArray[Any], rows: Nodes) -> Nodes:
        """The nodes of A [copies, m, k] or B [copies, k, n]. read: their values. rows: those of A that the warp multiplies."""
        read = read if read.ndim == 3 else read[None]
        if f"{side}-desc" not in named:
            return self._from_registers(step, form, named, side)
        found = described(self.trail, step, side)
        assert found is not None  # there are values
        word, trans, (before, _) = found
        key = (step.block, word, trans, before, side, form, *(rows[:1].tolist() if side == "a" else ()))
        if key not in self._sides:
            kind, lines = (form.atype, read.shape[1]) if side == "a" else (form.btype, read.shape[2])
            values = read[0] if side == "a" else read[0].T
            at = operand_addresses(MatrixDescriptor.decode(word), lines, values.shape[1], kind.bits, trans)
            out, window = np.zeros(values.shape, np.int64), step.place.window(step.place.cta)
            for line in rows.tolist() if side == "a" else range(lines):
                places = (at[line] + window).tolist()
                pieces = self._many(step, places, max(1, kind.bits // 8), values[line].tolist(), before)
                out[line] = [self.graph.whole(cut(p, 0, kind.bits)) for p in pieces]
            self._sides[key] = (out if side == "a" else out.T)[None]
        return self._sides[key]

    def _from_registers(self, step: TrailStep, form: Form, named: Operands, side: str) -> Nodes:
        """The nodes of a matrix in the warp's registers, [copies, rows, columns]."""
        f, names = fragment(form, side), [o.name if isinstance(o, Reg) else "" for o in elements(named[side])]
        writers = tuple((name, -1 - step.number if w is None else w.number) for name in names for w in [self._writer(step, name)])
        key = f, form.atype if side == "a" else form.btype, writers
        if key not in self._sides:
            first = LANES * (step.place.warp % 4 if form.lanes > LANES else 0)
            out, bits = np.zeros((f.copies, f.rows, f.columns), np.int64), (form.atype if side == "a" else form.btype).bits
            copy, rows, columns = f.maps
            for number, name in enumerate(names):
                found = self._elements(step, name, bits)
                for lane, index in np.ndindex(LANES, rows.shape[2]):
                    at = first + lane, number, index
                    out[copy[at], rows[at], columns[at]] = self.graph.whole(found(lane, index * f.bits + f.shift))
            self._sides[key] = out
        return self._sides[key]

    def _writer(self, step: TrailStep, name: str) -> TrailStep | None:
        """The step that wrote a register in all lanes; None where several did."""
        last = self.trail.newest(step, name)
        return last if last is not None and last.lanes == FULL and self.trail.instruction(last).guard is None else None

    def _elements(self, step: TrailStep, name: str, width: int) -> Callable[[int, int], Pieces]:
        """Gives the pieces of the element of a register that begins at a bit of a lane. width: its bits."""
        writer = self._writer(step, name)
        if writer is None:
            return lambda lane, low: self._at(step, InRegister(lane, name, low), width, 0)
        ins, made = self.trail.instruction(writer), dict[tuple[int, int], Pieces]()
        if ins.effects.multiplies and ins.form.is_matrix:
            if writer.number not in self._made:
                self._made[writer.number] = self._warp(writer)
            d = fragment(ins.form, "d").bits
            made = {key[::2]: p for key, p in self._made[writer.number].items() if key[1] == name and d == width}
        elif ins.effects.flow is Flow.ROWS:
            found, values = moved(self.trail, writer), self.trail.register(step, name)
            if found is not None and found[2] == width and values is not None:
                number = [getattr(o, "name", "") for o in found[0]].index(name)
                keys = [(lane, at) for lane in range(LANES) for at in range(found[1].shape[2])]
                bits = [int(values[lane]) >> width * at & (1 << width) - 1 for lane, at in keys]
                pieces = self._many(writer, found[1][:, number].reshape(-1).tolist(), width // 8, bits, writer.number)
                made = {(lane, width * at): p for (lane, at), p in zip(keys, pieces)}
        return lambda lane, low: made.get((lane, low)) or self._at(step, InRegister(lane, name, low), width, 0)

    def _line(self, step: TrailStep, places: tuple[Place, ...], values: tuple[int, ...], width: int) -> list[int]:
        """Nodes of a row of A or a column of B in tensor memory, whose places are one tuple for many elements of D."""
        if id(places) not in self._lines:
            nodes = [self.graph.whole(self._at(step, at, width, value)) for at, value in zip(places, values)]
            self._lines[id(places)] = places, nodes  # the tuple lives on, and with it its id
        return self._lines[id(places)][1]


SIGN = 14  # where the detail of a chunk has the sign of its products, behind the types of each pair, as TYPES_AT


def _scaling(key: DotKey) -> tuple[Any, ...]:
    return key.kind, key.scale_vec, key.stype


def _pairs(key: DotKey, left: Nodes, right: Nodes, size: int) -> list[list[list[int]]]:
    """The factors of products, one behind the other, of each column [n] and chunk: lists of 2 * size.

    left: nodes of a row of A [k].
    right: nodes of B [k, n].
    size: products of a chunk, whose order does not matter; 0: all are one chunk, and it does.
    """
    x, y = np.broadcast_arrays(left[:, None], right)
    if key.atype == key.btype:
        x, y = np.minimum(x, y), np.maximum(x, y)
    elif key.atype > key.btype:
        x, y = y, x
    codes = (x << PAIR | y).T
    chunks = []
    for at in range(0, len(left), size or len(left)):
        chunk = codes[:, at : at + (size or len(left))]
        chunk = np.sort(chunk, axis=1) if size else chunk
        chunks.append(np.stack((chunk >> PAIR, chunk & (1 << PAIR) - 1), axis=2).reshape(len(codes), -1).tolist())
    return [list(column) for column in zip(*chunks)]
