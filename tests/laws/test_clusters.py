"""Laws of distributed shared memory: whatever the shape of a cluster, every block sees every other's bytes."""

from collections.abc import Iterator

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.launch.shape import Extent
from tests.support.clusters import SHAPES, kernel, launched, ranks, times
from tests.support.memory_ways import PATTERN, TARGET, WINDOW, Statement, statements

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


# every way into the shared memory of a cluster ------------------------------------------------------------------------
# As a block of a rank above 0 goes it: the statements of tests/support/memory_ways.py, each by a register that is known to be the
# same for all lanes, and by one that is not. A way is how the addresses of the lanes lie (WAYS), a place where the first of them
# is (PLACES), and an instrument what looks on.
RANK, LANES, RESULT = 1, 32, 16  # who goes; threads of a block; bytes of a result of each lane
# (by a register that is known to be the same for all lanes, steps from lane to lane modulo 32, lanes)
WAYS = {"uniform": (True, 0, 32), "one": (False, 0, 32), "row": (False, 1, 32), "apart": (False, 13, 32), "lane": (False, 0, 1)}
PLACES = {"own": (RANK, 0), "other": (0, 0), "none": (5, 0), "behind": (RANK, WINDOW)}  # rank, and bytes from its first on
MANY = ("mbarrier", "wmma")  # whose second word says what they do
INSTRUMENTS = ("plain", "sanitized", "watched")


def chosen() -> list[Statement]:
    """One statement of each operation, space and kind of address, with 4 bytes rather than others."""
    found: dict[tuple[object, ...], Statement] = {}
    for s in statements():
        words = s.text.split()[0].split(".")
        reaches = s.space in ("", "shared", "to-shared") and s.access not in ("none", "aligned", "edit") and s.size <= WINDOW
        if not reaches or "inval" in words:  # an mbarrier ends once
            continue
        which = {"async", "bulk", "mbarrier", *(words[1:2] if words[0] in MANY else ())}
        said = [w for w in words if w in which or w.startswith(("shared", "v"))]
        key = (words[0], *said, s.access, s.space)
        if key not in found or (s.size == 4 and found[key].size != 4):
            found[key] = s
    return list(found.values())


def _named(text: str, names: dict[str, str]) -> str:
    for name, meant in names.items():
        text = text.replace(name, meant)
    return text


