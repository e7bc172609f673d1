"""Findings from the entries in the workers' tables: the topic of a rule writes the sentence."""

from collections.abc import Callable, Iterable
from typing import Any

from mmulator.diagnostics.findings import (
    accumulators,
    execution,
    mbarriers,
    operands,
    proxies,
    races,
    tensor_memory,
    values,
    waits,
)
from mmulator.diagnostics.findings.context import FindingContext, location
from mmulator.diagnostics.findings.near import is_plain_sync, is_unreleased
from mmulator.diagnostics.findings.shadows import is_used
from mmulator.findings import Finding, spoken
from mmulator.launch.grid import Grid
from mmulator.rules import BY_NUMBER
from mmulator.rules.accumulators import in_module
from mmulator.rules.operands import LAYOUT
from mmulator.rules.races import BY_THREADS, HALF_STRONG, NOT_RELEASED, PLAIN_SYNC, READ_WRITE, REPLICATED_READ, UNREAD

# The message of a rule, by its number, and perhaps where (else as FindingContext.where says) and what to do (else the
# rule's hint).
Sentence = Callable[[FindingContext], "str | tuple[str, str] | tuple[str, str, str]"]
_TOPICS = (accumulators, proxies, races, mbarriers, operands, execution, values, waits, tensor_memory)
SENTENCES: dict[int, Sentence] = {number: s for topic in _TOPICS for number, s in topic.SENTENCES.items()}


def finding(grid: Grid, entry: Any, count: int) -> Finding:
    """The finding of an entry. count: how often it happened."""
    context = FindingContext(grid, entry)
    said = SENTENCES[int(entry["rule"])](context)
    rule = in_module(BY_NUMBER[int(entry["rule"])], grid.kernel.program.module.options)
    message, where, *own = said if isinstance(said, tuple) else (said, context.where())
    ins, other = context.instruction, context.other
    lines = ins.span, other.span if other is not None else None
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, location(ins), ins.span.brief, context.who, where,
        context.conflict, grid.seed, count, spoken("".join(own) or rule.hint, *lines), span=ins.span,
    )  # fmt: skip


def findings_of(grid: Grid, entries: Iterable[Any]) -> tuple[Finding, ...]:
    """Findings from the entries of all workers, in the order of rules and of the text. Entries of one rule at the same
    instructions become one finding with their sum.
    """
    counts: dict[tuple[int, int, int], int] = {}
    first: dict[tuple[int, int, int], Any] = {}
    for entry in entries:
        if entry["rule"] == REPLICATED_READ.number and is_used(grid, entry):
            entry["rule"] = READ_WRITE.number
        if entry["rule"] == HALF_STRONG.number and is_unreleased(FindingContext(grid, entry)):
            entry["rule"] = NOT_RELEASED.number
        if entry["rule"] in BY_THREADS and is_plain_sync(FindingContext(grid, entry)):
            entry["rule"] = PLAIN_SYNC.number
        if entry["rule"] == LAYOUT.number:  # of each descriptor there is an entry
            entry["other_site"] = 0
            if not (broken := operands.misplaces(FindingContext(grid, entry))):
                continue
            entry["rule"] = broken.number
        if entry["rule"] == UNREAD.number and entry["words"][2]:
            entry["rule"] = entry["words"][1]
        key = int(entry["rule"]), int(entry["site"]), int(entry["other_site"])
        counts[key] = counts.get(key, 0) + int(entry["count"])
        if key not in first or (int(entry["cta"]), int(entry["warp"])) < (int(first[key]["cta"]), int(first[key]["warp"])):
            first[key] = entry
    # of a lock's accesses the plain ones race with each other, too
    known = {at for rule, site, other in first if rule == PLAIN_SYNC.number for at in (site + 1, other)}
    told = (key for key in sorted(first) if key[0] not in BY_THREADS or not {key[1] + 1, key[2]} <= known)
    return tuple(finding(grid, first[key], counts[key]) for key in told)
