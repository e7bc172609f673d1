"""Choices of a schedule, for a certificate: each beside a kernel where it is none."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, EXPLORED, NOT_DECIDED
from tests.support.certificates import (
    ARRIVE,
    BY_TURNS,
    DEPOT,
    HEAD,
    HEAD_OF_START,
    START,
    TAIL,
    certificate,
    is_certified,
    loop,
    reason,
    refused,
)

CHOICES = {
    "an answer": ("atom.shared.add.u32 n, [tile], 1; setp.eq.u32 early, n, 5;", "what was there before"),
    "an exchange": ("atom.shared.exch.b32 n, [tile], 5;", "an atomic exch"),
    "a swap": ("atom.shared.cas.b32 n, [tile], 0, 5;", "an atomic cas"),
    "a ring": ("red.shared.inc.u32 [tile], 7;", "an atomic inc"),
    "floats": ("red.shared.add.f32 [tile], 0f3F800000;", "combines floats"),
    "a strong store": ("st.relaxed.cta.shared.u32 [tile], 5;", "it is strong"),
    "a clock": ("mov.u32 n, %clock; setp.eq.u32 early, n, 77; @early st.shared.u32 [tile], 1;", "a clock"),
    "a timer": ("mov.u64 s, %globaltimer; setp.eq.u64 early, s, 77; @early st.shared.u32 [tile], 1;", "a clock"),
    "an SM": ("mov.u32 n, %smid; setp.eq.u32 early, n, 77; @early st.shared.u32 [tile], 1;", "where the block runs"),
    "a warp's place": ("mov.u32 n, %warpid; setp.eq.u32 early, n, 77; @early st.shared.u32 [tile], 1;", "where the warp runs"),
    "lanes together": ("activemask.b32 n;", "which lanes are together"),
}


ALONE = ("a strong load", "a volatile load", "a swap")  # nobody stores there; one does


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_alone_is_not_certified(name: str) -> None:
    line, said = CHOICES[name]
    found = certificate(f"  mov.u32 v, 1;\n  {line}\n", block=8)
    assert found.verdict == (EXPLORED if name in ALONE else NOT_DECIDED), found
    assert name in ALONE or any(said in r.why for r in found.reasons)


ORDER = "  bar.sync 0;\n"
OWN = "  mov.u32 a, tile;\n  mad.lo.u32 a, t, 4, a;\n  st.shared.u32 [a], t;\n  bar.sync 0;\n"
ONE = OWN + "  mov.u32 v, 1;\n  setp.eq.u32 one, t, 0;\n  setp.eq.u32 early, t, 32;\n"
# What is done, by threads between which `{}` lies; with a barrier there it is certified, and without it is not.
MEETINGS = {
    "a load and a store": ONE + "  @one st.relaxed.cta.shared.u32 [tile], 5;\n{}  ld.relaxed.cta.shared.u32 v, [tile];\n",
    "volatile ones": ONE + "  @one st.volatile.global.u32 [p+512], 5;\n{}  @early ld.volatile.global.u32 v, [p+512];\n",
    "stores": ONE + "  @one st.relaxed.gpu.global.u32 [p+512], 5;\n{}  @early st.relaxed.gpu.global.u32 [p+512], 6;\n",
    "an exchange": ONE + "  @one st.relaxed.cta.shared.u32 [tile], 5;\n{}  @early atom.shared.exch.b32 v, [tile], 6;\n",
    "sums of floats": ONE + "  @one red.shared.add.f32 [tile], 0f3F800000;\n{}  @early red.shared.add.f32 [tile], 0f40000000;\n",
    "two operations": ONE + "  @one red.shared.add.u32 [tile], 5;\n{}  @early red.shared.max.u32 [tile], 7;\n",
    "an answer and a sum": ONE + "  @one red.shared.add.u32 [tile], 5;\n{}  @early atom.shared.add.u32 v, [tile], 7;\n",
    "an answer and a load": ONE + "  @one atom.shared.add.u32 v, [tile], 5;\n{}  ld.relaxed.cta.shared.u32 n, [tile];\n",
}


@pytest.mark.parametrize("name", MEETINGS)
def test_strong_accesses_are_choices_where_they_meet(name: str) -> None:
    is_certified(MEETINGS[name].format(ORDER))
    assert certificate(MEETINGS[name].format("")).verdict != CERTIFIED
    refused(MEETINGS[name].format("  bar.sync 1, 32;\n"), block=64) if "early" not in MEETINGS[name] else None


def test_an_atomic_operation_of_each_thread_at_its_own_place_is_no_choice() -> None:
    for one in ("atom.shared.exch.b32 v, [{}], 5;", "atom.shared.inc.u32 v, [{}], 7;", "red.shared.add.f32 [{}], 0f3F800000;"):
        is_certified(OWN + "  mov.u32 v, 1;\n  " + one.format("a") + "\n")
        assert refused(OWN + "  mov.u32 v, 1;\n  " + one.format("tile") + "\n")
        pairs = OWN + "  mov.u32 v, 1;\n  and.b32 n, t, 31;\n  mov.u32 a, tile;\n  mad.lo.u32 a, n, 4, a;\n  "
        assert refused(pairs + one.format("a"))
        by_turns = BY_TURNS.replace("st.shared.u32 [tile], {value};", one.format("tile"))
        is_certified(OWN + "  mov.u32 v, 1;\n" + by_turns.format(between="bar.warp.sync -1;\n  "), block=32)
        assert refused(OWN + "  mov.u32 v, 1;\n" + by_turns.format(between=""), block=32)


def test_an_answer_is_a_choice_though_it_comes_after_one_of_two_that_meet() -> None:
    """Warps 0 and 1 add; warp 2 knows of warp 1 alone."""
    body = "  mov.u32 v, 1;\n  setp.eq.u32 one, w, 0;\n  setp.eq.u32 early, w, 2;\n  @early bra LAST;\n"
    body += "  red.shared.add.u32 [tile], 1;\n  @one bra END;\n  bar.arrive 1, 64;\n  bra.uni END;\n"
    body += "LAST: bar.sync 1, 64;\n  setp.eq.u32 one, l, 0;\n  @one atom.shared.add.u32 v, [tile], 1;\nEND:\n"
    for seed in range(4):
        assert refused(body, block=96, seed=seed)


def test_a_flag_is_a_choice() -> None:
    body = ONE + "  @early bra WAIT;\n  @one st.release.cta.shared.u32 [tile], 1;\n  bra.uni END;\n"
    body = "  mov.u32 v, 0;\n  st.shared.u32 [tile], v;\n  bar.sync 0;\n" + body
    body += "WAIT: ld.acquire.cta.shared.u32 n, [tile];\n  setp.eq.u32 done, n, 0;\n  @done bra WAIT;\nEND:\n"
    assert all(certificate(body, seed=seed).verdict == EXPLORED for seed in range(4))


def test_answers_that_are_seen_are_a_counterexample() -> None:
    body = "  mov.u32 n, %ctaid.x;\n  atom.global.add.u32 v, [p], 1;\n  mul.wide.u32 q, n, 4;\n  add.u64 q, p, q;\n"
    body += "  add.u64 q, q, 64;\n"
    found = certificate(body, block=1, grid=8)
    assert found.verdict == COUNTEREXAMPLE and found.schedule is not None and "other bytes" in found.reasons[0].why
    kernel = mm.Module.load(HEAD + body + TAIL)["k"]
    outs = [np.zeros(64, np.uint32) for _ in range(2)]
    kernel.launch(8, 1, [outs[0], None], threads=1)
    kernel.launch(8, 1, [outs[1], None], threads=1, seed=found.schedule.seed, order=found.schedule.order)
    assert (outs[0] != outs[1]).any()


@pytest.mark.parametrize("op", ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"])
def test_integers_that_commute_are_certified(op: str) -> None:
    is_certified(f"  mov.u32 v, 1;\n  red.shared.{op} [tile], t;\n  atom.shared.{op} n, [tile], t;\n", grid=2)


def test_sums_beside_fences_are_no_choices() -> None:
    """Nothing comes after a sum because of others' sums, whatever it says."""
    own = "  mov.u32 v, 1;\n  mov.u32 n, %ctaid.x;\n  mul.wide.u32 s, n, 4;\n  add.u64 p, p, s;\n"
    own += "  st.global.u32 [p+64], 7;\n"
    for one in ("red.global.add.u32", "red.release.gpu.global.add.u32", "atom.acq_rel.gpu.global.add.u32 a,"):
        alone = own + f"  fence.acq_rel.gpu;\n  sub.u64 p, p, s;\n  {one} [p+256], 1;\n  fence.acq_rel.gpu;\n"
        is_certified(alone, block=1, grid=3)
        found = certificate(alone + "  ld.global.u32 v, [p+64];\n", block=1, grid=3)
        assert found.verdict == COUNTEREXAMPLE and "nothing orders" in found.reasons[0].why


