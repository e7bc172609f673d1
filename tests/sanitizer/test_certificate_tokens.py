"""Early questions, for a certificate: tokens of consumers and producers, each beside a kernel that breaks one condition."""

import pytest

from tests.support.certificates import certificate, is_certified, refused

# A producer (warp 0, lane 0) fills stages of a ring; warp 1 asks early for each stage, does something else, and waits unless the
# answer was yes. Lines between braces are what the twins change.
RING = """  .reg .b32 i, stage, par, full, empty, at, tok, x, sum; .reg .pred last, is, peek;
  .shared .align 8 .b64 fulls[{stages}]; .shared .align 8 .b64 empties[{stages}];
  setp.ne.u32 one, t, 0;
  @one bra MADE;
  mov.u32 i, 0;
MAKE: shl.b32 at, i, 3;
  mov.u32 full, fulls; add.u32 full, full, at;
  mov.u32 empty, empties; add.u32 empty, empty, at;
  mbarrier.init.shared.b64 [full], 1;
  mbarrier.init.shared.b64 [empty], 32;
  add.u32 i, i, 1; setp.lt.u32 is, i, {stages}; @is bra MAKE;
MADE: bar.sync 0;
  mov.u32 v, 1; mov.u32 i, 0; mov.u32 stage, 0; mov.u32 par, 0; mov.u32 sum, 0;
  setp.ge.u32 is, t, 32;
  @is bra CONSUME;
  @one bra END;
FILL: shl.b32 at, stage, 3;
  mov.u32 full, fulls; add.u32 full, full, at;
  mov.u32 empty, empties; add.u32 empty, empty, at;
  xor.b32 x, par, 1;
  mbarrier.try_wait.parity.shared.b64 peek, [empty], x;
  selp.u32 tok, 1, 0, peek;
  shl.b32 at, stage, 2; mov.u32 a, tile; add.u32 at, at, a;
  add.u32 n, i, 5;
  setp.ne.u32 is, tok, 0;
  @is bra FREE;
EMPTY: mbarrier.try_wait.parity.shared.b64 done, [empty], x;
  @!done bra EMPTY;
FREE: st.shared.u32 [at], n;
  mbarrier.arrive.shared.b64 _, [full];
  add.u32 i, i, 1; add.u32 stage, stage, 1;
  setp.eq.u32 is, stage, {stages}; @is xor.b32 par, par, {flip}; @is mov.u32 stage, 0;
  setp.lt.u32 is, i, 6; @is bra FILL;
  bra END;
CONSUME: mov.u32 full, fulls;
  mbarrier.{ask}.parity{order}.shared.b64 peek, [full], 0;
  selp.u32 tok, 1, 0, peek;
NEXT: {before}setp.{eq}.u32 is, tok, {0};
  shl.b32 at, stage, 3;
  mov.u32 full, fulls; add.u32 full, full, at;
  mov.u32 empty, empties; add.u32 empty, empty, at;
  mov.u32 x, par;
  {wrong}
  @is bra GO;
WAIT: mbarrier.try_wait.parity.shared.b64 done, [full], x;
  @!done bra WAIT;
  {inside}
GO: shl.b32 at, stage, 2; mov.u32 a, tile; add.u32 at, at, a;
  {late}ld.shared.u32 x, [at];
  add.u32 i, i, 1; add.u32 stage, stage, 1;
  setp.eq.u32 is, stage, {stages}; @is xor.b32 par, par, 1; @is mov.u32 stage, 0;
  setp.ge.u32 last, i, 6;
  mov.u32 tok, 1;
  @last bra SKIP;
  shl.b32 n, stage, 3; mov.u32 full, fulls; add.u32 full, full, n;
  mbarrier.{ask}.parity{order}.shared.b64 peek, [full], par;
  selp.u32 tok, 1, 0, peek;
SKIP: add.u32 sum, sum, x;
  {release}mbarrier.arrive.shared.b64 _, [empty];
  @!last bra NEXT;
  mov.u32 v, sum;
END:
"""
PARTS = {
    "stages": "2", "flip": "1", "ask": "try_wait", "order": "", "before": "", "eq": "ne", "0": "0", "wrong": "", "inside": "",
    "late": "", "release": "",
}  # fmt: skip


def ring(**parts: str) -> str:
    text = RING
    for name, part in (PARTS | {n.replace("zero", "0"): p for n, p in parts.items()}).items():
        text = text.replace("{" + name + "}", part)
    return text


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stages", ["1", "2", "3"])
def test_tokens_leave_out_waits(stages: str, seed: int) -> None:
    is_certified(ring(stages=stages), seed=seed)
    is_certified(ring(stages=stages, ask="test_wait"), seed=seed)


def test_what_else_may_hang_on_a_token() -> None:
    is_certified(ring(eq="eq", zero="1"))
    is_certified(ring(before="mov.u32 n, tok;\n  ", zero="0"))


