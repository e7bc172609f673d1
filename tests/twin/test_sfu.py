"""Approximate functions: hardware samples, exact model against compiled twin, what the specification promises."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.engine import Library
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import load, shuffle, store
from mmulator.base.codegen.rounding import has_permutes
from mmulator.base.codegen.types import ptr
from mmulator.errors import OperandError, UnsupportedError
from mmulator.matrix.numerics.sfu import constants
from mmulator.matrix.numerics.sfu.tables import Tables, parse_tables, tables_for
from mmulator.matrix.twin.sfu.arrays import ArrayFunction, evaluate
from mmulator.matrix.twin.sfu.native import APPROX, KEYS, LANES, Key, divisor_lanes, quotient, word_of
from tests.support import sfu_unit as unit
from tests.support.natives import library_text
from tests.support.places import DATA, ROOT
from tests.support.sfu import decode, encode, unit_array, write_tables
from tests.support.sfu_instructions import BINARY, UNARY

TABLES: Tables = tables_for("sm_90")[0]
UNITS = ("rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos", "tanh", "rcp64h", "rsqrt64h")
KEY_NAMES = [f"{n}{'.ftz' if z else ''}.{t}" for n, t, z in KEYS]


@cache
def sample() -> dict[str, np.ndarray]:
    """Outputs of an NVIDIA H200 (written by evidence/study/solve_sfu.py sample)."""
    with np.load(DATA / "approx_sm_90.npz") as file:
        return {name: file[name] for name in file.files}


def model(key: Key, *operands: np.ndarray) -> np.ndarray:
    function: Any = UNARY.get(key) or BINARY[key]
    rows = zip(*(o.tolist() for o in operands))
    return np.array([function(*row, TABLES, key[2]) for row in rows], operands[0].dtype)


# hardware ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", UNITS)
def test_unit_at_telling_points(name: str) -> None:
    inputs, outputs = sample()[f"unit_{name}"]
    function = getattr(unit, name)
    assert [function(x, TABLES) for x in inputs.tolist()] == outputs.tolist()
    assert np.array_equal(ArrayFunction(unit_array(name, TABLES))(inputs), outputs)


@pytest.mark.parametrize("name", [k for k in sample() if k.startswith("xs_")])
def test_every_exponent(name: str) -> None:
    operation, *rest = name.removeprefix("xs_").removeprefix("rev_").split(".")
    expected = decode(sample()[name])
    inputs = (np.arange(512, dtype=np.uint32) << 23 | sample()["significands"][:, None]).ravel()
    if "rev" in name:  # behind the range reduction of sin and cos
        assert np.array_equal(ArrayFunction(unit_array(operation, TABLES))(inputs), expected)
        return
    assert np.array_equal(evaluate(operation, inputs, ftz="ftz" in rest), expected)
    some = np.random.default_rng(3).choice(len(inputs), 1500, False)
    assert np.array_equal(model((operation, "f32", "ftz" in rest), inputs[some]), expected[some])


@pytest.mark.parametrize("name", [k for k in sample() if k.endswith("f16")])
def test_half_types(name: str) -> None:
    operation, *_, ty = name.split(".")
    halves = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(model((operation, ty, ".ftz" in name), halves), decode(sample()[name]))


@pytest.mark.parametrize("name", ["rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "tanh"])
def test_sample_notices_every_coefficient(name: str) -> None:
    """Each coefficient of each row, one too large or too small, fails at some point of the sample."""
    table = getattr(TABLES, name)
    inputs, outputs = sample()[f"unit_{name}"].tolist()
    function = getattr(unit, name)
    reached: dict[int, list[tuple[int, int]]] = {}
    for x, y in zip(inputs, outputs):
        watch = _Watched(table.rows)
        function(x, dataclasses.replace(TABLES, **{name: dataclasses.replace(table, rows=watch)}))
        for row in watch.seen:
            reached.setdefault(row, []).append((x, y))
    step = 1
    for row, coefficients in enumerate(table.rows):
        for column in range(3):
            # D of tanh is a multiple of 2**-24
            step = 1 << coefficients[3] - 24 if name == "tanh" and column == 0 else 1
            for change in (-step, step):
                wrong = [c + change * (i == column) for i, c in enumerate(coefficients)]
                rows = (*table.rows[:row], tuple(wrong), *table.rows[row + 1 :])
                mutant = dataclasses.replace(TABLES, **{name: dataclasses.replace(table, rows=rows)})
                assert any(function(x, mutant) != y for x, y in reached[row]), (name, row, column, change)


class _Watched(tuple[Any, ...]):
    """Rows that remember which of them were read."""

    def __new__(cls, rows: tuple[Any, ...]) -> _Watched:
        watched = super().__new__(cls, rows)
        watched.seen = set()  # type: ignore[attr-defined]
        return watched

    def __getitem__(self, index: Any) -> Any:
        self.seen.add(index)  # type: ignore[attr-defined]
        return super().__getitem__(index)


# exact model and compiled twin ----------------------------------------------------------------------------------------
def adversarial(key: Key, rng: np.random.Generator) -> np.ndarray:
    """Bits: specials, neighbours of every threshold, every exponent, random; all 2**16 of a half type."""
    bits = word_of(key).bits
    if bits == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    if key[1] in ("f16x2", "bf16x2"):
        return rng.integers(0, 1 << 32, 1 << 14, dtype=np.uint32)
    fraction = 52 if bits == 64 else 23
    dtype = np.dtype(f"u{bits // 8}")
    count = 1 << bits - fraction
    exponents = np.arange(count, dtype=dtype) << dtype.type(fraction)
    near = np.array([0, 1, 2, (1 << fraction) - 1, (1 << fraction) - 2], dtype)
    low = rng.integers(0, 1 << fraction, (4, count), dtype=dtype)
    thresholds = np.array([-126, 128, -127, -149, -150, 150, 0.5, 8, 2**-8, 2.0**126, 2.0**-126, np.pi, np.inf])
    with np.errstate(all="ignore"):
        edges = thresholds.astype(f"f{bits // 8}").view(dtype)
    edges = (edges[:, None] + np.arange(-3, 4).astype(dtype)).ravel()
    parts = [(exponents[:, None] | near).ravel(), (exponents | low).ravel(), edges, edges ^ dtype.type(1 << bits - 1)]
    values = rng.normal(size=6000) * np.exp2(rng.integers(-12, 12, 6000))
    return np.concatenate([*parts, values.astype(f"f{bits // 8}").view(dtype)])


@pytest.mark.parametrize("key", KEYS, ids=KEY_NAMES)
def test_twin_is_the_model(key: Key) -> None:
    rng = np.random.default_rng(5)
    name, ty, ftz = key
    operands = [adversarial(key, rng)]
    if key in BINARY:
        operands = [np.concatenate([operands[0]] * 2), np.concatenate([rng.permutation(operands[0]) for _ in range(2)])]
        # quotients about the smallest and the largest number
        a, b = operands
        a[::5] = (a[::5] & 0x807FFFFF) | ((b[::5] >> 23 & 0xFF) + rng.choice([-126, -125, -127, 127, 128]) & 0xFF) << 23
    got = evaluate(name, *operands, type=ty, ftz=ftz)
    wrong = np.flatnonzero(got != model(key, *operands))
    assert not len(wrong), [tuple(hex(o[i]) for o in operands) for i in wrong[:5]]


@cache
def lane_library() -> Library:
    return Library(library_text([_lanes(key) for key in KEYS]))


def _lanes(key: Key) -> Native:
    """`f(a, b, dst)` through pointers; a division by its two parts."""
    full, ftz, vector = key[0] == "div.full", key[2], word_of(key).vec(LANES)

    def one(a: ptr, b: ptr, dst: ptr) -> None:
        store(APPROX[key](load(vector, a)), dst)

    def two(a: ptr, b: ptr, dst: ptr) -> None:
        both = divisor_lanes(TABLES, full, ftz)(load(vector, b))
        inverse, scale = shuffle(both, None, range(LANES)), shuffle(both, None, range(LANES, 2 * LANES))
        store(quotient(load(vector, a), inverse, scale, ftz), dst)

    return Native(two if key in BINARY else one, "lanes_" + "_".join(map(str, key)).replace(".", "_"))


def test_lane_functions_are_the_array_functions() -> None:
    library = lane_library()
    rng = np.random.default_rng(7)
    for key in KEYS:
        dtype = np.dtype(f"u{word_of(key).size}")
        function = library.function(_lanes(key).name, None, *[ctypes.c_void_p] * 3)
        for _ in range(40):
            operands = [rng.permutation(adversarial(key, rng))[:LANES].copy() for _ in range(2)]
            assert operands[0].dtype == dtype
            expected = evaluate(key[0], *operands[: 1 + (key in BINARY)], type=key[1], ftz=key[2])
            function(*(o.ctypes.data for o in operands), operands[0].ctypes.data)  # in place
            assert np.array_equal(operands[0], expected), key


@pytest.mark.parametrize("wide", [True, False])
def test_processors_without_permutes_give_the_same(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients are looked up by permutes of words of 16 bits, of 32 bits (wide), or by gathers."""
    inputs = adversarial(("rcp", "f32", False), np.random.default_rng(2))
    names = ("rcp", "rsqrt", "sqrt", "ex2", "rcp64h", "rsqrt64h")
    expected = {name: ArrayFunction(unit_array(name, TABLES))(inputs) for name in names}
    monkeypatch.setattr("mmulator.matrix.twin.sfu.short.has_word_permutes", lambda: False)
    monkeypatch.setattr("mmulator.base.codegen.rounding.has_permutes", lambda: wide and has_permutes())
    for name in names:
        assert np.array_equal(ArrayFunction(unit_array(name, TABLES))(inputs), expected[name]), name


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 31, 32, 33])
def test_array_form_writes_count_elements(count: int) -> None:
    x = np.linspace(-3, 3, 40, dtype=np.float32).view(np.uint32)
    out = np.full(40, 0xDEADBEEF, np.uint32)
    function = ArrayFunction(unit_array("ex2", TABLES))
    function(x[:count], out=out[:count])
    assert np.array_equal(out[:count], function(x)[:count])
    assert (out[count:] == 0xDEADBEEF).all()


