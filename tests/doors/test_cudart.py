"""CUDA's runtime for programs of C++: a program in C, registered and linked as nvcc does it, and the library as a file."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mmulator.doors.cudart import binaries, device, rows, table
from mmulator.doors.library import callers, elf, files
from mmulator.doors.library.machines import MACHINES
from mmulator.errors import UnsupportedError
from tests.support.places import PACKAGE, ROOT
from tests.support.waiting import PATIENCE, wait_for_work

CC = shutil.which("cc")
here = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")
EXEC = [sys.executable, "-m", "mmulator", "exec"]


def linked(made: Path, library: str) -> Path:
    source = ROOT / "tests" / "doors" / "programs" / "runtime_tour.c"
    subprocess.run([str(CC), str(source), "-o", str(made), f"-L{files.folder()}", library, "-lpthread", "-ldl"], check=True)
    return made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("runtime") / "tour", "-lcudart")


def run(program: Path, *words: str, options: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    command = [*EXEC, *options, str(program), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **more}, check=False)


@here
def test_a_kernel_runs(program: Path) -> None:
    done = run(program, "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 160\n", "")


@here
def test_a_program_of_cuda_12(tmp_path: Path) -> None:
    older = linked(tmp_path / "older", "-l:libcudart.so.12")
    assert run(older, "run").stdout == "0 160\n"
    assert run(older, "kinds").stdout == "0 2/1/0 3/1/1 0/0/1 32,8,0,-1,2\n"


@here
def test_a_program_of_cuda_12_and_13(tmp_path: Path) -> None:
    """An extension may have been built for another version than the program: each library has its own structs."""
    source, made = ROOT / "tests" / "doors" / "programs" / "versions_tour.c", tmp_path / "both"
    subprocess.run([str(CC), str(source), "-o", str(made), "-ldl"], check=True)
    sizes = {version: len(device.properties(version)) for version in (12, 13)}
    assert sizes[12] > sizes[13]
    assert run(made).stdout == "".join(f"{version} {sizes[version]}\n" for version in (12, 13) * 2)


@here
def test_a_script_that_starts_programs(program: Path, tmp_path: Path) -> None:
    """A script of the shell, the programs that it starts, and a Python that is started there."""
    script = tmp_path / "all"
    script.write_text(f"#!/bin/sh\n{program} run && {sys.executable} -c 'print(1)'\n")
    script.chmod(0o755)
    assert run(script).stdout == "0 160\n1\n"


def test_a_python_without_a_shared_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: {"INSTSONAME": "libpython3.a", "LIBDIR": "/nowhere"}.get(name))
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(files, "libpython", files.libpython.__wrapped__)
    with pytest.raises(UnsupportedError, match=r"need a shared library of Python, .* has none .*\n.*apt install libpython3"):
        files.check_libpython()


@here
def test_a_program_that_calls_nothing_starts_no_python(program: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(files.folder()), "LD_DEBUG": "files"}
    done = subprocess.run([str(program), "nothing"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0 and "libcudart.so.13" in done.stderr and "libpython" not in done.stderr


@here
def test_errors_have_cudas_codes(program: Path) -> None:
    done = run(program, "errors")
    first, second = done.stdout.splitlines()
    assert first == "400 cudaErrorInvalidResourceHandle invalid resource handle 0 801 2 101 1 "
    assert second == "0 0 700 700 0 700 0 0 0 "  # a fault comes with the next call, and ends the context
    assert done.stderr.count("null pointer") == 1 and "cudaMallocArray" in done.stderr


@here
def test_a_blocking_launch_returns_its_fault(program: Path) -> None:
    assert run(program, "errors", CUDA_LAUNCH_BLOCKING="1").stdout.splitlines()[1].startswith("700 700 700")


@here
def test_memory_of_every_kind(program: Path) -> None:
    assert run(program, "kinds").stdout == "0 2/1/0 3/1/1 0/0/1 32,8,0,-1,2\n"


@here
def test_a_pool_of_the_hosts_memory(program: Path) -> None:
    """Pools of memory are as an H200's: no access before it is set, 32 MiB at a time. After the end the driver's functions are
    found, and say 4.
    """
    assert run(program, "pools").stdout == "0 0 3 128 33554432 0 0\n0 0 4\n"


@here
def test_threads_launch_at_once(program: Path) -> None:
    assert run(program, "threads").stdout == f"0 {4 * 20 * 32}\n"


@here
def test_the_host_cannot_read_device_memory(program: Path) -> None:
    done = run(program, "host")
    assert done.returncode == -signal.SIGSEGV
    assert "is byte 12 of 400 bytes that the program has allocated on the device" in done.stderr


@here
@pytest.mark.parametrize("where", ["stack", "heap"])
def test_memory_of_the_host_is_no_kernels(program: Path, where: str) -> None:
    done = run(program, "own", where)
    assert done.returncode == 0
    assert f"byte 0 of argument 0 (at), which points to the program's {where}, in block" in done.stderr
    assert "hint: a kernel may use memory of cudaMalloc" in done.stderr


@here
def test_a_forked_child_has_no_context(program: Path) -> None:
    assert run(program, "fork").stdout == "3 0\n"


@here
def test_interrupts_end_a_spinning_kernel(program: Path) -> None:
    def heard() -> None:  # what a shell starts in the background, ignores SIGINT, and so would this program
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [*EXEC, str(program), "spin"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heard) as spinning:
        try:
            assert spinning.stdout is not None and spinning.stdout.readline() == b"begin\n"
            wait_for_work(spinning.pid, 0.3)
            spinning.send_signal(signal.SIGINT)
            assert spinning.wait(PATIENCE) == -signal.SIGINT
        finally:
            spinning.kill()


@here
@pytest.mark.full
def test_programs_end_while_threads_launch(program: Path) -> None:
    codes = {run(program, "exit", str(n % 10)).returncode for n in range(5)}
    assert codes == {3}


@here
@pytest.mark.full
def test_programs_end_while_llvm_works(program: Path, tmp_path: Path) -> None:
    codes = []
    for wait in range(200, 1000, 200):
        kept = tmp_path / str(wait)
        shutil.copytree(tmp_path / "200", kept) if wait > 200 else kept.mkdir()
        codes.append(run(program, "run", MMULATOR_CACHE=str(kept)).returncode if wait == 200 else 0)
        codes.append(run(program, "mix", str(wait), *["both"] * (wait % 400 == 0), MMULATOR_CACHE=str(kept)).returncode)
    assert set(codes) == {0}


@here
def test_findings_decide_the_exit_code(program: Path) -> None:
    done = run(program, "threads", options=("--sanitize",))
    assert done.returncode == 0 and "no findings, in 80 launches" in done.stderr


@here
def test_without_python_there_is_one_clear_error(program: Path, tmp_path: Path) -> None:
    words = {**files.strings("libcudart.so.13"), "libpython": "/nowhere/libpython.so"}
    data = elf.library(files.made("libcudart.so.13", words), MACHINES[platform.machine()])
    (tmp_path / "libcudart.so.13").write_bytes(data)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([str(program), "errors"], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.startswith("3 initialization error initialization error 3")
    assert done.stderr.count("Python cannot be started in this program: /nowhere/libpython.so") == 1


@here
def test_a_program_has_the_mmulator_that_made_its_libraries(program: Path, tmp_path: Path) -> None:
    """Another one that PYTHONPATH names before it is not imported."""
    (tmp_path / "mmulator").mkdir()
    (tmp_path / "mmulator" / "__init__.py").write_text("raise SystemExit('another mmulator')")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(files.folder()), "PYTHONPATH": f"{tmp_path}{os.pathsep}{PACKAGE}"}
    done = subprocess.run([str(program), "errors"], capture_output=True, text=True, env=environment, check=False)
    assert "another mmulator" not in done.stderr and not done.stdout.startswith("3 initialization error"), done.stderr


def test_two_rows_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two rows have the name cudaMalloc"):
        rows.refuses("twice", "cudaMalloc")


def test_every_exported_name_has_a_row() -> None:
    """Rows are names of the real library, and each name has one: it does, accepts or refuses, and why. Two are NVRTC's."""
    rows.complete()
    exported = rows.exports() | dict.fromkeys(table.OF_NVRTC, (12, 13))
    assert {*rows.ROWS} | {*binaries.LOGGED} == {*exported}
    for row in rows.ROWS.values():
        assert row.kind == rows.DOES or row.why, row.name
    for version in (12, 13):
        assert len([n for part in table.slots(version) for n in part]) == sum(version in v for v in exported.values())


