"""The exploration of interleavings, against all interleavings of small programs, counted one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mmulator.host import exploration
from mmulator.host.exploration import Redundant, Tree
from mmulator.host.turns import StrongAccess

# (place, what): r reads, w stores a number of its own, a adds 1 and does not look, s adds 1 and sees what was there,
# l waits until the place is 0 and makes it 1, u makes it 0, t waits until it is 2 or more
Op = tuple[int, str]
Program = tuple[tuple[Op, ...], ...]


@dataclass
class Machine:
    """A program at work."""

    program: Program
    memory: list[int] = field(default_factory=lambda: [0, 0, 0])
    pcs: list[int] = field(default_factory=list)
    saw: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pcs, self.saw = [0] * len(self.program), [[] for _ in self.program]

    def left(self) -> list[int]:
        return [t for t, ops in enumerate(self.program) if self.pcs[t] < len(ops)]

    def would_spin(self, t: int) -> bool:
        place, what = self.program[t][self.pcs[t]]
        return (what == "l" and self.memory[place] != 0) or (what == "t" and self.memory[place] < 2)

    def step(self, t: int) -> StrongAccess:
        place, what = self.program[t][self.pcs[t]]
        old = self.memory[place]
        spins = self.would_spin(t)
        new = {"w": 10 + 10 * t + self.pcs[t], "a": old + 1, "s": old + 1, "u": 0, "l": 1}.get(what, old)
        new = old if spins else new
        state = (t, self.pcs[t], tuple(self.saw[t]))
        writes = what in "wasu" or (what == "l" and not spins)
        like = "add" if what == "a" else ""
        at = (0, 16 * place)
        access = StrongAccess(t, t, t, 0, at, 4, what in "raslt", writes, 0, 3, like, bytes([old]), bytes([new]), state)
        self.memory[place] = new
        if not spins:
            self.pcs[t] += 1
            if what in "rs":
                self.saw[t].append(old)
        return access

    def end(self) -> Any:
        return tuple(self.memory), tuple(map(tuple, self.saw)), tuple(self.left())


def copied(m: Machine) -> Machine:
    other = Machine(m.program)
    other.memory, other.pcs, other.saw = [*m.memory], [*m.pcs], [[*s] for s in m.saw]
    return other


def every(program: Program) -> tuple[set[Any], set[Any]]:
    """All ends of a program, and all executions, where those are one that differ in nothing that shows."""
    ends, classes = set[Any](), set[Any]()

    def follow(m: Machine, done: list[StrongAccess]) -> None:
        ready = [t for t in m.left() if not m.would_spin(t)]
        if not ready:
            ends.add(m.end())
            if not m.left():
                classes.add(shape(done))
        for t in ready:
            after = copied(m)
            follow(after, [*done, after.step(t)])

    follow(Machine(program), [])
    return ends, classes


def shape(done: list[StrongAccess]) -> Any:
    """The order of accesses that conflict."""
    names, counts = [], dict[int, int]()
    for a in done:
        counts[a.thread] = counts.get(a.thread, 0) + 1
        names.append((a.thread, counts[a.thread]))
    pairs = ((i, j) for j in range(len(done)) for i in range(j))
    return frozenset((names[i], names[j]) for i, j in pairs if done[i].conflicts(done[j]))


class FakeTurns:
    """Turns without a launch."""

    def __init__(self, choose: Callable[[dict[int, Any]], int], known: dict[Any, Any]) -> None:
        self.choose, self.known, self.accesses, self.learned = choose, known, list[StrongAccess](), 0

    def run(self, m: Machine) -> bool:
        """Whether the program came to its end."""
        while left := m.left():
            ready = {}
            for t in left:
                place, _ = m.program[t][m.pcs[t]]
                known = self.known.get((t, m.pcs[t], tuple(m.saw[t])))
                if known is None or bytes([m.memory[place]]) not in known[1]:
                    ready[t] = None
            if not ready:
                return False
            t = self.choose(ready)
            spins = m.would_spin(t)
            access = m.step(t)
            self.accesses.append(access)
            if spins:
                self.known.setdefault(access.state, (access.place, set()))[1].add(access.old)
                self.learned = self.learned or len(self.accesses)
        return True


def explored(program: Program) -> tuple[set[Any], set[Any], int]:
    """Ends, executions and their number, as the exploration finds them."""
    ends, classes, count = set[Any](), set[Any](), 0
    tree: Any = Tree()
    while True:
        turns, m = tree.begin(), Machine(program)
        try:
            ended = turns.run(m)
        except Redundant:
            tree.derive()
            if not tree.next():
                return ends, classes, count
            continue
        if turns.learned:
            if not tree.forget():
                return ends, classes, count
            continue
        ends.add(m.end())
        count += ended
        if ended:
            classes.add(shape(turns.accesses))
        tree.derive()
        if not tree.next():
            return ends, classes, count


def programs(kinds: str, number: int) -> Iterator[Program]:
    chance = random.Random(7)
    for _ in range(number):
        threads = chance.choice([2, 3])
        yield tuple(
            tuple((chance.randrange(2), chance.choice(kinds)) for _ in range(chance.randint(1, 3))) for _ in range(threads)
        )


@pytest.mark.parametrize("kinds", ["rw", "ras", "rwas", "lu", "rwlu", "wat", "rlut", "llu", "sst", "at"])
def test_the_exploration_finds_each_execution_once(kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "Turns", FakeTurns)
    for program in programs(kinds, 150):
        ends, classes = every(program)
        found, shapes, count = explored(program)
        if any(left for _, _, left in ends):  # one deadlock is as good as all
            assert any(left for _, _, left in found), program
            continue
        assert found == ends, program
        assert shapes == classes, program
        if "l" not in kinds and "t" not in kinds:
            assert count == len(classes), program
