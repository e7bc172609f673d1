"""Sums that are rounded to f16: by the CPU's conversion, and in integers, as NumPy rounds them."""

# mypy: disable-error-code="valid-type, arg-type"

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import load, store
from mmulator.base.codegen.rounding import set_rounding
from mmulator.base.codegen.types import f32, i32, i64, ptr_to, u32
from mmulator.matrix.twin.tile import I, U, rounded_half, rounded_half_in_integers


def rounding(of: Callable[..., Any]) -> Native:
    def inner(totals: ptr_to(i32), quanta: ptr_to(u32), count: i64, out: ptr_to(f32)) -> None:
        for n in range(i64(0), count, 16):
            store(of(load(I, totals, n), load(U, quanta, n)), out, n)

    core = Native(inner, f"rounding_inner_{of.__name__}", "noinline")

    def all_of(totals: ptr_to(i32), quanta: ptr_to(u32), count: i64, out: ptr_to(f32)) -> None:
        set_rounding("rz")
        core(totals, quanta, count, out)
        set_rounding("rn")

    return Native(all_of, f"rounding_{of.__name__}")


@pytest.mark.parametrize("of", [rounded_half, rounded_half_in_integers])
def test_sums_are_rounded_to_nearest_even(of: Callable[..., Any]) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 32, 1 << 16)
    random = rng.integers(-(1 << 31), 1 << 31, 1 << 16) >> bits
    ties = (rng.integers(1, 1 << 12, 1 << 16) << rng.integers(0, 19, 1 << 16)) + rng.integers(-1, 2, 1 << 16)
    edges = [0, 1, -1, (1 << 31) - 1, -(1 << 31), 1 - (1 << 31), (1 << 24) + 1, (1 << 25) - 1]
    totals = np.concatenate([random, ties, -ties, np.repeat(edges, 2048)]).clip(-(1 << 31), (1 << 31) - 1).astype(np.int32)
    exponent = rng.integers(-60, 20, totals.size)
    quanta = (exponent + 127 << 23).astype(np.uint32)
    found = np.empty(totals.size, np.float32)
    native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    native(address(rounding(of)))(totals.ctypes.data, quanta.ctypes.data, totals.size, found.ctypes.data)
    with np.errstate(over="ignore"):
        expected = np.ldexp(totals.astype(np.float64), exponent).astype(np.float16).astype(np.float32) + np.float32(0)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
