"""nvcc found, called and wrapped; what it made kept; PTX found in files of every kind. All sources are this file's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.codegen import store as stores
from mmulator.cli.app import run
from mmulator.cli.program import libraries
from mmulator.errors import LaunchError, MmulatorError, UnsupportedError
from mmulator.isa.targets import Target
from mmulator.ptx.toolkit import building, nvcc
from mmulator.ptx.toolkit.wrapper import rewritten, split
from tests.support.nvcc import compiled
from tests.support.nvcc import nvcc as really
from tests.toolkit.test_fatbin import SOURCE

SCALE = """
#include "factor.h"
template <typename T> __global__ void scale(T *p) { p[threadIdx.x] *= T(FACTOR); }
template __global__ void scale<float>(float *);
template __global__ void scale<int>(int *);
int main() { scale<<<1, 32>>>((float *)nullptr); }
"""
TWICE = "__device__ int twice(int x) { return 2 * x; }\n"
CALLS = "__device__ int twice(int); __global__ void calls(int *p) { *p = twice(*p); }\nint main() {}\n"
LONE = "__global__ void lone(int *p) { *p = 7; }\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, which is the current one, and a cache of its own."""
    for name, text in {"scale.cu": SCALE, "factor.h": "#define FACTOR 3\n", "twice.cu": TWICE, "calls.cu": CALLS, "k.cu": SOURCE,
                       "lone.cu": LONE}.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMULATOR_CACHE", str(tmp_path / "cache"))
    stores.store.cache_clear()
    yield tmp_path
    stores.store.cache_clear()


def call(*arguments: str) -> None:
    really(*arguments, check=True)


def mine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mmulator", "nvcc", *arguments], capture_output=True, text=True)


# files ---------------------------------------------------------------------------------------------------------------
@compiled
def test_every_kind_of_file(folder: Path) -> None:
    flags = "-gencode=arch=compute_90a,code=[compute_90a,sm_90a]", "scale.cu"
    call("-cudart=shared", *flags, "-o", "a.out")
    call("-cudart=shared", *flags, "-shared", "-Xcompiler", "-fPIC", "-o", "lib.so")
    call(*flags, "-c", "-o", "x.o")
    call(*flags, "-fatbin", "-o", "x.fatbin")
    call("-ptx", "-arch=sm_90a", "scale.cu", "-o", "x.ptx")
    subprocess.run(["ar", "rc", "x.a", "x.o"], check=True)
    assert not mine("-cubin", "-arch=sm_90a", "scale.cu", "-o", "x.cubin").returncode
    for name in ("scale.cu", "a.out", "lib.so", "x.o", "x.a", "x.fatbin", "x.cubin", "x.ptx"):
        x = np.arange(32, dtype=np.float32)
        module = mm.Module.load(name)
        module["scale<float>"].launch(1, 32, [x])
        assert np.array_equal(x, 3 * np.arange(32)) and module.default_device == "sm_90", name


@compiled
def test_several_modules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("-cudart=shared", "-arch=sm_90a", "scale.cu", "lone.cu", "-o", "two")
    assert len(mm.Module.load("two")) == 3 and len(mm.Module.load(Path("two"), entry="lone")) == 1
    call("-cudart=shared", "-arch=sm_90a", "-rdc=true", "calls.cu", "twice.cu", "-o", "linked")
    x = np.array([21], np.int32)
    for entry in (None, "calls"):
        mm.Module.load("linked", entry=entry)["calls"].launch(1, 1, [x])
    assert x[0] == 84
    call("-arch=sm_90a", "-c", "lone.cu")
    (folder / "other.cu").write_text(LONE + SOURCE)
    call("-arch=sm_90a", "-c", "other.cu")
    subprocess.run(["ar", "rc", "both.a", "lone.o", "other.o"], check=True)
    with pytest.raises(LaunchError, match=r"both\.a has 2 modules, which cannot be loaded.*define lone\(int\*\)") as caught:
        mm.Module.load("both.a")
    assert "--entry" in str(caught.value) and "gemm<float, 128>" in str(caught.value)
    with pytest.raises(LaunchError, match=r"both\.a has no kernel 'missing'; it has lone"):
        mm.Module.load("both.a", entry="missing")
    launch = ["--grid", "1", "--block", "1", "--arg", "p=out:i32:1", "--print", "p"]
    assert not run(["run", "both.a", "--entry", "lone", *launch]) and "7" in capsys.readouterr().out
    assert run(["run", "two", "--entry", "scale", *launch]) == 1
    told = capsys.readouterr().err
    assert "'scale' is a part of 2 names" in told and "scale<int>(int*)" in told
    assert run(["check", "two"]) == 0 and capsys.readouterr().out.startswith("two: PTX ")


