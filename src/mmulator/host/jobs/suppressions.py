"""Findings that a launch file expects: `[[suppress]]`, each with the rule, and perhaps the line and the reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.base.findings import Finding, Place
from mmulator.base.rules.choice import meant

_KEYS = {"rule": str, "line": int, "source": str, "reason": str}


@dataclass(frozen=True)
class Suppression:
    """An expected finding: a table `[[suppress]]` of a launch file.

    rule: a rule, a topic, or a pattern with `*`.
    line: line of the PTX, 0 for any; the finding's, or that of the access that it conflicts with.
    source: `mm.cu:31` or `mm.cu`, "" for any; likewise of either access.
    reason: why the finding is expected.
    """

    rule: str
    line: int = 0
    source: str = ""
    reason: str = ""

    def __str__(self) -> str:
        line, source = f"line = {self.line}" if self.line else "", f'source = "{self.source}"' if self.source else ""
        return ", ".join(filter(None, (f'rule = "{self.rule}"', line, source)))

    def covers(self, finding: Finding) -> bool:
        places = [p for p in (finding, finding.conflict) if p is not None]
        return finding.rule in meant(self.rule) and any(self._at(place) for place in places)

    def _at(self, place: Finding | Place) -> bool:
        line = not self.line or place.location.rpartition(":")[2] == str(self.line)
        sources = [part.rpartition("/")[2] for part in place.source.split(" from ")]
        return line and (not self.source or any(self.source in (s, s.rpartition(":")[0]) for s in sources))


def read(tables: Any, path: Path) -> list[Suppression]:
    """Suppressions from the tables of a launch file. Raises LaunchError, which names the file and the key."""
    where = f"{path}: [[suppress]]"
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise LaunchError(f"{path}: what is suppressed are tables: [[suppress]]")
    return [_read(table, where) for table in tables]


def _read(table: dict[str, Any], where: str) -> Suppression:
    for key, value in table.items():
        if key not in _KEYS:
            raise LaunchError(f"{where}: unknown key {key!r}", hint="keys: " + ", ".join(_KEYS))
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise LaunchError(f"{where}: {key} is {value!r}, not a {'text' if _KEYS[key] is str else 'whole number'}")
    if "rule" not in table:
        raise LaunchError(f"{where}: 'rule' is missing", hint="`mmulator explain rules` lists them")
    try:
        meant(table["rule"])
    except ValueError as error:
        raise LaunchError(f"{where}: {error}") from None
    return Suppression(**table)


def sorted_out(
    findings: Sequence[Finding], suppressions: Sequence[Suppression]
) -> tuple[tuple[Finding, ...], list[tuple[Finding, Suppression]], list[Suppression]]:
    """(findings that stay, expected findings with their suppression, suppressions that no finding needed)."""
    expected = [(f, s) for f in findings for s in [next((s for s in suppressions if s.covers(f)), None)] if s is not None]
    gone = {id(f) for f, _ in expected}
    used = {s for s in suppressions if any(s.covers(f) for f, _ in expected)}
    return tuple(f for f in findings if id(f) not in gone), expected, [s for s in suppressions if s not in used]
