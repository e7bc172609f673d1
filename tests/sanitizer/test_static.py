"""What is found in the text alone: nothing that a launch would not say (tests/ub/static has what only the text is asked for)."""

import pytest

import mmulator as mm
from mmulator.base.rules import RULES, TOPICS
from mmulator.ptx.program.static import static_findings
from tests.support import breaches
from tests.support.corpus import FOLDER

ONLY_STATIC = {rule.name for rule in TOPICS["text"]}
RUN = [file for file in breaches.every() if file.suffix == ".ptx" and "sanitize=" not in file.read_text()]
COMPILED = sorted(file.name for file in (FOLDER / "ptx").glob("*.ptx"))


def rules_of(text: str) -> frozenset[str]:
    return frozenset(f.rule for f in static_findings(mm.Module.load(text).tree))


@pytest.mark.parametrize("file", RUN, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_the_text_says_nothing_that_a_launch_does_not(file: breaches.Path) -> None:
    """But for rules that only the text is asked for."""
    for change in breaches.revisions(file):
        assert rules_of(breaches.text(file, change.name)) - ONLY_STATIC <= change.rules, change


@pytest.mark.parametrize("name", COMPILED)
def test_what_compilers_make_is_right(name: str) -> None:
    assert not rules_of((FOLDER / "ptx" / name).read_text())


def test_rules_that_say_that_they_are_static_are() -> None:
    said = {rule.name for rule in TOPICS["accumulators"] if rule.static}
    changes = (c for file in breaches.files("accumulators") for c in breaches.changes(file))
    assert {rule for c in changes for rule in rules_of(breaches.text(c.file, c.name))} == said
    static = {rule for file in breaches.files("static") for change in breaches.changes(file) for rule in change.rules}
    assert static <= {name for name, rule in RULES.items() if rule.static}
