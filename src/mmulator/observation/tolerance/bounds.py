"""Rounding errors of expressions: of each node its value in exact arithmetic, and how far the machine's may be from it.

The graph of `same` enters, with the values of the inputs; three numbers of each node leave (`Bounded`). Each operation adds the
largest error of its rounding to the errors of its operands, at the largest magnitude that they allow, whatever the direction of
each rounding. Nodes of one kind and depth are evaluated at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.types import ElementType
from mmulator.matrix.numerics.element import ElementSum
from mmulator.matrix.numerics.formats import container, element_type, from_raw
from mmulator.observation.same.graph import ExpressionGraph, ExpressionNode
from mmulator.observation.same.ring import CTYPE, DTYPE, DTYPES, PAIR, SIGN, WIDE, number_type, read_as
from mmulator.observation.tolerance.bounded import (
    STEP,
    UP,
    Bounded,
    exponent,
    flushed,
    fused_of,
    largest,
    product_of,
    rounded,
    sum_of,
)
from mmulator.observation.tolerance.functions import FUNCTIONS

Nodes = NDArray[np.int64]
ROUNDING, SATURATES, HALVED = 9, 10, 12  # where the detail of a chunk has them
MORE = {
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    **{f"{'u' * (k == 'u')}int{n}": f"{k}{n}" for k in "su" for n in (8, 16, 32)},
}  # fmt: skip


class NodeBounds:
    """The exact values and the bounds of all nodes of a graph.

    graph: the expressions.
    inputs: the values of the input arrays, by the number that an input's node has.
    """

    def __init__(self, graph: ExpressionGraph, inputs: Mapping[Any, np.ndarray]) -> None:
        self.graph, self.inputs = graph, inputs
        self.all = Bounded.unknown(len(graph.nodes))
        self.why: dict[int, str] = {}  # node -> why it has no bound
        self._typed: dict[tuple[int, str], int] = {}  # constants as numbers of a type: where they stand behind the nodes
        self._evaluate()

    def reason(self, node: int) -> str:
        """Why a node has no bound: that of the first node below it that has none."""
        while node not in self.why:
            below = next((n for n in self.graph.nodes[node].inputs if not np.isfinite(self.all.bound[n])), None)
            if below is None:
                return "a result may overflow, or a divisor may be 0"
            node = below
        return self.why[node]

    def results(self, nodes: NDArray[np.int64], dtype: str) -> Bounded:
        """Some nodes as elements of an array. nodes: their numbers, -1 of none. dtype: of the array, by its name in NumPy."""
        kind, places = (DTYPES | MORE)[dtype], np.full(len(nodes), -1)
        for at, n in enumerate(nodes.tolist()):
            place = self._place(n, kind) if n >= 0 else ""
            if isinstance(place, str):
                self.why.setdefault(n, place)
            else:
                places[at] = place
        found = self.all.take(places)
        found.bound = np.where(places < 0, np.inf, found.bound)
        return found

    def _evaluate(self) -> None:
        depth = np.zeros(len(self.graph.nodes), np.int64)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for n, node in enumerate(self.graph.nodes):
            if node.inputs:
                depth[n] = 1 + max(depth[i] for i in node.inputs)
            detail = node.detail[:1] + node.detail[2:] if node.kind == "input" else node.detail
            if node.kind != "constant":
                groups.setdefault((depth[n], node.kind, detail, len(node.inputs)), []).append(n)
        for (_, kind, _, _), numbers in sorted(groups.items(), key=lambda item: item[0][0]):
            first = self.graph.nodes[numbers[0]]
            made = self._inputs(first, numbers) if kind == "input" else self._group(first, numbers)
            if isinstance(made, str):
                self.why.update(dict.fromkeys(numbers, made))
            else:
                self.all.put(np.array(numbers), made)

    def _inputs(self, first: ExpressionNode, numbers: Sequence[int]) -> Bounded | str:
        if first.detail[0] == "parameter":
            values = [float(self.graph.nodes[n].detail[2]) for n in numbers]
            return Bounded.exact(np.array(values, np.longdouble))
        if not _type_of(first):
            return f"arrays of {first.detail[-1]} are not followed"
        places = [self.graph.nodes[n].detail[1] for n in numbers]
        return Bounded.exact(self.inputs[first.detail[0]].reshape(-1)[places].astype(np.float64).astype(np.longdouble))

    def _group(self, first: ExpressionNode, numbers: list[int]) -> Bounded | str:
        """The bounds of nodes of one kind; or why they have none."""
        if first.kind == "SELECTION":
            return self._selection(numbers)
        types = read_as(first)
        if types is None:
            what = "with scale factors" if first.kind == "product" else "of bits"
            return f"{first.kind.lower()} {what} is not followed"
        given = []
        for at, kind in enumerate(types):
            column = self._column([self.graph.nodes[n].inputs[at] for n in numbers], kind)
            if isinstance(column, str):
                return column
            given.append(column)
        rule = _RULES.get(first.kind) or FUNCTIONS.get(first.kind)
        plain = () if first.kind in ("chunk", "product", "join") else first.detail
        names = {d[0] for d in plain if isinstance(d, tuple) and len(d) == 2}
        if rule is None or (names - _CONVERSIONS if rule is _converted else names - _MODIFIERS):
            return f"{' '.join((first.kind.lower(), *sorted(names - _MODIFIERS)))} is not followed"
        if "ftz" in names:
            given = [flushed(one, kind) for one, kind in zip(given, types)]
        with np.errstate(all="ignore"):
            return rule(first.detail, given)

    def _column(self, nodes: Sequence[int], kind: str) -> Bounded | str:
        """Operands as numbers of a type; or why they are none."""
        places: list[int] = []
        for n in nodes:
            found = self._place(n, kind)
            if isinstance(found, str):
                return found
            places.append(found)
        return self.all.take(np.array(places))

    def _place(self, n: int, kind: str) -> int | str:
        """Where the numbers of a node that is read as a type stand; or why it is none."""
        node = self.graph.nodes[n]
        if node.kind == "constant":
            return self._constant(n, kind)
        own = _type_of(node)
        if kind and own != kind and {own, kind} != {"f32", "tf32"}:
            return f"{node.kind.lower()} gives {own or 'bits'}, which are read as {kind}"
        return n

    def _constant(self, n: int, kind: str) -> int:
        key = n, kind
        if key not in self._typed:
            t = element_type(kind)
            raw = np.array([self.graph.nodes[n].detail[0] & (1 << t.bits) - 1], container(t))
            self._typed[key] = self.all.append(Bounded.exact(from_raw(t, raw).astype(np.float64).astype(np.longdouble)))
        return self._typed[key]

    def _selection(self, numbers: list[int]) -> Bounded | str:
        """The one of two values that the exact comparison chooses; the machine may choose the other where they are near."""
        nodes = [self.graph.nodes[n] for n in numbers]
        compared = self.graph.nodes[nodes[0].inputs[2]]
        kind = next((t for t in (_type_of(self.graph.nodes[i]) for n in nodes for i in n.inputs[:2]) if t), "")
        name = dict(d for d in compared.detail if isinstance(d, tuple) and len(d) == 2).get("cmp")
        if compared.bits != 1 or name not in _COMPARED or len(compared.inputs) != 2 or not kind:
            return f"a choice by {compared.kind.lower()} is not followed"
        sides = [self._column([n.inputs[at] for n in nodes], kind) for at in range(2)]
        by = [self.graph.nodes[n.inputs[2]] for n in nodes]
        pair = [self._column([c.inputs[at] for c in by], str(compared.detail[0])) for at in range(2)]
        if any(c[:2] != compared[:2] or len(c.inputs) != 2 for c in by):
            return "choices by several kinds of comparisons are not followed"
        for one in (*sides, *pair):
            if isinstance(one, str):
                return one
        if any(d == ("ftz", "ftz") for d in compared.detail):
            pair = [flushed(one, str(compared.detail[0])) for one in pair if not isinstance(one, str)]
        return _chosen(_COMPARED[name], sides, pair)  # type: ignore[arg-type]


def _chosen(holds: Any, sides: list[Bounded], pair: list[Bounded]) -> Bounded:
    yes = holds(pair[0].value, pair[1].value)
    room = pair[0].bound + pair[0].slack + pair[1].bound + pair[1].slack
    between = np.abs(pair[0].value - pair[1].value)
    near = np.where(np.isfinite(between), (between <= room) & (room > 0), True)
    value = np.where(yes, sides[0].value, sides[1].value)
    bound = np.where(yes, sides[0].bound, sides[1].bound)
    slack = np.where(yes, sides[0].slack, sides[1].slack)
    apart = np.abs(sides[0].value - sides[1].value).astype(np.float64) * UP
    other = np.where(yes, sides[1].bound, sides[0].bound)
    return Bounded(value, np.where(near, np.maximum(bound, (apart + other + slack) * UP), bound), slack)


_MODIFIERS = {"ftz", "sat", "satfinite", "relu", "approx", "full", "NaN"}
_CONVERSIONS = {"ftz", "sat", "satfinite", "relu", "atype"}
_COMPARED: dict[str, Any] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


# types --------------------------------------------------------------------------------------------------------------
def _type_of(node: ExpressionNode) -> str:
    """The type in which a node's bits are a number; "" where they are bits."""
    if node.kind == "SELECTION":
        return {16: "f16", 32: "f32", 64: "f64"}.get(node.bits, "")
    return number_type(node) or (MORE.get(str(node.detail[-1]), "") if node.kind == "input" else "")


