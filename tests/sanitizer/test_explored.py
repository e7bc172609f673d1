"""Exploration of launches: programs as others write them, right and broken, and what the memory model allows besides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.host import exploring
from mmulator.host.certificate import COUNTEREXAMPLE, EXPLORED, NOT_DECIDED, Certificate

HEAD = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 sync, .param .u64 part) {
  .reg .b32 t, b, n, v, a, c, s, i, w, e; .reg .b64 o, m, p, q, r, f; .reg .pred one, x, y;
  .shared .align 4 .b32 flag;
  ld.param.u64 o, [out]; ld.param.u64 m, [sync]; ld.param.u64 p, [part];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 n, %nctaid.x;
  mul.wide.u32 q, b, 4; add.u64 r, m, q; add.u64 f, o, q; add.u64 q, p, q;
  setp.eq.u32 one, t, 0;
"""
TAIL = "\ndone: ret;\n}\n"
SUM = """  mov.u32 s, 0; mov.u32 i, 0; mov.u64 q, p;
sum: ld.global.u32 v, [q]; add.u32 s, s, v; add.u64 q, q, 4; add.u32 i, i, 1; setp.lt.u32 x, i, n; @x bra sum;
"""
LAST = """  add.u32 v, b, 7;
  @one st.global.u32 [q], v;
  {before}
  sub.u32 a, n, 1; mov.u32 s, 0;
  @!one bra meet;
  atom.global.inc.u32 c, [m], a; setp.eq.u32 x, c, a; selp.u32 s, 1, 0, x; st.shared.u32 [flag], s;
meet: bar.sync 0;
  ld.shared.u32 s, [flag]; setp.ne.u32 x, s, 1; @x bra done; @!one bra done;
  {after}
""" + SUM + "  st.global.u32 [o], s;"  # fmt: skip
LOCK = """  @!one bra done;
spin: atom{acquire}.cas.b32 c, [m], 0, 1; setp.ne.u32 x, c, 0; @x bra spin;
  {after}
  ld.global.u32 v, [o]; add.u32 v, v, b; add.u32 v, v, 1; st.global.u32 [o], v;
  {before}
  {unlock};
"""
EXCHANGED = LOCK.replace("cas.b32 c, [m], 0, 1", "exch.b32 c, [m], 1")
BARRIER = """  @!one bra done;
  add.u32 v, b, 7; st.global.u32 [q], v;
  {arrive}
wait: {load} c, [m]; setp.lt.u32 x, c, {count}; @x bra wait;
""" + SUM + "  st.global.u32 [f], s;"  # fmt: skip
FLAG = """  @!one bra done;
  setp.ne.u32 x, b, 0; @x bra take;
  st.global.u32 [p], 42; {store} [m], 1; bra done;
take: {load} c, [m]; setp.eq.u32 x, c, 0; @x bra take;
  ld.global.u32 v, [p]; st.global.u32 [f], v;
"""
CHAIN = """  @!one bra done;
wait: {load} c, [m]; setp.ne.u32 x, c, b; @x bra wait;
  ld.global.u32 v, [o]; mad.lo.u32 v, v, 3, b; st.global.u32 [o], v;
  add.u32 c, b, 1; {store} [m], c;
"""
FIXUP = """  @!one bra done;
  add.u32 s, b, 5; sub.u32 a, n, 1; setp.eq.u32 y, b, a; @y bra give;
wait: {load} c, [r+4]; setp.eq.u32 x, c, 0; @x bra wait;
  ld.global.u32 v, [q+4]; add.u32 s, s, v;
give: st.global.u32 [q], s; {store} [r], 1;
"""
COUNTED = """  @!one bra done;
  sub.u32 a, n, 1; {count} [m], 1; setp.ne.u32 x, c, a; @x bra done;
  st.global.u32 [m], 9;
"""
TWICE = """  @!one bra done;
  setp.eq.u32 x, b, 1; @x bra take;
  {before} mov.u32 i, 0;
more: {store}; add.u32 i, i, 1; setp.lt.u32 x, i, 2; @x bra more;
  st.relaxed.gpu.global.u32 [m+64], 1; bra done;
take: ld.relaxed.gpu.global.u32 c, [m]; setp.eq.u32 x, c, 0; @x bra take;
late: ld.relaxed.gpu.global.u32 c, [m+64]; setp.eq.u32 x, c, 0; @x bra late;
  st.global.u32 [m], 5;
"""
QUEUE = """  @!one bra done;
more: atom.global.add.u32 c, [m], 1; setp.ge.u32 x, c, 3; @x bra done;
  mul.wide.u32 r, c, 4; add.u64 r, o, r; {item} bra more;
"""
GRID = """  bar.sync 0;
  @!one bra meet;
  mov.u32 a, 1; sub.u32 c, n, 1; setp.ne.u32 x, b, 0; sub.u32 w, 2147483648, c; selp.u32 a, 1, w, x;
  {before}
  atom.global.add.u32 s, [m], a;
wait: {load} c, [m]; xor.b32 c, c, s; and.b32 c, c, 2147483648; setp.eq.u32 x, c, 0; @x bra wait;
  {after}
meet: bar.sync 0;
"""
SYNCED = "  @one st.global.u32 [q], 9;\n" + GRID + "  @!one bra done;\n" + SUM + "  st.global.u32 [f], s;"
ROUND = """  {before} atom{arrive}.gpu.global.add.u32 c, [m], 1; setp.eq.u32 x, c, a; @x bra open{k};
wait{k}: ld{wait}.gpu.global.u32 c, [m+4]; setp.ne.u32 x, c, {k}; @x bra wait{k}; bra on{k};
open{k}: {reset} st{open}.gpu.global.u32 [m+4], {k};
on{k}: {after} xor.b32 c, b, 1; mul.wide.u32 q, c, 4; add.u64 q, p, q; ld.global.u32 v, [q+{at}];
  mul.wide.u32 q, b, 4; add.u64 q, p, q; st.global.u32 [q+{at}+64], v;
"""
TWO_FLAGS = """  setp.ne.u32 x, b, 0; @x bra give;
  @one st.shared.u32 [flag], 0; bar.sync 0; @!one bra first;
wait: {load} c, [m]; setp.eq.u32 x, c, 0; @x bra wait; {after}
first: bar.sync 0;
  @!one bra take;
late: {load} c, [m+64]; setp.eq.u32 x, c, 0; @x bra late; {last}
  st.relaxed.cta.shared.u32 [flag], 1;
take: {meet} setp.ne.u32 x, t, {by}; @x bra done;
see: ld.relaxed.cta.shared.u32 c, [flag]; setp.eq.u32 x, c, 0; @x bra see;
  ld.global.u32 v, [p+4]; st.global.u32 [f], v; bra done;
give: @!one bra done; st.global.u32 [p], 5; st.release.gpu.global.u32 [m], 1; st.global.u32 [p+4], 6;
  st.release.gpu.global.u32 [m+64], 1;
"""
LAMPORT = """  @!one bra done;
  setp.ne.u32 x, b, 0; @x bra take;
  st.volatile.global.v4.u32 [p], {{3, 4, 5, 6}}; bra done;
take: ld.volatile.global.v4.u32 {{a, c, s, w}}, [p];
  min.u32 v, a, c; min.u32 e, s, w; min.u32 v, v, e; setp.eq.u32 x, v, 0; @x bra take;
  add.u32 v, a, c; add.u32 v, v, s; add.u32 v, v, w; st.global.u32 [f], v;
"""
CIRCLE = """  @!one bra done;
  sub.u32 c, 1, b; mul.wide.u32 p, c, 4; add.u64 p, m, p;
wait: ld.acquire.gpu.global.u32 c, [p]; setp.eq.u32 x, c, 0; @x bra wait;
  st.release.gpu.global.u32 [r], 1;
"""
FENCE = "fence.acq_rel.gpu;"
FREE = "atom.global.exch.b32 c, [m], 0"
TAKEN = "atom.global.cas.b32 c, [m], 0, 1; setp.ne.u32 x, c, 0; @x bra spin;"
ACQUIRE, RELEASE = "ld.acquire.gpu.global.u32", "st.release.gpu.global.u32"
RELAXED, PLAIN = "ld.relaxed.gpu.global.u32", "st.global.u32"
TICKET = "atom.relaxed.gpu.global.add.u32 c,"
RESET = LAST.format(before=FENCE, after=FENCE) + " st.global.u32 [m], 5;"
BY_NEXT = "setp.eq.u32 y, t, 1; @y st.global.u32 [m], 5; @!one bra done;"  # by the next thread of the block
ROUNDS = "  @!one bra done; sub.u32 a, n, 1; st.global.u32 [q], b;" + "".join(
    ROUND.replace("{k}", str(k)).replace("{at}", str(64 * k - 64)) for k in (1, 2)
)
FLAGS = {"load": "ld.relaxed.gpu.global.u32", "after": "fence.acq_rel.gpu;", "last": "fence.acq_rel.gpu;", "by": 0, "meet": ""}
SAID = {"arrive": ".acq_rel", "wait": ".acquire", "open": ".release", "before": "", "after": "", "reset": "st.global.u32 [m], 0;"}
UNSAID = {"arrive": ".relaxed", "wait": ".relaxed", "open": ".relaxed", "before": FENCE, "after": FENCE,
          "reset": f"{FENCE} st.global.u32 [m], 0; {FENCE}"}  # fmt: skip
