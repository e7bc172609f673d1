"""Values that nobody has written: what is no use, and that nothing is watched when nobody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.compiler.kernel import Jit
from mmulator.compiler.options import CompileOptions
from mmulator.program.blocks import build
from mmulator.program.frames import allocate, liveness
from mmulator.program.undefined import doubt

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<6>, %q<6>;
    .reg .b16 %h<6>;
    .reg .b32 %r<9>, %u<9>;
    .reg .b64 %rd<6>;
    .shared .align 16 .b8 tile[256];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.s32 %r4, %r2, %r3;
    setp.lt.u32 %p1, %r1, 64;
    setp.ge.u32 %p2, %r1, 64;
"""


def rules(body: str, **options: Any) -> list[str]:
    """What is found with 64 threads; %u and %q have no value, %p1 is true, %p2 is false, [%r4] a word of a lane's own."""
    text = f"{HEAD}{body}\n    st.global.u32 [%rd3], %r5;\n    ret;\n}}\n"
    report = mm.Module.load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)], sanitize=True, **options)
    return [f.rule for f in report.findings]


@pytest.mark.parametrize("body", [
    "mov.u32 %r5, 1;",
    "selp.b32 %r5, %r1, %u1, %p1;",
    "xor.b32 %r5, %u1, %u1;",
    "or.pred %p3, %p1, %q1; selp.b32 %r5, 1, 0, %p3;",
    "and.pred %p3, %q1, %p2; selp.b32 %r5, 1, 0, %p3;",
    "setp.eq.or.u32 %p3, %u1, 0, %p1; selp.b32 %r5, 1, 0, %p3;",
    "mov.b32 %r5, {%h1, %h2}; mov.u16 %h1, 0; mov.b32 %r5, {%h1, %h2};",
    "prmt.b32 %r5, %r1, %u1, 0x3210;",
    "@%p2 mov.u32 %u1, %u2; mov.u32 %r5, 1;",
    "mov.u32 %u1, 7; mov.u32 %r5, %u1;",
    "ld.shared.u32 %u3, [%r4]; st.shared.u32 [%r4], %u3; mov.u32 %r5, 1;",
    "ld.shared.u32 %u3, [%r4]; add.s32 %u3, %u3, 1; mov.u32 %r5, 1;",
    "st.shared.u32 [%r4], %r1; atom.shared.add.u32 %r5, [%r4], 1;",
    "atom.shared.exch.b32 %u3, [%r4], 5; ld.shared.u32 %r5, [%r4];",
    "st.shared.u32 [%r4], %r1; bar.warp.sync -1; shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;",
])  # fmt: skip
def test_what_has_a_value_or_is_not_used_is_no_finding(body: str) -> None:
    assert rules(body) == []


@pytest.mark.parametrize(("body", "rule"), [
    ("mov.u32 %r5, %u1;", "uninitialized-store"),
    ("selp.b32 %r5, %r1, %u1, %p2;", "uninitialized-store"),
    ("selp.b32 %r5, 1, 2, %q1;", "uninitialized-store"),
    ("or.pred %p3, %p2, %q1; selp.b32 %r5, 1, 0, %p3;", "uninitialized-store"),
    ("prmt.b32 %r5, %u1, %r1, 0x3210;", "uninitialized-store"),
    ("@%q1 mov.u32 %r5, 1; @!%q1 mov.u32 %r5, 2;", "uninitialized-store"),
    ("ld.shared.u32 %r5, [%r4];", "uninitialized-store"),
    ("atom.shared.add.u32 %r5, [%r4], 1;", "uninitialized-store"),
    ("red.shared.add.u32 [%r4], 1; ld.shared.u32 %r5, [%r4];", "uninitialized-store"),
    ("st.shared.u32 [%r4], %u1; ld.shared.u32 %r5, [%r4];", "uninitialized-store"),
    ("setp.eq.u32 %p3, %r1, 3; @%p3 mov.u32 %u1, 9; shfl.sync.bfly.b32 %r5, %u1, 1, 31, -1;", "uninitialized-store"),
    ("mov.u32 %r5, 1; @%q1 st.shared.u32 [%r4], %r1;", "uninitialized-branch"),
    ("mov.u32 %r5, 1; @%q1 bra on; mov.u32 %r5, 2; on:", "uninitialized-branch"),
    ("ld.shared.u32 %u1, [%r4]; setp.eq.u32 %p3, %u1, 0; mov.u32 %r5, 1; @%p3 bra on; mov.u32 %r5, 2; on:",
     "uninitialized-branch"),
    ("mov.u32 %r5, 1; add.s32 %u1, %r2, %u2; and.b32 %u1, %u1, 252; add.s32 %u1, %u1, %r2; st.shared.u32 [%u1], 1;",
     "uninitialized-address"),
])  # fmt: skip
def test_a_use_that_matters_is_a_finding(body: str, rule: str) -> None:
    assert rule in rules(body)
    assert {r for r in rules(body) if r.startswith("uninitialized")} == {rule}


