"""Executions that the memory model of PTX allows a launch besides interleavings, looked for in executions that are interleavings.

An execution of the model that is none has a shortest beginning that is none. Its last access is one of

- a read of a value, or a store put before a store, that is older than what interleavings show: although a later store comes
before the
  access by program order and by what threads have seen of each other, nothing that the model knows (release, acquire, fences,
  barriers, coherence) makes it come before. `Weakness.look` says where;
- a read of a store that comes only later (load buffering): threads read and then store in a circle, without acquire and
  release, or a fence, between the two. `Weakness.circles` says where.

If there is neither in any interleaving, all executions are interleavings. What is not known to order counts as no order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmulator.host.exploration import buckets
from mmulator.host.turns import FenceStep, Join, Meeting, Step, StrongAccess
from mmulator.runtime.native.hooks.events import Order

CTA, CLUSTER, GPU = 1, 2, 3  # levels of scopes
TRIES = 20_000  # steps of a search for circles; where they do not suffice, there may be one


@dataclass(frozen=True, slots=True)
class Release:
    """An order that a store hands over: the accesses (a mask) that come before what its reader acquires."""

    before: int
    scope: int
    by: StrongAccess


def between(one: StrongAccess, other: StrongAccess) -> int:
    """The narrowest scope that has both threads in it."""
    return CTA if one.cta == other.cta else CLUSTER if one.cluster == other.cluster else GPU


@dataclass(slots=True)
class Way:
    """A read and a later store to another place. released: whether who acquires from the store knows of the read. acquired:
    whether the read has acquired what the store comes after.
    """

    released: bool
    acquired: bool
    read: StrongAccess
    store: StrongAccess


@dataclass
class Weakness:
    """Weak points of the executions so far.

    older: (access, the store that it may come before), one for each pair of instructions.
    mixed: accesses of one place with different sizes.
    ways: (place read, place stored to later, who read, who stored) -> such a read and store.
    """

    older: dict[tuple[int, int], tuple[StrongAccess, StrongAccess]] = field(default_factory=dict)
    mixed: dict[tuple[int, int], tuple[StrongAccess, StrongAccess]] = field(default_factory=dict)
    ways: dict[tuple[Any, Any, int, int], Way] = field(default_factory=dict)

    def look(self, steps: Sequence[Step], known: Mapping[Any, Any]) -> None:
        """Look at an execution. known: as of Turns."""
        _Look(self, known).run(steps)

    def circles(self) -> Iterator[tuple[StrongAccess, StrongAccess]]:
        """A read and a later store, if threads could each read what another stores only later: part of a circle in which at
        least two
        of the stores are not handed over by release and acquire (with one, a read would see what it causes). A shortest
        circle comes to each thread once.
        """
        after = {one: [other for other in self.ways if one[1] == other[0] and one[3] != other[2]] for one in self.ways}
        order = {way: n for n, way in enumerate(self.ways)}
        tries = 0
        for first in self.ways:
            waiting = [(first, 0, frozenset([first[2:]]))]
            while waiting:
                at, loose, threads = waiting.pop()
                tries += 1
                for other in after[at]:
                    more = loose + (not (self.ways[at].released and self.ways[other].acquired))
                    if (other == first and more > 1) or tries > TRIES:
                        yield self.ways[first].read, self.ways[first].store
                        return
                    if other[2:] not in threads and order[other] > order[first]:
                        waiting.append((other, more, threads | {other[2:]}))


class _Look:
    """One execution, step by step. Sets of accesses are masks, by their number in it.

    known_to: of a thread, the accesses that come before its next one in causality order, as far as that is known.
    seen_by: those that come before it in some way: program order, what it could hear of others, reads and stores before it.
    own: the same without reads and stores of other threads.
    """

    def __init__(self, found: Weakness, known: Mapping[Any, Any]) -> None:
        self.found, self.known = found, known
        self.accesses: list[StrongAccess] = []
        self.known_to: dict[int, int] = defaultdict(int)
        self.seen_by: dict[int, int] = defaultdict(int)
        self.own: dict[int, int] = defaultdict(int)
        self.fenced: dict[int, dict[int, int]] = defaultdict(dict)  # of a thread: scope of a fence -> what came before it
        self.pending: dict[int, list[tuple[int, Release, Any]]] = defaultdict(list)  # what a fence of the thread would acquire
        self.unfenced: dict[int, int] = defaultdict(int)  # reads of a thread that neither acquire nor were followed by a fence
        self.acquired = 0  # reads that acquire, or that a fence has followed
        self.threads: dict[int, set[int]] = defaultdict(set)  # of a cluster
        self.places: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.readers: dict[tuple[tuple[int, int], int], int] = defaultdict(int)
        self.seen: list[int] = []  # of each access: what comes before it in some way, itself too
        self.released: list[list[Release]] = []

    def run(self, steps: Sequence[Step]) -> None:
        accesses = [step for step in steps if isinstance(step, StrongAccess)]
        self.widest = max((between(accesses[0], a) for a in accesses), default=CTA)  # the scope of all
        for step in steps:
            if isinstance(step, StrongAccess):
                self.access(step)
            elif isinstance(step, FenceStep):
                self.fence(step)
            elif isinstance(step, Meeting):
                every = 0
                for thread in step.threads:
                    every |= self.known_to[thread]
                for thread in step.threads:
                    self.known_to[thread] = every
            elif isinstance(step, Join):
                self.join(step)

    def join(self, step: Join) -> None:
        threads = self.threads[step.cluster]
        for table in (self.seen_by, self.own):
            every = 0
            for thread in threads:
                every |= table[thread]
            for thread in threads:
                table[thread] = every
            table[-1 - step.cluster] = every  # threads that come to their first access later

    def fence(self, step: FenceStep) -> None:
        for thread in step.threads:
            for need, release, _ in self.pending[thread]:
                if step.scope >= need:
                    self.known_to[thread] |= release.before
            if step.scope >= self.widest:
                self.acquired |= self.unfenced.pop(thread, 0)
            self.fenced[thread][step.scope] = self.known_to[thread]

    def access(self, a: StrongAccess) -> None:
        n, t = len(self.accesses), a.thread
        bit = 1 << n
        if t not in self.threads[a.cluster]:
            self.threads[a.cluster].add(t)
            for table in (self.seen_by, self.own):
                table[t] |= table[-1 - a.cluster]
        near = sorted({i for bucket in buckets(a) for i in self.places[bucket]})
        here = [i for i in near if _overlap(self.accesses[i], a)]
        stores = [i for i in here if self.accesses[i].writes]
        for i in here:
            other = self.accesses[i]
            if (other.place, other.size) != (a.place, a.size) and other.thread != t and (other.writes or a.writes):
                self.found.mixed.setdefault((other.site, a.site), (other, a))
        self.compare(a, here, stores)
        self.accesses.append(a)
        seen = self.seen_by[t] | bit
        for i in here if a.writes else stores:
            seen |= self.seen[i]
        release: list[Release] = []
        if a.reads and stores:
            release = self.read(a, self.released[stores[-1]])
        if a.reads:
            self.readers[a.place, t] |= bit
            if a.order & Order.ACQUIRE and a.scope >= self.widest:
                self.acquired |= bit | self.readers[a.place, t]
            else:
                self.unfenced[t] |= bit
        self.known_to[t] |= bit
        if a.writes:
            if a.order & Order.RELEASE:
                release = [*release, Release(self.known_to[t], a.scope, a)]
            release = [*release, *(Release(mask, min(scope, a.scope), a) for scope, mask in self.fenced[t].items())]
            self.note_ways(a)
        self.released.append(release if a.writes else [])
        self.seen.append(seen)
        self.seen_by[t] = seen
        self.own[t] |= bit
        for bucket in buckets(a):
            self.places[bucket].append(n)

    def compare(self, a: StrongAccess, here: Sequence[int], stores: Sequence[int]) -> None:
        """Look for a store that the access may come before, although it comes later."""
        known, seen = self.known_to[a.thread], self.seen_by[a.thread]
        last = max((i for i in here if known >> i & 1), default=-1)
        later = [i for i in stores if i > last]
        wrong = [i for i in later if seen >> i & 1]
        if a.writes:  # nothing comes between an atomic operation and the store that it has read
            later = [i for i in later if not self.accesses[i].reads and i <= max(wrong, default=-1)]
            wrong = later
        if not wrong:
            return
        if a.reads and a.state in self.known and {self.accesses[i].old for i in later} <= self.known[a.state][1]:
            return  # the thread would look again
        store = self.accesses[wrong[-1]]
        self.found.older.setdefault((a.site, store.site), (a, store))

    def read(self, a: StrongAccess, found: list[Release]) -> list[Release]:
        """Take over what a store hands over; what an atomic operation hands on."""
        for release in () if a.like else found:  # of sums that commute one order was run: it is none
            need = between(release.by, a)
            if min(release.scope, a.scope) >= need:
                if a.order & Order.ACQUIRE:
                    self.known_to[a.thread] |= release.before
                else:
                    self.pending[a.thread].append((need, release, a.place))
        if a.order & Order.ACQUIRE:  # for earlier reads of the place, too
            for need, release, place in self.pending[a.thread]:
                if place == a.place and a.scope >= need:
                    self.known_to[a.thread] |= release.before
        return found if a.writes else []

    def note_ways(self, a: StrongAccess) -> None:
        """Note which reads come before a store, and what hands their order on."""
        wide = a.scope >= self.widest
        safe = self.known_to[a.thread] if a.order & Order.RELEASE and wide else 0
        for scope, mask in self.fenced[a.thread].items():
            safe |= mask if scope >= self.widest and wide else 0
        before, known = self.own[a.thread], self.known_to[a.thread] & self.acquired
        for (place, thread), readers in self.readers.items():
            if place != a.place and (mine := readers & before):
                way = self.found.ways.setdefault(
                    (place, a.place, thread, a.thread), Way(True, True, self.accesses[mine.bit_length() - 1], a)
                )
                way.released = way.released and not mine & ~safe
                way.acquired = way.acquired and not mine & ~known


def _overlap(one: StrongAccess, other: StrongAccess) -> bool:
    a, b = one.place[1], other.place[1]
    return one.place[0] == other.place[0] and a < b + other.size and b < a + one.size