def _cases(chosen: list[Statement]) -> Iterator[str]:
    for number, s in enumerate(chosen):
        for way, register in enumerate(("%rd0", "%rd12")):
            names = {"{0}": register, "{n}": f"{number}_{way}"}
            if s.after.startswith("cp.async"):
                names["%rd9"] = "%rd13"  # lanes that lie in a row read a row
            text, before, after = (_named(t, names) for t in (s.text, s.before, s.after))
            stores, at = "", 0
            for name, bits in s.results[: RESULT // 8]:
                stores += f" st.global.b{bits} [%rd2+{at}], {name};"
                at += bits // 8
            yield f"W{2 * number + way}: {before}\n{text} {after}{stores} bra END;"


def kernel_of_ways(chosen: list[Statement]) -> str:
    """out: of both blocks, results of 32 lanes and the memory afterwards. source: what copies read from, or write to."""
    registers = [f".reg .b{b} %{x}{b}_<16>;" for b in (16, 32, 64, 128) for x in "ds"]
    set_up = [f"mov.b{b} %s{b}_{n}, 0x{f'{PATTERN:02x}' * (b // 8)};" for b in (16, 32, 64) for n in range(16)]
    set_up += [f"mov.b128 %s128_{n}, {{%s64_0, %s64_0}};" for n in range(2)]
    meet = "barrier.cluster.arrive; barrier.cluster.wait;"
    size = LANES * RESULT + WINDOW
    cases = "\n".join(_cases(chosen))
    return f"""
.version 9.5
.target {TARGET}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 source, .param .u64 address, .param .u32 number, .param .u32 step,
                  .param .u32 turn, .param .u32 lanes) .reqnctapercluster 2
{{
  .reg .b64 %rd<16>; .reg .b32 %i, %n, %t, %u, %l; .reg .pred %p; {" ".join(registers)}
  .shared .align 128 .b8 cells[{WINDOW}];
  ld.param.u64 %rd0, [address]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd9, [source]; ld.param.u32 %n, [number];
  ld.param.u32 %u, [turn]; ld.param.u32 %l, [lanes]; mov.u64 %rd8, cells; {" ".join(set_up)}
  mov.u32 %t, %tid.x; mov.u32 %i, %cluster_ctarank; mad.wide.u32 %rd2, %i, {size}, %rd2; mov.u64 %rd7, %rd2;
  shl.b32 %t, %t, 5; cvt.u64.u32 %rd3, %t; add.u64 %rd5, %rd8, %rd3;
  shl.b32 %i, %i, 7; add.u32 %t, %t, %i; mov.u32 %i, 0;
FILL: mad.lo.u32 %s32_15, %t, 37, 11; st.shared.u8 [%rd5], %s32_15; add.u32 %t, %t, 1; add.u64 %rd5, %rd5, 1;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 32; @%p bra FILL; mov.b32 %s32_15, %s32_0;
  mov.u32 %t, %tid.x; mad.wide.u32 %rd2, %t, {RESULT}, %rd2; mul.lo.u32 %u, %u, %t; and.b32 %u, %u, 31;
  ld.param.u32 %i, [step]; mul.wide.u32 %rd12, %u, %i; add.u64 %rd12, %rd0, %rd12; mad.wide.u32 %rd13, %t, 16, %rd9; {meet}
  mov.u32 %i, %cluster_ctarank; setp.ne.u32 %p, %i, {RANK}; @%p bra END; setp.ge.u32 %p, %t, %l; @%p bra END;
ways: .branchtargets {", ".join(f"W{n}" for n in range(2 * len(chosen)))};
  brx.idx %n, ways;
{cases}
END: {meet} mov.u32 %t, %tid.x; shl.b32 %t, %t, 5; cvt.u64.u32 %rd3, %t; mov.u32 %i, 0;
  add.u64 %rd4, %rd7, %rd3; add.u64 %rd5, %rd8, %rd3;
DUMP: ld.shared.u64 %rd6, [%rd5]; st.global.u64 [%rd4+{LANES * RESULT}], %rd6; add.u64 %rd4, %rd4, 8; add.u64 %rd5, %rd5, 8;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4; @%p bra DUMP;
  ret;
}}
"""


def held(rank: int) -> np.ndarray:
    """The bytes of a block's shared memory before a statement runs."""
    return ((np.arange(WINDOW) + 128 * rank) * 37 + 11 & 0xFF).astype(np.uint8)


class ClusterWalk:
    """A kernel of all statements. One launch of it is one statement in the block of rank 1 of a cluster of two."""

    def __init__(self) -> None:
        self.statements = chosen()
        self.kernel = Module.load(kernel_of_ways(self.statements), name="ways.ptx")["k"]

    def ways(self, number: int) -> list[str]:
        """Those in which lanes do not disturb each other: what has an mbarrier of its own, or clears many bytes, goes alone."""
        s = self.statements[number]
        if s.lanes == 32 and (s.text.startswith("wmma") or s.size * LANES > WINDOW):
            return ["uniform", "one"]
        alone = s.lanes == 1 and ((s.before and not s.words) or s.size * LANES > WINDOW or "bulk" in s.text)
        return ["lane1", "lane"] if alone else list(WAYS)[: 5 - (s.lanes == 32)]

    def lanes(self, number: int, way: str) -> list[int]:
        """The place of each lane that takes part, from the first on, in bytes."""
        _, turn, count = WAYS["lane" if way == "lane1" else way]
        return [lane * turn % LANES * self.statements[number].size for lane in range(count)]

    def outcome(self, number: int, way: str, place: str, instrument: str) -> str | tuple[np.ndarray, np.ndarray]:
        """The fault's words, or results of the lanes and [rank, byte] of the memory."""
        s = self.statements[number]
        uniform, turn, count = (True, 0, 1) if way == "lane1" else WAYS[way]
        rank, offset = PLACES[place]
        address = rank << RANK_SHIFT | SHARED_BASE + offset
        if s.space != "shared":
            address |= SLOT_SHARED << SLOT_SHIFT
        out = np.zeros((2, LANES * RESULT + WINDOW), np.uint8)
        args = [out, np.full(LANES * 16, PATTERN, np.uint8), address, 2 * number + (not uniform), s.size, turn, count]
        try:
            watch = [(0, (0, 0))] if instrument == "watched" else ()
            self.kernel.launch(2, LANES, args, timeout=600, threads=1, watch=watch, sanitize=instrument == "sanitized")
        except ExecutionFault as error:
            return error.message.partition(" (")[0]
        return out[RANK, : LANES * RESULT], out[:, LANES * RESULT :]


def same(one: str | tuple[np.ndarray, ...], other: str | tuple[np.ndarray, ...]) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and one == other
    return all((a == b).all() for a, b in zip(one, other))


def wrong_bytes(walk: ClusterWalk, number: int, way: str, place: str, seen: tuple[np.ndarray, np.ndarray]) -> str:
    """The bytes that a statement which ended well read or wrote in a wrong place, in words; "" if there are none."""
    s, (rank, _) = walk.statements[number], PLACES[place]
    results, memory = seen
    before = np.array([held(0), held(1)])
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
    return "did not write" if written and (memory[inside] != PATTERN).any() else ""


@pytest.mark.full
def test_every_way_into_shared_memory_ends_the_same() -> None:
    """One result or one fault: whether lanes are known to have one address, do have one, lie in a row or apart, or one goes
    alone; and whether somebody looks on."""
    walk = ClusterWalk()
    found = []
    for number, s in enumerate(walk.statements):
        for place in PLACES:
            faults = set()
            for way in walk.ways(number):
                plain, *others = (walk.outcome(number, way, place, i) for i in INSTRUMENTS)
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
