"""Certificates: each side condition has a kernel that breaks it alone, beside one that keeps it."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, NOT_DECIDED, weakest
from mmulator.sanitizer.state import Doubt
from tests.support.certificates import ARRIVE, BY_TURNS, HEAD, START, TAIL, certificate, is_certified, loop, reason, refused

# findings -------------------------------------------------------------------------------------------------------------
SWAP = """  st.shared.u32 [tile], t;
{between}  ld.shared.u32 v, [tile];
"""
EXCHANGE = """  mov.u32 a, tile;
  mad.lo.u32 n, t, 4, a;
  st.shared.u32 [n], t;
{between}  xor.b32 n, t, 63;
  mad.lo.u32 n, n, 4, a;
  ld.shared.u32 v, [n];
"""


def test_a_race_is_a_counterexample_and_its_run_the_schedule() -> None:
    is_certified(EXCHANGE.format(between="  bar.sync 0;\n"))
    found = certificate(EXCHANGE.format(between=""), seed=3)
    assert found.verdict == COUNTEREXAMPLE and found.schedule is not None
    assert (found.schedule.seed, found.schedule.order) == (3, None) and "race-read-write" in found.reasons[0].why


def test_a_deadlock_is_a_counterexample() -> None:
    found = certificate(START.format(count=65) + ARRIVE + loop("again", 0))
    assert found.verdict == COUNTEREXAMPLE and "wait for phase 0" in found.reasons[0].why


def test_a_warning_is_a_reason() -> None:
    found = certificate("  mov.u32 v, t;\n  st.shared.u32 [tile], t;\n", block=32)
    assert found.verdict == NOT_DECIDED and "store-lanes-differ" in found.reasons[0].why


def test_a_note_that_chips_keep_is_named() -> None:
    body = START.format(count=1) + """  @!one bra come;
  mov.u32 a, tile;
  ld.param.u64 s, [other];
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [s], 256, [bar];
""" + loop("come", 0)  # fmt: skip
    found = is_certified(body)
    assert any("mbarrier.init" in text for text in found.rests_on)


# phases ---------------------------------------------------------------------------------------------------------------
def test_an_arrival_may_not_come_in_the_phase_before() -> None:
    """Each of two threads arrives twice; who does so at once takes the other's place."""
    start = START.format(count=64)
    is_certified(start + ARRIVE + loop("first", 0) + ARRIVE + loop("second", 1))
    assert "in the phase before" in refused(start + ARRIVE + ARRIVE + loop("second", 1))


def test_a_wait_may_not_be_let_through_by_an_older_phase() -> None:
    """Warp 0 ends phases; warp 1 waits for the third alone."""
    turns = "".join(ARRIVE + loop(f"turn{n}", n & 1) for n in range(3))
    body = START.format(count=32) + "  setp.ne.u32 one, w, 0;\n  @one bra late;\n" + turns + "  bra.uni END;\nlate:\n"
    body += loop("third", 0) + "END:\n"
    assert "let through" in refused(body)


def test_nobody_may_be_lapped() -> None:
    """Triton 11334: a warp goes on to the phase after the next, and another has not seen the first. Most runs hang."""
    turns = "".join(ARRIVE + loop(f"turn{n}", n & 1) for n in range(2))
    body = START.format(count=32) + "  setp.eq.u32 one, w, 0;\n  @one bra late;\n" + turns + "  bra.uni END;\nlate:\n"
    body += loop("first", 0) + "END:\n"
    assert all(refused(body, seed=seed) for seed in range(6))
    is_certified(body.replace("turn0;\n", "turn0;\n  bar.sync 1;\n", 1).replace("first;\n", "first;\n  bar.sync 1;\n", 1))
    heard = "  mbarrier.arrive.release.cluster.shared::cta.b64 _, [ready];\n"
    hear = loop("hear", 0, "ready").replace("parity.", "parity.acquire.cluster.")
    told = body.replace("first;\n", "first;\n" + heard, 1).replace("turn0;\n", "turn0;\n" + hear, 1)
    is_certified(told)
    assert "lapped" in reason(told.replace("arrive.release", "arrive.relaxed"))  # which says nothing of what came before


