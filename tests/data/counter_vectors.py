"""Accesses to memory by one warp, and what a GPU's counters said of them.

A form is one instruction. Its kernel `k(table, data)` is run by one warp; the table has two offsets for each lane, OFF where the
lane's guard is false. `counter_vectors.npz` holds for each form the tables of its launches (`NAME|tables`: launch, lane, offset)
and what they counted (`NAME|counts`: launch, number of METRICS; -1: not counted).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FILE, KERNELS = HERE / "counter_vectors.npz", HERE / "kernel_counters.json"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
OFF = 0xFFFF
ROOM = {"shared": 16384, "global": 32768, "local": 1024}  # bytes in which offsets lie
DATA = 1 << 16  # bytes of the array in global memory
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"
_BULK = "sectors_mem_global_op_tma_"
# what is compared -> the counters of Nsight Compute whose sum it is
METRICS = {
    "requests": ("l1tex__t_requests_pipe_lsu_mem_lg",),  # global and local memory
    "sectors": ("l1tex__t_sectors_pipe_lsu_mem_lg",),
    "wavefronts": tuple(_WAVEFRONTS + op for op in ("ld", "st", "atom")),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared",),
    "bulk": tuple(f"l1tex__m_{way}_{_BULK}{op}" for way, op in (
        ("xbar2l1tex_read", "ld"), ("l1tex2xbar_write", "st"), ("l1tex2xbar_write", "red"))),
}  # fmt: skip
# the sums of a kernel, of tests/kernels
KERNEL_METRICS = {
    "requests": tuple(
        f"l1tex__t_requests_pipe_lsu_mem_{space}_op_{op}"
        for space, ops in (("global", ("ld", "st", "atom", "red")), ("local", ("ld", "st"))) for op in ops
    ),
    "sectors": METRICS["sectors"],
    "atomic sectors": tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}" for op in ("atom", "red")),
    "theoretical sectors": ("memory_l2_theoretical_sectors_global",),
    "local requests": tuple(f"l1tex__t_requests_pipe_lsu_mem_local_op_{op}" for op in ("ld", "st")),
    "wavefronts": METRICS["wavefronts"], "matrix": (_WAVEFRONTS + "gmma",),
    "theoretical wavefronts": ("memory_l1_wavefronts_shared",),
    "copied wavefronts": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts",),
    **{f"bulk {name.rpartition('_')[2]}": (name,) for name in METRICS["bulk"]},
    "instructions": ("smsp__inst_executed",),
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """An instruction and where it goes.

    name: of the form.
    text: the instruction; [s], [g], [l], [x] are addresses in shared, global and local memory, and generic ones of shared
      memory; [G] is a second address in global memory.
    bytes: of a lane at the first address.
    more: bytes of a lane at the second address, or 0.
    all_lanes: whether no lane may be left out.
    """

    name: str
    text: str
    bytes: int
    more: int = 0
    all_lanes: bool = False

    @property
    def bulk(self) -> bool:
        """Whether one lane starts a bulk copy; its size in bytes is the second offset of lane 1."""
        return "bulk" in self.text

    @property
    def space(self) -> str:
        """The memory of the first address."""
        return next(name for mark, name in _MARKS.items() if mark in self.text)

    def kernel(self) -> str:
        """The module with the form's kernel."""
        guard = "@first " if self.bulk else "" if self.all_lanes else "@on "
        lines = [f"{guard}{self.text};"]
        if self.space == "local":  # something has to write and to read the variable
            lines.insert(0, "st.local.u32 [m], lane;")
            if self.text.startswith("st"):
                lines.append("ld.local.u32 r4, [m];")
        if self.text.startswith("cp.async.c"):
            lines.append("cp.async.wait_all;")
        if "mbarrier" in self.text:
            lines.insert(0, "@first mbarrier.init.shared.b64 [bar], 1; @first fence.proxy.async; bar.warp.sync 0xffffffff;")
            lines.append("@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], r7;")
            lines.append("again: mbarrier.try_wait.parity.shared.b64 done, [bar], 0; @!done bra again;")
        elif self.bulk:
            lines.append("@first cp.async.bulk.commit_group; @first cp.async.bulk.wait_group 0;")
        sink = "shared" if self.space == "global" else "global"
        inner = "\n  ".join(lines)
        return f"""{HEAD}.visible .entry k(.param .u64 table, .param .u64 data)
{{
  .reg .b64 t, d, g, h, l, m, x, w0, w1; .reg .b32 lane, s, o, r<8>; .reg .b16 c<4>; .reg .f32 f0, f1, f2, f3; .reg .pred on;
  .shared .align 8 .b64 bar; .reg .pred first, done;
  .shared .align 128 .b8 own[{ROOM["shared"]}];
  {".local .align 16 .b8 stack[2048];" if self.space == "local" else ""}
  ld.param.u64 t, [table]; ld.param.u64 d, [data];
  mov.u32 lane, %tid.x; setp.eq.u32 first, lane, 0;
  {"ld.global.u16 r7, [t+6];" if self.bulk else ""}
  mad.wide.u32 t, lane, 4, t;
  ld.global.v2.u16 {{c0, c1}}, [t];
  cvt.u32.u16 o, c0; cvt.u32.u16 r6, c1;
  setp.ne.u32 on, o, {OFF};
  mov.u32 s, own; add.u32 s, s, o;
  cvt.u64.u32 g, o; cvt.u64.u32 h, r6; add.u64 g, d, g; add.u64 h, d, h;
  cvt.u64.u32 x, s; cvta.shared.u64 x, x;
  {"mov.u64 l, stack; add.u64 m, l, h; sub.u64 m, m, d; add.u64 l, l, g; sub.u64 l, l, d;" if self.space == "local" else ""}
  add.u32 lane, lane, 1;  // an operation with 0 changes nothing
  mov.u32 r0, lane; mov.u32 r1, lane; mov.u32 r2, lane; mov.u32 r3, lane; mov.u32 r4, 0; cvt.u64.u32 w0, lane; mov.u64 w1, w0;
  mov.b32 f0, lane; mov.b32 f1, lane; mov.b32 f2, lane; mov.b32 f3, lane;
  cvt.u16.u32 c0, lane; mov.u16 c1, c0; mov.u16 c2, c0; mov.u16 c3, c0;
  {inner}
  {_used()}
  sub.u32 lane, lane, 1; mov.u32 s, own; mad.lo.u32 s, lane, 4, s; mad.wide.u32 d, lane, 4, d;
  st.{sink}.u32 [{"s" if sink == "shared" else "d"}], r0;
  ret;
}}
"""


