"""Exploration: all orders of the strong accesses of a launch, but for those that differ in nothing that shows.

Each execution is a run of its own, from the same memory, in which `Turns` (turns.py) asks who is next. Two accesses conflict
if they
touch the same bytes and one changes them; executions in which conflicting accesses come in one order are the same. So from an
execution only such others are derived in which two accesses that conflict, and that nothing else orders, come in the other
order: dynamic partial-order reduction with source sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas: POPL 2014). What the
memory model allows besides interleavings is looked for in each execution (weakness.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import factorial, prod
from typing import Any

from mmulator.host.turns import OutOfReach, StrongAccess, Turns, Waiting

MOST = 1000  # executions
DEEP = 4000  # turns of an execution
WORDS = 4  # log2 of the bytes by which accesses are found


class Redundant(Exception):
    """The end of an execution that would be the same as another."""


def buckets(access: StrongAccess) -> Iterator[tuple[int, int]]:
    """Where accesses are kept: two that overlap have one in common."""
    first, last = access.place[1] >> WORDS, (access.place[1] + access.size - 1) >> WORDS
    return ((access.place[0], n) for n in range(first, last + 1))


@dataclass
class ChoicePoint:
    """A choice of an execution.

    ready: threads that could go on.
    sleep: threads that need not, since what they would do first was tried before, and their accesses.
    chosen: who went on. todo: who is to go on in some execution, chosen ones too.
    done: who did in an execution that is over, with the access.
    access: of the one that was chosen.
    """

    ready: set[int]
    sleep: dict[int, StrongAccess]
    chosen: int
    todo: set[int]
    done: dict[int, StrongAccess] = field(default_factory=dict)
    access: StrongAccess | None = None

    def next(self) -> bool:
        """Choose another thread; whether there is one."""
        if self.access is not None:
            self.done[self.chosen] = self.access
        left = sorted((self.todo & self.ready) - self.done.keys() - self.sleep.keys())
        if left:
            self.chosen, self.access = left[0], None
        return bool(left)


class Tree:
    """The executions of a launch that were run and are to be run: a stack of choices, the path to the execution at hand."""

    def __init__(self) -> None:
        self.path: list[ChoicePoint] = []
        self.known: dict[Any, Any] = {}  # Turns.known of all executions
        self.turns = Turns(self._choose, self.known)
        self.over = False  # whether there is no other execution

    def begin(self) -> Turns:
        """The observer of the next execution."""
        self.turns, self.depth = Turns(self._choose, self.known), 0
        return self.turns

    @property
    def order(self) -> tuple[int, ...]:
        """Threads of the execution at hand, in the order of their turns."""
        return tuple(a.thread for a in self.turns.accesses)

    def _choose(self, ready: dict[int, Waiting]) -> int:
        at, accesses = self.depth, self.turns.accesses
        self.depth += 1
        if len(accesses) != at:
            raise OutOfReach("an access that takes a turn did not come to memory")
        parent = self.path[at - 1] if at else None
        if parent is not None:
            parent.access = accesses[-1]
        if at < len(self.path):
            node = self.path[at]
            if node.chosen not in ready and at == len(self.path) - 1:  # as was learned since it was to be chosen, it would wait
                node.ready &= ready.keys()
                raise Redundant
            if node.chosen not in ready:
                raise OutOfReach("the launch did not go the same way again")
            return node.chosen
        if at == DEEP:
            raise OutOfReach(f"one schedule has more than {DEEP:,} accesses that others may change")
        sleep: dict[int, StrongAccess] = {}
        if parent is not None and parent.access is not None:
            before = parent.sleep | parent.done
            sleep = {t: a for t, a in before.items() if t != parent.chosen and not a.conflicts(parent.access)}
        awake = [t for t in ready if t not in sleep]
        if not awake:
            raise Redundant
        last = accesses[-1].thread if accesses else -1
        chosen = last if last in awake else awake[0]
        self.path.append(ChoicePoint(set(ready), sleep, chosen, {chosen}))
        return chosen

    def forget(self) -> bool:
        """Go back before the turn in which a thread did nothing: it would have waited, had that been known. Whether there is
        another execution.
        """
        at = self.turns.learned - 1
        self.derive(at + 1)
        del self.path[at + 1 :]
        node = self.path[at]
        node.ready.discard(node.chosen)
        node.access = None
        if not node.done:
            del self.path[at:]
            return True
        return self.next()

    def next(self) -> bool:
        """Go to the next execution; whether there is one."""
        while self.path and not self.path[-1].next():
            self.path.pop()
        self.over = not self.path
        return not self.over

    def derive(self, end: int | None = None) -> None:
        """Note the executions in which two accesses of the one at hand, before `end`, come in the other order."""
        accesses = self.turns.accesses[:end]
        if end is None and len(accesses) == len(self.path) > 0:
            self.path[-1].access = accesses[-1]
        before, races = dependences(accesses, self.known)
        for i, j in races:
            node = self.path[i]
            rest = [k for k in range(i + 1, j) if not before[k] >> i & 1] + [j]
            mask = sum(1 << k for k in rest)
            first = {accesses[k].thread for k in rest if before[k] & mask == 1 << k} & node.ready
            if first and not first & (node.todo | node.sleep.keys()):
                node.todo.add(min(first))


def dependences(accesses: Sequence[StrongAccess], known: Container[Any]) -> tuple[list[int], list[tuple[int, int]]]:
    """For each access the set (a mask) of those that must come before it, itself too; and the pairs that conflict, of different
    threads, with nothing between them that orders them. A thread that waited for the value that it reads (its state is `known`)
    might have read any of those before.
    """
    before: list[int] = []
    races: list[tuple[int, int]] = []
    threads: dict[int, int] = {}
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for j, access in enumerate(accesses):
        mask = own = threads.get(access.thread, 0)
        waits = access.state in known
        near = {i for bucket in buckets(access) for i in places[bucket]}
        for i in sorted(near, reverse=True):
            if not (own if waits else mask) >> i & 1 and accesses[i].conflicts(access):
                races.append((i, j))
                mask |= before[i]
        mask |= 1 << j
        before.append(mask)
        threads[access.thread] = mask
        for bucket in buckets(access):
            places[bucket].append(j)
    return before, races


def estimate(accesses: Iterable[StrongAccess]) -> int:
    """About how many executions there are, from one of them: for each place the orders of its accesses by different threads."""
    places: dict[tuple[int, int], list[StrongAccess]] = defaultdict(list)
    for access in accesses:
        for bucket in list(buckets(access))[:1]:
            places[bucket].append(access)
    found = []
    for here in places.values():
        alike = len({a.like for a in here}) == 1 and here[0].like
        if any(a.writes for a in here) and not alike:
            by = Counter(a.thread for a in here)
            found.append(factorial(len(here)) // prod(map(factorial, by.values())))
    return prod(found)