ARRIVE = "red.release.gpu.global.add.u32 [m], 1;"

# name -> (program, blocks, interleavings)
RIGHT = {
    "last block": (LAST.format(before=FENCE, after=FENCE), 3, 6),
    "last block, reset": (RESET, 3, 6),
    "last block, reset by another thread": (LAST.replace("@!one bra done;\n  {after}", BY_NEXT + "\n {after}").format(
        before=FENCE, after=FENCE), 3, 6),
    "last of tickets": (COUNTED.format(count=TICKET), 3, 6),
    "last of tickets, read": (COUNTED.format(count=TICKET).replace("st.global.u32 [m], 9", "ld.global.u32 v, [m]"), 3, 6),
    "lock": (LOCK.format(acquire=".acquire.gpu.global", after="", before="", unlock=f"{RELEASE} [m], 0"), 3, 6),
    "lock with fences": (LOCK.format(acquire=".global", after=FENCE, before=FENCE, unlock=FREE), 2, 2),
    "lock by exchange": (EXCHANGED.format(acquire=".global", after=FENCE, before=FENCE, unlock=FREE), 2, 2),
    "barrier": (BARRIER.format(arrive=ARRIVE, load=ACQUIRE, count="n"), 3, 1),
    "barrier with fences": (BARRIER.format(
        arrive=FENCE + " red.global.add.u32 [m], 1;", load=f"{FENCE} ld.volatile.global.u32", count="n"
    ).replace("bra wait;\n", f"bra wait; {FENCE}\n", 1), 2, 1),
    "flag": (FLAG.format(store=RELEASE, load=ACQUIRE), 3, 1),
    "semaphore": (CHAIN.format(store=RELEASE, load=ACQUIRE), 3, 1),
    "fixup": (FIXUP.format(store=RELEASE, load=ACQUIRE), 4, 1),
    "queue": (QUEUE.format(item="st.global.u32 [r], c;"), 2, None),
    "grid sync": (SYNCED.format(before=FENCE, after=FENCE, load="ld.volatile.global.u32"), 3, 6),
    "barrier that resets itself": (ROUNDS.format(**SAID), 2, 4),
    "barrier that resets itself, fences": (ROUNDS.format(**UNSAID), 2, 4),
    "two flags": (TWO_FLAGS.format(**FLAGS), 2, 1),
    "two flags, another thread": (TWO_FLAGS.format(**FLAGS | {"by": 1, "meet": "bar.sync 0;"}), 2, 1),
    "lamport": (LAMPORT.format(), 2, 1),
}  # fmt: skip
BROKEN = {
    "last block, no fence": (LAST.format(before="", after=FENCE), 3),
    "last block, no fence after": (LAST.format(before=FENCE, after=""), 3),
    "last block, reset without a fence": (LAST.format(before="", after=FENCE) + " st.global.u32 [m], 5;", 3),
    "last block, reset by each": (RESET.replace("ld.shared.u32 s", "@one st.global.u32 [m], 5; ld.shared.u32 s"), 3),
    "last but one of tickets": (COUNTED.format(count=TICKET).replace("sub.u32 a, n, 1", "sub.u32 a, n, 2"), 3),
    "last of tickets, of the block": (COUNTED.format(count=TICKET.replace("gpu", "cta")), 3),
    "no ticket": (COUNTED.format(count=TICKET).replace("setp.ne.u32 x, c, a; @x bra done;", ""), 3),
    "no ticket, a sum": (COUNTED.format(count="mov.u32 c, a; red.relaxed.gpu.global.add.u32"), 3),
    "a store between tickets": (COUNTED.format(count=TICKET).replace(TICKET, """setp.eq.u32 x, b, 0; @x bra first;
early: ld.relaxed.gpu.global.u32 c, [m]; setp.lt.u32 x, c, b; @x bra early;
  setp.eq.u32 x, b, 1; @x st.relaxed.gpu.global.u32 [m], 2; @x bra done;
first: """ + TICKET), 3),
    "one of two sums was seen": (TWICE.format(before=FENCE, store="red.relaxed.gpu.global.add.u32 [m], 1"), 2),
    "one of two stores was seen": (TWICE.format(before=FENCE, store="st.relaxed.gpu.global.u32 [m], 7"), 2),
    "lock, no release": (LOCK.format(acquire=".global", after=FENCE, before="", unlock=FREE), 2),
    "lock, no acquire": (LOCK.format(acquire=".global", after="", before=FENCE, unlock=FREE), 2),
    "lock, plain release": (LOCK.format(acquire=".global", after=FENCE, before=FENCE, unlock=f"{PLAIN} [m], 0"), 2),
    "lock, never released": (LOCK.format(acquire=".global", after=FENCE, before=FENCE, unlock="mov.u32 c, 0"), 2),
    "lock, tested apart": (LOCK.format(acquire=".global", after=FENCE, before=FENCE, unlock=FREE).replace(
        TAKEN,
        "ld.relaxed.gpu.global.u32 c, [m]; setp.ne.u32 x, c, 0; @x bra spin; st.relaxed.gpu.global.u32 [m], 1;"), 2),
    "barrier, relaxed": (BARRIER.format(arrive=ARRIVE, load=RELAXED, count="n"), 3),
    "barrier, one too few": (BARRIER.format(arrive=ARRIVE + " sub.u32 a, n, 1;", load=ACQUIRE, count="a"), 3),
    "barrier, one too many": (BARRIER.format(arrive=ARRIVE + " add.u32 a, n, 1;", load=ACQUIRE, count="a"), 3),
    "flag, relaxed": (FLAG.format(store=RELEASE, load=RELAXED), 2),
    "flag, not released": (FLAG.format(store="st.relaxed.gpu.global.u32", load=ACQUIRE), 2),
    "flag, of the block": (FLAG.format(store="st.release.cta.global.u32", load=ACQUIRE), 2),
    "flag, plain": (FLAG.format(store=PLAIN, load=ACQUIRE), 2),
    "semaphore, relaxed": (CHAIN.format(store="st.relaxed.gpu.global.u32", load=ACQUIRE), 3),
    "semaphore, any order": (CHAIN.format(store=RELEASE, load=ACQUIRE).replace("setp.ne.u32 x, c, b", "setp.gt.u32 x, c, 9"), 2),
    "fixup, not released": (FIXUP.format(store="st.relaxed.gpu.global.u32", load=ACQUIRE), 3),
    "queue, who took it": (QUEUE.format(item="st.global.u32 [r], b;"), 2),
    "grid sync, no fence": (SYNCED.format(before="", after=FENCE, load="ld.volatile.global.u32"), 3),
    "circle": (CIRCLE, 2),
    "barrier, opened without release": (ROUNDS.format(**SAID | {"open": ".relaxed"}), 2),
    "barrier, waits without acquire": (ROUNDS.format(**SAID | {"wait": ".relaxed"}), 2),
    "barrier, arrives without release": (ROUNDS.format(**SAID | {"arrive": ".acquire"}), 2),
    "barrier, arrives without acquire": (ROUNDS.format(**SAID | {"arrive": ".release"}), 2),
    "barrier, reset by who waits": (ROUNDS.format(**SAID | {"reset": "", "after": "st.global.u32 [m], 0;"}), 2),
    "barrier, not reset": (ROUNDS.format(**SAID | {"reset": ""}), 2),
    "barrier, no fence before": (ROUNDS.format(**UNSAID | {"before": ""}), 2),
    "barrier, no fence after": (ROUNDS.format(**UNSAID | {"after": ""}), 2),
    "two flags, one fence": (TWO_FLAGS.format(**FLAGS | {"last": ""}), 2),
    "two flags, the other fence": (TWO_FLAGS.format(**FLAGS | {"after": "", "last": ""}), 2),
    "two flags, another thread, one barrier": (TWO_FLAGS.format(**FLAGS | {"by": 1}), 2),
}  # fmt: skip