def test_an_answer_that_a_function_returns_is_read() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.func (.reg .b32 r) count (.reg .b64 p) { atom.global.add.u32 r, [p], 1; ret; }
.visible .entry k(.param .u64 out) {
  .reg .b32 v, n; .reg .b64 p, q;
  ld.param.u64 p, [out]; call (v), count, (p);
  mov.u32 n, %ctaid.x; mul.wide.u32 q, n, 4; add.u64 q, p, q; st.global.u32 [q+64], v; ret;
}
"""
    found = mm.Module.load(text)["k"].launch(4, 1, [np.zeros(64, np.uint32)], certify=True).certificate
    assert found is not None and found.verdict == COUNTEREXAMPLE, found


def test_two_operations_at_once_do_not_commute() -> None:
    assert "several" in reason("  mov.u32 v, 1;\n  red.shared.add.u32 [tile], t;\n  red.shared.max.u32 [tile], t;\n")


def test_an_answer_is_a_choice_where_more_than_a_loop_hangs_on_it() -> None:
    """A choice that was not executed is none."""
    start = START.format(count=64) + ARRIVE
    is_certified(start + loop("again", 0))
    kept = "  mbarrier.try_wait.parity.shared.b64 early, [bar], 0;\n  {}@early bra END;\n  {}" + loop("again", 0) + "{}END:\n"
    is_certified(start + kept.format("", "", ""))
    is_certified(start + kept.format("selp.b32 n, 1, 0, early;\n  setp.ne.u32 early, n, 0;\n  ", "", ""))
    store = "st.shared.u32 [tile], 1;\n  "
    is_certified(start + kept.format(store, "", ""))
    for broken in (("", store, ""), ("", "", "mov.u32 v, 2;\n")):
        assert "more than a loop" in refused(start + kept.format(*broken))
    for other in ("bar], 1", "ready], 0"):
        assert "may be about another phase" in refused(start + kept.format("", "", "").replace("bar], 0", other, 1))
    relaxed = kept.format("", "", "").replace("parity.", "parity.relaxed.cta.", 1)
    assert "more than a loop" in refused(start + relaxed)
    is_certified(start + loop("again", 0) + "  bra END;\n  activemask.b32 n;\nEND:\n")
    counted = "  mov.u32 n, 0;\nagain: mbarrier.try_wait.parity.shared.b64 done, [bar], 0;\n  @done bra END;\n"
    counted += "  add.u32 n, n, 1;\n  bra again;\nEND:\n"
    is_certified(start + counted)
    assert "more than a loop" in refused(start + counted + "  mov.u32 v, n;\n")
    told = "again: mbarrier.try_wait.parity.shared.b64 done, [bar], 0;\n  selp.b32 n, 1, 0, done;\n  setp.eq.u32 one, n, 0;\n"
    is_certified(start + told + "  @one bra again;\n")


FAR = """  mov.u32 a, %cluster_ctarank;
  setp.eq.u32 one, a, 0;
  setp.eq.u32 early, t, 0;
  @early mbarrier.init.shared.b64 [bar], 1;
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  mov.u32 v, 1;
  @one bra READ;
  mov.u32 a, tile;
  mapa.shared::cluster.u32 a, a, 0;
  mov.u32 n, bar;
  mapa.shared::cluster.u32 n, n, 0;
  @early st.shared::cluster.u32 [a], 7;
  @early mbarrier.arrive.release.cluster.shared::cluster.b64 _, [n];
  bra.uni END;