# rules --------------------------------------------------------------------------------------------------------------
Rule = Callable[[Sequence[Any], list[Bounded]], "Bounded | str"]


def _with_rounding(rule: Callable[[list[Bounded]], Bounded]) -> Rule:
    return lambda detail, v: rounded(rule(v), str(detail[0]), detail)


def _negated(_: Sequence[Any], v: list[Bounded]) -> Bounded:
    return Bounded(-v[0].value, v[0].bound, v[0].slack)


def _magnitude(_: Sequence[Any], v: list[Bounded]) -> Bounded:
    return Bounded(np.abs(v[0].value), v[0].bound, v[0].slack)


def _same(_: Sequence[Any], v: list[Bounded]) -> Bounded:
    return v[0]


def _extreme(choose: Any) -> Rule:
    def rule(_: Sequence[Any], v: list[Bounded]) -> Bounded:
        value, bound, slack = v[0].value, v[0].bound, v[0].slack
        for one in v[1:]:
            value, bound, slack = choose(value, one.value), np.maximum(bound, one.bound), np.maximum(slack, one.slack)
        return Bounded(value, bound, slack)

    return rule


def _converted(detail: Sequence[Any], v: list[Bounded]) -> Bounded | str:
    names = {d[0] for d in detail if isinstance(d, tuple) and len(d) == 2}
    if detail[1] in ("rni", "rzi", "rmi", "rpi"):
        return "rounding to an integer is not followed"
    return rounded(v[0], str(detail[0]), detail, nearest=None if detail[1] != "" or "rna" in names else True)


