"""An element beside its value in another run, and beside a reference's: what would make the reference of the operands that the
machine read, or of their arrays.

A value and its causes come in, and the value that somebody expects; sentences leave. A sum that ends in the reference up to
rounding says what the kernel leaves out, counts twice, or reads in place of something else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from itertools import permutations, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import Algebra, Pointer
from mmulator.isa.table import ROWS
from mmulator.isa.types import type_bits
from mmulator.matrix.numerics.element import ElementSum, Loss, last_place, number, parted
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.telling import loss_lines
from mmulator.observation.record.cause import Cause, place_text
from mmulator.observation.record.losses import SAME, cut_said, losses_of, number_of, product_of
from mmulator.observation.record.names import DeviceArray
from mmulator.observation.record.origins import summary
from mmulator.observation.record.values import bits_text, dtype_of


@dataclass(frozen=True)
class BesideAnother:
    """An element in another run of its launch.

    label: the other run: `sm_80`, `seed 7`.
    cause: why the element has its value there; None if nothing was stored there.
    here, there: the values in which the runs part, though what they were computed from agrees; None if nothing differs.
    """

    label: str
    cause: Cause | None
    here: Cause | None = None
    there: Cause | None = None

    def __str__(self) -> str:
        if self.cause is None:
            return f"beside {self.label}: nothing was stored there"
        bits = bits_text(self.cause.bits, type_bits(self.cause.type))
        head = f"beside {self.label}: {self.cause.name} = {self.cause.text} (bits {bits})"
        if self.here is None or self.there is None:
            return f"{head}, no difference"
        x, y = self.here, self.there
        at = f" at {place_text(x.at)}" if x.at else ""
        said = f"{head}; the first values that differ: {x.name} of {x.how}{at} is {x.text} here and {y.text} there"
        if x.element is not None and y.element is not None:
            n = parted(x.element, y.element)
            said += "" if n is None else f"; their sums differ from that of the first {n} products on"
        return said


def beside(label: str, here: Cause, there: Cause | None) -> BesideAnother:
    """The explanation of another run beside that of a first one."""
    pair = None if there is None else first_difference(here, there)
    return BesideAnother(label, there, *(pair or (None, None)))


def first_difference(x: Cause, y: Cause) -> tuple[Cause, Cause] | None:
    """The values farthest from the store that differ while all that they were computed from agrees; None if none differ."""
    if x.bits == y.bits and x.how == y.how:
        return None
    if x.how == y.how:
        for one, other in zip_longest(x.inputs, y.inputs):
            if one is None or other is None:
                break
            found = first_difference(one, other)
            if found is not None:
                return found
    return x, y


Values = NDArray[np.float64]
_LEAF = re.compile(r"(.*)\[([\d,]+)\]")
_FEW = 3  # elements that are named; where more would do, nothing is known
_MOST = 1 << 16  # elements of an array that are tried; of a larger one those with the same indices in another order
_NEARLY = 2.0**-9  # how near an element with the same indices in another order may come: sums of products round, too
_DOES: dict[Algebra | Pointer, Callable[..., Any]] = {
    Algebra.SUM: lambda a, b: a + b, Algebra.DIFFERENCE: lambda a, b: a - b, Algebra.PRODUCT: lambda a, b: a * b,
    Algebra.QUOTIENT: lambda a, b: a / b, Algebra.FUSED: lambda a, b, c: a * b + c, Algebra.NEGATION: lambda a: -a,
    Pointer.ADDEND: lambda a, b, c: a * b + c,
}  # fmt: skip


@cache
def _does(opcode: str) -> Callable[..., Any] | None:
    """The function that instructions of a name compute; None of others."""
    effects = (e for r in ROWS.get(opcode, ()) for e in (r.effects.algebra, r.effects.pointer))
    return next((_DOES[e] for e in effects if e in _DOES), None)


def instead(cause: Cause, want: float, room: float, values: Callable[[str], NDArray[Any] | None]) -> str:
    """A sentence about the element that would make a value the reference's; "" if no single one does.

    cause: the value.
    want, room: the reference, and how far from it the value may be.
    values: gives an array of the launch by its name.
    """
    leaves = {c.name: m for c in cause.walk() if c.how.startswith("as the launch") and (m := _LEAF.fullmatch(c.name))}
    for name, match in leaves.items():
        array = values(match[1])
        if array is None or array.dtype.kind not in "fiuV":
            continue
        index = tuple(map(int, match[2].split(",")))
        index = index if len(index) == array.ndim else tuple(map(int, np.unravel_index(index[0], array.shape)))
        with np.errstate(all="ignore"):
            made = _with(cause, name, array.astype(np.float64))
            off = np.abs(made - want) if made is not None and made.shape == array.shape else np.full(1, np.inf)
        for most, is_ in ((room, "it is"), (max(room, abs(want) * _NEARLY), "it is nearly")):
            found = np.argwhere(off <= most).tolist()
            if array.size > _MOST or most > room:
                found = [at for at in found if sorted(at) == sorted(index)]
            names = [f"{match[1]}[{','.join(map(str, at))}]" for at in found if tuple(at) != index]
            if 0 < len(names) <= _FEW and len(names) == len(found):
                return f"with {summary(names)} in place of {name} {is_} the reference's"
    return ""


def _with(cause: Cause, leaf: str, values: Values) -> Any:
    """A value for each of the values of a leaf; None where it is not known how it depends on them."""
    if cause.name == leaf and not cause.inputs:
        return values
    does = cause.how.partition(".")[0]
    given = [_with(c, leaf, values) for c in cause.inputs] if cause.element is None else []
    if any(isinstance(g, np.ndarray) for g in given):
        if any(g is None for g in given):
            return None
        if (make := _does(does)) is not None:
            return make(*given) if len(given) == make.__code__.co_argcount else None
        return given[0] if len(given) == 1 and cause.how.startswith(SAME) else None
    if None in given and any(c.name == leaf for c in cause.walk()):
        return None
    number = number_of(cause)
    return None if number is None else float(number)


_NAME = re.compile(r"(.*)\[([\d,]+)\]")
_TRIED = "other rows and columns of the arrays, chunks of k left out or twice, no accumulator, a factor of a power of two or -1"
_SIMPLE = (2.0, 0.5, 4.0, 0.25, 8.0, 0.125, 16.0, 0.0625, -1.0)
MISSING, BESIDES = "not multiplied here", "multiplied here besides"
NOT_LOOKED = "what would make it is not known"
Vector = NDArray[np.float64]
Wanted = tuple[float, float]  # a value, and the unit of its last place in the reference's type


@dataclass(frozen=True)
class BesideReference:
    """An element beside the one of a reference.

    label: where the reference comes from: `expected.npz`, `assert_close`.
    want: its value.
    said: sentences about the difference: how much it is, what explains it most, and more.
    """

    label: str
    want: float
    said: tuple[str, ...]

    @property
    def lead(self) -> str:
        """The sentence that explains most of the difference; "" where nothing is known."""
        first, *more = *self.said[1:], ""
        missing = [x for x in more if x.startswith((MISSING, BESIDES))]
        return "" if first.startswith(NOT_LOOKED) else "; ".join([first, *missing])

    def __str__(self) -> str:
        return "\n  ".join([f"beside {self.label}: {_text(self.want)} there", *self.said])


@dataclass(frozen=True)
class Reference:
    """Values that somebody expects.

    label: where they come from: `expected.npz`, `assert_close`.
    arrays: by the names of the launch's arrays; under "" for elements of any name.
    """

    label: str
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def want(self, name: str) -> Wanted | None:
        """The value of an element, `C[3,5]`; None where there is none."""
        found = _NAME.fullmatch(name)
        array = self.arrays.get(found[1] if found else name, self.arrays.get(""))
        if array is None:
            return None
        array = np.asarray(array)
        index = tuple(int(n) for n in found[2].split(",")) if found and array.ndim else ()
        try:
            value = float(array.reshape(-1)[index[0]] if len(index) == 1 else array[index])
        except (IndexError, TypeError):
            return None
        return value, place_in(value, array.dtype)


@dataclass(frozen=True)
class ReferenceArrays:
    """Arrays of a launch by their names, to look for what a reference was computed from.

    arrays: of the launch. read: gives bytes of device memory at a generic address.
    """

    arrays: Sequence[DeviceArray]
    read: Callable[[int, int], bytes]

    def values(self, name: str, least: int = 2) -> NDArray[Any] | None:
        """The values of an array of two dimensions or more (`least`); None where they are not known."""
        found = next((a for a in self.arrays if a.name == name), None)
        if found is None or found.dtype is None or len(found.shape) < least:
            return None
        raw = np.frombuffer(self.read(found.start, found.size), np.uint8)
        if found.strides:
            return np.lib.stride_tricks.as_strided(raw.view(found.dtype), found.shape, found.strides)
        return raw[: math.prod(found.shape) * found.itemsize].view(found.dtype).reshape(found.shape)


def beside_reference(cause: Cause, wanted: Wanted | None, label: str, arrays: ReferenceArrays) -> BesideReference | None:
    """An element beside a reference's.

    cause: the element.
    wanted: the reference's value; None: it has none.
    label: where it comes from.
    arrays: of the launch.

    None where the element is no number, or the reference has none.
    """
    got, product = number_of(cause), product_of(cause)
    if got is None or wanted is None:
        return None
    want, unit = wanted
    told = [_apart(float(got), want, cause.type)]
    if product is not None and product.element is not None:
        told += _of_sum(product, product.element, want, max(unit, place_in(want, dtype_of(cause.type))), cause, arrays)
    elif float(got) != want:
        room = 4 * max(unit, place_in(want, dtype_of(cause.type))) + abs(want) * 2.0**-20
        there = next((float(number_of(c) or 0) for c in cause.inputs if c.name == cause.name and ".add" in cause.how), 0.0)
        other = instead(cause, want, room, partial(arrays.values, least=1))
        if there and abs(float(got) - there - want) <= room:
            other = f"without what the launch found there, {_text(there)}, it is the reference's"
        made = next((x for x in cause.walk() if not x.how.startswith(SAME)), cause)
        nothing = f"{NOT_LOOKED}: it is no sum of a matrix product alone, but made by {made.how}"
        told.append(other or nothing)
    return BesideReference(label, want, tuple(told))


def _text(value: float) -> str:
    return f"{value:.9g}"


def _apart(got: float, want: float, type_name: str) -> str:
    if got == want or (math.isnan(got) and math.isnan(want)):
        return "the values are equal"
    off = got - want
    dtype = dtype_of(type_name)
    said = f"here {_text(got)}"
    if not math.isfinite(off):
        return said
    near = place_in(want, dtype)
    parts = [f"{100 * abs(off / want):.3g} %"] if want else []
    parts += [f"{abs(off / near):.4g} ULP"] if near and abs(off / near) < 1e6 else []
    return f"{said}: {'more' if off > 0 else 'less'} by {abs(off):.6g}" + (f" ({', '.join(parts)})" if parts else "")


def place_in(value: float, dtype: np.dtype[Any]) -> float:
    """The unit of the last place of a value in a type; 0 of integers and where it is not finite."""
    if dtype.kind not in "fV":
        return 0.0
    with np.errstate(all="ignore"):
        found = abs(float(np.spacing(np.asarray(value).astype(dtype))))
    return found if math.isfinite(found) else 0.0


def _of_sum(product: Cause, e: ElementSum, want: float, unit: float, cause: Cause, arrays: ReferenceArrays) -> Iterator[str]:
    """Sentences about a sum: rounding, else products too many, too few, or others. unit: of the reference's last place."""
    terms = np.array([float(p) for p in e.products(whole=True)])
    begin = float(number(element_type(e.key.ctype), e.c))
    if not np.isfinite(terms).all() or not math.isfinite(begin) or not math.isfinite(want):
        first = next((n for n, p in enumerate(terms) if not math.isfinite(p)), None)
        if first is not None and math.isfinite(want):
            yield f"k {e.positions[first]} is {_text(float(terms[first]))}: {_pair(product, first)}"
        return
    spread = float(np.sqrt(np.sum(terms**2) * max(1, len(terms))))
    room = 1.5 * unit + spread * 2.0**-21
    for exact, said in ((e.exact, "given"), (e.read, "read")):
        if abs(float(exact) - want) <= room:
            yield from _rounding(product, e, Fraction(exact), said, want, cause)
            return
    yield from _other_sum(product, e, want, cause, arrays, terms, begin, room)


