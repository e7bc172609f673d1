"""Whole kernels against NumPy on the same cores, in turns: plain Triton (speed_kernels.py), compiled without a GPU.

    python benchmarks/bench_table.py [vadd softmax ...] [--rounds 7] [--against SRC] [--interpreter] [--json FILE]

ms: medians of second and later launches. of numpy: NumPy's time / ours with all threads, so 1 is NumPy's speed. second thread:
how much faster two threads are than one. --against: the folder `src` of another commit, whose launches take turns with ours (in
a process of its own). --interpreter: Triton's own interpreter too (it needs torch).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

STILL = 0.2  # seconds until NumPy's threads sleep: OpenBLAS's wait busily for more, some 0.1 s after a product


def timed(call: Any, seconds: float = 0.1) -> float:
    """Median seconds of the calls of a moment, behind half as long a one that wakes the cores and fills the caches."""
    times: list[float] = []
    start = time.perf_counter()
    counted = start + seconds / 2
    while not times or time.perf_counter() < counted + seconds:
        before = time.perf_counter()
        call()
        after = time.perf_counter()
        if before >= counted or after - before > 10 * seconds:
            times.append(after - before)
    return statistics.median(times)


def settled(launch: Any, seconds: float = 1.0) -> Any:
    """A launch whose better code, which is made while it runs, is there."""
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        launch(2)
    time.sleep(seconds)
    return launch


def ours(name: str, device: str, checked: bool) -> Any:
    """A function that launches on so many threads."""
    import speed_kernels

    import mmulator as mm

    case = speed_kernels.cases()[name]()
    made = mm.triton.compile(case.kernel, case.signature, case.constants, device=device, num_warps=case.warps)

    def launch(threads: int) -> None:
        made.launch(case.grid, *case.arguments, threads=threads)

    for at, value in case.again.items():
        case.arguments[at][...] = value
    launch(2)
    if checked:
        got, wanted = case.arguments[case.result].astype(np.float64), np.asarray(case.numpy(), np.float64)
        assert np.abs(got - wanted).max() <= case.close * np.abs(wanted).max(), (name, device)
    return settled(launch), case.numpy


def worker() -> None:
    """Reads lines [name, device, threads], answers with seconds. The other commit, or Triton's interpreter."""
    known: dict[Any, Any] = {}
    for line in sys.stdin:
        name, device, threads = json.loads(line)
        if (name, device) not in known:
            known[name, device] = interpreted(name) if device == "interpreter" else ours(name, device, False)[0]
        print(json.dumps(timed(lambda: known[name, device](threads))), flush=True)  # noqa: B023


def interpreted(name: str) -> Any:
    import speed_kernels
    import torch

    case = speed_kernels.cases()[name]()
    tensors = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in case.arguments]
    return lambda threads: case.kernel[case.grid](*tensors, **case.constants)


class Other:
    """A process of a benchmark that measures on demand."""

    def __init__(self, script: str = __file__, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, script, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    def __call__(self, *what: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--interpreter", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", action="store_true")
    o = parser.parse_args()
    if o.worker:
        worker()
        return
    import speed_kernels

    before = Other(PYTHONPATH=o.against, MMULATOR_CACHE=o.against + "/.cache") if o.against else None
    peer = Other(TRITON_INTERPRET="1") if o.interpreter else None
    print(f"{'':16}{'1 thread':>10}{'2 threads':>10}{'numpy':>10}{'of numpy':>9}{'2nd thread':>11}{'before':>8}{'interpr.':>9}")
    rows = []
    for name, make in speed_kernels.cases().items():
        if o.names and name not in o.names:
            continue
        for device in make().devices:
            launch, numpy = ours(name, device, True)
            if before:
                before(name, device, 2)
            if peer:
                peer(name, "interpreter", 1)
            times: dict[str, list[float]] = {}
            for _ in range(o.rounds):
                time.sleep(STILL)
                times.setdefault("two", []).append(timed(lambda: launch(2)))  # noqa: B023
                times.setdefault("one", []).append(timed(lambda: launch(1)))  # noqa: B023
                if before:
                    times.setdefault("before", []).append(before(name, device, 2))
                times.setdefault("numpy", []).append(timed(numpy))
            if peer:
                times["interpreter"] = [peer(name, "interpreter", 1)]
            m = {key: statistics.median(values) for key, values in times.items()}
            rows.append({"name": name, "device": device, **m})
            more = "".join(f"{m[k] / m['two']:{w}.2f}" if k in m else " " * w for k, w in (("before", 8), ("interpreter", 9)))
            print(f"{name + ' ' + device:16}{m['one'] * 1e3:10.3f}{m['two'] * 1e3:10.3f}{m['numpy'] * 1e3:10.3f}"
                  f"{m['numpy'] / m['two']:9.3f}{m['one'] / m['two']:11.2f}{more}", flush=True)  # fmt: skip
    if o.json:
        Path(o.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
