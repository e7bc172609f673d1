"""The shape of a launch: CTAs of a grid, in clusters, and the threads and shared memory of each."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mmulator.machine.state import LANES

Extent = tuple[int, int, int]


@dataclass
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

    @property
    def warps(self) -> int:
        """Of a CTA."""
        return -(-self.threads // LANES)

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared

    @property
    def ctas(self) -> int:
        return prod(self.grid)

    @property
    def cluster_size(self) -> int:
        return prod(self.cluster)

    @property
    def clusters(self) -> int:
        return self.ctas // self.cluster_size
