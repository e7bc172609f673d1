"""Random numbers of torch's device cuda: 2^20 of each kind, beside torch's own on the CPU and another commit's.

    python benchmarks/bench_random.py [--rounds 3] [--against SRC]

Milliseconds of all cores together, the least of 5 runs in each of several processes that take turns. --against: the folder `src`
of another commit, whose processes take turns with ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys, time
import torch
if sys.argv[1] == "cuda":
    from mmulator.doors.torch import install
    install()
kinds = {
    "randn": lambda: torch.randn(1 << 20, device=sys.argv[1]),
    "randn float16": lambda: torch.randn(1 << 20, device=sys.argv[1], dtype=torch.float16),
    "randn float64": lambda: torch.randn(1 << 20, device=sys.argv[1], dtype=torch.float64),
    "rand": lambda: torch.rand(1 << 20, device=sys.argv[1]),
    "randint": lambda: torch.randint(0, 100, (1 << 20,), device=sys.argv[1]),
    "exponential_": lambda: torch.empty(1 << 20, device=sys.argv[1]).exponential_(),
    "dropout": lambda: torch.nn.functional.dropout(ones, 0.3),
    "randn, 64 numbers": lambda: torch.randn(64, device=sys.argv[1]),
}
ones, found = torch.ones(1 << 20, device=sys.argv[1]), {}
for kind, draw in kinds.items():
    draw()
    for _ in range(5):
        begin = time.process_time()
        draw()
        found[kind] = min(found.get(kind, 1e9), (time.process_time() - begin) * 1e3)
print(json.dumps(found))
"""


def measured(source: Path, device: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run([sys.executable, "-c", PROGRAM, device], env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    chosen = parser.parse_args()
    own = Path(__file__).parents[1] / "src"
    columns = {"cuda here": (own, "cuda"), "torch's CPU": (own, "cpu")}
    if chosen.against:
        columns["before"] = chosen.against, "cuda"
    best: dict[str, dict[str, float]] = {name: {} for name in columns}
    for _ in range(chosen.rounds):
        for name, how in columns.items():
            for kind, value in measured(*how).items():
                best[name][kind] = min(best[name].get(kind, value), value)
    print(f"{'':20}", *(f"{name:>12}" for name in columns), *(["before / now"] if chosen.against else []))
    for kind, now in best["cuda here"].items():
        ratio = [f"{best['before'][kind] / now:12.1f}"] if chosen.against else []
        print(f"{kind:20}", *(f"{best[name][kind]:12.3f}" for name in columns), *ratio)


if __name__ == "__main__":
    main()
