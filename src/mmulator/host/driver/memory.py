"""Device memory: memory of the host, at its own addresses. What was allocated here, and what a program has the address of."""

from __future__ import annotations

import time
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from threading import get_ident
from typing import Any

import numpy as np

from mmulator.base.codegen.locks import Lock, at_fork
from mmulator.base.errors import LaunchError
from mmulator.runtime.launch.arena import bytes_at, reserve
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.regions import FREED, NONE, WINDOW, Region, Regions, Unfilled, Written, merged, pointer, room_behind

ALIGN = 512  # of an allocation, as cudaMalloc's
GAP = 4096  # bytes behind an allocation that are nobody's
POISON = 0xCD  # what fresh memory holds; nobody may count on zeros
POLL = 0.0005  # seconds
RESERVED = 1 << 40  # bytes of addresses that are reserved at a time
LARGE = 1 << 28  # bytes from which on it is as the system gives it: no page is there before it is used
# Kinds of memory, by which allocations are named.
DEVICE_KIND, PINNED, REGISTERED, MANAGED = "device memory", "pinned memory", "registered memory", "managed memory"

lenders: list[Callable[[], Sequence[Region]]] = []  # of libraries whose addresses programs of C++ give to kernels unseen
namers: list[Callable[[], Sequence[Any]]] = []  # of libraries: arrays (DeviceArray) among the arguments of the launch under way
# Memory of libraries that was filled when it was allocated, by address: its size, and the 8 bytes that it was filled with.
unfilled: dict[int, tuple[int, int]] = {}
numbers: dict[int, int] = {}  # of allocations, by address: from 1 on, in the order in which they were made
makers: dict[int, Callable[[], str]] = {}  # that say where the program made an allocation, by its address
_number = count(1)


def lent_memory() -> Sequence[Region]:
    """The memory of the lenders, all of which a launch of native code is given."""
    return [region for lender in lenders for region in lender()] if lenders else ()


def named_arrays() -> list[Any]:
    """The arrays among the arguments of the launch under way, as far as the namers know them."""
    return [array for namer in namers for array in namer()]


