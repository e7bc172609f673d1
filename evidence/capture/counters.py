"""Read a GPU's counters of memory accesses with Nsight Compute: single accesses, and the kernels of tests/kernels.

    python -m evidence.capture.counters run OUT [--seconds N] [--count N]  # on the GPU, needs ncu and the extra `gpu`: OUT/*.json
    python -m evidence.capture.counters pack OUT ...             # no GPU: tests/data/counter_vectors.npz, kernel_counters.json

`run` stops launching after N seconds in each of its three parts. `pack` takes sums of kernels that one folder lacks from the
next. kernel_counters.json has their requests from an H100, everything else is from an H200.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.errors import MmulatorError
from tests.data.counter_vectors import DATA, FILE, KERNEL_METRICS, KERNELS, METRICS, forms, tables
from tests.support import corpus

SEED = 2


def counted(out: Path, name: str, metrics: list[str], arguments: list[str]) -> list[dict[str, Any]]:
    """What ncu counts of each launch of a part of `worker`; also written to out/name.json."""
    start = time.monotonic()
    report = out / f"{name}.ncu-rep"
    log = out / f"{name}.log"
    worker = [sys.executable, "-m", "evidence.capture.counters", "worker", str(out / f"{name}.launches"), *arguments]
    options = ["--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(metrics), "-f", "-o", str(report)]
    with log.open("w") as file:
        code = subprocess.run(["ncu", *options, *worker], stdout=file, stderr=subprocess.STDOUT).returncode
    shown = ["--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled"]
    page = subprocess.run(["ncu", "--import", str(report), *shown], capture_output=True, text=True).stdout
    rows = list(csv.DictReader(line for line in page.splitlines() if line.startswith('"')))[1:]
    wanted = {m.removesuffix(".sum") for m in metrics}
    values = [{k.removesuffix(".sum"): v for k, v in row.items() if k.removesuffix(".sum") in wanted} for row in rows]
    said = out / f"{name}.launches"
    launches = [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []
    seconds = time.monotonic() - start
    print(f"{name}: ncu exit {code}, {len(rows)} of {len(launches)} launches, {seconds:.1f} s", flush=True)
    if not rows:
        print(log.read_text()[-1500:], page[-500:], flush=True)
    found, left = [], iter(launches)
    for row, counts in zip(rows, values):  # a launch that failed has no row
        launch = next((x for x in left if x["entry"] == row["Kernel Name"]), None)
        found.append({**(launch or {"entry": row["Kernel Name"]}), "counts": counts})
    (out / f"{name}.json").write_text(json.dumps(found))
    report.unlink(missing_ok=True)
    return found


def names(metrics: dict[str, tuple[str, ...]]) -> list[str]:
    """Names of metrics as ncu takes them."""
    return [name if name.startswith("memory_") else f"{name}.sum" for several in metrics.values() for name in several]


def run(out: Path, count: int, seconds: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    counted(out, "kernels", names(KERNEL_METRICS), ["kernels", f"{count}", f"{seconds}"])
    bulk = {"bulk": METRICS["bulk"]}
    counted(out, "bulk", names(bulk), ["bulk", f"{count}", f"{seconds}"])
    counted(out, "lanes", names({k: v for k, v in METRICS.items() if k not in bulk}), ["lanes", f"{count}", f"{seconds}"])


# what is kept -----------------------------------------------------------------------------------------------------------
def sums(counts: dict[str, str], metrics: dict[str, tuple[str, ...]]) -> list[int]:
    """The sum of each metric's counters; -1 if one of them was not counted."""
    numbers = {name: int(float(text.replace(",", ""))) for name, text in counts.items() if text not in ("", "n/a")}
    return [sum(numbers[k] for k in keys) if all(k in numbers for k in keys) else -1 for keys in metrics.values()]


def pack(out: Path, *others: Path) -> None:
    """Write what the parts counted into files of tests/data."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for part in ("lanes", "bulk"):
        for row in json.loads((out / f"{part}.json").read_text()):
            found.setdefault((row["name"], row["number"]), {}).update(row["counts"])
    arrays: dict[str, Any] = {}
    for name, form in forms().items():
        numbers = sorted(n for other, n in found if other == name)
        given = tables(form, max(numbers) + 1, SEED)
        arrays[f"{name}|tables"] = np.stack([given[n] for n in numbers])
        arrays[f"{name}|counts"] = np.array([sums(found[name, n], METRICS) for n in numbers], np.int32)
    np.savez_compressed(FILE, **arrays)
    print(FILE, FILE.stat().st_size, "bytes,", len(found), "launches")
    kernels: dict[str, list[int]] = {}
    for folder in (out, *others):
        for row in json.loads((folder / "kernels.json").read_text()):
            if "name" in row:
                known = kernels.setdefault(row["name"], [-1] * len(KERNEL_METRICS))
                kernels[row["name"]] = [a if a >= 0 else b for a, b in zip(known, sums(row["counts"], KERNEL_METRICS))]
    lines = ",\n".join(f"{json.dumps(name)}: {kernels[name]}" for name in corpus.manifest() if name in kernels)
    KERNELS.write_text("{\n" + lines + "\n}\n")
    print(KERNELS, len(kernels), "kernels")


# launches -------------------------------------------------------------------------------------------------------------
def worker(said: Path, what: str, count: int, seconds: float) -> None:
    """Launch, and write a line of each launch to the file `said`.

    said: the file.
    what: "lanes" or "bulk": forms, each `count` times; or "kernels": those of tests/kernels.
    count: launches of each form.
    seconds: time after which no launch begins.
    """
    from evidence.capture.gpu import Gpu

    gpu = Gpu()
    end = time.monotonic() + seconds
    with said.open("w") as file:
        if what != "kernels":
            asked = {name: f for name, f in forms().items() if f.bulk is (what == "bulk")}
            data, room = gpu.upload(np.zeros(DATA, np.uint8)), gpu.upload(np.zeros((32, 2), np.uint16))
            made = {name: gpu.function(gpu.module(f.kernel().encode()), "k") for name, f in asked.items()}
            given = {name: tables(f, count, SEED) for name, f in asked.items()}
            for n, name in itertools.product(range(count), asked):
                if time.monotonic() > end:
                    break
                gpu.write_to(room, given[name][n])
                file.write(json.dumps({"name": name, "number": n, "entry": "k"}) + "\n")
                file.flush()
                gpu.start(made[name], 1, 32, [room, data])
        else:
            cases = [*corpus.manifest().items()]
            for name, case in random.Random(SEED).sample(cases, len(cases)):
                if time.monotonic() > end:
                    break
                args, _ = corpus.arguments(case)
                file.write(json.dumps({"name": name, "entry": case["entry"]}) + "\n")
                file.flush()
                try:
                    gpu.run(corpus.FOLDER / case["ptx"], case["entry"], case["grid"], case["block"], args, case["shared"])
                except MmulatorError as error:
                    print(name, error, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "pack"])
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--count", type=int, default=16, help="launches of each form")
    options = parser.parse_args()
    if options.what == "pack":
        pack(*options.out)
    else:
        run(options.out[0], options.count, options.seconds)
