"""The view of sums: one element of a matrix product on a device, bit by bit."""

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.targets import DEVICES
from mmulator.isa.types import ElementType
from mmulator.matrix.explore import fragments
from mmulator.matrix.explore.view import Block, Choices, Document, View, cells, facts, table, text
from mmulator.matrix.inspect.explanation.arithmetic import runs_on
from mmulator.matrix.inspect.listing import opcode
from mmulator.matrix.numerics import telling
from mmulator.matrix.numerics.dot import SumStep
from mmulator.matrix.numerics.element import ElementSum, explain_element, number
from mmulator.matrix.numerics.formats import element_type, numpy_dtype, to_raw
from mmulator.matrix.numerics.profiles import dot_key, profile_for

_FAMILIES = ("mma", "wgmma.mma_async", "tcgen05.mma")
_BELOW = 8  # bits that are shown below the last one that is kept
_MOST = 256  # numbers that a reader may give
_BIG, _TINY, _NEAR = 2.0**8, 1.5 * 2.0**-6, 1.25 * 2.0**-3
Operands = tuple[list[float], list[float], float]


# examples -------------------------------------------------------------------------------------------------------------
def _one_large(k: int) -> Operands:
    return [_BIG] + [_TINY] * (k - 1), [_BIG] + [_NEAR] * (k - 1), 0.0


def _cancel(k: int) -> Operands:
    return [_BIG, *[_TINY] * (k - 2), -_BIG], [_BIG, *[_NEAR] * (k - 2), _BIG], 0.0


def _large_c(k: int) -> Operands:
    return [_TINY] * k, [_NEAR] * k, 2.0**15 + 1


def _random(k: int) -> Operands:
    numbers = np.random.default_rng(k).normal(0, 4, (2, k))
    return numbers[0].tolist(), numbers[1].tolist(), 0.5


def _infinite(k: int) -> Operands:
    return [float("inf"), 1.0, -float("inf"), *[1.0] * (k - 3)], [1.0] * k, 0.0


EXAMPLES = {
    "one large product, many small ones": _one_large, "large products cancel": _cancel, "a large C": _large_c,
    "random numbers": _random, "infinities of both signs": _infinite,
}  # fmt: skip


# choices --------------------------------------------------------------------------------------------------------------
@cache
def forms() -> dict[str, Form]:
    """Forms with dense A, A and B of one type, and C of D's: those with the greatest k, by family and types."""
    found: dict[str, Form] = {}
    for form in fragments.forms().values():
        plain = opcode(form) in _FAMILIES and not form.block_scale and form.atype == form.btype and form.atype.bits > 1
        if not plain or form.sparse or form.satfinite or (form.ctype or form.dtype) != form.dtype:
            continue
        name = f"{opcode(form)}: {form.dtype} += {form.atype} x {form.btype}"
        if name not in found or found[name].k < form.k:
            found[name] = form
    return found


@cache
def choices() -> Choices:
    return {
        name: {device: dict.fromkeys(_examples(form)) for device in DEVICES if runs_on(form, device)}
        for name, form in forms().items()
    }


def _examples(form: Form) -> list[str]:
    if not form.atype.is_float:
        return ["random numbers", "large products cancel"]
    return [name for name, make in EXAMPLES.items() if make is not _infinite or form.atype.nan != "none"]


def same(arithmetic: str, device: str, example: str) -> object:
    """Key of a choice: devices with one arithmetic have one document."""
    form = forms()[arithmetic]
    return dot_key(form), profile_for(dot_key(form), device), form.k, example


# operands -------------------------------------------------------------------------------------------------------------
def _raw(t: ElementType, values: list[float]) -> list[int]:
    with np.errstate(all="ignore"):
        kept = np.array(values if t.is_float else np.clip(np.rint(values), -100 * t.has_sign, 100)).astype(numpy_dtype(t))
    return to_raw(t, kept).tolist()


