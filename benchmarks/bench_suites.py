"""Where the processor time of a public test suite goes under `pytest --mmulator`: with empty caches, then with full ones.

    python benchmarks/bench_suites.py FOLDER [pytest's arguments ...] [--objects FOLDER] [--source SRC]

FOLDER has the suite. A signal takes samples each 2 ms of processor time, of all threads; each sample belongs to the
innermost function of mmulator, of Triton's compiler or of Python's imports that runs then. Seconds: Triton's compiler;
what is ours (load, compile, launch, random numbers of torch's device cuda, all else); imports; the rest, which are the
tests, torch's own operators and Triton's launches; other processes, which cold are ptxas. Goals: cold, ours at most as
much as Triton's compiler; warm, at most 0.3 of the rest. --objects:
what `python tools/ship.py FOLDER` made, as a wheel has it. --source: the folder `src` of another commit instead of
ours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import installed

ROOT = Path(__file__).parents[1]
SAMPLER = """
import atexit, json, linecache, os, re, signal, sys, time
from collections import Counter

# Lines of doors/torch that call the CPU's kernel of an operator, once for a call of the program. Copies around it are ours.
KERNEL = r"\\b_?(run|whole)\\(|plain\\(keys, \\*(values|wide)"

spent, places, seconds = Counter(), Counter(), [time.process_time()]
spent["imports"] = seconds[0]


def part(frame):
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib" in name:
            return "imports", ""
        if "/mmulator/" in name:
            if "/doors/torch/" in name and re.search(KERNEL, linecache.getline(name, frame.f_lineno)):
                return "rest", ""
            return ours(frame)
        if "/triton/compiler/" in name or "/triton/backends/" in name and "driver" not in name:
            return "Triton's compiler", ""
        frame = frame.f_back
    return "rest", ""


def ours(frame):
    place, found = "", "other"
    while frame is not None:
        name, function = frame.f_code.co_filename, frame.f_code.co_name
        if "/mmulator/" in name:
            if name.endswith("/doors/torch/random.py"):
                found = "random"
            place = place or f"{name.partition('/mmulator/')[2]}:{function}"
            if "/compiler/kernel" in name and function == "compile" or "/compiler/" in name or "/codegen/" in name:
                found = "compile"
            elif found == "other" and ("/ptx/" in name or function in ("load", "parsed")):
                found = "load"
            elif found == "other" and "/launch/" in name:
                found = "launch"
        elif "/triton/" in name or "importlib" in name:
            break
        frame = frame.f_back
    return found, place


def sample(number, frame):
    now = time.process_time()
    name, place = part(frame)
    spent[name] += now - seconds[0]
    if place:
        places[f"{name} {place}"] += now - seconds[0]
    seconds[0] = now


def ended():
    signal.setitimer(signal.ITIMER_PROF, 0)
    times = os.times()
    spent["other processes"] = times.children_user + times.children_system
    with open(os.environ["BENCH_SUITES"], "w") as out:
        json.dump([spent, places.most_common(40)], out)


signal.signal(signal.SIGPROF, sample)
signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
atexit.register(ended)
"""
OURS = ("load", "compile", "launch", "random", "other")
COLUMNS = ("Triton's compiler", *OURS, "imports", "rest", "other processes")


def measured(folder: Path, arguments: list[str], environment: dict[str, str]) -> tuple[dict[str, float], list[Any], str]:
    """(seconds by column, seconds of our functions, pytest's last line)."""
    command = [sys.executable, "-m", "pytest", "-p", "bench_sampler", "-p", "no:cacheprovider", "--mmulator", "-q", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        spent, places = json.loads(Path(environment["BENCH_SUITES"]).read_text())
    except OSError:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:]) from None
    return spent, places, lines[-1] if lines else done.stderr[-300:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--objects", metavar="FOLDER")
    parser.add_argument("--source", default=str(ROOT / "src"))
    parser.add_argument("--keep", type=Path, help="a folder for the caches")
    parser.add_argument("--places", type=int, default=0, help="so many of our functions, with their seconds")
    o, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        source = installed(o.source, o.objects, f"{scratch}/site") if o.objects else o.source
        Path(scratch, "bench_sampler.py").write_text(SAMPLER)
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, scratch, os.environ.get("PYTHONPATH")))),
            "MMULATOR_CACHE": f"{scratch}/cache", "TRITON_CACHE_DIR": f"{scratch}/triton", "BENCH_SUITES": f"{scratch}/spent",
            "PYTHONPYCACHEPREFIX": f"{scratch}/byte-code",
        }  # fmt: skip
        subprocess.run([sys.executable, "-m", "pytest", "--mmulator", "--co", "-q", *arguments], cwd=o.folder, env=environment,
                       capture_output=True)  # fmt: skip
        print(f"{'':6}" + "".join(f"{name:>18}" for name in COLUMNS))
        for when in ("cold", "warm"):
            spent, places, said = measured(o.folder, arguments, environment)
            ours = sum(spent.get(name, 0) for name in OURS)
            triton, rest = spent.get("Triton's compiler", 0), spent.get("imports", 0) + spent.get("rest", 0)
            print(f"{when:6}" + "".join(f"{spent.get(name, 0):18.2f}" for name in COLUMNS))
            ptxas, drawn = triton + spent.get("other processes", 0), ours - spent.get("random", 0)
            by = {"Triton's compiler": triton, "that with ptxas": ptxas} if when == "cold" and triton else {"the rest": rest}
            ratios = ", ".join(f"{ours / s:.2f} of {name} ({drawn / s:.2f} without random)" for name, s in by.items())
            print(f"      ours {ours:.2f} s: {ratios}; {said}", flush=True)
            for place, seconds in places[: o.places]:
                print(f"      {seconds:8.2f}  {place}")
        if o.keep:
            shutil.copytree(scratch, o.keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("site", "byte-code"))


if __name__ == "__main__":
    main()
