"""The record of one element's sum: its numbers, added again by hand, give the model's bits, for each arithmetic of each chip.

"By hand" is plain integers and fractions on the record as JSON. Nothing of the model is used but the sizes of types.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from mmulator.errors import InternalError, UnsupportedError
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES
from mmulator.isa.types import TYPES
from mmulator.matrix.numerics import DotKey, profile_for
from mmulator.matrix.numerics.element import ElementSum, explain_element, hexed, parted, ulps, ulps_off
from mmulator.matrix.numerics.formats import from_raw
from mmulator.matrix.numerics.profiles import dot_key
from mmulator.matrix.numerics.telling import html, text
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import DISTRIBUTIONS, operands

Record = dict[str, Any]
NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


# every arithmetic -------------------------------------------------------------------------------------------------------
def tensor_memory_keys() -> Iterator[DotKey]:
    """Arithmetics of tcgen05.mma: its names have no types, a descriptor has them."""
    for d, sparse in product(("f32", "f16"), (False, True)):
        for t in ("f16", "bf16"):
            yield DotKey("tcgen05", t, t, d, d, 16 << sparse, sparse)
        for t, u in product(NARROW, NARROW):
            yield DotKey("tcgen05", t, u, d, d, 32 << sparse, sparse)
    for sparse in (False, True):
        yield DotKey("tcgen05", "tf32", "tf32", "f32", "f32", 8 << sparse, sparse)
        for t, u, clamp in product(("s8", "u8"), ("s8", "u8"), (False, True)):
            yield DotKey("tcgen05", t, u, "s32", "s32", 32 << sparse, sparse, clamp)
        for t, u in product(NARROW, NARROW):
            yield DotKey("tcgen05", t, u, "f32", "f32", 32 << sparse, sparse, kind="mxf8f6f4", scale_vec="1X", stype="ue8m0")
        for kind, vec, stype in (("mxf4", "2X", "ue8m0"), ("mxf4nvf4", "2X", "ue8m0"), ("mxf4nvf4", "4X", "ue4m3")):
            for k in (64 << sparse, *([] if sparse else [96])):
                yield DotKey("tcgen05", "e2m1", "e2m1", "f32", "f32", k, sparse, kind=kind, scale_vec=vec, stype=stype)


@cache
def arithmetics() -> dict[tuple[DotKey, str], str]:
    """Each instruction's arithmetic on each device, and a device that stands for those with the same one."""
    keys = dict.fromkeys([*(dot_key(f) for f in matrix_forms() if f.atype and f.btype and f.dtype), *tensor_memory_keys()])
    first: dict[Any, str] = {}
    found = {}
    for key, device in product(keys, DEVICES):
        try:
            p = profile_for(key, device)
        except UnsupportedError:
            continue
        found[key, device] = first.setdefault((key, replace(p, confidence="measured", note="")), device)
    return found


def test_every_chip_is_among_them() -> None:
    assert {device for _, device in arithmetics()} == {*DEVICES}
    methods = {profile_for(key, device).method for key, device in arithmetics()}
    assert methods == {"fused", "halves", "groups", "software", "fma", "integer", "bits"}


# by hand ------------------------------------------------------------------------------------------------------------------
@cache
def read(written: str) -> Fraction | float:
    """A hexadecimal float of any length."""
    if written in ("NaN", "Infinity", "-Infinity"):
        return float(written.replace("Infinity", "inf"))
    sign, written = (-1, written[1:]) if written[0] == "-" else (1, written)
    digits, exponent = written.removeprefix("0x").split("p")
    whole, _, rest = digits.partition(".")
    return sign * Fraction(int(whole + rest, 16), 16 ** len(rest)) * Fraction(2) ** int(exponent)


