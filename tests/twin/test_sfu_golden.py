"""The compiled twin against whole ranges captured on an NVIDIA H200: about 350 million outputs, bit for bit.

Reads $MMULATOR_GOLDEN/mufu; the format is that of `tests.support.sfu`.
"""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from mmulator.matrix.numerics.sfu.tables import tables_for
from mmulator.matrix.twin.sfu.arrays import ArrayFunction, evaluate
from tests.support.sfu import decode, encode, read_captures, unit_array

GOLDEN = Path(os.environ.get("MMULATOR_GOLDEN", "")) / "mufu"
pytestmark = pytest.mark.skipif(
    "MMULATOR_GOLDEN" not in os.environ or not GOLDEN.is_dir(), reason="MMULATOR_GOLDEN names no folder with mufu/"
)
UNITS = ("rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos", "tanh", "rcp64h", "rsqrt64h")


@pytest.mark.parametrize("name", UNITS)
def test_unit_on_whole_binades(name: str) -> None:
    function = ArrayFunction(unit_array(name, tables_for("sm_90")[0]))
    wrong, total = {}, 0
    for capture in read_captures(GOLDEN, name):
        outputs = capture.outputs()
        total += len(outputs)
        bad = np.count_nonzero(function(capture.inputs()) != outputs)
        if bad:
            wrong[capture.name] = bad
    assert total, f"no capture of {name}"
    assert not wrong, f"mismatches of {total}: {wrong}"


def _words(name: str, dtype: type) -> np.ndarray:
    with np.load(GOLDEN / "exponents.npz") as file:
        return np.frombuffer(zlib.decompress(file[name].tobytes()), dtype)


@pytest.mark.parametrize("operation", ["rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos", "tanh"])
@pytest.mark.parametrize("ftz", [False, True])
def test_every_exponent(operation: str, ftz: bool) -> None:
    if operation == "tanh" and ftz:
        pytest.skip("tanh.approx.ftz.f32 does not exist")
    name = f"{operation}.approx{'.ftz' if ftz else ''}.f32"
    with np.load(GOLDEN / "exponents.npz") as file:
        significands = file["xs_man"]
    inputs = (np.arange(512, dtype=np.uint32)[:, None] << 23 | significands).ravel()
    assert np.array_equal(evaluate(operation, inputs, ftz=ftz), _words(f"xs_{name}", np.uint32))
    if operation in ("sin", "cos") and ftz:
        unit = ArrayFunction(unit_array(operation, tables_for("sm_90")[0]))
        assert np.array_equal(unit(inputs), _words(f"xs_rev_{name}", np.uint32))


@pytest.mark.parametrize("name", ["ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"])
def test_half_types(name: str) -> None:
    operation, *_, ty = name.split(".")
    halves = np.arange(1 << 16, dtype=np.uint16)
    expected = _words(name, np.uint16)
    assert np.array_equal(evaluate(operation, halves, type=ty, ftz=".ftz" in name), expected)
    pairs = halves.astype(np.uint32) | halves[::-1].astype(np.uint32) << 16
    both = expected.astype(np.uint32) | expected[::-1].astype(np.uint32) << 16
    assert np.array_equal(evaluate(operation, pairs, type=ty + "x2", ftz=".ftz" in name), both)


def test_coding_of_captures() -> None:
    capture = next(read_captures(GOLDEN, "rcp64h"))
    outputs = capture.outputs()
    assert np.array_equal(decode(encode(outputs)), outputs)