def certificate(body: str, grid: int, block: int = 32, **more: Any) -> Certificate:
    kernel = mm.Module.load(HEAD + body + TAIL, name="k.ptx")["k"]
    arrays = [np.zeros(64, np.uint32) for _ in range(3)]
    try:
        found = kernel.launch(grid, block, arrays, certify=True, **more).certificate
    except mm.errors.ExecutionFault as fault:
        found = fault.__dict__["certificate"]
    assert found is not None
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_explored(name: str) -> None:
    body, grid, number = RIGHT[name]
    found = certificate(body, grid)
    assert found.verdict == EXPLORED, found
    assert number is None or found.about == number, found.about


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_has_a_counterexample(name: str) -> None:
    body, grid = BROKEN[name]
    found = certificate(body, grid)
    assert found.verdict == COUNTEREXAMPLE and found.schedule is not None, found


def test_a_schedule_is_run_again() -> None:
    """By launch, with its seed and the order of turns."""
    body, grid = BROKEN["queue, who took it"]
    found = certificate(body, grid)
    assert found.schedule is not None
    kernel = mm.Module.load(HEAD + body + TAIL)["k"]

    def left(**more: Any) -> bytes:
        arrays = [np.zeros(64, np.uint32) for _ in range(3)]
        kernel.launch(grid, 32, arrays, **more)
        return arrays[0].tobytes()

    turns = [left(order=order) for order in ([0, 0, 0, 0, 32], [32, 0, 32, 32, 0])]
    assert np.frombuffer(turns[0], np.uint32)[:3].tolist() == [0, 0, 0]
    assert np.frombuffer(turns[1], np.uint32)[:3].tolist() == [1, 0, 1]
    assert left(seed=found.schedule.seed, order=found.schedule.order, threads=1) != left(threads=1)


