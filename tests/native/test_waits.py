"""Threads that wait at mbarriers: who sleeps, what a poll hears, that polling costs nothing, and deadlocks in words."""

import time
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, LimitReached
from mmulator.host.module import Module

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b64 %o, %s<4>; .reg .b32 %t, %n, %w, %r<8>; .reg .pred %p, %q, %first;
  .shared .align 8 .b64 full[4]; .shared .align 8 .b64 empty; .shared .align 4 .b32 words[64];
  ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; setp.eq.u32 %first, %t, 0;
"""


def text(body: str) -> str:
    return f"{HEAD}{body}\n  ret;\n}}\n"


def run(body: str, block: int = 64, out: int = 64, **options: Any) -> np.ndarray:
    results = np.zeros(out, np.uint32)
    Module.load(text(body), name="k.ptx")["k"].launch(1, block, [results], timeout=600, **options)
    return results


def init(*counts: int) -> str:
    """Of full[0], full[1], ..."""
    made = "".join(f"  @%first mbarrier.init.shared.b64 [full+{8 * n}], {c};\n" for n, c in enumerate(counts))
    return made + "  bar.sync 0;\n"


def wait(n: int, parity: int | str, label: str, how: str = "try_wait") -> str:
    return f"{label}: mbarrier.{how}.parity.shared.b64 %p, [full+{8 * n}], {parity};\n  @!%p bra {label};\n"


STORE = "  mul.wide.u32 %s0, %t, 4; add.u64 %s0, %o, %s0; st.global.u32 [%s0], %r0;"


# what a poll hears --------------------------------------------------------------------------------------------------
PEEK = """
  setp.eq.u32 %q, %w, 1;
  @%q bra LATE;
  mbarrier.{0}.parity.shared.b64 %p, [full], 0;
  selp.u32 %r0, 1, 0, %p;
  bra DONE;
LATE: mov.u32 %r0, 2;
  mbarrier.arrive.shared.b64 _, [full];
DONE:
"""


@pytest.mark.parametrize("how", ["try_wait", "test_wait"])
def test_a_peek_hears_both_answers(how: str) -> None:
    """A thread that asks once, while another has yet to arrive, hears what the seed has, and the same again."""
    body = init(32) + PEEK.format(how) + STORE
    heard = {seed: tuple(run(body, seed=seed)[:32]) for seed in range(40)}
    assert set(heard.values()) == {(0,) * 32, (1,) * 32}
    assert all(tuple(run(body, seed=seed)[:32]) == heard[seed] for seed in range(8))


@pytest.mark.parametrize("how", ["try_wait", "test_wait"])
def test_a_phase_that_is_over_is_over(how: str) -> None:
    """Nobody hears that it is not; and the phase before a fresh barrier's first is over."""
    late = init(1) + f"  mbarrier.{how}.parity.shared.b64 %p, [full], 1; selp.u32 %r0, 1, 0, %p;\n" + STORE
    done = init(64) + "  mbarrier.arrive.shared.b64 %s1, [full];\n  bar.sync 0;\n"
    done += f"  mbarrier.{how}.shared.b64 %p, [full], %s1; selp.u32 %r0, 1, 0, %p;\n" + STORE
    for seed in range(16):
        assert (run(late, seed=seed) == 1).all() and (run(done, seed=seed) == 1).all()


def test_states_and_parities_say_the_same() -> None:
    """Three phases: each thread waits for its own state."""
    body = init(64)
    for phase in range(3):
        body += f"  mbarrier.arrive.shared.b64 %s1, [full];\nL{phase}: mbarrier.try_wait.shared.b64 %p, [full], %s1;\n"
        body += f"  @!%p bra L{phase};\n" + wait(0, phase & 1, f"M{phase}", "test_wait")
    body += "  ld.shared.b64 %s2, [full]; shr.u64 %s2, %s2, 63; cvt.u32.u64 %r0, %s2;\n" + STORE
    assert (run(body) == 1).all()


