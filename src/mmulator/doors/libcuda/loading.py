"""Loading: the library is made, its table is filled, and functions are found by name, those that nobody wrote as well."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading

from mmulator.doors.libcuda import device, launches, memory, modules
from mmulator.doors.libcuda.abi import ENTRIES, Refused, api, guarded, put, put_int, resolve, text, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.elf import DONE, ENDED, MACHINES, TABLE, library
from mmulator.errors import UnsupportedError

SONAME = "libcuda.so.1"
CHAPTERS = (device, memory, modules, launches)
SPARE = 600  # functions that someone asks for and nobody wrote
GIVES_BACK = ("Free", "Destroy", "Release", "Unload", "Unregister", "Synchronize")
_lock = threading.Lock()
_loaded: list[Loaded] = []


class Loaded:
    """The library in this process. slots: of its table, by name."""

    def __init__(self) -> None:
        self.names = [*ENTRIES, *(f"mmulator_spare_{n}" for n in range(SPARE))]
        self.library = _open(library(SONAME, self.names, platform.machine()))
        self.table = (ctypes.c_void_p * len(self.names)).in_dll(self.library, TABLE)
        self.kept: list[object] = []
        self.missing: dict[str, int] = {}
        for n, entry in enumerate(ENTRIES.values()):
            self.table[n] = entry.pointer
        for n in range(len(ENTRIES), len(self.names)):
            self.table[n] = self.address(ENDED)

    def address(self, name: str) -> int:
        return int(ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0)

    def refusal(self, name: str) -> int:
        """The address of a function that says that it is not there."""
        if name not in self.missing:
            number = len(ENTRIES) + len(self.missing)
            if number >= len(self.names):
                return 0

            def refuse() -> int:
                raise unsupported(name, "this function of CUDA's driver is not there")

            native = _native(guarded(refuse, name))
            self.kept.append(native)
            self.table[number] = ctypes.cast(native, ctypes.c_void_p).value
            self.missing[name] = self.address(self.names[number])
        return self.missing[name]


_native = ctypes.CFUNCTYPE(ctypes.c_int)


def _open(data: bytes) -> ctypes.CDLL:
    """The library, from memory: no file is left."""
    handle = os.memfd_create(SONAME)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        return ctypes.CDLL(f"/proc/self/fd/{handle}", ctypes.RTLD_GLOBAL)
    finally:
        os.close(handle)


def load() -> None:
    """Stand in for CUDA's driver in this process. Raises UnsupportedError where the real one is loaded already, and on other
    machines than Linux's."""
    with _lock:
        if _loaded:
            return
        if os.name != "posix" or not hasattr(os, "memfd_create") or platform.machine() not in MACHINES:
            raise UnsupportedError(f"CUDA's driver cannot be stood in for on {platform.system()} {platform.machine()}")
        if _resident(SONAME):
            raise UnsupportedError(
                "CUDA's own driver is loaded in this process already", hint="start with `mmulator exec`, or install before imports"
            )
        _loaded.append(Loaded())
        atexit.register(_shut)


def _resident(name: str) -> bool:
    try:
        ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def is_loaded() -> bool:
    return bool(_loaded)


def _shut() -> None:
    """Python ends: what gives something back succeeds from now on, whoever wants more is told that there is no driver."""
    found = _loaded[0]
    for n, name in enumerate(found.names):
        found.table[n] = found.address(DONE if any(word in name for word in GIVES_BACK) else ENDED)


def _find(name: int, out: int, version: int) -> int:
    wanted = text(name)
    found = resolve(wanted, version)
    address = _loaded[0].address(found.name) if found else _loaded[0].refusal(wanted)
    put(out, address)
    return 0 if address else 1


@api("cuGetProcAddress", "ppiq")
def get_address(name: int, out: int, version: int, flags: int) -> None:
    if _find(name, out, version):
        raise Refused(Code.NOT_FOUND)


@api("cuGetProcAddress_v2", "ppiqp", 12000)
def get_address_2(name: int, out: int, version: int, flags: int, status: int) -> None:
    put_int(status, _find(name, out, version))


@api("cuGetExportTable", "pp")
def export_table(out: int, which: int) -> None:
    raise unsupported("cuGetExportTable", "tables of the driver that no document describes")
