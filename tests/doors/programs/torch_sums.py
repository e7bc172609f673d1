"""Digests of sums, softmax, norms, losses and functions of cuda. Prints them as JSON, for each key of the file of vectors.

    torch_sums.py [gpu]

A key is an operator, a type, rows and elements of a row, where its numbers begin in a row of drawn ones, and what is done to
them. On a machine with a GPU and torch for CUDA, `gpu` prints those of the GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

FILE = Path(__file__).parents[2] / "data" / "torch_sums_sm_90.json"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NUMBERS = (1 << 22) + 100_000
MOST = 16  # rows that a digest is of


def ints(seed: int, n: int) -> Any:
    """n numbers k 2**-22, k of 25 bits with its sign: uniform in -4 to 4."""
    return (np.random.RandomState(seed).randint(0, 1 << 25, n) - (1 << 24)).astype(np.float32) * np.float32(2.0**-22)


POOL, WEIGHT, BIAS = ints(1, NUMBERS), ints(2, 60_000), ints(3, 60_000)


def rows_of(type: str, rows: int, n: int, at: int, kind: str) -> Any:
    """[rows, n]; kind: plain, wide (times 16), tiny (times 2**-10), mask (rows of a triangle), view (not aligned)."""
    x = torch.from_numpy(POOL[at : at + rows * n]).cuda().to(TYPES[type])
    if kind == "view":
        whole = torch.zeros(rows * n + 16, dtype=x.dtype).cuda()
        whole[at % 9 : at % 9 + rows * n] = x
        x = whole[at % 9 : at % 9 + rows * n]
    x = x.view(rows, n) * {"wide": 16, "tiny": 2.0**-10}[kind] if kind in ("wide", "tiny") else x.view(rows, n)
    if kind == "mask":
        x = x.masked_fill(torch.arange(n)[None].cuda() > torch.arange(rows)[:, None].cuda() % n, -torch.inf)
    return x


def words(type: str) -> Any:
    """All numbers of a narrow type; of f32 some of all exponents, and many near zero."""
    if type != "f32":
        return torch.arange(1 << 16).to(torch.int32).to(torch.int16).view(TYPES[type]).cuda()
    draw, count = np.random.RandomState(7), 1 << 15
    bits = draw.randint(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = (draw.randint(0, 1 << 24, count).astype(np.float64) / (1 << 23) - 1).astype(np.float32) * np.float32(12)
    tiny = (draw.randint(0, 1 << 24, count // 2).astype(np.float64) / (1 << 23) - 1).astype(np.float32)
    special = (0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2, 1e-30, 1e-40, 88.7, 89, -88, -104, 9.0, 9.01, 0.6, 0.55)
    return torch.from_numpy(np.concatenate((np.array(special, np.float32), bits, near, tiny))).cuda()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": torch.tanh, "erf": torch.erf, "log": torch.log, "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
}  # fmt: skip
WHOLE: dict[str, Callable[[Any], Any]] = {
    "sum of all": torch.sum, "mean of all": torch.mean, "sum of columns": lambda x: x.sum(0),
    "mean of columns": lambda x: x.mean(0), "var of columns": lambda x: x.var(0),
    "softmax of columns": lambda x: torch.softmax(x, 0),
}  # fmt: skip
ROWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda x, w, b: torch.softmax(x, -1), "softmax f32": lambda x, w, b: torch.softmax(x, -1, dtype=torch.float32),
    "log_softmax": lambda x, w, b: torch.log_softmax(x, -1), "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    "layer_norm weight": lambda x, w, b: F.layer_norm(x, w.shape, w),
    "layer_norm plain": lambda x, w, b: F.layer_norm(x, w.shape), "rms_norm": lambda x, w, b: F.rms_norm(x, w.shape, w, 1e-6),
    "rms_norm plain": lambda x, w, b: F.rms_norm(x, w.shape, None, 1e-6), "sum": lambda x, w, b: x.sum(-1),
    "sum f32": lambda x, w, b: x.sum(-1, dtype=torch.float32), "mean": lambda x, w, b: x.mean(-1),
    "var": lambda x, w, b: x.var(-1), "std biased": lambda x, w, b: x.std(-1, unbiased=False),
    "norm": lambda x, w, b: torch.linalg.vector_norm(x, 2, -1), "logsumexp": lambda x, w, b: torch.logsumexp(x, -1),
}  # fmt: skip


# Operators with their gradients: of a, b, c as drawn, p above 0, u between -1 and 1.
BACK: dict[str, tuple[Callable[..., Any], str]] = {
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.3), "abc"), "hardswish": (F.hardswish, "a"),
    "addcdiv": (lambda a, b, p: torch.addcdiv(a, b, p, value=0.3), "abp"), "hardsigmoid": (F.hardsigmoid, "a"),
    "rsqrt": (torch.rsqrt, "p"), "logaddexp": (torch.logaddexp, "ab"), "exp": (torch.exp, "a"), "sigmoid": (torch.sigmoid, "a"),
    "soft_margin_loss": (lambda a, b: F.soft_margin_loss(a, b.detach().sign(), reduction="none"), "ab"), "silu": (F.silu, "a"),
    "sqrt": (torch.sqrt, "p"), "acos": (torch.acos, "u"), "acosh": (lambda a: torch.acosh(a + 1), "p"), "asin": (torch.asin, "u"),
    "asinh": (torch.asinh, "a"), "erf": (torch.erf, "a"), "erfc": (torch.erfc, "a"), "erfinv": (torch.erfinv, "u"),
    "ndtr": (torch.special.ndtr, "a"), "tanh": (torch.tanh, "a"), "log": (torch.log, "p"), "gelu": (F.gelu, "a"),
    "logsumexp": (lambda a: torch.logsumexp(a.view(-1, 64), -1), "a"),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(
        a.view(-1, 64), b.view(-1, 64), torch.ones(len(a) // 64).cuda(), reduction="none"), "ab"),
}  # fmt: skip
COUNT = 4096


@cache
def with_gradients(name: str, type: str) -> dict[str, Any]:
    """The result, by "", and gradients by the operands' letters, of upstream gradients as drawn."""
    function, letters = BACK[name]
    a, b, c = (ints(11, 3 * COUNT)[k * COUNT :][:COUNT] for k in range(3))
    given = {"a": a, "b": b, "c": c, "p": np.abs(c) + np.float32(2.0**-10), "u": a * np.float32(0.24)}
    operands = [torch.from_numpy(given[letter]).cuda().to(TYPES[type]).requires_grad_() for letter in letters]
    made = function(*operands)
    made.backward(torch.from_numpy(np.resize(ints(12, COUNT), made.numel())).cuda().to(TYPES[type]).view(made.shape))
    return {"": made.detach()} | {letter: x.grad for letter, x in zip(letters, operands) if x.grad is not None}


