"""Vectors of a GPU for every row of the scalar tables: tests/support/row_statements.py says which, as a GPU computes them.

    python -m evidence.capture.rows build DIR       # no GPU, needs ptxas: DIR/*.cubin, plan.json
    python -m evidence.capture.rows run DIR OUT     # on the GPU: OUT/row_raw.npz
    python -m evidence.capture.rows pack DIR OUT    # no GPU: tests/data/row_vectors.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.support.places import DATA
from tests.support.row_statements import HEAD, THREADS, Statement, kernels, plan


def plan_file(file: Path) -> list[Statement]:
    return [Statement(t, tuple(s), tuple(r), k) for t, s, r, k in json.loads(file.read_text())]


def build(folder: Path, ptxas: str) -> None:
    import subprocess

    from tests.data import scalar_vectors

    folder.mkdir(parents=True, exist_ok=True)
    made = plan([c.text for c in scalar_vectors.load()])
    for kernel in kernels(made):
        file = folder / f"{kernel.name}.ptx"
        file.write_text(HEAD + kernel.body())
        command = [ptxas, "-arch=sm_90a", "-O3", str(file), "-o", str(file.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{kernel.name}: {done.stderr[:2000]}")
    (folder / "plan.json").write_text(json.dumps([(s.text, s.sources, s.results, s.kind) for s in made]))
    print(len(made), "statements,", len(kernels(made)), "kernels")


def run(folder: Path, out: Path) -> None:
    import ctypes

    from evidence.capture.gpu import Gpu

    gpu, arrays = Gpu(), {}
    for kernel in kernels(plan_file(folder / "plan.json")):
        loaded = gpu.module((folder / f"{kernel.name}.cubin").read_bytes())
        results = np.full((kernel.words, THREADS), 0xEEEEEEEEEEEEEEEE, np.uint64)
        places = [gpu.upload(a) for a in (*kernel.inputs(), results)]
        gpu.start(gpu.function(loaded, kernel.name), 1, THREADS, [ctypes.c_uint64(p.value) for p in places])
        arrays[kernel.name] = gpu.download(places[-1], results)
        for p in places:
            gpu.free(p)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "row_raw.npz", **arrays)
    print(len(arrays), "kernels,", (out / "row_raw.npz").stat().st_size, "bytes")


def pack(folder: Path, out: Path) -> None:
    """Adds the statements of a capture to those that there are."""
    raw = np.load(out / "row_raw.npz")
    file = DATA / "row_vectors.json"
    rows_of: dict[str, list[str]] = {line[0]: line for line in json.loads(file.read_text())} if file.exists() else {}
    for kernel in kernels(plan_file(folder / "plan.json")):
        for s, found in kernel.digests(raw[kernel.name]):
            line = [s.text, " ".join(s.sources), " ".join(s.results), s.kind, found]
            if rows_of.setdefault(s.text, line) != line:
                raise SystemExit(f"{s.text}: {found}, not {rows_of[s.text]}")
    file.write_text("[\n" + ",\n".join(map(json.dumps, rows_of.values())) + "\n]\n")
    print(len(rows_of), "digests")


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    if verb == "build":
        build(Path(paths[0]), paths[1] if len(paths) > 1 else "ptxas")
    else:
        {"run": run, "pack": pack}[verb](*map(Path, paths))