MEET, SHUFFLE = "  bar.warp.sync -1;\n", "  shfl.sync.idx.b32 n, t, 0, 31, a;\n"


@pytest.mark.parametrize(("between", "ends"), [(MEET, True), (SHUFFLE, True), ("", False)])
def test_lanes_may_not_be_left_behind(between: str, ends: bool) -> None:
    """cuda-oxide 1066: all lanes wait, and one arms the barrier again."""
    turn = "  @one mbarrier.arrive.shared.b64 _, [bar];\n"
    body = START.format(count=1) + "  mov.u32 a, -1;\n" + "".join(turn + loop(f"turn{n}", n & 1) + between for n in range(3))
    if ends:
        is_certified(body, block=32)
    else:
        assert "lapped" in refused(body, block=32)


def test_an_arrival_at_a_barrier_may_not_come_in_the_round_before() -> None:
    roles = "  setp.eq.u32 one, w, 0;\n  mov.u32 v, 1;\n  @one bra OTHER;\n"
    twice = roles + "  bar.arrive 1, 64;\n  {}bar.arrive 1, 64;\n  bra.uni END;\n"
    twice += "OTHER:\n  bar.sync 1, 64;\n  {}bar.sync 1, 64;\nEND:\n"
    is_certified(twice.format("bar.sync 2, 64;\n  ", "bar.arrive 2, 64;\n  "))
    assert "in the round before" in refused(twice.format("", ""))


def test_lanes_must_know_of_the_init_of_their_warp() -> None:
    """The rule asks this of other warps alone."""
    made = "  setp.eq.u32 one, t, 0;\n  @one mbarrier.init.shared.b64 [bar], 32;\n{}  mov.u32 v, 1;\n" + ARRIVE + loop("again", 0)
    is_certified(made.format("  bar.warp.sync -1;\n"), block=32)
    assert "another lane of its warp has made" in refused(made.format(""), block=32)


def test_all_lanes_must_be_through_with_what_is_invalidated() -> None:
    body = START.format(count=64) + ARRIVE + loop("again", 0) + "{}  bar.sync 1;\n  @one mbarrier.inval.shared.b64 [bar];\n"
    is_certified(body.format(""))
    some = START.format(count=64) + ARRIVE + loop("again", 0) + "{}  setp.eq.u32 done, l, 0;\n"
    some += "  @done mbarrier.arrive.shared.b64 _, [ready];\n  @!one bra END;\n" + loop("all", 0, "ready")
    some = some.replace("[ready], 64", "[ready], 2") + "  mbarrier.inval.shared.b64 [bar];\nEND:\n"
    is_certified(some.format("  bar.warp.sync -1;\n"))
    assert "all lanes of its warp" in refused(some.format(""))


def test_threads_that_have_exited_are_named() -> None:
    body = "  mov.u32 v, 1;\n  setp.ne.u32 one, w, 0;\n  @one st.shared.u32 [tile], v;\n  @one ret;\n"
    found = is_certified(body + "  bar.sync 0;\n  ld.shared.u32 v, [tile];\n")
    assert any("exited" in text for text in found.rests_on)


# memory ---------------------------------------------------------------------------------------------------------------
def test_writes_of_one_value_are_named_and_later_ones_judged_against_each() -> None:
    start = "  mov.u32 v, 1;\n  st.shared.u32 [tile], v;\n"
    found = is_certified(start)
    assert any("writes of one value" in text for text in found.rests_on)
    meet = "  setp.gt.u32 one, w, 1;\n  @one bra END;\n  bar.sync 1, 64;\n  setp.eq.u32 done, t, 32;\n"
    found = certificate(start + meet + "  @done st.shared.u32 [tile], 7;\nEND:\n", block=96)  # warp 2 does not come
    assert found.verdict == COUNTEREXAMPLE and "race-write-write" in found.reasons[0].why


