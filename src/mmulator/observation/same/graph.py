"""Expressions of stored elements: nodes that stand in one table for both kernels, so that equal expressions have one number.

A value is a tuple of pieces, lowest bits first: bits of a node, or constant bits. Moving bits makes no nodes.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

CONSTANT = -1  # the node of a piece whose bits are known


class ExpressionNode(NamedTuple):
    """One operation on values that depend on the inputs.

    kind: what it does (`Algebra` by its name, `input`, `constant`, `join`, `chunk`, `times`, or the instruction).
    detail: what else decides its bits: modifiers, types, constants.
    inputs: numbers of the nodes that it reads.
    bits: of its result.
    """

    kind: str
    detail: tuple[Any, ...]
    inputs: tuple[int, ...]
    bits: int


class BitPiece(NamedTuple):
    """Bits of a value. node: whose, or CONSTANT. low: the first of them there. width: their number. value: of constant bits."""

    node: int
    low: int
    width: int
    value: int = 0


Pieces = tuple[BitPiece, ...]


class ExpressionGraph:
    """The nodes of the expressions of two kernels. nodes: by their numbers."""

    def __init__(self) -> None:
        self.nodes: list[ExpressionNode] = []
        self._known: dict[ExpressionNode, int] = {}

    def node(self, kind: str, detail: tuple[Any, ...], inputs: Iterable[int], bits: int) -> int:
        """The number of a node."""
        node = ExpressionNode(kind, detail, tuple(inputs), bits)
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return found

    def whole(self, pieces: Pieces) -> int:
        """The number of the node that has the bits of some pieces as its result."""
        bits = width_of(pieces)
        if is_closed(pieces):
            return self.node("constant", (value_of(pieces),), (), bits)
        if len(pieces) == 1 and not pieces[0].low and pieces[0].width == self.nodes[pieces[0].node].bits:
            return pieces[0].node
        detail = tuple((p.low, p.width, p.value, p.node == CONSTANT) for p in pieces)
        return self.node("join", detail, (p.node for p in pieces if p.node != CONSTANT), bits)

    def result(self, kind: str, detail: tuple[Any, ...], inputs: Iterable[int], bits: int) -> Pieces:
        """The result of a node as pieces."""
        return (BitPiece(self.node(kind, detail, inputs, bits), 0, bits),)


def constant(value: int, width: int) -> Pieces:
    """Constant bits as pieces."""
    return (BitPiece(CONSTANT, 0, width, value & (1 << width) - 1),)


def width_of(pieces: Pieces) -> int:
    """The number of bits of some pieces."""
    return sum(p.width for p in pieces)


def is_closed(pieces: Pieces) -> bool:
    """Whether all bits are constant."""
    return all(p.node == CONSTANT for p in pieces)


def value_of(pieces: Pieces) -> int:
    """The value of constant pieces."""
    value, at = 0, 0
    for p in pieces:
        value |= p.value << at
        at += p.width
    return value


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Values side by side, the first lowest; neighbours of one node, and constants, become one piece."""
    out: list[BitPiece] = []
    for p in (piece for part in parts for piece in part):
        last = out[-1] if out else None
        if last is not None and last.node == p.node == CONSTANT:
            out[-1] = BitPiece(CONSTANT, 0, last.width + p.width, last.value | p.value << last.width)
        elif last is not None and last.node == p.node and last.low + last.width == p.low:
            out[-1] = BitPiece(p.node, last.low, last.width + p.width)
        elif p.width:
            out.append(p)
    return tuple(out)


def cut(pieces: Pieces, low: int, width: int) -> Pieces:
    """Bits of a value; those beyond its end are zeros."""
    out, at, end = [], 0, low + width
    for p in pieces:
        first, last = max(low, at), min(end, at + p.width)
        if first < last:
            out.append(BitPiece(p.node, 0 if p.node == CONSTANT else p.low + first - at, last - first,
                             p.value >> first - at & (1 << last - first) - 1 if p.node == CONSTANT else 0))  # fmt: skip
        at += p.width
    return joined([tuple(out), constant(0, end - max(at, low))] if at < end else [tuple(out)])


def merged(a: Pieces, b: Pieces, rule: Any) -> Pieces | None:
    """Two values bit by bit where one of them is constant zeros or ones; None where that does not decide.

    rule(other, value) gives the bits of a stretch where one side is all zeros (value 0) or all ones (value 1): "other", 0 or 1.
    """
    out: list[Pieces] = []
    at, end = 0, width_of(a)
    edges = sorted({*_edges(a), *_edges(b)})
    for low, high in pairwise(edges):
        x, y = cut(a, low, high - low), cut(b, low, high - low)
        if not is_closed(x):
            x, y = y, x
        if not is_closed(x):
            return None
        known = value_of(x)
        start = 0
        while start < high - low:  # runs of equal bits of the constant side
            bit, stop = known >> start & 1, start + 1
            while stop < high - low and known >> stop & 1 == bit:
                stop += 1
            said = rule(bit)
            part = cut(y, start, stop - start)
            if said == "other":
                out.append(part)
            elif said == "inverted":
                if not is_closed(part):
                    return None
                out.append(constant(~value_of(part), stop - start))
            else:
                out.append(constant(-said, stop - start))
            start = stop
        at = high
    return joined(out) if at == end else None


def _edges(pieces: Pieces) -> Iterable[int]:
    at = 0
    yield 0
    for p in pieces:
        at += p.width
        yield at
