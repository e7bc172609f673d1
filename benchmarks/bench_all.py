"""All figures of docs/explanation/speed.md about waiting, by one command: a row for each claim, by its own program here.

    python benchmarks/bench_all.py [cold ...] [--against SRC] [--objects FOLDER] [--objects-against FOLDER] [--suite FOLDER]
        [--ttsem PYTHON] [--release FOLDER]

SRC is the folder `src` of another commit, whose processes take turns with ours where a program can do that. --objects and
--objects-against: what `python tools/ship.py FOLDER release` made of either. --suite: a folder with a public test suite; what
is behind `--` goes to pytest. --ttsem: the Python of an environment with ttsem (bench_ttsem.py). --release: the folder `dist`
of a build with MMULATOR_SHIP=release. Rows without what they need are left out, with a line that says so. All of them take
half an hour.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from processes import spent

FOLDER = Path(__file__).parent
# claim: (goal, command; what is in braces comes from the options)
ROWS: dict[str, tuple[str, list[str]]] = {
    "cold": (
        "60 kernels of the repository and 30 of others (--unseen), 2.5 times in the median",
        ["bench_compile.py", "--objects={objects}", "--unseen={unseen}", "--against={against}",
         "--objects-against={objects_against}"],
    ),
    "types": (
        "first GEMMs of bf16 and FP8, 2 times",
        ["bench_start.py", "gemm1024:bf16", "gemm1024:fp8e5", "--parts", "--objects={objects}", "--against={against}"],
    ),
    "starts": ("0.05 s behind NumPy; run 0.1 s more; help 0.15 s", ["bench_start.py", "--goals", "--against={against}"]),
    "install": ("20 s on 2 cores; a wheel of 25 MB, an sdist of 3", ["bench_install.py", "--release={release}"]),
    "sanitizer": ("10 times a plain launch, GEMM 3, one block 0.15 ms", ["bench_sanitize.py", "--against={against}"]),
    "random": ("randn 50 times faster than with NumPy; torch's CPU beside it", ["bench_random.py", "--against={against}"]),
    "products": ("small integers 2.5 times; NumPy beside them", ["bench_matmul.py", "--cpu-time", "--threads=1"]),
    "instruction": ("mmasim beside it", ["bench_mmasim.py"]),
    "launches": (
        "NumPy, Triton's interpreter and ttsem beside them, mma.sync on sm_90 beside wgmma",
        ["bench_table.py", "--cpu-time", "--interpreter", "--ttsem={ttsem}", "--against={against}"],
    ),
    "suite": ("cold: at most Triton's compiler; warm: 0.3 of the rest", ["bench_suites.py", "{suite}", "--objects={objects}"]),
    "dask": ("2, 4, 8 workers, where there are cores for them", ["bench_dask.py"]),
}  # fmt: skip

_NEEDED = {"cold": ("--objects=",)}  # options without which a row says nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=[], help=f"of {', '.join(ROWS)}")
    for name in ("against", "objects", "objects-against", "suite", "unseen", "ttsem", "release"):
        parser.add_argument(f"--{name}", default="")
    arguments, rest = sys.argv[1:], list[str]()
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1 :]
    o = parser.parse_args(arguments)
    for row in o.rows or ROWS:
        goal, command = ROWS[row]
        words = [word.format(**vars(o)) for word in command]
        missing = [word for word in words if word == "" or word in _NEEDED.get(row, ())]
        print(f"\n{row}: {goal}" + ("; left out: an option for it is missing" if missing else ""), flush=True)
        if missing:
            continue
        words = [word for word in words if not word.endswith("=")] + (rest if row == "suite" else [])
        program = [sys.executable, str(FOLDER / words[0]), *words[1:]]
        with spent() as cost:
            end = subprocess.run(program, env={**os.environ, "PYTHONPATH": str(FOLDER.parent / "src")})
        print(f"{row}: {cost[0]:.1f} processor seconds in all" + (f"; exit code {end.returncode}" if end.returncode else ""))


if __name__ == "__main__":
    main()
