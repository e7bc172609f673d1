"""Legal statements, made from the tables of mmulator.isa: every form, in each of its operand lists."""

import random
from collections.abc import Iterator

from mmulator.isa.form import Form, form_of
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.mma import register_types
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target
from tests.support.ptxas.verdicts import BANK_SIZE, Statement


def registers(bank: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"%{bank}_{start + i}" for i in range(count)) + "}"


_VARIABLES = {"": ("gvar", "smem", "lvar"), "global": ("gvar",), "shared": ("smem",)}


def operand(spec: OperandSpec, form: Form, target: Target, start: int, chance: random.Random) -> str:
    """A legal operand; register vectors begin at `start`, so that operands do not overlap where that matters."""
    types = register_types(form, spec, target)
    if spec.kind == "registers":
        return registers(chance.choice(types), start if spec.count + start <= BANK_SIZE else 0, spec.count)
    if spec.kind in ("register", "descriptor"):
        return f"%{chance.choice(types)}_{start}"
    if spec.kind == "address":
        if chance.random() < 0.5:
            return f"[%{chance.choice(types)}_{start}{chance.choice(('', '', '+16'))}]"
        return f"[{chance.choice(_VARIABLES[form.space.partition('::')[0]])}{chance.choice(('', '', '+32'))}]"
    if spec.kind == "predicate":
        return chance.choice(("%pred_1", "!%pred_1", "0", "1"))
    if spec.kind == "integer":
        constant = str(chance.choice(spec.values or range(8, 17)))
        return chance.choice((f"%{chance.choice(types)}_{start}", constant))
    if spec.kind == "group":
        return "{" + ", ".join(operand(p, form, target, start, chance) for p in spec.parts) + "}"
    return str(chance.choice(spec.values[:8] or range(8)))


def written(form: Form, signature: tuple[OperandSpec, ...], target: Target, chance: random.Random) -> tuple[str, ...]:
    return tuple(operand(spec, form, target, (1, 129, 133, 137)[i % 4], chance) for i, spec in enumerate(signature))


def legal(families: list[str], targets: list[Target], newest: tuple[int, int], chance: random.Random) -> Iterator[Statement]:
    """Every form in each of its operand lists, once, on a random target that has it and in its first version."""
    for family in families:
        for form in matrix_forms(family):
            able = [t for t in targets if form.requires.admits(t) and form.requires.first_ptx(t) <= newest]
            if not able:
                continue
            for signature in form.signatures:
                target = chance.choice(able)
                ptx = form.requires.first_ptx(target)
                mnemonic = form.mnemonic
                if family == "wmma" and ptx < (6, 3):
                    mnemonic = mnemonic.replace(".aligned", "")
                yield Statement(mnemonic, written(form, signature, target, chance), target, ptx)


def words_of(form: Form) -> dict[str, str]:
    """The qualifiers of a form by slot."""
    return {slot.name: form.written(slot) for slot in form.row.slots}


def fitted(form: Form, values: dict[str, str], target: Target, ptx: tuple[int, int], chance: random.Random) -> Statement | None:
    """A statement of the form's row with other qualifiers, and operands that fit its types and shape; None if the
    operands of such a form cannot be told."""
    opcode = form.family if form.op == form.family else f"{form.family}.{form.op}"
    try:
        other = form_of(form.row, values)
        operands = written(other, chance.choice(other.signatures), target, chance)
    except (KeyError, AssertionError, ValueError):
        return None
    qualifiers = [values[slot.name] for slot in form.row.slots if values.get(slot.name)]
    return Statement(".".join((opcode, *qualifiers)), operands, target, ptx)
