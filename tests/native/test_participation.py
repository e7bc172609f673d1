"""Law: an instruction for a whole warp runs with all 32 lanes, is skipped by all, or is a fault that says who is missing."""

import time

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from tests.support.ptx_text import STORE_R1, kernel
from tests.support.warps import START, fault, launch

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


@pytest.mark.parametrize(("body", "block"), [("@%p1 {};", 32), ("{};", 16)])
@pytest.mark.parametrize("name", WHOLE)
def test_part_of_a_warp(name: str, body: str, block: int) -> None:
    """Each .aligned instruction needs a whole warp. tests/ub/faults/warps.ptx has other ways to lose lanes, and what is said."""
    assert f"{name} by part of a warp" in fault(body.format(f"{name} {WHOLE[name]}"), block)


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
    body = "mov.u32 %r31, %tid.x; setp.ge.u32 %p3, %r31, 32;\nS: @%p3 bra S;\n@%p1 bra B;\n{ins};\nbra E;\nB:\n{ins};\nE:"
    start = time.process_time()
    assert "by part of a warp" in fault(body.format(ins=f"{MMA} {WHOLE[MMA]}"), 64)
    assert time.process_time() - start < 20


# barriers and time -------------------------------------------------------------------------------------------------


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
    start = time.process_time()
    with pytest.raises(ExecutionFault, match="did not finish"):
        compiled.launch(1, 32, [np.full(32, 1 << 30, np.uint32)], timeout=100 * each)
    elapsed = time.process_time() - start
    assert elapsed < 1000 * each + 0.1


def test_blocks_that_wait_for_the_last_one() -> None:
    body = """
  mov.u32 %r2, %ctaid.x; setp.ne.u32 %p3, %r2, 99; @%p3 bra L;
  st.global.release.gpu.u32 [%rd0+128], 5;
L: ld.global.acquire.gpu.u32 %r3, [%rd0+128]; setp.eq.u32 %p4, %r3, 0; @%p4 bra L;
"""
    out = np.zeros(64, np.uint32)
    Module.load(kernel(START + body))["k"].launch(100, 32, [out], timeout=600, threads=2)
    assert out[32] == 5


def test_progress_says_when_the_run_begins() -> None:
    said: list[tuple[str, int, int]] = []
    compiled = Module.load(kernel(START))["k"]
    compiled.launch(3, 32, [np.zeros(32, np.uint32)], progress=lambda *what: said.append(what), threads=1)
    done = [s[1] for s in said if s[0] == "run"]
    assert done == sorted(set(done)) and (done[0], done[-1]) == (0, 3)
