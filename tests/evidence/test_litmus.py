"""Litmus tests: both text formats are read, executions are followed as the memory model has them, and kernels of them agree."""

import pytest

from evidence.judges import order
from evidence.judges.litmus import chance, interleavings, kernel, program

PASSED = """PTX passed-on
"data behind a flag"
{
data=0; flag=0;
P1:r0=0; P1:r1=0;
}
 P0@cta 0,gpu 0       | P1@cta CTA,gpu 0        ;
 st.weak data, 7      | ld.ACQUIRE r0, flag     ;
 st.RELEASE flag, 1   | bne r0, 1, END          ;
                      | ld.weak r1, data        ;
                      | END:                    ;
QUANTIFIER
(P1:r0 == 1 /\\ P1:r1 == 0)
"""
CROSSED = """.global a;
.global b;
d0.b0.t0 {
  st.relaxed.gpu [a], 1;
  FENCE
  ld.relaxed.gpu r0, [b];
}
d0.b1.t0 {
  st.relaxed.gpu [b], 1;
  FENCE
  ld.relaxed.gpu r1, [a] == 0;
}
VERDICT
"""
MEETING = """PTX meeting
{
x=0;
}
 P0@cta 0,gpu 0    | P1@cta 0,gpu 0    ;
 st.weak x, 1      | bar.cta.sync 1, 3 ;
 bar.cta.sync 1, 3 | ld.weak r0, x     ;
forall (P1:r0 == 1)
"""


def passed(release: str, acquire: str, cta: int, quantifier: str = "~exists") -> program.Test:
    text = PASSED.replace("RELEASE", release).replace("ACQUIRE", acquire).replace("CTA", str(cta))
    return program.herd("passed-on", text.replace("QUANTIFIER", quantifier), True)


def crossed(fence: str, verdict: str) -> program.Test:
    return program.mixedproxy("crossed", CROSSED.replace("FENCE", fence).replace("VERDICT", verdict))


@pytest.mark.parametrize(("release", "acquire", "cta", "racy"), [
    ("release.gpu", "acquire.gpu", 1, False), ("release.cta", "acquire.cta", 0, False), ("release.cta", "acquire.gpu", 1, True),
    ("release.gpu", "acquire.cta", 1, True), ("relaxed.gpu", "acquire.gpu", 1, True), ("release.gpu", "relaxed.gpu", 1, True),
    ("weak", "weak", 0, True),
])  # fmt: skip
def test_data_behind_a_flag(release: str, acquire: str, cta: int, racy: bool) -> None:
    """Scopes and semantics decide whether there is a race: for the definitions, and for the sanitizer in lanes, warps, blocks."""
    from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer

    test = passed(release, acquire, cta)
    found = interleavings.Explorer(test).find()
    assert test.forbidden and found.racy == racy and not found.reached and found.all
    for way in kernel.ways(test):
        layout = order.Layout(test, way)
        rules = set()
        for seed in range(3):
            seen, error, report = layout.launch(seed, 16, True, [Sanitizer(strict=False)])
            rules |= {finding.rule for finding in report.findings}
            assert not seen.any() and not error
        assert bool(rules) == racy, (str(way), rules)


def test_what_turns_lead_to_is_seen_and_nothing_else() -> None:
    """With fences or without, no turns of two threads leave both reads with 0; one of them may."""
    both = crossed("fence.sc.gpu;", "assert (not (r0 == 0 && r1 == 0)) as x;")
    one = crossed("", "permit (r0 == 1) as x;")
    assert both.forbidden and not one.forbidden
    assert not interleavings.Explorer(both).find().reached
    assert interleavings.Explorer(one).find() == interleavings.Found(True, False, False, True)
    for test, asked in ((both, False), (one, True)):
        layout = order.Layout(test, kernel.Way())
        counts = [layout.launch(seed, 64, seed % 2 == 0)[0].sum() for seed in range(4)]
        assert (sum(counts) > 0) == asked


def test_barriers_and_their_deadlocks() -> None:
    good = program.herd("meeting", MEETING, True)
    assert interleavings.Explorer(good).find() == interleavings.Found(False, False, False, True)
    stuck = program.herd("meeting", MEETING.replace("sync 1, 3 | ld", "sync 1, 4 | ld"), True)
    assert interleavings.Explorer(stuck).find().stuck
    assert order.Layout(good, kernel.Way()).launch(1, 8, True)[1] == ""
    assert order.Layout(stuck, kernel.Way()).launch(1, 1, True)[1] == "ExecutionFault"


def test_an_atomic_operation_that_carries_an_order_on() -> None:
    """A reader that sees an addition to what was released is ordered behind the release."""
    text = """PTX chain
{
x=0; f=0;
}
 P0@cta 0,gpu 0      | P1@cta 1,gpu 0                  | P2@cta 2,gpu 0       ;
 st.weak x, 1        | atom.relaxed.gpu.add r0, f, 1   | ld.acquire.gpu r1, f ;
 st.release.gpu f, 1 |                                 | bne r1, 2, END       ;
                     |                                 | ld.weak r2, x        ;
                     |                                 | END:                 ;
exists (P2:r1 == 2)
"""
    assert interleavings.Explorer(program.herd("chain", text, True)).find() == interleavings.Found(True, False, False, True)
    plain = text.replace("atom.relaxed.gpu.add r0, f, 1", "st.relaxed.gpu f, 2         ")
    assert interleavings.Explorer(program.herd("chain", plain, True)).find().racy


@pytest.mark.parametrize("text", [
    PASSED.replace("P1@cta CTA,gpu 0", "P1@cta 0,gpu 1"), PASSED.replace("st.weak data, 7", "sust.weak data, 7"),
    PASSED.replace("st.weak data, 7", "fence.proxy.alias"),
])  # fmt: skip
def test_what_ptx_cannot_say_is_out_of_reach(text: str) -> None:
    text = text.replace("CTA", "0").replace("RELEASE", "weak").replace("ACQUIRE", "weak").replace("QUANTIFIER", "exists")
    with pytest.raises(program.OutOfReach):
        program.herd("no", text, True)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 11), marks=pytest.mark.full)], ids=["few", "many"])
def test_the_sanitizer_and_the_definitions_agree_on_drawn_tests(seeds: range) -> None:
    """A drawn test has a race by the definitions if and only if the sanitizer finds one in it."""
    differ = []
    for seed in seeds:
        test = chance.drawn(seed)
        rules = order.races(test, seed)
        if bool(rules) != interleavings.Explorer(test).find().racy:
            differ.append((test, rules))
    assert not differ
