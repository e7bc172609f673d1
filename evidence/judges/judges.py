"""All judges, their results as data, and the tables of docs/reference/judges.md."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from evidence.judges import bits as sums
from evidence.judges import (
    compute_sanitizer,
    consan,
    dracc,
    gpuverify,
    gsan,
    indigo,
    mutate,
    order,
    scor,
    scor_applications,
    simulee,
    warp_types,
)
from evidence.judges.common import Judge
from evidence.projects.table import BESIDE, EXPLAINED, JUDGED
from tests.support import breaches
from tools.pages.tables import table

RESULTS = Path(__file__).parent / "results"
RUNNERS = (indigo, gpuverify, compute_sanitizer, scor, scor_applications, simulee, dracc, warp_types, order, consan, gsan)
MOST_NAMES = 3  # of the cases of a reason


def small(run: dict[str, Any]) -> dict[str, Any]:
    """A run without the answers that are as the corpus has them."""
    return run | {"answers": [one for one in run["answers"] if one["planted"] != bool(one["found"])]}


def result(judge: Judge) -> dict[str, Any]:
    """What the last run of all of a corpus found; {}: none was kept."""
    path = RESULTS / f"{judge.name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def judges() -> str:
    """What a run of each judge finds."""
    rows = [
        (f"[{judge.title}](https://{judge.source}), {judge.commit}", f"`{judge.name}`", question, f"{n.found} of {n.planted}",
         f"{n.flagged} of {n.clean}")
        for judge in (runner.JUDGE for runner in RUNNERS) for question, n in judge.expected.items()
    ]  # fmt: skip
    return table(("corpus, commit", "runner", "what is asked for", "found", "flagged without it"), rows)


def _named(cases: Iterable[str]) -> str:
    names = sorted(cases)
    shown = ", ".join(f"`{name}`" for name in names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def misses() -> str:
    """Each miss and each false alarm of the kept runs, by its reason."""

    def rows() -> Iterator[tuple[str, ...]]:
        for runner in RUNNERS:
            found: dict[tuple[str, bool, str], list[str]] = defaultdict(list)
            for one in result(runner.JUDGE).get("answers", ()):
                found[one["question"], one["planted"], one["reason"]].append(one["case"])
            for (question, planted, reason), cases in found.items():
                what = "missed" if planted else "flagged"
                yield f"`{runner.JUDGE.name}`", question, f"{len(cases)} {what}", reason or "not known", _named(cases)

    return table(("runner", "programs", "", "reason", "cases"), rows())


def runs() -> str:
    """When each judge was run, and with what."""
    rows = []
    for runner in RUNNERS:
        if run := result(runner.JUDGE):
            versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items() if version)
            rows.append((f"`{run['judge']}`", run["date"], versions, str(len(run.get("out_of_reach", ())))))
    return table(("runner", "run", "versions", "cases out of reach"), rows)


def races() -> str:
    """Indigo's races, found by mmulator and by others."""
    own = [indigo.JUDGE.expected[f"races, {graph}"] for graph in indigo.GRAPHS]
    rows = [("`mmulator --sanitize`", *(f"{n.found}; {n.flagged} of {n.clean} clean kernels flagged" for n in own))]
    rows += [(name, *map(str, found)) for name, found in indigo.PUBLISHED.items()]
    return table(("races found, of 346", *indigo.GRAPHS), rows)


def mutants() -> str:
    """Changes of the model's source that the tests were tried on, and those that survived."""
    run = json.loads((RESULTS / "mutate.json").read_text())
    counts = table(("outcome", f"of {run['run']} changes"), ((what, str(count)) for what, count in run["counts"].items()))
    left = [one for one in run["changes"] if one["outcome"] != mutate.KILLED]
    rows = []
    for one in sorted(left, key=lambda one: (one["outcome"] != mutate.SURVIVED, one["name"])):
        place = f"{one['file']}:{one['line']}"
        said = mutate.EXPLAINED.get(one["name"], "not examined yet")
        rows.append((f"`{place}`", f"`{one['old']}` becomes `{one['new'] or 'nothing'}`", one["outcome"], said))
    return counts + "\n" + table(("place", "change", "outcome", ""), rows) if left else counts


