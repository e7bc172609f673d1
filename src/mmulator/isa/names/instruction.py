"""One instruction from its name or from a few words, where a choice in silence would change what is computed."""

from __future__ import annotations

from functools import lru_cache

from mmulator.errors import InvalidInstructionError
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.cutlass import atom_words
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.names.words import find_forms, parse_query, rank, split
from mmulator.isa.targets import Target

_OPEN = 8  # entries of a rank that weigh what was asked for; later ones are habits
_INPUTS = 4  # the entry that counts operand types nobody asked for
_LISTED = 6


@lru_cache(maxsize=256)
def parse_instruction(text: str, target: Target | None = None, ptx: tuple[int, int] | None = None) -> Form:
    """The form of a mnemonic, or of words such as `mma m16n8k16 f16`.

    Words may leave open the accumulators (f32, s32), layouts (row.col), the 8 x 8 matrices of ldmatrix and stmatrix, and
    extra qualifiers (none): the form is the first
    that `inspect.find_forms` gives. Raises InvalidInstructionError as `parse_mnemonic` and `find_forms` do, and where
    words leave open family, shape or input types, listing the forms.
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
    """Words have blanks or commas between them, or are one of CUTLASS's names, or a family's; a mnemonic has none, and an
    instruction with its operands is neither."""
    blanks = any(c in text for c in " \t\n,") and not any(c in text for c in "{}[]%")
    return text in FAMILIES or atom_words(text) != text or blanks


def _subject(form: Form) -> tuple[object, ...]:
    """What words have to say."""
    types = form.atype, form.btype, form.type, form.stype
    return form.family, form.op, form.sparse, (form.m, form.n, form.k), form.num, form.kind, *map(str, types)


def _rivals(form: Form, first: Form) -> bool:
    """Loads and stores are no rivals of the multiplication of their family, nor other shapes of 8 x 8 matrices."""
    if first.family in ("ldmatrix", "stmatrix") and (first.m, first.n) == (8, 8):
        return (form.m, form.n) == (8, 8)
    return form.op == first.op or not first.atype
