"""exp, sigmoid, silu and square roots with the bits of CUDA's functions of f32; and which other operators may have other bits.

CUDA's expf is 2 to the power of x log2(e), by the GPU's ex2.approx for the part of the exponent between -1/2 and 1/2. f16 and
bf16 are computed in f32, and rounded once. On an NVIDIA H200 (torch 2.11, CUDA 13.0) all 131,072 results in f32, and those of all
65,536 numbers of f16 and bf16, had the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mmulator.doors.torch import dispatch
from mmulator.host.driver.products import products
from mmulator.matrix.instruction.cublas import fused
from mmulator.matrix.twin.sfu.arrays import evaluate

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_LOG2_E, _REST = np.float32(1.4426950216293335), np.float32(1.9259630335e-08)  # their sum is log2(e)
_RANGE, _MOST = np.float32(252), 12582913  # powers of 2 that are told apart, from 2**-126 on; 1.5 * 2**23 + 1
_PER_STEP = np.float32(0.0057249801)  # log2(e) / 252
_NAN = np.uint32(0x7FFFFFFF)
_PIECE = 1 << 14  # elements whose copies stay in the processor's caches


def _exp(x: Any) -> Any:
    part = fused(x, _PER_STEP, 0.5)
    part = np.clip(np.where(np.isnan(part), np.float32(0), part), 0, 1)
    power = (np.floor(part.astype(np.float64) * _RANGE) + _MOST).astype(np.float32)
    rest = fused(x, _REST, fused(x, _LOG2_E, np.float32(_MOST + 126) - power))
    scale = (power.view(np.uint32) << np.uint32(23)).view(np.float32)
    return evaluate("ex2", rest.view(np.uint32), ftz=True).view(np.float32) * scale


def _by(formula: Any) -> Any:
    """An operator's formula for tensors, of one for f32 arrays of NumPy's."""

    def run(x: Any) -> Any:
        if x.dtype not in _FLOATS:
            return None
        given = x.float().contiguous().numpy().reshape(-1)
        made = np.empty_like(given)
        with np.errstate(all="ignore"):
            for at in range(0, given.size, _PIECE):
                made[at : at + _PIECE] = formula(given[at : at + _PIECE])
        made.view(np.uint32)[np.isnan(made)] = _NAN
        found = torch.from_numpy(made).view(x.shape).to(x.dtype)
        if x.dtype == torch.bfloat16:
            found.view(torch.int16)[found.isnan()] = 0x7FFF  # torch's conversion on the CPU makes another NaN
        return found

    return run


_ONE = np.float32(1)
exp, square_root = _by(_exp), _by(np.sqrt)
sigmoid, silu = _by(lambda x: _ONE / (_ONE + _exp(-x))), _by(lambda x: x / (_ONE + _exp(-x)))
FORMULAS = {
    name + end: formula
    for name, formula in {"exp": exp, "sigmoid": sigmoid, "silu": silu, "sqrt": square_root}.items() for end in ("", "_")
}  # fmt: skip

# Operators of which results on an H200 differed in some bits, and why. Of f32 alone, or of these types.
POLYNOMIAL, TREE = "CUDA's polynomial is not written here", "the order of torch's sums on CUDA is not written here"
_SINGLE = (torch.float32,)
DOUBTFUL: dict[str, tuple[tuple[torch.dtype, ...], str]] = {
    "tanh": (_SINGLE, POLYNOMIAL), "log": (_SINGLE, POLYNOMIAL), "erf": (_SINGLE, POLYNOMIAL), "gelu": (_FLOATS, POLYNOMIAL),
    "_softmax": (_FLOATS, TREE), "_log_softmax": (_FLOATS, TREE), "native_layer_norm": (_FLOATS, TREE),
    "sum": (_SINGLE, TREE), "sum.dim_IntList": (_SINGLE, TREE), "mean": (_SINGLE, TREE), "mean.dim": (_SINGLE, TREE),
    "_fused_rms_norm": (_FLOATS, TREE),
}  # fmt: skip


def _counted(name: str, run: dispatch.Kernel) -> dispatch.Kernel:
    types, why = DOUBTFUL[name]
    told = name.partition(".")[0].removeprefix("_").removeprefix("native_")

    def call(*args: Any, **kwargs: Any) -> Any:
        if args and args[0].dtype in types:
            products().operator(f"{told} {str(args[0].dtype).removeprefix('torch.')}", why)
        return run(*args, **kwargs)

    return call


def counted(special: dict[str, dispatch.Kernel]) -> dict[str, dispatch.Kernel]:
    """The kernels of doubtful operators, which count their calls for the report. special: kernels that are not the CPU's."""
    names = {f"aten::{name}": name for name in DOUBTFUL if torch._C._dispatch_has_kernel(f"aten::{name}")}
    return {full: _counted(name, special.get(full) or dispatch.kernel(full)) for full, name in names.items()}
