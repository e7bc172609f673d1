"""Numba-CUDA's programs run unmodified, with the PTX that NVIDIA's compiler makes."""

from __future__ import annotations

import pytest

from tests.support.tours import outcome, tries

pytest.importorskip("numba_cuda", reason="Numba-CUDA is not installed: pip install mmulator[numba]")
PROGRAM = "numba_tour.py"


@pytest.mark.parametrize("what", tries(PROGRAM))
def test_program(what: str) -> None:
    told, _ = outcome("numba", PROGRAM)
    wrong = told.get("", "") + told.get(what, "")
    assert not wrong, wrong


def test_kernels_print() -> None:
    _, printed = outcome("numba", PROGRAM)
    assert "thread 0 has 2.500000\nthread 1 has 3.500000\n" in printed
