"""Libraries that this process has loaded: CUDA's runtime and cuBLAS, and whether the runtime is that of this package."""

import ctypes
import os

RUNTIMES = {12: "libcudart.so.12", 13: "libcudart.so.13"}
BLAS = {f"{name}.so.{version}": (name, version) for name in ("libcublas", "libcublasLt") for version in (12, 13)}
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
