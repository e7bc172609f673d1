"""Logic and shifts, against Python integers."""

import numpy as np
import pytest

from tests.support.integers import ALL, BITS, Oracle, any_operands, edges, known_operands, of_types
from tests.support.scalar_harness import run

FORMS: dict[str, Oracle] = {}
FORMS |= of_types("and.{}", ("b16", *BITS), lambda w: lambda a, b: a & b)
FORMS |= of_types("or.{}", ("b16", *BITS), lambda w: lambda a, b: a | b)
FORMS |= of_types("xor.{}", ("b16", *BITS), lambda w: lambda a, b: a ^ b)
FORMS |= of_types("not.{}", ("b16", *BITS), lambda w: lambda a: ~a)
FORMS |= of_types("cnot.{}", ("b16", *BITS), lambda w: lambda a: not a)
FORMS |= of_types("shl.{}", ("b16", *BITS), lambda w: lambda a, b: a << b if b < w else 0)
FORMS |= of_types("shr.{}", ALL, lambda w: lambda a, b: a >> min(b, w))
FORMS["shf.l.wrap.b32"] = lambda a, b, c: (b << 32 | a) << (c & 31) >> 32
FORMS["shf.r.wrap.b32"] = lambda a, b, c: (b << 32 | a) >> (c & 31)
FORMS["shf.l.clamp.b32"] = lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32
FORMS["shf.r.clamp.b32"] = lambda a, b, c: (b << 32 | a) >> min(c, 32)


test_edges = edges(FORMS)
test_any_operands = any_operands(FORMS, 40)


KNOWN = [
    *(("shl.b32", {"b": n}) for n in (0, 1, 31, 32, 200)),
    *((f"shr.{t}32", {"b": n}) for t in "us" for n in (0, 5, 31, 32, 255)),
    *((f"shf.{d}.{m}.b32", {"c": n}) for d in "lr" for m in ("wrap", "clamp") for n in (0, 7, 31, 32, 33)),
]


test_known_operands_change_nothing = known_operands(KNOWN)


@pytest.mark.parametrize("lut", range(256))
def test_every_lut(lut: int) -> None:
    """ta = 0xF0, tb = 0xCC, tc = 0xAA: the result of lop3 is its table."""
    one = [np.array([v], np.uint32) for v in (0xF0, 0xCC, 0xAA)]
    assert int(run("lop3.b32", *one, immLut=lut)[0]) & 0xFF == lut


@pytest.mark.parametrize("boolop", ["and", "or"])
def test_lop3_predicate(boolop: str) -> None:
    a, q = np.array([0, 0, 5, 5], np.uint32), np.array([False, True, False, True])
    d, p = run(f"lop3.{boolop}.b32", a, a, a, q, immLut=0x80)
    assert np.array_equal(d, a)
    assert np.array_equal(p, (a != 0) & q if boolop == "and" else (a != 0) | q)
