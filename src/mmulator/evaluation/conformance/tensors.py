"""Copies and reductions of tensors from a seed: a map, a place and data each, and a kernel that runs them on any backend.

A block makes one copy: it fills its shared memory, copies or combines a box, and leaves the shared memory (of a load) or its
region of global memory (of the others) behind. Maps are legal, and lie in global memory, as do coordinates.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.kernels import run_kernel
from mmulator.host.backend import Backend
from mmulator.host.cpu import Cpu
from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.matrix.layouts.tensormap.fields import BYTES
from mmulator.matrix.layouts.tensormap.rules import begins_wrong, refusals
from mmulator.matrix.layouts.tensormap.types import TYPES, TensorType
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.native.asynchrony.tensor import REDUCED

Array = NDArray[np.uint8]
THREADS = 128
WINDOW, REGION = 16384, 32768  # bytes of shared memory, and of global memory that a tensor lies in, of a block
FIRST = 256  # byte of its region that a tensor begins at, or some behind it
RANKS = {"tile": range(1, 6), "im2col": range(3, 6)}
_MODES = (("none", "none"), ("none", "32B"), ("none", "64B"), ("none", "128B"), ("16B", "none"), ("16B", "32B"), ("16B", "64B"),
          ("16B", "128B"), ("32B", "32B"))  # fmt: skip
_ROWS = {"none": 2048, "32B": 32, "64B": 64, "128B": 128}  # bytes of a row of a box, at most
# Bits of floats that copies and sums might treat on their own, by the bytes of an element
_EDGES: dict[int, tuple[int, ...]] = {
    2: (0, 0x8000, 0x3C00, 0x3F80, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7C01, 0x7FFF, 0xFFFF, 0x7FC0, 1, 0x8001, 0x3FF, 0x7F, 0x400,
        0x80),
    4: (0, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FFFFFFF, 0xFFC00000, 1, 0x80000001, 0x7FFFFF,
        0x807FFFFF, 0x800000, 0x7F7FFFFF, 0x3F801000, 0x3F803000, 0xBF801000, 0x00001000, 0x00003000, 0x7F7FF000),
    8: (0, 1 << 63, 0x3FF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF,
        0xFFF8000000000000, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x7FEFFFFFFFFFFFFF),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One copy.

    fields: of the map, with the address counted from the block's region.
    coordinates, offsets: of the box.
    box: byte of shared memory at which the box begins.
    """

    fields: Encoded
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]
    box: int

    def __str__(self) -> str:
        m = self.fields
        shape = f"{m.channels} channels, {m.pixels} pixels, corners {m.lower} {m.upper}" if m.im2col else f"box {m.box}"
        return (
            f"{m.type} sizes {m.sizes} strides {m.strides} steps {m.element_strides} {shape}, interleave {m.interleave}, swizzle "
            f"{m.swizzle}, fill {m.oob_fill}, at {self.coordinates} {self.offsets}, byte {self.box}"
        )


# cases --------------------------------------------------------------------------------------------------------------
def types(op: str) -> list[TensorType]:
    """Element types of a copy, or of a reduction, that all chips with tensor maps have."""
    return [t for t in TYPES if t.elements == 1 and (op in ("load", "store") or t.name in REDUCED[op])]


