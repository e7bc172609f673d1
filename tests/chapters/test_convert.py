"""cvt against exact rationals: every pair of types, every rounding mode, whole domains where they are small."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import scalar_oracle as oracle
from tests.support import vectors
from tests.support.one_block import launch
from tests.support.scalar_harness import bits, run

test_corners = vectors.measured(
    # .ftz flushes what is subnormal after rounding with any exponent, though as a subnormal it would round up
    ("cvt.rn.ftz.f32.f64", (0xB80FFFFFE0000000,), 0x80000000),
    ("cvt.rp.ftz.f32.f64", (0x380FFFFFD0000000,), 0x00000000),
    # but a subnormal .f32 is no zero to a conversion to .f16
    ("cvt.rp.ftz.f16.f32", (0x00000001,), 0x0001),
)  # fmt: skip

FLOATS = {"f16": oracle.F16, "bf16": oracle.BF16, "f32": oracle.F32, "f64": oracle.F64}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
MODES = ("rn", "rz", "rm", "rp")
INTEGRAL = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
EVERY = np.arange(65536, dtype=np.uint16)


def width(name: str) -> int:
    return int(name.lstrip("usbf"))


def words(values: Any, size: int) -> np.ndarray:
    return np.array(list(values), f"u{size // 8}")


def interesting(f: oracle.Format) -> list[int]:
    """Both neighbours of every power of two, of halves above it, of small integers and of ties; specials."""
    step = 1 << f.mantissa
    exponents = range(0, f.infinity >> f.mantissa, max(1, (f.infinity >> f.mantissa) // 250))
    near_one = range(f.bias - 4, min(f.bias + 66, f.infinity >> f.mantissa))
    bases = [e * step for e in {*exponents, *near_one}]
    found = {b + d for b in bases for d in (-1, 0, 1, step // 2 - 1, step // 2, step // 2 + 1, step // 4)}
    found |= {0, 1, f.infinity - 1, f.infinity}
    positive = [v for v in found if 0 <= v <= f.infinity]
    return [*positive, *(v | 1 << f.bits - 1 for v in positive)]


def reals(codes: list[int], f: oracle.Format) -> list[oracle.Real]:
    return [oracle.decode(c, f) for c in codes]


@pytest.mark.parametrize(("source", "target"), list(product(FLOATS, INTEGERS)))
def test_float_to_integer(source: str, target: str) -> None:
    f = FLOATS[source]
    codes = [*interesting(f), f.nan]
    values = reals(codes, f)
    size, is_signed = width(target), target[0] == "s"
    nan = 1 << size - 1 if size == 64 or source == "f64" else 0
    for rounding, mode in INTEGRAL.items():
        got = bits(run(f"cvt.{rounding}.{target}.{source}", words(codes, f.bits)))
        want = [oracle.to_integer(v, size, is_signed, mode, nan) for v in values]
        assert got.tolist() == want


@pytest.mark.parametrize(("source", "target"), list(product(INTEGERS, FLOATS)))
def test_integer_to_float(source: str, target: str) -> None:
    f, size = FLOATS[target], width(source)
    rng = np.random.default_rng(2)
    numbers = {(1 << k) + d for k in range(size) for d in (-1, 0, 1, (1 << k) // 2, (1 << k >> f.mantissa + 1) * 3)}
    numbers |= {int(v) >> int(s) for v, s in zip(rng.integers(0, 2**64, 200, dtype=np.uint64), rng.integers(0, 64, 200))}
    codes = sorted({v & (1 << size) - 1 for n in numbers for v in (n, -n)})
    read = [c - (1 << size) if source[0] == "s" and c >> size - 1 else c for c in codes]
    for mode in MODES:
        got = bits(run(f"cvt.{mode}.{target}.{source}", words(codes, size)))
        want = [oracle.encode(oracle.number(Fraction(v)), f, mode) for v in read]
        assert got.tolist() == want


@pytest.mark.parametrize(("source", "target"), list(product(INTEGERS, repeat=2)))
def test_integer_to_integer(source: str, target: str) -> None:
    size, wide = width(target), width(source)
    codes = sorted({v & (1 << wide) - 1 for k in range(wide) for d in (-1, 0, 1) for v in ((1 << k) + d, -(1 << k) - d)})
    read = [c - (1 << wide) if source[0] == "s" and c >> wide - 1 else c for c in codes]
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if target[0] == "s" else (0, (1 << size) - 1)
    mask = (1 << size) - 1
    assert bits(run(f"cvt.{target}.{source}", words(codes, wide))).tolist() == [v & mask for v in read]
    if not (low <= min(read) and max(read) <= high):
        got = bits(run(f"cvt.sat.{target}.{source}", words(codes, wide)))
        assert got.tolist() == [min(max(v, low), high) & mask for v in read]


NARROWING = [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")]


def around(f: oracle.Format, wider: oracle.Format) -> list[int]:
    """Codes of the wider format at and near values and midpoints of the narrower one."""
    codes = interesting(f) if f.bits > 16 else [*range(0, f.infinity + 1, 37), *interesting(f)]
    found = set()
    for code in codes:
        value = oracle.decode(code, f)
        if value.kind != "number":
            continue
        at = oracle.encode(value, wider)
        half = 1 << wider.mantissa - f.mantissa - 1
        found |= {at + d for d in (-1, 0, 1, half - 1, half, half + 1) if at + d >= 0}
    top = (1 << wider.bits - 1) - 1
    return [c for c in found if c & top <= wider.infinity]


@pytest.mark.parametrize(("source", "target"), NARROWING)
def test_float_to_smaller_float(source: str, target: str) -> None:
    f, wider = FLOATS[target], FLOATS[source]
    codes = around(f, wider)
    values = reals(codes, wider)
    for mode in MODES:
        got = bits(run(f"cvt.{mode}.{target}.{source}", words(codes, wider.bits)))
        want = [oracle.encode(v, f, mode) for v in values]
        assert got.tolist() == want
        if target == "f32":
            got = bits(run(f"cvt.{mode}.ftz.f32.f64", words(codes, 64)))
            assert got.tolist() == [oracle.encode(v, f, mode, ftz=True) for v in values]


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("extra", ["relu", "satfinite", "relu.satfinite"])
def test_modifiers_of_halves(target: str, extra: str) -> None:
    f = FLOATS[target]
    codes = [*around(f, oracle.F32), 0x7FC00000]
    for mode in ("rn", "rz"):
        got = bits(run(f"cvt.{mode}.{extra}.{target}.f32", words(codes, 32))).tolist()
        want = [oracle.encode(v, f, mode, finite="satfinite" in extra) for v in reals(codes, oracle.F32)]
        if "relu" in extra:
            want = [0 if w >> 15 else w for w in want]
        assert got == want


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_packing_is_two_conversions(target: str) -> None:
    rng = np.random.default_rng(4)
    codes = np.concatenate([words(around(FLOATS[target], oracle.F32), 32), rng.integers(0, 2**32, 999).astype(np.uint32)])
    a, b = codes, np.roll(codes, 7)
    for form in ("rn", "rz", "rn.relu", "rz.satfinite"):
        high, low = (bits(run(f"cvt.{form}.{target}.f32", v)).astype(np.uint32) for v in (a, b))
        assert np.array_equal(run(f"cvt.{form}.{target}x2.f32", a, b), high << 16 | low)


def test_every_f16_exactly_in_wider_formats() -> None:
    singles = EVERY.view(np.float16).astype(np.float32)
    number = ~np.isnan(singles)
    assert np.array_equal(bits(run("cvt.f32.f16", EVERY))[number], singles.view(np.uint32)[number])
    assert set(bits(run("cvt.f32.f16", EVERY))[~number]) == {0x7FFFFFFF}
    doubles = bits(run("cvt.f64.f16", EVERY)).view(np.float64)
    assert np.array_equal(doubles[number].astype(np.float32), singles[number])
    assert np.array_equal(bits(run("cvt.f32.bf16", EVERY)), EVERY.astype(np.uint32) << 16)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_float_to_integral_and_integer(data: Any) -> None:
    source = data.draw(st.sampled_from(["f32", "f64"]))
    f, target = FLOATS[source], data.draw(st.sampled_from(INTEGERS))
    rounding = data.draw(st.sampled_from(list(INTEGRAL)))
    near = st.builds(lambda n, h: oracle.encode(oracle.number(Fraction(n, 2) + Fraction(h, 1 << 20)), f),
                     st.integers(-(2**66), 2**66) | st.integers(-600, 600), st.integers(-2, 2))  # fmt: skip
    codes = data.draw(st.lists(near, min_size=8, max_size=60))
    values = reals(codes, f)
    got = bits(run(f"cvt.{rounding}.{target}.{source}", words(codes, f.bits))).tolist()
    assert got == [oracle.to_integer(v, width(target), target[0] == "s", INTEGRAL[rounding], 0) for v in values]
    whole = bits(run(f"cvt.{rounding}.{source}.{source}", words(codes, f.bits))).tolist()
    rounded = [oracle.number(Fraction(oracle.rounded(v.value, INTEGRAL[rounding])), v.negative) for v in values]
    assert whole == [oracle.encode(v, f) for v in rounded]


# small formats ------------------------------------------------------------------------------------------------------
SMALL = {"e4m3": oracle.E4M3, "e5m2": oracle.E5M2, "e2m3": oracle.E2M3, "e3m2": oracle.E3M2, "e2m1": oracle.E2M1}


def packed(name: str, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return (high << (4 if name == "e2m1" else 8) | low).astype(np.uint8 if name == "e2m1" else np.uint16)


@pytest.mark.parametrize("name", SMALL)
def test_every_pair_of_small_codes(name: str) -> None:
    """All codes of both halves, widened exactly; with .relu a negative half is zero."""
    f = SMALL[name]
    high, low = (c.ravel() for c in np.meshgrid(*[np.arange(1 << f.bits)] * 2))
    want = np.array([oracle.encode(oracle.decode(c, f), oracle.F16) for c in range(1 << f.bits)], np.uint32)
    got = run(f"cvt.rn.f16x2.{name}x2", packed(name, high, low))
    assert np.array_equal(got, want[high] << 16 | want[low])
    want = np.where(want >> 15, 0, want).astype(np.uint32)
    assert np.array_equal(run(f"cvt.rn.relu.f16x2.{name}x2", packed(name, high, low)), want[high] << 16 | want[low])


def small_code(value: oracle.Real, name: str, relu: bool) -> int:
    f = SMALL[name]
    code = oracle.encode(value, f, finite=True)
    return 0 if relu and value.kind != "nan" and code >> f.bits - 1 else code


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_to_small_formats(name: str, relu: str) -> None:
    """Codes and midpoints of the format, their neighbours in .f32, overflow, NaN; in both halves."""
    f = SMALL[name]
    found = {0, 1, 0x7F800000, 0x7FC00000, 0x7F7FFFFF, 0x4B000000}
    exact = [oracle.decode(c, f).value for c in range(f.top + 1)]
    middles = [(a + b) / 2 for a, b in zip(exact, [*exact[1:], 2 * exact[-1] - exact[-2]])]
    for value in (*exact, *middles, 2 * exact[-1]):
        at = oracle.encode(oracle.number(value), oracle.F32)
        found |= {max(at + d, 0) for d in (-1, 0, 1)}
    codes = np.array([c | s << 31 for c in sorted(found) for s in (0, 1)], np.uint32)
    want = np.array([small_code(v, name, bool(relu)) for v in reals(codes.tolist(), oracle.F32)])
    got = run(f"cvt.rn.satfinite{relu}.{name}x2.f32", codes, codes[::-1].copy())
    assert np.array_equal(got, packed(name, want, want[::-1]))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_f16_to_fp8(name: str) -> None:
    want = np.array([small_code(v, name, False) for v in reals(list(range(65536)), oracle.F16)])
    pairs = EVERY.astype(np.uint32) << 16 | EVERY[::-1]
    assert np.array_equal(run(f"cvt.rn.satfinite.{name}x2.f16x2", pairs), packed(name, want, want[::-1]))


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
def test_tf32(mode: str) -> None:
    codes = [c for c in around(oracle.TF32, oracle.F32) if c & 0x7FFFFFFF < 0x7F800000]
    want = [oracle.encode(v, oracle.TF32, mode) << 13 for v in reals(codes, oracle.F32)]
    assert run(f"cvt.{mode}.tf32.f32", words(codes, 32)).tolist() == want


def test_scales() -> None:
    """.ue8m0: a power of two from the magnitude; 2^-127 is below the normal .f32."""
    every = np.arange(65536, dtype=np.uint16)
    bf16 = run("cvt.rn.bf16x2.ue8m0x2", every)
    for half, code in ((bf16 & 0xFFFF, every & 255), (bf16 >> 16, every >> 8)):
        want = [
            0x7FFF if c == 255 else oracle.encode(oracle.number(Fraction(2) ** (c - 127)), oracle.BF16) for c in code.tolist()
        ]
        assert half.tolist() == want
    codes = [c for c in interesting(oracle.F32) if c & 0x7FFFFFFF < 0x7F800000]
    for mode in ("rz", "rp"):
        want = []
        for value in reals(codes, oracle.F32):
            size = abs(value.value)
            exponent = max(oracle.floor_log2(size), -127) if size else -127
            up = mode == "rp" and size > Fraction(2) ** exponent
            want.append(min(exponent + 127 + up, 254))
        got = run(f"cvt.{mode}.satfinite.ue8m0x2.f32", words(codes, 32), words(codes, 32))
        assert got.tolist() == [w << 8 | w for w in want]


@pytest.mark.parametrize("target", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_pack(target: str) -> None:
    size = width(target)
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if target[0] == "s" else (0, (1 << size) - 1)
    edges = [0, 1, -1, low, low - 1, high, high + 1, 2**31 - 1, -(2**31), 5, -7]
    rows = list(product(edges, repeat=2))
    a, b = (np.array(c, np.int32) for c in zip(*rows))
    c = np.full(len(rows), 0x89ABCDEF, np.uint32)
    clamped = [[min(max(v, low), high) & (1 << size) - 1 for v in row] for row in rows]
    want = [x << size | y for x, y in clamped]
    if size == 16:
        assert run(f"cvt.pack.sat.{target}.s32", a, b).tolist() == want
    else:
        got = run(f"cvt.pack.sat.{target}.s32.b32", a, b, c)
        assert got.tolist() == [(0x89ABCDEF << 2 * size | w) & 0xFFFFFFFF for w in want]


# random bits, and formats that no vector has -------------------------------------------------------------------------
RANDOM = {"f16": (13, (28, 16), (12, 0)), "bf16": (16, (31, 16), (15, 0))}
FORMATS = {"f16": oracle.F16, "bf16": oracle.BF16, **SMALL}


def stochastic(code: int, name: str, random: int, bits: int, finite: bool) -> int:
    """Away from zero if the random bits and the highest bits that are cut off carry; in exact fractions."""
    f = FORMATS[name]
    value = oracle.decode(code, oracle.F32)
    if value.kind == "nan":
        return f.nan
    if value.kind == "number":
        size = abs(value.value)
        step = Fraction(2) ** (max(oracle.floor_log2(size) if size else -500, 1 - f.bias) - f.mantissa)
        whole, part = divmod(size / step, 1)
        whole += (int(part * (1 << bits)) + random) >> bits
        size = whole * step
        largest = oracle.decode(f.top, f).value
        if size > largest:
            size = largest if finite else size * 4
        value = oracle.number(-size if value.negative else size, value.negative)
    return oracle.encode(value, f, "rz" if finite else "rn", finite=finite)


def numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    """f32 around the range of the small formats, subnormal results, ends and NaN."""
    exponent = rng.integers(90, 150, n)
    made = (rng.integers(0, 2, n) << 31 | exponent << 23 | rng.integers(0, 1 << 23, n)).astype(np.uint32)
    made[:8] = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x477FF000, 0x3F800000, 0x00000001]
    return made


@pytest.mark.parametrize(("name", "finite"), list(product(RANDOM, (False, True))))
def test_two_halves_with_random_bits(name: str, finite: bool) -> None:
    bits, high, low = RANDOM[name]
    rng = np.random.default_rng(3)
    a, b = numbers(rng, 256), numbers(rng, 256)[::-1].copy()
    rbits = rng.integers(0, 1 << 32, 256, dtype=np.uint32)
    got = run(f"cvt.rs{'.satfinite' * finite}.{name}x2.f32", a, b, rbits)
    want = [
        stochastic(int(x), name, int(r) >> high[1] & (1 << bits) - 1, bits, finite) << 16
        | stochastic(int(y), name, int(r) >> low[1] & (1 << bits) - 1, bits, finite)
        for x, y, r in zip(a, b, rbits)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("name", SMALL)
def test_four_small_numbers_with_random_bits(name: str) -> None:
    rng = np.random.default_rng(5)
    sources = [numbers(rng, 64) for _ in range(4)]
    rbits = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    r, f = [f"r{n}" for n in range(1, 6)], [f"f{n}" for n in range(1, 5)]
    loads = " ".join(f"ld.global.b32 {x}, [in{n}];" for n, x in enumerate((*f, r[4])))
    d, width = ("h1", 4) if name == "e2m1" else ("r1", 8)
    store = "st.global.b16 [out], h1;" if width == 4 else "st.global.b32 [out], r1;"
    body = f"{loads} cvt.rs.satfinite.{name}x4.f32 {d}, {{{', '.join(f)}}}, r5; {store}"
    results, _ = launch(body, *sources, rbits, target="sm_100a", block=64)
    for n in range(64):
        word = int(rbits[n])
        first, second = word >> 16, word & 0xFFFF
        if width == 4:
            first, second = (word >> 24) << 8 | (word >> 8) & 0xFF, (word >> 16 & 0xFF) << 8 | word & 0xFF
        want = 0
        for source, random in zip(sources, (first, first, second, second)):
            want = want << width | stochastic(int(source[n]), name, random, 16, True)
        assert results[n, 0] == want, (n, [hex(int(s[n])) for s in sources], hex(word))


@pytest.mark.parametrize("name", SMALL)
def test_halves_to_small_formats_and_back(name: str) -> None:
    """Every .bf16 (and .f16) to the format as its .f32 would be; every code to .bf16 exactly."""
    every = np.arange(65536, dtype=np.uint32)
    widened = every.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    for half, single in (("bf16", every << 16), ("f16", widened)):
        if (name, half) in (("e4m3", "f16"), ("e5m2", "f16")):
            continue  # has a vector
        got = run(f"cvt.rn.satfinite.{name}x2.{half}x2", every << 16 | every[::-1])
        assert np.array_equal(got, run(f"cvt.rn.satfinite.{name}x2.f32", single, single[::-1].copy()))
    codes = np.arange(256 if name != "e2m1" else 16)
    f = SMALL[name]
    codes = codes[codes < 1 << f.bits]
    want = [oracle.encode(oracle.decode(int(c), f), oracle.BF16) for c in codes]
    packed = codes.astype(np.uint8 if name == "e2m1" else np.uint16)
    assert (run(f"cvt.rn.bf16x2.{name}x2", packed) & 0xFFFF).tolist() == want
