"""The clusters of a launch as workers take them: each once, in order or as a seed has it, whoever asks."""

import ctypes
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from mmulator.base.codegen.loading import address
from mmulator.host.module import Module
from mmulator.runtime.launch import resident, workers
from mmulator.runtime.launch.arena import Heap, pointer
from mmulator.runtime.launch.grid import Grid, Line, order
from mmulator.runtime.native.state import Cluster, Launch, Share
from mmulator.runtime.native.threads.cluster import NO_CLUSTER, begin_next, next_cluster
from tests.support.ptx_text import kernel


def taker(line: Line) -> tuple[np.ndarray, object]:
    launch = np.zeros(1, Launch.numpy_dtype())
    launch["line"] = line.address
    native = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address(next_cluster))
    return launch, lambda: native(pointer(launch))


@pytest.mark.parametrize("clusters", [1, 2, 5, 263, 264, 265, 500, 528, 529, 2000])
@pytest.mark.parametrize("seed", [None, 1, 7])
def test_each_is_taken_once_and_python_knows_which_is_next(clusters: int, seed: int | None) -> None:
    line = Line(Heap())
    line.begin(clusters, *(order(clusters, 264, seed) if seed is not None else ()))
    _launch, take = taker(line)
    taken = []
    for n in range(clusters):
        expected = line.next
        assert (line.taken, line.left) == (n, clusters - n)
        taken.append(take())  # type: ignore[operator]
        assert taken[-1] == expected
    assert [take() for _ in range(3)] == [NO_CLUSTER] * 3 and line.left == 0  # type: ignore[operator]
    assert sorted(taken) == [*range(clusters)]
    assert all(abs(number - n) < 264 for n, number in enumerate(taken))
    if seed is None:
        assert taken == [*range(clusters)]


def test_a_part_of_them() -> None:
    line = Line(Heap())
    line.begin(9, taken=6)
    _launch, take = taker(line)
    assert [take() for _ in range(4)] == [6, 7, 8, NO_CLUSTER]  # type: ignore[operator]
    line.begin(2)
    assert [take() for _ in range(3)] == [0, 1, NO_CLUSTER]  # type: ignore[operator]


def test_threads_take_together() -> None:
    line = Line(Heap())
    line.begin(20000)
    _launch, take = taker(line)
    found: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        while (number := take()) != NO_CLUSTER:  # type: ignore[operator]
            mine.append(number)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(n for mine in found for n in mine) == [*range(20000)]
    assert all(mine == sorted(mine) for mine in found)


def worker(line: Line, most: int, of: int) -> tuple[object, Callable[[], int]]:
    """One of several workers, who takes so many at once; what takes for it."""
    launch, cluster = np.zeros(1, Launch.numpy_dtype()), np.zeros(1, Cluster.numpy_dtype())
    share = np.array([(0, 0, most, of)], Share.numpy_dtype())
    launch["line"], cluster["launch"], cluster["share"] = line.address, pointer(launch), pointer(share)
    native = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address(begin_next))
    return (launch, cluster, share), lambda: native(pointer(cluster))


@pytest.mark.parametrize("clusters", [1, 5, 264, 529, 2000])
@pytest.mark.parametrize(("most", "of"), [(0, 2), (1, 2), (16, 2), (64, 3)])
@pytest.mark.parametrize("seed", [None, 7])
def test_workers_take_neighbours(clusters: int, most: int, of: int, seed: int | None) -> None:
    """By turns, as workers of one speed do; each is begun once, and who has the last is soon done."""
    line = Line(Heap())
    line.begin(clusters, *(order(clusters, 264, seed) if seed is not None else ()))
    begun: list[list[int]] = [[] for _ in range(of)]
    _kept, takers = zip(*(worker(line, most, of) for _ in range(of)))
    left = set(range(of))
    while left:
        for n in sorted(left):
            number = takers[n]()
            if number == NO_CLUSTER:
                left.remove(n)
            else:
                begun[n].append(number)
    assert sorted(n for mine in begun for n in mine) == [*range(clusters)]
    assert max(map(len, begun)) - min(map(len, begun)) <= 1
    if clusters == 2000 and most > 1:
        assert sum(b - a == 1 for mine in begun for a, b in itertools.pairwise(mine)) > 1200
    elif most < 2 and seed is None:
        assert begun == [[*range(n, clusters, of)] for n in range(of)]


def test_threads_take_neighbours_together() -> None:
    line = Line(Heap())
    line.begin(50000)
    kept, takers = zip(*(worker(line, 16, 4) for _ in range(4)))
    found: list[list[int]] = [[] for _ in takers]

    def work(n: int) -> None:
        while (number := takers[n]()) != NO_CLUSTER:
            found[n].append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(kept) == 4 and sorted(n for mine in found for n in mine) == [*range(50000)]
    assert all(mine == sorted(mine) for mine in found)