class Memory:
    """The allocations, and the memory of others whose address the program has."""

    def __init__(self) -> None:
        self._allocated: dict[int, Allocation] = {}  # by address
        self._exposed: dict[tuple[int, int, int], Allocation] = {}  # by address, size and identity of the owner
        self._pieces, self._lock = Pieces(), Lock()  # both, but for those whose owner has died since
        self.watched = False  # there are, or were, allocations of which it is followed what has been written
        self._launches: dict[object, int] = {}  # under way, and the thread of each
        at_fork(after_in_child=self._launches.clear)
        self._next = self._last_hidden = 0  # addresses that are reserved for hidden memory
        self._hides = False  # there are, or were, allocations whose bytes are elsewhere on the host
        self._dead: deque[Allocation] = deque()  # these: owners die at any time, in any thread
        # Pieces that a launch was given, what else there was, and the table of all.
        self._last: tuple[list[tuple[int, int, bool, int]], Regions, Regions] = [], NONE, NONE

    def allocate(
        self, size: int, label: str = "an allocation", watched: bool = False, hidden: bool = False,
        place: Callable[[], str] = str, align: int = ALIGN,
    ) -> Allocation:  # fmt: skip
        """Fresh memory, with bytes behind it that no kernel may touch. Nothing in it may be counted on.

        size: in bytes.
        label: how messages name it.
        watched: it is followed which of its bytes have been written; who writes there on the host says so (`wrote`, `copied`).
        hidden: the program's address is none of the host's, as on a GPU; `host_place` says where the bytes are.
        place: says from where the program has called.
        align: of its address on the host.
        """
        room = np.empty(size + align + GAP, np.uint8)
        if size < LARGE:
            room.fill(POISON)
        address = pointer(room)
        host = address + -address % align
        address = self._reserve(size) if hidden else host
        self._hides = self._hides or hidden
        numbers[address], makers[address] = next(_number), place
        found = self._allocated[address] = Allocation(address, size, label, True, room_behind(size), room, host)
        if watched:
            found.written, self.watched = Written(blank(size, np.dtype(np.uint8))), True
        with self._lock:
            self._pieces.add(found)
        return found

    def _reserve(self, size: int) -> int:
        """An address for hidden memory: pages of the process that nobody can read or write. Raises MemoryError without room."""
        size = -(-(size + GAP) // ALIGN) * ALIGN
        with self._lock:
            if self._next + size > self._last_hidden:
                room = max(RESERVED, size)
                try:
                    self._next = reserve(room)
                except MemoryError:  # a limit of the process
                    room = max(RESERVED >> 10, size)
                    self._next = reserve(room)
                self._last_hidden = self._next + room
            self._next += size
            return self._next - size

    def host_place(self, address: int, size: int) -> int:
        """Where bytes are on the host. Raises LaunchError for bytes behind the end of hidden memory."""
        if not self._hides:
            return address
        found = self.find(address)
        if found is None or found.host == found.start:
            return address
        if address + size > found.end:
            raise LaunchError(f"{size} bytes at 0x{address:x} leave {found.label}, which has {found.end - address} there")
        return address - found.start + found.host

    def free(self, address: int, place: Callable[[], str] = str) -> int:
        """No launch that begins from now on may touch it; those that are under way keep it until they end. Returns how many bytes
        it had. place: says from where the program has called. Raises LaunchError if nothing was allocated there."""
        found = self._allocated.pop(address, None)
        if found is None:
            raise LaunchError(f"free of address 0x{address:x}, which is no allocation's first byte")
        with self._lock:
            self._pieces.remove(found)
            self._last = [], NONE, NONE  # which has it still
        FREED.append((range(found.start, found.end), found.label, place))
        return found.size

    def put_back(self, found: Allocation) -> None:
        """Allocate memory again that was freed, at its address; nothing in it may be counted on."""
        if found.size < LARGE:
            found.bytes().fill(POISON)
        if found.written is not None:
            found.written = Written(blank(found.size, np.dtype(np.uint8)))
        self.exchange((), (found,))

    def exchange(self, old: Iterable[Allocation], new: Iterable[Allocation]) -> None:
        """Put other allocations in the place of some, at one moment for launches that begin."""
        with self._lock:
            for a in old:
                del self._allocated[a.address]
                self._pieces.remove(a)
            for a in new:
                self._allocated[a.address] = a
                self._pieces.add(a)
                self._hides = self._hides or a.host != a.start
            self._last = [], NONE, NONE

    def wrote(self, address: int, size: int) -> None:
        """The host has written bytes, which are an allocation's or not."""
        if self.watched and (a := self._watched_at(address)) is not None and a.written is not None:
            a.written.mark(address - a.address, size)

    def copied(self, to: int, source: int, size: int) -> None:
        """Bytes were copied, each end the host's or an allocation's: what nobody had written is no more written there."""
        if not self.watched or (a := self._watched_at(to)) is None or a.written is None:
            return
        b = self._watched_at(source)
        marks = b.written.of(source - b.address, size) if b is not None and b.written is not None else None
        if marks is None:
            a.written.mark(to - a.address, size)
        else:
            a.written.take(to - a.address, marks[: a.end - to])

    def _watched_at(self, address: int) -> Allocation | None:
        found = self.find(address)
        return found if found is not None and found.written is not None else None

    def unwatch(self) -> None:
        """Something runs that writes what it likes, and tells nobody: all that there is has values."""
        if self.watched:
            self.watched = False
            for a in list(self._allocated.values()):
                if a.written is not None:
                    a.written.forget()

    def follow(self, regions: Regions) -> None:
        """In a launch, follow what is read of memory that a library has filled and nobody written since."""
        for r in regions if unfilled else ():
            size, word = unfilled.get(r.start, (0, 0))
            if r.size == size and (r.written is None or isinstance(r.written, Unfilled)):
                r.written = Unfilled(bytes_at(r.host, size), word)

    def expose(
        self, address: int, size: int, owner: Any, label: str = "memory whose address was taken", *, whole: bool = False,
        now: Callable[[Any], tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        """A program has the address of memory that someone else owns: kernels may touch it for as long as `owner` lives.

        address: of its first byte. size: in bytes. whole: its allocator gave out whole words. now: of the owner, where its memory
        begins and how many bytes it has by now, if it may put it elsewhere: then it is a kernel's no more.
        """
        key = address, size, id(owner)
        known = self._exposed.get(key)
        if known is not None and known.owner() is not owner:
            self._forget(key, known)
            known = None
        if known is None:

            def gone(_: object) -> None:
                self._forget(key, made)

            room = room_behind(size) if whole else 0
            made = self._exposed[key] = Allocation(address, size, label, True, room, weakref.ref(owner, gone), now=now)
            with self._lock:
                self._pieces.add(made)

    def _forget(self, key: tuple[int, int, int], made: Allocation) -> None:
        """In any thread, at any time."""
        if self._exposed.get(key) is made:
            self._exposed.pop(key, None)
            FREED.append((range(made.start, made.end), made.label, str))
        self._dead.append(made)

    def _hold(self) -> list[Any]:
        """The owners of what is exposed, alive for as long as the list is; without those that have moved their memory."""
        found = []
        for key, a in list(self._exposed.items()):
            owner = a.owner()
            if a.holds(owner):
                found.append(owner)
            else:
                self._forget(key, a)
        return found

    def begin(self) -> object:
        """A launch of this thread begins; what to `end`."""
        mine = object()
        self._launches[mine] = get_ident()
        return mine

    def end(self, launch: object) -> None:
        self._launches.pop(launch, None)

    def settle(self) -> None:
        """Wait until the launches that other threads have under way are over, as CUDA's driver does before memory goes."""
        others = [launch for launch, thread in list(self._launches.items()) if thread != get_ident()]
        while any(launch in self._launches for launch in others):
            time.sleep(POLL)

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in, or what else is known there."""
        if (found := self.known(address)) is not None:
            return found
        lent = next((r for r in lent_memory() if r.start <= address < r.end), None)
        return Allocation(lent.start, lent.size, lent.label, True, lent.room) if lent else None

    def known(self, address: int) -> Allocation | None:
        """The allocation that an address lies in, or the memory there whose address a program has."""
        if (first := self._allocated.get(address)) is not None:
            return first
        with self._lock:
            found = self._living().find(address)
        if found is None or found.alive:
            return found
        self._hold()
        return self.known(address)

    def __iter__(self) -> Iterator[Allocation]:
        return iter([*self._allocated.values(), *(a for a in list(self._exposed.values()) if a.alive)])

    def _living(self) -> Pieces:
        """Without those whose owner has died. The lock is held."""
        while self._dead:
            self._pieces.remove(self._dead.popleft())
        return self._pieces

    def regions(self, given: Sequence[Region] = ()) -> Regions:
        """Memory that a kernel may touch: what it is given, and all that the program has the address of. Where they overlap
        (views of one memory) they are one. Raises LaunchError for memory that cannot be a kernel's."""
        if not self._allocated and not self._exposed:
            return self._with(given, NONE).for_launch(given)
        if not given and not self._exposed and not self._dead and (known := self._pieces.whole) is not None:
            return known
        held = self._hold() if self._exposed else ()
        with self._lock:
            whole = self._living().regions()
            if not all(map(whole.has, given)):
                whole = self._with(given, whole)
        return whole.for_launch(given, held)

    def _with(self, given: Sequence[Region], others: Regions) -> Regions:
        """The table of pieces that a launch is given, and of all others."""
        pieces = [(r.start, r.size, r.writable, r.room) for r in given]
        before, beside, found = self._last
        if pieces != before or beside is not others:  # programs launch again on the same memory
            if others:
                both = self._pieces.copy()
                for r in given:
                    both.add(Allocation(r.start, r.size, r.label, r.writable, r.room))
                found = both.regions()
            else:
                found = merged(given)
            self._last = pieces, others, found
        return found


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
        """The memories as launches read them; what changes later does not change it. Raises LaunchError for memory that cannot
        be a kernel's."""
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
