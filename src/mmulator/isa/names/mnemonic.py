"""From the name of a matrix instruction, as a user writes it, to its form."""

from functools import lru_cache

from mmulator.base.source import Source, Span
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match, unavailable
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.targets import Target


def parse_mnemonic(
    text: str,
    *,
    target: Target | None = None,
    ptx: tuple[int, int] | None = None,
    span: Span | None = None,
) -> Form:
    """The form with a mnemonic such as `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`.

    text: the mnemonic.
    target: .target of the module; None is not checked.
    ptx: .version of the module; None is not checked.
    span: place of the text in a source, for errors.

    Raises InvalidInstructionError for a text that denotes no form, or a form that target or ptx do not have.
    """
    found = _parse(text, target, ptx)
    if isinstance(found, NoForm):
        raise found.error(span or Span(Source("<instruction>", text), 0, len(text)))
    return found


@lru_cache(maxsize=4096)
def _parse(text: str, target: Target | None, ptx: tuple[int, int] | None) -> Form | NoForm:
    family, *rest = [word for word in text.split(".") if word] or [""]
    if family not in FAMILIES:
        known = f"known: {', '.join(FAMILIES)}"
        return NoForm(f"`{family}` is not a matrix instruction", 0, max(1, len(family)), hint=known)
    modifiers = tuple(rest)
    found = match(family, modifiers)
    if isinstance(found, NoForm):
        return found
    return unavailable(found, modifiers, target, ptx) or found