# Each block tells that it is there, and waits: for all of the grid, for the one before it, for the one behind it.
MEETS = """
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1;
  atom.global.add.u32 %r3, [%rd0+4096], 1; mov.u32 %r4, 1;
"""
WAITS = {
    "all": "st.global.u32 [%rd2], %r4; W: ld.volatile.global.u32 %r5, [%rd0+4096]; setp.lt.u32 %p1, %r5, %r2; @%p1 bra W;",
    "before": """setp.eq.u32 %p1, %r1, 0; @%p1 bra F;
W: ld.volatile.global.u32 %r5, [%rd2+-4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra W;
F: st.volatile.global.u32 [%rd2], %r4;""",
    "behind": """sub.u32 %r6, %r2, 1; setp.eq.u32 %p1, %r1, %r6; @%p1 bra F;
W: ld.volatile.global.u32 %r5, [%rd2+4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra W; F: st.volatile.global.u32 [%rd2], %r4;""",
}


@pytest.mark.parametrize(("name", "blocks"), [*((n, b) for n in ("all", "before") for b in (2, 60, 200)), ("behind", 9)])
def test_blocks_wait_for_what_their_worker_has_not_begun(name: str, blocks: int) -> None:
    k, out = Module.load(kernel(MEETS + WAITS[name]))["k"], np.zeros(1025, np.uint32)
    k.compile().pace = 1e-7  # it was quick the last time: workers take many at once
    report = k.launch(blocks, 32, [out], threads=2, timeout=600)
    assert report.threads == 2 and (out[:blocks] == 1).all() and out[1024] == blocks * 32


def test_what_workers_take_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as is known to be work for a while, from the first launch on; nothing where blocks are long, or one by one."""
    taken: list[int] = []
    settle = workers.Workers._settle

    def noted(self: workers.Workers, resident: resident.Resident, over: bool) -> bool:
        taken.append(-1 if self.shares is None else int(self.shares[0, 2]))
        assert self.shares is None or (self.shares[:, 3] == 2).all()
        return settle(self, resident, over)

    monkeypatch.setattr(workers.Workers, "_settle", noted)
    short, out = Module.load(kernel("mov.u32 %r1, 0;"))["k"], [np.zeros(1, np.uint32)]
    long = Module.load(kernel("mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300000; @%p1 bra L;"))["k"]
    for k, blocks, options, least, most in (
        (short, 40000, {}, 2, workers.MOST_SHARED), (short, 40000, {}, 2, workers.MOST_SHARED),
        (long, 8, {}, 0, 0), (long, 8, {}, 0, 0),
        (short, 400, {"cooperative": True}, -1, -1), (short, 400, {"sanitize": True}, -1, -1),
    ):  # fmt: skip
        taken.clear()
        k.launch(blocks, 32, out, threads=2, **options)
        assert least <= max(taken) <= most, (blocks, options, taken)


def test_nobody_shares_a_line_of_the_cache() -> None:
    """Workers count at every block of code: what lies side by side costs both."""
    for count, blocks in ((1, 5), (2, 1), (3, 5), (4, 16), (2, 17)):
        rows, shares = workers._counters(count, blocks)
        assert rows.shape == (count, blocks) and not rows.any()
        places = [(pointer(rows) + n * rows.strides[0], blocks * 8) for n in range(count)]
        if shares is not None:
            assert shares.shape == (count, Share.size // 8) and shares.strides == rows.strides and not shares.any()
            places += [(pointer(shares) + n * shares.strides[0], Share.size) for n in range(count)]
        lines = [set(range(at // 64, (at + size - 1) // 64 + 1)) for at, size in places]
        assert count == 1 or sum(map(len, lines)) == len(set.union(*lines))
    assert Line(Heap()).address % 128 == 0


def test_a_turn_is_a_clusters_and_not_a_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that have run cluster after cluster for longer than a turn set none aside: no memory is made for a third."""
    clocks, made = defaultdict[int, Iterator[int]](itertools.count), []  # a thread's counts its own pieces of work
    clock = SimpleNamespace(perf_counter=lambda: next(clocks[threading.get_ident()]) / 500)
    monkeypatch.setattr(workers, "time", clock)
    one = resident.Resident.__init__

    def counted(self: resident.Resident, grid: Grid) -> None:
        made.append(grid.shape.clusters)
        one(self, grid)

    monkeypatch.setattr(resident.Resident, "__init__", counted)
    k = Module.load(kernel("mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 90; @%p1 bra L;"))["k"]
    report = k.launch(20000, 32, [np.zeros(1, np.uint32)], threads=2)
    assert report.threads == 2 and sum(map(next, clocks.values())) > 300
    assert 1 <= len(made) <= 2
