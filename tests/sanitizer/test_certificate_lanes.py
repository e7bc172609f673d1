"""Certificates of kernels whose lanes of one warp go apart: what one does says nothing of another."""

import pytest

from mmulator.host.certificate import COUNTEREXAMPLE
from tests.support.certificates import START, certificate, is_certified, loop, refused


def test_a_lane_may_not_arrive_twice_while_others_of_its_warp_are_on_their_way() -> None:
    """A barrier with a count counts a warp when all its lanes have come or exited: lane 0 may have come once or twice by then."""
    twice = """  mov.u32 v, 1;
  setp.ne.u32 early, l, 0;
  @early bra GONE;
  setp.eq.u32 one, w, 0;
  @one bra FIRST;
  barrier.sync 1, 64;
  barrier.arrive 1, 64;
  bra END;
FIRST: barrier.arrive 1, 64;
  {}barrier.sync 1, 64;
  bra END;
GONE: nanosleep.u32 1000;
  ret;
END:
"""
    for seed in range(4):
        assert "in the round before" in refused(twice.format(""), seed=seed)


ROTATING = """  mov.u32 n, 0;
again: add.u32 a, l, n;
  and.b32 a, a, 31;
  shl.b32 a, a, 2;
  {address}
  st.{space}.u32 [{at}], l;
  {between}add.u32 n, n, 1;
  setp.lt.u32 done, n, 2;
  @done bra again;
  bar.warp.sync -1;
  ld.{space}.u32 v, [{at}];
"""
PLACES = {
    "shared": ("mov.u32 w, tile; add.u32 a, a, w;", "a"),
    "global": ("ld.param.u64 s, [other]; cvt.u64.u32 r, a; add.u64 r, r, s;", "r"),
}


@pytest.mark.parametrize("space", PLACES)
def test_lanes_that_store_to_each_others_places_by_one_instruction_must_meet(space: str) -> None:
    """Each turn of the loop is an execution of its own: nothing orders a lane's first store and another's second."""
    address, at = PLACES[space]
    body = ROTATING.format(space=space, address=address, at=at, between="{}")
    is_certified(body.format("bar.warp.sync -1;\n  "), block=32)
    found = certificate(body.format(""), block=32)
    assert found.verdict == COUNTEREXAMPLE and "race-within-warp" in found.reasons[0].why


ADDS = {"reads": "ld.shared.u32 v, [tile];", "writes": "st.shared.u32 [tile], 7;"}


@pytest.mark.parametrize("name", ADDS)
def test_who_has_added_to_a_sum_knows_nothing_of_what_others_add(name: str) -> None:
    """The last of several atomic operations is the thread's own in some runs; the others count, too."""
    body = "  setp.eq.u32 early, t, 0;\n  @early st.shared.u32 [tile], 0;\n  setp.eq.u32 one, l, 0;\n"
    body += "  setp.eq.u32 done, t, {who};\n"
    body += "  mov.u32 v, 1;\n  bar.sync 0;\n  @one red.shared.add.u32 [tile], 3;\n  {meet}@done " + ADDS[name] + "\n"
    is_certified(body.format(who=32, meet="bar.sync 0;\n  "), block=96)
    for who in (0, 32, 64):
        for seed in range(4):
            found = certificate(body.format(who=who, meet=""), block=96, seed=seed)
            assert found.verdict == COUNTEREXAMPLE and "race-" in found.reasons[0].why, (who, seed)


def test_what_one_lane_adds_says_nothing_of_what_another_adds_by_the_same_instruction() -> None:
    """All lanes but lane 1 add at once; lane 1 hears of lane 2 alone."""
    body = START.format(count=1) + """  setp.eq.u32 early, l, 1;
  @one st.shared.u32 [tile], 0;
  bar.warp.sync -1;
  @early bra WAIT;
  red.shared.add.u32 [tile], 3;
  setp.eq.u32 one, l, 2;
  {}@one mbarrier.arrive.shared.b64 _, [bar];
  bra END;
WAIT:
""" + loop("again", 0) + "  ld.shared.u32 v, [tile];\nEND:\n"  # fmt: skip
    is_certified(body.format("bar.warp.sync 0xFFFFFFFD;\n  "), block=32)
    found = certificate(body.format(""), block=32)
    assert found.verdict == COUNTEREXAMPLE and "race-within-warp" in found.reasons[0].why


def test_a_meeting_says_nothing_of_lanes_that_have_exited() -> None:
    """Lane 1 waits and exits; the others meet without it, and end the next phase: lane 1 can be lapped."""
    body = START.format(count=1) + """  mov.u32 n, 0;
  setp.eq.u32 early, l, 1;
  @one mbarrier.arrive.shared.b64 _, [bar];
""" + loop("first", 0) + """  {}@early exit;
  bar.warp.sync 0xFFFFFFFD;
  @one mbarrier.arrive.shared.b64 _, [bar];
""" + loop("second", 1)  # fmt: skip
    is_certified(body.format("bar.warp.sync -1;\n  "), block=32)
    for seed in range(4):
        assert "lapped" in refused(body.format(""), block=32, seed=seed)


def test_lanes_of_a_group_that_stores_again_must_meet() -> None:
    """All lanes of warp 0 store 1, then 2; lane 0 alone tells warp 1, and another lane may be late with its 1."""
    body = START.format(count=1) + """  setp.eq.u32 early, w, 1;
  @early bra WAIT;
  mov.u32 n, 1;
turn: st.shared.u32 [tile], n;
  {}add.u32 n, n, 1;
  setp.lt.u32 done, n, 3;
  @done bra turn;
  @one mbarrier.arrive.shared.b64 _, [bar];
  bra END;
WAIT:
""" + loop("again", 0) + "  ld.shared.u32 v, [tile];\nEND:\n"  # fmt: skip
    is_certified(body.format("bar.warp.sync -1;\n  "))
    found = certificate(body.format(""))
    assert found.verdict == COUNTEREXAMPLE and "race-within-warp" in found.reasons[0].why


def test_a_sum_that_many_blocks_add_to_is_certified_and_not_if_one_reads_it() -> None:
    add = "  setp.eq.u32 one, t, 0;\n  ld.param.u64 s, [other];\n  @one red.global.add.u32 [s], 1;\n  mov.u32 n, %ctaid.x;\n"
    add += "  mov.u32 v, n;\n  mul.wide.u32 q, n, 4;\n  add.u64 q, p, q;\n"
    is_certified(add, block=1, grid=700)
    refused(add + "  setp.eq.u32 done, n, 699;\n  @done ld.global.u32 v, [s];\n", block=1, grid=700)
