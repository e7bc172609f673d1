"""An array against its reference: bits, distances in ULPs, tolerances, and where the wrong elements lie.

Of the places only facts are said, runs and periods of rows and columns, lanes and registers of accumulators: a sentence holds for
every wrong element, and tells how many of the elements it speaks of are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.base.interop import is_float

if TYPE_CHECKING:
    from mmulator.isa.form import Form

Array = NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """How far a value may be from its reference. An element passes if its bits are equal, or if one of the given tolerances
    allows it.

    largest: allowed difference as a part of the largest absolute value of the reference.
    relative, absolute: |got - want| <= absolute + relative * |want|.
    ulp: allowed steps between neighbouring values of the type.
    """

    largest: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    ulp: int = 0

    def __bool__(self) -> bool:
        return any((self.largest, self.relative, self.absolute, self.ulp))


@dataclass
class Expectation:
    """Expected arrays by argument name. source: where they come from. file: what messages call it."""

    arrays: dict[str, Array]
    tolerance: Tolerance = field(default_factory=Tolerance)
    source: str = ""
    file: str = "the reference"


@dataclass(frozen=True)
class Comparison:
    """One output against its reference.

    wrong: how many elements differ in bits.
    ok: all elements are within the tolerance.
    beyond: how many elements are not.
    first: index of the first wrong element, of those beyond the tolerance if there are any.
    got, want: values there.
    worst: largest difference, as a part of `largest`; the difference itself if `largest` is 0.
    largest: largest absolute value of the reference.
    most: the largest distance of finite values, in steps of the type; for integers the largest difference.
    ulps: (distance, elements) pairs, in steps of the type; for integers the difference.
    specials: elements that are NaN or infinite on one side only.
    where: sentences about the places of the wrong elements.
    """

    name: str
    size: int
    wrong: int
    first: tuple[int, ...] | None
    got: Any
    want: Any
    worst: float
    ok: bool
    beyond: int = 0
    ulps: tuple[tuple[str, int], ...] = ()
    specials: int = 0
    where: tuple[str, ...] = ()
    largest: float = 0.0
    most: int = 0


def check_expectation(expect: Expectation, given: Mapping[str, Array]) -> None:
    """Check, before the launch, that every reference has an array of its name, shape and dtype. Raises LaunchError."""
    if not expect.arrays:
        raise LaunchError(
            f"{expect.file} has no arrays: nothing would be compared", hint="numpy.savez(file, NAME=array) writes them by name"
        )
    for name, want in expect.arrays.items():
        got = given.get(name)
        if got is None:
            raise LaunchError(
                f"{expect.file} has an array {name!r}, but no array argument has that name",
                hint="array arguments: " + (", ".join(given) or "none") + "; NAME= before an argument names it",
            )
        _check_alike(name, got, want, bool(expect.tolerance), expect.file)


def _check_alike(name: str, got: Array, want: Array, close: bool, file: str) -> None:
    said = f"the reference of {name} in {file} is {want.dtype} {want.shape}, {name} is {got.dtype} {got.shape}"
    if want.shape != got.shape:
        raise LaunchError(said, hint="shapes must be equal: reshape or transpose the reference")
    raw = want.dtype.itemsize == got.dtype.itemsize and want.dtype.kind in "Vu" and want.dtype.names is None
    numbers = want.dtype.kind in "fiu" or is_float(want.dtype)
    if want.dtype != got.dtype and not raw and not (close and numbers):
        hint = f"save it as {got.dtype}" + ("" if not numbers or close else ", or say what is close: --rtol, --atol, --ulp")
        raise LaunchError(said + ": their bits cannot be compared", hint=hint)


def compare(
    name: str, got: Array, want: Array, tolerance: Tolerance, accumulators: Callable[[], Sequence[Accumulator]] = tuple
) -> Comparison:
    """Compare an output with its reference, first by bits, then by values.

    name: of the argument.
    got: the output.
    want: the reference, of the same shape, or the raw bits of `got`'s dtype.
    tolerance: what passes besides equal bits.
    accumulators: function that returns the layouts of the kernel's matrix results; called if bits differ.
    """
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    raw = want.dtype.itemsize == got.dtype.itemsize and want.dtype.kind in "Vu"
    want = want.view(got.dtype) if raw and want.dtype != got.dtype else want
    exact = want.dtype == got.dtype
    if exact:
        size = got.dtype.itemsize
        different = got.view(f"u{size}") != want.view(f"u{size}") if size in (1, 2, 4, 8) else _bytes_differ(got, want)
    else:
        different = got.astype(np.float64) != want.astype(np.float64)
    wrong = int(different.sum())
    if not wrong:
        return Comparison(name, got.size, 0, None, None, None, 0.0, True)
    steps, specials, worst, largest, passed = _distances(got, want, different, tolerance)
    beyond = different & ~passed if tolerance else different
    shown = beyond if beyond.any() else different
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(shown)), got.shape))
    return Comparison(
        name, got.size, wrong, first, got[first].item(), want[first].item(), worst, not beyond.any(), int(beyond.sum()),
        _histogram(steps[different & ~specials]), int(specials.sum()), where_wrong(shown, accumulators()), largest,
        int(np.max(steps[different & ~specials], initial=0)),
    )  # fmt: skip


def _bytes_differ(got: Array, want: Array) -> Array:
    rows = (x.reshape(-1).view(np.uint8).reshape(got.size, -1) for x in (got, want))
    a, b = rows
    return np.asarray((a != b).any(axis=1).reshape(got.shape))


def _distances(got: Array, want: Array, different: Array, t: Tolerance) -> tuple[Array, Array, float, float, Array]:
    """(ULPs, NaN or Inf on one side, largest difference as a part of the largest reference, that reference, what the tolerance
    passes).
    """
    from mmulator.base.distance import distances

    if got.dtype.kind not in "biuf" and not is_float(got.dtype):  # structs: bits alone
        none = np.zeros(got.shape, bool)
        return np.zeros(got.shape, np.uint64), none, 0.0, 0.0, none
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(g) & np.isfinite(w)
        apart = np.where(finite, np.abs(g - w), 0.0)
        largest = float(np.max(np.abs(w[finite]), initial=0.0))
        scale = largest or 1.0
        same = (np.isnan(g) & np.isnan(w)) | (g == w)  # NaNs of any payload, infinities of one sign
        steps = distances(got, want.astype(got.dtype))
        if got.dtype.kind in "iu" and want.dtype.kind in "iu":  # which float64 rounds, from 2^53 on
            apart, same = steps.astype(np.float64), steps == 0
        passed = same | (finite & ((t.largest > 0) & (apart <= t.largest * scale)))
        passed |= finite & ((t.relative > 0) | (t.absolute > 0)) & (apart <= t.absolute + t.relative * np.abs(w))
        passed |= finite & (t.ulp > 0) & (steps <= t.ulp)
    return steps, different & ~finite & ~same, float(np.max(apart, initial=0.0)) / scale, largest, passed


def _histogram(steps: Array) -> tuple[tuple[str, int], ...]:
    """(distance, elements) for the distances 0 (signs of zeros), 1, 2, up to 4, 16, 256, 65536, and the largest."""
    out = []
    low = 0
    for high in (0, 1, 2, 4, 16, 256, 65536):
        count = int(((steps >= low) & (steps <= high)).sum())
        if count:
            out.append((str(high) if low == high else f"{low} to {high}", count))
        low = high + 1
    rest = steps[steps >= low]
    return (*out, *((((f"up to {int(rest.max()):,}"), len(rest)),) if len(rest) else ()))


_FEW = 6  # wrong elements that are listed one by one
_PERIODS = tuple(1 << n for n in range(1, 10))


@dataclass(frozen=True)
class Accumulator:
    """The holder of each element of a matrix instruction's result: lane, register and index of every [row, column]."""

    name: str
    lane: Array
    register: Array
    index: Array
    lanes: int
    registers: int
    per_register: int


