"""Statements that are nearly legal: one thing of a legal statement changed, or its types and shape refitted."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from mmulator.isa.fit import rows_of
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES, matrix_forms
from mmulator.isa.targets import TARGETS, Target
from mmulator.isa.types import TYPES
from tests.support.ptxas.statements import fitted, legal, words_of
from tests.support.ptxas.verdicts import BANKS, Statement

CONSTANTS = ("-2", "-1", "0", "1", "2", "3", "4", "5", "8", "16", "17", "255", "65536", "4294967296", "0x1", "1.0", "0f3f800000")


@dataclass(frozen=True)
class World:
    """What mutants may use: targets and versions that the judge knows, the forms at hand, chance."""

    targets: Sequence[Target]
    versions: Sequence[tuple[int, int]]
    forms: Sequence[Form]
    chance: random.Random


Way = Callable[[Statement, World], Statement]


def mutant(s: Statement, world: World, ways: Sequence[Way] | None = None) -> Statement:
    """The statement with one thing changed; now and then with two."""
    names = []
    for _ in range(2 if world.chance.random() < 0.1 else 1):
        way = world.chance.choice(ways or WAYS)
        s = way(s, world)
        names.append(way.__name__.strip("_"))
    return replace(s, what="+".join(names))


# Qualifiers ---------------------------------------------------------------------------------------------------------
def _opcode_length(words: list[str]) -> int:
    return {"wgmma": 2, "wmma": 3 if words[1:2] in (["load"], ["store"]) else 2}.get(words[0], 1)


@cache
def _vocabulary(family: str) -> tuple[str, ...]:
    return tuple(sorted({c for row in rows_of(family) for slot in row.slots for c in slot.choices} | {"f64", "b32"}))


def _kind_of(word: str) -> str:
    if word in TYPES:
        return "type"
    return re.sub(r"\d+", "0", word)


def _swapped_qualifier(s: Statement, world: World) -> Statement:
    words, chance = s.mnemonic.split("."), world.chance
    first = _opcode_length(words)
    if first == len(words):
        return s
    at = chance.randrange(first, len(words))
    vocabulary = _vocabulary(words[0])
    like = [v for v in vocabulary if _kind_of(v) == _kind_of(words[at])] if chance.random() < 0.7 else vocabulary
    words[at] = chance.choice(like or vocabulary)
    return replace(s, mnemonic=".".join(words))


def _dropped_qualifier(s: Statement, world: World) -> Statement:
    words = s.mnemonic.split(".")
    first = _opcode_length(words)
    if first < len(words):
        del words[world.chance.randrange(first, len(words))]
    return replace(s, mnemonic=".".join(words))


def _added_qualifier(s: Statement, world: World) -> Statement:
    words = s.mnemonic.split(".")
    words.insert(world.chance.randrange(_opcode_length(words), len(words) + 1), world.chance.choice(_vocabulary(words[0])))
    return replace(s, mnemonic=".".join(words))


def _repeated_qualifier(s: Statement, world: World) -> Statement:
    words, chance = s.mnemonic.split("."), world.chance
    first = _opcode_length(words)
    if first < len(words):
        words.insert(chance.randrange(first, len(words) + 1), chance.choice(words[first:]))
    return replace(s, mnemonic=".".join(words))


def _moved_qualifier(s: Statement, world: World) -> Statement:
    words, chance = s.mnemonic.split("."), world.chance
    first = _opcode_length(words)
    if first < len(words):
        word = words.pop(chance.randrange(first, len(words)))
        words.insert(chance.randrange(first, len(words) + 1), word)
    return replace(s, mnemonic=".".join(words))


@cache
def _choices(family: str, slot: str) -> tuple[str, ...]:
    slots = [s for row in FAMILIES[family] for s in row.slots if s.name == slot]
    return tuple(sorted({c for s in slots for c in (*s.choices, *([""] * s.optional))}))


def _refitted(s: Statement, world: World) -> Statement:
    """Another form's name with one to three qualifiers exchanged, and the operands that such a form would have."""
    chance = world.chance
    form = chance.choice(world.forms)
    values = words_of(form)
    slots = [slot for slot in form.row.slots if slot.name not in ("sync", "aligned")]
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        if not slots:
            break
        slot = chance.choice(slots)
        values[slot.name] = chance.choice(_choices(form.family, slot.name))
        if slot.name in ("dtype", "atype") and chance.random() < 0.7:
            values.update({x: values[slot.name] for x in ({"dtype": ("ctype",), "atype": ("btype",)}[slot.name]) if x in values})
    out = fitted(form, values, s.target, s.ptx, chance)
    return out or s