def case(chance: random.Random, op: str, mode: str, rank: int) -> Case:
    """A random legal copy, inside, across or outside of the tensor's edges."""
    while True:
        m = _map(chance, chance.choice(types(op)), mode, rank)
        unit = m.slice or m.type.memory
        last = m.address + -(-m.sizes[0] * unit // 16) * 16 + sum((n - 1) * s for n, s in zip(m.sizes[1:], m.strides))
        if last > REGION or any(refusals(m)):
            continue
        row = m.slice or m.loaded[0] * m.type.memory
        if m.transaction_bytes // row * (row if m.slice else max(m.pitch, row)) > WINDOW - 2048:
            continue
        at = _where(chance, m, op == "load")
        beyond = m.im2col and op != "load" and any(c >= size for c, size in zip(at, m.sizes))
        if beyond or any(begins_wrong(m, at, op != "load")):
            continue
        offsets = tuple(chance.choice((0, 0, 1, 2, 5)) for _ in range(rank - 2)) if mode == "im2col" and op == "load" else ()
        return Case(m, at, offsets, 1024 * chance.randrange(2) + 128 * chance.choice((0, 0, 0, 1, 5)))


def _map(chance: random.Random, kind: TensorType, mode: str, rank: int) -> Encoded:
    interleave, swizzle = chance.choice(_MODES if rank > 2 else _MODES[:4])
    unit = {"none": kind.memory, "16B": 16, "32B": 32}[interleave]
    most = min(_ROWS[swizzle], 256 * kind.memory)
    inner = min(chance.choice((16, 16, 32, 48, 64, 128, 256)), most) // 16 * 16 // kind.memory
    boxes = (inner, *(chance.choice((1, 1, 2, 2, 3, 4, 5, 8)) for _ in range(rank - 1)))
    sizes = [max(1, chance.choice((b, 2 * b, b + 1, b - 1, chance.randint(1, 3 * b)))) for b in boxes]
    steps = tuple(chance.choice((1, 1, 1, 2, 3)) for _ in range(rank)) if chance.random() < 0.4 else (1,) * rank
    grain = 32 if interleave == "32B" else 16
    strides, pitch = [], sizes[0] * unit
    for size in sizes[1:]:
        pitch = -(-pitch // grain) * grain + grain * chance.choice((0, 0, 0, 1, 3))
        strides.append(pitch)
        pitch *= size
    fill = chance.choice(("zero", "nan")) if kind.is_float else "zero"
    begin = FIRST + chance.choice((0, 0, 16, 48, 112)) * (grain // 16)
    m = Encoded(kind, tuple(sizes), tuple(strides), steps, interleave=interleave, swizzle=swizzle, oob_fill=fill, address=begin)
    if mode == "tile":
        return replace(m, box=boxes)
    corners = tuple(tuple(chance.choice((0, 0, -1, -2, 1)) for _ in range(rank - 2)) for _ in range(2))
    return replace(m, im2col=True, lower=corners[0], upper=corners[1], channels=inner, pixels=chance.choice((1, 2, 5, 8, 16)))


def _where(chance: random.Random, m: Encoded, load: bool) -> tuple[int, ...]:
    """Coordinates of the box's first element: inside, across an edge, or beyond one."""
    style = chance.choice(("inside", "edge", "any", "any"))
    boxes = m.box or (m.channels, *(3 for _ in m.sizes[1:]))
    out = []
    for n, (size, box) in enumerate(zip(m.sizes, boxes)):
        low = {"inside": 0, "edge": max(0, size - box), "any": -box if load else 0}[style]
        at = chance.randint(low, max(low, size - box if style == "inside" else size))
        grain = 16 // m.type.memory if n == 0 and not m.slice else 1
        out.append(at // grain * grain)
    if m.im2col:
        first = 0 if m.slice else 1
        for n, (lower, upper) in enumerate(zip(m.lower, m.upper), first):
            end = m.sizes[n] - 1 + upper
            out[n] = chance.randint(lower, max(lower, end))
        out[-1] = chance.randint(0, m.sizes[-1] - 1)
    return tuple(out)


def values(chance: np.random.Generator, kind: TensorType, size: int) -> Array:
    """Random bytes of elements of a type: any bits, and one element in four an edge value."""
    raw = chance.integers(0, 256, size, np.uint8)
    if kind.memory in _EDGES:
        elements = raw.view(f"u{kind.memory}")
        edges = np.array(_EDGES[kind.memory], elements.dtype)
        chosen = chance.random(len(elements)) < 0.25
        elements[chosen] = edges[chance.integers(0, len(edges), int(chosen.sum()))]
    return raw


# the kernel ---------------------------------------------------------------------------------------------------------
def kernel(target: str, op: str, mode: str, rank: int) -> str:
    """PTX of a kernel. Parameters: maps (128 bytes a block), places (16 words: coordinates, offsets, box, bytes), data for the
    shared
    memory and room for what a load brings (WINDOW bytes a block).
    """
    at = f"[map, {{{', '.join(f'c{n}' for n in range(rank))}}}]"
    offsets = f", {{{', '.join(f'h{n}' for n in range(rank - 2))}}}" if mode == "im2col" else ""
    if op == "load":
        act = (
            f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], bytes;\ncp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}"
            f".mbarrier::complete_tx::bytes [box], {at}, [bar]{offsets};\n"
            "WAIT: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra WAIT;"
        )
    else:
        name = f"cp.async.bulk.tensor.{rank}d.global.shared::cta" if op == "store" else (
            f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}"
        )
        where = "tile" if mode == "tile" else "im2col_no_offs"
        act = f"{name}.{where}.bulk_group {at}, [box];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"
    takes = "\n".join(f"ld.global.u32 c{n}, [q+{4 * n}];" for n in range(5))
    takes += "\n".join(f"ld.global.u32 x, [q+{20 + 4 * n}]; cvt.u16.u32 h{n}, x;" for n in range(3))
    return f""".version 8.6
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 window[];
.visible .entry copy(.param .u64 maps, .param .u64 places, .param .u64 data, .param .u64 out)
{{
.reg .b32 t, i, x, block, begin, box, bar, bytes, c0, c1, c2, c3, c4, v0, v1, v2, v3; .reg .b16 h0, h1, h2;
.reg .b64 map, q, from, to; .reg .pred p, first;
mov.u32 t, %tid.x; mov.u32 block, %ctaid.x; mov.u32 begin, window; add.u32 bar, begin, {WINDOW};
ld.param.u64 map, [maps]; mad.wide.u32 map, block, {BYTES}, map;
ld.param.u64 q, [places]; mad.wide.u32 q, block, 64, q;
{takes}
ld.global.u32 box, [q+32]; add.u32 box, box, begin; ld.global.u32 bytes, [q+36];
ld.param.u64 from, [data]; mad.wide.u32 from, block, {WINDOW}, from;
ld.param.u64 to, [out]; mad.wide.u32 to, block, {WINDOW}, to;
setp.eq.u32 first, t, 0;
shl.b32 i, t, 4;
IN: cvt.u64.u32 q, i; add.u64 q, from, q; ld.global.v4.u32 {{v0, v1, v2, v3}}, [q];
add.u32 x, begin, i; st.shared.v4.u32 [x], {{v0, v1, v2, v3}};
add.u32 i, i, {16 * THREADS}; setp.lt.u32 p, i, {WINDOW};
@p bra IN;
@first mbarrier.init.shared.b64 [bar], 1;
fence.proxy.async; bar.sync 0;
@!first bra DONE;
{act}
DONE: bar.sync 0;
shl.b32 i, t, 4;
OUT: add.u32 x, begin, i; ld.shared.v4.u32 {{v0, v1, v2, v3}}, [x];
cvt.u64.u32 q, i; add.u64 q, to, q; st.global.v4.u32 [q], {{v0, v1, v2, v3}};
add.u32 i, i, {16 * THREADS}; setp.lt.u32 p, i, {WINDOW};
@p bra OUT;
ret;
}}
"""


@dataclass(frozen=True)
class TensorBatch:
    """Copies of one kind, a block each. tensors: a region each. window: shared memory before."""

    op: str
    mode: str
    rank: int
    cases: tuple[Case, ...]
    tensors: Array
    window: Array

    @property
    def name(self) -> str:
        return f"tensor {self.op} {self.mode} {self.rank}d"

    def said(self, block: int) -> str:
        """A copy in words."""
        return f"{self.name}: {self.cases[block]}"


def batch(seed: int, op: str, mode: str, rank: int, count: int) -> TensorBatch:
    chance, numbers = random.Random(f"{seed} {op} {mode} {rank}"), np.random.default_rng([seed, len(op), len(mode), rank])
    cases = tuple(case(chance, op, mode, rank) for _ in range(count))
    tensors = np.concatenate([values(numbers, c.fields.type, REGION) for c in cases])
    window = np.concatenate([values(numbers, c.fields.type, WINDOW) for c in cases])
    return TensorBatch(op, mode, rank, cases, tensors, window)


def run(backend: Backend, b: TensorBatch) -> tuple[Array, Array]:
    """(tensors, shared memory) afterwards, on a backend."""
    count = len(b.cases)
    tensors, out = b.tensors.copy(), np.zeros(count * WINDOW, np.uint8)
    maps, places = np.zeros(count * BYTES, np.uint8), np.zeros((count, 16), np.uint32)
    given = Arguments.of_arrays([maps, places, b.window, out, tensors])
    start = given.buffers[4].start
    for n, c in enumerate(b.cases):
        placed = replace(c.fields, address=start + n * REGION + c.fields.address)
        maps[n * BYTES : (n + 1) * BYTES] = np.frombuffer(placed.encode(), np.uint8)
        given.maps.append((0, n * BYTES, 4))
        words = [*c.coordinates, *(0,) * (5 - len(c.coordinates)), *c.offsets, *(0,) * (3 - len(c.offsets)), c.box]
        places[n, :10] = np.array([*words, c.fields.transaction_bytes], np.int64).astype(np.uint32)
    module = backend.load(kernel(str(backend.chip.target), b.op, b.mode, b.rank))
    try:
        run_kernel(backend, module, "copy", LaunchShape((count, 1, 1), (THREADS, 1, 1), WINDOW + 64), given, [out, tensors])
    finally:
        backend.close(module)
    return tensors, out


SUITES: dict[str, tuple[tuple[str, ...], str]] = {
    "loads": (("load",), "tile"), "loads of images": (("load",), "im2col"), "stores": (("store",), "tile"),
    "stores of images": (("store",), "im2col"), "reductions": (tuple(REDUCED), "tile"),
    "reductions of images": (tuple(REDUCED), "im2col"),
}  # fmt: skip


def kinds(what: str) -> Iterator[tuple[str, str, int]]:
    """Operation, mode and rank of the kernels of a suite."""
    operations, mode = SUITES[what]
    for op in operations:
        for rank in RANKS[mode]:
            yield op, mode, rank


def differences(b: TensorBatch, got: tuple[Array, Array], want: tuple[Array, Array]) -> tuple[int, int, str]:
    """(bytes compared, those that differ, the first case with one in words)."""
    return of_blocks(b.said, {"the tensor": REGION, "the shared memory": WINDOW}, got, want)


def of_blocks(
    said: Callable[[int], str], parts: Mapping[str, int], got: tuple[Array, Array], want: tuple[Array, Array]
) -> tuple[int, int, str]:
    """(bytes compared, those that differ, the first of them in words) of memory of blocks.

    said: a block in words.
    parts: bytes that a block has of each of the memories, by name.
    """
    compared, wrong, first = 0, 0, ""
    for (name, size), g, w in zip(parts.items(), got, want):
        different = np.flatnonzero(g != w)
        compared, wrong = compared + g.size, wrong + len(different)
        if len(different) and not first:
            at = int(different[0])
            first = f"{said(at // size)}: byte {at % size} of {name} is {int(g[at]):#x}, not {int(w[at]):#x}"
    return compared, wrong, first


def model(b: TensorBatch, device: str) -> tuple[Array, Array]:
    """The bytes of the tensors and of shared memory that the cases leave when the CPU runs them."""
    return run(Cpu(device), b)


def compared(backend: Backend, what: str, seed: int, count: int) -> Iterator[tuple[int, Any]]:
    """(cases, differences) of the batches of a suite: the same number of every kernel, `count` in all."""
    every = list(kinds(what))
    each = max(1, count // len(every))
    for op, mode, rank in every:
        for first in range(0, each, 200):
            b = batch(seed * 1_000_003 + first, op, mode, rank, min(200, each - first))
            yield len(b.cases), differences(b, run(backend, b), model(b, backend.chip.device))
