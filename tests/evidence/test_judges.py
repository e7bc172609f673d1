"""Runners of corpora that are not here: they import, their rules exist, and what they share counts as it should."""

import ast
import importlib
import re
import subprocess
from pathlib import Path

import pytest

from evidence import evaluate
from evidence.judges import common, consan, judges, mutate
from mmulator.base.rules.choice import meant
from tests.support.places import ROOT

PARTS = ("__init__", "__main__", "bits", "common", "judges", "mutate")  # of the folder, that are no runners
RUNNERS = sorted(path.stem for path in (ROOT / "evidence" / "judges").glob("*.py") if path.stem not in PARTS)
SOURCE = """
#include <cstdio> /* { */
#define TWO(x) { x; \\
    x; }
constexpr int N = 4;
static void host(int *p) { if (p) { k<<<1, 1>>>(p); } }
__device__ int kept[N] = {1, 2};
__global__ void k(int *p) { for (;;) { p[0] = N; } }
int main() { host(nullptr); return 0; }
"""


def test_expectations_name_rules_that_exist() -> None:
    found = [importlib.import_module(f"evidence.judges.{name}").JUDGE for name in RUNNERS]
    assert [judge.name for judge in found] == RUNNERS == sorted(runner.JUDGE.name for runner in judges.RUNNERS)
    for judge in found:
        assert judge.expected and all(meant(word) for word in judge.rules)


def test_a_folder_without_the_corpus_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    for words, said in (([str(tmp_path)], "is in .*: is that "), ([str(tmp_path), "--only", "sums"], "has 'sums' in its name")):
        options = common.arguments("").parse_args([*words, "--json", str(out)])
        assert common.finish(judges.RUNNERS[0].JUDGE, options, ()) == 1 and not out.exists()
        assert re.search(said, capsys.readouterr().err)
    with pytest.raises(SystemExit):
        common.arguments("").parse_args([str(tmp_path / "absent")])
    assert "there is no folder" in capsys.readouterr().err


def test_evaluation_tells_that_conformance_wrote_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 2, "", "first\nmmulator: error: no vectors\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    words, holds = evaluate.replay(evaluate.Options(seed=0, corpora=None, work=tmp_path, jobs=1))
    assert words == "mmulator conformance --json wrote nothing and ended with code 2: mmulator: error: no vectors" and not holds


def test_messages_of_consan() -> None:
    assert consan.messages(["deadlock-at-mbarrier"]) == ["Deadlock detected"]
    assert "Buffer being accessed has outstanding writes" in consan.messages(["tma-read-before-wait"])
    assert not consan.messages(["scale-selector-differs"])


def test_counts_and_misses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        common.Answer("q", "found", True, ("race-scope",)), common.Answer("q", "missed", True, (), "why"),
        common.Answer("q", "clean", False, ()), common.Answer("q", "alarm", False, ("race-scope",)),
    ]  # fmt: skip
    options = common.arguments("").parse_args([str(tmp_path), "--json", str(tmp_path / "out.json")])
    judge = common.Judge("n", "t", "s", "c", {"q": common.Count(1, 2, 1, 2)}, ())
    assert common.finish(judge, options, answers) == 0
    told = capsys.readouterr().out
    assert "missed: q: missed: why" in told and "flagged (race-scope): q: alarm" in told
    assert common.finish(judge, options, answers[1:]) == 1  # another count than expected
    assert common.finish(judge, options, []) == 1


def test_device_code_of_a_file() -> None:
    """Functions of the host go, with what they launch; all else stays."""
    text = common.device_code(SOURCE)
    assert [word in text for word in ("TWO(x)", "constexpr int N", "kept[N] = {1, 2};", "p[0] = N; } }")] == [True] * 4
    assert [word in text for word in ("include", "host", "<<<", "main")] == [False] * 4


