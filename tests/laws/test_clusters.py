"""Laws of distributed shared memory: whatever the shape of a cluster, every block sees every other's bytes."""

import numpy as np
import pytest

from mmulator.launch.shape import Extent
from tests.support import cluster_ways
from tests.support.cluster_ways import ClusterWalk
from tests.support.clusters import SHAPES, kernel, launched, ranks, times

MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
SOME = SHAPES[::7]
MINE = "shl.b32 r3, t, 2; mov.u32 r4, buf; add.u32 r4, r4, r3; mad.lo.u32 r5, cta, 1000, t; st.shared.b32 [r4], r5;" + MEET
# r6: the rank that is read; its word of this thread goes to r7
READS = {
    "shared::cluster": "mapa.shared::cluster.u32 r8, r4, r6; ld.shared::cluster.b32 r7, [r8];",
    "generic": "cvt.u64.u32 d3, r4; cvta.shared.u64 d3, d3; mapa.u64 d3, d3, r6; ld.b32 r7, [d3];",
    "arithmetic": "and.b32 r8, r4, 0xFFFFFF; shl.b32 r9, r6, 24; or.b32 r8, r8, r9; ld.shared::cluster.b32 r7, [r8];",
    "atomic": "mapa.shared::cluster.u32 r8, r4, r6; atom.shared::cluster.or.b32 r7, [r8], 0;",
}