@compiled
def test_the_device_chooses(folder: Path) -> None:
    call("-fatbin", "-gencode=arch=compute_80,code=compute_80", "-gencode=arch=compute_100a,code=compute_100a", "k.cu")
    assert mm.Module.load("k.fatbin").target == Target(80) == mm.Module.load("k.fatbin", device="H100").target
    assert mm.Module.load("k.fatbin", device="sm_100").target == Target(100, "a")
    assert mm.Module.load("k.cu", device="A100").target == Target(80) and mm.Module.load("k.cu").target == Target(90, "a")
    call("-fatbin", "-gencode=arch=compute_100a,code=compute_100a", "k.cu")
    assert mm.Module.load("k.fatbin").default_device == "sm_100"
    with pytest.raises(UnsupportedError, match=r"k\.fatbin has no PTX that runs on sm_90, but PTX for sm_100a"):
        mm.Module.load("k.fatbin", device="sm_90")
    call("-cubin", "-arch=sm_90a", "k.cu")
    with pytest.raises(UnsupportedError, match="machine code of sm_90, without PTX") as caught:
        mm.Module.load("k.cubin")
    assert "code=[compute_90a,sm_90a]" in str(caught.value)


# sources -------------------------------------------------------------------------------------------------------------
@compiled
def test_a_source_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    run_nvcc = nvcc.run_nvcc
    monkeypatch.setattr(building, "run_nvcc", lambda *a: (runs.append(a[2]), run_nvcc(*a)))
    first = building.compile_ptx("scale.cu")
    assert building.compile_ptx("scale.cu") == first and len(runs) == 1
    (folder / "factor.h").write_text("#define FACTOR 5\n")
    other = building.compile_ptx("scale.cu")
    assert other != first and len(runs) == 2
    (folder / "factor.h").write_text("#define FACTOR 3\n")
    assert building.compile_ptx("scale.cu") == first and len(runs) == 2
    assert building.compile_ptx("scale.cu", ["-DMORE"]) and len(runs) == 3
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-arch=sm_80")
    assert ".target sm_80" in building.compile_ptx("scale.cu") and len(runs) == 4
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    program = building.compile_program("scale.cu")
    assert building.compile_program("scale.cu") == program and len(runs) == 5 and os.access(program, os.X_OK)
    assert b"libcudart.so" in program.read_bytes() and len(mm.Module.load(program)) == 2
    program.write_bytes(b"damaged")
    assert building.compile_program("scale.cu").stat().st_size > 1000 and len(runs) == 6
    (folder / "factor.h").unlink()
    with pytest.raises(MmulatorError, match=r"nvcc cannot compile scale\.cu:\n(.*\n)*.*factor\.h"):
        mm.Module.load("scale.cu")


@compiled
def test_without_a_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMULATOR_CACHE", str(folder / "k.cu"))  # no folder
    monkeypatch.setenv("TMPDIR", str(folder))
    stores.store.cache_clear()
    assert "gemm" in building.compile_ptx("k.cu")
    program = building.compile_program("scale.cu")
    assert os.access(program, os.X_OK) and program.name == "scale"


