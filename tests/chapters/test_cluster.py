"""Thread block clusters: launches, addresses, their barrier. What is measured is an NVIDIA H200's."""

from typing import Any

import numpy as np
import pytest

from mmulator.errors import UnsupportedError
from mmulator.host.module import Module
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.launch.shape import Extent
from tests.support.clusters import SHAPES, kernel, launched, ranks, times

MEET = "barrier.cluster.arrive; barrier.cluster.wait;"

# launches -----------------------------------------------------------------------------------------------------------
def test_a_chip_without_clusters_has_those_of_one_block() -> None:
    k = Module.load(".version 8.0\n.target sm_80\n.visible .entry k() { ret; }\n")["k"]
    assert k.launch(2, 32, [], cluster=1).cluster == (1, 1, 1)
    assert k.launch(2, 32, [], cluster=2, device="sm_90").cluster == (2, 1, 1)


SAID = (
    "mov.u32 r3, %nctaid.x; mov.pred p1, %is_explicit_cluster; selp.b32 r4, 1, 0, p1; mov.u32 r5, %ntid.x;"
    "st.global.v4.b32 [out], {size, r3, r4, r5};"
)
# directives, grid, block, cluster; and what a block sees: blocks of its cluster, of the grid's x, whether one was said, threads
TAKEN: list[tuple[str, Extent, int, Any, list[int]]] = [
    ("", (4, 1, 1), 32, None, [1, 4, 0, 32]), ("", (4, 1, 1), 32, 1, [1, 4, 1, 32]), ("", (4, 1, 1), 32, (2, 1), [2, 4, 1, 32]),
    ("", (32, 1, 1), 32, 16, [16, 32, 1, 32]), ("", (9, 1, 1), 64, [9], [9, 9, 1, 64]),
    (".reqnctapercluster 2", (4, 1, 1), 32, None, [2, 4, 1, 32]),
    (".reqnctapercluster 2 .explicitcluster", (4, 1, 1), 32, 2, [2, 4, 1, 32]),
    (".reqnctapercluster 1", (3, 1, 1), 32, None, [1, 3, 1, 32]), (".explicitcluster", (3, 1, 1), 32, 1, [1, 3, 1, 32]),
    (".maxclusterrank 4", (3, 1, 1), 32, None, [1, 3, 0, 32]), (".maxclusterrank 4", (8, 1, 1), 32, 4, [4, 8, 1, 32]),
    (".reqntid 32 .reqnctapercluster 2 .blocksareclusters", (3, 1, 1), 32, None, [2, 6, 1, 32]),
    (".reqntid 32 .reqnctapercluster 2 .blocksareclusters", (3, 1, 1), 1, None, [2, 6, 1, 32]),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "grid", "block", "cluster", "seen"), TAKEN)
def test_a_cluster_is_what_the_launch_or_the_kernel_says(
    directives: str, grid: Extent, block: int, cluster: Any, seen: list[int]
) -> None:
    out = np.zeros((64, 32, 16), np.uint32)
    report = kernel(SAID, directives).launch(grid, block, [out], cluster=cluster)
    assert out[0, 0, :4].tolist() == seen and report.cluster[0] == seen[0] and report.grid[0] == seen[1]
    assert any("not portable" in note for note in report.notes) == (seen[0] > 8)
    assert ("clusters of" in report.head) == (seen[0] > 1) and report.as_dict()["cluster"] == list(report.cluster)


REGISTERS = ("cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "cluster_nctaid.x", "cluster_nctaid.y", "cluster_nctaid.z",
             "clusterid.x", "clusterid.y", "clusterid.z", "nclusterid.x", "nclusterid.y", "nclusterid.z", "cluster_ctarank",
             "cluster_nctarank", "total_smem_size", "aggr_smem_size")  # fmt: skip


