"""Floating-point semantics against exact rationals: every rounding mode, .ftz, .sat, NaN; halves over whole domains."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import scalar_oracle as oracle
from tests.support.scalar_harness import bits, run

MODES = ("rn", "rz", "rm", "rp")
F16, BF16, F32, F64 = oracle.F16, oracle.BF16, oracle.F32, oracle.F64
NAMES = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64"}
F32_EDGES = [
    *(0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x20000000, 0x3F000000, 0x3F7FFFFF, 0x3F800000),
    *(0x3F800001, 0x3FC00000, 0x40490FDB, 0x4B000001, 0x4B800001, 0x5F000000, 0x7E800000, 0x7F7FFFFF, 0x7F800000),
    *(0x7F800001, 0x7FC12345),
]
F64_EDGES = [
    *(0, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3CA0000000000000, 0x3FE0000000000000, 0x3FEFFFFFFFFFFFFF),
    *(0x3FF0000000000000, 0x3FF0000000000001, 0x400921FB54442D18, 0x4340000000000001, 0x7FE0000000000000),
    *(0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000),
]


def both_signs(values: list[int], width: int) -> list[int]:
    return [*values, *(v | 1 << width - 1 for v in values)]


def close_to(width: int, edges: list[int]) -> st.SearchStrategy[int]:
    """Any bits, edges, and neighbours of edges, of both signs."""
    near = st.builds(lambda e, d, s: (e + d & (1 << width - 1) - 1) | s << width - 1,
                     st.sampled_from(edges), st.integers(-3, 3), st.integers(0, 1))  # fmt: skip
    return st.one_of(st.integers(0, (1 << width) - 1), near)


Rows = list[tuple[int, ...]]


def check(operation: str, f: oracle.Format, mode: str, rows: Rows, ftz: bool = False, sat: bool = False) -> None:
    """The instruction on rows of bits. A NaN of .f64 is only required to be one: the vectors say which."""
    suffix = f".{mode}{'.ftz' * ftz}{'.sat' * sat}.{NAMES[f]}"
    got = bits(run(operation + suffix, *(np.array(c, f"u{f.bits // 8}") for c in zip(*rows))))
    for value, row in zip(got.tolist(), rows):
        want = oracle.arithmetic(operation, f, mode, row, ftz, sat)
        if f is F64 and oracle.decode(want, f).kind == "nan":
            assert oracle.decode(value, f).kind == "nan"
        else:
            assert value == want, f"{operation}{suffix} {[hex(v) for v in row]}: {value:#x}, not {want:#x}"


ARITY = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1}


@pytest.mark.parametrize(("operation", "mode", "ftz"), list(product(ARITY, MODES, (False, True))))
def test_single_edges(operation: str, mode: str, ftz: bool) -> None:
    values = both_signs(F32_EDGES, 32)
    if ARITY[operation] == 3:
        rows: Rows = [(a, b, values[i * 7 % len(values)]) for i, (a, b) in enumerate(product(values, repeat=2))]
    else:
        rows = list(product(values, repeat=ARITY[operation]))
    check(operation, F32, mode, rows, ftz)
    if operation in ("add", "sub", "mul", "fma"):
        check(operation, F32, mode, rows, ftz, sat=True)


@pytest.mark.parametrize(("operation", "mode"), list(product(ARITY, MODES)))
def test_double_edges(operation: str, mode: str) -> None:
    values = both_signs(F64_EDGES, 64)
    rows = list(product(values, repeat=min(ARITY[operation], 2)))
    if ARITY[operation] == 3:
        rows = [(a, b, values[i * 7 % len(values)]) for i, (a, b) in enumerate(rows)]
    check(operation, F64, mode, rows)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_operands(data: Any) -> None:
    operation = data.draw(st.sampled_from(list(ARITY)))
    f = data.draw(st.sampled_from([F32, F64]))
    mode, ftz = data.draw(st.sampled_from(MODES)), f is F32 and data.draw(st.booleans())
    one = close_to(f.bits, F32_EDGES if f is F32 else F64_EDGES)
    check(operation, f, mode, data.draw(st.lists(st.tuples(*[one] * ARITY[operation]), min_size=8, max_size=50)), ftz)


@pytest.mark.parametrize("mode", MODES)
def test_products_at_the_border_of_subnormals(mode: str) -> None:
    """Where flushing after rounding and rounding as a subnormal part."""
    rng = np.random.default_rng(3)
    a = (rng.integers(30, 190, 3000).astype(np.uint32) << 23 | rng.integers(0, 1 << 23, 3000)).astype(np.uint32)
    aim = 2.0**-126 * (1 + rng.integers(-8, 8, 3000) * 2.0**-25)
    b = (aim / a.view(np.float32).astype(np.float64)).astype(np.float32).view(np.uint32)
    b ^= rng.integers(0, 2, 3000).astype(np.uint32) << 31
    for ftz in (False, True):
        check("mul", F32, mode, list(zip(a.tolist(), b.tolist())), ftz)
        check("fma", F32, mode, [(x, y, 0) for x, y in zip(a.tolist(), b.tolist())], ftz)


def test_reciprocal_is_a_quotient() -> None:
    for f, edges in ((F32, F32_EDGES), (F64, F64_EDGES)):
        values = both_signs(edges, f.bits)
        one = np.full(len(values), 1.0, f"f{f.bits // 8}")
        x = np.array(values, f"u{f.bits // 8}")
        for mode in MODES:
            kind = NAMES[f]
            assert np.array_equal(bits(run(f"rcp.{mode}.{kind}", x)), bits(run(f"div.{mode}.{kind}", one, x)))


# halves -------------------------------------------------------------------------------------------------------------
EVERY = np.arange(65536, dtype=np.uint16)
_F16 = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x8401, 0x13FF, 0x3555, 0x3C00, 0xBC01, 0x6400, 0x7BFF, 0xFC00, 0x7E00)
_BF16 = (0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x8081, 0x1F01, 0x3EAB, 0x3F80, 0xBF81, 0x4B00, 0x7F7F, 0xFF80, 0x7FC0)
PARTNERS = {F16: list(_F16), BF16: list(_BF16)}


@cache
def tables(f: oracle.Format) -> tuple[np.ndarray, np.ndarray]:
    """All finite non-negative values ascending, exact in float64, and the midpoints between them."""
    finite = [float(oracle.decode(i, f).value) for i in range(f.infinity)]
    beyond = 2 * finite[-1] - finite[-2]
    exact = np.array([*finite, beyond])
    return exact, (exact[:-1] + exact[1:]) / 2


def nearest(values: np.ndarray, f: oracle.Format) -> np.ndarray:
    """Rounding to nearest even by search in the list of all values; `values` are exact in float64."""
    _, middle = tables(f)
    magnitude = np.abs(values)
    low = np.searchsorted(middle, magnitude, "left")
    high = np.searchsorted(middle, magnitude, "right")
    code = np.where(low == high, low, np.where(low % 2 == 0, low, high))  # between two codes: the even one
    code = np.minimum(code, f.infinity) | (np.signbit(values).astype(np.int64) << 15)
    return np.where(np.isnan(values), f.nan, code).astype(np.uint16)


def as_double(words: np.ndarray, f: oracle.Format) -> np.ndarray:
    if f is F16:
        return words.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("f", [F16, BF16], ids=["f16", "bf16"])
def test_half_sums_and_products(f: oracle.Format) -> None:
    """All 65536 operands with a few partners. Products are exact in float64, and so are the sums of .f16."""
    kind = NAMES[f]
    for partner in PARTNERS[f]:
        other = np.full(65536, partner, np.uint16)
        a, b = as_double(EVERY, f), as_double(other, f)
        with np.errstate(all="ignore"):
            assert np.array_equal(run(f"mul.{kind}", EVERY, other), nearest(a * b, f))
            if f is F16:
                assert np.array_equal(run("add.f16", EVERY, other), nearest(a + b, f))
                assert np.array_equal(run("sub.f16", EVERY, other), nearest(a - b, f))
            else:
                rows = EVERY[::97]
                got = run("add.bf16", rows, other[: rows.size])
                want = [oracle.arithmetic("add", f, "rn", (int(x), partner)) for x in rows]
                assert got.tolist() == want


def half_operands(f: oracle.Format) -> st.SearchStrategy[int]:
    return close_to(16, PARTNERS[f])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_half_fma_rounds_once(data: Any) -> None:
    f = data.draw(st.sampled_from([F16, BF16]))
    rows = data.draw(st.lists(st.tuples(*[half_operands(f)] * 3), min_size=8, max_size=60))
    check("fma", f, "rn", rows)
    if f is F16:
        check("fma", f, "rn", rows, ftz=True)
        check("fma", f, "rn", rows, sat=True)


@pytest.mark.parametrize("f", [F16, BF16], ids=["f16", "bf16"])
def test_half_fma_where_rounding_twice_would_differ(f: oracle.Format) -> None:
    """a * b is half an ulp of c, and then a little more or less: only one rounding sees the little."""
    rng = np.random.default_rng(5)
    m = f.mantissa
    c = (rng.integers(2 * m + 4, 2 * f.bias - 2, 3000) << m | rng.integers(0, 1 << m, 3000)).astype(np.int64)
    at = (c >> m) - f.bias - m - 1  # exponent of half an ulp of c
    ea = at // 2
    a = (ea + f.bias << m) | rng.integers(0, 3, 3000)
    b = (at - ea + f.bias << m) - rng.integers(0, 3, 3000)
    keep = (a > 1 << m) & (b > 1 << m)
    check("fma", f, "rn", list(zip(a[keep].tolist(), b[keep].tolist(), c[keep].tolist())))


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "min", "max", "fma"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_two_halves(operation: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    words = [rng.integers(0, 1 << 32, 512, dtype=np.uint64).astype(np.uint32) for _ in range(2 + (operation == "fma"))]
    name = operation + (".rn" if operation == "fma" else "")
    low, high = (run(f"{name}.{kind}", *((w >> s).astype(np.uint16) for w in words)) for s in (0, 16))
    assert np.array_equal(run(f"{name}.{kind}x2", *words), low.astype(np.uint32) | high.astype(np.uint32) << 16)


# order --------------------------------------------------------------------------------------------------------------
def chosen(name: str, f: oracle.Format, a: int, b: int, nan: bool, xorsign: bool) -> int:
    """min and max: -0 before +0; a NaN only where both are, or with .NaN."""
    top = 1 << f.bits - 1
    flip = (a ^ b) & top if xorsign else 0
    if xorsign:
        a, b = a & ~top, b & ~top
    values = [(oracle.decode(v, f), v) for v in (a, b)]
    numbers = [p for p in values if p[0].kind != "nan"]
    if not numbers or (nan and len(numbers) < 2):
        return f.nan

    def key(p: tuple[oracle.Real, int]) -> tuple[Fraction, bool]:
        size = Fraction(10) ** 400 if p[0].kind == "infinity" else abs(p[0].value)
        return (-size if p[0].negative else size), not p[0].negative

    return (min if name == "min" else max)(numbers, key=key)[1] | flip


@pytest.mark.parametrize(("name", "nan", "xorsign"), list(product(("min", "max"), (False, True), (False, True))))
def test_extrema(name: str, nan: bool, xorsign: bool) -> None:
    suffix = ".NaN" * nan + ".xorsign.abs" * xorsign
    for f in (F32, F16, BF16):
        values = both_signs(F32_EDGES if f is F32 else [v & 0x7FFF for v in PARTNERS[f]], f.bits)
        rows = list(product(values, repeat=2))
        got = bits(run(f"{name}{suffix}.{NAMES[f]}", *(np.array(c, f"u{f.bits // 8}") for c in zip(*rows))))
        want = [chosen(name, f, a, b, nan, xorsign) for a, b in rows]
        assert got.tolist() == want


RELATIONS = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
             "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons(kind: str) -> None:
    f = {v: k for k, v in NAMES.items()}[kind]
    edges = F32_EDGES if f is F32 else F64_EDGES if f is F64 else [v & 0x7FFF for v in PARTNERS[f]]
    values = both_signs(edges, f.bits)
    rows = list(product(values, repeat=2))
    a, b = (np.array(c, f"u{f.bits // 8}") for c in zip(*rows))

    def real(v: int) -> Any:
        x = oracle.decode(v, f)
        size = float("inf") if x.kind == "infinity" else abs(x.value)
        return None if x.kind == "nan" else -size if x.negative else size

    pairs = [(real(x), real(y)) for x, y in rows]
    unordered = [x is None or y is None for x, y in pairs]
    for name, relation in RELATIONS.items():
        plain = [not u and relation(x, y) for u, (x, y) in zip(unordered, pairs)]
        assert run(f"setp.{name}.{kind}", a, b)[0].tolist() == plain
        assert run(f"setp.{name}u.{kind}", a, b)[0].tolist() == [p or u for p, u in zip(plain, unordered)]
    assert run(f"setp.nan.{kind}", a, b)[0].tolist() == unordered
    assert run(f"setp.num.{kind}", a, b)[0].tolist() == [not u for u in unordered]