READ:
again: mbarrier.try_wait.parity{}.shared.b64 done, [bar], 0;
  @!done bra again;
  ld.shared.u32 v, [tile];
END: barrier.cluster.arrive;
  barrier.cluster.wait;
"""


def test_a_wait_without_a_scope_for_what_another_block_wrote_is_named() -> None:
    tail = "  @one st.global.u32 [q], v;\n  ret;\n}\n"
    said = "waits at mbarriers without a scope"
    assert any(said in text for text in is_certified(FAR.format(""), grid=2, cluster=2, tail=tail).rests_on)
    assert not any(said in text for text in is_certified(FAR.format(".acquire.cluster"), grid=2, cluster=2, tail=tail).rests_on)
    refused(FAR.format(".acquire.cta"), grid=2, cluster=2, tail=tail)


TIMED = """  mov.u64 r, %globaltimer;
again:
  mbarrier.try_wait.parity.shared.b64 done, [bar], 0;
  @done bra END;
  mov.u64 s, %globaltimer;
  sub.s64 s, s, r;
  setp.lt.s64 early, s, 40000;
  @early bra again;
  {}nanosleep.u32 100;
  bra again;
END:
"""


def test_a_clock_may_decide_when_to_ask_again() -> None:
    start = START.format(count=64) + ARRIVE
    is_certified(start + TIMED.format(""))
    for broken in ("st.shared.u32 [tile], 1;\n  ", "bra END;\n  ", "mov.u32 v, 2;\n  ", "mov.u32 l, 1;\n  bar.sync 2;\n  "):
        assert "clock" in refused(start + TIMED.format(broken))
    ever = TIMED.format("").replace("40000", "-9").replace("@early bra again", "turn: @early bra turn")
    assert "clock" in refused(start + ever)
    assert "clock" in refused(start + TIMED.format("") + "  cvt.u32.u64 v, r;\n")
    into = TIMED.format("").replace("  mov.u64 s, %g", "late:\n  mov.u64 s, %g")
    assert "clock" in refused(start + "  setp.eq.u32 one, t, 99;\n  mov.u64 r, 0;\n  @one bra late;\n" + into)


def test_what_a_turn_of_a_wait_leaves_is_a_choice() -> None:
    """Each round leaves its number behind if it had to wait."""
    rounds = START.format(count=64) + """  mov.u32 n, 0;
