"""nvcc: where it is, its version, and runs of it that make something for mmulator."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmulator.codegen.locks import TimeUp, remaining
from mmulator.errors import MmulatorError, UnsupportedError

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
        hint=f"`{INSTALLS}` in mmulator's environment; nvcc needs g++, and no GPU (docs/cuda.md)",
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