def _rounding(product: Cause, e: ElementSum, exact: Fraction, said: str, want: float, cause: Cause) -> Iterator[str]:
    """The operands are the reference's: what parts the element from the exact sum of what was `said`: "given", or "read"."""
    losses, unit = losses_of(cause), last_place(element_type(cause.type), cause.bits)
    parts = [x for x in losses if said == "given" or x.kind != "operands"]
    most = max(parts, key=lambda x: abs(x.value), default=None)
    if most is not None and most.kind == "operands":
        yield from cut_said(e, product.at, unit)
    else:
        yield f"the exact sum of what was {said} is {_text(float(exact))}: the difference is rounding"
    own = exact - Fraction(want)
    if losses:
        yield from loss_lines([*parts, *([Loss("reference", "the reference's own rounding", own)] if own else [])], unit)


def _other_sum(
    product: Cause, e: ElementSum, want: float, cause: Cause, arrays: ReferenceArrays, terms: Vector, begin: float, room: float
) -> Iterator[str]:
    """Explanations that would make the reference: another row or column, a chunk less or more, no C, another scale."""
    exact = float(e.exact)
    found = _arrays_that_make(product, want, cause, arrays, begin, room)
    if found is not None:
        yield from found
        return
    if begin and abs(exact - begin - want) <= room:
        yield f"without what was in the accumulator, {_text(begin)}, it is the reference's"
        return
    for factor in _SIMPLE:
        if abs(exact * factor - want) <= room:
            yield f"times {factor:g} the sum is the reference: a scale differs"
            return
    chunk = e.key.products
    ends = range(0, len(terms) + 1, chunk)
    sums = {end: float(np.sum(terms[:end])) for end in ends}
    for size in range(chunk, len(terms) + 1, chunk):
        for at in range(0, len(terms) - size + 1, chunk):
            part = sums[at + size] - sums[at]
            if abs(exact - part - want) <= room:
                yield f"without k {_between(e, at, size)} it is the reference's: {_ranges(product, at, size)} counted too much"
                return
            if abs(exact + part - want) <= room:
                yield f"with k {_between(e, at, size)} twice it is the reference's: {_ranges(product, at, size)}"
                return
    where = f"at {place_text(product.at)} " if product.at else ""
    yield f"{where}the operands differ: no part of their sum is the reference (tried: {_TRIED})"


