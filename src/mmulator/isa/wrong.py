"""The error in a mnemonic that has no form: its wrong part, the modifiers that are accepted there, and the nearest
instruction.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from mmulator.base.errors import similar
from mmulator.isa.fit import NoForm, Words, fitting, rows_of, slot_for
from mmulator.isa.form import form_of
from mmulator.isa.row import Row, Slot
from mmulator.isa.table import ROWS
from mmulator.isa.types import is_type

_SHAPE = re.compile(r"m\d+n\d+(k\d+)?")
# What a writer is less likely to have got wrong weighs more.
_WEIGHTS = {"shape": 3, "type": 2, "layout": 2, "mode": 2}


@cache
def _categories(opcode: str) -> Mapping[str, frozenset[str]]:
    """Categories of every modifier that some row of the opcode has."""
    out: dict[str, frozenset[str]] = {}
    for row in rows_of(opcode):
        for slot in row.slots:
            for choice in slot.choices:
                out[choice] = out.get(choice, frozenset()) | {slot.category}
    return out


@dataclass
class _Laid:
    """Modifiers assigned to the slots of a row, including wrong ones.

    row: the row.
    taken: slot -> modifier.
    wrong: (position of a modifier, slot that it should have filled).
    missing: slots that must be filled and are not.
    """

    row: Row
    taken: dict[str, str] = field(default_factory=dict)
    wrong: list[tuple[int, Slot | None]] = field(default_factory=list)
    missing: list[Slot] = field(default_factory=list)

    def distance(self, words: Words) -> tuple[int, int, int]:
        """(number of modifiers that differ, distance of the shapes, minus the position of the first difference)."""
        changes = len(self.missing)
        away = 0
        for _, slot in self.wrong:
            changes += _WEIGHTS.get(slot.category, 1) if slot is not None else 1
            if slot is not None and slot.name == "shape":
                away = min(_apart(choice, self.taken["shape"]) for choice in slot.choices)
        return changes, away, -min((at for at, _ in self.wrong), default=len(words))


def _apart(choice: str, written: str) -> int:
    """Distance of two shapes; 0 for other modifiers."""
    a, b = ([int(x) for x in re.findall(r"\d+", s)] for s in (choice, written))
    return sum(abs(x - y) for x, y in zip(a, b)) if _SHAPE.fullmatch(choice) else 0


class Explained:
    """The explanation why a mnemonic has no form."""

    def __init__(self, opcode: str, words: Words) -> None:
        self.opcode, self.words = opcode, words
        self.text = ".".join((opcode, *words))

    def why(self) -> NoForm:
        if not rows_of(self.opcode):
            close = similar(self.opcode, ROWS, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else None
            return NoForm(f"there is no instruction {self.opcode!r}", 0, len(self.text), "Instruction Set (PTX ISA 9.1)", hint)
        for row, taken in fitting(self.opcode, self.words):
            if row.rule is not None:
                return NoForm(f"{self.text}: {row.rule(taken)}", 0, len(self.text), str(row.section))
        rows = self._named()
        if not rows:
            return self._no_name()
        return self._unknown(rows) or self._nearest(rows)

    def _at(self, position: int) -> tuple[int, int]:
        start = len(".".join((self.opcode, *self.words[:position]))) + 1
        return start, start + len(self.words[position])

    def _named(self) -> tuple[Row, ...]:
        """The rows whose fixed modifiers are all present; of these, those with the longest name."""
        rows = [row for row in rows_of(self.opcode) if self._has(row)]
        longest = max((len(row.fixed) for row in rows), default=0)
        return tuple(row for row in rows if len(row.fixed) == longest)

    def _has(self, row: Row) -> bool:
        fixed, at = row.fixed, len(row.fixed)
        if row.free:
            return set(fixed) <= {*self.words}
        return self.words[:at] == fixed or (bool(row.leading) and self.words[1 : at + 1] == fixed)

    def _no_name(self) -> NoForm:
        known = ", ".join(f"`{name}`" for name in dict.fromkeys(row.name for row in rows_of(self.opcode)))
        start = min(len(self.opcode) + 1, len(self.text) - 1) if self.words else 0
        return NoForm(
            f"`{self.text}` names no {self.opcode} instruction", start, len(self.text), str(rows_of(self.opcode)[0].section),
            f"after the opcode comes one of {known}",
        )  # fmt: skip

    def _unknown(self, rows: tuple[Row, ...]) -> NoForm | None:
        """The error of a word that no row has; None if all words are known."""
        usable = {*rows[0].fixed, *(c for row in rows for slot in row.slots for c in slot.choices)}
        has = {slot.category for row in rows for slot in row.slots}
        for position, word in enumerate(self.words):
            misplaced = (is_type(word) and "type" in has) or (_SHAPE.fullmatch(word) and "shape" in has)
            if word not in usable and not misplaced:
                near = similar(word, sorted(usable), 3, 0.5)
                hint = f"did you mean {' or '.join('.' + n for n in near)}?" if near else None
                return NoForm(f"`{rows[0].name}` has no qualifier `.{word}`", *self._at(position), str(rows[0].section), hint)
        return None

    def _lay(self, row: Row) -> _Laid:
        fixed, free, out = list(row.fixed), list(row.slots), _Laid(row)
        for position, word in enumerate(self.words):
            if word in fixed:
                fixed.remove(word)
                continue
            slot = slot_for(word, free, row.leading if position else "") or self._meant(word, free)
            if slot is None and any(s.twice and out.taken.get(s.name) == word for s in row.slots):
                continue
            if slot is not None:
                free.remove(slot)
                out.taken[slot.name] = word
            if slot is None or word not in slot.choices or (position and slot.name == row.leading):
                out.wrong.append((position, slot))
        out.missing = [slot for slot in free if not slot.optional]
        return out

    def _meant(self, word: str, free: list[Slot]) -> Slot | None:
        """The slot for which a wrong word was probably meant: the first free slot of its category."""
        categories = _categories(self.opcode).get(word, frozenset())
        if is_type(word):
            categories |= {"type"}
        if _SHAPE.fullmatch(word):
            categories |= {"shape"}
        return next((slot for slot in free if slot.category in categories), None)

    def _nearest(self, rows: tuple[Row, ...]) -> NoForm:
        """The error with the differences from the row that is nearest to the mnemonic."""
        every = [self._lay(row) for row in rows]
        best = min(every, key=lambda laid: laid.distance(self.words))
        least = best.distance(self.words)[0]
        alike = [laid for laid in every if laid.distance(self.words)[0] == least and laid.wrong[:1] == best.wrong[:1]]
        name, nearest = rows[0].name, self._repaired(best)
        if best.wrong:
            position, slot = best.wrong[0]
            word = self.words[position]
            if slot is None:
                message, hint = f"this `{name}` takes no `.{word}` here", f"leave out `.{word}`"
            elif word in slot.choices:
                message, hint = f"`.{word}` cannot stand here", f"it stands directly behind `{self.opcode}`"
            else:
                choices = dict.fromkeys(c for laid in alike if laid.wrong[0][1] for c in laid.wrong[0][1].choices)
                message = f"`.{word}` cannot be the {slot.name} of this `{name}`"
                hint = f"{slot.name} may be {_listed([*choices])}"
            start, end = self._at(position)
        elif not best.missing:
            return self._no_name()
        else:
            slot = best.missing[0]
            start, end = len(self.text) - 1, len(self.text)
            message = f"`{name}` needs a qualifier ({slot.name})"
            hint = f"one of {_listed([*slot.choices])}" if len(slot.choices) > 1 else f"add .{slot.choices[0]}"
        return NoForm(message, start, end, str(best.row.section), f"{hint}; nearest: {nearest}" if nearest else hint)

    def _repaired(self, laid: _Laid) -> str:
        """The legal instruction that differs in the fewest modifiers; "" if the row's rule refuses that too."""
        taken = dict(laid.taken)
        for slot in laid.row.slots:
            written = taken.get(slot.name, "")
            if written not in slot.meant:
                taken[slot.name] = min(slot.meant, key=lambda c: _apart(c, written))
        taken = {name: modifier for name, modifier in taken.items() if modifier}
        if laid.row.rule is not None and laid.row.rule(taken) is not None:
            return ""
        return form_of(laid.row, taken).mnemonic


def _listed(choices: list[str]) -> str:
    """Choices as a list `.a, .b`: shapes sorted by size, long lists shortened."""
    if all(map(_SHAPE.fullmatch, choices)):
        choices.sort(key=lambda s: [int(x) for x in re.findall(r"\d+", s)])
    shown = choices if len(choices) <= 12 else [*choices[:6], "...", *choices[-3:]]
    return ", ".join("." + c for c in shown).replace("....", "...")
