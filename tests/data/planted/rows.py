"""Softmax and layer norm of rows, a program a row; the first elements that are wrong are printed."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + c, mask=c < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * columns + c, e / tl.sum(e, 0), mask=c < columns)


@triton.jit
def layernorm(x, y, means, deviations, columns, eps, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + c, mask=c < columns, other=0.0)
    mean = tl.sum(v, 0) / columns
    d = tl.where(c < columns, v - mean, 0.0)
    deviation = tl.sqrt(tl.sum(d * d, 0) / columns + eps)
    tl.store(means + row, mean)
    tl.store(deviations + row, deviation)
    tl.store(y + row * columns + c, d / deviation, mask=c < columns)


def compare(name, got, want):
    wrong = (got - want).abs() > 1e-4
    print(name, int(wrong.sum()), "elements are wrong, the first are", wrong.nonzero()[:3].tolist())


torch.manual_seed(0)
x = torch.randn(6, 100, device="cuda")
y, z = torch.empty(6, 100, device="cuda"), torch.empty(6, 100, device="cuda")
statistics = torch.empty(2, 6, device="cuda")
softmax[(6,)](x, y, 100, 128)
layernorm[(6,)](x, z, statistics[0], statistics[1], 100, 1e-5, 128)
compare("softmax:", y, x.softmax(1))
compare("means:", statistics[0], x.mean(1))
compare("deviations:", statistics[1], x.std(1, correction=0))
compare("layer norm:", z, torch.nn.functional.layer_norm(x, (100,)))
