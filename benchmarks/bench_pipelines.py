"""One GEMM fed in two ways: tensor maps and mbarriers from a warpgroup that loads, or cp.async. Multiply-accumulates a second.

    python benchmarks/bench_pipelines.py [--size 1024] [--threads 2] [--seconds 3]

The kernels are tests/kernels/cuda/gemm_pipelines.cu, with the same tiles, stages and products. Their launches take turns, so
that a busy machine slows both down; G/s are those of the fastest.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import mmulator as mm

PTX = Path(__file__).parents[1] / "tests" / "kernels" / "ptx" / "gemm_pipelines.ptx"
SHARED = 164864  # bytes: four stages of A and B, and the results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024, help="of all three dimensions")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=3.0)
    o = parser.parse_args()
    n = o.size
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float16) for _ in range(2))
    results = {name: np.zeros((n, n), np.float16) for name in ("gemm_tma", "gemm_cp_async")}
    module = mm.Module.load(PTX)
    tiles = -(-n // 128)

    def boxes(x: np.ndarray, rows: int) -> mm.TensorMap:
        return mm.TensorMap.tiled(x, (rows, 64), swizzle="128B")

    launches = {
        "gemm_tma": ((min(2 * tiles * tiles // 2, 16), 1, 1), 384, [boxes(a, 128), boxes(b, 64), boxes(results["gemm_tma"], 64)]),
        "gemm_cp_async": ((tiles, tiles, 1), 256, [a, b, results["gemm_cp_async"]]),
    }
    best = dict.fromkeys(launches, float("inf"))
    end = None
    while end is None or time.perf_counter() < end:
        for name, (grid, block, args) in launches.items():
            start = time.perf_counter()
            module[name].launch(grid, block, [*args, n, n, n], SHARED, device="sm_90", threads=o.threads)
            if end is not None:  # the first turn compiles
                best[name] = min(best[name], time.perf_counter() - start)
        end = end or time.perf_counter() + o.seconds
    assert (results["gemm_tma"].view(np.uint16) == results["gemm_cp_async"].view(np.uint16)).all()
    for name, seconds in best.items():
        print(f"{name:16} {n**3 / seconds / 1e9:7.2f} G/s")
    print(f"ratio            {best['gemm_cp_async'] / best['gemm_tma']:7.2f}")


if __name__ == "__main__":
    main()
