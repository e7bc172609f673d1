"""The rows that accept a set of modifiers, and the description of a mnemonic that no row accepts."""

from collections.abc import Iterator
from dataclasses import dataclass

from mmulator.base.errors import InvalidInstructionError
from mmulator.base.source import Span
from mmulator.isa.effects import LANEWISE
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.row import CATEGORIES, Row, Slot

Words = tuple[str, ...]


@dataclass(frozen=True)
class NoForm:
    """The reason why a mnemonic denotes no instruction. start, end: the wrong part of it. message, rule, hint: for an error."""

    message: str
    start: int
    end: int
    rule: str | None = None
    hint: str | None = None
    effects = LANEWISE  # what an instruction has that nobody knows

    def error(self, span: Span) -> InvalidInstructionError:
        """The error for a mnemonic at a place in a source. The span covers only the wrong part, unless the mnemonic is written
        with blanks or comments inside.
        """
        if not {*" \t\n/"} & {*span.text}:
            span = Span(span.source, span.start + self.start, span.start + self.end)
        return InvalidInstructionError(self.message, span=span, rule=self.rule, hint=self.hint)


def rows_of(opcode: str) -> tuple[Row, ...]:
    """The rows of an opcode. The table of all rows is imported only for an opcode that is not a matrix instruction."""
    if opcode in FAMILIES:
        return FAMILIES[opcode]
    from mmulator.isa.table import ROWS

    return ROWS.get(opcode, ())


def fitting(opcode: str, modifiers: Words) -> Iterator[tuple[Row, dict[str, str]]]:
    """The rows that accept all modifiers, each with a map from slots to modifiers."""
    for row in rows_of(opcode):
        taken = _assign(row, modifiers)
        if taken is not None:
            yield row, taken


def _assign(row: Row, modifiers: Words) -> dict[str, str] | None:
    """A map from slots of the row to the modifiers; None if they do not fit."""
    fixed = list(row.fixed)
    free = list(row.slots)
    taken: dict[str, str] = {}
    for position, modifier in enumerate(modifiers):
        if modifier in fixed and (row.free or modifier == fixed[0]):
            fixed.remove(modifier)
            continue
        slot = slot_for(modifier, free, row.leading if position else "")
        if fixed and not row.free and not (slot is not None and slot.name == row.leading):
            return None
        if slot is not None:
            taken[slot.name] = modifier
            free.remove(slot)
        elif not row.open and not any(s.twice and taken.get(s.name) == modifier for s in row.slots):
            return None
    return None if fixed or not all(slot.optional for slot in free) else taken


def slot_for(modifier: str, free: list[Slot], barred: str) -> Slot | None:
    """The first free slot that accepts a modifier; only the first free slot of each category counts. barred: a slot that is
    excluded.
    """
    passed = set()
    for slot in free:
        category = CATEGORIES.get(slot.name)
        if modifier in slot.choices and slot.name != barred and category not in passed:
            return slot
        if category is not None:
            passed.add(category)
    return None