def _elsewhere(s: Statement, world: World) -> Statement:
    target = world.chance.choice(world.targets)
    able = [v for v in world.versions if v >= TARGETS[target]]
    return replace(s, target=target, ptx=world.chance.choice(able))


# Operands -----------------------------------------------------------------------------------------------------------
def _at(s: Statement, at: int, text: str) -> Statement:
    return replace(s, operands=(*s.operands[:at], text, *s.operands[at + 1 :]))


def _changed_count(s: Statement, world: World) -> Statement:
    chance = world.chance
    vectors = [i for i, o in enumerate(s.operands) if o.startswith("{")]
    if not vectors:
        return s
    at = chance.choice(vectors)
    inside = s.operands[at].strip("{}").split(", ")
    how = chance.random()
    if how < 0.4 and len(inside) > 1:
        inside = inside[:-1]
    elif how < 0.8:
        inside = [*inside, inside[-1]]
    elif how < 0.9:
        inside = inside[: max(1, len(inside) // 2)]
    elif len(inside) == 1:
        return _at(s, at, inside[0])
    else:
        inside = inside * 2
    return _at(s, at, "{" + ", ".join(inside) + "}")


def _changed_type(s: Statement, world: World) -> Statement:
    typed = [i for i, o in enumerate(s.operands) if re.search(r"%(\w+)_\d", o)]
    if not typed:
        return s
    at, bank = world.chance.choice(typed), world.chance.choice(BANKS)
    return _at(s, at, re.sub(r"%\w+?_(\d)", rf"%{bank}_\1", s.operands[at]))


def _changed_element(s: Statement, world: World) -> Statement:
    """One element of a vector is something else."""
    chance = world.chance
    vectors = [i for i, o in enumerate(s.operands) if o.startswith("{")]
    if not vectors:
        return s
    at = chance.choice(vectors)
    inside = s.operands[at].strip("{}").split(", ")
    new = chance.choice((*(f"%{chance.choice(BANKS)}_7" for _ in range(4)), *CONSTANTS[:6], "1.0", "_", "!%pred_1"))
    inside[chance.randrange(len(inside))] = new
    return _at(s, at, "{" + ", ".join(inside) + "}")


def _changed_constant(s: Statement, world: World) -> Statement:
    """A constant, or what may stand where a constant does, is another."""
    chance = world.chance
    constants = [i for i, o in enumerate(s.operands) if re.fullmatch(r"-?\d+|!?%pred_1|%\w+", o)]
    if not constants:
        return s
    new = chance.choice((*CONSTANTS, *CONSTANTS, "%pred_2", "!%pred_2", *(f"%{b}_3" for b in BANKS)))
    return _at(s, chance.choice(constants), new)


def _changed_operands(s: Statement, world: World) -> Statement:
    operands, chance = list(s.operands), world.chance
    if not operands:
        return replace(s, operands=(chance.choice(("0", "%b32_5", "{%b32_5}")),))
    at = chance.randrange(len(operands))
    how = chance.random()
    if how < 0.4:
        del operands[at]
    elif how < 0.8:
        operands.insert(chance.randrange(len(operands) + 1), chance.choice((operands[at], "%b32_5", "1", "%pred_0", "%b64_3")))
    else:
        other = chance.randrange(len(operands))
        operands[at], operands[other] = operands[other], operands[at]
    return replace(s, operands=tuple(operands))


def _changed_address(s: Statement, world: World) -> Statement:
    chance = world.chance
    places = [i for i, o in enumerate(s.operands) if o.startswith("[")]
    if not places:
        return _changed_constant(s, world)
    base = chance.choice((*(f"%{b}_3" for b in BANKS), "gvar", "smem", "lvar", "cvar", "pvar", "64", "nothing"))
    text = f"[{base}{chance.choice(('', '', '+16', '-16', '+3', '+%b32_1'))}]"
    return _at(s, chance.choice(places), text if chance.random() < 0.95 else text.strip("[]"))


def _changed_coordinates(s: Statement, world: World) -> Statement:
    """Of a tensor copy: one more, one fewer, another type, a constant, none, without braces."""
    chance = world.chance
    places = [i for i, o in enumerate(s.operands) if o.startswith("[") and ", " in o]
    if not places:
        return _changed_address(s, world)
    at = places[0]
    base, _, inside = s.operands[at].strip("[]").partition(", ")
    parts = inside.strip("{}").split(", ")
    new = chance.choice((f"%{chance.choice(BANKS)}_7", f"%{chance.choice(BANKS)}_7", *CONSTANTS[:6], "1.0", "_", "{%b32_1}"))
    match chance.randrange(5):
        case 0:
            parts.append(chance.choice(parts))
        case 1 if len(parts) > 1:
            parts.pop()
        case 2:
            parts[chance.randrange(len(parts))] = new
        case 3:
            return _at(s, at, f"[{base}, {', '.join(parts)}]")
        case _:
            base = chance.choice((*(f"%{b}_3" for b in BANKS), "gvar", "smem", "cvar", "pvar", "64", f"{base}+16"))
    return _at(s, at, f"[{base}, {{{', '.join(parts)}}}]")


def _changed_stride(s: Statement, world: World) -> Statement:
    chance = world.chance
    if not s.mnemonic.startswith("wmma") or len(s.operands) < 3:
        return _refitted(s, world)
    return replace(s, operands=(*s.operands[:2], chance.choice((*CONSTANTS, *(f"%{b}_3" for b in BANKS)))))


WAYS: tuple[Way, ...] = (
    _swapped_qualifier, _dropped_qualifier, _added_qualifier, _repeated_qualifier, _moved_qualifier, _refitted, _refitted,
    _refitted, _changed_count, _changed_type, _changed_element, _changed_constant, _changed_operands, _changed_address,
    _changed_stride, _elsewhere,
)  # fmt: skip
# Of rows that are no matrix instructions.
ROW_WAYS: tuple[Way, ...] = (
    _swapped_qualifier, _swapped_qualifier, _dropped_qualifier, _added_qualifier, _repeated_qualifier, _moved_qualifier,
    _changed_count, _changed_type, _changed_type, _changed_element, _changed_constant, _changed_constant, _changed_operands,
    _changed_address, _changed_coordinates, _elsewhere, _elsewhere,
)  # fmt: skip


def matrix_statements(
    families: list[str], targets: list[Target], versions: list[tuple[int, int]], mutants: int, seed: int
) -> tuple[list[Statement], list[Statement]]:
    """Legal statements, and mutants of them."""
    chance = random.Random(seed)
    originals = list(legal(families, targets, versions[-1], chance))
    forms = [form for family in families for form in matrix_forms(family)]
    world = World(targets, versions, forms, chance)
    # half of the mutants in the first version that has the form, half in any later one
    out = []
    for _ in range(mutants):
        s = chance.choice(originals)
        later = [v for v in versions if v >= max(s.ptx, (6, 3))]
        if later and chance.random() < 0.5 and (s.ptx >= (6, 3) or not s.mnemonic.startswith("wmma")):
            s = replace(s, ptx=chance.choice(later))
        out.append(mutant(s, world))
    return originals, out
