"""Digests of random products on cuda whose order of sums in cuBLAS is known. Prints them as JSON.

    torch_products.py [gpu] [SEED COUNT LARGEST]

On a machine with a GPU and torch for CUDA, `gpu` prints those of the GPU. LARGEST: multiply-accumulates of a product.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Make = Callable[..., Any]
SPECIAL = np.array((np.inf, -np.inf, np.nan, 1e-6, 6e4), np.float32)


def tensor(draw: np.random.Generator, dtype: torch.dtype, special: bool, turned: bool, *shape: int) -> Any:
    """A tensor of cuda [..., rows, columns], its columns contiguous in memory if `turned`."""
    *batch, rows, columns = shape
    x = draw.standard_normal((*batch, columns, rows) if turned else shape).astype(np.float32)
    if special:
        x.flat[draw.integers(0, x.size, max(1, x.size // 500))] = draw.choice(SPECIAL, max(1, x.size // 500))
    made = torch.from_numpy(x).to(dtype).cuda()
    return made.transpose(-1, -2) if turned else made


def backward(x: Any, y: Any, upstream: Any) -> Any:
    for leaf in (x.requires_grad_(), y.requires_grad_()):
        assert leaf.is_leaf
    F.linear(x, y).backward(upstream)
    return torch.cat((x.grad.flatten(), y.grad.flatten()))


def result(op: str, m: int, n: int, k: int, batch: int, a: bool, b: bool, make: Make) -> Any:
    match op:
        case "mm":
            return make(a, m, k) @ make(b, k, n)
        case "bmm":
            return torch.bmm(make(a, batch, m, k), make(b, batch, k, n))
        case "addmm":
            return torch.addmm(make(False, m, n), make(a, m, k), make(b, k, n))
        case "baddbmm":
            return torch.baddbmm(make(False, batch, m, n), make(a, batch, m, k), make(b, batch, k, n))
        case "scaled":
            alpha, beta = ((0.37, 1), (1, -0.81), (-1.7, 0.3))[(m + n + k) % 3]
            return torch.addmm(make(False, m, n), make(a, m, k), make(b, k, n), alpha=alpha, beta=beta)
        case "linear":
            return F.linear(make(False, m, k), make(False, n, k))
        case "bias":
            return F.linear(make(False, 3, m, k), make(False, n, k), make(False, n, 1)[:, 0])
        case "parts":
            return make(False, m, k + 64)[:, 16 : 16 + k] @ make(b, k + 8, n)[8:]
        case _:
            return backward(make(False, 8 * m, k), make(False, n, k), make(False, 8 * m, n))


OPS = ("mm", "bmm", "addmm", "baddbmm", "scaled", "linear", "bias", "parts", "backward")


def digests(seed: int, count: int, largest: int) -> Iterator[tuple[str, str]]:
    draw = np.random.default_rng(seed)

    def size(low: int, high: int) -> int:
        return int(np.exp(draw.uniform(np.log(low), np.log(high + 1))))

    for number in range(count):
        op, dtype, special = OPS[number % 9], (torch.float16, torch.bfloat16)[number // 9 % 2], number % 11 == 0
        m, n, k, batch = size(1, 1024), size(1, 256) * 8, size(1, 320) * 8, size(2, 9)
        a, b = (bool(x) for x in draw.integers(0, 2, 2))
        if op in ("bmm", "baddbmm"):
            k = size(1, 2048) * 8 if number % 5 == 0 else k
        elif number % 5 == 0 and largest >> 33:
            m, n, k = size(1100, 2000) // 8 * 8, size(1100, 2000) // 8 * 8, size(2560, 6400) // 8 * 8
        m = min(m, 320) if op == "backward" else max(8, m // 8 * 8) if a else m
        while m * n * k * (batch if op in ("bmm", "baddbmm") else 8 if op == "backward" else 1) > largest:
            m, n, k = max(m // 2, 8), max(n // 16, 1) * 8, max(k // 16, 1) * 8
            m = m // 8 * 8
        words = result(op, m, n, k, batch, a, b, partial(tensor, draw, dtype, special)).detach().contiguous().cpu()
        marks = " turned A" * a + " turned B" * b + " special" * special
        digest = hashlib.sha256(words.view(torch.int16).numpy().tobytes()).hexdigest()[:12]
        yield f"{op} {str(dtype)[6:]} {m}x{n}x{k} batch {batch}{marks} #{number}", digest


if __name__ == "__main__":
    said = sys.argv[1:]
    if "gpu" in said:
        said.remove("gpu")
    else:
        from mmulator.doors.torch import install

        install()
    print(json.dumps(dict(digests(*(map(int, said) if said else (1, 256, 1 << 21)))), indent=0))
