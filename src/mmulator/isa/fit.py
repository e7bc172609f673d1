"""Which rows take which modifiers, and what is said of a mnemonic that none takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmulator.errors import InvalidInstructionError
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.row import CATEGORIES, Row, Slot
from mmulator.source import Span

Words = tuple[str, ...]


@dataclass(frozen=True)
class NoForm:
    """Why a mnemonic is none. start, end: the part of it that is wrong. message, rule, hint: for an error."""

    message: str
    start: int
    end: int
    rule: str | None = None
    hint: str | None = None

    def error(self, span: Span) -> InvalidInstructionError:
        """For a mnemonic that stands there; it points at the part that is wrong, if nothing stands between its words."""
        if not {*" \t\n/"} & {*span.text}:
            span = Span(span.source, span.start + self.start, span.start + self.end)
        return InvalidInstructionError(self.message, span=span, rule=self.rule, hint=self.hint)


def rows_of(opcode: str) -> tuple[Row, ...]:
    """The rows of an opcode. The table of all of them is made when the first that is no matrix instruction is asked for."""
    if opcode in FAMILIES:
        return FAMILIES[opcode]
    from mmulator.isa.table import ROWS

    return ROWS.get(opcode, ())


def fitting(opcode: str, modifiers: Words) -> Iterator[tuple[Row, dict[str, str]]]:
    """The rows that take all the modifiers, with what stands in which slot."""
    for row in rows_of(opcode):
        taken = _assign(row, modifiers)
        if taken is not None:
            yield row, taken


def _assign(row: Row, modifiers: Words) -> dict[str, str] | None:
    """Modifiers to slots; None if they do not fit."""
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
    """The first free slot that takes a modifier; of one category only the first may."""
    passed = set()
    for slot in free:
        category = CATEGORIES.get(slot.name)
        if modifier in slot.choices and slot.name != barred and category not in passed:
            return slot
        if category is not None:
            passed.add(category)
    return None
