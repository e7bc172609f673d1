"""A CUDA_HOME whose nvcc is `mmulator nvcc`; all else in it is the toolkit's own. The linker finds CUDA's runtime there, too."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from shlex import quote

from mmulator.codegen.store import store
from mmulator.toolkit.nvcc import OURS, find_nvcc, toolkit_of, version_of

_LIBRARIES = ("lib64", "lib", "targets/x86_64-linux/lib")


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
    for folder in (home, home / "bin", home / "lib64"):
        folder.mkdir(mode=0o700, exist_ok=True)
    for path in top.glob("*"):
        _link(home / path.name, path)
    for path in (top / "bin").glob("*"):
        if path.name != "nvcc":
            _link(home / "bin" / path.name, path)
    for path in (p for name in _LIBRARIES for p in (top / name).glob("*")):
        _link(home / "lib64" / path.name, path)
        if path.name.startswith("libcudart.so."):  # PyPI's package has no libcudart.so, which the linker looks for
            _link(home / "lib64" / "libcudart.so", path)
    made = home / "bin" / f"nvcc.{os.getpid()}"
    made.write_text(script)
    made.chmod(0o700)
    made.replace(home / "bin" / "nvcc")  # last: all else is there
    return home


def _link(path: Path, to: Path) -> None:
    with suppress(FileExistsError):
        path.symlink_to(to)


def link_environment(nvcc: Path) -> dict[str, str]:
    """The environment of a nvcc that links: CUDA's runtime is found where the toolkit has no name for the linker, too."""
    paths = [*filter(None, [os.environ.get("LIBRARY_PATH")]), str(cuda_home(nvcc) / "lib64")]
    return {**os.environ, "LIBRARY_PATH": os.pathsep.join(paths)}
