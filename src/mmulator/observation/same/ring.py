"""Expressions in exact arithmetic: values of a prime field that stand for real numbers, to compare sums without rounding.

A node goes in, and a pair of numbers leaves: its value in the field of `P`, and in the field of `Q`, whose numbers are exponents
of the first: 2 ** (a + b) is 2 ** a * 2 ** b. Rounding is left out, so are types: two expressions that are equal as functions of
real numbers have one fingerprint. Operations without a rule here are unknown functions: equal of equal operands.
"""

import hashlib
from collections.abc import Sequence

from mmulator.isa.types import TYPES
from mmulator.matrix.numerics.element import number
from mmulator.matrix.numerics.formats import element_type
from mmulator.observation.same.graph import ExpressionGraph, ExpressionNode

P = 9223372036854777017  # a prime
Q = (P - 1) // 8  # a prime, too
BASE = pow(3, 8, P)  # of order Q: its powers are those of 2
Fingerprint = tuple[int, int]


class Ring:
    """Fingerprints of the nodes of a graph for one draw of the inputs. graph: the expressions. draw: which random inputs."""

    def __init__(self, graph: ExpressionGraph, draw: int) -> None:
        self.graph, self.draw = graph, draw
        self.values: list[Fingerprint] = []

    def of(self, node: int) -> Fingerprint:
        """The fingerprint of a node; those before it, which it may read, are made first."""
        for n in self.graph.nodes[len(self.values) : node + 1]:
            self.values.append(self._value(n, [self.values[i] for i in n.inputs]))
        return self.values[node]

    def _random(self, *what: object) -> Fingerprint:
        raw = hashlib.blake2b(repr((self.draw, what)).encode(), digest_size=32).digest()
        return int.from_bytes(raw[:16], "little") % P, int.from_bytes(raw[16:], "little") % Q

    def _value(self, node: ExpressionNode, given: Sequence[Fingerprint]) -> Fingerprint:
        kind, detail = node.kind, node.detail
        real = kind in ("chunk", "times", "product", "constant", "join") or (detail and _is_float(detail[0]))
        rule = RULES.get(kind) if real else None
        found = rule(node, given) if rule is not None else None
        return self._random(kind, _kept(kind, detail), tuple(given)) if found is None else found


def _is_float(kind: object) -> bool:
    return isinstance(kind, str) and kind in TYPES and TYPES[kind].kind == "float"


def _kept(kind: str, detail: tuple[object, ...]) -> tuple[object, ...]:
    """The detail by which an unknown function is known: rounding and types of floating point do not count."""
    return detail if kind in ("input", "join") or not _is_float(detail[0] if detail else None) else detail[2:]


# rules --------------------------------------------------------------------------------------------------------------
def _sum(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return (v[0][0] + v[1][0]) % P, (v[0][1] + v[1][1]) % Q


def _difference(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return (v[0][0] - v[1][0]) % P, (v[0][1] - v[1][1]) % Q


def _product(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return v[0][0] * v[1][0] % P, v[0][1] * v[1][1] % Q


def _fused(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return _sum(node, (_product(node, v), v[2]))


def _negation(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return -v[0][0] % P, -v[0][1] % Q


def _reciprocal(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    return (pow(v[0][0], -1, P), pow(v[0][1], -1, Q)) if v[0][0] and v[0][1] else None


def _quotient(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    below = _reciprocal(node, v[1:])
    return None if below is None else _product(node, (v[0], below))


def _power(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    """2 ** a: a power of a base. In the field of exponents nobody asks for more than that equal powers are equal."""
    found = pow(BASE, v[0][1], P)
    return found, found % Q


def _same(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    """A conversion between types of floating point."""
    source = next((value for slot, value in node.detail[2:-1] if slot == "atype"), node.detail[0])
    return v[0] if _is_float(source) else None


def _times(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    made = _product(node, v if len(v) == 2 else (v[0], v[0]))
    return made if node.detail[1] > 0 else _negation(node, (made,))


def _chunk(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    return sum(x for x, _ in v) % P, sum(y for _, y in v) % Q


def _unscaled(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    """A product without scale factors."""
    return _chunk(node, v) if node.detail[-3] is None else None


def _join(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    """An element of bf16 as the upper half of f32 is that element; the upper half of f32, too."""
    if len(v) == 1 and node.bits == 32 and node.detail == ((0, 16, 0, True), (0, 16, 0, False)):
        return v[0]
    return v[0] if len(v) == 1 and node.bits == 16 and node.detail == ((16, 16, 0, False),) else None


def _constant(node: ExpressionNode, _: Sequence[Fingerprint]) -> Fingerprint | None:
    """A constant of 16, 32 or 64 bits as a number of that type."""
    name = {16: "f16", 32: "f32", 64: "f64"}.get(node.bits)
    if name is None:
        return None
    value = number(element_type(name), node.detail[0])
    if isinstance(value, float):
        return None
    return tuple(value.numerator * pow(value.denominator, -1, field) % field for field in (P, Q))  # type: ignore[return-value]


RULES = {
    "SUM": _sum, "DIFFERENCE": _difference, "PRODUCT": _product, "FUSED": _fused, "NEGATION": _negation,
    "RECIPROCAL": _reciprocal, "QUOTIENT": _quotient, "EXPONENTIAL": _power, "cvt": _same, "COPY": _same,
    "times": _times, "chunk": _chunk, "product": _unscaled, "join": _join, "constant": _constant,
}  # fmt: skip
