"""Kernels that compute what they should, of the kinds of KernelBench and in the three languages, are called right."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from tests.support.nvcc import compiled

M, N, K = 24, 20, 36
Arrays = dict[str, np.ndarray]


def _random(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal(shape, np.float32)


def _softmax(x: np.ndarray, **_: Any) -> Arrays:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return {"y": (e / e.sum(1, keepdims=True)).astype(np.float32)}


def _norm(x: np.ndarray, w: np.ndarray, **_: Any) -> Arrays:
    wide = x.astype(np.float64)
    return {"y": ((wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w).astype(np.float32)}


def _conv(x: np.ndarray, w: np.ndarray, **_: Any) -> Arrays:
    """A 3 x 3 convolution of 3 channels to 4, without padding, as a product with the columns of the image."""
    patches = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))  # [c, h, w, 3, 3]
    return {"y": np.einsum("chwij,ocij->ohw", patches, w.astype(np.float64)).astype(np.float32)}


# problem: inputs by name, the output's shape, its reference, tolerances
PROBLEMS: dict[str, tuple[dict[str, Any], tuple[int, ...], Callable[..., Arrays], dict[str, float]]] = {
    "elementwise": ({"x": _random(1000)}, (1000,), lambda x, **_: {"y": np.maximum(x, 0) + x * x}, {"ulp": 1}),
    "matmul": ({"x": _random(M, K), "w": _random(K, N)}, (M, N),
               lambda x, w, **_: {"y": (x.astype(np.float64) @ w).astype(np.float32)}, {"rtol": 1e-4, "atol": 1e-4}),
    "softmax": ({"x": _random(M, K)}, (M, K), _softmax, {"rtol": 1e-5, "atol": 1e-7}),
    "layernorm": ({"x": _random(M, K), "w": _random(K)}, (M, K), _norm, {"rtol": 1e-4, "atol": 1e-5}),
    "sum": ({"x": _random(M, K)}, (M,), lambda x, **_: {"y": x.astype(np.float64).sum(1).astype(np.float32)},
            {"rtol": 1e-4, "atol": 1e-4}),
    "max": ({"x": _random(M, K)}, (M,), lambda x, **_: {"y": x.max(1)}, {}),
    "convolution": ({"x": _random(3, 10, 12), "w": _random(4, 3, 3, 3)}, (4, 8, 10), _conv, {"rtol": 1e-4, "atol": 1e-4}),
    "transposition": ({"x": _random(M, K)}, (K, M), lambda x, **_: {"y": np.ascontiguousarray(x.T)}, {}),
    "cumulative sum": ({"x": _random(M, 32)}, (M, 32),
                       lambda x, **_: {"y": np.cumsum(x.astype(np.float64), 1).astype(np.float32)}, {"rtol": 1e-4, "atol": 1e-5}),
}  # fmt: skip

TRITON = {
    "elementwise": ("""
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.load(x + at, mask=at < 1000)
    tl.store(y + at, tl.maximum(v, 0.0) + v * v, mask=at < 1000)""", 4),
    "matmul": ("""
    r, c, k = tl.arange(0, 32), tl.arange(0, 32), tl.arange(0, 16)
    total = tl.zeros((32, 32), tl.float32)
    for first in range(0, 36, 16):
        a = tl.load(x + r[:, None] * 36 + (first + k)[None, :], mask=(r[:, None] < 24) & ((first + k)[None, :] < 36), other=0.0)
        b = tl.load(w + (first + k)[:, None] * 20 + c[None, :], mask=((first + k)[:, None] < 36) & (c[None, :] < 20), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(y + r[:, None] * 20 + c[None, :], total, mask=(r[:, None] < 24) & (c[None, :] < 20))""", 1),
    "softmax": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    v = tl.load(x + row * 36 + c, mask=c < 36, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * 36 + c, e / tl.sum(e, 0), mask=c < 36)""", M),
    "layernorm": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    v = tl.load(x + row * 36 + c, mask=c < 36, other=0.0)
    d = tl.where(c < 36, v - tl.sum(v, 0) / 36, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / 36 + 1e-5)
    tl.store(y + row * 36 + c, d * scale * tl.load(w + c, mask=c < 36), mask=c < 36)""", M),
    "sum": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    tl.store(y + row, tl.sum(tl.load(x + row * 36 + c, mask=c < 36, other=0.0), 0))""", M),
    "convolution": ("""
    at, k = tl.arange(0, 128), tl.arange(0, 32)
    h, v = at // 10, at % 10
    c, i, j = k // 9, k // 3 % 3, k % 3
    inside = (at[:, None] < 80) & (k[None, :] < 27)
    a = tl.load(x + c[None, :] * 120 + (h[:, None] + i[None, :]) * 12 + v[:, None] + j[None, :], mask=inside, other=0.0)
    o = tl.arange(0, 16)
    b = tl.load(w + o[None, :] * 27 + k[:, None], mask=(o[None, :] < 4) & (k[:, None] < 27), other=0.0)
    total = tl.dot(a, b, input_precision="ieee")
    tl.store(y + o[None, :] * 80 + at[:, None], total, mask=(o[None, :] < 4) & (at[:, None] < 80))""", 1),
    "cumulative sum": ("""
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(y + at, tl.cumsum(tl.load(x + at), 0))""", M),
}  # fmt: skip