# what the specification promises --------------------------------------------------------------------------------------
INF, NAN = np.inf, np.nan
SPECIAL = {  # tables of special inputs in Floating Point Instructions (PTX ISA 9.1); 1e-40 is subnormal
    ("rcp", True): [(-INF, -0.0), (-1e-40, -INF), (-0.0, -INF), (0.0, INF), (1e-40, INF), (INF, 0.0), (NAN, NAN)],
    ("sqrt", True): [(-INF, NAN), (-1.0, NAN), (-1e-40, -0.0), (-0.0, -0.0), (0.0, 0.0), (1e-40, 0.0), (INF, INF)],
    ("rsqrt", True): [(-INF, NAN), (-1.0, NAN), (-1e-40, -INF), (-0.0, -INF), (0.0, INF), (1e-40, INF), (INF, 0.0)],
    ("sin", True): [(-INF, NAN), (-1e-40, -0.0), (-0.0, -0.0), (0.0, 0.0), (1e-40, 0.0), (INF, NAN), (NAN, NAN)],
    ("cos", True): [(-INF, NAN), (-1e-40, 1.0), (-0.0, 1.0), (0.0, 1.0), (1e-40, 1.0), (INF, NAN), (NAN, NAN)],
    ("lg2", True): [(-INF, NAN), (-1e-40, -INF), (-0.0, -INF), (0.0, -INF), (1e-40, -INF), (INF, INF), (NAN, NAN)],
    ("ex2", True): [(-INF, 0.0), (-1e-40, 1.0), (-0.0, 1.0), (0.0, 1.0), (1e-40, 1.0), (INF, INF), (NAN, NAN)],
    ("tanh", False): [(-INF, -1.0), (-1e-40, -1e-40), (-0.0, -0.0), (0.0, 0.0), (1e-40, 1e-40), (INF, 1.0), (NAN, NAN)],
}


