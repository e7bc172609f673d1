"""The type of a rule: a requirement of the specification that a program can break without any visible error."""

from enum import StrEnum

from mmulator.base.classes import dataclass


class Severity(StrEnum):
    """How serious a breach is.

    error: the behaviour is undefined, or the result depends on timing.
    warning: the program works, but probably does not do what its author intended.
    note: the specification forbids it, but common compilers generate it; reported only on request (`strict`).
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Rule:
    """A rule, with the texts that users see.

    number: identifies the rule in findings of native code; each topic has a hundred numbers.
    name: identifies the rule for users, in suppressions too; names never change.
    severity: how serious a breach is.
    title: what is wrong, in a few words.
    section: title of the section that states the rule, and its document and version: `PTX ISA 9.1, Async proxy`.
    text: what must hold, and what happens otherwise, in a few sentences.
    hint: how to repair the program.
    static: whether `mmulator check` finds some breaches without a run.
    family: rules of one family state the same for different threads; their findings at one pair of lines become one finding.
    order: of findings of one severity those of a lower order stand first, since others may follow from them.
    says: the message of a finding, with {this} and {other} for the names of its instructions; "" if there are several
        (sanitizer/diagnostics/findings/).
    faults: names of the kinds of faults (runtime/native/state.py: FaultKind) that break the rule whatever else is the case.
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
    order: int = 3
    says: str = ""
    faults: str = ""

    @property
    def kind(self) -> str:
        """The rule's family, or its name if it has no family."""
        return self.family or self.name

    def __int__(self) -> int:
        """The number, by which native code names the rule."""
        return self.number
