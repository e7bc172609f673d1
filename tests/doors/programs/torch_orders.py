"""Digests of products and functions of cuda whose bits on a GPU are known: f32, tf32, f64, scaled e4m3. Prints them as JSON.

    torch_orders.py [gpu]

On a machine with a GPU and torch for CUDA, `gpu` prints those of the GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

# type, call, layout, m, n, k, batch
PRODUCTS = (
    ("f32", "mm", "tn", 40, 33, 20, 1), ("f32", "mm", "tn", 19, 170, 61, 1), ("f32", "mm", "nn", 700, 600, 37, 1),
    ("f32", "bias", "nn", 35, 47, 100, 1), ("f32", "bias", "tt", 17, 50, 33, 1), ("f32", "bias", "nt", 600, 500, 200, 1),
    ("f32", "bmm", "tn", 60, 70, 50, 3), ("f32", "bmm", "tt", 60, 70, 120, 6), ("f32", "bmm", "nn", 160, 130, 70, 9),
    ("f64", "mm", "nn", 33, 65, 40, 1), ("f64", "mm", "tn", 100, 20, 99, 1), ("f64", "mm", "nt", 320, 300, 111, 1),
    ("f64", "bmm", "nn", 25, 31, 200, 4), ("f64", "bmm", "nt", 50, 61, 31, 2), ("f64", "bias", "tn", 900, 850, 30, 1),
    ("tf32", "mm", "nn", 736, 720, 64, 1), ("tf32", "bias", "nn", 40, 72, 120, 1), ("tf32", "bias", "nt", 1240, 1200, 40, 1),
    ("e4m3", "one", "nt", 33, 48, 400, 1), ("e4m3", "rows", "nt", 70, 64, 144, 1), ("e4m3", "bias", "nt", 16, 32, 1040, 1),
    ("e4m3", "fast", "nt", 100, 96, 1040, 1),
)  # fmt: skip
FUNCTIONS = {"exp": torch.exp, "sigmoid": torch.sigmoid, "silu": F.silu, "sqrt": torch.sqrt}
TYPES = {"f64": torch.float64, "e4m3": torch.float8_e4m3fn, "f16": torch.float16, "bf16": torch.bfloat16}


def drawn(draw: Any, dtype: torch.dtype, *shape: int) -> Any:
    return torch.from_numpy(draw.standard_normal(shape).astype(np.float32)).to(dtype).cuda()


def product(type: str, call: str, layout: str, m: int, n: int, k: int, batch: int) -> Any:
    draw, dtype = np.random.default_rng(m * n * k), TYPES.get(type, torch.float32)
    lead = (batch,) if call == "bmm" else ()
    x, y = draw.standard_normal((*lead, m, k)).astype("f4"), draw.standard_normal((*lead, k, n)).astype("f4")
    pairs = draw.permutation(k)
    one, other = pairs[: k // 2], pairs[k // 2 : k // 2 * 2]
    x[..., other], y[..., other, :] = x[..., one], -y[..., one, :]  # terms cancel in pairs, and leave rounding
    a, b = (
        torch.from_numpy(v).to(dtype).cuda() if turn == "n" else torch.from_numpy(v).mT.contiguous().to(dtype).cuda().mT
        for v, turn in zip((x, y), layout)
    )
    torch.backends.cuda.matmul.allow_tf32 = type == "tf32"
    if type != "e4m3":
        return torch.addmm(drawn(draw, dtype, n), a, b) if call == "bias" else a @ b
    shapes = ((m, 1), (1, n)) if call == "rows" else ((), ())
    scales = [torch.tensor(draw.uniform(0.1, 2, shape), dtype=torch.float32).cuda() for shape in shapes]
    bias = drawn(draw, torch.bfloat16, n) if call == "bias" else None
    return torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=call == "fast")


def digest(x: Any) -> str:
    raw = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    return hashlib.sha256(x.cpu().contiguous().view(raw).numpy().tobytes()).hexdigest()[:12]


def digests() -> Iterator[tuple[str, str]]:
    for one in PRODUCTS:
        yield " ".join(map(str, one)), digest(product(*one))
    draw = np.random.default_rng(8)
    bits = draw.integers(0, 1 << 32, 1 << 14, dtype=np.uint64).astype(np.uint32).view(np.float32)
    wide = torch.from_numpy(np.concatenate([bits, draw.normal(size=1 << 14).astype(np.float32)])).cuda()
    words = torch.arange(1 << 16).to(torch.int32).to(torch.int16)
    for name, function in FUNCTIONS.items():
        yield f"{name} f32", digest(function(wide))
        for type in ("f16", "bf16"):
            yield f"{name} {type}", digest(function(words.view(TYPES[type]).cuda()))


if __name__ == "__main__":
    if "gpu" not in sys.argv:
        from mmulator.doors.torch import install

        install()
    print(json.dumps(dict(digests()), indent=0))
