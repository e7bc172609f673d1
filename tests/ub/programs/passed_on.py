"""A Triton kernel stores to memory and reads there what another thread has stored, and what nobody has."""

import torch
import triton
import triton.language as tl


@triton.jit
def passed_on(x, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(x + at, at)
    value = tl.load(x + n - 1 - at)  #~ race-read-write
    more = tl.load(x + 2 * n + at)
    tl.store(x + n + at, value + more)  #~ uninitialized-global


x = torch.empty(3 * 128, dtype=torch.int32, device="cuda")
x[300:] = 1
passed_on[(1,)](x, 128)
torch.cuda.synchronize()