def accumulator(form: Form) -> Accumulator | None:
    """The layout of an instruction's result d; None for an instruction without a result in registers."""
    from mmulator.matrix.layouts import fragment

    if not form.dtype:
        return None
    try:
        f = fragment(form, "d")
    except (MmulatorError, KeyError):
        return None
    if f.copies > 1 or f.lanes * f.registers * f.per_register != f.rows * f.columns:  # several holders of an element
        return None
    places = np.indices(f.maps[0].shape)
    rows, columns = f.maps[1].reshape(-1), f.maps[2].reshape(-1)
    own = rows >= 0
    lane, register, index = (_table(np.asarray(v), rows, columns, own, (f.rows, f.columns)) for v in places)
    return Accumulator(str(form), lane, register, index, f.lanes, f.registers, f.per_register)


def _table(values: Array, rows: Array, columns: Array, own: Array, shape: tuple[int, int]) -> Array:
    """Values of the registers' places at the elements that lie there."""
    table = np.zeros(shape, np.int64)
    table[rows[own], columns[own]] = values.reshape(-1)[own]
    return table


def accumulators(forms: Iterable[Form]) -> tuple[Accumulator, ...]:
    """Layouts of the results of several instructions, one of those that differ in their names alone."""
    out: dict[bytes, Accumulator] = {}
    for form in dict.fromkeys(forms):
        found = accumulator(form)
        if found is not None:
            out.setdefault(found.lane.tobytes() + found.register.tobytes() + found.index.tobytes(), found)
    return tuple(out.values())


@dataclass(frozen=True)
class Part:
    """Some of the numbers 0 to n - 1 in words, and which they are."""

    text: str
    own: Array

    @property
    def share(self) -> float:
        return float(self.own.mean())


