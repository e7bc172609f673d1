"""Who waits for whom: each kind of wait names what it is for and who can end it; a deadlock is told from a wait that will end."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmulator import Module
from mmulator.errors import ExecutionFault
from mmulator.observation.debug.views import Scene, barriers, flights, waits, warps
from tests.support import one_block
from tests.support.scenes import texts_fit, watched

TOP = ".shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 16 .b8 tile[1024];\n"
INIT = "setp.ne.u32 p0, t, 0; @p0 bra MADE; mov.u32 r8, full; mbarrier.init.shared.b64 [r8], 1; " \
    "mov.u32 r7, empty; mbarrier.init.shared.b64 [r7], 32; MADE: mov.u32 r8, full; mov.u32 r7, empty; bar.sync 0;"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 p1, [{at}], {parity}; @!p1 bra {name};"


def hang(body: str, block: int, cluster: int = 1, arrays: int = 0) -> tuple[Scene, Any, str]:
    """(scene, waits, text) of a launch that hangs, as it was when it did."""
    found: list[Any] = []

    def hangs(scene: Scene) -> None:
        seen = waits(scene)
        for view in (seen, barriers(scene), flights(scene), warps(scene, cluster=True)):
            assert texts_fit(view.text()), view.text()
            assert view.as_dict()
        found.extend((scene, seen, seen.text()))

    kernel = Module.load(one_block.text(body, arrays, top=TOP), name="k.ptx")["k"]
    with pytest.raises(ExecutionFault):
        watched(kernel, cluster, block, [np.zeros((block * cluster, 4), np.uint32)], lambda s: None, hangs=hangs,
                cluster=cluster if cluster > 1 else None)  # fmt: skip
    return found[0], found[1], " ".join(found[2].split())


def test_two_warps_wait_for_each_other() -> None:
    """Warp 0 waits for an arrival of warp 1, which waits at a barrier for warp 0."""
    body = INIT + "setp.ge.u32 p2, t, 32; @p2 bra OTHER;" + WAIT.format(name="W", at="r8", parity=0) + "bar.sync 1; bra END;" \
        "OTHER: bar.sync 1; mbarrier.arrive.shared.b64 _, [r8]; END:"
    _, seen, text = hang(body, 64)
    assert {w.node for w in seen.stuck} == {(0, 0), (0, 1)} and seen.cycle == [(0, 0), (0, 1)]
    assert text.startswith("deadlock: 2 warps can never go on")
    assert "warp 0 waits for phase 0 of full" in text and "1 of 1 arrival is missing" in text
    assert "warp 1 may still arrive" in text and "in a circle: warp 0 waits for warp 1 waits for warp 0" in text
    assert "warp 1 waits for barrier 1" in text and "warp 0 is not there" in text


def test_nobody_can_arrive_any_more() -> None:
    """The only warp that arrives has exited: the sentence says so."""
    body = INIT + "setp.ge.u32 p2, t, 32; @p2 bra END;" + WAIT.format(name="W", at="r7", parity=0) + "END:"
    _, seen, text = hang(body, 64)
    (wait,) = seen.stuck
    assert not wait.wakers and "no warp can end this wait any more" in text and "32 of 32 arrivals are missing" in text


def test_bytes_that_never_come() -> None:
    body = INIT + "setp.ne.u32 p2, t, 0; @p2 bra W; mbarrier.arrive.expect_tx.shared.b64 _, [r8], 4096;" + WAIT.format(
        name="W", at="r8", parity=0)  # fmt: skip
    scene, seen, text = hang(body, 32)
    assert seen.stuck and "4096 of 4096 expected bytes have not come" in text
    full, empty = barriers(scene).mbarriers
    assert full.name.startswith("full") and full.state.word.bytes == 4096 and not empty.sleepers
    assert [(s.warp, s.lanes, s.parity) for s in full.sleepers] == [(0, (1 << 32) - 1, 0)]


def test_lanes_of_one_warp() -> None:
    """Half of a warp is at a shuffle for all lanes, the other half at a barrier."""
    body = "setp.ge.u32 p0, t, 16; @p0 bra OTHER; shfl.sync.idx.b32 r0, r1, 0, 31, -1; bra END;" \
        "OTHER: bar.warp.sync 0xffff0001; END:"
    _, seen, text = hang(body, 32)
    assert len(seen.stuck) == 2
    assert "lanes 0 to 15 wait for lanes 16 to 31 of the member mask 0xffffffff" in text
    assert "lanes 16 to 31 wait for lane 0 of the member mask 0xffff0001" in text


def test_blocks_of_a_cluster() -> None:
    """One block of a cluster does not arrive at its barrier."""
    body = "mov.u32 r0, %cluster_ctarank; setp.eq.u32 p0, r0, 0; @p0 bra W; barrier.cluster.arrive; barrier.cluster.wait; " \
        "bra END; W: bar.sync 1, 64; END:"
    _, seen, text = hang(body, 32, cluster=2)
    assert "waits for the barrier of the cluster" in text and "of block (0, 0, 0) has not arrived" in text
    assert "warp 0 of block (0, 0, 0) waits for barrier 1" in text and len(seen.stuck) == 2


LIVE: dict[str, tuple[str, int, Callable[[str], bool]]] = {
    "a barrier that will be complete": (
        "setp.ge.u32 p0, t, 32; @p0 bra W; mov.u32 r0, 1; mov.u32 r0, 2; nanosleep.u32 1; W: bar.sync 0;", 64,
        lambda text: "deadlock" not in text,
    ),
    "an mbarrier whose arrival comes": (
        INIT + "setp.ge.u32 p2, t, 32; @p2 bra W; mov.u32 r0, 1; nanosleep.u32 1; setp.ne.u32 p3, t, 0; @p3 bra W; "
        "mbarrier.arrive.shared.b64 _, [r8];" + WAIT.format(name="W", at="r8", parity=0), 64,
        lambda text: "may still arrive" in text,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVE)
def test_what_will_end_is_no_deadlock(name: str) -> None:
    body, block, said = LIVE[name]
    texts = []

    def look(scene: Scene) -> None:
        seen = waits(scene)
        assert not seen.stuck
        if seen.waits:
            texts.append(seen.text())

    kernel = Module.load(one_block.text(body, 0, top=TOP), name="k.ptx")["k"]
    for seed in range(4):
        watched(kernel, 1, block, [np.zeros((block, 4), np.uint32)], look, seed=seed)
    assert texts and any(said(" ".join(t.split())) for t in texts)
