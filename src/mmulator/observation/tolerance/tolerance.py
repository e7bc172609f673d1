"""The tolerance that a launch's arithmetic justifies: how far each stored element may be from its exact value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import LaunchError
from mmulator.base.refusals import number
from mmulator.host.jobs.job import Job
from mmulator.host.jobs.maps import resolve
from mmulator.host.module import Kernel
from mmulator.observation.record.memory import stores_to
from mmulator.observation.record.names import DeviceArray
from mmulator.observation.same.comparison import deep
from mmulator.observation.same.control import note_control
from mmulator.observation.same.expressions import Expressions, Uncovered
from mmulator.observation.same.graph import ExpressionGraph
from mmulator.observation.same.side import Side
from mmulator.observation.tolerance.bounds import NodeBounds

DIGITS = 2  # of rtol and atol
MOST = 1 << 15  # elements at once: each takes up to 60 KB, and a tenth of a second for long sums


@dataclass(frozen=True)
class RoundingTolerance:
    """How far the elements of a launch's result may be from exact ones.

    output: the name of the array.
    rtol, atol: for all elements with a bound, `abs(result - exact) <= atol + rtol * abs(exact)`; inf where none has one.
    bound: rigorous bounds of the rounding errors, float64 in the output's shape; inf where there is none, 0 of
        elements that were not stored.
    error: the errors of this run, |result - exact|, float64 in the output's shape; NaN where there is no bound.
    exact: exact results, float64.
    unbounded: number of elements without a bound.
    reason: why the first of these has none.
    rests_on: what the bounds hold for: choices and addresses that depend on inputs are those of these inputs.
    """

    output: str
    rtol: float
    atol: float
    bound: NDArray[np.float64] = field(repr=False)
    error: NDArray[np.float64] = field(repr=False)
    exact: NDArray[np.float64] = field(repr=False)
    unbounded: int = 0
    reason: str = ""
    rests_on: tuple[str, ...] = ()

    def __str__(self) -> str:
        count = self.bound.size - self.unbounded
        said = [f"{self.output}: {number(count, 'element')} with a bound"]
        if count:
            worst, most = float(np.max(self.bound[np.isfinite(self.bound)])), float(np.nanmax(self.error))
            said[0] += f": rtol={self.rtol:g}, atol={self.atol:g}"
            said.append(f"largest bound {worst:.3g}, largest error of this run {most:.3g}")
        if self.unbounded:
            said.append(f"{number(self.unbounded, 'element')} without: {self.reason}")
        return "\n".join([*said, *(f"holds for these inputs: {one}" for one in self.rests_on)])

    def as_dict(self) -> dict[str, Any]:
        """The tolerance as JSON can hold it."""
        finite = np.isfinite(self.bound)
        return {
            "output": self.output, "rtol": _finite(self.rtol), "atol": _finite(self.atol), "elements": self.bound.size,
            "unbounded": self.unbounded, "reason": self.reason, "rests_on": list(self.rests_on),
            "largest_bound": float(np.max(self.bound[finite])) if finite.any() else None,
            "largest_error": float(np.max(self.error[finite])) if finite.any() else None,
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def tolerance(
    kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], output: str | int | None = None, shared: int = 0,
    device: str | None = None, cluster: Any = None,
) -> RoundingTolerance:  # fmt: skip
    """The tolerance that a launch's arithmetic justifies for one of its arrays.

    Each stored element is followed back to the inputs, and each operation on the way adds its largest rounding error: half a unit
    in the last place, the bits that a tensor core cuts, the error that the specification gives an approximate function. The
    inputs are taken as exact.

    kernel: the kernel.
    grid, block: blocks of the grid, threads of a block (int, or up to three).
    args: one for each parameter, as `Kernel.launch` takes them; arrays keep their values.
    output: the parameter's name or number; default: the last array of floating point that the launch stores to.
    shared: dynamic shared bytes.
    device: whose arithmetic; default: that of .target.
    cluster: blocks of a cluster.

    Raises LaunchError if the output is no array of floating point that the launch stores to, or has more than 32,768 elements;
    else as `Kernel.launch`.
    """
    given = {"grid": grid, "block": block, "args": args, "shared": shared, "cluster": cluster}
    found = tolerances(kernel, given, device, None if output is None else [output])
    if not found:
        others = [] if output is None else [t.output for t in tolerances(kernel, given, device).values()]
        which = "" if output is None else f" {output}"
        raise LaunchError(
            f"tolerance: the launch stores to no array{which} of floating point",
            hint=f"it stores to {', '.join(others)}" if others else "",
        )  # fmt: skip
    return found[max(found)]


def tolerances_of_job(kernel: Kernel, job: Job, outputs: Sequence[str] | None = None) -> dict[str, RoundingTolerance]:
    """The tolerances of arrays that the launch of a job stores to, by name. kernel: of the job, with its variables set.

    outputs: names; None: all. Raises UnsupportedError where the launch is not followed.
    """
    own = job.arrays()
    given = {"grid": job.grid, "block": job.block, "args": [resolve(a.value, own) for a in job.arguments], "shared": job.shared,
             "cluster": job.cluster, "memory": job.placed()}  # fmt: skip
    names = {n: a.name for n, a in enumerate(job.arguments) if outputs is None or a.name in outputs}
    return {names[n]: t for n, t in tolerances(kernel, given, job.device, [*names]).items()}


def tolerances(
    kernel: Kernel, given: Mapping[str, Any], device: str | None, outputs: Sequence[str | int] | None = None
) -> dict[int, RoundingTolerance]:
    """The tolerances of arrays of floating point that a launch stores to, by the numbers of their parameters, which rise.

    kernel: the kernel.
    given: `grid`, `block`, `args`, `shared`, `cluster`, as `tolerance` has them; `memory`, as `Kernel.launch`.
    device: whose arithmetic.
    outputs: names or numbers of parameters; None: all.
    """
    side = Side(kernel, given, device)
    names = {n: place.name for n, place in side.places}
    before = {n: a.copy() for n, a in side.arrays.items()}
    with deep():
        graph = ExpressionGraph()
        made, left = side.expressions(graph, {n: n for n in side.arrays})
        asked = {
            n: place for n, place in side.places
            if left[n].dtype.kind in "fV" and (outputs is None or n in outputs or names[n] in outputs)
            and stores_to(made.trail, place.start, place.start + place.size)
        }  # fmt: skip
        if (count := sum(left[n].size for n in asked)) > MOST:
            raise LaunchError(
                f"tolerance: the launch stores to {number(count, 'element')} of floating point; at most {MOST:,} are followed",
                hint="take a smaller launch: bounds grow with the length of sums, and not with the number of elements",
            )
        wanted = {n: _nodes(graph, made, place, left[n]) for n, place in asked.items()}
        note_control(made)
    rests = tuple(f"{what} at {at} depends on inputs" for at, what in made.leans.items())
    bounds = NodeBounds(graph, before)
    return {n: _found(names[n], left[n], bounds, *nodes, rests) for n, nodes in wanted.items()}


def _nodes(graph: ExpressionGraph, made: Expressions, place: DeviceArray, result: np.ndarray) -> tuple[NDArray[np.int64], str]:
    """The nodes of an array's elements, -1 of those that are not followed; and why the first of these is not."""
    raw, nodes, reason = result.reshape(-1).view(np.uint8), np.empty(result.size, np.int64), ""
    for n in range(result.size):
        at = n * place.itemsize
        bits = int.from_bytes(raw[at : at + place.itemsize].tobytes(), "little")
        try:
            nodes[n] = graph.whole(made.stored(place.start + at, place.itemsize, bits))
        except Uncovered as error:
            nodes[n], reason = -1, reason or error.message
    return nodes, reason


