"""Kernels of the parts of models that compute what they should are called right: losses, attention, scans, narrow types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from tests.support.nvcc import compiled

ROWS, COLUMNS = 12, 40
Arrays = dict[str, np.ndarray]


def _rows(rng: np.random.Generator) -> Arrays:
    return {"x": rng.standard_normal((ROWS, COLUMNS), np.float32)}


def _labelled(rng: np.random.Generator) -> Arrays:
    return {**_rows(rng), "labels": rng.integers(0, COLUMNS, ROWS, np.int64)}


def _halves(rng: np.random.Generator) -> Arrays:
    return {name: rng.standard_normal((32, 16), np.float32).astype(np.float16) for name in "qkv"}


def _brains(rng: np.random.Generator) -> Arrays:
    given = _rows(rng) | {"w": rng.standard_normal(COLUMNS, np.float32), "b": rng.standard_normal(COLUMNS, np.float32)}
    return {name: a.astype(ml_dtypes.bfloat16) for name, a in given.items()}


def _signal(rng: np.random.Generator) -> Arrays:
    return {"x": rng.standard_normal((4, 50), np.float32), "w": rng.standard_normal((4, 5), np.float32)}


def _cross_entropy(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.log(np.exp(wide).sum(1)) - wide[np.arange(ROWS), labels]


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    e = np.exp(np.where(np.tri(32, dtype=bool), q @ k.T / 4, -np.inf))
    return np.asarray(e / e.sum(1, keepdims=True) @ v)


def _layernorm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, w, b = (a.astype(np.float64) for a in (x, w, b))
    return np.asarray((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b)


def _depthwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of each row with its own weights, 2 elements of zeros at both ends, steps of 2."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (2, 2)))
    return np.einsum("cnj,cj->cn", np.lib.stride_tricks.sliding_window_view(padded, 5, 1)[:, ::2], w.astype(np.float64))


# problem: inputs, an output like it, its reference, tolerances
PROBLEMS: dict[str, tuple[Callable[[np.random.Generator], Arrays], Any, Callable[..., np.ndarray], dict[str, float]]] = {
    "cross entropy": (_labelled, np.zeros(ROWS, np.float32), _cross_entropy, {"rtol": 1e-4, "atol": 1e-5}),
    "argmax": (_rows, np.zeros(ROWS, np.int64), lambda x: x.argmax(1), {}),
    "attention": (_halves, np.zeros((32, 16), np.float32), _attention, {"rtol": 1e-2, "atol": 1e-3}),
    "layernorm": (_brains, np.zeros((ROWS, COLUMNS), ml_dtypes.bfloat16), _layernorm, {"rtol": 2e-2, "atol": 2e-2}),
    "cumulative sum": (_rows, np.zeros((ROWS, COLUMNS), np.float32),
                       lambda x: np.cumsum(x.astype(np.float64), 1), {"rtol": 1e-4, "atol": 1e-5}),
    "depthwise convolution": (_signal, np.zeros((4, 25), np.float32), _depthwise, {"rtol": 1e-4, "atol": 1e-5}),
}  # fmt: skip

TRITON = {
    "cross entropy": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    v = tl.load(x + row * 40 + c, mask=c < 40, other=-float("inf"))
    most = tl.max(v, 0)
    total = tl.log(tl.sum(tl.exp(v - most), 0)) + most
    tl.store(y + row, total - tl.load(x + row * 40 + tl.load(labels + row)))""", ROWS),
    "argmax": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    v = tl.load(x + row * 40 + c, mask=c < 40, other=-float("inf"))
    tl.store(y + row, tl.argmax(v, 0).to(tl.int64))""", ROWS),
    "attention": ("""
    r, d = tl.arange(0, 32), tl.arange(0, 16)
    at = r[:, None] * 16 + d[None, :]
    s = tl.dot(tl.load(q + at), tl.load(k + r[None, :] * 16 + d[:, None])) * 0.25
    s = tl.where(r[:, None] >= r[None, :], s, -float("inf"))
    e = tl.exp(s - tl.max(s, 1)[:, None])
    o = tl.dot(e.to(tl.float16), tl.load(v + at))
    tl.store(y + at, o / tl.sum(e, 1)[:, None])""", 1),
    "layernorm": ("""
    row, c = tl.program_id(0), tl.arange(0, 64)
    v = tl.load(x + row * 40 + c, mask=c < 40, other=0.0).to(tl.float32)
    d = tl.where(c < 40, v - tl.sum(v, 0) / 40, 0.0)
    n = d * tl.rsqrt(tl.sum(d * d, 0) / 40 + 1e-5)
    o = n * tl.load(w + c, mask=c < 40).to(tl.float32) + tl.load(b + c, mask=c < 40).to(tl.float32)
    tl.store(y + row * 40 + c, o.to(tl.bfloat16), mask=c < 40)""", ROWS),
}  # fmt: skip

CUDA = {
    "cross entropy": ("const float* x, const long long* labels", "float", """
    float most = -INFINITY, s = 0;
    for (int c = t; c < 40; c += 32) most = fmaxf(most, x[row * 40 + c]);
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    for (int c = t; c < 40; c += 32) s += expf(x[row * 40 + c] - most);
    for (int step = 16; step; step /= 2) s += __shfl_xor_sync(~0u, s, step);
    if (!t) y[row] = logf(s) + most - x[row * 40 + labels[row]];""", ROWS),
    "argmax": ("const float* x", "long long", """
    float best = -INFINITY; int at = 0;
    for (int c = t; c < 40; c += 32) if (x[row * 40 + c] > best) { best = x[row * 40 + c]; at = c; }
    for (int step = 16; step; step /= 2) {
        float other = __shfl_down_sync(~0u, best, step); int there = __shfl_down_sync(~0u, at, step);
        if (other > best || other == best && there < at) { best = other; at = there; }
    }
    if (!t) y[row] = at;""", ROWS),
    "attention": ("const __half* q, const __half* k, const __half* v", "float", """
    __shared__ float e[32];
    float s = 0;
    for (int d = 0; d < 16; d++) s += __half2float(q[row * 16 + d]) * __half2float(k[t * 16 + d]);
    s = t <= row ? expf(s / 4) : 0;
    e[t] = s;
    for (int step = 16; step; step /= 2) s += __shfl_xor_sync(~0u, s, step);
    __syncthreads();
    float o = 0;
    if (t < 16) { for (int c = 0; c <= row; c++) o += e[c] * __half2float(v[c * 16 + t]); y[row * 16 + t] = o / s; }""", 32),
    "cumulative sum": ("const float* x", "float", """
    __shared__ float part[2][64];
    int from = 0;
    for (int c = t; c < 64; c += 32) part[0][c] = c < 40 ? x[row * 40 + c] : 0;
    for (int step = 1; step < 64; step *= 2, from ^= 1) {
        __syncthreads();
        for (int c = t; c < 64; c += 32) part[!from][c] = part[from][c] + (c < step ? 0 : part[from][c - step]);
    }
    __syncthreads();
    for (int c = t; c < 40; c += 32) y[row * 40 + c] = part[from][c];""", ROWS),
    "depthwise convolution": ("const float* x, const float* w", "float", """
    if (t < 25) {
        float s = 0;
        for (int j = 0; j < 5; j++) { int at = 2 * t + j - 2; if (at >= 0 && at < 50) s += x[row * 50 + at] * w[row * 5 + j]; }
        y[row * 25 + t] = s;
    }""", 4),
}  # fmt: skip


def _judged(problem: str, source: Path, **more: Any) -> None:
    made, like, wants, tolerance = PROBLEMS[problem]
    verdict = mm.judge(
        source, lambda seed: {"y": like.copy(), **made(np.random.default_rng(seed))}, entry="k", limits=mm.Limits(seconds=600),
        reference=lambda y, **given: {"y": wants(**given).astype(y.dtype)}, **tolerance, **more,
    )  # fmt: skip
    assert verdict.ok and not verdict.notes and not verdict.findings, str(verdict)


@pytest.mark.parametrize("problem", TRITON)
def test_triton(problem: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    body, grid = TRITON[problem]
    names = ", ".join(("y", *PROBLEMS[problem][0](np.random.default_rng(0))))
    (path := tmp_path / "kernel.py").write_text(f"import triton, triton.language as tl\n@triton.jit\ndef k({names}):{body}\n")
    _judged(problem, path, grid=grid)


@compiled
@pytest.mark.parametrize("problem", CUDA)
def test_cuda(problem: str, tmp_path: Path) -> None:
    parameters, result, body, grid = CUDA[problem]
    head = "int row = blockIdx.x, t = threadIdx.x;"
    text = f'#include <cuda_fp16.h>\nextern "C" __global__ void k({result}* y, {parameters}) {{\n{head}\n{body}\n}}\n'
    (path := tmp_path / "kernel.cu").write_text(text)
    _judged(problem, path, grid=grid, block=32)
