"""From a mnemonic to its form, by the rows. isa/wrong.py explains a mnemonic without a form.

As in ptxas, the opcode comes first (`mma`, `wgmma.mma_async`, `cp.async.wait_group`) and other modifiers come in any order. The
order matters only among modifiers of one category (types, layouts) and for the slots that a row marks as leading.
"""

from functools import lru_cache

from mmulator.isa.fit import NoForm, Words, fitting
from mmulator.isa.form import Form, form_of
from mmulator.isa.row import Row, Slot
from mmulator.isa.targets import Target


@lru_cache(maxsize=8192)
def match(opcode: str, modifiers: Words) -> Form | NoForm:
    """The form of a mnemonic: `match("ld", ("global", "v4", "b32"))`. A `NoForm` explains why there is none."""
    for row, taken in fitting(opcode, modifiers):
        if row.rule is None or row.rule(taken) is None:
            return form_of(row, taken)
    from mmulator.isa.wrong import Explained

    return Explained(opcode, modifiers).why()


def row_of(opcode: str, modifiers: Words) -> Row | None:
    """The row of the tables to which a mnemonic belongs: the first that accepts all modifiers."""
    found = match(opcode, modifiers)
    return None if isinstance(found, NoForm) else found.row


def unavailable(form: Form, modifiers: Words, target: Target | None, ptx: tuple[int, int] | None) -> NoForm | None:
    """The reason why a target or a PTX version does not have a form with these modifiers, or None. target, ptx: None is not
    checked.
    """
    requires, implied = form.requires, form.row.implied_once
    if (target is None or requires.admits(target)) and (ptx is None or requires.ptx <= ptx):
        return _implied(form, implied, modifiers, ptx) if implied is not None else None
    text = ".".join((form.opcode, *modifiers))
    if target is not None and not requires.admits(target):
        hint = f"requires .target {requires.describe_targets()}"
        return NoForm(f"`{text}` is not available for .target {target}", 0, len(text), f"{form.section}, Target ISA Notes", hint)
    first = requires.first_ptx(target) if target else requires.ptx
    return NoForm(
        f"`{text}` is not available in PTX ISA {_dotted(ptx or first)}", 0, len(text), f"{form.section}, PTX ISA Notes",
        f"requires .version {_dotted(first)} or higher",
    )  # fmt: skip


def _implied(form: Form, slot: Slot, modifiers: Words, ptx: tuple[int, int] | None) -> NoForm | None:
    """The error of a modifier that older PTX versions imply and newer ones require; None if it is used correctly."""
    text, rule = ".".join((form.opcode, *modifiers)), str(form.section)
    early = ptx is not None and ptx < slot.since
    if early == (slot.default not in modifiers):
        return None
    if early and ptx is not None:
        start = text.index(f".{slot.default}") + 1
        return NoForm(
            f"PTX ISA {_dotted(ptx)} has no `.{slot.default}` on {form.name}: it is implied", start,
            start + len(slot.default), rule, f"leave it out, or declare .version {_dotted(slot.since)} or higher",
        )  # fmt: skip
    return NoForm(f"`{form.name}` needs a qualifier ({slot.name})", len(text) - 1, len(text), rule, f"add .{slot.default}")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