def bits() -> str:
    """What was compared with the sums of others, by source."""
    path = RESULTS / "bits.json"
    run = json.loads(path.read_text()) if path.exists() else {"rows": []}
    rows, notes = [], Counter[str]()
    for name, (_, _, title, url, what) in sums.SOURCES.items():
        of = [row for row in run["rows"] if row["source"] == name]
        parts = ", ".join(dict.fromkeys(row["part"].replace(",", ":") for row in of)) or "not run"
        compared, differ, explained = (sum(row[column] for row in of) for column in ("compared", "differ", "explained"))
        notes[sums.EXPLAINED] += explained
        rows.append((f"[{title}]({url})", what, parts, f"{compared:,}", f"{differ:,}"))
    said = [f"- {count:,} that differ: {note}\n" for note, count in notes.items() if count]
    return "\n".join([table(("source", "what is compared", "parts", "compared", "differ"), rows), *said])


def of_projects() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((RESULTS / "projects.json").read_text())["projects"]
    return kept


def beside_a_gpu() -> Counter[str]:
    """Launches of public projects whose bytes were compared with a GPU's, by verdict."""
    return sum((Counter(run.get("beside", {}).get("launches", {})) for run in of_projects().values()), Counter())


def projects() -> str:
    """Each public project: cases that pass, findings, and launches whose bytes were compared with a GPU's."""
    rows = []
    for name, run in of_projects().items():
        good = sum(case["verdict"] == "pass" for case in run["cases"])
        why = [reason for (project, _), reason in EXPLAINED.items() if project == name and good < len(run["cases"])]
        launches = run.get("beside", {}).get("launches", {})
        other = ", ".join(f"{count} {verdict}" for verdict, count in sorted(launches.items()) if verdict != "same")
        shown = f"{launches.get('same', 0)} equal" + (f"; {other}: {BESIDE[name]}" if other else "")
        shown = shown if launches else ": ".join(["not run", *filter(None, [BESIDE.get(name)])])
        triton = run["versions"]["triton"]
        place = f"[{name}]({run['source']})" if run["source"].startswith("https:") else name
        rows.append((f"{place} {run['version']}", triton, f"{good} of {len(run['cases'])}", "; ".join(why),
                     str(len(run["findings"])), shown))  # fmt: skip
    return table(("project", "Triton", "cases that pass", "why others do not", "findings", "launches beside an H100"), rows)


def proofs() -> str:
    """Findings of the sanitizer in public projects, each judged by its source."""
    return table(("project", "rule", "where", "verdict"), (
        (name, f"`{one['rule']}`", f"`{one['source']}`", JUDGED[name, one["rule"], one["source"]])
        for name, run in of_projects().items() for one in run["findings"]
    ))  # fmt: skip


_THREAD = re.compile(r"As in (https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)): (.*)", re.S)


def threads() -> str:
    """Kernels of the sanitizer's tests that were rebuilt from what others reported, and the rules that their changes break."""
    rows = []
    for file in sorted(breaches.ROOT.glob("*/*.ptx"), key=lambda file: file.stem):
        said = " ".join(line[3:] for line in file.read_text().splitlines()[:5] if line.startswith("// "))
        if found := _THREAD.match(said):
            rules = sorted({rule for change in breaches.changes(file) for rule in change.rules})
            rows.append((f"[{found[2]} #{found[3]}]({found[1]})", found[4], ", ".join(f"`{rule}`" for rule in rules)))
    return table(("thread", "kernel", "its changes are found as"), rows)


REGIONS: dict[str, Callable[[], str]] = {
    "judges": judges, "races": races, "misses": misses, "runs": runs, "mutants": mutants,
    "threads": threads, "bits": bits, "projects": projects, "proofs": proofs,
}  # fmt: skip
