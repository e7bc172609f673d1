"""Loading: the library is made, its table is filled, and functions are found by name, also those that are not implemented."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

from mmulator.base.errors import UnsupportedError
from mmulator.base.refusals import register
from mmulator.doors.graphs import calls, captures, operations, structs
from mmulator.doors.libcuda import abi, clusters, device, hints, launches, memory, modules, pointers, tensormaps, virtual
from mmulator.doors.libcuda.abi import (
    ENTRIES,
    Refused,
    api,
    get_bytes,
    guarded,
    put,
    put_int,
    resolve,
    telling,
    text,
    unsupported,
)
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.library import callers, lifetime
from mmulator.doors.library.elf import COUNT, ENDED, ENTRIES_OF_RING, ENTRY, RING, STATE, TABLE, Exports, library
from mmulator.doors.library.libraries import resident
from mmulator.doors.library.machines import HERE

SONAME = "libcuda.so.1"
CHAPTERS = (
    device, memory, pointers, virtual, hints, modules, launches, clusters, tensormaps, operations, captures, calls, structs,
)  # fmt: skip
# What destructors of C++ libraries call before or when they give something back (PyCUDA): a failure would end the process.
AT_THE_END = {
    "cuCtxPushCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent", "cuCtxPopCurrent_v2", "cuCtxSetCurrent", "cuCtxSynchronize",
    "cuCtxDetach", "cuCtxDestroy", "cuCtxDestroy_v2", "cuMemHostUnregister",
}  # fmt: skip
SPARE = 600  # room for functions that are asked for and not implemented
_lock = threading.Lock()
_loaded: list[Loaded] = []
_asked: list[bool] = []
_NAMES = 1 << 16  # bytes at the end of a file
_OF_RUNTIMES = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")  # the name of the table
STATIC = "CUDA's runtime is linked in statically, and does not run here: relink with -cudart shared"
_COMPILERS = ("libnvrtc", "libnvJitLink", "libnvvm")  # they have no kernels, and work without
STATIC_OF_LIBRARY = "CUDA's runtime linked in statically, and does not run here: use a library that is linked with -cudart shared"


def names() -> tuple[list[str], list[str]]:
    """(names of the library's table, names of functions whose calls are noted). The file and the process that fills it agree."""
    entries = [ENTRIES[name] for name in sorted(ENTRIES)]  # their order there is that of imports
    plain = [*(e.name for e in entries if not e.back), *unwritten(), *(f"mmulator_spare_{n}" for n in range(SPARE))]
    return plain, [e.name for e in entries if e.back]


def unwritten() -> list[str]:
    """Names that programs are linked with and that no chapter has: they refuse."""
    lines = Path(__file__).with_name("exports.txt").read_text().splitlines()[1:]
    return [name for name in lines if name not in ENTRIES]


class Loaded:
    """The library in this process. names: of its table. noted: names of functions whose calls are noted.

    there: the file of doors/library, if the process has loaded that; else the library is made in memory.
    """

    def __init__(self, there: ctypes.CDLL | None = None) -> None:
        self.names, self.noted = names()
        assert HERE is not None
        self.library = there or _open(library(Exports(SONAME, self.names, self.noted), HERE))
        self.table = (ctypes.c_void_p * len(self.names)).in_dll(self.library, TABLE)
        self.count = ctypes.c_uint64.in_dll(self.library, COUNT)
        self.ring = ctypes.addressof(ctypes.c_char.in_dll(self.library, RING))
        self.done = 0
        self.busy = False
        self.kept: list[object] = []
        self.missing: dict[str, int] = {}
        self.written = len(self.names) - SPARE
        ended = self.address(ENDED)
        for n, name in enumerate(self.names):
            self.table[n] = ENTRIES[name].pointer if name in ENTRIES else self.refuses(name) if n < self.written else ended
        abi.pending.append(self.carry_out)

    def carry_out(self) -> None:
        """Carry out the calls that were noted since the last one."""
        if self.done == self.count.value or self.busy:
            return
        self.busy = True
        try:
            while self.done < self.count.value:
                at = self.ring + self.done % ENTRIES_OF_RING * ENTRY
                number, first, second = struct.unpack("<3Q", ctypes.string_at(at, 24))
                if not number:
                    return
                ctypes.memset(at, 0, 8)
                self.done += 1
                name = self.noted[number - 1]
                code = ENTRIES[name].call(*((first, second)[: len(ENTRIES[name].native.argtypes)]))
                if code:
                    why = abi.taken() or abi.name_of(code)
                    print(f"mmulator: {name}(0x{first:x}) failed: {why}", file=sys.stderr)
        finally:
            self.busy = False

    def address(self, name: str) -> int:
        return int(ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0)

    def refusal(self, name: str) -> int:
        """The address of a function that says that a name is not implemented."""
        if name in self.names[: self.written]:
            return self.address(name)
        if name not in self.missing:
            number = self.written + len(self.missing)
            if number >= len(self.names):
                return 0
            self.table[number] = self.refuses(name)
            self.missing[name] = self.address(self.names[number])
        return self.missing[name]

    def refuses(self, name: str) -> int:
        """The address of a function of Python that refuses."""

        def refuse() -> int:
            raise unsupported(name, "this function of CUDA's driver is not there")

        native = _native(telling(guarded(refuse, name)))
        self.kept.append(native)
        return ctypes.cast(native, ctypes.c_void_p).value or 0


_native = ctypes.CFUNCTYPE(ctypes.c_int)


def _open(data: bytes) -> ctypes.CDLL:
    """Load the library from memory: no file is left."""
    handle = os.memfd_create(SONAME)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        return ctypes.CDLL(f"/proc/self/fd/{handle}", ctypes.RTLD_GLOBAL)
    finally:
        os.close(handle)


def install() -> None:
    """Stand in for CUDA's driver in this process. Raises UnsupportedError where the real one is loaded already, and on systems
    other than Linux.
    """
    with _lock:
        if _loaded:
            return
        if HERE is None:
            raise UnsupportedError(f"CUDA's driver cannot be stood in for on {platform.system()} {platform.machine()}")
        there = resident(SONAME)
        if there is not None and not hasattr(there, STATE):
            raise UnsupportedError(
                "CUDA's own driver is loaded in this process already",
                hint="start with `mmulator exec`, or install before imports",
            )
        _loaded.append(Loaded(there))
        os.environ.setdefault("TRITON_DEFAULT_BACKEND", "mmulator")  # NVIDIA's driver of Triton would take this for a GPU
        atexit.register(_shut)


_LOOK_UP = "cuGetProcAddress_v2"


def _shut() -> None:
    """Prepare for the end of Python: calls are answered with CUDA_ERROR_DEINITIALIZED; giving back succeeds."""
    found = _loaded[0]
    well, ended = found.address(found.noted[0]), found.address(ENDED)  # the first notes the call, and returns success
    for n, name in enumerate(found.names):
        found.table[n] = well if name in AT_THE_END else ended
    if sys.orig_argv:
        return

    def late(name: int, out: int, version: int, flags: int, status: int) -> int:
        put(out, ended)
        put_int(status, 0)
        return Code.SUCCESS

    # Python stays in a program that it is a part of, whose destructors look for the function that gives a context back.
    found.kept.append(function := type(ENTRIES[_LOOK_UP].native)(late))
    found.table[found.names.index(_LOOK_UP)] = ctypes.cast(function, ctypes.c_void_p).value or 0


def find(name: int, out: int, version: int) -> int:
    """Write the address of a function by its name: 0, or 1 where there is none. name, out: addresses of the program."""
    wanted = text(name)
    found = resolve(wanted, version)
    address = _loaded[0].address(found.name) if found else _loaded[0].refusal(wanted)
    put(out, address)
    return 0 if address else 1


@api("cuGetProcAddress", "ppiq")
def get_address(name: int, out: int, version: int, flags: int) -> None:
    if find(name, out, version):
        raise Refused(Code.NOT_FOUND)


@api(_LOOK_UP, "ppiqp", 12000)
def get_address_2(name: int, out: int, version: int, flags: int, status: int) -> None:
    put_int(status, find(name, out, version))


def _has_kernels(file: Path) -> bool:
    """Whether a file has a section of fat binaries. Names of sections stand at its end."""
    with suppress(OSError), file.open("rb") as data:
        data.seek(max(0, file.stat().st_size - _NAMES))
        return b".nv_fatbin" in data.read()
    return False


@api("cuGetExportTable", "pp")
def export_table(out: int, which: int) -> None:
    """Refuse a table that no document describes. A runtime that is linked in statically asks for one; that is told once.

    Kernels beside that runtime are not run, and nothing else tells.
    """
    file = callers.file()
    if file is not None and file.name.startswith(_COMPILERS):
        raise Refused(Code.NOT_SUPPORTED)
    if get_bytes(which, 16) == _OF_RUNTIMES and not _asked:
        _asked.append(True)
        holder = file if file is not None and _has_kernels(file) else None
        why = STATIC if holder is None or str(holder.resolve()) == callers.program() else f"{holder.name} has {STATIC_OF_LIBRARY}"
        print(f"mmulator: {why}", file=sys.stderr, flush=True)
        if holder is not None:
            lifetime.opened(register.work(why, Code.NOT_SUPPORTED, False))
    raise unsupported(
        "cuGetExportTable", "tables of the driver that no document describes",
        "CUDA's runtime asks for them where it is linked in statically: link with nvcc -cudart shared",
    )  # fmt: skip
