"""Single-statement kernels and what an NVIDIA H200 computed with them.

`scalar_vectors.json` lists the cases, `scalar_vectors.xz` holds operands and results. A case is one PTX statement (or a
short chain, where a carry or a predicate must pass) on registers `a b c ...`, run once per thread; `Case.body()` is the
whole kernel around it. Types are PTX types; 8-bit values and predicates travel as 32-bit and 8-bit words:

    for case in load():
        arrays = [case.operands(), ...]     # {"a": uint32[512], ...} as raw bits
        text = HEAD + case.body()           # entry `case.entry`, parameters: one pointer per input, then per output
        expected = case.results()           # {"d": uint32[512], ...}

Launch with `case.grid` blocks of `case.block` threads; thread i reads element i of every input and writes element i of
every output (`tile` outputs are the block's shared memory instead, TILE_WORDS 32-bit words a block).
"""

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TILE_WORDS = 512

# PTX type: (register type, type of its load and store, bytes in memory)
STORAGE: dict[str, tuple[str, str, int]] = {
    "pred": ("pred", "u8", 1),
    **dict.fromkeys(("s8", "u8", "b8"), ("b32", "b32", 4)),
    **{t: (t if t[0] in "us" else "b16", "b16", 2) for t in ("u16", "s16", "b16", "f16", "bf16", "e4m3x2", "e5m2x2")},
    **{t: (t, t, 4) for t in ("u32", "s32", "b32", "f32")},
    **dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2", "tf32"), ("b32", "b32", 4)),
    **{t: (t, t, 8) for t in ("u64", "s64", "b64", "f64")},
}