def test_a_deadlock_is_run_again() -> None:
    """Two locks, taken in two orders, which few schedules show: the record has the turns."""
    lock = "{0}: atom.acquire.gpu.global.cas.b32 c, [{1}], 0, 1; setp.ne.u32 x, c, 0; @x bra {0};\n"
    body = "  @!one bra done;\n  xor.b32 c, b, 1; mul.wide.u32 f, c, 4; add.u64 f, m, f;\n" + lock.format("first", "r")
    body += lock.format("second", "f") + "  st.release.gpu.global.u32 [f], 0; st.release.gpu.global.u32 [r], 0;\n"
    found = certificate(body, 2)
    assert found.verdict == COUNTEREXAMPLE and found.schedule is not None
    kernel = mm.Module.load(HEAD + body + TAIL)["k"]
    with pytest.raises(mm.errors.ExecutionFault, match=r"deadlock|livelock"):
        arrays = [np.zeros(64, np.uint32) for _ in range(3)]
        kernel.launch(2, 32, arrays, seed=found.schedule.seed, order=found.schedule.order or [0, 32], timeout=20)


# what the memory model allows besides interleavings ----------------------------------------------------------------------
AFTER = """  red.release.gpu.global.add.u32 [m+16], 1;
  setp.ne.u32 x, b, 0; @x bra done;
all: ld.acquire.gpu.global.u32 c, [m+16]; setp.lt.u32 x, c, n; @x bra all;
  ld.global.u32 a, [p]; ld.global.u32 c, [p+4]; {check}
  mov.u32 v, 0; setp.eq.u32 y, a, 1; selp.u32 v, 1, 0, y; st.global.u32 [o], v;
  st.global.v2.u32 [p], {{0, 0}};
  st.relaxed.gpu.global.u32 [m], 0; st.relaxed.gpu.global.u32 [m+4], 0; st.relaxed.gpu.global.u32 [m+16], 0;
"""
BOTH_OLD = "add.u32 a, a, c; setp.eq.u32 y, a, 0; selp.u32 a, 1, 0, y;"
BUFFERED = """  @!one bra done;
  xor.b32 c, b, 1; mul.wide.u32 f, c, 4; add.u64 f, m, f;
  st.relaxed.gpu.global.u32 [r], 1; {fence} ld.relaxed.gpu.global.u32 v, [f]; st.global.u32 [q], v;
""" + AFTER.replace("{check}", BOTH_OLD)  # fmt: skip
PASSED = """  @!one bra done;
  setp.ne.u32 x, b, 0; @x bra take;
  st.relaxed.gpu.global.u32 [m], 1; {store} [m+4], 1; st.global.u32 [p], 0; bra ends;
take: {load} c, [m+4]; setp.eq.u32 x, c, 0; @x bra take;
  ld.relaxed.gpu.global.u32 v, [m]; st.global.u32 [p+4], v;
ends:
""" + AFTER.replace("{check}", "setp.eq.u32 y, c, 0; selp.u32 a, 1, 0, y;")  # fmt: skip


