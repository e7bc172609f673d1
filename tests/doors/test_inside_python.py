"""CUDA's runtime inside Python: libraries that ctypes loads, with arrays and tensors, and extensions of torch."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.doors.library import files
from tests.support import forks
from tests.support.places import PACKAGE, ROOT

CC = shutil.which("cc")
NVRTC = [path for folder in sys.path for path in Path(folder or ".").glob("nvidia/cu*/lib/libnvrtc.so.*")]
compiles = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")
with_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
extends = pytest.mark.skipif(
    not shutil.which("nvcc") or not shutil.which("ninja"), reason="needs nvcc and ninja, which compile extensions of torch"
)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runtime") / "tour.so"
    source = ROOT / "tests" / "doors" / "programs" / "runtime_tour.c"
    words = [str(CC), "-shared", "-fPIC", "-Dmain=tour", str(source), "-o", str(made), f"-L{files.folder()}", "-lcudart"]
    subprocess.run([*words, "-lpthread"], check=True)
    return made


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A run of a script of Python by exec; one of torch in a fork that has imported it."""
    (folder / "prog.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "CUDA_LAUNCH_BLOCKING": "1"}
    command = ["-m", "mmulator", "exec", "prog.py", *words]
    if "import torch" in program:
        return forks.run(command, folder, environment)
    command = [sys.executable, *command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment, check=False)


ARRAYS = """
import ctypes, sys
import numpy as np
library, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcudart.so.13")
at, size = ctypes.c_void_p(), ctypes.c_size_t(128)
values, back = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
codes = [runtime.cudaMalloc(ctypes.byref(at), size), runtime.cudaMemcpy(at, ctypes.c_void_p(values.ctypes.data), size, 1)]
codes += [library.add_to(at, 7, 32), runtime.cudaMemcpy(ctypes.c_void_p(back.ctypes.data), at, size, 2), runtime.cudaFree(at)]
print(codes, (back == values + 7).all())
"""


@compiles
def test_a_library_of_ctypes_takes_arrays(library: Path, tmp_path: Path) -> None:
    """It ends well, too: a destructor of the library calls the runtime when Python is gone."""
    done = run(tmp_path, ARRAYS, str(library))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[0, 0, 0, 0, 0] True", "")


TENSORS = """
import ctypes, sys
import torch
library = ctypes.CDLL(sys.argv[1])
unseen = lambda tensor: ctypes.c_void_p(torch._C.TensorBase.data_ptr(tensor))  # as C++ takes the address
many = [torch.zeros(n, dtype=torch.int32, device="cuda") for n in range(32, 132)]
codes = [library.add_to(unseen(tensor), n, 32) for n, tensor in enumerate(many)]
print(codes == [0] * 100, all((t[:32] == n).all().item() and not t[32:].any().item() for n, t in enumerate(many)))
del many[::2]
print(library.add_to(unseen(many[0]), 1, 32), many[0][0].item())
print(library.add_to(unseen(torch.zeros(32, dtype=torch.int32)), 1, 32))
"""


@compiles
@with_torch
def test_a_library_of_ctypes_takes_tensors(library: Path, tmp_path: Path) -> None:
    """All tensors of cuda are the device's memory; one of the CPU is not."""
    done = run(tmp_path, TENSORS, str(library))
    assert (done.returncode, done.stdout) == (0, "True True\n0 2\n700\n")
    assert "out of bounds: ld.global.u32" in done.stderr


EXTENSION = """
import ctypes
import torch
from torch.utils.cpp_extension import load
load("twice", ["twice.cu"], is_python_module=False, extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"])
library = next(line.split()[-1] for line in open("/proc/self/maps") if line.endswith("twice.so\\n"))
x = torch.arange(64.0, device="cuda")
print(ctypes.CDLL(library).twice(ctypes.c_void_p(torch._C.TensorBase.data_ptr(x))), x.sum().item(), library)
"""
KERNEL = """
__global__ void kernel(float *x) { x[threadIdx.x] *= 2; }
extern "C" int twice(float *x) { kernel<<<1, 64>>>(x); return cudaDeviceSynchronize(); }
"""


@with_torch
@extends
def test_an_extension_of_torch_has_its_ptx(tmp_path: Path) -> None:
    """Flags that make machine code alone are completed."""
    (tmp_path / "twice.cu").write_text(KERNEL)
    done = run(tmp_path, EXTENSION)
    assert done.returncode == 0 and done.stdout.startswith("0 4032.0"), done
    assert "extensions-cpython" in done.stdout  # a folder of its own


COMPILED = """
import torch
head = 'extern "C" __global__ void add(const float *a, float *b, int n)'
body = '{ int i = threadIdx.x; if (i < n) b[i] += a[i]; }'
add, a, b = torch.cuda._compile_kernel(head + body, "add"), torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
add(grid=(1, 1, 1), block=(64, 1, 1), args=[a, b, 48])
print(b.sum().item())
"""


@with_torch
@pytest.mark.skipif(not NVRTC, reason="needs NVRTC")
@pytest.mark.skipif(not shutil.which("nvcc"), reason="torch asks for the headers of CUDA")
def test_torch_compiles_a_kernel(tmp_path: Path) -> None:
    done = run(tmp_path, COMPILED)
    assert (done.returncode, done.stdout) == (0, "112.0\n"), done


LIBRARY = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .global .align 4 .u32 total = 7;"
ptx += b".visible .entry one() { ret; }\\n.visible .entry two() { ret; }"
library, kernel, number, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_size_t()
none = [None, None, 0, None, None, 0]
codes = [runtime.cudaLibraryLoadData(ctypes.byref(library), ptx, *none)]
codes += [runtime.cudaLibraryGetKernel(ctypes.byref(kernel), library, b"two")]
codes += [runtime.cudaLibraryGetKernelCount(ctypes.byref(number), library)]
at, value = ctypes.c_void_p(), ctypes.c_uint()
codes += [runtime.cudaLibraryGetGlobal(ctypes.byref(at), ctypes.byref(size), library, b"total")]
codes += [runtime.cudaMemcpy(ctypes.byref(value), at, size, 2), runtime.cudaLibraryUnload(library)]
print(codes, number.value, size.value, value.value)
"""


def test_a_program_loads_a_library_itself(tmp_path: Path) -> None:
    done = run(tmp_path, LIBRARY)
    assert (done.returncode, done.stdout) == (0, "[0, 0, 0, 0, 0, 0] 2 4 7\n"), done


STATIC = """
import ctypes
driver, out = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
tables = bytes.fromhex("da9151d33ae6cc41a5c04f26d533e328"), bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
print([driver.cuGetExportTable(ctypes.byref(out), table) for table in (*tables, *tables)])
"""


def test_a_static_runtime_is_named_once(tmp_path: Path) -> None:
    done = run(tmp_path, STATIC)
    assert done.stdout == "[801, 801, 801, 801]\n" and done.stderr.count("relink with -cudart shared") == 1, done


def test_ptx_that_is_kept_apart_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuTe DSL keeps files beside each other; a cubin is known by its bytes."""
    from mmulator.doors import cute

    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", str(tmp_path))
    for name in ("one", "two"):
        (tmp_path / f"{name}.sm_90a.cubin").write_bytes(b"\x7fELF" + name.encode())
        (tmp_path / f"{name}.sm_90a.ptx").write_text(f"// {name}")
    assert cute.ptx_of(b"\x7fELFtwo") == "// two" and cute.ptx_of(b"\x7fELFtoo") is None


STREAMS = """
import ctypes
import torch
driver = ctypes.CDLL("libcuda.so.1")
streams = [torch.cuda.Stream() for _ in range(3)]
graph = ctypes.c_void_p()
print([(driver.cuStreamBeginCapture_v2(on, 1), driver.cuStreamEndCapture(on, ctypes.byref(graph)))
       for on in (ctypes.c_void_p(stream.cuda_stream) for stream in streams)])
"""


@with_torch
def test_streams_of_torch_are_the_drivers(tmp_path: Path) -> None:
    """No handle is a name of CUDA's default streams (0 to 2), which cannot be captured."""
    done = run(tmp_path, STREAMS)
    assert done.stdout == "[(0, 0), (0, 0), (0, 0)]\n", done


CUTE = """
import torch
import cuda.bindings.driver as cuda
import cutlass.cute as cute
import cutlass.testing as testing
from cutlass.cute.runtime import from_dlpack
@cute.kernel
def double(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + x[i]
@cute.jit
def run(x: cute.Tensor, stream: cuda.CUstream):
    double(x).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)
x = torch.arange(64.0, device="cuda")
own = torch.cuda.Stream()
arguments = from_dlpack(x), cuda.CUstream(own.cuda_stream)
compiled = cute.compile(run, *arguments)
compiled(*arguments)
print(x.sum().item())
for graphs in (False, True):
    took = testing.benchmark(compiled, kernel_arguments=testing.JitArguments(*arguments), stream=arguments[1],
                             warmup_iterations=1, iterations=2, use_cuda_graphs=graphs)
    print(took > 0, x.sum().item())
"""


@with_torch
@pytest.mark.skipif(importlib.util.find_spec("nvidia_cutlass_dsl") is None, reason="needs nvidia-cutlass-dsl")
def test_cute_dsl(tmp_path: Path) -> None:
    done = run(tmp_path, CUTE)
    assert (done.returncode, done.stdout) == (0, "4032.0\nTrue 32256.0\nTrue 258048.0\n"), done
