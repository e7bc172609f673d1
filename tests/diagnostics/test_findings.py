"""Findings as Python has them: of reports, raised, in notebooks; what they say in 80 columns."""

import re
from dataclasses import replace

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.errors import undefined
from mmulator.base.findings import Finding, Place, at_places, by_severity, counted, grouped, paragraph, paragraphs, places, union
from mmulator.base.rules import RULES, words
from mmulator.base.rules.proxies import GLOBAL_FENCE
from mmulator.errors import ExecutionFault, LaunchError, LimitReached, UndefinedBehaviour
from mmulator.runtime.native.state import FaultKind
from mmulator.sanitizer.diagnostics.findings.topics import FAULTS
from tests.support.breaches import RULE, TWICE
from tests.support.places import PACKAGE
from tests.support.ptx_text import kernel


def launch(body: str = TWICE, **more: object) -> mm.Report:
    module = mm.Module.load(kernel(body), name="k.ptx")
    return module["k"].launch(1, 64, [np.zeros(4, np.uint32)], **{"sanitize": True} | more)  # type: ignore[arg-type]


def made(rule: str = RULE, line: int = 1, source: str = "", other: int = 0, **changes: object) -> Finding:
    conflict = Place("st.b32", f"k.ptx:{other}", "", "block (0, 0, 0)") if other else None
    plain = Finding(rule, "error", "this is wrong", "ld.b32", f"k.ptx:{line}", source, "thread 0", "", conflict, 0, 1, "mend it")
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_report_has_findings() -> None:
    report = launch()
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.location, finding.seed) == (RULE, "error", "k.ptx:15", 0)
    assert finding.about.name == RULE and finding.conflict is not None and finding.conflict.location == "k.ptx:14"
    text = str(finding)
    assert max(map(len, text.splitlines())) <= 80 and str(report).endswith(f"{text}\n1 finding (1 error), of 1 rule")
    html = report._repr_html_()
    assert "<pre>k.ptx:15: error: " in html and "&lt;" not in html.partition("<pre>")[0]
    assert finding._repr_html_().startswith("<pre>k.ptx:15: error: ")
    assert report.as_dict()["findings"] == [finding.as_dict()]
    assert launch(sanitize=False).findings == () and launch("").findings == ()


def test_raise_raises_errors_alone() -> None:
    with pytest.raises(UndefinedBehaviour, match=RULE) as caught:
        launch(sanitize="raise")
    assert [f.rule for f in caught.value.findings] == [RULE] and caught.value.span is not None
    assert caught.value.hint and "PTX ISA" in str(caught.value)
    assert undefined((made(severity="warning"), made(severity="note"))) is None
    error = undefined((made(severity="warning"), made(line=2), made(line=3)))
    assert error is not None and "(and 2 more findings)" in error.message and len(error.findings) == 3
    with pytest.raises(LaunchError, match="sanitize is 'yes'"):
        launch(sanitize="yes")


def test_a_fault_has_the_findings_before_it() -> None:
    with pytest.raises(ExecutionFault, match="trap executed") as caught:
        launch(TWICE + "bar.sync 0;\n trap;\n")
    assert [f.rule for f in caught.value.findings] == [RULE]
    assert "sanitizer: 1 finding (1 error), of 1 rule, until then; the first at k.ptx:15" in str(caught.value)


@pytest.mark.parametrize("sanitize", [True, "raise"])
def test_a_deadlock_is_a_finding_and_not_said_twice(sanitize: object) -> None:
    with pytest.raises(ExecutionFault, match="deadlock") as caught:
        launch("mov.u32 %r0, %tid.x;\n setp.lt.u32 %p0, %r0, 32;\n @%p0 bar.sync 0;\n @!%p0 bar.sync 1, 64;\n", sanitize=sanitize)
    assert [f.rule for f in caught.value.findings] == ["deadlock-at-barrier"]
    assert "sanitizer:" not in str(caught.value)
    (f,) = caught.value.findings
    assert f.where.startswith("32 of 64 threads have arrived at barrier 0") and f.where not in f.message