def _used() -> str:
    """Statements that make all bits of the registers part of r0."""
    said = [f"xor.b32 r0, r0, {r};" for r in ("r1", "r2", "r3", "r4")]
    for f in ("f0", "f1", "f2", "f3"):
        said.append(f"mov.b32 r5, {f}; xor.b32 r0, r0, r5;")
    said.append("xor.b32 r0, r0, o; xor.b32 r0, r0, r6;")
    for c in ("c0", "c1", "c2", "c3"):
        said.append(f"cvt.u32.u16 r5, {c}; xor.b32 r0, r0, r5;")
    for w in ("w0", "w1"):
        said.append(f"mov.b64 {{r5, r7}}, {w}; xor.b32 r0, r0, r5; mul.lo.u32 r7, r7, 3; xor.b32 r0, r0, r7;")
    return "\n  ".join(said)


_MARKS = {"[s]": "shared", "[x]": "shared", "[g]": "global", "[l]": "local"}
_VALUES = {
    "u8": ("u8", "c0", 1), "u16": ("u16", "c0", 2), "v2.u8": ("v2.u8", "{c0, c1}", 2), "u32": ("u32", "r0", 4),
    "v2.u16": ("v2.u16", "{c0, c1}", 4), "v4.u8": ("v4.u8", "{c0, c1, c2, c3}", 4), "u64": ("u64", "w0", 8),
    "v2.u32": ("v2.u32", "{r0, r1}", 8), "v4.u32": ("v4.u32", "{r0, r1, r2, r3}", 16), "v2.u64": ("v2.u64", "{w0, w1}", 16),
}  # fmt: skip
_MOST = ("u8", "u16", "u32", "u64", "v4.u32")