STORES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 other) {
  .reg .b64 p, q, b, v; .reg .b32 t, s; .reg .pred one, two, four, eight;
  .shared .align 16 .b8 tile[32];
  ld.param.u64 p, [other]; ld.param.u64 q, [out];
  mov.u32 t, %tid.x; shr.u32 t, t, 5; mul.wide.u32 b, t, 24; add.u64 p, p, b;
  ld.global.u64 v, [p]; ld.global.u64 b, [p + 8]; ld.global.u32 s, [p + 16];
  {base} add.u64 q, q, b;
  setp.eq.u32 one, s, 1; setp.eq.u32 two, s, 2; setp.eq.u32 four, s, 4; setp.eq.u32 eight, s, 8;
  @one st.{space}.u8 [q], v; @two st.{space}.u16 [q], v; @four st.{space}.u32 [q], v; @eight st.{space}.u64 [q], v;
  ret;
}
"""


@pytest.mark.parametrize("space", ["global", "shared"])
def test_writes_of_several_widths_are_one_where_the_bytes_that_they_share_are_equal(space: str) -> None:
    """Three warps write 1, 2, 4 or 8 bytes each, which nothing orders."""
    base = "mov.u64 q, tile;" if space == "shared" else ""
    kernel = mm.Module.load(STORES.replace("{base}", base).replace("{space}", space), name="k.ptx")["k"]
    chance, verdicts = np.random.default_rng(0), set[str]()
    for _ in range(60):
        widths = chance.choice([1, 2, 4, 8], 3)
        starts = [int(chance.integers(0, 16 // n) * n) for n in widths]
        bytes_ = np.where(chance.random((3, 16)) < 0.06, 2, 1).astype(np.uint8)
        bytes_[:, 5] = 3
        what = np.zeros((3, 3), np.uint64)
        for row, start, width, data in zip(what, starts, widths, bytes_):
            row[:] = int.from_bytes(data[start : start + width].tobytes(), "little"), start, width
        spans = [range(a, a + int(n)) for a, n in zip(starts, widths)]
        equal = all(bytes_[i, at] == bytes_[j, at] for i in range(3) for j in range(i) for at in {*spans[i]} & {*spans[j]})
        found = kernel.launch(1, 96, [np.zeros(16, np.uint8), what], certify=True).certificate
        assert found is not None and found.verdict == (CERTIFIED if equal else COUNTEREXAMPLE), (starts, widths, bytes_, found)
        verdicts.add(found.verdict)
    assert len(verdicts) == 2


def test_lanes_that_come_to_one_store_by_turns_are_a_race() -> None:
    """A lane does not wait for the turns of others."""
    is_certified(BY_TURNS.format(value=7, between=""), block=32)
    is_certified(BY_TURNS.format(value="t", between="bar.warp.sync -1;\n  "), block=32)
    found = certificate(BY_TURNS.format(value="t", between=""), block=32)
    assert found.verdict == COUNTEREXAMPLE and "race-within-warp" in found.reasons[0].why




WARPS = "  setp.eq.u32 done, w, 1;\n  setp.eq.u32 early, w, 2;\n"
PAIR = """  mov.u32 v, 9;
  mov.u32 a, 1;
  @early bra THIRD;
  @done bra SECOND;
  {first}
  bar.arrive 1, 64;
  bra.uni END;
SECOND: bar.sync 1, 64;
  st.shared.u32 [tile], a;
  bra.uni END;
