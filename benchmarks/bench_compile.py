"""Cold compile: processor time to load and compile kernels that were never compiled before, with all fixed code in place.

    python benchmarks/bench_compile.py [layernorm ...] [--rounds 5] [--against SRC]
    python benchmarks/bench_compile.py --unseen FOLDER --objects FOLDER [--against SRC --objects-against FOLDER]

Milliseconds of processor time of all threads, and microseconds an instruction: the least of the rounds. Names are files of
tests/kernels/ptx, whose kernels all are compiled. Fixed code is what a wheel has: native functions and stencils, which each
process compiles first. --against: the folder `src` of another commit, whose processes take turns with ours.

--unseen: instead, each .ptx of a folder in a process of its own with an empty cache, behind one other small kernel. --objects:
what `python tools/ship.py FOLDER release` made, as a wheel has it; what is not in it each process compiles, and that counts.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from os import environ
from pathlib import Path
from typing import Any

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
UNSEEN = """
import json, os, sys, time
import mmulator as mm

text, first = json.loads(sys.stdin.read())
for kernel in mm.Module.load(first).values():
    kernel.compile()
start = time.process_time()
for kernel in mm.Module.load(text).values():
    kernel.compile()
print(json.dumps(time.process_time() - start))
"""
INSTRUCTION = re.compile(r"^\s+(?:@!?%\w+\s+)?[a-z][\w.:]*\s[^;]*;|^\s+(?:ret|exit);", re.MULTILINE)


def said(program: str, src: str, given: object) -> Any:
    """The JSON that a process prints, with an empty cache."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-c", program, scratch], input=json.dumps(given), capture_output=True, text=True,
            env={**environ, "PYTHONPATH": src, "MMULATOR_CACHE": scratch},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measured(src: str, texts: dict[str, str]) -> dict[str, float]:
    return dict(said(PROGRAM, src, texts))


def unseen(src: str, texts: dict[str, str]) -> dict[str, float]:
    first = (ROOT / "examples" / "handwritten" / "mma.ptx").read_text()
    return {name: said(UNSEEN, src, [text, first]) for name, text in texts.items()}


def installed(src: str, objects: str, folder: Path) -> str:
    """A copy of a package with object code, as a wheel has it."""
    shutil.copytree(src, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(objects, folder / "mmulator" / "objects", dirs_exist_ok=True)
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--unseen", metavar="FOLDER", type=Path)
    parser.add_argument("--objects", metavar="FOLDER")
    parser.add_argument("--objects-against", metavar="FOLDER")
    o = parser.parse_args()
    folder = ROOT / "tests" / "kernels" / "ptx"
    paths = sorted(o.unseen.glob("*.ptx")) if o.unseen else [folder / f"{name}.ptx" for name in o.names]
    texts = {path.stem: path.read_text() for path in paths}
    sources = {"ours": str(ROOT / "src"), **({"before": o.against} if o.against else {})}
    least: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for which, objects in (("ours", o.objects), ("before", o.objects_against)):
            if objects:
                sources[which] = installed(sources[which], objects, Path(scratch, which))
        for _ in range(o.rounds):
            for which, src in sources.items():
                for name, seconds in (unseen if o.unseen else measured)(src, texts).items():
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
