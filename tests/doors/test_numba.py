"""Numba-CUDA's programs run unmodified, with the PTX that NVIDIA's compiler makes."""

from __future__ import annotations

import pytest

from tests.support.tours import outcome, trying

pytest.importorskip("numba_cuda", reason="Numba-CUDA is not installed: pip install mmulator[numba]")
test_program = trying("numba", "numba_tour.py")


def test_kernels_print() -> None:
    _, printed = outcome("numba", "numba_tour.py")
    assert "thread 0 has 2.500000\nthread 1 has 3.500000\n" in printed
