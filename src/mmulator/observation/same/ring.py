"""Expressions in exact arithmetic: values of a prime field that stand for real numbers, to compare sums without rounding.

A node goes in, and a pair of numbers leaves: its value in the field of `P`, and in the field of `Q`, whose numbers are exponents
of the first: 2 ** (a + b) is 2 ** a * 2 ** b. Rounding is left out, but for conversions to a narrower type, which are unknown
functions: two expressions that are equal as functions of real numbers have one fingerprint. Operations without a rule are unknown
functions, too: equal of equal operands.
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
TURN = pow(5, 8, P)  # of order Q, too: its powers are those of e ** i
UNIT = pow(3, (P - 1) // 4, P)  # i: its square is -1
Fingerprint = tuple[int, int]
CTYPE, DTYPE, BIT_OP, PAIR, SIGN = 7, 8, 11, 13, 14  # where the detail of a chunk has them
HIGH = ((16, 16, 0, False),)  # a join: the upper half of f32
WIDE = ((0, 16, 0, True), (0, 16, 0, False))  # a join: bf16 with zeros below, as f32
DTYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


class Ring:
    """Fingerprints of the nodes of a graph for one draw of the inputs. graph: the expressions. draw: which random inputs."""

    def __init__(self, graph: ExpressionGraph, draw: int) -> None:
        self.graph, self.draw = graph, draw
        self.values: list[Fingerprint] = []
        self.fits: set[tuple[str, Fingerprint]] = set()  # numbers that a narrow type holds as they are

    def of(self, node: int) -> Fingerprint:
        """The fingerprint of a node; those before it, which it may read, are made first."""
        for n in self.graph.nodes[len(self.values) : node + 1]:
            self.values.append(self._value(n))
            if n.kind == "input" or RULES.get(n.kind) in (_same, _join):
                self.fits.add((number_type(n), self.values[-1]))
        return self.values[node]

    def alike(self, x: int, y: int) -> bool:
        """Whether two nodes are equal as functions of real numbers, and have one type."""
        self.of(max(x, y))
        types = {self._typed(n)[0] for n in (x, y) if self.graph.nodes[n].kind != "constant"}
        return len(types) < 2 and self._number(x, *types)[0] == self._number(y, *types)[0]

    def _random(self, *what: object) -> Fingerprint:
        raw = hashlib.blake2b(repr((self.draw, what)).encode(), digest_size=32).digest()
        return int.from_bytes(raw[:16], "little") % P, int.from_bytes(raw[16:], "little") % Q

    def _value(self, node: ExpressionNode) -> Fingerprint:
        rule, types = RULES.get(node.kind), read_as(node)
        if rule is not None and types is not None and all(map(is_float, types)) and not _is_cut_off(node.detail):
            found = rule(node, [self._number(n, kind) for n, kind in zip(node.inputs, types)])
            if found is not None:
                own = number_type(node)
                narrow = rule in (_same, _join) and TYPES[own].bits < TYPES[types[0]].bits and (own, found) not in self.fits
                return self._random("narrow", own, found) if narrow else found
        kind = node.detail[0] if node.detail and node.kind not in ("input", "join", "SELECTION") else None
        if is_float(kind):
            closed = [self.graph.nodes[n].kind == "constant" for n in node.inputs]
            given = [self._number(n, str(kind)) if c else self._typed(n)[1] for n, c in zip(node.inputs, closed)]
            types = [_family(self._typed(n)[0], str(kind)) for n in node.inputs]
            return self._random(node.kind, _kept(node.kind, node.detail), types, given)
        return self._random(node.kind, node.detail, [(self._typed(n), self.graph.nodes[n].bits) for n in node.inputs])

    def _typed(self, n: int) -> tuple[str, object]:
        """The type of a node's number, "" of bits; and its fingerprint, of a constant its bits."""
        node = self.graph.nodes[n]
        return number_type(node), node.detail if node.kind == "constant" else self.values[n]

    def _number(self, n: int, kind: str = "") -> Fingerprint:
        """The fingerprint of a node that is read as a number of a type."""
        node = self.graph.nodes[n]
        if node.kind == "constant":
            return _constant(kind, node.detail[0]) or self._random("constant", kind, node.detail)
        own = number_type(node)
        return self.values[n] if not kind or _family(own, kind) == kind else self._random("bits", kind, own, self.values[n])


