"""The place in a program of C++ from which the running call came: its function, and its line where the program knows it."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import dropwhile
from pathlib import Path

from mmulator.base.demangle import demangle
from mmulator.base.names import shorter

_DEEPEST = 128  # frames, most of them Python's
_NAME = 160  # characters of a function's name
_LIBRARIES = ("thrust::", "cub::", "cuda::", "std::", "cutlass::", "cute::")  # of templates that launch what a program asks for
_STUB, _BETWEEN = re.compile(r"__device_stub_(\w+)"), ("cudaLaunch", "cudaError ", "cuda_runtime.h")
_BETWEEN_FILES = "libffi", "_ctypes", "libpython", "python", "libcuda.so"  # of a call and its Python function


class _Info(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("start", ctypes.c_void_p)]


@cache
def _system() -> ctypes.CDLL:
    """The functions of C, found once: to look for them costs more than what they do."""
    return ctypes.CDLL(None)


def frames() -> ctypes.Array[ctypes.c_uint64]:
    """Addresses in the functions that are being called, the innermost first; 0 behind the last."""
    frames = (ctypes.c_uint64 * _DEEPEST)()
    _system().backtrace(frames, _DEEPEST)
    return frames


def noted() -> Callable[[], str]:
    """A function that says, when it is asked, from where the program has called now."""
    return partial(place, frames())


def place(frames: Iterable[int]) -> str:
    """Where the program has called, such as `main at tile.cu:32`; "" where that cannot be told. frames: of that call.

    Functions that nvcc and CUDA's headers put between are left out: the kernel's stub, what calls the stub, templates; those
    of libraries of templates, if a function of the program called them.
    """
    own = [found for frame in frames for found in _of_program(frame)]
    found = [frame for frame in behind(own) if not any(word in frame for word in _BETWEEN)]
    return next((frame for frame in found if not _qualified(frame).startswith(_LIBRARIES)), found[0] if found else "")


def file() -> Path | None:
    """The file of the program, or the library, that has called; None where that cannot be told."""
    for frame in frames():
        info = _Info()
        if _system().dladdr(ctypes.c_void_p(frame), ctypes.byref(info)) and info.file:
            found = Path(info.file.decode())
            if not found.name.startswith(_BETWEEN_FILES):
                return found
    return None


def behind(frames: list[str]) -> list[str]:
    """The frames behind a kernel's stub without the host's function of the kernel, which calls the stub.

    Where that function is inlined without a trace, the next frame has its line: the kernel's, not that of the launch.
    """
    stubs = [n for n, frame in enumerate(frames) if _STUB.search(frame)]
    if not stubs:
        return frames
    kernel, frames = _bare(frames[stubs[-1]]), frames[stubs[-1] + 1 :]
    found = list(dropwhile(lambda frame: _bare(frame) == kernel, frames))
    return found if len(found) < len(frames) else [frame.partition(" at ")[0] for frame in found[:1]] + found[1:]


def _qualified(frame: str) -> str:
    """The name of a function with its namespaces, without return type, template arguments and parameters."""
    return shorter(frame.partition(" at ")[0], 0).partition("(...")[0].partition("<...")[0].rpartition(" ")[2]


def _bare(frame: str) -> str:
    """The name alone of a function, without return type, namespaces and parameters; the kernel's name for its stub."""
    name, stub = frame.partition(" at ")[0], _STUB.search(frame)
    name = (demangle(stub[1]) if stub else name).replace("(anonymous namespace)", "")
    return name.partition("(")[0].partition("<")[0].rpartition(" ")[2].rpartition(":")[2]


@cache
def program() -> str:
    """The file of this process's program."""
    return str(Path("/proc/self/exe").resolve())


@cache
def _of_program(address: int) -> tuple[str, ...]:
    """The function and the line of an address of the program, then those that it is inlined in; () for one of a library."""
    info = _Info()
    found = _system().dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    if not found or str(Path((info.file or b"").decode()).resolve()) != program():
        return ()
    tool, offset = shutil.which("addr2line"), address - (info.base or 0)
    said = ""
    if tool is not None:
        words = [tool, "-f", "-i", "-e", program(), hex(offset - 1)]
        said = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False).stdout
    lines = said.strip().splitlines() or ["??", "??:0"]
    symbol = demangle((info.name or b"").decode()) or f"address 0x{offset:x} of {Path(program()).name}"
    names = (symbol if name == "??" else demangle(name) for name in lines[::2])
    return tuple(_text(name, line) for name, line in zip(names, lines[1::2], strict=True))


def _text(name: str, line: str) -> str:
    file, _, number = line.partition(" ")[0].rpartition(":")
    name = shorter(name, _NAME)
    return f"{name} at {Path(file).name}:{number}" if file not in ("", "??") and number.isdigit() and number != "0" else name
