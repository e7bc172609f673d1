"""Cold compile: processor time to load and compile kernels that were never compiled before, with all fixed code in place.

    python benchmarks/bench_compile.py [layernorm ...] [--rounds 5] [--against SRC]

Milliseconds of processor time of all threads, and microseconds an instruction: the least of the rounds. Names are files of
tests/kernels/ptx, whose kernels all are compiled. Fixed code is what a wheel has: native functions and stencils, which each
process compiles first. --against: the folder `src` of another commit, whose processes take turns with ours.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from os import environ
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = (
    "layernorm", "softmax_online", "cross_entropy", "histogram", "transpose_u8", "casts", "random", "integers", "elementary",
    "reductions_f32", "sort_f32", "gemm_f16_tn_sm90", "gemm_f16_odd_sm90", "gemm_f16_odd_sm80", "gemm_bf16_bits_sm90",
    "gemm_w8_sm80", "attention_causal_sm90", "attention_odd_sm80",
)  # fmt: skip
PROGRAM = """
import gc, json, os, sys, tempfile, time
import mmulator as mm
from mmulator.codegen import store

texts, best = json.loads(sys.stdin.read()), {}
for turn in range(3):
    os.environ["MMULATOR_CACHE"] = tempfile.mkdtemp(dir=sys.argv[1])
    store.store.cache_clear()
    for name, text in texts.items():
        gc.collect()
        start = time.process_time()
        for kernel in mm.Module.load(f"{text}// {turn}\\n").values():
            kernel.compile()
        if turn:
            best[name] = min(best.get(name, 1e9), time.process_time() - start)
print(json.dumps(best))
"""
INSTRUCTION = re.compile(r"^\s+(?:@!?%\w+\s+)?[a-z][\w.:]*\s[^;]*;|^\s+(?:ret|exit);", re.MULTILINE)


def measured(src: str, texts: dict[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, scratch], input=json.dumps(texts), capture_output=True, text=True,
            env={**environ, "PYTHONPATH": src, "MMULATOR_CACHE": scratch},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="SRC")
    o = parser.parse_args()
    texts = {name: (ROOT / "tests" / "kernels" / "ptx" / f"{name}.ptx").read_text() for name in o.names}
    sources = {"ours": str(ROOT / "src"), **({"before": o.against} if o.against else {})}
    least: dict[str, dict[str, float]] = {}
    for _ in range(o.rounds):
        for which, src in sources.items():
            for name, seconds in measured(src, texts).items():
                row = least.setdefault(name, {})
                row[which] = min(row.get(which, seconds), seconds)
    for name, row in least.items():
        size = len(INSTRUCTION.findall(texts[name]))
        figures = "".join(f"  {which} {1e3 * s:7.1f} ms {1e6 * s / size:6.0f} us/instr" for which, s in row.items())
        ratio = f"  {row['before'] / row['ours']:5.2f} times faster" if o.against else ""
        print(f"{name:24}{size:6} instr{figures}{ratio}", flush=True)
    if o.against:
        print(f"median {statistics.median(row['before'] / row['ours'] for row in least.values()):.2f} times faster")


if __name__ == "__main__":
    main()
