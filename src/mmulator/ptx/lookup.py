"""The form of a mnemonic, from the scalar tables or from the matrix instructions' syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.errors import InvalidInstructionError
from mmulator.isa.form import Form
from mmulator.isa.match import NoForm, match
from mmulator.isa.targets import Target
from mmulator.source import Span

if TYPE_CHECKING:
    from mmulator.isa.forms import MatrixForm

MATRIX_OPCODES = frozenset(("mma", "wgmma", "wmma", "ldmatrix", "stmatrix", "movmatrix"))


def matrix_form(
    opcode: str,
    modifiers: tuple[str, ...],
    target: Target | None = None,
    ptx: tuple[int, int] | None = None,
    span: Span | None = None,
) -> MatrixForm:
    """Form of a matrix instruction.

    Raises InvalidInstructionError if there is none, or not for this target or version.
    """
    from mmulator.syntax import parse_mnemonic

    return parse_mnemonic(".".join((opcode, *modifiers)), target=target, ptx=ptx, span=span)


def find_form(opcode: str, modifiers: tuple[str, ...]) -> Form | MatrixForm | None:
    """The form, whatever the target; None if there is none."""
    if opcode in MATRIX_OPCODES:
        try:
            return matrix_form(opcode, modifiers)
        except InvalidInstructionError:
            return None
    found = match(opcode, modifiers)
    return None if isinstance(found, NoForm) else found
