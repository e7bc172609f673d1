"""Make tests/data/scalar_vectors.*: every scalar, warp and atomic form on adversarial operands, as a GPU computes it.

    python -m tools.capture.scalar build DIR     # no GPU, needs ptxas: DIR/*.ptx, *.cubin, forms.json, operands.npz
    python -m tools.capture.scalar run DIR OUT   # on the GPU: OUT/scalar_raw.npz, OUT/scalar_log.json
    python -m tools.capture.scalar pack DIR OUT  # no GPU: tests/data/scalar_vectors.json and .xz

`run` executes each form three ways, compiled by ptxas -O3, by the driver, and by the driver unoptimised; `pack`
keeps the first and notes where the others differ.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.data.scalar_vectors import HEAD, STORAGE, Case
from tools.capture.scalar_forms import FAMILIES, Form
from tools.capture.scalar_operands import operands

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def case_of(name: str, family: str, f: Form) -> Case:
    ins = tuple(tuple(x.split(":")) for x in f.ins.split())
    outs = tuple(tuple(x.split(":")) for x in f.outs.split())
    special = dict(x.split(":") for x in f.pool.split())
    if ".cas." in f.text:
        special.pop("b")
    pools = []
    for r, t in ins:
        p = "tile" if r == "tile" else special.get(r, t)
        if re.fullmatch(r"[us](16|32|64)", p):
            p = "b" + p[1:]
        pools.append({"u16x2": "b32", "s16x2": "b32", "few": "few64" if t == "b64" else "few"}.get(p, p))
    wide_unary = len(ins) == 1 and family in ("float", "convert", "half") and STORAGE[ins[0][1]][2] >= 4
    floating = family in ("float", "half") and len(ins) > 1
    count = 128 if f.tile else 2048 if wide_unary else 1024 if floating or "f32" in f.outs else 512
    key = ",".join(pools) + (":cas" if ".cas." in f.text else "") + f"@{count}"
    return Case(name, family, f.text, ins, outs, key, count, f.block, f.memory, f.tile)  # type: ignore[arg-type]


def pool_operands(case: Case) -> list[np.ndarray]:
    pool, _, twist = case.pool.rpartition("@")[0].partition(":")
    made = operands(pool, case.count)
    if twist == "cas":  # half of the comparisons succeed
        made[1] = np.where(np.arange(case.count) % 2 == 0, made[0], made[1])
    return made


def assemble(cases: list[Case], path: Path, extra: list[str]) -> list[Case]:
    """Write one module of all cases; drop those ptxas rejects; leaves PATH.ptx and PATH.cubin."""
    while True:
        starts, text, line = [], HEAD, HEAD.count("\n") + 1
        for c in cases:
            starts.append(line)
            body = c.body()
            text += body
            line += body.count("\n")
        path.with_suffix(".ptx").write_text(text)
        done = subprocess.run(
            ["ptxas", "-arch=sm_90a", "-O3", *extra, path.with_suffix(".ptx"), "-o", path.with_suffix(".cubin")],
            capture_output=True,
            text=True,
        )
        wrong = sorted({int(n) for n in re.findall(r"line (\d+); error", done.stderr)})
        if not wrong:
            if done.returncode:
                raise SystemExit(done.stderr[:3000])
            return cases
        bad = {max(i for i, s in enumerate(starts) if s <= n) for n in wrong}
        why = dict(re.findall(r"line (\d+); error\s*: (.*)", done.stderr))
        for i in sorted(bad):
            reason = next(
                (w for n, w in why.items() if starts[i] <= int(n) < starts[i] + cases[i].body().count("\n")), ""
            )
            print("  rejected:", cases[i].text[:90], "--", reason[:110])
        cases = [c for i, c in enumerate(cases) if i not in bad]


def build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept: list[Case] = []
    for family, forms in FAMILIES.items():
        seen: dict[tuple[str, str, str], Form] = {(f.text, f.ins, f.pool): f for f in forms()}
        cases = [case_of(f"{family}/{i:04}", family, f) for i, f in enumerate(seen.values())]
        legal = assemble(cases, folder / family, [])
        print(family, len(legal), "of", len(cases))
        kept += legal
    sets = {c.pool: pool_operands(c) for c in sorted(kept, key=lambda c: c.count)}
    sizes = {(c.pool, c.count) for c in kept}
    if len(sizes) != len(sets):
        raise SystemExit(f"one pool, two sizes: {[s for s in sizes if sum(s[0] == o[0] for o in sizes) > 1]}")
    np.savez_compressed(
        folder / "operands.npz", **{f"in|{p}|{i}": a for p, made in sets.items() for i, a in enumerate(made)}
    )
    (folder / "forms.json").write_text(json.dumps([asdict(c) for c in kept]))
    raw = sum(sum(c.sizes()[1]) for c in kept)
    print(
        len(kept),
        "forms,",
        len(sets),
        "signatures,",
        raw,
        "bytes of results,",
        (folder / "operands.npz").stat().st_size,
        "of operands",
    )


def read_cases(folder: Path) -> list[Case]:
    return [
        Case(
            **{**r, "inputs": tuple(map(tuple, r["inputs"])), "outputs": tuple(map(tuple, r["outputs"])), "stored": ()}
        )
        for r in json.loads((folder / "forms.json").read_text())
    ]


def run(folder: Path, out: Path) -> None:
    import ctypes
    import time

    from tools.capture.gpu import Gpu

    cases, held = read_cases(folder), dict(np.load(folder / "operands.npz"))
    gpu, log, arrays = Gpu(), {}, {}
    loaded: dict[tuple[str, str], Any] = {}
    for family in dict.fromkeys(c.family for c in cases):
        for way in ("cubin", "jit", "jit0"):
            start = time.monotonic()
            image = (folder / f"{family}.{'cubin' if way == 'cubin' else 'ptx'}").read_bytes()
            loaded[family, way] = gpu.module(image, 0 if way == "jit0" else None)
            print(family, way, f"{time.monotonic() - start:.1f} s", flush=True)
    pointers = {k: gpu.upload(v) for k, v in held.items()}
    for c in cases:
        results: list[list[np.ndarray]] = []
        for way in ("cubin", "jit", "jit0"):
            fresh = [gpu.upload(np.full(size, 0xEE, np.uint8)) for size in c.sizes()[1]]
            cells = [pointers[f"in|{c.pool}|{i}"] for i in range(len(c.inputs))] + fresh
            gpu.start(
                gpu.function(loaded[c.family, way], c.entry),
                [c.grid, 1, 1],
                [c.block, 1, 1],
                0,
                [ctypes.c_uint64(p.value) for p in cells],
            )
            results.append([gpu.download(p, np.zeros(size, np.uint8)) for p, size in zip(fresh, c.sizes()[1])])
            for p in fresh:
                gpu.free(p)
        for i, (r, t) in enumerate(c.outputs):
            arrays[f"{c.name}|{r}"] = results[0][i].view(f"u{4 if r == 'tile' else STORAGE[t][2]}")
        different = [
            w
            for w, got in zip(("jit", "jit0"), results[1:])
            if any(not np.array_equal(a, b) for a, b in zip(results[0], got))
        ]
        if different:
            log[c.name] = {
                "text": c.text,
                "differs": different,
                "count": [int((a != b).sum()) for a, b in zip(results[0], results[-1])],
            }
            for way, got in zip(("jit", "jit0"), results[1:]):
                if way in different:
                    for (r, t), g in zip(c.outputs, got):
                        arrays[f"{c.name}|{r}|{way}"] = g.view(f"u{4 if r == 'tile' else STORAGE[t][2]}")
    np.savez_compressed(out / "scalar_raw.npz", **arrays)
    (out / "scalar_log.json").write_text(json.dumps(log, indent=1))
    print(len(cases), "forms,", len(log), "differ;", (out / "scalar_raw.npz").stat().st_size, "bytes")


def pack(folder: Path, out: Path) -> None:
    raw, held = np.load(out / "scalar_raw.npz"), np.load(folder / "operands.npz")
    rows, arrays, keys = [], {k: held[k] for k in held.files}, dict[str, str]()
    for c in read_cases(folder):
        stored = []
        for r, _ in c.outputs:
            data = raw[f"{c.name}|{r}"]
            mark = hashlib.sha256(data.dtype.str.encode() + data.tobytes()).hexdigest()
            if mark not in keys:
                keys[mark] = f"{len(keys)}"
                arrays[f"out|{keys[mark]}"] = data
            stored.append(keys[mark])
        pairs = {k: " ".join(":".join(p) for p in getattr(c, k)) for k in ("inputs", "outputs")}
        unusual = {
            k: v
            for k, v in asdict(c).items()
            if k in ("block", "memory", "tile") and v != Case.__dataclass_fields__[k].default
        }
        rows.append(
            {
                "name": c.name,
                "family": c.family,
                "text": c.text,
                **pairs,
                "pool": c.pool,
                "count": c.count,
                **unusual,
                "stored": stored,
            }
        )
    blob, index = bytearray(), {}
    for k in sorted(arrays, key=lambda k: -arrays[k].itemsize):  # stable: widest first, so every array is aligned
        index[k] = [len(blob), arrays[k].itemsize, arrays[k].size]
        blob += arrays[k].tobytes()
    (DATA / "scalar_vectors.xz").write_bytes(lzma.compress(bytes(blob), preset=9))
    body = ",\n".join(json.dumps(r) for r in rows)
    (DATA / "scalar_vectors.json").write_text(f'{{"arrays": {json.dumps(index)},\n"cases": [\n{body}\n]}}\n')
    print(
        len(rows),
        "cases,",
        len(keys),
        "results,",
        *((f.name, f.stat().st_size) for f in DATA.glob("scalar_vectors.[jx]*")),
    )


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    {"build": build, "run": run, "pack": pack}[verb](*map(Path, paths))
