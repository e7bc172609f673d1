"""The line of the program that launched a kernel."""

import linecache
import sys
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePath

from mmulator.base.errors import MmulatorError

# Folders of libraries, whose lines are not the program's.
_LIBRARIES = ("mmulator", "triton", "torch", "helion", "numba", "numba_cuda", "cuda.core", "cuda.bindings")


@cache
def _folders() -> tuple[str, ...]:
    out = []
    for name in _LIBRARIES:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        out += [f"{Path(folder)}/" for folder in (spec and spec.submodule_search_locations) or ()]
    return tuple(out)


@cache
def _of_a_library(file: str) -> bool:
    """Whether a file belongs to a library, to Python itself, or was made at run time."""
    own = sysconfig.get_paths()["stdlib"]
    return file.startswith(("<string>", "<frozen", *_folders())) or (file.startswith(own) and "-packages" not in file)


def line_of_launch() -> str | None:
    """`run.py:17: add[grid](x, y)`: the innermost line of the running code that is in no library; None if there is none."""
    frame = sys._getframe(1)
    while _of_a_library(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    file = frame.f_code.co_filename
    text = linecache.getline(file, frame.f_lineno, frame.f_globals).strip()
    return f"{PurePath(file).name}:{frame.f_lineno}" + (f": {text[:100]}" if text else "")


def located(error: MmulatorError) -> MmulatorError:
    """The error with the line of the program that launched the kernel."""
    error.launch = error.launch or line_of_launch()
    return error
