"""What a launch read and wrote, byte for byte: as a trace has it; and what is made of that."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmulator.evaluation.spread.memory import Conflict, Memory, Traces, conflict
from mmulator.host.module import Kernel, Module
from mmulator.runtime.launch.launch import How
from mmulator.runtime.launch.regions import Region
from mmulator.runtime.native.hooks.events import Access
from mmulator.sanitizer.diagnostics import touched
from mmulator.sanitizer.diagnostics.touched import Touched, put, runs_of, taken, within
from tests.spread.kernels import kernel
from tests.support.memory_ways import Walk, pattern, statements
from tests.support.tracing import MEMORY, traced

Bytes = set[int]


def bytes_of(runs: np.ndarray) -> Bytes:
    return {b for begin, end in runs.tolist() for b in range(begin, end)}


def runs(chosen: Bytes) -> np.ndarray:
    bits = np.zeros(max(chosen, default=0) // 64 + 1, np.uint64)
    for b in chosen:
        bits[b // 64] |= np.uint64(1 << b % 64)
    return runs_of(bits)


# the instrument -----------------------------------------------------------------------------------------------------
def noted(k: Kernel, grid: int, block: int, args: list[Any]) -> tuple[Bytes, Bytes]:
    """Addresses of arguments that a launch reads and writes."""
    device = k.module.default_device
    launch = k.prepared(grid, block, args, 0, device)
    memory = Memory.of([], launch.arguments.buffers)
    note = Touched([(w.start, w.size, first) for w, first in memory.windows], memory.size)
    k.run(launch, How(), [note])
    place = {first + n: w.start + n for w, first in memory.windows for n in range(w.size)}
    return {place[b] for b in bytes_of(runs_of(note.read))}, {place[b] for b in bytes_of(runs_of(note.written))}


def told(k: Kernel, grid: int, block: int, args: list[Any]) -> tuple[Bytes, Bytes]:
    """The same, of a trace."""
    found = [e for e in traced(k, grid, block, args) if e.kind == MEMORY]
    return tuple(  # type: ignore[return-value]
        {a for e in found if e.access & way for a in e.touched if a >> 32 >= 16} for way in (Access.READ, Access.WRITE)
    )


def test_every_way_into_global_memory() -> None:
    """A statement of each kind: loads, stores, atomic operations, copies of all sorts, matrices."""
    kinds = {(s.text.split(".")[0], s.access, s.size, s.lanes): s for s in statements() if s.space in ("", "global")}
    w = Walk(list(kinds.values()))
    assert len(kinds) > 20
    start = w.windows["global"][0]
    read = written = 0
    for number, s in enumerate(w.statements):
        def args(number: int = number) -> list[Any]:
            return [pattern().copy(), np.zeros_like(w.out), start, number, pattern()]

        found = noted(w.kernel, 1, s.lanes, args())
        assert found == told(w.kernel, 1, s.lanes, args()), s.name
        read, written = read + bool(found[0]), written + bool(found[1])
    assert read > 5 and written > 5


LANES = {
    "in a row": "", "all one": "and.b32 %i, %i, 0;", "backwards": "sub.u32 %i, 95, %i;", "far apart": "mul.lo.u32 %i, %i, 3;",
    "some": "setp.gt.u32 %p, %r0, 40; @%p ret; setp.lt.u32 %p, %r0, 7; @%p ret;", "odd ones": "and.b32 %r5, %r0, 1; "
    "setp.eq.u32 %p, %r5, 0; @%p ret;", "two rows": "and.b32 %r5, %r0, 16; add.u32 %i, %i, %r5;",
}  # fmt: skip


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize(("kind", "bytes"), [("u8", 1), ("u16", 2), ("u32", 4), ("v2.u32", 8), ("v4.u32", 16)])
def test_lanes(lanes: str, kind: str, bytes: int) -> None:
    """In a row, apart, one place, some of them; the last block is a half warp. Words of the map are begun and left inside."""
    registers = {"v2.u32": "{%r2, %r3}", "v4.u32": "{%r2, %r3, %r6, %r7}"}.get(kind, "%r2")
    k = kernel(
        f"{lanes} mul.wide.u32 %rd1, %i, {bytes}; ld.param.u64 %rd2, [x]; add.u64 %rd2, %rd2, %rd1; ld.param.u64 %rd3, [y]; "
        f"add.u64 %rd3, %rd3, %rd1; ld.global.{kind} {registers}, [%rd2+{bytes}]; st.global.{kind} [%rd3], {registers};"
    )  # fmt: skip

    def args() -> list[Any]:
        return [np.zeros(8192, np.uint8)[16 * 3 :], np.zeros(8192, np.uint8)]

    found = noted(k, 2, 48, args())
    assert found == told(k, 2, 48, args())
    assert min(map(len, found)) >= bytes


def test_one_memory_in_two_windows() -> None:
    memory = np.zeros(64, np.uint32)
    m = Memory.of([], [Region.of(n << 32, part, "x") for n, part in ((16, memory), (18, memory[8:24]), (20, memory[40:]))])
    whole = memory.ctypes.data
    firsts = [first for _, first in m.windows]
    assert [first - firsts[0] for first in firsts] == [0, 32, 160] and len(m.pieces) == 1
    assert (m.firsts[0] - whole) % 64 == 0 and m.size == m.firsts[0] + 256
    memory[:] = np.arange(64)
    row = m.copy()
    assert (row[m.firsts[0] :].view(np.uint32) == memory).all() and (row.ctypes.data + m.firsts[0] - whole) % 64 == 0
    assert m.describe(m.firsts[0] + 33) == "byte 33 of x, address 0x1000000021"
    m.store(np.array([[m.firsts[0] + 4, m.firsts[0] + 12]]), np.full(8, 255, np.uint8))
    assert memory.tolist()[:4] == [0, 2**32 - 1, 2**32 - 1, 3]


def test_the_same_work_is_counted() -> None:
    """An instrument changes nothing of a launch."""
    k = kernel("ld.global.u32 %r2, [%x]; st.global.u32 [%y], %r2;")
    args = [np.zeros(64, np.uint32), np.zeros(64, np.uint32)]
    note = Touched([], 0)
    ran = k.run(k.prepared(2, 32, args, 0, "sm_90"), How(), [note])
    assert ran.instructions == k.launch(2, 32, args).instructions
    assert not note.read.any() and not note.written.any()


def test_parts_of_a_grid() -> None:
    """Clusters from one number to before another, and no others; who is called meanwhile may end it."""
    k = kernel("st.global.u32 [%y], %b;", ".param .u64 y")
    y = np.full(20, 99, np.uint32)
    seen: list[tuple[int, int]] = []
    k.run(k.prepared(20, 1, [y], 0, "sm_90"), How(part=(7, 12), progress=lambda *at: seen.append(at)))
    assert y.tolist() == [99] * 7 + [7, 8, 9, 10, 11] + [99] * 8 and seen[0] == (0, 5) and seen[-1] == (5, 5)
    assert k.launch(20, 1, [y]).instructions["memory"] == 20 * 2 and (y == np.arange(20)).all()  # the next one is whole

    def enough(where: Callable[[], str]) -> None:
        raise KeyboardInterrupt

    endless = Module.load(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { L: bra L; }\n")["k"]
    with pytest.raises(KeyboardInterrupt, match=r"^0 of 2 blocks are done; block"):
        endless.run(endless.prepared(9, 1, [], 0, "sm_80"), How(threads=1, part=(3, 5), meanwhile=enough))


# runs ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("words", [1, 63, 700])
def test_runs(share: float, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of maps longer than a piece, with whole pieces empty and full."""
    monkeypatch.setattr(touched, "PIECE", 64)
    monkeypatch.setattr(touched, "BATCH", 100)
    chance = np.random.default_rng(words)
    flags = chance.random(64 * words) < share
    flags[64 * 20 : 64 * 50], flags[64 * 100 : 64 * 180] = True, False
    found = runs_of(np.packbits(flags, bitorder="little").view(np.uint64))
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    assert (found == edges).all()
    memory = chance.integers(0, 256, 64 * words, np.uint8)
    data = taken(memory, found)
    assert (data == memory[flags]).all()
    other = np.zeros_like(memory)
    put(other, found, data)
    assert (other == np.where(flags, memory, 0)).all()
    for begin, end in ((0, 64 * words), (5, 37), (len(flags) // 3, len(flags) // 2), (7, 7)):
        own, part = within(found, data, begin, end)
        wanted = flags[begin:end]
        assert bytes_of(own) == set(np.flatnonzero(wanted).tolist()) and (part == memory[begin:end][wanted]).all()


# conflicts ----------------------------------------------------------------------------------------------------------
def expected(given: list[tuple[Bytes, Bytes]]) -> Conflict | None:
    """By sets: the lowest byte that two write, or else the lowest that one reads and another writes, for the lowest readers."""
    for b in sorted(set().union(*(w for _, w in given))):
        owners = [n for n, (_, w) in enumerate(given) if b in w]
        if len(owners) > 1:
            return Conflict(b, owners[0], owners[1], True)
    pairs = [(n, m) for n in range(len(given)) for m in range(len(given)) if n != m]
    found = [Conflict(b, n, m, False) for n, m in pairs for b in given[n][1] & given[m][0]]
    return min(found, key=lambda c: (c.byte, c.second), default=None)


def test_conflicts_are_those_of_sets() -> None:
    chance = np.random.default_rng(3)
    kinds = []
    for case in range(400):
        owners, size = int(chance.integers(1, 5)), int(chance.choice([20, 200, 3000]))
        places = np.split(chance.permutation(size), sorted(chance.integers(0, size, owners - 1)))  # each its own
        given = []
        for own in places:
            written = set(own[: int(chance.integers(0, 12))].tolist())
            read = set(own[int(chance.integers(0, len(own) + 1)) :].tolist()) if case % 3 else set()
            if case % 3 == 2:
                read |= set(chance.integers(0, size, 2).tolist())
            if case % 5 == 4:
                written |= set(chance.integers(0, size, 2).tolist())
            given.append((read, written))
        found = conflict([Traces(n, runs(r), runs(w)) for n, (r, w) in enumerate(given)])
        wanted = expected(given)
        kinds.append(wanted.both_write if wanted else None)
        if wanted is None or found is None:
            assert found is wanted
        else:
            assert (found.byte, found.both_write) == (wanted.byte, wanted.both_write)
            pair = {found.first, found.second}
            sets = [given[n][1] for n in pair] if found.both_write else [given[found.first][1], given[found.second][0]]
            assert len(pair) == 2 and all(found.byte in s for s in sets)
    assert min(map(kinds.count, (None, True, False))) > 20
    assert conflict([]) is None