THIRD: st.shared.u32 [tile], a;
END:
"""


@pytest.mark.parametrize("first", ["ld.shared.u32 v, [tile];", "st.shared.u32 [tile], w;"])
def test_what_one_of_two_equal_writes_has_overwritten_must_come_before_the_other(first: str) -> None:
    """Warp 0 accesses bytes before warp 1 writes them; warp 2 writes the same value at any time."""
    zero = "  setp.eq.u32 one, t, 0;\n  @one st.shared.u32 [tile], 0;\n  bar.sync 0;\n" + WARPS
    for seed in range(8):
        refused(zero + PAIR.format(first=first), block=96, seed=seed)
    is_certified(WARPS + PAIR.format(first=""), block=96)
    twice = "  mov.u32 v, 1;\n  st.shared.u32 [tile], v;\n  bar.sync 0;\n  ld.shared.u32 n, [tile];\n"
    twice += "  {}st.shared.u32 [tile], 2;\n"
    is_certified(twice.format("bar.sync 0;\n  "))
    refused(twice.format(""))


def test_each_part_that_an_equal_write_has_overwritten_counts() -> None:
    """A write of two words: warp 0 reads the first before it, in order for all; and the second, of which warp 2 does not know."""
    zero = "  setp.eq.u32 one, t, 0;\n  @one st.shared.v2.u32 [tile], {{0, 0}};\n  bar.sync 0;\n{}  bar.sync 0;\n" + WARPS
    wide = PAIR.replace("st.shared.u32 [tile], a", "st.shared.v2.u32 [tile], {{a, a}}")
    first = zero.format("  ld.shared.u32 n, [tile];\n  ld.shared.u32 n, [tile+4];\n")
    is_certified(first + wide.format(first=""), block=96)
    for seed in range(8):
        refused(first + wide.format(first="ld.shared.u32 v, [tile+4];"), block=96, seed=seed)


def test_many_blocks_may_write_one_value() -> None:
    write = "  mov.u32 v, 7;\n  mov.u32 n, %ctaid.x;\n  setp.eq.u32 one, n, 9;\n"
    found = is_certified(write, grid=16)
    assert any("writes of one value" in text for text in found.rests_on)
    is_certified(write, grid=64)
    assert certificate(write.replace("n, 9", "n, 63") + "  @one mov.u32 v, 8;\n", grid=64).verdict == COUNTEREXAMPLE
    late = "  setp.eq.u32 one, n, 63;\n  @one ld.global.u32 v, [q];\n  @one st.global.u32 [q+4096], v;\n"
    assert certificate(write + late, grid=64).verdict == COUNTEREXAMPLE
    assert certificate(write + "  @one mov.u32 v, 8;\n", grid=16).verdict == COUNTEREXAMPLE
    assert certificate(write + "  @one ld.global.u32 n, [q];\n  @one add.u32 v, n, 7;\n", grid=16).verdict == COUNTEREXAMPLE


REPLICAS = """  and.b32 n, t, 31;
  setp.lt.u32 one, t, 32;
  mul.wide.u32 q, n, 4;
  add.u64 q, p, q;
  ld.global.u32 v, [q];
  add.u32 v, v, 1;
  {}
  @one st.global.u32 [q], v;
  ret;
}}
"""
USES = {
    "shared memory": "@!one st.shared.u32 [tile], v;",
    "a place of their own": "@!one st.global.u32 [q+512], v;",
    "a neighbour": "shfl.sync.bfly.b32 a, v, 1, 31, -1; @!one st.global.u32 [q+512], a;",
    "a vote": "setp.gt.u32 early, v, 9; vote.sync.any.pred done, early, -1; @done st.global.u32 [q+512], t;",
    "an address": "and.b32 a, v, 15; mul.wide.u32 r, a, 4; add.u64 r, p, r; ld.global.u32 a, [r+512];",
    "a branch": "setp.gt.u32 early, v, 9; @early bra END; st.shared.u32 [tile], 1; END:",
    "a guard": "setp.gt.u32 early, v, 9; @early st.global.u32 [q+512], 1;",
    "an atomic": "@!one red.global.add.u32 [q+512], v;",
    "many steps": "mul.lo.u32 a, v, 3; cvt.u64.u32 r, a; shr.u64 r, r, 1; cvt.u32.u64 a, r; @!one st.global.u32 [q+512], a;",
}


def test_replicas_that_do_nothing_with_what_they_read_are_named() -> None:
    found = is_certified(REPLICAS.format(""), tail="")
    assert any("copies of a value" in text for text in found.rests_on)
    is_certified(REPLICAS.format("").replace("31;", "15;").replace("t, 32", "t, 16"), tail="", grid=1)
    is_certified(REPLICAS.format("").replace("ld.global", "setp.lt.u32 early, n, 32; @early ld.global"), tail="", grid=1)


def test_replicas_of_a_warp_may_exchange_what_they_read_if_the_whole_warp_does_nothing_with_it() -> None:
    exchange = REPLICAS.format("shfl.sync.bfly.b32 v, v, 1, 31, -1;")
    is_certified(exchange, tail="")
    some = "t, 16;\n  setp.gt.u32 early, t, 47;\n  or.pred one, one, early;"  # of the second warp: they store what others read
    refused(exchange.replace("t, 32;", some).replace("v, 1, 31, -1", "v, 16, 31, -1"), tail="")
    refused(REPLICAS.format("shfl.sync.bfly.b32 a, v, 1, 31, -1; @!one st.shared.u32 [tile], a;"), tail="")
    refused(REPLICAS.format("or.b32 a, v, -1; shfl.sync.bfly.b32 v, v, 1, 31, a;"), tail="")  # who takes part


def test_a_load_under_a_guard_keeps_what_its_register_had() -> None:
    load, guarded = "ld.global.u32 v, [q];", "mov.u32 v, 0;\n  setp.lt.u32 early, n, 32;\n  @early ld.global.u32 v, [q];"
    body = REPLICAS.format("")
    is_certified(body.replace(load, guarded), tail="")
    refused(body.replace(load, guarded + "\n  setp.lt.u32 early, v, 32;\n  @early bra N; N:"), tail="")
    refused(body.replace(load, f"{load}\n  setp.lt.u32 early, v, 32;\n  @early {load}"), tail="")


def test_replicas_may_exchange_what_they_read_in_warps_that_store_nothing() -> None:
    swap = "shfl.sync.bfly.b32 a, v, 16, 31, -1;\n  @one st.global.u32 [q+512], a;"
    is_certified(REPLICAS.format(swap), tail="")
    refused(REPLICAS.format(swap).replace("n, t, 31;", "n, t, 15;").replace("t, 32", "t, 16"), tail="", grid=1)
    refused(REPLICAS.format("shfl.sync.bfly.b32 a, v, 16, 31, -1;\n  @!one st.global.u32 [q+512], a;"), tail="")
    refused(REPLICAS.format("shfl.sync.bfly.b32 a, v, 16, 31, -1;\n  setp.gt.u32 early, a, 9; @early bra N; N:"), tail="")
    refused(REPLICAS.format("shfl.sync.bfly.b32 a, v, 16, 31, -1;\n  @!one st.shared.u32 [tile], a;"), tail="")


@pytest.mark.parametrize("name", USES)
def test_replicas_that_use_what_they_read_are_not_certified(name: str) -> None:
    refused(REPLICAS.format(USES[name]), tail="")


def test_equal_writes_may_overwrite_what_a_copy_brought_and_others_have_read() -> None:
    body = """  ld.param.u64 s, [other];
  mov.u32 a, tile;
  mad.lo.u32 a, l, 16, a;
  setp.eq.u32 one, w, 0;
  @one cp.async.ca.shared.global [a], [s], 16;
  cp.async.wait_all;
  bar.sync 0;
  ld.shared.u32 v, [a];
  {}st.shared.u32 [a], l;
