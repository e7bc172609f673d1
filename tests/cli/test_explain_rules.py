"""`mmulator explain RULE`: each rule has what a reader needs, names are forgiving, examples are of the corpus."""

import json
import re
from typing import Any

import pytest

from mmulator.base.rules import RULES, TOPICS
from mmulator.base.rules.examples import example
from mmulator.cli.app import run
from mmulator.cli.completion import rule_choices
from tools.pages import rules as page


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(["explain", *words]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("name", RULES)
def test_every_rule_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    rule, text = RULES[name], said(capsys, name)
    lines = text.splitlines()
    assert lines[0] == f"{name}: {rule.severity}" and max(map(len, lines)) <= 80
    flat = " ".join(text.split())
    for part in (rule.title[1:], rule.text, rule.section, rule.hint[1:]):
        assert " ".join(part.split()) in flat
    assert len(rule.title) <= 110 and not rule.title.endswith(".") and not rule.hint.endswith(".")
    assert re.search(r"PTX ISA \d\.\d|CUDA|Triton", rule.section)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    shown = example(name)
    if shown is not None:
        assert shown.right != shown.wrong and "Right" in lines and "Wrong" in lines
        told = [line.removesuffix("...") for line in lines[lines.index("Right") + 1 :] if line not in ("", "Wrong")]
        assert len(told) == len(shown.right) + len(shown.wrong)
        assert all(line.startswith(part[2:]) for line, part in zip((*shown.right, *shown.wrong), told))
        marked = [line.startswith(">") for line in told]
        right, wrong = marked[: len(shown.right)], marked[len(shown.right) :]
        sides = ((shown.right, right), (shown.wrong, wrong))
        same = [[line for line, mark in zip(*side) if not mark] for side in sides]
        assert any(marked) and same[0] == same[1]
        bare = [{line.strip() for line in side} for side in (shown.right, shown.wrong)]
        assert bare[0] & bare[1] == {line.strip() for line in {*shown.right} & {*shown.wrong}}, "blanks alone make no difference"


def test_examples_are_those_of_the_corpus() -> None:
    assert page.EXAMPLES.read_text() == page.examples(), "run python -m tools.pages.rules"


def test_names_are_forgiving(capsys: pytest.CaptureFixture[str]) -> None:
    want = said(capsys, "mbarrier-init-in-use")
    assert want == said(capsys, "mbarrier", "init", "in", "use") == said(capsys, "Mbarrier_init_in_use")
    for typo in ("mbarrier-init-in-us", "mbarrier-in-use", "mbarrier_init"):
        assert re.search("did you mean the rule of the sanitizer .*mbarrier-init-in-use", said(capsys, typo, code=1))
    assert "rule of the sanitizer" not in said(capsys, "nonsense", code=1)
    assert "not both" in said(capsys, "mbarrier-init-in-use", "--brief", code=2)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "rules")
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in RULES) and f"{len(RULES)} rules" in text
    races = said(capsys, "races")
    assert "race-read-write" in races and "mbarrier-init-in-use" not in races
    assert max(map(len, text.splitlines())) <= 80


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = json.loads(said(capsys, "mbarrier-init-in-use", "--json"))
    assert data["ok"] and data["right"] != data["wrong"]
    assert (data["name"], data["topic"]) == ("mbarrier-init-in-use", "mbarriers")
    every = json.loads(said(capsys, "rules", "--json"))["rules"]
    assert [r["name"] for r in every] == [*RULES] and {r["topic"] for r in every} <= {*TOPICS}


def test_completion() -> None:
    assert "races" in rule_choices([], "ra") and "race-read-write" in rule_choices([], "race-r")
    assert rule_choices([], "proxies,-race-read") == ["proxies,-race-read-write"]
