"""`mm.same`: two kernels in one launch each, and what they have in common: the same bits, the same algebra, or a counterexample.

Two kernels with their launches come in; a `Sameness` leaves. The arrays of the caller are afterwards as they were.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.base.distance import distances
from mmulator.base.errors import ExecutionFault, LaunchError, LimitReached, shown
from mmulator.host.campaign import Snapshot
from mmulator.host.module import Kernel
from mmulator.observation.record.memory import stores_to
from mmulator.observation.same.control import note_control
from mmulator.observation.same.expressions import Expressions, Uncovered, Unordered
from mmulator.observation.same.graph import ExpressionGraph
from mmulator.observation.same.ring import Ring
from mmulator.observation.same.side import Side
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.regions import Region

SAME, ALGEBRA, DIFFERENT, UNDECIDED = GRADES = "same bits", "same algebra", "different", "not decided"
DRAWS = 2  # of fingerprints: a wrong answer of both has a chance of 2 ** -120
TRIES = 6  # launches with random inputs that look for a counterexample
NOTHING = "neither kernel stores to an array that both were given"
DEEP = 1_000_000  # frames of Python that an expression may need


@dataclass(frozen=True)
class Counterexample:
    """Inputs for which two kernels store other bits.

    element: the first that differs, by its name.
    values: what each kernel stores there.
    ulps: how far apart they are, in units in the last place.
    differing: number of elements that differ.
    inputs: the arrays that were given, by their names.
    given: whether they are those of the caller.
    """

    element: str
    values: tuple[Any, Any]
    ulps: int
    differing: int
    inputs: Mapping[str, np.ndarray] = field(repr=False, compare=False)
    given: bool = False


@dataclass(frozen=True)
class Sameness:
    """The grade of two kernels, with its reasons.

    grade: "same bits" for all values of the inputs; "same algebra": equal as real numbers, rounded otherwise; "different";
        "not decided".
    element: the first element whose expressions are not the same; "" of the same bits.
    lines: where the expressions of that element part, in each kernel.
    parts: what stands there, in each kernel: an instruction, an element of an array, a constant.
    counterexample: inputs for which the kernels store other bits, if some were found.
    reason: why nothing was decided.
    rests_on: what the grade holds for: conditions and addresses that depend on inputs are those of these inputs.
    elements: number of elements that were compared.
    """

    grade: str
    element: str = ""
    lines: tuple[str, str] = ("", "")
    parts: tuple[str, str] = ("", "")
    counterexample: Counterexample | None = None
    reason: str = ""
    rests_on: tuple[str, ...] = ()
    elements: int = 0

    def __str__(self) -> str:
        count = f"{self.elements:,} element{'s' * (self.elements != 1)}"
        said = [f"{self.grade}: {count}" + (f"; {self.reason}" if self.reason else "")]
        if self.element:
            sides = [part + f" at {line}" * bool(line) for part, line in zip(self.parts, self.lines)]
            more = "have other operands" if self.parts[0] == self.parts[1] else "are not the same"
            said.append(f"{self.element}: {' and '.join(sides)} {more}")
        if found := self.counterexample:
            said.append(
                f"for {'these' if found.given else 'other'} inputs{'' if found.given else ' of these shapes'} "
                f"{found.differing:,} of them differ, first {found.element}: {found.values[0]} "
                f"and {found.values[1]}, {found.ulps:,} units in the last place apart"
            )
        return "\n".join([*said, *(f"holds for these inputs: {one}" for one in self.rests_on)])

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON can hold it."""
        found = self.counterexample
        return {
            "ok": self.grade == SAME, "grade": self.grade, "elements": self.elements, "element": self.element,
            "lines": list(self.lines), "parts": list(self.parts), "reason": self.reason, "rests_on": list(self.rests_on),
            "counterexample": found and {
                "element": found.element, "values": [str(v) for v in found.values], "ulps": found.ulps,
                "differing": found.differing, "given": found.given,
            },
        }  # fmt: skip