def test_kept_results_are_the_expected_ones() -> None:
    """Where a run is kept, its counts are those that the page has, and what is wrong has a reason."""
    for runner in judges.RUNNERS:
        if run := judges.result(runner.JUDGE):
            assert {name: common.Count(**count) for name, count in run["counts"].items()} == runner.JUDGE.expected
            assert not [one["case"] for one in run["answers"] if not one["reason"]]


def test_changes_of_a_file_are_whole() -> None:
    """Each change of a file of the model can be parsed, and is one: the tests of its chapter exist."""
    for change in mutate.drawn(sources := mutate.sources()):
        text = sources[mutate.PACKAGE / change.file]
        assert text[change.begin : change.end] == change.old != change.new
        changed = text[: change.begin] + change.new + text[change.end :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
        assert mutate.tests_of(change), change.name


def test_words_have_no_part_in_the_drawing() -> None:
    """Other comments, docstrings and lines leave a drawing as it was; other code leaves the changes of other functions."""
    path = mutate.PACKAGE / "matrix" / "layouts" / "a.py"
    text = 'def f(a):\n    """Half."""\n    g(a, # why\n      1)\n    return a < 1 and not a < 2\n\ndef h(a):\n    return a < 1\n'
    words = '"""File."""\n\n' + text.replace("Half", "Another\n\n    half").replace("why", "as").replace("a < 1 and", "a<1  and")
    code = text.replace("return a < 1 and", "return 3 < a < 2 or")

    def names(source: str) -> list[str]:
        return [change.name for change in mutate.drawn({path: source})]

    assert names(words) == names(text) and mutate.drawing({path: words}) == mutate.drawing({path: text})
    assert len(set(names(text))) == len(names(text)) == 10
    assert names(code) != names(text) and mutate.drawing({path: code}) != mutate.drawing({path: text})
    assert [one for one in names(code) if " h: " in one] == [one for one in names(text) if " h: " in one]


def test_a_change_is_noticed_by_tests_that_pass_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that fails here in any case is left out, and so is one that was too slow; the next one that fails counts."""
    def once(source: Path, tests: list[str], work: Path, limit: int, cache: Path | None = None) -> mutate.Run:
        if source == mutate.PACKAGE.parent:
            return mutate.Run(int(tests == ["a::everywhere"]), "", 1)
        left = [test for test in given if test not in tests]
        return mutate.Run(int(bool(left)), f"FAILED {left[0]} - {given[left[0]]}\n" if left else "", 2)

    monkeypatch.setattr(mutate, "once", once)
    given = {"a::everywhere": "no such file", "a::slow": "was not compiled within 5 s", "a::true": "1 == 2"}
    assert mutate.Tests(tmp_path).outcome(tmp_path, ["a"], 9) == (mutate.KILLED, "a::true", 6)
    del given["a::true"]
    assert mutate.Tests(tmp_path).outcome(tmp_path, ["a"], 9) == (mutate.SURVIVED, "", 6)


@pytest.mark.parametrize(("with_it", "without", "noticed"), [(-24, 5, True), (-24, 7, False), (0, 5, False), (1, 5, False)])
def test_a_change_is_noticed_by_a_test_that_no_longer_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_it: int, without: float, noticed: bool
) -> None:
    """The test that had begun when time was up counts if it alone takes the time, too, and is short without the change."""
    def once(source: Path, tests: list[str], work: Path, limit: int, cache: Path | None = None) -> mutate.Run:
        if source == mutate.PACKAGE.parent:
            return mutate.Run(0, "", without)
        return mutate.Run(with_it, "", 60) if tests == ["tests/a::last"] else mutate.Run(-24, "tests/a::last \n", 90)

    monkeypatch.setattr(mutate, "once", once)
    found = mutate.Tests(tmp_path).outcome(tmp_path, ["tests/a"], 9)
    assert found == ((mutate.KILLED, "tests/a::last: does not end", 90) if noticed else (mutate.LATE, "tests/a::last", 90))
