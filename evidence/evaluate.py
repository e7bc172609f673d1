"""The criteria of docs/reference/evaluation.md that any machine can rerun in thirty minutes, with what was found and if it holds.

    python -m evidence.evaluate                      # seed: today's date, as 20261124, so that nobody has seen these cases
    python -m evidence.evaluate --corpora FOLDER     # with the collections of docs/reference/judges.md that are there
    python -m evidence.evaluate --only replay,litmus --seed 7 --json FILE

Data enters as the rows below and the commands that they name, and leaves as a table and as JSON (with --keep in
evidence/judges/results/evaluation.json, from which docs/reference/evaluation.md is made). The exit code is 0 if every
criterion holds. After Ctrl-C the rows so far are written.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence.suites.run import versions
from tools.pages.tables import table

RESULTS = Path(__file__).parent / "judges" / "results" / "evaluation.json"


@dataclass(frozen=True)
class Options:
    """The options of a run.

    seed: of drawn cases. corpora: folder of collections, or None. work: folder for what the commands write. jobs: processes.
    """

    seed: int
    corpora: Path | None
    work: Path
    jobs: int


@dataclass(frozen=True)
class Row:
    """A row of the table.

    claim, criterion: for the table; the criterion was written before the run. run: gives (words for the table, whether it holds);
    words that begin with "not run" say what lacks.
    """

    claim: str
    criterion: str
    run: Callable[[Options], tuple[str, bool]]


def said(*command: str) -> tuple[int, str]:
    """(exit code, standard output and error) of a command of this interpreter."""
    ended = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def replay(options: Options) -> tuple[str, bool]:
    file = options.work / "replay.json"
    with file.open("w") as out:
        command = [sys.executable, "-m", "mmulator", "conformance", "--json"]
        ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    if not (text := file.read_text()).strip():
        said = ended.stderr.strip().splitlines() or ["no message"]
        return f"mmulator conformance --json wrote nothing and ended with code {ended.returncode}: {said[-1]}", False
    totals = json.loads(text)["runs"][0]["totals"]
    wrong = totals["wrong"] + totals["errors"]
    return f"{totals['words']:,} words of {totals['forms']:,} forms, {wrong:,} differ", not wrong and totals["words"] > 10**8


def tests(*folders: str) -> Callable[[Options], tuple[str, bool]]:
    def run(options: Options) -> tuple[str, bool]:
        report = options.work / "tests.xml"
        said("pytest", *folders, "-n", str(options.jobs), "-q", f"--junitxml={report}")
        suite = next(ET.parse(report).getroot().iter("testsuite"))
        count, failed, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "skipped"))
        failed += int(suite.get("errors", 0))
        return f"{count - failed - skipped:,} pass, {failed} fail, {skipped} are skipped", count > 0 and not failed

    return run


def litmus(options: Options) -> tuple[str, bool]:
    from evidence.judges import order
    from evidence.judges.litmus import chance, interleavings

    racy, wrong = 0, []
    for seed in range(options.seed, options.seed + 100):
        test = chance.drawn(seed)
        has = interleavings.Explorer(test).find().racy
        racy += has
        wrong += [seed] * (bool(order.races(test, seed)) != has)
    return f"100 tests, {racy} with a race, {len(wrong)} told wrongly {wrong or ''}".strip(), not wrong


def codes(options: Options) -> tuple[str, bool]:
    code, text = said("evidence.fuzz.versions", "--seed", str(options.seed), "--cases", "300")
    return text.strip().splitlines()[-1], code == 0


def modules(options: Options) -> tuple[str, bool]:
    size = ("--modules", "10000", "--launches", "500", "--seconds", "240", "--jobs", str(options.jobs))
    code, text = said("evidence.fuzz.modules", "--seed", str(options.seed), *size, "--out", str(options.work / "fuzz"), "--quiet")
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    words = ", ".join(f"{value:,} {name}" for name, value in found.items() if isinstance(value, int) and name != "seed")
    return words, code == 0


def sums(options: Options) -> tuple[str, bool]:
    file = options.work / "bits.json"
    folder = options.corpora or options.work
    size = ("--elements", "16384", "--seed", str(options.seed))
    code, text = said("evidence.judges.bits", str(folder), *size, "--json", str(file))
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    if not rows:
        return f"not run: {text.strip().splitlines()[0] if text.strip() else 'nothing to compare with'}", False
    compared, differ = (sum(row[name] for row in rows) for name in ("compared", "differ"))
    return f"{compared:,} compared, {differ} differ, {sum(row['explained'] for row in rows)} of them explained", code == 0


SMALL = ("compute_sanitizer", "warp_types", "scor", "gsan")


def corpora(options: Options) -> tuple[str, bool]:
    from evidence.judges import judges
    from evidence.judges.__main__ import corpus

    if options.corpora is None:
        return "not run: where are the collections? --corpora", False
    told, holds = [], True
    for judge in (runner.JUDGE for runner in judges.RUNNERS if runner.JUDGE.name in SMALL):
        folder = corpus(judge, options.corpora)
        if folder.exists():
            code, _ = said(f"evidence.judges.{judge.name}", str(folder), "--jobs", str(options.jobs))
            told.append(f"{judge.name}: {'as the page says' if code == 0 else 'OTHER COUNTS'}")
            holds &= code == 0
    return ("; ".join(told), holds) if told else ("not run: no collection is in the folder", False)


ROWS = {
    "replay": Row("single instructions have the bits of an H200", "0 words differ", replay),
    "kernels": Row("whole kernels have the bits of an H200", "no test fails", tests("tests/kernels")),
    "legality": Row("what ptxas accepts and refuses is accepted and refused", "no test fails", tests("tests/isa", "tests/ptx")),
    "sums": Row("sums of other chips are those that others published", "0 differ, but those explained", sums),
    "twin": Row("compiled products have the model's bits", "no test fails", tests("tests/twin")),
    "codes": Row("a kernel has one result under every kind of native code", "0 of 300 drawn kernels differ", codes),
    "defects": Row("each planted change is found by its rules and by no other", "no test fails", tests("tests/ub")),
    "litmus": Row("races are those of the definitions", "0 of 100 drawn tests are told wrongly", litmus),
    "corpora": Row("defects planted by others are found at the rates of docs/reference/judges.md", "the same counts", corpora),
    "modules": Row("broken PTX ends in a named error", "no crash, no hang, no other exception", modules),
}


def page() -> str:
    """The last run that was kept, as the table of docs/reference/evaluation.md."""
    run = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
    found = {row["name"]: row for row in run["rows"]}
    rows = []
    for name, row in ROWS.items():
        one = found.get(name, {"found": "not run yet", "holds": False, "seconds": 0})
        verdict = "yes" if one["holds"] else "no" if not one["found"].startswith("not run") else "not run"
        rows.append((f"`{name}`", row.claim, row.criterion, one["found"], verdict, f"{one['seconds']:.0f}"))
    head = ""
    if run["rows"]:
        head = f"Seed {run['seed']}, {run['date']}, {run['machine']}; mmulator {run['commit']}.\n\n"
    return head + table(("row", "claim", "criterion", "found", "holds", "s"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"of {', '.join(ROWS)}, with commas")
    parser.add_argument("--seed", type=int, default=int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")))
    parser.add_argument("--corpora", type=Path, help="the folder of the collections")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--keep", action="store_true", help="write the rows for docs/reference/evaluation.md, too")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no row is called {', '.join(unknown)}: there are {', '.join(ROWS)}")
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as work:
        options = Options(given.seed, given.corpora, Path(work), given.jobs)
        try:
            for name in names:
                row, start = ROWS[name], time.monotonic()
                print(f"{name:<9} {row.claim} ({row.criterion}) ...", flush=True)
                found, holds = row.run(options)
                seconds = time.monotonic() - start
                rows.append({"name": name, "found": found, "holds": holds, "seconds": round(seconds, 1)})
                print(f"{'holds' if holds else 'DOES NOT HOLD':<9} {found}, {seconds:.0f} s", flush=True)
        except KeyboardInterrupt:
            print("interrupted: the rows so far follow", file=sys.stderr)
    at = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    text = json.dumps({
        "seed": given.seed, "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": at or "of an archive",
        "machine": f"{os.cpu_count()} cores, {_processor()}", "versions": versions(), "rows": rows,
    }, indent=1) + "\n"  # fmt: skip
    for file in filter(None, (given.json, RESULTS if given.keep else None)):
        file.write_text(text)
    return int(len(rows) < len(names) or not all(row["holds"] for row in rows))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