@pytest.mark.parametrize("cluster", [None, *(s for s in SHAPES if s[0] * s[1] * s[2] in (1, 2, 3, 6, 8, 12, 16))])
def test_special_registers(cluster: Extent | None) -> None:
    """As an H200 has them for 15 shapes of clusters."""
    c = cluster or (1, 1, 1)
    grid = times(c, (2, 1, 3))
    body = "".join(f"mov.u32 r3, %{name}; st.global.b32 [out+{4 * n}], r3;" for n, name in enumerate(REGISTERS))
    seen = launched(kernel(body), grid, 1, cluster, shared=1000)[:, 0]
    _, rank = ranks(grid, c)
    n = 0
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                at = (x, y, z)
                place = [a % b for a, b in zip(at, c)], [a // b for a, b in zip(at, c)], [a // b for a, b in zip(grid, c)]
                want = [*place[0], *c, *place[1], *place[2], rank[n], c[0] * c[1] * c[2], 1536, 512 + 1000 + 1024]
                assert seen[n].tolist() == want
                n += 1


# addresses ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 7, 8, 15, 16, 17, 127, 128, 255, 256, 257, 65536, 2**24, 2**31, 2**32 - 1])
def test_mapa_sets_the_byte_above_the_first_24_bits(rank: int) -> None:
    """Of a rank it takes the low eight bits, in clusters of any size; getctarank gives them back; so says an H200."""
    body = (
        f"mov.u32 r3, buf; mov.u64 d3, buf; cvta.shared.u64 d4, d3; mov.u32 r4, {rank}; mapa.shared::cluster.u32 r5, r3, r4;"
        "mapa.shared::cluster.u64 d5, d3, r4; mapa.u64 d6, d4, r4; getctarank.shared::cluster.u32 r6, r5; getctarank.u64 r7, d6;"
        "cvta.to.shared::cluster.u64 d7, d6; cvta.to.shared.u64 d8, d6; cvta.shared::cluster.u64 d9, d5; sub.u64 d9, d9, d6;"
        "mapa.shared::cluster.u32 r8, r5, rank; st.global.v4.b32 [out], {r3, r5, r6, r7}; st.global.v2.b64 [out+16], {d5, d7};"
        "st.global.v2.b64 [out+32], {d8, d9}; st.global.b32 [out+48], r8;"
    )
    for cluster in (None, 1, 2):
        seen = launched(kernel(body), (2, 1, 1), 1, cluster)[:, 0].view(np.uint64)
        for own, line in enumerate(seen):
            there = (rank & 0xFF) << RANK_SHIFT | SHARED_BASE
            mine = (own << RANK_SHIFT if cluster == 2 else 0) | SHARED_BASE
            words = line.view(np.uint32)
            assert words[:4].tolist() == [mine, there, rank & 0xFF, rank & 0xFF] and words[12] == mine
            assert line[2:6].tolist() == [there, there, there, 0]


KINDS = ("shared", "shared::cta", "shared::cluster", "global", "local", "const", "param::entry")
PLACES = {  # code that makes a generic address in d3, and what it is
    "its own": ("mov.u64 d3, buf; cvta.shared.u64 d3, d3;", [1, 1, 1, 0, 0, 0, 0]),
    "itself": ("mov.u64 d3, buf; cvta.shared.u64 d3, d3; mapa.u64 d3, d3, rank;", [1, 1, 1, 0, 0, 0, 0]),
    "another block's": (
        "mov.u64 d3, buf; cvta.shared.u64 d3, d3; xor.b32 r3, rank, 1; mapa.u64 d3, d3, r3;", [0, 0, 1, 0, 0, 0, 0]
    ),
    "nobody's": ("mov.u64 d3, buf; cvta.shared.u64 d3, d3; mapa.u64 d3, d3, 17;", [0, 0, 1, 0, 0, 0, 0]),
    "beyond its own": ("mov.u64 d3, buf; cvta.shared.u64 d3, d3; add.u64 d3, d3, 0x40000;", [1, 1, 1, 0, 0, 0, 0]),
    "a buffer": ("mov.u64 d3, out; cvta.global.u64 d3, d3;", [0, 0, 0, 1, 0, 0, 0]),
    "a local variable": (".local .b64 v; mov.u64 d3, v; cvta.local.u64 d3, d3;", [0, 0, 0, 0, 1, 0, 0]),
    "a parameter": ("mov.u64 d3, results; cvta.param.u64 d3, d3;", [0, 0, 0, 1, 0, 0, 1]),
    "null": ("mov.u64 d3, 0;", [0, 0, 0, 1, 0, 0, 0]), "nowhere": ("mov.u64 d3, -1;", [0, 0, 0, 1, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_isspacep(place: str) -> None:
    """As an H200 answers. Parameters lie in global memory there."""
    code, want = PLACES[place]
    asks = "".join(f"isspacep.{k} p1, d3; selp.b32 r4, 1, 0, p1; st.global.b32 [out+{4 * n}], r4;" for n, k in enumerate(KINDS))
    assert (launched(kernel(code + asks), (4, 1, 1), 1, 2)[:, 0, :7] == want).all()


# memory of other blocks ---------------------------------------------------------------------------------------------
# the barrier --------------------------------------------------------------------------------------------------------
FORMS = [("", ""), (".release", ".acquire"), (".relaxed", ""), (".aligned", ".aligned"), (".release.aligned", ".acquire.aligned"),
         (".relaxed.aligned", ".acquire.aligned")]  # fmt: skip


@pytest.mark.parametrize(("arrive", "wait"), FORMS)
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_thread_passes_before_all_have_arrived(arrive: str, wait: str, seed: int) -> None:
    """Warps that take longer than others, five times over; who passes sees what all stored before."""
    begin = "shl.b32 r3, t, 2; mov.u32 r4, buf; add.u32 r4, r4, r3; mov.u32 r8, 0; mov.u32 r9, 0; st.shared.b32 [r4], r8;"
    body = begin + "".join(
        f"shr.u32 r5, t, 5; add.u32 r5, r5, rank; mul.lo.u32 r5, r5, {57 * n};"
        f"L{n}: sub.u32 r5, r5, 1; setp.gt.s32 p1, r5, 0; @p1 bra L{n};"
        f"ld.shared.b32 r8, [r4]; add.u32 r8, r8, rank; add.u32 r8, r8, 1; st.shared.b32 [r4], r8;"
        f"barrier.cluster.arrive{arrive}; mul.lo.u32 r9, r9, 7; barrier.cluster.wait{wait};"
        "mov.u32 r6, 0; "
        f"M{n}: mapa.shared::cluster.u32 r7, r4, r6; ld.shared::cluster.b32 r7, [r7]; add.u32 r9, r9, r7; add.u32 r6, r6, 1;"
        f"setp.lt.u32 p1, r6, size; @p1 bra M{n}; {MEET}"
        for n in range(5)
    ) + "st.global.b32 [out], r9;"
    seen = launched(kernel(body), (6, 1, 1), 96, 3, seed=seed)[:, :, 0]
    want = 0
    for n in range(1, 6):
        want = want * 7 + n * (1 + 2 + 3)
    assert (seen == want).all()


def test_threads_that_exit_count_as_arrived() -> None:
    """Before they arrive, and between arriving and waiting; of a warp, of a block, of all blocks but one."""
    body = (
        "mov.u32 r3, 0; setp.eq.u32 p1, t, 5; @p1 exit; setp.eq.u32 p1, rank, 2; @p1 exit; barrier.cluster.arrive;"
        "setp.ge.u32 p1, t, 40; @p1 exit; setp.eq.u32 p1, rank, 1; @p1 exit; barrier.cluster.wait; add.u32 r3, r3, 1;"
        f"{MEET} add.u32 r3, r3, 1; st.global.b32 [out], r3;"
    )
    seen = launched(kernel(body), (3, 1, 1), 64, 3)[:, :, 0]
    want = np.zeros((3, 64), np.uint32)
    want[0, [n for n in range(40) if n != 5]] = 2
    assert (seen == want).all()


def test_lanes_of_a_warp_arrive_one_by_one() -> None:
    branches = "".join(f"setp.ne.u32 p1, t, {n}; @p1 bra N{n}; barrier.cluster.arrive; N{n}:" for n in range(32))
    body = branches + (
        "setp.lt.u32 p1, t, 9; @p1 bra A; barrier.cluster.wait; bra B; A: barrier.cluster.wait.acquire; B: mov.u32 r3, 7;"
        "st.global.b32 [out], r3;"
    )
    assert (launched(kernel(body), (4, 1, 1), 32, 4)[:, :, 0] == 7).all()


def test_a_cluster_of_one_meets_alone() -> None:
    for cluster in (None, 1):
        assert (launched(kernel(MEET + "mov.u32 r3, 9; st.global.b32 [out], r3;"), (3, 1, 1), 64, cluster)[:, :, 0] == 9).all()


def test_multimem_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"multimem.* cannot be run: multicast objects of several GPUs"):
        launched(kernel("multimem.ld_reduce.relaxed.sys.global.add.u32 r3, [out];"), (1, 1, 1), 1)
