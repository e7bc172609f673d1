"""Device memory: memory of the host, at its own addresses. What was allocated here, and what a program has the address of."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.errors import LaunchError
from mmulator.machine.launch.arena import bytes_at
from mmulator.machine.launch.arguments import Region
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHIFT

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
    """The allocations, by address."""

    def __init__(self) -> None:
        self._known: dict[int, Allocation] = {}

    def allocate(self, size: int, label: str = "an allocation") -> Allocation:
        """Fresh memory, with bytes behind it that no kernel may touch. Nothing in it may be counted on."""
        room = np.empty(size + ALIGN + GAP, np.uint8)
        if size < LARGE:
            room.fill(POISON)
        address = int(room.ctypes.data)
        address += -address % ALIGN
        found = self._known[address] = Allocation(address, size, label, room)
        return found

    def free(self, address: int) -> None:
        """Raises LaunchError if nothing was allocated there."""
        allocation = self._known.get(address)
        if allocation is None or isinstance(allocation.owner, weakref.ref):
            raise LaunchError(f"free of address 0x{address:x}, which is no allocation's first byte")
        del self._known[address]

    def expose(self, address: int, size: int, owner: Any, label: str = "memory whose address was taken") -> None:
        """A program has the address of memory that someone else owns: kernels may touch it for as long as `owner` lives."""
        self._known[address] = Allocation(address, size, label, weakref.ref(owner))

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in."""
        for allocation in self:
            if 0 <= address - allocation.address < max(allocation.size, 1):
                return allocation
        return None

    def __iter__(self) -> Iterator[Allocation]:
        dead = [address for address, allocation in self._known.items() if not allocation.alive]
        for address in dead:
            self._known.pop(address, None)
        return iter(list(self._known.values()))

    def regions(self, given: Iterable[Region] = ()) -> list[Region]:
        """What a kernel may touch: what it is given, and all that the program has the address of. Where they overlap (views of
        one memory) they are one. Raises LaunchError for an address that cannot be one of a kernel's."""
        regions = [r for r in given if r.size]
        if self._known:
            regions += [Region(a.address, a.size, a.label) for a in self if a.size]
        if len(regions) < 2:
            return _checked(regions)
        regions.sort(key=lambda r: r.start)
        merged = [regions[0]]
        for r in regions[1:]:
            last = merged[-1]
            if r.start < last.start + last.size:
                size = max(last.size, r.start + r.size - last.start)
                merged[-1] = Region(last.start, size, last.label, last.writable or r.writable)
            else:
                merged.append(r)
        return _checked(merged)


def _checked(regions: list[Region]) -> list[Region]:
    for r in regions:
        if 0 < r.start >> SLOT_SHIFT < FIRST_GLOBAL_SLOT:
            raise LaunchError(f"{r.label} lies at 0x{r.start:x}, where kernels have shared and local memory")
    return regions


def region_at(regions: list[Region], address: int) -> Region | None:
    """The region that an address lies in. regions: sorted."""
    number = bisect_right(regions, address, key=lambda r: r.start) - 1
    found = regions[number] if number >= 0 else None
    return found if found is not None and address < found.start + found.size else None
