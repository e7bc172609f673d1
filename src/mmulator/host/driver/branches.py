"""Graphs that run on a stream: each branch of their nodes is a lane of its own (happens.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from mmulator.host.driver.happens import Clock, join
from mmulator.host.driver.streams import Stream


class Branches:
    """A graph that runs on a stream: each of its nodes begins after those that it depends on.

    kept: streams for branches, and what is over, from launch to launch: launches of one graph come one after the other.
    """

    def __init__(self, order: Any, stream: Stream, kept: tuple[list[Stream], Clock]) -> None:
        self.order, self.lane = order, order.lane(stream)
        self.spare, self.over = [*kept[0]], kept[1]
        self.kept = kept[0]
        join(self.over, order.clocks.record(self.lane))
        self.clocks: dict[Any, Clock] = {}
        self.tips: dict[Any, Stream] = {}  # by the last node of each branch
        self.begun = dict(self.over)

    @contextmanager
    def node(self, node: Any, after: Iterable[Any]) -> Iterator[None]:
        """A node runs. after: the nodes that it depends on."""
        before = [*after]
        stream = next((self.tips.pop(one) for one in before if one in self.tips), None)
        if stream is None:
            stream = self.spare.pop() if self.spare else Stream(blocks=False)
            if stream not in self.kept:
                self.kept.append(stream)
        with self.order.inside(None):
            lane = self.order.lane(stream)
        self.order.names.setdefault(lane.number, f"branch {len(self.tips) + 1} of a graph")
        for clock in (self.begun, *(self.clocks[one] for one in before)):
            join(lane.now, clock)
        if len(before) != 1:
            lane.since = None
        with self.order.inside(stream):
            yield
        self.clocks[node], self.tips[node] = dict(lane.now), stream
        join(self.over, lane.now)

    def end(self) -> None:
        """All nodes have run."""
        join(self.lane.now, self.over)
