"""What a cluster finds where another has run: the same as in memory that nobody has used."""

import ast
import ctypes
from pathlib import Path

import numpy as np
import pytest

import mmulator
from mmulator.base.codegen.loading import address
from mmulator.host.module import Module
from mmulator.runtime.launch.arguments import Signature
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.native.state import Cluster, Cta, Stop, Warp
from mmulator.runtime.native.threads.renewal import begin_cluster
from mmulator.runtime.native.threads.scheduler import run_clusters
from mmulator.runtime.options import CompileOptions
from tests.support.ptx_text import kernel

HEAD = """
  .shared .align 128 .b8 room[4096]; .shared .align 8 .b64 bar;
  mov.u32 %r1, %tid.x; mov.u32 %r2, room; mad.lo.u32 %r3, %r1, 16, %r2; and.b32 %r4, %r1, 31; st.shared.u32 [%r3], %r1;
  setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r4, 9; mov.u32 %r50, %r1;
"""
BODIES = {
    "barriers": """bar.red.popc.u32 %r5, 3, %p2; add.u32 %r50, %r50, %r5; @%p2 bra A; bar.warp.sync 0xfffffe00; bra B;
A: bar.warp.sync 0x1ff; B: barrier.sync 5, 64; barrier.arrive 6, 96;""",
    "parted": "@%p2 bra A; add.u32 %r50, %r50, 1; A: bar.warp.sync -1; nanosleep.u32 20;",
    "copies": """cp.async.ca.shared.global [%r3], [%rd0], 16; cp.async.commit_group; cp.async.commit_group;
  cp.async.ca.shared.global [%r3], [%rd0], 8; cp.async.wait_all; bar.sync 0;""",
    "bulk": """@!%p1 bra E; cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 16; cp.async.bulk.commit_group;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E: bar.sync 0;""",
    "mbarrier": """@%p1 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mbarrier.arrive.shared.b64 _, [bar];
W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W; bar.sync 0;""",
    "cluster": "barrier.cluster.arrive; barrier.cluster.wait; mapa.shared::cluster.u32 %r6, %r3, 1; barrier.cluster.arrive;"
    " barrier.cluster.wait;",
    "stack": "mov.u32 %r6, 64; alloca.u32 %r7, %r6, 16; st.local.u32 [%r7], %r1; @%p2 exit; alloca.u32 %r8, %r6, 16;",
}
TAIL = "\n  mul.wide.u32 %rd4, %r1, 4; add.u64 %rd5, %rd0, %rd4; st.global.u32 [%rd5+64], %r50;"


def state(r: Resident) -> dict[str, bytes]:
    """All that a cluster finds."""
    counters = [r.warps["queues"][name].tobytes() for name in ("issued", "done", "committed", "filled", "due")]
    warps = r.warps.view(np.uint8).reshape(len(r.warps), Warp.size)[:, : Warp.offset["cta"]]
    ctas = r.ctas.view(np.uint8).reshape(r.size, Cta.size)[:, Cta.offset["ctaid"] :]
    cluster = r.cluster.view(np.uint8)[Cluster.offset["next_warp"] : Cluster.offset["hints"]]
    memory = {name: r.arena.parts[name].tobytes() for name in ("regs", "tiles", "local", *r.shared)}
    structs = {"warps": warps, "ctas": ctas, "cluster": cluster}
    return {"queues": b"".join(counters), **{name: part.tobytes() for name, part in structs.items()}, **memory}


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("name", BODIES)
def test_where_a_cluster_has_run_the_next_finds_nothing_of_it(name: str, seed: int) -> None:
    text = kernel(HEAD + BODIES[name] + TAIL).replace(".version 8.0", ".version 8.6")
    module = Module.load(text)
    k, out = module["k"], np.arange(1, 4097, dtype=np.uint32)
    size = 2 if name == "cluster" else 1
    compiled = k.compile(options=CompileOptions(clusters=size > 1))
    shape = LaunchShape((size, 1, 1), (64, 1, 1), 0, (size, 1, 1), size > 1)
    arguments = Signature(k.function).pack([out], module.image.next_slot)
    grid = Grid(Launch(compiled, shape, arguments), How(seed, threads=1))
    counts = np.zeros(len(grid.kernel.code), np.uint64)
    begin = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address(begin_cluster))
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(address(run_clusters))
    found = []
    grid.placement.begin(None)
    for used in (False, True):
        r = Resident(grid)
        r.counts[0] = counts.ctypes.data
        if used:
            grid.line.begin(1)
            assert (run(r.address, 1 << 20), int(r.finished[0])) == (Stop.EXITED, 1)
            left = state(r)
        begin(r.address)
        found.append(state(r))
    grid.finish()
    new, again = found
    assert left["warps"] != new["warps"] and left["shared0"] != new["shared0"], "nothing was run"
    assert not {part for part in new if new[part] != again[part]}


SELDOM = {"sync_members", "bar_result", "bulk_groups", "stack", "issued", "committed"}


def test_who_writes_what_is_seldom_used_says_so() -> None:
    """Such fields of a warp are renewed where `used` says that they were written."""
    marked = set()
    for path in (Path(mmulator.__file__).parent / "runtime" / "native").rglob("*.py"):
        if path.stem == "renewal":
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            targets = [t for s in ast.walk(function) if isinstance(s, ast.Assign | ast.AugAssign)
                       for t in (s.targets if isinstance(s, ast.Assign) else [s.target])]  # fmt: skip
            places = [t.value if isinstance(t, ast.Subscript) else t for t in targets]
            written = {p.attr for p in places if isinstance(p, ast.Attribute)}
            if written & SELDOM:
                assert "used" in written, f"{path.stem}.{function.name}"
                marked |= written & SELDOM
    assert marked == SELDOM
