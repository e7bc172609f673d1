"""Law: a kernel that asks for the system's part of shared memory (%reserved_smem_offset_1) has zeros there, and may use it;
cooperative groups of several warps keep their barriers there. To other kernels it is out of bounds.
"""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from tests.support.ptx_text import kernel

# Two warps meet by a counter in the system's part: each writes its words, arrives, waits for the other, reads the other's words.
MEET = """
  mov.u32 %r1, %reserved_smem_offset_1; cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd2, %rd1;
  mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, 64, %r2;
  mul.wide.u32 %rd3, %r2, 4; mov.u64 %rd4, words; add.u64 %rd4, %rd4, %rd3;
  add.u32 %r5, %r4, 7; st.shared.u32 [%rd4], %r5;
  bar.warp.sync 0xffffffff;
  and.b32 %r6, %r2, 31; setp.ne.u32 %p1, %r6, 0;
  @%p1 bra met;
  ARRIVE
wait: WAIT
  setp.ne.u32 %p2, %r8, 2; @%p2 bra wait;
met: bar.warp.sync 0xffffffff;
  xor.b32 %r9, %r2, 32; mul.wide.u32 %rd5, %r9, 4; mov.u64 %rd6, words; add.u64 %rd6, %rd6, %rd5;
  ld.shared.u32 %r10, [%rd6];
  mul.wide.u32 %rd7, %r4, 4; add.u64 %rd7, %rd0, %rd7; st.global.u32 [%rd7], %r10;
"""
WAYS = {
    "generic": ("atom.add.release.cta.u32 %r7, [%rd2+64], 1;", "ld.acquire.cta.u32 %r8, [%rd2+64];"),
    "shared": ("atom.shared.add.release.cta.u32 %r7, [%r1+1020], 1;", "ld.acquire.cta.shared.u32 %r8, [%r1+1020];"),
    "weak": ("atom.add.relaxed.cta.u32 %r7, [%rd2+64], 1;", "ld.relaxed.cta.u32 %r8, [%rd2+64];"),
}
TOP = ".shared .align 4 .b32 words[64];\n"


def meet(way: str) -> Module:
    arrive, wait = WAYS[way]
    return Module.load(kernel(MEET.replace("ARRIVE", arrive).replace("WAIT", wait), top=TOP))


@pytest.mark.parametrize("sanitize", [False, True])
@pytest.mark.parametrize("way", ["generic", "shared"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_warps_meet_there(way: str, cluster: int, sanitize: bool) -> None:
    out = np.zeros(64 * 20, np.uint32)
    report = meet(way)["k"].launch(20, 64, [out], cluster=cluster, sanitize=sanitize)
    assert (out.reshape(20, 2, 32)[:, ::-1].ravel() == np.arange(64 * 20) + 7).all()
    assert not report.findings


def test_the_sanitizer_knows_what_a_barrier_there_orders() -> None:
    report = meet("weak")["k"].launch(1, 64, [np.zeros(64, np.uint32)], sanitize=True)
    assert {f.rule for f in report.findings} == {"race-read-write"}


@pytest.mark.parametrize("sanitize", [False, True])
def test_all_of_it_is_there(sanitize: bool) -> None:
    body = """
  mov.u32 %r1, %reserved_smem_offset_1; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
  ld.shared.u32 %r5, [%r4]; add.u32 %r5, %r5, %r2; st.shared.u32 [%r4], %r5;
  cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd1, %rd1; ld.u32 %r6, [%rd1];
  mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd0, %rd2; red.global.add.u32 [%rd2], %r6;
"""
    out = np.zeros(256, np.uint32)
    report = Module.load(kernel(body))["k"].launch(30, 256, [out], sanitize=sanitize)
    assert (out == 30 * np.arange(256)).all() and not report.findings


@pytest.mark.parametrize("first", ["mov.u32 %r1, 1020;", "mov.u32 %r1, %reserved_smem_offset_1; add.u32 %r1, %r1, 1024;"])
def test_other_kernels_and_other_bytes_are_out_of_bounds(first: str) -> None:
    for load in ("ld.shared.u32 %r2, [%r1];", "cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1; ld.u32 %r2, [%rd1];"):
        text = kernel(f"{first} {load} st.global.u32 [%rd0], %r2;")
        with pytest.raises(ExecutionFault, match="out of bounds: ") as caught:
            Module.load(text)["k"].launch(1, 1, [np.zeros(1, np.uint32)])
        assert caught.value.fault == "SHARED_OUT_OF_BOUNDS"