@cache
def number(t: str, bits: int) -> Fraction | float:
    """The value of raw bits, as NumPy and ml_dtypes have it."""
    if t == "tf32":
        bits &= 0xFFFFE000
    if t == "b1":
        return Fraction(bits)
    value: Any = from_raw(TYPES[t], np.array([bits & 0x7F if t == "ue4m3" else bits]))[0]
    if TYPES[t].is_integer:
        return Fraction(int(value))
    return Fraction(float(value)) if np.isfinite(float(value)) else float(value)


def same(x: Fraction | float, y: Fraction | float) -> bool:
    return x == y or (x != x and y != y)


def times(*factors: Fraction | float) -> Fraction | float:
    """A product, with IEEE's rules where a factor is special."""
    if all(isinstance(f, Fraction) for f in factors):
        return math.prod(factors)
    return math.prod(f if isinstance(f, float) else float((f > 0) - (f < 0)) for f in factors)


def floor(value: Fraction) -> int:
    return value.numerator // value.denominator


def whole(value: Fraction) -> int:
    """Truncated toward zero."""
    return floor(value) if value >= 0 else -floor(-value)


def rounded(value: Fraction, rounding: Record, zero: int) -> int:
    """Bits of a finite number in f16, f32 or f64."""
    t = TYPES[rounding["dtype"]]
    sign_bit = 1 << (t.bits - 1)
    if not value:
        return zero * sign_bit
    top = 0
    while abs(value) >= Fraction(2) ** (top + 1):
        top += 1
    while abs(value) < Fraction(2) ** top and top > t.emin:
        top -= 1
    top = max(top, t.emin)
    unit = Fraction(2) ** (top - (rounding["keep"] or t.mantissa))
    low = floor(value / unit)
    rest = value / unit - low
    half = Fraction(1, 2)
    up = {"rn": rest > half or (rest == half and low % 2), "rz": value < 0 and rest, "rm": False, "rp": rest}
    units = low + bool(up[rounding["mode"]])
    result = units * unit
    sign = value < 0
    largest = (2 - Fraction(1, 2**t.mantissa)) * Fraction(2) ** t.bias
    if abs(result) > largest:
        inward = rounding["ieee"] and (rounding["mode"] == "rz" or rounding["mode"] == ("rp" if sign else "rm"))
        return sign * sign_bit + ((1 << t.exponent) - 1 << t.mantissa) - inward
    if not result and not rounding["signed_zero"]:
        return 0
    scaled = abs(result) / Fraction(2) ** (t.emin - t.mantissa)  # in subnormal steps
    assert scaled.denominator == 1
    steps, field = int(scaled), 0
    while steps >= 2 << t.mantissa:
        steps, field = steps // 2, field + 1
    bits = steps + (field << t.mantissa)
    return sign * sign_bit + bits


def add_again(record: Record) -> int:
    """The result, from the numbers of the record; each of them is checked on the way."""
    key, p = record["arithmetic"], record["profile"]
    values: list[Fraction | float] = []
    for s in record["steps"]:
        for t in s["terms"]:
            value = read(t["value"])
            if isinstance(value, Fraction):
                assert value == t["significand"] * Fraction(2) ** (t["exponent"] - t["fraction"])
            if t["source"] == "product":
                x, y = number(key["atype"], t["a"]), number(key["btype"], t["b"])
                exact = times(x, y, *factors(record, t["number"]), Fraction(record["sign"]))
                assert same(value, Fraction(int(x) ^ int(y)) if key["bit_op"] == "xor" else exact)
            elif t["source"] == "step":
                assert same(value, values[t["number"]])
            else:
                assert same(value, number(key["ctype"], record["c"]) if t["source"] == "c" else Fraction(0))
        values.append(one_step(s, p))
        assert same(values[-1], read(s["value"]))
    assert same(values[-1], read(record["value"]))
    return int(s["bits"])


