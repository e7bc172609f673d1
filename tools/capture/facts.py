"""Measure small facts on a GPU and print them as JSON: shared-memory addresses, errors of the approximate functions.

nvcc -ptx -std=c++17 -arch=compute_90 tools/capture/facts.cu -o FILE
python -m tools.capture.facts FILE
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.inputs import argument_bytes
from tools.capture.gpu import Gpu

PI = 3.14159274


def words(gpu: Gpu, module: object, entry: str, shared: int, count: int, *more: int) -> list[int]:
    made = dict(
        gpu.launch(
            module,
            entry,
            [1, 1, 1],
            [32, 1, 1],
            shared,
            ["u64", "u32"],
            [["out", "u64", [count]], *more],
            argument_bytes,
        )
    )
    return [int(v) for v in made["0"].view(np.uint64)]


def main() -> None:
    image = Path(sys.argv[1]).read_bytes()
    if sys.argv[2:]:  # a child: one load that may fault
        gpu = Gpu()
        print(
            json.dumps([hex(v) for v in words(gpu, gpu.module(image), "peek", int(sys.argv[3]), 2, int(sys.argv[2]))])
        )
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
                [sys.executable, "-m", "tools.capture.facts", sys.argv[1], str(1024 + end), str(size)],
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
            [sys.executable, "-m", "tools.capture.facts", sys.argv[1], str(address), "4096"], capture_output=True, text=True
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
                args = [["out", "u64", [12]], ["out", "f64", [3]], {"f32": limit}]
                made = dict(
                    gpu.launch(
                        module,
                        name + suffix,
                        [132 * 8, 1, 1],
                        [256, 1, 1],
                        0,
                        ["u64", "u64", "f32"],
                        args,
                        argument_bytes,
                    )
                )
                worst = made["1"]
                facts[f"ulp {name}{suffix} |x| <= {limit:g}"] = {
                    "distance from correctly rounded, counts of 0 1 2 3 4 5-8 9-16 17-64 65-1024 1025-65536 more NaN": [
                        int(v) for v in made["0"].view(np.uint64)
                    ],
                    "max ulp": float(worst.view(np.float64)[0]),
                    "max absolute": float(worst.view(np.float64)[1]),
                    "worst input": hex(int(worst.view(np.uint64)[2])),
                }
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