def test_a_buffered_store_is_no_interleaving() -> None:
    """Two threads, each of which may read what was there before the other's store."""
    found = certificate(BUFFERED.format(fence=""), 2)
    assert found.verdict == NOT_DECIDED and "nothing in the memory model orders the two" in found.reasons[0].why, found
    assert found.reasons[0].location.startswith("k.ptx:")


def test_a_message_needs_release_and_acquire() -> None:
    found = certificate(PASSED.format(store="st.relaxed.gpu.global.u32", load="ld.relaxed.gpu.global.u32"), 2)
    assert found.verdict == NOT_DECIDED and "older" in found.reasons[0].why, found
    found = certificate(PASSED.format(store="st.release.gpu.global.u32", load="ld.acquire.gpu.global.u32"), 2)
    assert found.verdict == EXPLORED, found


# bounds and interruptions -------------------------------------------------------------------------------------------------
def test_a_bound_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "MOST", 12)
    found = certificate(LAST.format(before=FENCE, after=FENCE), 8)
    assert found.verdict == NOT_DECIDED and found.reasons[0].why == "explored 12 of about 40,320 interleavings"
    assert found.about == 40320 and "16 schedules of about 40,320 left the same bytes" in str(found)


def test_what_is_done_is_kept_when_the_user_interrupts() -> None:
    kernel = mm.Module.load(HEAD + LAST.format(before=FENCE, after=FENCE) + TAIL)["k"]
    arrays = [np.zeros(64, np.uint32) for _ in range(3)]
    told = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "explore":
            told.append((done, total))
            if done == 5:
                raise KeyboardInterrupt

    found = kernel.launch(5, 32, arrays, certify=True, progress=progress).certificate
    assert found is not None and found.verdict == NOT_DECIDED
    assert found.reasons[0].why == "interrupted: explored 5 of about 120 interleavings"
    assert told == [(n, 120) for n in range(1, 6)] and arrays[0][0] == sum(range(7, 12))


