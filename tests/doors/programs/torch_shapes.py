"""Whether sums of cuda, of tensors of many shapes, are near the CPU's, and have their shapes and types; and which biases of
scaled products are refused. Prints them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

INF = float("inf")
TARGET = torch.tensor([1, 3, -100, 0, 2, -100])
SUMS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x.sum(), "last": lambda x: x.mean(-1), "first": lambda x: x.sum(0, keepdim=True),
    "middle": lambda x: x.var(1),
    "two": lambda x: x.sum((1, 2)), "ends": lambda x: x.sum((0, 2)), "turned": lambda x: x.mT.sum(-1),
    "one": lambda x: x[:, :1].sum(1), "view": lambda x: x[1:].std((0, 1)), "none": lambda x: x[:0].sum(0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=(1, 2)), "softmax": lambda x: torch.softmax(x, 1),
    "number": lambda x: torch.softmax(x[0, 0, 0], 0), "logsumexp": lambda x: x.logsumexp((0, 1)),
    "root": lambda x: x[0, 0, 0].sqrt(),
    "masked": lambda x: torch.softmax(x.masked_fill(x < 9, -INF), -1), "norms": lambda x: F.layer_norm(x, [5, 4]),
    "ignored": lambda x: F.cross_entropy(x[..., 0], TARGET.to(x.device)), "rms": lambda x: F.rms_norm(x, [4]),
    "out": lambda x: torch.sum(x, 0, out=x.new_empty(5, 4)), "in place": lambda x: x.clone().tanh_(),
    "wide": lambda x: x.double().sum(), "whole": lambda x: (x > 0).sum(), "turned softmax": lambda x: torch.log_softmax(x.mT, -1),
    "log out": lambda x: torch.log(x, out=x.new_empty(6, 5, 4)),
    "rms back": lambda x: torch.func.grad(lambda v: F.rms_norm(v, [4]).square().sum())(x),
    "layer back": lambda x: torch.func.grad(lambda v: F.layer_norm(v, [4]).pow(3).sum())(x),
    "softmax back": lambda x: torch.func.grad(lambda v: torch.softmax(v, 1).square().sum())(x),
}  # fmt: skip


def near(x: Any, of: Callable[[Any], Any]) -> bool:
    made, right, most = of(x.cuda()), of(x), 64 * torch.finfo(x.dtype).eps
    same = made.shape == right.shape and made.dtype == right.dtype
    return bool(same and torch.allclose(made.cpu().double(), right.double(), rtol=most, atol=most, equal_nan=True))


def refused(out: torch.dtype, bias: torch.dtype) -> bool:
    a, one = torch.ones(32, 32).cuda().to(torch.float8_e4m3fn), torch.ones(()).cuda()
    try:
        torch._scaled_mm(a, a.t(), one, one, bias=torch.ones(32).cuda().to(bias), out_dtype=out)
    except RuntimeError as error:
        return str(error).startswith("Bias")
    return False


if __name__ == "__main__":
    from mmulator.doors.torch import install

    install()
    torch.manual_seed(1)
    x, types = torch.randn(6, 5, 4), (torch.float32, torch.float16, torch.bfloat16)
    found = {f"{name} {dtype}": near(x.to(dtype), of) for dtype in types for name, of in SUMS.items()}
    found |= {f"{out} {bias}": refused(out, bias) == (out == types[0] or bias != out) for out in types for bias in types}
    print(json.dumps(found))
