"""CUDA's random numbers: compiled ones against those that NumPy makes."""

from typing import Any

import numpy as np
import pytest

from mmulator.matrix.numerics.sfu.tables import tables_for
from mmulator.matrix.twin import philox as twin
from tests.support import philox as model

DEVICE = "sm_90"
BEHIND = 64  # elements that must stay as they are
LN2 = np.float32(0.6931471805599453)
CASES = (  # seed, place in draws, elements, threads that the chip holds
    (0, 0, 1, 2048), (1, 4, 31, 2048), (67280421310721, 12, 33, 6144), ((1 << 64) - 1, 0, 257, 2048),
    (1 << 63, (1 << 34) - 4, 4097, 1024), (20261122, 1 << 40, 70001, 6144), (3, 8, 300007, 270336),
)  # fmt: skip
A, B = np.float32(1.7), np.float32(-0.3)


def drawn(kind: str, case: tuple[int, int, int, int], stored: str = "", numbers: Any = (1, 0, 0)) -> Any:
    seed, place, count, resident = case
    dtype = {"": twin.DTYPES[kind], "float16": "f2", "bfloat16": "u2"}[stored]
    out = np.full(count + BEHIND, 7, dtype)
    width = model.threads(count, resident)
    twin.fill(out.ctypes.data, count, kind, seed, place // 4, width, DEVICE, numbers, stored, threads=2)
    assert (out[count:] == 7).all()
    return out[:count]


def expected(kind: Any, case: tuple[int, int, int, int]) -> Any:
    seed, place, count, resident = case
    return model.spread(count, seed, place, resident, kind)


def same(found: Any, wanted: Any) -> bool:
    """Whether all bits agree."""
    return found.tobytes() == wanted.astype(found.dtype).tobytes()


def rounded(x: Any) -> Any:
    """float32 as bits of bfloat16, to nearest even."""
    bits = x.view(np.uint32)
    return (bits + (bits >> 16 & 1) + 0x7FFF >> 16).astype(np.uint16)


NARROW: tuple[tuple[str, Any, Any], ...] = (  # a type in memory, rounding to it, and back
    ("", np.copy, np.copy),
    ("float16", lambda x: x.astype(np.float16), lambda h: h.astype(np.float32)),
    ("bfloat16", rounded, lambda h: (h.astype(np.uint32) << 16).view(np.float32)),
)


def test_all_functions_are_known() -> None:
    """What a wheel brings is what is called: each kind, and those of float32 for two more types in memory."""
    names = {function.name for function in twin.every()}
    assert len(names) == len(twin.KINDS) + 2 * 4
    tables = tables_for(DEVICE)[0]
    assert {twin.function(kind, "", tables).name for kind in twin.KINDS} < names


@pytest.mark.parametrize("case", CASES)
def test_words_and_uniform_numbers(case: tuple[int, int, int, int]) -> None:
    for kind in ("words32", "words64", "uniform32", "uniform64"):
        assert same(drawn(kind, case), expected(getattr(model, kind), case)), kind


@pytest.mark.parametrize("case", CASES)
def test_between_two_bounds(case: tuple[int, int, int, int]) -> None:
    """The upper bound itself becomes the lower one, also where only rounding to the type in memory makes it."""
    first, last = np.float32(-0.25), np.float32(1.5)  # of all three types
    value = model.fma(expected(model.uniform32, case), last - first, first)
    for stored, narrow, wide in NARROW:
        found = narrow(value)
        found[wide(found) == last] = narrow(first.reshape(1))[0]
        assert same(drawn("uniform32", case, stored, (last - first, first, last)), found), stored


@pytest.mark.parametrize("case", CASES)
def test_normal_numbers(case: tuple[int, int, int, int]) -> None:
    wanted = expected(model.normal32(DEVICE), case)
    assert same(drawn("normal", case), wanted)
    moved = model.fma(wanted, A, B)
    for stored, narrow, _ in NARROW:
        assert same(drawn("normal", case, stored, (A, B, 0)), narrow(moved)), stored


@pytest.mark.parametrize("case", CASES)
def test_waiting_times(case: tuple[int, int, int, int]) -> None:
    uniform = expected(model.uniform32, case)
    log = model.lg2(np.append(uniform, np.float32(0.7)), DEVICE) * LN2
    assert same(drawn("geometric", case, "", (0.7, 0, 0)), np.ceil(log[:-1] / log[-1]))
    least = np.float32(2.0**-24)
    assert same(drawn("exponential", case, "", (A, 0, 0)), A * np.where(uniform >= 1 - least, -least, log[:-1]))