"""
    is_certified(body.format("bar.sync 0;\n  "))
    assert "race-read-write" in refused(body.format(""))


def test_equal_writes_may_overwrite_what_a_bulk_copy_has_read() -> None:
    body = """  mov.u32 a, tile;
  mad.lo.u32 a, l, 4, a;
  setp.eq.u32 one, t, 0;
  add.u64 r, p, 4096;
  st.shared.u32 [a], l;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @one cp.async.bulk.global.shared::cta.bulk_group [r], [tile], 128;
  @one cp.async.bulk.commit_group;
  @one cp.async.bulk.wait_group {};
  {}st.shared.u32 [a], 7;
  bar.sync 0;
  ld.shared.u32 v, [a];
"""
    is_certified(body.format(0, "bar.sync 0;\n  "))
    for seed in range(4):
        refused(body.format(0, ""), seed=seed)
        refused(body.format(1, "bar.sync 0;\n  "), seed=seed)


def test_equal_writes_may_overwrite_what_a_bulk_copy_has_brought() -> None:
    body = START.format(count=1) + """  mov.u32 a, tile;
  ld.param.u64 s, [other];
  @one mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
  @one """ + COPY + "  setp.eq.u32 early, w, 1;\n{}" + loop("again", 0) + """  mad.lo.u32 a, l, 4, a;
  st.shared.u32 [a], 7;
  bar.sync 0;
  ld.shared.u32 v, [a];
