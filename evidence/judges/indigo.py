"""The Indigo suite: 590 CUDA kernels of graph codes, with planted races and accesses out of bounds; labels are the file names.

    python -m evidence.judges.indigo ~/HiRace-Artifact-SC24 --work /tmp/indigo --json indigo.json

The folder is the artifact of HiRace (SC24), which holds Indigo 1.3, graphs, and the script of the published comparison. The
launch is that script's: 1024 blocks of 256 threads, the same inputs (the C library's rand() from its start). Default severity;
accesses out of bounds are findings behind which the launch goes on.
"""

from __future__ import annotations

import ctypes
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from evidence.judges.common import Answer, Count, Judge, arguments, compiled, device_code, finish, resumed, sanitized

BLOCKS, THREADS = 1024, 256
GRAPHS = ("counterDAG_200n_1000e", "power_law_200n_1000e")
RACES, BOUNDS = ("atomicBug", "guardBug", "syncBug", "raceBug"), ("boundsBug",)
# Half of the kernels access out of bounds only where the first or the last node has no edges: one of the two graphs has that.
QUESTIONS = {
    **{f"races, {graph}": (RACES, "race-", (graph,)) for graph in GRAPHS},
    "out of bounds, either graph": (BOUNDS, "memory-out-of-bounds", GRAPHS),
}
# Races that other tools find in the same launch, by graph: table 1 of HiRace's artifact (results/paper_figures), which has 580 of
# the kernels. None of them tells how many clean kernels were flagged.
PUBLISHED = {
    "HiRace (the source is instrumented)": (346, 346), "iGUARD": (298, 297),
    "compute-sanitizer racecheck (shared memory only)": (56, 128), "result compared with a serial run": (282, 306),
}  # fmt: skip
JUDGE = Judge(
    "indigo", "Indigo 1.3, 590 kernels", "github.com/JohnJacobsonIII/HiRace-Artifact-SC24", "44a935f9",
    dict(zip(QUESTIONS, (Count(346, 346, 0, 244), Count(346, 346, 0, 244), Count(144, 144, 0, 446)))),
    ("race-*", "memory-out-of-bounds"),
)  # fmt: skip


def inputs(graph: Path) -> list[np.ndarray]:
    """Arrays (int32) of a graph: the neighbours' index [nodes + 1] and list [edges], and two of data [max(nodes, edges)]."""
    words = np.fromfile(graph, np.int32)
    nodes, edges = map(int, words[:2])
    index, neighbours = words[2 : nodes + 3], words[nodes + 3 : nodes + 3 + edges]
    size = max(nodes, edges, 1)
    libc = ctypes.CDLL(None)
    libc.srand(1)
    data = [np.array([0, *(libc.rand() % n for _ in range(size - 1))], np.int32) for n in (nodes, max(edges, 1))]
    return [index.copy(), neighbours.copy(), *data]


def judged(source: Path, graphs: Path, work: Path | None) -> dict[str, tuple[tuple[str, ...], str, float]]:
    """By graph: the rules that the kernel breaks, the error that it ended in, and seconds."""
    import mmulator as mm

    ptx = compiled(device_code(source.read_text()), work)
    found = {}
    for name in GRAPHS:
        arrays, begun = inputs(graphs / f"{name}.egr"), time.perf_counter()
        kernel = mm.Module.load(ptx, name=f"{source.stem}.ptx")["test_kernel"]
        arguments = [*arrays, len(arrays[0]) - 1]
        rules, error = sanitized(partial(
            kernel.launch, BLOCKS, THREADS, arguments, device="sm_80", keep_going=True, threads=1, timeout=600
        ))  # fmt: skip
        found[name] = rules, error, round(time.perf_counter() - begun, 3)
    return found


def answer(question: str, name: str, found: dict[str, tuple[tuple[str, ...], str, float]]) -> Answer:
    bugs, prefix, graphs = QUESTIONS[question]
    own = {rule for graph in graphs for rule in found[graph][0] if rule.startswith(prefix)}
    error = next((found[graph][1] for graph in graphs if found[graph][1]), "")
    return Answer(question, name, any(bug in name for bug in bugs), tuple(sorted(own)), error)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    suite = options.folder / "indigo"
    sources = [path for path in sorted(suite.glob("indigo_sources/*/*.cu")) if options.only in path.stem]
    found = resumed(options, {path.stem: partial(judged, path, suite / "input") for path in sources})
    given = [answer(question, path.stem, found[path.stem]) for question in QUESTIONS for path in sources]
    return finish(JUDGE, options, given, launch=f"{BLOCKS} blocks of {THREADS} threads, --keep-going, default severity")


if __name__ == "__main__":
    sys.exit(main())
