"""Thread block clusters: one of one block is a block, others are refused by name."""

from __future__ import annotations

import pytest

from mmulator.errors import ExecutionFault, UnsupportedError
from mmulator.program.runnable import unsupported
from mmulator.ptx import parse_module
from mmulator.source import Source
from tests.support import rows, vectors
from tests.support.one_block import launch

test_vectors = vectors.replay("cluster")
test_rows = rows.run_or_refused("cluster")

CLUSTERED = [".reqnctapercluster 2, 1, 1 .explicitcluster", ".explicitcluster", ".maxclusterrank 8 .explicitcluster",
             ".reqntid 32 .reqnctapercluster 2 .blocksareclusters"]  # fmt: skip


@pytest.mark.parametrize("directives", CLUSTERED)
def test_a_kernel_for_clusters_is_refused_by_name(directives: str) -> None:
    with pytest.raises(UnsupportedError, match=r"\.\w+cluster\w* cannot be run: thread block clusters") as caught:
        launch("", entry=directives)
    tree = parse_module(Source("c.ptx", f".version 9.0\n.target sm_90\n.visible .entry k() {directives} {{ ret; }}\n"))
    named = unsupported(tree)
    assert {u.name[1:] for u in named} == {w[1:] for w in directives.split() if "cluster" in w and "max" not in w}
    assert named[0].error.message == caught.value.message


ALONE = [".reqnctapercluster 1, 1, 1", ".reqnctapercluster 1 .explicitcluster", ".maxclusterrank 1", ".maxclusterrank 8"]


@pytest.mark.parametrize("directives", ALONE)
def test_a_cluster_of_one_block_is_a_block(directives: str) -> None:
    body = (
        "mov.u32 r1, %cluster_nctarank; mov.u32 r2, %cluster_ctarank; mov.pred p1, %is_explicit_cluster; selp.b32 r3, 1, 0, p1;"
        "st.global.v4.b32 [out], {r1, r2, r3, r3};"
    )
    results, _ = launch(body, entry=directives)
    assert (results[:, 0] == 1).all() and not results[:, 1].any()


def test_another_block_of_the_cluster_is_no_memory() -> None:
    """mapa of rank 0 is the block's own memory, getctarank says which; any other rank faults when it is used."""
    body = (
        ".shared .b32 word; mov.u64 d1, word; mapa.shared::cluster.u64 d2, d1, {rank};"
        "getctarank.shared::cluster.u64 r2, d2; st.global.b32 [out], r2; st.shared::cluster.b32 [d2], r2;"
    )
    assert not launch(body.replace("{rank}", "0"))[0].any()
    with pytest.raises(ExecutionFault, match="out of bounds"):
        launch(body.replace("{rank}", "3"))
