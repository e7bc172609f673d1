"""Products of cuBLAS: the table of orders, the chains, and the comparison with a GPU, with torch's CPU in its place."""

import json
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest

from mmulator.base.schemas import document
from mmulator.cli.app import run as mmulator
from mmulator.evaluation.conformance import library
from mmulator.matrix.instruction.cublas import NARROW, LibraryProduct, chain, fused, is_chain, orders
from tests.support.schemas import checked


def test_rows_of_the_table_were_confirmed_and_hold_for_larger_products() -> None:
    assert len(orders()) > 30
    for (type, layout, call), row in orders().items():
        assert row.confirmed >= 30 and any(row.least), (type, layout, call)
        at = next(n for n, least in enumerate(row.least) if least)
        k, side = 2 << at, int(row.least[at] ** 0.5) // 8 * 8 + 8
        large = LibraryProduct(max(side, 24), max(side, 24), k, 1, type, True, layout, call)
        assert is_chain(large, "sm_90") and not is_chain(large, "sm_100")
        narrow = LibraryProduct(NARROW - 1, 1 << 20, k, 1, type, True, layout, call)
        assert not is_chain(narrow, "sm_90"), "smaller products have kernels of their own"
    assert not is_chain(LibraryProduct(64, 64, 64, 1, "f16", False), "sm_90")


def rounded(value: Fraction) -> np.float32:
    near = np.float32(float(value))
    around = [np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf)] + [near]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(np.uint32)) & 1))


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 70, 9), (6, 17, 33)])
def test_a_chain_of_f32_rounds_once_a_product(m: int, n: int, k: int) -> None:
    draw = np.random.default_rng(m)
    a, b = draw.normal(size=(m, k)).astype(np.float32), draw.normal(size=(k, n)).astype(np.float32)
    got = chain("f32", "sm_90", a.view(np.uint32), b.view(np.uint32))
    for i, j in {(0, 0), (m - 1, n - 1), (m // 2, n // 2)}:
        total = np.float32(0)
        for x, y in zip(a[i], b[:, j]):
            total = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(total)))
        assert got[i, j] == total
    a[0, 0] = np.nan
    assert chain("f32", "sm_90", a.view(np.uint32), b.view(np.uint32)).view(np.uint32)[0, 0] == 0x7FFFFFFF


def test_tf32_is_rounded_to_even() -> None:
    a = np.array([[0x3F801000, 0x3F803000, 0x7F800000]], np.uint32)  # halfway: down to even, up to even; infinity
    b = np.eye(3, dtype=np.float32).view(np.uint32)
    with np.errstate(all="ignore"):
        assert chain("tf32", "sm_90", a[:, :2], b[:2, :2]).view(np.uint32).tolist() == [[0x3F800000, 0x3F804000]]
        assert np.isinf(chain("tf32", "sm_90", a[:, 2:], b[2:, 2:])).all()


def test_a_fused_sum_is_rounded_once() -> None:
    a, b, c = np.float32(1 + 2.0**-12), np.float32(1 + 2.0**-12), np.float32(2.0**-60)
    for sign in (1, -1):  # a b lies halfway between two f32, and c decides
        wanted = rounded(Fraction(float(a)) * Fraction(float(b)) + sign * Fraction(float(c)))
        assert fused(np.array([a]), b, np.array([sign * c]))[0] == wanted


def test_draws_are_the_same_for_a_seed_and_have_all_kinds() -> None:
    found = [*islice(library.draws(3), 400)]
    assert found == [*islice(library.draws(3), 400)] and found != [*islice(library.draws(4), 400)]
    assert {one.type for one in found} == set(library.TYPES)
    assert {one.call for one in found} == {*library.CALLS, "scaled_mm"}
    assert {one.layout for one in found if one.call == "mm"} == {"nn", "nt", "tn", "tt"}
    assert all(one.batch * one.m * one.n * one.k <= library.MOST for one in found)


def test_another_order_is_found_and_the_same_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's CPU adds up in another order than the library."""
    pytest.importorskip("torch", reason="torch is not installed")
    one = library.DrawnProduct(0, "f16", "mm", "nn", 64, 64, 256, 1, True)
    chip = {"gpu": "none", "device": "sm_90", "torch": "", "cuda": ""}
    outcome = library.LibraryOutcome(1, chip)
    library.compare(one, 1, "sm_90", outcome, "cpu")
    assert outcome.totals == [1, 1, 1] and outcome.differences[0]["different"] > 0
    assert any("1 of 1 called known differ" in line for line in library.lines(outcome))
    data = document("library", outcome.as_dict())
    assert checked(json.loads(json.dumps(data))) == "library" and not data["ok"]

    def same(of: Any, a: Any, b: Any, c: Any) -> Any:
        from mmulator.doors.torch import orders

        return orders.product("sm_90", a, b)[1]

    monkeypatch.setattr(library, "compute", same)
    outcome = library.LibraryOutcome(1, chip)
    library.compare(one, 1, "sm_90", outcome, "cpu")
    assert outcome.totals == [1, 1, 0] and outcome.as_dict()["ok"]


@pytest.mark.parametrize(("words", "wanted"), [
    ([], "--library compares with a GPU"), (["--gpu", "--filter", "x"], "not both --library and --filter"),
])  # fmt: skip
def test_wrong_use_is_told(words: list[str], wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mmulator(["conformance", "--library", *words]) != 0
    assert wanted in capsys.readouterr().err


def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.version.cuda is not None and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert mmulator(["conformance", "--library", "--gpu"]) != 0
    said = capsys.readouterr().err
    assert "no NVIDIA GPU can be used" in said and "hint: run it on a machine with a GPU" in said
