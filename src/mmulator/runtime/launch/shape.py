"""The shape of a launch: CTAs of a grid, in clusters, and the threads and dynamic shared memory of each."""

from math import prod

from mmulator.base.classes import dataclass
from mmulator.base.lazy import cached_property
from mmulator.runtime.native.state import LANES

Extent = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchShape:
    """How many CTAs and threads a launch has.

    grid: CTAs of the grid, (x, y, z).
    block: threads of a CTA, (x, y, z).
    shared: bytes of dynamic shared memory of a CTA.
    cluster: CTAs of a cluster, (x, y, z); they divide the grid.
    explicit: the launch or the kernel says the cluster.
    cooperative: all CTAs are resident at once, and may wait for each other.
    counts_clusters: CUDA's driver is given the grid in clusters (.blocksareclusters); here `grid` is in CTAs.
    """

    grid: Extent
    block: Extent
    shared: int = 0
    cluster: Extent = (1, 1, 1)
    explicit: bool = False
    cooperative: bool = False
    counts_clusters: bool = False

    @cached_property
    def threads(self) -> int:
        """Threads of a CTA."""
        return prod(self.block)

    @cached_property
    def warps(self) -> int:
        """Warps of a CTA."""
        return -(-self.threads // LANES)

    @cached_property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return prod(self.grid)

    @cached_property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return prod(self.cluster)

    @cached_property
    def clusters(self) -> int:
        """Clusters of the grid."""
        return self.ctas // self.cluster_size

    def block_at(self, linear: int) -> Extent:
        """(x, y, z) of the CTA with a number in the grid, x fastest."""
        return _at(linear, self.grid)

    def thread_at(self, linear: int) -> Extent:
        """(x, y, z) of the thread with a number in its CTA, x fastest."""
        return _at(linear, self.block)

    def cluster_of(self, linear: int) -> int:
        """Number, x fastest, of the cluster of the CTA with a number in the grid."""
        (gx, gy, _), (cx, cy, cz), (x, y, z) = self.grid, self.cluster, self.block_at(linear)
        return x // cx + gx // cx * (y // cy + gy // cy * (z // cz))


def _at(linear: int, extent: Extent) -> Extent:
    x, y, _ = extent
    number = int(linear)  # NumPy's integers too
    return number % x, number // x % y, number // (x * y)
