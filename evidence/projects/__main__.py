"""Run small programs that call kernels of public projects: as they are, and under the sanitizer; keep what was found.

    python -m evidence.projects --folder ~/projects                          # all of them
    python -m evidence.projects --folder ~/projects --only vllm,lightllm     # the others keep their results
    python -m evidence.projects --beside lines.jsonl launches.jsonl --about "H100, Triton 3.6"    # take a run beside a GPU
    python -m evidence.projects --list                                       # what is needed in the folder

The folder has a clone of each project of GitHub, in a folder that has the last part of its name, and `site`, into which the
packages were installed (`pip install --no-deps --target`). Nothing of a project is in this repository. A run beside a GPU is
one of evidence/projects/child.py with --shadow. Results: evidence/judges/results/projects.json. Page: python -m evidence.judges
--page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evidence.projects.table import PROJECTS
from evidence.suites.run import versions

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "evidence" / "judges" / "results" / "projects.json"
ABSENT = ("ModuleNotFoundError", "ImportError")  # a case that could not import its project
PLAIN, SANITIZED = ("--autotune", "first"), ("--autotune", "first", "--sanitize", "--keep-going", "--json")


def child(project: str, folder: Path, timeout: int, how: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a project: (a line for each case, findings)."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work, "lines.jsonl")
        command = [sys.executable, "-m", "mmulator", "exec", *how, "-m", "evidence.projects.child", project]
        command += ["--folder", str(folder.resolve()), "--out", str(out)]
        try:
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
            why, said = ended.stderr[-2000:], ended.stdout
        except subprocess.TimeoutExpired:
            why, said = f"no end within {timeout} seconds", ""
        lines = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
    if not lines:
        print(f"{project}: {why}", file=sys.stderr)
    return lines, (json.loads(said)["findings"] if "--json" in how and said.startswith("{") else [])


def condensed(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings by rule, kernel and line of the source, with how many instructions of each."""
    counts = Counter((f["rule"], f["severity"], f["kernel"], f["source"] or f["location"]) for f in findings)
    return [dict(zip(("rule", "severity", "kernel", "source"), key, strict=True), count=n) for key, n in counts.items()]


def run(project: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both runs of a project."""
    plain, _ = child(project, options.folder, options.timeout, PLAIN)
    checked, findings = child(project, options.folder, options.timeout, SANITIZED)
    digests = [{line["case"]: line["outputs"] for line in lines if line["verdict"] == "pass"} for lines in (plain, checked)]
    differ = [name for name in digests[0] if name in digests[1] and digests[0][name] != digests[1][name]]
    found = {
        "source": PROJECTS[project].source, "version": PROJECTS[project].version,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "versions": versions(),
        "cases": plain, "sanitized": len(checked), "other bits under the sanitizer": differ, "findings": condensed(findings),
    }  # fmt: skip
    passed = sum(line["verdict"] == "pass" for line in plain)
    print(f"{project}: {passed} of {len(plain)} cases pass, {len(found['findings'])} findings", flush=True)
    for line in plain:
        if line["verdict"] != "pass":
            print(f"  {line['case']}: {line['verdict']}: {line['reason'][:200]}")
    for one in found["findings"]:
        print(f"  {one['rule']}: {one['kernel']}, {one['source']} ({one['count']})")
    return found


def beside(lines: Path, launches: Path, about: str, kept: dict[str, Any]) -> None:
    """Take a run beside a GPU into the results."""
    of: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, list[str]] = defaultdict(list)
    for text in launches.read_text().splitlines():
        line = json.loads(text)
        project = line["test"].partition("::")[0]
        of[project][line["verdict"]] += 1
        if line["verdict"] != "same":
            reasons[project].append(f"{line['kernel']}: {line['verdict']}: {line['reason'][:160]}")
    passes: dict[str, list[str]] = defaultdict(list)
    for text in lines.read_text().splitlines():
        line = json.loads(text)
        passes[line["project"]].append(line["verdict"])
    for project, entry in kept.items():
        if project in passes:
            entry["beside"] = {
                "about": about, "cases": dict(Counter(passes[project])), "launches": dict(of[project]),
                "reasons": sorted(set(reasons[project]))[:12],
            }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="the folder of the projects")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="projects at a time")
    parser.add_argument("--timeout", type=int, default=600, help="seconds of a run of a project")
    parser.add_argument("--beside", type=Path, nargs=2, metavar=("LINES", "LAUNCHES"), help="files of a run beside a GPU")
    parser.add_argument("--about", default="", help="the GPU and versions of that run")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, project in PROJECTS.items():
            print(f"{name:<28}{project.source}  {project.version}")
        return 0
    kept: dict[str, Any] = json.loads(RESULTS.read_text())["projects"] if RESULTS.exists() else {}
    if options.beside:
        beside(*options.beside, options.about, kept)
        keep(kept)
        return 0
    names = options.only.split(",") if options.only else list(PROJECTS)
    if unknown := [name for name in names if name not in PROJECTS]:
        parser.error(f"no project has the name {', '.join(unknown)}: --list names all")
    if options.folder is None or not options.folder.is_dir():
        parser.error("where are the projects? --folder FOLDER, with what --list names cloned or installed in it")
    absent = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, found in zip(names, pool.map(lambda name: run(name, options), names), strict=True):
            if not found["cases"] or any(case["reason"].startswith(ABSENT) for case in found["cases"]):
                absent.append(name)
                continue
            if "beside" in kept.get(name, {}):
                found["beside"] = kept[name]["beside"]
            kept[name] = found
            keep(kept)
    if absent:
        print(f"not run to their end, and their results not kept: {', '.join(absent)}", file=sys.stderr)
    return 1 if absent else 0


def keep(kept: dict[str, Any]) -> None:
    """Write the results."""
    order = [name for name in PROJECTS if name in kept]
    RESULTS.write_text(json.dumps({"projects": {name: kept[name] for name in order}}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
