"""The kernels of bench_table.py: plain Triton, and what each computes in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton
import triton.language as tl


@triton.jit
def vadd(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + tl.program_id(0) * columns + at, e / tl.sum(e, 0), mask=at < columns)


@triton.jit
def layernorm(x, w, b, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    inside = at < columns
    v = tl.load(x + row + at, mask=inside, other=0.0)
    mean = tl.sum(v, 0) / columns
    d = tl.where(inside, v - mean, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + 1e-5)
    tl.store(y + row + at, d * r * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def histogram(x, h, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(h + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n, sem="relaxed")


@triton.jit
def conv2d(x, w, y, H, W, IN: tl.constexpr, OUT: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, CO: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    co = tl.program_id(1) * CO + tl.arange(0, CO)
    row, column = at // W, at % W
    acc = tl.zeros((CO, BLOCK), tl.float32)
    for c in range(IN):
        for i in tl.static_range(R):
            for j in tl.static_range(R):
                r, s = row + i - R // 2, column + j - R // 2
                v = tl.load(x + c * H * W + r * W + s, mask=(r >= 0) & (r < H) & (s >= 0) & (s < W), other=0.0)
                k = tl.load(w + ((co * IN + c) * R + i) * R + j)
                acc += k[:, None] * v[None, :]
    tl.store(y + co[:, None] * H * W + at[None, :], acc)


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = a + m[:, None] * K + k[None, :]
    pb = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, o, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = tl.arange(0, BN)
    qs = tl.load(q + m[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        n = start + at
        ks = tl.load(k + n[None, :] * D + d[:, None])
        s = tl.dot(qs, ks) * scale
        s = tl.where(m[:, None] >= n[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        old = tl.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        vs = tl.load(v + n[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), vs, acc * old[:, None])
        top = new
    tl.store(o + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def inc(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@dataclass
class Case:
    """A row of the table. arguments: arrays and numbers in the kernel's order; result: which array it writes."""

    kernel: Any
    signature: str
    constants: dict[str, Any]
    grid: tuple[int, ...]
    arguments: list[Any]
    result: int
    numpy: Callable[[], Any]
    close: float = 1e-5  # to NumPy's result, of the largest
    devices: tuple[str, ...] = ("sm_90",)
    warps: int = 4
    again: dict[int, Any] = field(default_factory=dict)  # arguments that are as they were before a launch that is compared


def _attention(q: Any, k: Any, v: Any, scale: float) -> Any:
    s = q.astype(np.float32) @ k.astype(np.float32).T * scale
    s[np.triu_indices(len(s), 1)] = -np.inf
    p = np.exp2(s - s.max(1, keepdims=True))
    return p @ v.astype(np.float32) / p.sum(1, keepdims=True)


def _conv(x: Any, w: Any) -> Any:
    _, height, width = x.shape
    r = w.shape[-1]
    padded = np.pad(x, ((0, 0), (r // 2,) * 2, (r // 2,) * 2))
    taps = np.stack([padded[:, i : i + height, j : j + width] for i in range(r) for j in range(r)], 1)
    return (w.reshape(len(w), -1) @ taps.reshape(-1, height * width)).reshape(-1, height, width)


def _layernorm(x: Any, w: Any, b: Any) -> Any:
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + np.float32(1e-5)) * w + b


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def cases() -> dict[str, Callable[[], Case]]:
    """By name; each makes its arrays when it is called."""
    rng = np.random.default_rng(0)

    def f32(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    def f16(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32).astype(np.float16)

    def make_vadd(n: int = 1 << 22) -> Case:
        x, y, z = f32(n), f32(n), np.zeros(n, np.float32)
        out = np.empty(n, np.float32)
        return Case(vadd, "*fp32:16, *fp32:16, *fp32:16, i32:16", {"BLOCK": 1024}, (n // 1024,), [x, y, z, n], 2,
                    lambda: np.add(x, y, out=out))  # fmt: skip

    def make_softmax(n: int = 1024) -> Case:
        x, y = f32(n, n), np.zeros((n, n), np.float32)
        return Case(softmax, "*fp32:16, *fp32:16, i32:16", {"BLOCK": n}, (n,), [x, y, n], 1, lambda: _softmax(x))

    def make_layernorm(n: int = 1024) -> Case:
        x, w, b, y = f32(n, n), f32(n), f32(n), np.zeros((n, n), np.float32)
        return Case(layernorm, "*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16", {"BLOCK": n}, (n,), [x, w, b, y, n], 3,
                    lambda: _layernorm(x, w, b))  # fmt: skip

    def make_histogram(n: int = 1 << 20) -> Case:
        x, h = rng.integers(0, 256, n).astype(np.int32), np.zeros(256, np.int32)
        return Case(histogram, "*i32:16, *i32:16, i32:16", {"BLOCK": 1024}, (n // 1024,), [x, h, n], 1,
                    lambda: np.bincount(x, minlength=256), 0, again={1: 0})  # fmt: skip

    def make_conv2d() -> Case:
        x, w, y = f32(16, 64, 64), f32(32, 16, 3, 3), np.zeros((32, 64, 64), np.float32)
        constants = {"IN": 16, "OUT": 32, "R": 3, "BLOCK": 256, "CO": 8}
        return Case(conv2d, "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16", constants, (16, 4), [x, w, y, 64, 64], 2,
                    lambda: _conv(x, w))  # fmt: skip

    def make_gemm(n: int) -> Case:
        a, b, c = f16(n, n), f16(n, n), np.zeros((n, n), np.float16)
        left, right, out = a.astype(np.float32), b.astype(np.float32), np.empty((n, n), np.float32)
        return Case(gemm, "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16", {"BM": 128, "BN": 128, "BK": 64},
                    (n // 128, n // 128), [a, b, c, n, n, n], 2, lambda: np.matmul(left, right, out=out), 1e-3,
                    ("sm_90", "sm_80", "sm_100"))  # fmt: skip

    def make_attention(s: int = 1024, d: int = 64) -> Case:
        q, k, v, o = f16(s, d), f16(s, d), f16(s, d), np.zeros((s, d), np.float16)
        scale = 1.4426950408889634 / d**0.5
        return Case(attention, "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32:16, fp32", {"D": d, "BM": 128, "BN": 64},
                    (s // 128,), [q, k, v, o, s, scale], 3, lambda: _attention(q, k, v, scale), 1e-3)  # fmt: skip

    def make_launch() -> Case:
        x = np.zeros(128, np.float32)
        return Case(inc, "*fp32:16, i32:16", {"BLOCK": 128}, (1,), [x, 128], 0, lambda: np.add(x, 1, out=x), np.inf)

    return {
        "vadd": make_vadd, "softmax": make_softmax, "layernorm": make_layernorm, "histogram": make_histogram,
        "conv2d": make_conv2d, "gemm512": lambda: make_gemm(512), "gemm1024": lambda: make_gemm(1024),
        "gemm2048": lambda: make_gemm(2048), "attention": make_attention, "launch": make_launch,
    }  # fmt: skip