def test_only_lanes_without_a_value_are_named() -> None:
    text = HEAD + "setp.ne.u32 %p3, %r1, 37; @%p3 mov.u32 %u1, 4; st.global.u32 [%rd3], %u1; ret; }"
    (finding,) = mm.Module.load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)], sanitize=True).findings
    assert finding.threads == "block (0, 0, 0), thread (37, 0, 0)" and finding.conflict is None


def test_bytes_that_another_thread_writes_later_are_a_race_and_nothing_else() -> None:
    """Without the barrier a lane reads what the other warp has not written yet, or has, as luck will have it."""
    body = "xor.b32 %r6, %r3, 128; add.s32 %r6, %r2, %r6; st.shared.u32 [%r4], %r1; ld.shared.u32 %r5, [%r6];"
    for seed in range(3):
        assert not [rule for rule in rules(body, seed=seed) if rule.startswith("uninitialized")]


def test_each_cluster_begins_with_nothing() -> None:
    """What an earlier block left in shared memory is none of a later one's values."""
    body = "mov.u32 %r6, %ctaid.x; setp.eq.u32 %p3, %r6, 0; @%p3 st.shared.u32 [%r4], %r1; ld.shared.u32 %r5, [%r4];"
    text = f"{HEAD}{body}\n    st.global.u32 [%rd3], %r5;\n    ret;\n}}\n"
    report = mm.Module.load(text)["k"].launch(3, 64, [np.zeros(64, np.uint32)], sanitize=True, threads=1)
    found = [f for f in report.findings if f.rule == "uninitialized-store"]
    assert [f.threads for f in found] == ["block (1, 0, 0), warp 0, lanes 0 to 31"] and found[0].count == 4


def test_nothing_is_watched_when_nobody_asks() -> None:
    module = mm.Module.load(HEAD + "mov.u32 %r5, %u1; st.global.u32 [%rd3], %r5; ret; }")
    kernel = module["k"]
    jit = Jit(module.tree, kernel.function, kernel.module.loaded.image, "sm_90", CompileOptions())
    assert not jit.doubtful and not any("?" in name for frame in jit.frames.values() for name in frame.types)


def test_what_is_written_on_every_path_is_not_watched() -> None:
    body = "mov.u32 %r5, %u1; add.s32 %r6, %r5, %r1; ld.shared.u32 %r7, [%r4]; st.global.u32 [%rd3], %r6; ret; }"
    module = mm.Module.load(HEAD + body)
    function = build(module.tree, module["k"].function).entry
    found = doubt(function, liveness(function))
    assert found.registers == {"%u1", "%r5", "%r6", "%r7"}
    assert found.loaded == {"%r7"} and found.unwritten == {"%u1", "%r5", "%r6"}
    assert [found.memory(n) for n in ("%r5", "%r7")] == [0, 1]
    frame = allocate(function, liveness(function), found.registers)
    assert "%u1?" in frame.slots and "%r1?" not in frame.types


WGMMA_IN_CLUSTER = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 written) .reqnctapercluster 2
{
  .reg .b64 %rd<8>; .reg .b32 %r<9>; .reg .f32 %d<4>; .reg .pred %p;
  .shared .align 1024 .b8 tile[2304];
  ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [written]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank;
  setp.ne.u32 %p, %r2, %r0; mov.u64 %rd1, tile; mad.wide.u32 %rd1, %r1, 16, %rd1;
  @!%p st.shared.v2.u64 [%rd1], {0, 0}; setp.gt.or.u32 %p, %r1, 15, %p; @!%p st.shared.v2.u64 [%rd1+2048], {0, 0};
  fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait;
  mov.f32 %d0, 0f00000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0; setp.ne.u32 %p, %r2, 1; @%p bra END;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, DESCA, DESCB, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
END: mad.lo.u32 %r2, %r2, 128, %r1; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd0, %rd2; st.global.f32 [%rd2], %d0; ret;
}
""".replace("DESCA", str(1024 >> 4 | 8 << 16 | 16 << 32)).replace("DESCB", str(3072 >> 4 | 8 << 16 | 16 << 32))


@pytest.mark.parametrize("written", [0, 1])
def test_operands_of_wgmma_are_those_of_its_own_block(written: int) -> None:
    """A descriptor has no rank: the block of rank 1 reads its own memory, which it has written, or only the other block has."""
    report = mm.Module.load(WGMMA_IN_CLUSTER)["k"].launch(2, 128, [np.zeros(256, np.float32), written], sanitize=True)
    assert [f.rule for f in report.findings] == ["uninitialized-store"] * (written == 0)
