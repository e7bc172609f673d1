"""clusterlaunchcontrol: clusters that have not begun are taken by those that run, each by one (no chip was asked)."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.launch.shape import Extent

# Thread 0 asks while its block works: it counts in seen[block of the grid], and notes how many it has done before in turn[...].
# In a cluster the block of rank 0 asks for all of them.
STEALS = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry steals(.param .u64 seen, .param .u64 turn, .param .u64 axes)
{
 .reg .b32 t, x, y, z, dx, dy, dz, resp, bar, phase, done, at, n, rank, one; .reg .b64 p, q; .reg .pred first, asks, over, more;
 .reg .b128 answer;
 .shared .align 16 .b8 response[16]; .shared .align 8 .b64 barrier;
 mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; mov.u32 rank, %cluster_ctarank; setp.eq.and.u32 asks, rank, 0, first;
 mov.u32 x, %ctaid.x; mov.u32 y, %ctaid.y; mov.u32 z, %ctaid.z; mov.u32 resp, response; mov.u32 bar, barrier;
 mov.u32 dx, %cluster_ctaid.x; mov.u32 dy, %cluster_ctaid.y; mov.u32 dz, %cluster_ctaid.z; mov.u32 phase, 0; mov.u32 done, 0;
 @first mbarrier.init.shared::cta.b64 [bar], 1;
 fence.mbarrier_init.release.cluster;
 barrier.cluster.arrive; barrier.cluster.wait;
AGAIN:
 @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
 barrier.cluster.arrive; barrier.cluster.wait;
 @asks TRY [resp], [bar];
 mov.u32 n, %nctaid.y; mad.lo.u32 at, z, n, y; mov.u32 n, %nctaid.x; mad.lo.u32 at, at, n, x;
 ld.param.u64 p, [seen]; mul.wide.u32 q, at, 4; add.u64 p, p, q; @first red.global.add.u32 [p], 1;
 ld.param.u64 p, [turn]; add.u64 p, p, q; @first st.global.u32 [p], done; add.u32 done, done, 1;
W: mbarrier.try_wait.parity.shared::cta.b64 over, [bar], phase; @!over bra W;
 xor.b32 phase, phase, 1;
 ld.shared.b128 answer, [resp];
 clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 more, answer;
 @!more bra END;
 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 n, answer; sub.u32 one, n, x;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 n, answer; sub.u32 n, n, y; or.b32 one, one, n;
 clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 n, answer; sub.u32 n, n, z; or.b32 one, one, n;
 ld.param.u64 p, [axes]; setp.ne.u32 over, one, 0; @over red.global.add.u32 [p], 1;
 add.u32 x, x, dx; add.u32 y, y, dy; add.u32 z, z, dz;
 bar.sync 0;
 bra AGAIN;
END:
 barrier.cluster.arrive; barrier.cluster.wait;
 ret;
}
"""
ONE = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128"
ALL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"
SHAPES: list[tuple[Extent, Extent]] = [
    ((1, 1, 1), (1, 1, 1)), ((7, 3, 2), (1, 1, 1)), ((900, 1, 1), (1, 1, 1)), ((8, 6, 2), (2, 1, 1)), ((4, 4, 4), (1, 2, 2)),
    ((32, 9, 1), (16, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("grid", "cluster"), SHAPES)
def test_each_cluster_runs_once_or_is_taken_once(grid: Extent, cluster: Extent, threads: int) -> None:
    text = STEALS.replace("TRY", ONE if cluster == (1, 1, 1) else ALL)
    n = grid[0] * grid[1] * grid[2]
    for seed in (0, 4):
        seen, turn, axes = np.zeros(n, np.uint32), np.zeros(n, np.uint32), np.zeros(1, np.uint32)
        Module.load(text)["steals"].launch(grid, 64, [seen, turn, axes], cluster=cluster, threads=threads, seed=seed, timeout=60)
        assert (seen == 1).all() and axes[0] == 0
        if threads == 1:  # the first takes all others
            assert np.bincount(turn).max() == cluster[0] * cluster[1] * cluster[2]


def test_a_response_goes_to_16_bytes_of_the_block_itself() -> None:
    wrong = {"mov.u32 resp, response; add.u32 resp, resp, 8;": "misaligned", "mov.u32 resp, 0x100000;": "out of bounds"}
    for change, why in wrong.items():
        text = STEALS.replace("mov.u32 resp, response;", change).replace("TRY", ONE)
        with pytest.raises(ExecutionFault, match=why):
            Module.load(text)["steals"].launch(4, 32, [np.zeros(9, np.uint32) for _ in range(3)], timeout=60)


@pytest.mark.parametrize("try_cancel", [ONE, ALL])
def test_the_mbarrier_is_one_of_the_block_itself(try_cancel: str) -> None:
    """Not of the rank that its address names, which nothing would tell of the bytes."""
    other = STEALS.replace("@asks TRY [resp], [bar];", "or.b32 n, bar, 0x1000000; @asks TRY [resp], [n];")
    text = other.replace("TRY", try_cancel)
    with pytest.raises(ExecutionFault, match=r"wrong state space: .* of 8 bytes .* rank 1 of the cluster"):
        Module.load(text)["steals"].launch(4, 32, [np.zeros(9, np.uint32) for _ in range(3)], cluster=2, timeout=60)


def test_generic_addresses() -> None:
    generic = "cvt.u64.u32 p, resp; cvta.shared.u64 p, p; cvt.u64.u32 q, bar; cvta.shared.u64 q, q; @asks TRY [p], [q];"
    text = STEALS.replace("@asks TRY [resp], [bar];", generic).replace("TRY", ONE.replace(".shared::cta", ""))
    seen = np.zeros(50, np.uint32)
    Module.load(text)["steals"].launch(50, 32, [seen, seen.copy(), seen.copy()], timeout=60)
    assert (seen == 1).all()
    with pytest.raises(ExecutionFault, match="not shared memory"):
        Module.load(text.replace("cvta.shared.u64 p, p;", "add.u64 p, p, 0x500000000;"))["steals"].launch(
            4, 32, [seen, seen.copy(), seen.copy()], timeout=60
        )
