"""Bulk operations in a cluster's table: each done once, part by part in order, late by seed; and what a forgotten wait shows."""

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Kernel, Module
from mmulator.runtime.native.state import TRANSFERS, Transfer
from tests.support.ptx_text import kernel

SEEDS = range(32)
TRANSFER = np.dtype(Transfer.numpy_dtype())

# of bytes in shared memory `buf`; the mbarrier is initialised for one arrival
BEGIN = """
  .shared .align 128 .b8 buf[{bytes}]; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [in];
  mov.u32 %r10, %tid.x; setp.ne.u32 %p10, %r10, 0;
  @!%p10 mbarrier.init.shared.b64 [bar], 1;
  bar.sync 0;
"""
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [bar];"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {}; cp.async.bulk.commit_group;"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};"
WAIT = "W{0}: mbarrier.try_wait.parity.shared.b64 %p1, [bar], {1}; @!%p1 bra W{0};"


def load(body: str) -> Kernel:
    return Module.load(kernel(body, ".param .u64 in, .param .u64 out"), name="transfers.ptx")["k"]


loaded = cache(load)


def run(body: str, source: np.ndarray, out: np.ndarray, seed: int, threads: int = 1, grid: int = 1, **more: Any) -> np.ndarray:
    """A launch with copies of the arrays; `out` afterwards."""
    result = out.copy()
    loaded(body).launch(grid, threads, [source.copy(), result], seed=seed, timeout=600, threads=1, **more)
    return result


def outcomes(body: str, source: np.ndarray, out: np.ndarray, **more: Any) -> set[bytes]:
    """What all seeds give: bytes of `out`, or a fault."""
    found = set()
    for seed in SEEDS:
        try:
            found.add(run(body, source, out, seed, **more).tobytes())
        except ExecutionFault as error:
            found.add(error.message.encode())
    return found


# what is done ---------------------------------------------------------------------------------------------------------
Mover = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)


def watched(body: str, seed: int, arguments: list[Any], threads: int) -> dict[int, list[tuple[int, int, int]]]:
    """(first unit, end, units) of each piece of work, by the number of the transfer: every mover of the kernel, a new one, is
    called by one that writes down what it was called for."""
    seen: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    k = load(body)
    movers = k.compile().movers

    def noting(move: Callable[..., int]) -> Callable[..., int]:
        def note(w: int, t: int, first: int, end: int) -> int:
            transfer = np.frombuffer(ctypes.string_at(t, TRANSFER.itemsize), TRANSFER)[0]
            seen[int(transfer["number"])].append((first, end, int(transfer["units"])))
            return move(w, t, first, end)

        return note

    callbacks = {kind: Mover(noting(Mover(at))) for kind, at in movers.items()}
    movers.update({kind: ctypes.cast(c, ctypes.c_void_p).value or 0 for kind, c in callbacks.items()})
    k.launch(1, threads, arguments, seed=seed, timeout=600, threads=1)
    return seen


