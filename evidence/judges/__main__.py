"""Run the judges whose corpora are here, keep what they find, and write the tables of docs/reference/judges.md.

    python -m evidence.judges --corpora ~/corpora --work /tmp/judges         # every corpus that is there
    python -m evidence.judges --corpora ~/corpora --only order,gsan
    python -m evidence.judges --page                                         # the tables alone

A corpus lies in --corpora (or $JUDGES_CORPORA), in a folder that has the last part of its source as a name. A run
whose counts are not the expected ones is kept neither in evidence/judges/results nor in the page, unless --keep is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from evidence.judges import judges
from evidence.judges.common import Judge


def corpus(judge: Judge, corpora: Path) -> Path:
    return corpora / judge.source.rpartition("/")[2]


def command(judge: Judge, options: argparse.Namespace, out: Path) -> list[str]:
    found = [sys.executable, "-m", f"evidence.judges.{judge.name}", str(corpus(judge, options.corpora)), "--json", str(out)]
    found += ["--jobs", str(options.jobs)]
    for other in judge.beside:  # a second corpus, which may lack
        if (options.corpora / other).exists():
            found += [f"--{other}", str(options.corpora / other)]
    return found + ["--work", str(options.work / judge.name)] * bool(options.work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, default=os.environ.get("JUDGES_CORPORA"), help="the folder of the corpora")
    parser.add_argument("--work", type=Path, help="a folder from which an interrupted run goes on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", default="", help="names of runners, with commas")
    parser.add_argument("--keep", action="store_true", help="keep a run whose counts are not the expected ones")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    options = parser.parse_args()
    if not options.page and options.corpora is None:
        parser.error("where are the corpora? --corpora FOLDER, or JUDGES_CORPORA in the environment")
    failed, only = [], options.only.split(",") if options.only else [runner.JUDGE.name for runner in judges.RUNNERS]
    for judge in () if options.page else [runner.JUDGE for runner in judges.RUNNERS if runner.JUDGE.name in only]:
        if not corpus(judge, options.corpora).exists():
            print(f"{judge.name}: not here: git clone https://{judge.source} in {options.corpora}")
            continue
        judges.RESULTS.mkdir(exist_ok=True)
        out = judges.RESULTS / f"{judge.name}.json"
        before = out.read_text() if out.exists() else None
        print(f"{judge.name}: {judge.title}", flush=True)
        code = subprocess.run(command(judge, options, out), check=False).returncode
        if code and not options.keep:
            failed.append(judge.name)
            out.unlink(missing_ok=True)
            if before is not None:
                out.write_text(before)
        elif out.exists():
            out.write_text(json.dumps(judges.small(json.loads(out.read_text())), indent=1) + "\n")
    if not options.page and (not options.only or "bits" in only):
        command_of_bits = [sys.executable, "-m", "evidence.judges.bits", str(options.corpora)]
        with tempfile.TemporaryDirectory() as work:
            out = Path(work, "bits.json")
            code = subprocess.run([*command_of_bits, "--json", str(out)], check=False).returncode
            if out.exists() and (options.keep or not code):
                (judges.RESULTS / out.name).write_text(out.read_text())
        failed += ["bits"] * bool(code)
    from evidence import pages

    for path, text in pages.pages():
        if path.name == "judges.md":
            path.write_text(text)
    for name in failed:
        print(f"{name}: other counts than expected; --keep keeps them", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
