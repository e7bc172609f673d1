"""Formats: laws over whole domains."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmulator.errors import OperandError
from mmulator.isa.types import F16, F32, F64, TYPES, ElementType
from mmulator.matrix.numerics.formats import (
    container,
    decode,
    element_type,
    encode,
    encode_ieee,
    from_raw,
    infinity,
    integers,
    to_raw,
)  # fmt: skip

FLOATS = [t for t in TYPES.values() if t.is_float]
SMALL = [t for t in FLOATS if t.bits <= 16]


def everything(t: ElementType) -> Any:
    return np.arange(1 << t.bits).astype(container(t))


def value(t: ElementType, raw: Any) -> Any:
    f = decode(t, raw)
    magnitude = np.ldexp(f.significand.astype(float), (f.exponent - t.mantissa).astype(int))
    magnitude = np.where(f.nan, np.nan, np.where(f.inf, np.inf, magnitude))
    return np.where(f.sign == 1, -magnitude, magnitude)


@pytest.mark.parametrize("t", SMALL, ids=str)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_decoding_agrees_with_ml_dtypes_on_every_bit_pattern(t: ElementType) -> None:
    raw = everything(t)
    known = raw & 0x7F if t.name == "ue4m3" else raw
    with np.errstate(all="ignore"):
        expected = from_raw(t, known).astype(np.float64)
    np.testing.assert_array_equal(value(t, raw), expected)


@pytest.mark.parametrize("t", [F16, TYPES["bf16"]], ids=str)
def test_every_finite_number_is_encoded_back(t: ElementType) -> None:
    raw = everything(t)
    f = decode(t, raw)
    for mode in ("rn", "rz", "rm", "rp"):
        for bits in raw[~f.nan & ~f.inf][::7].tolist():
            i = int(bits)
            exponent = int(f.exponent[i]) - t.mantissa
            assert encode(t, int(f.sign[i]), int(f.significand[i]), exponent, mode) == i


@given(st.integers(0, (1 << 64) - 1), st.integers(-200, 40))
def test_rounding_to_nearest_is_numpys(significand: int, exponent: int) -> None:
    exact = significand * 2.0**exponent if significand < 1 << 53 else None
    if exact is not None and exact < 1e300:
        with np.errstate(over="ignore"):
            half, single = np.float64(exact).astype(np.float16), np.float64(exact).astype(np.float32)
        assert encode(F16, 0, significand, exponent, "rn") == int(half.view(np.uint16))
        assert encode(F32, 0, significand, exponent, "rn") == int(single.view(np.uint32))


@given(st.integers(0, 1), st.integers(1, (1 << 80) - 1), st.integers(-1200, 1000))
def test_directed_modes_bracket_the_exact_value(sign: int, significand: int, exponent: int) -> None:
    down, up, zero = (encode_ieee(F64, sign, significand, exponent, m) for m in ("rm", "rp", "rz"))
    small, large = sorted(((down & ~(1 << 63)), (up & ~(1 << 63))))
    assert small == zero & ~(1 << 63)
    assert large - small in (0, 1)
    assert {down >> 63, up >> 63} == {sign}


def test_truncation_overflows_to_infinity_only_from_the_next_power_of_two() -> None:
    assert encode(F32, 0, (1 << 24) - 1, 104) == 0x7F7FFFFF
    assert encode(F32, 0, (1 << 60) - 1, 128 - 60) == 0x7F7FFFFF
    assert encode(F32, 1, 1, 128) == infinity(F32, 1)
    assert encode(F32, 0, (1 << 24) - 1, 104, keep=13) == 0x7F7FFC00
    assert encode_ieee(F64, 1, 1, 1024, "rz") == 0xFFEFFFFFFFFFFFFF


def test_signed_integers_are_extended() -> None:
    assert integers(TYPES["s4"], np.arange(16, dtype=np.uint8)).tolist() == [*range(8), *range(-8, 0)]
    assert integers(TYPES["u4"], np.array([0xF8], np.uint8)).tolist() == [8]


@pytest.mark.parametrize("t", [t for t in TYPES.values() if t.numpy and t.kind != "pred" and t.bits <= 8], ids=str)
def test_numpy_arrays_turn_raw_and_back(t: ElementType) -> None:
    raw = everything(t)
    assert to_raw(t, from_raw(t, raw)).tolist() == raw.tolist()


def test_errors_say_what_is_wanted() -> None:
    with pytest.raises(OperandError, match=r"\.f16 elements as float32(.|\n)*float16, or as raw bits in uint16"):
        to_raw(F16, np.zeros(3, np.float32))
    with pytest.raises(OperandError, match=r"'f17' is no element type(.|\n)*known: b1"):
        element_type("f17")