def _join(detail: Sequence[Any], v: list[Bounded]) -> Bounded:
    """Bf16 as f32 is exact; the upper half of f32 as bf16 cuts the lower."""
    return v[0] if tuple(detail) == WIDE else rounded(v[0], "bf16", ("bf16", "rz"))


def _times(kinds: Sequence[str], sign: int, v: list[Bounded]) -> Bounded:
    """One product of a tensor core, exact but for bits of f32 that are cut; with the exponents that its sum needs."""
    types = [element_type(name) for name in kinds]
    read = [rounded(x, t.name, ("tf32", "rz")) if t.name == "tf32" else x for t, x in zip(types, v)]
    made = product_of(read)
    if sign < 0:
        made = Bounded(-made.value, made.bound, made.slack)
    if all(t.is_float for t in types):
        high, low = zip(*(_exponents(t, x) for t, x in zip(types, read)))
        made.high, made.low = high[0] + high[1], low[0] + low[1]
    return made


def _exponents(t: ElementType, v: Bounded) -> tuple[NDArray[Any], NDArray[Any]]:
    """The largest exponent of a number of a type, and that of the least bit that it may have."""
    size = np.abs(v.value).astype(np.float64)
    high = exponent((size + v.bound + v.slack) * UP, t)
    least = exponent(np.maximum((size - v.bound - v.slack) / UP, 0), t)
    low = np.where(np.isfinite(high), np.where(np.isfinite(least), least, t.emin) - t.mantissa, np.inf)
    return high, low


