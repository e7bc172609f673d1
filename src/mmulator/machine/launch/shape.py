"""The shape of a launch: CTAs of a grid, in clusters, and the threads and shared memory of each."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mmulator.machine.state import LANES

Extent = tuple[int, int, int]


@dataclass
class LaunchShape:
    """grid: CTAs. block: threads of a CTA. cluster: CTAs of a cluster, which divides the grid."""

    grid: Extent
    block: Extent
    threads: int
    static_shared: int
    dynamic_shared: int
    cluster: Extent = (1, 1, 1)

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

    def members(self, number: int) -> list[Extent]:
        """%ctaid of the CTAs of cluster `number` of the grid, by rank (x fastest, in both)."""
        (gx, gy, _), (cx, cy, cz) = self.grid, self.cluster
        across, down = gx // cx, gy // cy
        x, y, z = number % across * cx, number // across % down * cy, number // (across * down) * cz
        return [(x + n % cx, y + n // cx % cy, z + n // (cx * cy)) for n in range(cx * cy * cz)]

    def linear(self, ctaid: Extent) -> int:
        """Number of a CTA in the grid, x fastest."""
        return ctaid[0] + self.grid[0] * (ctaid[1] + self.grid[1] * ctaid[2])
