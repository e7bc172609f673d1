"""Sums on the pages: the bits that are shown, added again, give the model's result."""

from fractions import Fraction

import numpy as np
import pytest

from mmulator.errors import OperandError
from mmulator.matrix.explore import products
from mmulator.matrix.explore.view import leaves
from mmulator.matrix.numerics.formats import container, element_type
from mmulator.matrix.numerics.profiles import dot_key
from tests.support.matrix_model import model_matmul

EVERY = [*leaves(products.choices())]


def test_the_result_of_every_choice_is_the_models() -> None:
    seen = set()
    for values in EVERY:
        if (key := products.same(*values)) in seen:
            continue
        seen.add(key)
        e = products.answer(*values)
        arithmetic = dot_key(products.forms()[values[0]])
        a, b = (np.array(x, container(element_type(t))) for x, t in ((e.a, arithmetic.atype), (e.b, arithmetic.btype)))
        c = np.array([[e.c]], container(element_type(arithmetic.ctype)))
        d = model_matmul(arithmetic, values[1], a[None, :], b[:, None], c)
        shown = products.VIEW.document(*values)
        assert int(d[0, 0]) == e.bits == int(dict(shown[0]["rows"])["its bits"], 16), values
    assert len(seen) > 150


def test_the_bits_of_every_step_add_up_to_its_sum() -> None:
    """Columns that are not grey, read as a number with its sign, are what a step keeps of a term."""
    counted, seen = 0, set()
    for values in EVERY:
        if (key := products.same(*values)) in seen:
            continue
        seen.add(key)
        e = products.answer(*values)
        for s in e.steps:
            for block in products.bits(e, s):
                total = Fraction(0)
                for (_, (sign, *digits, _)), t in zip(block["rows"], s.terms, strict=True):
                    powers = zip(map(int, block["columns"][1:-1]), digits)
                    kept = sum(Fraction(2) ** p for p, (digit, hue, *_) in powers if digit == "1" and hue is not None)
                    kept = -kept if sign[0] == "-" else kept
                    assert kept == t.truncated(s.quantum) * Fraction(2) ** s.quantum
                    total += kept
                assert total == s.total * Fraction(2) ** s.quantum
                counted += 1
    assert counted > 100


def test_numbers_that_a_reader_gives() -> None:
    first = EVERY[0]
    e = products.answer(*first, a="1 2.5, 0x3c00", b="1 1 1", c="-0.5")
    assert e.value == Fraction(4) and e.a[:3] == (0x3C00, 0x4100, 0x3C00)
    assert products.answer(*first, a="2", b="3").value == 6
    for wrong in ("x", "0x10000", " ".join(["1"] * 257)):
        with pytest.raises(OperandError):
            products.answer(*first, a=wrong)