# who sleeps ---------------------------------------------------------------------------------------------------------
def test_lanes_of_a_warp_wait_at_different_barriers() -> None:
    """Each lane at one of four; a second warp completes them in another order; a lane goes on when its own is complete."""
    body = init(1, 1, 1, 1) + """
  setp.eq.u32 %q, %w, 1;
  @%q bra MAKER;
  and.b32 %r1, %t, 3; shl.b32 %r2, %r1, 3; mov.u32 %r3, full; add.u32 %r3, %r3, %r2;
W: mbarrier.try_wait.parity.shared.b64 %p, [%r3], 0;
  @!%p bra W;
  mov.u32 %r4, 1; mov.u32 %r5, words; atom.shared.add.u32 %r0, [%r5], %r4;
""" + STORE + """
  ret;
MAKER: setp.ne.u32 %p, %t, 32;
  @%p ret;
  mov.u32 %r1, 4;
NEXT: sub.u32 %r1, %r1, 1; shl.b32 %r2, %r1, 3; mov.u32 %r3, full; add.u32 %r3, %r3, %r2;
  mbarrier.arrive.shared.b64 _, [%r3];
  nanosleep.u32 100;
  setp.ne.u32 %p, %r1, 0;
  @%p bra NEXT;
"""
    for seed in range(6):
        got = run(body, seed=seed)[:32]
        assert sorted(got.tolist()) == list(range(32))
        assert got[3::4].max() < got[0::4].min() + 25  # not all at once


def test_a_lane_that_others_of_its_warp_wait_for() -> None:
    """Half of a warp completes the barrier that the other half sleeps at; and back."""
    body = init(16, 16) + """
  setp.ge.u32 %q, %t, 32;
  @%q ret;
  setp.lt.u32 %q, %t, 16;
  @%q bra LOW;
  mbarrier.arrive.shared.b64 _, [full];
""" + wait(1, 0, "H") + "  mov.u32 %r0, 2;\n  bra JOIN;\nLOW:\n" + wait(0, 0, "L", "test_wait") + """
  mbarrier.arrive.shared.b64 _, [full+8];
  mov.u32 %r0, 1;
JOIN: bar.warp.sync 0xffffffff;
""" + STORE
    for seed in range(6):
        assert run(body, seed=seed)[:32].tolist() == [1] * 16 + [2] * 16


SPIN = """
  setp.eq.u32 %q, %w, 1;
  @%q bra MAKER;
ROUND: {polls}
  bra ROUND;
MAKER: nanosleep.u32 50;
  mbarrier.arrive.shared.b64 _, [full+16];
  mov.u32 %r0, 7;
  bra STORE;
DONE: mov.u32 %r0, 9;
STORE:
"""


def test_polls_of_several_barriers_in_turn() -> None:
    """A thread that asks one barrier after the other finds the one that is complete."""
    polls = "\n".join(f"  mbarrier.test_wait.parity.shared.b64 %p, [full+{8 * n}], 0;\n  @%p bra DONE;" for n in range(4))
    for seed in range(8):
        assert set(run(init(1, 1, 32, 1) + SPIN.format(polls=polls) + STORE, seed=seed)) == {7, 9}


def test_a_thread_that_counts_its_tries_gives_up() -> None:
    """A poll with a limit ends at its limit, however large, and is no deadlock."""
    body = init(2) + """
  mov.u32 %r0, 0;
TRY: mbarrier.test_wait.parity.shared.b64 %p, [full], 0;
  @%p bra END;
  add.u32 %r0, %r0, 1;
  setp.lt.u32 %q, %r0, 3000;
  @%q bra TRY;
END:
""" + STORE
    assert (run(body) == 3000).all()


def test_a_flag_in_memory_ends_a_poll() -> None:
    """A thread that polls a barrier and looks at global memory in between waits for another block, which writes there late."""
    body = init(1) + """
  mov.u32 %r1, %ctaid.x; setp.eq.u32 %q, %r1, 1;
  @%q bra OTHER;
POLL: mbarrier.try_wait.parity.shared.b64 %p, [full], 0;
  ld.volatile.global.u32 %r0, [%o+252];
  setp.eq.u32 %q, %r0, 0;
  @%q bra POLL;
  bra END;
OTHER: mov.u32 %r2, 0;
BUSY: add.u32 %r2, %r2, 1; ld.shared.u32 %r3, [words]; setp.lt.u32 %q, %r2, 60000;
  @%q bra BUSY;
  mov.u32 %r0, 5; st.volatile.global.u32 [%o+252], %r0;
END:
""" + STORE.replace("st.global", "@!%q st.global")
    out = np.zeros(64, np.uint32)
    Module.load(text(body))["k"].launch(2, 32, [out], timeout=600, threads=1)
    assert out[63] == 5