MANY = f"""
{BEGIN.format(bytes=65536)}
  shl.b32 %r1, %r10, 10; mov.u32 %r2, buf; add.u32 %r2, %r2, %r1; cvt.u64.u32 %rd2, %r1; add.u64 %rd3, %rd1, %rd2;
  add.u64 %rd4, %rd0, %rd2;
  {{ .reg .pred %first; setp.eq.u32 %first, %r10, 0; @%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32768; }}
  {LOAD.format("%r2", "%rd3", 1024)}
  {WAIT.format(0, 0)}
  {STORE.format("%rd4", "%r2", 1024)}
  {STORE.format("%rd4+32768", "%r2", 512)}
  cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_unit_is_done_once_and_in_order(seed: int) -> None:
    source, out = np.arange(8192, dtype=np.uint32), np.zeros(16384, np.uint32)
    seen = watched(MANY, seed, [source, out], 32)
    assert sorted(seen) == list(range(96))
    for pieces in seen.values():
        assert [first for first, _, _ in pieces] == [0, *(end for _, end, _ in pieces[:-1])]
        assert all(first < end for first, end, _ in pieces) and pieces[-1][1] == pieces[-1][2]
    assert (out[:8192] == source).all()


def test_a_seed_completes_some_at_once_some_in_parts_and_some_late() -> None:
    """And not in the order of their issue."""
    pieces, orders = set(), set()
    for seed in SEEDS:
        seen = watched(MANY, seed, [np.zeros(8192, np.uint32), np.zeros(16384, np.uint32)], 32)
        pieces |= {len(p) for p in seen.values()}
        orders.add(tuple(seen) == tuple(sorted(seen)))
    assert pieces == {1, 2} and False in orders


def test_a_seed_decides_alone() -> None:
    """The same launch does the same pieces in the same order."""
    for seed in (3, 4):
        first, second = (
            [*watched(MANY, seed, [np.zeros(8192, np.uint32), np.zeros(16384, np.uint32)], 32).items()] for _ in range(2)
        )
        assert first == second


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_count_every_element_once(seed: int) -> None:
    """64 lanes add to the same numbers, without an order."""
    body = f"""
{BEGIN.format(bytes=4096)}
  mad.lo.u32 %r2, %r10, 4, 0; mov.u32 %r3, buf; add.u32 %r3, %r3, %r2;
  mov.u32 %r4, 0;
F: st.shared.u32 [%r3], 1; add.u32 %r3, %r3, 256; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 16; @%p1 bra F;
  bar.sync 0;
  mov.u32 %r3, buf;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r3], 4096;
  cp.async.bulk.commit_group;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0+16], [%r3+16], 2000;
"""
    out = run(body, np.zeros(1, np.uint32), np.zeros(1024, np.uint32), seed, threads=64, grid=3)
    wanted = np.full(1024, 3 * 64)
    wanted[4 : 4 + 500] += 3 * 64
    assert (out == wanted).all()


def test_thousands_of_copies_under_way() -> None:
    """More than the table has room for, of 16 bytes each; the mbarrier hears of all."""
    per = 40
    body = f"""
{BEGIN.format(bytes=16 * 32 * per)}
  @!%p10 {EXPECT.format(16 * 32 * per)}
  mov.u32 %r4, 0; mad.lo.u32 %r5, %r10, {16 * per}, 0;
L: mov.u32 %r3, buf; add.u32 %r3, %r3, %r5; cvt.u64.u32 %rd2, %r5; add.u64 %rd2, %rd1, %rd2;
  {LOAD.format("%r3", "%rd2", 16)}
  add.u32 %r5, %r5, 16; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, {per}; @%p1 bra L;
  {WAIT.format(0, 0)}
  bar.sync 0;
  mov.u32 %r3, buf;
  @!%p10 {STORE.format("%rd0", "%r3", 16 * 32 * per).partition(";")[0]};
"""
    assert 32 * per > 4 * TRANSFERS
    source = np.arange(4 * 32 * per, dtype=np.uint32)
    assert outcomes(body, source, np.zeros_like(source), threads=32) == {source.tobytes()}


# groups ---------------------------------------------------------------------------------------------------------------
def groups(wait: str, commits: int = 4) -> str:
    """Four stores of 1024 bytes in groups, a wait, a snapshot of what is there, and the end."""
    issue = "".join(
        f"cp.async.bulk.global.shared::cta.bulk_group [%rd0+{1024 * n}], [buf+{1024 * n}], 1024;"
        + ("cp.async.bulk.commit_group;" if n < commits else "")
        for n in range(4)
    )
    snap = "".join(f"ld.global.u32 %r1, [%rd0+{at}]; st.global.u32 [%rd0+{4096 + n * 4}], %r1;" for n, at in
                   enumerate(1024 * k + b for k in range(4) for b in (0, 1020)))  # fmt: skip
    return f"""
{BEGIN.format(bytes=4096)}
  {EXPECT.format(4096)} {LOAD.format("buf", "%rd1", 4096)} {WAIT.format(0, 0)}
  {issue} {wait}
  {snap}
