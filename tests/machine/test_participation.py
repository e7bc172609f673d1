"""Law: an instruction for a whole warp runs with all 32 lanes, is skipped by all, or is a fault that says who is missing."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.machine.launch.report import Report
from mmulator.machine.module import Module
from tests.support.ptx_text import STORE_R1, kernel

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
REGISTERS = "{%f0,%f1,%f2,%f3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3}"
SPARSE = "{%f0,%f1,%f2,%f3}, {%r10,%r11,%r12,%r13}, {%r10,%r11,%r12,%r13}, {%f0,%f1,%f2,%f3}, %r18, 0"
EIGHT_F = "{%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}"
EIGHT_R = "{%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}"
WHOLE = {
    MMA: REGISTERS,
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": "{%f0,%f1,%f2,%f3}, {%r4,%r5,%r6,%r7}, {%r4,%r5,%r6,%r7}, "
    "{%f0,%f1,%f2,%f3}, %r8, 0",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": f"{EIGHT_F}, {EIGHT_R}, {EIGHT_R}, {EIGHT_F}",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16": f"{EIGHT_R}, [%r20]",
    "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32": f"[%r20], {EIGHT_F}",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16": "{%r10}, [%r20]",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16": "[%r20], {%r10}",
    "movmatrix.sync.aligned.m8n8.trans.b16": "%r10, %r10",
    "setmaxnreg.inc.sync.aligned.u32": "128",
}
START = """
  .shared .align 128 .b8 memory[4096];
  mov.u32 %r20, memory; mov.u32 %r30, %laneid; setp.lt.u32 %p1, %r30, 16; setp.eq.u32 %p2, %r30, 3; mov.b32 %r1, 1;
"""


def launch(body: str, block: int = 32, timeout: float = 20) -> tuple[np.ndarray, Report]:
    out = np.zeros(max(block, 32), np.uint32)
    report = Module.load(kernel(START + body), name="test.ptx")["k"].launch(1, block, [out], timeout=timeout)
    return out, report


def fault(body: str, block: int = 32, timeout: float = 20) -> str:
    with pytest.raises(ExecutionFault) as caught:
        launch(body, block, timeout)
    return str(caught.value)


HALF = "lanes 0 to 15 of warp 0"
MISSING = {
    "a predicate": ("@%p1 {ins};", 32, (f"{HALF} execute it; lanes 16 to 31 are predicated off",)),
    "a negated predicate of one lane": (
        "@!%p2 {ins};", 32, ("lanes 0 to 2, 4 to 31 of warp 0 execute it; lane 3 is predicated off",),
    ),
    "a branch around it": ("@!%p1 bra E; {ins}; E:", 32, (f"{HALF} execute it; lanes 16 to 31 have exited",)),
    "an early exit": ("@!%p1 exit; {ins};", 32, (f"{HALF} execute it; lanes 16 to 31 have exited", "let no lane")),
    "half a warp": ("{ins};", 16, (f"{HALF} execute it; lanes 16 to 31 do not exist, since the block has 16 threads",)),
    "a second warp of one thread": ("{ins};", 33, ("lane 0 of warp 1 executes it; lanes 1 to 31 do not exist",)),
    "a barrier elsewhere": (
        "@%p1 bra B;\nbar.sync 0;\nbra E;\nB:\n{ins};\nE:", 32,
        (f"{HALF} wait at it", "lanes 16 to 31 wait at bar.sync (test.ptx:", "(barrier 0)"),
    ),
    "bar.warp.sync elsewhere": (
        "@%p2 bra B;\n{ins};\nB:\nbar.warp.sync -1;", 32,
        ("lanes 0 to 2, 4 to 31 of warp 0 wait at it; lane 3 waits for other lanes at bar.warp.sync",),
    ),
    "another such instruction": (
        "@%p1 bra B;\n{ins};\nbra E;\nB:\n{ins};\nE:", 32,
        (f"{HALF} wait at it; lanes 16 to 31 wait for other lanes at {{ins}} (test.ptx:", "two mma in the text"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "missing"), [(MMA, m) for m in MISSING] + [(n, m) for n in WHOLE if n != MMA for m in ("a predicate", "half a warp")]
)
def test_part_of_a_warp(name: str, missing: str) -> None:
    body, block, said = MISSING[missing]
    text = fault(body.format(ins=f"{name} {WHOLE[name]}"), block)
    assert f"{name} by part of a warp" in text and ".aligned: all 32 threads of the warp" in text
    assert "test.ptx:" in text and "^" in text and "bar.sync: every" not in text
    for part in said:
        assert part.replace("{ins}", name) in text


LEGAL = {
    "nobody": ("setp.gt.u32 %p3, %r30, 99; @%p3 {ins};", 0),
    "everybody": ("setp.lt.u32 %p3, %r30, 99; @%p3 {ins};", 1),
    "everybody, but not at the same time": (
        "mov.b32 %r2, %r30;\nL: setp.eq.u32 %p3, %r2, 0; @%p3 bra M; sub.u32 %r2, %r2, 1; bra L;\nM: {ins};", 1,
    ),
    "everybody, from two branches": ("@%p1 bra M; add.u32 %r2, %r2, 1; bra N;\nM: add.u32 %r2, %r2, 2;\nN: {ins};", 1),
    "after shfl": ("shfl.sync.bfly.b32 %r2, %r30, 1, 31, -1; {ins};", 1),
}  # fmt: skip


@pytest.mark.parametrize("who", LEGAL)
def test_whole_warps_run_and_are_counted_once(who: str) -> None:
    body, count = LEGAL[who]
    out, report = launch(body.format(ins=f"{MMA} {WHOLE[MMA]}") + STORE_R1)
    assert (out == 1).all()
    assert report.instructions.get("mma", 0) == count and report.macs == 16 * 8 * 16 * count


def test_shfl_then_mma_by_lanes_that_have_not_exited() -> None:
    """shfl takes those that are left; mma in the same run of code does not."""
    text = fault(f"@!%p1 exit;\nshfl.sync.bfly.b32 %r2, %r30, 1, 31, -1; {MMA} {WHOLE[MMA]};")
    assert "lanes 16 to 31 have exited" in text


def test_lanes_that_wait_for_each_other_are_found_while_other_warps_run() -> None:
    body = f"mov.u32 %r31, %tid.x; setp.ge.u32 %p3, %r31, 32;\nS: @%p3 bra S;\n{MISSING['another such instruction'][0]}"
    start = time.perf_counter()
    assert "by part of a warp" in fault(body.format(ins=f"{MMA} {WHOLE[MMA]}"), 64)
    assert time.perf_counter() - start < 10


MEETING = """
  mov.b32 %r1, 0; shl.b32 %r2, %r30, 2; mov.u32 %r3, memory; add.u32 %r3, %r3, %r2; xor.b32 %r4, %r2, 124; mov.u32 %r5, memory;
  add.u32 %r4, %r4, %r5; st.shared.b32 [%r3], %r30; mov.b32 %r6, {mask}; setp.gt.u32 %p4, %r30, 27; mov.b32 %r7, 0;
  {early}
