"""The processors for which shared libraries are made (elf.py), by the names that Linux has for them."""

import platform
import sys
from typing import Protocol

from mmulator.doors.library import aarch64, x86_64

MARKS = {name: f"mmulator: {name} is said here" for name in ("libpython", "home", "script")}
"""What stands in a library in place of facts of the Python that it will start, if it is made for any."""
ROOM = 4096  # bytes for each of them


class MachineCode(Protocol):
    """Machine code of a processor, at `at`, and numbers of its ELF files."""

    MACHINE: int
    ADDRESS_OF_SYMBOL: int  # a relocation
    PAGE: int  # bytes, at least those of the system
    TRIPLE: str  # LLVM's name
    CPU: str

    def stub(self, at: int, number: int, slot: int, otherwise: int) -> bytes: ...
    def numbered(self, at: int, number: int, to: int) -> bytes: ...
    def returns(self, number: int) -> bytes: ...
    def returns_place(self, at: int, place: int) -> bytes: ...
    def start(self, at: int, table: int, door: int, function: int) -> bytes: ...
    def keep(self, at: int, count: int, log: int, room: int, first: int, full: int) -> bytes: ...
    def note(self, at: int, count: int, ring: int) -> bytes: ...


MACHINES: dict[str, MachineCode] = {"x86_64": x86_64, "aarch64": aarch64}
HERE = MACHINES.get(platform.machine()) if sys.platform == "linux" else None  # None: no library can be made
