"""Additions without a result wait in the cluster (native/memory/sums.py): whoever could see it sees them in memory."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Kernel, Module
from mmulator.runtime.native.state import PART, PARTS
from tests.support.ptx_text import kernel

LANES = 32
LARGEST = PART * PARTS // 4  # words of an array whose sums wait
PARAMS = ".param .u64 out, .param .u64 at, .param .u64 with, .param .u64 lanes"
# Each lane adds with[lane] at byte at[lane] of out, if its bit is set: %rd6 and %r15, guarded by %p1.
ADD = """
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd9, %r1, 4; mul.wide.u32 %rd10, %r1, 8;
  ld.param.u64 %rd2, [at]; add.u64 %rd2, %rd2, %rd10; ld.global.u64 %rd3, [%rd2];
  ld.param.u64 %rd4, [with]; add.u64 %rd4, %rd4, %rd9; ld.global.u32 %r15, [%rd4];
  ld.param.u32 %r2, [lanes]; and.b32 %r3, %r1, 31; shr.u32 %r2, %r2, %r3; and.b32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 1;
  add.u64 %rd6, %rd0, %rd3;
  @%p1 red.global.add.u32 [%rd6], %r15;
"""
SHAPES = [
    np.full(LANES, 5), np.arange(LANES), np.arange(LANES)[::-1], np.arange(LANES) // 3, np.arange(LANES) * 9 % 64,
    np.random.default_rng(0).integers(0, 64, LANES), np.arange(LANES) + 32,
]  # fmt: skip
MASKS = (0xFFFFFFFF, 0, 1, 1 << 31, 0xFFFF0000, 0x5A5A5A5A, 0x7FFFFFFE)


def made(more: str = "", params: str = PARAMS) -> Kernel:
    return Module.load(kernel(ADD + more, params))["k"]


def added(memory: np.ndarray, at: np.ndarray, values: np.ndarray, lanes: int) -> np.ndarray:
    out = memory.astype(np.uint64)
    for n in range(LANES):
        if lanes >> n & 1:
            out[at[n]] += values[n]
    return (out % (1 << 32)).astype(np.uint32)


def arguments(memory: np.ndarray, index: np.ndarray, values: np.ndarray, lanes: int = 0xFFFFFFFF) -> list[object]:
    return [memory, (index * 4).astype(np.uint64), values, lanes]


def values_of(rng: np.random.Generator) -> np.ndarray:
    values = rng.integers(0, 9, LANES).astype(np.uint32)
    values[::5] = 0xFFFFFFFE  # sums wrap
    return values


@pytest.mark.parametrize("words", [64, LARGEST - 32, LARGEST - 31, LARGEST, LARGEST + 1])
@pytest.mark.parametrize("begin", [0, 1, 31])
def test_sums_reach_memory(words: int, begin: int) -> None:
    """Of arrays that begin anywhere in their lines: those that are small enough to wait, and larger ones."""
    k, rng = made(), np.random.default_rng(words + begin)
    whole = np.zeros(words + 64, np.uint32)
    memory = whole[-(whole.ctypes.data // 4) % 32 + begin :][:words]
    for index in [*SHAPES, np.arange(LANES) + words - LANES]:
        for lanes in MASKS:
            whole[:] = rng.integers(0, 1 << 32, len(whole))
            before, values = whole.copy(), values_of(rng)
            wanted = added(memory, index, values, lanes)
            k.launch(1, LANES, arguments(memory, index, values, lanes))
            assert (memory == wanted).all(), (index, hex(lanes))
            memory[:] = before[-(whole.ctypes.data // 4) % 32 + begin :][:words]
            assert (whole == before).all()


# What the warp does next, and what then is in `seen` for each lane: the sum at its own address, of its array or through another
# name of the same memory (%rd7).
SEES = {
    "ld.global.u32 %r5, [%rd6];": 1, "ld.global.u32 %r5, [%rd7];": 1, "ld.u32 %r5, [%rd7];": 1,
    "ld.volatile.global.u32 %r5, [%rd6];": 1, "ld.acquire.gpu.global.u32 %r5, [%rd6];": 1,
    "ld.global.v2.u16 {%h1, %h2}, [%rd6]; mov.b32 %r5, {%h1, %h2};": 1,
    "atom.global.add.u32 %r5, [%rd7], 0;": 1, "atom.global.or.b32 %r5, [%rd6], 0;": 1, "atom.cas.b32 %r5, [%rd6], 0, 0;": 1,
    "@%p1 red.global.add.u32 [%rd6], %r15; ld.global.u32 %r5, [%rd6];": 2,
    "@%p1 red.global.add.u32 [%rd7], %r15; ld.global.u32 %r5, [%rd6];": 2,
    "@%p1 red.release.gpu.global.add.u32 [%rd6], %r15; ld.global.u32 %r5, [%rd7];": 2,
    "cp.async.ca.shared.global [%rd11], [%rd6], 4; cp.async.wait_all; ld.shared.u32 %r5, [%rd11];": 1,
    "st.global.u32 [%rd7], 77; ld.global.u32 %r5, [%rd6];": 0,
    "st.u32 [%rd7], 77; @%p1 red.global.add.u32 [%rd6], %r15; ld.global.u32 %r5, [%rd7];": -1,
}  # fmt: skip


@pytest.mark.parametrize("then", SEES)
@pytest.mark.parametrize("sanitize", [False, True])
def test_a_thread_sees_what_it_added(then: str, sanitize: bool) -> None:
    k = made(f"""
  .shared .align 4 .b8 s[{LANES * 4}]; mov.u64 %rd11, s; add.u64 %rd11, %rd11, %rd9;
  ld.param.u64 %rd7, [other]; add.u64 %rd7, %rd7, %rd3; ld.param.u64 %rd8, [seen]; add.u64 %rd8, %rd8, %rd9;
  {then}
  st.global.u32 [%rd8], %r5;