L: @%p1 bra LOW;
  bar.warp.sync %r6;
  ld.shared.b32 %r1, [%r4];
  bra NEXT;
LOW:
  @%p2 add.u32 %r1, %r1, 0;
  bar.warp.sync {low};
  ld.shared.b32 %r1, [%r4];
NEXT:
  @%p1 bra M;
  bar.warp.sync %r6;
M: @%p1 bar.warp.sync {low};
  add.u32 %r1, %r1, 1;
  st.shared.b32 [%r3], %r1;
  add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, 3; @%p5 bra L;
"""


@pytest.mark.parametrize("early", ["", "@%p4 exit;"])
def test_lanes_meet_at_several_bar_warp_sync_with_one_mask(early: str) -> None:
    """Three rounds of s[lane] = s[31 - lane] + 1; lanes that have exited keep their first value."""
    out, report = launch(MEETING.format(mask="-1", low="-1", early=early) + STORE_R1)
    here, lane = 28 if early else 32, np.arange(32)
    want = np.where(31 - lane < here, 34 - lane, 32 - lane)
    np.testing.assert_array_equal(out, np.where(lane < here, want, 0))
    assert report.instructions["barrier"] == 3 * 2 * 2


def test_lanes_at_several_bar_warp_sync_with_different_masks() -> None:
    text = fault(MEETING.format(mask="-1", low="0x8000ffff", early=""))
    assert "bar.warp.sync by part of its member mask" in text and "must name the same mask at each" in text


def test_a_member_mask_whose_lanes_are_elsewhere() -> None:
    text = fault("@%p1 bra B;\nbar.warp.sync -1;\nbra E;\nB:\nshfl.sync.bfly.b32 %r2, %r30, 1, 31, -1;\nE:")
    assert "bar.warp.sync by part of its member mask" in text or "shfl.sync.bfly.b32 by part of its member mask" in text
    assert "every thread that the member mask names" in text and "lanes 16 to 31 wait" in text


# barriers and time -------------------------------------------------------------------------------------------------
def test_one_barrier_with_two_counts() -> None:
    text = fault("mov.u32 %r31, %tid.x; setp.lt.u32 %p3, %r31, 32;\n@%p3 bar.sync 1, 64;\n@!%p3 bar.sync 1, 96;", 96)
    assert "barrier 1 with a count of 96 threads where 64 threads are expected" in text
    assert "must name the same thread count" in text


def test_a_count_is_named_everywhere_or_nowhere() -> None:
    """As on an H200, which traps."""
    body = "mov.u32 %r31, %tid.x; setp.lt.u32 %p3, %r31, 32;\n@%p3 bar.sync 1, 96;\n@!%p3 bar.sync 1;"
    assert "barrier 1 with a count of all threads of the block where 96 threads are expected" in fault(body, 96)


# What an H200 stored: the lower and the upper half of each of two warps.
HALVES = {
    "two places": ("@%p1 bra B; barrier.sync 0; mov.b32 %r1, 2; bra E;\nB: barrier.sync 0; mov.b32 %r1, 3;\nE:", 3, 2),
    "a reduction at two places": (
        "@%p1 bra B; barrier.red.popc.u32 %r1, 3, 64, %p5; bra E;\nB: barrier.red.popc.u32 %r1, 3, 64, %p5;\nE:", 64, 64,
    ),
    "half a warp does not wait": ("mov.u32 %r31, %tid.x; setp.ge.u32 %p3, %r31, 32; @%p3 bra B; @%p1 bar.arrive 1, 64; bra E;\n"
                                  "B: bar.sync 1, 64;\nE:", 1, 1),
    "half a warp goes by": ("@!%p1 bra E; bar.sync 0; mov.b32 %r1, 2;\nE:", 2, 1),
    "half a warp counts 32": ("@%p1 bar.sync 1, 64;", 1, 1),
    "a warp is enough": ("@%p1 bar.sync 1, 32;", 1, 1),
    "a reduction of half a warp": ("@%p1 barrier.red.popc.u32 %r1, 3, 32, %p5;", 16, 1),
}  # fmt: skip


def test_one_warp_at_two_barrier_instructions() -> None:
    """ptxas brings the warp together before bar.sync, so that an H200 hangs, or not, as the code comes out."""
    text = fault("@%p1 bra B;\nbar.sync 0;\nbra E;\nB:\nbar.sync 0;\nE:", 64)
    assert "bar.sync by part of a warp" in text and "wait at bar.sync (test.ptx:" in text
    assert "all threads of the warp must execute the same instruction" in text and "without .aligned" in text


@pytest.mark.parametrize("name", HALVES)
def test_a_warp_arrives_at_a_barrier_as_one(name: str) -> None:
    """It arrives when all its threads that have not exited are there, and counts 32."""
    body, low, high = HALVES[name]
    out, _ = launch(f"setp.eq.u32 %p5, 0, 0; {body}{STORE_R1}", 64)
    assert (out.reshape(2, 2, 16) == np.array([low, high])[None, :, None]).all()


def test_a_time_limit_says_where_the_warps_are() -> None:
    body = "mov.u32 %r31, %tid.x; setp.lt.u32 %p3, %r31, 64;\n@%p3 bra B;\nL:\nadd.u32 %r2, %r2, 1;\nbra L;\nB:\nbar.sync 0;"
    compiled = Module.load(kernel(START + body), name="test.ptx")["k"]
    compiled.compile()  # takes longer than the limit where nothing is in the cache
    with pytest.raises(ExecutionFault) as caught:
        compiled.launch(1, 128, [np.zeros(4096, np.uint32)], timeout=0.3)
    text = str(caught.value)
    assert "did not finish within 0.3 s: 0 of 1 blocks are done; block (0, 0, 0) is at" in text
    assert "warps 0 to 1: lanes 0 to 31 wait at bar.sync (test.ptx:" in text
    assert "warps 2 to 3: lanes 0 to 31 at add.u32 (test.ptx:" in text and "^" in text


def test_a_time_limit_is_kept_when_a_block_of_code_is_heavy() -> None:
    """A turn of a warp is 2048 blocks of code; the limit does not wait for its end."""
    heavy = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
    body = "mov.b32 %r18, 0x99999999; mov.b32 %r2, 0;\nL:\n" + f"{heavy} {SPARSE};" * 60
    body += "add.u32 %r2, %r2, 1; ld.global.u32 %r3, [%rd0]; setp.lt.u32 %p3, %r2, %r3; @%p3 bra L;"
    compiled = Module.load(kernel(START + body))["k"]
    compiled.compile()
    runs = 100
    each = compiled.launch(1, 32, [np.full(32, runs, np.uint32)]).seconds["run"] / runs
    start = time.perf_counter()
    with pytest.raises(ExecutionFault, match="did not finish"):
        compiled.launch(1, 32, [np.full(32, 1 << 30, np.uint32)], timeout=100 * each)
    elapsed = time.perf_counter() - start
    assert elapsed < 1000 * each + 0.1


def test_blocks_that_wait_for_the_last_one() -> None:
    body = """
  mov.u32 %r2, %ctaid.x; setp.ne.u32 %p3, %r2, 99; @%p3 bra L;
  st.global.release.gpu.u32 [%rd0+128], 5;
L: ld.global.acquire.gpu.u32 %r3, [%rd0+128]; setp.eq.u32 %p4, %r3, 0; @%p4 bra L;
"""
    out = np.zeros(64, np.uint32)
    Module.load(kernel(START + body))["k"].launch(100, 32, [out], timeout=20, threads=2)
    assert out[32] == 5


def test_progress_says_when_the_run_begins() -> None:
    said: list[tuple[str, int, int]] = []
    compiled = Module.load(kernel(START))["k"]
    compiled.launch(3, 32, [np.zeros(32, np.uint32)], progress=lambda *what: said.append(what), threads=1)
    assert [s for s in said if s[0] == "run"] == [("run", n, 3) for n in range(4)]
