"""Asynchronous operations complete when the specification says they may, no earlier than the seeded scheduler chooses."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.machine.module import Module
from tests.support.ptx_text import kernel

# A block of 128 threads; 8 KB of shared memory are filled with f16 ones. Descriptor %rd10: no swizzle, LBO 128, SBO 256.
SETUP = """
  .shared .align 128 .b8 tile[8192];
  mov.u32 %r40, %tid.x;
  mov.u32 %r41, tile;
  mad.lo.u32 %r42, %r40, 4, %r41;
  mov.u32 %r43, 0;
FILL:
  st.shared.b32 [%r42], 0x3C003C00;
  add.u32 %r42, %r42, 512;
  add.u32 %r43, %r43, 1;
  setp.lt.u32 %p1, %r43, 16;
  @%p1 bra FILL;
  fence.proxy.async;
  bar.sync 0;
  shr.u32 %r44, %r41, 4;
  cvt.u64.u32 %rd10, %r44;
  or.b64 %rd10, %rd10, 0x0000001000080000;
  mov.f32 %f1, 0f40A00000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  mov.f32 %f5, %f1; mov.f32 %f6, %f1; mov.f32 %f7, %f1; mov.f32 %f8, %f1;
"""
MMA = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f{0},%f{1},%f{2},%f{3}}}, %rd10, %rd10, {4}, 1, 1, 0, 0;\n"
FIRST, SECOND = MMA.format(1, 2, 3, 4, "1"), MMA.format(5, 6, 7, 8, "1")
FENCE, COMMIT = "  wgmma.fence.sync.aligned;\n", "  wgmma.commit_group.sync.aligned;\n"
STORE = """
  mad.wide.u32 %rd20, %r40, 8, %rd0;
  st.global.v2.f32 [%rd20], {%f1, %f5};