@pytest.mark.parametrize("cluster", SOME)
@pytest.mark.parametrize("way", READS)
def test_every_block_sees_the_bytes_of_every_other(cluster: Extent, way: str) -> None:
    """Sums over all ranks of what the thread of the same number stored, weighed by the rank; whatever the seed."""
    grid, size = times(cluster, (2, 2, 1)), cluster[0] * cluster[1] * cluster[2]
    loop = f"mov.u32 r6, 0; mov.u32 r10, 0; L: {READS[way]} mad.lo.u32 r10, r7, r6, r10; add.u32 r10, r10, r7; add.u32 r6, r6, 1;"
    k = kernel(MINE + loop + "setp.lt.u32 p1, r6, size; @p1 bra L;" + MEET + "st.global.b32 [out], r10;")
    number, rank = ranks(grid, cluster)
    stored = np.arange(len(number))[:, None] * 1000 + np.arange(48)
    sums = np.array([(stored[number == c] * (rank[number == c] + 1)[:, None]).sum(axis=0) for c in range(len(number) // size)])
    for seed in (0, 3):
        seen = launched(k, grid, 48, cluster, seed=seed)[:, :, 0]
        assert (seen == sums[number]).all()


@pytest.mark.parametrize("cluster", SOME)
def test_lanes_may_address_different_blocks(cluster: Extent) -> None:
    """Each lane reads from, and then writes to, a block of its own choice."""
    grid, size = times(cluster, (1, 2, 1)), cluster[0] * cluster[1] * cluster[2]
    body = MINE + (
        "mad.lo.u32 r6, t, 7, rank; rem.u32 r6, r6, size; mapa.shared::cluster.u32 r8, r4, r6; ld.shared::cluster.b32 r7, [r8];"
        "add.u32 r6, t, rank; rem.u32 r6, r6, size; mapa.shared::cluster.u32 r8, r4, r6;"
        f"{MEET} st.shared::cluster.b32 [r8], r7; {MEET} ld.shared.b32 r7, [r4]; st.global.b32 [out], r7;"
    )
    number, rank = ranks(grid, cluster)
    blocks = np.zeros((len(number) // size, size), int)
    blocks[number, rank] = np.arange(len(number))
    seen = launched(kernel(body), grid, 32, cluster)[:, :, 0]
    t = np.arange(32)
    for block, (c, r) in enumerate(zip(number, rank)):
        giver = (r - t) % size  # (t + giver) % size == r
        source = blocks[c, (7 * t + giver) % size]
        assert (seen[block] == source * 1000 + t).all()


@pytest.mark.parametrize("size", range(1, 17))
@pytest.mark.parametrize("seed", [0, 5])
def test_a_ring_of_blocks(size: int, seed: int) -> None:
    """Round after round each block takes its left neighbour's number, from one buffer of two; between them barrier.cluster."""
    rounds = 7
    body = (
        "shl.b32 r3, t, 2; mov.u32 r4, buf; add.u32 r4, r4, r3; add.u32 r5, cta, 1; st.shared.b32 [r4], r5;"
        "add.u32 r6, rank, size;"
        "sub.u32 r6, r6, 1; rem.u32 r6, r6, size; mov.u32 r7, 0; L: barrier.cluster.arrive; and.b32 r8, r7, 1; shl.b32 r8, r8, 8;"
        "add.u32 r9, r4, r8; mapa.shared::cluster.u32 r9, r9, r6; barrier.cluster.wait; ld.shared::cluster.b32 r5, [r9];"
        "mad.lo.u32 r5, r5, 3, 1; xor.b32 r8, r8, 256; add.u32 r8, r8, r4; st.shared.b32 [r8], r5; add.u32 r7, r7, 1;"
        f"setp.lt.u32 p1, r7, {rounds}; @p1 bra L; {MEET} st.global.b32 [out], r5;"
    )
    seen = launched(kernel(body), (2 * size, 1, 1), 32, size, seed=seed)[:, :, 0]
    held = np.arange(2 * size).reshape(2, size) + 1
    for _ in range(rounds):
        held = np.roll(held, 1, axis=1) * 3 + 1
    assert (seen == held.reshape(-1, 1)).all()


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_every_width_reaches_another_block(words: int, bits: int) -> None:
    """Vectors too, to and fro, by both kinds of address."""
    if words * bits > 128:
        return
    size = words * bits // 8
    vector, kind = (f".v{words}" if words > 1 else ""), "rd"[bits == 64]
    registers = [f"{kind}{5 + n}" for n in range(words)]
    held = "{" + ", ".join(registers) + "}" if words > 1 else registers[0]
    body = (
        f"mul.lo.u32 r3, t, {size}; mov.u32 r4, buf; add.u32 r4, r4, r3; xor.b32 r3, rank, 1;"
        "mapa.shared::cluster.u32 r3, r4, r3;"
        f"mul.lo.u32 r10, cta, 32; add.u32 r10, r10, t; mul.wide.u32 d3, r10, {size}; add.u64 d3, d3, in0;"
        f"ld.global{vector}.b{bits} {held}, [d3]; st.shared::cluster{vector}.b{bits} [r3], {held}; {MEET}"
        f"cvt.u64.u32 d4, r3; cvta.shared::cluster.u64 d4, d4; ld{vector}.b{bits} {held}, [d4];"
        f"st.global{vector}.b{bits} [out], {held};"
        f"ld.shared{vector}.b{bits} {held}, [r4]; st.global{vector}.b{bits} [out+32], {held}; {MEET}"
    )
    given = np.random.default_rng(words * bits).integers(0, 256, (4, 32, size), dtype=np.uint8)
    seen = launched(kernel(body, inputs=1), (4, 1, 1), 32, 2, [given]).view(np.uint8)
    assert (seen[:, :, :size] == given).all(), "what it gave to the other block"
    assert (seen[:, :, 32 : 32 + size] == given[[1, 0, 3, 2]]).all(), "what it was given"


def same(one: str | tuple[np.ndarray, ...], other: str | tuple[np.ndarray, ...]) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and one == other
    return all((a == b).all() for a, b in zip(one, other))


def wrong_bytes(walk: ClusterWalk, number: int, way: str, place: str, seen: tuple[np.ndarray, np.ndarray]) -> str:
    """The bytes that a statement which ended well read or wrote in a wrong place, in words; "" if there are none."""
    s, (rank, _) = walk.statements[number], cluster_ways.PLACES[place]
    results, memory = seen
    before = np.array([cluster_ways.held(0), cluster_ways.held(1)])
    lanes = walk.lanes(number, way)
    if s.text.startswith("ld."):
        read = [results[16 * n : 16 * n + min(s.size, 8)].tolist() for n in range(len(lanes))]
        if read != [before[rank, at : at + min(s.size, 8)].tolist() for at in lanes]:
            return "read something else"
    if s.words or s.before:
        return ""  # the mbarriers
    inside = np.zeros(memory.shape, bool)
    for at in lanes:
        inside[rank, at : at + s.size] = True
    if (memory != before)[~inside].any():
        return "wrote somewhere else"
    written = s.access in ("write", "copy-write") and s.lanes == 1
    return "did not write" if written and (memory[inside] != cluster_ways.PATTERN).any() else ""


@pytest.mark.full
def test_every_way_into_shared_memory_ends_the_same() -> None:
    """One result or one fault: whether lanes are known to have one address, do have one, lie in a row or apart, or one goes
    alone; and whether somebody looks on."""
    walk = ClusterWalk()
    found = []
    for number, s in enumerate(walk.statements):
        for place in cluster_ways.PLACES:
            faults = set()
            for way in walk.ways(number):
                plain, *others = (walk.outcome(number, way, place, i) for i in cluster_ways.INSTRUMENTS)
                wrong = "" if all(same(plain, o) for o in others) else f"{plain} without an instrument, {others} with one"
                if not isinstance(plain, str):
                    wrong = wrong or wrong_bytes(walk, number, way, place, plain)
                faults.add(plain if isinstance(plain, str) else "")
                found += [f"{s.text} at {place}, {way}: {wrong}"] if wrong else []
            only_own = s.space == "shared" and ".shared::cluster" not in s.text
            right = place == "own" or (place == "other" and not only_own and "" in faults)
            if len(faults) != 1 or right != ("" in faults):
                found.append(f"{s.text} at {place}: {faults}")
    assert not found, "\n".join(found)
