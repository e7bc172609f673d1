"""CuPy's programs with kernels of their own run unmodified, compiled by NVRTC."""

from __future__ import annotations

import pytest

from tests.support.tours import outcome, tries

pytest.importorskip("cupy", reason="CuPy is not installed: pip install mmulator[cupy]")
PROGRAM = "cupy_tour.py"


@pytest.mark.parametrize("what", tries(PROGRAM))
def test_program(what: str) -> None:
    told, _ = outcome("cupy", PROGRAM)
    wrong = told.get("", "") + told.get(what, "")
    assert not wrong, wrong
