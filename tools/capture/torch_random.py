"""Random numbers of torch on cuda, as a GPU draws them or as mmulator does: write them, or compare with a file of them.

    python tools/capture/torch_random.py write numbers.npz      on a machine with a GPU
    python tools/capture/torch_random.py compare numbers.npz    on any other: prints what agrees, bit for bit
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

SEED = 20261122
SIZES = (1, 7, 1000, 70001, 1500003)  # the last: more than the threads of any grid that torch takes
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16


def _on(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[int], Any]:
    return lambda n: function(*args, n, device="cuda", **kwargs)


def _into(name: str, *args: Any, dtype: torch.dtype = F32) -> Callable[[int], Any]:
    return lambda n: getattr(torch.empty(n, device="cuda", dtype=dtype), name)(*args)


def _ones(n: int, dtype: torch.dtype = F32, scale: float = 1.0) -> torch.Tensor:
    return torch.full((n,), scale, device="cuda", dtype=dtype)


CASES: dict[str, Callable[[int], Any]] = {
    "randint negative": lambda n: torch.randint(-100, 1000, (n,), device="cuda"),
    "randint wide": lambda n: torch.randint(-5, 1 << 40, (n,), device="cuda"),
    "random full": lambda n: torch.empty(n, device="cuda", dtype=torch.int64).random_(-(1 << 63), None),
    "dropout 2d transposed": lambda n: torch.nn.functional.dropout(_ones(2 * n).view(2, n).t(), 0.3),
    "cauchy": _into("cauchy_"), "log_normal": _into("log_normal_"), "geometric": _into("geometric_", 0.3),
    "randperm": _on(torch.randperm),
    "two draws": lambda n: torch.cat([torch.rand(n, device="cuda"), torch.rand(n, device="cuda")]),
}  # fmt: skip
for d in (F32, F64, F16, BF16):
    CASES[f"rand {d}"], CASES[f"randn {d}"] = _on(torch.rand, dtype=d), _on(torch.randn, dtype=d)
    CASES[f"uniform {d}"], CASES[f"normal {d}"] = _into("uniform_", -0.3, 0.7, dtype=d), _into("normal_", 2, 3, dtype=d)
    CASES[f"exponential {d}"] = _into("exponential_", dtype=d)
    CASES[f"bernoulli {d}"] = lambda n, d=d: torch.bernoulli(_ones(n, d, 0.3))
    for p in (0.1, 0.5):
        CASES[f"dropout {p} {d}"] = lambda n, d=d, p=p: torch.nn.functional.dropout(_ones(n, d), p)
for d in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, F32, F64, F16, BF16):
    if d != torch.bool:
        CASES[f"randint 10 {d}"] = lambda n, d=d: torch.randint(0, 10, (n,), device="cuda", dtype=d)
    CASES[f"random {d}"], CASES[f"bernoulli_ {d}"] = _into("random_", dtype=d), _into("bernoulli_", 0.3, dtype=d)


def _bytes(t: torch.Tensor) -> np.ndarray:
    """What is kept of a result: all of it, or pieces and a checksum."""
    raw = t.contiguous().cpu().view(-1).view(torch.uint8).numpy()
    if raw.size <= 8192:
        return raw.copy()
    words = np.pad(raw, (0, -raw.size % 8)).view(np.uint64)
    sums = np.array([np.bitwise_xor.reduce(words), words.sum(dtype=np.uint64)], np.uint64)
    return np.concatenate([raw[:512], raw[raw.size // 32 * 16 :][:512], raw[-512:], sums.view(np.uint8)])


def draw() -> Iterator[tuple[str, np.ndarray]]:
    """(name of a case with its size, bytes; the generator's place is the last 8)"""
    for name, case in CASES.items():
        for size in SIZES:
            torch.manual_seed(SEED)
            try:
                kept = _bytes(case(size))
            except (RuntimeError, NotImplementedError) as error:
                print(name, size, error)
                continue
            place = np.array([torch.cuda.default_generators[0].get_offset()], np.int64).view(np.uint8)
            yield f"{name} {size}", np.concatenate([kept, place])


def main(what: str, path: str) -> int:
    if what == "write":
        np.savez_compressed(path, **dict(draw()))
        print(torch.__version__, torch.cuda.get_device_name(0))
        return 0
    kept, wrong = np.load(path), []
    agree = 0
    for name, found in draw():
        if name in kept and np.array_equal(kept[name], found):
            agree += 1
        else:
            place = name in kept and np.array_equal(kept[name][-8:], found[-8:])
            wrong.append(f"{name}" + ("" if place else " (and its place)"))
    print(f"{agree} of {len(kept.files)} agree; others:", *wrong, sep="\n  ")
    return bool(wrong)


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        from mmulator.doors.torch import install

        install()
    assert Path(sys.argv[2]).suffix == ".npz"
    sys.exit(main(*sys.argv[1:3]))