"""


@pytest.mark.parametrize(
    ("wait", "commits", "sure"),
    [
        ("cp.async.bulk.wait_group 0;", 4, 4), ("cp.async.bulk.wait_group 1;", 4, 3), ("cp.async.bulk.wait_group 3;", 4, 1),
        ("cp.async.bulk.wait_group 4;", 4, 0), ("cp.async.bulk.wait_group 0;", 2, 2), ("cp.async.bulk.wait_group.read 0;", 4, 0),
        ("", 4, 0),
    ],
)  # fmt: skip
def test_a_wait_leaves_nothing_of_its_groups_and_may_leave_the_rest(wait: str, commits: int, sure: int) -> None:
    source = np.arange(1, 1025, dtype=np.uint32)
    ends = source.reshape(4, 256)[:, [0, -1]].ravel()
    seen: list[np.ndarray] = []
    for seed in SEEDS:
        out = run(groups(wait, commits), source, np.zeros(1024 + 8, np.uint32), seed)
        assert (out[:1024] == source).all(), "what nobody waited for is there when the kernel is over"
        seen.append(out[1024:])
    there = np.array(seen) == ends
    assert there[:, : 2 * sure].all()
    for n in range(2 * sure, 8):
        assert not there[:, n].all() and there[:, n].any(), f"place {n}"


def test_bytes_come_in_parts() -> None:
    """Under some seed the first bytes of a store are there and the last are not; never the other way round."""
    found = set()
    for seed in SEEDS:
        out = run(groups(""), np.ones(1024, np.uint32), np.zeros(1032, np.uint32), seed)
        found |= {tuple(pair) for pair in out[1024:].reshape(4, 2).tolist()}
    assert found == {(0, 0), (1, 0), (1, 1)}


def test_groups_are_of_each_lane() -> None:
    """Lane 1 commits and waits; lane 0 has not, and may see its own store late."""
    body = f"""
{BEGIN.format(bytes=2048)}
  @!%p10 {EXPECT.format(2048)}
  mov.u32 %r3, buf; @!%p10 {LOAD.format("%r3", "%rd1", 2048)}
  {WAIT.format(0, 0)}
  shl.b32 %r2, %r10, 10; add.u32 %r3, %r3, %r2; cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd0, %rd2;
  {STORE.format("%rd2", "%r3", 1024)}
  @%p10 cp.async.bulk.wait_group 0;
  ld.global.u32 %r4, [%rd2]; mul.wide.u32 %rd3, %r10, 4; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3+2048], %r4;
"""
    seen = np.array([run(body, np.ones(512, np.uint32), np.zeros(514, np.uint32), s, threads=2)[512:] for s in SEEDS])
    assert seen[:, 1].all() and not seen[:, 0].all() and seen[:, 0].any()


def test_seed_0_keeps_stores_of_a_thread_in_order() -> None:
    """As programs that others wrote expect: behind wait_group.read the bytes are there, and the last store to a place wins."""
    body = f"""
{BEGIN.format(bytes=4096)}
  {EXPECT.format(4096)} {LOAD.format("buf", "%rd1", 4096)} {WAIT.format(0, 0)}
  {"".join(STORE.format("%rd0", f"buf+{1024 * n}", 1024) for n in range(4))}
  cp.async.bulk.wait_group.read 0;
  ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+1024], %r1;
"""
    source = np.repeat(np.arange(1, 5, dtype=np.uint32), 256)
    out = run(body, source, np.zeros(257, np.uint32), 0)
    assert (out == 4).all()
    assert len({run(body, source, np.zeros(257, np.uint32), seed).tobytes() for seed in SEEDS}) > 2


# kernels that are right, and kernels that forget something --------------------------------------------------------------
def pipeline(wait_full: bool = True, wait_read: bool = True, wait_free: bool = True) -> str:
    """Tiles of 2048 bytes through one buffer: load, add 1, store; what it leaves out is said."""
    return f"""
{BEGIN.format(bytes=2048)}
  mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r3, buf;
