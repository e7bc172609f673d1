"""One small program for each door of mmulator, and what it says where it works. Each runs in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 60  # of the processor, each process; ten times as many of the clock
WORKS, FAILS, NOT_RUN = "works", "fails", "not run"


class Door(NamedTuple):
    """A door.

    needs: modules without which it is not run; `nvcc` is a program.
    command: its words; those that name files of the project are taken as such.
    program: name and text of the file that the command runs; ("", "") for none.
    says: a regular expression that its output has where it works.
    code: the exit code where it works.
    """

    needs: str
    command: str
    program: tuple[str, str] = ("", "")
    says: str = "^right"
    code: int = 0


_TWICE = """
import triton, triton.language as tl
@triton.jit
def twice(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
@triton.jit
def product(c, a, b, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))
"""
_TRITON_TORCH = "import torch" + _TWICE + """
x = torch.rand(1000, device="cuda"); y = torch.empty_like(x)
twice[(4,)](y, x, 1000, BLOCK=256)
a, b = torch.randn(2, 32, 32, device="cuda").half(); c = torch.empty(32, 32, device="cuda")
product[(1,)](c, a, b, N=32)
print("right" if (y == 2 * x).all() and torch.allclose(c, a.float() @ b.float(), atol=1e-3) else "wrong")
"""
_TRITON_NUMPY = "import numpy as np" + _TWICE + """
x = np.arange(1000, dtype=np.float32); y = np.zeros_like(x)
twice[(4,)](y, x, 1000, BLOCK=256)
a, b = np.random.default_rng(1).standard_normal((2, 32, 32)).astype(np.float16); c = np.zeros((32, 32), np.float32)
product[(1,)](c, a, b, N=32)
print("right" if (y == 2 * x).all() and np.allclose(c, a.astype(np.float32) @ b, atol=1e-3) else "wrong")
"""
_TORCH = """
import copy, torch
from torch.nn.functional import scaled_dot_product_attention as attention
layer, x = torch.nn.Linear(16, 4), torch.randn(8, 16)
twin, q = copy.deepcopy(layer).cuda(), x.half()[None, None]
for m in (layer, twin): m(x.to(m.weight.device)).softmax(-1).square().mean().backward()
y, z = attention(*[q.cuda()] * 3), attention(*[q.float()] * 3)
right = torch.allclose(layer.weight.grad, twin.weight.grad.cpu(), atol=1e-6) and torch.allclose(y.cpu().float(), z, atol=2e-3)
print("right" if right and y.is_cuda and "NVIDIA" in torch.cuda.get_device_name() else "wrong")
"""
_COMPILE = """
import torch
x = torch.randn(64, device="cuda")
print("right" if torch.allclose(torch.compile(lambda t: (t * 2 + 1).relu())(x), (x * 2 + 1).relu()) else "wrong")
"""
_NUMBA = """
import numpy as np
from numba import cuda
@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size: y[i] = a * x[i] + y[i]
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
axpy[8, 128](np.float32(2), x, y)
print("right" if (y == 2 * x + 1).all() else "wrong")
"""
_SAXPY = 'extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) ' + (
    "{ int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }")  # fmt: skip
_CUPY = f"""
import cupy as cp, numpy as np
x, y = cp.arange(1000, dtype=cp.float32), cp.ones(1000, dtype=cp.float32)
cp.RawKernel(r'''{_SAXPY}''', "saxpy")((8,), (128,), (cp.float32(2), x, y, cp.int32(1000)))
print("right" if (y.get() == 2 * np.arange(1000) + 1).all() else "wrong")
"""
_CORE = f"""
import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch
import ctypes
device = Device(); device.set_current(); stream = device.create_stream()
x, y = (LegacyPinnedMemoryResource().allocate(4000) for _ in range(2))
of = lambda buffer: np.frombuffer((ctypes.c_float * 1000).from_address(int(buffer.handle)), np.float32)
of(x)[:], of(y)[:] = np.arange(1000), 1
kernel = Program(r'''{_SAXPY}''', "c++", ProgramOptions(arch="sm_90")).compile("cubin").get_kernel("saxpy")
launch(stream, LaunchConfig(grid=8, block=128), kernel, np.float32(2), x, y, np.int32(1000)); stream.sync()
print("right" if (of(y) == 2 * np.arange(1000) + 1).all() else "wrong")
"""
_DRIVER = """
import ctypes
cuda, name, count = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(99), ctypes.c_int()
codes = cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuDeviceGetName(name, 99, 0)
print("right" if codes == (0, 0, 0) and count.value == 1 and b"NVIDIA" in name.value else "wrong")
"""
_CPP = f"""
#include <cstdio>
{_SAXPY}
int main() {{
  float *x, *y; cudaMallocManaged(&x, 4000); cudaMallocManaged(&y, 4000);
  for (int i = 0; i < 1000; i++) x[i] = i, y[i] = 1;
  saxpy<<<8, 128>>>(2, x, y, 1000);
  int bad = cudaDeviceSynchronize(); for (int i = 0; i < 1000; i++) bad += y[i] != 2.f * i + 1;
  puts(bad ? "wrong" : "right");
}}
"""
_TEST = "import numpy as np" + _TWICE + """
def test_twice():
    x = np.arange(1000, dtype=np.float32); y = np.zeros_like(x)
    twice[(4,)](y, x, 1000, BLOCK=256)
    assert (y == 2 * x).all()