BROKEN = {
    "it decides a store": {"inside": "st.shared.u32 [tile+1024], x;"},
    "it is stored": {"before": "st.shared.u32 [tile+1024], tok;\n  "},
    "it counts": {"inside": "add.u32 sum, sum, 1;"},
    "the answer is taken for its opposite": {"eq": "eq"},
    "it is compared with what it never is": {"eq": "eq", "zero": "2"},
    "the wait is for another stage": {"wrong": "mov.u32 full, fulls;"},
    "the wait is for another parity": {"wrong": "xor.b32 x, par, 1;"},
    "the early question acquires nothing": {"order": ".relaxed.cta"},
    "the stage is released before it is read": {"late": "mbarrier.arrive.shared.b64 _, [empty];\n  ", "release": "// "},
    "the producer's parity never turns": {"flip": "0"},
    "the stage is read before the wait": {"before": "mov.u32 at, tile; ld.shared.u32 n, [at]; add.u32 sum, sum, n;\n  "},
    "it comes from another lane": {"before": "shfl.sync.idx.b32 tok, tok, 0, 31, -1;\n  "},
    "it goes through memory": {"before": "mad.lo.u32 a, l, 4, 2048; st.shared.u32 [a], tok; ld.shared.u32 tok, [a];\n  "},
    "a third of the stages": {"wrong": "setp.ne.and.u32 is, tok, 0, one;"},
    "the wait stores nothing but asks for too much": {"inside": "bar.warp.sync -1;"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_token_is_a_choice(name: str) -> None:
    assert refused(ring(**BROKEN[name]))


def test_a_token_of_a_stage_before_is_not_one_of_this() -> None:
    """Each conditional wait is left out by the answer before, as after a wrong rotation."""
    older = ring().replace("selp.u32 tok, 1, 0, peek;\nSKIP", "mov.u32 tok, v; selp.u32 v, 1, 0, peek;\nSKIP")
    older = older.replace("selp.u32 tok, 1, 0, peek;\nNEXT", "selp.u32 tok, 1, 0, peek; mov.u32 v, tok;\nNEXT")
    assert refused(older)


TWO = """  setp.eq.u32 one, t, 0;
  @one mbarrier.init.shared.b64 [bar], 1;
  @one mbarrier.init.shared.b64 [ready], 1;
  bar.sync 0;
  mov.u32 v, 0;
  setp.lt.u32 early, t, 32;
  @early bra READ;
  setp.eq.u32 one, t, 32;
  @one st.shared.u32 [tile], 5;
  @one mbarrier.arrive.shared.b64 _, [bar];
  @one st.shared.u32 [tile+4], 6;
  @one mbarrier.arrive.shared.b64 _, [ready];
  bra.uni END;
READ: .reg .pred x, y;
  mbarrier.try_wait.parity.shared.b64 x, [bar], 0;
  mbarrier.try_wait.parity.shared.b64 y, [ready], 0;
  @{0} bra SECOND;
A: mbarrier.try_wait.parity.shared.b64 done, [bar], 0;
  @!done bra A;
SECOND: @{1} bra BOTH;
B: mbarrier.try_wait.parity.shared.b64 done, [ready], 0;
  @!done bra B;
BOTH: ld.shared.u32 v, [tile];
  ld.shared.u32 n, [tile+4];
  add.u32 v, v, n;
END:
"""


def test_two_tokens_at_once_each_leave_out_their_own_wait() -> None:
    is_certified(TWO.format("x", "y"))
    assert refused(TWO.format("y", "x"))


@pytest.mark.parametrize("both", [
    "or.pred x, x, y;", "or.pred x, y, x;", "not.pred x, x; not.pred y, y; and.pred x, x, y; not.pred x, x;",
    "selp.u32 a, 1, 0, x; selp.u32 n, 1, a, y; setp.ne.u32 x, n, 0;",
])  # fmt: skip
def test_either_of_two_tokens_leaves_out_no_wait(both: str) -> None:
    first = TWO.index("  @{0} bra SECOND;")
    text = TWO[:first] + f"  {both}\n" + TWO[TWO.index("SECOND:") :]
    assert "more than a loop" in refused(text.format("", "x"))


def test_a_poll_with_work_inside_is_a_choice() -> None:
    poll = """  setp.eq.u32 one, t, 0;
  @one mbarrier.init.shared.b64 [bar], 64;
  bar.sync 0;
  mov.u32 v, 0;
  mbarrier.arrive.shared.b64 _, [bar];
POLL: add.u32 v, v, 1;
  mbarrier.test_wait.parity.shared.b64 done, [bar], 0;
  @!done bra POLL;
"""
    assert "more than a loop" in refused(poll)
    is_certified(poll + "  mov.u32 v, 1;\n")


# A thread writes shared memory, waits, and lets a bulk copy read it. No schedule that is tried says yes at once.
FENCED = """  setp.eq.u32 one, t, 0;
  @one mbarrier.init.shared.b64 [bar], 1;
  @one mbarrier.init.shared.b64 [ready], 1;
  bar.sync 0;
  mov.u32 v, 1; mov.u32 n, 0; mov.u32 a, tile;
  @one bra MAIN;
  setp.eq.u32 early, t, 32;
  @!early bra END;
FIRST: mbarrier.try_wait.parity.shared.b64 done, [ready], 0;
  @!done bra FIRST;
SPIN: add.u32 n, n, 1; setp.lt.u32 done, n, 300; @done bra SPIN;
  mbarrier.arrive.shared.b64 _, [bar];
  bra.uni END;
MAIN: st.shared.v4.u32 [tile], {1, 2, 3, 4};
  mbarrier.arrive.shared.b64 _, [ready];
  {early}
WAIT: mbarrier.try_wait.parity.shared.b64 done, [bar], 0;
  {wait}
ON: {after}
  cp.async.bulk.global.shared::cta.bulk_group [p+1024], [a], 16;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
END:
"""


def test_a_fence_of_another_proxy_is_no_waiting() -> None:
    fence, ask = "fence.proxy.async.shared::cta;", "mbarrier.try_wait.parity.shared.b64 early, [bar], 0;\n  @early bra ON;\n"

    def fenced(early: str, wait: str, after: str = "") -> str:
        return FENCED.replace("{early}", early).replace("{wait}", wait).replace("{after}", after)

    is_certified(fenced("", "@!done bra WAIT;", fence))
    is_certified(fenced(ask, "@!done bra WAIT;", fence))
    for broken in (fenced("", f"@done bra ON;\n  {fence}\n  bra WAIT;"), fenced(ask, f"@!done bra WAIT;\n  {fence}")):
        assert "more than a loop" in refused(broken)


def test_a_guarded_question() -> None:
    start = "  setp.eq.u32 one, t, 0;\n  @one mbarrier.init.shared.b64 [bar], 64;\n  bar.sync 0;\n  mov.u32 v, 1;\n"
    start += "  mbarrier.arrive.shared.b64 _, [bar];\n  setp.eq.u32 done, t, 99;\n  setp.lt.u32 early, t, 40;\n"
    asked = "  @early mbarrier.test_wait.parity.shared.b64 done, [bar], 0;\n  add.u32 n, t, 1;\n  @done bra ON;\n"
    wait = "W: mbarrier.try_wait.parity.shared.b64 done, [bar], 0;\n  @!done bra W;\nON:\n"
    found = certificate(start + asked + wait)
    assert found.verdict == "not decided" and "another phase" in found.reasons[0].why  # who has not asked waits there, too
    is_certified(start.replace("t, 40", "t, 80") + asked + wait)


MANY = """  .reg .b32 i, stage, par, full, empty, at, x, sum, id; .reg .pred is, me, o;
  .shared .align 8 .b64 fulls[16]; .shared .align 8 .b64 empties[16];
  setp.ge.u32 one, t, 16;
  @one bra MADE;
  shl.b32 at, t, 3;
  mov.u32 full, fulls; add.u32 full, full, at;
  mov.u32 empty, empties; add.u32 empty, empty, at;
  mbarrier.init.shared.b64 [full], 1;
  mbarrier.init.shared.b64 [empty], 1;
MADE: bar.sync 0;
  mov.u32 v, 1; mov.u32 i, 0; mov.u32 stage, 0; mov.u32 par, 0; mov.u32 sum, 0; mov.u32 n, 0xffffffff;
  setp.ge.u32 done, t, 32;
NEXT: shl.b32 at, stage, 3;
  mov.u32 full, fulls; add.u32 full, full, at;
  mov.u32 empty, empties; add.u32 empty, empty, at;
  shl.b32 at, stage, 2; mov.u32 a, tile; add.u32 at, at, a;
  xor.b32 x, par, 1;
  @done bra TAKE;
FREE: mbarrier.try_wait.parity.shared.b64 is, [empty], x;
  @!is bra FREE;
  {0}
  @me st.shared.u32 [at], i;
  @me mbarrier.arrive.shared.b64 _, [full];
  bra ON;
TAKE: mbarrier.try_wait.parity.shared.b64 is, [full], par;
  @!is bra TAKE;
  {1}
  @me ld.shared.u32 x, [at];
  @me add.u32 sum, sum, x;
  @me mbarrier.arrive.shared.b64 _, [empty];
ON: {2}
  add.u32 i, i, 1; add.u32 stage, stage, 1;
  setp.eq.u32 is, stage, 16; @is xor.b32 par, par, 1; @is mov.u32 stage, 0;
  setp.lt.u32 is, i, 48; @is bra NEXT;
  @me mov.u32 v, sum;
"""


def test_lanes_that_met_once_after_a_wait_are_not_lapped_however_often_they_meet_later() -> None:
    """A warp fills, and one empties, a ring of 16; one lane is elected after each wait, and all meet twice more."""
    elect, first, later = "elect.sync id|me, n;", "setp.eq.u32 me, l, 0;", "elect.sync id|o, n;\n  elect.sync id|o, n;"
    is_certified(MANY.format(elect, elect, later))
    assert "lapped" in refused(MANY.format(first, elect, ""))
    assert refused(MANY.format(elect, first, ""))
