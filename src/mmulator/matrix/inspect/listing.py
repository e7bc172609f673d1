"""Groups of forms: one line for all that differ only in choices, as `m64n{8..256}k16`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from mmulator.base.tables import text_table
from mmulator.isa.form import Form
from mmulator.isa.row import Requirement
from mmulator.matrix.inspect.answer import Answer

_TYPES = ("dtype", "atype", "btype", "ctype", "stype", "type")
_UNSHOWN = ("sync", "aligned", "sparse")


@dataclass(frozen=True)
class FormGroup:
    """Forms of one opcode and for equal targets; every combination of the choices is one of them.

    instruction: opcode with `.sp` where sparse.
    choices: (slot, texts) of every qualifier in the order of the name, without `.sync.aligned`; the text is empty where it may
        be
    left out.
    targets: in short.
    ptx: first version, `8.0 to 8.4` if the forms differ.
    target_names: the targets one by one.
    mnemonics: of all forms, in full.
    """

    instruction: str
    choices: tuple[tuple[str, tuple[str, ...]], ...]
    targets: str
    ptx: str
    target_names: tuple[str, ...]
    mnemonics: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """All names in one: `mma.m16n8k{8,16}.row.col.f32.bf16.bf16.f32`; `{.satfinite}` may be left out."""
        say = _in_parts if self.instruction.startswith("tcgen05") else _choice
        return self.instruction + "".join(say(slot, texts) for slot, texts in self.choices)


def _choice(slot: str, texts: tuple[str, ...]) -> str:
    if texts == ("",):
        return ""
    if slot == "shape":
        shapes = shape_set(texts).split()
        return "." + (shapes[0] if len(shapes) == 1 else "{" + ",".join(shapes) + "}")
    if "" in texts:
        return "{" + ",".join(f".{text}" for text in texts if text) + "}"
    given = ",".join(texts)
    return f".{given}" if len(texts) == 1 else f".{{{given}}}"


def _in_parts(slot: str, texts: tuple[str, ...]) -> str:
    """`{.collector::b{0..3}::{fill,use}}`: texts that agree in parts, with what differs in braces."""
    parts = [text.split("::") for text in texts if text]
    if len({len(p) for p in parts}) != 1:
        return _choice("", texts)
    each = [tuple(dict.fromkeys(column)) for column in zip(*parts)]
    if prod(map(len, each)) != len(parts):
        return _choice("", texts)
    said = "." + "::".join(map(_part, each))
    return "{" + said + "}" if "" in texts else said


def _part(texts: tuple[str, ...]) -> str:
    """`f16`, `{f16,tf32}`, `b{0..3}`."""
    counted = [re.fullmatch(r"([a-z])(\d+)", text) for text in texts]
    if len(texts) == 1:
        return texts[0]
    if all(counted) and len({m[1] for m in counted if m}) == 1:
        return f"{texts[0][0]}{{{numbers([int(m[2]) for m in counted if m])}}}"
    return "{" + ",".join(texts) + "}"


def opcode(form: Form) -> str:
    """Opcode of a form: `mma.sp::ordered_metadata`, `wgmma.mma_async`."""
    return form.name + (".sp::ordered_metadata" if form.ordered_metadata else ".sp" if form.sparse else "")


def _cells(form: Form) -> tuple[tuple[str, str], ...]:
    """(slot, text) of everything that may differ in a group."""
    parts = set(form.mnemonic.split("."))
    out = []
    for slot in form.row.slots:
        if slot.name in _UNSHOWN:
            continue
        if slot.name in _TYPES or slot.category == "layout":
            out.append((slot.name, str(getattr(form, slot.name))))
        else:
            out.append((slot.name, next((c for c in slot.choices if c and c in parts), "")))
    return tuple(out)


def short_targets(requires: Requirement) -> str:
    """`sm_80+`, `sm_90a`, `sm_100a/f+`: the lowest target, and `+` if there are higher ones."""
    more = "+" if len({t.number for t in requires.targets()}) > 1 else ""
    return f"sm_{requires.minimum}{'/'.join(requires.suffixes)}{more}"


_Key = tuple[str, str, tuple[str, ...]]


class FormGroups(Answer, tuple[FormGroup, ...]):
    """Groups of forms, shown as a table."""

    __slots__ = ()
    COLUMNS = ("instruction", "targets", "PTX")

    def rows(self) -> list[tuple[str, str, str]]:
        return [(g.pattern, g.targets, g.ptx) for g in self]

    def __str__(self) -> str:
        return "\n".join(text_table(self.COLUMNS, self.rows()))


def group(forms: Iterable[Form]) -> FormGroups:
    """Forms in groups, in the order in which they come."""
    kinds: dict[_Key, dict[tuple[tuple[str, ...], ...], list[Form]]] = {}
    for form in forms:
        cells = _cells(form)
        key = opcode(form), short_targets(form.requires), tuple(name for name, _ in cells)
        kinds.setdefault(key, {}).setdefault(tuple((text,) for _, text in cells), []).append(form)
    out = []
    for (name, targets, slots), members in kinds.items():
        for column in range(len(slots)):
            members = _merge(members, column)
        for choices, found in members.items():
            versions = sorted({form.requires.ptx for form in found})
            ptx = " to ".join(f"{major}.{minor}" for major, minor in dict.fromkeys((versions[0], versions[-1])))
            names = tuple(map(str, found[0].requires.targets()))
            mnemonics = tuple(f.mnemonic for f in found)
            out.append(FormGroup(name, tuple(zip(slots, choices)), targets, ptx, names, mnemonics))
    return FormGroups(out)


def _merge(members: dict[tuple[tuple[str, ...], ...], list[Form]], column: int) -> dict[tuple[tuple[str, ...], ...], list[Form]]:
    """Groups that differ in one column alone become one."""
    alike: dict[tuple[tuple[str, ...], ...], list[tuple[tuple[tuple[str, ...], ...], list[Form]]]] = {}
    for choices, forms in members.items():
        alike.setdefault(choices[:column] + choices[column + 1 :], []).append((choices, forms))
    out = {}
    for same in alike.values():
        joined = tuple(dict.fromkeys(text for choices, _ in same for text in choices[column]))
        key = (*same[0][0][:column], joined, *same[0][0][column + 1 :])
        out[key] = [form for _, forms in same for form in forms]
    return out


# Shapes --------------------------------------------------------------------------------------------------------------
def numbers(values: Sequence[int]) -> str:
    """A set of numbers as text, `8..256`, `8..24,32..256`, or `8,16`: runs of four or more with one step are shortened."""
    out, at = [], 0
    values = sorted(set(values))
    while at < len(values):
        end = at + 1
        while end + 1 < len(values) and values[end + 1] - values[end] == values[at + 1] - values[at]:
            end += 1
        if end < len(values) and end - at >= 3:
            out.append(f"{values[at]}..{values[end]}")
            at = end + 1
        else:
            out.append(str(values[at]))
            at += 1
    return ",".join(out)


def shape_set(shapes: Iterable[str]) -> str:
    """A set of shapes as text, `m64n{8..256}k16`, `m16n8k{8,16}`; the shapes themselves where they have nothing in common."""
    found = [tuple(int(x) for x in re.findall(r"\d+", shape)) for shape in dict.fromkeys(shapes) if shape]
    out: list[str] = []
    for wide, vary in ((True, 1), (False, -1)):
        alike: dict[tuple[int, ...], list[int]] = {}
        for shape in found:
            at = vary % len(shape)
            alike.setdefault((len(shape), *shape[:at], *shape[at + 1 :]), []).append(shape[at])
        if wide and all(len(v) == 1 for v in alike.values()) and len(found) > 1:
            continue  # nothing varies in n: try k
        for (length, *rest), values in alike.items():
            rest.insert(vary % length, -1)
            text = numbers(values)
            out.append("".join(
                letter + (str(n) if n >= 0 else text if len(values) == 1 else f"{{{text}}}") for letter, n in zip("mnk", rest)
            ))  # fmt: skip
        break
    return " ".join(out)