"""
_EXEC = "mmulator exec --sanitize"
DOORS = {
    "launch file": Door("", "mmulator run examples/hopper_gemm/launch.toml", says="bit-identical to the H200 reference: yes"),
    "sanitizer": Door("", "mmulator run examples/sanitizer/launch.toml --sanitize", says=r"\[proxy-fence-missing\]", code=3),
    "driver": Door("", f"{_EXEC} python driver.py", ("driver.py", _DRIVER)),
    "Triton with NumPy": Door("triton", f"{_EXEC} triton_numpy.py", ("triton_numpy.py", _TRITON_NUMPY)),
    "Triton with torch": Door("triton torch", f"{_EXEC} triton_torch.py", ("triton_torch.py", _TRITON_TORCH)),
    "torch": Door("torch", f"{_EXEC} torch_cuda.py", ("torch_cuda.py", _TORCH)),
    "torch.compile": Door("torch triton", "mmulator exec torch_compile.py", ("torch_compile.py", _COMPILE)),
    "Numba": Door("numba_cuda", f"{_EXEC} numba_cuda_.py", ("numba_cuda_.py", _NUMBA)),
    "CuPy": Door("cupy", f"{_EXEC} cupy_raw.py", ("cupy_raw.py", _CUPY)),
    "cuda.core": Door("cuda.core", f"{_EXEC} cuda_core.py", ("cuda_core.py", _CORE)),
    "C++ with nvcc": Door("nvcc", f"{_EXEC} saxpy.cu", ("saxpy.cu", _CPP)),
    "pytest": Door("triton pytest", "python -m pytest -q --mmulator --mmulator-sanitize test_twice.py",
                   ("test_twice.py", _TEST), "1 passed"),
}  # fmt: skip


def try_door(door: Door, python: Path, environment: dict[str, str], seconds: int = SECONDS) -> tuple[str, str]:
    """(WORKS, FAILS or NOT_RUN; why).

    door: what to run.
    python: the interpreter of the virtual environment; programs beside it are found first.
    environment: of its processes.
    seconds: of the processor, after which it fails.
    """
    lacking = [name for name in door.needs.split() if not _has(name, python, environment)]
    if lacking:
        return NOT_RUN, f"no {lacking[0]}"
    with tempfile.TemporaryDirectory() as folder:
        words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in door.command.split()]
        if door.program[0]:
            (Path(folder) / door.program[0]).write_text(door.program[1])
        limited = ["sh", "-c", f'ulimit -t {seconds}; exec "$@"', "sh", *words]
        ended, said = run(limited, folder, environment, 10 * seconds)
    if ended == door.code and re.search(door.says, said, re.M):
        return WORKS, ""
    lines = [line.strip() for line in said.splitlines() if line.strip() and "nanobind" not in line and " - " not in line]
    if ended in (None, -9, -24, 137, 152):
        return FAILS, f"after {seconds} s"
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|error)\b", line)]
    return FAILS, f"exit code {ended}: {(errors or lines or ['no output'])[-1][:200]}"


def _has(name: str, python: Path, environment: dict[str, str]) -> bool:
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"
    if name == "nvcc":
        find = "from mmulator.ptx.toolkit.nvcc import find_nvcc; find_nvcc()"
    return run([str(python), "-c", find], None, environment, SECONDS)[0] == 0


def run(words: Sequence[str], folder: str | None, environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """(exit code, None after so many seconds; what was printed) of a command, whose processes end with it."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        try:
            process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       text=True, start_new_session=True)  # fmt: skip
        except OSError as error:
            return 127, str(error)
        try:
            ended: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        out.seek(0)
        return ended, out.read()
