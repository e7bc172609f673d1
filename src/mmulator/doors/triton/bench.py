"""Benchmarks: a function runs once, and its time is that of the clock of counted work (driver/streams.py)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mmulator.driver import current
from mmulator.driver.streams import LAUNCH, measuring
from mmulator.errors import UnsupportedError

Times = float | list[float]


def counted() -> float:
    """Seconds of counted work so far, of all streams."""
    return sum(stream.seconds for stream in current().streams.values())


def measure(
    fn: Callable[[], Any], grad_to_none: Sequence[Any] | None = None, quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Times:  # fmt: skip
    """Milliseconds of one run of a function, in the form in which triton.testing.do_bench returns them. A function that
    launches nothing
    takes as long as an empty launch. Raises ValueError for a wrong quantile.
    """
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"return_mode is {return_mode!r}, not min, max, mean, median or all")
    for x in grad_to_none or ():
        x.grad = None
    before = counted()
    fn()
    milliseconds = round(1e3 * max(counted() - before, LAUNCH), 9)  # sums of floats differ in the last digits
    if quantiles is not None:
        if not all(0 <= q <= 1 for q in quantiles):
            raise ValueError("Quantiles must be in the range [0, 1]")
        return milliseconds if len(quantiles) == 1 else [milliseconds] * len(quantiles)
    return [milliseconds] if return_mode == "all" else milliseconds


def warn_left_out(error: UnsupportedError) -> None:
    """Warn that a configuration which needs something unsupported is not chosen."""
    warnings.warn(f"a configuration is left out: {error.message}", RuntimeWarning, stacklevel=3)


def benchmark(fn: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **_: Any) -> Times:
    """Time by which autotuners judge a configuration. One that needs something unsupported is slower than all others, with a
    warning.
    """
    token = measuring.set(_is_autotuners(fn))
    try:
        return measure(fn, quantiles=quantiles)
    except UnsupportedError as error:
        warn_left_out(error)
        return [float("inf")] * len(quantiles) if quantiles is not None and len(quantiles) > 1 else float("inf")
    finally:
        measuring.reset(token)


def _is_autotuners(fn: Callable[[], Any]) -> bool:
    """Whether a function is Triton's own, which launches one configuration; the one that is chosen runs once more."""
    return getattr(fn, "__qualname__", "") == "Autotuner._bench.<locals>.kernel_call"
