"""Happens-before between the operations of a program, as vector clocks. Nothing here knows of memory or of CUDA's names.

Each stream is a lane. An operation has the number of its lane and its place there; a clock says, for each lane, up to which
place operations are over. The host has a clock, too: what it has waited for. An operation begins after all that its lane and the
host know then. Lanes that block and the legacy lane wait for each other at each operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Clock = dict[int, int]  # by lane, the last place of which it is known that it is over; 0 for a lane that is not there


def join(clock: Clock, other: Clock) -> None:
    """Let a clock know what another one knows."""
    for lane, place in other.items():
        if clock.get(lane, 0) < place:
            clock[lane] = place


@dataclass(eq=False, slots=True)
class Lane:
    """A stream. blocks: it and the legacy stream wait for each other. now: what is over when its next operation begins. since:
    the place before the launches at its end that a dependent launch need not wait for; None: there are none."""

    number: int
    blocks: bool
    count: int = 0
    now: Clock = field(default_factory=dict)
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in a lane, and what is over before it. early: of a dependent launch, the place in its lane up to which operations
    are over as it begins; the others are so when it has waited for them."""

    lane: int
    place: int
    before: Clock
    early: int

    def follows(self, other: Moment) -> bool:
        """Whether another operation is over before this one begins, in every run."""
        return self.before.get(other.lane, 0) >= other.place


class HappensBefore:
    """The clocks of the host and of all lanes. legacy: the lane of the legacy default stream."""

    def __init__(self) -> None:
        self.host: Clock = {}
        self.legacy = Lane(0, True)
        self.lanes = [self.legacy]

    def lane(self, blocks: bool) -> Lane:
        """A new lane. blocks: whether the legacy lane and it wait for each other."""
        made = Lane(len(self.lanes), blocks)
        self.lanes.append(made)
        return made

    def come(self, lane: Lane) -> Clock:
        """The clock of what is over when the next operation of a lane begins."""
        join(lane.now, self.host)
        for other in self._waited(lane):
            join(lane.now, other.now)
        return lane.now

    def _waited(self, lane: Lane) -> Iterable[Lane]:
        """The lanes for which an operation of a lane waits, whatever the program says."""
        if lane is self.legacy:
            return [other for other in self.lanes if other.blocks and other is not lane]
        return (self.legacy,) if lane.blocks else ()

    def operation(self, lane: Lane, launch: bool = False, dependent: bool = False) -> Moment:
        """An operation. launch: of a kernel. dependent: it need not wait for the launch before it in its lane."""
        now = self.come(lane)
        waits = not dependent or lane.since is None
        early = lane.count if waits or lane.since is None else max(lane.since, self.host.get(lane.number, 0))
        before = dict(now)
        lane.since = (lane.count if waits else early) if launch else None
        lane.count += 1
        now[lane.number] = lane.count
        return Moment(lane.number, lane.count, before, early)

    def record(self, lane: Lane) -> Clock:
        """The clock of an event that is recorded in a lane: an operation that touches nothing."""
        lane.since = None
        return dict(self.come(lane))

    def wait(self, lane: Lane, event: Clock) -> None:
        """Operations of a lane begin after an event from now on."""
        lane.since = None
        join(self.come(lane), event)

    def synchronize(self, lane: Lane | None = None) -> None:
        """The host waits for a lane, or for all."""
        for one in self.lanes if lane is None else (lane,):
            join(self.host, self.come(one))

    def meet(self) -> None:
        """All lanes wait for each other."""
        whole: Clock = {}
        for lane in self.lanes:
            join(whole, self.come(lane))
        for lane in self.lanes:
            lane.now, lane.since = dict(whole), None

    def known(self, event: Clock) -> None:
        """The host has waited for an event."""
        join(self.host, event)

    def is_over(self, moment: Moment) -> bool:
        """Whether the host knows that an operation is over, and so each operation that begins from now on."""
        return self.host.get(moment.lane, 0) >= moment.place
