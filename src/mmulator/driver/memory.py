"""Device memory: memory of the host, at its own addresses. What was allocated here, and what a program has the address of."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mmulator.codegen.locks import Lock
from mmulator.driver.pieces import Allocation as Allocation
from mmulator.driver.pieces import Pieces
from mmulator.errors import LaunchError
from mmulator.machine.launch.regions import NONE, Region, Regions, merged, pointer

ALIGN = 512  # of an allocation, as cudaMalloc's
GAP = 4096  # bytes behind an allocation that are nobody's
POISON = 0xCD  # what fresh memory holds; nobody may count on zeros
LARGE = 1 << 28  # bytes from which on it is as the system gives it: no page is there before it is used


class Memory:
    """The allocations, and the memory of others whose address the program has."""

    def __init__(self) -> None:
        self._allocated: dict[int, Allocation] = {}  # by address
        self._exposed: dict[tuple[int, int, int], Allocation] = {}  # by address, size and identity of the owner
        self._pieces, self._lock = Pieces(), Lock()  # both, but for those whose owner has died since
        self._dead: deque[Allocation] = deque()  # these: owners die at any time, in any thread
        # Pieces that a launch was given, what else there was, and the table of all.
        self._last: tuple[list[tuple[int, int, bool]], Regions, Regions] = [], NONE, NONE

    def allocate(self, size: int, label: str = "an allocation") -> Allocation:
        """Fresh memory, with bytes behind it that no kernel may touch. Nothing in it may be counted on."""
        room = np.empty(size + ALIGN + GAP, np.uint8)
        if size < LARGE:
            room.fill(POISON)
        address = pointer(room)
        address += -address % ALIGN
        found = self._allocated[address] = Allocation(address, size, label, room)
        with self._lock:
            self._pieces.add(found)
        return found

    def free(self, address: int) -> None:
        """Raises LaunchError if nothing was allocated there."""
        found = self._allocated.pop(address, None)
        if found is None:
            raise LaunchError(f"free of address 0x{address:x}, which is no allocation's first byte")
        with self._lock:
            self._pieces.remove(found)

    def expose(self, address: int, size: int, owner: Any, label: str = "memory whose address was taken") -> None:
        """A program has the address of memory that someone else owns: kernels may touch it for as long as `owner` lives."""
        key = address, size, id(owner)
        if key not in self._exposed:

            def gone(_: object) -> None:
                self._exposed.pop(key, None)
                self._dead.append(made)

            made = self._exposed[key] = Allocation(address, size, label, weakref.ref(owner, gone))
            with self._lock:
                self._pieces.add(made)

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in, or what else is known there."""
        if (first := self._allocated.get(address)) is not None:
            return first
        with self._lock:
            return self._living().find(address)

    def __iter__(self) -> Iterator[Allocation]:
        return iter([*self._allocated.values(), *(a for a in list(self._exposed.values()) if a.alive)])

    def _living(self) -> Pieces:
        """Without those whose owner has died. The lock is held."""
        while self._dead:
            self._pieces.remove(self._dead.popleft())
        return self._pieces

    def regions(self, given: Sequence[Region] = ()) -> Regions:
        """What a kernel may touch: what it is given, and all that the program has the address of. Where they overlap (views of
        one memory) they are one. Raises LaunchError for memory that cannot be a kernel's."""
        if not self._allocated and not self._exposed:
            return self._with(given, NONE).for_launch(given)
        with self._lock:
            whole = self._living().regions()
            if not all(map(whole.has, given)):
                whole = self._with(given, whole)
        return whole.for_launch(given)

    def _with(self, given: Sequence[Region], others: Regions) -> Regions:
        """The table of pieces that a launch is given, and of all others."""
        pieces = [(r.start, r.size, r.writable) for r in given]
        before, beside, found = self._last
        if pieces != before or beside is not others:  # programs launch again on the same memory
            if others:
                both = self._pieces.copy()
                for r in given:
                    both.add(Allocation(r.start, r.size, r.label, None, r.writable))
                found = both.regions()
            else:
                found = merged(given)
            self._last = pieces, others, found
        return found