# what it costs ------------------------------------------------------------------------------------------------------
PIPELINE = """
  setp.eq.u32 %q, %w, 0;
  @%q bra MAKER;
  mov.u32 %r2, 0;
LOOP: and.b32 %r3, %r2, 1;
{wait}
  add.u32 %r2, %r2, 1;
  mbarrier.arrive.shared.b64 _, [full+8];
  setp.lt.u32 %q, %r2, {rounds};
  @%q bra LOOP;
  ret;
MAKER: mov.u32 %r2, 0; mov.u32 %r5, 1;
MAKE: mov.u32 %r4, 0;
WORK: add.u32 %r4, %r4, 1; ld.shared.u32 %r6, [words]; setp.lt.u32 %q, %r4, 400;
  @%q bra WORK;
  mbarrier.arrive.shared.b64 _, [full];
  and.b32 %r3, %r2, 1;
B: mbarrier.try_wait.parity.shared.b64 %p, [full+8], %r3;
  @!%p bra B;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %q, %r2, {rounds};
  @%q bra MAKE;
"""
LOOPS = {
    "try": "W: mbarrier.try_wait.parity.shared.b64 %p, [full], %r3;\n  @!%p bra W;",
    "test": "W: mbarrier.test_wait.parity.shared.b64 %p, [full], %r3;\n  @!%p bra W;",
    "backoff": "W: mbarrier.test_wait.parity.shared.b64 %p, [full], %r3;\n  @%p bra G;\n  nanosleep.u32 64;\n  bra W;\nG:",
    "peek": "mbarrier.try_wait.parity.shared.b64 %p, [full], %r3;\n  @%p bra G;\n"
    "W: mbarrier.try_wait.parity.shared.b64 %p, [full], %r3;\n  @!%p bra W;\nG:",
}


def cost(loop: str, warps: int = 8, rounds: int = 200) -> int:
    """Instructions of consumers that wait for a maker in a loop."""
    body = init(32, 32 * (warps - 1)) + PIPELINE.format(wait=LOOPS[loop], rounds=rounds)
    kernel = Module.load(text(body))["k"]
    return sum(kernel.launch(1, 32 * warps, [np.zeros(64, np.uint32)]).instructions.values())


def test_a_poll_costs_what_a_wait_costs() -> None:
    """However it waits, a thread executes a few instructions a phase: it does not spin while the maker works."""
    counts = {loop: cost(loop) for loop in LOOPS}
    assert max(counts.values()) < 1.1 * min(counts.values()), counts


# deadlocks ----------------------------------------------------------------------------------------------------------
def test_a_deadlock_is_found_at_once() -> None:
    """In a loop that only waits, and among blocks that go on."""
    body = init(2) + "  mov.u32 %r1, %ctaid.x; setp.ne.u32 %q, %r1, 3;\n  @%q ret;\n" + wait(0, 0, "W")
    kernel = Module.load(text(body))["k"]
    kernel.compile()
    start = time.process_time()
    with pytest.raises(ExecutionFault, match=r"deadlock in block \(3, 0, 0\)"):
        kernel.launch(64, 64, [np.zeros(64, np.uint32)])
    assert time.process_time() - start < 4


def test_a_time_limit_says_who_sleeps() -> None:
    """Warps that spin beside one that waits: no deadlock, and the message knows the mbarrier."""
    body = init(2) + "  setp.ge.u32 %q, %t, 32;\n  @%q bra SPIN;\n" + wait(0, 0, "W") + "SPIN: bra SPIN;\n"
    kernel = Module.load(text(body), name="k.ptx")["k"]
    kernel.compile()
    with pytest.raises(LimitReached, match=r"warp 0: lanes 0 to 31 .*(wait for phase 0 of full\[0\]|at mbarrier)"):
        kernel.launch(1, 64, [np.zeros(64, np.uint32)], timeout=0.3)


# clusters -----------------------------------------------------------------------------------------------------------
PAIR = """
  .reg .b32 %rank, %peer, %there;
  mov.u32 %rank, %cluster_ctarank; xor.b32 %peer, %rank, 1; mov.u32 %r1, full; mapa.shared::cluster.u32 %there, %r1, {peer};
  @%first mbarrier.init.shared.b64 [full], {count};
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
"""


def pair(body: str, count: int = 32, peer: str = "%peer", **options: Any) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    kernel = Module.load(text(PAIR.format(count=count, peer=peer) + body), name="k.ptx")["k"]
    kernel.launch(2, 32, [out], cluster=2, timeout=600, **options)
    return out


REMOTE = "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%there];\n"
MEET = "  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"


def test_blocks_of_a_cluster_arrive_at_each_others_mbarriers() -> None:
    body = REMOTE + wait(0, 0, "W") + "  mov.u32 %r0, 3; mad.lo.u32 %t, %rank, 32, %t;\n" + STORE + MEET
    for seed in range(6):
        assert (pair(body, seed=seed) == 3).all()
