"""Compares what mmulator computes with what ptxas's machine code computes, number by number, without a GPU.

    python -m evidence.study.folding --seed 1 --count 200            # needs ptxas and nvdisasm
    python -m evidence.study.folding --text 'div.full.f32 %x0, %f0, %f1; add.f32 %o0, %x0, %f2;'

Random straight-line kernels of f32 arithmetic and approximate functions, constants among their operands, run on the
machine twice: as PTX, and as the machine code that ptxas made of it (evidence/study/machine_code.py), which is executed as it
stands. A difference is a liberty of ptxas that mmulator does not know. Set PTXAS and NVDISASM to choose the programs.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import mmulator as mm
from evidence.study.machine_code import Unknown, assemble, translate
from tests.data import contraction_vectors as vectors
from tests.data.contraction_vectors import HEAD, INPUTS, OUTPUTS, PARAMETERS, SCALARS, kernel

THREADS = 1024


def constant(rng: random.Random) -> str:
    special = (1.0, -1.0, 2.0, 0.5, 4.0, 0.25, 8.0, 0.125, 3.0, 500.0, 0.0, -0.0, 0.3, 1e-5, 16.0, -2.0, 1.4426950408889634)
    if rng.random() < 0.7:
        bits = struct.unpack("<I", struct.pack("<f", rng.choice(special)))[0]
    elif rng.random() < 0.5:
        bits = rng.choice((0x7F800000, 0xFF800000, 1, 0x00400000, 0x7E800001, 0x7F000000, 0x00800000, 0x7FC00000, 0x7F7FFFFF))
    else:
        bits = rng.getrandbits(32)
        bits = bits if bits & 0x7F800000 != 0x7F800000 else 0x40490FDB
    return f"0f{bits:08x}"


class Writer:
    def __init__(self, rng: random.Random, weights: dict[str, float], ftz: float, constants: float, branches: float) -> None:
        self.rng, self.weights, self.constants, self.branches = rng, weights, constants, branches
        self.hidden: list[str] = []  # computed in a branch: not known behind it
        self.ftz = rng.random() < ftz
        self.lines: list[str] = []
        self.values: list[str] = []
        self.unread: list[str] = []
        self.predicates = 0

    def operand(self) -> str:
        rng = self.rng
        if self.unread and rng.random() < 0.55:
            name = rng.choice(self.unread[-2:])
        elif (seen := [v for v in self.values if v not in self.hidden]) and rng.random() < 0.3:
            name = rng.choice(seen)
        elif rng.random() < self.constants:
            return constant(rng)
        else:
            return rng.choice([*(f"%f{n}" for n in range(INPUTS)), "%q0", "%q1"])
        if name in self.unread:
            self.unread.remove(name)
        return name

    def different(self) -> tuple[str, str]:
        """Two operands: no compiler selects between a value and itself."""
        first, second = self.operand(), self.operand()
        while second == first:
            second = f"%f{self.rng.randrange(INPUTS)}"
        return first, second

    def statement(self) -> None:
        rng = self.rng
        op = rng.choices(list(self.weights), list(self.weights.values()))[0]
        name = op
        count = {"mul": 2, "add": 2, "sub": 2, "div": 2, "fma": 3, "min": 2, "max": 2}.get(name.split(".")[0], 1)
        ftz = self.ftz if rng.random() < 0.97 else not self.ftz
        z = ".ftz" if ftz and not name.startswith(("mov", "tanh", "selp")) else ""
        if name.startswith("mul.ftzless"):
            z = ""
        sat = ".sat" if name in ("add", "mul", "sub", "fma.rn") and rng.random() < 0.03 else ""
        target = f"%x{len(self.values)}"
        if name == "selp":
            p = self.predicates
            self.predicates += 1
            compare = rng.choice(("gt", "lt", "eq", "geu"))
            self.lines.append(f"setp.{compare}.f32 %p{p}, {rng.choice(['%f0', '%f1', '%q0'])}, {self.operand()};")
            self.lines.append(f"selp.f32 {target}, {', '.join(self.different())}, %p{p};")
        else:
            extremum = name in ("min", "max")
            operands = self.different() if extremum else [self.operand() for _ in range(count)]
            self.lines.append(f"{name}{z}{sat}.f32 {target}, {', '.join(operands)};")
        self.values.append(target)
        self.unread.append(target)

    def branch(self) -> None:
        """Statements that some threads skip; what they compute is stored at once."""
        p = self.predicates
        self.predicates += 1
        values, unread = list(self.values), list(self.unread)
        first, second = self.rng.sample([f"%f{n}" for n in range(INPUTS)], 2)
        self.lines += [f"setp.gt.f32 %p{p}, {first}, {second};", f"@%p{p} bra L{p};"]
        for _ in range(self.rng.randint(1, 4)):
            self.statement()
        new = [v for v in self.unread if v not in values]
        self.lines += [f"st.global.f32 [%out+{128 + 4 * int(v[2:])}], {v};" for v in new if int(v[2:]) < 32]
        self.lines.append(f"L{p}:")
        self.hidden += [v for v in self.values if v not in values]
        self.unread = [v for v in unread if v in self.unread]

    def body(self, size: int) -> str:
        for _ in range(size):
            if self.rng.random() < self.branches:
                self.branch()
            else:
                self.statement()
        self.values = [v for v in self.values if v not in self.hidden]
        kept = dict.fromkeys(self.unread + [v for v in self.values if self.rng.random() < 0.1])
        out = [f"mov.f32 %o{n}, {v};" for n, v in enumerate(kept)]
        return "\n".join(self.lines + out)


def is_nan(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return (x & 0x7FFFFFFF) > 0x7F800000


def compare(bodies: list[str], seed: int, verbose: int, options: list[str], nans: bool) -> Counter[str]:
    totals: Counter[str] = Counter()
    text = HEAD + "".join(kernel(f"k{n}", b) for n, b in enumerate(bodies))
    with tempfile.TemporaryDirectory() as folder:
        machine = assemble(text, Path(folder), options)
    translated: dict[int, str] = {}
    for n in range(len(bodies)):
        try:
            translated[n] = translate(machine[f"k{n}"], f"k{n}", [".param ." + d for d in PARAMETERS])
        except Unknown as unknown:
            totals[f"unknown {unknown}"] += 1
    ours, theirs = mm.Module.load(text), mm.Module.load(HEAD + "".join(translated.values()))
    source = vectors.operands(seed, THREADS)
    for n in translated:
        results = []
        for module in (ours, theirs):
            out = np.zeros((THREADS, OUTPUTS), np.uint32)
            module[f"k{n}"].launch(1, THREADS, [source.copy(), out, *SCALARS], device="sm_90")
            results.append(out)
        a, b = results
        different = (a != b) & (nans | ~(is_nan(a) & is_nan(b)))
        totals["different" if different.any() else "same"] += 1
        if different.any() and totals["different"] <= verbose:
            row, column = (int(x) for x in np.argwhere(different)[0])
            print("-" * 100, bodies[n], *(t for _, t in machine[f"k{n}"] if re.search(r"F|MUFU|HADD|IMAD.MOV|MOV", t)), sep="\n")
            print(f"{int(different.any(1).sum())} threads; %o{column}: {a[row, column]:#x}, ptxas {b[row, column]:#x}")
            print("   inputs", [hex(x) for x in source[row]])
    return totals


WEIGHTS = {
    "mul": 6, "add": 4, "sub": 2, "fma.rn": 1, "div.full": 4, "div.approx": 2, "rcp.approx": 1, "mul.rn": 0.5, "add.rn": 0.5,
    "neg": 0.7, "abs": 0.4, "mov": 0.3, "min": 0.3, "max": 0.3, "selp": 0.4, "sqrt.approx": 0.5, "rsqrt.approx": 0.4,
    "ex2.approx": 0.5, "lg2.approx": 0.3, "sin.approx": 0.1, "cos.approx": 0.1, "tanh.approx": 0.2,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--ftz", type=float, default=0.4, help="share of kernels with .ftz")
    parser.add_argument("--constants", type=float, default=0.3)
    parser.add_argument("--branches", type=float, default=0.0, help="share of statements that are branches")
    parser.add_argument("--only", default="", help="names of operations, comma-separated")
    parser.add_argument("--text", action="append", default=[], help="the body of a kernel instead of random ones")
    parser.add_argument("--written", default="", help="kernels of tests/data/contraction_kernels.txt, by a part of their names")
    parser.add_argument("--nans", action="store_true", help="compare the bits of NaNs, too")
    parser.add_argument("--verbose", type=int, default=3, help="mismatches shown")
    parser.add_argument("--ptxas-option", action="append", default=[])
    o = parser.parse_args()
    rng = random.Random(o.seed)
    weights = {k: v for k, v in WEIGHTS.items() if not o.only or k.split(".")[0] in o.only.split(",")}
    if o.written:
        bodies = [b for name, b in vectors.bodies().items() if o.written in name]
    else:
        bodies = o.text or [
            Writer(rng, weights, o.ftz, o.constants, o.branches).body(rng.randint(2, o.size)) for _ in range(o.count)
        ]
    totals = compare(bodies, o.seed, o.verbose, o.ptxas_option, o.nans)
    print(", ".join(f"{n} {what}" for what, n in totals.most_common()))
    sys.exit(1 if totals["different"] else 0)


if __name__ == "__main__":
    main()
