"""Libraries that this process has loaded: CUDA's runtime, and whether it is that of this package."""

from __future__ import annotations

import ctypes
import os

RUNTIMES = {12: "libcudart.so.12", 13: "libcudart.so.13"}
MARKS = {name: f"mmulator: {name} is said here" for name in ("libpython", "home", "script")}
"""What stands in a library in place of facts of the Python that it will start, if it is made for any."""
ROOM = 4096  # bytes for each of them
_RTLD_NOLOAD = 4


def resident(soname: str) -> ctypes.CDLL | None:
    """The library of a name, if the process has loaded one."""
    try:
        return ctypes.CDLL(soname, _RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def stands_in() -> bool:
    """Whether this process has a library of this package in place of CUDA's runtime."""
    from mmulator.doors.library.elf import STATE

    return any(hasattr(resident(soname), STATE) for soname in RUNTIMES.values())
