"""Host memory that kernels use, in a sanitized program of C++: accesses of the host to what an operation under way uses.

Pages of pinned and managed memory that an operation writes cannot be read by the host until it has waited, and pages that one
reads cannot be written. An access then comes here by SIGSEGV: a finding if it concerns bytes that the operation uses. The page
is opened then, and the program goes on. While launches and copies run all pages are open.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Sequence
from threading import RLock

import numpy as np

from mmulator.doors.library import callers
from mmulator.host.driver.memory import MANAGED, PINNED
from mmulator.host.driver.operations import StreamOperation
from mmulator.host.driver.order import ProgramOrder
from mmulator.sanitizer.diagnostics.touched import Runs

PAGE = mmap.PAGESIZE
_NONE, _READ, _ALL = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
_ADDRESS = 16  # of siginfo_t: si_addr
# Of ucontext_t on x86-64: the instruction, and the error, whose bit 1 says that the access is a write.
_INSTRUCTION, _ERROR, _WRITES = 168, 192, 2


class HostPages:
    """The pages that are closed. unwatched: how often one was opened for an access to other bytes of it. kinds: of memory."""

    kinds = PINNED, MANAGED

    def __init__(self, order: ProgramOrder) -> None:
        self.order, self.closed = order, dict[int, int]()
        self.unwatched = self.running = 0
        self._lock = RLock()
        self._protect = ctypes.CDLL(None).mprotect
        self._protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int

    def begin(self) -> None:
        """A launch or a copy runs that uses the memory."""
        with self._lock:
            self.running += 1
            for page in self.closed:
                self._protect(page * PAGE, PAGE, _ALL)
            self.closed.clear()

    def end(self) -> None:
        """A user of the memory is done."""
        with self._lock:
            self.running -= 1

    def show(self, operations: Sequence[StreamOperation]) -> None:
        """These operations are under way from now on."""
        memory = [(a.start, a.end) for a in self.order.driver.memory if a.label in self.kinds]
        wanted: dict[int, int] = {}
        for o in operations if memory else ():
            for runs, rights in ((o.used.read, _READ), (o.used.written, _NONE), (o.used.strong, _NONE)):
                for page in _pages(runs, memory):
                    wanted[page] = min(rights, wanted.get(page, _ALL))
        with self._lock:
            if self.running:
                return
            for page in [page for page in self.closed if page not in wanted]:
                self._protect(page * PAGE, PAGE, _ALL)
            for page, rights in wanted.items():
                if self.closed.get(page) != rights:
                    self._protect(page * PAGE, PAGE, rights)
            self.closed = wanted

    def heard(self, info: int, context: int) -> bool:
        """Whether an access that was not allowed is one to a closed page, which is open now."""
        address = ctypes.c_uint64.from_address(info + _ADDRESS).value
        with self._lock:
            rights = self.closed.pop(address // PAGE, None)
            if rights is None:  # of another thread that came here first, or of no such page
                found = self.order.driver.memory.known(address)
                return found is not None and found.label in self.kinds
            self._protect(address // PAGE * PAGE, PAGE, _ALL)
        frames = list(callers.frames())
        writes = rights == _READ
        if platform.machine() == "x86_64":
            writes = bool(ctypes.c_uint64.from_address(context + _ERROR).value & _WRITES)
            frames.insert(0, ctypes.c_uint64.from_address(context + _INSTRUCTION).value + 1)
        self.unwatched += not self.order.touched(address, 1, writes, lambda: callers.place(frames))
        return True


def _pages(runs: Runs, memory: Sequence[tuple[int, int]]) -> Sequence[int]:
    """Numbers of the pages of memory in which runs lie."""
    found: set[int] = set()
    for begin, end in memory:
        own = runs[(runs[:, 1] > begin) & (runs[:, 0] < end)]
        first, last = np.maximum(own[:, 0], begin) // PAGE, (np.minimum(own[:, 1], end) - 1) // PAGE
        for low, high in np.unique(np.stack([first, last], 1), axis=0).tolist():
            found.update(range(low, high + 1))
    return sorted(found)
