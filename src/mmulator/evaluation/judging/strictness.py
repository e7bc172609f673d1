"""The worth of a reference: whether a kernel that does nothing would pass it, and what an output says of how it was computed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from mmulator.base.interop import is_float
from mmulator.host.jobs.comparison import Expectation, compare

_NARROWER = {"float32": (np.float16, bfloat16), "float64": (np.float32,)}
_ENOUGH = 16  # elements
_MOST = 0.9  # of all elements: a few exact ones do not hide the others


def passes_without_work(
    expect: Expectation, arrays: Mapping[str, np.ndarray], inputs: Sequence[str], other: Callable[[], Mapping[str, Any] | None]
) -> dict[str, str]:
    """Outputs that a kernel gets right which reads nothing, each with what such a kernel stores.

    expect: the reference.
    arrays: the arguments.
    inputs: the arguments that are no outputs. Without any there is nothing to read.
    other: the reference for other inputs; None if there are none.
    """
    found = {name: "what has no elements" for name, want in expect.arrays.items() if not want.size}
    if not inputs:
        return found
    elsewhere = other()
    for name, want in expect.arrays.items():
        like = arrays[name]
        tries: dict[str, np.ndarray] = {"zeros": np.zeros(like.shape, like.dtype)}
        if is_float(like.dtype) and want.dtype == like.dtype and np.isnan(want.astype(np.float64)).all():
            tries["NaN everywhere"] = want
        if elsewhere is not None and name in elsewhere and elsewhere[name].shape == like.shape:
            there = elsewhere[name]
            tries["what is right for other inputs"] = there if there.dtype == like.dtype else there.astype(like.dtype)
            if expect.tolerance and is_float(like.dtype) and like.size:
                mean = np.nanmean(there.astype(np.float64)) if np.isfinite(there.astype(np.float64)).any() else 0.0
                tries["one number everywhere"] = np.full(like.shape, mean).astype(like.dtype)
        for what, tried in tries.items():
            if like.size and compare(name, tried, want, expect.tolerance).ok:
                found[name] = what
                break
    return found


def narrowed(name: str, got: np.ndarray, want: np.ndarray) -> str:
    """A sentence about an output whose elements all have the precision of a narrower type, though the reference's have not."""
    with np.errstate(all="ignore"):
        for narrow in _NARROWER.get(got.dtype.name, ()):
            finite = np.isfinite(got) & (got != 0)
            if finite.sum() < _ENOUGH or want.dtype != got.dtype:
                return ""
            same, meant = (((a.astype(narrow).astype(a.dtype)) == a)[finite] for a in (got, want))
            if same.mean() >= _MOST and meant.mean() < 0.5:
                share = "only values" if same.all() else f"{same.mean():.0%} values"
                return f"{name} has {share} of {np.dtype(narrow).name}, the reference has not"
    return ""