"""  # fmt: skip
    is_certified(body.format(""))
    for seed in range(4):
        refused(body.format("  @early bra late;\n").replace("  mad.lo", "late:\n  mad.lo"), seed=seed)


COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [s], 256, [bar];\n"
EXPECT = """  mov.u32 a, tile;
  ld.param.u64 s, [other];
  setp.eq.u32 early, t, 32;
  {between}@early mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 256;
  @early """ + COPY + "  {meet}@one mbarrier.arrive.shared.b64 _, [bar];\n"


def test_a_phase_may_not_end_before_something_is_expected_of_it() -> None:
    """Thread 32 expects bytes, and thread 0 alone arrives."""
    body = START.format(count=1) + EXPECT + loop("again", 0) + "  ld.shared.u32 v, [tile];\n"
    is_certified(body.format(between="", meet="bar.sync 1;\n  "))
    for seed in range(4):
        refused(body.format(between="", meet=""), seed=seed)
    own = body.replace("{meet}@one mbarrier.arrive", "@early mbarrier.arrive")
    is_certified(own.format(between=""))


def test_copies_that_add_their_arrivals_may_not_come_after_the_phase() -> None:
    """cp.async.mbarrier.arrive makes the phase wait for one more, if it is not over: another arrival must come after it."""
    body = START.format(count=32) + """  mov.u32 a, tile;
  ld.param.u64 s, [other];
  mad.lo.u32 a, t, 16, a;
  setp.eq.u32 early, w, 1;
  @early cp.async.ca.shared.global [a], [s], 16;
  @early cp.async.mbarrier.arrive.shared.b64 [bar];
  @{who} mbarrier.arrive.shared.b64 _, [bar];
