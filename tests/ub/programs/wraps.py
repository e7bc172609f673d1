"""A Triton kernel that looks a page up in a cache of more than 2^31 elements, of which this program holds the last two."""

import torch
import triton
import triton.language as tl


@triton.jit
def looked_up(out, last, pages, first, stride: tl.constexpr):
    page = tl.load(pages + tl.program_id(0))
    at = tl.arange(0, 32)
    tl.store(out + at, tl.load(last + (page * stride - first) + at))  #~ memory-out-of-bounds


last, out = torch.zeros(2, 32768, device="cuda"), torch.empty(32, device="cuda")
try:
    looked_up[(1,)](out, last, torch.tensor([70000], dtype=torch.int32, device="cuda"), 70000 * 32768, 32768)
except Exception as fault:
    print(type(fault).__name__)