def _chunk(detail: Sequence[Any], v: list[Bounded]) -> Bounded | str:
    if detail[HALVED]:
        return "a product with scale-input-d is not followed"
    return _summed(detail, v[0], _products(detail, v))


def _products(detail: Sequence[Any], v: list[Bounded]) -> list[Bounded]:
    return [_times(detail[PAIR], detail[SIGN], [x, y]) for x, y in zip(v[1::2], v[2::2])]


def _summed(detail: Sequence[Any], c: Bounded, products: list[Bounded]) -> Bounded:
    """A sum of a tensor core: terms are cut below the largest exponent, and their sum is rounded once."""
    _, _, fraction, floor, keep, _, narrow = detail[:7]
    ctype, result = element_type(str(detail[CTYPE])), element_type(str(detail[DTYPE]))
    total = _added([c, *products])
    high, low = _exponents(ctype, c)
    if c.low.size:  # what an earlier sum says of its bits
        low = np.fmax(low, c.low)
    size = [np.abs(p.value).astype(np.float64) for p in (c, *products)]
    top = np.maximum.reduce([high, *(p.high for p in products)])
    top = np.maximum(top, floor)
    unit = 2.0 ** (top - fraction)
    cut = sum(
        np.where(at >= top - fraction, 0.0, np.minimum(unit, (x + p.bound + p.slack) * UP))
        for x, p, at in zip(size, (c, *products), (low, *(p.low for p in products)))
    )
    bound = (total.bound + cut) * UP
    made = Bounded(total.value, bound, total.slack)
    if result.name == "f16" and not narrow:
        return rounded(made, "f16", ("f16", "rn"))
    largest_sum = (np.abs(total.value).astype(np.float64) + bound + total.slack) * UP
    sure = [np.maximum((x - p.bound - p.slack) / UP, 0) for x, p in zip(size, (c, *products))]
    least = np.maximum(np.maximum(exponent(sure[0]), floor), np.maximum.reduce([exponent(x) - 1 for x in sure[1:]]))
    last = exponent(largest_sum, element_type("f32")) - keep
    lowest = np.minimum.reduce([low, *(p.low for p in products)])  # the kept sum is a multiple of this bit
    made.bound = (bound + np.where(np.maximum(least - fraction, lowest) >= last, 0.0, 2.0**last)) * UP
    own = _exponents(element_type("f32"), made)
    made.high, made.low = own[0], np.maximum(lowest, own[1] + 23 - keep)
    made.bound = np.where(largest_sum > largest(element_type("f32")), np.inf, made.bound)
    return rounded(made, "f16", ("f16", "rn")) if narrow else made


def _added(v: Sequence[Bounded]) -> Bounded:
    value = np.sum([p.value for p in v], axis=0)
    sizes = np.sum([np.abs(p.value).astype(np.float64) for p in v], axis=0)
    slack = np.sum([p.slack for p in v], axis=0) + len(v) * STEP * sizes
    return Bounded(value, np.sum([p.bound for p in v], axis=0) * UP, slack * UP)


def _whole_product(detail: Sequence[Any], v: list[Bounded]) -> Bounded | str:
    """All products of an instruction that no chunks have."""
    if detail[HALVED]:
        return "a product with scale-input-d is not followed"
    sums = _METHODS.get(detail[0])
    return sums(detail, v[0], _products(detail, v)) if sums else f"products summed as {detail[0]} are not followed"