@compiled
def test_flags_and_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "deep").mkdir()
    shutil.move("factor.h", "deep")
    assert run(["check", "scale.cu", "--nvcc-flags", "-Ideep -DX='a b'"]) == 0
    assert mm.Module.load("scale.cu", nvcc=["-Ideep"])["scale<int>"]
    (folder / "wild.cu").write_text("__global__ void wild(int *p) {\n  p[1000] = 1;\n}\n")
    capsys.readouterr()
    assert run(["run", "wild.cu", "--grid", "1", "--block", "1", "--arg", "out:i32:4"]) == 1
    assert "wild.cu:2" in capsys.readouterr().err
    (folder / "bad.cu").write_text("__global__ void bad() { oops; }\n")
    assert run(["check", "bad.cu"]) == 1
    assert 'bad.cu(1): error: identifier "oops" is undefined' in capsys.readouterr().err


def test_without_nvcc(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("MMULATOR_NVCC", raising=False)
    monkeypatch.setattr(nvcc, "_places", lambda: iter(()))
    assert run(["check", "k.cu"]) == 1
    told = capsys.readouterr().err
    assert "there is no nvcc" in told and "pip install nvidia-cuda-nvcc" in told and "g++" in told
    monkeypatch.setenv("MMULATOR_NVCC", "/nothing")
    assert run(["nvcc", "k.cu"]) == 1 and "MMULATOR_NVCC is /nothing" in capsys.readouterr().err
    (folder / "nvcc").write_bytes(b"\x7fELF, and no more")
    (folder / "nvcc").chmod(0o755)
    monkeypatch.setenv("MMULATOR_NVCC", str(folder / "nvcc"))
    for command in ("nvcc", "check"):
        assert run([command, "k.cu"]) == 1 and f"cannot start {folder / 'nvcc'}: Exec format" in capsys.readouterr().err
    assert run(["check", "missing.cu"]) == 1 and "cannot read missing.cu: No such file" in capsys.readouterr().err


def test_where_nvcc_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, package = tmp_path / "own/bin/nvcc", tmp_path / "site/nvidia/cu13/bin/nvcc"
    for path, text in ((own, f"#!/bin/sh\n{nvcc.OURS.decode()}\n"), (package, "#!/bin/sh\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.delenv("MMULATOR_NVCC", raising=False)
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    places = list(nvcc._places())
    assert places[:2] == [own, own] and places[-1] == package
    monkeypatch.setattr(nvcc, "_places", lambda: iter((own, package)))  # the wrapper does not call itself
    assert nvcc.find_nvcc() == package


# the wrapper ---------------------------------------------------------------------------------------------------------
HOST = "-Xcompiler -g1"
OURS = f"-cudart shared -lineinfo {HOST}"
G80, G90 = "-gencode arch=compute_80,code=", "-gencode arch=compute_90a,code="


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("-O3 k.cu", f"{OURS} -O3 k.cu"),
        ("-G k.cu", f"-cudart shared {HOST} -G k.cu"),
        ("-g k.cu", "-cudart shared -lineinfo -g k.cu"),
        ("-Xcompiler=-O2,-ggdb k.cu", "-cudart shared -lineinfo -Xcompiler=-O2,-ggdb k.cu"),
        ("-Xcompiler -fno-gnu-unique k.cu", f"{OURS} -Xcompiler -fno-gnu-unique k.cu"),
        ("-cudart static k.cu", f"-lineinfo {HOST} -cudart shared k.cu"),
        ("--cudart=static k.cu", f"-lineinfo {HOST} --cudart=shared k.cu"),
        ("-cudart none --generate-line-info k.cu", f"{HOST} -cudart none --generate-line-info k.cu"),
        (f"{G90}sm_90a", f"{OURS} {G90}[compute_90a,sm_90a]"),
        ("--generate-code=arch=compute_80,code=[sm_80]", f"{OURS} --generate-code=arch=compute_80,code=[compute_80,sm_80]"),
        (f"{G80}sm_80 {G80}sm_86", f"{OURS} {G80}[compute_80,sm_80] {G80}sm_86"),
        (f"{G80}sm_80 {G80}compute_80", f"{OURS} {G80}sm_80 {G80}compute_80"),
        (f"{G80}lto_80", f"{OURS} {G80}lto_80"),
        ("-gencode code=sm_80,arch=compute_80", f"{OURS} {G80}[compute_80,sm_80]"),
        ("-arch=compute_90a -code=sm_90a", f"{OURS} -arch=compute_90a -code=compute_90a,sm_90a"),
        ("-arch=compute_90a -code sm_90a,compute_90a", f"{OURS} -arch=compute_90a -code sm_90a,compute_90a"),
        ("-arch native", f"{OURS} -arch sm_90a"),
        ("-arch=all-major k.cu", f"{OURS} {G90}compute_90a -arch=all-major k.cu"),
        (f"-cubin {G90}sm_90a", f"{OURS} -cubin {G90}sm_90a"),
        ("-arch=sm_90a k.cu", f"{OURS} {G90}[compute_90a,sm_90a] k.cu"),
        ("--gpu-architecture compute_100f k.cu", f"{OURS} -gencode arch=compute_100f,code=[compute_100f,sm_100f] k.cu"),
        ("-ptx -arch=sm_90a k.cu", f"{OURS} -ptx -arch=sm_90a k.cu"),
        ("k.o -lcudart_static -ldl", f"{OURS} k.o -lcudart -ldl"),
        ("-Xlinker -lcudart_static,-lrt /x/libcudart_static.a", f"{OURS} -Xlinker -lcudart,-lrt -lcudart"),
        ("-Xcompiler -cudart -arch=sm_80", f"{OURS} -Xcompiler -cudart -arch=sm_80"),
    ],
)
def test_flags_are_rewritten(given: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMULATOR_DEVICE", raising=False)
    monkeypatch.delenv("NVCC_APPEND_FLAGS", raising=False)
    assert " ".join(rewritten(split(given.split()))) == wanted


@compiled
def test_the_wrapper(folder: Path) -> None:
    plain = really("--version", capture_output=True, text=True)
    wrapper = nvcc.wrapper_folder() / "nvcc"
    environment = {**os.environ, "PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, env=environment)
    assert done.stdout == plain.stdout and not done.returncode
    wrong = "k.cu", "-o", "x", "-ccbin", "/nothing"
    assert mine(*wrong).returncode == really(*wrong, capture_output=True).returncode != 0
    subprocess.run(["nvcc", "-gencode", "arch=compute_90a,code=sm_90a", "scale.cu", "-o", "a b"], env=environment, check=True)
    assert b"libcudart.so" in (folder / "a b").read_bytes() and len(mm.Module.load("a b")) == 2
    source = "__global__ void k() {}\nint main() { return 3; }\n"
    subprocess.run(["nvcc", "-x", "cu", "-", "-o", "y"], env=environment, check=True, input=source, text=True)
    (folder / "here").mkdir()
    subprocess.run(["nvcc", "-cubin", "-arch=sm_90a", "-ftz", "true", "-MD", "-MF", "d", "-odir", "here", "k.cu", "lone.cu"],
                   env=environment, check=True)  # fmt: skip
    assert list(mm.Module.load("here/lone.cubin")) == ["_Z4lonePi"] and len(mm.Module.load("here/k.cubin")) == 2


def test_headers_of_packages_in_a_toolkit_with_targets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nvcc of an installed toolkit looks in targets/ for headers: those of Python's packages are there, and the toolkit's."""
    inner, program = folder / "toolkit/targets/x86_64-linux", folder / "toolkit/bin/nvcc"
    for made in (inner / "include/cuda.h", inner / "lib/libcudart.so.13", folder / "nvidia/cu13/include/of_a_package.h", program):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
    (folder / "toolkit/include").symlink_to(inner / "include")
    program.write_text(f'#!/bin/sh\necho "#$ TOP={folder}/toolkit" >&2\necho "release 13.0"\n')
    program.chmod(0o700)
    monkeypatch.syspath_prepend(str(folder))
    home = nvcc.cuda_home(program)
    for name in ("include", "targets/x86_64-linux/include"):
        assert {"cuda.h", "of_a_package.h"} <= {path.name for path in (home / name).iterdir()}


DRIVER = """
#include <cuda.h>
__global__ void fence() { asm volatile("wgmma.fence.sync.aligned;"); }
int main() { int n = 0; fence<<<1, 128>>>(); return cuDriverGetVersion(&n) || cudaDeviceSynchronize() || n < 13000 || X != 7; }
"""


@compiled
def test_programs_of_hopper_link_with_the_driver(folder: Path) -> None:
    (folder / "d.cu").write_text(DRIVER)
    assert not mine("-arch=sm_90a", "-DX=7", "d.cu", "-o", "d", "-lcuda", "-lcudart_static").returncode
    ours = [sys.executable, "-m", "mmulator", "exec"]
    for words in (["./d"], ["--nvcc-flags=-DX=7", "d.cu"]):
        assert subprocess.run([*ours, *words]).returncode == 0
    done = subprocess.run([*ours, "d.cu"], capture_output=True, text=True)
    assert done.returncode == 1 and 'identifier "X" is undefined' in done.stderr and "Traceback" not in done.stderr
    done = mine("-ptx", "-arch=sm_90a", "lone.cu", "-o", "/dev/stdout")
    assert not done.returncode and ".visible .entry _Z4lonePi" in done.stdout


JIT = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda.h>
typedef struct _nvrtcProgram *nvrtcProgram;
extern "C" int nvrtcCreateProgram(nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *);
extern "C" int nvrtcCompileProgram(nvrtcProgram, int, const char *const *);
extern "C" int nvrtcGetCUBINSize(nvrtcProgram, size_t *);
extern "C" int nvrtcGetCUBIN(nvrtcProgram, char *);
static void must(int code) { if (code) { printf("code %d\n", code); exit(code); } }
int main() {
  nvrtcProgram p; const char *options[] = {"-arch=sm_90a"}; size_t n; CUmodule m; CUfunction f; int *x;
  must(nvrtcCreateProgram(&p, "extern \"C\" __global__ void k(int *x) { *x = 93; }", "k.cu", 0, 0, 0));
  must(nvrtcCompileProgram(p, 1, options)); must(nvrtcGetCUBINSize(p, &n));
  std::vector<char> cubin(n); must(nvrtcGetCUBIN(p, cubin.data()));
  must(cudaMallocManaged(&x, 4)); must(cuModuleLoadData(&m, cubin.data())); must(cuModuleGetFunction(&f, m, "k"));
  void *arguments[] = {&x}; must(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0)); must(cudaDeviceSynchronize());
  printf("%d\n", *x);
}
"""


@compiled
def test_cubins_of_nvrtc_run(folder: Path) -> None:
    (folder / "jit.cu").write_text(JIT)
    library = next(path for place in sys.path for path in Path(place or ".").glob("nvidia/cu1?/lib/libnvrtc.so.1?"))
    flags = f"-L{library.parent} -l:{library.name} -Xlinker -rpath={library.parent}"
    ours = [sys.executable, "-m", "mmulator", "exec"]
    done = subprocess.run([*ours, f"--nvcc-flags={flags}", "jit.cu"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "93\n", "")


@compiled
@pytest.mark.full
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not there")
def test_cmake_takes_the_wrapper(folder: Path) -> None:
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES CXX CUDA)\nset(CMAKE_CUDA_ARCHITECTURES 90a-real)\n"
        "find_package(CUDAToolkit REQUIRED)\nlink_libraries(CUDA::cuda_driver CUDA::cudart_static)\n"
        "add_executable(linked calls.cu twice.cu)\nset_target_properties(linked PROPERTIES CUDA_SEPARABLE_COMPILATION ON)\n"
    )
    environment = {**os.environ, **libraries(os.environ)}
    environment |= {"PATH": f"{nvcc.wrapper_folder()}{os.pathsep}{environment['PATH']}"}
    for command in (["-B", "build", "."], ["--build", "build"]):
        done = subprocess.run(["cmake", *command], env=environment, capture_output=True, text=True)
        assert not done.returncode, done.stdout + done.stderr
    assert b"libcudart.so" in (folder / "build/linked").read_bytes() and list(mm.Module.load("build/linked")) == ["_Z5callsPi"]
