"""Atomic operations and what an NVIDIA GPU computed with them: every row of `atom` and `red`, every operation and type.

The cases follow from the instruction tables (`cases`), so a new row is a case without results until it is captured. A case
is one instruction that each thread executes on a cell of its own. `atomic_vectors.npz` holds the operands of each signature
(`in|SIGNATURE|a`, `b`, `c`) and the results of each case (`of`: which of `out|N` its memory and its destination are).

    for case in cases():
        text = head([case]) + kernel("k", [case])  # takes pointers to the cells, in place, to the operands and to the results
        arrays = case.operands().values()       # raw bytes; for atom an array of the size of the cells follows
        memory, *old = case.results()
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.isa.atomic import ROWS
from mmulator.isa.row import Row
from mmulator.isa.types import type_bits

HERE = Path(__file__).resolve().parent
FILE = HERE / "atomic_vectors.npz"
PTX = (8, 8)  # the version of the modules, but for rows that came later
BLOCK = 128
# Where the cells are and how they are addressed: the same memory is reached by its own space and by generic addresses.
PLACES = {"global": ("global", "global"), "shared": ("shared", "shared"), "generic.global": ("", "global"),
          "generic.shared": ("", "shared")}  # fmt: skip
ELEMENTS = {"f16": 2048, "bf16": 2048, "f16x2": 1024, "bf16x2": 1024, "f32": 1024, "f64": 1024}


@dataclass(frozen=True)
class Case:
    """name: the mnemonic, with where its cells are. mnemonic: as it stands in the kernel. vec: elements of an operand."""

    name: str
    mnemonic: str
    op: str
    type: str
    vec: int
    memory: str
    row: Row

    @property
    def signature(self) -> str:
        """Cases of one signature share their operands."""
        kind = f"b{type_bits(self.type)}" if self.type[0] in "sub" and not self.type.startswith("bf") else self.type
        return f"{kind},cas" if self.op == "cas" else kind

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return type_bits(self.type) // 8

    @property
    def returns(self) -> bool:
        return self.row.name == "atom"

    @property
    def threads(self) -> int:
        return ELEMENTS.get(self.type, 512) // self.vec

    @property
    def grid(self) -> int:
        return self.threads // BLOCK

    def operands(self) -> dict[str, np.ndarray]:
        """Bytes of the cells, of the operand, and for cas of the new value."""
        names = "abc" if self.op == "cas" else "ab"
        return {n: arrays()[f"in|{self.signature}|{n}"] for n in names}

    def results(self) -> list[np.ndarray]:
        """Bytes of the cells afterwards, and for atom of the destinations."""
        return [arrays()[f"out|{n}"] for n in stored()[self.name]]

    def parameters(self, number: int = 0) -> list[str]:
        """Names of the kernel's pointers: cells, operand, for cas the new value, for atom the old values."""
        return [f"{n}{number}" for n in "ab" + ("c" if self.op == "cas" else "") + ("d" if self.returns else "")]

    def statements(self, number: int = 0) -> str:
        """The case as a block of statements in a kernel that has its parameters."""
        bits, n, step = 8 * self.element, self.vec, self.element * self.vec
        x, y, z = ([f"%{v}{i}" for i in range(n)] for v in "xyz")
        sources = [y, z] if self.op == "cas" else [y]
        lines = [f".reg .b{bits} " + ", ".join([*x, *y, *z]) + ";", ".reg .u64 %p, %q;", ".reg .u32 %i, %t;",
                 f".shared .align 16 .b8 cells[{BLOCK * step}];",
                 "mov.u32 %t, %tid.x;", "mov.u32 %i, %ctaid.x;", f"mad.lo.u32 %i, %i, {BLOCK}, %t;"]  # fmt: skip

        def element_of(name: str) -> list[str]:
            return [f"ld.param.u64 %q, [{name}{number}];", f"mad.wide.u32 %q, %i, {step}, %q;"]

        for name, registers in zip("bc", sources):
            lines += element_of(name)
            lines += [f"ld.global.b{bits} {r}, [%q+{k * self.element}];" for k, r in enumerate(registers)]
        lines += element_of("a")
        copies = [(f"ld{{}}.b{bits} {r}, [{{}}+{k * self.element}];", f"st{{}}.b{bits} [{{}}+{k * self.element}], {r};")
                  for k, r in enumerate(x)]  # fmt: skip
        if self.memory == "shared":
            lines += ["mov.u64 %p, cells;", f"mad.wide.u32 %p, %t, {step}, %p;"]
            lines += [s for load, store in copies for s in (load.format(".global", "%q"), store.format(".shared", "%p"))]
        else:
            lines.append("mov.u64 %p, %q;")
        generic = self.name.startswith("generic")
        if generic and self.memory == "shared":
            lines.append("cvta.shared.u64 %p, %p;")
        given = [_vector(s) for s in sources]
        lines.append(f"{self.mnemonic} {', '.join([*([_vector(x)] if self.returns else []), '[%p]', *given])};")
        if self.returns:
            lines += element_of("d") + [store.format(".global", "%q") for _, store in copies]
        if self.memory == "shared":
            lines += element_of("a")
            for load, store in copies:
                lines += [load.format("" if generic else ".shared", "%p"), store.format(".global", "%q")]
        return "{\n" + "\n".join("    " + line for line in lines) + "\n}\n"


def head(chosen: Sequence[Case]) -> str:
    """The directives at the head of a module of these cases."""
    version = "{}.{}".format(*max(PTX, *(c.row.requires.ptx for c in chosen)))
    return f".version {version}\n.target sm_90a\n.address_size 64\n"


def kernel(entry: str, chosen: Sequence[Case]) -> str:
    """A kernel of cases that take as many threads, one after the other."""
    names = [p for n, c in enumerate(chosen) for p in c.parameters(n)]
    body = "".join(c.statements(n) for n, c in enumerate(chosen))
    return f".visible .entry {entry}({', '.join(f'.param .u64 {n}' for n in names)})\n{{\n{body}ret;\n}}\n"


def _vector(registers: list[str]) -> str:
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def _written(row: Row) -> Iterator[dict[str, str]]:
    """What a row allows of operation, vector and type."""
    groups = [g for g in row.slots if g.name in ("op", "noftz", "vec", "type")]
    for words in itertools.product(*(g.choices for g in groups)):
        taken = {g.name: w for g, w in zip(groups, words)}
        if row.rule is None or row.rule(taken) is None:
            yield taken


@cache
def cases() -> tuple[Case, ...]:
    """Every operation that a row of atom or red allows, in each place that it allows."""
    found = []
    for row in ROWS:
        if row.name not in ("atom", "red"):
            continue
        for taken in _written(row):
            for place, (space, memory) in PLACES.items():
                if "vec" in taken and memory == "shared":
                    continue  # vectors are for global memory
                words = [row.name, *([space] if space else []), *taken.values()]
                name = f"{place}.{'.'.join([row.name, *taken.values()])}"
                vec = int(taken.get("vec", "v1")[1:])
                found.append(Case(name, ".".join(words), taken["op"], taken["type"], vec, memory, row))
    return tuple(found)


@cache
def arrays() -> dict[str, Any]:
    with np.load(FILE) as held:
        return {k: held[k] for k in held.files}


@cache
def stored() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(arrays()["of"].tobytes())
    return found
