"""Make tests/data/atomic_vectors.npz: every operation of atom and red, on operands at the edges, as a GPU computes it.

    python -m evidence.capture.atomics build DIR     # no GPU, needs ptxas: DIR/atomics.ptx, .cubin, operands.npz
    python -m evidence.capture.atomics run DIR OUT   # on the GPU: OUT/atomics.npz
    python -m evidence.capture.atomics pack DIR OUT  # no GPU: tests/data/atomic_vectors.npz

`run` executes each case from what ptxas made and, of rows that PTX 8.8 has, from what the driver makes of the same PTX;
`pack` keeps the first and says where the other differs, or what was stored before.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.data import atomic_vectors
from tests.data.atomic_vectors import ELEMENTS, FILE, PTX, Case, cases, head, kernel, stored
from tests.support.scalar_operands import F16_EDGES, operands

BF16_EDGES = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x0040, 0x007F, 0x807F, 0x0080, 0x8080, 0x0081, 0x0100, 0x3F80, 0xBF80, 0x3F81,
    0x3F7F, 0x3F00, 0xBF00, 0x3F01, 0x4000, 0xC000, 0x3FC0, 0x4040, 0x4300, 0x4380, 0xC380, 0x4381, 0x3B80, 0x3B00,
    0x3B01, 0x7F7F, 0xFF7F, 0x7F00, 0x7E80, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7FFF, 0xFFFF, 0x7F81, 0xFFA3, 0x7FC5,
    0xFFD9, 0x0180, 0x00FF,
]  # fmt: skip
F32_EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
    0x00FFFFFF, 0x3F800000, 0xBF800000, 0x33800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x73000000, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFA12345, 0x7FC12345, 0xFFC54321,
]  # fmt: skip
F64_EDGES = [((e & 0x80000000) << 32) | ((e & 0x7FFFFFFF) << 29) for e in F32_EDGES[12:]] + [
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001, 0x000FFFFFFFFFFFFF,
    0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x8010000000000000, 0x3FF0000000000000, 0x7FEFFFFFFFFFFFFF,
    0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000000,
    0x7FF0000000000001, 0xFFF4000000012345, 0x7FF8ABCDEF012345,
]  # fmt: skip
EDGES = {"f16": F16_EDGES, "bf16": BF16_EDGES, "f32": F32_EDGES, "f64": F64_EDGES}


def pairs(kind: str, count: int) -> list[np.ndarray]:
    """All pairs of edges, then operands that the scalar vectors use."""
    a, b = operands(f"{kind},{kind}", count)
    edges = list(itertools.product(EDGES[kind], repeat=2))[:count]
    for which, array in enumerate((a, b)):
        array[: len(edges)] = [e[which] for e in edges]
    return [a, b]


def made(signature: str) -> list[np.ndarray]:
    """Cells, operand, and for cas the new value, as unsigned integers of an element."""
    kind, _, cas = signature.partition(",")
    if kind in EDGES:
        return pairs(kind, ELEMENTS[kind])
    if kind.endswith("x2"):  # the pairs of the single type, two at a time
        return [x[0::2].astype(np.uint32) | x[1::2].astype(np.uint32) << 16 for x in pairs(kind[:-2], 2 * ELEMENTS[kind])]
    bits, names = int(kind[1:]), 3 if cas else 2
    wide = operands(",".join([f"b{min(bits, 64)}"] * names), 512 * max(1, bits // 64))
    if cas:  # half of the comparisons succeed
        lanes = np.arange(len(wide[0])) // max(1, bits // 64)
        wide[1] = np.where(lanes % 2 == 0, wide[0], wide[1])
    return wide


def build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kernels = {kernel(f"k{n}", [c]): c for n, c in enumerate(cases())}
    for name, chosen in (("atomics", kernels), ("driver", {k: c for k, c in kernels.items() if c.row.requires.ptx <= PTX})):
        (folder / f"{name}.ptx").write_text(head([*chosen.values()]) + "".join(chosen))
    subprocess.run(["ptxas", "-arch=sm_90a", folder / "atomics.ptx", "-o", folder / "atomics.cubin"], check=True)
    held = {f"in|{s}|{n}": x.view(np.uint8) for s in {c.signature for c in cases()} for n, x in zip("abc", made(s))}
    np.savez_compressed(folder / "operands.npz", **held)
    fields = ("name", "signature", "grid", "returns")
    described = [{f: getattr(c, f) for f in fields} | {"driver": c.row.requires.ptx <= PTX} for c in cases()]
    (folder / "cases.json").write_text(json.dumps(described))
    print(len(cases()), "cases,", sum(x.nbytes for x in held.values()), "bytes of operands")


def run(folder: Path, out: Path) -> None:
    from evidence.capture.gpu import Gpu

    out.mkdir(parents=True, exist_ok=True)
    gpu, held, results = Gpu(), dict(np.load(folder / "operands.npz")), {}
    for way, image in (("cubin", "atomics.cubin"), ("jit", "driver.ptx")):
        module = gpu.module((folder / image).read_bytes())
        for n, c in enumerate(json.loads((folder / "cases.json").read_text())):
            if way == "jit" and not c["driver"]:
                continue
            given = [held[k] for name in "abc" if (k := f"in|{c['signature']}|{name}") in held]
            places = [gpu.upload(x) for x in (given[0], *given[1:], *([np.zeros_like(given[0])] if c["returns"] else []))]
            cells = [ctypes.c_uint64(p.value) for p in places]
            gpu.start(gpu.function(module, f"k{n}"), c["grid"], atomic_vectors.BLOCK, cells)
            wanted = [places[0], *([places[-1]] if c["returns"] else [])]
            for k, place in enumerate(wanted):
                results[f"{way}|{c['name']}|{k}"] = gpu.download(place, np.zeros_like(given[0]))
            for place in places:
                gpu.free(place)
    np.savez_compressed(out / "atomics.npz", **results)
    print(len(results), "arrays")


def pack(folder: Path, out: Path) -> None:
    raw, held = np.load(out / "atomics.npz"), np.load(folder / "operands.npz")
    arrays, index, numbers = {k: held[k] for k in held.files}, {}, dict[str, int]()

    def number(data: np.ndarray) -> int:
        mark = hashlib.sha256(data.tobytes()).hexdigest()
        if mark not in numbers:
            numbers[mark] = len(numbers)
            arrays[f"out|{numbers[mark]}"] = data
        return numbers[mark]

    for c in cases():
        names = [f"{c.name}|{k}" for k in range(1 + c.returns)]
        index[c.name] = [number(raw[f"cubin|{n}"]) for n in names]
        others = {"the driver's code differs": [raw[k] for n in names if (k := f"jit|{n}") in raw],
                  "differs from what was stored": c.results() if c.name in stored() else []}  # fmt: skip
        for what, results in others.items():
            for n, other in zip(names, results):
                if (raw[f"cubin|{n}"] != other).any():
                    print(f"{what}:", _first_difference(c, raw[f"cubin|{n}"], other))
    arrays["of"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(FILE, **arrays)
    print(len(index), "cases,", len(numbers), "results,", FILE.stat().st_size, "bytes")


def _first_difference(c: Case, one: np.ndarray, other: np.ndarray) -> str:
    dtype = np.dtype(f"u{min(c.element, 8)}")
    one, other = one.view(dtype), other.view(dtype)
    at = np.flatnonzero(one != other)
    return f"{c.name}: {len(at)} elements, the first {int(one[at[0]]):#x} and {int(other[at[0]]):#x}"


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    {"build": build, "run": run, "pack": pack}[verb](*map(Path, paths))