""", PARAMS + ", .param .u64 other, .param .u64 seen")  # fmt: skip
    rng = np.random.default_rng(1)
    index = rng.permutation(LANES)
    memory, values, seen = rng.integers(0, 1 << 32, 64).astype(np.uint32), values_of(rng), np.zeros(LANES, np.uint32)
    before = memory.copy()
    k.launch(1, LANES, [*arguments(memory, index, values), memory, seen], sanitize=sanitize)
    sums = before[index] + np.uint32(abs(SEES[then])) * values if SEES[then] > 0 else 77 + np.uint32(-SEES[then]) * values
    assert (seen == sums).all() and (memory[index] == sums).all()


@pytest.mark.parametrize("sanitize", [False, True])
def test_warps_see_each_other_behind_a_barrier(sanitize: bool) -> None:
    """Counters of a block, read by another warp than added to them."""
    body = """
  bar.sync 0;
  ld.param.u64 %rd8, [seen]; add.u64 %rd8, %rd8, %rd9; xor.b32 %r4, %r1, 32; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd5, %rd0, %rd5;
  ld.global.u32 %r5, [%rd5]; st.global.u32 [%rd8], %r5;
"""
    k = made(body, PARAMS + ", .param .u64 seen")
    index, values = np.arange(64)[::-1].copy(), np.arange(64, dtype=np.uint32) + 1
    memory, seen = np.full(64, 100, np.uint32), np.zeros(64, np.uint32)
    k.launch(1, 64, [*arguments(memory, index, values), seen], sanitize=sanitize)
    assert (memory == 100 + values[::-1]).all() and (seen == memory[np.arange(64) ^ 32]).all()


@pytest.mark.parametrize("poll", ["ld.volatile.global.u32 %r5, [%rd0];", "ld.relaxed.gpu.global.u32 %r5, [%rd0];",
                                  "ld.global.u32 %r5, [%rd0];", "atom.global.add.u32 %r5, [%rd0], 0;"])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sanitize", [False, True])
def test_blocks_that_wait_for_each_other_hear_of_it(poll: str, threads: int, sanitize: bool) -> None:
    body = f"red.global.add.u32 [%rd0], 1;\nL: {poll} setp.lt.u32 %p1, %r5, {6 * LANES}; @%p1 bra L;"
    counter = np.zeros(4, np.uint32)
    Module.load(kernel(body))["k"].launch(6, LANES, [counter], threads=threads, timeout=600, sanitize=sanitize)
    assert counter[0] == 6 * LANES


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_fence_orders_is_there(threads: int) -> None:
    """The last block of a grid, whichever it is, sees all sums of the others."""
    body = """
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; and.b32 %r3, %r2, 31; add.u32 %r3, %r3, %r1; and.b32 %r3, %r3, 63;
  mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1; red.relaxed.gpu.global.add.u32 [%rd1], 3;
  bar.sync 0; membar.gl; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
  ld.param.u64 %rd2, [done]; atom.global.inc.u32 %r4, [%rd2], 999999; add.u32 %r4, %r4, 1; mov.u32 %r5, %nctaid.x;
  setp.ne.u32 %p1, %r4, %r5; @%p1 exit;
  ld.param.u64 %rd3, [total]; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u64 %rd4, %rd0;
L: ld.global.u32 %r8, [%rd4]; add.u32 %r7, %r7, %r8; add.u64 %rd4, %rd4, 4; add.u32 %r6, %r6, 1;
  setp.lt.u32 %p1, %r6, 64; @%p1 bra L;
  st.global.u32 [%rd3], %r7;
"""
    k = Module.load(kernel(body, ".param .u64 out, .param .u64 done, .param .u64 total"))["k"]
    for blocks in (1, 7, 300):
        counters, done, total = np.zeros(64, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        k.launch(blocks, 64, [counters, done, total], threads=threads)
        assert total[0] == counters.sum() == 3 * 64 * blocks


def test_two_arrays_by_turns_and_a_copy_of_both() -> None:
    body = """
  ld.param.u64 %rd7, [other]; add.u64 %rd7, %rd7, %rd3; mov.u32 %r9, 0;
L: red.global.add.u32 [%rd6], %r15; red.global.add.s32 [%rd7], 2; red.global.add.u32 [%rd6], 1;
  add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 5; @%p2 bra L;
