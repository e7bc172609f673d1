"""Code that the first call of a shared library runs: Python is prepared in a program of C++, and the library's table filled.

Where a host of C++ reads device memory, the program ends by SIGSEGV as on a GPU, with a message about the allocation.
"""

import atexit
import ctypes
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mmulator.base.codegen import engine
from mmulator.doors.library import callers, libraries, lifetime
from mmulator.host.driver import findings as told
from mmulator.host.driver.streams import ordering
from mmulator.sanitizer.diagnostics.faults import memory

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

        library = libraries.resident(soname)
        assert library is not None  # whose first call this is
        table.fill(library, int(soname.rpartition(".")[2]))
    elif soname in libraries.BLAS:
        from mmulator.doors.cublas import table as blas

        library = libraries.resident(soname)
        assert library is not None
        blas.fill(library, soname)
    else:
        from mmulator.doors.libcuda import loading

        loading.install()


def _prepare() -> None:
    """Python that this library has started: it is part of the program, and ends when the program does."""
    sys.argv = [os.fsdecode(word) for word in Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]] or [""]
    sys.stdout = CStdout()
    listen()
    told.places.append(callers.noted)
    at_exit()


def at_exit() -> None:
    """Let Python's own work at the end of the program come before destructors of libraries: LLVM's end threads that compile."""
    from mmulator.doors.cudart import rows

    rows.process.own = os.getpid()
    _ended.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_end))
    _libc.__cxa_atexit(_ended[0], None, None)  # atexit itself is in no shared library of glibc
    lifetime.main_ends(_ended[0])


def _end(_: object) -> None:
    if _ended[1:]:
        return
    _ended.append(True)
    atexit._run_exitfuncs()
    engine.end()
    sys.stderr.flush()


# memory of the wrong side ---------------------------------------------------------------------------------------------------
_SIGINFO = 4  # SA_SIGINFO
_ADDRESS = 16  # of siginfo_t: si_addr
_kept: list[Any] = []
_PLACES = {"[stack]": "the program's stack", "[heap]": "the program's heap"}


class _Action(ctypes.Structure):
    """struct sigaction of Linux's C libraries on 64-bit machines."""

    _fields_ = [
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_char * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p),
    ]  # fmt: skip


def listen() -> None:
    """Hear of reads and writes of device memory by the host, unless the program has a handler of its own. From now on device
    memory has addresses that are not the host's.
    """
    from mmulator.doors.libcuda.state import state

    state().hides = True
    memory.host_memory.append(own_memory)
    libc, before = ctypes.CDLL(None), _Action()
    libc.sigaction(int(signal.SIGSEGV), None, ctypes.byref(before))
    if before.handler:
        return
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_heard)
    _kept.append(handler)
    action = _Action(ctypes.cast(handler, ctypes.c_void_p), b"", _SIGINFO, None)
    libc.sigaction(int(signal.SIGSEGV), ctypes.byref(action), None)
    if ordering:
        from mmulator.doors.library.pages import HostPages

        ordering[-1].pages = HostPages(ordering[-1])


def _heard(number: int, info: int, context: int) -> None:
    """Name the allocation that the program has touched. The access is made again then, and ends the program, unless it was to a
    page that is closed to see such an access.
    """
    if ordering and ordering[-1].pages is not None and ordering[-1].pages.heard(info, context):
        return
    _libc.signal(number, None)  # SIG_DFL
    text = message(ctypes.c_uint64.from_address(info + _ADDRESS).value)
    if text:
        os.write(2, text.encode())


def own_memory(address: int) -> tuple[range, str] | None:
    """(addresses, name) of the host's memory around an address; None where the host has none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, _, *file = line.split(None, 5)
        found = range(*(int(word, 16) for word in where.split("-")))
        if address in found and "r" in rights:
            return found, _PLACES.get("".join(file), "the program's own memory")
    return None


def message(address: int) -> str:
    """The message about an access of the host; "" for memory that is not the device's."""
    from mmulator.doors.libcuda.state import state

    found = state().driver.memory.find(address)
    if found is None or found.host == found.start:
        return ""
    return (
        f"mmulator: the host reads or writes device memory: address 0x{address:x} is byte {address - found.start} of"
        f" {found.size} bytes that the program has allocated on the device\n"
        "  hint: copy with cudaMemcpy, or allocate with cudaMallocManaged\n"
    )