def factors(record: Record, k: int) -> list[Fraction | float]:
    """Scale factors of a product that are part of the term; those of a group are applied to its sum."""
    key, p = record["arithmetic"], record["profile"]
    if not record["scale_a"] or p["method"] == "groups":
        return []
    block = k // (key["k"] // 2 if key["sparse"] else key["k"])
    return [number(key["stype"], record[name][block]) for name in ("scale_a", "scale_b")]


def one_step(s: Record, p: Record) -> Fraction | float:
    """The result of a step, from its terms."""
    terms = [read(t["value"]) for t in s["terms"]]
    special = sum(x for x in terms if isinstance(x, float))
    if s["operation"] == "group":
        assert s["total"] * Fraction(2) ** s["quantum"] == sum(terms)
        return times(sum(terms, Fraction(0)), read(s["scale"]))
    dtype = s["rounding"]["dtype"]
    if special:
        assert same(read(s["special"]), special) and same(number(dtype, s["bits"]), special)
        return special
    if s["emax"] is not None:
        exponents = [t["aligned"] for t in s["terms"] if t["aligned"] is not None]
        assert s["emax"] == max([p["floor"], *exponents]) and s["quantum"] == s["emax"] - p["fraction"]
        for t in s["terms"] if p["method"] != "groups" else ():
            assert t["aligned"] == (t["exponent"] if t["significand"] else None)
    unit = Fraction(2) ** s["quantum"]
    total = 0
    for t, value in zip(s["terms"], terms, strict=True):
        assert t["kept"] == whole(value / unit) and read(t["cut"]) == value - t["kept"] * unit
        assert s["emax"] is not None or t["kept"] * unit == value
        total += t["kept"]
    assert total == s["total"]
    if dtype == "s32":
        result = max(-(1 << 31), min((1 << 31) - 1, total)) if s["rounding"]["mode"] == "clamp" else total
        assert s["bits"] == result % (1 << 32)
    else:
        assert s["bits"] == rounded(total * unit, s["rounding"], s["zero"])
    return number(dtype, s["bits"])


def record_of(e: ElementSum) -> Record:
    return json.loads(json.dumps(e.to_dict()))


def random_element(key: DotKey, device: str, seed: int, name: str) -> tuple[ElementSum, int]:
    """A record, and the bits that the array form of the model gives. Odd seeds: two instructions."""
    k = key.k * (1 + seed % 2)
    drawn = "bits" if name == "zeros" else name
    (A, B, C), more = operands(key, 1, 1, k, seed, (drawn, drawn, "wide" if seed % 3 else drawn))
    if name == "zeros":  # all products have the sign of seed's bit 1, C that of bit 2
        zeros = ((A, key.atype, seed >> 1 & 1), (B, key.btype, 0), (C, key.ctype, seed >> 2 & 1))
        A, B, C = (np.full_like(x, sign << (TYPES[t].bits - 1)) for x, t, sign in zeros)
    rows = more["indices"][0] if key.sparse else np.arange(k)
    scales = {n: more[n].reshape(-1).tolist() for n in ("scale_a", "scale_b") if n in more}
    signs = {n: more[n] for n in ("imm_scale_a", "imm_scale_b") if n in more}
    e = explain_element(key, device, A[0], B[rows, 0], int(C[0, 0]), positions=rows.tolist(), **signs, **scales)
    return e, int(model_matmul(key, device, A, B, C, **more)[0, 0])


@pytest.mark.parametrize("device", DEVICES)
def test_sums_by_hand(device: str) -> None:
    """All distributions (of integers: three) for a device that stands for others, every other one in turn for each arithmetic;
    one for each of the other devices."""
    number = 0
    for (key, here), first in arithmetics().items():
        if here != device:
            continue
        number += 1
        for seed, name in enumerate(DISTRIBUTIONS if TYPES[key.atype].is_float else ("bits", "huge", "normal")):
            if seed % 2 == number % 2 if first == device else seed == number % 3:
                e, model = random_element(key, device, seed, name)
                assert add_again(record_of(e)) == e.bits == model, (key, device, seed, name)