def _given(t: ElementType, name: str, words: str, other: list[int]) -> list[int]:
    """Raw bits of the numbers in a text, of which those that begin with 0x are bits already."""
    if not words.strip():
        return other
    parts = words.replace(",", " ").split()
    if len(parts) > _MOST:
        raise OperandError(f"{name} has {len(parts)} numbers", hint=f"{_MOST} at most")
    out = []
    for part in parts:
        try:
            bits = int(part, 16) if part[:2].lower() == "0x" else _raw(t, [float(part)])[0]
        except ValueError:
            hint = "such as 1.5, -3e4, inf, nan, or bits such as 0x3c00"
            raise OperandError(f"{part!r} in {name} is no number", hint=hint) from None
        if not 0 <= bits < 1 << t.bits:
            raise OperandError(f"{part} in {name} has more than the {t.bits} bits of {t}")
        out.append(bits)
    return out


def answer(arithmetic: str, device: str, example: str, a: str = "", b: str = "", c: str = "") -> ElementSum:
    """The sum that a choice means; texts replace the operands of the example."""
    form = forms()[arithmetic]
    left, right, start = EXAMPLES[example](form.k)
    row = _given(form.atype, "A", a, _raw(form.atype, left))
    column = _given(form.btype, "B", b, _raw(form.btype, right))
    (before,) = _given(form.dtype, "C", c, _raw(form.dtype, [start]))[:1]
    most = max(len(row), len(column)) if a and b else len(row) if a else len(column) if b else form.k
    row, column = ([*x[:most], *[0] * (most - len(x))] for x in (row, column))
    return explain_element(form, device, row, column, before)


# the document ---------------------------------------------------------------------------------------------------------
def bits(e: ElementSum, s: SumStep) -> list[Block]:
    """A table with the bits of each term of a step that truncates, by their powers of two; bits that are cut are grey."""
    values = [v for t in s.terms if isinstance(v := t.value, Fraction)]
    if s.operation != "sum" or s.special or not any(values):
        return []
    top = max(map(_power, values))
    powers = range(top, s.quantum - _BELOW - 1, -1)
    rows = []
    for source, own in zip(s.sources, values, strict=True):
        value = abs(own)
        digits = [int(value / Fraction(2) ** p) & 1 if _power(value) >= p else None for p in powers]
        shown: list[list[Any]] = [["" if d is None else str(d), 1 if p >= s.quantum else None] for d, p in zip(digits, powers)]
        rest = value % (Fraction(2) ** powers[-1])
        rows.append([telling.label(e, source), [["-" if own < 0 else "+", None], *shown, ["more" if rest else "", None]]])
    caption = f"bits of the terms of a step, by powers of two: those below 2^{s.quantum} are cut"
    return [cells(caption, "term", ["sign", *map(str, powers), "below"], rows)]


def _power(value: Fraction) -> int:
    """The power of two of a number's first bit; of 0 a very small one."""
    if not value:
        return -(1 << 30)
    power = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return power if abs(value) >= Fraction(2) ** power else power - 1


def _document(arithmetic: str, device: str, example: str, a: str = "", b: str = "", c: str = "") -> Document:
    e = answer(arithmetic, device, example, a, b, c)
    start = telling.decimal(number(element_type(e.key.ctype), e.c))
    blocks = [
        facts([
            ("arithmetic", telling.head(e).partition(": ")[2]), ("C", start), ("result", telling.decimal(e.value, 9)),
            ("its bits", telling.raw(e, e.bits, e.key.dtype)), ("beside it", telling.tail(e)),
        ]),
        table("steps", telling.OVERVIEW, telling.overview(e)),
    ]  # fmt: skip
    for n, s in enumerate(e.steps):
        before, after = telling.ends(e, s)
        blocks += [*bits(e, s), table(f"step {n}: {before}", *telling.table(e, s)), text(after)]
    return blocks


VIEW = View(
    "sum", "Sums", "One element of a matrix product on a chip: the products, the bits that are cut, the rounding.",
    (("arithmetic", "Instruction"), ("device", "Chip"), ("example", "Numbers")), choices, _document,
    (("a", "A row of A", "1 2.5 -3e-4 0x3c00"), ("b", "A column of B", "1 1 1 1"), ("c", "C", "0.5")), same=same,
)  # fmt: skip
