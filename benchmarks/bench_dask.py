"""Launches that a Dask cluster shares out: 1, 2, 4, 8 workers of this machine, a process each, beside threads of one process.

    python benchmarks/bench_dask.py [--workers 1,2] [--sizes 512,1024,2048,4096] [--rounds 3] [--json FILE]

The GEMM is examples/hopper_gemm (f16, wgmma), of size cubed; the attention is tests/kernels/ptx/attention_causal_sm90.ptx, with
16 heads of size x 64 each. ms: least of the rounds, second and later launches. range: milliseconds of a range of blocks
that do nothing. The bits of all ways are compared. Without --workers: of 1, 2, 4, 8 as many as there are cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import mmulator as mm

ROOT = Path(__file__).resolve().parents[1]
HEADS = 16
EMPTY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry empty(.param .u64 p) { ret; }
"""


def gemm(size: int) -> tuple[Any, Any, int, list[Any], int]:
    """(kernel, grid, threads of a block, arguments, bytes of shared memory); the array that is written is argument 2."""
    kernel = mm.Module.load((ROOT / "examples/hopper_gemm/gemm.ptx").read_text())["gemm"]
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal((size, size), np.float32).astype(np.float16) for _ in "ab")
    sizes = [np.int32(size)] * 3
    blocks = -(-size // 128)
    return kernel, (blocks, blocks), 128, [a, b, np.zeros((size, size), np.float16), *sizes, 0, 0], 98304


def attention(size: int) -> tuple[Any, Any, int, list[Any], int]:
    """As `gemm`; the array that is written is argument 3."""
    case = json.loads((ROOT / "tests/kernels/manifest.json").read_text())["attention_causal_sm90"]
    kernel = mm.Module.load((ROOT / "tests/kernels" / case["ptx"]).read_text())[case["entry"]]
    _, length, depth = case["args"][0][2]
    rows = length // case["grid"][0]
    rng = np.random.default_rng(size)
    q, k, v = (rng.standard_normal((HEADS, size, depth), np.float32).astype(np.float16) for _ in "qkv")
    out, sums = np.zeros_like(q), np.zeros((HEADS, size), np.float32)
    scale = np.float32(case["args"][6]["f32"])
    return kernel, (size // rows, HEADS), case["block"][0], [q, k, v, out, sums, np.int32(size), scale, 0, 0], case["shared"]


def empty(size: int) -> tuple[Any, Any, int, list[Any], int]:
    return mm.Module.load(EMPTY)["empty"], (4096,), 32, [np.zeros(16, np.float32)], 0


KERNELS = {"gemm": (gemm, 2), "attention": (attention, 3)}


def timed(case: tuple[Any, Any, int, list[Any], int], written: int, rounds: int, **how: Any) -> tuple[float, bytes]:
    """Least milliseconds of a launch behind a first one, and the bytes that it wrote."""
    kernel, grid, block, arguments, shared = case
    times = []
    for _ in range(rounds + 1):
        before = time.perf_counter()
        kernel.launch(grid, block, arguments, shared=shared, device="sm_90", **how)
        times.append(time.perf_counter() - before)
    return 1e3 * min(times[1:]), arguments[written].tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--workers", default=",".join(str(n) for n in (1, 2, 4, 8) if n <= (os.cpu_count() or 1)))
    parser.add_argument("--sizes", default="512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    workers, sizes = ([int(n) for n in text.split(",")] for text in (given.workers, given.sizes))
    rows: dict[str, dict[str, float]] = {f"{name} {size}": {} for name in KERNELS for size in sizes}
    bits: dict[str, bytes] = {}
    for name, (make, written) in KERNELS.items():
        for size in sizes:
            row = f"{name} {size}"
            for n in (1, *(n for n in workers if n > 1)):
                took, found = timed(make(size), written, given.rounds, threads=n)
                rows[row][f"{n} threads"] = took
                print(f"{row}, {n} threads: {took:.1f} ms", file=sys.stderr, flush=True)
                assert bits.setdefault(row, found) == found
    for n in workers:
        with LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
            for name, (make, written) in KERNELS.items():
                for size in sizes:
                    row = f"{name} {size}"
                    took, found = timed(make(size), written, given.rounds, workers=client)
                    rows[row][f"{n} workers"] = took
                    print(f"{row}, {n} workers: {took:.1f} ms", file=sys.stderr, flush=True)
                    assert bits[row] == found, row
            rows.setdefault("range", {})[f"{n} workers"] = timed(empty(0), 0, 2 * given.rounds, workers=client)[0] / (4 * n)
    heads = [f"{n} {what}" for what in ("threads", "workers") for n in workers]
    print(f"{'ms':<16}" + "".join(f"{head:>11}" for head in heads))
    for row, times in rows.items():
        print(f"{row:<16}" + "".join(f"{times[head]:11.1f}" if head in times else " " * 11 for head in heads))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