""" + loop("again", 0) + "  ld.shared.u32 v, [tile+768];\n"  # fmt: skip
    is_certified(body.format(who="early"))
    for seed in range(4):
        refused(body.format(who="!early"), seed=seed)


def test_lanes_that_copy_different_bytes_to_one_place_are_a_reason() -> None:
    copies = "  mov.u32 a, tile;\n  {}cp.async.ca.shared.global [a], [q], 16;\n  cp.async.wait_all;\n  bar.sync 0;\n"
    copies = "  ld.param.u64 q, [other];\n  mul.wide.u32 r, t, 16;\n  add.u64 q, q, r;\n" + copies
    copies += "  ld.shared.u32 v, [tile];\n"
    tail = "  mul.wide.u32 r, t, 4;\n  add.u64 q, p, r;\n" + TAIL
    kernel = HEAD + copies.format("") + tail
    out, other = np.zeros(64, np.uint32), np.arange(256, dtype=np.uint32)
    found = mm.Module.load(kernel)["k"].launch(1, 32, [out, other], certify=True).certificate
    assert found is not None and found.verdict == NOT_DECIDED and "store-lanes-differ" in found.reasons[0].why
    is_certified(copies.format("mad.lo.u32 a, t, 16, a;\n  "), tail=tail, block=32)


def test_discarded_bytes_are_a_reason() -> None:
    body = "  ld.param.u64 s, [other];\n  {}ld.global.u32 v, [s];\n"
    is_certified(body.format(""), block=1)
    assert "nobody knows" in reason(body.format("discard.global.L2 [s], 128;\n  "), block=1)


def test_many_readers_count_where_somebody_writes_later() -> None:
    read = "  ld.global.u32 v, [p];\n  mov.u32 n, %ctaid.x;\n  mul.wide.u32 q, n, 4;\n  add.u64 q, p, q;\n  add.u64 q, q, 4;\n"
    is_certified(read, block=1, grid=300)
    for writer in 0, 299:
        write = f"  setp.eq.u32 one, n, {writer};\n  @one st.global.u32 [p], 7;\n"
        assert certificate(read + write, block=1, grid=300).verdict == COUNTEREXAMPLE


def test_a_store_that_leaves_its_argument_is_a_reason() -> None:
    where = "  ld.param.u64 s, [other];\n  st.global.u64 [p], p;\n  st.global.u64 [p+8], s;\n  ret;\n}\n"
    kernel = mm.Module.load(HEAD + where)["k"]
    out, other = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    kernel.launch(1, 1, [out, other])
    first, second = (int(x) for x in out.view(np.uint64)[:2])
    read = "  ld.param.u64 s, [other];\n  ld.global.u32 v, [s];\n"
    read += f"  add.u64 r, p, {second - first + 64};\n  st.global.u32 [r], v;\n"
    kernel = mm.Module.load(HEAD + read + "  ret;\n}\n")["k"]
    found = kernel.launch(1, 1, [out, other], certify=True).certificate
    assert found is not None and found.verdict == NOT_DECIDED and "does not name" in found.reasons[0].why


LOADS = {
    "values": ("add.u32 v, n, n;", True),
    "a value kept": ("setp.eq.u32 one, n, 0; @one mov.u32 v, 2;", True),
    "shuffled": ("shfl.sync.idx.b32 v, n, 0, 31, -1;", True),
    "added": ("red.global.add.u32 [q+512], n;", True),
    "a branch": ("setp.eq.u32 one, n, 9; @one bra END; mov.u32 v, 3; END:", False),
    "a guard": ("setp.eq.u32 one, n, 9; @one st.global.u32 [q+512], n;", False),
    "an address": ("mul.wide.u32 s, n, 4; add.u64 s, s, q; ld.global.u32 v, [s];", False),
}


@pytest.mark.parametrize("name", LOADS)
def test_contents_matter_where_they_decide(name: str) -> None:
    line, any_contents = LOADS[name]
    found = is_certified(f"  mov.u32 v, 1;\n  ld.param.u64 s, [other];\n  ld.global.u32 n, [s];\n  {line}\n")
    assert ("for all contents" in found.rests_on[0]) is any_contents


def test_writes_of_one_value_are_so_for_these_contents() -> None:
    same = "  ld.param.u64 s, [other];\n  ld.global.u32 v, [s];\n  st.shared.u32 [tile], v;\n"
    assert "these inputs" in is_certified(same, block=32).rests_on[0]


# the verdict of a program ---------------------------------------------------------------------------------------------
def test_a_program_has_the_weakest_verdict() -> None:
    assert weakest([CERTIFIED, NOT_DECIDED, CERTIFIED]) == NOT_DECIDED
    assert weakest([NOT_DECIDED, COUNTEREXAMPLE]) == COUNTEREXAMPLE
    assert weakest([]) == CERTIFIED


def test_memory_is_what_the_first_schedule_left() -> None:
    kernel = mm.Module.load(HEAD + "  mov.u32 n, %ctaid.x;\n  atom.global.add.u32 v, [p], 1;\n  add.u64 q, p, 64;\n" + TAIL)["k"]
    outs = [np.zeros(64, np.uint32) for _ in range(2)]
    kernel.launch(4, 1, [outs[0], None], threads=1)
    kernel.launch(4, 1, [outs[1], None], certify=True)
    assert outs[1][0] == 4 and (outs[0] == outs[1]).all()


def test_doubts_are_no_findings() -> None:
    """A launch that is not certified has none of them, and no report lists them."""
    kernel = mm.Module.load(HEAD + START.format(count=64) + ARRIVE + ARRIVE + loop("second", 1) + TAIL)["k"]
    assert kernel.launch(1, 64, [np.zeros(64, np.uint32), None], sanitize="strict").findings == ()
    assert kernel.launch(1, 64, [np.zeros(64, np.uint32), None], certify=True).findings == ()
    assert min(Doubt) > 1 << 15
