"""Memory of the wrong side in a program of C++: the host reads device memory, and ends by SIGSEGV as on a GPU, or gives a kernel
its own."""

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

from mmulator.diagnostics.faults import memory

_SIGINFO, _ONCE = 4, 0x80000000  # SA_SIGINFO; SA_RESETHAND: the second time the signal ends the process
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
    action = _Action(ctypes.cast(handler, ctypes.c_void_p), b"", _SIGINFO | _ONCE - (1 << 32), None)
    libc.sigaction(int(signal.SIGSEGV), ctypes.byref(action), None)


def _heard(number: int, info: int, context: int) -> None:
    """Name the allocation that the program has touched. The access is made again then, and ends the program."""
    text = told(ctypes.c_uint64.from_address(info + _ADDRESS).value)
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


def told(address: int) -> str:
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
