"""Random numbers of torch on cuda, as a GPU draws them and as mmulator does.

    python tests/doors/programs/torch_random.py write numbers.json    on a machine with a GPU: a checksum of each case
    python -m tests.doors.programs.torch_random 7 1000 1500003        on any other: {name of a case: whether it agrees} as JSON

tests/data/torch_random_h100.json is the file of torch 2.11.0+cu130 on an H100; the numbers are sizes of SIZES.
"""

import json
import sys
from collections.abc import Callable
from hashlib import sha256
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


def _sum(t: torch.Tensor) -> str:
    """Checksum of a result and of the generator's place after it."""
    raw = t.contiguous().cpu().view(-1).view(torch.uint8).numpy()
    if raw.size > 8192:
        words = np.pad(raw, (0, -raw.size % 8)).view(np.uint64)
        sums = np.array([np.bitwise_xor.reduce(words), words.sum(dtype=np.uint64)], np.uint64)
        raw = np.concatenate([raw[:512], raw[raw.size // 32 * 16 :][:512], raw[-512:], sums.view(np.uint8)])
    place = np.array([torch.cuda.default_generators[0].get_offset()], np.int64)
    return sha256(raw.tobytes() + place.tobytes()).hexdigest()[:16]


def draw(sizes: tuple[int, ...] = SIZES) -> dict[str, str]:
    """Checksums, by name of a case with its size."""
    found = {}
    for name, case in CASES.items():
        for size in sizes:
            torch.manual_seed(SEED)
            found[f"{name} {size}"] = _sum(case(size))
    return found


if __name__ == "__main__":
    if sys.argv[1] == "write":
        Path(sys.argv[2]).write_text(json.dumps(draw(), indent=0) + "\n")
        print(torch.__version__, torch.cuda.get_device_name(0))
        sys.exit()
    from mmulator.doors.torch import install
    from tests.support.places import DATA

    install()
    torch.set_num_threads(1)
    kept = json.loads((DATA / "torch_random_h100.json").read_text())
    agree = {name: kept[name] == found for name, found in draw(tuple(int(n) for n in sys.argv[1:])).items()}
    print(json.dumps({case: all(a for n, a in agree.items() if n.rpartition(" ")[0] == case) for case in CASES}))