"""
    k = made(body, PARAMS + ", .param .u64 other")
    rng = np.random.default_rng(3)
    for offset in (0, 16, 64):  # the arrays overlap, or do not
        both = rng.integers(0, 99, 256).astype(np.uint32)
        index, values, wanted = rng.integers(0, 64, LANES), values_of(rng), both.astype(np.uint64)
        for n in range(LANES):
            wanted[index[n]] += 6 * int(values[n]) + 5
            wanted[offset + index[n]] += 10
        k.launch(1, LANES, [*arguments(both[:64], index, values), both[offset : offset + 64]], threads=1)
        assert (both == (wanted % (1 << 32)).astype(np.uint32)).all()


@pytest.mark.parametrize(("index", "said", "lane"), [
    (np.arange(LANES) * 4 + 4 * 64 * (np.arange(LANES) == 31), "out of bounds|outside", 31),
    (np.arange(LANES) * 4 + 4 * (64 - 31), "out of bounds|outside", 31),
    (np.arange(LANES) * 4 - 4, "out of bounds|outside|before", 0),
    (np.arange(LANES) * 4 + (np.arange(LANES) == 9), "misaligned", 9),
    (np.full(LANES, 2), "misaligned", 0),
])  # fmt: skip
def test_a_wrong_lane_is_a_fault_and_what_was_added_stays(index: np.ndarray, said: str, lane: int) -> None:
    body = """
  ld.param.u64 %rd5, [wrong]; add.u64 %rd5, %rd5, %rd10; ld.global.u64 %rd5, [%rd5]; add.u64 %rd5, %rd0, %rd5;
  red.global.add.u32 [%rd5], 1;
"""
    k = made(body, PARAMS + ", .param .u64 wrong")
    memory, values = np.zeros(64, np.uint32), np.arange(LANES, dtype=np.uint32)
    with pytest.raises(ExecutionFault, match=rf"(?s){said}") as caught:
        k.launch(1, LANES, [*arguments(memory, np.arange(LANES), values), index.astype(np.int64)], threads=1)
    assert f"thread ({lane}, 0, 0)" in str(caught.value)
    assert (memory[:LANES] == values).all() and not memory[LANES:].any()


def test_counters_that_cannot_be_written() -> None:
    body = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; mov.u64 %rd2, c; cvta.const.u64 %rd2, %rd2; add.u64 %rd2, %rd2, %rd1;"
    k = Module.load(kernel(f"{body} red.global.add.u32 [%rd2], 1;", top=".const .align 4 .b8 c[256];\n"))["k"]
    with pytest.raises(ExecutionFault, match=r"(?s)read-only.*thread \(0, 0, 0\)"):
        k.launch(1, LANES, [np.zeros(4, np.uint32)])


@pytest.mark.parametrize("sanitize", [False, True])
def test_many_blocks_on_two_workers_lose_nothing(sanitize: bool) -> None:
    rng = np.random.default_rng(4)
    index, values = rng.integers(0, 256, (500, LANES)), rng.integers(0, 9, (500, LANES)).astype(np.uint32)
    memory = np.zeros(256, np.uint32)
    text = ADD.replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1, %tid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r1, %r4, 32, %r1;")
    k = Module.load(kernel(text, PARAMS))["k"]
    for threads in (1, 2):
        memory[:] = 0
        k.launch(500, LANES, [memory, (index * 4).astype(np.uint64), values, 0xFFFFFFFF], threads=threads, sanitize=sanitize)
        assert (memory == np.bincount(index.reshape(-1), values.reshape(-1), 256)).all()


FORMS = {  # how the addition is written: whether it waits
    "red.global.add.u32 [%rd6], %r15": True,
    "red.relaxed.gpu.global.add.s32 [%rd6], %r15": True,
    "atom.global.add.u32 %r14, [%rd6], %r15": True,  # compilers of CUDA C++ write so, and ptxas makes a red of it
    "atom.global.add.u32 _, [%rd6], %r15": True,
    "atom.global.add.u32 %r1, [%rd6], %r15": False,  # %r1 is read, if before
    "atom.acq_rel.gpu.global.add.u32 %r14, [%rd6], %r15": False,
    "red.release.gpu.global.add.u32 [%rd6], %r15": False,
    "red.global.max.u32 [%rd6], %r15": False,
}


@pytest.mark.parametrize("form", FORMS)
def test_whose_result_nobody_reads_waits(form: str) -> None:
    text = ADD.replace("red.global.add.u32 [%rd6], %r15", form)
    assert text != ADD or form in ADD
    k = Module.load(kernel(text, PARAMS))["k"]
    assert ("sum_up" in k.compile("sm_90").blocks.natives) is FORMS[form]
    if "max" not in form:
        rng = np.random.default_rng(3)
        memory, index, values = rng.integers(0, 99, 64).astype(np.uint32), rng.integers(0, 64, LANES), values_of(rng)
        for lanes in MASKS:
            expected = added(memory, index, values, lanes)
            k.launch(1, LANES, arguments(memory, index, values, lanes), device="sm_90")
            np.testing.assert_array_equal(memory, expected)