CUDA = {
    "elementwise": ("if (i < 1000) y[i] = fmaxf(x[i], 0.0f) + x[i] * x[i];", 1000),
    "matmul": ("""
    __shared__ float a[24][36];
    for (int n = threadIdx.x; n < 24 * 36; n += blockDim.x) a[n / 36][n % 36] = x[n];
    __syncthreads();
    if (i < 480) { float s = 0; for (int k = 0; k < 36; k++) s += a[i / 20][k] * w[k * 20 + i % 20]; y[i] = s; }""", 480),
    "softmax": ("""
    if (i < 24) {
        float most = -INFINITY, s = 0;
        for (int k = 0; k < 36; k++) most = fmaxf(most, x[i * 36 + k]);
        for (int k = 0; k < 36; k++) s += expf(x[i * 36 + k] - most);
        for (int k = 0; k < 36; k++) y[i * 36 + k] = expf(x[i * 36 + k] - most) / s;
    }""", 24),
    "layernorm": ("""
    int row = blockIdx.x, lane = threadIdx.x;
    float s = 0, q = 0;
    for (int k = lane; k < 36; k += 32) s += x[row * 36 + k];
    for (int step = 16; step; step /= 2) s += __shfl_xor_sync(~0u, s, step);
    for (int k = lane; k < 36; k += 32) { float d = x[row * 36 + k] - s / 36; q += d * d; }
    for (int step = 16; step; step /= 2) q += __shfl_xor_sync(~0u, q, step);
    float scale = rsqrtf(q / 36 + 1e-5f);
    for (int k = lane; k < 36; k += 32) y[row * 36 + k] = (x[row * 36 + k] - s / 36) * scale * w[k];""", 24 * 32),
    "sum": ("""
    __shared__ float part[32];
    int row = blockIdx.x, t = threadIdx.x;
    part[t] = x[row * 36 + t] + (t < 4 ? x[row * 36 + 32 + t] : 0);
    for (int step = 16; step; step /= 2) { __syncthreads(); if (t < step) part[t] += part[t + step]; }
    if (!t) y[row] = part[0];""", 24 * 32),
    "convolution": ("""
    if (i < 320) {
        int o = i / 80, h = i / 10 % 8, v = i % 10; float s = 0;
        for (int k = 0; k < 27; k++) s += x[k / 9 * 120 + (h + k / 3 % 3) * 12 + v + k % 3] * w[o * 27 + k];
        y[i] = s;
    }""", 320),
    "transposition": ("""
    __shared__ float tile[24][37];
    for (int n = threadIdx.x; n < 864; n += 32) tile[n / 36][n % 36] = x[n];
    __syncthreads();
    for (int n = threadIdx.x; n < 864; n += 32) y[n] = tile[n % 24][n / 24];""", 32),
}  # fmt: skip