def _found(
    name: str, result: np.ndarray, bounds: NodeBounds, nodes: NDArray[np.int64], reason: str, rests: tuple[str, ...]
) -> RoundingTolerance:
    found = bounds.results(nodes, str(result.dtype))
    exact = found.value.astype(np.float64).reshape(result.shape)
    with np.errstate(all="ignore"):
        got = result.reshape(-1).astype(np.float64).astype(np.longdouble)
        error = np.abs(got - found.value).astype(np.float64).reshape(result.shape)
        bound = (found.bound + found.slack).reshape(result.shape)
    bound = np.where(np.isfinite(bound), bound, np.inf)
    finite = np.isfinite(bound)
    rtol, atol = _tolerances(np.abs(exact[finite]), bound[finite])
    none = np.flatnonzero(~finite)
    without = next((int(nodes[n]) for n in none if nodes[n] >= 0), None)
    if without is not None:
        reason = bounds.reason(without)
    return RoundingTolerance(name, rtol, atol, bound, np.where(finite, error, np.nan), exact, len(none), reason, rests)


def _tolerances(size: NDArray[np.float64], bound: NDArray[np.float64]) -> tuple[float, float]:
    """rtol and atol: rtol covers the larger half of the elements, atol what it leaves of the others."""
    if not size.size:
        return math.inf, math.inf
    large = (size >= np.median(size)) & (size > 0)
    rtol = _up(float(np.max(bound[large] / size[large]))) if large.any() else 0.0
    return rtol, _up(float(np.max(np.maximum(bound - rtol * size, 0))))


def _up(value: float) -> float:
    """A number that is not less, of few digits."""
    if not value or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-15)) * unit:.{DIGITS + 2}g}")