def _between(e: ElementSum, at: int, size: int) -> str:
    return f"{e.positions[at]}..{e.positions[at + size - 1]}"


def _ranges(product: Cause, at: int, size: int) -> str:
    return ", ".join(summary(names[at : at + size]) for names in product.operands if names)


def _pair(product: Cause, n: int) -> str:
    a, b = product.operands
    return f"{a[n]} times {b[n]}" if n < min(len(a), len(b)) else "a product"


# rows and columns of the operands' arrays -----------------------------------------------------------------------------------
def _arrays_that_make(
    product: Cause, want: float, cause: Cause, arrays: ReferenceArrays, begin: float, room: float
) -> list[str] | None:
    """Sentences about a row of one array and a column of the other whose product is the reference; None if there is none."""
    asked = _NAME.fullmatch(cause.name)
    names = [_main_array(side) for side in product.operands]
    if asked is None or None in names:
        return None
    index = tuple(int(n) for n in asked[2].split(","))
    lines = [list(_lines(name, arrays, index)) for name in names if name is not None]
    if len(lines) != 2:
        return None
    read = set(zip(*product.operands))
    best: tuple[int, list[str], list[str]] | None = None  # of several, the one with most of what was read
    for a_names, a in lines[0]:
        for b_names, b in lines[1]:
            total = float(a @ b) if len(a) == len(b) else math.nan
            if min(abs(total - want), abs(total + begin - want)) <= room:
                alike = len(read.intersection(zip(a_names, b_names)))
                best = (alike, a_names, b_names) if best is None or alike > best[0] else best
    return None if best is None else list(_against(product, *best[1:]))


