"""Barriers of a block and of a warp: who meets whom, and what is a fault."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from tests.support.ptx_text import STORE_R1
from tests.support.warps import fault, launch

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


def test_barriers_in_registers() -> None:
    """They may differ between warps; between the lanes of one an H200 traps."""
    body = """
  mov.u32 %r2, %tid.x; shr.u32 %r2, %r2, {shift}; add.u32 %r3, %r2, {first}; setp.eq.u32 %p2, 0, 0; mov.b32 %r4, 32;
  barrier.red.popc.u32 %r1, %r3, %r4, %p2;
  barrier.sync %r2, 32;
"""
    assert (launch(body.format(shift=5, first=3) + STORE_R1, block=64)[0] == 32).all()
    with pytest.raises(ExecutionFault, match=r"lane 0 names barrier 3, this thread another .* in .* thread \(16, 0, 0\)"):
        launch(body.format(shift=4, first=3) + STORE_R1)
    with pytest.raises(ExecutionFault, match=r"barrier 1[67] with a count of 32"):
        launch(body.format(shift=5, first=16) + STORE_R1, block=64)
