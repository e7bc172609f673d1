"""docs/compatibility.md: which suites that others wrote run here, from the counts in evidence/suites/results.

python -m evidence.suites.page core.json liger.json    # take runs into the results, and rewrite the page
python -m evidence.suites.page --shadow shadow.jsonl   # take a comparison with a GPU into the results
python -m evidence.suites.page                         # rewrite the page
python -m evidence.suites.page --check                 # exit code 1 if it is not up to date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from evidence.suites.known import CLASSES, LIMIT, OPEN, SKIPPED, SUITES, TIME, UNSUPPORTED, WRONG
from evidence.suites.run import Run, small

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
RESULTS = ROOT / "evidence" / "suites" / "results"
SHADOW, PROGRAMS = "shadow", "programs"
SLOW = 3.0  # seconds of a program that is listed
LONGEST = 12  # reasons that are listed of a class

HEAD = """<!-- Made by evidence/suites/page.py; do not edit. -->

# Compatibility

These test suites of other projects ran unmodified on a machine without a GPU. Each case
runs as on a GPU: with the project's pytest, its compiler, and `device="cuda"`.
"""

MEANING = """
- **passed**: includes cases that fail as their authors expect.
- **skipped**: skipped by the suite itself, for the chip.
- **not supported**: ended with an error that names the instruction.
- **the suite's own**: failed by a mistake or a tolerance of the test, another version, or a feature that no emulator has.
- **too long**: stopped after the time limit of a case.
- **wrong**: another result than a GPU's. **not explained**: not examined yet.
"""

AGAIN = """
## Doing it again

From the root of this repository, with the suite in a folder of its own:

```
python -m evidence.suites.run triton-core --folder ../triton/python --workers 8 --json core.json
```

`--device sm_80` takes another chip, `--sample 3` three cases of each test function,
`--shard 2/8` the third of eight parts, which `--merge` puts together. Other names:
NAMES. On a machine with a GPU

```
SHADOW_OUT=launches.jsonl PYTHONPATH=.:src python -m pytest -p evidence.suites.shadow -n 8 test_core.py --device cuda
python -m evidence.suites.shadow launches.jsonl
```

gives each launch of Triton's to the GPU and to mmulator, on copies of the same memory,
and compares the bytes.
"""


def stored() -> tuple[list[Run], list[Run]]:
    """(runs of suites, comparisons with a GPU) that are kept."""
    order = list(SUITES)
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    suites = [run for run in runs if run["kind"] not in (SHADOW, PROGRAMS)]
    suites.sort(key=lambda run: (order.index(run["suite"]), -int(run["device"][3:])))
    return suites, [run for run in runs if run["kind"] == SHADOW]


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def grid(heads: list[str], rows: list[list[str]], numbers: int) -> str:
    """A table of Markdown; columns from `numbers` on are numbers."""
    rules = ["---" if n < numbers else "---:" for n in range(len(heads))]
    return "\n".join(map(row, [heads, rules, *rows])) + "\n"


def suites_table(runs: list[Run]) -> str:
    shown = [kind for kind in CLASSES if kind not in (OPEN,) or any(run["counts"].get(OPEN) for run in runs)]
    rows = []
    for run in runs:
        sample = f"{run['sample']} of each function" if run.get("sample") else ""
        part = ", ".join(filter(None, (run.get("part"), sample)))
        counts = [str(sum(run["counts"].values())), *(str(run["counts"].get(kind, 0)) for kind in shown)]
        rows.append([run["suite"] + (f" ({part})" if part else ""), run["versions"].get("triton", ""), run["device"], *counts])
    heads = {SKIPPED: "skipped"}
    return grid(["suite", "Triton", "chip", "cases", *(heads.get(kind, kind) for kind in shown)], rows, 3)


def sources(runs: list[Run]) -> str:
    """One line a suite: where it is from, and with what it ran."""
    text = []
    for run in runs:
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items() if version)
        at = f", commit {run['commit']}" if run["commit"] else ""
        note = f"; {run['note']}" if run.get("note") else ""
        text.append(f"- {run['suite']} on {run['device']}: {run['source']}{at}; {versions}; run on {run['date']}{note}.")
    return "\n".join(text) + "\n"


def reasons(runs: list[Run]) -> str:
    """Why cases do not pass, by class, then by reason."""
    text = []
    for kind in (UNSUPPORTED, LIMIT, TIME, WRONG, OPEN):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for run in runs:
            for why, count in run["reasons"].get(kind, {}).items():
                counts[why][f"{run['suite']} {run['device']}"] += count
        if not counts:
            continue
        ordered = sorted(counts.items(), key=lambda found: (-found[1].total(), found[0]))
        rows = [[why.replace("|", "\\|"), where(found), str(found.total())] for why, found in ordered[:LONGEST]]
        if len(ordered) > LONGEST:
            rest = ordered[LONGEST:]
            rows.append([f"{len(rest)} other reasons", "", str(sum(found.total() for _, found in rest))])
        text.append(f"### {kind[0].upper()}{kind[1:]}\n\n" + grid(["reason", "where", "cases"], rows, 2))
    return "\n".join(text)


def where(found: Counter[str]) -> str:
    return ", ".join(f"{place} ({count})" for place, count in found.most_common())


def condensed(path: Path, suite: str) -> Run:
    """A comparison with a GPU: counts of launches and kernels by verdict."""
    launches: Counter[str] = Counter()
    kernels: dict[str, set[str]] = defaultdict(set)
    why: dict[str, Counter[str]] = defaultdict(Counter)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        launches[line["verdict"]] += 1
        kernels[line["verdict"]].add(line["ptx"])
        why[line["verdict"]][line.get("reason", "").split("\n")[0][:100]] += 1
    return {
        "kind": SHADOW, "suite": suite, "launches": dict(launches.most_common()),
        "kernels": {verdict: len(found) for verdict, found in kernels.items()},
        "all kernels": len(set().union(*kernels.values())),
        "reasons": {verdict: dict(found.most_common(LONGEST)) for verdict, found in why.items() if verdict != "same"},
    }  # fmt: skip


COMPARED = """
Each launch ran on the GPU, and in mmulator on a copy of the same memory; then all bytes were
compared, also those of NaNs. *not compared*: launches of one test beyond the first 64. *too large*:
over 64 MB of memory. *timeout*: longer in mmulator than a launch may take. *not deterministic*:
the GPU, asked again, differs from itself (sums of floats by atomics, clocks, the number of a
multiprocessor). *fault*: mmulator stops the kernel.
"""
# What differs or stops, where somebody has looked.
EXPLAINED = {
    "triton-core": "All that differ are `test_tensor_atomic_add_access_patterns`: sums of floats by atomics, in whose order "
    "the GPU repeated itself that time. The fault is right: `test_if_call[attribute_jit]` reads beyond its array.",
    "triton-language": "The faults are right: `test_int_annotation` stores beyond its array.",
    "liger": "The faults have not been examined yet.",
}


def shadows(runs: list[Run]) -> str:
    """The tables of comparisons with a GPU."""
    text = []
    for run in runs:
        rows = [[verdict, str(count), str(run["kernels"][verdict])] for verdict, count in run["launches"].items()]
        rows.append(["all", str(sum(run["launches"].values())), str(run["all kernels"])])
        more = f"\n{EXPLAINED[run['suite']]}\n" if run["suite"] in EXPLAINED else ""
        text.append(f"\n### {run['suite']}\n\n{run['about']}.\n\n" + grid(["verdict", "launches", "kernels"], rows, 1) + more)
    return "\n## Launch by launch, with a GPU beside it\n" + COMPARED + "".join(text) if text else ""


CPP = """
## Programs of CUDA C++