def number_type(node: ExpressionNode) -> str:
    """The type of floating point in which a node's bits are a number; "" where they are bits."""
    match node.kind:
        case "input":
            if node.detail[0] == "parameter":
                return {32: "f32", 64: "f64"}.get(node.bits, "")
            return DTYPES.get(str(node.detail[-1]), "")
        case "chunk" | "product":
            return str(node.detail[DTYPE])
        case "join":
            return {HIGH: "bf16", WIDE: "f32"}.get(node.detail, "")
        case "constant" | "SELECTION" | "extension":
            return ""
    kind = node.detail[0] if node.detail else ""
    return str(kind) if is_float(kind) and node.bits == TYPES[str(kind)].bits else ""


def _family(own: str, kind: str) -> str:
    """The type as which bits of a type are read: f32 and tf32 are one."""
    return kind if {own, kind} == {"f32", "tf32"} else own


def read_as(node: ExpressionNode) -> list[str] | None:
    """The types of the numbers that a node reads; None where it reads bits, and of products with scale factors."""
    match node.kind:
        case "chunk" | "product":
            pairs = len(node.detail[-1]) if node.kind == "product" else len(node.inputs) // 2
            return [str(node.detail[CTYPE]), *(pairs * node.detail[PAIR])] if len(node.inputs) == 1 + 2 * pairs else None
        case "join":
            found = {HIGH: "f32", WIDE: "bf16"}.get(node.detail)
            return [found] if found else None
    kind = str(node.detail[0]) if node.detail else ""
    source = next((v for d in node.detail if isinstance(d, tuple) and len(d) == 2 for s, v in [d] if s == "atype"), kind)
    return [source] * len(node.inputs) if is_float(kind) and source in TYPES else None


def _is_cut_off(detail: tuple[object, ...]) -> bool:
    """Whether an operation also rounds to an integer, or keeps its result in a range."""
    names = {d[0] for d in detail if isinstance(d, tuple) and len(d) == 2}
    return bool(names & {"sat", "relu"}) or (len(detail) > 1 and detail[1] in ("rni", "rzi", "rmi", "rpi"))


def is_float(kind: object) -> bool:
    return isinstance(kind, str) and kind in TYPES and TYPES[kind].kind == "float"


def _kept(kind: str, detail: tuple[object, ...]) -> tuple[object, ...]:
    """The detail by which an unknown function is known: rounding and types of floating point do not count."""
    return detail[1:] if detail[1] in ("rni", "rzi", "rmi", "rpi") else detail[2:]


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


def _cosine(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    """(e ** ia + e ** -ia) / 2, which has the addition theorems. Of exponents nobody asks more, as of `_power`."""
    found = (pow(TURN, v[0][1], P) + pow(TURN, -v[0][1] % Q, P)) * pow(2, -1, P) % P
    return found, found % Q


def _sine(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    found = (pow(TURN, v[0][1], P) - pow(TURN, -v[0][1] % Q, P)) * pow(2 * UNIT, -1, P) % P
    return found, found % Q


def _same(_: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint:
    """A conversion between types of floating point; to a narrower one, of a number that it does not hold, see `_value`."""
    return v[0]


def _chunk(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    """C and the products of pairs; None of bits, of C that is halved, and with scale factors."""
    if node.detail[BIT_OP] or node.detail[SIGN - 2] or (node.kind == "product" and node.detail[-3] is not None):
        return None
    pairs, sign = [*zip(v[1::2], v[2::2])], node.detail[SIGN]
    return (v[0][0] + sign * sum(x * y for (x, _), (y, _) in pairs)) % P, (
        v[0][1] + sign * sum(x * y for (_, x), (_, y) in pairs)) % Q  # fmt: skip


def _atomic(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    return _sum(node, v) if node.detail[2] == "add" and len(v) == 2 else None


def _join(node: ExpressionNode, v: Sequence[Fingerprint]) -> Fingerprint | None:
    """An element of bf16 as the upper half of f32 is that element; the upper half of f32, too."""
    return v[0] if len(v) == 1 and node.detail in (HIGH, WIDE) else None


def _constant(kind: str, bits: int) -> Fingerprint | None:
    """Constant bits as a number of a type; None where they are none."""
    if not kind or kind not in TYPES:
        return None
    value = number(element_type(kind), bits)
    if isinstance(value, float):
        return None
    return tuple(value.numerator * pow(value.denominator, -1, field) % field for field in (P, Q))  # type: ignore[return-value]


RULES = {
    "SUM": _sum, "DIFFERENCE": _difference, "PRODUCT": _product, "FUSED": _fused, "NEGATION": _negation,
    "RECIPROCAL": _reciprocal, "QUOTIENT": _quotient, "EXPONENTIAL": _power, "SINE": _sine, "COSINE": _cosine,
    "cvt": _same, "COPY": _same, "chunk": _chunk, "product": _chunk, "join": _join,
    "atomic": _atomic,
}  # fmt: skip