def test_signs_of_zeros() -> None:
    """Sums of zeros have the model's sign; those of integers and bits have their own kind of step."""
    seen = set()
    for (key, device), first in arithmetics().items():
        if device != first:
            continue
        if TYPES[key.ctype].is_float:
            for seed in range(0, 8, 2):
                e, model = random_element(key, device, seed, "zeros")
                assert e.bits == model and model in (0, 1 << (TYPES[key.dtype].bits - 1)), (key, device, seed)
                seen.add((key.family, model))
        else:
            steps = record_of(random_element(key, device, 0, "bits")[0])["steps"]
            assert {s["operation"] for s in steps} <= {"bits" if key.atype == "b1" else "integers", "addition"}, (key, device)
    assert {1 << 15, 1 << 63, 0} == {bits for _, bits in seen}


# what is derived ----------------------------------------------------------------------------------------------------------
def f16(*values: float) -> list[int]:
    return np.array(values, np.float16).view(np.uint16).tolist()


KEY = DotKey("mma", "f16", "f16", "f32", "f32", 16)


def test_exact_sums() -> None:
    """The exact sum is that of the products and C, whatever the method."""
    for (key, device), first in arithmetics().items():
        if device == first and key.products <= 32:
            e, _ = random_element(key, device, 4, "normal")
            record = record_of(e)
            products = [t for s in record["steps"] for t in s["terms"] if t["source"] == "product"]
            scales = [s["scale"] for s in record["steps"] for t in s["terms"] if t["source"] == "product"]
            scaled = [times(read(t["value"]), read(x or "0x1p+0")) for t, x in zip(products, scales, strict=True)]
            assert same(e.read, sum(scaled, number(key.ctype, e.c))), (key, device)


def test_losses_add_up() -> None:
    """Parts of the difference from the exact sum of what was given, of every arithmetic; for tf32 f32 numbers were given."""
    kinds = set()
    for (key, device), first in arithmetics().items():
        if device == first and key.products <= 32:
            for seed in range(2):
                e, _ = random_element(key, device, seed, "normal")
                kinds |= {x.kind for x in e.losses}
                finite = all(isinstance(x, Fraction) for x in (e.value, e.exact, e.read))
                assert not finite or sum(x.value for x in e.losses) == e.value - e.exact, (key, device)
                assert key.atype == "tf32" or e.read == e.exact or not finite
    assert kinds == {"operands", "terms", "sums", "result"}
    a, b = np.array([[1 + 2**-12], [1]], np.float32).view(np.uint32).tolist()
    e = explain_element(DotKey("mma", "tf32", "tf32", "f32", "f32", 8), "sm_80", a, b)
    assert e.value == 1 and [(x.said, x.value) for x in e.losses] == [
        ("13 bits of a are cut: f32 is read as tf32", -Fraction(1, 1 << 12)),
    ]


def test_losses_that_do_not_add_up() -> None:
    e = explain_element(KEY, "sm_80", f16(4096, 1.5 * 2**-13), f16(1, 1.25))
    wrong = replace(e, steps=(replace(e.steps[0], bits=e.steps[0].result + 1), *e.steps[1:]))
    with pytest.raises(InternalError, match="is not the sum of"):
        _ = wrong.losses


def test_hexadecimal_texts() -> None:
    for x in (0.0, 1.0, -1.5, 3.0, 2.0**-1074, 1.7976931348623157e308, 0.1, -255.0, 256.0):
        assert float.fromhex(hexed(Fraction(x))) == x and read(hexed(Fraction(x))) == x
    assert hexed(Fraction(3, 8)) == "0x1.8p-2" and hexed(float("-inf")) == "-Infinity"
    assert read(hexed(Fraction(2**200 + 1))) == 2**200 + 1


