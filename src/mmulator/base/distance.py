"""Distances between values of arrays, in steps of their type."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.interop import is_float

Array = NDArray[Any]


def distances(a: Array, b: Array) -> Array:
    """Steps from one value to the other among the values of the type, +0 and -0 being one; for integers the difference."""
    if not is_float(a.dtype):
        wide = np.uint64 if a.dtype.kind == "u" else np.int64
        x, y = a.astype(wide), b.astype(wide)
        return np.where(x > y, x.astype(np.uint64) - y.astype(np.uint64), y.astype(np.uint64) - x.astype(np.uint64))
    x, y = _ordered(a), _ordered(b)
    return np.where(x > y, x.view(np.uint64) - y.view(np.uint64), y.view(np.uint64) - x.view(np.uint64))


def _ordered(values: Array) -> Array:
    """Positions (int64) of the values of a float type in ascending order."""
    import ml_dtypes

    size = values.dtype.itemsize
    finfo: Any = ml_dtypes.finfo
    about = finfo(values.dtype)
    raw = np.ascontiguousarray(values).view(f"u{size}").astype(np.uint64)
    if float(about.min) >= 0:  # scale factors have no sign
        return np.asarray(raw.astype(np.int64))
    sign = np.uint64(1 << (about.bits - 1))
    magnitude = (raw & (sign - np.uint64(1))).astype(np.int64)
    return np.where((raw & sign) != 0, -magnitude, magnitude)
