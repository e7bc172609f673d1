"""CuPy's programs with kernels of their own run unmodified, compiled by NVRTC."""

import pytest

from tests.support.tours import trying

pytest.importorskip("cupy", reason="CuPy is not installed: pip install mmulator[cupy]")
test_program = trying("cupy", "cupy_tour.py")
