"""Whole kernels against NumPy on the same cores, in turns: plain Triton (speed_kernels.py), compiled without a GPU.

    python benchmarks/bench_table.py [vadd softmax ...] [--cpu-time] [--rounds 7] [--against SRC] [--interpreter]
        [--ttsem PYTHON] [--json FILE]

ms: of second and later launches. of numpy: NumPy's time / ours with all threads, so 1 is NumPy's speed. second thread: how
much faster two threads are than one. Seconds are medians of the clock on the wall; with --cpu-time the least of all rounds in
seconds of the processor, where ratios are to one thread, NumPy has one thread, too, and `second thread` says what two
threads take together: that is for machines on which others work, too.

--against: the folder `src` of another commit, whose launches take turns with ours (in a process of its own; if its doors have
other names, a folder that `pip install --no-deps --target` filled). noise: the other commit against itself, in two
processes. --interpreter: Triton's own interpreter, too (it needs torch). --ttsem: as bench_ttsem.py says. sm_80@sm_90: PTX for
sm_80 on device sm_90, where `mma.sync` has that chip's chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from processes import CPU_TIME, Other, answer

if CPU_TIME:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy reads it once

import numpy as np

STILL = 0.2  # seconds until NumPy's threads sleep: OpenBLAS's wait busily for more, some 0.1 s after a product
HERE = Path(__file__).parent
clock = time.process_time if CPU_TIME else time.perf_counter


def timed(call: Any, seconds: float = 0.1) -> float:
    """Median seconds of the calls of a moment, behind half as long a one that wakes the cores and fills the caches."""
    times: list[float] = []
    start = time.perf_counter()
    counted = start + seconds / 2
    while not times or time.perf_counter() < counted + seconds:
        begun, before = time.perf_counter(), clock()
        call()
        took = clock() - before
        if begun >= counted or took > 10 * seconds:
            times.append(took)
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
    compiled, _, runs = device.partition("@")
    made = mm.triton.compile(case.kernel, case.signature, case.constants, device=compiled, num_warps=case.warps)
    made.device = runs or compiled

    def launch(threads: int) -> None:
        made.launch(case.grid, *case.arguments, threads=threads)

    for at, value in case.again.items():
        case.arguments[at][...] = value
    launch(2)
    if checked:
        got, wanted = case.arguments[case.result].astype(np.float64), np.asarray(case.numpy(), np.float64)
        assert np.abs(got - wanted).max() <= case.close * np.abs(wanted).max(), (name, device)
    return settled(launch), case.numpy


def interpreted(name: str) -> Any:
    import speed_kernels
    import torch

    case = speed_kernels.cases()[name]()
    tensors = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in case.arguments]
    return lambda threads: case.kernel[case.grid](*tensors, **case.constants)


def worker() -> None:
    """The other commit, or Triton's interpreter."""
    import mmulator as mm

    known: dict[Any, Any] = {}

    def seconds(name: str, device: str, threads: int) -> float | None:
        if (name, device) not in known:
            try:
                known[name, device] = interpreted(name) if device == "interpreter" else ours(name, device, False)[0]
            except mm.errors.UnsupportedError:  # by an older commit
                known[name, device] = None
        return timed(lambda: known[name, device](threads)) if known[name, device] else None

    answer(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--interpreter", action="store_true")
    parser.add_argument("--ttsem", metavar="PYTHON")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", action="store_true")
    o = parser.parse_args()
    if o.worker:
        worker()
        return
    import speed_kernels

    before = {which: Other(__file__, against=o.against) for which in ("before", "noise")} if o.against else {}
    peers = {"interpr.": Other(__file__, TRITON_INTERPRET="1")} if o.interpreter else {}
    if o.ttsem:
        peers["ttsem"] = Other(str(HERE / "bench_ttsem.py"), o.ttsem, PYTHONPATH=str(HERE))
    heads = {"1 thread": 10, "2 threads": 10, "numpy": 10, "of numpy": 9, "2nd thread": 11}
    heads |= {"before": 8, "noise": 7, "interpr.": 9, "ttsem": 8}
    print(" " * 20 + "".join(f"{head:>{width}}" for head, width in heads.items()))
    rows = []
    best = min if CPU_TIME else statistics.median
    threads, mine = (1, "one") if CPU_TIME else (2, "two")  # that ratios are to
    for name, make in speed_kernels.cases().items():
        if o.names and name not in o.names:
            continue
        devices = make().devices
        for device in [*devices, *(["sm_80@sm_90"] if "sm_80" in devices else [])]:
            launch, numpy = ours(name, device, True)
            there = {which: ask for which, ask in before.items() if ask(name, device, 2) is not None}
            times: dict[str, list[float]] = {}
            for _ in range(o.rounds):
                time.sleep(STILL)
                times.setdefault("two", []).append(timed(lambda: launch(2)))  # noqa: B023
                times.setdefault("one", []).append(timed(lambda: launch(1)))  # noqa: B023
                for which, ask in there.items():
                    times.setdefault(which, []).append(ask(name, device, threads))
                times.setdefault("numpy", []).append(timed(numpy))
            for which, ask in peers.items():
                if device == devices[0]:
                    times[which] = [ask(name, "interpreter", 1)]
            m = {key: best(values) for key, values in times.items()}
            rows.append({"name": name, "device": device, **m})
            given = {which: m[which] / m["before" if which == "noise" else mine] for which in (*before, *peers) if which in m}
            more = "".join(f"{given[h]:{w}.2f}" if h in given else " " * w for h, w in [*heads.items()][5:])
            print(f"{name + ' ' + device:20}{m['one'] * 1e3:10.3f}{m['two'] * 1e3:10.3f}{m['numpy'] * 1e3:10.3f}"
                  f"{m['numpy'] / m[mine]:9.3f}{m['one'] / m['two']:11.2f}{more}", flush=True)  # fmt: skip
    if o.json:
        Path(o.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
