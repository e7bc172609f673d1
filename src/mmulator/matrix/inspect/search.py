"""The instruction that a question is about, by its name, a statement that begins with it, or a few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.names.words import find_forms
from mmulator.isa.targets import Target
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor

if TYPE_CHECKING:
    from mmulator.matrix.instruction.instruction import Instruction


def name_in(text: str) -> str:
    """The full name of an instruction with which a text begins; empty for words that describe one."""
    first = text.split(None, 1)[0].rstrip(";") if text.strip() else ""
    return first if "sync" in first.split(".") or first.startswith("tcgen05.") else ""


def forms_of(text: str, target: Target | None = None, ptx: tuple[int, int] | None = None) -> tuple[Form, ...]:
    """The forms that a text means, the likeliest first: one for a name, all that fit for words (`find_forms`).
    Raises InvalidInstructionError where nothing fits, naming what is nearest.
    """
    if isinstance(text, str) and is_tcgen05(text):
        from mmulator.matrix.instruction import tcgen05

        return (tcgen05.parse(text, target, ptx, {}),)
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


def text_of(form: Form) -> str:
    """The name of a form; of tcgen05.mma with the words that stand for its instruction descriptor."""
    if not form.effects.tensor:
        return form.mnemonic
    from mmulator.matrix.instruction import tcgen05

    return tcgen05.text_of(form)


def is_tcgen05(text: str) -> bool:
    """Whether a text names an instruction of tcgen05, whose shape and types are words behind the name."""
    return text.strip().lower().startswith(("tcgen05.", "tcgen05 ")) or text.strip().lower() == "tcgen05"


def descriptor_of(form: Form) -> InstructionDescriptor:
    """The instruction descriptor of a tcgen05.mma whose shape and types are known, the matrices K-major."""
    return InstructionDescriptor(
        form.kind, str(form.dtype), str(form.atype), str(form.btype), str(form.stype), form.m, form.n, form.k, form.sparse,
        saturate=form.satfinite, pair=form["cta_group"] == "cta_group::2", ws=form.op == "mma.ws",
    )  # fmt: skip