Unmodified programs, compiled by nvcc 13.0 with `-cudart shared`, ran under `mmulator exec` and were
judged by their own checks. Times are seconds of CPU (ABOUT): *first* with a cold cache, *again* with a warm one.

- **skipped**: the program asks for a feature, and ends by itself where there is none.
- **not supported**: an error names what is missing.
- **too long**: has the size of a GPU's work as a constant.
"""
BESIDE = """
The same binaries ran on CHIP, with a library before CUDA's runtime that clears what `cudaMalloc` returns, and writes a hash of
each allocation when it is freed and of each copy to the host. All BUFFERS buffers of COUNT programs (BYTES bytes) have the
GPU's bytes: NAMES. Of four more the hashes were taken of what they copy to the host, all equal: OUTPUTS.
"""


def programs() -> str:
    """Tables of programs of C++: how many pass, which take long, and why others do not pass."""
    found = json.loads((RESULTS / f"{PROGRAMS}.json").read_text())
    rows, kinds = found["programs"], ["passed", "skipped", "not supported", "too long", "the program's own"]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in rows:
        counts[one["source"]][one["outcome"]] += 1
    sums = [[found["sources"][s], str(n.total()), *(str(n[kind]) for kind in kinds)] for s, n in counts.items()]
    passed = [one for one in rows if one["outcome"] == kinds[0]]
    slow = [[one["source"], one["name"], one["arguments"] and f"`{one['arguments']}`", str(one["first"]), str(one["again"] or "")]
            for one in passed if one["first"] >= SLOW]  # fmt: skip
    quick = ", ".join(one["name"] for one in passed if one["first"] < SLOW)
    others = [[one["name"], one["outcome"], one["why"]] for one in rows if one not in passed]
    beside = found["beside"]
    facts = {
        "CHIP": beside["chip"], "BUFFERS": str(beside["buffers"]), "BYTES": f"{beside['bytes']:,}",
        "COUNT": str(len(beside["programs"])), "NAMES": ", ".join(beside["programs"]),
        "OUTPUTS": ", ".join(beside["outputs only"]),
    }  # fmt: skip
    compared = re.sub("|".join(facts), lambda found: facts[found[0]], BESIDE)
    return "\n".join((
        CPP.replace("ABOUT", found["about"]), grid(["source", "programs", *kinds], sums, 1),
        f"These pass in less than {SLOW:.0f} seconds: {quick}.\n\nThese take longer:\n",
        grid(["source", "program", "arguments", "first", "again"], slow, 3),
        grid(["program", "outcome", "why"], others, 3), compared,
    ))  # fmt: skip


def page() -> str:
    runs, compared = stored()
    text = HEAD + "\n" + suites_table(runs) + MEANING + programs() + shadows(compared)
    text += "\n## Why cases do not pass\n\n" + reasons(runs)
    return text + "\n## What was run\n\n" + sources(runs) + AGAIN.replace("NAMES", ", ".join(f"`{name}`" for name in SUITES))


def keep(run: Run, name: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(run, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="JSON files of evidence.suites.run")
    parser.add_argument("--shadow", type=Path)
    parser.add_argument("--suite", default="triton-core", help="which one the comparison ran")
    parser.add_argument("--about", default="", help="of the comparison: GPU, versions, date")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    for path in options.runs:
        run: dict[str, Any] = json.loads(path.read_text())
        keep({"kind": "suite", **small(run)}, f"{run['suite']}-{run['device']}")
    if options.shadow:
        keep({**condensed(options.shadow, options.suite), "about": options.about}, f"{SHADOW}-{options.suite}")
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
