"""ScoR's seven applications: whole programs with scoped locks, flags and atomics, each with its races (-D RACEY) and without.

    python -m evidence.judges.scor_applications ~/ScoR --work /tmp/applications --json scor_applications.json

nvcc compiles a program, and `mmulator exec --sanitize` runs it on four blocks of 128 threads and inputs that a seed draws; ScoR
has 15 or 30 blocks of up to 1,024 threads, and no inputs. As with the microbenchmarks, a second run is without the word volatile.
iGUARD has these programs as binaries, and the same races.
"""

from __future__ import annotations

import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from evidence.judges.common import Answer, Count, Judge, arguments, finish, program, restored, resumed

SIZES = ("-DNBLOCKS=4", "-DNTHREADS=128")
VOLATILE, PLAIN = "as it is", "data that is not volatile"
# (file, pattern, replacement). Of the 32 locks of a block the program sets one to 0, a defect of its own that hides the others.
EDITS = (
    ("mm_main.cu", r"errorCheck\(cudaMemset\(d_g_lock", r"cudaMemset(d_sh_lock, 0, sizeof(int) * NBLOCKS * WARP_SIZE); \g<0>"),
)
JUDGE = Judge(
    "scor_applications", "ScoR, 7 applications", "github.com/csl-iisc/ScoR", "6dc3507e",
    {VOLATILE: Count(6, 7, 0, 7), PLAIN: Count(7, 7, 1, 7)}, ("race-*",),
)  # fmt: skip
REASONS = {
    (VOLATILE, "reduction"): "volatile accesses are strong: no race by the specification",
    (PLAIN, "reduction"): "lanes of a warp read what others write without __syncwarp(), and nothing acquires the ticket",
}


def inputs(name: str) -> str:
    """The input file of an application: sizes, then numbers."""
    draw = random.Random(1)

    def numbers(count: int, most: int) -> list[int]:
        return [draw.randint(0, most) for _ in range(count)]

    if name.startswith("graph"):
        edges = sorted({(min(pair), max(pair)) for pair in zip(numbers(900, 399), numbers(900, 399)) if pair[0] != pair[1]})
        words = [400, len(edges), *(node for edge in edges for node in edge)]
    else:
        words = {
            "1dconv": [5, 300, *numbers(305, 9)], "matrix-multiplication": [4, 130, 33, *numbers(4 * 130 + 130 * 33, 9)],
            "reduction": [1000, *numbers(1000, 9)], "rule-110": [600, 3, *numbers(600, 1)], "uts": [6, 3, 5],
        }[name]  # fmt: skip
    return " ".join(map(str, words)) + "\n"


def judged(folder: Path, question: str, racy: bool, work: Path) -> Answer:
    name = folder.name
    place = work / f"{name}-{racy:d}-{question == PLAIN:d}"
    place.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.cu*"):
        text = path.read_text()
        for file, pattern, replacement in EDITS:
            text = re.sub(pattern, replacement, text) if path.name == file else text
        (place / path.name).write_text(re.sub(r"\bvolatile\b", "", text) if question == PLAIN else text)
    sources = [path.name for path in sorted(place.glob("*.cu")) if name != "reduction" or path.name == "red_main.cu"]
    rules, ended = program(sources, name, place, (*SIZES, "-I.", *["-DRACEY"] * racy), inputs(name))
    found = tuple(sorted(rules)) if not racy else tuple(sorted(rule for rule in rules if rule.startswith("race-")))
    failed = ended.returncode and not rules
    reason = ended.stderr[-200:] if failed else REASONS.get((question, name), "") if racy != bool(found) else ""
    return Answer(question, f"{name}{', RACEY' * racy}", racy, found, reason)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    makefiles = sorted((options.folder / "benchmarks").glob("*/Makefile"))
    folders = [path.parent for path in makefiles if options.only in path.parent.name]
    cases = [(folder, question, racy) for question in (VOLATILE, PLAIN) for folder in folders for racy in (True, False)]
    tasks = {f"{folder.name} {question} {racy}": partial(judged, folder, question, racy) for folder, question, racy in cases}
    return finish(JUDGE, options, [*map(restored, resumed(options, tasks, ThreadPoolExecutor).values())])


if __name__ == "__main__":
    sys.exit(main())
