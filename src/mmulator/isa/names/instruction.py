"""One instruction from its name or from a few words. Words must decide everything that changes the computed values."""

from functools import lru_cache

from mmulator.base.errors import InvalidInstructionError
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.cutlass import atom_words
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.names.words import find_forms, parse_query, rank, split
from mmulator.isa.targets import Target

_OPEN = 8  # entries of a rank that weigh what was asked for; later ones are habits
_INPUTS = 4  # the entry that counts unrequested operand types
_LISTED = 6


@lru_cache(maxsize=256)
def parse_instruction(text: str, target: Target | None = None, ptx: tuple[int, int] | None = None) -> Form:
    """The form of a mnemonic, or of words such as `mma m16n8k16 f16`.

    text: the mnemonic or the words. Words may omit the accumulators (f32, s32), layouts (row.col), the 8 x 8 matrices of
        ldmatrix and stmatrix, and extra qualifiers (none): the form is the first result of `inspect.find_forms`.
    target, ptx: the target and PTX version that must have it; None is not checked.

    Raises InvalidInstructionError like `parse_mnemonic` and `find_forms`, and if words leave open family, shape or input types,
    listing the forms.
    """
    text = text.strip().rstrip(";").rstrip()
    if not _is_words(text):
        return parse_mnemonic(text, target=target, ptx=ptx)
    found = find_forms(text, target, ptx)
    query = parse_query(split(text))
    ranks = {form: rank(form, query) for form in found}
    first, best = found[0], ranks[found[0]]
    rivals = {_subject(f): f for f in reversed(found) if _rivals(f, first) and ranks[f][:_OPEN] == best[:_OPEN]}
    # the types that were asked for are accumulators of the first, but operands of another
    rivals |= {_subject(f): f for f in reversed(found) if ranks[f][_INPUTS] < best[_INPUTS]}
    if len(rivals) == 1:
        return first
    names = [f.mnemonic for f in reversed(rivals.values())]
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    raise InvalidInstructionError(
        f"`{text}` leaves open which instruction is meant",
        rule="words may leave open accumulators, layouts and extra qualifiers, but not family, shape and input types",
        hint=f"one of {', '.join(names[:_LISTED])}{more}",
    )


def _is_words(text: str) -> bool:
    """Whether a text is words rather than a mnemonic: it has blanks or commas, or is a name of CUTLASS or of a family. An
    instruction with its operands is neither.
    """
    blanks = any(c in text for c in " \t\n,") and not any(c in text for c in "{}[]%")
    return text in FAMILIES or atom_words(text) != text or blanks


def _subject(form: Form) -> tuple[object, ...]:
    """The properties of a form that words must determine."""
    types = form.atype, form.btype, form.type, form.stype
    return form.family, form.op, form.sparse, (form.m, form.n, form.k), form.num, form.kind, *map(str, types)


def _rivals(form: Form, first: Form) -> bool:
    """Whether a form competes with the first one. Loads and stores do not compete with the multiplication of their family, nor
    do matrix moves of other shapes with those of 8 x 8.
    """
    if first.family in ("ldmatrix", "stmatrix") and (first.m, first.n) == (8, 8):
        return (form.m, form.n) == (8, 8)
    return form.op == first.op or not first.atype
