"""What roundings cost on the way from a matrix product to an element, and what an instruction rounds, saturates or flushes.

Everything is a difference of exact values that the machine had, so the parts add up to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mmulator.errors import InternalError
from mmulator.isa.types import TYPES
from mmulator.numerics.element import ElementSum, Loss, Number, last_place, number
from mmulator.numerics.formats import element_type
from mmulator.numerics.telling import decimal, signed
from mmulator.record.cause import Cause, CauseAt, place_text
from mmulator.rules.words import WHOLE_OPERANDS, in_words, language

SAME = ("mov", "ld", "st", "cvt", "shfl", "tcgen05", "bytes of", "cp", "red", "selp")  # that hand a value on, rounded at most
_SMALL = Fraction(1, 1 << 126)  # of f32: less is subnormal


def number_of(cause: Cause) -> Number | None:
    """The exact value of a cause; None for bits and predicates."""
    t = TYPES.get(cause.type)
    return number(t, cause.bits) if t is not None and t.kind in ("float", "signed", "unsigned") else None


def product_of(cause: Cause) -> Cause | None:
    """The matrix product whose result an element is, but for copies and conversions."""
    while cause.element is None:
        if len(cause.inputs) != 1 or not cause.how.startswith(SAME):
            return None
        cause = cause.inputs[0]
    return cause


def losses_of(cause: Cause) -> tuple[Loss, ...]:
    """The parts of the difference between an element and the exact sum of its product; none where they are not known.

    Raises InternalError if they do not add up.
    """
    product, value = product_of(cause), number_of(cause)
    if product is None or product.element is None or not isinstance(value, Fraction):
        return ()
    found: list[Loss] = []
    while cause is not product:
        (given,) = cause.inputs
        before, after = number_of(given), number_of(cause)
        if cause.how.startswith("cvt") and isinstance(before, Fraction) and isinstance(after, Fraction):
            where = f" at {place_text(cause.at)}" if cause.at else ""
            found[:0] = [Loss("conversion", f"{cause.how}{where} makes {cause.type} of it", after - before)]
        elif cause.bits != given.bits:
            return ()
        cause = given
    exact = product.element.exact
    found = [*product.element.losses, *(x for x in found if x.value)]
    if isinstance(exact, Fraction) and sum(x.value for x in found) != value - exact:
        raise InternalError(f"{value - exact} is not the sum of {found}")
    return tuple(found) if isinstance(exact, Fraction) else ()


def cut_said(losses: Sequence[Loss], unit: Fraction, at: CauseAt | None) -> str:
    """A sentence about operands that an instruction cuts, with what keeps them; "" where it cuts none.

    losses: what parts a result from the exact sum. unit: of the result's last place. at: the instruction.
    """
    found = next((x for x in losses if x.kind == "operands"), None)
    hint = in_words(WHOLE_OPERANDS, language(at.source.rpartition(":")[0], "") if at is not None and at.source else "")
    return f"{found.said}, which makes {signed(found.value / unit, 4)} ULP; {hint}" if found is not None else ""


def cut_of(element: ElementSum, at: CauseAt | None) -> tuple[str, ...]:
    """The sentence of a product whose operands are cut, if they are."""
    said = cut_said(element.losses, last_place(element.dtype, element.bits), at) if element.losses else ""
    return (said,) if said else ()


def rounded(cause: Cause) -> tuple[str, ...]:
    """Sentences about what an instruction that computes one number rounds off, saturates or flushes to zero."""
    values, result = [number_of(x) for x in cause.inputs], number_of(cause)
    out = []
    words = cause.how.split(".")
    if "ftz" in words:
        small = (x.name for x, v in zip(cause.inputs, values) if x.type == "f32" and v and 0 < abs(v) < _SMALL)
        out += [f".ftz: {name} is subnormal, and counts as 0" for name in small]
    if words[0] != "cvt" or len(values) != 1 or not isinstance(values[0], Fraction) or not isinstance(result, Fraction):
        return tuple(out)
    t, off = element_type(cause.type), result - values[0]
    if "satfinite" in words and off and abs(off) >= last_place(t, cause.bits):
        out += [f".satfinite: {decimal(values[0])} is beyond {t}, which ends at {decimal(result)}"]
    elif off and t.is_float:
        out += [f"rounded to {t}: {signed(off)}, {signed(off / last_place(t, cause.bits))} ULP"]
    return tuple(out)