def part_of(values: Array, limit: int) -> Part | None:
    """The narrowest simple set that holds the values: one number, a run, a residue or a run of residues. None if no such set
    does.
    """
    low, high = int(values.min()), int(values.max())
    numbers = np.arange(limit)
    run = (numbers >= low) & (numbers <= high)
    text = str(low) if low == high else f"{low} to {high}"
    best = Part(text, run)
    for period in _PERIODS:
        if period * 2 > limit:
            break
        left = np.unique(values % period)
        first, last = int(left[0]), int(left[-1])
        residues = (numbers % period >= first) & (numbers % period <= last)
        name = f"{first} mod {period}" if first == last else f"{first} to {last} mod {period}"
        both = residues & run
        whole = run.mean() > 0.75
        found = Part(name, residues) if whole else Part(f"{name} of {text}", both)
        if last - first + 1 <= period // 2 and found.own.sum() * 1.5 < best.own.sum():
            best = found
    return best if best.share <= 0.75 else None


def where_wrong(wrong: Array, accumulators: Sequence[Accumulator] = ()) -> tuple[str, ...]:
    """Sentences about the places of the wrong elements.

    wrong: boolean array, True where an element is wrong.
    accumulators: layouts of the results of the kernel's matrix instructions.
    """
    count = int(wrong.sum())
    if wrong.ndim == 0 or not count:
        return ()
    if count == wrong.size:
        return ("every element",) if count > 1 else ()
    if count > 0.95 * wrong.size:
        return (f"every element but {wrong.size - count:,}",)
    at = np.argwhere(wrong)
    out = []
    if count <= _FEW:
        out.append("at " + ", ".join(str([int(i) for i in place]) for place in at))
    else:
        names = {1: ("index",), 2: ("row", "column")}.get(wrong.ndim) or tuple(f"axis {n}" for n in range(wrong.ndim))
        out += _axes(at, wrong.shape, names, count)
    if len(accumulators) == 1 and wrong.ndim >= 2:
        out += _held(at, wrong.shape, accumulators[0], count)
    return tuple(out)


def _axes(at: Array, shape: Sequence[int], names: Sequence[str], count: int) -> list[str]:
    parts = [part_of(np.unique(at[:, n]), extent) for n, extent in enumerate(shape)]
    said = [f"{name} {p.text}" for name, p in zip(names, parts) if p is not None]
    if not said or not _told(parts, count):
        return ["no simple pattern of " + " and ".join(f"{n}s" if n != "index" else "indices" for n in names)]
    room = math.prod(int(p.own.sum()) if p else extent for p, extent in zip(parts, shape))
    return [f"{', '.join(said)}: {_of(count, room)}"]


def _told(parts: Sequence[Part | None], count: int) -> bool:
    """Whether a pattern is worth a sentence: so many elements would hardly lie so by chance."""
    share = math.prod(p.share for p in parts if p is not None)
    return share < 1 and -count * math.log(share) > 8


def _of(count: int, room: int) -> str:
    return f"all {room:,} elements there" if count == room else f"{count:,} of the {room:,} elements there"


def _held(at: Array, shape: Sequence[int], a: Accumulator, count: int) -> list[str]:
    """Sentences about lanes and registers, if the array consists of the instruction's tiles (the last of them may be cut)."""
    rows, columns = a.lane.shape
    if shape[-2] < rows or shape[-1] < columns:
        return []
    row, column = at[:, -2] % rows, at[:, -1] % columns
    tables = ((a.lane, a.lanes), (a.register, a.registers), (a.index, a.per_register))
    parts = [part_of(np.unique(table[row, column]), limit) if limit > 1 else None for table, limit in tables]
    if not any(parts) or (count > _FEW and not _told(parts, count)):
        return []
    names = ("lane", "register", "element of a register")
    text = ", ".join(f"{name} {p.text}" for name, p in zip(names, parts) if p is not None)
    if count > _FEW:
        there = np.ones((rows, columns), np.int64)
        for (table, _), p in zip(tables, parts):
            there *= 1 if p is None else p.own[table]
        often = (np.bincount(np.arange(extent) % n, minlength=n) for extent, n in zip(shape[-2:], (rows, columns)))
        down, across = often
        text += ": " + _of(count, int(math.prod(shape[:-2]) * (down @ there @ across)))
    return [f"as d of {a.name}, in tiles of {rows} x {columns} from the first element on: {text}"]


def where_in_registers(wrong: Array) -> str:
    """Sentence about the lanes and registers of the wrong words of results [executions, lanes, registers]; empty without a
    pattern.
    """
    if wrong.ndim != 3:
        return ""
    count = int(wrong.sum())
    at = np.argwhere(wrong)
    parts = [part_of(np.unique(at[:, n + 1]), wrong.shape[n + 1]) if wrong.shape[n + 1] > 1 else None for n in (0, 1)]
    if not any(parts) or (count > _FEW and not _told(parts, count)):
        return ""
    return ", ".join(f"{name} {p.text}" for name, p in zip(("lane", "register"), parts) if p is not None)
