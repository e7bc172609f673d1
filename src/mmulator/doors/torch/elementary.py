"""exp, tanh, erf, log, GELU, sigmoid, silu and square roots with the bits of CUDA's functions of f32.

f16 and bf16 are computed in f32, and rounded once. On an NVIDIA H200 (torch 2.11, CUDA 13.0) all 81,939 results in f32, and those
of all 65,536 numbers of f16 and bf16, had the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mmulator.matrix.twin.sfu import functions

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_NAN = np.uint32(0x7FFFFFFF)


def single(x: Any) -> Any:
    """The elements of a tensor of f16, bf16 or f32, as an f32 array that lies together."""
    return x.float().contiguous().numpy()


def tensor(made: Any, dtype: torch.dtype, *shape: int) -> Any:
    """A tensor of an f32 array, rounded to a type. Its NaNs become a GPU's."""
    made = np.asarray(made)
    if np.isnan(made.sum(dtype=np.float32)):  # there may be some
        made.view(np.uint32)[np.isnan(made)] = _NAN
    found = torch.from_numpy(made).view(shape).to(dtype)
    if dtype == torch.bfloat16:
        found.view(torch.int16)[found.isnan()] = 0x7FFF  # torch's conversion on the CPU makes another NaN
    return found


def _by(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: tensor(formula(single(x)), x.dtype, *x.shape) if x.dtype in FLOATS else None


def _of(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return _by(lambda x: functions.function(function)(x))


_gelu, _gelu_by_tanh = _of(functions.gelu), _of(functions.gelu_by_tanh)


def gelu(x: Any, *, approximate: str = "none") -> Any:
    return (_gelu_by_tanh if approximate == "tanh" else _gelu)(x)


_ONE = {name: _of(getattr(functions, name)) for name in ("exp", "tanh", "erf", "log", "sigmoid", "silu")}
FORMULAS: dict[str, Callable[..., Any]] = {
    name + end: formula for name, formula in (_ONE | {"sqrt": _by(np.sqrt), "gelu": gelu}).items() for end in ("", "_", ".out")
}