def same(
    kernel_a: Kernel, kernel_b: Kernel, grid: Any, block: Any, args: Sequence[Any], shared: int = 0, device: str | None = None,
    launch_b: Mapping[str, Any] | None = None, cluster: Any = None, memory: Sequence[Region] = (),
) -> Sameness:  # fmt: skip
    """Whether two kernels store the same bits, for all values of their inputs at one size.

    kernel_a, kernel_b: the kernels.
    grid, block: blocks of the grid, threads of a block (int, or up to three).
    args: one for each parameter, as `Kernel.launch` takes them; arrays keep their values. Arrays and numbers of floating point
        are inputs: the grade "same bits" holds for all their values. Other numbers are fixed.
    shared: dynamic shared bytes.
    device: whose arithmetic; default: that of .target of each.
    launch_b: grid, block, args, shared, cluster, memory of the second kernel where they are others. An array of both is one
        input; else the n-th array of one is the n-th of the other.
    cluster: blocks of a cluster.
    memory: what pointers in structs and in other memory lead to.

    Raises TypeError for what is no kernel; LaunchError and UnsupportedError as `Kernel.launch`, LaunchError for other keys of
    launch_b, too; ExecutionFault if one of the kernels does not end.
    """
    for name, one in (("kernel_a", kernel_a), ("kernel_b", kernel_b)):
        if not isinstance(one, Kernel):
            raise TypeError(f"same: {name} is {shown(one)}; give a kernel, such as mm.Module.load('k.ptx')['name']")
    first = {"grid": grid, "block": block, "args": args, "shared": shared, "cluster": cluster, "memory": memory}
    if strange := [key for key in launch_b or {} if key not in first]:
        raise LaunchError(f"same: launch_b has {strange[0]!r}", hint=f"it may have {', '.join(first)}")
    a = Side(kernel_a, first, device)
    b = Side(kernel_b, {**first, **(launch_b or {})}, device)
    pairs = _pairs(a, b)
    if not pairs:
        raise LaunchError("same: the kernels have no array in common", hint="give both kernels the array that they store to")
    with deep(), _one_input(a, b, pairs):
        return _graded(a, b, pairs)


def _pairs(a: Side, b: Side) -> list[tuple[int, int]]:
    """The arrays of the first kernel with those of the second that stand for the same."""
    shared = {n: m for n, x in a.arrays.items() for m, y in b.arrays.items() if x is y or pointer(x) == pointer(y)}
    rest = zip((n for n in a.arrays if n not in shared), (m for m in b.arrays if m not in shared.values()))
    return [*shared.items(), *((n, m) for n, m in rest if a.arrays[n].nbytes == b.arrays[m].nbytes)]


