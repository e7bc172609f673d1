"""clusterlaunchcontrol: clusters that have not begun are taken by those that run, each by one (no chip was asked)."""

import numpy as np
import pytest

from mmulator.host.module import Module
from mmulator.runtime.launch.shape import Extent
from tests.support.ptx_text import stored

# Thread 0 asks while its block works: it counts in seen[block of the grid], and notes how many it has done before in turn[...].
# In a cluster the block of rank 0 asks for all of them.
STEALS = stored("steals")
ONE = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128"
ALL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"
SHAPES: list[tuple[Extent, Extent]] = [
    ((1, 1, 1), (1, 1, 1)), ((7, 3, 2), (1, 1, 1)), ((900, 1, 1), (1, 1, 1)), ((8, 6, 2), (2, 1, 1)), ((4, 4, 4), (1, 2, 2)),
    ((32, 9, 1), (16, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("grid", "cluster"), SHAPES)
def test_each_cluster_runs_once_or_is_taken_once(grid: Extent, cluster: Extent, threads: int) -> None:
    text = STEALS if cluster == (1, 1, 1) else STEALS.replace(ONE, ALL)
    n = grid[0] * grid[1] * grid[2]
    for seed in (0, 4):
        seen, turn, axes = np.zeros(n, np.uint32), np.zeros(n, np.uint32), np.zeros(1, np.uint32)
        Module.load(text)["steals"].launch(grid, 64, [seen, turn, axes], cluster=cluster, threads=threads, seed=seed, timeout=600)
        assert (seen == 1).all() and axes[0] == 0
        if threads == 1:  # the first takes all others
            assert np.bincount(turn).max() == cluster[0] * cluster[1] * cluster[2]


def test_generic_addresses() -> None:
    generic = "cvt.u64.u32 p, resp; cvta.shared.u64 p, p; cvt.u64.u32 q, bar; cvta.shared.u64 q, q; @asks {} [p], [q];"
    text = STEALS.replace(f"@asks {ONE} [resp], [bar];", generic.format(ONE.replace(".shared::cta", "")))
    seen = np.zeros(50, np.uint32)
    Module.load(text)["steals"].launch(50, 32, [seen, seen.copy(), seen.copy()], timeout=600)
    assert (seen == 1).all()