def test_the_time_limit_is_no_finding() -> None:
    with pytest.raises(LimitReached) as caught:
        launch("mov.u32 %r0, 0;\nL: add.u32 %r0, %r0, 1;\n setp.ne.u32 %p0, %r0, 0;\n @%p0 bra L;\n", timeout=0.5)
    assert not caught.value.findings


def test_the_finding_of_a_fault_says_nothing_twice() -> None:
    with pytest.raises(ExecutionFault, match=r"of 4 bytes at address .* in block \(0, 0, 0\), thread \(4, 0, 0\)") as caught:
        launch("mov.u32 %r0, %tid.x;\n mad.wide.u32 %rd1, %r0, 4, %rd0;\n st.global.b32 [%rd1], %r0;\n")
    (f,) = caught.value.findings
    assert (f.message, f.threads) == ("out of bounds: st.global.b32", "block (0, 0, 0), thread (4, 0, 0)")
    assert f.where == "4 bytes at byte 16 of argument 0 (out), which has 16"


def test_runs_together() -> None:
    one, two = made(count=2), made(line=2)
    joined = union([[one], [replace(one, seed=1, count=3), replace(two, seed=1)], [replace(two, seed=2)]])
    assert [(f.location, f.seed, f.seeds, f.count) for f in joined] == [("k.ptx:1", 0, (0, 1), 5), ("k.ptx:2", 1, (1, 2), 2)]
    assert union([joined, [replace(one, seed=7)]])[0].seeds == (0, 1, 7)
    assert "  seeds: found under 2 of 3, first 0" in paragraph([joined[0]], 80, 3)


def test_counts() -> None:
    warning = made(RULE, 3, severity="warning")
    assert counted([made(), made(line=2), warning, made("livelock")]) == "4 findings (3 errors, 1 warning), of 2 rules"
    assert (counted([]), counted([warning])) == ("no findings", "1 finding (1 warning), of 1 rule")
    assert by_severity(["note", "error", "note"]) == "3 findings (1 error, 2 notes)"


def test_findings_of_one_line_are_one_paragraph() -> None:
    unrolled = [made(line=n, source="mm.cu:7", other=20 + n, count=n) for n in range(1, 13)]
    warning = made("livelock", 3, severity="warning")
    groups = grouped([warning, *unrolled, made(line=30)])
    assert [len(group) for group in groups] == [12, 1, 1] and groups[-1] == [warning]
    lines = paragraph(groups[0], 80)
    assert lines[0] == f"k.ptx:1 (mm.cu:7): error: this is wrong [{RULE}]"
    assert "  by: thread 0; 78 times" in lines
    assert "  also: the same at k.ptx:2, 3, 4, 5, 6, 7, 8, 9 and 3 more" in lines
    assert sum(line.startswith("  against: st.b32 at k.ptx:2") for line in lines) == 4 and "  against: 8 lines more" in lines


def test_a_pair_of_lines_is_one_finding() -> None:
    """Whichever of the two a finding is at, and for all threads of a block; not for those of another block, nor as a note."""

    def race(rule: str, line: int, lines: str, **changes: object) -> Finding:
        one, other = (f"a.py:{n}" for n in lines)
        found = made(rule, line, one, other=line + 100, **changes)
        assert found.conflict is not None
        return replace(found, conflict=replace(found.conflict, source=other))

    pair = [race("race-read-write", n, "79") for n in range(1, 5)] + [race("race-within-warp", n, "97") for n in range(5, 9)]
    others = [race("race-write-write", 9, "77"), race("race-between-blocks", 1, "79"), race("race-within-warp", 2, "76")]
    note = race("race-read-write", 20, "79", severity="note")
    assert [len(group) for group in grouped([*pair, *others, note])] == [1, 8, 1, 1, 1]
    assert counted(pair) == "1 finding (1 error), of 1 rule" and counted([*pair, *others]).startswith("4 findings (4 errors)")
    (lines,) = paragraphs(pair, 80)
    assert "[race-read-write, race-within-warp]" in " ".join(lines[:2])
    assert "  also: the same at k.ptx:2, 3, 4, 5, 6, 7, 8" in lines and sum("against" in line for line in lines) == 2
    told = [line.partition("k.ptx:")[2].partition(" ")[0] for line in lines if "against" in line]
    assert told == ["101", "105"]  # of each line of the program the first, whose threads are those of `by`


