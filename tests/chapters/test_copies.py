"""cp.async: copies complete when the specification says they may, no earlier than the seeded scheduler chooses."""

import numpy as np
import pytest

from mmulator.host.module import Module
from tests.support.ptx_text import kernel

SEEDS = range(12)
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
