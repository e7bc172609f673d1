"""An array against its reference: bits, distances in ULPs, tolerances, and where the wrong elements lie."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import LaunchError
from mmulator.interop import is_float
from mmulator.jobs.pattern import Accumulator, where_wrong

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
    from mmulator.distance import distances

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
