"""Halves over whole domains."""

import ctypes
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.base.codegen.engine import Library
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import load, store
from mmulator.base.codegen.types import i64, ptr_to, u32
from mmulator.compiler.lowering.scope import mods
from mmulator.compiler.meaning import half
from tests.support import scalar_oracle as oracle
from tests.support import vectors
from tests.support.floats import BF16, F16, NAMES, PARTNERS, check, check_extrema, close_to
from tests.support.natives import library_text
from tests.support.scalar_harness import form_of, run, sources_of

test_corners = vectors.measured(
    # .ftz flushes what is subnormal after rounding with any exponent, though as a subnormal it would round up
    ("mul.ftz.f16", (0x1449, 0x2B77), 0x0000),
    ("fma.rn.ftz.f16", (0x2267, 0x0A29, 0x8427), 0x8000),
    # the NaN that stands for what lies outside a tensor
    ("fma.rn.oob.f16", (0x7FF7, 0x3C00, 0x3C00), 0x0000),
    ("fma.rn.oob.bf16", (0x3F80, 0xFFF7, 0x3F80), 0x0000),
    ("fma.rn.oob.f16", (0x3C00, 0x3C00, 0x7FF7), 0x7FFF),
    ("fma.rn.oob.f16", (0xFFFF, 0x3C00, 0x3C00), 0x7FFF),
)  # fmt: skip

EVERY = np.arange(65536, dtype=np.uint16)


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


@pytest.mark.parametrize(
    "mnemonic", ["fma.rn.f16x2", "fma.rn.ftz.sat.f16x2", "fma.rn.bf16x2", "fma.rn.relu.bf16x2", "mul.rn.bf16x2"]
)
def test_processors_whose_instructions_do_not_say_how_they_round(mnemonic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    form = form_of(mnemonic)
    words = rng.integers(0, 1 << 32, (3, 1 << 15), dtype=np.uint32)[: len(sources_of(form))]
    near = rng.integers(0, 1 << 32, words.shape, dtype=np.uint32) & 0x0C7F0C7F | 0x38003800  # products and sums of like sizes
    words = np.concatenate([words, near], 1)
    expected = run(mnemonic, *words)
    monkeypatch.setattr("mmulator.compiler.meaning.half.has_own_rounding", lambda: False)
    body = (half.fma if mnemonic.startswith("fma") else half._mul_bf16).__wrapped__

    def plain(a: ptr_to(u32), b: ptr_to(u32), c: ptr_to(u32), d: ptr_to(u32), count: i64) -> None:  # type: ignore[valid-type]
        for at in range(0, count, 32):
            store(compute(at, a, b, c), d, at)

    def compute(at: Any, *places: Any) -> Any:
        return body(mods(form), *(load(u32.vec(32), p, at) for p in places[: len(words)]))

    library = Library(library_text([Native(plain, "plain")]))
    got = np.zeros_like(expected)
    places = [words[n % len(words)].copy() for n in range(3)]
    library.function("plain", None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(*(p.ctypes.data for p in (*places, got)), got.size)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "min", "max", "fma"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_two_halves(operation: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    words = [rng.integers(0, 1 << 32, 512, dtype=np.uint64).astype(np.uint32) for _ in range(2 + (operation == "fma"))]
    name = operation + (".rn" if operation == "fma" else "")
    low, high = (run(f"{name}.{kind}", *((w >> s).astype(np.uint16) for w in words)) for s in (0, 16))
    assert np.array_equal(run(f"{name}.{kind}x2", *words), low.astype(np.uint32) | high.astype(np.uint32) << 16)


@pytest.mark.parametrize("f", [F16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize(("name", "nan", "xorsign"), list(product(("min", "max"), (False, True), (False, True))))
def test_extrema(name: str, nan: bool, xorsign: bool, f: oracle.Format) -> None:
    check_extrema(f, name, nan, xorsign)
