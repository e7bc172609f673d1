"""Approximate functions: speed of the compiled twin beside numpy; the twin against the plain model over many inputs.

    python benchmarks/bench_approx.py [--out FILE.json]        # evaluations a second on one core
    python benchmarks/bench_approx.py --model [--stride 1021]  # minutes: every table row at every x, every exponent
    python benchmarks/bench_approx.py --model --stride 1       # hours: all 2**32 inputs

The speed is that of `f(src, dst, count)` on 16384 numbers that stay in the cache, best of several runs; numpy's exp2
and 1/sqrt are timed in the same run on the same numbers. `--model` compares with the plain integers of `tests/support`,
on all cores: for each f32 form whole binades in which every row of its table meets every x, then every STRIDE-th of all
inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from processes import best

from mmulator.matrix.numerics.sfu.tables import tables_for
from mmulator.matrix.twin.sfu.arrays import array_function
from mmulator.matrix.twin.sfu.native import BINARY, KEYS, Key, word_of

TABLES = tables_for("sm_90")[0]
COUNT = 1 << 14
ROUNDS = 9, 50  # and calls of each
TARGET = 300e6  # evaluations a second a core
# First inputs of binades that together show every row at every x.
BINADES: dict[str, tuple[float, ...]] = {
    "rcp": (1.0,), "rsqrt": (1.0, 2.0), "sqrt": (1.0, 2.0), "lg2": (0.5, 1.0), "ex2": (1.0, -1.0, 0.5),
    "sin": (1.0, 2.0), "cos": (1.0, 2.0), "tanh": tuple(2.0**e for e in range(-8, 4)),
}  # fmt: skip


def speed() -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(0.01, 8, COUNT).astype(np.float32)
    y = np.empty_like(x)
    one = np.float32(1)
    with np.errstate(all="ignore"):
        numpy = {
            "exp2": COUNT / best(lambda: np.exp2(x, out=y), *ROUNDS),
            "1/sqrt": COUNT / best(lambda: np.divide(one, np.sqrt(x, out=y), out=y), *ROUNDS),
        }
    forms = {}
    for key in KEYS:
        name, ty, ftz = key
        narrow = {16: np.float16, 32: np.float32, 64: np.float64}[word_of(key).bits]
        source = x.astype(narrow).view(f"u{word_of(key).size}")
        sources, out = [source] * (2 if key in BINARY else 1), np.empty_like(source)
        function = array_function(*key, TABLES)
        seconds = best(lambda f=function, s=sources, o=out: f(*s, out=o), *ROUNDS)  # type: ignore[misc]
        forms[f"{name}{'.ftz' if ftz else ''}.{ty}"] = COUNT / seconds
    return {"processor": processor(), "numpy": numpy, "forms": forms}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show(result: dict[str, Any]) -> None:
    numpy = result["numpy"]
    print(f"{result['processor']}, one core, million evaluations a second (a packed pair counts once)")
    print(f"numpy exp2 {numpy['exp2'] / 1e6:.0f}, numpy 1/sqrt {numpy['1/sqrt'] / 1e6:.0f}, target {TARGET / 1e6:.0f}")
    for name, rate in result["forms"].items():
        ratios = f"{rate / numpy['exp2']:.2f} of exp2, {rate / numpy['1/sqrt']:.2f} of 1/sqrt"
        print(f"{name:18} {rate / 1e6:6.0f}   {ratios}{'' if rate >= TARGET else '   below the target'}")


# the plain model -----------------------------------------------------------------------------------------------------
def differences(job: tuple[Key, int, int, int]) -> tuple[int, int]:
    """Inputs range(start, stop, step) of a form: how many, and how many on which model and twin differ."""
    from tests.support.sfu_instructions import UNARY

    key, start, stop, step = job
    inputs: NDArray[np.uint32] = np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32)
    function, ftz = UNARY[key], key[2]
    model = np.fromiter((function(x, TABLES, ftz) for x in inputs.tolist()), np.uint32, len(inputs))
    return len(inputs), int(np.count_nonzero(array_function(*key, TABLES)(inputs) != model))


def jobs(key: Key, stride: int) -> list[tuple[Key, int, int, int]]:
    block, found = 1 << 20, []
    for first in BINADES[key[0]] if stride > 1 else ():
        start = int(np.float32(first).view(np.uint32))
        found += [(key, at, at + block, 1) for at in range(start, start + (1 << 23), block)]
    size = block * stride
    return found + [(key, at, min(at + size, 1 << 32), stride) for at in range(0, 1 << 32, size)]


def compare(stride: int) -> bool:
    good = True
    with Pool(len(os.sched_getaffinity(0))) as pool:
        for key in [k for k in KEYS if k[1] == "f32" and k not in BINARY]:
            start = time.monotonic()
            counts = pool.map(differences, jobs(key, stride), chunksize=1)
            total, wrong = (sum(c) for c in zip(*counts))
            good &= wrong == 0
            name = f"{key[0]}{'.ftz' if key[2] else ''}.f32"
            print(f"{name:14} {total} inputs, {wrong} differences, {time.monotonic() - start:.0f} s", flush=True)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--model", action="store_true", help="compare with the plain model instead")
    parser.add_argument("--stride", type=int, default=1021)
    args = parser.parse_args()
    if args.model:
        raise SystemExit(0 if compare(args.stride) else 1)
    result = speed()
    show(result)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
