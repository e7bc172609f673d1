"""Atomics of lanes with one address, or in shared memory, take short ways: the results are those of lane after lane."""

from collections.abc import Callable

import numpy as np
import pytest

from mmulator.host.module import Module
from tests.support.ptx_text import kernel

LANES = 32
BITS = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64}
STEPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, x: old + x, "min": min, "max": max, "and": lambda old, x: old & x, "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x, "exch": lambda old, x: x, "inc": lambda old, x: 0 if old >= x else old + 1,
    "dec": lambda old, x: x if old == 0 or old > x else old - 1, "cas": lambda old, x: x if old == 5 else old,
}  # fmt: skip
FORMS = [
    "add.u32", "add.s32", "add.u64", "min.s32", "max.u32", "max.s64", "and.b32", "or.b64", "xor.b32", "exch.b32", "exch.b64",
    "inc.u32", "dec.u32", "cas.b32", "cas.b64",
]  # fmt: skip


def text_of(space: str, form: str) -> str:
    op, kind = form.split(".")
    size = int(kind[1:]) // 8
    r = "r" if size == 4 else "rd"
    expected = "5, " if op == "cas" else ""
    where = "s" if space == "shared" else "%rd0"
    named = "" if space == "generic" else f".{space}"
    to = f"  .shared .align 8 .b8 s[{LANES * size}];\n  mov.u64 %rd1, s; add.u64 %rd1, %rd1, %rd9;"
    fill = f"ld.global.b{size * 8} %{r}20, [%rd8]; st.shared.b{size * 8} [%rd1], %{r}20; bar.warp.sync -1;"
    copied = to + fill if space == "shared" else ""
    back = f"bar.warp.sync -1; ld.shared.b{size * 8} %{r}20, [%rd1]; st.global.b{size * 8} [%rd8], %{r}20;"
    return kernel(f"""
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd9, %r1, {size}; add.u64 %rd8, %rd0, %rd9; mul.wide.u32 %rd10, %r1, 8;
  {copied}
  ld.param.u64 %rd2, [at]; add.u64 %rd2, %rd2, %rd10; ld.global.u64 %rd3, [%rd2];
  ld.param.u64 %rd4, [with]; add.u64 %rd4, %rd4, %rd9; ld.global.b{size * 8} %{r}15, [%rd4];
  ld.param.u64 %rd5, [old]; add.u64 %rd5, %rd5, %rd9; ld.param.u32 %r2, [lanes]; shr.u32 %r2, %r2, %r1; and.b32 %r2, %r2, 1;
  setp.eq.u32 %p1, %r2, 1; mov.u64 %rd6, {where}; add.u64 %rd6, %rd6, %rd3; mov.b{size * 8} %{r}16, 0;
  @%p1 atom{named}.{form} %{r}16, [%rd6], {expected}%{r}15;
  @!%p1 mov.b{size * 8} %{r}16, 0;
  st.global.b{size * 8} [%rd5], %{r}16;
  {back if space == "shared" else ""}
""", ".param .u64 out, .param .u64 at, .param .u64 with, .param .u64 old, .param .u32 lanes")  # fmt: skip


@pytest.mark.parametrize("space", ["global", "generic", "shared"])
@pytest.mark.parametrize("form", FORMS)
def test_lane_after_lane(space: str, form: str) -> None:
    op, kind = form.split(".")
    dtype = np.dtype(BITS[kind])
    k = Module.load(text_of(space, form))["k"]
    rng = np.random.default_rng(len(form))
    lane = np.arange(LANES)
    for index in (np.full(LANES, 3), lane, lane // 2, lane % 2, rng.integers(0, LANES, LANES), lane * 0 + 7 * (lane == 20)):
        for lanes in (0xFFFFFFFF, 0, 1, 1 << 31, 0xFFFF0000, 0x5A5A5A5A, 3):
            low, high = (-9, 9) if kind[0] == "s" else (0, 9)
            memory, values = (rng.integers(low, high, LANES).astype(dtype) for _ in range(2))
            values[::5] = np.iinfo(dtype).max - 1  # sums wrap
            wanted, results = [int(x) for x in memory], np.zeros(LANES, dtype)
            for n in range(LANES):
                if lanes >> n & 1:
                    results[n] = wanted[index[n]]
                    after = STEPS[op](wanted[index[n]], int(values[n]))
                    wanted[index[n]] = int(np.array(after % (1 << dtype.itemsize * 8), f"u{dtype.itemsize}").astype(dtype))
            old = np.zeros(LANES, dtype)
            k.launch(1, LANES, [memory, (index * dtype.itemsize).astype(np.uint64), values, old, lanes])
            assert memory.tolist() == wanted and old.tolist() == results.tolist(), (index, hex(lanes))


def test_lanes_of_several_blocks_lose_nothing() -> None:
    """One counter, from two workers: each lane's number is its own."""
    body = """
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shl.b32 %r3, %r1, 5; add.u32 %r3, %r3, %r2;
  atom.global.add.u32 %r4, [%rd0], 1; ld.param.u64 %rd1, [seen]; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd1, %rd1, %rd2;
  red.global.add.u32 [%rd1], 1;
"""
    counter, seen = np.zeros(1, np.uint32), np.zeros(400 * LANES, np.uint32)
    Module.load(kernel(body, ".param .u64 out, .param .u64 seen"))["k"].launch(400, LANES, [counter, seen], threads=2)
    assert counter[0] == 400 * LANES and (seen == 1).all()


@pytest.mark.parametrize("begin", range(4))
def test_rows_of_floats_have_the_bits_of_lanes(begin: int) -> None:
    """All 32 lanes side by side, from every place within 16 bytes, against two halves, which go lane by lane."""
    k = Module.load(text_of("global", "add.u32").replace("add.u32 %r16", "add.f32 %r16"))["k"]
    rng = np.random.default_rng(begin)
    words = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000]
    index = (np.arange(LANES) + begin).astype(np.uint64) * 4
    for _ in range(40):
        given, values = (rng.choice(np.array(words, np.uint32), 40) for _ in range(2))
        values = np.where(rng.random(40) < 0.5, values, rng.integers(0, 1 << 32, 40, dtype=np.uint32))
        results = []
        for several in ((0xFFFFFFFF,), (0xFFFF, 0xFFFF0000)):
            memory, olds = given.copy(), np.zeros(LANES, np.uint32)
            for lanes in several:
                old = np.zeros(LANES, np.uint32)
                k.launch(1, LANES, [memory, index, values[:LANES].copy(), old, lanes])
                olds |= old
            results.append((memory.tolist(), olds.tolist()))
        assert results[0] == results[1]


@pytest.mark.parametrize(("form", "added"), [("add.u32", "3"), ("add.f32", "0f40400000"), ("add.u64", "3")])
def test_rows_of_several_blocks_lose_nothing(form: str, added: str) -> None:
    dtype = np.dtype({"u32": np.uint32, "f32": np.float32, "u64": np.uint64}[form[4:]])
    body = f"mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, {dtype.itemsize}; add.u64 %rd1, %rd0, %rd2;\n"
    body += f"red.global.{form} [%rd1], {added};\n" * 20
    row = np.zeros(4096, dtype)  # too large for sums that wait
    Module.load(kernel(body, ".param .u64 out"))["k"].launch(400, LANES, [row], threads=2)
    assert (row[:LANES] == 3 * 20 * 400).all() and not row[LANES:].any()
