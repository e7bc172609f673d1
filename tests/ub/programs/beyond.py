"""A Triton kernel without the mask that the last program needs."""

import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, n: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(x + at, 2 * tl.load(x + at))  #~ memory-out-of-bounds


x = torch.zeros(100, device="cuda")
try:
    doubled[(2,)](x, 64)
except Exception as fault:
    print(type(fault).__name__)
