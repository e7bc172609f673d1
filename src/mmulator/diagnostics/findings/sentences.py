"""Entries of the workers' tables to findings, each rule with a sentence of its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mmulator.diagnostics.findings import accumulators, execution, mbarriers, operands, proxies, races, values, waits
from mmulator.diagnostics.findings.context import FindingContext, location
from mmulator.findings import Finding, spoken
from mmulator.launch.grid import Grid
from mmulator.rules import BY_NUMBER

# The message of a rule, by its number, and perhaps where (else as FindingContext.where says) and what to do (else the
# rule's hint).
Sentence = Callable[[FindingContext], "str | tuple[str, str] | tuple[str, str, str]"]
_TOPICS = (accumulators, proxies, races, mbarriers, operands, execution, values, waits)
SENTENCES: dict[int, Sentence] = {number: s for topic in _TOPICS for number, s in topic.SENTENCES.items()}


def finding(grid: Grid, entry: Any, count: int) -> Finding:
    """One entry in words."""
    context = FindingContext(grid, entry)
    rule = BY_NUMBER[int(entry["rule"])]
    said = SENTENCES[rule.number](context)
    message, where, *own = said if isinstance(said, tuple) else (said, context.where())
    ins, other = context.instruction, context.other
    lines = ins.span, other.span if other is not None else None
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, location(ins), ins.span.brief, context.who, where,
        context.conflict, grid.seed, count, spoken(own[0] if own else rule.hint, *lines), span=ins.span,
    )  # fmt: skip


def findings_of(grid: Grid, entries: Iterable[Any]) -> tuple[Finding, ...]:
    """Of all workers, the same of several as one, in the order of rules and of the text."""
    counts: dict[tuple[int, int, int], int] = {}
    first: dict[tuple[int, int, int], Any] = {}
    for entry in entries:
        key = int(entry["rule"]), int(entry["site"]), int(entry["other_site"])
        counts[key] = counts.get(key, 0) + int(entry["count"])
        if key not in first or int(entry["cta"]) < int(first[key]["cta"]):
            first[key] = entry
    return tuple(finding(grid, first[key], counts[key]) for key in sorted(first))