def _made() -> Iterator[Form]:
    for space, mark in (("shared", "s"), ("global", "g"), ("local", "l")):
        for type_, registers, size in (_VALUES[t] for t in (_VALUES if space == "shared" else _MOST)):
            yield Form(f"ld.{space}.{type_}", f"ld.{space}.{type_} {registers}, [{mark}]", size)
            yield Form(f"st.{space}.{type_}", f"st.{space}.{type_} [{mark}], {registers}", size)
    for type_, registers, size in (_VALUES[t] for t in ("u32", "u64", "v4.u32")):
        yield Form(f"ld.{type_} of shared", f"ld.{type_} {registers}, [x]", size)
        yield Form(f"st.{type_} of shared", f"st.{type_} [x], {registers}", size)
        yield Form(f"ld.global.nc.{type_}", f"ld.global.nc.{type_} {registers}, [g]", size)
        yield Form(f"ld.{type_} of global", f"ld.{type_} {registers}, [g]", size)
        yield Form(f"ld.volatile.global.{type_}", f"ld.volatile.global.{type_} {registers}, [g]", size)
    yield Form("ld.shared::cluster.u32", "ld.shared::cluster.u32 r0, [s]", 4)
    for space, mark in (("shared", "s"), ("global", "g")):
        for op, size in (("add.u32 r0", 4), ("min.u32 r0", 4), ("exch.b32 r0", 4), ("inc.u32 r0", 4), ("add.u64 w0", 8),
                         ("exch.b64 w0", 8), ("add.f32 f0", 4), ("and.b32 r0", 4), ("max.s64 w0", 8), ("add.f64 w0", 8),
                         ("add.noftz.bf16x2 r0", 4)):  # fmt: skip
            what, register = op.split()
            if space == "shared" and what in ("max.s64", "add.f64"):
                continue  # loops of which the rounds depend on the values
            yield Form(f"atom.{space}.{what}", f"atom.{space}.{what} {register}, [{mark}], {register}", size)
            if what[:4] != "exch":
                yield Form(f"red.{space}.{what}", f"red.{space}.{what} [{mark}], {register}", size)
        yield Form(f"atom.{space}.cas.b32", f"atom.{space}.cas.b32 r0, [{mark}], r1, r2", 4)
        yield Form(f"atom.{space}.cas.b64", f"atom.{space}.cas.b64 w0, [{mark}], w1, w0", 8)
    yield Form("red.global.v2.f32.add", "red.global.v2.f32.add [g], {f0, f1}", 8)
    yield Form("red.global.v4.f32.add", "red.global.v4.f32.add [g], {f0, f1, f2, f3}", 16)
    yield Form("red.u32 of shared", "red.add.u32 [x], r0", 4)
    yield Form("ld.local.v2.u32", "ld.local.v2.u32 {r0, r1}, [l]", 8)
    yield Form("ld.acquire.gpu.global.u32", "ld.acquire.gpu.global.u32 r0, [g]", 4)
    yield Form("st.release.gpu.global.u64", "st.release.gpu.global.u64 [g], w0", 8)
    for number, registers in ((1, "{r0}"), (2, "{r0, r1}"), (4, "{r0, r1, r2, r3}")):
        for trans in ("", ".trans"):
            form = f"sync.aligned.m8n8.x{number}{trans}.shared.b16"
            yield Form(f"ldmatrix.x{number}{trans}", f"ldmatrix.{form} {registers}, [s]", 16, all_lanes=True)
            yield Form(f"stmatrix.x{number}{trans}", f"stmatrix.{form} [s], {registers}", 16, all_lanes=True)
    for size in (4, 8, 16):
        yield Form(f"cp.async.ca.{size}", f"cp.async.ca.shared.global [s], [h], {size}", size, size)
    yield Form("cp.async.cg.16", "cp.async.cg.shared.global [s], [h], 16", 16, 16)
    size = "shared::cta.bulk_group [h], [s], r7"
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    yield Form("cp.async.bulk.ld", f"{load} [s], [h], r7, [bar]", 16, 16)
    yield Form("cp.async.bulk.st", f"cp.async.bulk.global.{size}", 16, 16)
    yield Form("cp.reduce.async.bulk", f"cp.reduce.async.bulk.global.{size.replace(' ', '.add.u32 ', 1)}", 16, 16)


