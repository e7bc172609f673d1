"""C = A B, f16 with sums in f32, a tile a program; the first elements that are wrong are printed."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        sums = tl.dot(x, y, sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums, mask=(rows[:, None] < M) & (columns[None, :] < N))


torch.manual_seed(0)
A = torch.randn(48, 96, device="cuda", dtype=torch.float16)
B = torch.randn(96, 96, device="cuda", dtype=torch.float16)
C = torch.empty(48, 96, device="cuda")
matmul[(2, 3)](A, B, C, 48, 96, 96, 32, 32, 32)
wrong = (C - A.float() @ B.float()).abs() > 1e-3
print(int(wrong.sum()), "elements are wrong, the first are", wrong.nonzero()[:3].tolist())
