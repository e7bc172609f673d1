"""The first and the second start of a program that launches one kernel: whole processes in turns, cold and warm.

    python benchmarks/bench_start.py [gemm1024 ...] [--rounds 5] [--against SRC] [--objects FOLDER] [--parts] [--sanitize]
    python benchmarks/bench_start.py --goals [--rounds 5] [--against SRC]

cold: with an empty code cache; warm: with what the cold one left. Seconds, medians, from before the interpreter starts until
it has gone, with Python's byte code compiled as an installation has it. The PTX is Triton's, made once from speed_kernels.py,
and lies in a file; the process imports NumPy and mmulator, loads it, launches once on arrays of zeros. gemm1024:bf16 is
gemm1024 with another type of A and B. --against: the folder
`src` of another commit, whose processes take turns with ours. --objects: what `python tools/ship.py FOLDER` made; ours is an
installation that came with them, as a wheel does. --parts: seconds within the process, too: import, load (parse and verify),
compile, run; and seconds of all cores together, which say more on a busy machine.

--goals: whole processes beside one that imports NumPy alone: a first launch of a kernel that was compiled before, the command
`run`, help; each also where the package has no byte code (.pyc). Processor seconds, the least of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import installed, spent

PROGRAM = """
import json, sys, time
t = [time.perf_counter()]
import numpy as np
import mmulator as mm
job = json.loads(sys.argv[1])
module = mm.Module
t.append(time.perf_counter())
kernel = next(iter(module.load(job["ptx"]).values()))
t.append(time.perf_counter())
arguments = [np.zeros(a[0], a[1]) if isinstance(a, list) else a for a in job["arguments"]]
report = kernel.launch(job["grid"], job["block"], arguments, job["shared"], job["device"], job["sanitize"])
t.append(time.perf_counter())
compiled = report.seconds["compile"]
print(json.dumps({"import": t[1] - t[0], "load": t[2] - t[1], "compile": compiled, "run": t[3] - t[2] - compiled}))
"""
WARM = """
import numpy as np
import mmulator as mm
A, B, C = (np.zeros(s, t) for s, t in (((64, 256), "f2"), ((32, 256), "f2"), ((64, 32), "f4")))
mm.Module.load("mma.ptx")["gemm"].launch((4, 4), 32, [A, B, C, 32, 256], device="sm_80")
"""
EXAMPLE = Path(__file__).parents[1] / "examples" / "handwritten"
COMMAND = "import sys; from mmulator.cli import main; sys.exit(main())"
GOALS = {
    "NumPy alone": ["import numpy"], "a launch": [WARM], "mmulator run": [COMMAND, "run", "launch.toml"],
    "mmulator --help": [COMMAND, "--help"],
}  # fmt: skip
NAMES = ("vadd", "softmax", "conv2d", "gemm1024", "gemm1024:bf16", "gemm1024:fp8e5", "attention")
_BYTES = {"bf16": "u2", "fp8e5": "u1"}


def jobs(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """What processes are told, by row. The PTX is written into the folder."""
    import numpy as np
    import speed_kernels

    import mmulator as mm

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        case, element = speed_kernels.cases()[name.partition(":")[0]](), name.partition(":")[2]
        signature = case.signature.replace("*fp16", f"*{element}", 2) if element else case.signature
        for device in case.devices:
            made = mm.triton.compile(case.kernel, signature, case.constants, device=device, num_warps=case.warps)
            path = folder / f"{name}_{device}.ptx"
            path.write_text(made.ptx)
            arguments = [[a.shape, a.dtype.str] if isinstance(a, np.ndarray) else a for a in case.arguments]
            for given in arguments[: 2 * bool(element)]:
                given[1] = _BYTES[element]
            parameters = made.ptx.partition(".entry")[2].partition(")")[0].count(".param")
            arguments += [None] * (parameters - len(arguments))  # scratch memory, which they do not use
            found[f"{name} {device}"] = {
                "ptx": str(path), "grid": case.grid, "block": 32 * case.warps, "arguments": arguments,
                "shared": made.metadata.shared, "device": device,
            }  # fmt: skip
    return found


def start(job: dict[str, Any], src: str, cache: Path) -> dict[str, float]:
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": src, "MMULATOR_CACHE": str(cache), "PYTHONPYCACHEPREFIX": f"{cache.parent}/byte-code"}
    with spent() as cost:
        done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(job)], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {"whole": cost[1], "cpu": cost[0], **json.loads(done.stdout)}


def goals(sources: dict[str, str], rounds: int, scratch: Path) -> None:
    """Print the processor seconds of each process of GOALS, with and without byte code of the package."""
    least: dict[tuple[str, str, str], float] = {}
    for which, src in sources.items():
        for kind in ("compiled", "text"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(src, scratch / f"{which}-{kind}", ignore=ignored)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(scratch / f"{which}-compiled")], check=True)
    time.sleep(0.3)  # a process keeps nothing of files that are as young as it is
    for number in range(rounds + 1):
        for which in sources:
            for kind in ("compiled", "text"):
                environment = {
                    **os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(scratch / f"{which}-{kind}"),
                    "MMULATOR_CACHE": str(scratch / f"cache-{which}-{kind}"),
                }  # fmt: skip
                for goal, words in GOALS.items():
                    command = [sys.executable, "-c", *words]
                    with spent() as cost:
                        subprocess.run(command, env=environment, cwd=EXAMPLE, capture_output=True, check=True)
                    if number:  # the first one compiles
                        least[goal, which, kind] = min(cost[0], least.get((goal, which, kind), cost[0]))
    print(f"{'processor seconds':18}" + "".join(f"{which:>10}{'no .pyc':>10}" for which in sources))
    for goal in GOALS:
        print(f"{goal:18}" + "".join(f"{least[goal, which, kind]:10.3f}" for which in sources for kind in ("compiled", "text")))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--objects", metavar="FOLDER")
    o = parser.parse_args()
    sources = {"ours": str(Path(__file__).parents[1] / "src"), **({"before": o.against} if o.against else {})}
    with tempfile.TemporaryDirectory() as scratch:
        if o.objects:
            sources["ours"] = installed(sources["ours"], o.objects, Path(scratch, "site"))
        if o.goals:
            goals(sources, o.rounds, Path(scratch))
            return
        for name, job in jobs(Path(scratch), list(o.names)).items():
            job["sanitize"] = o.sanitize
            times: dict[tuple[str, str], list[dict[str, float]]] = {}
            able = dict(sources)
            for which, src in sources.items():
                try:
                    start(job, src, Path(scratch, "cache-first"))  # byte code
                except SystemExit as error:  # an instruction that another commit lacks
                    if which == "ours":
                        raise
                    del able[which]
                    said = [line for line in str(error).splitlines() if "Error: " in line]
                    print(f"{name:18}{which:8}cannot: {said[-1].rpartition(': ')[0][-90:] if said else error}")
            for _ in range(o.rounds):
                for which, src in able.items():
                    cache = Path(scratch, f"cache-{which}")
                    shutil.rmtree(cache, ignore_errors=True)
                    times.setdefault((which, "cold"), []).append(start(job, src, cache))
                    times.setdefault((which, "warm"), []).append(start(job, src, cache))
            for (which, when), rows in times.items():
                middle = {part: statistics.median(row[part] for row in rows) for part in rows[0]}
                parts = [f"{part} {seconds:.3f}" for part, seconds in middle.items() if o.parts and part != "whole"]
                least = min(row["whole"] for row in rows)
                print(f"{name:18}{which:8}{when:6}{middle['whole']:8.3f} (least {least:.3f})  {'  '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
