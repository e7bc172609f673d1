"""The shape of a launch: CTAs of a grid, in clusters, and the threads and shared memory of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from mmulator.lazy import cached_property
from mmulator.native.state import LANES

Extent = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchShape:
    """grid: CTAs. block: threads of a CTA. cluster: CTAs of a cluster, which divides the grid.
    explicit: it was said. cooperative: all CTAs are resident at once."""

    grid: Extent
    block: Extent
    threads: int
    static_shared: int
    dynamic_shared: int
    cluster: Extent = (1, 1, 1)
    explicit: bool = False
    cooperative: bool = False

    @cached_property
    def warps(self) -> int:
        """Of a CTA."""
        return -(-self.threads // LANES)

    @cached_property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared

    @cached_property
    def ctas(self) -> int:
        return prod(self.grid)

    @cached_property
    def cluster_size(self) -> int:
        return prod(self.cluster)

    @cached_property
    def clusters(self) -> int:
        return self.ctas // self.cluster_size


shape_of = lru_cache(maxsize=256)(LaunchShape)  # programs launch in the same shapes again and again
