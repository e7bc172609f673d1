"""Refused work is never green: a program in C (programs/refused_tour.c), one of Python and a suite of tests with launches and
copies that are refused, and what they do about it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mmulator as mm
from mmulator.doors.library import files
from mmulator.errors import UnsupportedError
from mmulator.ptx.toolkit.nvcc import find_nvcc
from tests.support.places import ROOT

CC = shutil.which("cc")
here = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")
TEX = "tex cannot be run: textures and surfaces are not modelled"
# what the program does: standard output, exit code, last line. The program's own exit code stands behind its name.
DOES = {
    "passes": ("801 -1 flushed", 4, f"3 of 4 launches were not run: {TEX}"),  # the error is sticky
    "waits": ("cudaErrorNotSupported 801 -1 flushed", 4, f"2 of 3 launches were not run: {TEX}"),
    "waits 7": ("cudaErrorNotSupported 801 -1 flushed", 7, f"2 of 3 launches were not run: {TEX}"),
    "asks": ("801 0 2 flushed", 0, ""),
    "peeks": ("801 0 2 flushed", 0, ""),
    "prepares": ("801 0 2 flushed", 0, ""),
    "copies": ("0 2 flushed", 4, "1 call was refused: cudaMemcpyToArray: textures, surfaces and arrays are not modelled"),
    "graphs": ("1 -1 flushed", 4, "2 of 3 launches were not run: graphs that kernels launch are not modelled"),
    "sizes": ("0 2 flushed", 0, ""),
}


@pytest.fixture(scope="session")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("refused") / "tour"
    source = ROOT / "tests" / "doors" / "programs" / "refused_tour.c"
    subprocess.run([str(CC), str(source), "-o", str(made), f"-L{files.folder()}", "-lcudart"], check=True)
    return made


def run(*words: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmulator", "exec", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)


@here
@pytest.mark.parametrize("words", DOES)
def test_a_program_of_c(tour: Path, words: str) -> None:
    printed, code, line = DOES[words]
    done = run(tour, *words.split())
    assert (done.stdout.strip(), done.returncode) == (printed, code), done
    last = done.stderr.splitlines()[-1]
    assert last == f"mmulator: {line}" if line else "not run" not in done.stderr and "was refused" not in done.stderr, done.stderr


@here
def test_reports(tour: Path, tmp_path: Path) -> None:
    """The sanitizer's last line, JSON and SARIF have what was refused; the launch is not among those that were looked at."""
    done = run("--sanitize", "--sarif", tmp_path / "found.sarif", tour, "waits")
    line = f"mmulator: no findings, in 1 launch; 2 of 3 launches were not run: {TEX}"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (4, line)
    (invocation,) = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["invocations"]
    assert not invocation["executionSuccessful"]
    assert [n["message"]["text"] for n in invocation["toolExecutionNotifications"]] == [TEX]
    for words, code, handled in (("waits", 4, False), ("asks", 0, True)):
        done = run("--json", tour, words)
        told = json.loads(done.stdout)
        assert (done.returncode, told["ok"], told["exit_code"]) == (code, handled, 0)
        assert [(r["why"], r["handled"]) for r in told["refused"]] == [(TEX, handled)]


KERNEL = """
#include <cstdio>
__global__ void k(int *p) { *p = 7; }
int main() {
    int *d, h = 999;
    cudaMalloc(&d, 4); k<<<1, 1>>>(d); cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost); printf("%d\\n", h);
}
"""
BUILT = {
    "-arch=sm_90 -cudart static": "1 call was refused: CUDA's runtime is linked in statically, and does not run here: "
    "relink with -cudart shared",
    "-gencode arch=compute_90,code=sm_90 -cudart shared": "1 of 1 launch was not run: the fat binary has no PTX that runs on "
    "sm_90, but machine code for sm_90",
}


@here
@pytest.mark.parametrize("flags", BUILT)
def test_a_program_that_cannot_run_here(tmp_path: Path, flags: str) -> None:
    try:
        nvcc = find_nvcc()
    except UnsupportedError:
        pytest.skip("needs nvcc")
    (tmp_path / "k.cu").write_text(KERNEL)
    subprocess.run([str(nvcc), *flags.split(), "k.cu", "-o", "k"], cwd=tmp_path, check=True)
    done = run("./k", folder=tmp_path)
    assert (done.stdout, done.returncode, done.stderr.splitlines()[-1]) == ("999\n", 4, f"mmulator: {BUILT[flags]}")


LAUNCH = '''
import ctypes
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry reads(.param .u64 t) {
    .reg .b64 %d; .reg .f32 %f<5>; .reg .b32 %n;
    ld.param.u64 %d, [t]; mov.b32 %n, 0;
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d, {%n}]; ret;
}
.visible .entry plain(.param .u64 t) { ret; }"""

def launch(name):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxPushCurrent_v2(context)
    cuda.cuModuleLoadData(ctypes.byref(module), PTX), cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name)
    values = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    return cuda, cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, values, None)

def asks():
    cuda, code = launch(b"reads")
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(code, ctypes.byref(text))
    assert b"textures" in text.value
'''
TESTS = LAUNCH + '''
import pytest
def test_passes_over():
    launch(b"plain")
    launch(b"reads")
def test_asks():
    asks()
def test_plain():
    launch(b"plain")
@pytest.mark.xfail(strict=True)
def test_is_to_fail():
    launch(b"reads")
'''


OWN = "launch(b'reads'); raise SystemExit(7)"


@pytest.mark.parametrize(("words", "code"), [("launch(b'reads')", 4), ("asks()", 0), (OWN, 7)])
def test_a_program_of_python(tmp_path: Path, words: str, code: int) -> None:
    """A program of Python that calls the driver ends with 4 for refused work, too, and functions of atexit run."""
    (tmp_path / "prog.py").write_text(f"{LAUNCH}\nimport atexit\natexit.register(print, 'late')\n{words}\n")
    done = run("prog.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (code, "late\n"), done
    assert (f"1 of 1 launch was not run: {TEX}" in done.stderr) == bool(code)


def test_a_verdict(tmp_path: Path) -> None:
    for words, kind in (("launch(b'reads')", "refused"), ("asks()", "right")):
        (tmp_path / "prog.py").write_text(f"{LAUNCH}\n{words}\n")
        assert mm.judge(tmp_path / "prog.py").outcome == kind


def test_an_exception_that_was_caught(tmp_path: Path) -> None:
    program = "from mmulator.host.driver import current\nfrom mmulator.errors import UnsupportedError\n" + LAUNCH + """
try:
    current().launch(current().load(PTX.decode()).function("reads"), 1, 32, bytes(8))
except UnsupportedError:
    print("on")
"""
    (tmp_path / "prog.py").write_text(program)
    done = run("--json", "prog.py", folder=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["refused"]) == (0, True, [{"why": TEX, "launches": 1, "calls": 0, "handled": True}])


def test_a_test_in_which_work_was_refused_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    words = "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"
    done = run(*words, "--mmulator=sm_90", "--mmulator-sarif", "found.sarif", folder=tmp_path)
    (invocation,) = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["invocations"]
    assert {n["message"]["text"] for n in invocation["toolExecutionNotifications"]} == {TEX}
    assert done.returncode == 1 and "1 failed, 2 passed, 1 xfailed" in done.stdout, done.stdout
    assert f"1 of 2 launches was not run: {TEX}\n\na test that expects this asks for the error" in done.stdout
    done = run(*words, "-k", "fail or asks", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
