"""Make tests/data/scalar_vectors.* again: every recorded statement on its recorded operands, as the GPU at hand computes it.

    python -m evidence.capture.scalar build DIR     # no GPU, needs ptxas: DIR/*.ptx, *.cubin
    python -m evidence.capture.scalar run DIR OUT   # on the GPU: OUT/scalar_raw.npz, OUT/scalar_log.json
    python -m evidence.capture.scalar pack OUT      # no GPU: tests/data/scalar_vectors.json and .xz

`run` executes each statement three ways, compiled by ptxas -O3, by the driver, and by the driver unoptimised; `pack`
keeps the first and notes where the others differ. New statements come from the rows of the tables: rows.py.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from tests.data.scalar_vectors import HEAD, STORAGE, Case, arrays, load

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
WAYS = ("cubin", "jit", "jit0")


def build(folder: Path) -> None:
    """One module a family, as PTX and assembled."""
    folder.mkdir(parents=True, exist_ok=True)
    for family, cases in groupby(load(), key=lambda c: c.family):
        path = folder / family
        path.with_suffix(".ptx").write_text(HEAD + "".join(c.body() for c in cases))
        subprocess.run(["ptxas", "-arch=sm_90a", "-O3", path.with_suffix(".ptx"), "-o", path.with_suffix(".cubin")], check=True)


def run(folder: Path, out: Path) -> None:
    from evidence.capture.gpu import Gpu

    gpu, log, found = Gpu(), {}, {}
    loaded: dict[tuple[str, str], Any] = {}
    for family in dict.fromkeys(c.family for c in load()):
        for way in WAYS:
            image = (folder / f"{family}.{'cubin' if way == 'cubin' else 'ptx'}").read_bytes()
            loaded[family, way] = gpu.module(image, 0 if way == "jit0" else None)
    pointers = {k: gpu.upload(v) for k, v in arrays().items() if k.startswith("in|")}
    for c in load():
        inputs = [pointers[f"in|{c.pool}|{i}"] for i in range(len(c.inputs))]
        results = {way: _launch(gpu, gpu.function(loaded[c.family, way], c.entry), c, inputs) for way in WAYS}
        first = results["cubin"]
        found |= {f"{c.name}|{r}": first[i] for i, (r, _) in enumerate(c.outputs)}
        different = [w for w in WAYS[1:] if any(not np.array_equal(a, b) for a, b in zip(first, results[w]))]
        if different:
            counts = [int((a != b).sum()) for a, b in zip(first, results[different[-1]])]
            log[c.name] = {"text": c.text, "differs": different, "count": counts}
            for way in different:
                found |= {f"{c.name}|{r}|{way}": results[way][i] for i, (r, _) in enumerate(c.outputs)}
    np.savez_compressed(out / "scalar_raw.npz", **found)
    (out / "scalar_log.json").write_text(json.dumps(log, indent=1))
    print(len(load()), "statements,", len(log), "differ;", (out / "scalar_raw.npz").stat().st_size, "bytes")


def _launch(gpu: Any, function: Any, c: Case, inputs: list[Any]) -> list[np.ndarray]:
    import ctypes

    sizes = c.result_bytes
    fresh = [gpu.upload(np.full(size, 0xEE, np.uint8)) for size in sizes]
    cells = [ctypes.c_uint64(p.value) for p in (*inputs, *fresh)]
    gpu.start(function, c.grid, c.block, cells)
    got = [gpu.download(p, np.zeros(size, np.uint8)) for p, size in zip(fresh, sizes)]
    for p in fresh:
        gpu.free(p)
    return [g.view(f"u{4 if r == 'tile' else STORAGE[t][2]}") for (r, t), g in zip(c.outputs, got)]


def pack(out: Path) -> None:
    raw = np.load(out / "scalar_raw.npz")
    cases = {r["name"]: r for r in json.loads((DATA / "scalar_vectors.json").read_text())["cases"]}
    kept, keys = {k: v for k, v in arrays().items() if k.startswith("in|")}, dict[str, str]()
    for c in load():
        stored = cases[c.name]["stored"] = []
        for r, _ in c.outputs:
            data = raw[f"{c.name}|{r}"]
            mark = hashlib.sha256(data.dtype.str.encode() + data.tobytes()).hexdigest()
            if mark not in keys:
                keys[mark] = f"{len(keys)}"
                kept[f"out|{keys[mark]}"] = data
            stored.append(keys[mark])
    blob, index = bytearray(), {}
    for k in sorted(kept, key=lambda k: -kept[k].itemsize):  # stable: widest first, so every array is aligned
        index[k] = [len(blob), kept[k].itemsize, kept[k].size]
        blob += kept[k].tobytes()
    (DATA / "scalar_vectors.xz").write_bytes(lzma.compress(bytes(blob), preset=9))
    body = ",\n".join(json.dumps(r) for r in cases.values())
    (DATA / "scalar_vectors.json").write_text(f'{{"arrays": {json.dumps(index)},\n"cases": [\n{body}\n]}}\n')
    print(len(cases), "cases,", len(keys), "results")


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    {"build": build, "run": run, "pack": pack}[verb](*map(Path, paths))
