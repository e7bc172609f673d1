"""The table of a runtime library that is loaded: each slot gets the function of a row."""

import atexit
import ctypes
import struct
from typing import Any

from mmulator.doors.cudart import binaries, device, launches, memory, rows
from mmulator.doors.library.boot import Door
from mmulator.doors.library.elf import ENDED, ENTRIES_OF_LOG, LOG, LOG_ENTRY, LOGGED, STATE, TABLE

CHAPTERS = (device, memory, launches)
TEXTS = ("cudaGetErrorName", "cudaGetErrorString")
OF_NVRTC = ("nvrtcGetCUBINSize", "nvrtcGetCUBIN")  # that the libraries export, too
_kept: list[Any] = []  # functions of C that the tables lead to


class _Log:
    """The registrations that a program has made without Python. done: how many have been read."""

    def __init__(self, library: ctypes.CDLL, names: list[str]) -> None:
        self.count = ctypes.c_uint64.in_dll(library, LOGGED)
        self.place = ctypes.addressof(ctypes.c_char.in_dll(library, LOG))
        self.names, self.done = names, 0

    def read(self) -> None:
        """Carry out the registrations that were written since the last time."""
        while self.done < min(self.count.value, ENTRIES_OF_LOG):
            number, *arguments = struct.unpack("<7Q", ctypes.string_at(self.place + self.done * LOG_ENTRY, 56))
            if not number:
                return
            self.done += 1
            binaries.LOGGED[self.names[number - 1]](*arguments)


def _registers(name: str) -> Any:
    """The function of C behind a registration that comes when Python runs already."""
    carry_out = binaries.LOGGED[name]

    def call(*arguments: int) -> int:
        carry_out(*arguments)
        return arguments[0]

    return ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 6)(call)


def fill(library: ctypes.CDLL, version: int) -> None:
    """Fill the table of a library, and read what was registered. version: of CUDA, 12 or 13."""
    rows.complete()
    plain, logged, texts = slots(version)
    functions = [_native(name, version) for name in plain] + [_registers(name) for name in logged]
    functions += [_native(name, version) for name in texts]
    put(library, functions, len(texts))
    log = _Log(library, logged)
    log.read()
    binaries.late.append(log.read)


def put(library: ctypes.CDLL, functions: list[Any], texts: int = 0) -> None:
    """Fill the table of a library with functions of C. texts: how many at the end return a text."""
    table = (ctypes.c_uint64 * len(functions)).in_dll(library, TABLE)
    for n, function in enumerate(functions):
        table[n] = ctypes.cast(function, ctypes.c_void_p).value or 0
    _kept.extend(functions)
    if not rows.process.own:  # Python is the program: libraries that it has loaded call once more when Python is gone
        atexit.register(_shut, library, table, texts)


def _shut(library: ctypes.CDLL, table: Any, texts: int) -> None:
    """Prepare for the end of Python: calls are answered with cudaErrorCudartUnloading. texts: slots at the end for texts."""
    door = ctypes.addressof(ctypes.c_uint32.in_dll(library, STATE))
    text = door - ctypes.c_uint64.from_address(door + Door.offset["failed_text"]).value
    ended = ctypes.cast(getattr(library, ENDED), ctypes.c_void_p).value
    table[:] = [ended] * (len(table) - texts) + [text] * texts


def _native(name: str, version: int) -> Any:
    """The function of C behind a name of a library. Some structs and parameters depend on the version."""
    row, thread = rows.ROWS[name], rows.thread
    carry_out = row.call

    def call(*arguments: int) -> Any:
        thread.version = version
        return carry_out(*arguments)

    return rows.native(row.signature)(call)


def slots(version: int) -> tuple[list[str], list[str], list[str]]:
    """(plain functions, registrations, functions that return a text) of a version of CUDA, as the slots of the table follow."""
    present = [name for name, versions in rows.exports().items() if version in versions] + list(OF_NVRTC)
    plain = [name for name in present if name not in binaries.LOGGED and name not in TEXTS]
    return plain, [name for name in binaries.LOGGED if name in present], list(TEXTS)