@contextmanager
def deep() -> Iterator[None]:
    """A place where expressions may be as deep as they are."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _graded(a: Side, b: Side, pairs: list[tuple[int, int]]) -> Sameness:
    """The grade: expressions first; launches with other inputs only where they are not the same, or rest on these inputs."""
    graph, keys = ExpressionGraph(), {m: n for n, m in pairs}
    own = {m: keys.get(m, -1 - m) for m in b.arrays}
    try:
        mine, left = a.expressions(graph, {n: n for n in a.arrays})
        other, right = b.expressions(graph, own)
        parted, count = _parted(graph, a, b, pairs, (mine, left), (other, right))
        for one in (mine, other):
            note_control(one)
    except (Uncovered, LimitReached) as error:
        found = _counterexample(a, b, pairs)
        certain = found is not None and not isinstance(error, Unordered)
        return Sameness(DIFFERENT if certain else UNDECIDED, counterexample=found, reason=error.message)
    rests = tuple(f"{what} at {place} depends on inputs" for one in (mine, other) for place, what in one.leans.items())
    if count and not parted and not rests:
        return Sameness(SAME, elements=count)
    found = _counterexample(a, b, pairs, data=not rests)
    if not count:
        return Sameness(UNDECIDED, counterexample=found, reason=NOTHING, rests_on=rests)
    if not parted:  # the expressions hold for one way of the conditions and addresses
        return Sameness(SAME if found is None else DIFFERENT, counterexample=found, rests_on=rests, elements=count)
    name, x, y = parted[0]
    lines, parts = _part(graph, x, y, (a, mine), (b, other), {v: k for k, v in own.items()})
    more: dict[str, Any] = {"element": name, "lines": lines, "parts": parts, "rests_on": rests, "elements": count}
    rings = [Ring(graph, draw) for draw in range(DRAWS)]
    if all(ring.alike(x, y) for ring in rings for _, x, y in parted):
        return Sameness(ALGEBRA, counterexample=found, **more)
    if found is not None:
        return Sameness(DIFFERENT, counterexample=found, **more)
    return Sameness(UNDECIDED, reason=f"the expressions differ, and {TRIES} launches with random inputs did not", **more)


Made = tuple[Expressions, dict[int, np.ndarray]]


def _parted(
    graph: ExpressionGraph, a: Side, b: Side, pairs: list[tuple[int, int]], mine: Made, other: Made
) -> tuple[list[tuple[str, int, int]], int]:
    """Elements whose expressions are not the same, with their nodes; and the number of elements that were compared."""
    parted, count, starts = [], 0, (dict(a.places), dict(b.places))
    for n, m in pairs:
        x, y = starts[0][n], starts[1][m]
        if not any(stores_to(e.trail, z.start, z.start + z.size) for e, z in ((mine[0], x), (other[0], y))):
            continue
        raw = [made[1][k].reshape(-1).view(np.uint8) for made, k in ((mine, n), (other, m))]
        for at in range(0, x.size, x.itemsize):
            sides = []
            for place, data, made in ((x, raw[0], mine[0]), (y, raw[1], other[0])):
                bits = int.from_bytes(data[at : at + x.itemsize].tobytes(), "little")
                sides.append(graph.whole(made.stored(place.start + at, x.itemsize, bits)))
            count += 1
            if sides[0] != sides[1]:
                parted.append((x.element(x.start + at), sides[0], sides[1]))
    return parted, count


def _part(
    graph: ExpressionGraph, x: int, y: int, mine: tuple[Side, Expressions], other: tuple[Side, Expressions],
    keys: Mapping[int, int],
) -> tuple[tuple[str, str], tuple[str, str]]:  # fmt: skip
    """Where two expressions part, and what stands there: the deepest place on the way along which all else is the same.

    keys: numbers of the second side's arrays, by those of the inputs.
    """
    deepest = x, y
    while True:
        one, two = graph.nodes[x], graph.nodes[y]
        parts = [(i, j) for i, j in zip(one.inputs, two.inputs) if i != j]
        if one[:2] != two[:2] or len(one.inputs) != len(two.inputs) or len(parts) != 1:
            break
        x, y = parts[0]
        if mine[1].place(x) and other[1].place(y):
            deepest = x, y
    places = mine[1].place(deepest[0]), other[1].place(deepest[1])
    names = _named(*mine, deepest[0], None), _named(*other, deepest[1], keys)
    if deepest != (x, y) and names[0] == names[1]:  # operands that no instruction made
        names = f"{names[0]} of {_named(*mine, x, None)}", f"{names[1]} of {_named(*other, y, keys)}"
    return places, names


def _named(side: Side, made: Expressions, node: int, keys: Mapping[int, int] | None) -> str:
    """The name of a node: its instruction, an element of an array, a constant. keys: as of `_part`; None: the same."""
    if (step := made.places.get(node)) is not None:
        return made.trail.instruction(step).original.mnemonic
    kind, detail, *_ = made.graph.nodes[node]
    if kind == "input" and detail[0] != "parameter":
        number = detail[0] if keys is None else keys.get(detail[0], -1)
        array = dict(side.places).get(number)
        return "an element of an array" if array is None else array.element(array.start + detail[1] * array.itemsize)
    if kind == "constant":
        return f"the constant {detail[0]:#x}"
    return "a parameter" if kind == "input" else "bits of several values"


# counterexamples ----------------------------------------------------------------------------------------------------
@contextmanager
def _one_input(a: Side, b: Side, pairs: list[tuple[int, int]]) -> Iterator[None]:
    """A place where each array of the second side has what its partner has; afterwards all are as they were."""
    before = [(side, {n: x.copy() for n, x in side.arrays.items()}) for side in (a, b)]
    try:
        _hand_over(a, b, pairs)
        yield
    finally:
        for side, kept in before:
            for n, x in kept.items():
                side.arrays[n][...] = x


def _hand_over(a: Side, b: Side, pairs: list[tuple[int, int]]) -> None:
    for n, m in pairs:
        b.arrays[m].reshape(-1).view(np.uint8)[:] = a.arrays[n].reshape(-1).view(np.uint8)
    for side in (a, b):
        side.memory = Snapshot(side.launch.writable())


def _counterexample(a: Side, b: Side, pairs: list[tuple[int, int]], data: bool = False) -> Counterexample | None:
    """Inputs for which the kernels store other bits: first those that were given, then random ones.

    data: whether no address and no condition depends on inputs, so that whole numbers may be any.
    """
    rng, arrays, first = np.random.default_rng(0), dict(a.places), {n: a.arrays[n].copy() for n, _ in pairs}
    each = 2 if any(x.dtype.kind in "fV" for x in first.values()) else 1
    for attempt in range(1 + TRIES):
        for n, x in first.items() if attempt else ():
            a.arrays[n][...] = _varied(x, rng, attempt, data, not attempt % each)
        _hand_over(a, b, pairs)
        given = {place.name: a.arrays[n].copy() for n, place in a.places}
        try:
            left, right = a.run(), b.run()
        except ExecutionFault:
            if not attempt:
                raise
            continue
        for n, m in pairs:
            x, y = left[n].reshape(-1), right[m].reshape(-1).view(left[n].dtype)
            differ = np.flatnonzero(x.view(f"V{x.itemsize}") != y.view(f"V{x.itemsize}"))
            if len(differ):
                at, array = int(differ[0]), arrays[n]
                apart = int(distances(x[at : at + 1], y[at : at + 1])[0])
                element = array.element(array.start + at * array.itemsize)
                return Counterexample(element, (x[at], y[at]), apart, len(differ), given, not attempt)
    return None


def _varied(x: np.ndarray, rng: np.random.Generator, attempt: int, data: bool, turn: bool) -> np.ndarray:
    """Other values for an array; at the last attempt all bit patterns: NaNs, infinities; before it the smallest numbers.

    Whole numbers, if it is their turn: any if `data`; else, since they may be indices, within the bounds of those that are there,
    and ascending if those are.
    """
    import ml_dtypes

    whole = x.dtype.kind not in "fV"
    if whole and not (turn and x.dtype.kind in "iu"):
        return rng.permutation(x.reshape(-1)).reshape(x.shape) if x.dtype.kind == "b" else x
    if (attempt == TRIES and not whole) or (whole and data):
        return rng.integers(0, 256, x.nbytes, np.uint8).view(x.dtype).reshape(x.shape)
    if not whole:
        finfo: Any = ml_dtypes.finfo
        least = float(finfo(x.dtype).smallest_subnormal) if attempt == TRIES - 1 else 1.0
        return (rng.standard_normal(x.shape) * least * 2.0 ** rng.integers(-attempt, attempt + 1, x.shape)).astype(x.dtype)
    low, high = min(int(x.min()), 0), max(int(x.max()), 1)
    made = rng.integers(low, high, x.shape, x.dtype, endpoint=True)
    flat = x.reshape(-1)
    return np.sort(made, axis=None).reshape(x.shape) if bool((flat[1:] >= flat[:-1]).all()) and flat[0] != flat[-1] else made