def result(name: str, type: str, rows: int = 0, n: int = 0, at: int = 0, kind: str = "plain") -> Any:
    if name.startswith("back of "):
        return with_gradients(*name.removeprefix("back of ").split()[:1], type)[name.split()[3] if len(name.split()) > 3 else ""]
    if name in FUNCTIONS:
        return FUNCTIONS[name](words(type))
    x = rows_of(type, rows, n, at, kind)
    if name in WHOLE:
        return WHOLE[name](x)
    if name.startswith("cross_entropy"):
        target = torch.from_numpy(np.random.RandomState(rows).randint(0, n, rows)).cuda()
        return F.cross_entropy(x, target, reduction=name.split()[1])
    w, b = (torch.from_numpy(v[:n]).cuda().to(x.dtype) for v in (WEIGHT, BIAS))
    chosen = np.unique(np.linspace(0, rows - 1, min(rows, MOST)).astype(np.int64))
    return ROWS[name](x, w, b)[torch.from_numpy(chosen).cuda()]


def digest(x: Any) -> str:
    raw = {2: torch.int16, 4: torch.int32}[x.dtype.itemsize]
    return hashlib.sha256(x.cpu().contiguous().view(raw).numpy().tobytes()).hexdigest()[:12]


if __name__ == "__main__":
    if "gpu" not in sys.argv:
        from mmulator.doors.torch import install

        install()
    made = {}
    for key in json.loads(FILE.read_text()):
        name, _, rest = key.partition(":")
        made[key] = digest(result(name, *(int(v) if v.isdigit() else v for v in rest.split())))
    print(json.dumps(made, indent=0))
