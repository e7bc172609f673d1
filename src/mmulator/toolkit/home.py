"""A CUDA_HOME whose nvcc is `mmulator nvcc`; all else in it is the toolkit's own."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from shlex import quote

from mmulator.codegen.store import store
from mmulator.files import write
from mmulator.toolkit.nvcc import OURS, find_nvcc, toolkit_of, version_of

_LIBRARIES = ("lib64", "lib", "targets/x86_64-linux/lib")
_RUNTIME = "libcudart.so"  # what the linker looks for; PyPI's package has libcudart.so.13 alone


def wrapper_folder() -> Path:
    """The folder with the program `nvcc` that is `mmulator nvcc`, for PATH. Raises UnsupportedError where there is no nvcc."""
    return cuda_home(find_nvcc()) / "bin"


@cache
def cuda_home(nvcc: Path) -> Path:
    """The CUDA_HOME for a nvcc, made at the first call; it stays, in the folder of the cache if there is one."""
    kept = store()
    call = f'MMULATOR_NVCC={quote(str(nvcc))} exec {quote(sys.executable)} -m mmulator nvcc -- "$@"'
    script = f"#!/bin/sh\n{OURS.decode()}\n{call}\n"
    named = f"cuda-{hashlib.sha256((script + version_of(nvcc)).encode()).hexdigest()[:16]}"
    home = kept.path.absolute() / named if kept else Path(tempfile.mkdtemp(prefix="mmulator-"))
    if (home / "bin" / "nvcc").exists():
        return home
    top = toolkit_of(nvcc)
    lacks = not any((top / name / _RUNTIME).exists() for name in _LIBRARIES)
    for folder in (home, home / "bin", *((home / "lib",) if lacks else ())):
        folder.mkdir(mode=0o700, exist_ok=True)
    for path in top.glob("*"):
        _link(home / path.name, path)
    for path in (top / "bin").glob("*"):
        _link(home / "bin" / path.name if path.name != "nvcc" else home / "nvcc", path)
    for path in (top / "lib").glob("*") if lacks else ():
        _link(home / "lib" / path.name, path)
        if path.name.startswith(_RUNTIME):
            _link(home / "lib" / _RUNTIME, path)
    write(home / "bin" / "nvcc", script, mode=0o700)  # last: all else is there
    return home


def _link(path: Path, to: Path) -> None:
    with suppress(FileExistsError):
        path.symlink_to(to)


def start_of(nvcc: Path) -> tuple[str, str]:
    """(the program, its name for itself) of a nvcc. By its name it finds the toolkit: ours, where its own cannot link."""
    home = cuda_home(nvcc)
    own = home / "lib"
    return (str(home / "nvcc"), str(home / "bin" / "nvcc")) if own.is_dir() and not own.is_symlink() else (str(nvcc), str(nvcc))
