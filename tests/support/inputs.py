"""Inputs by seed: the bytes of a kernel argument, as the manifests of tests/ describe it.

An array argument is `["in" | "inout" | "out" | "scratch", type, shape]`, with `{"seed": s, "dist": d}` for the
first two. The generator is `numpy.random.default_rng(seed)`:

    "normal"                  standard_normal(shape, float32), converted to the type, round to nearest even
    "uniform"                 random(shape, float32), likewise
    ["integers", low, high]   integers(low, high, shape), low included and high not
    "bits"                    integers(0, 2**width, shape), the type's raw bits
    "arange"                  0, 1, 2, ... (no generator)
    ["values", v, ...]        the values themselves (no generator)
"""

import hashlib
from typing import Any

import ml_dtypes
import numpy as np

DTYPE: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
}


def values(dtype: str, shape: list[int], spec: dict[str, Any]) -> np.ndarray:
    """The array `spec` describes."""
    kind = np.dtype(DTYPE[dtype])
    dist = spec["dist"]
    rng = np.random.default_rng(spec.get("seed"))
    match dist:
        case "normal":
            return rng.standard_normal(shape, dtype=np.float32).astype(kind)
        case "uniform":
            return rng.random(shape, dtype=np.float32).astype(kind)
        case ["integers", low, high]:
            return rng.integers(low, high, shape).astype(kind)
        case "bits":
            word = np.dtype(f"u{kind.itemsize}")
            return rng.integers(0, 2 ** (8 * kind.itemsize) - 1, shape, dtype=word, endpoint=True).view(kind)
        case "arange":
            return np.arange(np.prod(shape)).reshape(shape).astype(kind)
        case ["values", *listed]:
            return np.array(listed, dtype=kind).reshape(shape)
    raise ValueError(f"unknown distribution {dist!r}")


def argument_bytes(arg: list[Any]) -> np.ndarray:
    """The bytes an array argument holds before the launch (uint8); `out` arrays are zero."""
    if arg[0] in ("out", "scratch"):
        return np.zeros(int(np.prod(arg[2])) * np.dtype(DTYPE[arg[1]]).itemsize, np.uint8)
    return np.ascontiguousarray(values(arg[1], arg[2], arg[3])).reshape(-1).view(np.uint8)


def digest(data: np.ndarray) -> str:
    """First 16 digits of the SHA-256 of an array's bytes."""
    return hashlib.sha256(data.tobytes()).hexdigest()[:16]
