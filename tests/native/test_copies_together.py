"""cp.async of whole warps: any sizes of the sources, lanes that take no part, places in any order."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from tests.support.ptx_text import kernel
from tests.support.tracing import traced

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


# lines ----------------------------------------------------------------------------------------------------------------
ROOM = 9 * 128 + 64  # bytes of shared memory, and of the data; the last line, which is not whole, has an odd number
LINES = kernel(f"""
  .shared .align 128 .b8 s[{ROOM}];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd9, %r1, 8; mul.wide.u32 %rd10, %r1, 4; mov.u64 %rd1, s;
  ld.param.u64 %rd2, [from]; add.u64 %rd2, %rd2, %rd9; ld.global.u64 %rd3, [%rd2];
  ld.param.u64 %rd2, [to]; add.u64 %rd2, %rd2, %rd9; ld.global.u64 %rd4, [%rd2]; add.u64 %rd4, %rd4, %rd1;
  ld.param.u64 %rd2, [size]; add.u64 %rd2, %rd2, %rd10; ld.global.u32 %r4, [%rd2];
  ld.param.u64 %rd5, [data]; ld.param.u64 %rd6, [second];
  setp.ge.s64 %p3, %rd3, 1048576; @%p3 mov.u64 %rd5, %rd6; @%p3 sub.u64 %rd3, %rd3, 1048576; add.u64 %rd3, %rd3, %rd5;
  mov.u32 %r5, %r1;
A: cvt.u64.u32 %rd11, %r5; add.u64 %rd12, %rd1, %rd11; st.shared.u8 [%rd12], 238; add.u32 %r5, %r5, 32;
  setp.lt.u32 %p2, %r5, {ROOM}; @%p2 bra A;
  bar.warp.sync -1;
  setp.le.u32 %p1, %r4, 16;
  @%p1 cp.async.cg.shared.global [%rd4], [%rd3], 16, %r4;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.warp.sync -1;
  mov.u32 %r5, %r1;
B: cvt.u64.u32 %rd11, %r5; add.u64 %rd12, %rd1, %rd11; add.u64 %rd13, %rd0, %rd11;
  ld.shared.u8 %h1, [%rd12]; st.global.u8 [%rd13], %h1; add.u32 %r5, %r5, 32;
  setp.lt.u32 %p2, %r5, {ROOM}; @%p2 bra B;
""", ".param .u64 out, .param .u64 data, .param .u64 second, .param .u64 from, .param .u64 to, .param .u64 size")  # fmt: skip


def test_lines_of_eight_lanes() -> None:
    """As the same kernel copies lane by lane under an instrument: bytes, and what a fault says."""
    k = Module.load(LINES.replace(".version 8.0", ".version 8.4"))["k"]
    lane, faults = np.arange(LANES), 0
    chunk, row = lane % 8 * 16, lane // 8
    second = 1 << 20
    sources = [
        chunk + row * 128, chunk + row[::-1] * 256, chunk + row * 16, chunk * 0 + row * 64, chunk + row % 2 * 512 + 64,
        chunk + row * 128 + ROOM - 512, chunk + row * 128 + ROOM - 512 + 16, chunk + row * 128 - 16, chunk + row * 128 + 8,
        chunk + row * 128 + 8 * (row == 2), chunk + row * 128 + 4096 * (row == 3), chunk + second * (row == 1) + 32,
        chunk + row * 128 + second, (chunk ^ 16) + row * 128,
    ]  # fmt: skip
    targets = [
        chunk + row * 128, (chunk ^ 16 * row) + row * 256, (chunk ^ 112) + (row ^ 2) * 128, (chunk ^ 32 * row) + row % 2 * 128,
        chunk + row * 128 + 64, chunk + row * 144, (chunk ^ 48) + row * 128 + 1024 * (row == 3), chunk + row * 128 - 128,
        (chunk ^ 16) + row * 128 + 8, chunk + row * 128 + (row == 1) * 1024,
    ]  # fmt: skip
    sizes = [np.full(LANES, 16), np.where(lane == 31, 5, 16), np.zeros(LANES), np.where(row == 2, 0, 16)]
    sizes.append(np.where(lane < 30, 16, 99))
    for source in sources:
        for target in targets:
            for size in sizes[: 5 if source is sources[0] or target is targets[1] else 1]:
                results: list[object] = []
                for run in (lambda args: k.launch(1, LANES, args, seed=1), lambda args: traced(k, 1, LANES, args)):
                    data, other = (np.random.default_rng(n).integers(1, 256, ROOM).astype(np.uint8) for n in (1, 2))
                    out = np.zeros(ROOM, np.uint8)
                    where = source.astype(np.int64), target.astype(np.int64), size.astype(np.uint32)
                    try:
                        run([out, data, other, *where])
                        results.append(out.tolist())
                    except ExecutionFault as fault:
                        results.append(str(fault))
                        faults += 1
                assert results[0] == results[1], (source, target, size)
    assert faults > 50
