"""nvcc: where it is, its version, and runs of it that make something for mmulator."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from shlex import quote

from mmulator.base.codegen.locks import TimeUp, remaining
from mmulator.base.codegen.store import store
from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.base.files import write

# NVIDIA's compiler comes in these packages, and calls g++.
INSTALLS = "pip install nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-runtime"
FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")  # flags of every run, in the environment
OURS = b"# nvcc of mmulator"  # in the second line of the wrapper (wrapper.py)


def find_nvcc() -> Path:
    """The path of nvcc. Raises UnsupportedError that says how to install it."""
    given = os.environ.get("MMULATOR_NVCC")
    if given:
        if not os.access(given, os.X_OK) or Path(given).is_dir():
            raise UnsupportedError(f"MMULATOR_NVCC is {given}, and no program is there", hint="name nvcc itself, or unset it")
        return Path(given)
    for path in _places():
        if os.access(path, os.X_OK) and path.is_file() and not _is_ours(path):
            return path
    raise UnsupportedError(
        "there is no nvcc, which compiles CUDA C++",
        rule="it is looked for on PATH, in $CUDA_HOME, $CUDA_PATH, /usr/local/cuda and among Python's packages",
        hint=f"`{INSTALLS}` in mmulator's environment; nvcc needs g++, and no GPU (docs/how-to/cuda.md)",
    )


def _places() -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / "nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "bin" / "nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")
    for folder in sys.path:
        yield from sorted(Path(folder or ".").glob("nvidia/cu[1-9]*/bin/nvcc"), reverse=True)


def _is_ours(path: Path) -> bool:
    """Whether it is the wrapper, which would call itself."""
    try:
        with path.open("rb") as file:
            return OURS in file.read(200)
    except OSError:
        return False


def toolkit_of(nvcc: Path) -> Path:
    """The folder of the toolkit that nvcc belongs to, as nvcc says."""
    asked = [str(nvcc), "-v", "-dryrun", "-E", "-x", "cu", os.devnull]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, errors="replace").stderr
    except OSError as error:
        raise MmulatorError(f"cannot start {nvcc}: {error.strerror}") from None
    top = next((line.partition("=")[2] for line in told.splitlines() if line.startswith("#$ TOP=")), "")
    return Path(os.path.normpath(top.strip())) if top.strip() else nvcc.resolve().parents[1]


def version_of(nvcc: Path) -> str:
    """All that nvcc says of its version; "" if it does not start."""
    try:
        return subprocess.run([nvcc, "--version"], capture_output=True, text=True, errors="replace").stdout
    except OSError:
        return ""


def names_target(flags: Sequence[str]) -> bool:
    """Whether flags, or the environment's, say for which target nvcc compiles."""
    said = [*flags, *(word for name in FLAGS for word in os.environ.get(name, "").split())]
    return any(flag.lstrip("-").startswith(("arch", "gpu-architecture", "gencode", "generate-code")) for flag in said)


