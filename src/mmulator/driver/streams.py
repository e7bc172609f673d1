"""Streams and events. A launch is over when the call returns, so a stream is a name and a clock that counts work."""

from __future__ import annotations

from itertools import count

_numbers = count(1)


class Stream:
    """Operations in the order they are submitted. handle: what programs pass around, 0 for the default stream.
    seconds: that the work so far would have taken (clock.py)."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = next(_numbers) if handle is None else handle
        self.seconds = 0.0

    def synchronize(self) -> None:
        """Everything is done already."""


class Event:
    """A place on a stream's clock."""

    def __init__(self) -> None:
        self.handle = next(_numbers)
        self.at: float | None = None

    def record(self, stream: Stream) -> None:
        self.at = stream.seconds

    def elapsed(self, later: Event) -> float:
        """Seconds of counted work between two events that were recorded."""
        if self.at is None or later.at is None:
            raise ValueError("both events must be recorded before the time between them is asked for")
        return later.at - self.at
