"""The recorded kernels of tests/kernels on a GPU and here: how many times longer a launch takes without one.

    python benchmarks/bench_native.py OUT [--seconds 120] [--rounds 3]     # on a machine with a GPU, ncu and the extra `gpu`

GPU: gpu__time_duration of Nsight Compute, one launch of each, caches as they are. Here: report.seconds["run"], the least of some
launches behind a first one, on all cores. OUT/native.json has both for each launch; the table has medians by what compiled the
kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from evidence.capture.counters import counted
from tests.support import corpus

METRIC = "gpu__time_duration.sum"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no launch after so many, on either side")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = counted(given.out, "native", [METRIC], ["kernels", "1", f"{given.seconds}"])
    gpu = {row["name"]: float(row["counts"][METRIC.removesuffix(".sum")].replace(",", "")) / 1e9 for row in rows if "name" in row}
    here: dict[str, float] = {}
    end = time.monotonic() + given.seconds
    for name in gpu:
        if time.monotonic() > end:
            break
        corpus.launch(name)
        here[name] = min(corpus.launch(name).report.seconds["run"] for _ in range(given.rounds))
    found = {name: {"gpu": gpu[name], "here": seconds} for name, seconds in here.items()}
    (given.out / "native.json").write_text(json.dumps(found, indent=1) + "\n")
    groups: dict[str, list[str]] = {"all": list(found)}
    for name in found:
        groups.setdefault(corpus.manifest()[name]["source"].split()[0], []).append(name)
    print(f"| {os.cpu_count()} cores | launches | GPU, us | here, us | times, median | least | most |")
    for group, names in groups.items():
        times = [found[name]["here"] / found[name]["gpu"] for name in names]
        medians = (1e6 * statistics.median(found[name][side] for name in names) for side in ("gpu", "here"))
        gpu_us, here_us = medians
        print(f"| {group} | {len(names)} | {gpu_us:.1f} | {here_us:.0f} | {statistics.median(times):.0f} | {min(times):.1f} "
              f"| {max(times):.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
