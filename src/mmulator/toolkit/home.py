"""A CUDA_HOME whose nvcc is `mmulator nvcc`, with the libraries that its programs run with; all else in it is the toolkit's."""

import hashlib
import re
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from shlex import quote

from mmulator.codegen.store import store
from mmulator.files import write
from mmulator.toolkit.nvcc import OURS, find_nvcc, toolkit_of, version_of

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
    _mirror(home, top, {"bin", "include", place, *(str(folder) for folder in Path(place).parents), f"{place}/stubs"})
    for path in more:
        _link(home / "include" / path.name, path)
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