def _main_array(names: Sequence[str]) -> str | None:
    """The array of most elements."""
    found = [match[1] for name in names if (match := _NAME.match(name))]
    return max(set(found), key=found.count) if found else None


def _lines(name: str, arrays: ReferenceArrays, index: tuple[int, ...]) -> Iterator[tuple[list[str], Vector]]:
    """Lines of an array along each of its axes, at some of the asked element's indices: (names of elements, values)."""
    values = arrays.values(name)
    if values is None:
        return
    axes = values.ndim
    for axis in reversed(range(axes)):
        for at in dict.fromkeys(permutations(index, axes - 1)):
            rest: list[Any] = [*at[:axis], slice(None), *at[axis:]]
            if all(isinstance(i, slice) or i < values.shape[n] for n, i in enumerate(rest)):
                line = values[tuple(rest)].astype(np.float64)
                places = ([*at[:axis], k, *at[axis:]] for k in range(len(line)))
                yield [f"{name}[{','.join(map(str, place))}]" for place in places], line


def _against(product: Cause, a_names: Sequence[str], b_names: Sequence[str]) -> Iterator[str]:
    """How the pairs that the machine multiplied differ from those that make the reference."""
    wanted, got = list(zip(a_names, b_names)), list(zip(*product.operands))
    yield f"the reference is {summary(a_names)} times {summary(b_names)}"
    left = set(wanted)
    at = next((n for n, pair in enumerate(got) if pair not in left), None)
    missing = [pair for pair in wanted if pair not in set(got)]
    besides = [pair for pair in got if pair not in left]
    extra = len(got) - len(set(got))
    if at is not None:
        yield f"the first product that is not in it: number {at}, {got[at][0]} times {got[at][1]}"
    if besides and not missing:
        yield f"{BESIDES}: {summary([a for a, _ in besides])} by {summary([b for _, b in besides])}"
    if missing:
        yield f"{MISSING}: {summary([a for a, _ in missing])} by {summary([b for _, b in missing])}"
    if extra:
        twice = [pair for n, pair in enumerate(got) if pair in set(got[:n])]
        yield f"multiplied more than once here: {summary([a for a, _ in twice])} by {summary([b for _, b in twice])}"
