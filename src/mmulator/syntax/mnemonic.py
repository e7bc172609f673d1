"""Mnemonics: the text of a matrix instruction's name <-> its form, driven by the tables of isa.

As in ptxas, the opcode comes first (`mma`, `wgmma.mma_async`, `wmma.load.a`) and the other qualifiers may come in any
order; only qualifiers of one category (types, layouts) are told apart by their order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from mmulator.errors import InvalidInstructionError, similar
from mmulator.isa import wmma
from mmulator.isa.forms import MatrixForm, Row, Slot
from mmulator.isa.tables import FAMILIES, ROWS
from mmulator.isa.targets import Target
from mmulator.isa.types import TYPES
from mmulator.source import Source, Span

MATRIX_OPCODES: frozenset[str] = frozenset(FAMILIES)

_SHAPE = re.compile(r"m\d+n\d+(k\d+)?")


@dataclass(frozen=True)
class _Qualifier:
    text: str
    start: int
    category: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@cache
def _vocabulary(family: str) -> dict[str, str]:
    """Category of every qualifier that some row of the family has."""
    return {c: s.category for row in FAMILIES[family] for s in row.slots for c in s.choices if c}


@cache
def _opcodes(family: str) -> dict[str, tuple[Row, ...]]:
    """Rows by opcode text, with the dot: `wgmma.mma_async`."""
    out: dict[str, tuple[Row, ...]] = {}
    for row in FAMILIES[family]:
        name = family if row.op == family else f"{family}.{row.op}"
        out[name] = (*out.get(name, ()), row)
    return out


class _Where:
    """Builds errors that point at a qualifier of the text."""

    def __init__(self, text: str, span: Span | None) -> None:
        self.text = text
        exact = span is not None and span.text.startswith(text)
        self.span = span if span is not None else Span(Source("<instruction>", text), 0, len(text))
        self.exact = exact or span is None

    def error(
        self, message: str, start: int, end: int, *, rule: str | None = None, hint: str | None = None
    ) -> InvalidInstructionError:
        span = self.span
        if self.exact:
            span = Span(span.source, span.start + start, span.start + end)
        return InvalidInstructionError(message, span=span, rule=rule, hint=hint)


def _dots(names: list[str] | tuple[str, ...] | set[str]) -> str:
    return ", ".join(f".{name}" if name else "none" for name in names)


def _split(text: str, where: _Where) -> tuple[str, tuple[Row, ...], list[_Qualifier]]:
    """Opcode, its rows, and the qualifiers after it."""
    parts = [(m.group(), m.start()) for m in re.finditer(r"[^.]+", text)]
    family = parts[0][0] if parts else ""
    if family not in FAMILIES:
        names = ", ".join(FAMILIES)
        raise where.error(f"`{family}` is not a matrix instruction", 0, max(1, len(family)), hint=f"known: {names}")
    opcodes = _opcodes(family)
    for length in (3, 2, 1):
        name = ".".join(p for p, _ in parts[:length])
        if length <= len(parts) and name in opcodes:
            rest = parts[length:]
            break
    else:
        start, end = parts[min(1, len(parts) - 1)][1], len(text)
        known = ", ".join(f"`{o}`" for o in opcodes)
        raise where.error(
            f"`{text}` names no {family} instruction", start, end, hint=f"after the opcode comes one of {known}"
        )
    vocabulary = _vocabulary(family)
    rows = opcodes[name]
    usable = {c for row in rows for s in row.slots for c in s.choices}
    qualifiers = []
    for word, start in rest:
        category = vocabulary.get(word) or ("type" if word in TYPES else "shape" if _SHAPE.fullmatch(word) else "")
        qualifiers.append(_Qualifier(word, start, category))
        if not category or (word not in usable and category not in ("type", "shape")):
            near = similar(word, sorted(u for u in usable if u), 3, 0.5)
            raise where.error(
                f"`{name}` has no qualifier `.{word}`",
                start,
                start + len(word),
                rule=str(rows[0].section),
                hint=f"did you mean {' or '.join('.' + n for n in near)}?" if near else None,
            )
    return name, rows, qualifiers


# Narrowing goes through the categories in this order; what is most telling comes first.
_ORDER = (
    "sparse", "sync", "aligned", "kind", "block_scale", "shape", "layout", "num", "trans", "type", "format",
    "scale_vec", "satfinite", "rounding", "bit_op", "space",
)  # fmt: skip
_REPEATABLE = ("sync", "satfinite")


def _narrow(
    name: str, rows: list[Row], by_category: dict[str, list[_Qualifier]], category: str, where: _Where
) -> list[Row]:
    """Rows that take the given qualifiers of one category; an error at the first qualifier that none takes."""
    given = by_category.get(category, [])
    if category in _REPEATABLE:
        given = given[:1]
    for i, q in enumerate(given):
        kept = [r for r in rows if i < len(s := r.by_category.get(category, ())) and q.text in s[i].choices]
        if not kept:
            raise _no_row(name, rows, category, i, q, where)
        rows = kept
    exact = [r for r in rows if all(s.optional for s in r.by_category.get(category, ())[len(given) :])]
    if not exact:
        missing = [r.by_category[category][len(given)] for r in rows]
        what = " or ".join(dict.fromkeys(s.name for s in missing))
        alternatives = _dots([c for c in dict.fromkeys(c for s in missing for c in s.choices) if c])
        at = given[-1].end if given else len(where.text)
        raise where.error(
            f"`{name}` needs {'one more' if given else 'a'} qualifier{' here' if given else ''} ({what})",
            max(0, at - 1),
            at,
            rule=str(rows[0].section),
            hint=f"one of {alternatives}" if "," in alternatives else f"add {alternatives}",
        )
    return exact


def _no_row(
    name: str, rows: list[Row], category: str, index: int, q: _Qualifier, where: _Where
) -> InvalidInstructionError:
    slots: list[Slot] = [s[index] for r in rows if index < len(s := r.by_category.get(category, ()))]
    choices = [c for c in dict.fromkeys(c for s in slots for c in s.choices) if c]
    if category == "shape":
        choices.sort(key=lambda s: [int(x) for x in re.findall(r"\d+", s)])
    what = " or ".join(dict.fromkeys(s.name for s in slots)) or category
    if choices:
        shown = choices if len(choices) <= 12 else [*choices[:6], "...", *choices[-3:]]
        hint = f"{what} may be " + _dots(shown).replace("....", "...")
        message = f"`.{q.text}` cannot be the {what} of this `{name}`"
    else:
        hint = f"leave out `.{q.text}`"
        message = f"this `{name}` takes no `.{q.text}` here"
    return where.error(message, q.start, q.end, rule=str(rows[0].section), hint=hint)


def _assign(row: Row, by_category: dict[str, list[_Qualifier]]) -> dict[str, str]:
    values = {}
    for category, slots in row.by_category.items():
        for slot, q in zip(slots, by_category.get(category, [])):
            values[slot.name] = q.text
    return values


# What a writer is less likely to have got wrong weighs more.
_WEIGHTS = {"shape": 3, "type": 2, "layout": 2}


def _apart(choice: str, written: str) -> int:
    """How far two shapes are apart; 0 for other qualifiers."""
    a, b = ([int(x) for x in re.findall(r"\d+", s)] for s in (choice, written))
    return sum(abs(x - y) for x, y in zip(a, b)) if _SHAPE.fullmatch(choice) else 0


def _nearest(rows: tuple[Row, ...], by_category: dict[str, list[_Qualifier]]) -> str:
    """The instruction that differs from what is written in the fewest qualifiers."""

    def distance(row: Row) -> tuple[int, int]:
        changes = away = 0
        for category in {*row.by_category, *by_category}:
            slots, given = row.by_category.get(category, ()), by_category.get(category, [])
            weight = _WEIGHTS.get(category, 1)
            changes += weight * sum(q.text not in slot.choices for slot, q in zip(slots, given))
            changes += weight * max(0, len(given) - len(slots)) if category not in _REPEATABLE else 0
            changes += sum(not slot.optional for slot in slots[len(given) :])
            if category == "shape" and slots and given:
                away = min(_apart(choice, given[0].text) for choice in slots[0].choices)
        return changes, away

    row = min(rows, key=distance)
    values = _assign(row, by_category)
    for slot in row.slots:
        written = values.get(slot.name, "")
        if written not in slot.choices:
            values[slot.name] = min(slot.choices, key=lambda c: _apart(c, written))
    return row.form(values).mnemonic


def _available(
    rows: list[Row], target: Target | None, ptx: tuple[int, int] | None, where: _Where, text: str
) -> Row:
    """The first row that the target and the PTX version have."""
    on_target = [r for r in rows if target is None or r.requires.admits(target)]
    if not on_target:
        needs = " or ".join(dict.fromkeys(r.requires.describe_targets() for r in rows))
        raise where.error(
            f"`{text}` is not available for .target {target}",
            0,
            len(text),
            rule=f"{rows[0].section}, Target ISA Notes",
            hint=f"requires .target {needs}",
        )
    found = [r for r in on_target if ptx is None or r.requires.ptx <= ptx]
    if not found:
        first = min(r.requires.first_ptx(target) if target else r.requires.ptx for r in on_target)
        raise where.error(
            f"`{text}` is not available in PTX ISA {ptx[0]}.{ptx[1]}" if ptx else text,
            0,
            len(text),
            rule=f"{rows[0].section}, PTX ISA Notes",
            hint=f"requires .version {first[0]}.{first[1]} or higher",
        )
    return found[0]


def parse_mnemonic(
    text: str,
    *,
    target: Target | None = None,
    ptx: tuple[int, int] | None = None,
    span: Span | None = None,
) -> MatrixForm:
    """The form that a mnemonic such as `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` names.

    target, ptx: what the module declares; None checks neither. span: where the text stands in a source, for errors.
    Raises InvalidInstructionError for a text that names no form, or one that target or ptx do not have.
    """
    try:
        return _parse(text, target, ptx)
    except InvalidInstructionError:
        if span is None:
            raise
    return _parse_at(text, target, ptx, span)


@lru_cache(maxsize=4096)
def _parse(text: str, target: Target | None, ptx: tuple[int, int] | None) -> MatrixForm:
    return _parse_at(text, target, ptx, None)


def _parse_at(text: str, target: Target | None, ptx: tuple[int, int] | None, span: Span | None) -> MatrixForm:
    where = _Where(text, span)
    name, all_rows, qualifiers = _split(text, where)
    by_category: dict[str, list[_Qualifier]] = {}
    for q in qualifiers:
        by_category.setdefault(q.category, []).append(q)
    if name.startswith("wmma") and ptx is not None and ptx < wmma.ALIGNED_SINCE:
        if "aligned" in by_category:
            q = by_category["aligned"][0]
            raise where.error(
                f"PTX ISA {ptx[0]}.{ptx[1]} has no `.aligned` on {name}: it is implied",
                q.start,
                q.end,
                rule=str(all_rows[0].section),
                hint="leave it out, or declare .version 6.3 or higher",
            )
        by_category["aligned"] = [_Qualifier("aligned", 0, "aligned")]
    rows = list(all_rows)
    try:
        for category in _ORDER:
            rows = _narrow(name, rows, by_category, category, where)
    except InvalidInstructionError as error:
        error.hint = f"{error.hint}; nearest: {_nearest(all_rows, by_category)}"
        raise
    row = _available(rows, target, ptx, where, text)
    return row.form(_assign(row, by_category))


def print_mnemonic(form: MatrixForm) -> str:
    """The mnemonic of a form, qualifiers in the specification's order; `parse_mnemonic` gives the form back."""
    return form.mnemonic


_UNLISTED = {s.category for row in ROWS for s in row.slots} - set(_ORDER)
if _UNLISTED:
    raise AssertionError(f"categories without a place in the narrowing order: {_UNLISTED}")