def test_ulps() -> None:
    f32 = TYPES["f32"]
    assert ulps(f32, 0x3F800000, 0x3F800003) == 3 and ulps(f32, 0x80000001, 1) == 2 and ulps(f32, 0x7FFFFFFF, 0) is None
    assert ulps(TYPES["s32"], 0xFFFFFFFF, 1) == 2
    assert ulps_off(f32, 0x3F800001, Fraction(1)) == 1 and ulps_off(f32, 0x7F800000, Fraction(1)) is None


def test_where_two_devices_part() -> None:
    """A large product and small ones: sm_80 loses the small ones of its second chunk, sm_90 has one chunk."""
    a, b = f16(*[4096.0] * 2, *[2.0**-12] * 30), f16(*[1.0] * 32)
    ampere, hopper = (explain_element(KEY, device, a, b) for device in ("sm_80", "sm_90"))
    assert sorted(ampere.running()) == [8, 16, 24, 32] and sorted(hopper.running()) == [16, 32]
    assert parted(ampere, hopper) == 16 and parted(ampere, ampere) is None
    halves = explain_element(DotKey("mma", "e4m3", "e4m3", "f32", "f32", 16), "sm_90", [0x38] * 16, [0x38] * 16)
    assert sorted(halves.running()) == [16]


def test_text() -> None:
    e = explain_element(DotKey("mma", "f16", "f16", "f32", "f32", 8), "sm_80", f16(4096, 1.5 * 2**-13), f16(1, 1.25))
    lines = text(e).splitlines()
    assert lines[0] == "sm_80: fused, 8 products a chunk (published)"
    assert lines[1] == "24 bits are kept below the largest exponent, which is -132 at least"
    assert lines[3] == "step 0: largest exponent 12 (k 0): terms are cut below 2^-12"
    assert lines[5].split() == ["k", "0", "4096", "1", "0x1p+12", "16777216", "-"]
    assert lines[6].split() == ["k", "1", "0.000183105", "1.25", "0x1.ep-13", "0", "0x1.ep-13"]
    assert "sum 16777216 x 2^-12; toward zero: f32 4096 = 0x45800000 (exact)" in lines
    assert lines[-2:] == [
        "exact sum 4096.00023 = 0x1.000000fp+12; the result is -0.47 ULP from it",
        "  -0.000229  -0.4688 ULP  bits below what a sum keeps are cut, in 1 of 1 steps",
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("device", DEVICES)
def test_every_text_is_made(device: str) -> None:
    """Special values too; no line is longer than 100 letters, but for f64, whose products have 106 bits."""
    for (key, here), first in arithmetics().items():
        if here == device == first:
            for seed, name in ((0, "normal"), (1, "special"), (2, "huge")):
                e, _ = random_element(key, device, seed, name)
                assert html(e).startswith("<section><h4>")
                assert max(map(len, text(e).splitlines())) <= (160 if key.atype == "f64" else 100), text(e)


def test_reasons() -> None:
    inf, nan, one = 0x7C00, 0x7E00, 0x3C00
    ones = [one] * 16

    def why(a: list[int], b: list[int], c: int = 0) -> str:
        return text(explain_element(KEY, "sm_90", a, b, c))

    special = [line for line in why([inf, *ones[1:]], ones).splitlines() if line.startswith(("k ", "C "))]
    assert len(special) == 17 and all(line.split()[-2:] == ["-", "-"] for line in special)  # nothing is cut
    assert "k 0 is NaN" in why([inf, *ones[1:]], [0, *ones[1:]])
    assert "k 3 is NaN" in why([*ones[:3], nan, *ones[4:]], ones)
    assert "Inf and -Inf: k 0, C" in why([inf, *ones[1:]], ones, 0xFF800000)
    assert "k 0 is -Inf" in why([inf | 0x8000, *ones[1:]], ones)
    half = replace(KEY, ctype="f16", dtype="f16")
    assert "the sum is too large for f16" in text(explain_element(half, "sm_90", f16(*[128.0] * 16), f16(*[128.0] * 16)))
