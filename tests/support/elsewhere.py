"""Commands as on a system without POSIX or without llvmlite: `python -m tests.support.elsewhere SYSTEM`, with command lines on
standard input; for each a line of JSON: exit code, output, errors.

It stands in for machines that are not at hand: modules, functions and files that the system lacks are taken away.
"""

import builtins
import contextlib
import ctypes
import io
import json
import mmap
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import rich.console
import rich.progress

NAMES = {"darwin": ("Darwin", "arm64"), "win32": ("Windows", "AMD64")}
MODULES = {"darwin": ("llvmlite",), "win32": ("llvmlite", "fcntl", "resource", "termios", "pty", "pwd")}
OF_OS = {
    "darwin": ("memfd_create", "sched_getaffinity"),
    "win32": ("memfd_create", "sched_getaffinity", "fork", "register_at_fork", "geteuid", "getuid", "uname", "fchmod"),
}
OF_MMAP = {
    "darwin": ("MAP_NORESERVE", "MAP_POPULATE", "MADV_NOHUGEPAGE"),
    "win32": ("MAP_NORESERVE", "MAP_POPULATE", "MADV_NOHUGEPAGE", "MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_SHARED", "PROT_EXEC"),
}
LOADED = subprocess, ml_dtypes, numpy, rich.console, rich.progress, sysconfig.get_config_vars()  # of this system


def become(system: str) -> None:
    """Take away what a system lacks."""

    class Missing:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] in MODULES[system]:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in MODULES[system]:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())  # type: ignore[arg-type]
    for module, names in ((os, OF_OS[system]), (mmap, OF_MMAP[system])):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    opened = io.open

    def without_proc(file: Any, *more: Any, **named: Any) -> Any:
        if str(file).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return opened(file, *more, **named)

    io.open = builtins.open = without_proc
    library = ctypes.CDLL

    def of_a_file(name: Any, *more: Any, **named: Any) -> Any:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        return library(name, *more, **named)

    if system == "win32":
        ctypes.CDLL = of_a_file  # type: ignore[assignment, misc]
    sys.platform = system
    platform.system = lambda: NAMES[system][0]
    platform.machine = lambda: NAMES[system][1]


def main(system: str) -> None:
    lines = sys.stdin.read().splitlines()
    become(system)
    from mmulator.cli.app import run

    for line in lines:
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = run(line.split())
        print(json.dumps([code, out.getvalue(), errors.getvalue()]), flush=True)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    main(sys.argv[1])
