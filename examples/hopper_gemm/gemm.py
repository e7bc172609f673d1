"""A half-precision GEMM for Hopper, in Triton: wgmma fed by a three-stage cp.async pipeline, masked at every edge.

Running this file compiles it for sm_90 without a GPU and writes gemm.ptx:

    pip install triton==3.6.0
    python gemm.py
"""

from pathlib import Path

import triton
import triton.language as tl


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C[M, N] = A[M, K] B[K, N], row-major f16, accumulated in f32; one BM x BN tile a block."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0)
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


def compile_ptx() -> str:
    """The PTX Triton would launch on an sm_90 device when N and K are multiples of 16, three stages, four warps."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.compilation.disable_line_info = True
    aligned = [["tt.divisibility", 16]]
    source = ASTSource(
        gemm,
        signature={"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32",
                   "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"},
        constexprs={"BM": 128, "BN": 128, "BK": 64},
        attrs={(0,): aligned, (1,): aligned, (2,): aligned, (4,): aligned, (5,): aligned},
    )  # fmt: skip
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3})
    print("dynamic shared memory:", made.metadata.shared)
    text: str = made.asm["ptx"]
    return text


if __name__ == "__main__":
    Path(__file__).with_name("gemm.ptx").write_text(compile_ptx())
