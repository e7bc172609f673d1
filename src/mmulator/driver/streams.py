"""Streams and events. A launch is over when the call returns, so a stream is a name and a clock that counts work."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from mmulator.driver import clock

if TYPE_CHECKING:
    from mmulator.host.report import Report

MOST = 64  # launches that are remembered until they are reckoned
_numbers = count(0x5EA0_0010, 16)  # handles: 0 to 2 are CUDA's names of default streams


class Finished:
    """A stream or an event for whoever waits for it: all work is done when the call returns that submits it."""

    def query(self) -> bool:
        return True

    done = property(query)

    def synchronize(self) -> None:
        """Everything is done already."""


class Stream(Finished):
    """Operations in the order they are submitted. handle: what programs pass around, 0 for the default stream.
    seconds: that the work so far would have taken (clock.py), reckoned when somebody asks."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = next(_numbers) if handle is None else handle
        self._seconds = 0.0
        self._launches: list[tuple[Report, int]] = []  # that are not in it yet, and how often

    @property
    def seconds(self) -> float:
        launches, self._launches = self._launches, []
        self._seconds += sum(clock.seconds(report) * times for report, times in launches)
        return self._seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._launches, self._seconds = [], value

    def add(self, report: Report) -> None:
        """A launch. Programs do the same again and again, which is reckoned once."""
        if self._launches and report.same_work(self._launches[-1][0]):
            same, times = self._launches[-1]
            self._launches[-1] = same, times + 1
            return
        self._launches.append((report, 1))
        if len(self._launches) > MOST:
            self._seconds = self.seconds

    def wait(self, event: Event) -> None:
        """Later work begins when an event has happened; an event that was never recorded has."""
        self.seconds = max(self.seconds, event.at or 0.0)


class Event:
    """A place on a stream's clock."""

    def __init__(self) -> None:
        self.handle = next(_numbers)
        self.at: float | None = None

    def record(self, stream: Stream) -> None:
        self.at = stream.seconds

    def elapsed(self, later: Event) -> float:
        """Milliseconds of counted work between two events that were recorded."""
        if self.at is None or later.at is None:
            raise ValueError("both events must be recorded before the time between them is asked for")
        return (later.at - self.at) * 1e3
