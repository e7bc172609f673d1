"""A suite that others wrote, run without a GPU, and what became of each of its cases.

    python -m evidence.suites.run triton-core --folder ~/triton/python --device sm_90 --workers 8 --json core.json
    python -m evidence.suites.run triton-core --folder ~/triton/python --sample 3 --json core.json     # 3 cases of each function
    python -m evidence.suites.run triton-core --folder ~/triton/python --shard 2/8 --json shard2.json  # the third of eight parts
    python -m evidence.suites.run triton-core --merge shard*.json --json core.json

Names: those of evidence/suites/known.py. The suite stays as it is: its own pytest runs it, through `mmulator exec`.
`--through` says what else is run in that place. `--only` goes to pytest as -k.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evidence.suites.known import CLASSES, SKIPPED, SUITES, Suite, classified
from evidence.suites.outcomes import chosen
from mmulator.base.files import write

ROOT = Path(__file__).resolve().parents[2]
THROUGH = f"{sys.executable} -m mmulator exec"
Run = dict[str, Any]


def versions() -> dict[str, str]:
    """Of what the outcome depends on."""
    found = {"python": platform.python_version()}
    for name in ("mmulator", "triton", "torch", "numpy", "cupy-cuda13x"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def commit(folder: Path) -> str:
    """Hash and date of a checkout's commit, "" if it is none."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h %cs"]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else ""


def lines(path: Path) -> list[dict[str, Any]]:
    """The cases of a file of outcomes.py's. Of a case that has several lines, what is worse counts."""
    order = {"failed": 3, "xpassed": 2, "skipped": 1}
    found: dict[str, dict[str, Any]] = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        before = found.get(line["id"])
        if before is None or order.get(line["outcome"], 0) >= order.get(before["outcome"], 0):
            found[line["id"]] = line
    return list(found.values())


def run_pytest(suite: Suite, folder: Path, options: argparse.Namespace, environment: dict[str, str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "outcomes.jsonl"
        environment = {**environment, "SUITE_OUT": str(out), "SUITE_TIMEOUT": str(options.timeout)}
        if options.sample:
            environment["SUITE_SAMPLE"] = str(options.sample)
        if options.small:
            environment["SUITE_SMALL"] = "1"
        if options.shard:
            environment["SUITE_SHARD"] = options.shard
        command = [*options.through.split(), "-m", "pytest", "-p", "evidence.suites.outcomes", "-p", "no:cacheprovider", "-q"]
        command += ["--tb=short", *suite.options, *suite.files, *(f"--ignore={path}" for path in suite.ignore)]
        if options.workers > 1:
            command += ["-n", str(options.workers)]
        if options.only:
            command += ["-k", options.only]
        subprocess.run(command, cwd=folder, env=environment)
        return lines(out)


def run_script(script: Path, folder: Path, options: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    started = time.perf_counter()
    command = [*options.through.split(), str(script.relative_to(folder))]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=options.timeout)
        outcome = "passed" if done.returncode == 0 else "failed"
        message = "" if done.returncode == 0 else last_error(done.stderr)
    except subprocess.TimeoutExpired:
        outcome, message = "failed", f"TimeIsUp: the script took longer than {options.timeout} seconds"
    seconds = round(time.perf_counter() - started, 3)
    print(f"{script.name}: {outcome} after {seconds} s {message.splitlines()[:1]}", file=sys.stderr, flush=True)
    return {"id": str(script.relative_to(folder)), "outcome": outcome, "seconds": seconds, "message": message}


def last_error(stderr: str) -> str:
    """The error that a traceback ends in: what follows the last indented line of it."""
    text = stderr.rstrip().splitlines()
    start = max((n for n, line in enumerate(text) if line.startswith("Traceback")), default=0)
    after = next((n for n in range(start + 1, len(text)) if text[n] and not text[n].startswith(" ")), len(text) - 1)
    return "\n".join(text[after:])[:1500]


def run_scripts(suite: Suite, folder: Path, options: argparse.Namespace, environment: dict[str, str]) -> list[dict[str, Any]]:
    scripts = sorted(path for pattern in suite.files for path in folder.glob(pattern))
    part, _, parts = (options.shard or "0/1").partition("/")
    keep = chosen([str(path.relative_to(folder)) for path in scripts], None, (int(part), int(parts)))
    with ThreadPoolExecutor(options.workers) as pool:
        wanted = [path for path, kept in zip(scripts, keep) if kept]
        return list(pool.map(lambda path: run_script(path, folder, options, environment), wanted))


def outcome_of(name: str, options: argparse.Namespace) -> Run:
    """Run a suite. The cases have id, outcome, seconds, message, class and reason."""
    suite, folder = SUITES[name], options.folder.resolve()
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "src"), str(ROOT)]))
    environment = {**os.environ, **suite.environment, "PYTHONPATH": path, "MMULATOR_DEVICE": options.device}
    cases = (run_scripts if suite.scripts else run_pytest)(suite, folder, options, environment)
    return {
        "suite": name, "device": options.device, "versions": versions(), "source": suite.source,
        "commit": options.commit or commit(folder), "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "sample": options.sample, "cases": sorted(cases, key=lambda case: case["id"]),
    }  # fmt: skip


def merged(runs: list[Run]) -> Run:
    """Of shards, or of a run and what was run again of it: the later counts."""
    cases = {case["id"]: case for run in runs for case in run["cases"]}
    return {**runs[-1], "cases": [cases[name] for name in sorted(cases)]}


def small(run: Run) -> Run:
    """Counts instead of cases: what is kept."""
    classes: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for case in run["cases"]:
        kind, why = classified(case["id"], case["outcome"], case["message"])
        classes[kind] += 1
        if why and kind != SKIPPED:
            reasons[kind][why] += 1
    kept = {key: value for key, value in run.items() if key != "cases"}
    counts = {kind: classes[kind] for kind in CLASSES if classes[kind]}
    return kept | {"counts": counts, "reasons": {kind: dict(found.most_common()) for kind, found in reasons.items()}}


def table(run: Run) -> str:
    """What a terminal shows of the counts."""
    shown = small(run)
    total = sum(shown["counts"].values())
    text = [f"{shown['suite']} on {shown['device']}, {total} cases"]
    for kind, count in shown["counts"].items():
        text.append(f"{count:>8}  {kind}")
        text += [f"          {number:>6}  {why}" for why, number in shown["reasons"].get(kind, {}).items()]
    return "\n".join(text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(SUITES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--device", default="sm_90")
    parser.add_argument("--sample", type=int, help="cases of each function")
    parser.add_argument("--small", action="store_true", help="the smallest ones, by the numbers in their names")
    parser.add_argument("--shard")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=120, help="seconds of a case")
    parser.add_argument("--only", help="as pytest's -k")
    parser.add_argument("--through", default=THROUGH)
    parser.add_argument("--commit", help="hash and date of the suite's commit, if its folder does not say")
    parser.add_argument("--merge", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if not options.merge and not options.folder:
        parser.error("--folder or --merge is needed")
    if options.merge:
        run = merged([json.loads(path.read_text()) for path in options.merge])
    else:
        run = outcome_of(options.name, options)
    if options.json:
        write(options.json, json.dumps(run, indent=1))
    print(table(run))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
