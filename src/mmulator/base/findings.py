"""Findings of the sanitizer as data (which rule is broken, where, by whom, against what), and as people read them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from mmulator.base.location import in_one_function, printable
from mmulator.base.refusals import number
from mmulator.base.rules import RULES, Severity
from mmulator.base.rules.words import between, in_words, language

if TYPE_CHECKING:
    from mmulator.base.rules import Rule
    from mmulator.base.source import Span

WIDTH = 80
_COORDINATES, _HARD = re.compile(r"(?:\w+ )?\(\d+, \d+, \d+\)"), "\xa0"  # `thread (0, 0, 0)` stays in one piece
_SEVERITIES = [str(severity) for severity in Severity]  # the worst first
_CONFLICTS = 4  # findings of one line that are told in full
_OTHERS = 8  # lines of PTX that are named
MOST = 25  # paragraphs that people are told; JSON, SARIF and `report.findings` have all findings


@dataclass(frozen=True)
class Place:
    """The other access of a conflict.

    instruction: its name.
    location: `file:line` of the PTX.
    source: the line that the PTX was compiled from, `mm.py:17`, or "".
    threads: the threads that executed it.
    """

    instruction: str
    location: str
    source: str
    threads: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.instruction} at {_place(self)}" + (f", {self.threads}" if self.threads else "")

    def as_dict(self) -> dict[str, Any]:
        return _plain(self)


@dataclass(frozen=True)
class Finding:
    """One rule that a launch broke, at one instruction (and against one other): how often, and the first time in detail.

    rule: its name among `mmulator.base.rules.RULES`.
    severity: "error", "warning" or "note".
    message: what is wrong, one sentence.
    instruction, location, source, threads: of the access, as in `Place`.
    where: the bytes or registers concerned, or "".
    conflict: the other access, or None.
    seed: the seed of the run.
    count: how often it happened.
    hint: what to do.
    seeds: seeds under which it was found, where there were several runs.
    """

    rule: str
    severity: str
    message: str
    instruction: str
    location: str
    source: str
    threads: str
    where: str
    conflict: Place | None
    seed: int
    count: int
    hint: str
    seeds: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def about(self) -> Rule:
        """The broken rule, as an entry of `mmulator.base.rules.RULES`."""
        return RULES[self.rule]

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that tells findings apart: rule, location, location of the conflict."""
        return self.rule, self.location, self.conflict.location if self.conflict else ""

    def __str__(self) -> str:
        return "\n".join(paragraph([self], WIDTH))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def as_dict(self) -> dict[str, Any]:
        return _plain(self) | {"conflict": None if self.conflict is None else self.conflict.as_dict()}


def _plain(record: Place | Finding) -> dict[str, Any]:
    """Fields of a record as data; its span as line, column, statement and the line of the program."""
    span = record.span
    place = None if span is None else {
        "file": span.source.file, "line": span.line, "column": span.column, "text": span.text,
        "source": span.location.as_dict() if span.location else None,
    }  # fmt: skip
    return {f.name: getattr(record, f.name) for f in fields(record) if f.name != "span"} | {"place": place}


def _place(record: Place | Finding) -> str:
    return f"{record.location} ({record.source})" if record.source else record.location


def spoken(text: str, here: Span | None, there: Span | None = None) -> str:
    """A hint in the language of the lines that a finding is about (base/rules/words.py)."""
    at = here.location if here is not None else None
    if here is None or at is None:
        return text
    whole, other = here.source.text, there.location if there is not None else None
    word = language(at.file, whole[:2000])
    if there is not None and here.start != there.start and here.assembly == there.assembly >= 0:
        word = ""  # both are in one piece of inline assembly
    lines = between(*((PurePath(a.file).name, a.line) for a in in_one_function(at, other))) if other is not None else ""
    return in_words(text, word, lines)