PTX = {
    "elementwise": ("""
    setp.ge.u32 off, i, 1000; @off ret;
    mad.wide.u32 p, i, 4, x; ld.global.f32 a, [p]; max.f32 b, a, 0f00000000; fma.rn.f32 b, a, a, b;
    mad.wide.u32 p, i, 4, y; st.global.f32 [p], b;""", 1000),
    "matmul": ("""
    setp.ge.u32 off, i, 480; @off ret;
    div.u32 r, i, 20; rem.u32 c, i, 20;
    mul.lo.u32 r, r, 144; cvt.u64.u32 p, r; add.u64 p, p, x; mad.wide.u32 q, c, 4, w;
    mov.f32 s, 0f00000000; mov.u32 k, 0;
again:
    ld.global.f32 a, [p]; ld.global.f32 b, [q]; fma.rn.f32 s, a, b, s;
    add.u64 p, p, 4; add.u64 q, q, 80; add.u32 k, k, 1; setp.lt.u32 off, k, 36; @off bra again;
    mad.wide.u32 p, i, 4, y; st.global.f32 [p], s;""", 480),
    "max": ("""
    mov.u32 r, %ctaid.x; mul.wide.u32 p, r, 144; add.u64 p, p, x; mov.u32 c, %tid.x; mad.wide.u32 p, c, 4, p;
    ld.global.f32 a, [p]; mov.u32 k, %tid.x; setp.lt.u32 off, k, 4; @off ld.global.f32 b, [p+128]; @off max.f32 a, a, b;
    mov.u32 k, 16;
again:
    shfl.sync.bfly.b32 b, a, k, 31, -1; max.f32 a, a, b; shr.u32 k, k, 1; setp.ne.u32 off, k, 0; @off bra again;
    mov.u32 k, %tid.x; setp.ne.u32 off, k, 0; @off ret;
    mul.wide.u32 p, r, 4; add.u64 p, p, y; st.global.f32 [p], a;""", 24 * 32),
    "sum": ("""
    setp.ge.u32 off, i, 24; @off ret;
    mul.wide.u32 p, i, 144; add.u64 p, p, x; mov.f32 s, 0f00000000; mov.u32 k, 0;
again:
    ld.global.f32 a, [p]; add.f32 s, s, a; add.u64 p, p, 4; add.u32 k, k, 1; setp.lt.u32 off, k, 36; @off bra again;
    mad.wide.u32 p, i, 4, y; st.global.f32 [p], s;""", 24),
    "transposition": ("""
    setp.ge.u32 off, i, 864; @off ret;
    div.u32 r, i, 36; rem.u32 c, i, 36; mad.lo.u32 k, c, 24, r;
    mad.wide.u32 p, i, 4, x; ld.global.f32 a, [p]; mad.wide.u32 p, k, 4, y; st.global.f32 [p], a;""", 864),
}  # fmt: skip
_REGISTERS = ".reg .b64 p, q, x, y, w; .reg .b32 i, r, c, k; .reg .f32 a, b, s; .reg .pred off;"
_HEAD = "ld.param.u64 y, [py]; ld.param.u64 x, [px]; mov.u32 i, %tid.x; mov.u32 k, %ctaid.x; mad.lo.u32 i, k, 32, i;"


def _judged(problem: str, source: Any, **more: Any) -> None:
    made, shape, reference, tolerance = PROBLEMS[problem]

    def arguments(seed: int) -> Mapping[str, Any]:
        rng = np.random.default_rng(seed)
        return {"y": np.zeros(shape, np.float32), **{name: make(rng) for name, make in made.items()}}

    more = {"limits": mm.Limits(seconds=600), **tolerance, **more}
    verdict = mm.judge(source, arguments, entry="k", reference=reference, **more)
    assert verdict.ok and not verdict.notes and not verdict.findings, str(verdict)


@pytest.mark.parametrize("problem", TRITON)
def test_triton(problem: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    body, grid = TRITON[problem]
    names = ", ".join(("y", *PROBLEMS[problem][0]))
    (path := tmp_path / "kernel.py").write_text(f"import triton, triton.language as tl\n@triton.jit\ndef k({names}):{body}\n")
    _judged(problem, path, grid=grid)


@compiled
@pytest.mark.parametrize("problem", CUDA)
def test_cuda(problem: str, tmp_path: Path) -> None:
    body, threads = CUDA[problem]
    names = ", ".join(f"const float* {name}" for name in PROBLEMS[problem][0])
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    (path := tmp_path / "kernel.cu").write_text(f'extern "C" __global__ void k(float* y, {names}) {{\n{head}\n{body}\n}}\n')
    one = problem == "matmul"  # whose threads share the first matrix
    _judged(problem, path, grid=1 if one else -(-threads // 32), block=threads if one else 32)


@pytest.mark.parametrize("problem", PTX)
def test_ptx(problem: str) -> None:
    body, threads = PTX[problem]
    names = ("y", *PROBLEMS[problem][0])
    more = "ld.param.u64 w, [pw];" if "w" in names else ""
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k({", ".join(f".param .u64 p{name}" for name in names)})
{{
  {_REGISTERS}
  {_HEAD} {more}
  {body}
  ret;
}}
"""
    _judged(problem, text, grid=-(-threads // 32), block=32)
