"""What is found in the text alone: each change of static/ by its rules, of kernels/ nothing that a launch would not say."""

from __future__ import annotations

import pytest

import mmulator as mm
from mmulator.program.static import static_findings
from mmulator.rules import RULES
from mmulator.rules.accumulators import RULES as OF_REGISTERS
from mmulator.rules.text import RULES as OF_TEXT
from tests.support import breaches, places
from tests.support.corpus import FOLDER

FILES = tuple(sorted((places.ROOT / "tests" / "sanitizer" / "static").glob("*.ptx")))
CHANGES = [change for file in FILES for change in breaches.changes(file)]
ONLY_STATIC = {rule.name for rule in OF_TEXT}
RUN = [file for topic in sorted(breaches.ROOT.iterdir()) for file in breaches.files(topic.name)]
COMPILED = sorted(file.name for file in (FOLDER / "ptx").glob("*.ptx"))


def rules_of(text: str) -> frozenset[str]:
    return frozenset(f.rule for f in static_findings(mm.Module.load(text).tree))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_what_is_right_has_no_findings(file: breaches.Path) -> None:
    assert not rules_of(breaches.text(file))


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_is_wrong_is_found(change: breaches.Change) -> None:
    assert rules_of(breaches.text(change.file, change.name)) == change.rules


@pytest.mark.parametrize("file", RUN, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_the_text_says_nothing_that_a_launch_does_not(file: breaches.Path) -> None:
    """But for rules that only the text is asked for."""
    assert not rules_of(breaches.text(file))
    for change in breaches.changes(file):
        assert rules_of(breaches.text(file, change.name)) - ONLY_STATIC <= change.rules, change


@pytest.mark.parametrize("name", COMPILED)
def test_what_compilers_make_is_right(name: str) -> None:
    assert not rules_of((FOLDER / "ptx" / name).read_text())


def test_rules_that_say_that_they_are_static_are() -> None:
    said = {rule.name for rule in OF_REGISTERS if rule.static}
    changes = (c for file in breaches.files("accumulators") for c in breaches.changes(file))
    assert {rule for c in changes for rule in rules_of(breaches.text(c.file, c.name))} == said
    assert {rule for c in CHANGES for rule in c.rules} <= {name for name, rule in RULES.items() if rule.static}


def test_a_finding_says_where_and_why() -> None:
    (file,) = (f for f in breaches.files("accumulators") if f.stem == "attention")
    (finding,) = static_findings(mm.Module.load(breaches.text(file, "scores_weak")).tree)
    assert finding.instruction == "mov.f32" and finding.where == "register %f8" and finding.threads == "" and finding.count == 1
    assert finding.conflict is not None and finding.conflict.instruction.startswith("wgmma.mma_async")
    assert "in flight: no wgmma.wait_group covers it on any path" in finding.message
    assert "mov.f32 %f0, %f8" in str(finding)
