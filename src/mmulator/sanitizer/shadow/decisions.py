"""Tables of decisions: which rule two accesses break, as rows that a reader can check one by one.

A table is text. Its head names conditions, and behind `|` what a row says. A row has for each condition 1 (holds), 0 (does not
hold) or - (either), and behind `|` the name of a rule (- for none) and, where the head asks for it, 1 if the finding names the
other access first. Exactly one row is for each combination of conditions (tests/sanitizer/test_decisions.py).
"""

from types import ModuleType
from typing import Any, NamedTuple

from mmulator.codegen.ops import select
from mmulator.codegen.types import CodeError, u32
from mmulator.codegen.values import Builder, Value, constant

OTHER_FIRST = 1 << 16  # of a decision, above the number of the rule


class DecisionRow(NamedTuple):
    """A row: the conditions that it looks at, those of them that hold, and the decision (a rule's number, 0 for none)."""

    care: int
    want: int
    decision: int


class Decisions:
    """A table whose rules are names of a module of rules/."""

    def __init__(self, rules: ModuleType, text: str) -> None:
        head, *lines = text.strip().splitlines()
        self.conditions = tuple(head.partition("|")[0].split())
        self.rows = [self._row(rules, line) for line in lines]

    def _row(self, rules: ModuleType, line: str) -> DecisionRow:
        cells, said = (part.split() for part in line.split("|"))
        care, want = (sum((cell in wanted) << n for n, cell in enumerate(cells)) for wanted in ("01", "1"))
        number = 0 if said[0] == "-" else getattr(rules, said[0]).number
        return DecisionRow(care, want, number | OTHER_FIRST * (said[1:] == ["1"]))

    def __call__(self, **conditions: Any) -> Value:
        """Macro: the decision for these conditions (boolean values, by their names)."""
        if set(conditions) != set(self.conditions):
            raise CodeError(f"conditions are {', '.join(self.conditions)}, not {', '.join(conditions)}")
        b = Builder.current()
        holds = decision = constant(b, u32, 0)
        for n, name in enumerate(self.conditions):
            holds = holds | (u32(conditions[name]) << n)
        for row in self.rows:
            decision = select((holds & row.care) == row.want, constant(b, u32, row.decision), decision)
        return decision
