"""Numbers with bounds: exact values beside how far the machine's may be from them; sums, products and rounding of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.types import ElementType
from mmulator.matrix.numerics.formats import element_type

STEP = float(np.finfo(np.longdouble).eps)  # relative error of one operation of this evaluation
UP = 1 + 2.0**-45  # makes up for the roundings of a bound's own arithmetic


class Bounded:
    """Numbers of one kind of node.

    value: exact results, evaluated in NumPy's longdouble.
    bound: the machine's results are not farther than this from exact ones.
    slack: `value` is not farther than this from exact results.
    high, low: of products of a tensor core, the largest exponent and that of the least bit.
    """

    def __init__(self, value: NDArray[Any], bound: NDArray[Any], slack: NDArray[Any]) -> None:
        self.value, self.bound, self.slack = value, np.asarray(bound, np.float64), np.asarray(slack, np.float64)
        self.high = self.low = np.zeros(0)

    @classmethod
    def exact(cls, value: NDArray[Any]) -> Bounded:
        """Numbers without error; those that are not finite have no bound."""
        return cls(value, np.where(np.isfinite(value), 0.0, np.inf), np.zeros(value.shape))

    @classmethod
    def unknown(cls, count: int) -> Bounded:
        """Places for numbers."""
        made = cls(np.full(count, np.nan, np.longdouble), np.full(count, np.inf), np.zeros(count))
        made.high, made.low = np.full(count, np.nan), np.full(count, np.nan)
        return made

    def put(self, places: NDArray[Any], other: Bounded) -> None:
        """Numbers into places."""
        self.value[places], self.bound[places], self.slack[places] = other.value, other.bound, other.slack
        if other.high.size:
            self.high[places], self.low[places] = other.high, other.low

    def take(self, places: NDArray[Any]) -> Bounded:
        """Numbers of places."""
        found = Bounded(self.value[places], self.bound[places], self.slack[places])
        found.high, found.low = self.high[places], self.low[places]
        return found

    def append(self, other: Bounded) -> int:
        """The place of one more number."""
        place = len(self.value)
        for name in ("value", "bound", "slack"):
            setattr(self, name, np.append(getattr(self, name), getattr(other, name)))
        self.high, self.low = np.append(self.high, np.nan), np.append(self.low, np.nan)
        return place


# rounding -----------------------------------------------------------------------------------------------------------
def exponent(magnitude: Any, t: ElementType | None = None) -> NDArray[Any]:
    """The exponent of a number's leading bit, of a subnormal number that of its type; -inf of zero."""
    found = np.frexp(np.asarray(magnitude, np.float64))[1].astype(np.float64) - 1
    if t is not None:
        found = np.maximum(found, t.emin)
    return np.where(np.asarray(magnitude) > 0, found, -np.inf)


def largest(t: ElementType) -> float:
    """The largest finite number of a type of floating point."""
    top = (1 << t.exponent) - 1 - t.bias - (t.nan == "ieee")
    return float((2 - 2.0**-t.mantissa * (1 + (t.nan == "all_ones"))) * 2.0**top)


def flushed(v: Bounded, kind: str) -> Bounded:
    """An operand of an instruction that reads subnormal numbers of a type as 0."""
    least = 2.0 ** element_type(kind).emin
    near = (np.abs(v.value) - v.bound - v.slack < least) & ((v.value != 0) | (v.bound != 0) | (v.slack != 0))
    return Bounded(v.value, v.bound + np.where(near, least, 0.0), v.slack)


def rounded(v: Bounded, kind: str, detail: Sequence[Any], nearest: bool | None = None) -> Bounded:
    """A result after its rounding to a type. v: before. nearest: whether to the nearest; default: as the detail says."""
    t = element_type(kind)
    names = {d[0] for d in detail if isinstance(d, tuple) and len(d) == 2}
    if nearest is None:
        nearest = detail[1] in ("rn", "rna")
    magnitude = (np.abs(v.value).astype(np.float64) + v.bound + v.slack) * UP
    unit = np.where(magnitude > 0, 2.0 ** (exponent(magnitude, t) - t.mantissa), 0.0)
    known = (v.bound == 0) & (v.slack == 0)
    scaled = v.value / np.asarray(np.where(unit > 0, unit, 1), np.longdouble)
    error = np.where(known & (scaled == np.rint(scaled)), 0.0, unit / 2 if nearest else unit)
    if "ftz" in names:
        error = error + np.where((magnitude > 0) & (np.abs(v.value) - v.bound - v.slack < 2.0**t.emin), 2.0**t.emin, 0.0)
    most = largest(t)
    over = np.maximum(magnitude - most, 0.0)
    value, lost = v.value, np.zeros_like(unit)
    if "sat" in names:  # .sat of floating point: [0, 1]; exact arithmetic does the same
        value = np.clip(value, 0, 1)
    if "relu" in names:
        value = np.maximum(value, 0)
    if "satfinite" in names:
        lost = over
    elif "sat" not in names:
        last = 2.0 ** (float(exponent(most)) - t.mantissa)  # unit of the largest number's last place
        lost = np.where(over >= (last / 2 if nearest else 0.0), np.where(over > 0, np.inf, 0.0), 0.0)
    return Bounded(value, (v.bound + error + lost) * UP, v.slack)



# operations before their rounding -------------------------------------------------------------------------------------------
def sum_of(v: list[Bounded]) -> Bounded:
    a, b = v
    value = a.value + b.value
    return Bounded(value, (a.bound + b.bound) * UP, (a.slack + b.slack) * UP + np.where(
        (a.value == 0) | (b.value == 0), 0.0, STEP * np.abs(value).astype(np.float64)))  # fmt: skip


def product_of(v: list[Bounded]) -> Bounded:
    a, b = v
    value = a.value * b.value
    x, y = (np.abs(z.value).astype(np.float64) + z.slack for z in v)
    bound = (x * b.bound + y * a.bound + a.bound * b.bound) * UP
    own = np.where(_short(a) & _short(b), 0.0, STEP * np.abs(value).astype(np.float64))
    return Bounded(value, bound, (x * b.slack + y * a.slack) * UP + own)


def _short(v: Bounded) -> NDArray[Any]:
    """Whether a number has at most half the bits of `value`, so that a product of two is exact."""
    return (v.slack == 0) & (np.ldexp(np.frexp(v.value)[0], (np.finfo(np.longdouble).nmant + 1) // 2) % 1 == 0)


def fused_of(v: list[Bounded]) -> Bounded:
    return sum_of([product_of(v[:2]), v[2]])
