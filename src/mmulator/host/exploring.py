"""The verdict of an exploration: whether all interleavings of a launch's strong accesses end alike, and what else it may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mmulator.base.errors import ExecutionFault
from mmulator.host.campaign import Snapshot
from mmulator.host.certificate import (
    COUNTEREXAMPLE,
    EXPLORED,
    INPUTS,
    VERY_MANY,
    Certificate,
    Schedule,
    first_look,
    number,
    of_fault,
    reason,
)
from mmulator.host.exploration import Redundant, Tree, estimate
from mmulator.host.report import Report
from mmulator.host.taking import Takeovers, asks_for_work, number_of_ways, ways
from mmulator.host.turns import NotedOrder, OutOfReach, StrongAccess, Turns
from mmulator.host.weakness import Weakness
from mmulator.runtime.launch.launch import How
from mmulator.runtime.launch.observers import Observer

MOST, FEW = 1000, 30  # interleavings that are run; where there are about FAR or more
FAR = 100 * MOST
TURNS, WORK = 20_000, 20_000_000  # turns, and instructions of warps, of all runs
RUNS = 3 * MOST  # runs for them: some are given up, since they would be the same as others
THIN_AIR = "no value comes out of thin air: what a thread stores does not depend on a value that it causes itself to read"
IN_ORDER = "blocks that have not begun are begun, and taken over, in the order of their numbers"
VECTORS = "a strong access to an aligned vector of at most 16 bytes is one access"


def explored(
    found: Certificate, in_turns: Callable[[Any], Report], memory: Snapshot, first: Schedule,
    progress: Callable[[int, int], object] | None = None, takeovers: bool = False,
) -> Certificate:  # fmt: skip
    """The certificate of a launch whose only open points are the orders of strong accesses.

    found: its certificate so far.
    in_turns: launches under the sanitizer, with an observer that gives turns.
    memory: what the launch may write; it holds what the first schedule left.
    first: the first schedule.
    progress: is called with interleavings that have been run, and about how many there are.
    takeovers: the open point is which cluster takes over whose work.
    """
    run = (_Partition if takeovers else _Exploration)(found, in_turns, memory, first, progress)
    try:
        return run.verdict()
    except OutOfReach as why:
        return run.open(str(why))
    except KeyboardInterrupt:
        return run.open(f"interrupted: explored {run.count:,} of {number(run.about)} interleavings")


class _Exploration:
    """The runs of an exploration. count: interleavings that were run to their end. about: how many there are, about."""

    def __init__(
        self, found: Certificate, in_turns: Callable[[Any], Report], memory: Snapshot, first: Schedule,
        progress: Callable[[int, int], object] | None,
    ) -> None:  # fmt: skip
        self.found, self.in_turns, self.memory, self.first, self.progress = found, in_turns, memory, first, progress
        self.tree, self.weak, self.count, self.about = Tree(), Weakness(), 0, 0
        self.taken = self.executed = 0  # turns, and instructions of warps, of all runs
        self.rests_on = dict.fromkeys((INPUTS, *found.rests_on[1:], THIN_AIR))

    def open(self, *why: Any) -> Certificate:
        """The certificate of a launch that is not decided."""
        reasons = (*(reason(w) if isinstance(w, str) else w for w in why), *self.found.reasons)
        return replace(
            self.found, reasons=reasons, tried=self.found.tried + self.count, about=self.about, rests_on=(*self.rests_on,)
        )

    def verdict(self) -> Certificate:
        """The certificate. Raises OutOfReach."""
        for _ in range(RUNS):
            broken = self._one()
            if broken is not None:
                return broken
            if self.tree.over:
                return self._whole()
            most = MOST if self.about < FAR else FEW
            if self.count == most or self.taken > TURNS or self.executed > WORK:
                break
        self.about = max(self.about, self.count + 1)
        return self.open(f"explored {self.count:,} of {number(self.about)} interleavings")

    def _one(self) -> Certificate | None:
        """Run one, and go to the next; a certificate if that is enough to know."""
        self.memory.restore()
        turns, report = self.tree.begin(), None
        try:
            report = self.in_turns(turns)
            self.executed += report.total_instructions
        except Redundant:
            pass
        except ExecutionFault as fault:
            if not turns.learned:
                return self._broken(of_fault(fault, self._schedule, self.found.tried + self.count + 1), _stuck(turns))
        self.taken += len(turns.accesses)
        if turns.learned:
            self.tree.forget()
            return None
        if report is not None:
            self.count += 1
            broken = self._compared(report.evidence)
            if broken is not None:
                return broken
            if any(turns.text.vectors[a.site] for a in turns.accesses):
                self.rests_on[VECTORS] = None
            self.weak.look(turns.steps, self.tree.known)
            self.about = self.about or min(estimate(turns.accesses), VERY_MANY)
            self._tell()
        self.tree.derive()
        self.tree.next()
        return None

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.first.seed, self.tree.order)

    def _broken(self, one: Certificate, why: tuple[Any, ...] = ()) -> Certificate:
        return replace(one, reasons=(*(why or one.reasons), *self.found.reasons), rests_on=(*self.rests_on,))

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self.count, max(self.count + 1, self.about))

    def _compared(self, evidence: Any) -> Certificate | None:
        """Look at an interleaving that was run to its end."""
        one, tried = first_look(evidence, self._schedule), self.found.tried + self.count
        if one.verdict == COUNTEREXAMPLE:
            return replace(one, tried=tried)
        if evidence.beyond:
            return self.open(*evidence.beyond)
        piece = next(self.memory.differing(), None)
        if piece is not None:
            said = reason("other bytes than in the first schedule: " + piece.difference)
            return self._broken(Certificate(COUNTEREXAMPLE, (said,), (), self._schedule, tried))
        self.rests_on |= dict.fromkeys(one.rests_on[1:])
        return None

    def _whole(self) -> Certificate:
        """The certificate when all interleavings have been run."""
        if not self.count:
            return self.open("no interleaving came to its end")
        beyond = [reason(*said) for said in _weak(self.weak, self.tree.turns)]
        self.about = 0 if beyond else self.count
        if beyond:
            return self.open(*beyond)
        return Certificate(EXPLORED, (), (*self.rests_on,), None, self.found.tried + self.count, about=self.about)


class _Partition(_Exploration):
    """The runs in which clusters take over the work of others: one for each way to share it out."""

    owners: tuple[int, ...] = ()

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.first.seed, self.owners)

    def verdict(self) -> Certificate:
        self.rests_on.pop(THIN_AIR)
        self.rests_on[IN_ORDER] = None
        begun = Takeovers()
        self._run(begun)
        self.about, self.count = min(number_of_ways(begun.clusters), VERY_MANY), 0
        if self.about > MOST:
            return self.open(f"there are {number(self.about)} ways to take over work, more than are tried")
        for self.owners in ways(begun.clusters):
            broken = self._run(Takeovers(self.owners))
            if broken is not None:
                return broken
            if self.executed > WORK:
                return self.open(f"explored {self.count:,} of {number(self.about)} interleavings")
        return Certificate(EXPLORED, (), (*self.rests_on,), None, self.found.tried + self.count, about=self.about)

    def _run(self, observer: Takeovers) -> Certificate | None:
        self.memory.restore()
        try:
            report = self.in_turns(observer)
        except ExecutionFault as fault:
            return self._broken(of_fault(fault, self._schedule, self.found.tried + self.count + 1))
        self.executed += report.total_instructions
        self.count += 1
        self._tell()
        return self._compared(report.evidence)


def in_order(how: How, observers: Sequence[Observer], kernel: Any) -> tuple[How, list[Observer]]:
    """How a launch runs whose `order` names threads, or clusters that take over the work of others, and what looks at it."""
    assert isinstance(how.order, tuple)
    one: Observer = Takeovers(how.order) if asks_for_work(kernel) else Turns(NotedOrder(how.order))
    return replace(how, order=None, threads=1), [*observers, one]


def _place(turns: Turns, access: StrongAccess) -> tuple[str, str, str]:
    ins: Any = turns.kernel.sites[access.site]
    return ins.mnemonic, ins.span.place, ins.span.brief


def _weak(weak: Weakness, turns: Turns) -> Iterator[tuple[str, str, str]]:
    """Sentences with their places about what the memory model allows besides the interleavings."""
    for access, store in weak.older.values():
        (name, place, line), (_, at, _) = _place(turns, access), _place(turns, store)
        does = "read a value that is older than" if access.reads else "come before"
        said = f"{name} may {does} what {at} stores, although that comes first: nothing in the memory model orders the two"
        yield said, place, line
    for read, store in weak.circles():
        (name, place, line), (_, at, _) = _place(turns, read), _place(turns, store)
        said = f"{name} may read what another thread stores only after it has seen what {at} stores"
        yield f"{said}: no acquire and release, and no fence, lies between the two", place, line
    for one, other in weak.mixed.values():
        (name, place, line), (_, at, _) = _place(turns, one), _place(turns, other)
        yield f"{name} and {at} access parts of the same bytes: the memory model does not order them", place, line


def _stuck(turns: Turns) -> tuple[Any, ...]:
    """The reason of a deadlock of threads that read again and again."""
    if not turns.stuck:
        return ()
    w = turns.stuck[0]
    ins: Any = turns.kernel.program.blocks[w.block].body[0].original
    many = f"{len(turns.stuck)} threads read" if len(turns.stuck) > 1 else f"thread {w.thread} of the grid reads"
    said = f"{many} the same value again and again, and nobody is left who could store another: a deadlock"
    return (reason(said, ins.span.place, ins.span.brief),)

