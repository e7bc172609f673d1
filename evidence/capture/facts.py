"""Measure small facts on a GPU and print them as JSON: shared-memory addresses, errors of the approximate functions.

nvcc -ptx -std=c++17 -arch=compute_90 evidence/capture/facts.cu -o FILE
python -m evidence.capture.facts FILE
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from evidence.capture.gpu import Gpu

PI = 3.14159274


def launched(
    gpu: Gpu, module: Any, entry: str, shape: tuple[int, int, int], sizes: tuple[int, ...], *more: Any
) -> list[np.ndarray]:
    """Arrays of so many words of 64 bits, as a kernel leaves them. shape: blocks, threads, shared bytes. more: ctypes values."""
    blocks, threads, shared = shape
    given = [np.zeros(size, np.uint64) for size in sizes]
    places = [gpu.upload(x) for x in given]
    gpu.start(gpu.function(module, entry, shared), blocks, threads, [*places, *more], shared)
    return [gpu.download(place, x) for place, x in zip(places, given)]


def words(gpu: Gpu, module: Any, entry: str, shared: int, count: int, address: int = 0) -> list[int]:
    return launched(gpu, module, entry, (1, 32, shared), (count,), ctypes.c_uint32(address))[0].tolist()


def main() -> None:
    image = Path(sys.argv[1]).read_bytes()
    if sys.argv[2:]:  # a child: one load that may fault
        gpu = Gpu()
        print(json.dumps([hex(v) for v in words(gpu, gpu.module(image), "peek", int(sys.argv[3]), 2, int(sys.argv[2]))]))
        return
    gpu = Gpu(60)
    module = gpu.module(image)
    facts: dict[str, object] = {}
    for shared in (0, 1024, 65536):
        facts[f"base_dynamic {shared}"] = [hex(v) for v in words(gpu, module, "base_dynamic", shared, 10)]
        facts[f"base_static {shared}"] = [hex(v) for v in words(gpu, module, "base_static", shared, 4)]
    for size in (128, 132, 1000):
        for end in (size, 256, 384, 512, 1024, 1152, 2048):
            child = subprocess.run(
                [sys.executable, "-m", "evidence.capture.facts", sys.argv[1], str(1024 + end), str(size)],
                capture_output=True, text=True,
            )
            facts[f"{size} bytes, peek at base + {end}"] = (child.stdout or child.stderr).strip().splitlines()[-1]
    for address in (
        0,
        4,
        512,
        1020,
        1024,
        1024 + 4092,
        1024 + 4096,
        8192,
        0x10000,
        0x38000,
        0x39000,
        0x1000000,
        0x80000000,
        0xFFFFFFFC,
    ):
        child = subprocess.run(
            [sys.executable, "-m", "evidence.capture.facts", sys.argv[1], str(address), "4096"], capture_output=True, text=True
        )
        facts[f"peek {address:#x}"] = (child.stdout or child.stderr).strip().splitlines()[-1]
    for name in (
        "ex2_approx",
        "lg2_approx",
        "rcp_approx",
        "rsqrt_approx",
        "sqrt_approx",
        "sin_approx",
        "cos_approx",
        "tanh_approx",
    ):
        for suffix in ("",) if name == "tanh_approx" else ("", "_ftz"):
            for limit in (PI, 100 * PI) if name[:3] in ("sin", "cos") else (float("inf"),):
                made = launched(gpu, module, name + suffix, (132 * 8, 256, 0), (12, 3), ctypes.c_float(limit))
                counts, worst = made[0], made[1].view(np.float64)
                facts[f"ulp {name}{suffix} |x| <= {limit:g}"] = {
                    "distance from correctly rounded, counts of 0 1 2 3 4 5-8 9-16 17-64 65-1024 1025-65536 more NaN": [
                        *counts.tolist()
                    ],
                    "max ulp": float(worst[0]),
                    "max absolute": float(worst[1]),
                    "worst input": hex(int(made[1][2])),
                }
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
