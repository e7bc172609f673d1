"""Cold compile: processor time to load and compile a kernel that no process compiled before, by size.

    python benchmarks/bench_compile.py [layernorm ...] --objects FOLDER [--unseen FOLDER] [--against SRC --objects-against FOLDER]

Each kernel is loaded and compiled in a process of its own with an empty cache, behind one other small kernel, so that the start
of the process does not count. Milliseconds of processor time of all threads: the least of the rounds. Names are files with PTX of
the repository, whose kernels all are compiled; without names 60 are drawn. --unseen: a folder with PTX of other programs, of
which 30 are drawn, too. --objects: what `python tools/ship.py FOLDER release` made, as a wheel has it; what it lacks each process
compiles, and that counts. --first: each kernel is the first of its process, so that loading the package counts, too. --sanitize:
compiled with checks; times of `plain` are those without. --against: the folder `src` of another commit, whose processes take
turns with ours, twice each: how much the second times differ from the first is the noise. The table has the kernels that both
commits take; after Ctrl-C, those that were measured.
"""

from __future__ import annotations

import argparse
import compileall
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from os import environ
from pathlib import Path

from processes import installed

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels" / "ptx", ROOT / "tests" / "kernels" / "handwritten", ROOT / "examples"
FIRST = ROOT / "examples" / "handwritten" / "mma.ptx"
DRAWN, UNSEEN, SEED = 60, 30, 28
SIZES = 0, 100, 300, 1000, 1 << 30  # instructions
PROGRAM = """
import json, sys, time
import mmulator as mm

text, first, sanitize = json.loads(sys.stdin.read())
for kernel in mm.Module.load(first).values() if first else ():
    kernel.compile()
start = time.process_time()
more = {}
if sanitize:
    from mmulator.runtime.options import CompileOptions
    from mmulator.sanitizer.instrument import SANITIZE
    more = {"options": CompileOptions(events=SANITIZE)}
for kernel in mm.Module.load(text).values():
    kernel.compile(**more)
print(time.process_time() - start)
"""
INSTRUCTION = re.compile(r"^\s+(?:@!?%\w+\s+)?[a-z][\w.:]*\s[^;]*;|^\s+(?:ret|exit);", re.MULTILINE)


def seconds(src: str, text: str, first: str, sanitize: bool) -> float | None:
    """None if the package does not take the kernel."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], input=json.dumps([text, first, sanitize]), capture_output=True, text=True,
            env={**environ, "PYTHONPATH": src, "MMULATOR_CACHE": scratch},
        )  # fmt: skip
    return None if done.returncode else float(done.stdout)


def drawn(paths: Iterable[Path], most: int) -> list[Path]:
    found = sorted(paths)
    return random.Random(SEED).sample(found, min(most, len(found)))


class Kernel:
    def __init__(self, path: Path, unseen: bool) -> None:
        self.name, self.text, self.unseen = path.stem, path.read_text(), unseen
        self.size = len(INSTRUCTION.findall(self.text))
        self.least: dict[str, float] = {}

    def run(self, sources: dict[str, str], first: str, sanitize: bool) -> Kernel:
        """sources: folders of packages by their names, of which `plain` is without checks. first: PTX that is compiled before."""
        for which, src in sources.items():
            found = seconds(src, self.text, first, sanitize and which != "plain")
            if found is None:
                break
            self.least[which] = min(self.least.get(which, found), found)
        return self

    def ratio(self, of: str = "ours") -> float:
        return self.least["before"] / self.least[of]

    def row(self) -> str:
        figures = "".join(f"  {which} {1e3 * s:7.1f} ms {1e6 * s / self.size:5.0f} us/instr" for which, s in self.least.items())
        ratio = f"  {self.ratio():5.2f} times faster" if "before" in self.least else ""  # which may not take it
        if "plain" in self.least:
            ratio = f"  {self.least['ours'] / self.least['plain']:5.2f} times plain"
        return f"{self.name[:40]:40} {self.size:6} instr{figures}{ratio}"


def table(kernels: list[Kernel], title: str) -> None:
    """Medians of classes of size, as docs/explanation/speed.md has them."""
    print(f"\n| {title}: instructions | kernels | before | now | times faster | from, to | noise |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for low, high in [*pairwise(SIZES), (0, SIZES[-1])]:
        some = [k for k in kernels if low <= k.size < high]
        if some:
            name = "all" if not low and high == SIZES[-1] else f"{low} to {high - 1}" if high < SIZES[-1] else f"{low} and more"
            before, now = (1e3 * statistics.median(k.least[which] for k in some) for which in ("before", "ours"))
            ratios = sorted(k.ratio() for k in some)
            noise = statistics.median(k.ratio("again") for k in some)
            print(
                f"| {name} | {len(some)} | {before:.0f} ms | {now:.0f} ms | {statistics.median(ratios):.2f} | "
                f"{ratios[0]:.1f}, {ratios[-1]:.1f} | {noise:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="kernels at once")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--unseen", metavar="FOLDER", type=Path)
    parser.add_argument("--objects", metavar="FOLDER", required=True)
    parser.add_argument("--objects-against", metavar="FOLDER")
    o = parser.parse_args()
    every = [path for folder in KERNELS for path in folder.rglob("*.ptx")]
    paths = [path for path in every if path.stem in o.names] if o.names else drawn(every, DRAWN)
    kernels = [Kernel(path, False) for path in paths]
    kernels += [Kernel(path, True) for path in (drawn(o.unseen.glob("*.ptx"), UNSEEN) if o.unseen else ())]
    with tempfile.TemporaryDirectory() as scratch:
        sources = {"ours": installed(str(ROOT / "src"), o.objects, Path(scratch, "ours"))}
        if o.against:
            sources["before"] = installed(o.against, o.objects_against, Path(scratch, "before"))
            sources["again"] = sources["before"]
        elif o.sanitize:
            sources["plain"] = sources["ours"]
        for src in {*sources.values()}:
            compileall.compile_dir(src, quiet=1)
        before = "" if o.first else FIRST.read_text()
        run = partial(Kernel.run, sources=sources, first=before, sanitize=o.sanitize)
        with ThreadPoolExecutor(o.jobs) as pool:
            try:
                for number in range(o.rounds):
                    for n, kernel in enumerate(pool.map(run, kernels), 1):
                        print(f"round {number + 1}, {n} of {len(kernels)}: {kernel.row()}", flush=True)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
    kernels = [kernel for kernel in kernels if kernel.least.keys() == sources.keys()]  # an interrupted run has fewer
    if o.against:
        for title, unseen in (("kernels of the repository", False), ("unseen kernels", True)):
            if some := [kernel for kernel in kernels if kernel.unseen is unseen]:
                table(some, title)


if __name__ == "__main__":
    main()
