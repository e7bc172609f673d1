"""Triton threads that load two vectors of what others have stored, with no barrier: one race, one finding."""

import torch
import triton
import triton.language as tl


@triton.jit
def turned(x, room, out, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(room + at, tl.load(x + at))
    tl.store(out + at, 2 * tl.load(room + (at + 256) % n))  #~ race-read-write


x, room, out = (torch.ones(1024, device="cuda") for _ in range(3))
turned[(1,)](x, room, out, 1024)