"""


def wait(n: int) -> str:
    return f"  wgmma.wait_group.sync.aligned {n};\n"


def run(body: str, seed: int = 0, block: int = 128) -> np.ndarray:
    out = np.zeros((block, 2), np.float32)
    Module.load(kernel(SETUP + body))["k"].launch(1, block, [out], seed=seed, timeout=20)
    return out


SEEDS = range(12)
START, DONE = 5.0, 21.0  # the accumulator's first value, and with 16 products of 1


@pytest.mark.parametrize("seed", SEEDS)
def test_wait_group_brings_the_result(seed: int) -> None:
    assert (run(FENCE + FIRST + COMMIT + wait(0) + STORE, seed)[:, 0] == DONE).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_wait_the_registers_keep_their_value(seed: int) -> None:
    assert (run(FENCE + FIRST + COMMIT + STORE, seed) == START).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_commit_the_wait_covers_nothing(seed: int) -> None:
    assert (run(FENCE + FIRST + wait(0) + STORE, seed) == START).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_wait_group_n_leaves_n_groups_pending(seed: int) -> None:
    out = run(FENCE + FIRST + COMMIT + SECOND + COMMIT + wait(1) + STORE, seed)
    assert (out[:, 0] == DONE).all() and (out[:, 1] == START).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_group_holds_all_that_was_issued_before_its_commit(seed: int) -> None:
    assert (run(FENCE + FIRST + SECOND + COMMIT + wait(0) + STORE, seed) == DONE).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_accumulation_goes_on_in_flight(seed: int) -> None:
    assert (run(FENCE + FIRST + FIRST + COMMIT + FIRST + COMMIT + wait(0) + STORE, seed)[:, 0] == START + 48).all()


def test_scale_d_off_does_not_read_the_accumulator() -> None:
    nan = "  mov.f32 %f1, 0f7FC00000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
    assert (run(nan + FENCE + MMA.format(1, 2, 3, 4, "0") + COMMIT + wait(0) + STORE)[:, 0] == 16).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_before_the_wait_means_the_value_after_it(seed: int) -> None:
    """ptxas renames; compilers rely on it."""
    body = FENCE + FIRST + COMMIT + "  mov.f32 %f9, %f1;\n" + wait(0) + "  mov.f32 %f5, %f9;\n" + STORE
    assert (run(body, seed) == DONE).all()


def test_operands_are_read_between_issue_and_wait() -> None:
    """Shared memory overwritten too early: one outcome a seed, both outcomes among seeds."""
    overwrite = "  bar.sync 0;\n" + "".join(f"  st.shared.b32 [%r41+{4 * n}], 0;\n" for n in range(16)) + "  bar.sync 0;\n"
    body = FENCE + FIRST + COMMIT + overwrite + wait(0) + STORE
    results = {seed: run(body, seed).tobytes() for seed in range(16)}
    assert len(set(results.values())) == 2
    assert all(run(body, seed).tobytes() == results[seed] for seed in range(4))


def test_warps_that_issue_different_operations() -> None:
    body = FENCE + "  setp.lt.u32 %p2, %r40, 64;\n  @%p2 bra A;\n" + FIRST + "  bra J;\nA:\n" + SECOND + "J:\n" + COMMIT + wait(0)
    with pytest.raises(ExecutionFault, match="different wgmma"):
        run(body)


def test_a_warp_that_never_issues() -> None:
    body = "  setp.lt.u32 %p2, %r40, 32;\n  @%p2 bra E;\n" + FENCE + FIRST + COMMIT + wait(0) + "E:\n"
    with pytest.raises(ExecutionFault, match=r"wgmma\.mma_async\S+ by an incomplete warpgroup: warp 0 has exited"):
        run(body)


def test_descriptor_outside_of_shared_memory() -> None:
    body = "  mov.b64 %rd10, 0x0000001000083FFF;\n" + FENCE + FIRST + COMMIT + wait(0)
    with pytest.raises(ExecutionFault, match="matrix descriptor outside"):
        run(body)


# cp.async -----------------------------------------------------------------------------------------------------------
COPY = """
  .shared .align 16 .b8 buffer[128];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, buffer;
  mad.lo.u32 %r2, %r1, 4, %r2;
  mov.u32 %r3, 7;
  st.shared.u32 [%r2], %r3;
  mad.wide.u32 %rd1, %r1, 4, %rd0;
  cp.async.ca.shared.global [%r2], [%rd1], 4;
  {0}
  ld.shared.u32 %r4, [%r2];
  st.global.u32 [%rd1+128], %r4;
"""


def copy(ending: str, seed: int) -> np.ndarray:
    data = np.arange(64, dtype=np.uint32) + 100
    Module.load(kernel(COPY.format(ending)))["k"].launch(1, 32, [data], seed=seed)
    return data[32:]


@pytest.mark.parametrize("ending", ["cp.async.wait_all;", "cp.async.commit_group;\n  cp.async.wait_group 0;"])
@pytest.mark.parametrize("seed", SEEDS)
def test_copies_arrive_with_their_wait(ending: str, seed: int) -> None:
    assert (copy(ending, seed) == np.arange(32) + 100).all()


def test_a_missing_wait_shows_and_the_same_way_for_a_seed() -> None:
    results = {seed: tuple(copy("", seed)) for seed in range(24)}
    assert set(results.values()) == {(7,) * 32, tuple(range(100, 132))}
    assert all(tuple(copy("", seed)) == results[seed] for seed in results)


def test_wait_group_leaves_the_newest_groups() -> None:
    late = {tuple(copy("cp.async.commit_group;\n  cp.async.wait_group 1;", seed)) for seed in range(24)}
    assert (7,) * 32 in late


@pytest.mark.parametrize("pending", [0, 62, 63, 64, 200])
def test_any_number_of_younger_groups(pending: int) -> None:
    """A copy, then `pending` empty groups."""
    ending = "cp.async.commit_group;\n  " * (pending + 1) + f"cp.async.wait_group {pending};"
    assert all((copy(ending, seed) == np.arange(32) + 100).all() for seed in range(4))
    newer = ending.replace(f"wait_group {pending}", f"wait_group {pending + 1}")
    assert (7,) * 32 in {tuple(copy(newer, seed)) for seed in range(4)}
