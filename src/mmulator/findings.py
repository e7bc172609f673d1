"""What the sanitizer found in a run, as data: which rule is broken, where, by whom, against what."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mmulator.rules import RULES

if TYPE_CHECKING:
    from mmulator.rules import Rule
    from mmulator.source import Span


@dataclass(frozen=True)
class Place:
    """The other access of a conflict. instruction: its name. location: `file:line` of the PTX. source: the line that this was
    compiled from, `mm.py:17`, or "". threads: who executed it."""

    instruction: str
    location: str
    source: str
    threads: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        beside = f" ({self.source})" if self.source else ""
        return f"{self.instruction} at {self.location}{beside}, {self.threads}"


@dataclass(frozen=True)
class Finding:
    """One rule that a launch broke, at one instruction (and against one other): how often, and the first time in detail.

    rule: its name among `mmulator.rules.RULES`. severity: "error" or "warning". message: what is wrong, one sentence.
    instruction, location, source, threads: as of `Place`. where: the bytes or registers that it is about, or "". conflict: the
    other access, or None. seed: of the run. count: how often. hint: what to do. proof: what shows it, `seed 3: ...`, or "".
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
    proof: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def about(self) -> Rule:
        """The rule in full."""
        return RULES[self.rule]

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it another finding: rule, place, place of the conflict."""
        return self.rule, self.location, self.conflict.location if self.conflict else ""

    def __str__(self) -> str:
        beside = f" ({self.source})" if self.source else ""
        lines = [f"{self.location}{beside}: {self.severity}: {self.message} [{self.rule}]"]
        if self.span is not None:
            lines += ["  " + line for line in self.span.caret().split("\n")]
            lines += ["  " + line for line in (self.span.location.lines() if self.span.location else ())]
        lines.append(f"  by: {self.threads}" + (f"; {self.count:,} times" if self.count > 1 else ""))
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.conflict is not None:
            lines.append(f"  against: {self.conflict}")
            if self.conflict.span is not None:
                lines += ["    " + line for line in self.conflict.span.caret().split("\n")]
        if self.proof:
            lines.append(f"  proof: {self.proof}")
        return "\n".join([*lines, f"  rule: {self.about.section}", f"  hint: {self.hint}"])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        other = {"conflict": _plain(self.conflict)} if self.conflict is not None else {}
        return _plain(self) | other


def _plain(record: Place | Finding) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record) if f.name != "span"}
