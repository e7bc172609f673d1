"""Roundings on the way from a matrix product to an element: differences of exact values, which add up to the whole."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mmulator.base.errors import InternalError
from mmulator.base.rules.words import language
from mmulator.isa.types import TYPES
from mmulator.matrix.numerics.element import ElementSum, Loss, Number, last_place, number
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.telling import decimal, signed
from mmulator.observation.record.cause import Cause, CauseAt, place_text

SAME = ("mov", "ld", "st", "cvt", "shfl", "tcgen05", "bytes of", "cp", "red", "selp")  # that hand a value on, rounded at most
_KEEPS = {
    "triton": "input_precision='ieee' (or 'tf32x3') of tl.dot keeps them",
    "cuda": "fmaf, or three products of tf32 parts (3xTF32; CUTLASS: OpMultiplyAddFastF32), keep them",
    "": "fma.rn.f32, or three products of tf32 parts (3xTF32), keep them",
}
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
    found, exact = list(product.element.losses), product.element.exact
    at = len(found)
    while cause is not product:
        (given,) = cause.inputs
        before, after = number_of(given), number_of(cause)
        if cause.how.startswith("cvt") and isinstance(before, Fraction) and isinstance(after, Fraction):
            where = f" at {place_text(cause.at)}" if cause.at else ""
            step = Loss("conversion", f"{cause.how}{where} makes {cause.type} of it", after - before)
            found[at:at] = [step] * (after != before)
        elif cause.bits != given.bits:
            return ()
        cause = given
    if isinstance(exact, Fraction) and sum(x.value for x in found) != value - exact:
        raise InternalError(f"{value - exact} is not the sum of {found}")
    return tuple(found) if isinstance(exact, Fraction) else ()


def cut_said(e: ElementSum, at: CauseAt | None, unit: Fraction | None = None) -> Iterator[str]:
    """The sentence about operands that an instruction cuts, with what keeps them. unit: of the last place that is meant."""
    hint = _KEEPS[language(at.source.rpartition(":")[0], "") if at is not None and at.source else ""]
    unit = unit or last_place(e.dtype, e.bits)
    yield from (f"{x.said}, which makes {signed(x.value / unit, 4)} ULP; {hint}" for x in e.losses if x.kind == "operands")


def rounded(cause: Cause) -> Iterator[str]:
    """Sentences about what an instruction that computes one number rounds off, saturates or flushes to zero."""
    values, result, words = [number_of(x) for x in cause.inputs], number_of(cause), cause.how.split(".")
    for given, value in zip(cause.inputs, values) if "ftz" in words else ():
        if given.type == "f32" and isinstance(value, Fraction) and 0 < abs(value) < _SMALL:
            yield f".ftz: {given.name} is subnormal, and counts as 0"
    value = values[0] if len(values) == 1 and cause.how.startswith("cvt") else None
    if not isinstance(value, Fraction) or not isinstance(result, Fraction):
        return
    t, off = element_type(cause.type), result - value
    if "satfinite" in words and abs(off) >= last_place(t, cause.bits):
        yield f".satfinite: {decimal(value)} is beyond {t}, which ends at {decimal(result)}"
    elif off and t.is_float:
        yield f"rounded to {t}: {signed(off)}, {signed(off / last_place(t, cause.bits))} ULP"
