"""Code that the first call of a shared library runs: Python is prepared in a program of C++, and the library's table filled."""

import atexit
import ctypes
import io
import os
import sys
from pathlib import Path
from typing import Any

from mmulator.codegen import engine
from mmulator.doors.library import callers, faults, loaded, threads
from mmulator.driver import findings as told

_libc = ctypes.CDLL(None)
_ended: list[Any] = []


class CStdout(io.TextIOBase):
    """Standard output of a program of C++: the C library's stream, so that a kernel's printf and the program's are in order."""

    def __init__(self) -> None:
        self.stream = ctypes.c_void_p.in_dll(_libc, "stdout")
        _libc.fwrite.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]

    def write(self, text: str) -> int:
        data = text.encode(errors="surrogateescape")
        _libc.fwrite(data, 1, len(data), self.stream)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def flush(self) -> None:
        """Leave the text to the program, whose stream it is."""


def begin(soname: str) -> None:
    """Fill the table of a library that this process has loaded. soname: its name."""
    if not (sys.orig_argv or _ended):  # no command line: the program is not `python`; a program may call both libraries
        _prepare()
    if soname.startswith("libcudart"):
        from mmulator.doors.cudart import table

        library = loaded.resident(soname)
        assert library is not None  # whose first call this is
        table.fill(library, int(soname.rpartition(".")[2]))
    elif soname in loaded.BLAS:
        from mmulator.doors.cublas import table as blas

        library = loaded.resident(soname)
        assert library is not None
        blas.fill(library, soname)
    else:
        from mmulator.doors.libcuda import loading

        loading.install()


def _prepare() -> None:
    """Python that this library has started: it is part of the program, and ends when the program does."""
    sys.argv = [os.fsdecode(word) for word in Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]] or [""]
    sys.stdout = CStdout()
    faults.listen()
    told.places.append(callers.noted)
    at_exit()


def at_exit() -> None:
    """Let Python's own work at the end of the program come before destructors of libraries: LLVM's end threads that compile."""
    from mmulator.doors.cudart import rows

    rows.process.own = os.getpid()
    _ended.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_end))
    _libc.__cxa_atexit(_ended[0], None, None)  # atexit itself is in no shared library of glibc
    threads.main_ends(_ended[0])


def _end(_: object) -> None:
    if _ended[1:]:
        return
    _ended.append(True)
    atexit._run_exitfuncs()
    engine.end()
    sys.stderr.flush()