def _in_order(detail: Sequence[Any], c: Bounded, products: list[Bounded]) -> Bounded:
    """A chain of IEEE FMAs."""
    kind = str(detail[DTYPE])
    for one in products:
        c = rounded(sum_of([c, one]), kind, (kind, detail[ROUNDING] or "rn"))
    return c


def _in_any_order(detail: Sequence[Any], c: Bounded, products: list[Bounded]) -> Bounded:
    """FMAs in f32, in whatever order."""
    total = _added([c, *products])
    sizes = np.sum([np.abs(p.value).astype(np.float64) + p.bound + p.slack for p in (c, *products)], axis=0)
    most = len(products) * 2.0**-24
    found = Bounded(total.value, (total.bound + sizes * most * (1 + 2 * most)) * UP, total.slack)
    return rounded(found, str(detail[DTYPE]), ("", "rn"))


def _in_halves(detail: Sequence[Any], c: Bounded, products: list[Bounded]) -> Bounded:
    """Two sums of a tensor core, the first from zero, then an ordinary addition of C."""
    kind = str(detail[DTYPE])
    inner, done = (*detail[:CTYPE], kind, *detail[DTYPE:]), Bounded.exact(np.zeros_like(c.value))
    for half in (0, 1):
        done = _summed(inner, done, [p for k, p in enumerate(products) if k % 4 // 2 == half])
    return rounded(sum_of([done, c]), kind, (kind, "rn"))


def _of_integers(detail: Sequence[Any], c: Bounded, products: list[Bounded]) -> Bounded | str:
    if detail[SATURATES]:
        return "a sum of integers that saturates is not followed"
    total = _added([c, *products])
    return Bounded(total.value, total.bound, np.zeros_like(total.slack))


_METHODS: dict[str, Callable[[Sequence[Any], Bounded, list[Bounded]], Bounded | str]] = {
    "fma": _in_order, "software": _in_any_order, "halves": _in_halves, "integer": _of_integers,
}  # fmt: skip
_RULES: dict[str, Rule] = {
    "SUM": _with_rounding(sum_of), "PRODUCT": _with_rounding(product_of), "FUSED": _with_rounding(fused_of), "NEGATION": _negated,
    "MAGNITUDE": _magnitude, "COPY": _same, "cvt": _converted, "join": _join, "max": _extreme(np.maximum),
    "min": _extreme(np.minimum), "chunk": _chunk, "product": _whole_product,
    "DIFFERENCE": _with_rounding(lambda v: sum_of([v[0], _negated((), v[1:])])),
}  # fmt: skip


def bound_of_sum(e: ElementSum) -> float | None:
    """A bound of the rounding error of one element of a matrix product; None where none is known.

    e: the element, of one instruction or of a chain of them.
    """
    key, p, graph = e.key, e.profile, ExpressionGraph()
    if e.scale_a:
        return None

    def constant(raw: Any) -> int:
        return graph.node("constant", (int(raw),), (), 64)

    done, ctype, fused = constant(e.c), key.ctype, p.method == "fused"
    for n in range(0, len(e.a), key.products):
        end = min(n + key.products, len(e.a))
        for at in range(n, end, p.chunk if fused else key.products):
            pairs = [constant(x) for pair in [*zip(e.a, e.b)][at : min(at + p.chunk, end) if fused else end] for x in pair]
            rule = (p.method, p.chunk, p.fraction, p.floor, p.keep, p.widen_c, p.narrow_d)
            whole = () if fused else (key.kind, key.scale_vec, None, range(len(pairs) // 2))
            detail = (*rule, ctype, key.dtype, key.rounding, key.satfinite, key.bit_op, 0, (key.atype, key.btype), e.sign, *whole)
            done = graph.node("chunk" if fused else "product", detail, (done, *pairs), element_type(key.dtype).bits)
            ctype = key.dtype if fused else ctype
        ctype = key.dtype
    bounds = NodeBounds(graph, {})
    found = float(bounds.all.bound[done] + bounds.all.slack[done])
    return found if np.isfinite(found) else None
