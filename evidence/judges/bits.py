"""Sums of tensor cores against what others published: their models, their vectors, their programs, their orders of addition.

    pip install mmasim==2.1.1 graphviz            # a model of tensor cores, and what FPRev needs
    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
    git clone https://github.com/north-numerical-computing/tensor-cores-numerical-behavior
    git clone https://github.com/peichenxie/FPRev
    python -m evidence.judges.bits FOLDER [--only mmasim,vectors,programs,orders] [--elements 1000000] [--seed 1] [--json FILE]

FOLDER has the three clones. What is not there is left out, with a line that says so. --elements: random elements of D for each
arithmetic of mmasim, with nine distributions of operands (tests/support/numerics_cases.py). --nvcc: an nvcc that compiles for
sm_70 (CUDA 12), for the program of the V100. The exit code is 0 if nothing differs.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidence.suites.run import commit, versions
from mmulator.base.files import write
from mmulator.isa.types import TYPES
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.formats import container, numpy_dtype
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support import mmasim
from tests.support.numerics_cases import operands


@dataclass
class Compared:
    """A part of a source.

    compared: elements, verdicts or trees. differ: how many of them are others here. first: one of these.
    explained: those of `differ` that EXPLAINED accounts for.
    """

    source: str
    part: str
    compared: int
    differ: int
    first: str = ""
    explained: int = 0


EXPLAINED = (
    "C is a subnormal f16 and D is f32. mmasim aligns C as it is stored; here it is converted to f32 first, as an H200 was seen "
    "to do. With C converted, mmasim has these bits, too. Nobody has published such a sum of a V100 or T4."
)


def of_mmasim(options: argparse.Namespace) -> Iterator[Compared]:
    """Random operands through every arithmetic that mmasim models, on every architecture. NaNs of f64 count as equal."""
    import torch
    from mmasim import nv_ptx  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from mmasim.nv_ptx import isa_mma, isa_tcgen05mma, isa_wgmma  # type: ignore[import-not-found,import-untyped,unused-ignore]

    names = {
        "MMA": isa_mma.mma_shape_and_type, "MMABlockScale": isa_mma.mma_block_scale_shape_and_type,
        "WGMMA": isa_wgmma.wgmma_shape_and_type, "TCGen05MMA": isa_tcgen05mma.tcgen05mma_shape_and_type,
        "TCGen05MMABlockScale": isa_tcgen05mma.tcgen05mma_block_scale_shape_and_type,
    }  # fmt: skip
    for operation, architectures in names.items():
        for architecture, forms in architectures.items():
            compared, differ, explained, first = 0, 0, 0, ""
            for name in {mmasim.arithmetic(name): name for name in forms}.values():
                theirs, key, device = getattr(nv_ptx, operation)(architecture, name), mmasim.key(operation, name), architecture
                for number in range(-(-options.elements // (64 * 128))):
                    count, wrong, known = _against(torch, theirs, key, mmasim.ARCHITECTURES[device], options.seed + number)
                    compared, differ, explained = compared + count, differ + wrong, explained + known
                    first = first or (f"{name}, seed {options.seed + number}" if wrong else "")
            yield Compared("mmasim", f"{operation}, {architecture}", compared, differ, first, explained)


def _against(torch: Any, theirs: Any, key: DotKey, device: str, seed: int) -> tuple[int, int, int]:
    """(elements of D, those that differ, those of them that EXPLAINED accounts for) of random operands."""
    (A, B, C), more = operands(key, 64, 128, key.k, seed)
    more = {x: y for x, y in more.items() if x.startswith("scale")}
    left, right = mmasim.factors(torch, key, A, B)
    scales = [mmasim.tensor(torch, np.ascontiguousarray(y.T if x == "scale_b" else y), key.stype or "") for x, y in more.items()]
    rows, columns = (slice(None), None), (None, slice(None))
    c = mmasim.tensor(torch, C, key.ctype)
    both = [x[at].expand(64, 128, -1) for x, at in ((left, rows), (right, columns))]
    more_of_both = [x[at].expand(64, 128, -1) for x, at in zip(scales, (rows, columns))]
    expected = mmasim.raw(torch, theirs.dpa(*both, c, *more_of_both))
    found = twin_matmul(key, device, A, B, C, **more)
    wrong = expected != found
    if key.dtype == "f64":
        wrong &= ~(np.isnan(expected.view(np.float64)) & np.isnan(found.view(np.float64)))
    known = np.zeros_like(wrong)
    if wrong.any() and (key.ctype, key.dtype) == ("f16", "f32"):
        subnormal = (C & 0x7C00 == 0) & (C & 0x3FF != 0)
        known = wrong & subnormal & (mmasim.raw(torch, theirs.dpa(*both, c.float())) == found)
    return found.size, int(wrong.sum()), int(known.sum())


GPUS = {"V100": "sm_70", "A100": "sm_80", "A2": "sm_86", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90", "H200": "sm_90",
        "B200": "sm_100"}  # fmt: skip
PUBLISHED = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2", "fp32": "f32"}


def of_vectors(options: argparse.Namespace) -> Iterator[Compared]:
    """Dot products that eight GPUs computed (Khattak and Mikaitis): text files of a, b, c in hexadecimal f32, d as digits."""
    for gpu, device in GPUS.items():
        compared, differ, first = 0, 0, ""
        for folder in sorted((options.folder / "MATLAB-tensor-core/model_validation" / gpu).iterdir()):
            kind = PUBLISHED[folder.name]
            a, b = (_words(folder / f"{x}_{gpu}_{folder.name}.txt", 16) for x in "ab")
            c = _words(folder / f"c_{gpu}_fp32.txt", 2)
            for file in sorted(folder.glob("d_*.txt")):
                dtype = PUBLISHED[file.stem.rpartition("_")[2]]
                d = _words(file, 2)
                fp8_of_wgmma = kind in ("e4m3", "e5m2") and device == "sm_90" and dtype == "f32"  # with C = 0, their README says
                family = "wgmma" if fp8_of_wgmma else "mma" if kind in ("e4m3", "e5m2") else "wmma"
                key = DotKey(family, kind, kind, dtype, dtype, len(a) // len(d))
                A, B = (_narrow(kind, x).reshape(len(d), -1) for x in (a, b))
                C = np.zeros_like(c) if fp8_of_wgmma else c
                found = twin_matmul(key, device, A[:, None, :], B[:, :, None], _narrow(dtype, C)[:, None, None])
                wrong = np.flatnonzero(found[:, 0, 0] != _narrow(dtype, d))
                compared, differ = compared + len(d), differ + len(wrong)
                first = first or (f"{file.name}, product {wrong[0]}" if len(wrong) else "")
        yield Compared("vectors", gpu, compared, differ, first)


def _words(file: Path, base: int) -> Any:
    return np.array([int(word, base) for word in file.read_text().split()], np.uint32)


def _narrow(kind: str, f32: Any) -> Any:
    """Bits of f32 to bits of a type; C of f16 products is rounded to nearest even, as its authors did."""
    if kind in ("tf32", "f32"):
        return f32
    return f32.view(np.float32).astype(numpy_dtype(TYPES[kind])).view(container(TYPES[kind]))


# program, device, option of nvcc
PROGRAMS = (
    ("V100", "sm_70", "sm_70"), ("T4-A100-binary16", "sm_75", "sm_75"), ("T4-A100-binary16", "sm_80", "sm_80"),
    ("A100-bf16", "sm_80", "sm_80"), ("A100-tf32", "sm_80", "sm_80"), ("A100-binary64", "sm_80", "sm_80"),
)  # fmt: skip


def of_programs(options: argparse.Namespace) -> Iterator[Compared]:
    """The programs of Fasi et al. (PeerJ Computer Science 7:e330), which test what their authors measured on GPUs."""
    folder = options.folder / "tensor-cores-numerical-behavior"
    with tempfile.TemporaryDirectory() as work:
        for program, device, target in PROGRAMS:
            nvcc = (options.nvcc if target == "sm_70" else None) or "nvcc"
            made = Path(work) / f"{program}-{device}"
            source = folder / f"tc_test_numerics-{program}.cu"
            command = [nvcc, f"-arch={target}", "-cudart", "shared", "-o", str(made), str(source)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                print(f"programs: {nvcc} does not compile {program} for {target}: left out", file=sys.stderr)
                continue
            command = [sys.executable, "-m", "mmulator", "exec", "--device", device, str(made)]
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            lines = re.findall(r"\| (.*?) +\[(PASS|FAIL)\]", said)
            failed = [name.strip() for name, verdict in lines if verdict == "FAIL"]
            if not lines:
                failed = [f"ended without a verdict: {said[-200:]}"]
            yield Compared("programs", f"{program} on {device}", len(lines), len(failed), "; ".join(failed))


# device, number of products that one addition takes, C beside them (FPRev, USENIX ATC 2025, figure 4 and section 6.2)
FUSED = {"sm_70": 4, "sm_80": 8, "sm_90": 16}
TERMS = (16, 32, 64)


def of_orders(options: argparse.Namespace) -> Iterator[Compared]:
    """FPRev's algorithm on products of f16: each inner node of the tree that it finds adds so many terms as its paper prints."""
    sys.path.insert(0, str(options.folder / "FPRev"))
    from fprev import AccumImpl, fprev  # type: ignore[import-not-found,import-untyped,unused-ignore]

    class Products(AccumImpl):  # type: ignore[misc]
        """A row times ones, as its TorchF16GEMM: units so small that a mask swallows them."""

        def __init__(self, n: int, device: str) -> None:
            self.n_summands, self._device = n, device
            self._row = np.full((1, n), 2.0**-24, np.float16)
            self._key = DotKey("mma", "f16", "f16", "f32", "f32", 4 if device == "sm_70" else 16)

        def set_mask(self, k: int, negative: bool = False) -> None:
            self._row[0, k] = -(2.0**15) if negative else 2.0**15

        def reset_mask(self, k: int) -> None:
            self._row[0, k] = 2.0**-24

        def get_l(self) -> int:
            ones = np.ones((self.n_summands, 1), np.float16).view(np.uint16)
            D = twin_matmul(self._key, self._device, self._row.view(np.uint16), ones, np.zeros((1, 1), np.uint32))
            return self.n_summands - int(D.view(np.float32)[0, 0] * 2.0**24)

    for device, fused in FUSED.items():
        differ, first = 0, ""
        for n in TERMS:
            parents: dict[str, int] = {}
            for parent in re.findall(r"\d+ -> (\d+)", fprev(Products(n, device)).source):
                parents[parent] = parents.get(parent, 0) + 1
            widths = sorted(parents.values())
            expected = sorted([fused] + [fused + 1] * (n // fused - 1))  # later additions have the sum so far, too
            if widths != expected:
                differ, first = differ + 1, first or f"{n} products: additions of {widths} terms, published {expected}"
        yield Compared("orders", device, len(TERMS), differ, first)


# name: (runner, module or folder that it needs, title, its source, what is compared)
SOURCES: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Compared]], tuple[str, ...], str, str, str]] = {
    "mmasim": (of_mmasim, ("mmasim", "torch"), "mmasim 2.1.1, a model", "https://arxiv.org/abs/2511.10909", "random elements"),
    "vectors": (of_vectors, ("MATLAB-tensor-core",), "Khattak and Mikaitis, vectors of 8 GPUs",
                "https://github.com/north-numerical-computing/MATLAB-tensor-core", "dot products"),
    "programs": (of_programs, ("tensor-cores-numerical-behavior",), "Fasi et al., programs with what they measured",
                 "https://github.com/north-numerical-computing/tensor-cores-numerical-behavior", "verdicts"),
    "orders": (of_orders, ("FPRev", "graphviz"), "FPRev, orders of addition", "https://github.com/peichenxie/FPRev",
               "trees of sums"),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the clones")
    parser.add_argument("--only", default="", help=f"of {', '.join(SOURCES)}, with commas")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nvcc", help="an nvcc that compiles for sm_70")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Compared] = []
    commits: dict[str, str] = {}
    for name in options.only.split(",") if options.only else SOURCES:
        run, needed, *_ = SOURCES[name]
        missing = [x for x in needed if not (options.folder / x).is_dir() and importlib.util.find_spec(x) is None]
        if missing:
            print(f"{name}: left out: {', '.join(missing)} is not here", file=sys.stderr)
            continue
        commits[name] = next((commit(options.folder / x) or "" for x in needed if (options.folder / x).is_dir()), "")
        for row in run(options):
            rows.append(row)
            line = f"{row.source:<9} {row.part:<36} {row.compared:>12,} compared, {row.differ:,} differ"
            print(line + (f" ({row.explained} explained): {row.first}" if row.first else ""), flush=True)
    if options.json:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        write(options.json, json.dumps({
            "judge": "bits", "date": date, "versions": versions(), "elements": options.elements, "seed": options.seed,
            "commits": commits, "rows": [asdict(row) for row in rows],
        }, indent=1) + "\n")  # fmt: skip
    return int(not rows or any(row.differ > row.explained for row in rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