def test_the_cause_stands_first() -> None:
    """The order in one severity: a lock's plain store, a barrier of part of a warp, a race between blocks, then all others."""
    causes = ["race-plain-sync", "aligned-partial-warp", "race-between-blocks", "race-read-write"]
    found = [made("aligned-lanes-exited", 9, severity="warning"), *(made(rule, n) for n, rule in enumerate(reversed(causes), 1))]
    assert [group[0].rule for group in grouped([*found, made("livelock", 10)])] == [*causes, "livelock", "aligned-lanes-exited"]


def test_hints_are_in_the_language_of_the_lines() -> None:
    """Each name of a language stands for something that a hint says, and nothing of threads stays PTX's (tests/ub/words)."""
    faults = "".join(path.read_text() for path in (PACKAGE / "mmulator/sanitizer/diagnostics/faults").glob("*.py"))
    others = words._STRONG_READ, words._ADD, words.WIDE_INDEX, GLOBAL_FENCE, faults
    said = " ".join((*(rule.hint for rule in RULES.values()), *others))
    for name, terms in words.TERMS.items():
        assert not [term for term in terms if term.rstrip("0123456789") not in said], name
        races = " ".join(words.in_words(RULES[f"race-{n}"].hint, name) for n in ("read-write", "within-warp", "between-blocks"))
        assert not re.search(r"bar\.|st\.|ld\.", races), races


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("with fence.mbarrier_init.release.cluster", "with cuda::ptx::fence_mbarrier_init (CUTLASS: fence_barrier_init())"),
        ("of mbarrier.init's count: a", "of the count that its init was given (init of a cuda::barrier): a"),
        ("declare the shared memory .align 128", "declare the shared memory alignas(128)"),
        ("execute fence.proxy.async.global after", "execute cuda::ptx::fence_proxy_async(cuda::ptx::space_global) after"),
    ],
)
def test_longer_names_of_ptx_have_words_of_their_own(hint: str, said: str) -> None:
    assert words.in_words(hint, "cuda") == said


def test_of_many_findings_the_rest_is_counted() -> None:
    many = [made(line=n) for n in range(1, 51)] + [made("livelock", 7, other=n) for n in range(3)]
    told = list(paragraphs(many, 80, most=8))
    assert len(told) == 9 and told[0][0].startswith("k.ptx:1: ")
    assert " ".join(" ".join(told[-1]).split()) == f"and 43 findings more: {RULE} at 42 places, livelock at 1 place"
    assert len(list(paragraphs(many[:8], 80, most=8))) == 8 and list(paragraphs([], 80)) == []
    assert at_places("livelock", places(many)["livelock"]) == f"livelock: {RULES['livelock'].title}, at 1 place"


def test_a_text_that_would_steer_a_terminal_does_not() -> None:
    assert "\x1b" not in str(made(source="\x1b[31m.cu:1")) and "?[31m.cu:1" in str(made(source="\x1b[31m.cu:1"))


def test_coordinates_stay_together() -> None:
    for width in range(40, 100):
        finding = made(threads="block (0, 0, 0), thread (10, 11, 12)" * 2)
        assert not any(line.endswith((",", "thread", "block")) and line.count("(") > line.count(")")
                       for line in paragraph([finding], width))  # fmt: skip


def test_every_fault_that_breaks_a_rule_is_a_finding() -> None:
    """But for what the program asked for, what is limited here, and calls and stacks that no rule is about."""
    kinds = "NONE TRAP ASSERTION PRINT STACK_OVERFLOW ALLOCA_OVERFLOW BAD_CALL BAD_STACK"
    assert {kind.name for kind in FaultKind} - {kind.name for kind in FAULTS} == set(kinds.split())
