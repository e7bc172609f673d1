"""Floating-point semantics against exact rationals: every rounding mode, .ftz, .sat, NaN."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.matrix.twin.sfu.arrays import evaluate
from tests.support import vectors
from tests.support.floats import F32, F32_EDGES, F64, F64_EDGES, MODES, NAMES, Rows, both_signs, check, check_extrema, close_to
from tests.support.one_block import LANES, launch
from tests.support.scalar_harness import bits, run

QUIET, SIGNALING = 0x7FF8000000000005, 0xFFF000000000000B
test_corners = vectors.measured(
    # .ftz flushes what is subnormal after rounding with any exponent, though as a subnormal it would round up
    ("mul.rn.ftz.f32", (0x203BE54A, 0x9FAE6508), 0x80000000),
    ("mul.rn.f32", (0x203BE54A, 0x9FAE6508), 0x80800000),
    ("mul.rm.ftz.f32", (0x0E247D13, 0xB1C7361E), 0x80000000),
    ("mul.rp.ftz.f32", (0x346AB513, 0x0B8B9CB7), 0x00000000),
    ("fma.rn.ftz.f32", (0x11D4A1EB, 0x221A1B33, 0x80800000), 0x80000000),
    ("div.rp.ftz.f32", (0x19EDC0E4, 0x58EDC0E5), 0x00000000),
    # which NaN an .f64 operation passes on: of b, c, a the first; of a quotient the dividend
    ("add.f64", (QUIET, SIGNALING), SIGNALING | 1 << 51),
    ("sub.f64", (SIGNALING, QUIET), QUIET),
    ("fma.rn.f64", (QUIET, SIGNALING, QUIET + 4), SIGNALING | 1 << 51),
    ("fma.rn.f64", (QUIET, 0x3FF0000000000000, SIGNALING), SIGNALING | 1 << 51),
    ("div.rn.f64", (QUIET, SIGNALING), QUIET),
    ("max.f64", (QUIET, QUIET + 4), QUIET + 4),
    ("fma.rn.f64", (0x7FF0000000000000, 0, 0), 0xFFF8000000000000),
    # a zero is normal
    ("testp.normal.f32", (0x00000000,), 1),
    ("testp.normal.f64", (0x8000000000000000,), 1),
    ("testp.normal.f32", (0x00000001,), 0),
)  # fmt: skip

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


@pytest.mark.parametrize(("name", "nan", "xorsign"), list(product(("min", "max"), (False, True), (False, True))))
def test_extrema(name: str, nan: bool, xorsign: bool) -> None:
    check_extrema(F32, name, nan, xorsign)


# pairs, three operands, halves among them ----------------------------------------------------------------------------
EDGES = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x33800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001], np.uint32)
SIGNED = np.concatenate([EDGES, EDGES | 0x80000000])


def words(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


@pytest.mark.parametrize("mods", ["", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_the_least_of_three_is_that_of_two_and_the_third(mods: str) -> None:
    a, b, c = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(SIGNED, SIGNED, SIGNED))
    plain = mods.replace(".abs", "")
    x, y, z = ((v & 0x7FFFFFFF) if ".abs" in mods else v for v in (a, b, c))
    for op in ("min", "max"):
        two = words(run(f"{op}{plain}.f32", words(run(f"{op}{plain}.f32", x, y)), z))
        assert np.array_equal(words(run(f"{op}{mods}.f32", a, b, c)), two)


@pytest.mark.parametrize("rnd", ["rn", "rz", "rm", "rp"])
def test_pairs_and_mixed_sums_are_those_of_single_numbers(rnd: str) -> None:
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(SIGNED, SIGNED))
    c = a[::-1].copy()
    pair = [v.astype(np.uint64) | v[::-1].astype(np.uint64) << np.uint64(32) for v in (a, b, c)]
    for op, n in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for ftz in ("", ".ftz"):
            single = words(run(f"{op}.{rnd}{ftz}.f32", *(a, b, c)[:n]))
            both = np.ascontiguousarray(run(f"{op}.{rnd}{ftz}.f32x2", *pair[:n])).view(np.uint32).reshape(-1, 2)
            assert np.array_equal(both[:, 0], single) and np.array_equal(both[:, 1], single[::-1]), (op, ftz)
    for half, shift in (("bf16", 16), ("f16", 0)):
        codes = (a >> 16).astype(np.uint16)
        wide = codes.astype(np.uint32) << 16 if shift else words(codes.view(np.float16).astype(np.float32))
        for op in ("add", "sub"):
            for sat in ("", ".sat"):
                want = words(run(f"{op}.{rnd}{sat}.f32", wide, b))
                assert np.array_equal(words(run(f"{op}.{rnd}{sat}.f32.{half}", codes, b)), want), (op, half, sat)
        want = words(run(f"fma.{rnd}.f32", wide, wide[::-1].copy(), b))
        assert np.array_equal(words(run(f"fma.{rnd}.f32.{half}", codes, codes[::-1].copy(), b)), want)


def test_products_of_pairs_are_fused_with_sums_and_those_of_mixed_sums_are_not() -> None:
    """ptxas makes FFMA2 of mul.f32x2 and add.f32x2, and leaves mul.f32 before add.f32.f16 alone."""
    source = np.full(LANES, 0x3F800801, np.uint32)  # 1 + 2^-12 + 2^-23: its square is not exact
    body = (
        "ld.global.b32 f1, [in0]; mov.b64 d1, {f1, f1}; mul.rn.f32 f4, f1, f1; neg.f32 f5, f4; mov.b64 d2, {f5, f5};"
        "mul.f32x2 d3, d1, d1; add.f32x2 d3, d3, d2; mul.rn.f32x2 d4, d1, d1; add.rn.f32x2 d4, d4, d2;"
        "mov.b16 h1, 0xBC00; mul.f32 f6, f1, f1; add.f32.f16 f7, h1, f6; mul.rn.f32 f6, f1, f1; add.rn.f32.f16 f8, h1, f6;"
        "mov.b64 {r1, r2}, d3; mov.b64 {r3, r4}, d4; sub.f32 f7, f7, f8; mov.b32 r4, f7;"
        "st.global.v4.b32 [out], {r1, r2, r3, r4};"
    )
    results, _ = launch(body, source, target="sm_100a")
    x = Fraction(float(source[:1].view(np.float32)[0]))
    rest = x * x - Fraction(float(np.float32(float(x * x))))
    assert rest and (results[:, :2].view(np.float32) == float(rest)).all()
    assert not results[:, 2:].any()


def test_divisions_by_one_value_share_what_they_can() -> None:
    """A divisor that is written between two divisions, for all lanes or for some, is another one."""
    rng = np.random.default_rng(8)
    a, b, c = ((rng.normal(size=LANES) * np.exp2(rng.integers(-140, 128, LANES))).astype(np.float32) for _ in range(3))
    a[:6], b[:6] = [0, np.inf, 1e-40, 1, 3e38, -1], [0, np.inf, 3e38, 1e-40, 2.0**127, -0.0]
    words = [v.view(np.uint32) for v in (a, b, c)]
    for name, ftz in product(("div.approx", "div.full"), (False, True)):
        op = f"{name}{'.ftz' if ftz else ''}.f32"
        body = f"""ld.global.b32 f1, [in0]; ld.global.b32 f2, [in1]; ld.global.b32 f3, [in2]; setp.lt.u32 p1, t, 9;
            {op} f4, f1, f2; {op} f5, f3, f2;
            @p1 mov.f32 f2, f3;
            {op} f6, f1, f2;
            mov.f32 f2, f1;
            {op} f7, f3, f2;
            st.global.v4.b32 [out], {{f4, f5, f6, f7}};"""
        got, _ = launch(body, *words)
        mixed = np.where(np.arange(LANES) < 9, c, b)
        for n, (x, y) in enumerate(((a, b), (c, b), (a, mixed), (c, a))):
            assert np.array_equal(got[:, n], evaluate(name, x, y, ftz=ftz).view(np.uint32)), (op, n)


def test_a_nan_between_instructions() -> None:
    """Whatever NaN comes in, what a register holds afterwards is 0x7fffffff, whether or not arithmetic goes on from it."""
    rng = np.random.default_rng(12)
    nans = rng.integers(1, 1 << 23, LANES, dtype=np.uint32) | rng.choice([0x7F800000, 0xFF800000], LANES).astype(np.uint32)
    one, x = np.uint32(0x3F800000), rng.normal(size=LANES).astype(np.float32).view(np.uint32)
    lines = {  # r3 and f5 are results, r1, r2 the sources
        "add.f32 f3, f1, f2; mul.f32 f5, f3, f3; mov.b32 r3, f3;": ("nan", "nan"),
        "sub.f32 f3, f2, f1; neg.f32 f4, f3; abs.f32 f5, f4; xor.b32 r3, f4, f3;": (0, "nan"),
        "fma.rn.f32 f3, f1, f2, f2; max.f32 f5, f3, f2; mov.b32 r3, f3;": ("nan", "b"),
        "mul.f32 f3, f1, f2; min.f32 f4, f2, f3; max.NaN.f32 f5, f3, f4; mov.b32 r3, f4;": ("b", "nan"),
        "mul.f32 f3, f1, f2; max.f32 f4, f3, f3; add.sat.f32 f5, f4, f2; mov.b32 r3, f4;": ("nan", 0),
        "add.f32 f3, f1, f2; max.xorsign.abs.f32 f5, f3, f2; mov.b32 r3, f3;": ("nan", "b"),
        "add.f32 f3, f1, f2; copysign.f32 f5, f2, f3; mov.b32 r3, f3;": ("nan", "copied"),
        "mul.f32 f3, f1, f2; ex2.approx.f32 f4, f3; sqrt.approx.f32 f5, f4; mov.b32 r3, f4;": ("nan", "nan"),
        "mul.f32 f3, f1, f2; div.full.f32 f4, f3, f2; div.full.f32 f5, f2, f3; mov.b32 r3, f4;": ("nan", "nan"),
        "mul.f32 f3, f1, f2; cvt.rn.f16x2.f32 r3, f3, f3; cvt.rn.bf16x2.f32 r4, f3, f3; mov.b32 f5, r4;":
            (0x7FFF7FFF, 0x7FFF7FFF),
        "mul.f32 f3, f1, f2; cvt.rn.bf16.f32 h1, f3; cvt.rn.f16.f32 h2, f3; mov.b32 r3, {h1, h2}; mov.b32 f5, r3;":
            (0x7FFF7FFF, 0x7FFF7FFF),
        "add.f32 f3, f1, f2; setp.nan.f32 p1, f3, f2; selp.b32 r3, 1, 0, p1; setp.leu.f32 p2, f3, f2; selp.f32 f5, f2, f3, p2;":
            (1, "b"),
        "add.f32 f3, f1, f2; setp.lt.u32 p3, t, 32; @p3 mul.f32 f3, f3, f2; mov.b32 r3, f3; add.ftz.f32 f5, f3, f2;":
            ("nan", "nan"),
    }  # fmt: skip
    for y in (x, np.full(LANES, one)):
        for body, (r3, f5) in lines.items():
            body = f"ld.global.b32 f1, [in0]; ld.global.b32 f2, [in1]; {body} st.global.b32 [out], r3; st.global.b32 [out+4], f5;"
            got, _ = launch(body, nans, y, target="sm_100a")
            known = {"nan": np.uint32(0x7FFFFFFF), "b": y, "copied": (y & 0x80000000) | 0x7FFFFFFF}
            for n, wanted in enumerate((r3, f5)):
                want = known.get(wanted, wanted) if isinstance(wanted, str) else wanted
                assert (got[:, n] == want).all(), (body, n, [hex(v) for v in got[:4, n]])
