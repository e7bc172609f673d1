"""The clusters of a launch as they wait to begin: workers take one after the other in native code (native/threads/cluster.py)."""

import struct
from collections.abc import Sequence

import numpy as np

from mmulator.launch.arena import Heap, pointer
from mmulator.native.state import Line as Struct

_WORDS, _WORD = struct.Struct("<5Q"), struct.Struct("<Q")
_CACHE = 128  # bytes, two lines: they are fetched in pairs


def order(clusters: int, most: int, seed: int) -> tuple[list[int], list[int]]:
    """Numbers of the clusters that begin first, and of those that begin last, as a seed has it; those between begin in order.

    most: clusters that are resident at once. The hardware begins them in order, as far as anyone knows, and those that are
    resident together overtake each other. So each is exchanged for one of those only, which lets a cluster wait for one with
    a lower number; and only in the first and the last such group, since there may be very many.
    """
    import random  # a launch in order needs none

    chance = random.Random(seed)
    first = range(min(most, clusters))
    last = range(max(len(first), clusters - most), clusters)
    return chance.sample(first, len(first)), chance.sample(last, len(last))


class Line:
    """The part of one launch; the next launch begins anew."""

    def __init__(self, heap: Heap) -> None:
        assert Struct.size == _WORDS.size
        memory = heap.bytes(_CACHE, 8 if heap.edge else _CACHE)
        self.address = pointer(memory)
        self._words = memoryview(memory)  # type: ignore[arg-type]
        self.begin(0)

    def begin(self, clusters: int, first: Sequence[int] = (), last: Sequence[int] = (), taken: int = 0) -> None:
        """So many clusters, of which some begin in an order of their own, and so many never will."""
        self.clusters, self.first, self.last = clusters, first, last
        self._numbers = np.array([*first, *last], np.uint64) if first else None
        numbers = 0 if self._numbers is None else pointer(self._numbers)
        _WORDS.pack_into(self._words, 0, taken, clusters, len(first), clusters - len(last), numbers)

    def skip(self, taken: int) -> None:
        """So many have begun already."""
        _WORD.pack_into(self._words, 0, taken)

    @property
    def taken(self) -> int:
        """How many have begun, or never will."""
        return min(int(_WORD.unpack_from(self._words)[0]), self.clusters)

    @property
    def left(self) -> int:
        return self.clusters - self.taken

    @property
    def next(self) -> int:
        """The number of the cluster that begins next, if one does."""
        at = self.taken
        after = at - (self.clusters - len(self.last))
        return self.first[at] if at < len(self.first) else self.last[after] if 0 <= after < len(self.last) else at
