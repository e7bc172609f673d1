"""Functions of one or two numbers that are not sums and products, with their largest errors.

The errors of approximate instructions are those of Floating-Point Instructions (PTX ISA 9.1). Those of sine and cosine are what
the tables of this machine reach, which have the bits of an H200.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mmulator.matrix.numerics.formats import element_type
from mmulator.observation.tolerance.bounded import STEP, UP, Bounded, exponent, largest, product_of, rounded


def monotone(f: Callable[[Any], Any], v: Bounded) -> Bounded:
    """A function that only rises or only falls, before its rounding. f: in longdouble, with an error of 8 STEP at most."""
    value = f(v.value)
    spread = [np.max([np.abs(f(v.value + s * w) - value) for s in (-1, 1)], axis=0) for w in (v.bound + v.slack, v.slack)]
    own = 8 * STEP * np.abs(value)
    bound, slack = ((x + own).astype(np.float64) * UP for x in spread)
    wrong = ~np.isfinite(bound)
    known = (v.bound == 0) & (v.slack == 0)
    return Bounded(value, np.where(wrong, np.inf, np.where(known, 0.0, bound)), np.where(wrong, 0.0, slack))


def _reciprocal(v: Bounded) -> Bounded:
    """1 / a, where the sign of a is certain."""
    made = monotone(lambda x: 1 / x, v)
    sure = np.abs(v.value) > v.bound + v.slack
    return Bounded(made.value, np.where(sure, made.bound, np.inf), made.slack)


def _quotient(v: list[Bounded]) -> Bounded:
    return product_of([v[0], _reciprocal(v[1])])


def _oscillating(f: Callable[[Any], Any]) -> Callable[[list[Bounded]], Bounded]:
    def rule(v: list[Bounded]) -> Bounded:
        return Bounded(f(v[0].value), np.minimum(v[0].bound, 2), v[0].slack + 4 * STEP)

    return rule


def _of_one(f: Callable[[Any], Any]) -> Callable[[list[Bounded]], Bounded]:
    return lambda v: monotone(f, v[0])


def _relative(size: float) -> Any:
    return lambda made, _: np.abs(made.value).astype(np.float64) * size


def _of_logarithm(made: Bounded, v: list[Bounded]) -> Any:
    """2 ** -22, and where the argument is not between 1/2 and 2 so much of the result."""
    return np.maximum(np.abs(made.value).astype(np.float64), 1) * 2.0**-22


def _of_sine(_: Bounded, v: list[Bounded]) -> Any:
    size = np.abs(v[0].value) + v[0].bound
    return np.where(size <= 2 * np.pi, 2.0**-20.4, np.where(size <= 100 * np.pi, 2.0**-14.7, np.inf))


def _units(count: int) -> Any:
    def rule(made: Bounded, _: list[Bounded]) -> Any:
        size = (np.abs(made.value).astype(np.float64) + made.bound + made.slack) * UP
        return np.where(size > 0, count * 2.0 ** (exponent(size, element_type("f32")) - 23), 0.0)

    return rule


def _absolute(size: float) -> Any:
    return lambda made, _: np.full(made.value.shape, size)


EXACT = ("RECIPROCAL", "QUOTIENT", "ROOT")  # which have instructions that round as they say
# kind of node, type: the function, and the largest error of its approximate instruction; "" for those that round as they say
_TABLE: dict[str, tuple[Callable[[list[Bounded]], Bounded], dict[str, Any]]] = {
    "RECIPROCAL": (lambda v: _reciprocal(v[0]), {"f32": _units(1)}),
    "QUOTIENT": (_quotient, {"f32": _units(2)}),
    "EXPONENTIAL": (_of_one(np.exp2), {"f32": _relative(2.0**-22), "f16": _relative(2.0**-9.9), "bf16": _relative(2.0**-7)}),
    "LOGARITHM": (_of_one(np.log2), {"f32": _of_logarithm}),
    "ROOT": (_of_one(np.sqrt), {"f32": _relative(2.0**-23)}),
    "INVERSE_ROOT": (_of_one(lambda x: 1 / np.sqrt(x)), {"f32": _relative(2.0**-22.9)}),
    "SINE": (_oscillating(np.sin), {"f32": _of_sine}),
    "COSINE": (_oscillating(np.cos), {"f32": _of_sine}),
    "TANGENT": (_of_one(np.tanh), {"f32": _relative(2.0**-11), "f16": _absolute(2.0**-10.987), "bf16": _absolute(2.0**-8)}),
}


def _rule(kind: str) -> Callable[[Sequence[Any], list[Bounded]], Bounded | str]:
    def rule(detail: Sequence[Any], v: list[Bounded]) -> Bounded | str:
        function, errors = _TABLE[kind]
        names = {d[0] for d in detail if isinstance(d, tuple) and len(d) == 2}
        made = function(v)
        if not names & {"approx", "full"} and kind in EXACT:
            return rounded(made, str(detail[0]), detail)
        if detail[0] not in errors:
            return f"{kind.lower()} of {detail[0]} is not followed"
        error = errors[str(detail[0])](made, v)
        if kind == "QUOTIENT" and "approx" in names:  # larger divisors give 0
            error = np.where(np.abs(v[1].value) + v[1].bound + v[1].slack > 2.0**126, np.inf, error)
        least = 2.0 ** element_type(str(detail[0])).emin  # results below may be flushed to 0
        known = Bounded(made.value, (made.bound + error) * UP, made.slack)
        tiny = np.abs(made.value).astype(np.float64) - known.bound - made.slack < least
        over = np.abs(made.value).astype(np.float64) + known.bound + made.slack > largest(element_type(str(detail[0])))
        known.bound = np.where(over, np.inf, known.bound + np.where(tiny, least, 0.0))
        return known

    return rule


FUNCTIONS = {kind: _rule(kind) for kind in _TABLE}
