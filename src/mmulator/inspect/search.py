"""The instruction that a question is about, by its name, a statement that begins with it, or a few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mmulator.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.names.words import find_forms
from mmulator.isa.targets import Target

if TYPE_CHECKING:
    from mmulator.instruction.instruction import Instruction


def name_in(text: str) -> str:
    """The full name of an instruction with which a text begins; empty for words that describe one."""
    first = text.split(None, 1)[0].rstrip(";") if text.strip() else ""
    return first if "sync" in first.split(".") else ""


def forms_of(text: str, target: Target | None = None, ptx: tuple[int, int] | None = None) -> tuple[Form, ...]:
    """The forms that a text means, the likeliest first: one for a name, all that fit for words (`find_forms`).
    Raises InvalidInstructionError where nothing fits, naming what is nearest.
    """
    name = name_in(text) if isinstance(text, str) else ""
    return (parse_mnemonic(name, target=target, ptx=ptx),) if name else find_forms(text, target, ptx)


def form_of(
    instruction: str | Instruction | Form, prefer: Callable[[Form], bool] = lambda form: True,
    example: str = "mma m16n8k16 f16",
) -> Form:  # fmt: skip
    """The form of an instruction, however given; for words the likeliest form, of those that `prefer` accepts if there are any.
    example: words for the message. Raises InvalidInstructionError, OperandError for what is no instruction.
    """
    if isinstance(instruction, str):
        found = forms_of(instruction)
        return next(filter(prefer, found), found[0])
    form = instruction if isinstance(instruction, Form) else getattr(instruction, "form", None)
    if not isinstance(form, Form):
        raise OperandError(f"an instruction is needed, not {type(instruction).__name__}", hint=f"such as '{example}'")
    return form
