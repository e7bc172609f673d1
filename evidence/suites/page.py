"""docs/reference/compatibility.md: which suites that others wrote run here, from the counts in evidence/suites/results.

python -m evidence.suites.page core.json liger.json    # take runs into the results, and rewrite the page
python -m evidence.suites.page --shadow shadow.jsonl   # take a comparison with a GPU into the results
python -m evidence.suites.page                         # rewrite the page
python -m evidence.suites.page --check                 # exit code 1 if it is not up to date
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence.suites.known import CLASSES, LIMIT, OPEN, SKIPPED, SUITES, TIME, UNSUPPORTED, WRONG
from evidence.suites.run import Run, small

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
RESULTS = ROOT / "evidence" / "suites" / "results"
SHADOW, PROGRAMS = "shadow", "programs"
SLOW = 3.0  # seconds of a program that is listed
LONGEST = 12  # reasons that are listed of a class
KINDS = ("passed", "skipped", "not supported", "too long", "the program's own")


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


def shadows(runs: list[Run]) -> str:
    """A table of comparisons with a GPU: launches by verdict."""
    verdicts = [*dict.fromkeys(verdict for run in runs for verdict in run["launches"])]
    rows = [[run["suite"], *(str(run["launches"].get(verdict, 0)) for verdict in verdicts), str(run["all kernels"]), run["about"]]
            for run in runs]  # fmt: skip
    return grid(["suite", *verdicts, "kernels", "where and when"], rows, 1)


def programs() -> str:
    """A table of programs of C++: how many pass."""
    found = _programs()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found["programs"]:
        counts[one["source"]][one["outcome"]] += 1
    sums = [[found["sources"][s], str(n.total()), *(str(n[kind]) for kind in KINDS)] for s, n in counts.items()]
    return f"Where and when: {found['about']}.\n\n" + grid(["source", "programs", *KINDS], sums, 1)


def slow_programs() -> str:
    """A table of programs of C++ that pass and take long, and the names of the others."""
    passed = [one for one in _programs()["programs"] if one["outcome"] == KINDS[0]]
    slow = [[one["source"], one["name"], one["arguments"] and f"`{one['arguments']}`", str(one["first"]), str(one["again"] or "")]
            for one in passed if one["first"] >= SLOW]  # fmt: skip
    quick = ", ".join(one["name"] for one in passed if one["first"] < SLOW)
    return grid(["source", "program", "arguments", "first", "again"], slow, 3) + f"\nLess than {SLOW:.0f} seconds: {quick}.\n"


def other_programs() -> str:
    """A table of programs of C++ that do not pass, and why."""
    rows = [[one["name"], one["outcome"], one["why"]] for one in _programs()["programs"] if one["outcome"] != KINDS[0]]
    return grid(["program", "outcome", "why"], rows, 3)


def beside() -> str:
    """A table of programs of C++ whose bytes were compared with a GPU's."""
    found = _programs()["beside"]
    rows = [
        ["chip", found["chip"]], ["buffers, bytes", f"{found['buffers']}, {found['bytes']:,}"],
        ["programs, all buffers equal", ", ".join(found["programs"])],
        ["programs, copies to the host equal", ", ".join(found["outputs only"])],
    ]  # fmt: skip
    return grid(["compared", ""], rows, 2)


def _programs() -> Any:
    return json.loads((RESULTS / f"{PROGRAMS}.json").read_text())


REGIONS: dict[str, Callable[[], str]] = {
    "suites": lambda: suites_table(stored()[0]), "programs": programs, "programs_slow": slow_programs,
    "programs_others": other_programs, "beside": beside, "shadows": lambda: shadows(stored()[1]),
    "reasons": lambda: reasons(stored()[0]), "sources": lambda: sources(stored()[0]),
}  # fmt: skip


def page() -> str:
    """The page, with its tables as they should be."""
    from tools.pages import spec_map

    return next(text for path, text in spec_map.with_regions(REGIONS) if path == PAGE)


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
