"""NVRTC: each cubin that a program takes from it is followed by the PTX that it was made from, which loading finds there."""

import ctypes
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from mmulator.base.errors import InternalError, UnsupportedError
from mmulator.doors.library.libraries import resident
from mmulator.ptx.toolkit.cubin import with_ptx

_size_at = ctypes.POINTER(ctypes.c_size_t)


class WithPtx:
    """The library as ctypes loads it, with two functions of its own."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def _behind(self, program: Any) -> bytes:
        size = ctypes.c_size_t()
        self._library.nvrtcGetPTXSize(program, ctypes.byref(size))
        room = ctypes.create_string_buffer(max(size.value, 1))
        return b"" if self._library.nvrtcGetPTX(program, room) else with_ptx(b"", room.raw)

    def nvrtcGetCUBINSize(self, program: Any, out: Any) -> int:
        code = int(self._library.nvrtcGetCUBINSize(program, out))
        if not code:
            ctypes.cast(out, _size_at)[0] += len(self._behind(program))
        return code

    def nvrtcGetCUBIN(self, program: Any, out: Any) -> int:
        size = ctypes.c_size_t()
        self._library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = int(self._library.nvrtcGetCUBIN(program, out))
        if not code:
            behind = self._behind(program)
            ctypes.memmove((ctypes.cast(out, ctypes.c_void_p).value or 0) + size.value, behind, len(behind))
        return code


def resident_nvrtc() -> WithPtx:
    """The NVRTC of this process, which calls a function of it."""
    for version in (13, 12):
        if library := resident(f"libnvrtc.so.{version}"):
            return WithPtx(library)
    raise InternalError("a function of NVRTC was called, and NVRTC is not there")


def complete_torch(utils: Any) -> None:
    """Change torch.cuda._utils, by whose functions torch.cuda._compile_kernel compiles."""
    name = "_get_gpu_rtc_library" if hasattr(utils, "_get_gpu_rtc_library") else "_get_nvrtc_library"
    load: Callable[[], Any] = getattr(utils, name)

    def found() -> WithPtx:
        try:
            return WithPtx(load())
        except OSError:
            return WithPtx(ctypes.CDLL(str(_packaged())))

    setattr(utils, name, found)


def _packaged() -> Path:
    """NVRTC in NVIDIA's package for Python. Raises UnsupportedError where there is none."""
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("nvidia/cu*/lib/libnvrtc.so.1[2-9]"), reverse=True):
            return path
    raise UnsupportedError("there is no NVRTC, which compiles CUDA C++ for torch", hint="pip install nvidia-cuda-nvrtc")


def complete_bindings(nvrtc: Any) -> None:
    """Change cuda.bindings.nvrtc."""
    size_of, get = nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN

    def behind(program: Any) -> bytes:
        code, size = nvrtc.nvrtcGetPTXSize(program)
        room = bytes(size or 0)
        return b"" if int(code) or int(nvrtc.nvrtcGetPTX(program, room)[0]) else with_ptx(b"", room)

    def get_size(program: Any) -> tuple[Any, int]:
        code, size = size_of(program)
        return code, size if int(code) else size + len(behind(program))

    def get_cubin(program: Any, cubin: bytes) -> tuple[Any]:
        (code,) = get(program, cubin)
        if not int(code):
            found, size = behind(program), size_of(program)[1]
            ctypes.memmove((ctypes.cast(ctypes.c_char_p(cubin), ctypes.c_void_p).value or 0) + size, found, len(found))
        return (code,)

    nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN = get_size, get_cubin


def install() -> None:
    """Change cuda.bindings.nvrtc, which is imported."""
    complete_bindings(import_module("cuda.bindings.nvrtc"))
