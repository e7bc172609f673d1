"""Every door in every mode: the same small program ends well, and prints what it prints without mmulator's options."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.places import ROOT

pytestmark = pytest.mark.full

_TRITON = """
import triton, triton.language as tl
@triton.jit
def add(z, x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(z + i, tl.load(x + i, mask=m) * 2, mask=m)
"""
_PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 z, .param .u64 x)
{ .reg .b64 %z, %x, %o; .reg .b32 %t; .reg .f32 %v;
  ld.param.u64 %z, [z]; ld.param.u64 %x, [x]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4;
  add.u64 %z, %z, %o; add.u64 %x, %x, %o; ld.global.f32 %v, [%x]; add.f32 %v, %v, %v; st.global.f32 [%z], %v; ret; }
"""
# Each computes z = 2 * x of 100 numbers from 0 on, and prints their sum
DOORS = {
    "triton with torch": ("triton", f"""import torch{_TRITON}
x = torch.arange(100, dtype=torch.float32, device="cuda")
z = torch.zeros_like(x)
add[(1,)](z, x, 100, B=128)
print(z.sum().item())
"""),
    "triton with numpy": ("triton", f"""import numpy as np{_TRITON}
x = np.arange(100, dtype=np.float32)
z = np.zeros_like(x)
add[(1,)](z, x, 100, B=128)
print(z.sum())
"""),
    "torch": ("torch", """import torch
x = torch.arange(100, dtype=torch.float32, device="cuda")
z = x + x
print(z.sum().item())
"""),
    "numba": ("numba_cuda", """import numpy as np
from numba import cuda
@cuda.jit
def add(z, x):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] * 2
x = np.arange(100, dtype=np.float32)
z = cuda.to_device(np.zeros_like(x))
add[1, 128](z, cuda.to_device(x))
print(z.copy_to_host().sum())
"""),
    "cupy": ("cupy", f"""import cupy
x = cupy.arange(100, dtype=cupy.float32)
z = cupy.zeros_like(x)
open("add.ptx", "w").write({_PTX!r})
cupy.RawModule(path="add.ptx").get_function("add")((1,), (100,), (z, x))
print(z.get().sum())
"""),
    "driver": ("numpy", f"""import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    assert getattr(cuda, name)(*args) == 0, name
context, module, function = (ctypes.c_void_p() for _ in range(3))
z, x = ctypes.c_uint64(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), {_PTX.encode()!r})
call("cuModuleGetFunction", ctypes.byref(function), module, b"add")
data = (ctypes.c_float * 100)(*range(100))
for place in (z, x):
    call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(400))
    call("cuMemcpyHtoD_v2", place, data, ctypes.c_size_t(400))
args = (ctypes.c_void_p * 2)(ctypes.addressof(z), ctypes.addressof(x))
call("cuLaunchKernel", function, 1, 1, 1, 100, 1, 1, 0, None, args, None)
call("cuMemcpyDtoH_v2", data, z, ctypes.c_size_t(400))
print(sum(data))
"""),
}  # fmt: skip
# Options of `mmulator exec`. {z}: the array that the kernel writes
MODES = {
    "plain": [], "sanitize": ["--sanitize"], "strict": ["--strict"], "why": ["--why", "{z}[3]"], "why auto": ["--why", "auto"],
    "record": ["--record", "record.json"], "capture": ["--capture", ":1", "--capture-to", "captured"], "profile": ["--profile"],
    "trace": ["--trace", "trace.json"], "seeds": ["--seeds", "2"], "keep going": ["--keep-going"],
    "certify": ["--certify"],
}  # fmt: skip
LEFT = {"record": "record.json", "trace": "trace.json", "capture": "captured"}  # what a mode writes
NO_KERNEL = {"torch"}  # operators of torch launch none: a question about an array is not answered, and nothing is written


@pytest.mark.parametrize("mode", [*MODES])
@pytest.mark.parametrize("door", [*DOORS])
def test_a_door_in_a_mode(door: str, mode: str, tmp_path: Path) -> None:
    library, text = DOORS[door]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (tmp_path / "prog.py").write_text(text)
    words = [word.format(z="z") for word in MODES[mode]]
    done = forks.run(["-m", "mmulator", "exec", *words, "prog.py"], tmp_path)
    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said, "9900.0" in done.stdout) == (0, False, True), said
    if door not in NO_KERNEL and mode in LEFT:
        assert (tmp_path / LEFT[mode]).exists(), said
    if door not in NO_KERNEL and mode == "why":
        assert "z[3]" in said


@pytest.mark.parametrize("mode", [*MODES])
def test_a_launch_file_in_a_mode(mode: str, tmp_path: Path) -> None:
    """A launch file ends well in each mode that `mmulator run` has."""
    words = [word.format(z="C") for word in MODES[mode]]
    if mode in ("record", "capture"):
        pytest.skip("`run` has a file already, from which the launch is made again")
    if mode == "why":
        words[1] = "C[3,5]"
    file = ROOT / "examples" / "hopper_gemm" / "launch.toml"
    done = forks.run(["-m", "mmulator", "run", *words, "--json", str(file)], tmp_path)
    code = 3 if mode == "strict" else 0  # notes, of what compilers do, count there
    assert done.returncode == code and json.loads(done.stdout)["ok"], done.stdout + done.stderr