@pytest.mark.parametrize(("version", "size", "places"), [
    (13, 1008, {"totalGlobalMem": 288, "multiProcessorCount": 384, "sharedMemPerBlockOptin": 672, "clusterLaunch": 748}),
    (12, 1032, {"totalGlobalMem": 288, "clockRate": 348, "multiProcessorCount": 388, "unifiedFunctionPointers": 776}),
])  # fmt: skip
def test_the_layout_of_device_properties(version: int, size: int, places: dict[str, int]) -> None:
    """Offsets that C compilers give for the headers of CUDA 13.0 and 12.9."""
    fields, total = device.layout(version)
    assert total == size and {name: fields[name][0] for name in places} == places


@pytest.mark.parametrize(("frames", "launch"), [
    (["__device_stub__Z1kPi(int*)", "main"], "main"),  # -O2: the stub's caller is no frame
    (["__device_stub__Z1kPi(int*)", "main at a.cu:3"], "main"),  # it is inlined, and that is its line
    (["__device_stub__Z1kPi(int*) at a.cu:3", "k(int*) at a.cu:3", "main at a.cu:9"], "main at a.cu:9"),
    (["__device_stub__ZN2ns1kEPi(int*)", "ns::k(int*)", "f(int)", "main"], "f(int)"),
    (["__device_stub__Z1kIiEvPT_(int*)", "void __wrapper__device_stub_k<int>(int*&)", "void k<int>(int*)", "main"], "main"),
    (["__device_stub__ZN12_GLOBAL__N_11kEPi(int*)", "(anonymous namespace)::k(int*)", "main"], "main"),
])  # fmt: skip
def test_the_place_of_a_launch(frames: list[str], launch: str) -> None:
    assert callers.behind(frames)[0] == launch
