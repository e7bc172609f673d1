"""Bulk copies and reductions from a seed: sizes, places and data, and a kernel that runs them on any backend.

Blocks come in clusters of two. Each fills its shared memory, moves or combines some bytes, and leaves its shared memory and its
region of global memory behind. Bytes for a block's shared memory go to its neighbour, into the upper half; bytes are read from
the lower half, so that no order between blocks is visible.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.kernels import run_kernel
from mmulator.evaluation.conformance.tensors import of_blocks, values
from mmulator.host.backend import Backend
from mmulator.host.cpu import Cpu
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.table import ROWS
from mmulator.matrix.layouts.tensormap.types import BY_NAME
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.shape import LaunchShape

Array = NDArray[np.uint8]
THREADS = 128
HALF = 4096  # bytes
WINDOW = REGION = 2 * HALF  # of shared memory, and of global memory, of a block
UNIT = 16
CLUSTER = (2, 1, 1)
BATCH = 200  # blocks of a launch


@dataclass(frozen=True)
class BulkKind:
    """An instruction.

    to, source: state spaces.
    op, type: of a reduction, else empty.
    ptx: the .version that it needs.
    """

    to: str
    source: str
    op: str = ""
    type: str = ""
    ptx: tuple[int, int] = (8, 6)

    @property
    def name(self) -> str:
        way = f"{self.source} to {self.to}"
        return f"bulk {self.op}.{self.type}, {way}" if self.op else f"bulk copy, {way}"

    @property
    def mnemonic(self) -> str:
        done = "bulk_group" if self.to == "global" else "mbarrier::complete_tx::bytes"
        words = "cp.reduce.async.bulk" if self.op else "cp.async.bulk"
        return ".".join(filter(None, (words, self.to, self.source, done, self.op, self.type)))


def _reductions() -> Iterator[BulkKind]:
    for row in ROWS["cp"]:
        if row.effects.memory is MemoryEffect.REDUCE and row.operands[0].kind != "tensor":
            slots = {s.name: s.choices for s in row.slots}
            for op in slots["op"]:
                for type_name in slots["type"]:
                    yield BulkKind(slots["dst"][0], slots["src"][0], f"{op}.noftz" if "noftz" in slots else op, type_name,
                                   max(BulkKind.ptx, row.requires.ptx))  # fmt: skip


SUITES: dict[str, tuple[BulkKind, ...]] = {
    "copies": (
        BulkKind("shared::cluster", "global"), BulkKind("global", "shared::cta"), BulkKind("shared::cluster", "shared::cta"),
    ),
    "reductions": tuple(_reductions()),
}


@dataclass(frozen=True)
class BulkBatch:
    """Copies of one kind, a block each.

    places: for each copy the size, and where in its half of memory it reads and writes.
    regions, windows: global and shared memory before.
    """

    kind: BulkKind
    places: NDArray[np.uint32]
    regions: Array
    windows: Array

    def said(self, block: int) -> str:
        size, source, target, _ = self.places[block].tolist()
        return f"{self.kind.name}: {size} bytes from byte {source} to byte {target}"


def batch(seed: int, kind: BulkKind, count: int) -> BulkBatch:
    """A batch of `count` blocks, an even number. The two blocks of a cluster copy as much."""
    chance, numbers = random.Random(f"{seed} {kind.name}"), np.random.default_rng([seed, *kind.name.encode()])
    places = np.zeros((count, 4), np.uint32)
    for block in range(count):
        most = HALF // UNIT
        size = places[block - 1, 0] // UNIT if block % 2 else chance.choice((1, chance.randint(1, 40), chance.randint(1, most)))
        places[block, :3] = [UNIT * n for n in (size, chance.randint(0, most - size), chance.randint(0, most - size))]
    element = BY_NAME[{"b32": "u32", "b64": "u64"}.get(kind.type, kind.type or "u8")]
    return BulkBatch(kind, places, values(numbers, element, count * REGION), values(numbers, element, count * WINDOW))


def kernel(target: str, kind: BulkKind) -> str:
    """PTX of a kernel. Parameters: places, shared memory before and afterwards (WINDOW bytes a block), global memory (REGION
    bytes a
    block).
    """
    to, source = ("[region]", "[from]") if kind.to == "global" else ("[into]", "[here]" if kind.source == "global" else "[from]")
    if kind.to == "global":
        act = f"{kind.mnemonic} {to}, {source}, size; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    else:
        wait = "WAIT: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra WAIT;"
        act = f"{kind.mnemonic} {to}, {source}, size, [its];\n{wait}"
    return f""".version {kind.ptx[0]}.{kind.ptx[1]}
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 window[];
.visible .entry copy(.param .u64 places, .param .u64 data, .param .u64 out, .param .u64 regions)
{{
.reg .b32 t, i, x, block, rank, begin, from, into, its, bar, size, source, target, v0, v1, v2, v3;
.reg .b64 q, at, back, region, here; .reg .pred p, first;
mov.u32 t, %tid.x; mov.u32 block, %ctaid.x; mov.u32 begin, window; add.u32 bar, begin, {WINDOW};
ld.param.u64 q, [places]; mad.wide.u32 q, block, 16, q; ld.global.v4.u32 {{size, source, target, x}}, [q];
ld.param.u64 at, [data]; mad.wide.u32 at, block, {WINDOW}, at;
ld.param.u64 back, [out]; mad.wide.u32 back, block, {WINDOW}, back;
ld.param.u64 region, [regions]; mad.wide.u32 region, block, {REGION}, region;
cvt.u64.u32 here, source; add.u64 here, region, here; cvt.u64.u32 q, target; add.u64 region, region, q;
add.u32 from, begin, source;
mov.u32 rank, %cluster_ctarank; xor.b32 rank, rank, 1;
mapa.shared::cluster.u32 into, begin, rank; add.u32 into, into, target; add.u32 into, into, {HALF};
mapa.shared::cluster.u32 its, bar, rank;
setp.eq.u32 first, t, 0;
shl.b32 i, t, 4;
IN: cvt.u64.u32 q, i; add.u64 q, at, q; ld.global.v4.u32 {{v0, v1, v2, v3}}, [q];
add.u32 x, begin, i; st.shared.v4.u32 [x], {{v0, v1, v2, v3}};
add.u32 i, i, {16 * THREADS}; setp.lt.u32 p, i, {WINDOW};
@p bra IN;
@first mbarrier.init.shared.b64 [bar], 1;
@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], size;
fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@!first bra DONE;
{act}
DONE: bar.sync 0;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
shl.b32 i, t, 4;
OUT: add.u32 x, begin, i; ld.shared.v4.u32 {{v0, v1, v2, v3}}, [x];
cvt.u64.u32 q, i; add.u64 q, back, q; st.global.v4.u32 [q], {{v0, v1, v2, v3}};
add.u32 i, i, {16 * THREADS}; setp.lt.u32 p, i, {WINDOW};
@p bra OUT;
ret;
}}
"""


def run(backend: Backend, b: BulkBatch) -> tuple[Array, Array]:
    """(global memory, shared memory) afterwards, on a backend."""
    regions, out = b.regions.copy(), np.zeros_like(b.windows)
    module = backend.load(kernel(str(backend.chip.target), b.kind))
    try:
        shape = LaunchShape((len(b.places), 1, 1), (THREADS, 1, 1), WINDOW + 64, CLUSTER, True)
        run_kernel(backend, module, "copy", shape, Arguments.of_arrays([b.places, b.windows, out, regions]), [out, regions])
    finally:
        backend.close(module)
    return regions, out


def model(b: BulkBatch, device: str) -> tuple[Array, Array]:
    """The bytes of memory and of shared memory that the cases leave when the CPU runs them."""
    return run(Cpu(device), b)


def differences(b: BulkBatch, got: tuple[Array, Array], want: tuple[Array, Array]) -> tuple[int, int, str]:
    """(bytes compared, those that differ, the first case with one in words)."""
    return of_blocks(b.said, {"global memory": REGION, "shared memory": WINDOW}, got, want)


def compared(backend: Backend, what: str, seed: int, count: int) -> Iterator[tuple[int, Any]]:
    """(cases, differences) of the batches of a suite: the same number of every kind that the driver reads, `count` in all."""
    kinds = [kind for kind in SUITES[what] if kind.ptx <= backend.chip.ptx]
    each = max(2, count // len(kinds) // 2 * 2)
    for kind in kinds:
        for first in range(0, each, BATCH):
            b = batch(seed * 1_000_003 + first, kind, min(BATCH, each - first))
            yield len(b.places), differences(b, run(backend, b), model(b, backend.chip.device))