def run_nvcc(start: tuple[str, str], arguments: Sequence[str], source: str) -> None:
    """Run nvcc on a source; what it says is printed on standard error. start: the program, and its name for itself.

    Raises MmulatorError with what it says if it fails, TimeUp at the thread's time limit.
    """
    if sys.stderr.isatty():
        print(f"nvcc compiles {source}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            [start[1], *arguments], executable=start[0], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=remaining(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeUp from None
    except OSError as error:
        raise MmulatorError(f"cannot start {start[0]}: {error.strerror}") from None
    said = (done.stdout + done.stderr).strip("\n")
    if done.returncode:
        lacks = "nvcc needs a C++ compiler: apt install g++" if not shutil.which("g++") and not shutil.which("gcc") else None
        raise MmulatorError(f"nvcc cannot compile {source}:\n{_short(said)}", hint=lacks)
    if said:
        print(said, file=sys.stderr)


def _short(said: str) -> str:
    lines = said.split("\n")
    return "\n".join(f"  {line}" for line in lines[:40]) + (f"\n  ... {len(lines) - 40} more lines" if len(lines) > 40 else "")


_LIBRARIES = ("targets/x86_64-linux/lib", "lib64", "lib")
_RUNTIME = "libcudart.so"  # what the linker looks for; PyPI's package has libcudart.so.13 alone
# Scripts for the linker in place of libraries: our programs need the shared runtime, a driver to link with, and our cuBLAS.
_SCRIPTS = {
    "libcudart_static.a": "INPUT(-l:libcudart.so)\n", "stubs/libcuda.so": "INPUT(-l:libcuda.so.1)\n",
    "libcublas.so": "INPUT(-l:libcublas.so.13)\n", "libcublasLt.so": "INPUT(-l:libcublasLt.so.13)\n",
}  # fmt: skip


def wrapper_folder() -> Path:
    """The folder with the program `nvcc` that is `mmulator nvcc`, for PATH. Raises UnsupportedError where there is no nvcc."""
    return cuda_home(find_nvcc()) / "bin"


@cache
def cuda_home(nvcc: Path) -> Path:
    """The CUDA_HOME for a nvcc, made at the first call; it stays, in the folder of the cache if there is one."""
    kept = store()
    call = f'MMULATOR_NVCC={quote(str(nvcc))} exec {quote(sys.executable)} -m mmulator nvcc -- "$@"'
    script = f"#!/bin/sh\n{OURS.decode()}\n{call}\n"
    version = version_of(nvcc)
    more = _headers(version)
    about = "\0".join((script, version, str(_SCRIPTS), *map(str, more)))
    named = f"cuda-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    home = kept.path.absolute() / named if kept else Path(tempfile.mkdtemp(prefix="mmulator-"))
    if (home / "bin" / "nvcc").exists():
        return home
    top = toolkit_of(nvcc)
    place = next((name for name in _LIBRARIES if (top / name).is_dir()), "lib")
    includes = {"include", str(Path(place).with_name("include"))}  # nvcc of a toolkit with targets/ looks in the second alone
    _mirror(home, top, {"bin", *includes, place, *(str(folder) for folder in Path(place).parents), f"{place}/stubs"})
    for name, path in product(includes, more):
        _link(home / name / path.name, path)
    for path in (top / "bin").glob("nvcc"):
        _link(home / "nvcc", path)
    libraries = home / place
    for name in _LIBRARIES[1:]:
        _link(home / name, libraries)
    for path in libraries.glob(f"{_RUNTIME}.*"):
        _link(libraries / _RUNTIME, path)
    for name, text in _SCRIPTS.items():
        write(libraries / name, text)
    write(home / "bin" / "nvcc", script, mode=0o700)  # last: all else is there
    return home


def _headers(version: str) -> list[Path]:
    """Headers of NVIDIA's packages for Python, of this version of CUDA: a toolkit has them all in one folder."""
    major = re.search(r"release (\d+)", version)
    found = f"nvidia/cu{major[1]}/include/*" if major else ""
    return sorted(path for folder in sys.path for path in (Path(folder or ".").glob(found) if found else ()))


def _mirror(home: Path, top: Path, own: set[str]) -> None:
    """Make a folder of links to what is in another one. own: folders that are made, too; some files and names are ours."""
    ours = tuple(f"/{name}" for name in ("nvcc", *_LIBRARIES, *_SCRIPTS))
    for name in sorted(own):
        (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (top / name).glob("*"):
            if not str(path).endswith(ours) and str(Path(name, path.name)) not in own:
                _link(home / name / path.name, path)


def _link(path: Path, to: Path) -> None:
    with suppress(FileExistsError):
        path.symlink_to(to)


def start_of(nvcc: Path) -> tuple[str, str]:
    """(the program, its name for itself) of a nvcc. By its name it finds the toolkit: ours, with the libraries of programs."""
    home = cuda_home(nvcc)
    return str(home / "nvcc"), str(home / "bin" / "nvcc")
