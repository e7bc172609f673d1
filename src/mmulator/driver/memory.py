"""Device memory: memory of the host, at its own addresses. What was allocated here, and what a program has the address of."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.errors import LaunchError
from mmulator.machine.launch.arena import bytes_at
from mmulator.machine.launch.regions import NONE, Region, Regions, merged, pointer

ALIGN = 512  # of an allocation, as cudaMalloc's
GAP = 4096  # bytes behind an allocation that are nobody's
POISON = 0xCD  # what fresh memory holds; nobody may count on zeros
LARGE = 1 << 28  # bytes from which on it is as the system gives it: no page is there before it is used


@dataclass(eq=False)
class Allocation:
    """Memory that a program has the address of. owner: what keeps it alive: the array if it was allocated here, a weak
    reference if it is someone else's."""

    address: int
    size: int
    label: str
    owner: Any

    @property
    def alive(self) -> bool:
        return not isinstance(self.owner, weakref.ref) or self.owner() is not None

    def bytes(self) -> np.ndarray:
        """A view as uint8[size]."""
        return bytes_at(self.address, self.size)


class Memory:
    """The allocations, and the memory of others whose address the program has."""

    def __init__(self) -> None:
        self._allocated: dict[int, Allocation] = {}  # by address
        self._exposed: dict[tuple[int, int, int], Allocation] = {}  # by address, size and identity of the owner
        self._whole: Regions | None = None  # all of both; None after a change
        self._changes = 0
        self._last: tuple[list[tuple[int, int, bool]], Regions] = [], NONE  # pieces that a launch was given, and their table

    def allocate(self, size: int, label: str = "an allocation") -> Allocation:
        """Fresh memory, with bytes behind it that no kernel may touch. Nothing in it may be counted on."""
        room = np.empty(size + ALIGN + GAP, np.uint8)
        if size < LARGE:
            room.fill(POISON)
        address = pointer(room)
        address += -address % ALIGN
        found = self._allocated[address] = Allocation(address, size, label, room)
        self._changed()
        return found

    def free(self, address: int) -> None:
        """Raises LaunchError if nothing was allocated there."""
        if self._allocated.pop(address, None) is None:
            raise LaunchError(f"free of address 0x{address:x}, which is no allocation's first byte")
        self._changed()

    def expose(self, address: int, size: int, owner: Any, label: str = "memory whose address was taken") -> None:
        """A program has the address of memory that someone else owns: kernels may touch it for as long as `owner` lives."""
        key = address, size, id(owner)
        if key not in self._exposed:

            def gone(_: object) -> None:
                self._exposed.pop(key, None)
                self._changed()

            self._exposed[key] = Allocation(address, size, label, weakref.ref(owner, gone))
            self._changed()

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in, or what else is known there."""
        if (first := self._allocated.get(address)) is not None:
            return first
        for allocation in self:
            if 0 <= address - allocation.address < max(allocation.size, 1):
                return allocation
        return None

    def __iter__(self) -> Iterator[Allocation]:
        return iter([*self._allocated.values(), *(a for a in list(self._exposed.values()) if a.alive)])

    def _changed(self) -> None:
        self._changes += 1
        self._whole = None

    def regions(self, given: Sequence[Region] = ()) -> Regions:
        """What a kernel may touch: what it is given, and all that the program has the address of. Where they overlap (views of
        one memory) they are one. Raises LaunchError for memory that cannot be a kernel's."""
        if not self._allocated and not self._exposed:
            pieces = [(r.start, r.size, r.writable) for r in given]
            before, found = self._last
            if pieces != before:  # programs launch again on the same memory
                found = merged(given)
                self._last = pieces, found
            return found.for_launch(given)
        whole, changes = self._whole, self._changes
        if whole is None:
            whole = merged(Region(a.address, a.size, a.label) for a in self)
            if changes == self._changes:  # no owner has died since
                self._whole = whole
        if not all(map(whole.has, given)):
            whole = merged([*given, *whole])
        return whole.for_launch(given)