@cache
def forms() -> dict[str, Form]:
    return {f.name: f for f in _made()}


# offsets --------------------------------------------------------------------------------------------------------------
def offsets(rng: np.random.Generator, size: int, room: int) -> np.ndarray:
    """Offsets of 32 lanes, multiples of `size`: regular, random, few places, groups of lanes in one place."""
    lanes, places = np.arange(32), room // size
    some = rng.integers(0, places, 32)
    kind = rng.integers(0, 9)
    if kind == 0:  # regular
        found = rng.integers(0, 64) + lanes * rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33, 64])
    elif kind == 1:  # side by side, in another order, from anywhere
        found = rng.integers(0, places - 32) + rng.permutation(32)
    elif kind == 2:  # few places
        found = rng.choice(some[: rng.choice([1, 2, 3, 4, 8])], 32)
    elif kind == 3:  # lanes of groups agree
        found = some[lanes & ~rng.choice([1, 2, 3, 4, 8, 16, 17, 24, 9, 18])]
    elif kind == 4:  # lanes of groups are in one place of side by side ones
        found = rng.integers(0, places - 32) + (lanes & ~rng.choice([1, 2, 3, 4, 8, 16, 24]))
    elif kind == 5:  # in a small part
        part = max(2, int(rng.choice([64, 128, 256, 512, 1024])) // size)
        found = rng.integers(0, places) + rng.integers(0, part, 32)
    elif kind == 6:  # groups side by side, each from anywhere
        group = rng.choice([2, 4, 8, 16])
        found = some[lanes // group] // group * group + lanes % group
    elif kind == 7:  # rows with swizzled pieces
        row, piece = lanes // 8, lanes % 8
        found = row * (512 // size) * rng.integers(1, 3) + (piece ^ (row * rng.integers(0, 3)))
    else:
        found = some
    return np.asarray(found % places * size, np.uint16)


def table(form: Form, rng: np.random.Generator) -> np.ndarray:
    """The table of a launch: [32, 2]."""
    both = np.zeros((32, 2), np.uint16)
    both[:, 0] = offsets(rng, form.bytes, ROOM[form.space])
    if form.more:
        both[:, 1] = offsets(rng, form.more, ROOM["global"])
    if form.bulk:
        both[:, 0] %= ROOM["shared"] // 2
        both[1, 1] = min(int(rng.integers(1, 1 << rng.integers(1, 10))), 512) * 16
    elif not form.all_lanes:
        on = rng.choice([0, 0, 0, 1, 2, 3, 4])
        mask = (np.ones(32, bool), rng.random(32) < 0.5, rng.random(32) < 0.1, np.arange(32) < rng.integers(1, 32),
                np.arange(32) // 8 == rng.integers(0, 4))[on]  # fmt: skip
        mask[rng.integers(0, 32)] = True
        both[~mask, 0] = OFF
    return both


def tables(form: Form, count: int, seed: int) -> list[np.ndarray]:
    """Tables of `count` launches. seed: of the random numbers, with the form's name."""
    rng = np.random.default_rng([seed, *form.name.encode()])
    return [table(form, rng) for _ in range(count)]


# what was recorded ----------------------------------------------------------------------------------------------------
@cache
def _arrays() -> dict[str, np.ndarray]:
    with np.load(FILE) as held:
        return {k: held[k] for k in held.files}


def launches(name: str) -> Iterator[tuple[np.ndarray, dict[str, int]]]:
    """The launches of a form that were recorded: table, and what METRICS counted."""
    for given, counts in zip(_arrays()[f"{name}|tables"], _arrays()[f"{name}|counts"]):
        yield given, {metric: int(n) for metric, n in zip(METRICS, counts) if n >= 0}
