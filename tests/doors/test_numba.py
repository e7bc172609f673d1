"""Numba-CUDA's programs run unmodified, with the PTX that NVIDIA's compiler makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import PACKAGE
from tests.support.tours import outcome, trying

pytest.importorskip("numba_cuda", reason="Numba-CUDA is not installed: pip install mmulator[numba]")
test_program = trying("numba", "numba_tour.py")


def test_kernels_print() -> None:
    _, printed = outcome("numba", "numba_tour.py")
    assert "thread 0 has 2.500000\nthread 1 has 3.500000\n" in printed


PROGRAM = """
import numpy as np
from numba import cuda

@cuda.jit
def turned(scale, both, out):
    i, j = cuda.grid(2)
    out[i, j] = scale * both[1][j, i]

x = np.arange(12, dtype=np.float32).reshape(4, 3)
turned[1, (3, 4)](np.float32(2), (x, cuda.to_device(x)), cuda.device_array((3, 4), np.float32))
"""


def test_why_names_arrays_as_the_kernel_does(tmp_path: Path) -> None:
    """Also one in a tuple, by rows and columns."""
    (tmp_path / "turned.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mmulator", "exec", "--why", "out[2,3]", "turned.py"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    said = done.stdout + done.stderr
    assert "why out[2,3], launch 1 of turned:\nout[2,3] = 22.0" in said and "both.1[3,2] = 11.0" in said, said
    assert "(turned.py:8)" in said, said


ALLOCATING = """
import numpy as np
from numba import cuda

@cuda.jit
def filled(out):
    own = np.empty(4, np.float32)
    for n in range(4):
        own[n] = n
    out[cuda.grid(1)] = own[3]

out = np.zeros(32, np.float32)
filled[1, 32](out)
assert (out == 3).all()
"""


def test_kernels_allocate_arrays_where_numba_is_asked_for_it(tmp_path: Path) -> None:
    """The code that counts references has no lines, so it cannot be linked with code that has."""
    (tmp_path / "filled.py").write_text(ALLOCATING)
    command = [sys.executable, "-m", "mmulator", "exec", "filled.py"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONWARNINGS": "ignore", "NUMBA_CUDA_ENABLE_NRT": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
