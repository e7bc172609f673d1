"""What a rule is: a sentence of the specification that a program can break without anybody noticing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """error: the behaviour is undefined, or the result depends on luck. warning: it works, and probably is not meant. note: by
    the letter it is wrong, and compilers that everybody uses do it: told only to who asks for it."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Rule:
    """One rule. number: in native code's findings; each topic has a hundred. name: for users, in suppressions too: never changed.
    family: rules of one name here say the same of other threads: at one pair of lines their findings are told as one.

    title: what is wrong, in a few words. section: title and version of what says so, `PTX ISA 9.1, Async proxy`. text: what must
    hold and what happens else, in a few sentences. hint: what to do. static: `mmulator check` finds some of it without a run.
    """

    number: int
    name: str
    severity: Severity
    title: str
    section: str
    text: str
    hint: str
    static: bool = False
    family: str = ""

    @property
    def kind(self) -> str:
        """Its family, or its name."""
        return self.family or self.name