T: {"" if wait_read else "//"} @!%p10 cp.async.bulk.wait_group.read 0;
  {"bar.sync 0;" if wait_free else ""}
  @!%p10 {EXPECT.format(2048)}
  @!%p10 {LOAD.format("%r3", "%rd1", 2048)}
  {WAIT.format(0, "%r21") if wait_full else ""}
  shl.b32 %r4, %r10, 4; add.u32 %r5, %r3, %r4;
  ld.shared.v4.u32 {{%r6, %r7, %r8, %r9}}, [%r5];
  add.u32 %r6, %r6, 1; add.u32 %r7, %r7, 1; add.u32 %r8, %r8, 1; add.u32 %r9, %r9, 1;
  st.shared.v4.u32 [%r5], {{%r6, %r7, %r8, %r9}};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p10 {STORE.format("%rd0", "%r3", 2048).split(";")[0]};
  @!%p10 cp.async.bulk.commit_group;
  xor.b32 %r21, %r21, 1; add.u64 %rd1, %rd1, 2048; add.u64 %rd0, %rd0, 2048;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 4; @%p2 bra T;
  @!%p10 cp.async.bulk.wait_group 0;
"""


TILES = np.arange(2048, dtype=np.uint32)


def test_a_correct_pipeline_has_the_same_bits_for_every_seed() -> None:
    assert outcomes(pipeline(), TILES, np.zeros_like(TILES), threads=128) == {(TILES + 1).tobytes()}


@pytest.mark.parametrize(
    "left_out", [{"wait_full": False}, {"wait_read": False}], ids=["the wait for the load", "the wait for the store's reads"]
)
def test_a_pipeline_without_a_wait_shows(left_out: dict[str, bool]) -> None:
    """In the bytes, or since the producer arrives twice in a phase, which traps on a chip too."""
    try:
        found = outcomes(pipeline(**left_out), TILES, np.zeros_like(TILES), threads=128)
    except ExecutionFault as error:
        assert "of 1 arrival at bar" in error.message and "awaits 0 arrivals" in error.message
    else:
        assert found != {(TILES + 1).tobytes()}


def test_a_source_that_is_overwritten_shows_without_a_wait() -> None:
    """With wait_group.read it does not, though the bytes may be written later."""

    def body(wait: str) -> str:
        return f"""
{BEGIN.format(bytes=1024)}
  {EXPECT.format(1024)} {LOAD.format("buf", "%rd1", 1024)} {WAIT.format(0, 0)}
  {STORE.format("%rd0", "buf", 1024)} {wait}
  st.shared.u32 [buf], 99; st.shared.u32 [buf+1020], 99;
"""

    ones = np.ones(256, np.uint32)
    assert outcomes(body("cp.async.bulk.wait_group.read 0;"), ones, ones * 0) == {ones.tobytes()}
    assert len(outcomes(body(""), ones, ones * 0)) == 3  # neither, the last, both


def test_a_buffer_that_is_loaded_again_too_early_shows() -> None:
    """Two loads into one buffer: the last one issued need not be the last one that writes."""
    body = f"""
{BEGIN.format(bytes=1024)}
  {EXPECT.format(2048)} {LOAD.format("buf", "%rd1", 1024)} {LOAD.format("buf", "%rd1+1024", 1024)} {WAIT.format(0, 0)}
  {STORE.format("%rd0", "buf", 1024)}
"""
    source = np.repeat(np.array([1, 2], np.uint32), 256)
    assert len(outcomes(body, source, np.zeros(256, np.uint32))) > 1


def test_a_source_in_global_memory_is_read_as_late() -> None:
    """A kernel that overwrites what a copy under way still reads."""
    body = f"""
{BEGIN.format(bytes=1024)}
  {EXPECT.format(1024)} {LOAD.format("buf", "%rd1", 1024)} st.global.u32 [%rd1], 5; {WAIT.format(0, 0)}
  {STORE.format("%rd0", "buf", 1024)}
