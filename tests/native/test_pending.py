"""The queue of asynchronous operations, whatever their kind; and clusters, in which one CTA's operation may wake another."""

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import i32, ptr, ptr_to, u32, u64
from mmulator.host.cpu import diagnosis
from mmulator.host.module import Module
from mmulator.runtime.launch.arguments import Signature
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How, Launch, compile_options
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.launch.shape import Extent, LaunchShape
from mmulator.runtime.launch.workers import Workers
from mmulator.runtime.native.asynchrony.mbarrier import complete_part
from mmulator.runtime.native.asynchrony.pending import commit_group, covered, entry, has_room, issue, make_room, queue
from mmulator.runtime.native.asynchrony.waiting import sleep_at
from mmulator.runtime.native.state import ASYNC_GROUPS, COPIES, RESCHEDULE, AsyncGroup, Completes, Cta, Stop, Warp
from mmulator.runtime.native.state import Launch as LaunchState
from mmulator.runtime.native.threads.control import exit_lanes
from mmulator.runtime.native.threads.renewal import begin_cluster
from mmulator.runtime.native.threads.scheduler import run_clusters

TEXT = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
  .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<4>;
  .shared .align 16 .b8 memory[512];
  ld.param.u64 %rd0, [out];
  {}
  ret;
}}
"""
# three blocks of code, whose functions the tests put others in place of
BLOCKS = TEXT.format("cp.async.ca.shared.global [memory], [%rd0], 4;\n  bar.sync 0;\n  bar.sync 0;")


def launched(text: str, out: np.ndarray, shape: LaunchShape, seed: int = 0) -> Grid:
    kernel = Module.load(text)["k"]
    arguments = Signature(kernel.function).pack([out], kernel.module.image.next_slot)
    how = How(seed, threads=1)
    return Grid(Launch(kernel.compile(options=compile_options(shape, how)), shape, arguments), how)


def function(f: Native, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.CFUNCTYPE(result, *arguments)(address(f))


POINTER, U32, U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


# operations of a warp -------------------------------------------------------------------------------------------------
@native
def note_operation(w: ptr_to(Warp), number: u64) -> u32:
    """What carries out an operation here: its number behind those of the ones before, in shared memory."""
    out = cast_ptr(u32, w.cta.shared)
    out[0] = out[0] + 1
    out[out[0]] = u32(number)
    return u32(1)


@native
def issue_noted(w: ptr_to(Warp)) -> None:
    q = queue(w, COPIES)
    if not has_room(q, 1):
        make_room(w, q, u32(1))
    e = entry(w, COPIES, q.issued)
    e.operation.completes = Completes.GROUP
    issue(w, q, u32(COPIES.odds))


def resident(blocks: dict[int, Native], seed: int = 0, cluster: Extent = (1, 1, 1)) -> Resident:
    """A cluster of CTAs of a warp, with other functions in place of some blocks of code. Its operations are noted."""
    grid = launched(BLOCKS, np.zeros(4, np.uint32), LaunchShape(cluster, (32, 1, 1), 0, cluster), seed)
    for number, block in blocks.items():
        grid.code[number] = address(block)
    found = Resident(grid)
    found.warps["queues"]["carry_out"] = address(note_operation)
    counts = np.zeros(len(grid.code), np.uint64)
    found.counts[0] = counts.ctypes.data
    found.keep = counts  # type: ignore[attr-defined]
    return found


def carried_out(r: Resident) -> list[int]:
    words = r.arena.view("shared0", np.uint32)
    return [int(n) for n in words[1 : 1 + int(words[0])]]


@pytest.mark.parametrize("seed", range(8))
def test_operations_are_carried_out_once_and_in_order(seed: int) -> None:
    """Whenever that is: some at once, none before the ones before it, and at most `room` are in flight."""
    add = function(issue_noted, None, POINTER)
    runs = []
    for _ in range(2):
        r = resident({}, seed)
        seen = []
        for _ in range(100):
            add(r.arena.at("warps"))
            seen.append(len(carried_out(r)))
        assert carried_out(r) == list(range(seen[-1])) and sorted(seen) == seen
        assert 0 < len(set(seen)) < 60  # one in four
        runs.append(seen)
    assert runs[0] == runs[1]


def test_a_full_queue_makes_room() -> None:
    r = resident({})
    queues = r.warps["queues"]
    queues["issued"], queues["done"] = COPIES.room, 0
    function(issue_noted, None, POINTER)(r.arena.at("warps"))
    assert carried_out(r)[:1] == [0] and int(queues["issued"][0, COPIES.queue]) == COPIES.room + 1


def test_groups_hold_what_was_issued_before_their_commit() -> None:
    """Of any sequence of issues and commits, what all but the newest n groups hold, as far back as groups are known."""
    r = resident({})
    q = r.warps["queues"][:, COPIES.queue]
    at = r.arena.at("warps")
    begin = at + Warp.offset["queues"]
    close, hold = function(commit_group, None, POINTER, U32), function(covered, U64, POINTER, U64)
    for seed in range(20):
        chance = random.Random(seed)
        q["issued"], q["committed"], q["filled"] = 0, 0, 0
        ends: list[int] = []  # operations up to the end of each group
        for _ in range(chance.choice((0, 1, 10, 200))):
            q["issued"] += chance.choice((0, 0, 1, 3))
            close(at, COPIES.queue)
            ends.append(int(q["issued"][0]))
        for pending in range(len(ends) + 3):
            wanted = ends[len(ends) - pending - 1] if pending < len(ends) else 0
            assert hold(begin, pending) == wanted, (seed, pending)
    assert AsyncGroup.size * ASYNC_GROUPS == r.arena.parts["copies groups"].size  # of one warp


# mbarriers ------------------------------------------------------------------------------------------------------------
def word(expected: int, pending: int, awaited: int, phase: int) -> int:
    count, bytes = (1 << 20) - 1, (1 << 21) - 1
    return (-expected & count) << 1 | (-awaited & bytes) << 21 | (-pending & count) << 43 | phase << 63


def test_a_fresh_mbarrier_is_that_of_a_chip() -> None:
    assert word(32, 32, 0, 0) == 0x7FFF0000_001FFFC0


def test_a_phase_ends_with_the_last_arrival_and_the_last_byte() -> None:
    part = function(complete_part, U32, POINTER, POINTER, U64, U64)
    r = resident({})
    chance = random.Random(1)
    for _ in range(300):
        expected, phase = chance.choice((1, 2, 5, 1000, (1 << 20) - 1)), chance.getrandbits(1)
        pending, awaited = chance.randrange(expected + 1), chance.choice((0, 16, 4096, -16))
        memory = np.array([word(expected, pending, awaited, phase)], np.uint64)
        for _ in range(6):
            arrivals = chance.choice((0, 0, 1, pending)) if pending else 0
            bytes = chance.choice((0, 16, awaited)) if awaited > 0 else 0
            flips = part(r.address, memory.ctypes.data, arrivals, bytes)
            pending, awaited = pending - arrivals, awaited - bytes
            assert flips == (pending == 0 and awaited == 0)
            if flips:
                pending, phase = expected, 1 - phase
            assert int(memory[0]) == word(expected, pending, awaited, phase)


@native
def issue_awaited(w: ptr_to(Warp), regs: ptr, mask: u32) -> i32:
    """Block 0: an operation that brings 64 bytes to the mbarrier behind the notes of the cluster's first CTA; its queue has
    one of a group before it."""
    issue_noted(w)
    q = queue(w, COPIES)
    e = entry(w, COPIES, q.issued)
    e.operation.completes = Completes.BYTES
    e.operation.bytes = u32(64)
    e.operation.barrier = cast_ptr(u64, cast_ptr(Cta, w.cta.cluster.ctas).shared + 256)
    issue(w, q, u32(COPIES.odds))
    return i32(1)


@native
def sleep_at_mbarrier(w: ptr_to(Warp), regs: ptr, mask: u32) -> i32:
    """Block 1: until the phase of the mbarrier is over."""
    barrier = cast_ptr(u64, cast_ptr(Cta, w.cta.cluster.ctas).shared + 256)
    if (barrier[0] >> 63) == 0:
        sleep_at(w, mask, u64(barrier), i32(1))
        w.timed_out = u32(0)
        return i32(RESCHEDULE)
    return exit_lanes(w, mask, u32(0))


@native
def skip_block(w: ptr_to(Warp), regs: ptr, mask: u32) -> i32:
    return i32(1)


def asleep(blocks: dict[int, Native], seed: int, cluster: Extent, bytes: int) -> tuple[int, int]:
    """How a cluster ends whose warps all sleep at one mbarrier, which awaits so many bytes; and the barrier."""
    r = resident(blocks, seed, cluster)
    function(begin_cluster, None, POINTER)(r.address)
    r.grid.line.begin(1, taken=1)
    barrier = r.arena.view("shared0", np.uint64)[32:33]
    barrier[0] = word(1, 0, bytes, 0)
    ended = Stop.ASLEEP
    while ended == Stop.ASLEEP:  # a wait that ends early is tried again
        ended = function(run_clusters, ctypes.c_int32, POINTER, ctypes.c_int64)(r.address, 1 << 20)
    return Stop(ended), int(barrier[0])


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_pending_wakes_who_sleeps_at_its_mbarrier(seed: int, cluster: Extent) -> None:
    """Each CTA brings 64 bytes: the first of them sleeps until those of the last have come."""
    size = cluster[0] * cluster[1] * cluster[2]
    over = word(1, 1, 0, 1)
    assert asleep({0: issue_awaited, 1: sleep_at_mbarrier}, seed, cluster, 64 * size) == (Stop.EXITED, over)
    assert asleep({0: issue_awaited, 1: sleep_at_mbarrier}, seed, cluster, 64 * size + 1)[0] == Stop.BLOCKED
    assert asleep({0: skip_block, 1: sleep_at_mbarrier}, seed, cluster, 64 * size)[0] == Stop.BLOCKED


# clusters -------------------------------------------------------------------------------------------------------------
WHERE = TEXT.format("""mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y; mov.u32 %r10, memory;
  mad.lo.u32 %r6, %r2, %r5, %r1; mad.lo.u32 %r6, %r6, %r4, %r0; mad.lo.u32 %r7, %r6, 64, %r3;
  mad.lo.u32 %r8, %r3, 4, %r10; st.shared.u32 [%r8], %r7; bar.sync 0;
  xor.b32 %r9, %r3, 63; mad.lo.u32 %r9, %r9, 4, %r10; ld.shared.u32 %r11, [%r9];
  mul.wide.u32 %rd1, %r7, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r11;""")


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 3, 1), (2, 3, 2), (8, 3, 2)])
def test_ctas_of_a_cluster_are_where_they_belong(cluster: Extent, seed: int) -> None:
    """Each with shared memory and barriers of its own: threads hand their number to the one opposite."""
    grid = (8, 3, 2)
    out = np.zeros(48 * 64, np.uint32)
    shape = LaunchShape(grid, (64, 1, 1), 0, cluster)
    begun = launched(WHERE, out, shape, seed)
    progress: list[tuple[int, int]] = []
    outcome = Workers(begun, How(timeout=600, progress=lambda *at: progress.append(at)), diagnosis).run()
    assert (out == np.arange(48 * 64) ^ 63).all() and outcome.counts.max() == 48 * 2 and progress[-1] == (48, 48)
    assert begun.launch[0]["cluster"].tolist() == list(cluster) and LaunchState.size == begun.launch.nbytes