@pytest.mark.parametrize(("operation", "ftz"), SPECIAL)
def test_special_inputs(operation: str, ftz: bool) -> None:
    x, y = (np.array(column, np.float32) for column in zip(*SPECIAL[operation, ftz]))
    expected = np.where(np.isnan(y), np.uint32(0x7FFFFFFF), y.view(np.uint32))
    assert np.array_equal(evaluate(operation, x, ftz=ftz).view(np.uint32), expected)


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("operation", ["rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"])
def test_error_is_what_the_hardware_shows(operation: str, ftz: bool) -> None:
    """No error exceeds the largest that an NVIDIA H200 showed over all inputs; some come near it."""
    if operation == "tanh" and ftz:
        pytest.skip("tanh.approx.ftz.f32 does not exist")
    facts = json.loads((DATA / "h200_facts.json").read_text())
    limit = "3.14159" if operation in ("sin", "cos") else "inf"
    fact = facts[f"ulp {operation}_approx{'_ftz' if ftz else ''} |x| <= {limit}"]
    rng = np.random.default_rng(11)
    high = {"ex2": 126.0, "tanh": 10.0}.get(operation, min(float(limit), 2.0**120))
    x = np.exp2(rng.uniform(-20, np.log2(high), 1 << 18)) * rng.choice([-1, 1], 1 << 18)
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        exact = {
            "rcp": lambda: 1 / wide, "sqrt": lambda: np.sqrt(wide), "rsqrt": lambda: 1 / np.sqrt(wide),
            "ex2": lambda: np.exp2(wide), "lg2": lambda: np.log2(wide), "sin": lambda: np.sin(wide),
            "cos": lambda: np.cos(wide), "tanh": lambda: np.tanh(wide),
        }[operation]()  # fmt: skip
        usable = np.isfinite(exact) & (np.abs(exact) < 2.0**128) & (np.abs(exact) >= 2.0**-126)
        ulp = np.exp2(np.frexp(exact)[1] - 24.0)
        error = np.abs(evaluate(operation, x, ftz=ftz).astype(np.float64) - exact) / ulp
    assert error[usable].max() <= fact["max ulp"] * (1 + 1e-6)
    if operation not in ("lg2", "sin", "cos"):  # these lose all relative precision beside a zero
        assert error[usable].max() > 0.8 * fact["max ulp"]


