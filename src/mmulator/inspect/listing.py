"""Forms in groups: one line for all that differ only in choices, as `m64n{8..256}k16`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mmulator.isa.forms import MatrixForm, Requirement
from mmulator.syntax import print_mnemonic

_TYPES = ("dtype", "atype", "btype", "ctype", "stype")
_UNSHOWN = ("sync", "aligned", "popc", "sparse", "shape", *_TYPES, "type")


@dataclass(frozen=True)
class FormGroup:
    """Forms of one opcode and for the same targets; every combination of the choices is one of them.

    instruction: opcode with `.sp` where sparse. shapes; d, a, b, c: element types of the matrices (c empty where it is
    that of d; of loads, stores and matrix moves a alone); qualifiers: further ones, one tuple of choices for each, the
    empty choice where it may be left out. targets: in short; ptx: first version, `8.0 to 8.4` if not the same for all.
    target_names: the targets one by one. mnemonics: of all forms, in full.
    """

    instruction: str
    shapes: tuple[str, ...]
    d: tuple[str, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: tuple[str, ...]
    qualifiers: tuple[tuple[str, ...], ...]
    targets: str
    ptx: str
    target_names: tuple[str, ...]
    mnemonics: tuple[str, ...]

    @property
    def shape(self) -> str:
        """All shapes in short."""
        return shape_set(self.shapes)

    def qualifier_text(self) -> str:
        """`{.satfinite} .xor/.and`: braces where it may be left out."""
        out = []
        for choices in self.qualifiers:
            text = "/".join(f".{c}" for c in choices if c)
            out.append(f"{{{text}}}" if "" in choices else text)
        return " ".join(out)


def opcode(form: MatrixForm) -> str:
    """`mma.sp::ordered_metadata`, `wgmma.mma_async`."""
    name = form.family if form.op == form.family else f"{form.family}.{form.op}"
    return name + (".sp::ordered_metadata" if form.ordered_metadata else ".sp" if form.sparse else "")


def _cells(form: MatrixForm) -> tuple[tuple[str, str], ...]:
    """(name, text) of everything that may differ in a group."""
    types = {name: str(t) for name in _TYPES if (t := getattr(form, name)) is not None}
    if form.ctype is not None and form.ctype is form.dtype:
        types["ctype"] = ""
    if form.type is not None:
        types["atype"] = str(form.type)
    parts = set(print_mnemonic(form).split("."))
    rest = []
    for slot in form.row.slots:
        if slot.name in _UNSHOWN:
            continue
        if slot.category == "layout":
            rest.append((slot.name, str(getattr(form, slot.name))))
        else:
            rest.append((slot.name, next((c for c in slot.choices if c and c in parts), "")))
    return (("shape", form.shape), *((n, types.get(n, "")) for n in _TYPES), *rest)


def short_targets(requires: Requirement) -> str:
    """`sm_80 or higher`, `sm_90a`, `sm_120a/f sm_121a/f`, `sm_100a/f or higher`."""
    if not requires.suffixes:
        return requires.describe_targets()
    letters = "/".join(requires.suffixes)
    if requires.family is None:
        return f"sm_{requires.minimum}{letters} or higher"
    chips = dict.fromkeys(t.number for t in requires.targets())
    return " ".join(f"sm_{number}{letters}" for number in chips)


_Key = tuple[str, str, tuple[str, ...]]


def group(forms: Iterable[MatrixForm]) -> tuple[FormGroup, ...]:
    """Forms in groups, in the order in which they come."""
    kinds: dict[_Key, dict[tuple[tuple[str, ...], ...], list[MatrixForm]]] = {}
    for form in forms:
        cells = _cells(form)
        key = opcode(form), short_targets(form.requires), tuple(name for name, _ in cells)
        kinds.setdefault(key, {}).setdefault(tuple((text,) for _, text in cells), []).append(form)
    out = []
    for (name, targets, slots), members in kinds.items():
        for column in range(len(slots)):
            members = _merge(members, column)
        for choices, found in members.items():
            by_name = dict(zip(slots, choices))
            shape, d, a, b, c, s = (by_name[n] for n in ("shape", *_TYPES))
            rest = [by_name[n] for n in slots if n not in ("shape", *_TYPES[:4]) and by_name[n] != ("",)]
            if s != ("",):  # the type of scale factors stands last
                rest = [*(r for r in rest if r is not s), s]
            versions = sorted({form.requires.ptx for form in found})
            ptx = " to ".join(f"{major}.{minor}" for major, minor in dict.fromkeys((versions[0], versions[-1])))
            names = tuple(map(str, found[0].requires.targets()))
            out.append(
                FormGroup(name, shape, d, a, b, c, tuple(rest), targets, ptx, names, tuple(map(print_mnemonic, found)))
            )
    return tuple(out)


def _merge(
    members: dict[tuple[tuple[str, ...], ...], list[MatrixForm]], column: int
) -> dict[tuple[tuple[str, ...], ...], list[MatrixForm]]:
    """Groups that differ in one column alone become one."""
    alike: dict[tuple[tuple[str, ...], ...], list[tuple[tuple[tuple[str, ...], ...], list[MatrixForm]]]] = {}
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
    """`8..256`, `8..24,32..256`, or `8,16`: runs of four or more with one step are shortened."""
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
    """`m64n{8..256}k16`, `m16n8k{8,16}`; the shapes themselves where they have nothing in common."""
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