"""
    assert len(outcomes(body, np.ones(256, np.uint32), np.zeros(256, np.uint32))) == 2


# clusters ---------------------------------------------------------------------------------------------------------------
# block 0 copies its data into block 1, which says that it is ready, and whether it waits
NEIGHBOUR = f"""
{BEGIN.format(bytes=1024)}
  mov.u32 %r1, %ctaid.x; setp.eq.u32 %p3, %r1, 0; mov.u32 %r3, buf; mov.u32 %r4, bar;
  @%p3 bra SEND;
  {{}}
  {EXPECT.format(1024)}
  fence.acq_rel.gpu; st.volatile.global.u32 [%rd1+1024], 1;
  {{}}
  bra END;
SEND: ld.volatile.global.u32 %r5, [%rd1+1024]; setp.eq.u32 %p4, %r5, 0; @%p4 bra SEND;
  fence.acq_rel.gpu;
  mapa.shared::cluster.u32 %r6, %r3, 1; mapa.shared::cluster.u32 %r7, %r4, 1;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd1], 1024, [%r7];
END:
"""
READY = np.append(np.arange(256, dtype=np.uint32), np.zeros(4, np.uint32))


def test_a_copy_into_another_block() -> None:
    body = NEIGHBOUR.format("", f'{WAIT.format(0, 0)} {STORE.format("%rd0", "buf", 1024)}')
    assert outcomes(body, READY, np.zeros(256, np.uint32), grid=2, cluster=2) == {READY[:256].tobytes()}


def test_a_block_that_exits_under_a_copy_is_a_fault() -> None:
    """Nobody there waits for the bytes, so under some seed they come when the block is gone."""
    said = set()
    for seed in SEEDS:
        try:
            run(NEIGHBOUR.format("", ""), READY, np.zeros(256, np.uint32), seed, grid=2, cluster=2)
        except ExecutionFault as error:
            said.add(error.message)
    assert said and all("cp.async.bulk" in m and "exited" in m and "block (0, 0, 0)" in m for m in said), said


def test_more_sources_than_can_be_kept_elsewhere() -> None:
    """Stores of 32 KiB whose sources are overwritten, while a load is under way that nobody waits for until the end."""
    body = f"""
{BEGIN.format(bytes=32768)}
  .shared .align 16 .b8 other[16]; mov.u32 %r3, buf; mov.u32 %r4, other;
  {EXPECT.format(16)} {LOAD.format("%r4", "%rd1", 16)}
  mov.u32 %r5, 0;
T: cp.async.bulk.wait_group.read 0;
  add.u32 %r6, %r5, 1; st.shared.u32 [buf], %r6; st.shared.u32 [buf+32764], %r6;
  {STORE.format("%rd0", "%r3", 32768).split(";")[0]}; cp.async.bulk.commit_group;
  add.u64 %rd0, %rd0, 32768; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 24; @%p2 bra T;
  {WAIT.format(0, 0)}
"""
    wanted = np.zeros((24, 8192), np.uint32)
    wanted[:, 0] = wanted[:, -1] = np.arange(1, 25)
    assert outcomes(body, np.zeros(4, np.uint32), np.zeros((24, 8192), np.uint32)) == {wanted.tobytes()}


LONG = """
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 window[];
.visible .entry k(.param .u64 to)
{
  .reg .b64 %rd; .reg .b32 %r;
  ld.param.u64 %rd, [to]; mov.u32 %r, window;
L: COPIES bra L;
}
"""
REDUCTION = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd], [%r], 200000;"


def test_long_transfers_keep_to_the_time_limit() -> None:
    """A turn is thousands of blocks of code, each with a second of work here: the worker looks up between them."""
    kernel = Module.load(LONG.replace("COPIES", REDUCTION * 8))["k"]
    kernel.compile()
    began = time.process_time()
    with pytest.raises(ExecutionFault, match=r"did not finish within 0\.1 s"):
        kernel.launch(1, 32, [np.zeros(100_000, np.float16)], shared=200_000, threads=1, timeout=0.1)
    assert time.process_time() - began < 20
