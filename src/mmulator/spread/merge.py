"""Memory that ranges of clusters read and wrote: whether each kept to itself, so that any order of them leaves the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.diagnostics.touched import Runs


@dataclass(frozen=True)
class Traces:
    """Memory that one range of clusters touched. owner: the range's number."""

    owner: int
    read: Runs
    written: Runs


@dataclass(frozen=True)
class Conflict:
    """A byte that `first` and `second` write, or that `second` reads and `first` writes."""

    byte: int
    first: int
    second: int
    both_write: bool


def conflict(traces: Sequence[Traces]) -> Conflict | None:
    """The lowest byte that two ranges write, or else the lowest that one writes and another reads."""
    runs = np.concatenate([t.written for t in traces], dtype=np.int64) if traces else np.zeros((0, 2), np.int64)
    owners = np.repeat([t.owner for t in traces], [len(t.written) for t in traces])
    order = np.lexsort((owners, runs[:, 0]))
    (begin, end), owners = runs[order].T, owners[order]
    twice = np.flatnonzero(begin[1:] < end[:-1])  # if any two overlap, two neighbours do
    if len(twice):
        n = int(twice[0])
        first, second = sorted((int(owners[n]), int(owners[n + 1])))
        return Conflict(int(begin[n + 1]), first, second, True)
    found = [c for t in traces for c in [_read(t, begin, end, owners)] if c is not None]
    return min(found, key=lambda c: (c.byte, c.second), default=None)


def _read(trace: Traces, begin: np.ndarray, end: np.ndarray, owners: np.ndarray) -> Conflict | None:
    """The lowest byte that it reads and another has written. begin, end, owners: of what is written, in order."""
    foreign = owners != trace.owner
    begin, end, owners = begin[foreign], end[foreign], owners[foreign]
    low = np.searchsorted(end, trace.read[:, 0], "right")  # the first that ends behind the beginning
    met = np.flatnonzero(np.searchsorted(begin, trace.read[:, 1], "left") > low)
    if not len(met):
        return None
    n = int(met[0])
    other = int(low[n])
    return Conflict(max(int(trace.read[n, 0]), int(begin[other])), int(owners[other]), trace.owner, False)