@dataclass(frozen=True)
class Case:
    """One statement. inputs, outputs: (register, type); memory: state space of `[p]`, a cell of its own per thread."""

    name: str
    family: str
    text: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    pool: str
    count: int
    block: int = 128
    memory: str = ""
    tile: bool = False
    stored: tuple[str, ...] = ()

    @property
    def entry(self) -> str:
        return self.name.replace("/", "_")

    @property
    def grid(self) -> int:
        return self.count // self.block

    @property
    def result_bytes(self) -> list[int]:
        """Bytes of every output array."""
        return [TILE_WORDS * 4 * self.grid if r == "tile" else STORAGE[t][2] * self.count for r, t in self.outputs]

    def operands(self) -> dict[str, np.ndarray]:
        """Raw bits of every input, in order: uint8, uint16, uint32 or uint64 of `count` elements."""
        return {r: arrays()[f"in|{self.pool}|{i}"] for i, (r, _) in enumerate(self.inputs)}

    def results(self) -> dict[str, np.ndarray]:
        """Raw bits of every output on the H200."""
        return {r: arrays()[f"out|{key}"] for (r, _), key in zip(self.outputs, self.stored, strict=True)}

    def body(self) -> str:
        """The entry, without the module's head."""
        lines, regs = [], []
        parameters = [f".param .u64 in_{r}" for r, _ in self.inputs] + [f".param .u64 out_{r}" for r, _ in self.outputs]
        for r, t in dict([*self.inputs, *self.outputs]).items():
            if r != "tile":
                regs.append(f".reg .{STORAGE[t][0]} {r};")
        for r, t in self.inputs:
            if r == "tile":
                continue
            _, access, size = STORAGE[t]
            lines += [f"ld.param.u64 %ptr, [in_{r}];", f"mad.wide.u32 %ptr, %i, {size}, %ptr;"]
            if t == "pred":
                lines += ["ld.global.u8 %half, [%ptr];", f"setp.ne.u16 {r}, %half, 0;"]
            else:
                lines.append(f"ld.global.{access} {r}, [%ptr];")
        if self.tile:
            lines += self._fill_tile()
        if self.memory:
            lines += self._cell()
        lines.append(self.text)
        if self.memory:
            lines.append(f"ld.{self.memory}.{STORAGE[dict(self.outputs)['m']][1]} m, [p];")
        for r, t in self.outputs:
            lines.append(f"ld.param.u64 %ptr, [out_{r}];")
            if r == "tile":
                lines += self._dump_tile()
                continue
            _, access, size = STORAGE[t]
            lines.append(f"mad.wide.u32 %ptr, %i, {size}, %ptr;")
            if t == "pred":
                lines += [f"selp.u16 %half, 1, 0, {r};", "st.global.u8 [%ptr], %half;"]
            else:
                lines.append(f"st.global.{access} [%ptr], {r};")
        head = ["mov.u32 %t, %tid.x;", "mov.u32 %i, %ctaid.x;", "mov.u32 %n, %ntid.x;", "mad.lo.u32 %i, %i, %n, %t;"]
        space = [".shared .align 128 .b8 cells[2048];"] if self.tile or self.memory == "shared" else []
        declared = [".reg .u32 %i, %t, %n, %k, %w, s, p32; .reg .u64 %ptr, p; .reg .u16 %half; .reg .pred %more;"]
        inside = "\n".join("    " + x for x in [*declared, *regs, *space, *head, *lines, "ret;"])
        return f".visible .entry {self.entry}({', '.join(parameters)})\n{{\n{inside}\n}}\n"

    def _cell(self) -> list[str]:
        """`p` addresses a cell of this thread, holding input `m`: in the output `m` itself, or shared."""
        access, size = STORAGE[dict(self.outputs)["m"]][1:]
        if self.memory == "shared":
            at = ["mov.u32 p32, cells;", f"mad.lo.u32 p32, %t, {size}, p32;", "cvt.u64.u32 p, p32;"]
        else:
            at = ["ld.param.u64 p, [out_m];", f"mad.wide.u32 p, %i, {size}, p;"]
        return [*at, f"st.{self.memory}.{access} [p], m;"]

    def _fill_tile(self) -> list[str]:
        """Fill the block's shared tile from the input `tile`; `s` is the tile's address plus 16 times input `row`."""
        return [
            "ld.param.u64 %ptr, [in_tile]; mov.u32 %k, %t; mov.u32 s, cells; shl.b32 %w, %t, 2; add.u32 s, s, %w;",
            "mad.wide.u32 %ptr, %t, 4, %ptr;",
            "FILL: ld.global.b32 %w, [%ptr]; st.shared.b32 [s], %w; add.u32 s, s, 128; add.u64 %ptr, %ptr, 128;",
            f"add.u32 %k, %k, 32; setp.lt.u32 %more, %k, {TILE_WORDS}; @%more bra FILL;",
            "bar.sync 0; mov.u32 s, cells; mad.lo.u32 s, row, 16, s;",
        ]

    def _dump_tile(self) -> list[str]:
        return [
            f"bar.sync 0; mov.u32 %w, %ctaid.x; mul.lo.u32 %w, %w, {TILE_WORDS}; add.u32 %w, %w, %t;",
            "mad.wide.u32 %ptr, %w, 4, %ptr; mov.u32 s, cells; shl.b32 %w, %t, 2; add.u32 s, s, %w; mov.u32 %k, %t;",
            "DUMP: ld.shared.b32 %w, [s]; st.global.b32 [%ptr], %w; add.u32 s, s, 128; add.u64 %ptr, %ptr, 128;",
            f"add.u32 %k, %k, 32; setp.lt.u32 %more, %k, {TILE_WORDS}; @%more bra DUMP;",
        ]


HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@cache
def arrays() -> dict[str, Any]:
    """Every stored array by key: the file is one xz stream, the index names offset, type and length of each."""
    blob = lzma.decompress((HERE / "scalar_vectors.xz").read_bytes())
    index = json.loads((HERE / "scalar_vectors.json").read_text())["arrays"]
    return {k: np.frombuffer(blob, f"<u{size}", count, at) for k, (at, size, count) in index.items()}


@cache
def load() -> tuple[Case, ...]:
    """Every recorded case."""
    rows = json.loads((HERE / "scalar_vectors.json").read_text())["cases"]

    def pairs(text: str) -> tuple[tuple[str, str], ...]:
        return tuple((r, t) for r, _, t in (x.partition(":") for x in text.split()))

    return tuple(
        Case(**{**r, "inputs": pairs(r["inputs"]), "outputs": pairs(r["outputs"]), "stored": tuple(r["stored"])}) for r in rows
    )
