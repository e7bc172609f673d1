"""Pieces of memory in the order of their addresses, that come and go one by one: what one costs depends on no other."""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.launch.arena import bytes_at
from mmulator.launch.regions import WINDOW, Region, Regions

if TYPE_CHECKING:
    pass


@dataclass(eq=False, slots=True)
class Allocation(Region):
    """Memory that a program has the address of.

    owner: what keeps it alive: the array if it was allocated here, a weak reference if it is someone else's.
    now: of an owner, where its memory begins and how many bytes it has by now; None: it stays where it was.
    """

    now: Callable[[Any], tuple[int, int]] | None = None

    @property
    def address(self) -> int:
        """The address of its first byte."""
        return self.start

    @property
    def foreign(self) -> bool:
        return isinstance(self.owner, weakref.ref)

    @property
    def alive(self) -> bool:
        """Whether its owner lives, and has its memory where it was."""
        return not self.foreign or self.holds(self.owner())

    def holds(self, owner: Any) -> bool:
        """`alive`, of an owner (None: it has died) that is held meanwhile."""
        return owner is not None and (self.now is None or self.now(owner) == (self.start, self.size))

    def bytes(self) -> np.ndarray:
        """A view as uint8[size]."""
        return bytes_at(self.host, self.size)


class Pieces:
    """Where allocations overlap (views of one memory) they are one region, by the label of the one that begins first."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # of the regions; these; what each is made of; and all as native code reads them
        self._regions: list[Region] = []
        self._parts: list[list[Allocation]] = []
        self._words = array("Q", (0, 0, 0, 0))
        self.whole: Regions | None = None  # what `regions` gives; None after a change

    def copy(self) -> Pieces:
        made = Pieces()
        made._starts, made._regions, made._parts, made._words = (
            self._starts[:], self._regions[:], self._parts[:], self._words[:],
        )  # fmt: skip
        return made

    def add(self, a: Allocation) -> None:
        """Add an allocation; one of no bytes is left out."""
        if not a.size:
            return
        first, behind = bisect_right(self._starts, a.start), bisect_left(self._starts, a.end)
        if first and self._regions[first - 1].end > a.start:
            first -= 1
        behind = max(behind, first)
        others = [a for parts in self._parts[first:behind] for a in parts]
        self._put(first, behind, _groups([*others, a]) if others else [[a]])

    def remove(self, a: Allocation) -> None:
        """One that was added; of one that is gone already, nothing."""
        at = bisect_right(self._starts, a.start) - 1
        if at >= 0 and a in self._parts[at]:
            self._put(at, at + 1, _groups([other for other in self._parts[at] if other is not a]))

    def _put(self, first: int, behind: int, found: list[list[Allocation]]) -> None:
        """In the place of some regions, what these groups are."""
        regions = [_region(group) for group in found]
        self._starts[first:behind] = [r.start for r in regions]
        self._regions[first:behind] = regions
        self._parts[first:behind] = found
        words = array("Q")
        for r in regions:
            words.extend(r.words)
        self._words[4 * first + 4 : 4 * behind + 4] = words
        self.whole = None

    def find(self, address: int) -> Allocation | None:
        """The memory that an address lies in; allocations go before memory of others."""
        at = bisect_right(self._starts, address) - 1
        found = [a for a in self._parts[at] if a.start <= address < a.end] if at >= 0 else []
        return min(found, key=lambda a: a.foreign, default=None)

    def regions(self) -> Regions:
        """As launches read them; what changes later does not change it. Raises LaunchError for memory that cannot be a
        kernel's."""
        if self.whole is None:
            made = Regions.of(self._regions, np.array(self._words, np.uint64).view(WINDOW))
            made.owners = [a.owner for parts in self._parts for a in parts if not a.foreign]
            self.whole = made  # complete: `Memory.regions` reads it without the lock
        return self.whole


def _groups(parts: list[Allocation]) -> list[list[Allocation]]:
    """Allocations that overlap, together."""
    found: list[list[Allocation]] = []
    end = 0
    for a in sorted(parts, key=lambda a: a.start):
        if not found or a.start >= end:
            found.append([])
        found[-1].append(a)
        end = max(end, a.end)
    return found


def _region(group: Iterable[Allocation]) -> Region:
    """The region of allocations that overlap, in their order. Another owner of one may write it when nobody looks."""
    first, *others = group
    if not others:
        return Region(first.start, first.size, first.label, first.writable, first.room, None, first.host, first.written)
    for a in (first, *others):
        if a.written is not None:
            a.written.forget()
    end, writable, room = first.end, first.writable, first.room
    for a in others:
        writable = writable or a.writable
        if a.end >= end:
            end, room = a.end, max(a.room, room if a.end == end else 0)
    return Region(first.start, end - first.start, first.label, writable, room)
