"""The corpus: each kernel is clean, each change of it is found by its rules and by no other, whatever the seed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mmulator as mm
from mmulator.rules import RULES
from tests.support import breaches

SEEDS = 0, 1, 2
FILES = [file for topic in sorted(breaches.ROOT.iterdir()) for file in breaches.files(topic.name)]
WEAK = re.compile(r"^\s*(@!?%\w+ )?(st|ld|red|atom|fence|membar|mbarrier|barrier\.cluster)\b.*\.(relaxed|volatile|cta)\b")
CHANGES = [change for file in FILES for change in breaches.changes(file)]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_what_is_right_has_no_findings(file: Path) -> None:
    for seed in SEEDS:
        result = breaches.launch(file, seed=seed)
        assert not isinstance(result, mm.errors.ExecutionFault), f"seed {seed}: {result}"
        assert not result.findings, "\n".join([f"seed {seed}", *map(str, result.findings)])


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_is_wrong_is_found(change: breaches.Change) -> None:
    for seed in SEEDS:
        result = breaches.launch(change.file, change.name, seed)
        said = "\n".join([f"seed {seed}", str(result), *map(str, result.findings)])
        assert breaches.rules_found(result) == change.rules, said
    holes = [f.message for f in result.findings if change.file.parent.name == "values" and f.rule.startswith("uninitialized-")]
    reasons = r": %\w+ is |, from bytes that |bytes of shared memory|nor a kernel"
    assert all(re.search(reasons, message) for message in holes), holes
    lines = weakened(change)
    named = [f.message for f in result.findings if f.rule.startswith("race-") and f.rule != "race-scope"]
    assert not lines or all(any(f"<ptx>:{line} " in message for line in lines) for message in named), named


def weakened(change: breaches.Change) -> list[int]:
    """Lines of a kernel of races of which the change makes a signal, a wait or a fence relaxed, or its scope narrow: findings
    name them."""
    if change.file.parent.name != "races":
        return []
    pairs = zip(breaches.text(change.file).splitlines(), breaches.text(change.file, change.name).splitlines())
    changed = [(n, code) for n, (clean, code) in enumerate(pairs, 1) if clean.strip() != code.strip()]
    return [n for n, _ in changed] if all(WEAK.search(code) and "bar.sync" not in code for _, code in changed) else []


def test_every_rule_is_broken_twice() -> None:
    static = (c for file in sorted((breaches.ROOT.parent / "static").glob("*.ptx")) for c in breaches.changes(file))
    every = [*CHANGES, *static]
    counts = {rule: sum(rule in c.rules for c in every) for rule in RULES}
    assert not {rule: count for rule, count in counts.items() if count < 2}
