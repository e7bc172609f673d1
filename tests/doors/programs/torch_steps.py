"""Digests of elementwise operators on cuda and of their gradients, by type and operator. Prints them as JSON.

On a machine with a GPU and torch for CUDA, `torch_steps.py gpu` prints those of the GPU.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

UNARY: dict[str, Callable[..., Any]] = {
    "tanh": torch.tanh, "relu6": F.relu6, "softsign": F.softsign, "tanhshrink": F.tanhshrink, "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish, "hardtanh": F.hardtanh, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.01), "selu": F.selu, "erf": torch.erf, "rsqrt": torch.rsqrt,
    "round_2": lambda x: torch.round(x, decimals=2), "pow3": lambda x: x**3, "pow_m1": lambda x: x**-1, "pow_m2": lambda x: x**-2,
    "pow_m05": lambda x: x**-0.5, "clamp": lambda x: x.clamp(-1.5, 2.5), "logit": lambda x: torch.logit(x, 1e-3),
    "add_s": lambda x: x + 1.1, "mul_s": lambda x: x * 1.1, "div_s": lambda x: x / 3.0, "rdiv": lambda x: 3.0 / x,
    "rsub": lambda x: 1 - x,
}  # fmt: skip
OTHERS: dict[str, Callable[..., Any]] = {
    "add_alpha": lambda a, b, c: torch.add(a, b, alpha=0.3), "sub_alpha": lambda a, b, c: torch.sub(a, b, alpha=0.3),
    "div": lambda a, b, c: a / b, "fmod": lambda a, b, c: torch.fmod(a, b), "remainder": lambda a, b, c: torch.remainder(a, b),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.3), "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.3),
    "addcmul_1": torch.addcmul, "lerp": lambda a, b, c: torch.lerp(a, b, 0.3), "lerp_t": torch.lerp,
    "mse": lambda a, b, c: F.mse_loss(a, b, reduction="none"), "mul_f32s": lambda a, b, c: a * torch.tensor(1.1),
    "gaussian": lambda a, b, c: F.gaussian_nll_loss(a, b, c.abs() + 0.1, reduction="none"),
}  # fmt: skip
SPECIAL = (
    0.0, -0.0, 1, -1, 3, -3, 6, -6, 0.5, -0.5, 2, -2, 20, -20, 20.000002, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.7, -103.9,
    2.9999998, -2.9999998, 3.0000002, -3.0000002,
)  # fmt: skip
FEW = 1 << 13


def inputs(dtype: torch.dtype) -> tuple[Any, Any, tuple[Any, ...]]:
    """All numbers of a narrow type or 16,026 of f32, upstream gradients, and three operands."""
    draw = np.random.default_rng(7)
    if dtype.itemsize == 2:
        x = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.int16)).view(dtype)
    else:
        parts = [draw.standard_normal(12000) * 3, draw.standard_normal(2000) * 30]
        spread = np.exp(draw.standard_normal(2000) * 20)
        x = torch.from_numpy(np.concatenate([*parts, spread * np.sign(draw.standard_normal(2000)), SPECIAL]).astype(np.float32))
    grad, y, z = (torch.from_numpy((draw.standard_normal(len(x)) * n).astype(np.float32)).to(dtype) for n in (1, 2, 1))
    a = (torch.randn(FEW, generator=torch.Generator().manual_seed(3)) * 2).to(dtype)
    return x, grad, (a, y[:FEW], z[:FEW])


def digest(result: Any) -> str:
    """All NaNs count as one."""
    words = result.detach().contiguous().view(-1).cpu()
    words = words.masked_fill(words.isnan(), torch.nan)
    return hashlib.sha256(words.view(torch.uint8).numpy().tobytes()).hexdigest()[:12]


def digests(dtype: torch.dtype) -> Iterator[tuple[str, str]]:
    x, grad, operands = inputs(dtype)
    for table, given in ((UNARY, (x,)), (OTHERS, operands)):
        for name, function in table.items():
            leaves = [t.cuda().requires_grad_() for t in given]
            result = function(*leaves)
            yield name, digest(result)
            gradients = torch.autograd.grad(result, leaves, grad[: len(result)].cuda(), allow_unused=True)
            yield from ((f"{name}.{n}", digest(g)) for n, g in enumerate(gradients) if g is not None)


if __name__ == "__main__":
    if sys.argv[1:] != ["gpu"]:
        from mmulator.doors.torch import install

        install()
    types = torch.float16, torch.bfloat16, torch.float32
    print(json.dumps({str(t).removeprefix("torch."): dict(digests(t)) for t in types}, indent=0))
