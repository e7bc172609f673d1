"""Mnemonic to form, by the rows, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mmulator.errors import similar
from mmulator.isa.form import Form, form_of
from mmulator.isa.row import TYPE_SLOTS, Row, Section
from mmulator.isa.table import ROWS


@dataclass(frozen=True, slots=True)
class NoForm:
    """Why no row matches. position: index of the offending modifier, or None. message, hint, section: for an error."""

    message: str
    position: int | None = None
    hint: str | None = None
    section: Section | None = None


def _assign(row: Row, modifiers: tuple[str, ...]) -> dict[str, str] | tuple[int, str]:
    """Modifiers to slots. As in ptxas, order between slots is free but for types, fixed modifiers and `leading`.

    Returns slot -> modifier, or (how many modifiers fit, what is wrong).
    """
    fixed = list(row.fixed)
    free = list(row.slots)
    taken: dict[str, str] = {}
    for position, modifier in enumerate(modifiers):
        if modifier in fixed and (row.free or modifier == fixed[0]):
            fixed.remove(modifier)
            continue
        if fixed and not row.free and not (position == 0 and row.leading):
            break
        types = 0
        for slot in free:
            types += slot.name in TYPE_SLOTS
            if slot.name == row.leading and position:
                continue
            if modifier in slot.choices and (types <= 1 or slot.name not in TYPE_SLOTS):
                taken[slot.name] = modifier
                free.remove(slot)
                break
        else:
            if not row.open:
                return position, f".{modifier} cannot stand here"
    if fixed:
        return -1, f".{fixed[0]} is missing"
    for slot in free:
        if not slot.optional:
            choices = ", ".join(f".{a}" for a in slot.choices[:12])
            more = ", ..." if len(slot.choices) > 12 else ""
            return len(modifiers), f"a modifier is missing: one of {choices}{more}"
    return taken


@lru_cache(maxsize=8192)
def match(opcode: str, modifiers: tuple[str, ...]) -> Form | NoForm:
    """The form of a mnemonic: `match("ld", ("global", "v4", "b32"))`. A `NoForm` says why there is none."""
    found = _find(opcode, modifiers)
    return found if isinstance(found, NoForm) else form_of(*found)


def row_of(opcode: str, modifiers: tuple[str, ...]) -> Row | None:
    """The line of the tables that a mnemonic belongs to: the first that fits."""
    found = _find(opcode, modifiers)
    return None if isinstance(found, NoForm) else found[0]


def _find(opcode: str, modifiers: tuple[str, ...]) -> tuple[Row, dict[str, str]] | NoForm:
    """The first row that fits, with its modifiers by slot."""
    rows = ROWS.get(opcode)
    if rows is None:
        return NoForm(f"there is no instruction {opcode!r}", None, _similar(opcode, ROWS))
    best: tuple[int, str, Row] | None = None
    for row in rows:
        taken = _assign(row, modifiers)
        if isinstance(taken, dict):
            wrong = row.rule(taken) if row.rule else None
            if wrong is None:
                return row, taken
            fit, message = len(modifiers) + 1, wrong
        else:
            fit, message = taken
        if best is None or fit > best[0]:
            best = fit, message, row
    assert best is not None  # every opcode has a row
    fit, message, row = best
    position = fit if 0 <= fit < len(modifiers) else None
    return NoForm(f"{'.'.join((opcode, *modifiers))}: {message}", position, section=row.section)


def _similar(opcode: str, rows: Mapping[str, object]) -> str | None:
    close = similar(opcode, rows, 3)
    return f"did you mean {' or '.join(close)}?" if close else None