# Block 0 does the first, block 1 the second. Who comes first at `m` decides whether what they do to `p` is ordered.
HANDED = {
    "by sums that nobody reads": ("st.global.u32 [p], 42; fence.acq_rel.gpu; red.global.add.u32 [m], 1;",
                                  "red.global.add.u32 [m], 1; fence.acq_rel.gpu; ld.global.u32 v, [p];"),
    "by sums with an order": ("st.global.u32 [p], 42; atom.release.gpu.global.add.u32 c, [m], 1;",
                              "atom.acquire.gpu.global.add.u32 c, [m], 1; ld.global.u32 v, [p];"),
    "by an exchange that fails": ("st.relaxed.gpu.global.u32 [m], 1; st.global.u32 [p], 42;"
                                  "atom.acq_rel.gpu.global.cas.b32 c, [m], 0, 7;",
                                  "T: ld.acquire.gpu.global.u32 c, [m]; setp.eq.u32 x, c, 0; @x bra T; ld.global.u32 v, [p];"),
    "by an exchange of equals": ("st.global.u32 [p], 42; atom.acq_rel.gpu.global.cas.b32 c, [m], 0, 0;",
                                 "atom.acq_rel.gpu.global.cas.b32 c, [m], 0, 0; ld.global.u32 v, [p];"),
    "by one behind a fence": ("st.global.u32 [p], 42; fence.acq_rel.gpu; atom.relaxed.gpu.global.cas.b32 c, [m], 0, 0;",
                              "atom.relaxed.gpu.global.cas.b32 c, [m], 0, 0; fence.acq_rel.gpu; ld.global.u32 v, [p];"),
}  # fmt: skip


@pytest.mark.parametrize("name", HANDED)
def test_what_is_handed_over_only_in_some_orders_is_a_counterexample(name: str) -> None:
    first, second = HANDED[name]
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 flag) {{
  .reg .b64 p, m; .reg .b32 t, n, c, v; .reg .pred x;
  ld.param.u64 p, [out]; ld.param.u64 m, [flag];
  mov.u32 t, %tid.x; setp.ne.u32 x, t, 0; @x ret;
  mov.u32 n, %ctaid.x; setp.ne.u32 x, n, 0; @x bra SECOND;
  {first}
  ret;
SECOND:
  {second}
  st.global.u32 [p+64], v;
  ret;
}}
"""
    kernel = mm.Module.load(text, name="k.ptx")["k"]
    for seed in range(3):
        found = kernel.launch(2, 32, [np.zeros(64, np.uint32), np.zeros(4, np.uint32)], certify=True, seed=seed).certificate
        assert found is not None and found.verdict == COUNTEREXAMPLE, found
