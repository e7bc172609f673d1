"""Calls of CUDA's driver that NVIDIA's documentation calls invalid: a code, and the program goes on."""

from pathlib import Path

import pytest

from tests.support import forks

pytestmark = pytest.mark.full

PROGRAM = """import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def code(name, *args):
    return getattr(cuda, name)(*args)
context, p = ctypes.c_void_p(), ctypes.c_uint64()
for call in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxSetCurrent", context),
             ("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(64))):
    assert code(*call) == 0
n, at = ctypes.c_size_t(4), lambda more: ctypes.c_uint64(p.value + more)
print(*(code("cuMemsetD32_v2", at(k), 0, n) for k in range(5)), *(code("cuMemsetD16_v2", at(k), 0, n) for k in range(3)),
      code("cuMemsetD2D32_v2", at(0), ctypes.c_size_t(18), 0, n, ctypes.c_size_t(2)), code("cuMemsetD8_v2", at(1), 0, n))
print(code("cuLaunchHostFunc", None, None, None), code("cuStreamAddCallback", None, None, None, 0),
      code("cuMemAlloc_v2", None, n), code("cuStreamCreate", None, 0), code("cuEventCreate", None, 0))
"""


def test_fills_that_are_not_aligned_and_null_pointers(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    done = forks.run(["-m", "mmulator", "exec", "prog.py"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "0 1 1 1 0 0 1 0 1 0\n1 1 1 1 1\n"), done.stdout + done.stderr