def test_a_folded_function_has_the_edges_of_the_unit() -> None:
    """Zeros and infinities of either sign, where the operand is a constant."""
    for name in ("rcp", "rsqrt", "sqrt", "lg2", "ex2"):
        for x in (0, unit.SIGN, unit.INFINITY, unit.SIGN | unit.INFINITY):
            assert constants.unit(name, x) == getattr(unit, name)(x, TABLES), (name, hex(x))


def test_a_folded_function_is_rounded_to_nearest() -> None:
    """Constants of both signs: NumPy's double-precision functions, rounded to f32; no number where there is none."""
    values = np.float32([1.5, 3.0, 0.3, 7.25, 2.0**-20, 100.0, -0.7, -3.5, -100.0])
    exact = {
        "rcp": np.reciprocal, "sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v), "lg2": np.log2, "ex2": np.exp2,
        "sin": np.sin, "cos": np.cos,
    }  # fmt: skip
    for name, function in exact.items():
        with np.errstate(invalid="ignore"):
            wanted = function(values.astype(np.float64)).astype(np.float32)
        found = np.array([constants.unit(name, int(x)) for x in values.view(np.uint32)], np.uint32).view(np.float32)
        assert np.array_equal(found, wanted, equal_nan=True), name


# tables and errors ---------------------------------------------------------------------------------------------------
def test_tables_survive_their_text() -> None:
    assert parse_tables(write_tables(TABLES)) == TABLES


def test_devices_without_captures_say_so() -> None:
    assert tables_for("sm_90") == (TABLES, True)
    assert tables_for("sm_120") == (TABLES, False)
    with pytest.raises(UnsupportedError, match="sm_91"):
        tables_for("sm_91")


def test_tables_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="64 or 128 rows"):
        parse_tables(write_tables(dataclasses.replace(TABLES, ex2=dataclasses.replace(TABLES.ex2, rows=((1, 2, 3),)))))
    with pytest.raises(ValueError, match="tile"):
        short = dataclasses.replace(TABLES.tanh, rows=TABLES.tanh.rows[:-1])
        parse_tables(write_tables(dataclasses.replace(TABLES, tanh=short)))


def test_evaluate_says_what_is_wrong() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(OperandError, match=r"no approximate ex2 of bf16"):
        evaluate("ex2", x.view(np.uint16), type="bf16")
    with pytest.raises(OperandError, match="takes 2 operands, not 1"):
        evaluate("div.full", x)
    with pytest.raises(OperandError, match=r"is float64\[3\]"):
        evaluate("rcp", x.astype(np.float64))


def test_page_of_the_documentation() -> None:
    """Its example runs, and its table of the datapath is that of the tables."""
    page = (ROOT / "docs/explanation/arithmetic.md").read_text()
    exec(page.partition("## Approximate functions")[2].split("```python\n")[1].split("```")[0], {})
    for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2"):
        line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        _, _, rows, _, _, a, k, s_and_output, _ = (cell.strip() for cell in line.split("|"))
        table = getattr(TABLES, name)
        assert (int(rows), int(k, 16)) == (len(table.rows), table.constant)
        assert [int(n) for n in re.findall(r"\d+", a)] == list(table.c0_shift)
        assert [int(n) for n in re.findall(r"\d+", s_and_output.split(";")[0])] == list(table.out_shift)


def test_captures_survive_their_coding() -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, 999, dtype=np.uint32)
    assert np.array_equal(decode(encode(words)), words)
