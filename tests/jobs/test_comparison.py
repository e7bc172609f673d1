"""Comparing outputs: distances in ULPs, tolerances, and sentences about where the wrong elements lie."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mmulator.base.distance import distances
from mmulator.errors import LaunchError
from mmulator.host.jobs.comparison import (
    Expectation,
    Tolerance,
    accumulator,
    check_expectation,
    compare,
    part_of,
    where_in_registers,
    where_wrong,
)
from mmulator.isa.names.words import find_forms
from mmulator.matrix.layouts import fragment

BITS = Tolerance()
NARROW = (
    np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float6_e2m3fn, ml_dtypes.float4_e2m1fn,
)  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW)
def test_ulps_count_the_values_between(dtype: Any) -> None:
    """Against the places of all values of the type in order."""
    of: Any = ml_dtypes.finfo
    size = np.dtype(dtype).itemsize
    values = np.arange(1 << of(dtype).bits).astype(f"u{size}").view(dtype)
    with np.errstate(invalid="ignore"):
        kept = values[np.isfinite(values.astype(np.float64))]
    rank = {x: i for i, x in enumerate(sorted(set(kept.astype(np.float64).tolist())))}
    generator = np.random.default_rng(2)
    a, b = (generator.choice(kept, 300) for _ in range(2))
    want = [abs(rank[x] - rank[y]) for x, y in zip(a.astype(np.float64).tolist(), b.astype(np.float64).tolist())]
    assert distances(a, b).tolist() == want


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ulps_of_wide_types(dtype: Any) -> None:
    raw = f"u{np.dtype(dtype).itemsize}"
    one, tiny = np.ones(1, dtype), np.array([1], raw).view(dtype)
    for n in (1, 2, 1000):
        assert distances(one, (one.view(raw) + np.ones(1, raw) * n).astype(raw).view(dtype)).tolist() == [n]
    assert distances(np.array([0.0], dtype), np.array([-0.0], dtype)).tolist() == [0]
    assert distances(tiny, -tiny).tolist() == [2]


def test_large_distances_do_not_wrap() -> None:
    big = np.array([np.finfo(np.float64).max])
    assert distances(big, -big).tolist() == [2 * 0x7FEFFFFFFFFFFFFF]
    assert distances(np.array([-(2**63)]), np.array([2**63 - 1])).tolist() == [2**64 - 1]


@pytest.mark.parametrize(
    ("tolerance", "beyond"),
    [
        (BITS, 4),
        (Tolerance(ulp=1), 3),
        (Tolerance(ulp=2), 2),
        (Tolerance(absolute=0.5), 3),  # not within of it: 1.0, NaN
        (Tolerance(relative=1e-6, absolute=2.0), 1),
        (Tolerance(largest=0.01), 1),  # of 1000
    ],
)
def test_tolerances(tolerance: Tolerance, beyond: int) -> None:
    want = np.array([1, 2, 1000, 4, np.nan, np.inf, 5], np.float32)
    got = want.copy()
    got[:4].view(np.uint32)[:] += np.array([1, 2, 0, 0], np.uint32)
    got[3] += 1
    got[4] = -np.float32(np.nan)  # another NaN: other bits, close
    got[6] = np.nan
    if tolerance == Tolerance(absolute=0.5):
        got[2] += 1
    c = compare("D", got, want, tolerance)
    assert c.wrong == 5 + (tolerance.absolute == 0.5) and c.specials == 1
    assert c.beyond == (c.wrong if not tolerance else beyond) and c.ok is False
    assert c.first is not None and c.ulps[0] == ("1", 1)


def test_a_close_reference_may_have_another_float_type() -> None:
    got = np.array([0.1, 0.2], np.float16)
    c = compare("D", got, np.array([0.1, 0.2]), Tolerance(relative=1e-3))
    assert c.ok and c.wrong == 2 and c.beyond == 0


GIVEN = {"D": np.zeros((16, 8), np.float32), "E": np.zeros(4, ml_dtypes.bfloat16)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "has no arrays: nothing would be compared"),
        ({"X": np.zeros(3)}, "has an array 'X', but no array argument"),
        ({"D": np.zeros((8, 16), np.float32)}, r"is float32 \(8, 16\), D is float32 \(16, 8\)"),
        ({"D": np.zeros((16, 4))}, r"is float64 \(16, 4\), D is float32 \(16, 8\)"),
        ({"D": np.zeros((16, 8))}, "bits cannot be compared"),
        ({"D": np.zeros((16, 8), np.int32)}, "bits cannot be compared"),
    ],
)
def test_references_that_do_not_fit(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        check_expectation(Expectation(arrays, file="e.npz"), GIVEN)


def test_references_that_fit() -> None:
    raw = {"D": np.zeros((16, 8), np.uint32), "E": np.zeros(4, "V2")}
    check_expectation(Expectation(raw), GIVEN)
    check_expectation(Expectation({"D": np.zeros((16, 8))}, Tolerance(relative=1.0)), GIVEN)


# where --------------------------------------------------------------------------------------------------------------
def mask(rows: int, columns: int, condition: Any) -> Any:
    row, column = np.indices((rows, columns))
    return np.broadcast_to(condition(row, column), (rows, columns))


MMA = find_forms("mma m16n8k16 f16")[0]
WGMMA = find_forms("wgmma m64n128 f16 f32")[0]


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        (lambda r, c: c % 8 == 3, "column 3 mod 8: all 512 elements there"),
        (lambda r, c: (r >= 32) & (c < 16), "row 32 to 63, column 0 to 15: all 512 elements there"),
        (lambda r, c: r == 5, "row 5: all 64 elements there"),
        (lambda r, c: (r % 16 >= 8) & (c % 2 == 0) & ((r + c) % 3 > 0), "row 8 to 15 mod 16, column 0 mod 2: "),
        (lambda r, c: (r * 37 + c * 101) % 7 == 0, "no simple pattern of rows and columns"),
        (lambda r, c: r >= 0, "every element"),
        (lambda r, c: r + c > 0, "every element but 1"),
        (lambda r, c: (r == 3) & (c == 5), "at [3, 5]"),
    ],
)
def test_runs_and_periods(condition: Any, sentence: str) -> None:
    assert where_wrong(mask(64, 64, condition))[0].startswith(sentence)


def test_nothing_is_said_of_few_elements_by_chance() -> None:
    """Random masks have no pattern, however few elements they have."""
    generator = np.random.default_rng(8)
    told = 0
    for density in (0.003, 0.01, 0.1, 0.5):
        for _ in range(50):
            found = where_wrong(generator.random((64, 64)) < density)
            told += bool(found) and found[0].startswith(("row", "column"))
    assert told <= 2


@pytest.mark.parametrize("form", [MMA, WGMMA])
def test_lanes_and_registers_of_accumulators(form: Any) -> None:
    """What one register of some lanes spoils in every tile is named as that."""
    f = fragment(form, "d")
    held = accumulator(form)
    assert held is not None
    tile = np.zeros((f.rows, f.columns), bool)
    for lane in range(4, 8):
        tile[f.maps[1][lane, 1, 0], f.maps[2][lane, 1, 0]] = True
    (_, sentence) = where_wrong(np.tile(tile, (4, 4)), [held])
    assert sentence.startswith(f"as d of {form}, in tiles of {f.rows} x {f.columns}")
    assert sentence.endswith("lane 4 to 7, register 1: all 64 elements there")
    cut = np.tile(tile, (4, 4))[: 2 * f.rows + 2, : 3 * f.columns + 4]  # the last tiles are cut
    assert where_wrong(cut, [held])[1].endswith(f"lane 4 to 7, register 1: all {int(cut.sum())} elements there")


def test_two_layouts_leave_the_lanes_open() -> None:
    both = [accumulator(MMA), accumulator(WGMMA)]
    assert len(where_wrong(mask(64, 128, lambda r, c: c % 8 == 3), [a for a in both if a])) == 1
    assert accumulator(find_forms("ldmatrix x4")[0]) is None


def test_every_sentence_about_numbers_holds() -> None:
    """The set that is named has all of the values, and is the narrowest of the simple ones where one is exact."""
    generator = np.random.default_rng(4)
    for _ in range(300):
        limit = int(generator.choice([4, 16, 64, 100, 256]))
        values = np.unique(generator.integers(0, limit, generator.integers(1, 9)))
        part = part_of(values, limit)
        assert part is None or part.own[values].all()
    exact = part_of(np.arange(1, 64, 8), 64)
    assert exact is not None and exact.text == "1 mod 8" and exact.own.sum() == 8


def test_words_of_registers() -> None:
    wrong = np.zeros((50, 32, 4), bool)
    wrong[:, 8:12, 2] = True
    assert where_in_registers(wrong) == "lane 8 to 11, register 2"
    assert where_in_registers(np.ones((50, 32, 4), bool)) == ""
