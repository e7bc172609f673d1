"""cp.async of whole warps: any sizes of the sources, lanes that take no part, places in any order."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.machine.module import Module
from tests.support.ptx_text import kernel

LANES = 32


def text_of(bytes_: int) -> str:
    cache = "cg" if bytes_ == 16 else "ca"
    return kernel(f"""
  .shared .align 16 .b8 s[{LANES * bytes_}];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd9, %r1, 4; mul.wide.u32 %rd10, %r1, {bytes_}; mov.u64 %rd1, s; add.u64 %rd8, %rd1, %rd10;
  ld.param.u64 %rd2, [from]; add.u64 %rd2, %rd2, %rd9; ld.global.u32 %r2, [%rd2];
  ld.param.u64 %rd2, [to]; add.u64 %rd2, %rd2, %rd9; ld.global.u32 %r3, [%rd2];
  ld.param.u64 %rd2, [size]; add.u64 %rd2, %rd2, %rd9; ld.global.u32 %r4, [%rd2];
  ld.param.u64 %rd2, [data]; mul.wide.u32 %rd3, %r2, {bytes_}; add.u64 %rd3, %rd2, %rd3; mul.wide.u32 %rd4, %r3, {bytes_};
  mov.u32 %r5, 0;
A: cvt.u64.u32 %rd11, %r5; add.u64 %rd12, %rd8, %rd11; st.shared.u8 [%rd12], 238;
  add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, {bytes_}; @%p2 bra A;
  bar.warp.sync -1;
  add.u64 %rd4, %rd1, %rd4; setp.le.u32 %p1, %r4, {bytes_};
  @%p1 cp.async.{cache}.shared.global [%rd4], [%rd3], {bytes_}, %r4;
  cp.async.wait_all;
  bar.warp.sync -1;
  add.u64 %rd5, %rd0, %rd10; mov.u32 %r5, 0;
B: cvt.u64.u32 %rd11, %r5; add.u64 %rd12, %rd8, %rd11; add.u64 %rd13, %rd5, %rd11;
  ld.shared.u8 %h1, [%rd12]; st.global.u8 [%rd13], %h1;
  add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, {bytes_}; @%p2 bra B;
""", ".param .u64 out, .param .u64 data, .param .u64 from, .param .u64 to, .param .u64 size")  # fmt: skip


@pytest.mark.parametrize("bytes_", [4, 8, 16])
def test_whole_warps(bytes_: int) -> None:
    k = Module.load(text_of(bytes_).replace(".version 8.0", ".version 8.4"))["k"]
    rng = np.random.default_rng(bytes_)
    lane = np.arange(LANES)
    none = bytes_ + 1  # the lane does not copy
    places = [(lane, lane), (lane, lane ^ 5), (lane[::-1], lane), (lane * 0 + 3, lane),
              (rng.integers(0, LANES, LANES), rng.permutation(LANES))]  # fmt: skip
    sizes = [np.full(LANES, bytes_), np.where(lane < 9, bytes_, none), np.where(lane == 31, bytes_ - 1, bytes_), np.zeros(LANES),
             np.where(lane % 2 == 0, bytes_, 0), rng.integers(0, bytes_ + 2, LANES), np.full(LANES, none)]  # fmt: skip
    for source, target in places:
        for size in sizes:
            for seed in range(3):
                data, out = rng.integers(0, 256, (LANES, bytes_)).astype(np.uint8), np.zeros((LANES, bytes_), np.uint8)
                k.launch(1, LANES, [out, data, *(x.astype(np.uint32) for x in (source, target, size))], seed=seed)
                wanted = np.full((LANES, bytes_), 238, np.uint8)
                for n in range(LANES):
                    if size[n] <= bytes_:
                        wanted[target[n]] = [*data[source[n], : int(size[n])], *[0] * (bytes_ - int(size[n]))]
                assert (out == wanted).all(), (source, target, size)
