"""The place in a program of C++ from which the running call came: its function, and its line where the program knows it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path

from mmulator.demangle import demangle

_DEEPEST = 128  # frames, most of them Python's
_STUB, _BETWEEN = "__device_stub__", ("cudaLaunch", "cudaError ", "cuda_runtime.h")


class _Info(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("start", ctypes.c_void_p)]


def place() -> str:
    """Where the program has called, such as `main at tile.cu:32`; "" where that cannot be told.

    Functions that nvcc and CUDA's headers put between are left out: the kernel's stub, what calls the stub, templates.
    """
    libc = ctypes.CDLL(None)
    frames = (ctypes.c_void_p * _DEEPEST)()
    own = [found for frame in frames[: libc.backtrace(frames, _DEEPEST)] if (found := _of_program(int(frame or 0)))]
    stubs = [n for n, found in enumerate(own) if found.startswith(_STUB)]  # what calls the stub has the kernel's name
    behind = own[stubs[-1] + 2 :] if stubs else own
    return next((found for found in behind if not any(word in found for word in _BETWEEN)), "")


@cache
def _program() -> str:
    return str(Path("/proc/self/exe").resolve())


@cache
def _of_program(address: int) -> str:
    """The function and the line of an address of the program; "" for an address of a library, or of a kernel's stub."""
    info = _Info()
    dladdr = ctypes.CDLL(None).dladdr
    if not dladdr(ctypes.c_void_p(address), ctypes.byref(info)) or str(Path((info.file or b"").decode()).resolve()) != _program():
        return ""
    tool = shutil.which("addr2line")
    said = ""
    if tool is not None:
        words = [tool, "-f", "-e", _program(), hex(address - 1 - (info.base or 0))]
        said = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False).stdout
    name, _, line = (said.strip() or "??\n??:0").partition("\n")
    name = demangle(name) if name != "??" else demangle((info.name or b"").decode())
    file, _, number = line.partition(" ")[0].rpartition(":")
    if not name:
        return f"address 0x{address - (info.base or 0):x} of {Path(_program()).name}"
    return f"{name} at {Path(file).name}:{number}" if file not in ("", "??") and number.isdigit() and number != "0" else name