# several ------------------------------------------------------------------------------------------------------------
def union(runs: Iterable[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Findings of several runs put together: text of the first run that found it, total count, and the seeds."""
    found: dict[tuple[str, str, str], Finding] = {}
    for findings in runs:
        for new in findings:
            old = found.get(new.key)
            seeds = (*(old.seeds or (old.seed,) if old else ()), *(new.seeds or (new.seed,)))
            first = old or new
            count = (old.count if old else 0) + new.count
            found[new.key] = replace(first, count=count, seeds=tuple(dict.fromkeys(seeds)))
    return tuple(found.values())


def group_key(finding: Finding) -> tuple[str, ...]:
    """The key that findings told as one share: severity, family of the rule, and the pair of lines of the program, in
    whichever order; for PTX without source lines the line of the finding alone."""
    conflict = finding.conflict.source if finding.conflict is not None else ""
    lines = sorted((finding.source, conflict)) if finding.source and conflict else (finding.source or finding.location, conflict)
    return finding.severity, finding.about.kind, *lines


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order in which they are told: errors first, and of these what others may follow from."""
    return sorted(findings, key=lambda f: (_SEVERITIES.index(f.severity), f.about.order))


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings in groups that are told as one, errors first. A compiler makes several instructions of one line of a program."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in ordered(findings):
        groups.setdefault(group_key(finding), []).append(finding)
    return [*groups.values()]


def counted(findings: Sequence[Finding]) -> str:
    """`3 findings (2 errors, 1 warning), of 2 rules`: as many as are told, each for all the PTX that its lines became."""
    groups = grouped(findings)
    kinds = len({group[0].about.kind for group in groups})
    return by_severity([group[0].severity for group in groups]) + (f", of {number(kinds, 'rule')}" if findings else "")


def places(findings: Iterable[Finding]) -> dict[str, int]:
    """At how many instructions each rule is broken."""
    found: dict[str, set[str]] = {}
    for finding in findings:
        found.setdefault(finding.rule, set()).add(finding.location)
    return {rule: len(locations) for rule, locations in found.items()}


def at_places(rule: str, count: int) -> str:
    """A rule with its number of places: `proxy-fence-missing-copy: wgmma reads what cp.async copied, with no fence.proxy.async,
    at 4 places`
    """
    return f"{rule}: {RULES[rule].title}, at {number(count, 'place')}"


def by_severity(severities: Sequence[str]) -> str:
    """Counts of severities: `3 findings (2 errors, 1 warning)`, or `no findings`."""
    kinds = [number(n, word) for word in _SEVERITIES if (n := severities.count(word))]
    return f"{number(len(severities), 'finding')} ({', '.join(kinds)})" if kinds else "no findings"


# text ---------------------------------------------------------------------------------------------------------------
def paragraph(group: Sequence[Finding], width: int | None, runs: int = 1) -> list[str]:
    """Lines that tell of one group of findings.

    width: columns to fold to; None does not fold.
    runs: how many seeds were tried.
    """
    first = group[0]
    own = {(c := f.conflict) and c.location for f in group} | {first.location}
    others = list(dict.fromkeys(f.location for f in group if f.location not in own))
    told: dict[str, Place] = {}
    for conflict in (f.conflict for f in group if f.conflict is not None):
        told.setdefault(conflict.source or conflict.location, conflict)  # the first one's threads are those of `first`
    conflicts = list(told.values())
    count = sum(f.count for f in group)
    rules = ", ".join(dict.fromkeys(f.rule for f in group))
    lines = _fold(f"{_place(first)}: {first.severity}: {first.message} [{rules}]", width, 4)
    lines += _quoted(first, width, "  ")
    if first.threads:  # what is known without a run has none
        lines += _fold(f"  by: {first.threads}" + (f"; {count:,} times" if count > 1 else ""), width, 6)
    if others:
        lines += _fold(f"  also: {_lines(others)}", width, 6)
    if first.where:
        lines += _fold(f"  where: {first.where}", width, 6)
    for conflict in conflicts[:_CONFLICTS]:
        lines += _fold(f"  against: {conflict}", width, 6)
        lines += _quoted(conflict, width, "    ")
    if len(conflicts) > _CONFLICTS:
        lines.append(f"  against: {len(conflicts) - _CONFLICTS} lines more")
    if runs > 1:
        lines += _fold(f"  seeds: {_seeds(group, runs)}", width, 6)
    lines += _fold(f"  rule: {first.about.section}", width, 6)
    lines += _fold(f"  hint: {first.hint}", width, 6)
    return [printable(line) for line in lines]


def paragraphs(findings: Iterable[Finding], width: int | None, runs: int = 1, most: int = MOST) -> Iterator[list[str]]:
    """Lines of each paragraph, at most `most` paragraphs; then how many findings are left, and where all are.

    Findings of one line against several others are one paragraph.
    """
    lines: dict[tuple[str, ...], list[Finding]] = {}
    for found in grouped(findings):
        first = found[0]
        lines.setdefault((first.severity, first.about.kind, first.source or first.location), []).extend(found)
    groups = [*lines.values()]
    for group in groups[:most]:
        yield paragraph(group, width, runs)
    if left := [f for group in groups[most:] for f in group]:
        rules = _few([f"{rule} at {number(n, 'place')}" for rule, n in places(left).items()])
        yield _fold(f"and {number(len(grouped(left)), 'finding')} more: {rules}", width, 2)


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:_OTHERS]) + (f" and {number(len(words) - _OTHERS, 'rule')} more" if len(words) > _OTHERS else "")


def _lines(locations: Sequence[str]) -> str:
    """Several locations in one text: `the same at k.ptx:211, 224, 237`."""
    files: dict[str, list[str]] = {}
    for location in locations[:_OTHERS]:
        file, _, line = location.rpartition(":")
        files.setdefault(file, []).append(line)
    more = f" and {len(locations) - _OTHERS} more" if len(locations) > _OTHERS else ""
    return "the same at " + ", ".join(f"{file}:{', '.join(numbers)}" for file, numbers in files.items()) + more


def _seeds(group: Sequence[Finding], runs: int) -> str:
    seeds = sorted({seed for f in group for seed in (f.seeds or (f.seed,))})
    if len(seeds) == runs:
        return f"found under all {runs}"
    return f"found under {len(seeds)} of {runs}, first {seeds[0]}"


def _quoted(record: Place | Finding, width: int | None, indent: str) -> list[str]:
    """The line of PTX with a caret, and the line that it was compiled from."""
    if record.span is None:
        return []
    lines = record.span.caret(*(() if width is None else (width - len(indent),))).split("\n")
    location = record.span.location
    lines += location.lines(None if width is None else width - len(indent)) if location else []
    return [indent + (line if width is None else line[: width - len(indent)]) for line in lines]


def _fold(text: str, width: int | None, hang: int) -> list[str]:
    if width is None or len(text) <= width:
        return [text]
    lead = " " * (len(text) - len(text.lstrip()))
    whole = _COORDINATES.sub(lambda found: found[0].replace(" ", _HARD), text.lstrip())
    lines = textwrap.wrap(
        whole, width, initial_indent=lead, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_HARD, " ") for line in lines]
