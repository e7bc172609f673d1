"""The floating-point environment that every process begins with, whatever a program has changed since.

Programs change it (torch.set_flush_denormal does), and new threads inherit it. NumPy and native code then flush subnormals, and
results would depend on what else runs in the process.
"""

from __future__ import annotations  # where the system has no such library, ctypes.CDLL is no type

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_ROOM = 256  # bytes: a fenv_t has at most 32 on the systems that there are
_DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV


@cache
def _library() -> ctypes.CDLL | None:
    """C's library with fegetenv and fesetenv; None where there is none."""
    name = ctypes.util.find_library("m")
    if name is None and sys.platform == "win32":
        return None
    library = ctypes.CDLL(name)
    return library if hasattr(library, "fesetenv") else None


def in_plain_floats(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the function runs in the environment of a new process: rounding to nearest, with subnormals, without traps."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        library = _library()
        if library is None:
            return function(*args, **kwargs)
        before = ctypes.create_string_buffer(_ROOM)
        library.fegetenv(before)
        library.fesetenv(_DEFAULT)
        try:
            return function(*args, **kwargs)
        finally:
            library.fesetenv(before)

    return call