outer: mbarrier.arrive.shared.b64 _, [bar];
  and.b32 a, n, 1;
  add.u32 n, n, 1;
again: mbarrier.try_wait.parity.shared.b64 done, [bar], a;
  @done bra GO;
  {}bra again;
GO: setp.lt.u32 one, n, 6;
  @one bra outer;
"""  # fmt: skip
    is_certified(rounds.format(""))
    assert refused(rounds.format("mov.u32 v, n;\n  "))
    assert refused(rounds.format("xor.b32 a, a, 0;\n  "))


def test_a_state_is_a_choice_where_more_than_a_wait_hangs_on_it() -> None:
    start = START.format(count=64) + "  mbarrier.arrive.shared.b64 s, [bar];\n"
    is_certified(start + loop("again", 0).replace("parity.", "").replace(", 0;", ", s;"))
    assert "a state" in reason(start + "  cvt.u32.u64 n, s;\n" + loop("again", 0))
    kept = start.replace(HEAD_OF_START, HEAD_OF_START + DEPOT) + "  st.local.u64 [depot+8], s;\n{}  ld.local.u64 r, [depot+8];\n"
    kept += loop("again", 0).replace("parity.", "").replace(", 0;", ", r;")
    is_certified(kept.format(""))
    for broken in ("  ld.local.u32 v, [depot+8];\n", "  ld.local.u64 r, [depot+8];\n  add.u64 r, r, 0;\n"):
        assert "a state" in refused(kept.format(broken))
